package ratelimit_test

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	ratelimit "github.com/proxyweir/weir/caddy"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/redis/redistest"
)

// Zones with tiers and overrides, in both languages.
const (
	tiersCaddyfile = `rate_limit {
		zone plan {
			key {header.X-Key}
			algorithm fixed_window
			tiers {header.X-Plan} {
				free 2/366d
				pro 4/366d
				yearly 3/365d
				staff unlimited
				* 1/366d
			}
			override vip 6/366d
			override robot unlimited
		}
	}
	respond ok`
	tiersJSON = `[{"handler": "rate_limit", "rate_limits": {"plan": {
		"key": "{http.request.header.X-Key}",
		"algorithm": "fixed_window",
		"tiers": {"source": "{http.request.header.X-Plan}", "limits": {"free": "2/366d", "pro": "4/366d", "yearly": "3/365d", "staff": "unlimited", "*": "1/366d"}},
		"overrides": [{"key": ["vip"], "limit": "6/366d"}, {"key": ["robot"], "limit": "unlimited"}]
	}}}, {"handler": "static_response", "body": "ok"}]`
)

func TestTiersOfAZoneChooseTheLimitAndOverridesGoBeforeThem(t *testing.T) {
	for language, begin := range map[string]func(t *testing.T) *server{
		"Caddyfile": func(t *testing.T) *server { return startSite(t, tiersCaddyfile) },
		"JSON":      func(t *testing.T) *server { return startJSON(t, httpApp(tiersJSON)) },
	} {
		t.Run(language, func(t *testing.T) {
			s := begin(t)
			s.admit(2, "/", "X-Key", "anna", "X-Plan", "free")
			s.reject("/", "X-Key", "anna", "X-Plan", "free").want(t, "X-RateLimit-Limit", "2", "RateLimit-Policy", `"plan";q=2;w=31622400`)
			// A client that changes its tier keeps what it has used, if the period is the same.
			if r := s.do("/", "X-Key", "anna", "X-Plan", "pro"); r.status != http.StatusOK || r.remaining(t) != 1 {
				t.Errorf("status %d, %d remaining, want 200 and 1", r.status, r.remaining(t))
			}
			s.do("/", "X-Key", "anna", "X-Plan", "staff").want(t, "RateLimit", "-")
			s.reject("/", "X-Key", "anna", "X-Plan", "free")
			s.admit(1, "/", "X-Key", "anna", "X-Plan", "pro")
			s.reject("/", "X-Key", "anna", "X-Plan", "pro")
			s.admit(3, "/", "X-Key", "anna", "X-Plan", "yearly") // counts in another window
			s.reject("/", "X-Key", "anna", "X-Plan", "yearly")
			s.reject("/", "X-Key", "anna", "X-Plan", "nosuch")
			s.reject("/", "X-Key", "anna")
			s.admit(1, "/", "X-Key", "bert")
			s.reject("/", "X-Key", "bert", "X-Plan", "*")
			s.admit(6, "/", "X-Key", "vip", "X-Plan", "free")
			s.reject("/", "X-Key", "vip", "X-Plan", "staff").want(t, "X-RateLimit-Limit", "6")
			s.admit(10, "/", "X-Key", "robot", "X-Plan", "free")
			lines := s.serious()
			if len(lines) != 1 || !strings.Contains(lines[0], "tiers: the header X-Plan is what the client sends, so that it can choose its own limit") || !strings.Contains(lines[0], `"zone":"plan"`) {
				t.Errorf("log: %q, want one warning about the header", lines)
			}
		})
	}
}

