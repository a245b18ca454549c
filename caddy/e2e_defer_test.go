package ratelimit_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// durably has a Redis that deferred requests are safe in.
func durably(t testing.TB, config ...string) *redistest.Server {
	t.Helper()
	return redistest.Start(t, redistest.WithConfig(append([]string{"appendonly yes", "appendfsync always", "maxmemory-policy noeviction"}, config...)...))
}

// deferKey is an encryption key.
const deferKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// arrival is a request that a warehouse got.
type arrival struct {
	method, uri, body string
	header            http.Header
	host              string
}

func (a arrival) once() string { return a.header.Get("Idempotency-Key") }

// isDeferred reports whether the request has been deferred: then it has a key, and Prefer is not stored.
func (a arrival) isDeferred() bool { return a.once() != "" && a.header.Get("Prefer") == "" }

// warehouse is a service behind Caddy. It keeps what it gets, and answers deferred requests when its gate is open.
type warehouse struct {
	*httptest.Server
	open func() // the gate: all deferred requests are answered from now on

	mu       sync.Mutex
	arrivals []arrival
	answer   func(w http.ResponseWriter, a arrival)
}

// newWarehouse returns one whose gate is shut.
func newWarehouse(t testing.TB) *warehouse {
	t.Helper()
	gate := make(chan struct{})
	up := &warehouse{open: sync.OnceFunc(func() { close(gate) })}
	up.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if r.RequestURI == "/up" {
			return
		}
		a := arrival{r.Method, r.RequestURI, string(body), r.Header.Clone(), r.Host}
		up.mu.Lock()
		up.arrivals = append(up.arrivals, a)
		answer := up.answer
		up.mu.Unlock()
		if a.isDeferred() {
			<-gate
		}
		if answer != nil {
			answer(w, a)
			return
		}
		w.Header().Set("X-Order", "o-"+a.body)
		w.Header().Set("Content-Type", "text/x-order")
		w.Header().Set("Set-Cookie", "secret=1")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("ordered " + a.body))
	}))
	t.Cleanup(func() {
		up.open()
		up.Close()
	})
	return up
}

// got returns what has arrived with that body.
func (up *warehouse) got(body string) []arrival {
	up.mu.Lock()
	defer up.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(up.arrivals), func(a arrival) bool { return a.body != body })
}

// shop returns the directives of a site before a warehouse, with a zone that defers; lines are of its defer block.
func shop(redis *redistest.Server, up *warehouse, lines ...string) string {
	return `rate_limit {
		zone orders {
			key {header.X-Customer}
			limit 1/2s
			algorithm token_bucket
			burst 1
			on_limit defer {
				` + strings.Join(lines, "\n") + `
			}
		}
		` + storeAt(redis.Addr(), patiently) + `
	}
	reverse_proxy ` + up.URL + `
	`
}

// order is one answer about a job.
type order struct {
	ID       string `json:"id"`
	Status   string `json:"status"`
	Position int    `json:"position"`
	Due      string `json:"due"`
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason"`
	Result   string `json:"result"`
}

