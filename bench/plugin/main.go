// Command plugin compares configurations of the Traefik plugin by the time that they take for a request, without Traefik. They take turns on one
// goroutine. For each it prints the tenth percentile of the requests, in nanoseconds, with the allocations of a request and their bytes. It can
// run under Yaegi: BenchmarkPlugin of the bench module runs it interpreted and compiled.
//
//	plugin [pattern of names]
//
// With the address of a Redis in WEIR_REDIS there are also rules that count there.
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/traefik"
)

const (
	turns  = 150
	length = 50 // requests per turn
	warmUp = 200
)

// subject is one middleware, and the requests that it gets.
type subject struct {
	name    string
	handler http.Handler
	prepare func(r *http.Request, i int) // makes the i-th request from the one before; nil: all are the same
	request *http.Request
	sent    int
	times   []int64 // of each request, in nanoseconds

	mallocs, bytes uint64
}

func main() {
	pattern := regexp.MustCompile("")
	if last := os.Args[len(os.Args)-1]; len(os.Args) > 1 && !strings.HasSuffix(last, ".go") { // else it is the interpreter's
		pattern = regexp.MustCompile(last)
	}
	var subjects []*subject
	for _, s := range all() {
		if pattern.MatchString(s.name) {
			subjects = append(subjects, s)
		}
	}
	w := httptest.NewRecorder() // which is compiled, as in Traefik; only its first response has a status
	w.Body = nil
	for _, s := range subjects {
		s.request = httptest.NewRequest("GET", "http://example.com/path", nil)
		s.request.RemoteAddr = "192.0.2.1:1234"
		s.request.Header.Set("X-Key", "first")
		s.request.Header.Set("Cookie", "session=first")
		send(s, w, warmUp)
	}
	var before, after runtime.MemStats
	for turn := 0; turn < turns; turn++ {
		for _, s := range subjects {
			runtime.ReadMemStats(&before)
			s.times = append(s.times, send(s, w, length)...)
			runtime.ReadMemStats(&after)
			s.mallocs += after.Mallocs - before.Mallocs
			s.bytes += after.TotalAlloc - before.TotalAlloc
		}
	}
	var own []float64 // allocations and bytes of the loop itself
	for _, s := range subjects {
		sort.Slice(s.times, func(i, j int) bool { return s.times[i] < s.times[j] })
		requests := float64(turns * length)
		cost := []float64{float64(s.mallocs) / requests, float64(s.bytes) / requests}
		if s.handler == nil {
			own = cost
		}
		if own != nil {
			cost[0] -= own[0]
			cost[1] -= own[1]
		}
		fmt.Printf("%s %d %.0f %.0f\n", s.name, s.times[len(s.times)/10], cost[0], cost[1])
	}
}

// send sends requests, and returns how long each took.
func send(s *subject, w *httptest.ResponseRecorder, count int) []int64 {
	times := make([]int64, 0, count)
	header := w.Header()
	for i := 0; i < count; i++ {
		for field := range header {
			delete(header, field)
		}
		header["Content-Type"] = nil // as Traefik has it
		if s.prepare != nil {
			s.prepare(s.request, s.sent)
		}
		s.sent++
		start := time.Now()
		if s.handler != nil {
			s.handler.ServeHTTP(w, s.request)
		}
		times = append(times, int64(time.Since(start)))
	}
	return times
}

