package report

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/exception"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// rejecting rejects requests of addresses for a penalty of the rule login.
type rejecting struct {
	*BlockedAddresses
	rule *core.Rule
}

func newRejecting(t *testing.T) *rejecting {
	t.Helper()
	limit, err := rate.NewLimit(rate.LimitConfig{Requests: 1, Period: time.Hour})
	must.Succeed(t, err)
	rule, err := core.NewRule(core.RuleConfig{Name: "login", Limit: limit, OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Hour}}})
	must.Succeed(t, err)
	source, err := match.ParseSource("client_ip")
	must.Succeed(t, err)
	r := New(Config{}, "", "login", nil)
	t.Cleanup(r.Close)
	r.Address = &source
	rule.Note(r)
	return &rejecting{NewBlockedAddresses(), rule}
}

// reject has a request rejected that a connection brings from an address, for a client.
func (r *rejecting) reject(remote, client string, change ...func(*http.Request) *http.Request) {
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.RemoteAddr = remote
	request = request.WithContext(context.WithValue(request.Context(), caddyhttp.VarsCtxKey, map[string]any{caddyhttp.ClientIPVarKey: client}))
	for _, f := range change {
		request = f(request)
	}
	hour := time.Hour.Microseconds()
	r.Note(request, []core.Check{{Rule: r.rule, Key: client, Decision: rate.Decision{Penalty: true, RetryAfter: hour, ResetAfter: hour}}})
}