func TestAReloadChangesTiersAndKeepsWhatWasUsed(t *testing.T) {
	s := startSite(t, tiersCaddyfile)
	s.admit(2, "/", "X-Key", "anna", "X-Plan", "free")
	s.admit(6, "/", "X-Key", "vip")
	s.reload(strings.NewReplacer("free 2/366d", "free 3/366d", "vip 6/366d", "vip 5/366d", "staff unlimited", "staff 4/366d").Replace(tiersCaddyfile))
	s.admit(1, "/", "X-Key", "anna", "X-Plan", "free")
	s.reject("/", "X-Key", "anna", "X-Plan", "free")
	s.admit(1, "/", "X-Key", "anna", "X-Plan", "staff")
	s.reject("/", "X-Key", "anna", "X-Plan", "staff")
	s.reject("/", "X-Key", "vip")
	s.said(0, saysAfresh)
}

// No warning if the client cannot choose the source of the tier.
func TestTiersOfWhatTheProxyKnowsAreNotWarnedOf(t *testing.T) {
	s := startSite(t, `vars plan pro
		rate_limit {
			zone plan {
				key everyone
				tiers {vars.plan} {
					pro 2/366d
				}
				limit unlimited
			}
		}
		respond ok`)
	s.admit(2, "/")
	s.reject("/")
	if lines := s.serious(); len(lines) != 0 {
		t.Errorf("log: %q, want no warning", lines)
	}
}

// A request's address is masked, and the override is for the resulting network.
func TestOverridesOfMaskedAddresses(t *testing.T) {
	const trusting = "servers {\ntrusted_proxies static private_ranges\n}\n"
	for name, site := range map[string]string{
		"of a zone": `rate_limit {
			zone z {
				ipv6_prefix 64
				ipv4_prefix 24
				limit 1/366d
				override 2001:DB8:0:1:ffff::9/64 3/366d
				override 192.0.2.0/24 unlimited
			}
		}
		respond ok`,
		"of a file": "rate_limit {\nrules_file DIR/rules/*.yaml\n}\nrespond ok",
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.put("a.yaml", rulesOf(`{name: f, ipv4_prefix: 24, limit: 1/366d, overrides: [{key: "2001:db8:0:1::/64", limit: 3/366d}, {key: 192.0.2.0/24, limit: unlimited}]}`))
			s.load(s.caddyfile(trusting, ":PORT {\n"+site+"\n}"))
			s.admit(2, "/", "X-Forwarded-For", "2001:db8:0:1::1")
			s.admit(1, "/", "X-Forwarded-For", "2001:0DB8:0:1:2::")
			s.reject("/", "X-Forwarded-For", "2001:db8:0:1::2")
			s.admit(1, "/", "X-Forwarded-For", "2001:db8:0:2::1")
			s.reject("/", "X-Forwarded-For", "2001:db8:0:2::2")
			s.admit(5, "/", "X-Forwarded-For", "192.0.2.1")
			s.admit(1, "/", "X-Forwarded-For", "192.0.3.1")
			s.reject("/", "X-Forwarded-For", "192.0.3.2")
		})
	}
}

func TestExemptAddressesAreNotCounted(t *testing.T) {
	const trusting = "servers {\ntrusted_proxies static private_ranges\n}\n"
	for name, except := range map[string]string{
		"one by one":     "except 192.0.2.1 2001:db8::/32\nexcept 198.51.100.0/24",
		"private ranges": "except private_ranges 192.0.2.1 2001:db8::/32 198.51.100.0/24",
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, trusting, ":PORT {\nrate_limit {\nzone z {\nkey everyone\nlimit 1/366d\n"+except+"\n}\n}\nrespond ok\n}")
			for _, address := range []string{"192.0.2.1", "::ffff:192.0.2.1", "2001:db8:1::1", "198.51.100.255"} {
				r := s.do("/", "X-Forwarded-For", address)
				if r.status != http.StatusOK {
					t.Errorf("%s: status %d, want 200", address, r.status)
				}
				r.want(t, "RateLimit", "-")
			}
			s.admit(1, "/", "X-Forwarded-For", "192.0.2.2")
			s.reject("/", "X-Forwarded-For", "203.0.113.1")
			if own := s.do("/"); (own.status == http.StatusOK) != strings.Contains(except, "private_ranges") {
				t.Errorf("127.0.0.1: status %d", own.status)
			}
		})
	}
}

