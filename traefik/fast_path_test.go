package traefik

import (
	"context"
	"fmt"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// kind is a configuration that is to have a fast path.
type kind struct {
	name   string
	config Config
	leaves bool // what exceeds the limit is left to the general path
	passes bool // it passes
}

// kinds returns each combination that has one; in the interpreter fewer, in which each algorithm still meets metrics, a guard, and each kind of key function.
func kinds() []kind {
	var list []kind
	for _, algorithm := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"} {
		for _, metered := range []bool{false, true} {
			for _, guarded := range []bool{false, true} {
				rule := Rule{Name: "r", Limit: "4/2s", Algorithm: algorithm}
				if algorithm == "leaky_bucket" {
					rule.MaxDelay = "1ms"
				}
				for key, change := range map[string]func(c *Config){
					"client_ip":      func(c *Config) {},
					"header:X-Key":   func(c *Config) { c.Rules[0].Key = []string{"header:X-Key"} },
					"cookie:session": func(c *Config) { c.Rules[0].Key = []string{"cookie:session"} },
					"host":           func(c *Config) { c.Rules[0].Key = []string{"host"} },
					"a network":      func(c *Config) { c.Rules[0].IPv4Prefix = "24" },
					"two parts":      func(c *Config) { c.Rules[0].Key = []string{"client_ip", "header:X-Key"} },
					"depth 1":        func(c *Config) { c.IPStrategy = object{"depth": 1} },
					"depth 2":        func(c *Config) { c.IPStrategy = object{"depth": 2} },
				} {
					for fields, headers := range map[string][]string{"all": {}, "none": {"none"}, "ietf": {"ietf"}} {
						c := Config{Rules: []Rule{rule}, Headers: headers, IPStrategy: object{}}
						if metered {
							c.Metrics = object{"path": "/metrics"}
						}
						if guarded {
							c.Guard = object{"max": 512, "min": 512}
						}
						if fields != "all" && (metered || guarded || key != "client_ip") || algorithm == "leaky_bucket" && key != "client_ip" ||
							interpreted && algorithm != "token_bucket" && key != "client_ip" && key != "header:X-Key" { // these do not depend on each other
							continue
						}
						change(&c)
						list = append(list, kind{name: fmt.Sprintf("%s by %s, fields %s, metered %v, guarded %v", algorithm, key, fields, metered, guarded), config: c})
					}
				}
			}
		}
	}
	for _, algorithm := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"} {
		for _, metered := range []bool{false, true} {
			for _, guarded := range []bool{false, true} {
				for number := 2; number <= 4; number++ {
					for key, change := range map[string]func(c *Config){
						"client_ip":    func(c *Config) {},
						"header:X-Key": eachBy("header:X-Key"),
						"different keys": func(c *Config) {
							c.Rules[1] = Rule{Name: "b", Limit: "9/1s", Algorithm: "token_bucket", Key: []string{"header:X-Key"}} // which is often unused while another rejects
						},
						"a match":   func(c *Config) { c.Rules[0].Match = object{"methods": []string{"GET"}} },
						"no fields": func(c *Config) { c.Headers = []string{"none"} },
						"ietf":      func(c *Config) { c.Headers = []string{"ietf"} },
						"a message": func(c *Config) { c.Rules[1].Message = "Slowly." },
					} {
						if key != "client_ip" && (algorithm != "token_bucket" || number > 2 && key != "different keys" || (metered || guarded) && key != "a match") || interpreted && algorithm != "token_bucket" && number != 3 { // these do not depend on each other
							continue
						}
						rules := []Rule{
							{Name: "a", Limit: "4/2s", Algorithm: algorithm}, {Name: "b", Limit: "20000/5h", Algorithm: "sliding_window_counter"},
							{Name: "c", Limit: "8/5s", Algorithm: "token_bucket"}, {Name: "d", Limit: "6/3s", Algorithm: "fixed_window"},
						}
						if algorithm == "leaky_bucket" {
							rules[0].MaxDelay = "1ms"
						}
						c := Config{Rules: rules[:number], Headers: []string{}, IPStrategy: object{}}
						if metered {
							c.Metrics = object{"path": "/metrics"}
						}
						if guarded {
							c.Guard = object{"max": 512, "min": 512}
						}
						change(&c)
						list = append(list, kind{name: fmt.Sprintf("%s and others, %d rules, %s, metered %v, guarded %v", algorithm, number, key, metered, guarded), config: c})
					}
				}
			}
		}
	}
	list = append(list, kindsOfSettings()...)
	return append(list, []kind{
		{name: "a message", config: Config{Rule: Rule{Limit: "4/2s"}, Message: "Slowly.", IPStrategy: object{}}},
		{name: "a rule's message", config: Config{Rule: Rule{Limit: "4/2s", Message: "Slowly."}, Message: "Not this.", IPStrategy: object{}}},
		{name: "large numbers", config: Config{Rule: Rule{Limit: "20000/5h"}, IPStrategy: object{}}},
		{name: "a wait of hours", config: Config{Rule: Rule{Limit: "4/5h", Algorithm: "token_bucket"}, IPStrategy: object{}}},
		{name: "forwarded requests", config: Config{Rule: Rule{Limit: "4/2s"}}},
	}...)
}

