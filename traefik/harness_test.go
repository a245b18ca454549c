package traefik

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// interpreted is false where the tests were compiled: see compiled_test.go.
var interpreted = true

// object is how an object of the configuration comes from Traefik.
type object = map[string]interface{}

// stage is a registry whose time stands still but for step, with what its plugin wrote to the log.
type stage struct {
	*registry
	t   *testing.T
	log *record

	mu     sync.Mutex
	now    time.Duration
	timers []*timer
	waits  []*timer
	passed int    // requests that reached the service
	during func() // is called while one is there; nil: nothing is
}

type timer struct {
	due time.Duration
	run func()
	of  context.Context // of what waits until run is called; nil: nothing does
}

// standardInterval is how often files are checked for changes.
const standardInterval = 10 * time.Second

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{registry: newRegistry(), t: t, log: watchLog(t)}
	s.clock = func() time.Duration {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.now
	}
	s.after = func(d time.Duration, f func()) {
		s.mu.Lock()
		s.timers = append(s.timers, &timer{due: s.now + d, run: f})
		s.mu.Unlock()
	}
	s.pause = func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
		over, letGo := context.WithCancel(ctx)
		s.mu.Lock()
		s.waits = append(s.waits, &timer{due: s.now + d, run: letGo, of: over})
		s.mu.Unlock()
		return over, letGo
	}
	s.wall = func() int64 { return epoch.UnixMicro() + int64(s.clock()/time.Microsecond) }
	t.Cleanup(s.leaveRedis)
	return s
}

// leaveRedis has what the test has connected to Redis say nothing in the log of a later test when its server is gone.
func (s *stage) leaveRedis() {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	for _, shared := range s.redis {
		shared.close()
	}
}

// made returns what a configuration comes to.
func (s *stage) made(c *Config, middleware string) *engine {
	s.t.Helper()
	s.handler(context.Background(), c, middleware)
	return s.newest(middleware)
}

// newest returns the engine that was made last for a middleware.
func (s *stage) newest(middleware string) *engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last *engine
	for _, e := range s.engines {
		if e.name == middleware && (last == nil || e.number > last.number) {
			last = e
		}
	}
	return last
}

// epoch is when a stage's time begins: a whole hour, minute and second.
var epoch = time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)

// step lets time pass, and runs what was to be run meanwhile.
func (s *stage) step(d time.Duration) {
	s.mu.Lock()
	end := s.now + d
	s.mu.Unlock()
	for {
		s.mu.Lock()
		var next *timer
		list := &s.timers
		at := 0
		for i, timer := range s.timers {
			if timer.due <= end && (next == nil || timer.due < next.due) {
				next, at = timer, i
			}
		}
		for i, timer := range s.waits {
			if timer.due <= end && (next == nil || timer.due < next.due) {
				next, at = timer, i
				list = &s.waits
			}
		}
		if next == nil {
			s.now = end
			s.mu.Unlock()
			return
		}
		*list = append((*list)[:at], (*list)[at+1:]...)
		s.now = next.due
		s.mu.Unlock()
		next.run()
	}
}

// waiting returns how many pollers wait. The stage's lock is held.
func (s *stage) waiting() int {
	n := 0
	for _, w := range s.waits {
		if w.of.Err() == nil { // else it was stopped
			n++
		}
	}
	return n
}

// leap lets time pass in which nothing is run: an hour's sweeps take long in an interpreter.
func (s *stage) leap(d time.Duration) {
	s.mu.Lock()
	s.now += d
	for _, timer := range s.timers {
		timer.due += d
	}
	s.mu.Unlock()
}

// pending returns how many timers are set.
func (s *stage) pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.timers)
}

// handler makes the handler of a middleware for a router.
func (s *stage) handler(ctx context.Context, c *Config, name string) http.Handler {
	s.t.Helper()
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.passed++
		s.mu.Unlock()
		if s.during != nil {
			s.during()
		}
		w.WriteHeader(http.StatusOK)
	})
	h, err := s.newHandler(ctx, next, c, name)
	if err != nil {
		s.t.Fatalf("the configuration was refused: %v", err)
	}
	return h
}

// refused returns the error of a configuration that must not be taken.
func (s *stage) refused(c *Config, name string) string {
	s.t.Helper()
	h, err := s.newHandler(context.Background(), http.NotFoundHandler(), c, name)
	if err == nil {
		s.t.Fatalf("the configuration was taken: %+v", *c)
	}
	if h != nil {
		s.t.Fatalf("there is a handler beside the error %v", err)
	}
	return err.Error()
}

// end cancels a context, and waits until the registry has noticed.
func (s *stage) end(ctx context.Context, cancel func()) {
	done := ctx.Done()
	cancel()
	for i := 0; i < 100_000; i++ {
		s.registry.mu.Lock()
		gen := s.generations[done]
		s.registry.mu.Unlock()
		if gen == nil {
			return
		}
		runtime.Gosched()
		if i > 1000 {
			time.Sleep(time.Millisecond)
		}
	}
	s.t.Fatal("the registry has not noticed that a context was cancelled")
}

// get sends a request from an address, and returns the response.
func get(h http.Handler, from string, change func(*http.Request)) *http.Response {
	r := httptest.NewRequest("GET", "http://example.com/", nil)
	r.RemoteAddr = from + ":1234"
	if strings.Contains(from, ":") {
		r.RemoteAddr = "[" + from + "]:1234"
	}
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// statuses sends so many requests from an address, and returns their statuses: "200 200 429".
func statuses(h http.Handler, from string, n int) string {
	list := make([]string, 0, n)
	for i := 0; i < n; i++ {
		list = append(list, get(h, from, nil).Status[:3])
	}
	return strings.Join(list, " ")
}

// record is what was written to the log.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *record) count(text string) int { return strings.Count(r.String(), text) }

// watchLog keeps what is written to the log until the test ends.
func watchLog(t *testing.T) *record {
	r := &record{}
	before := warnings.Writer()
	warnings.SetOutput(r)
	t.Cleanup(func() { warnings.SetOutput(before) })
	return r
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// setenv is t.Setenv for the environment that an interpreter has of its own.
func setenv(t *testing.T, name, value string) {
	must.Succeed(t, os.Setenv(name, value))
	t.Cleanup(func() { _ = os.Unsetenv(name) })
}

// until waits for something that other goroutines, and other processes, bring about.
func until(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come about")
		}
	}
}

// patient adds to settings that Redis is waited for as long as it takes: where a test is not about what happens when it does not answer.
func patient(settings object) object {
	for _, name := range []string{"timeout", "readTimeout", "dialTimeout"} {
		settings[name] = "20s"
	}
	return settings
}