// Until the TLS handshake is complete the sender may be anyone. So no exemption, tier or descriptor may depend on the address then.
// What does not depend on addresses is decided.
func TestEarlyDataGetsNothingByItsAddress(t *testing.T) {
	for name, test := range map[string]struct {
		site  string
		early int
	}{
		"an exception":             {"rate_limit {\nzone z {\nkey everyone\nlimit 9/366d\nexcept 198.51.100.0/24\n}\n}", http.StatusTooEarly},
		"a tier":                   {"rate_limit {\nzone z {\nkey everyone\ntiers {client_ip} {\n198.51.100.7 unlimited\n* 9/366d\n}\n}\n}", http.StatusTooEarly},
		"a file's client_ip":       {"rate_limit {\nrules_file DIR/rules/ip.yaml\n}", http.StatusTooEarly},
		"a file's remote_ip":       {"rate_limit {\nrules_file DIR/rules/remote.yaml\n}", http.StatusTooEarly},
		"a file's exception":       {"rate_limit {\nrules_file DIR/rules/except.yaml\n}", http.StatusTooEarly},
		"a file's shadow":          {"rate_limit {\nrules_file DIR/rules/shadow.yaml\n}", http.StatusOK},
		"a file's header":          {"rate_limit {\nrules_file DIR/rules/header.yaml\n}", http.StatusOK},
		"a file's other path":      {"rate_limit {\nrules_file DIR/rules/path.yaml\n}", http.StatusOK},
		"a descriptor":             {"rate_limit {\nrules_file DIR/rules/d.yaml\ndescriptor k {client_ip}\n}", http.StatusTooEarly},
		"a descriptor of a header": {"rate_limit {\nrules_file DIR/rules/d.yaml\ndescriptor k {header.K}\n}", http.StatusOK},
		"a zone of a header":       {"rate_limit 9/366d {header.K}", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			startFiles(t, test.site+"\nrespond ok",
				"ip.yaml", rulesOf("{name: r, limit: 9/366d}"),
				"remote.yaml", rulesOf("{name: r, key: remote_ip, limit: 9/366d}"),
				"except.yaml", rulesOf("{name: r, key: header:K, match: {except_ips: [198.51.100.0/24]}, limit: 9/366d}"),
				"shadow.yaml", rulesOf("{name: r, limit: 9/366d, enforcement: shadow}"),
				"header.yaml", rulesOf("{name: r, key: header:K, limit: 9/366d}"),
				"path.yaml", rulesOf("{name: r, match: {paths: [/other]}, limit: 9/366d}"),
				"d.yaml", "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: 9}}\n")
			handler := httpServer(t).Routes[0].Handlers[0].(*ratelimit.Handler)
			for _, complete := range []bool{false, true} {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.RemoteAddr = "198.51.100.7:443"
				r.TLS = &tls.ConnectionState{HandshakeComplete: complete}
				w := httptest.NewRecorder()
				r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, httpServer(t))
				err := handler.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil }))
				status := w.Code
				var failed caddyhttp.HandlerError
				if errors.As(err, &failed) {
					status = failed.StatusCode
				}
				want := http.StatusOK
				if !complete {
					want = test.early
				}
				if status != want {
					t.Errorf("handshake complete: %v: status %d, want %d", complete, status, want)
				}
			}
		})
	}
}