// kindsOfSettings returns the kinds of a rule with one of the settings; in the interpreter of one algorithm.
func kindsOfSettings() []kind {
	var list []kind
	for _, algorithm := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"} {
		for setting, change := range settings {
			if interpreted && algorithm != "token_bucket" {
				continue
			}
			for _, metered := range []bool{false, true} {
				c := Config{Rules: []Rule{{Name: "r", Limit: "4/2s", Algorithm: algorithm}}, IPStrategy: object{}}
				if algorithm == "leaky_bucket" {
					c.Rules[0].MaxDelay = "1ms"
				}
				if metered {
					c.Metrics = object{"path": "/metrics"}
				}
				if strings.HasPrefix(setting, "soft") && algorithm == "leaky_bucket" || strings.HasPrefix(setting, "delay") && algorithm == "sliding_window_counter" { // which refuse it
					continue
				}
				change(&c)
				r := &c.Rules[0]
				list = append(list, kind{
					name: fmt.Sprintf("%s with %s, metered %v", algorithm, setting, metered), config: c,
					leaves: strings.HasPrefix(r.Enforcement, "soft") || len(r.Penalty) > 0 || r.OnLimit != "" || r.CountRejected != "" || r.Concurrency != "" || r.Cost != "" || r.Candidate != nil || len(c.Rules) > 1,
					passes: r.Enforcement == "shadow",
				})
			}
		}
	}
	return list
}

