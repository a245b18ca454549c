package ratelimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// spelling is a zone of an algorithm.
type spelling struct {
	name      string
	caddyfile string
	admits    int
	quota     string
}

// Every algorithm allows exactly three requests; none of the periods ends during a test. The leaky bucket allows one, and rejects
// the next, which would have to wait an hour, longer than max_delay.
var spellings = []spelling{
	{"token_bucket", "algorithm token_bucket\nlimit 10/366d\nburst 3", 3, "3"},
	{"token_bucket by intervals", "algorithm token_bucket\nlimit 3/366d\nrefill interval", 3, "3"},
	{"leaky_bucket", "algorithm leaky_bucket\nlimit 1/1h\nburst 2", 1, "2"},
	{"fixed_window", "algorithm fixed_window\nlimit 3/366d", 3, "3"},
	{"fixed_window of the calendar", "limit 3/month\ntime_zone Europe/Berlin", 3, "3"},
	{"sliding_window_log", "algorithm sliding_window_log\nlimit 3/366d", 3, "3"},
	{"sliding_window_counter", "algorithm sliding_window_counter\nlimit 3/366d", 3, "3"},
	{"the default algorithm", "limit 3/366d", 3, "3"},
	{"the words of caddy-ratelimit", "events 3\nwindow 8784h", 3, "3"},
}

func TestEachAlgorithmAdmitsItsLimitAndNoMore(t *testing.T) {
	for _, sp := range spellings {
		t.Run(sp.name, func(t *testing.T) {
			s := startSite(t, "rate_limit {\nzone api {\nkey {header.X-Client}\n"+sp.caddyfile+"\n}\n}\nrespond ok")
			for i := range sp.admits {
				r := s.do("/", "X-Client", "anna")
				if r.status != http.StatusOK || r.body != "ok" {
					t.Fatalf("request %d: status %d, body %q, want 200 ok", i+1, r.status, r.body)
				}
				r.want(t, "X-RateLimit-Limit", sp.quota, "Retry-After", "-")
				if sp.name != "leaky_bucket" && r.remaining(t) != sp.admits-i-1 {
					t.Errorf("request %d: %d remaining, want %d", i+1, r.remaining(t), sp.admits-i-1)
				}
				r.seconds(t, "X-RateLimit-Reset", 1, 2*366*86400)
			}
			r := s.reject("/", "X-Client", "anna")
			wait := r.seconds(t, "Retry-After", 1, 366*86400+1)
			r.want(t, "X-RateLimit-Limit", sp.quota, "X-RateLimit-Retry-After", strconv.Itoa(wait), "Cache-Control", "no-store")
			s.admit(1, "/", "X-Client", "bert")
		})
	}
}

// On a first request, the fields of a bucket, and of a log with a period below 35 minutes, are exact.
func TestHeadersReportTheQuotaExactly(t *testing.T) {
	const zones = "zone bucket {\nalgorithm token_bucket\nlimit 2/1h\nburst 5\n}\nzone log {\nalgorithm sliding_window_log\nlimit 2/30m\n}\n"
	x := []string{"X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1800"} // the log is stricter
	ietf := []string{"RateLimit", `"bucket";r=4;t=1800, "log";r=1;t=1800`, "RateLimit-Policy", `"bucket";q=5;w=9000, "log";q=2;w=1800`}
	for headers, fields := range map[string][]string{
		"":                     append(x[:6:6], ietf...),
		"headers x_ratelimit":  append(x[:6:6], "RateLimit", "-", "RateLimit-Policy", "-"),
		"header_prefix X-Acme": append(ietf[:4:4], "X-RateLimit-Limit", "-", "X-Acme-Limit", "2", "X-Acme-Remaining", "1", "X-Acme-Reset", "1800"),
		"headers ietf":         append(ietf[:4:4], "X-RateLimit-Limit", "-", "X-RateLimit-Remaining", "-", "X-RateLimit-Reset", "-"),
		"headers none":         {"X-RateLimit-Limit", "-", "X-RateLimit-Remaining", "-", "X-RateLimit-Reset", "-", "RateLimit", "-", "RateLimit-Policy", "-"},
	} {
		t.Run(headers, func(t *testing.T) {
			s := startSite(t, "rate_limit {\n"+zones+headers+"\n}\nrespond ok")
			r := s.do("/")
			r.want(t, fields...)
			r.want(t, "Retry-After", "-", "X-RateLimit-Retry-After", "-", "Cache-Control", "-")
			s.admit(1, "/")
			r = s.reject("/")
			r.seconds(t, "Retry-After", 1700, 1800)
			r.want(t, "Cache-Control", "no-store")
		})
	}
}

