package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// asked is a kind of requests to a service that has as many workers as come.
type asked struct {
	rate func(t float64) float64 // requests a second
	took func(t float64) float64 // seconds until the answer
}

func steadily(x float64) func(float64) float64 { return func(float64) float64 { return x } }

// between returns x from begin to end, and usual before and after.
func between(begin, end, usual, x float64) func(float64) float64 {
	return func(t float64) float64 {
		if t >= begin && t < end {
			return x
		}
		return usual
	}
}

// rising goes from one number to another between two times.
func rising(begin, end, from, to float64) func(float64) float64 {
	return func(t float64) float64 { return from + (to-from)*max(0, min(1, (t-begin)/(end-begin))) }
}

// healthy is a situation from whose service nobody need be turned away.
type healthy struct {
	name   string
	kinds  []asked
	length float64
}

const forever = 1e9

// short are the situations that every run of the tests plays, and long those that WEIR_HEALTHY does, three times each.
var (
	short = []healthy{
		{"more of a slow kind", []asked{{steadily(150), steadily(.02)}, {between(5, forever, 0, 120), steadily(.4)}}, 13},
		{"a dependency becomes slow", []asked{{steadily(150), between(5, 10, .02, .3)}}, 13},
	}
	long = []healthy{
		{"400/s of 20 ms; from second 15 also 270/s of 400 ms", []asked{{steadily(400), steadily(.02)}, {between(15, forever, 0, 270), steadily(.4)}}, 45},
		{"300/s of 20 ms; every 20 s for 5 s 300/s of 400 ms", []asked{{steadily(300), steadily(.02)}, {func(t float64) float64 {
			if t > 20 && int(t)%20 < 5 {
				return 300
			}
			return 0
		}, steadily(.4)}}, 65},
		{"a kind of 400 ms grows from 0 to 200/s in 40 s", []asked{{steadily(300), steadily(.02)}, {rising(10, 50, 0, 200), steadily(.4)}}, 60},
		{"200/s of 20 ms and 20/s held for 10 s", []asked{{steadily(200), steadily(.02)}, {steadily(20), steadily(10)}}, 45},
		{"a dependency is slow, 300 ms for all, for 10 s", []asked{{steadily(400), between(20, 30, .02, .3)}}, 45},
		{"the same, for good", []asked{{steadily(400), between(20, forever, .02, .3)}}, 60},
		{"cold start, 300 to 20 ms", []asked{{steadily(300), rising(0, 20, .3, .02)}}, 40},
		{"three times the traffic", []asked{{between(15, forever, 130, 400), steadily(.05)}}, 40},
		{"a deploy, 250 ms falling to 50", []asked{{steadily(300), func(t float64) float64 {
			if t < 15 {
				return .05
			}
			return .05 + .2*max(0, 1-(t-15)/20)
		}}}, 45},
	}
)

// result is how many requests were served, turned away with a 503, and failed otherwise. Kept is how much longer than the service even the quickest fifth of the
// answers took, in the worst half of a second: so long the machine kept them all.
type result struct {
	served, turnedAway, failed int64
	kept                       time.Duration
}

// wrong fails the test, unless the machine itself was a queue, as a guard has it: everybody waited for half as long as answers usually take. Then guards are right to
// find one, the situation is not the one that was meant, and the test is skipped.
func (h healthy) wrong(t *testing.T, name string, r *result) {
	t.Helper()
	if r.failed == 0 && r.kept.Seconds() > h.kinds[0].took(0)/2 {
		t.Skipf("too busy a machine: %s, %s: it kept even the quickest requests for %s: %+v", h.name, name, r.kept, *r)
	}
	t.Errorf("%s, %s: %+v", h.name, name, *r)
}

// play plays a situation. ask makes a request that the service answers after so many seconds, and returns the status and how long the service took.
func (h healthy) play(ask func(seconds float64) (status int, took time.Duration)) result {
	var requests sync.WaitGroup
	var all, refused, good atomic.Int64
	var mu sync.Mutex
	kept := make(map[int][]time.Duration) // by the half of a second in which the answer came
	begun := time.Now()
	for i, kind := range h.kinds {
		requests.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 33))
			for at := 0.0; at < h.length; {
				rate := kind.rate(at)
				if rate <= 0 {
					at += 0.05
					continue
				}
				at += random.ExpFloat64() / rate
				due := begun.Add(time.Duration(at * float64(time.Second)))
				time.Sleep(time.Until(due))
				seconds := kind.took(at) * (0.9 + 0.2*random.Float64())
				requests.Go(func() {
					all.Add(1)
					switch status, took := ask(seconds); status {
					case http.StatusOK:
						good.Add(1)
						half := int(2 * time.Since(begun).Seconds())
						mu.Lock()
						kept[half] = append(kept[half], time.Since(due)-took)
						mu.Unlock()
					case http.StatusServiceUnavailable:
						refused.Add(1)
					}
				})
			}
		})
	}
	requests.Wait()
	r := result{good.Load(), refused.Load(), all.Load() - good.Load() - refused.Load(), 0}
	for _, times := range kept {
		if slices.Sort(times); len(times) >= 8 { // which a guard has enough of
			r.kept = max(r.kept, times[len(times)/5])
		}
	}
	return r
}