// settings are those that leave most requests of a rule to a path of its limit.
var settings = map[string]func(c *Config){
	"soft":           func(c *Config) { c.Rules[0].Enforcement = "soft 50% 3s" },
	"penalties":      func(c *Config) { c.Rules[0].Penalty = []string{"1s", "3s"} },
	"delay":          func(c *Config) { c.Rules[0].OnLimit, c.Rules[0].MaxDelay = "delay", "1ms" },
	"a shadow":       func(c *Config) { c.Rules[0].Enforcement = "shadow" },
	"a counting one": func(c *Config) { c.Rules[0].CountRejected = "true" },
	"a guarded one":  func(c *Config) { c.Rules[0].Enforcement, c.Guard = "shadow", object{"max": 512, "min": 512} },
	"tiers":          withTiers,
	"overrides":      withOverrides,
	"both":           func(c *Config) { withTiers(c); withOverrides(c) },
	"both, of fields": func(c *Config) {
		withTiers(c)
		withOverrides(c)
		c.Rules[0].Key, c.Rules[0].Overrides = []string{"header:X-Key"}, []object{{"key": "b", "limit": "6/2s"}}
	},
	"tiers, a match": func(c *Config) { withTiers(c); c.Rules[0].Match = object{"methods": []string{"GET"}} },
	"tiers of many limits": func(c *Config) {
		limits := object{"a": "9/2s", "b": "unlimited"}
		for i := 1; i < fewRules; i++ {
			limits[fmt.Sprint("A", i)] = fmt.Sprint(20+i, "/2s") // which come before
		}
		c.Rules[0].Tiers = object{"source": "cookie:session", "limits": limits}
	},
	"guarded tiers":              func(c *Config) { withTiers(c); c.Guard = object{"max": 512, "min": 512} },
	"a concurrency":              func(c *Config) { c.Rules[0].Concurrency = "2" },
	"no more than a concurrency": func(c *Config) { c.Rules[0] = Rule{Name: "r", Concurrency: "2"} },
	"a candidate":                func(c *Config) { c.Rules[0].Candidate = object{"limit": "3/2s", "algorithm": "token_bucket"} },
	"a laxer candidate":          func(c *Config) { c.Rules[0].Candidate = object{"limit": "9/3s"} },
	"candidate and concurrency": func(c *Config) {
		c.Rules[0].Candidate, c.Rules[0].Concurrency = object{"limit": "3/2s", "algorithm": "token_bucket"}, "2"
	},
	"a shadow's concurrency":  func(c *Config) { c.Rules[0].Concurrency, c.Rules[0].Enforcement = "2", "shadow" },
	"a concurrency of fields": func(c *Config) { c.Rules[0].Concurrency, c.Rules[0].Key = "2", []string{"header:X-Key"} },
	"mixed kinds":             func(c *Config) { withMixed(c) },
	"mixed kinds and keys, a concurrency": func(c *Config) {
		withMixed(c)
		c.Rules[1].Key = []string{"header:X-Key"}
		c.Rules[3].Match = object{"methods": []string{"GET"}}
	},
	"shadows": func(c *Config) {
		c.Rules = append(c.Rules, Rule{Name: "b", Limit: "3/1s"})
		c.Rules[0].Enforcement, c.Rules[1].Enforcement = "shadow", "shadow"
	},
	"tiers, a concurrency": func(c *Config) {
		withTiers(c)
		c.Rules[0].Concurrency = "2"
	},
	"tiers beside mixed kinds, a concurrency": func(c *Config) {
		withTiers(c)
		withMixed(c)
	},
	"mixed kinds, tiers beside overrides, no key": func(c *Config) {
		withTiers(c)
		c.Rules = append(c.Rules, Rule{Name: "b", Limit: "7/2s", Key: []string{"header:X-Key"}, OnMissingKey: "skip", Overrides: []object{{"key": "b", "limit": "unlimited"}}})
	},
	"many rules": withMany,
	"many rules, a concurrency": func(c *Config) {
		withMany(c)
		c.Rules[1].Key, c.Rules[2].Enforcement, c.Rules[3].Concurrency, c.Rules[4].Cost = []string{"header:X-Key"}, "shadow", "2", "2"
	},
	"many guarded rules": func(c *Config) { withMany(c); c.Guard = object{"max": 512, "min": 512} },
	"tiers of addresses": withAddressTiers,
	"tiers of addresses, of a list": func(c *Config) {
		withAddressTiers(c)
		c.Rules[0].Key, c.IPStrategy = []string{"header:X-Key"}, object{"depth": 1}
	},
	"tiers of addresses, unsaid": func(c *Config) {
		withAddressTiers(c)
		c.Rules[0].Key = []string{"header:X-Key"}
		c.IPStrategy = nil
	},
	"keys of parts": func(c *Config) { c.Rules[0].Key = []string{"header:X-Key", "cookie:session"} },
	"keys of all parts": func(c *Config) {
		c.Rules[0].Key, c.Rules[0].OnMissingKey = []string{"header:X-Key", "cookie:session"}, "skip"
	},
	"the first that has a value": func(c *Config) { c.Rules[0].Key = []string{"first(header:X-Key, client_ip)"} },
	"the first of a list": func(c *Config) {
		c.Rules[0].Key, c.IPStrategy = []string{"first(header:X-Key", "client_ip)", "host"}, object{"depth": 1}
	},
	"the first of a network": func(c *Config) {
		c.Rules[0].Key, c.Rules[0].IPv4Prefix = []string{"first(cookie:session, header:X-Key, remote_ip)"}, "24"
	},
	"the first or a rejection": func(c *Config) {
		c.Rules[0].Key, c.Rules[0].OnMissingKey = []string{"first(header:X-Key, cookie:session)"}, "reject"
	},
	"parts of a path": func(c *Config) { c.Rules[0].Key = []string{"path_segment:1", "path_regexp:^/(.)", "client_ip"} },
	"parameters and cookies": func(c *Config) {
		c.Rules[0].Match = object{"query": object{"a": "!*"}, "cookies": object{"session": "!b*"}}
	},
	"keys of three parts": func(c *Config) { c.Rules[0].Key = []string{"host", "client_ip", "cookie:session"} },
	"keys or none":        func(c *Config) { c.Rules[0].Key, c.Rules[0].OnMissingKey = []string{"header:X-Key"}, "skip" },
	"a cost":              withCost,
	"soft, a cost":        func(c *Config) { withCost(c); c.Rules[0].Enforcement = "soft 50% 3s" },
	"a cost, penalties":   func(c *Config) { withCost(c); c.Rules[0].Penalty = []string{"1s", "3s"} },
	"delay, a cost":       func(c *Config) { withCost(c); c.Rules[0].OnLimit, c.Rules[0].MaxDelay = "delay", "1ms" },
	"a cost, a shadow":    func(c *Config) { withCost(c); c.Rules[0].Enforcement = "shadow" },
	"a cost, guarded tiers": func(c *Config) {
		withCost(c)
		withTiers(c)
		c.Guard = object{"max": 512, "min": 512}
	},
	"a cost beside others": func(c *Config) {
		withCost(c)
		c.Rules = append(c.Rules, Rule{Name: "b", Limit: "9/2s", Cost: "3"}, Rule{Name: "c", Limit: "20/1s", Key: []string{"header:X-Key"}, Enforcement: "shadow", Cost: "4"})
	},
	"keys or a rejection": func(c *Config) { c.Rules[0].Key, c.Rules[0].OnMissingKey = []string{"header:X-Key"}, "reject" },
	"two parts or a rejection": func(c *Config) {
		c.Rules[0].Key, c.Rules[0].OnMissingKey, c.Message, c.Guard = []string{"header:X-Key", "cookie:session"}, "reject", "Who?", object{"max": 512, "min": 512}
	},
	"keys or one for all": func(c *Config) { c.Rules[0].Key = []string{"header:X-Key"} },
	"overrides, keys or one for all": func(c *Config) {
		c.Rules[0].Key, c.Rules[0].Overrides = []string{"header:X-Key"}, []object{{"key": "b", "limit": "6/2s"}}
	},
	"keys or one for all, beside none": func(c *Config) {
		c.Rules = append(c.Rules, Rule{Name: "b", Limit: "9/2s", Key: []string{"header:X-Key"}, OnMissingKey: "skip"})
		c.Rules[0].Key = []string{"header:X-Key"}
	},
	"two, keys or none": func(c *Config) {
		c.Rules = append(c.Rules, Rule{Name: "b", Limit: "9/2s"})
		for i := range c.Rules {
			c.Rules[i].Key, c.Rules[i].OnMissingKey = []string{"header:X-Key"}, "skip"
		}
	},
	"exempt clients": func(c *Config) {
		c.Rules[0].Match = object{"exceptIPs": []string{"192.0.2.2", "2001:db8::/32", "198.51.100.0/25"}}
	},
	"exempt clients of a list": func(c *Config) {
		c.Rules[0].Match, c.IPStrategy = object{"exceptIPs": []string{"192.0.2.9"}}, object{"depth": 1}
	},
	"exempt clients, unsaid": func(c *Config) {
		c.Rules[0].Match = object{"exceptIPs": []string{"192.0.2.2"}}
		c.IPStrategy = nil
	},
	"a match of every kind": func(c *Config) {
		c.Rules[0].Match = object{"methods": "GET", "hosts": "!www.example.com", "paths": "!/a", "pathPrefixes": "/", "headers": object{"X-Key": "!a*", "Cookie": "*session=*"}, "exceptIPs": "192.0.2.2"}
	},
	"a shadow first": func(c *Config) {
		c.Rules = append(c.Rules, Rule{Name: "b", Limit: "3/1s"})
		c.Rules[0].Enforcement = "shadow"
	},
	"tiers, no key": func(c *Config) {
		withTiers(c)
		c.Rules[0].Key, c.Rules[0].OnMissingKey = []string{"header:X-Key"}, "reject"
	},
	"tiers, key or not": func(c *Config) {
		withTiers(c)
		c.Rules[0].Key, c.Rules[0].OnMissingKey = []string{"header:X-Key"}, "skip"
	},
	"a shadow that delays, before others": func(c *Config) {
		c.Rules = append(c.Rules, Rule{Name: "b", Limit: "9/2s"})
		c.Rules[0] = Rule{Name: "r", Limit: "3/1s", Algorithm: "token_bucket", Enforcement: "shadow", OnLimit: "delay", MaxDelay: "1s"}
	},
	"a shadow's candidate": func(c *Config) {
		c.Rules[0].Enforcement, c.Rules[0].Candidate = "shadow", object{"limit": "3/2s", "algorithm": "token_bucket"}
	},
	"soft tiers": func(c *Config) { withTiers(c); c.Rules[0].Enforcement = "soft 50% 3s" },
}

