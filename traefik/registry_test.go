package traefik

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// generationOf makes what Traefik makes of one configuration: a context for all handlers.
func generationOf(s *stage, c *Config, name string, routers int) ([]http.Handler, context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	handlers := make([]http.Handler, 0, routers)
	for i := 0; i < routers; i++ {
		type key struct{}
		own := context.WithValue(ctx, &key{}, i) // each router has one of its own, under the one that is cancelled
		handlers = append(handlers, s.handler(own, c, name))
	}
	return handlers, ctx, cancel
}

func TestRoutersOfOneMiddlewareShareItsCounters(t *testing.T) {
	s := newStage(t)
	c := &Config{Rule: Rule{Limit: "3/1h"}}
	h, _, cancel := generationOf(s, c, "m@file", 3)
	defer cancel()
	for i := range h {
		must.Equal(t, statuses(h[i], "192.0.2.1", 1), "200", "router %d", i)
	}
	must.Equal(t, statuses(h[0], "192.0.2.1", 1), "429")
	must.Equal(t, len(s.engines), 1, "%d engines for one middleware", len(s.engines))
}

func TestMiddlewaresShareCountersOnlyInOneNamespace(t *testing.T) {
	s := newStage(t)
	ctx := context.Background()
	one := s.handler(ctx, &Config{Rule: Rule{Name: "r", Limit: "1/1h"}}, "one@file")
	two := s.handler(ctx, &Config{Rule: Rule{Name: "r", Limit: "1/1h"}}, "two@file")
	must.Equal(t, statuses(one, "192.0.2.1", 2)+", "+statuses(two, "192.0.2.1", 2), "200 429, 200 429", "two middlewares")
	three := s.handler(ctx, &Config{Rule: Rule{Name: "r", Limit: "2/1h"}, Namespace: "shop"}, "three@file")
	four := s.handler(ctx, &Config{Rules: []Rule{{Name: "r", Limit: "2/1h"}}, Namespace: "shop"}, "four@file")
	must.Equal(t, statuses(three, "192.0.2.1", 1)+", "+statuses(four, "192.0.2.1", 2), "200, 200 429", "two in one namespace")
	must.Equal(t, s.log.String(), "", "the log: %s", s.log)
	s.handler(ctx, &Config{Rule: Rule{Name: "r", Limit: "9/1h"}, Namespace: "shop"}, "five@file")
	s.handler(ctx, &Config{Rule: Rule{Name: "other", Limit: "9/1h"}, Namespace: "shop"}, "six@file")
	must.Equal(t, s.log.count(`middleware five@file: rule "r" of namespace "shop" is defined in another way by middleware`), 2, "two rules of one name that differ: %s", s.log)
	must.Equal(t, s.log.count("six@file"), 0, "%s", s.log)
	// Those of a configuration that is about to go do not count, though the registry may not have heard of its end yet.
	s = newStage(t)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	s.handler(ctx, &Config{Rule: Rule{Name: "r", Limit: "2/1h"}, Namespace: "shop"}, "one@file")
	for _, gen := range s.generations {
		gen.ctx = ended
	}
	s.handler(ended, &Config{Rule: Rule{Name: "r", Limit: "3/1h"}, Namespace: "shop"}, "two@file")
	must.Equal(t, s.log.String(), "", "%s", s.log)
}

