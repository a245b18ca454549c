package deferral

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

func newAPI(q *Queue) *API {
	return &API{Queue: q, Known: new(Known), Path: "/.deferred", MaxBody: 64 << 10, Headers: DefaultHeaders, MaxWait: time.Hour, Pace: func() time.Duration { return time.Second }, Report: func(Event) {}}
}

// asking returns a request that asks to be deferred, with header fields in pairs.
func asking(method, body string, fields ...string) *http.Request {
	r := httptest.NewRequest(method, "http://shop.example/orders?a=1", strings.NewReader(body))
	r.Header.Set("Prefer", "respond-async")
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return r
}

// accept defers a request of a key.
func (d *API) accept(t testing.TB, r *http.Request, key string) (*httptest.ResponseRecorder, error) {
	t.Helper()
	a, err := d.Ask(r, key)
	must(t, err)
	w := httptest.NewRecorder()
	return w, a.Accept(w, []Check{{Rule: "orders", Key: key}}, nil, 100*time.Millisecond)
}

// ask makes a request about a job.
func (d *API) ask(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

func about(method, location string, fields ...string) *http.Request {
	r := httptest.NewRequest(method, location, nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	return r
}

func wantStatus(t testing.TB, w *httptest.ResponseRecorder, want int) status {
	t.Helper()
	if w.Code != want {
		t.Fatalf("status %d, want %d: %s", w.Code, want, w.Body)
	}
	if w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q, want no-store", w.Header().Get("Cache-Control"))
	}
	var s status
	_ = json.Unmarshal(w.Body.Bytes(), &s)
	return s
}

func TestARequestIsAcceptedFollowedAndAnswered(t *testing.T) {
	b := newBench(t, nil)
	d := newAPI(b.Queue)
	w, err := d.accept(t, asking("POST", "one"), "k")
	must(t, err)
	first := wantStatus(t, w, http.StatusAccepted)
	location := w.Header().Get("Location")
	if location != "/.deferred/"+first.ID || first.Status != Waiting || first.Position != 1 || first.Due == nil || first.Result != location+"/result" ||
		w.Header().Get("Retry-After") != "1" || w.Header().Get("Preference-Applied") != "respond-async" {
		t.Errorf("%+v %v", first, w.Header())
	}
	w, err = d.accept(t, asking("POST", "two"), "k")
	must(t, err)
	// The turn of the first job comes in 100 ms, and that of the next one a second later.
	if second := wantStatus(t, w, http.StatusAccepted); second.Position != 2 || w.Header().Get("Retry-After") != "2" {
		t.Errorf("%+v %v", second, w.Header())
	}
	if s := wantStatus(t, d.ask(about("GET", location)), http.StatusOK); s.Status != Waiting || s.Position != 1 {
		t.Errorf("%+v", s)
	}
	wantStatus(t, d.ask(about("GET", location+"/result")), http.StatusAccepted)

	b.pass(time.Second)
	j := b.claimOne(first.ID)
	r, err := b.open(j)
	must(t, err)
	if r.Method != "POST" || r.URI != "/orders?a=1" || r.Host != "shop.example" || string(r.Body) != "one" || r.Header.Get("Idempotency-Key") != first.ID || r.Header.Get("Prefer") != "" || r.Once {
		t.Errorf("%+v", r)
	}
	must(t, begin(b, j))
	wantStatus(t, d.ask(about("DELETE", location)), http.StatusConflict)
	must(t, b.finish(context.Background(), j, Done, "", &Answer{Status: 500, Header: http.Header{"Content-Type": {"text/x"}}, Body: []byte("no")}, 0))
	if s := wantStatus(t, d.ask(about("GET", location)), http.StatusOK); s.Status != Done || s.Ended == nil || s.Position != 0 {
		t.Errorf("%+v", s)
	}
	w = d.ask(about("GET", location+"/result"))
	wantStatus(t, w, 500)
	if w.Body.String() != "no" || w.Header().Get("Content-Type") != "text/x" {
		t.Errorf("%s %v", w.Body, w.Header())
	}
	b.pass(b.Keep)
	_, err = b.claim(context.Background(), 0)
	must(t, err)
	wantStatus(t, d.ask(about("GET", location+"/result")), http.StatusGone)
	wantStatus(t, d.ask(about("DELETE", location)), http.StatusNoContent)
	wantStatus(t, d.ask(about("GET", location)), http.StatusNotFound)
	b.check()
}

func TestWhatCannotBeDeferred(t *testing.T) {
	d := newAPI(nil)
	if !d.Wants(asking("POST", "x")) || !d.Wants(asking("GET", "")) || !d.Wants(asking("HEAD", "")) {
		t.Fatal("a plain request is not deferred")
	}
	change := func(f func(r *http.Request)) *http.Request {
		r := asking("POST", "x")
		f(r)
		return r
	}
	for name, r := range map[string]*http.Request{
		"not asked for":          change(func(r *http.Request) { r.Header.Del("Prefer") }),
		"another preference":     change(func(r *http.Request) { r.Header.Set("Prefer", "respond-asynchronously, wait=1") }),
		"WebSocket":              asking("GET", "", "Connection", "keep-alive, Upgrade", "Upgrade", "websocket"),
		"Upgrade alone":          asking("GET", "", "Upgrade", "h2c"),
		"a protocol of HTTP/2":   change(func(r *http.Request) { r.Header[":protocol"] = []string{"websocket"} }),
		"Connection alone":       asking("GET", "", "Connection", "Upgrade"),
		"CONNECT":                change(func(r *http.Request) { r.Method = "CONNECT" }),
		"TRACE":                  change(func(r *http.Request) { r.Method = "TRACE" }),
		"gRPC":                   asking("POST", "x", "Content-Type", "application/grpc"),
		"gRPC-Web":               asking("POST", "x", "Content-Type", "Application/gRPC-web+proto"),
		"event stream":           asking("GET", "", "Accept", "text/html, text/event-stream;q=0.5"),
		"trailer":                asking("POST", "x", "Trailer", "Digest"),
		"announced trailer":      change(func(r *http.Request) { r.Trailer = http.Header{"Digest": nil} }),
		"chunked":                change(func(r *http.Request) { r.ContentLength = -1 }),
		"chunked, with a length": change(func(r *http.Request) { r.TransferEncoding = []string{"chunked"} }),
		"65 KiB":                 asking("POST", strings.Repeat("x", 65<<10)),
		"HEAD with a body":       asking("HEAD", "x"),
		"GET with a body":        asking("GET", "x"),
		"early data":             asking("POST", "x", "Early-Data", "1"),
		"a range":                asking("GET", "", "Range", "bytes=0-1"),
		"two Idempotency-Keys":   asking("POST", "x", "Idempotency-Key", "a", "Idempotency-Key", "b"),
		"a long Idempotency-Key": asking("POST", "x", "Idempotency-Key", strings.Repeat("a", 256)),
		"two Authorizations":     asking("POST", "x", "Authorization", "a", "Authorization", "b"),
		"long fields":            asking("POST", "x", "Accept", strings.Repeat("a", mostHead)),
		"a condition":            asking("PUT", "x", "If-Match", `"1"`),
		"only if there is none":  asking("PUT", "x", "If-None-Match", "*"),
		"only if it is old":      asking("PUT", "x", "If-Unmodified-Since", "Sat, 29 Oct 1994 19:43:31 GMT"),
		"a part of a body":       asking("POST", "x", "Content-Range", "bytes 0-0/2"),
		"early data, it says no": asking("POST", "x", "Early-Data", "0"),
		"another method":         asking("POST", "x", "X-HTTP-Method-Override", "DELETE"),
		"a field in Latin-1":     asking("POST", "x", "Accept-Language", "\xe9"),
		"a binary key":           asking("POST", "x", "Idempotency-Key", "\xff"),
		"a binary query":         change(func(r *http.Request) { r.URL.RawQuery = "q=\xff" }),
		"a binary host":          change(func(r *http.Request) { r.Host = "\xff" }),
		"a long path":            change(func(r *http.Request) { r.RequestURI = "/" + strings.Repeat("a", mostHead) }),
	} {
		if d.Wants(r) {
			t.Errorf("%s: is deferred", name)
		}
	}
	d.Headers = []string{"Content-Type"}
	if d.Wants(asking("POST", "x", "Content-Encoding", "gzip")) {
		t.Error("a compressed body is stored without its Content-Encoding")
	}
	d.Always = true
	if !d.Wants(change(func(r *http.Request) { r.Header.Del("Prefer") })) {
		t.Error("with Always, a request that does not ask is not deferred")
	}
}

func TestPreferences(t *testing.T) {
	for _, c := range []struct {
		prefer string
		async  bool
		wait   time.Duration
	}{
		{"respond-async", true, 0}, {"Respond-Async, wait=10", true, 10 * time.Second}, {`wait="5"; x=1`, false, 5 * time.Second}, {"wait=1, wait=2", false, time.Second},
		{"wait=99999", false, longestPoll}, {"wait=-1", false, 0}, {"wait=x", false, 0}, {"wait", false, 0}, {"", false, 0}, {",,;", false, 0},
		{"respond-asynchronously", false, 0}, {"wait=1; respond-async", false, time.Second}, {`=;,,;respond-async,"`, false, 0},
	} {
		if async, wait := preferences(http.Header{"Prefer": {c.prefer}}); async != c.async || wait != c.wait {
			t.Errorf("Prefer: %s: %v %s, want %v %s", c.prefer, async, wait, c.async, c.wait)
		}
	}
}

// Two nodes and 200 requests at the same time: one job. Without Doubt, a request that finds another's job half stored would be held.
func TestTheSameIdempotencyKeyGivesTheSameLocation(t *testing.T) {
	b := newBench(t, nil)
	other := queueOn(t, b.server.Addr(), nil)
	apis := []*API{newAPI(b.Queue), newAPI(other)}
	apis[0].Doubt, apis[1].Doubt = patience, patience
	var group sync.WaitGroup
	locations := make([]string, 200)
	for i := range locations {
		group.Add(1)
		go func() {
			defer group.Done()
			w, err := apis[i%2].accept(t, asking("POST", "x", "Idempotency-Key", "order 1"), "k")
			if err != nil {
				t.Error(err)
				return
			}
			locations[i] = w.Header().Get("Location")
		}()
	}
	group.Wait()
	for i, location := range locations {
		if location == "" || location != locations[0] {
			t.Fatalf("request %d: Location %q, want %q", i, location, locations[0])
		}
	}
	sums, err := b.Sums(context.Background())
	if err != nil || sums.Accepted != 1 {
		t.Errorf("%+v %v", sums, err)
	}
	w, err := apis[1].accept(t, asking("POST", "x", "Idempotency-Key", "order 1"), "k") // afterwards
	if err != nil || w.Header().Get("Location") != locations[0] {
		t.Errorf("%v %v", w.Header(), err)
	}
	_, err = apis[0].accept(t, asking("POST", "another body", "Idempotency-Key", "order 1"), "k")
	wantErr(t, err, ErrReused)
	_, err = apis[0].accept(t, asking("POST", "x", "Idempotency-Key", "order 1", "Content-Type", "text/csv"), "k")
	wantErr(t, err, ErrReused)
	for name, of := range map[string]*http.Request{
		"another key":         asking("POST", "x", "Idempotency-Key", "order 1"),
		"another client":      asking("POST", "x", "Idempotency-Key", "order 1", "Authorization", "Bearer b"),
		"another Idempotency": asking("POST", "x", "Idempotency-Key", "order 2"),
	} {
		key := "k"
		if name == "another key" {
			key = "l"
		}
		w, err := apis[0].accept(t, of, key)
		if err != nil || w.Header().Get("Location") == locations[0] {
			t.Errorf("%s: %v %v, want another job", name, w.Header(), err)
		}
	}
	b.check()
}

// When nobody knows whether a job is in the line, its client gets a 202 that says so, and the job is put there once Redis answers. Settle waits for that. A job
// that Redis has lost is reported.
func TestAnUncertain202SaysSoAndIsKept(t *testing.T) {
	b := newBench(t, nil)
	var broken atomic.Bool
	q := queueOn(t, b.server.Addr(), nil)
	q.Client.AddHook(&losses{errors.New("lost"), func(s *goredis.Script, executed bool) bool { return s == confirmScript && !executed && broken.Load() }})
	for _, missing := range []bool{false, true} {
		d := newAPI(q)
		var events atomic.Value
		d.Report = func(e Event) { events.Store(e) }
		broken.Store(true)
		w, err := d.accept(t, asking("POST", "x", "Idempotency-Key", fmt.Sprint(missing)), "k")
		must(t, err)
		location := w.Header().Get("Location")
		if s := wantStatus(t, w, http.StatusAccepted); s.Status != Unconfirmed || s.Ended != nil || s.Due == nil || w.Header().Get("Retry-After") == "" {
			t.Errorf("%+v", s)
		}
		if s := wantStatus(t, d.ask(about("GET", location)), http.StatusOK); s.Status != Unconfirmed {
			t.Errorf("%+v", s)
		}
		wantStatus(t, d.ask(about("GET", location+"/result")), http.StatusAccepted)
		wantStatus(t, d.ask(about("DELETE", location)), http.StatusConflict)
		if e, _ := events.Load().(Event); e.What != "unconfirmed" || e.ID == "" {
			t.Errorf("%+v", e)
		}
		if missing {
			must(t, b.Client.FlushAll(context.Background()).Err())
		}
		broken.Store(false)
		d.Settle(patience)
		if missing {
			if e, _ := events.Load().(Event); e.What != "missing" {
				t.Errorf("%+v", e)
			}
			wantStatus(t, d.ask(about("GET", location)), http.StatusNotFound)
			continue
		}
		// Defect found: a request that came while a configuration was replaced got a 202 for a job that nobody put into the line.
		if _, err := d.accept(t, asking("POST", "y"), "k"); !errors.Is(err, ErrClosing) {
			t.Errorf("an API that has settled accepts a job: %v", err)
		}
		if s := wantStatus(t, d.ask(about("GET", location)), http.StatusOK); s.Status != Waiting || s.Position != 1 {
			t.Errorf("%+v", s)
		}
		b.check()
	}
}

// A client waits a while for a certain answer.
func TestAnUncertainAnswerWaitsForRedis(t *testing.T) {
	b := newBench(t, nil)
	var tries atomic.Int64
	q := queueOn(t, b.server.Addr(), nil)
	q.Client.AddHook(&losses{errors.New("lost"), func(s *goredis.Script, executed bool) bool { return s == confirmScript && executed && tries.Add(1) < 3 }})
	d := newAPI(q)
	d.Doubt = patience
	w, err := d.accept(t, asking("POST", "x"), "k")
	must(t, err)
	if s := wantStatus(t, w, http.StatusAccepted); s.Status != Waiting || s.Position != 1 || tries.Load() < 3 {
		t.Errorf("%+v after %d tries", s, tries.Load())
	}
	b.check()
}

// Which of two requests with one Idempotency-Key are the same, by the stored fields.
func TestStoredFieldsTellRequestsApart(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Keys, _ = ParseKeys([]string{strings.Repeat("00", 32)}) })
	apis := []*API{newAPI(b.Queue), newAPI(b.Queue)}
	apis[0].Headers = []string{"Cookie", "X-Tenant", "X-Api-Key", "Accept"}
	apis[1].Headers = []string{"Accept", "X-Api-Key", "X-Tenant", "Cookie"} // of another node, whose configuration has another order
	first := []string{"Cookie", "session=ann", "X-Tenant", "a", "Accept", "text/html", "Accept", "text/csv"}
	send := func(api *API, fields []string, who ...string) (string, error) {
		t.Helper()
		a, err := api.Ask(asking("POST", "x", append([]string{"Idempotency-Key", "1001"}, fields...)...), "k", who...)
		must(t, err)
		w := httptest.NewRecorder()
		err = a.Accept(w, nil, nil, 0)
		return w.Header().Get("Location"), err
	}
	location, err := send(apis[0], first, "ann")
	must(t, err)
	for name, c := range map[string]struct {
		fields []string
		who    string
		want   string // "same", "other" or "reused"
	}{
		"the same":                      {first, "ann", "same"},
		"another order of fields":       {[]string{"X-Tenant", "a", "Accept", "text/html", "Accept", "text/csv", "Cookie", "session=ann"}, "ann", "same"},
		"names in lower case":           {[]string{"cookie", "session=ann", "x-tenant", "a", "accept", "text/html", "accept", "text/csv"}, "ann", "same"},
		"one field of two":              {[]string{"Cookie", "session=ann", "X-Tenant", "a", "Accept", "text/html, text/csv"}, "ann", "same"},
		"a field that is not stored":    {append([]string{"Date", "today"}, first...), "ann", "same"},
		"another cookie":                {[]string{"Cookie", "session=bob", "X-Tenant", "a", "Accept", "text/html", "Accept", "text/csv"}, "ann", "other"},
		"no cookie":                     {first[2:], "ann", "other"},
		"an API key":                    {append([]string{"X-Api-Key", "1"}, first...), "ann", "other"},
		"another user":                  {first, "bob", "other"},
		"another tenant":                {[]string{"Cookie", "session=ann", "X-Tenant", "b", "Accept", "text/html", "Accept", "text/csv"}, "ann", "reused"},
		"no tenant":                     {[]string{"Cookie", "session=ann", "Accept", "text/html", "Accept", "text/csv"}, "ann", "reused"},
		"another order of values":       {[]string{"Cookie", "session=ann", "X-Tenant", "a", "Accept", "text/csv", "Accept", "text/html"}, "ann", "reused"},
		"a field that Connection names": {append([]string{"Connection", "X-Tenant"}, first...), "ann", "reused"},
	} {
		for i, api := range apis {
			got, err := send(api, c.fields, c.who)
			switch c.want {
			case "same":
				if err != nil || got != location {
					t.Errorf("%s, api %d: %q %v, want the same job", name, i, got, err)
				}
			case "other":
				if err != nil || got == location {
					t.Errorf("%s, api %d: %q %v, want another job", name, i, got, err)
				}
			default:
				wantErr(t, err, ErrReused)
			}
		}
	}
}