func withMixed(c *Config) {
	c.Rules = append(c.Rules, Rule{Name: "b", Limit: "6/3s", Enforcement: "shadow"}, Rule{Name: "c", Limit: "8/5s", Penalty: []string{"1s"}}, Rule{Name: "d", Limit: "9/2s", Enforcement: "soft 50% 3s", Concurrency: "2"})
}

// withMany has more rules than are looked at one by one: most for some requests, and none for a few of them.
func withMany(c *Config) {
	c.Rules[0].Match = object{"hosts": []string{"!example.com"}}
	for i, match := range []object{{"hosts": "example.com"}, {"headers": object{"X-Key": "a"}}, {"headers": object{"X-Key": "b*"}}, {"methods": "POST", "hosts": "www.example.com"}, {"headers": object{"Cookie": "session=a"}}} {
		c.Rules = append(c.Rules, Rule{Name: fmt.Sprint("r", i), Limit: fmt.Sprint(5+i, "/2s"), Match: match})
	}
	for i := 0; i < 4; i++ {
		c.Rules = append(c.Rules, Rule{Name: fmt.Sprint("other", i), Limit: "3/2s", Match: object{"hosts": fmt.Sprint("h", i)}})
	}
}

func withAddressTiers(c *Config) {
	c.Rules[0].Tiers = object{"source": "client_ip", "limits": object{"192.0.2.2": "9/2s", "192.0.2.9": "unlimited", "2001:DB8::1": "7/2s"}}
}

func withCost(c *Config) { c.Rules[0].Limit, c.Rules[0].Cost = "5/9s", "2" }

func withTiers(c *Config) {
	c.Rules[0].Tiers = object{"source": "cookie:session", "limits": object{"a": "9/2s", "b": "unlimited"}}
}

func withOverrides(c *Config) {
	c.Rules[0].Overrides = []object{{"key": "192.0.2.1", "limit": "5/2s"}, {"key": "192.0.2.2", "limit": "unlimited"}}
}