// all returns the subjects. Clients never exceed the limits, except hourly.
func all() []*subject {
	const (
		perMilli = "1000/1ms"
		perTick  = "1000/20ms"
		perHour  = "5000/1h"
		hourly   = "1/1h"
	)
	token := traefik.Rule{Name: "token", Limit: perMilli, Algorithm: "token_bucket"}
	counter := traefik.Rule{Name: "counter", Limit: "8000/20ms", Algorithm: "sliding_window_counter"}
	spent := traefik.Rule{Name: "spent", Limit: hourly, Algorithm: "token_bucket"}
	window := traefik.Rule{Name: "window", Limit: perTick, Algorithm: "fixed_window"}
	leaky := traefik.Rule{Name: "leaky", Limit: perMilli, Algorithm: "leaky_bucket"}
	log := traefik.Rule{Name: "log", Limit: perTick, Algorithm: "sliding_window_log"}
	large := traefik.Rule{Name: "large", Limit: "500000/1m", Algorithm: "token_bucket"}
	keyed := func(key string) traefik.Rule {
		return traefik.Rule{Name: "keyed", Limit: perHour, Algorithm: "token_bucket", Key: []string{key}}
	}
	list := []*subject{
		{name: "no_handler"},
		{name: "nothing", handler: compiled(&nothing{next: http.NotFoundHandler()})},
		{name: "fields", handler: compiled(&fields{next: http.NotFoundHandler()})},
		of("token_bucket", nil, token),
		of("sliding_window_counter", nil, counter),
		of("fixed_window", nil, window),
		of("leaky_bucket", nil, leaky),
		of("sliding_window_log", nil, log),
		of("headers=none", func(c *traefik.Config) { c.Headers = []string{"none"} }, token),
		of("large", nil, large),
		of("rules=2", nil, token, counter),
		of("rules=4", nil, token, counter, window, leaky),
		of("key=header", nil, keyed("header:X-Key")).from(func(r *http.Request, i int) { r.Header["X-Key"][0] = strconv.Itoa(i % 512) }),
		of("key=cookie", nil, keyed("cookie:session")),
		of("key=host", nil, keyed("host")),
		of("key=depth", func(c *traefik.Config) { c.IPStrategy = map[string]interface{}{"depth": 1} }, token).from(func(r *http.Request, i int) { r.Header.Set("X-Forwarded-For", "198.51.100.7, 203.0.113.9") }),
		of("key=depth_ipv6", func(c *traefik.Config) { c.IPStrategy = map[string]interface{}{"depth": 1} }, token).from(func(r *http.Request, i int) { r.Header.Set("X-Forwarded-For", "198.51.100.7, 2001:db8::9") }),
		of("key=depth_port", func(c *traefik.Config) { c.IPStrategy = map[string]interface{}{"depth": 1} }, token).from(func(r *http.Request, i int) { r.Header.Set("X-Forwarded-For", "203.0.113.9:50123") }),
		of("key=ipv6", direct, token).from(func(r *http.Request, i int) { r.RemoteAddr = "[2001:db8::9]:1234" }),
		of("key=address,header", direct, with(token, func(r *traefik.Rule) { r.Key = []string{"client_ip", "header:X-Key"} })),
		of("key=header,path", direct, with(token, func(r *traefik.Rule) { r.Key = []string{"header:X-Key", "path"} })),
		of("key=network", direct, with(token, func(r *traefik.Rule) { r.IPv4Prefix = "24" })),
		of("key=first", direct, with(token, func(r *traefik.Rule) { r.Key = []string{"first(header:X-None, client_ip)"} })),
		of("key=segment", direct, with(token, func(r *traefik.Rule) { r.Key = []string{"path_segment:1"} })),
		of("key=regexp", direct, with(token, func(r *traefik.Rule) { r.Key = []string{"path_regexp:^/(.)"} })),
		of("key=claim", direct, with(token, func(r *traefik.Rule) { r.Key = []string{"unverified_jwt_claim:sub"} })).from(func(r *http.Request, _ int) {
			r.Header["Authorization"] = []string{"Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.c2lnbmVk"}
		}),
		of("match=query", direct, matching("query", map[string]interface{}{"a": "!*"})),
		of("match=cookie", direct, matching("cookies", map[string]interface{}{"a": "!*"})),
		of("key=missing,skip", direct, with(token, func(r *traefik.Rule) { r.Key, r.OnMissingKey = []string{"header:X-None"}, "skip" })),
		of("key=missing,reject", direct, with(token, func(r *traefik.Rule) { r.Key, r.OnMissingKey = []string{"header:X-None"}, "reject" })),
		of("key=missing,share", direct, with(token, func(r *traefik.Rule) { r.Key, r.OnMissingKey = []string{"header:X-None"}, "share" })),
		of("match=path", direct, matching("pathPrefixes", "/path")),
		of("match=paths", direct, matching("paths", "/path")),
		of("match=pattern", direct, matching("paths", "*ath")),
		of("match=methods", direct, matching("methods", "GET,POST")),
		of("match=hosts", direct, matching("hosts", "example.com")),
		of("match=header", direct, matching("headers", map[string]interface{}{"X-Key": "first"})),
		of("match=operator", direct, matching("headers", map[string]interface{}{"X-Key": "fi*"})),
		of("match=not", direct, matching("methods", "!OPTIONS")),
		of("match=several", direct, with(token, func(r *traefik.Rule) {
			r.Match = map[string]interface{}{"pathPrefixes": "/path", "methods": "GET", "hosts": "example.com"}
		})),
		of("match=none", direct, matching("pathPrefixes", "/other")),
		of("statusPath", func(c *traefik.Config) { c.StatusPath = "/limits" }, token),
		of("exempt=1", direct, exempting(1)),
		of("exempt=10000", direct, exempting(10000)),
		of("exempt=mixed", direct, with(token, func(r *traefik.Rule) { r.Match = map[string]interface{}{"exceptIPs": mixed(10000)} })),
		of("exempt=client", direct, with(token, func(r *traefik.Rule) { r.Match = map[string]interface{}{"exceptIPs": "192.0.2.0/24"} })),
		of("exempt=10000,key=header", nil, with(exempting(10000), func(r *traefik.Rule) { r.Key = []string{"header:X-Key"} })),
		of("exempt=10000,ipv6", direct, exempting(10000)).from(func(r *http.Request, i int) { r.RemoteAddr = "[2001:db8::9]:1234" }),
		of("exempt=10000,depth", depth, exempting(10000)).from(forwarded),
		of("exempt=10000,excludedIPs", func(c *traefik.Config) { c.IPStrategy = map[string]interface{}{"excludedIPs": mixed(10000)} }, exempting(10000)).from(forwarded),
		of("exempt=10000,rules=2", direct, exempting(10000), counter),
		of("exempt=10000,methods", direct, with(exempting(10000), func(r *traefik.Rule) { r.Match.(map[string]interface{})["methods"] = "GET" })),
		of("excludedIPs=10000", func(c *traefik.Config) { c.IPStrategy = map[string]interface{}{"excludedIPs": mixed(10000)} }, token).from(forwarded),
		of("key=addresses", nil, keyed("client_ip")).from(func(r *http.Request, i int) { r.RemoteAddr = "192.0.2." + strconv.Itoa(i%256) + ":1234" }),
		of("key=new", nil, keyed("header:X-Key")).from(func(r *http.Request, i int) { r.Header["X-Key"][0] = strconv.Itoa(i) }),
		of("key=new,address", nil, keyed("client_ip")).from(func(r *http.Request, i int) {
			r.RemoteAddr = "192.0." + strconv.Itoa(i>>8&255) + "." + strconv.Itoa(i&255) + ":1234"
		}),
		of("tiers", nil, tiered(token)),
		of("tiers,rules=2", nil, tiered(token), counter),
		of("tiers=address", nil, with(tiered(token), func(r *traefik.Rule) {
			r.Tiers = map[string]interface{}{"source": "client_ip", "limits": map[string]interface{}{"192.0.2.1": "2000/1ms"}}
		})),
		of("overrides", nil, overridden(token)),
		of("overrides=10000", nil, with(token, func(r *traefik.Rule) {
			list := make([]interface{}, 10000)
			for i := range list {
				list[i] = map[string]interface{}{"key": "10.0." + strconv.Itoa(i>>8) + "." + strconv.Itoa(i&255), "limit": "2000/1ms"}
			}
			r.Overrides = list
		})),
		of("shadow", nil, with(token, func(r *traefik.Rule) { r.Enforcement = "shadow" })),
		of("soft", nil, with(token, func(r *traefik.Rule) { r.Enforcement = "soft 20% 30s" })),
		of("penalty", nil, with(token, func(r *traefik.Rule) { r.Penalty = []string{"10s", "1m"} })),
		of("penalty,rejected", nil, with(spent, func(r *traefik.Rule) { r.Penalty = []string{"1h"} })),
		of("cost", nil, with(token, func(r *traefik.Rule) { r.Cost = "2" })),
		of("concurrency", nil, with(token, func(r *traefik.Rule) { r.Concurrency = "100" })),
		of("delay", nil, with(token, func(r *traefik.Rule) { r.OnLimit, r.MaxDelay = "delay", "10s" })),
		of("candidate", nil, with(token, func(r *traefik.Rule) { r.Candidate = map[string]interface{}{"limit": "2000/1ms"} })),
		of("files", fromFile(`{"rules":[{"name":"token","limit":"1000/1ms","algorithm":"token_bucket","key":"client_ip"}]}`)),
		of("files=40", fromFile(pathRules(40))),
		of("files=1000", fromFile(pathRules(1000))),
		of("rules=40", nil, ofPaths(40)...),
		of("rejected", nil, spent),
		of("rejected,logged", func(c *traefik.Config) { c.LogLevel = "error" }, spent),
		of("rejected,rules=2", nil, counter, spent),
		of("rejected,json", nil, spent).from(accepting),
		of("rejected,json,rules=2", nil, counter, spent).from(accepting),
		of("rejected,grpc", nil, spent).from(func(r *http.Request, i int) {
			r.Method, r.ProtoMajor, r.Header["Content-Type"] = "POST", 2, []string{"application/grpc"}
		}),
		of("rejected,browser", nil, spent).from(func(r *http.Request, i int) {
			r.ProtoMajor, r.Header["Accept"] = 2, []string{"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"}
		}),
		of("rejected,jitter", func(c *traefik.Config) { c.Jitter = "0.5" }, spent),
		of("headerPrefix", func(c *traefik.Config) { c.HeaderPrefix = "X-Acme" }, token),
		of("answer", nil, with(token, func(r *traefik.Rule) { r.Answer = map[string]interface{}{"status": 403} })),
		of("answer,rejected", nil, with(spent, func(r *traefik.Rule) { r.Answer = map[string]interface{}{"status": 403, "body": "{retry_after}"} })),
		of("cors", allowing, token),
		of("cors,rejected", allowing, spent),
		of("metrics,token_bucket", metered, token),
		of("metrics,sliding_window_counter", metered, counter),
		of("metrics,key=header", metered, keyed("header:X-Key")),
		of("metrics,rules=2", metered, token, counter),
		of("metrics,rejected", metered, spent),
		of("guard,token_bucket", guarded, token),
		of("guard,key=header", guarded, keyed("header:X-Key")),
		of("guard,metrics,token_bucket", func(c *traefik.Config) {
			metered(c)
			guarded(c)
		}, token),
		of("guard,rejected", guarded, spent),
		of("guard", guarded),
	}
	if address := os.Getenv("WEIR_REDIS"); address != "" {
		shared := func(c *traefik.Config) {
			c.Store = map[string]interface{}{"redis": map[string]interface{}{"address": address, "nodes": 1}}
		}
		small := traefik.Rule{Name: "small", Limit: "8000/1s", Algorithm: "fixed_window"}
		leased, few := large, small
		leased.Consistency, few.Consistency = "lease", "lease"
		synced := large
		synced.Consistency = "eventual 1s"
		list = append(list, of("eventual", shared, synced), of("metrics,eventual", func(c *traefik.Config) {
			metered(c)
			shared(c)
		}, synced), of("redis,rules=2", shared, large, counter), of("redis,rejected", shared, spent), of("redis,rejected,rules=2", shared, counter, spent), of("redis", shared, large), of("redis,tiers", shared, tiered(large)),
			of("redis,shadow", shared, with(large, func(r *traefik.Rule) { r.Enforcement = "shadow" })),
			of("redis,soft", shared, with(large, func(r *traefik.Rule) { r.Enforcement = "soft 20% 30s" })),
			of("redis,penalty", shared, with(large, func(r *traefik.Rule) { r.Penalty = []string{"10s", "1m"} })),
			of("redis,delay", shared, with(large, func(r *traefik.Rule) { r.OnLimit, r.MaxDelay = "delay", "10s" })),
			of("redis,concurrency", shared, with(large, func(r *traefik.Rule) { r.Concurrency = "100" })),
			of("redis,candidate", shared, with(large, func(r *traefik.Rule) { r.Candidate = map[string]interface{}{"limit": "900000/1m"} })), of("small", nil, small), of("lease,small", shared, few), of("lease", shared, leased), of("metrics,lease", func(c *traefik.Config) {
				metered(c)
				shared(c)
			}, leased))
	}
	return list
}