func TestCountersSurviveAReload(t *testing.T) {
	s := newStage(t)
	h, ctx, cancel := generationOf(s, &Config{Rule: Rule{Limit: "4/1h"}}, "m@file", 2)
	if got := statuses(h[0], "192.0.2.1", 3); got != "200 200 200" {
		t.Fatal(got)
	}
	s.end(ctx, cancel)
	// The same configuration again, and the old handlers still at work.
	again, ctx, cancel := generationOf(s, &Config{Rule: Rule{Limit: "4/1h"}}, "m@file", 2)
	must.Equal(t, statuses(again[0], "192.0.2.1", 1)+statuses(h[1], "192.0.2.1", 1), "200429", "after a reload")
	must.Equal(t, len(s.engines), 1, "%d engines", len(s.engines))
	s.step(2 * lingering)
	must.Equal(t, statuses(again[1], "192.0.2.1", 1), "429", "long after a reload")
	s.end(ctx, cancel)
	// A higher limit applies at once to existing counts, and so does a lower one.
	higher, ctx, cancel := generationOf(s, &Config{Rule: Rule{Limit: "6/1h"}}, "m@file", 1)
	must.Equal(t, statuses(higher[0], "192.0.2.1", 3), "200 200 429", "6 after 4")
	s.end(ctx, cancel)
	s.step(59 * time.Second) // it is away for a moment
	lower, ctx, cancel := generationOf(s, &Config{Rule: Rule{Limit: "5/1h"}}, "m@file", 1)
	must.Equal(t, statuses(lower[0], "192.0.2.1", 1), "429", "5 after 6")
	s.end(ctx, cancel)
	// Another key counts afresh. (Of another period see TestAChangedAlgorithmGivesNobodyMore.)
	other, _, cancel := generationOf(s, &Config{Rule: Rule{Limit: "1/1h", Key: []string{"host"}}}, "m@file", 1)
	defer cancel()
	must.Equal(t, statuses(other[0], "192.0.2.1", 2), "200 429", "with another key")
}

func TestWhatIsNoLongerUsedIsLetGoOf(t *testing.T) {
	s := newStage(t)
	h, ctx, cancel := generationOf(s, &Config{Rule: Rule{Limit: "1/1h"}}, "m@file", 3)
	get(h[0], "192.0.2.1", func(r *http.Request) { r.Header.Set(forwardedFor, "198.51.100.1") }) // which is warned of
	s.end(ctx, cancel)
	must.Equal(t, statuses(h[0], "192.0.2.1", 1), "429", "an old handler, at once")
	s.step(60*time.Second - time.Millisecond)
	if len(s.engines) != 1 || s.memory == nil {
		t.Error("let go of too soon")
	}
	s.step(time.Millisecond)
	if len(s.engines) != 0 || s.memory != nil || len(s.generations) != 0 || len(s.leaving) != 0 || len(s.said) != 0 {
		t.Errorf("kept: %d engines, memory %v, %d generations, %d leaving", len(s.engines), s.memory != nil, len(s.generations), len(s.leaving))
	}
	s.step(sweepInterval)
	must.Equal(t, s.pending(), 0, "%d timers are left", s.pending())
	if got := statuses(h[0], "192.0.2.1", 1); got == "" { // a handler that is still at it does no harm
		t.Error("no answer")
	}
	// And it can begin anew.
	h, ctx, cancel = generationOf(s, &Config{Rule: Rule{Limit: "1/1h"}}, "m@file", 1)
	must.Equal(t, statuses(h[0], "192.0.2.1", 2), "200 429", "begun anew")
	s.end(ctx, cancel)
	s.step(lingering + sweepInterval)
	if len(s.engines) != 0 || s.pending() != 0 {
		t.Errorf("kept: %d engines, %d timers", len(s.engines), s.pending())
	}
}

func TestOneOfTwoMiddlewaresGoes(t *testing.T) {
	s := newStage(t)
	goes, ctx, cancel := generationOf(s, &Config{Rule: Rule{Limit: "1/1h"}}, "goes@file", 1)
	get(goes[0], "192.0.2.1", nil)
	stays := s.handler(ctx, &Config{Rule: Rule{Limit: "1/1h"}}, "stays@file")
	get(stays, "192.0.2.1", nil)
	s.end(ctx, cancel)
	_, _, cancel = generationOf(s, &Config{Rule: Rule{Limit: "1/1h"}}, "stays@file", 1)
	defer cancel()
	s.step(lingering)
	must.Equal(t, len(s.engines), 1, "%d engines", len(s.engines))
	must.Equal(t, statuses(stays, "192.0.2.1", 1), "429", "the one that stays")
	s.step(sweepInterval)
	must.Equal(t, s.memory.Stats().Keys, 1, "keys are left, and want the one of the middleware that stays")
}