// Defects found: the override of one address freed all of the network with which it shares a counter; and an override that no
// client can have had no effect. Neither was reported.
func TestOverridesThatWouldBeOfOthersOrOfNobodyAreRefused(t *testing.T) {
	zone := func(lines string) string {
		return "rate_limit {\nzone z {\nlimit 1/366d\n" + lines + "\n}\n}\nrespond ok"
	}
	for _, c := range []struct{ lines, want string }{
		{"ipv4_prefix 24\noverride 198.51.100.7 unlimited", `overrides: "198.51.100.7": has one counter with all of 198.51.100.0/24 (ipv4_prefix 24), so that this would be their limit, too; write 198.51.100.0/24 if that is meant, else count by addresses`},
		{"ipv4_prefix 24\noverride 198.51.100.7/32 unlimited", `overrides: "198.51.100.7/32": has one counter with all of 198.51.100.0/24`},
		{"ipv6_prefix 64\noverride 2001:db8::7/128 unlimited", `overrides: "2001:db8::7/128": has one counter with all of 2001:db8::/64`},
		{"ipv6_prefix 64\noverride 2001:db8::7 2/366d", `overrides: "2001:db8::7": has one counter with all of 2001:db8::/64 (ipv6_prefix 64), so that this would be their limit, too; write 2001:db8::/64`},
		{"ipv4_prefix 24\nkey {header.X-Ip}\noverride 198.51.100.7 2/366d", `overrides: "198.51.100.7": has one counter with all of 198.51.100.0/24`},
		{"override 198.51.100.0/24 unlimited", `overrides: "198.51.100.0/24": is no client: each of its addresses is counted by itself; name one, or count by such networks (ipv4_prefix 24); addresses that are not to be counted are written behind except`},
		{"ipv4_prefix 24\noverride 198.51.0.0/16 unlimited", `overrides: "198.51.0.0/16": is no client: it is counted by smaller networks, such as 198.51.0.0/24 (ipv4_prefix 24)`},
		{"override evil-host unlimited", `overrides: "evil-host": must be an address, such as 192.0.2.7; addresses that are not to be counted are written behind except`},
		{"key {remote_host}\noverride evil-host unlimited", `overrides: "evil-host": must be an address`},
		{"key {path}\noverride login 2/366d", `overrides: "login": must be a path, which begins with /`},
		{"key \"{client_ip} {method}\"\noverride 192.0.2.7 \"P T\" 2/366d", `overrides: "P T": must be a method such as POST`},
		{"key {path}\noverride /login 2/366d\noverride //Login 3/366d", `overrides: "//Login": duplicate key; keep one`},
		{"key {path.0}\noverride /login 2/366d", `overrides: "/login": must be one segment of a path`},
		{"key {labels.1}\noverride b.test 2/366d", `overrides: "b.test": must be one label of a host`},
		{"key {host}\noverride https://c.test 2/366d", `overrides: "https://c.test": must be a host, and is a URL; write c.test`},
		{"key {remote_port}\noverride 70000 2/366d", `overrides: "70000": must be a port, 1 to 65535`},
		{"key {file}\noverride /Index.html 2/366d", `overrides: "/Index.html": must be one segment of a path`},
		{"tiers {host} {\n*.example.com 2/366d\n}", `tiers: "*.example.com": must be one host, such as shop.example`},
		{"ipv4_prefix 24\noverride 0.0.0.0/0 2/366d", `overrides: "0.0.0.0/0": is no client, but all; what holds for all is the rule's limit itself; name one, such as 192.0.2.0/24`},
		{"tiers {client_ip} {\nevil-host 2/366d\n}", `tiers: "evil-host": must be an address, since the tier is one`},
		{"tiers {path} {\nlogin 2/366d\n}", `tiers: "login": must be a path, which begins with /`},
	} {
		s := newServer(t)
		if _, err := s.adapt("", ":PORT {\n"+zone(c.lines)+"\n}"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n%v\nwant %s", c.lines, err, c.want)
		}
	}
	for _, lines := range []string{ // accepted ones
		"ipv4_prefix 24\noverride 127.0.0.0/24 unlimited", "ipv4_prefix 24\noverride 127.0.0.9/24 unlimited", "override 127.0.0.1 unlimited", "override 127.0.0.1/32 unlimited",
		"ipv4_prefix 32\noverride 127.0.0.1 unlimited", "ipv6_prefix 64\noverride 127.0.0.1 unlimited", "key {path}\noverride //A unlimited",
	} {
		s := startSite(t, zone(lines))
		s.admit(3, "/a")
	}
}