func metered(c *traefik.Config) { c.Metrics = map[string]interface{}{"path": "/metrics"} }

// guarded adds a guard whose limit is so far away that most requests pass by it.
func guarded(c *traefik.Config) { c.Guard = map[string]interface{}{"max": 512, "min": 512} }

// allowing adds the origin of pages.
func allowing(c *traefik.Config) {
	c.CORS = map[string]interface{}{"origins": "https://app.example.com"}
}

// of returns a middleware with rules. change changes its configuration; nil: nothing.
func of(name string, change func(c *traefik.Config), rules ...traefik.Rule) *subject {
	c := traefik.CreateConfig()
	c.Rules = rules
	if change != nil {
		change(c)
	}
	h, err := traefik.New(context.Background(), http.NotFoundHandler(), c, name+"@file")
	if err != nil {
		panic(err)
	}
	return &subject{name: name, handler: compiled(h)}
}

func (s *subject) from(prepare func(r *http.Request, i int)) *subject {
	s.prepare = prepare
	return s
}

// direct says that clients are told apart by the address of the connection.
func direct(c *traefik.Config) { c.IPStrategy = map[string]interface{}{} }

// depth says that the client's address is the last of X-Forwarded-For.
func depth(c *traefik.Config) { c.IPStrategy = map[string]interface{}{"depth": 1} }