// send sends a request with a body, once.
func (s *server) send(method, path, body string, fields ...string) (response, error) {
	r, err := http.NewRequest(method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	r.Host = "shop.example" // the same on all nodes
	for i := 0; i < len(fields); i += 2 {
		switch fields[i] {
		case "Transfer-Encoding":
			r.ContentLength = -1
		case "Trailer":
			r.ContentLength = -1
			r.Trailer = http.Header{fields[i+1]: {"1"}}
		default:
			r.Header.Add(fields[i], fields[i+1])
		}
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return response{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return response{answer.StatusCode, answer.Header, string(text), answer.Trailer, answer.Proto}, err
}

// must is send that must get an answer.
func (s *server) must(method, path, body string, fields ...string) response {
	s.t.Helper()
	r, err := s.send(method, path, body, fields...)
	must.Succeed(s.t, err)
	return r
}

// deferred orders as a customer until an order is deferred, and returns the answer. Those before are done at once. It is the first of its key
// that is deferred, and the warehouse has its gate shut: so each order after it is deferred, too.
func (s *server) deferred(body string, fields ...string) response {
	s.t.Helper()
	var r response
	eventually(s.t, "an order is deferred", func() bool {
		r = s.must("POST", "/orders?kind=book", body, append([]string{"Prefer", "respond-async"}, fields...)...)
		if r.status != http.StatusAccepted && r.status != http.StatusCreated && r.status != http.StatusTooManyRequests {
			s.t.Fatalf("status %d: %s", r.status, r.body)
		}
		return r.status == http.StatusAccepted
	})
	return r
}

// job returns what an answer says of a job.
func (r response) job(t testing.TB) order {
	t.Helper()
	var o order
	if err := json.Unmarshal([]byte(r.body), &o); err != nil {
		t.Fatalf("%d %q: %v", r.status, r.body, err)
	}
	return o
}

// awaitJob waits until a job has a status.
func (s *server) awaitJob(location, status string, fields ...string) order {
	s.t.Helper()
	var o order
	eventually(s.t, "the job is "+status, func() bool {
		o = s.must("GET", location, "", fields...).job(s.t)
		return o.Status == status
	})
	return o
}

func TestAnOrderOverTheLimitIsAcceptedAndDoneLater(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	s := startSite(t, shop(redis, up, "headers Content-Type Authorization\nresult_headers X-Order\nencrypt "+deferKey))
	me := []string{"X-Customer", "ann", "Authorization", "Bearer of-ann", "Content-Type", "text/x-book", "X-Other", "other"}
	first := s.deferred("one", me...)
	location := first.header.Get("Location")
	if !strings.HasPrefix(location, "/deferred/orders/") || first.header.Get("Preference-Applied") != "respond-async" || first.header.Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", first.header)
	}
	first.seconds(t, "Retry-After", 1, 3)
	if o := first.job(t); o.ID == "" || o.Status != "waiting" || o.Position != 1 || o.Due == "" || o.Result != location+"/result" {
		t.Errorf("%s", first.body)
	}

	// It arrives as it was sent, and others wait behind it.
	s.awaitJob(location, "running", me...)
	second := s.deferred("two", me...)
	must.Equal(t, second.job(t).Position, 2, "%s", second.body)
	third := s.deferred("three", me...)
	if got := up.got("two"); len(got) != 0 {
		t.Errorf("it has arrived: %v", got)
	}
	if r := s.must("GET", location+"/result", "", me...); r.status != http.StatusAccepted {
		t.Errorf("its result, while it runs: %d %s", r.status, r.body)
	}

	// Nobody else may know of it, and nobody may cancel it while it runs.
	for _, other := range [][]string{nil, {"Authorization", "Bearer of-bob"}} {
		for _, request := range []string{"GET " + location, "GET " + location + "/result", "DELETE " + location} {
			method, path, _ := strings.Cut(request, " ")
			if r := s.must(method, path, "", other...); r.status != http.StatusNotFound {
				t.Errorf("%s of %v: %d %s", request, other, r.status, r.body)
			}
		}
	}
	if r := s.must("DELETE", location, "", me...); r.status != http.StatusConflict {
		t.Errorf("cancelled while it runs: %d %s", r.status, r.body)
	}
	if r := s.must("DELETE", third.header.Get("Location"), "", me...); r.status != http.StatusNoContent {
		t.Errorf("not cancelled: %d %s", r.status, r.body)
	}
	if r := s.must("PUT", location, "", me...); r.status != http.StatusMethodNotAllowed {
		t.Errorf("PUT: %d %s", r.status, r.body)
	}

	// A client may wait for the end.
	ended := make(chan response, 1)
	go func() {
		r, err := s.send("GET", location+"/result", "", append([]string{"Prefer", "wait=60"}, me...)...)
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	up.open()
	r := awaitOne(t, "the result", ended)
	if r.status != http.StatusCreated || r.body != "ordered one" {
		t.Errorf("the result: %d %q", r.status, r.body)
	}
	r.want(t, "Content-Type", "text/x-order", "X-Order", "o-one", "Set-Cookie", "-", "Cache-Control", "no-store")
	if o := s.awaitJob(location, "done", me...); o.Attempts != 1 {
		t.Errorf("%+v", o)
	}
	s.awaitJob(second.header.Get("Location"), "done", me...)
	if got := up.got("three"); len(got) != 0 {
		t.Errorf("what was cancelled has arrived: %v", got)
	}
	got := up.got("one")
	last := got[len(got)-1] // those before were within the limit
	if last.method != "POST" || last.uri != "/orders?kind=book" || last.host != "shop.example" {
		t.Errorf("%+v", last)
	}
	for field, want := range map[string]string{"Authorization": "Bearer of-ann", "Content-Type": "text/x-book", "X-Other": "", "Prefer": "", "Idempotency-Key": first.job(t).ID, "X-Forwarded-For": "127.0.0.1"} {
		must.Equal(t, last.header.Get(field), want, "%s", field)
	}
}

// What was accepted is encrypted at rest, and Redis keeps none of it in clear.
func TestRedisHasNothingOfADeferredRequestInClear(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	s := startSite(t, shop(redis, up, "headers Authorization\nencrypt "+deferKey))
	me := []string{"X-Customer", "customer-in-clear", "Authorization", "Bearer credentials-in-clear", "Idempotency-Key", "key-in-clear"}
	_ = s.deferred("body-in-clear", append(me[:4:4], "Idempotency-Key", "another-in-clear")...)
	r := s.deferred("body-in-clear", me...)
	up.open()
	s.awaitJob(r.header.Get("Location"), "done", me...)
	redis.MustDo(t, "SAVE")
	redis.MustDo(t, "CONFIG", "SET", "aof-use-rdb-preamble", "no")
	dir := redis.MustDo(t, "CONFIG", "GET", "dir").Strings()[1]
	found := 0
	err := eachFile(dir, func(name string, data []byte) {
		if strings.Contains(name, "appendonly") || strings.HasSuffix(name, ".rdb") {
			found++
		}
		for _, secret := range []string{"in-clear", "0123456789abcdef"} {
			if strings.Contains(string(data), secret) {
				t.Errorf("%s has %q", name, secret)
			}
		}
	})
	if err != nil || found < 3 {
		t.Errorf("%d files of Redis, %v", found, err)
	}
	log, err := os.ReadFile(s.logFile)
	if err != nil || strings.Contains(string(log), "in-clear") {
		t.Errorf("the log has it: %v", err)
	}
}

// eachFile calls a function with every file in a folder.
func eachFile(dir string, f func(name string, data []byte)) error {
	return filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		f(name, data)
		return err
	})
}

// The same Idempotency-Key is the same job, and reaches the service.
func TestAnIdempotencyKeyIsOneJob(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	s := startSite(t, shop(redis, up))
	first := s.deferred("first", "X-Customer", "ann")
	s.awaitJob(first.header.Get("Location"), "running")
	fields := append(of("ann"), "Idempotency-Key", "k-1")
	location := s.must("POST", "/orders", "same", fields...).header.Get("Location")
	if r := s.must("POST", "/orders", "same", fields...); r.status != http.StatusAccepted || r.header.Get("Location") != location {
		t.Errorf("%d %s, want %s", r.status, r.header.Get("Location"), location)
	}
	if r := s.must("POST", "/orders", "another", fields...); r.status != http.StatusUnprocessableEntity {
		t.Errorf("the key with another body: %d %s", r.status, r.body)
	}
	up.open()
	s.awaitJob(location, "done")
	if got := up.got("same"); len(got) != 1 || got[0].once() != "k-1" {
		t.Errorf("the warehouse got %v", got)
	}
}

// While a customer has an order in the queue, the next one is queued behind it, although the limit has room.
func TestARequestDoesNotOvertakeTheDeferredOnesOfItsKey(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	s := startSite(t, "rate_limit_status /quota orders\n"+shop(redis, up))
	first := s.deferred("first", "X-Customer", "ann")
	s.awaitJob(first.header.Get("Location"), "running")
	eventually(t, "the limit has room", func() bool {
		return strings.Contains(s.must("GET", "/quota", "", "X-Customer", "ann").body, `"remaining":1`)
	})
	r := s.must("POST", "/orders", "second", "X-Customer", "ann", "Prefer", "respond-async")
	if r.status != http.StatusAccepted || r.job(t).Position != 2 || len(up.got("second")) != 0 {
		t.Errorf("%d %s, and the warehouse got %v", r.status, r.body, up.got("second"))
	}
	if r := s.must("POST", "/orders", "third", "X-Customer", "bob", "Prefer", "respond-async"); r.status != http.StatusCreated {
		t.Errorf("of another customer: %d %s", r.status, r.body)
	}
}

// A key that has as many jobs as it may gets 429, and so does one whose job would wait too long.
func TestAFullQueueRejects(t *testing.T) {
	for name, lines := range map[string]string{"of the key": "max_jobs 10 2", "in all": "max_jobs 2 2", "in time": "max_wait 3s"} {
		t.Run(name, func(t *testing.T) {
			redis, up := durably(t), newWarehouse(t)
			s := startSite(t, shop(redis, up, lines))
			me := []string{"X-Customer", "ann"}
			first := s.deferred("first", me...)
			s.awaitJob(first.header.Get("Location"), "running", me...)
			eventually(t, "it is full", func() bool {
				r := s.must("POST", "/orders", "more", append([]string{"Prefer", "respond-async"}, me...)...)
				if r.status == http.StatusTooManyRequests {
					r.seconds(t, "Retry-After", 1, 10)
					return true
				}
				if r.status != http.StatusAccepted {
					t.Fatalf("%d %s", r.status, r.body)
				}
				return false
			})
			if n := len(redis.MustDo(t, "KEYS", "weir:{defer:/orders}:job:*").Strings()); n != 2 {
				t.Errorf("%d jobs, want 2", n)
			}
		})
	}
}

// A reload hands back what has not begun, and another configuration does it. What has begun ends as it would have.
func TestAReloadAndARestartGoOnWithDeferredRequests(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	site := shop(redis, up)
	s := startSite(t, site)
	me := []string{"X-Customer", "ann"}
	first := s.deferred("first", me...)
	s.awaitJob(first.header.Get("Location"), "running", me...)
	second := s.deferred("second", me...)
	s.reload(strings.Replace(site, "on_limit defer {", "on_limit defer {\nmax_wait 2h", 1))
	if o := s.must("GET", first.header.Get("Location"), "").job(t); o.Status != "running" {
		t.Errorf("%+v", o)
	}
	up.open()
	if o := s.awaitJob(first.header.Get("Location"), "done"); o.Attempts != 1 {
		t.Errorf("%+v", o)
	}
	if o := s.awaitJob(second.header.Get("Location"), "done"); o.Attempts != 1 {
		t.Errorf("%+v", o)
	}
	if got := up.got("second"); len(got) != 1 {
		t.Errorf("the warehouse got %v", got)
	}
}

// What handlers in front have found out of a request holds when it is done, although they do not run again.
func TestADeferredRequestKeepsItsIdentity(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	site := `basic_auth {
		ann $2a$04$NSdqzdHkKxdxUEzHvYsSxe1HuzsO48TuC5ig8pYosXzSWL7W4tcHO
	}
	vars plan gold
	map {header.X-Customer} {kind} {
		ann good
		default bad
	}
	rewrite * /v2{uri}
	` + strings.Replace(shop(redis, up), "reverse_proxy "+up.URL, `reverse_proxy `+up.URL+` {
		header_up X-User {http.auth.user.id}
		header_up X-Plan {vars.plan}
		header_up X-Kind {kind}
		header_up X-Asked {http.request.orig_uri}
		header_up X-Client {client_ip}
	}`, 1)
	site = "route {\n" + site + "}\n"
	s := start(t, "order rate_limit after basic_auth\nservers {\ntrusted_proxies static private_ranges\n}\n", ":PORT {\n"+site+"}\n")
	me := []string{"X-Customer", "ann", "Authorization", "Basic YW5uOnNlY3JldA==", "X-Forwarded-For", "192.0.2.7"}
	first := s.deferred("x", me...)
	up.open()
	s.awaitJob(first.header.Get("Location"), "done", me...)
	got := up.got("x")
	last := got[len(got)-1]
	if last.once() == "" || last.uri != "/v2/orders?kind=book" {
		t.Errorf("%+v", last)
	}
	for field, want := range map[string]string{"X-User": "ann", "X-Plan": "gold", "X-Kind": "good", "X-Asked": "/orders?kind=book", "X-Client": "192.0.2.7", "X-Forwarded-For": "192.0.2.7, 127.0.0.1", "Authorization": ""} {
		must.Equal(t, last.header.Get(field), want, "%s", field)
	}
}

// The service's errors are results; what may not have reached it is repeated, and what may have is not.
func TestWhatAServiceAnswersIsTheResult(t *testing.T) {
	for status, want := range map[int]string{500: "done", 404: "done", 502: "dead", 504: "dead"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			redis, up := durably(t), newWarehouse(t)
			up.answer = func(w http.ResponseWriter, a arrival) {
				if a.isDeferred() {
					w.WriteHeader(status)
				}
				_, _ = w.Write([]byte("said so"))
			}
			up.open()
			s := startSite(t, strings.Replace(shop(redis, up), "reverse_proxy", "handle_errors {\nrespond wrong\n}\nreverse_proxy", 1))
			first := order{}
			var location string
			eventually(t, "an order is deferred", func() bool {
				r := s.must("POST", "/orders", "x", "Prefer", "respond-async", "X-Customer", "ann")
				location = r.header.Get("Location")
				return r.status == http.StatusAccepted
			})
			first = s.awaitJob(location, want)
			must.Equal(t, first.Attempts, 1, "%+v", first)
			if r := s.must("GET", location+"/result", ""); r.status != status || r.body != "said so" {
				t.Errorf("%d %q", r.status, r.body)
			}
		})
	}
}