// takes answers after as many seconds as the request says, and says how long it took.
func takes(w http.ResponseWriter, r *http.Request) {
	defer tookSince(w, time.Now())
	seconds, _ := strconv.ParseFloat(r.Header.Get("X-Takes"), 64)
	time.Sleep(time.Duration(seconds * float64(time.Second)))
}

func tookSince(w http.ResponseWriter, begun time.Time) {
	w.Header().Set("X-Took", time.Since(begun).String())
}

// askedBy returns what play asks by requests that try makes.
func askedBy(try func(request string, fields ...string) (response, error)) func(seconds float64) (int, time.Duration) {
	return func(seconds float64) (int, time.Duration) {
		r, _ := try("/", "X-Takes", fmt.Sprint(seconds))
		took, _ := time.ParseDuration(r.header.Get("X-Took"))
		return r.status, took
	}
}

// onBoth plays a situation on a Caddy and a Traefik at a time, each with a guard alone before a handler of its own.
func (h healthy) onBoth(t *testing.T, handler func() http.HandlerFunc) map[string]*result {
	t.Helper()
	site := newSite(t)
	site.limit("limit", "{guard: {}}")
	upstream.handle(site.host(), handler())
	site.route("/", "limit")
	site.apply()
	upstream.handle("caddy."+site.host(), handler())
	c := startCaddy(t, "respond /up ok\nroute {\nrate_limit {\nguard\n}\nreverse_proxy "+upstream.Listener.Addr().String()+" {\nheader_up Host caddy."+site.host()+"\n}\n}")
	results := map[string]*result{"Caddy": {}, "Traefik": {}}
	var plays sync.WaitGroup
	plays.Go(func() { *results["Caddy"] = h.play(askedBy(c.try)) })
	plays.Go(func() { *results["Traefik"] = h.play(askedBy(site.try)) })
	plays.Wait()
	text, _ := os.ReadFile(c.log)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"why"`) {
			t.Log(line)
		}
	}
	return results
}

// TestWhatIsHealthyIsLetThrough by a guard.
func TestWhatIsHealthyIsLetThrough(t *testing.T) {
	list, runs := short, 1
	if part, asked := os.LookupEnv("WEIR_HEALTHY"); asked { // "long", or a part of the names
		list, runs = nil, 3
		for _, h := range long {
			if part == "long" || strings.Contains(h.name, part) {
				list = append(list, h)
			}
		}
	} else {
		t.Parallel()
	}
	for _, h := range list {
		for run := range runs {
			for name, r := range h.onBoth(t, func() http.HandlerFunc { return takes }) {
				share := 100 * float64(r.served) / float64(r.served+r.turnedAway)
				t.Logf("%s, %s, run %d: %.2f %% of %d served, kept %s", h.name, name, run+1, share, r.served+r.turnedAway, r.kept)
				if share < 99.9 || r.failed > 0 || r.served < 100 {
					h.wrong(t, name, r)
				}
			}
		}
	}
}

// TestAnOverloadedServiceIsProtected: 16 requests at a time of 0.1 s are its capacity, and nearly twice as many come. Without a guard, more than a
// thousand would wait in the end.
func TestAnOverloadedServiceIsProtected(t *testing.T) {
	t.Parallel()
	var most [2]atomic.Int64 // that wait in the services
	services := 0
	h := healthy{"twice as many", []asked{{between(5, forever, 80, 280), steadily(.1)}}, 17}
	results := h.onBoth(t, func() http.HandlerFunc {
		var waiting atomic.Int64
		places, most := make(chan struct{}, 16), &most[services]
		services++
		return func(w http.ResponseWriter, r *http.Request) {
			begun := time.Now()
			n := waiting.Add(1)
			for last := most.Load(); n > last && !most.CompareAndSwap(last, n); last = most.Load() {
			}
			places <- struct{}{}
			waiting.Add(-1)
			takes(w, r)
			tookSince(w, begun)
			<-places
		}
	})
	for name, r := range results {
		t.Logf("%s: %+v; at most %d and %d waited", name, *r, most[0].Load(), most[1].Load())
		if r.turnedAway < 200 || r.served < 1000 || most[0].Load() > 400 || most[1].Load() > 400 {
			h.wrong(t, name, r)
		}
	}
}