func TestAContextThatNeverEndsKeepsItsEngine(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1h"}}, "m@file")
	s.step(10 * lingering)
	if got := statuses(h, "192.0.2.1", 2); got != "200 429" || len(s.engines) != 1 {
		t.Errorf("%s, %d engines", got, len(s.engines))
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	s.handler(ended, &Config{Rule: Rule{Limit: "2/1h"}}, "m@file") // one that has already ended
	s.end(ended, cancel)
	s.step(lingering)
	must.Equal(t, len(s.engines), 1, "%d engines", len(s.engines))
}

func TestAThousandReloadsLeaveNothingBehind(t *testing.T) {
	s := newStage(t)
	reloads := 1000
	if interpreted {
		reloads = 100
	}
	h, ctx, cancel := generationOf(s, &Config{Rule: Rule{Limit: "1000000/1h"}}, "m@file", 3)
	get(h[0], "192.0.2.1", nil)
	goroutines := runtime.NumGoroutine()
	heap := heapInUse()
	for i := 0; i < reloads; i++ {
		c := &Config{Rule: Rule{Limit: strconv.Itoa(2+i%500) + "/1h"}, Message: "reload " + strconv.Itoa(i)}
		s.end(ctx, cancel)
		h, ctx, cancel = generationOf(s, c, "m@file", 3)
		for j := range h {
			get(h[j], "192.0.2.1", nil)
		}
		s.step(2 * time.Second) // Traefik takes no more
		if n := s.pending(); n > 2 {
			t.Fatalf("%d timers are set after %d reloads", n, i+1)
		}
		if n := len(s.engines); n > 32 {
			t.Fatalf("%d engines after %d reloads", n, i+1)
		}
	}
	until(t, func() bool { return runtime.NumGoroutine() <= goroutines+2 }) // the last are about to end
	if grown := heapInUse() - heap; grown > 2<<20 {
		t.Errorf("%d KiB more of heap after %d reloads", grown>>10, reloads)
	}
	s.end(ctx, cancel)
	s.step(lingering + sweepInterval)
	if len(s.engines)+len(s.generations)+len(s.leaving)+s.pending() != 0 || s.memory != nil {
		t.Errorf("kept: %d engines, %d generations, %d timers", len(s.engines), len(s.generations), s.pending())
	}
	t.Logf("after %d reloads: %d goroutines (before: %d), %d KiB more of heap", reloads, runtime.NumGoroutine(), goroutines, (heapInUse()-heap)>>10)
}

func heapInUse() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestMemoryHasRoomForTheMostKeysThatAnyMiddlewareAsksFor(t *testing.T) {
	s := newStage(t)
	inMemory := func(keys string) object { return object{"memory": object{"maxKeys": keys}} }
	_, ctx, cancel := generationOf(s, &Config{Rule: Rule{Limit: "1/1h"}, Store: inMemory("100")}, "large@file", 1)
	small := s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1h"}, Store: inMemory("10")}, "small@file")
	redis := object{"redis": object{"address": "127.0.0.1:1", "nodes": 1}} // its memory is for when Redis fails
	s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1h"}, Store: redis}, "fleet@file")
	flood := func() int64 {
		for i := 0; i < 300; i++ {
			get(small, fmt.Sprintf("192.0.%d.%d", i/250, i%250), nil)
		}
		return s.memory.Stats().Keys
	}
	if n := flood(); n < 80 || n > 110 {
		t.Errorf("%d keys of 100", n)
	}
	s.end(ctx, cancel)
	s.step(lingering)
	if n := flood(); n > 20 {
		t.Errorf("%d keys of 10", n)
	}
	s.handler(context.Background(), &Config{Rule: Rule{Limit: "1/1h"}}, "silent@file")
	if n := flood(); n < 300 {
		t.Errorf("%d keys, though a middleware has said no number", n)
	}
}

func TestMemoryIsSwept(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "5/1s"}}, "m@file")
	for i := 0; i < 50; i++ {
		get(h, "192.0.2."+strconv.Itoa(i), nil)
	}
	if n := s.memory.Stats().Keys; n != 50 {
		t.Fatalf("%d keys", n)
	}
	s.step(sweepInterval)
	must.Equal(t, s.memory.Stats().Keys, 0, "keys after a sweep")
	must.Equal(t, s.pending(), 1, "%d timers", s.pending())
}