// accepting accepts problem details.
func accepting(r *http.Request, i int) { r.Header["Accept"] = []string{"application/json"} }

// forwarded has the client's address in X-Forwarded-For.
func forwarded(r *http.Request, i int) { r.Header.Set("X-Forwarded-For", "198.51.100.7, 203.0.113.9") }

// matching returns a rule with a match of one field, which covers the requests.
func matching(field string, value interface{}) traefik.Rule {
	return traefik.Rule{Name: "matching", Limit: "1000/1ms", Algorithm: "token_bucket", Match: map[string]interface{}{field: value}}
}

// mixed returns so many networks of all kinds, none of which has the client.
func mixed(networks int) []interface{} {
	list := make([]interface{}, networks)
	for i := range list {
		switch i % 3 {
		case 0:
			list[i] = "10." + strconv.Itoa(i>>7&255) + "." + strconv.Itoa(i<<1&255) + "." + strconv.Itoa(i%32*8) + "/" + strconv.Itoa(29+i%4)
		case 1:
			list[i] = "2001:db8:" + strconv.FormatInt(int64(i), 16) + "::/" + strconv.Itoa(48+i%81)
		default:
			list[i] = "11." + strconv.Itoa(i>>8&255) + "." + strconv.Itoa(i&255) + ".7"
		}
	}
	return list
}