func TestOtherCredentialsSeeNothing(t *testing.T) {
	for _, encrypt := range []bool{false, true} {
		b := newBench(t, func(c *Config) {
			if encrypt {
				c.Keys, _ = ParseKeys([]string{strings.Repeat("ab", 32)})
			}
		})
		d := newAPI(b.Queue)
		w, err := d.accept(t, asking("POST", "x", "Authorization", "Bearer mine"), "k")
		must(t, err)
		location := w.Header().Get("Location")
		for _, of := range []string{"", "Bearer yours", "bearer mine", "Bearer mine "} {
			fields := []string{"Authorization", of}
			if of == "" {
				fields = nil
			}
			wantStatus(t, d.ask(about("GET", location, fields...)), http.StatusNotFound)
			wantStatus(t, d.ask(about("GET", location+"/result", fields...)), http.StatusNotFound)
			wantStatus(t, d.ask(about("DELETE", location, fields...)), http.StatusNotFound)
		}
		wantStatus(t, d.ask(about("GET", location, "Authorization", "Bearer mine")), http.StatusOK)
		wantStatus(t, d.ask(about("DELETE", location, "Authorization", "Bearer mine")), http.StatusNoContent)
	}
}

func TestUnknownJobsAndMethods(t *testing.T) {
	b := newBench(t, nil)
	d := newAPI(b.Queue)
	for _, path := range []string{"/.deferred", "/.deferred/", "/.deferred/x", "/.deferred/" + NewID(), "/.deferred/" + NewID() + "/", "/.deferred/" + NewID() + "/request",
		"/.deferred/" + NewID() + "/result/", "/.deferred/" + NewID() + "/result/..", "/.deferred/{defer:", "/.deferred//result", "/.deferred/" + NewID() + "=="} {
		wantStatus(t, d.ask(about("GET", path)), http.StatusNotFound)
	}
	w, err := d.accept(t, asking("POST", "x"), "k")
	must(t, err)
	location := w.Header().Get("Location")
	wantStatus(t, d.ask(about("POST", location)), http.StatusMethodNotAllowed)
	wantStatus(t, d.ask(about("DELETE", location+"/result")), http.StatusMethodNotAllowed)
	if d.Serves(about("GET", "/.deferredx")) || d.Serves(about("GET", "/orders")) || !d.Serves(about("GET", location)) {
		t.Error("the API serves other paths than its own")
	}
	b.server.Stop()
	wantStatus(t, d.ask(about("GET", location)), http.StatusServiceUnavailable)
}

