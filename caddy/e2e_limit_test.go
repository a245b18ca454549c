package ratelimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// spelling is a zone in the Caddyfile and in JSON.
type spelling struct {
	name      string
	caddyfile string
	json      string
	admits    int
	quota     string
}

// Every algorithm allows exactly three requests; none of the periods ends during a test. The leaky bucket allows one, and rejects
// the next, which would have to wait an hour, longer than max_delay.
var spellings = []spelling{
	{"token_bucket", "algorithm token_bucket\nlimit 10/366d\nburst 3", `"algorithm":"token_bucket","requests":10,"period":"366d","burst":3`, 3, "3"},
	{"token_bucket by intervals", "algorithm token_bucket\nlimit 3/366d\nrefill interval", `"algorithm":"token_bucket","requests":3,"period":"366d","refill":"interval"`, 3, "3"},
	{"leaky_bucket", "algorithm leaky_bucket\nlimit 1/1h\nburst 2", `"algorithm":"leaky_bucket","requests":1,"period":"1h","burst":2`, 1, "2"},
	{"fixed_window", "algorithm fixed_window\nlimit 3/366d", `"algorithm":"fixed_window","requests":3,"period":"366d"`, 3, "3"},
	{"fixed_window of the calendar", "limit 3/month\ntime_zone Europe/Berlin", `"requests":3,"period":"month","time_zone":"Europe/Berlin"`, 3, "3"},
	{"sliding_window_log", "algorithm sliding_window_log\nlimit 3/366d", `"algorithm":"sliding_window_log","requests":3,"period":"366d"`, 3, "3"},
	{"sliding_window_counter", "algorithm sliding_window_counter\nlimit 3/366d", `"algorithm":"sliding_window_counter","requests":3,"period":"366d"`, 3, "3"},
	{"the default algorithm", "limit 3/366d", `"requests":3,"period":"366d"`, 3, "3"},
	{"the words of caddy-ratelimit", "events 3\nwindow 8784h", `"max_events":3,"window":"8784h"`, 3, "3"},
}

func TestEachAlgorithmAdmitsItsLimitAndNoMore(t *testing.T) {
	for _, sp := range spellings {
		zone := "rate_limit {\nzone api {\nkey {header.X-Client}\n" + sp.caddyfile + "\n}\n}\nrespond ok"
		object := `[{"handler":"rate_limit","rate_limits":{"api":{"key":"{http.request.header.X-Client}",` + sp.json + `}}},{"handler":"static_response","body":"ok"}]`
		begin := map[string]func(*testing.T) *server{
			"Caddyfile": func(t *testing.T) *server { return startSite(t, zone) },
			"JSON":      func(t *testing.T) *server { return startJSON(t, httpApp(object)) },
		}
		for _, language := range []string{"Caddyfile", "JSON"} {
			t.Run(sp.name+" in "+language, func(t *testing.T) {
				s := begin[language](t)
				for _, client := range []string{"anna", "bert"} { // each has its own counter
					for i := range sp.admits {
						r := s.do("/", "X-Client", client)
						if r.status != http.StatusOK || r.body != "ok" {
							t.Fatalf("request %d: status %d, body %q, want 200 ok", i+1, r.status, r.body)
						}
						r.want(t, "X-RateLimit-Limit", sp.quota, "Retry-After", "-")
						if sp.name != "leaky_bucket" && r.remaining(t) != sp.admits-i-1 {
							t.Errorf("request %d: %d remaining, want %d", i+1, r.remaining(t), sp.admits-i-1)
						}
						r.seconds(t, "X-RateLimit-Reset", 1, 2*366*86400)
					}
					r := s.reject("/", "X-Client", client)
					wait := r.seconds(t, "Retry-After", 1, 366*86400+1)
					r.want(t, "X-RateLimit-Limit", sp.quota, "X-RateLimit-Retry-After", strconv.Itoa(wait), "Cache-Control", "no-store")
				}
			})
		}
	}
}