// exempting returns a rule with an exempt list of so many networks, none of which has the client.
func exempting(networks int) traefik.Rule {
	list := make([]interface{}, networks)
	for i := range list {
		list[i] = "10." + strconv.Itoa(i>>7&255) + "." + strconv.Itoa(i<<1&255) + ".0/24"
	}
	return traefik.Rule{Name: "exempting", Limit: "1000/1ms", Algorithm: "token_bucket", Match: map[string]interface{}{"exceptIPs": list}}
}

// with returns a rule with a change.
func with(r traefik.Rule, change func(r *traefik.Rule)) traefik.Rule {
	change(&r)
	return r
}

// tiered returns a rule whose limit a header field chooses.
func tiered(r traefik.Rule) traefik.Rule {
	r.Key = []string{"client_ip"}
	r.Tiers = map[string]interface{}{"source": "header:X-Key", "limits": map[string]interface{}{"first": "2000/1ms", "second": "3000/1ms"}}
	return r
}

// overridden returns a rule with a limit for a key of its own.
func overridden(r traefik.Rule) traefik.Rule {
	r.Overrides = []interface{}{map[string]interface{}{"key": "192.0.2.1", "limit": "2000/1ms"}}
	return r
}

// fromFile returns a change that has rules in a file.
func fromFile(text string) func(c *traefik.Config) {
	return func(c *traefik.Config) {
		folder, err := os.MkdirTemp("", "")
		if err != nil {
			panic(err)
		}
		name := filepath.Join(folder, "rules.json")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			panic(err)
		}
		c.Rules = nil
		c.RulesFile = []string{name}
	}
}

// pathRules is a file of so many rules, each for a path; one covers the requests.
func pathRules(count int) string {
	var list []string
	for _, r := range ofPaths(count) {
		list = append(list, `{"name":"`+r.Name+`","limit":"`+r.Limit+`","algorithm":"token_bucket","key":"client_ip","match":{"paths":["`+r.Match.(map[string]interface{})["paths"].(string)+`"]}}`)
	}
	return `{"rules":[` + strings.Join(list, ",") + `]}`
}

// ofPaths returns so many rules, each for a path; one covers the requests.
func ofPaths(count int) []traefik.Rule {
	list := []traefik.Rule{matching("paths", "/path")}
	for i := 1; i < count; i++ {
		r := matching("paths", "/path"+strconv.Itoa(i))
		r.Name = "path" + strconv.Itoa(i)
		list = append(list, r)
	}
	return list
}

// compiled returns a handler that calls another as Traefik does: from compiled code.
func compiled(h http.Handler) http.Handler { return http.AllowQuerySemicolons(h) }

// nothing is a plugin that does nothing.
type nothing struct{ next http.Handler }

// ServeHTTP implements http.Handler.
func (n *nothing) ServeHTTP(w http.ResponseWriter, r *http.Request) { n.next.ServeHTTP(w, r) }

// fields is a plugin that sets five prebuilt fields.
type fields struct{ next http.Handler }

var prebuilt = []string{"1000"}

// ServeHTTP implements http.Handler.
func (f *fields) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["X-Ratelimit-Limit"] = prebuilt
	h["X-Ratelimit-Remaining"] = prebuilt
	h["X-Ratelimit-Reset"] = prebuilt
	h["Ratelimit"] = prebuilt
	h["Ratelimit-Policy"] = prebuilt
	f.next.ServeHTTP(w, r)
}
