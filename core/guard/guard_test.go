package guard

import (
	"math/rand"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// interpreted is false where the tests were compiled: see compiled_test.go.
var interpreted = true

// scene is a guard before a service that is played: of some workers, each of whom works on a request for a while.
type scene struct {
	t     *testing.T
	g     *Guard
	now   int64
	begun []int64 // of the requests under way, the oldest first
}

// newScene has few cells for few keys: an interpreter takes its time to clear thousands.
func newScene(t *testing.T, c Config) *scene {
	c.Cells = 256
	return &scene{t: t, g: New(c), now: begin}
}

func (s *scene) begin(key uint64, priority bool) bool {
	n := Begin(s.g, key, priority, s.now)
	if n > 0 {
		s.begun = append(s.begun, n)
	}
	return n > 0
}

// end ends the oldest n requests.
func (s *scene) end(n int, took int64) {
	for ; n > 0; n-- {
		End(s.g, s.begun[0], took)
		s.begun = s.begun[1:]
	}
}

func (s *scene) fill(key uint64) (n int) {
	for s.begin(key, false) {
		n++
	}
	return n
}

func TestAsManyAreUnderWayAsMayBe(t *testing.T) {
	s := newScene(t, Config{Max: 20})
	must.Equal(t, s.fill(1), 20, "of 20 were admitted")
	s.end(3, 1000)
	must.Equal(t, s.fill(2), 3, "more were admitted after 3 had ended")
	if got := Look(s.g); got.UnderWay != 20 || got.Full != 2 || got.Unfair != 0 || got.Limit != 20 {
		t.Errorf("%+v; want 20 under way of 20, 2 turned away", got)
	}
	s.end(20, 1000)
	must.Equal(t, Look(s.g).UnderWay, 0, "in the end are under way")
}

func TestTheDefaultsHold(t *testing.T) {
	for _, c := range []struct {
		config                Config
		floor, ceiling, limit int64
	}{{Config{}, 8, 100_000, 128}, {Config{Max: 4}, 4, 4, 4}, {Config{Max: 50, Min: 60}, 50, 50, 50}, {Config{Min: 2}, 2, 100_000, 128}, {Config{Max: 200}, 8, 200, 128}} {
		g := New(c.config)
		if g.floor != c.floor || g.ceiling != c.ceiling || Look(g).Limit != c.limit {
			t.Errorf("%+v: from %d to %d, at %d", c.config, g.floor, g.ceiling, Look(g).Limit)
		}
	}
}

// overload plays a service of 16 workers that take a tenth of a second, for so many seconds: ten keys ask for 8 a second each, and one for 200.
// It returns how many requests of each kind were admitted in the last ten seconds, of how many.
func overload(s *scene, length int) (small, greedy, smallAsked, greedyAsked int) {
	random := rand.New(rand.NewSource(4))
	var free [16]int64
	type end struct {
		at, begun, under int64
	}
	var ends []end // the first to end comes first
	over := s.now + int64(length)*second
	for {
		s.now += int64(second * random.ExpFloat64() / 280)
		if s.now >= over {
			s.now = over
			break
		}
		for len(ends) > 0 && ends[0].at <= s.now {
			End(s.g, ends[0].under, ends[0].at-ends[0].begun)
			ends = ends[1:]
		}
		last := s.now >= over-10*second
		key := uint64(1 + random.Intn(35)) // 11 and all above it are the greedy one
		if key > 11 {
			key = 11
		}
		o := Begin(s.g, key, false, s.now)
		if last {
			if key == 11 {
				greedyAsked++
			} else {
				smallAsked++
			}
		}
		if o < 0 {
			continue
		}
		if last {
			if key == 11 {
				greedy++
			} else {
				small++
			}
		}
		first := 0
		for i := range free {
			if free[i] < free[first] {
				first = i
			}
		}
		start := s.now
		if free[first] > start {
			start = free[first]
		}
		free[first] = start + int64(100_000*random.ExpFloat64())
		ends = append(ends, end{free[first], s.now, o})
		for i := len(ends) - 1; i > 0 && ends[i].at < ends[i-1].at; i-- {
			ends[i], ends[i-1] = ends[i-1], ends[i]
		}
	}
	return small, greedy, smallAsked, greedyAsked
}

func TestTheGreedyKeyIsTurnedAwayBeforeAnyoneElse(t *testing.T) {
	underrace.OneGoroutine(t)
	s := newScene(t, Config{})
	small, greedy, smallAsked, greedyAsked := overload(s, 60)
	if small < smallAsked*99/100 {
		t.Errorf("%d of %d requests of small keys were admitted, want 99 %%", small, smallAsked)
	}
	if greedy > greedyAsked/2 || greedy < greedyAsked/10 {
		t.Errorf("%d of %d requests of the greedy key were admitted, want what the others leave", greedy, greedyAsked)
	}
	if got := Look(s.g); got.Unfair == 0 || got.Fair == 0 || got.Limit >= 64 || got.Baseline < 50_000 || got.Baseline > 200_000 {
		t.Errorf("%+v", got)
	}
}

func TestPriorityGoesLast(t *testing.T) {
	s := newScene(t, Config{Max: 100})
	s.begin(1, true)
	s.now += second
	s.begin(2, true) // from here on a tenth is kept for such as this
	if n := s.fill(3); n != 88 {
		t.Errorf("%d without priority were admitted beside 2 with it, want 88", n)
	}
	n := 0
	for s.begin(4, true) {
		n++
	}
	must.Equal(t, n, 10, "%d more with priority were admitted, want 10", n)
	s.end(100, 1000)
	s.now += second
	s.begin(1, false)
	s.now += second
	if n = s.fill(3); n != 99 {
		t.Errorf("without anybody of priority %d were admitted, want 99", n)
	}
}

// TestALimitOfOneIsForEverybody checks, for a defect, that neither priority nor fair shares close a limit to others that is too small to be divided.
func TestALimitOfOneIsForEverybody(t *testing.T) {
	s := newScene(t, Config{Max: 1})
	s.begin(1, true)
	s.end(1, 1000)
	s.now += second
	s.begin(1, true) // ends the second, in which there was priority
	s.end(1, 1000)
	if n := s.fill(2); n != 1 {
		t.Errorf("beside priority, %d were admitted, want 1", n)
	}
	s.end(1, 1000)
	for i := 0; i < 30; i++ { // in which one key asks for twice as much as is answered
		for n := 0; n < 10; n++ {
			s.fill(3)
			s.end(1, 100_000)
			s.now += second / 10
		}
	}
	if fair := Look(s.g).Fair; fair == 0 {
		t.Error("there is no fair share")
	}
	if n := s.fill(3); n != 1 {
		t.Errorf("of a key above its share, %d were admitted, want 1", n)
	}
}

func TestWhoKeepsToItsShareGetsInBesideAGreedyKeyAtOnce(t *testing.T) {
	underrace.OneGoroutine(t)
	s := newScene(t, Config{})
	overload(s, 30)
	if fair := Look(s.g).Fair; fair < 8*10*1000 {
		t.Errorf("a fair share of %d thousandths a window; what the small keys ask for is 80,000", fair)
	}
}

// TestAQuietHourIsNotTakenForACapacity: the overload that follows is shared out as ever.
func TestAQuietHourIsNotTakenForACapacity(t *testing.T) {
	underrace.OneGoroutine(t)
	s := newScene(t, Config{})
	overload(s, 20)
	for i := 0; i < 3000; i++ { // of which the capacity would be more than any number
		s.now += second
		s.begin(1, false)
		s.end(1, 100_000)
	}
	if got := s.g.capacity; !(got >= 0 && got < 1000) {
		t.Errorf("a capacity of %v a second", got)
	}
	small, _, smallAsked, _ := overload(s, 20)
	if small < smallAsked*99/100 {
		t.Errorf("%d of %d requests of small keys were admitted, want 99 %%", small, smallAsked)
	}
}

func TestOutliersDoNotMoveTheLimit(t *testing.T) {
	s := newScene(t, Config{Max: 40})
	for i := 0; i < 100; i++ {
		for n := 0; n < 30; n++ {
			s.begin(uint64(n), false)
		}
		s.end(1, 60_000_000) // a long poll
		s.end(29, 100_000)
		s.now += second
	}
	if got := Look(s.g); got.Limit != 40 {
		t.Errorf("%+v; want a limit of 40", got)
	}
}

// TestTheLimitFallsBeforeAServiceOfFewWorkers checks, for a defect, that an overload of a service with four workers is not learnt as normal: with as
// many under way as may be, each answer takes more than eight times the baseline, which is all that it counts for.
func TestTheLimitFallsBeforeAServiceOfFewWorkers(t *testing.T) {
	underrace.OneGoroutine(t)
	s := newScene(t, Config{})
	type answer struct{ at, begun, under int64 }
	var queue []answer
	var free [4]int64
	for i := 0; i < 60_000; i++ { // of a millisecond
		s.now += 1000
		for len(queue) > 0 && queue[0].at <= s.now {
			End(s.g, queue[0].under, s.now-queue[0].begun)
			queue = queue[1:]
		}
		if i < 10_000 && i%10 != 0 { // of 200 requests a second that it can answer, 100 come at first, and 1000 then
			continue
		}
		under := Begin(s.g, uint64(i%100), false, s.now)
		if under < 0 {
			continue
		}
		w := i % len(free)
		for j := range free {
			if free[j] < free[w] {
				w = j
			}
		}
		if free[w] < s.now {
			free[w] = s.now
		}
		free[w] += 20_000
		queue = append(queue, answer{free[w], s.now, under})
		if got := Look(s.g); i > 20_000 && (got.Limit > 40 || got.Baseline > 40_000) {
			t.Fatalf("%d s after the overload began: %+v; want a limit of at most 40, and a baseline of 20,000 µs", i/1000-10, got)
		}
	}
	t.Logf("%+v", Look(s.g))
}

func TestFailuresSayNothingOfTheTime(t *testing.T) {
	s := newScene(t, Config{Max: 40})
	for i := 0; i < 20; i++ {
		for n := 0; n < 39; n++ {
			s.begin(uint64(n), false)
		}
		s.end(39, -1)
		s.now += second
	}
	if got := Look(s.g); got.Limit != 40 || got.Baseline != 0 || got.UnderWay != 0 {
		t.Errorf("%+v; want a limit of 40 and no baseline", got)
	}
}

// TestAServiceThatIsTooSlowForItsClientsGetsFewerRequests: a second of them waits in its queue, and all clients leave before it answers.
func TestAServiceThatIsTooSlowForItsClientsGetsFewerRequests(t *testing.T) {
	s := newScene(t, Config{})
	play := func(seconds, n int, after int64) {
		for i := 0; i < seconds; i++ {
			for n := 0; n < 100 && s.begin(uint64(n), false); n++ {
			}
			for ; len(s.begun) > 0; s.begun = s.begun[1:] {
				if len(s.begun) <= n {
					End(s.g, s.begun[0], 100_000)
				} else {
					Leave(s.g, s.begun[0], after)
				}
			}
			s.now += second
		}
	}
	play(10, 100, 0)
	if got := Look(s.g); got.Limit != 128 || got.Baseline != 100_000 {
		t.Fatalf("%+v; want a limit of 128, and a baseline of 100 ms", got)
	}
	play(10, 1, 50_000)
	if got := Look(s.g); got.Limit != 128 || got.Baseline != 100_000 {
		t.Errorf("after clients have left within 50 ms: %+v; want no change, since they may have had other reasons", got)
	}
	play(20, 0, 1_000_000)
	if got := Look(s.g); got.Limit > 20 || got.Baseline > 110_000 || got.UnderWay != 0 {
		t.Errorf("after clients have left within 1 s: %+v; want a limit of 20 at most, and the same baseline", got)
	}
	play(60, 100, 0)
	if got := Look(s.g); got.Limit != 128 {
		t.Errorf("when the service is quick again: %+v; want a limit of 128", got)
	}
}

// TestWhatIsUnderWayIsCountedExactly while many come and go at a time.
func TestWhatIsUnderWayIsCountedExactly(t *testing.T) {
	g := New(Config{Max: 10, Cells: 64})
	var clock, under, most int64
	var done sync.WaitGroup
	for i := 0; i < 8; i++ {
		i := i
		done.Add(1)
		go func() {
			defer done.Done()
			random := rand.New(rand.NewSource(int64(i)))
			for n := 0; n < 2000; n++ {
				now := begin + atomic.AddInt64(&clock, 700)
				o := Begin(g, uint64(random.Intn(20)), random.Intn(10) == 0, now)
				if o < 0 {
					continue
				}
				if u := atomic.AddInt64(&under, 1); u > atomic.LoadInt64(&most) {
					atomic.StoreInt64(&most, u)
				}
				if random.Intn(4) == 0 {
					Look(g)
				}
				atomic.AddInt64(&under, -1)
				End(g, o, int64(random.Intn(100_000))-1)
			}
		}()
	}
	done.Wait()
	must.Equal(t, Look(g).UnderWay, 0, "in the end are under way")
	if most > 10 {
		t.Errorf("%d were under way at a time, of 10", most)
	}
}

// TestWhatNobodyUsesIsOpenToAll: a limit of one has no part that could be closed.
func TestWhatNobodyUsesIsOpenToAll(t *testing.T) {
	s := newScene(t, Config{Max: 1, Min: 1})
	for i := 0; i < 5; i++ {
		for key := uint64(1); key <= 3; key++ {
			s.begin(key, false)
		}
		for n := 0; n < 100; n++ {
			s.begin(9, false)
		}
		s.end(1, 1000)
		s.now += second
	}
	if Look(s.g).Fair == 0 {
		t.Fatal("nobody's share is known")
	}
	if !s.begin(9, false) {
		t.Error("a greedy key is turned away although nothing is under way")
	}
	if s.begin(9, false) || s.begin(1, false) {
		t.Error("more than one is under way")
	}
}

// TestAPauseAfterRejectionsIsNotTakenForACapacity checks, for a defect, that nobody's share is too small after it.
func TestAPauseAfterRejectionsIsNotTakenForACapacity(t *testing.T) {
	s := newScene(t, Config{Max: 10, Min: 10})
	burst := func() {
		for n := 0; n < 40; n++ {
			s.begin(uint64(n%20), false)
			if n%4 == 3 {
				s.end(1, 1000)
			}
		}
		s.end(len(s.begun), 1000)
	}
	burst()
	s.now += 5 * second
	burst()
	s.now += second
	s.begin(1, false)
	if got := Look(s.g); got.Full == 0 || got.Unfair != 0 {
		t.Errorf("%+v; want some to be turned away, and nobody for more than its share", got)
	}
}