func TestNothingIsStoredOfWhatIsRefused(t *testing.T) {
	b := newBench(t, nil)
	d := newAPI(b.Queue)
	for name, c := range map[string]struct {
		length int64
		fields []string
	}{
		"shorter":         {2, nil},
		"longer":          {0, nil},
		"no number":       {0, []string{"Content-Length", "x"}},
		"no body":         {0, []string{"Content-Length", "1"}},
		"several lengths": {1, []string{"Content-Length", "1", "Content-Length", "1"}},
	} {
		r := asking("POST", "x", c.fields...)
		r.ContentLength = c.length
		if name == "no body" {
			r.Body = http.NoBody
		}
		if _, err := d.accept(t, r, "k"); !errors.Is(err, ErrBody) {
			t.Errorf("%s: error %v, want %v", name, err, ErrBody)
		}
	}
	d.MaxWait = 50 * time.Millisecond
	_, err := d.accept(t, asking("POST", "x"), "k")
	wantErr(t, err, ErrTooLate)
	if n, err := b.Client.DBSize(context.Background()).Result(); err != nil || n != 0 {
		t.Errorf("%d keys are stored (%v)", n, err)
	}
}

// While a client polls, it gets the answer when the job has ended, or when its time is over.
func TestLongPolling(t *testing.T) {
	b := newBench(t, nil)
	d := newAPI(b.Queue)
	stopping := make(chan struct{})
	d.Stopping = stopping
	w, err := d.accept(t, asking("POST", "x"), "k")
	must(t, err)
	location := w.Header().Get("Location")
	b.pass(time.Second)
	answered := make(chan *httptest.ResponseRecorder)
	go func() { answered <- d.ask(about("GET", location+"/result", "Prefer", "wait=60")) }()
	eventually(t, "the client polls", func() bool { return d.waiting.Load() == 1 })
	work(t, b.Queue, answers(Outcome{Answer: &Answer{Status: 201, Body: []byte("done")}}))
	w = <-answered
	wantStatus(t, w, 201)
	if w.Header().Get("Preference-Applied") != "wait=60" {
		t.Errorf("%v", w.Header())
	}
	w, err = d.accept(t, asking("POST", "x"), "l") // its turn does not come, since the clock stands still
	must(t, err)
	go func() { answered <- d.ask(about("GET", w.Header().Get("Location"), "Prefer", "wait=60")) }()
	eventually(t, "the client polls", func() bool { return d.waiting.Load() == 1 })
	close(stopping)
	if s := wantStatus(t, <-answered, http.StatusOK); s.Status != Waiting {
		t.Errorf("%+v", s)
	}
}