func TestALargeMemoryIsSweptLessOften(t *testing.T) {
	s := newStage(t)
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "5/1s"}}, "m@file")
	slow := true
	clock := s.clock
	calls := 0
	s.clock = func() time.Duration { // a sweep takes 3 s
		calls++
		if slow && calls%2 == 0 {
			return clock() + 3*time.Second
		}
		return clock()
	}
	s.step(sweepInterval)
	slow = false
	for i := 0; i < 5; i++ {
		get(h, "192.0.2."+strconv.Itoa(i), nil)
	}
	s.leap(time.Second) // so that they have expired, for a memory whose clock is the stage's
	s.step(4 * time.Minute)
	must.Equal(t, s.memory.Stats().Keys, 5, "keys: swept again before 100 times as long had passed")
	s.step(2 * time.Minute)
	must.Equal(t, s.memory.Stats().Keys, 0, "keys: not swept again")
}

func TestAPanicInTheBackgroundIsCaught(t *testing.T) {
	s := newStage(t)
	s.handler(context.Background(), &Config{Rule: Rule{Limit: "5/1s"}}, "m@file")
	s.leaving = make([]*leaving, 1) // with nil in it, which nobody does
	s.expire()
	must.Equal(t, s.log.count("a panic, which is a defect"), 1, "the log: %s", s.log)
	s.leaving = nil
	h := s.handler(context.Background(), &Config{Rule: Rule{Limit: "5/1s"}}, "other@file") // nothing is locked
	must.Equal(t, statuses(h, "192.0.2.1", 1), "200")
}

func TestAPanicInNewIsAnError(t *testing.T) {
	s := newStage(t)
	s.engines = nil // so that entering one panics
	_, err := s.newHandler(context.Background(), http.NotFoundHandler(), &Config{Rule: Rule{Limit: "5/1s"}}, "m@file")
	if err == nil || !strings.Contains(err.Error(), `middleware "m@file": the configuration made the plugin panic, which is a defect`) {
		t.Errorf("%v", err)
	}
}

func TestTheOldContextNeedNotHaveEnded(t *testing.T) {
	// Two configurations at a time, as for a moment there may be.
	s := newStage(t)
	old, _, cancelOld := generationOf(s, &Config{Rule: Rule{Limit: "2/1h"}}, "m@file", 1)
	young, _, cancelYoung := generationOf(s, &Config{Rule: Rule{Limit: "3/1h"}}, "m@file", 1)
	defer cancelOld()
	defer cancelYoung()
	must.Equal(t, statuses(old[0], "192.0.2.1", 3)+" "+statuses(young[0], "192.0.2.1", 2), "200 200 429 200 429")
}

func TestHandlersAtWorkDuringReloads(t *testing.T) {
	s := newStage(t)
	const limit = 500
	c := &Config{Rule: Rule{Limit: strconv.Itoa(limit) + "/1h"}}
	h, ctx, cancel := generationOf(s, c, "m@file", 1)
	admitted := make(chan int, 4)
	current := make(chan http.Handler, 1)
	current <- h[0]
	for i := 0; i < 4; i++ {
		go func() {
			n := 0
			for j := 0; j < limit; j++ {
				handler := <-current
				current <- handler
				if get(handler, "192.0.2.1", nil).StatusCode == 200 {
					n++
				}
			}
			admitted <- n
		}()
	}
	for i := 0; i < 50; i++ {
		s.end(ctx, cancel)
		h, ctx, cancel = generationOf(s, c, "m@file", 1)
		<-current
		current <- h[0]
	}
	total := 0
	for i := 0; i < 4; i++ {
		n := <-admitted
		total += n
	}
	if total != limit {
		t.Errorf("%d were admitted of a limit of %d", total, limit)
	}
	cancel()
}