const saysDeferralIsOff = "on_limit defer is off, since Redis may lose requests: until it is safe, those over the limit are rejected with 429; or write durability best_effort, and requests may be lost"

// Without a safe Redis the site starts, and works but for deferral, which begins by itself once Redis is safe. The rejections are counted, and the log, the
// admin API and the metrics say why.
func TestDeferralIsOffUntilRedisIsSafe(t *testing.T) {
	up := newWarehouse(t)
	for name, c := range map[string]struct {
		config []string
		why    string
		remedy []string
	}{
		"no append-only file": {[]string{"maxmemory-policy noeviction"}, "there is no append-only file, so jobs do not survive a restart of Redis; set appendonly to yes", []string{"appendonly", "yes"}},
		"evicts":              {[]string{"appendonly yes", "maxmemory-policy allkeys-lru"}, "maxmemory-policy is allkeys-lru, so Redis may remove jobs that wait; set it to noeviction", []string{"maxmemory-policy", "noeviction"}},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redistest.Start(t, redistest.WithConfig(c.config...))
			a := startAdmin(t, "", ":PORT {\n"+withMetrics(shop(redis, up))+"\n}")
			eventually(t, "the health says why", func() bool {
				queue := at(t, a.ask("health", ""), "deferred", 0)
				return at(t, queue, "accepting") == false && at(t, queue, "why") == c.why
			})
			rejected := 0
			counted := a.grown(`weir_deferred_refused_total{reason="unsafe",rule="orders"}`, func() {
				eventually(t, "an order is rejected", func() bool {
					switch r := a.must("POST", "/orders", "x", of(name)...); r.status {
					case http.StatusCreated:
					case http.StatusTooManyRequests:
						rejected++
					default:
						t.Fatalf("%d %s", r.status, r.body)
					}
					return rejected > 0
				})
			})
			if counted != rejected {
				t.Errorf("%d rejections are counted, want %d", counted, rejected)
			}
			must.Equal(t, a.metric(`weir_deferred_accepting{rule="orders"}`), "0", "the metric")
			if lines := a.logs(saysDeferralIsOff); len(lines) != 1 || lines[0]["level"] != "error" || lines[0]["error"] != c.why || lines[0]["zone"] != "orders" {
				t.Errorf("the log has %v", lines)
			}
			redis.MustDo(t, "CONFIG", "SET", c.remedy[0], c.remedy[1])
			a.deferred("x", "X-Customer", name)
			a.said(1, "Redis keeps deferred requests safely now, so on_limit defer is on")
			if queue := at(t, a.ask("health", ""), "deferred", 0); at(t, queue, "accepting") != true {
				t.Errorf("the health is %v", queue)
			}
		})
	}
}