// Under encrypt, what Redis has shows nothing of requests and results; without, Authorization is not stored.
func TestSecretsAreNotReadableInRedis(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Keys, _ = ParseKeys([]string{strings.Repeat("ab", 32)}) })
	d := newAPI(b.Queue)
	d.Headers = []string{"Authorization", "Cookie", "Content-Type"}
	w, err := d.accept(t, asking("POST", "secret-body", "Authorization", "Bearer secret-token", "Cookie", "secret-cookie", "Idempotency-Key", "secret-once"), "secret-key")
	must(t, err)
	id := strings.TrimPrefix(w.Header().Get("Location"), "/.deferred/")
	look := func() {
		t.Helper()
		if dump := b.readable(); strings.Contains(dump, "secret") || strings.Contains(dump, "orders?a") {
			t.Errorf("Redis has: %s", dump)
		}
	}
	look()
	b.pass(time.Second)
	j := b.claimOne(id)
	r, err := b.open(j)
	must(t, err)
	if r.Header.Get("Authorization") != "Bearer secret-token" || r.Header.Get("Cookie") != "secret-cookie" || r.Header.Get("Idempotency-Key") != "secret-once" || !r.Once {
		t.Errorf("%+v", r)
	}
	must(t, begin(b, j))
	must(t, b.finish(context.Background(), j, Done, "", &Answer{Status: 200, Body: []byte("secret-result")}, 0))
	look()
}

