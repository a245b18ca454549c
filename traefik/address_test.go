package traefik

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// What Traefik 3.7 takes for the client's address, worked out from its documentation and its code.
func TestIPStrategyMeansWhatTraefikMeansByIt(t *testing.T) {
	const remote = "203.0.113.9:5000"
	tests := []struct {
		strategy  object
		remote    string
		forwarded []string // the fields
		want      string
	}{
		{object{}, remote, nil, "203.0.113.9"},
		{object{}, remote, []string{"198.51.100.1"}, "203.0.113.9"},
		{object{}, "203.0.113.9", nil, "203.0.113.9"}, // without a port: as it is
		{object{}, "[2001:db8::1]:5000", nil, "2001:db8::1"},
		{object{}, "@", nil, "@"},
		{object{"ipv6Subnet": 64}, "[2001:db8:1:2:3:4:5:6]:5000", nil, "2001:db8:1:2::"},
		{object{"ipv6Subnet": 128}, "[2001:db8:1:2:3:4:5:6]:5000", nil, "2001:db8:1:2:3:4:5:6"},
		{object{"ipv6Subnet": 1}, "[2001:db8:1:2:3:4:5:6]:5000", nil, "::"},
		{object{"ipv6Subnet": 64}, remote, nil, "203.0.113.9"},
		{object{"ipv6Subnet": 64}, "no address", nil, "no address"}, // without a port nothing is masked
		{object{"ipv6Subnet": 64}, "[fe80::1%eth0]:5000", nil, "fe80::"},

		{object{"depth": 1}, remote, []string{"198.51.100.1"}, "198.51.100.1"},
		{object{"depth": 1}, remote, []string{"198.51.100.1, 198.51.100.2"}, "198.51.100.2"},
		{object{"depth": 2}, remote, []string{"198.51.100.1, 198.51.100.2"}, "198.51.100.1"},
		{object{"depth": 3}, remote, []string{"198.51.100.1, 198.51.100.2"}, ""}, // not the connection's
		{object{"depth": 1}, remote, nil, ""},
		{object{"depth": 2}, remote, nil, ""},
		{object{"depth": 1}, remote, []string{""}, ""},
		{object{"depth": 1}, remote, []string{"198.51.100.1,"}, ""},
		{object{"depth": 2}, remote, []string{"198.51.100.1,"}, "198.51.100.1"},
		{object{"depth": 1}, remote, []string{" \t198.51.100.1 "}, "198.51.100.1"},
		{object{"depth": 1}, remote, []string{"unknown"}, "unknown"},
		{object{"depth": 1}, remote, []string{"198.51.100.1", "198.51.100.2"}, "198.51.100.2"}, // one list
		{object{"depth": 2}, remote, []string{"198.51.100.1", "198.51.100.2"}, "198.51.100.1"},
		{object{"depth": 2}, remote, []string{"198.51.100.1, 198.51.100.3", "198.51.100.2"}, "198.51.100.3"},
		{object{"depth": 1}, remote, []string{"198.51.100.1:50123"}, "198.51.100.1"},
		{object{"depth": 2}, remote, []string{"198.51.100.1:50123, 10.0.0.1"}, "198.51.100.1"},
		{object{"depth": 1}, remote, []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{object{"depth": 1}, remote, []string{"[2001:DB8::1]"}, "2001:db8::1"},
		{object{"depth": 1}, remote, []string{`"[2001:db8::1]:443"`}, "2001:db8::1"},
		{object{"depth": 1}, remote, []string{`"198.51.100.1"`}, "198.51.100.1"},
		{object{"depth": 1}, remote, []string{"fe80::1%eth0"}, "fe80::1"},
		{object{"depth": 1}, remote, []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{object{"depth": 1}, remote, []string{"_hidden"}, "_hidden"},
		{object{"depth": 1, "ipv6Subnet": 48}, remote, []string{"[2001:db8:1:2::3]:443"}, "2001:db8:1::"},
		{object{"depth": 1, "ipv6Subnet": 48}, remote, []string{"2001:db8:1:2::3"}, "2001:db8:1::"},
		{object{"depth": 1, "ipv6Subnet": 48}, remote, []string{"198.51.100.1"}, "198.51.100.1"},
		{object{"depth": 1, "ipv6Subnet": 48}, remote, []string{"unknown"}, "unknown"},
		{object{"depth": 1, "ipv6Subnet": 64}, remote, []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{object{"depth": 1}, remote, []string{"2001:DB8::0:1"}, "2001:db8::1"},
		{object{"depth": 1, "excludedIPs": "198.51.100.2"}, remote, []string{"198.51.100.1, 198.51.100.2"}, "198.51.100.2"}, // depth comes first

		{object{"excludedIPs": "10.0.0.0/8"}, remote, []string{"198.51.100.1"}, "198.51.100.1"},
		{object{"excludedIPs": "10.0.0.0/8"}, remote, []string{"198.51.100.1, 10.1.2.3"}, "198.51.100.1"},
		{object{"excludedIPs": "10.0.0.0/8"}, remote, []string{"198.51.100.1, 198.51.100.2, 10.1.2.3"}, "198.51.100.2"},
		{object{"excludedIPs": "10.0.0.0/8,198.51.100.2"}, remote, []string{"198.51.100.1, 198.51.100.2, 10.1.2.3"}, "198.51.100.1"},
		{object{"excludedIPs": "10.0.0.0/8"}, remote, []string{"10.0.0.1, 10.1.2.3"}, ""},
		{object{"excludedIPs": "10.0.0.0/8"}, remote, nil, ""},
		{object{"excludedIPs": "10.0.0.0/8"}, remote, []string{"198.51.100.1,, ,10.1.2.3"}, "198.51.100.1"},
		{object{"excludedIPs": "10.0.0.0/8"}, remote, []string{"198.51.100.1, unknown, 10.1.2.3"}, "unknown"},
		{object{"excludedIPs": "10.0.0.0/8"}, remote, []string{"198.51.100.1, 10.1.2.3:80"}, "198.51.100.1"},
		{object{"excludedIPs": "10.0.0.0/8"}, remote, []string{"198.51.100.1, ::ffff:10.1.2.3"}, "198.51.100.1"},
		{object{"excludedIPs": "::ffff:10.1.2.3"}, remote, []string{"198.51.100.1, 10.1.2.3"}, "198.51.100.1"},
		{object{"excludedIPs": "2001:db8::/32"}, remote, []string{"198.51.100.1, 2001:db8::7"}, "198.51.100.1"},
		{object{"excludedIPs": "2001:db8::7"}, remote, []string{"198.51.100.1, 2001:DB8:0::7"}, "198.51.100.1"},
		{object{"excludedIPs": "fe80::/10"}, remote, []string{"198.51.100.1, fe80::1%eth0"}, "198.51.100.1"},
		{object{"excludedIPs": "::/0"}, remote, []string{"198.51.100.1"}, "198.51.100.1"},
		{object{"excludedIPs": "0.0.0.0/0"}, remote, []string{"2001:db8::7, 198.51.100.1"}, "2001:db8::7"},
		{object{"excludedIPs": "10.0.0.0/8", "ipv6Subnet": 64}, remote, []string{"2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2:3:4:5:6"}, // not masked
		{object{"excludedIPs": "10.0.0.0/8"}, remote, []string{"198.51.100.1", "198.51.100.2"}, "198.51.100.2"},
		{object{"excludedIPs": "10.0.0.0/8"}, remote, []string{"198.51.100.1", "10.1.2.3"}, "198.51.100.1"},
		{object{"excludedIPs": "10.0.0.0/8"}, remote, []string{"[2001:DB8::1]:443, 10.1.2.3:80"}, "2001:db8::1"},
		{object{"excludedIPs": "2001:db8:1::/48"}, remote, []string{"198.51.100.1:5, [2001:db8:1::1]"}, "198.51.100.1"},
	}
	for _, test := range tests {
		a := newStage(t).made(&Config{Rule: Rule{Limit: "1/1s"}, IPStrategy: test.strategy}, "m").addressing
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = test.remote
		if test.forwarded != nil {
			r.Header[forwardedFor] = test.forwarded
		}
		must.Equal(t, clientGetter(&a, nil)(r), test.want, "%v of %s with X-Forwarded-For %q, by the getter", test.strategy, test.remote, test.forwarded)
		must.Equal(t, clientAddress(&a, r), test.want, "%v of %s with X-Forwarded-For %q", test.strategy, test.remote, test.forwarded)
	}
}

func TestForwardedRequestsWithoutAStrategyAreWarnedOfOnce(t *testing.T) {
	forwarded := func(r *http.Request) { r.Header.Set(forwardedFor, "198.51.100.1") }
	const text = "set ipStrategy.depth"
	tests := []struct {
		config *Config
		warns  bool
	}{
		{&Config{Rule: Rule{Limit: "9/1m"}}, true},
		{&Config{Average: "9"}, true},
		{&Config{Average: "9", SourceCriterion: object{}}, true},
		{&Config{Rule: Rule{Limit: "9/1m", Key: []string{"host"}, Match: object{"exceptIPs": "10.0.0.1"}}}, true},
		{&Config{Rule: Rule{Limit: "9/1m"}, IPStrategy: ""}, false},
		{&Config{Rule: Rule{Limit: "9/1m"}, IPStrategy: object{"depth": 1}}, false},
		{&Config{Average: "9", SourceCriterion: object{"ipStrategy": "true"}}, false},
		{&Config{Average: "9", SourceCriterion: object{"requestHost": true}}, false},
		{&Config{Rule: Rule{Limit: "9/1m", Key: []string{"host"}}}, false},
	}
	for _, test := range tests {
		s := newStage(t)
		ctx, cancel := context.WithCancel(context.Background())
		h := s.handler(ctx, test.config, "m@file")
		get(h, "192.0.2.2", nil)
		if strings.Contains(s.log.String(), text) {
			t.Errorf("%+v: warned of without such a request", *test.config)
		}
		want := 0
		if test.warns {
			want = 1
		}
		for i := 0; i < 3; i++ { // routers, and reloads
			get(s.handler(ctx, test.config, "m@file"), "192.0.2.1", forwarded)
			s.end(ctx, cancel)
			ctx, cancel = context.WithCancel(context.Background())
			changed := *test.config
			changed.Message = strings.Repeat("x", i+1)
			get(s.handler(ctx, &changed, "m@file"), "192.0.2.1", forwarded)
		}
		if got := s.log.count(text); got != want {
			t.Errorf("%+v: %d warnings, want %d", *test.config, got, want)
		}
		cancel()
	}
}

func TestExcludedIPsBesideADepthAreWarnedOf(t *testing.T) {
	s := newStage(t)
	s.handler(context.Background(), &Config{Rule: Rule{Limit: "9/1m"}, IPStrategy: object{"depth": 1, "excludedIPs": "10.0.0.1"}}, "m@file")
	must.Equal(t, s.log.count("middleware m@file: ipStrategy: excludedIPs has no effect beside depth"), 1, "the log: %s", s.log)
}

// Behind a load balancer such a rule limits nobody: all requests have its address, which is private.
func TestExceptedPrivateAddressesWithoutAnIPStrategyAreWarnedOf(t *testing.T) {
	private, public := []string{"192.0.2.0/24", "10.0.0.0/8"}, []string{"192.0.2.0/24", "10.0.0.7"}
	file := writeFile(t, t.TempDir()+"/rules.json", `{"rules": [{"name": "filed", "limit": "9/1m", "match": {"except_ips": ["192.168.0.0/16"]}}]}`)
	for _, c := range []struct {
		name   string
		config Config
		warned string // of which rule
	}{
		{"private", Config{Rule: Rule{Limit: "9/1m", Match: object{"exceptIPs": private}}}, "m"},
		{"a rule of several", Config{Rules: []Rule{{Name: "a", Limit: "9/1m"}, {Name: "b", Limit: "9/1m", Match: object{"exceptIPs": private}}}}, "b"},
		{"in a file", Config{RulesFile: []string{file}}, "filed"},
		{"single addresses", Config{Rule: Rule{Limit: "9/1m", Match: object{"exceptIPs": public}}}, ""},
		{"a depth", Config{Rule: Rule{Limit: "9/1m", Match: object{"exceptIPs": private}}, IPStrategy: object{"depth": 1}}, ""},
		{"the connection's address is meant", Config{Rule: Rule{Limit: "9/1m", Match: object{"exceptIPs": private}}, IPStrategy: object{}}, ""},
		{"in a file, with a depth", Config{RulesFile: []string{file}, IPStrategy: object{"depth": 1}}, ""},
	} {
		s := newStage(t)
		config := c.config
		s.handler(context.Background(), &config, "m@file")
		want := 0
		if c.warned != "" {
			want = s.log.count(`middleware m@file: rule "` + c.warned + `": match: exceptIPs has private addresses, and ipStrategy is not set`)
			if want != 1 {
				t.Errorf("%s: is not warned of once\n%s", c.name, s.log)
			}
		}
		if got := s.log.count("has private addresses"); got != want {
			t.Errorf("%s: %d warnings, want %d\n%s", c.name, got, want, s.log)
		}
	}
}

// A load balancer may ask for something itself before it passes requests on.
func TestForwardedRequestsAreWarnedOfWhenOneIsRejectedAtTheLatest(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "3/1m", Algorithm: "token_bucket"}}, "m@file")
	get(h, "192.0.2.1", nil)
	for i := 0; i < 3; i++ {
		get(h, "192.0.2.1", func(r *http.Request) { r.Header.Set("X-Forwarded-For", "198.51.100.1") })
	}
	must.Equal(t, s.log.count("requests come with X-Forwarded-For"), 1, "warnings")
}

func TestAStrategyThatFindsNoAddressIsWarnedOfOnce(t *testing.T) {
	for _, rule := range []Rule{{Limit: "9/1m"}, {Limit: "9/1m", Key: []string{"host"}, Match: object{"exceptIPs": "10.0.0.1"}}} {
		s := newStage(t)
		h := s.handler(context.Background(), &Config{Rule: rule, IPStrategy: object{"depth": 2}}, "m@file")
		get(h, "192.0.2.1", func(r *http.Request) { r.Header.Set(forwardedFor, "198.51.100.1, 198.51.100.2") })
		must.Equal(t, s.log.count("finds no address"), 0, "warned of though there is one")
		for i := 0; i < 3; i++ {
			get(h, "192.0.2.1", func(r *http.Request) { r.Header.Set(forwardedFor, "198.51.100.1") })
		}
		must.Equal(t, s.log.count("finds no address"), 1, "warnings")
	}
}