// eachBy returns a change of all rules' keys.
func eachBy(key string) func(c *Config) {
	return func(c *Config) {
		for i := range c.Rules {
			c.Rules[i].Key = []string{key}
		}
	}
}

// onBothPaths makes two handlers of a configuration, each with a stage of its own: the one that a router gets, and the general path.
func onBothPaths(t *testing.T, c Config) (stages [2]*stage, handlers [2]http.Handler) {
	for i := range stages {
		stages[i] = newStage(t)
		handlers[i] = pathOn(stages[i], c, i == 1)
	}
	return stages, handlers
}

// pathOn makes a handler of a configuration on a stage: the one that a router gets, or the general path.
func pathOn(s *stage, c Config, general bool) http.Handler {
	s.now = time.Microsecond // whose rest by rate.TimedShare is not 0
	router := s.handler(context.Background(), &c, "m@file")
	if !general {
		return router
	}
	e := s.newest("m@file")
	h := newHandler(e, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.passed++
		if s.during != nil {
			s.during()
		}
		w.WriteHeader(http.StatusOK)
	}))
	var only *front.Rule
	set := e.inForce()
	if len(set.rules) == 1 {
		only = set.rules[0]
	}
	return generalPath(h, meteringOf(e, set, only))
}

// randomRequest returns a request of one of few clients, in one of many forms.
func randomRequest(random *rand.Rand) *http.Request {
	r := httptest.NewRequest([]string{"GET", "POST"}[random.Intn(2)], "http://example.com/", nil)
	r.RemoteAddr = []string{"192.0.2.1:80", "192.0.2.1:81", "192.0.2.2:82", "[2001:db8::1]:80", "@", "[2001:DB8::2]:81", "[2001:db8:0:1::1]:80", "[::ffff:192.0.2.1]:80", "[fe80::1%eth0]:80"}[random.Intn(9)]
	if random.Intn(10) == 0 {
		r.RemoteAddr = fmt.Sprintf("198.51.100.%d:80", random.Intn(100))
	}
	if random.Intn(10) == 0 {
		r.URL.Path = "/a"
	}
	r.ProtoMajor = 1 + random.Intn(2)
	set := func(field string, values ...string) {
		if value := values[random.Intn(len(values))]; value != "" {
			r.Header.Set(field, value)
		}
	}
	set("Accept", "", "*/*", "text/html", "text/html, Application/JSON;q=0.5", "application/json;q=0")
	set("Content-Type", "", "text/plain", "application/grpc", "Application/gRPC+proto", "application/grpc-web")
	set("X-Forwarded-For", "", "", "192.0.2.9", "203.0.113.1, 192.0.2.7")
	set("X-Key", "", "a", "b", "2001:db8::1")
	set("Cookie", "", "session=a", "session=b")
	r.Host = []string{"example.com", "www.example.com:80", "EXAMPLE.com"}[random.Intn(3)]
	return r
}

// answeredTo sends a request to a handler, and returns the answer. earlier are the fields that an earlier handler has set.
func answeredTo(h http.Handler, r *http.Request, earlier http.Header) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	w.Header()["Content-Type"] = nil // as Traefik has it
	for field, values := range earlier {
		w.Header()[field] = values
	}
	h.ServeHTTP(w, r)
	return w
}

func TestEachFastPathAnswersAsTheGeneralPath(t *testing.T) {
	underrace.OneGoroutine(t)
	steps := asMany(600, 1)
	if interpreted {
		steps = 15
	}
	for number, k := range kinds() {
		stages, handlers := onBothPaths(t, k.config)
		compareAnswers(t, k.name, stages, handlers, seedOf(number), steps, func(span time.Duration) {
			stages[0].step(span)
			stages[1].step(span)
		})
	}
}

// compareAnswers sends random requests to two handlers, and compares all that can be seen of them. step lets time pass for both.
func compareAnswers(t *testing.T, name string, stages [2]*stage, handlers [2]http.Handler, seed int64, steps int, step func(span time.Duration)) {
	random := rand.New(rand.NewSource(seed))
	var others [2][]*http.Request // that come while one is under way
	var answers [2][]int
	for i := range stages {
		s, h, waiting, codes := stages[i], handlers[i], &others[i], &answers[i]
		s.during = func() {
			if list := *waiting; len(list) > 0 {
				*waiting = list[1:]
				*codes = append(*codes, answeredTo(h, list[0], nil).Code)
			}
		}
	}
	for i := 0; i < steps; i++ {
		for j := range others {
			others[j] = nil
			answers[j] = nil
		}
		for n := random.Intn(4); n > 0 && strings.Contains(name, "concurrency"); n-- {
			other := randomRequest(random)
			others[0], others[1] = append(others[0], other), append(others[1], other.Clone(other.Context()))
		}
		span := time.Duration(0)
		if random.Intn(3) == 0 {
			span = time.Duration(random.Int63n(100)) * 10 * time.Millisecond // a leaky bucket never makes a request wait for less than its max_delay
		}
		step(span)
		r := randomRequest(random)
		earlier := http.Header{}
		if random.Intn(5) == 0 {
			earlier["Ratelimit"] = []string{`"a";r=2;t=9`}
		}
		if random.Intn(5) == 0 {
			earlier["X-Ratelimit-Limit"], earlier["X-Ratelimit-Remaining"] = []string{"4"}, []string{"2"}
		}
		got, want := answeredTo(handlers[0], r, earlier), answeredTo(handlers[1], r.Clone(r.Context()), earlier)
		if got.Code != want.Code || !reflect.DeepEqual(got.Result().Header, want.Result().Header) || got.Body.String() != want.Body.String() || stages[0].passed != stages[1].passed || !reflect.DeepEqual(answers[0], answers[1]) {
			t.Fatalf("%s: request %d from %s %v is answered %d %v %q, want %d %v %q", name, i, r.RemoteAddr, r.Header, got.Code, got.Result().Header, got.Body, want.Code, want.Result().Header, want.Body)
		}
	}
	for i := range stages[0].newest("m@file").inForce().rules {
		if got, want := stages[0].counted(i), stages[1].counted(i); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the outcomes of rule %d are %v, want %v", name, i, got, want)
		}
	}
}