// readable returns the values of all hashes and the names of all keys.
func (b *bench) readable() string {
	var out strings.Builder
	keys, err := b.Client.Keys(context.Background(), "*").Result()
	must(b.t, err)
	for _, key := range keys {
		out.WriteString(key + "\n")
		fields, _ := b.Client.HGetAll(context.Background(), key).Result()
		for name, value := range fields {
			out.WriteString(name + "=" + value + "\n")
		}
		text, _ := b.Client.Get(context.Background(), key).Result()
		out.WriteString(text)
	}
	return out.String()
}

func TestCheckHeaders(t *testing.T) {
	if got, err := CheckHeaders([]string{"content-type", "X-Order"}, false); err != nil || strings.Join(got, " ") != "Content-Type X-Order" {
		t.Errorf("%q %v", got, err)
	}
	if _, err := CheckHeaders([]string{"Authorization", "cookie"}, true); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"Authorization": "encrypt", "cookie": "encrypt", "Host": "cannot be stored", "te": "cannot be stored", "a b": "no name", "": "no name"} {
		if _, err := CheckHeaders([]string{name}, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", name, err, want)
		}
	}
	if _, err := CheckHeaders([]string{"Accept", "accept"}, false); err == nil {
		t.Error("a duplicate is accepted")
	}
}