// A key with several placeholders has several values, and so has an override.
func TestOverridesOfKeysWithSeveralParts(t *testing.T) {
	s := startSite(t, "rate_limit {\nzone z {\nkey \"{header.A} {header.B}\"\nlimit 1/366d\noverride a b 2/366d\noverride \"a b\" \"\" 3/366d\n}\n}\nrespond ok")
	s.admit(2, "/", "A", "a", "B", "b")
	s.reject("/", "A", "a", "B", "b")
	s.admit(3, "/", "A", "a b")
	s.reject("/", "A", "a b")
	s.admit(1, "/", "A", "b", "B", "a")
	s.reject("/", "A", "b", "B", "a")
}

// A client that omits the key is rejected even if its limit would be none. If there is no limit at all, rejecting has no effect,
// and is refused.
func TestAMissingKeyIsRejectedWhereItsLimitIsNone(t *testing.T) {
	s := startSite(t, `rate_limit {
		zone keyed {
			key {header.X-Key}
			limit unlimited
			override slow 1/366d
			on_missing_key reject
		}
	}
	respond ok`)
	s.admit(3, "/", "X-Key", "a")
	s.admit(1, "/", "X-Key", "slow")
	s.reject("/", "X-Key", "slow")
	s.reject("/").want(t, "Retry-After", "-")
	if _, err := s.adapt("", ":PORT {\nrate_limit {\nzone a {\nkey {header.X-Key}\nlimit unlimited\non_missing_key reject\n}\n}\n}"); err == nil || !strings.Contains(err.Error(), "on_missing_key \"reject\": has no effect on a zone without any limit") {
		t.Errorf("got %v", err)
	}
}

// Defect found: whenever a lower limit charged a bucket, the bucket was cut to that limit's capacity, so that a POST gave back what
// GETs had used. (With count_rejected, rejections are charged too, so no time need pass here.)
func TestALowerTierForgetsNothingOfWhatAHigherOneHasCounted(t *testing.T) {
	redis := redistest.Start(t)
	for i, algorithm := range []string{"token_bucket", "token_bucket\nrefill interval", "fixed_window", "sliding_window_log", "sliding_window_counter"} {
		for _, store := range []string{"", storeAt(redis.Addr(), patiently, "prefix "+strconv.Itoa(i)+":")} {
			t.Run(algorithm+store, func(t *testing.T) {
				s := startSite(t, "rate_limit {\nzone z {\ncount_rejected\nalgorithm "+algorithm+"\ntiers {method} {\nPOST 10/366d\n* 100/366d\n}\n}\n"+store+"}\nrespond ok")
				s.admit(100, "/")
				for range 3 {
					s.reject("/")
					if r := s.reject("POST /"); r.remaining(t) != 0 {
						t.Errorf("a POST leaves %d, want 0", r.remaining(t))
					}
				}
				s.reject("/")
			})
		}
	}
}

// In ten seconds, at most the larger burst may pass, and what the higher rate refills: here by Redis's clock.
func TestTiersTogetherLetNoMoreThroughThanTheHighest(t *testing.T) {
	redis := redistest.Start(t, redistest.WithClock())
	clock := &storetest.Clock{}
	clock.Set(1_790_000_000_000_000)
	clock.Follow(redis.SetTime)
	s := startSite(t, "rate_limit {\nzone z {\nalgorithm token_bucket\ntiers {method} {\nPOST 10/10s\n* 100/10s\n}\n}\n"+storeAt(redis.Addr(), patiently)+"}\nrespond ok")
	s.admit(100, "/")
	s.reject("/")
	s.reject("POST /").want(t, "Retry-After", "91") // it waits for what the GETs have used, at its own rate
	for range 10 {
		clock.Add(1_000_000)
		s.admit(10, "/")
		s.reject("/")
		s.reject("POST /").want(t, "Retry-After", "91")
	}
}