// manyInFile is a file of so many rules, which may cover a request by its path, its host, or a field.
func manyInFile(count int) string {
	text := `{"rules":[{"name":"a","limit":"` + fmt.Sprint(count) + `/2s","match":{"path_prefixes":["/"]}}`
	for i := 1; i < count; i++ {
		text += fmt.Sprintf(`,{"name":"r%d","limit":"4/2s","match":{%s}}`, i, []string{`"hosts":["example.com"]`, `"headers":{"X-Key":"a"}`, `"paths":["/a"]`, `"headers":{"X-Key":"b*"}`}[i%4])
	}
	return text + "]}"
}

// counted returns how many requests under a rule there were, by outcome, and by comparison with its candidate: for metrics, and for the log.
func (s *stage) counted(i int) [4][]int64 {
	var list [4][]int64
	set := s.newest("m@file").inForce()
	name := set.rules[i].Ruled.Name
	if m := set.meters[name]; m != nil {
		list[0], list[1] = m.Requests, m.Compared
	}
	if m := set.tallies[name]; m != nil { // of its other outcomes nothing is said
		list[2], list[3] = m.Requests[front.ShadowRejected:front.ShadowDelayed], m.Compared
	}
	return list
}

// Rules of a file have the path that rules of the configuration have, and those of its next contents another one.
func TestFilesHaveTheFastPathsOfTheirRules(t *testing.T) {
	underrace.OneGoroutine(t)
	for name, contents := range map[string][]string{
		"one rule":     {`{"rules":[{"name":"a","limit":"4/2s"}]}`, `{"rules":[{"name":"a","limit":"3/2s","match":{"methods":["GET"]}}]}`},
		"three rules":  {`{"rules":[{"name":"a","limit":"4/2s"},{"name":"b","limit":"6/3s","key":"header:X-Key"},{"name":"c","limit":"8/5s"}]}`, `{"rules":[{"name":"a","limit":"9/2s"}]}`},
		"many rules":   {manyInFile(12), manyInFile(9)},
		"none at last": {`{"rules":[{"name":"a","limit":"4/2s","tiers":{"source":"cookie:session","limits":{"a":"9/2s"}}}]}`, `{"rules":[{"name":"b","limit":"3/2s","cost":"header:X-Cost"}]}`},
	} {
		file := filepath.Join(t.TempDir(), "rules.json")
		write := func(text string) { must.Succeed(t, os.WriteFile(file, []byte(text), 0o600)) }
		write(contents[0])
		c := Config{RulesFile: []string{file}, IPStrategy: object{}, Metrics: object{"path": "/metrics"}}
		stages, handlers := onBothPaths(t, c)
		for _, text := range contents {
			write(text)
			for i := range stages {
				stages[i].step(time.Minute)
				if got := stages[i].newest("m@file").inForce().rules; text == contents[1] && got[0].Ruled.Limits.Own().LimitText == "4" {
					t.Fatalf("%s: the file has not been read again: %v", name, stages[i].log)
				}
			}
			compareAnswers(t, name, stages, handlers, 1, 300, func(span time.Duration) {
				stages[0].step(span)
				stages[1].step(span)
			})
		}
		e := stages[0].newest("m@file")
		e.limiter = nil // which the general path needs
		e.forwarded.Store(true)
		r := httptest.NewRequest("GET", "http://example.com/", nil)
		r.RemoteAddr = "203.0.113.99:1234"
		if got, want := panicking(handlers[0], r) == http.StatusOK, name != "none at last"; got != want {
			t.Errorf("%s: the fast path is taken: %v, want %v", name, got, want)
		}
	}
}