func TestResetCanBeASecondOfTheEpoch(t *testing.T) {
	s := startSite(t, "rate_limit {\nzone z {\nalgorithm sliding_window_log\nlimit 1/30m\n}\nheader_prefix X-Acme\nheader_reset epoch\n}\nrespond ok")
	begun := int(time.Now().Unix())
	s.admit(1, "/")
	r := s.reject("/")
	until := r.seconds(t, "X-Acme-Reset", begun+1800, begun+1900)
	r.want(t, "X-Acme-Retry-After", r.header.Get("Retry-After"), "X-RateLimit-Reset", "-", "X-RateLimit-Retry-After", "-")
	if wait := r.seconds(t, "Retry-After", 1, 1800); until < begun+wait {
		t.Errorf("X-Acme-Reset %d, %d s after the beginning, is before Retry-After %d", until, until-begun, wait)
	}
}

func TestARequestThatOneZoneRejectsCostsTheOthersNothing(t *testing.T) {
	s := startSite(t, "rate_limit {\nzone all {\nkey everyone\nlimit 3/366d\n}\nzone big {\nmatch {\npath /big\n}\nkey everyone\nlimit 1/366d\ncost {query.cost}\n}\n}\nrespond ok")
	for range 10 {
		if r := s.reject("/big?cost=2"); !strings.Contains(r.header.Get("RateLimit"), `"big";r=1`) {
			t.Fatalf("RateLimit: %s, want big to reject", r.header.Get("RateLimit"))
		}
	}
	s.admit(3, "/")
	s.reject("/")
}