func TestSealing(t *testing.T) {
	secrets := []string{strings.Repeat("01", 32), "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="}
	one, err := ParseKeys(secrets[:1])
	must(t, err)
	both, err := ParseKeys([]string{secrets[1], secrets[0]})
	must(t, err)
	text := []byte("text")
	stored := one.seal("a", text)
	for name, k := range map[string]Keys{"the same": one, "rotated": both} {
		if got, err := k.open("a", stored); err != nil || string(got) != "text" {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	_, err = one.open("b", stored)
	wantErr(t, err, errTampered)
	_, err = one.open("a", both.seal("a", text))
	wantErr(t, err, errNoKey)
	for i := range stored {
		forged := append([]byte(nil), stored...)
		forged[i] ^= 1
		if _, err := one.open("a", forged); err == nil {
			t.Errorf("byte %d may be changed", i)
		}
		if _, err := one.open("a", stored[:i]); err == nil {
			t.Errorf("it may be cut off at %d", i)
		}
	}
	if _, err := one.open("a", Keys{}.seal("a", text)); err == nil {
		t.Error("what is in clear is accepted though there is a key")
	}
	if got, err := (Keys{}).open("a", Keys{}.seal("a", text)); err != nil || string(got) != "text" {
		t.Errorf("in clear: %q %v", got, err)
	}
	if _, err := (Keys{}).open("a", stored); err == nil {
		t.Error("what is encrypted is read without a key")
	}
	for i, wrong := range [][]string{{"short"}, {""}, {secrets[0], secrets[0]}, {strings.Repeat("zz", 32)}} {
		if _, err := ParseKeys(wrong); err == nil {
			t.Errorf("keys %s are accepted", strconv.Itoa(i))
		}
	}
}
