package protect

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/tools/must"
)

// passing is a guard whose requests a function answers.
type passing struct {
	t *testing.T
	g *Guarded
}

func newPassing(t *testing.T, c guard.Config) *passing {
	return &passing{t: t, g: &Guarded{GuardState: newGuardState(t.Name(), c), errors: new(ErrorRoutes)}}
}

// underWay checks how many requests are under way.
func (p *passing) underWay(want int64) {
	p.t.Helper()
	if n := guard.Look(p.g.Guard).UnderWay; n != want {
		p.t.Errorf("%d requests are under way, want %d", n, want)
	}
}

// pass passes a request on at a time in microseconds, to a handler.
func (p *passing) pass(w http.ResponseWriter, r *http.Request, at int64, next func(w http.ResponseWriter, r *http.Request)) {
	p.t.Helper()
	err := p.g.Admit(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		next(w, r)
		return nil
	}), Asker{rule: p.g.alone, At: at})
	if err != nil {
		p.t.Error(err)
	}
}

// take has the guard see that the service takes so many microseconds at the time that it returns.
func (p *passing) take(usual int64) (at int64) {
	under := guard.Begin(p.g.Guard, 1, false, 1)
	guard.End(p.g.Guard, under, usual)
	guard.End(p.g.Guard, guard.Begin(p.g.Guard, 1, false, 2_000_000), -1)
	if got := guard.Usual(p.g.Guard); got != usual {
		p.t.Errorf("the service usually takes %d µs, want %d", got, usual)
	}
	return 2_000_000
}

func get(t *testing.T) *http.Request {
	return httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
}

func TestAnAnswerBeginsWhenItIsFlushed(t *testing.T) {
	p := newPassing(t, guard.Config{})
	p.pass(httptest.NewRecorder(), get(t), 1, func(w http.ResponseWriter, _ *http.Request) {
		p.underWay(1)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		p.underWay(0)
	})
	p.underWay(0)
}

// TestAHijackThatFailsEndsNothing: over HTTP/2, for example.
func TestAHijackThatFailsEndsNothing(t *testing.T) {
	p := newPassing(t, guard.Config{})
	p.pass(httptest.NewRecorder(), get(t), 1, func(w http.ResponseWriter, _ *http.Request) {
		if _, _, err := http.NewResponseController(w).Hijack(); err == nil {
			t.Error("a recorder is hijacked")
		}
		p.underWay(1)
	})
	p.underWay(0)
}

func TestARequestPassesEachGuardOnce(t *testing.T) {
	p := newPassing(t, guard.Config{Max: 1})
	other := newPassing(t, guard.Config{Max: 1})
	w := httptest.NewRecorder()
	p.pass(w, get(t), 1, func(w http.ResponseWriter, r *http.Request) {
		other.pass(w, r, 1, func(w http.ResponseWriter, r *http.Request) {
			p.pass(w, r, 1, func(w http.ResponseWriter, _ *http.Request) {
				p.underWay(1)
				other.underWay(1)
				w.WriteHeader(http.StatusTeapot)
			})
		})
	})
	must.Equal(t, w.Code, http.StatusTeapot, "status %d, want 418", w.Code)
	p.underWay(0)
	other.underWay(0)
}

// TestWhoLeavesAtOnceGivesTheServiceNoMoreWork checks, for a defect, that a request whose client leaves keeps its place for as long as the service
// usually takes.
func TestWhoLeavesAtOnceGivesTheServiceNoMoreWork(t *testing.T) {
	p := newPassing(t, guard.Config{})
	at := p.take(3_600_000_000)
	ctx, leave := context.WithCancel(t.Context())
	p.pass(httptest.NewRecorder(), get(t).WithContext(ctx), at, func(http.ResponseWriter, *http.Request) { leave() })
	p.underWay(1)

	p = newPassing(t, guard.Config{})
	at = p.take(1)
	ctx, leave = context.WithCancel(t.Context())
	p.pass(httptest.NewRecorder(), get(t).WithContext(ctx), at, func(http.ResponseWriter, *http.Request) { leave() })
	p.ends()
}

// ends waits until nothing is under way.
func (p *passing) ends() {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); guard.Look(p.g.Guard).UnderWay != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatal("a request does not end")
		}
	}
}

// TestABodyThatDoesNotComeGivesTheServiceNoMoreWork checks, for a defect, that a request holds its place without its body for as long as the service
// usually takes: that may work on it nevertheless.
func TestABodyThatDoesNotComeGivesTheServiceNoMoreWork(t *testing.T) {
	upload := func() *http.Request {
		return httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader("ab"))
	}
	p := newPassing(t, guard.Config{})
	at := p.take(3_600_000_000)
	p.pass(httptest.NewRecorder(), upload(), at, func(w http.ResponseWriter, r *http.Request) {
		p.underWay(1)
		if _, err := r.Body.Read(make([]byte, 2)); err != nil {
			t.Error(err)
		}
		p.underWay(1)
		w.WriteHeader(http.StatusOK)
		p.underWay(0)
	})
	p.underWay(0)

	p = newPassing(t, guard.Config{})
	at = p.take(1)
	p.pass(httptest.NewRecorder(), upload(), at, func(_ http.ResponseWriter, r *http.Request) {
		p.ends() // the service waits for the body
		for {
			if _, err := r.Body.Read(make([]byte, 2)); err != nil {
				break
			}
		}
		p.underWay(1)
	})
	p.underWay(0)
}

// TestAClientOfManyAddressesIsOneKey checks, for a defect, that a client with an IPv6 network of its own does not get a fair share for each address.
func TestAClientOfManyAddressesIsOneKey(t *testing.T) {
	p := newPassing(t, guard.Config{})
	keys := make(map[uint64]bool)
	for _, address := range []string{"2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"} {
		vars := map[string]any{caddyhttp.ClientIPVarKey: address}
		r := get(t).WithContext(context.WithValue(t.Context(), caddyhttp.VarsCtxKey, vars))
		keys[p.g.Ask(new(front.Evaluation), r, false).key] = true
	}
	must.Equal(t, len(keys), 2, "%d keys of two networks", len(keys))
}

// TestNumbersOfPassagesThatAreAtomicComeFirst since on machines with 32 bits those of 64 are aligned only there.
func TestNumbersOfPassagesThatAreAtomicComeFirst(t *testing.T) {
	for i, name := range []string{"begun", "under"} {
		if f := reflect.TypeOf(inflight{}).Field(i); f.Name != name {
			t.Errorf("%s has the place of %s", f.Name, name)
		}
	}
}