func TestSeveralHandlersDecideOneAfterTheOther(t *testing.T) {
	s := startSite(t, `
		route {
			rate_limit {
				zone first {
					algorithm token_bucket
					limit 4/1h
				}
			}
			rate_limit {
				zone second {
					algorithm token_bucket
					limit 2/1h
				}
			}
			respond ok
		}`)
	r := s.do("/")
	r.want(t,
		"X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1800", // the stricter one
		"RateLimit", `"first";r=3;t=900, "second";r=1;t=1800`,
		"RateLimit-Policy", `"first";q=4;w=3600, "second";q=2;w=3600`)
	s.admit(1, "/")
	r = s.reject("/") // rejected by the second, after the first has charged
	r.want(t, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0")
	if got := r.header.Get("RateLimit"); !strings.HasPrefix(got, `"first";r=1;`) || !strings.Contains(got, `, "second";r=0;t=`) {
		t.Errorf("RateLimit: %s, want the first to have 1 left and the second none", got)
	}
	s.reject("/")
	r = s.reject("/") // rejected by the first
	r.want(t, "X-RateLimit-Limit", "4", "X-RateLimit-Remaining", "0")
	if got := r.header.Get("RateLimit"); strings.Contains(got, "second") {
		t.Errorf("RateLimit: %s, want the first alone", got)
	}
}

func TestMatchersSayWhichRequestsAreCovered(t *testing.T) {
	s := startSite(t, `
		rate_limit /short 1/366d
		@write method POST
		rate_limit @write {
			zone writes {
				limit 1/366d
			}
		}
		rate_limit {
			zone either {
				match {
					path /a/*
					method GET
				}
				match {
					header X-Also yes
				}
				limit 1/366d
			}
		}
		respond ok`)
	s.do("/").want(t, "RateLimit", "-", "X-RateLimit-Limit", "-") // no zone covers it
	s.admit(3, "/")
	s.admit(1, "/short")
	s.reject("/short")
	s.admit(1, "POST /")
	s.reject("POST /")
	s.admit(1, "/a/b")
	s.reject("/", "X-Also", "yes") // the other matcher set, with the same counter
	s.admit(3, "PUT /a/b")         // all matchers of a set must match
}

func TestPlaceholdersTellClientsApart(t *testing.T) {
	for key, test := range map[string]struct{ one, other []string }{ // a request, and its header fields
		"{header.X-Key}":         {[]string{"/", "X-Key", "a", "X-Key", "b"}, []string{"/", "X-Key", "a"}},
		"{cookie.session}":       {[]string{"/", "Cookie", "session=a"}, []string{"/", "Cookie", "x=1; session=b"}},
		"{query.user}":           {[]string{"/?user=a"}, []string{"/?user=b"}},
		"{path}":                 {[]string{"/a"}, []string{"/b"}},
		"{host}":                 {[]string{"http://a.test/"}, []string{"http://b.test/"}},
		"u-{header.X-Key}-{uri}": {[]string{"/a", "X-Key", "a"}, []string{"/b", "X-Key", "a"}},
	} {
		t.Run(strings.NewReplacer("{", "", "}", "").Replace(key), func(t *testing.T) {
			s := startSite(t, "rate_limit 1/366d "+key+"\nrespond ok")
			s.admit(1, test.one[0], test.one[1:]...)
			s.reject(test.one[0], test.one[1:]...)
			s.admit(1, test.other[0], test.other[1:]...)
			s.reject(test.other[0], test.other[1:]...)
		})
	}
}

// The default key is the client's address; with the words of caddy-ratelimit it is one counter for all, as there.
func TestTheDefaultKey(t *testing.T) {
	s := start(t, behindProxy, `:PORT {
		rate_limit /native {
			zone native {
				limit 1/366d
			}
		}
		rate_limit /dialect {
			zone dialect {
				events 1
				window 8784h
			}
		}
		respond ok
	}`)
	s.admit(1, "/native", "X-Forwarded-For", "192.0.2.1")
	s.admit(1, "/native", "X-Forwarded-For", "192.0.2.2")
	s.admit(1, "/dialect", "X-Forwarded-For", "192.0.2.1")
	s.reject("/dialect", "X-Forwarded-For", "192.0.2.2")
}

// behindProxy makes Caddy trust this test's own address as a proxy's.
const behindProxy = "servers {\ntrusted_proxies static 127.0.0.1/32\n}\n"

func TestAddressesAreMaskedToTheirNetwork(t *testing.T) {
	s := start(t, behindProxy, `:PORT {
		rate_limit {
			zone net {
				limit 1/366d
				ipv4_prefix 24
				ipv6_prefix 64
			}
		}
		respond ok
	}`)
	s.admit(1, "/", "X-Forwarded-For", "192.0.2.1")
	s.reject("/", "X-Forwarded-For", "192.0.2.200")
	s.reject("/", "X-Forwarded-For", "::ffff:192.0.2.7")
	s.admit(1, "/", "X-Forwarded-For", "192.0.3.1")
	s.admit(1, "/", "X-Forwarded-For", "2001:db8::1")
	s.reject("/", "X-Forwarded-For", "2001:db8::ffff:1")
	s.admit(1, "/", "X-Forwarded-For", "2001:db8:0:1::1")
}

func TestWithoutPrefixesEveryAddressIsAClient(t *testing.T) {
	s := start(t, behindProxy, ":PORT {\nrate_limit 1/366d\nrespond ok\n}")
	for _, address := range []string{"192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"} {
		s.admit(1, "/", "X-Forwarded-For", address)
		s.reject("/", "X-Forwarded-For", address)
	}
	// All spellings of an address are the same.
	s.reject("/", "X-Forwarded-For", "2001:0db8:0:0::0001")
}

func TestAClientCannotChooseItsAddressWhereNoProxyIsTrusted(t *testing.T) {
	s := startSite(t, "rate_limit 1/366d\nrespond ok")
	s.admit(1, "/", "X-Forwarded-For", "192.0.2.1")
	s.reject("/", "X-Forwarded-For", "192.0.2.2")
}

func TestARequestWithoutTheKey(t *testing.T) {
	zone := func(policy string) string {
		return "zone " + strings.TrimPrefix(policy, "on_missing_key ") + " {\nmatch {\npath /" + policy[len(policy)-1:] + "\n}\nkey {header.X-Key}\nlimit 1/366d\n" + policy + "\n}\n"
	}
	s := startSite(t, "rate_limit {\n"+zone("on_missing_key share")+zone("on_missing_key skip")+zone("on_missing_key reject")+"zone tls {\nmatch {\npath /tls\n}\nkey {http.request.tls.client.subject}\nlimit 1/366d\n}\n}\nrespond ok")
	s.admit(1, "/e")
	s.reject("/e")
	s.reject("/e", "X-Key", "") // an empty field is a missing one
	s.admit(1, "/e", "X-Key", "a")
	s.admit(5, "/p")
	s.do("/p").want(t, "RateLimit", "-", "X-RateLimit-Limit", "-")
	s.admit(1, "/p", "X-Key", "a")
	s.reject("/p", "X-Key", "a")
	s.reject("/t").want(t, "Retry-After", "-") // waiting does not help
	s.admit(1, "/t", "X-Key", "a")
	s.admit(1, "/tls") // what TLS would have had
	s.reject("/tls")
}

func TestARequestTakesItsCost(t *testing.T) {
	s := startSite(t, "rate_limit {\nzone z {\nkey everyone\nlimit 10/366d\ncost 3\n}\n}\nrespond ok")
	for _, left := range []int{7, 4, 1} {
		if r := s.do("/"); r.status != http.StatusOK || r.remaining(t) != left {
			t.Errorf("status %d, %d remaining, want 200 and %d", r.status, r.remaining(t), left)
		}
	}
	if r := s.reject("/"); r.remaining(t) != 1 {
		t.Errorf("%d remaining, want 1", r.remaining(t))
	}
}

func TestAShadowIsNeverSeen(t *testing.T) {
	s := startSite(t, `
		rate_limit {
			zone ghost {
				limit 1/366d
				enforcement shadow
			}
			zone real {
				match {
					path /both
				}
				limit 3/366d
			}
		}
		respond ok`)
	for range 4 {
		r := s.do("/")
		if r.status != http.StatusOK {
			t.Fatalf("status %d, want 200: a shadow does not reject", r.status)
		}
		r.want(t, "RateLimit", "-", "RateLimit-Policy", "-", "X-RateLimit-Limit", "-", "X-RateLimit-Remaining", "-", "X-RateLimit-Reset", "-", "Retry-After", "-", "Cache-Control", "-")
	}
	for range 3 {
		r := s.do("/both")
		if got := fmt.Sprint(r.header); r.status != http.StatusOK || strings.Contains(got, "ghost") || r.header.Get("X-RateLimit-Limit") != "3" {
			t.Errorf("status %d, header %s, want 200 and the real zone alone", r.status, got)
		}
	}
	r := s.reject("/both", "Accept", "application/json")
	if got := fmt.Sprint(r.header, r.body); strings.Contains(got, "ghost") {
		t.Errorf("the shadow shows in %s", got)
	}
}

// With count_rejected, a rejected request also uses up the rest.
func TestCountRejectedChargesWhatIsRejected(t *testing.T) {
	s := startSite(t, "rate_limit {\nzone z {\nkey everyone\nlimit 5/366d\ncost {header.X-Cost}\ncount_rejected\n}\n}\nrespond ok")
	s.admit(1, "/", "X-Cost", "3")
	s.reject("/", "X-Cost", "3")
	s.reject("/", "X-Cost", "2")
}

func TestTheUpstreamsOwnFieldsStay(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "999")
		w.Header().Set("X-RateLimit-Remaining", "998")
		w.Header().Set("RateLimit", `"theirs";r=998;t=5`)
		w.Header().Set("Retry-After", "7")
	}))
	defer upstream.Close()
	const down = " {\nheader_down -X-RateLimit-*\nheader_down -RateLimit*\n}"
	for _, c := range []struct {
		headers, down string
		told          int
		want          []string
	}{
		{"headers none", "", 0, []string{"X-RateLimit-Limit", "999", "X-RateLimit-Remaining", "998", "RateLimit", `"theirs";r=998;t=5`, "Retry-After", "7"}},
		{"headers x_ratelimit", "", 1, []string{"X-RateLimit-Limit", "3 & 999", "X-RateLimit-Remaining", "2 & 998", "RateLimit", `"theirs";r=998;t=5`, "Retry-After", "7"}},
		{"header_prefix X-Acme", " {\nheader_down X-Acme-Limit 999\n}", 1, []string{"X-Acme-Limit", "3 & 999", "X-RateLimit-Limit", "999"}},
		{"headers x_ratelimit", down, 0, []string{"X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "2", "RateLimit", "-", "Retry-After", "7"}},
	} {
		t.Run(c.headers+c.down, func(t *testing.T) {
			s := startSite(t, "rate_limit {\nzone z {\nlimit 3/366d\n}\n"+c.headers+"\n}\nreverse_proxy "+upstream.URL+c.down)
			s.do("/").want(t, c.want...)
			s.do("/")
			prefix := "X-RateLimit"
			if _, own, is := strings.Cut(c.headers, "header_prefix "); is {
				prefix = own
			}
			s.said(c.told, "the service behind this handler sends "+prefix+" fields, too, and answers have both: write header_down -"+prefix+"-* into reverse_proxy to leave them to the rate limit, "+
				"or headers none into rate_limit to leave them to the service")
		})
	}
}
