package ratelimit_test

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	ratelimit "github.com/proxyweir/weir/caddy"
)

const tiersCaddyfile = `rate_limit {
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

func TestTiersOfAZoneChooseTheLimitAndOverridesGoBeforeThem(t *testing.T) {
	s := startSite(t, tiersCaddyfile)
	s.admit(2, "/", "X-Key", "anna", "X-Plan", "free")
	s.reject("/", "X-Key", "anna", "X-Plan", "free").want(t, "X-RateLimit-Limit", "2", "RateLimit-Policy", `"plan";q=2;w=31622400`)
	// A client that changes its tier keeps what it has used, if the period is the same.
	if r := s.do("/", "X-Key", "anna", "X-Plan", "pro"); r.status != http.StatusOK || r.remaining(t) != 1 {
		t.Errorf("status %d, %d remaining, want 200 and 1", r.status, r.remaining(t))
	}
	s.do("/", "X-Key", "anna", "X-Plan", "staff").want(t, "RateLimit", "-")
	s.admit(3, "/", "X-Key", "anna", "X-Plan", "yearly") // counts in another window
	s.reject("/", "X-Key", "anna", "X-Plan", "yearly")
	s.reject("/", "X-Key", "anna", "X-Plan", "nosuch")
	s.admit(6, "/", "X-Key", "vip", "X-Plan", "free")
	s.reject("/", "X-Key", "vip", "X-Plan", "staff").want(t, "X-RateLimit-Limit", "6")
	s.admit(10, "/", "X-Key", "robot", "X-Plan", "free")
	lines := s.serious()
	if len(lines) != 1 || !strings.Contains(lines[0], "tiers: the header X-Plan is what the client sends, so that it can choose its own limit") || !strings.Contains(lines[0], `"zone":"plan"`) {
		t.Errorf("log: %q, want one warning about the header", lines)
	}
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

func TestExemptAddressesAreNotCounted(t *testing.T) {
	s := start(t, "servers {\ntrusted_proxies static private_ranges\n}\n", ":PORT {\nrate_limit {\nzone z {\nkey everyone\nlimit 1/366d\nexcept private_ranges 192.0.2.1\nexcept 198.51.100.0/24\n}\n}\nrespond ok\n}")
	for _, address := range []string{"192.0.2.1", "::ffff:192.0.2.1", "198.51.100.255", "127.0.0.1"} {
		s.admit(1, "/", "X-Forwarded-For", address)
		s.do("/", "X-Forwarded-For", address).want(t, "RateLimit", "-")
	}
	s.admit(1, "/", "X-Forwarded-For", "192.0.2.2")
	s.reject("/", "X-Forwarded-For", "203.0.113.1")
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
		"a zone of client_ip":      {"rate_limit 9/366d", http.StatusTooEarly},
		"a zone of remote_host":    {"rate_limit 9/366d {remote_host}", http.StatusTooEarly},
		"a zone's shadow":          {"rate_limit {\nzone z {\nlimit 9/366d\nenforcement shadow\n}\n}", http.StatusOK},
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