// On a first request, the fields of a bucket, and of a log with a period below 35 minutes, are exact.
func TestHeadersReportTheQuotaExactly(t *testing.T) {
	zones := `
		zone bucket {
			algorithm token_bucket
			limit 2/1h
			burst 5
		}
		zone log {
			algorithm sliding_window_log
			limit 2/30m
		}
		zone short {
			match {
				path /short
			}
			algorithm token_bucket
			limit 1/1500ms
			burst 1001
		}`
	for _, test := range []struct {
		headers string
		path    string
		fields  []string
	}{
		{"", "/", []string{
			"X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1800", // the log is stricter
			"RateLimit", `"bucket";r=4;t=1800, "log";r=1;t=1800`,
			"RateLimit-Policy", `"bucket";q=5;w=9000, "log";q=2;w=1800`,
		}},
		{"", "/short", []string{ // no w if a burst is not refilled in whole seconds
			"X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1",
			"RateLimit", `"bucket";r=4;t=1800, "log";r=1;t=1800, "short";r=1000;t=2`,
			"RateLimit-Policy", `"bucket";q=5;w=9000, "log";q=2;w=1800, "short";q=1001`,
		}},
		{"headers x_ratelimit ietf", "/", []string{
			"X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1800",
			"RateLimit", `"bucket";r=4;t=1800, "log";r=1;t=1800`,
		}},
		{"headers x_ratelimit", "/", []string{
			"X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1800",
			"RateLimit", "-", "RateLimit-Policy", "-",
		}},
		{"headers ietf", "/", []string{
			"X-RateLimit-Limit", "-", "X-RateLimit-Remaining", "-", "X-RateLimit-Reset", "-",
			"RateLimit", `"bucket";r=4;t=1800, "log";r=1;t=1800`,
			"RateLimit-Policy", `"bucket";q=5;w=9000, "log";q=2;w=1800`,
		}},
		{"headers none", "/", []string{
			"X-RateLimit-Limit", "-", "X-RateLimit-Remaining", "-", "X-RateLimit-Reset", "-", "RateLimit", "-", "RateLimit-Policy", "-",
		}},
	} {
		t.Run(test.headers+test.path, func(t *testing.T) {
			s := startSite(t, "rate_limit {\n"+zones+"\n"+test.headers+"\n}\nrespond ok")
			r := s.do(test.path)
			r.want(t, test.fields...)
			r.want(t, "Retry-After", "-", "X-RateLimit-Retry-After", "-", "Cache-Control", "-")
			s.admit(1, "/")
			r = s.reject("/")
			wait := strconv.Itoa(r.seconds(t, "Retry-After", 1700, 1800))
			r.want(t, "Cache-Control", "no-store")
			switch test.headers {
			case "headers none", "headers ietf":
				r.want(t, "X-RateLimit-Limit", "-", "X-RateLimit-Retry-After", "-")
			default:
				r.want(t, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Retry-After", wait)
			}
			if got := r.header.Get("RateLimit"); strings.Contains(test.headers, "ietf") && !strings.HasSuffix(got, `, "log";r=0;t=`+wait) {
				t.Errorf("RateLimit: %s, want the t of log to be Retry-After, %s", got, wait)
			}
		})
	}
}

// For every algorithm of the zone that would have admitted. The leaky bucket admits at most one request an hour here, so a rejected
// request that was charged would show.
func TestARequestThatOneZoneRejectsCostsTheOthersNothing(t *testing.T) {
	for _, sp := range spellings {
		t.Run(sp.name, func(t *testing.T) {
			s := startSite(t, `
				rate_limit {
					zone all {
						key everyone
						`+sp.caddyfile+`
					}
					zone big {
						match {
							path /big
						}
						key everyone
						limit 1/366d
						cost {query.cost}
					}
				}
				respond ok`)
			for range 10 {
				r := s.reject("/big?cost=2")
				if !strings.Contains(r.header.Get("RateLimit"), `"big";r=1`) {
					t.Fatalf("RateLimit: %s, want big to reject", r.header.Get("RateLimit"))
				}
			}
			s.admit(sp.admits, "/")
			s.reject("/")
		})
	}
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

func TestTheStricterOfTwoHandlersIsShownWhicheverComesFirst(t *testing.T) {
	s := startSite(t, `
		route {
			rate_limit {
				zone strict {
					limit 2/366d
				}
			}
			rate_limit {
				zone loose {
					limit 100/366d
				}
			}
			respond ok
		}`)
	s.do("/").want(t, "X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1")
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
	for _, test := range []struct {
		key        string
		one, other []string // a request, and its header fields
	}{
		{"{header.X-Key}", []string{"/", "X-Key", "a"}, []string{"/", "X-Key", "b"}},
		{"{cookie.session}", []string{"/", "Cookie", "session=a"}, []string{"/", "Cookie", "x=1; session=b"}},
		{"{query.user}", []string{"/?user=a"}, []string{"/?user=b"}},
		{"{path}", []string{"/a"}, []string{"/b"}},
		{"{host}", []string{"http://a.test/"}, []string{"http://b.test/"}},
		{"{method}", []string{"GET /"}, []string{"PUT /"}},
		{"{uri}", []string{"/?a"}, []string{"/?b"}},
		{"{http.request.header.X-Key}", []string{"/", "X-Key", "a"}, []string{"/", "X-Key", ""}},
		{"{header.X-Key}", []string{"/", "X-Key", "a", "X-Key", "b"}, []string{"/", "X-Key", "a"}},
		{"user-{header.X-Key}-{path}", []string{"/a", "X-Key", "a"}, []string{"/b", "X-Key", "a"}},
	} {
		t.Run(strings.NewReplacer("{", "", "}", "").Replace(test.key), func(t *testing.T) {
			s := startSite(t, "rate_limit 1/366d "+test.key+"\nrespond ok")
			s.admit(1, test.one[0], test.one[1:]...)
			s.reject(test.one[0], test.one[1:]...)
			s.admit(1, test.other[0], test.other[1:]...)
			s.reject(test.other[0], test.other[1:]...)
		})
	}
}

func TestAKeyWithoutPlaceholdersIsOneCounterForAll(t *testing.T) {
	s := startSite(t, "rate_limit {\nzone all {\nkey everyone\nlimit 1/366d\n}\n}\nrespond ok")
	s.admit(1, "http://a.test/")
	s.reject("http://b.test/other")
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

func TestOneClientCannotPutTogetherTheKeyOfAnother(t *testing.T) {
	s := startSite(t, "rate_limit {\nzone pair {\nkey {header.X-A}{header.X-B}\nlimit 1/366d\n}\n}\nrespond ok")
	for _, pair := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"abc", ""}, {"", "abc"}, {"1:a2:bc", ""}, {"a2:bc", ""}} {
		s.admit(1, "/", "X-A", pair[0], "X-B", pair[1])
		s.reject("/", "X-A", pair[0], "X-B", pair[1])
	}
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

func TestAnIPv4MappedAddressIsItsIPv4(t *testing.T) {
	for name, key := range map[string]string{"client_ip": "{client_ip}", "with text": "ip {client_ip}", "header": "{header.X-Forwarded-For}"} {
		t.Run(name, func(t *testing.T) {
			s := start(t, behindProxy, ":PORT {\nrate_limit {\nzone z {\nkey \""+key+"\"\nlimit 1/366d\n}\n}\nrespond ok\n}")
			s.admit(1, "/", "X-Forwarded-For", "::ffff:1.2.3.4")
			s.reject("/", "X-Forwarded-For", "1.2.3.4")
			s.reject("/", "X-Forwarded-For", "::ffff:102:304")
		})
	}
}

func TestAClientCannotChooseItsAddressWhereNoProxyIsTrusted(t *testing.T) {
	s := startSite(t, "rate_limit 1/366d\nrespond ok")
	s.admit(1, "/", "X-Forwarded-For", "192.0.2.1")
	s.reject("/", "X-Forwarded-For", "192.0.2.2")
}

func TestARequestWithoutTheKey(t *testing.T) {
	config := func(policy string) string {
		return "rate_limit {\nzone z {\nkey {header.X-Key}\nlimit 1/366d\n" + policy + "\n}\n}\nrespond ok"
	}
	for _, policy := range []string{"", "on_missing_key share"} {
		t.Run("shares a counter with others of its kind "+policy, func(t *testing.T) {
			s := startSite(t, config(policy))
			s.admit(1, "/")
			s.reject("/")
			s.reject("/", "X-Key", "") // an empty field is a missing one
			s.admit(1, "/", "X-Key", "a")
		})
	}
	t.Run("is not counted with skip", func(t *testing.T) {
		s := startSite(t, config("on_missing_key skip"))
		s.admit(5, "/")
		s.do("/").want(t, "RateLimit", "-", "X-RateLimit-Limit", "-")
		s.admit(1, "/", "X-Key", "a")
		s.reject("/", "X-Key", "a")
	})
	t.Run("is rejected with reject", func(t *testing.T) {
		s := startSite(t, config("on_missing_key reject"))
		s.reject("/").want(t, "Retry-After", "-") // waiting does not help
		s.admit(1, "/", "X-Key", "a")
	})
	t.Run("when one of two placeholders is missing", func(t *testing.T) {
		s := startSite(t, "rate_limit {\nzone z {\nkey {header.X-Key}{path}\nlimit 1/366d\non_missing_key skip\n}\n}\nrespond ok")
		s.admit(3, "/")
	})
	t.Run("that TLS would have had", func(t *testing.T) {
		s := startSite(t, "rate_limit {\nzone z {\nkey {http.request.tls.client.subject}\nlimit 1/366d\n}\n}\nrespond ok")
		s.admit(1, "/")
		s.reject("/")
	})
}

func TestSkippingOneZoneLeavesTheOthers(t *testing.T) {
	s := startSite(t, `
		rate_limit {
			zone keyed {
				key {header.X-Key}
				limit 1/366d
				on_missing_key skip
			}
			zone all {
				key everyone
				limit 2/366d
			}
		}
		respond ok`)
	s.admit(2, "/")
	s.reject("/")
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

func TestAHostileCostNeverGivesAnythingBack(t *testing.T) {
	s := startSite(t, "rate_limit {\nzone z {\nkey everyone\nlimit 1000/366d\ncost {header.X-Cost}\n}\n}\nrespond ok")
	left := 1000
	for _, test := range []struct {
		cost string
		is   int // 0: more than the limit can ever allow
	}{
		{"4", 4}, {"-5", 1}, {"0", 1}, {"abc", 1}, {"", 1}, {" 2 ", 2}, {"1e9", 1}, {"+3", 3}, {"0x10", 1}, {"2.5", 1}, {"-99999999999999999999", 1},
		{"1001", 0}, {"1000000000", 0}, {"99999999999999999999", 0}, {"9223372036854775807", 0}, {"-9223372036854775808", 1},
	} {
		r := s.do("/", "X-Cost", test.cost)
		if test.is == 0 {
			if r.status != http.StatusTooManyRequests {
				t.Errorf("cost %q: status %d, want 429", test.cost, r.status)
			}
			r.want(t, "Retry-After", "-", "X-RateLimit-Retry-After", "-")
		} else if r.status != http.StatusOK {
			t.Errorf("cost %q: status %d, want 200", test.cost, r.status)
		}
		if left -= test.is; r.remaining(t) != left {
			t.Errorf("cost %q: %d remaining, want %d", test.cost, r.remaining(t), left)
			left = r.remaining(t)
		}
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
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter"} {
		config := "rate_limit {\nzone z {\nkey everyone\nalgorithm " + algorithm + "\nlimit 5/366d\ncost {header.X-Cost}\nWORD\n}\n}\nrespond ok"
		t.Run(algorithm, func(t *testing.T) {
			s := startSite(t, strings.Replace(config, "WORD", "count_rejected", 1))
			s.admit(1, "/", "X-Cost", "3")
			s.reject("/", "X-Cost", "3")
			s.reject("/", "X-Cost", "2")
		})
		t.Run(algorithm+" without it", func(t *testing.T) {
			s := startSite(t, strings.Replace(config, "WORD", "", 1))
			s.admit(1, "/", "X-Cost", "3")
			s.reject("/", "X-Cost", "3")
			s.admit(1, "/", "X-Cost", "2")
		})
	}
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
		{"headers x_ratelimit", down, 0, []string{"X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "2", "RateLimit", "-", "Retry-After", "7"}},
	} {
		t.Run(c.headers+c.down, func(t *testing.T) {
			s := startSite(t, "rate_limit {\nzone z {\nlimit 3/366d\n}\n"+c.headers+"\n}\nreverse_proxy "+upstream.URL+c.down)
			s.do("/").want(t, c.want...)
			s.do("/")
			s.said(c.told, "the service behind this handler sends X-RateLimit fields, too, and answers have both: write header_down -X-RateLimit-* into reverse_proxy to leave them to the rate limit, "+
				"or headers none into rate_limit to leave them to the service")
		})
	}
}