// Several rules take the general path while one keeps to its previous limit, too, and the fast path from then on.
func TestSeveralRulesTakeTheFastPathAfterATransition(t *testing.T) {
	s := newStage(t)
	config := func(algorithm string) *Config {
		return &Config{Rules: []Rule{{Name: "a", Limit: "5/1m", Algorithm: algorithm}, {Name: "b", Limit: "9/1m"}}, IPStrategy: object{}}
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := httptest.NewRequest("GET", "http://example.com/", nil)
	r.RemoteAddr = "192.0.2.1:80"
	answeredTo(s.handler(ctx, config("fixed_window"), "m@file"), r, nil)
	cancel()
	h := s.handler(context.Background(), config("token_bucket"), "m@file")
	e := s.newest("m@file")
	limiter := e.limiter
	taken := func() bool {
		e.limiter = nil // which the general path needs
		code := panicking(h, r)
		e.limiter = limiter
		return code == http.StatusOK
	}
	if answeredTo(h, r, nil).Code != http.StatusOK || taken() {
		t.Error("the fast path is taken in a transition")
	}
	s.step(10 * time.Minute)
	if answeredTo(h, r, nil).Code != http.StatusOK || !taken() { // the first one finds that it is over
		t.Error("the fast path is not taken after the transition")
	}
}

// TestEachFastPathIsTaken sends plain requests where the general path cannot decide: with new keys and known ones, allowed and rejected.
func TestEachFastPathIsTaken(t *testing.T) {
	for _, k := range kinds() {
		if k.name == "large numbers" || strings.Contains(k.name, "a shadow's candidate") || strings.Contains(k.name, "a cost") && (strings.HasPrefix(k.name, "leaky_bucket") || strings.HasPrefix(k.name, "sliding_window_log")) { // whose limit it does not reach, or that has none
			continue
		}
		stages, handlers := onBothPaths(t, k.config)
		stages[0].newest("m@file").limiter = nil
		stages[0].newest("m@file").open.Store(0)
		stages[0].newest("m@file").forwarded.Store(true) // else the general path notes that once
		for _, client := range []string{"192.0.2.1", "203.0.113.2", "[2001:db9::1]"} {
			for i := 0; i < 6; i++ {
				if i > 0 && strings.HasPrefix(k.name, "leaky_bucket") || k.leaves && (i > 2 || i > 1 && (strings.Contains(k.name, "candidate") || strings.Contains(k.name, "a cost"))) { // its queue has room, but the wait would be too long
					break
				}
				code := panicking(handlers[0], plainRequest(client))
				if allowed := code == http.StatusOK; code != http.StatusTooManyRequests && !allowed || i == 0 && !allowed || i == 5 && allowed != k.passes {
					t.Errorf("%s: request %d of %s: status %d", k.name, i, client, code)
				}
			}
		}
	}
}

// Requests without a key, too, are decided where the general path cannot, if none needs an address.
func TestRequestsWithoutAKeyTakeTheFastPath(t *testing.T) {
	for _, setting := range []string{"keys or none", "keys or a rejection", "keys or one for all", "overrides, keys or one for all", "two, keys or none", "tiers, key or not"} {
		c := Config{Rules: []Rule{{Name: "r", Limit: "4/2s"}}, IPStrategy: object{}}
		settings[setting](&c)
		s := newStage(t)
		h := pathOn(s, c, false)
		s.newest("m@file").limiter = nil
		s.newest("m@file").open.Store(0)
		for i := 0; i < 6; i++ {
			want := http.StatusOK
			if c.Rules[0].OnMissingKey == "" && i >= 4 || c.Rules[0].OnMissingKey == "reject" {
				want = http.StatusTooManyRequests
			}
			r := plainRequest("192.0.2.1")
			r.Header.Del("X-Key")
			must.Equal(t, panicking(h, r), want, "%s: request %d", setting, i)
		}
	}
}

// A rule that has let requests without a key share a counter says what is left of that when it rejects them.
func TestRejectionsWithoutAKeyReportTheCounterThatTheyHad(t *testing.T) {
	s := newStage(t)
	c := Config{Rules: []Rule{{Name: "r", Limit: "4/2s", Key: []string{"header:X-Key"}}}, IPStrategy: object{}}
	for i, want := range []string{"200 3", "429 3"} {
		w := answeredTo(pathOn(s, c, false), httptest.NewRequest("GET", "/", nil), nil)
		must.Equal(t, fmt.Sprint(w.Code, " ", w.Header().Get("X-RateLimit-Remaining")), want, "request %d", i)
		c.Rules = []Rule{c.Rules[0]}
		c.Rules[0].OnMissingKey = "reject"
	}
}

// Of a fixed window each key is told another wait by the fast path, which is that of the general path; with jitter of the rule's own all times are later, and the
// status page tells the same.
func TestTheWaitsOfFixedWindowsAreLaterByKey(t *testing.T) {
	window := []Rule{{Name: "a", Limit: "1/100s", Algorithm: "fixed_window"}}
	two := []Rule{{Name: "b", Limit: "9/1s", Key: []string{"header:X-Key"}}, window[0]}
	own := []Rule{{Name: "a", Limit: "1/100s", Algorithm: "fixed_window", Jitter: "0.1"}}
	for name, c := range map[string]Config{
		"one": {Rules: window, IPStrategy: object{}}, "two": {Rules: two, IPStrategy: object{}}, "exact": {Rules: window, IPStrategy: object{}, Jitter: "0"}, "own": {Rules: own, IPStrategy: object{}, Jitter: "0"},
		"one in tiers": {Rules: []Rule{{Name: "a", Algorithm: "fixed_window", Tiers: object{"source": "header:X-Plan", "limits": object{"*": "1/100s"}}}}, IPStrategy: object{}},
	} {
		stages, handlers := onBothPaths(t, c)
		if name != "own" {
			stages[0].newest("m@file").limiter = nil // which the general path asks
		}
		waits := make(map[string]bool)
		for i := 0; i < 20; i++ {
			address := fmt.Sprint("192.0.2.", i+1)
			must.Equal(t, panicking(handlers[0], plainRequest(address)), http.StatusOK, name)
			must.Equal(t, panicking(handlers[1], plainRequest(address)), http.StatusOK, name)
			got, want := answeredTo(handlers[0], plainRequest(address), nil), answeredTo(handlers[1], plainRequest(address), nil)
			must.Equal(t, reflect.DeepEqual(got.Header(), want.Header()), true, name, "fields", got.Header(), want.Header())
			wait, reset := got.Header().Get("Retry-After"), got.Header().Get("X-RateLimit-Reset")
			waits[wait] = true
			must.Equal(t, wait >= "100" && wait <= "110", true, name, "the wait", wait)
			must.Equal(t, reset, map[bool]string{true: wait, false: "100"}[name == "own"], name, "the reset of", address)
		}
		must.Equal(t, len(waits) > 3, name != "exact", name, "the waits differ")
	}
}

// Rejections in each form, and with jitter, are answered where the general path cannot.
func TestRejectionsInEachFormTakeTheFastPath(t *testing.T) {
	one, two := []Rule{{Name: "a", Limit: "1/100s", Algorithm: "token_bucket"}}, []Rule{{Name: "a", Limit: "1/100s", Algorithm: "token_bucket"}, {Name: "b", Limit: "9/1s"}}
	for _, c := range []Config{{Rules: one, IPStrategy: object{}}, {Rules: two, IPStrategy: object{}}, {Rules: one, IPStrategy: object{}, Jitter: "0.5"}, {Rules: two, IPStrategy: object{}, Jitter: "0.5"}} {
		s := newStage(t)
		h := pathOn(s, c, false)
		s.newest("m@file").limiter = nil
		must.Equal(t, panicking(h, plainRequest("192.0.2.1")), http.StatusOK)
		waits := make(map[string]bool)
		for i := 0; i < 30; i++ {
			w := answeredTo(h, plainRequest("192.0.2.1"), nil)
			wait := w.Header().Get("Retry-After")
			waits[wait] = true
			must.Equal(t, wait >= "100" && wait <= "150" && (c.Jitter != "" || wait == "100"), true, "the wait", wait)
			must.Equal(t, w.Header().Get("X-RateLimit-Retry-After"), wait)
			must.Contain(t, w.Header().Get("RateLimit"), `"a";r=0;t=`+wait)
			must.Contain(t, w.Body.String(), " in "+wait+" seconds")
		}
		must.Equal(t, len(waits) > 1, c.Jitter != "", "the waits differ")
		r := plainRequest("192.0.2.1")
		r.Header.Set("Accept", "application/json")
		must.Contain(t, answeredTo(h, r, nil).Body.String(), `"violated-policies":["a"]`)
		r = httptest.NewRequest("POST", "/", nil)
		r.RemoteAddr = "192.0.2.1:1234"
		r.ProtoMajor = 2
		r.Header.Set("Content-Type", "application/grpc")
		w := answeredTo(h, r, nil)
		must.Equal(t, fmt.Sprintf("%d %s %d", w.Code, w.Header().Get("Grpc-Status"), w.Body.Len()), "200 8 0")
	}
}

// plainRequest returns a request of which everything says that it is of that client.
func plainRequest(client string) *http.Request {
	r := httptest.NewRequest("GET", "http://example.com/", nil)
	r.RemoteAddr = client + ":1234"
	r.Header.Set("X-Key", client)
	r.Header.Set("Cookie", "session="+client)
	r.Header.Set("X-Forwarded-For", client+", "+client)
	r.Host = client
	return r
}

// panicking returns the status of an answer; 0: the handler has panicked.
func panicking(h http.Handler, r *http.Request) (code int) {
	defer func() {
		if recover() != nil {
			code = 0 // which the interpreter does not set
		}
	}()
	return answeredTo(h, r, nil).Code
}
