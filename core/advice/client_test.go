package advice

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// advisor is one for tests: it does what answers says to a request, and keeps its header fields.
type advisor struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
}

func newAdvisor(t *testing.T, answers http.HandlerFunc) *advisor {
	t.Helper()
	a := &advisor{}
	a.Server = httptest.NewServer(a.keep(answers))
	t.Cleanup(func() { a.Server.Close() })
	return a
}

func (a *advisor) keep(answers http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.seen = append(a.seen, r)
		a.mu.Unlock()
		answers(w, r)
	}
}

func (a *advisor) requests() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*http.Request{}, a.seen...)
}

// asking returns the configuration of a poller that asks an advisor for a state.
func asking(b *State, address string) PollerConfig {
	return PollerConfig{
		Source: Source{URL: address + "/v1/advice", Timeout: patience},
		Digest: b.Digest,
		Take: func(body []byte, signature string, now int64) *Refusal {
			_, refusal := b.Take(body, signature, now)
			return refusal
		},
		Refuse: b.Refuse,
		Now:    func() int64 { return begins },
	}
}

func newPoller(t *testing.T, c PollerConfig) *Poller {
	t.Helper()
	p, err := NewPoller(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAnAdvisorIsAskedAsTheContractSays(t *testing.T) {
	b := someState(t, Full)
	body := bodyOf(t, b, 5, begins, loosening(150))
	a := newAdvisor(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"5"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", `"5"`)
		w.Write(body)
	})
	c := asking(b, a.URL)
	c.Source.Fleet = "shop & more"
	c.Source.Token = "s3cret"
	p := newPoller(t, c)
	for i := 0; i < 2; i++ {
		Poll(context.Background(), p)
	}
	seen := a.requests()
	if len(seen) != 2 {
		t.Fatalf("%d requests", len(seen))
	}
	for i, tag := range []string{"", `"5"`} {
		r := seen[i]
		if r.Method != http.MethodGet || r.URL.Path != "/v1/advice" || r.URL.Query().Get("fleet") != "shop & more" || r.Header.Get("Authorization") != "Bearer s3cret" ||
			r.Header.Get("Weir-Config") != b.Digest() || r.Header.Get("Accept") != "application/json" || r.Header.Get("If-None-Match") != tag || r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
	}
	h := p.Health()
	if h.Polls != 2 || h.Failures != 0 || h.SucceedAt != begins || h.Refusal != nil || b.Look().Document.Serial != 5 {
		t.Errorf("%+v", h)
	}
}

func TestATagIsKeptOfDocumentsThatWereTakenForTheseRules(t *testing.T) {
	b := someState(t, Full)
	good := bodyOf(t, b, 5, begins, nil)
	body := []byte("{}")
	a := newAdvisor(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"5"`)
		w.Write(body)
	})
	digest := b.Digest()
	c := asking(b, a.URL)
	c.Digest = func() string { return digest }
	p := newPoller(t, c)
	Poll(context.Background(), p) // is refused
	body = good
	Poll(context.Background(), p)
	Poll(context.Background(), p)
	digest = Digest(nil) // after a reload
	Poll(context.Background(), p)
	var tags []string
	for _, r := range a.requests() {
		tags = append(tags, r.Header.Get("If-None-Match"))
	}
	must.Equal(t, strings.Join(tags, " "), `  "5" `, "%q", tags)
}

func TestWhatAnAdvisorMayNotAnswerIsRefused(t *testing.T) {
	b := someState(t, Full)
	elsewhere := newAdvisor(t, func(w http.ResponseWriter, r *http.Request) {})
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(make([]byte, 2<<20))
	z.Close()
	megabyte := make([]byte, 1<<20)
	for name, c := range map[string]struct {
		reason, text string
		timeout      time.Duration
		answers      http.HandlerFunc
	}{
		"garbage": {Malformed, "is not JSON", 0, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("garbage")) }},
		"nothing": {Malformed, "is not JSON", 0, func(w http.ResponseWriter, r *http.Request) {}},
		"100 MB that it announces": {TooLarge, "104857600 bytes", 0, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "104857600")
			w.Write(megabyte)
		}},
		"100 MB that it does not announce": {TooLarge, "over 1048576 bytes", 0, func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < 100; i++ {
				if _, err := w.Write(megabyte); err != nil {
					return // it has hung up
				}
			}
			t.Error("100 MB were read")
		}},
		"a compressed bomb": {Unavailable, "encoded, as gzip", 0, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bomb.Bytes())
		}},
		"a hang": {Unavailable, "no answer within 50ms", 50 * time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}},
		"a hang in the middle of the body": {Unavailable, "no answer within 50ms", 50 * time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
			w.Write([]byte("{"))
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		"a slow drip": {Unavailable, "no answer within 50ms", 50 * time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				w.Write([]byte(" "))
				http.NewResponseController(w).Flush()
				Wait(r.Context(), time.Millisecond)
			}
		}},
		"less than it announces": {Unavailable, "EOF", 0, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("{"))
		}},
		"a header field without end": {Unavailable, "", 0, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}},
		"a redirect": {Unavailable, "status 302: redirects are not followed", 0, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		}},
		"not modified, without a tag": {Unavailable, "status 304: not modified since a document that was not asked for", 0, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotModified)
		}},
		"another digest": {Unavailable, "status 409: the advisor knows other rules", 0, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(409) }},
		"no content":     {Unavailable, "status 204", 0, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }},
	} {
		a := newAdvisor(t, c.answers)
		config := asking(b, a.URL)
		if c.timeout > 0 {
			config.Source.Timeout = c.timeout
		}
		p := newPoller(t, config)
		Poll(context.Background(), p)
		h := p.Health()
		if h.Refusal == nil || h.Refusal.Reason != c.reason || !strings.Contains(h.Refusal.Text, c.text) || len(h.Refusal.Text) > 400 {
			t.Errorf("%s: %v, not %s: %s", name, h.Refusal, c.reason, c.text)
		}
		if h.Failures != 1 || h.Polls != 1 || h.FailedAt != begins || h.SucceedAt != 0 {
			t.Errorf("%s: %+v", name, h)
		}
		a.CloseClientConnections()
	}
	if len(elsewhere.requests()) > 0 {
		t.Error("a redirect was followed")
	}
	if b.Look().Document != nil {
		t.Error("a document was taken")
	}
	gone := newAdvisor(t, func(w http.ResponseWriter, r *http.Request) {})
	gone.Close()
	p := newPoller(t, asking(b, gone.URL))
	Poll(context.Background(), p)
	if h := p.Health(); h.Refusal == nil || h.Refusal.Reason != Unavailable || strings.Contains(h.Refusal.Text, "/v1/advice") {
		t.Errorf("%v", h.Refusal)
	}
}

func TestPausesGrowAndAreNoShorterThanTheInterval(t *testing.T) {
	for _, c := range []struct {
		interval time.Duration
		failed   int
		chance   float64
		want     time.Duration
	}{
		{10 * time.Second, 0, 0, 10 * time.Second},
		{10 * time.Second, 0, 1, 12 * time.Second},
		{10 * time.Second, 1, 0, 20 * time.Second},
		{10 * time.Second, 2, 0.5, 44 * time.Second},
		{10 * time.Second, 3, 0, 80 * time.Second},
		{10 * time.Second, 1000, 1, 96 * time.Second},
		{time.Second, 1000, 0, time.Minute},
		{time.Hour, 1000, 0, 8 * time.Hour},
	} {
		must.Equal(t, pause(c.interval, c.failed, c.chance), c.want, "%s after %d failures", c.interval, c.failed)
	}
}

// steps lets a poller's waits end one by one.
type steps struct {
	begun chan time.Duration
	end   chan bool
}

// wait is a PollerConfig.Wait.
func (s *steps) wait(ctx context.Context, d time.Duration) {
	s.begun <- d
	<-s.end
}

func TestAPollerAsksAgainUntilItIsStopped(t *testing.T) {
	before := runtime.NumGoroutine()
	b := someState(t, Full)
	fails := true
	body := bodyOf(t, b, 5, begins, nil)
	a := newAdvisor(t, func(w http.ResponseWriter, r *http.Request) {
		if fails {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Write(body)
	})
	c := asking(b, a.URL)
	s := &steps{begun: make(chan time.Duration), end: make(chan bool)}
	c.Wait = s.wait
	mine := true
	c.May = func() bool { return mine }
	p := newPoller(t, c)
	p.Start()
	longer := func(least time.Duration) {
		t.Helper()
		if d := <-s.begun; d < least || d > least+least/5 {
			t.Errorf("waits for %s, not %s", d, least)
		}
	}
	longer(20 * time.Second)
	s.end <- true
	longer(40 * time.Second)
	fails = false
	s.end <- true
	longer(10 * time.Second)
	mine = false
	s.end <- true
	longer(time.Second) // the other node may be gone any time
	if h := p.Health(); !h.Elsewhere || h.Polls != 3 || h.Failures != 0 {
		t.Errorf("%+v", h)
	}
	mine = true
	s.end <- true
	longer(10 * time.Second)
	if h := p.Health(); h.Elsewhere || h.Polls != 4 {
		t.Errorf("%+v", h)
	}
	p.cancel()
	s.end <- true
	p.Stop()
	must.Equal(t, len(a.requests()), 4, "requests")
	a.Server.Close()
	settled(t, before)
}

func TestStopCutsAnExchangeOff(t *testing.T) {
	before := runtime.NumGoroutine()
	b := someState(t, Full)
	asked := make(chan bool)
	a := newAdvisor(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- true
		<-r.Context().Done()
	})
	p := newPoller(t, asking(b, a.URL))
	p.Start()
	<-asked
	p.Stop()
	if h := p.Health(); h.Polls != 0 {
		t.Errorf("an exchange that was cut off is counted: %+v", h)
	}
	a.Server.Close()
	settled(t, before)
}

func TestStopEndsAWait(t *testing.T) {
	before := runtime.NumGoroutine()
	b := someState(t, Full)
	asked := make(chan bool, 1)
	a := newAdvisor(t, func(w http.ResponseWriter, r *http.Request) { asked <- true })
	c := asking(b, a.URL)
	c.Interval = time.Hour
	p := newPoller(t, c)
	p.Start()
	<-asked
	p.Stop()
	a.Server.Close()
	settled(t, before)
	newPoller(t, c).Stop() // that was not started
}

func TestAPanicEndsNeitherPollerNorProxy(t *testing.T) {
	b := someState(t, Full)
	a := newAdvisor(t, func(w http.ResponseWriter, r *http.Request) {})
	c := asking(b, a.URL)
	c.Take = func(body []byte, signature string, now int64) *Refusal { panic("no") }
	p := newPoller(t, c)
	Poll(context.Background(), p)
	if h := p.Health(); h.Refusal == nil || !strings.Contains(h.Refusal.Text, "panicked") || h.Failures != 1 {
		t.Errorf("%+v", h)
	}
}

func TestSourcesAreChecked(t *testing.T) {
	for want, s := range map[string]PollerConfig{
		"must be a URL with http or https": {Source: Source{URL: "advisor:8787"}},
		"and a host":                       {Source: Source{URL: "https:///v1"}},
		"without user":                     {Source: Source{URL: "https://u:p@h/v1"}},
		"without user, query":              {Source: Source{URL: "https://h/v1?fleet=x"}},
		"timeout -1s":                      {Source: Source{URL: "https://h/v1", Timeout: -time.Second}},
		"token: must be one line":          {Source: Source{URL: "https://h/v1", Token: "a\nb"}},
		"interval 10ms: must be from 1s":   {Source: Source{URL: "https://h/v1"}, Interval: 10 * time.Millisecond},
	} {
		if _, err := NewPoller(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

// settled waits until no more goroutines run than before.
func settled(t *testing.T, before int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(time.Millisecond)
	}
}
