package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// marked is a client whose server has a mark of another node.
type marked struct {
	server *Server
	calls  []*Call
	reply  []int64
}

func (m *marked) Server(key string) (*Server, error) { return m.server, nil }
func (m *marked) Servers() []*Server                 { return []*Server{m.server} }
func (m *marked) Cluster() bool                      { return false }
func (m *marked) Timeout() time.Duration             { return time.Minute }
func (m *marked) Background() time.Duration          { return m.Timeout() }
func (m *marked) Name() string                       { return "marked" }
func (m *marked) Close() error                       { return nil }

// Run implements Conn.
func (m *marked) Run(call *Call) error {
	m.calls = append(m.calls, call)
	call.Reply = append(call.Reply[:0], m.reply...)
	return nil
}

func TestOtherPrefixesAreReportedOnceForEachRule(t *testing.T) {
	client := &marked{reply: []int64{24, 64}}
	client.server = NewServer("marked", client)
	var reported []string
	s, err := NewStore(Config{Client: client, Differs: func(namespace, rule string, here, there match.Prefixes) {
		reported = append(reported, fmt.Sprint(namespace, "/", rule, " ", here.IPv4, " ", here.IPv6, " ", there.IPv4, " ", there.IPv6))
	}})
	must.Succeed(t, err)
	open := func(name, spec string) {
		must.Succeed(t, s.Open(mustRule(t, core.RuleConfig{Namespace: "n", Name: name, KeySpec: spec}, rate.LimitConfig{})))
	}
	open("same", "client_ip /24 /64")
	open("other", "{http.request.remote.host} {path} /0 /64")
	open("whole", "client_ip")
	open("tenants", "header:X-Tenant")
	open("descriptions", "{http.request.header.Description} header:X-Zip static:ip") // once taken for an address
	s.Compare()
	s.Compare()
	must.Equal(t, len(client.calls), 6, "%d calls for three rules with an address, compared twice", len(client.calls))
	all := strings.Join(reported, ", ")
	if len(reported) != 2 || !strings.Contains(all, "n/other 32 64 24 64") || !strings.Contains(all, "n/whole 32 128 24 64") {
		t.Errorf("reported %s", all)
	}
	client.reply = []int64{24, 48}
	s.Compare()
	if len(reported) != 5 {
		t.Errorf("after the mark has changed: reported %s", strings.Join(reported, ", "))
	}
	s.closed = true
	if err := s.Close(); err != nil || !s.comparison.closed {
		t.Errorf("%v; compared after the end: %v", err, !s.comparison.closed)
	}
}

func TestAKeySpecIsSplitIntoSourcesAndPrefixes(t *testing.T) {
	for spec, want := range map[string]string{
		"client_ip":                     "client_ip|32 128",
		"client_ip /0 /64":              "client_ip|32 64",
		"client_ip header:X /24 /0":     "client_ip header:X|24 128",
		"{client_ip} /a /24 /56":        "{client_ip} /a|24 56",
		"{client_ip} /a":                "{client_ip} /a|32 128",
		"{client_ip} /a /b":             "{client_ip} /a /b|32 128",
		"":                              "|32 128",
		"header:X-Very-Long / /24 /64x": "header:X-Very-Long / /24 /64x|32 128",
	} {
		of, p := splitSpec(spec)
		must.Equal(t, fmt.Sprint(of, "|", p.IPv4, " ", p.IPv6), want, "%q", spec)
	}
}