// Who writes best_effort has requests deferred all the same, and the log says once what that means.
func TestBestEffortDefersInARedisThatMayLoseRequests(t *testing.T) {
	redis, up := redistest.Start(t), newWarehouse(t)
	s := startSite(t, shop(redis, up, "durability best_effort"))
	s.deferred("x", "X-Customer", "ann")
	s.said(1, "deferred requests may be lost")
}

// While deferral is off, nobody overtakes what was deferred before.
func TestWhileDeferralIsOffNobodyOvertakesWhatWaits(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	s := startSite(t, shop(redis, up))
	s.deferred("first", "X-Customer", "ann")
	redis.MustDo(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	s.load(s.caddyfile("", ":PORT {\n"+shop(redis, up, "max_wait 2h")+"\n}"))
	s.settle() // a POST over a connection that the server before closes is lost
	s.said(1, saysDeferralIsOff)
	redis.MustDo(t, "EVAL", "for _, key in ipairs(redis.call('KEYS', 'weir:*')) do if not key:find('defer:') then redis.call('DEL', key) end end", "0") // so there is room
	if r := s.must("POST", "/orders", "second", of("ann")...); r.status != http.StatusTooManyRequests {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.must("POST", "/orders", "other", of("bob")...); r.status != http.StatusCreated {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A Redis that is down when Caddy starts keeps no site from starting. Deferral begins when it is there.
func TestASiteStartsWhileRedisIsDown(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	redis.Kill()
	s := startSite(t, shop(redis, up))
	if r := s.must("GET", "/", ""); r.status != http.StatusCreated {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.said(1, "Redis does not answer, so no deferred request is done")
	redis.Restart()
	s.deferred("x", "X-Customer", "ann")
}

// What a configuration could not honour is refused when it is loaded.
func TestDeferringThatCouldNotWorkIsRefused(t *testing.T) {
	redis := durably(t)
	up := newWarehouse(t)
	ours := shop(redis, up)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	must.Succeed(t, os.WriteFile(rules, []byte("rules:\n- {name: file, limit: 5/1s}\n"), 0o600))
	for name, c := range map[string]struct{ site, want string }{
		"memory":         {strings.Replace(ours, "store redis "+redis.Addr()+" {\n"+patiently+"\n}", "", 1), `zone "orders": on_limit defer: needs a store in Redis, which keeps the requests; write store redis and its address`},
		"rule files":     {strings.Replace(ours, "rate_limit {", "rate_limit {\nrules_file "+rules, 1), `the handler cannot have rules_file and descriptor, too`},
		"a zone waits":   {strings.Replace(ours, "rate_limit {", "rate_limit {\nzone slow {\nlimit 5/1s\nalgorithm leaky_bucket\n}\n", 1), `the zone "slow" of its handler makes requests wait`},
		"two handlers":   {ours + ours, `zone "orders", at Caddyfile:`},
		"another key":    {strings.Replace(ours, "rate_limit {", "rate_limit {\nzone other {\nlimit 5/1s\nkey {header.Authorization}\n}\n", 1), `is a secret, and a deferred request stores its keys`},
		"matcher":        {strings.Replace(ours, "rate_limit {", "rate_limit /orders* {", 1), `path /deferred/orders: clients could not ask for their jobs, since this rate_limit gets no GET of it`},
		"method":         {"@post method POST\n" + strings.Replace(ours, "rate_limit {", "rate_limit @post {", 1), `since this rate_limit gets no GET of it`},
		"secret":         {"request_header X-A {http.auth.user.token}\n" + ours, `the configuration has the placeholder {http.auth.user.token}, which is a secret`},
		"error route":    {"handle_errors {\n" + ours + "\n}\n", `what comes behind this rate_limit cannot be found when Caddy restarts`},
		"response route": {"reverse_proxy " + up.URL + " {\nhandle_response {\n" + ours + "\n}\n}\n", `what comes behind this rate_limit cannot be found when Caddy restarts`},
		"missing key":    {strings.Replace(ours, "on_limit defer {", "on_limit defer {\nencrypt {env.WEIR_TEST_NO_SUCH_KEY}", 1), `encrypt: `},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			config, err := s.adapt("", ":PORT {\n"+c.site+"\n}")
			must.Succeed(t, err)
			must.Contain(t, s.refused(config), c.want)
		})
	}
	s := startSite(t, strings.Replace(strings.Replace(ours, "rate_limit {", "rate_limit /orders* {", 1), "on_limit defer {", "on_limit defer {\npath /orders/jobs", 1))
	if r := s.must("GET", "/orders/jobs/AAAAAAAAAAAAAAAAAAAAAA", ""); r.status != http.StatusNotFound {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A handler behind may limit, too. It makes a deferred request wait, and not end with its own rejection.
func TestALimitBehindMakesADeferredRequestWait(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	up.open()
	site := "route {\n" + strings.Replace(shop(redis, up), "reverse_proxy", "rate_limit 1/4s {header.X-Customer}\nreverse_proxy", 1) + "}\n"
	site = strings.Replace(site, "on_limit defer {", "on_limit defer {\nheaders X-Customer", 1)
	s := startSite(t, "log\n"+site)
	for range 3 {
		r := s.deferred("x", "X-Customer", "ann")
		if o := s.awaitJob(r.header.Get("Location"), "done"); o.Attempts != 1 {
			t.Errorf("%+v", o)
		}
		if r := s.must("GET", r.header.Get("Location")+"/result", ""); r.status != http.StatusCreated {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if lines := s.attempts(); len(lines) != 3 { // what is turned away is no attempt
		t.Errorf("%d lines in the access log: %v", len(lines), lines)
	}
}

// A result is what the service answered, even if that is a part, or says that nothing has changed. Requests about a job have no conditions and ranges: those
// belong to the request that was deferred.
func TestResultsAreAsTheServiceAnswered(t *testing.T) {
	redis, up := redistest.Start(t, redistest.WithClock()), newWarehouse(t)
	now := int64(1_790_000_000_000_000)
	redis.SetTime(now) // so that every customer's second order is deferred, however slow this machine is
	answers := map[string]struct {
		status int
		body   string
		fields []string // of the answer, in pairs
	}{
		"whole":     {200, "0123456789", []string{"Etag", `"1"`, "Last-Modified", "Sat, 29 Oct 1994 19:43:31 GMT", "Content-Range", "-"}},
		"part":      {206, "012", []string{"Content-Range", "bytes 0-2/10", "Etag", "-"}},
		"unchanged": {304, "", []string{"Etag", `"1"`, "Content-Length", "-"}},
		"nothing":   {204, "", []string{"Content-Length", "-"}},
		"failed":    {412, "no", []string{"Etag", "-"}},
		"beyond":    {416, "no", []string{"Content-Range", "bytes */10"}},
	}
	up.answer = func(w http.ResponseWriter, a arrival) {
		if !a.isDeferred() {
			w.WriteHeader(http.StatusCreated)
			return
		}
		if got := a.header["If-None-Match"]; !slices.Equal(got, []string{`"1"`}) || a.header["Range"] != nil {
			t.Errorf("%s has the condition %q and the range %q", a.body, got, a.header["Range"])
		}
		c := answers[a.body]
		for i := 0; i < len(c.fields); i += 2 {
			if c.fields[i+1] != "-" {
				w.Header().Set(c.fields[i], c.fields[i+1])
			}
		}
		w.WriteHeader(c.status)
		_, _ = w.Write([]byte(c.body)) // not allowed with some
	}
	up.open()
	s := startSite(t, shop(redis, up, "headers If-None-Match", "durability best_effort"))
	locations := make(map[string]string)
	for name := range answers {
		locations[name] = s.deferred(name, "X-Customer", name, "If-None-Match", `"1"`).header.Get("Location")
	}
	for name, c := range answers {
		location := locations[name]
		eventually(t, "the job is done", func() bool {
			now += 20_000
			redis.SetTime(now)
			return s.must("GET", location, "").job(t).Status == "done"
		})
		for _, more := range [][]string{nil, {"Range", "bytes=0-0"}, {"If-None-Match", `"1"`}, {"If-None-Match", "*"}, {"If-Match", `"2"`}, {"If-Modified-Since", "Sat, 29 Oct 2050 19:43:31 GMT"},
			{"Range", "bytes=0-0", "If-Range", `"1"`}} {
			r := s.must("GET", location+"/result", "", more...)
			if r.status != c.status || r.body != c.body {
				t.Errorf("%s with %q: %d %q, want %d %q", name, more, r.status, r.body, c.status, c.body)
			}
			r.want(t, append([]string{"Cache-Control", "no-store"}, c.fields...)...)
			if r := s.must("GET", location, "", more...); r.status != http.StatusOK || r.job(t).Status != "done" {
				t.Errorf("the status of %s with %q: %d %q", name, more, r.status, r.body)
			}
		}
	}
}

// A request with a limit of its own is deferred until that limit admits it, and no other's.
func TestADeferredRequestKeepsTheLimitThatItBrings(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	up.open()
	s := startSite(t, strings.Replace(shop(redis, up), "limit 1/2s", "limit 1/2s\nlimit_from {header.X-Limit}", 1))
	slow := s.deferred("one", "X-Customer", "ann", "X-Limit", "1/1h")
	slow.seconds(t, "Retry-After", 3000, 3600)
	usual := s.deferred("two", "X-Customer", "bob")
	usual.seconds(t, "Retry-After", 1, 2)
	s.awaitJob(usual.header.Get("Location"), "done", "X-Customer", "bob")
	must.Equal(t, s.must("GET", slow.header.Get("Location"), "", "X-Customer", "ann").job(t).Status, "waiting")
	must.Equal(t, s.must("POST", "/orders", "three", "X-Customer", "eve", "X-Limit", "0").status, http.StatusTooManyRequests, "a request that is never admitted")
}