func (r *rejecting) list() string {
	all, _, _ := r.List()
	var list []string
	for _, one := range all {
		list = append(list, fmt.Sprint(one.Address, " ", one.Peer))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// wrapped is a connection inside another, as of TLS or of the PROXY protocol.
type wrapped struct {
	net.Conn
	remote string
	inner  net.Conn
}

func (w wrapped) RemoteAddr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", w.remote)
	return a
}

// kernels is a connection of the kernel.
type kernels struct{ wrapped }

func (kernels) SyscallConn() (syscall.RawConn, error) { return nil, nil }

type proxied struct{ wrapped }

func (p proxied) Raw() net.Conn { return p.inner }

type encrypted struct{ wrapped }

func (e encrypted) NetConn() net.Conn { return e.inner }

func over(conn net.Conn) func(*http.Request) *http.Request {
	return func(r *http.Request) *http.Request {
		return r.WithContext(context.WithValue(r.Context(), connection{}, conn))
	}
}

func TestOnlyTheAddressOfAConnectionIsAPeer(t *testing.T) {
	r := newRejecting(t)
	r.reject("198.51.100.1:1", "198.51.100.1") // nobody asks
	r.Ask(nil)
	plain := kernels{wrapped{remote: "198.51.100.2:1"}}
	r.reject("198.51.100.2:1", "198.51.100.2", over(plain))
	r.reject("[2001:db8::1]:1", "2001:db8::1")
	r.reject("[::ffff:198.51.100.3]:1", "198.51.100.3")
	r.reject("192.0.2.1:1", "198.51.100.4")
	balancer := kernels{wrapped{remote: "192.0.2.1:1"}}
	told := proxied{wrapped{remote: "198.51.100.5:1", inner: balancer}}
	r.reject("198.51.100.5:1", "198.51.100.5", over(told))
	r.reject("198.51.100.6:1", "198.51.100.6", over(encrypted{wrapped{remote: "198.51.100.6:1", inner: proxied{wrapped{remote: "198.51.100.6:1", inner: balancer}}}}))
	r.reject("198.51.100.7:1", "198.51.100.7", over(encrypted{wrapped{remote: "198.51.100.7:1", inner: kernels{wrapped{remote: "198.51.100.7:1"}}}}))
	// Defect found: what a balancer says was taken for the peer of a connection inside another that has no method for it, as of http_redirect.
	r.reject("198.51.100.10:1", "198.51.100.10", over(&wrapped{remote: "198.51.100.10:1", Conn: told}))
	r.reject("198.51.100.11:1", "198.51.100.11", over(&wrapped{remote: "198.51.100.11:1", Conn: kernels{wrapped{remote: "198.51.100.11:1"}}}))
	r.reject("198.51.100.12:1", "198.51.100.12", over(wrapped{remote: "198.51.100.12:1"})) // shows nothing of what is in it
	r.reject("198.51.100.8:1", "198.51.100.8", func(r *http.Request) *http.Request {
		r.TLS = new(tls.ConnectionState) // early data: its address can be anybody's
		return r
	})
	r.reject("198.51.100.9:1", "198.51.100.9", func(r *http.Request) *http.Request {
		caddyhttp.SetVar(r.Context(), caddyhttp.TrustedProxyVarKey, true)
		return r
	})
	r.reject("@", "")
	must.Equal(t, r.list(), "198.51.100.10 false, 198.51.100.11 true, 198.51.100.12 false, 198.51.100.2 true, 198.51.100.3 true, 198.51.100.4 false, 198.51.100.5 false, 198.51.100.6 false, 198.51.100.7 true, 198.51.100.9 false, 2001:db8::1 true")
	r.reject("198.51.100.4:1", "198.51.100.4")
	r.reject("192.0.2.1:1", "198.51.100.4")
	must.Contain(t, r.list(), "198.51.100.4 true", "who has come by itself")
}

func TestWhatAnotherNodeHasEndedIsForgotten(t *testing.T) {
	r := newRejecting(t)
	r.Ask(nil)
	r.reject("198.51.100.1:1", "198.51.100.1")
	before, changed := r.Ask(nil)
	ended := []exception.Exception{{Rule: "login", Key: []byte("198.51.100.1"), Kind: exception.Forget, Made: 5}}
	after, _ := r.Ask(ended)
	must.Equal(t, r.list(), "", "when another node has ended it")
	must.Equal(t, before == after, false, "the version is the same")
	<-changed
	r.reject("198.51.100.1:1", "198.51.100.1")
	r.Ask(ended)
	must.Equal(t, r.list(), "198.51.100.1 true", "a penalty that has begun since")
	ended[0].Made++
	r.Ask(ended)
	must.Equal(t, r.list(), "", "that is ended again")
}

func TestNothingIsRememberedWhereNobodyAsks(t *testing.T) {
	r := newRejecting(t)
	r.Ask(nil)
	r.reject("198.51.100.1:1", "198.51.100.1")
	r.Sweep()
	must.Equal(t, r.list(), "198.51.100.1 true")
	r.asked = r.asked.Add(-askedFor - time.Second)
	r.Sweep()
	must.Equal(t, r.Wanted(), false, "ten minutes later")
	r.reject("198.51.100.1:1", "198.51.100.1") // of a request that has looked before
	must.Equal(t, r.list(), "", "ten minutes later")
}

func TestBlockedAddressesAreBounded(t *testing.T) {
	underrace.OneGoroutine(t)
	r := newRejecting(t)
	r.Ask(nil)
	for i := range mostBlocked + 10 {
		r.reject("192.0.2.1:1", fmt.Sprintf("198.%d.%d.%d", i>>16, i>>8&255, i&255))
	}
	all, _, full := r.List()
	must.Equal(t, fmt.Sprint(len(all), full), fmt.Sprint(mostBlocked, true))
	r.reject("198.51.100.7:1", "198.51.100.7")
	if !strings.Contains(r.list(), "198.51.100.7 true") {
		t.Error("a peer has no place where others have filled the list")
	}
	all, _, _ = r.List()
	must.Equal(t, len(all), mostBlocked, "with a peer")
}

// Defect found: each question worked through all decisions under the lock that rejected requests wait for, and each decision ended through all addresses.
func TestQuestionsLeaveRejectedRequestsAlone(t *testing.T) {
	underrace.OneGoroutine(t)
	r := newRejecting(t)
	r.Ask(nil)
	for i := range mostBlocked {
		r.reject("192.0.2.1:1", fmt.Sprintf("198.%d.%d.%d", i>>16, i>>8&255, i&255))
	}
	var ended []exception.Exception
	for i := range exception.Most {
		ended = append(ended, exception.Exception{Rule: "login", Key: fmt.Appendf(nil, "198.0.%d.%d", i>>8, i&255), Kind: exception.Forget, Made: 5})
	}
	began := time.Now()
	r.Ask(ended)
	took := time.Since(began)
	all, _, _ := r.List()
	must.Equal(t, len(all), mostBlocked-exception.Most, "how many are left")
	if took > time.Second {
		t.Errorf("%d at once took %s", exception.Most, took)
	}
	r.mu.Lock()
	blocks := r.blocks
	r.mu.Unlock()
	r.Ask(ended)
	if reflect.ValueOf(blocks).Pointer() != reflect.ValueOf(r.blocks).Pointer() {
		t.Error("a question after which nothing was decided works through all decisions under the lock")
	}
}
