package guard

import (
	"math/rand"
	"testing"

	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// busy is a service that shares its machine: of its workers so many are free at a time. Each takes a tenth of a second for a request, on average.
type busy struct {
	workers func(seconds float64) int
	rate    func(seconds float64) float64 // requests a second
	delay   func(seconds float64) float64 // what else an answer takes, in seconds, without a worker
	pressed func(seconds float64) bool    // what the sign says; nil: nobody asks
	length  float64                       // seconds
	fixed   bool                          // all requests take the same
	stale   bool                          // what the sign says comes too late
}

// played is what became of the requests of the seconds from a time on.
type played struct {
	asked, admitted, good int // good: answered within a second
	pressed               int // requests that came while pressure had a part in the limit
}

// play plays a service before which a guard stands, from which requests are counted, in seconds.
func (b *busy) play(c Config, from float64, seed int64) (p played) {
	c.Cells = 256
	g := New(c)
	random := rand.New(rand.NewSource(seed))
	type request struct{ begun, under, needs int64 }
	type end struct {
		at int64
		request
	}
	var waiting []request
	var working []end
	now := int64(begin)
	length := begin + int64(b.length*second)
	next, turns := now, now
	at := func() float64 { return float64(now-begin) / second }
	for now < length {
		first := -1
		for i := range working {
			if first < 0 || working[i].at < working[first].at {
				first = i
			}
		}
		now = next
		if turns < now {
			now = turns
		}
		if first >= 0 && working[first].at <= now {
			w := working[first]
			now = w.at
			working = append(working[:first], working[first+1:]...)
			End(g, w.under, now-w.begun)
			if now-w.begun <= second && float64(w.begun-begin)/second >= from {
				p.good++
			}
		} else if now == turns {
			turns += second / 10
			if b.pressed != nil {
				until := int64(0)
				if b.pressed(at()) {
					until = now + 3*second
				}
				if b.stale {
					until = now
				}
				Press(g, until)
			}
		} else {
			next = now + int64(second*random.ExpFloat64()/b.rate(at()))
			needs := 0.1
			if !b.fixed {
				needs *= random.ExpFloat64()
			}
			n := Begin(g, uint64(random.Intn(100)), false, now)
			if at() >= from {
				p.asked++
				if Look(g).Pressed {
					p.pressed++
				}
				if n > 0 {
					p.admitted++
				}
			}
			if n > 0 {
				waiting = append(waiting, request{now, n, int64(needs * second)})
			}
		}
		for len(waiting) > 0 && len(working) < b.workers(at()) {
			r := waiting[0]
			waiting = waiting[1:]
			extra := int64(0)
			if b.delay != nil {
				extra = int64(b.delay(at()) * second)
			}
			working = append(working, end{now + r.needs + extra, r})
		}
	}
	return p
}

func steady(n float64) func(float64) float64 { return func(float64) float64 { return n } }

// starved is a service of 16 workers, which gets 110 requests a second. Work in the background takes 9 of these for half a minute, some seconds after the sign has risen.
func starved() *busy {
	return &busy{length: 110, rate: steady(110), workers: func(s float64) int {
		if s >= 60 && s < 90 {
			return 7
		}
		return 16
	}}
}

func risen(s float64) bool { return s >= 55 && s < 90 }

func tripled(n, at float64) func(float64) float64 {
	return func(s float64) float64 {
		if s < at {
			return n
		}
		return 3 * n
	}
}

func always(float64) bool { return true }

func plenty(float64) int { return 10_000 }

// healthy are services that keep up with all that comes, also when that triples.
var healthy = map[string]*busy{
	"a service for few":                     {length: 80, rate: tripled(5, 40), workers: plenty},
	"a service as ever":                     {length: 80, rate: tripled(100, 40), workers: plenty},
	"a service whose answers are all alike": {length: 80, rate: tripled(100, 40), workers: plenty, fixed: true},
	"a service with room for a half more":   {length: 80, rate: tripled(100, 40), workers: func(float64) int { return 45 }},
	"a service that gets ever more":         {length: 80, rate: func(s float64) float64 { return 100 + 4*s }, workers: plenty},
	"more under way than nobody asks about": {length: 60, rate: tripled(1000, 40), workers: plenty},
}

// seeds are so many, or two where an interpreter runs the test.
func seeds(n int64) int64 {
	if interpreted {
		return 2
	}
	return n
}

// TestPressureGainsWhereAQueueBeginsWithoutMoreRequests has a sign that rises five seconds before the service has less room. The guard alone waits until even the
// quickest answers take half a second longer.
func TestPressureGainsWhereAQueueBeginsWithoutMoreRequests(t *testing.T) {
	underrace.OneGoroutine(t)
	var with, without played
	for seed := int64(1); seed <= seeds(10); seed++ {
		b := starved()
		alone := b.play(Config{}, 60, seed)
		b.pressed = risen
		both := b.play(Config{}, 60, seed)
		if both.good <= alone.good {
			t.Errorf("seed %d: %+v with the sign, %+v without", seed, both, alone)
		}
		with.good += both.good
		without.good += alone.good
		with.asked += both.asked
	}
	t.Logf("of %d requests from the 60th second on, %d were answered in time with the sign, %d without", with.asked, with.good, without.good)
	if with.good-without.good < with.asked*3/100 {
		t.Errorf("of %d requests, %d were answered in time with the sign, %d without; want 3 %% of all more", with.asked, with.good, without.good)
	}
}

func TestASignThatIsStuckTurnsNobodyAwayFromAHealthyService(t *testing.T) {
	underrace.OneGoroutine(t)
	for name, of := range healthy {
		for seed := int64(1); seed <= seeds(5); seed++ {
			b := *of
			if interpreted && b.rate(59) > 1000 {
				continue // compiled tests play it
			}
			without := b.play(Config{}, 0, seed)
			b.pressed = always
			must.Equal(t, b.play(Config{}, 0, seed), without, "%s with a sign that is stuck", name)
		}
	}
}

func TestWithoutAValueAGuardIsAsWithoutTheSetting(t *testing.T) {
	underrace.OneGoroutine(t)
	for seed := int64(1); seed <= seeds(5); seed++ {
		b := starved()
		without := b.play(Config{}, 0, seed)
		b.pressed = func(float64) bool { return false }
		must.Equal(t, b.play(Config{}, 0, seed), without, "with a sign that is low")
		b.stale = true
		b.pressed = risen
		must.Equal(t, b.play(Config{}, 0, seed), without, "with values that are too old")
	}
}

// TestAServiceThatIsOnlySlowerIsLetAlone has a sign that is stuck, and a service of whose answers each takes a fifth of a second longer from one moment to the
// next. Requests may be turned away until the guard sees that this makes nothing quicker.
func TestAServiceThatIsOnlySlowerIsLetAlone(t *testing.T) {
	underrace.OneGoroutine(t)
	for seed := int64(1); seed <= seeds(10); seed++ {
		b := &busy{length: 160, rate: steady(100), workers: plenty, pressed: always, delay: func(s float64) float64 {
			if s < 40 {
				return 0
			}
			return 0.2
		}}
		p := b.play(Config{}, 60, seed)
		if p.admitted < p.asked*99/100 {
			t.Errorf("seed %d: %+v from 20 seconds after that on", seed, p)
		}
	}
}

// pressedQueue has the evidence of a queue that no rise of the demand explains.
var pressedQueue = Evidence{Answers: 100, Quick: 26_000, Met: 40, Slope: 1, Wrong: 0.1, Pressed: true, Above: true}

func TestPressureHasAPartOnlyWithTheGuardsOwnSign(t *testing.T) {
	s := Second{Answered: 100, Served: 100, Most: 60}
	if b := Believe(usual(), pressedQueue, s, 100, 1000); !b.Queue || !b.Pressed {
		t.Errorf("%+v, with both signs", b)
	}
	if b := Doubt(usual(), pressedQueue, 100, 1000); !b.Queue || !b.Pressed {
		t.Errorf("%+v, when as many are under way as are trusted", b)
	}
	for what, change := range map[string]func(e *Evidence){
		"without pressure":                           func(e *Evidence) { e.Pressed = false },
		"where answers are nearly as quick as usual": func(e *Evidence) { e.Quick = 23_000 },
		"of too few answers":                         func(e *Evidence) { e.Answers = 7 },
		"where the time does not grow":               func(e *Evidence) { e.Slope = 0.2 },
		"where that is not sure":                     func(e *Evidence) { e.Wrong = 0.3 },
		"where no more are under way than lately":    func(e *Evidence) { e.Above = false },
	} {
		e := pressedQueue
		change(&e)
		if b := Believe(usual(), e, s, 100, 1000); b.Queue {
			t.Errorf("%+v, %s", b, what)
		}
		if b := Doubt(usual(), e, 100, 1000); b.Queue || b.Trusted != raises*usual().Trusted {
			t.Errorf("%+v in doubt, %s", b, what)
		}
	}
	vain := usual()
	vain.denied = 10
	if b := Believe(vain, pressedQueue, s, 100, 1000); b.Queue {
		t.Errorf("%+v, after a limit that made nothing quicker", b)
	}
}

func TestWhatPressureHasFoundEndsWithIt(t *testing.T) {
	s := Second{Answered: 100, Served: 100, Most: 60, Rejected: 5}
	found := Believe(usual(), pressedQueue, s, 100, 1000)
	low := pressedQueue
	low.Pressed = false
	if b := Believe(found, low, s, 100, 1000); b.Queue || b.Pressed {
		t.Errorf("%+v when it is low again", b)
	}
	low.Quick = 31_000
	if b := Believe(found, low, s, 100, 1000); !b.Queue {
		t.Errorf("%+v when it is low, and even the quickest answers wait", b)
	}
	b := found
	for i := 1; i <= releaseAfter; i++ {
		if b = Believe(b, pressedQueue, s, 100, 1000); !b.Queue {
			t.Fatalf("%+v in second %d of a limit that is held down", b, i)
		}
	}
	b = Believe(b, pressedQueue, s, 100, 1000)
	if b.Queue || b.ignores != denies {
		t.Errorf("%+v; want that it is given up after %d seconds", b, releaseAfter)
	}
	for i := 1; i < denies; i++ {
		if b = Believe(b, pressedQueue, s, 100, 1000); b.Queue {
			t.Fatalf("%+v in second %d after that", b, i)
		}
	}
	b.Quick = usual().Quick
	if b = Believe(b, pressedQueue, s, 100, 1000); !b.Queue {
		t.Errorf("%+v; want that pressure counts again", b)
	}
}

// TestALimitUnderPressureIsGivenUpWhereTheServiceDoesLess: a queue keeps it busy. Before it was given up only where answers do not wait, or no fewer are under way.
func TestALimitUnderPressureIsGivenUpWhereTheServiceDoesLess(t *testing.T) {
	waits := pressedQueue
	waits.Quick = 60_000
	for _, c := range []struct {
		answered int64
		queue    bool
	}{{51, true}, {50, false}} {
		b := Believe(usual(), waits, Second{Answered: 100, Served: 100, Most: 60}, 100, 1000)
		b = Believe(b, waits, Second{Answered: 100, Served: 100, Most: 60, Rejected: 5}, 100, 1000)
		for i := 0; i <= releaseAfter; i++ {
			must.Equal(t, b.Queue, true, "a queue is believed after %d seconds with %d answers", i, c.answered)
			b = Believe(b, waits, Second{Answered: 100, Served: c.answered, Most: 60, Rejected: 5}, 100, 1000)
		}
		must.Equal(t, b.Queue, c.queue, "a queue is believed in the end, with %d answers", c.answered)
		must.Equal(t, b.denied, 0, "seconds in which growth is no queue")
	}
	b := Believe(usual(), waits, Second{Answered: 100, Served: 100, Most: 60}, 100, 1000)
	fewer := waits
	fewer.Met = 20
	b = Believe(b, fewer, Second{Answered: 100, Served: 100, Most: 20, Rejected: 5}, 100, 1000)
	if b.Queue || b.denied != 0 || b.ignores != denies {
		t.Errorf("%+v; want that a limit that makes nothing quicker has the pressure ignored, and nothing else", b)
	}
}

func TestPressureHoldsALimitAndNoLonger(t *testing.T) {
	b := usual()
	b.Queue = true
	of := func(b Belief, e Evidence) float64 { return gate(Gradient{Limit: 44}, b, e, 40, 1000).Limit }
	must.Equal(t, of(b, pressedQueue), 40.0, "the limit under pressure")
	quick := pressedQueue
	quick.Quick = 20_000
	must.Equal(t, of(b, quick), 44.0, "the limit while answers are as quick as ever")
	b.Pressed = true
	must.Equal(t, of(b, quick), 50.0, "the limit then, if pressure had found the queue")
	must.Equal(t, gate(Gradient{Limit: 44}, b, quick, 40, 45).Limit, 45.0, "the limit at its max")
}

func TestTheLimitUnderPressureIsWhatWasUnderWayLately(t *testing.T) {
	g := New(Config{Cells: 256})
	g.belief = usual()
	must.Equal(t, begins(g, pressedQueue), first(usual()), "the limit before anything is known")
	for _, c := range []struct {
		most int64
		want float64
	}{{4, 32}, {40, 50}, {1000, first(usual())}} {
		g.peak = 0
		notePressure(g, Evidence{}, c.most)
		notePressure(g, pressedQueue, 5000)
		must.Equal(t, begins(g, pressedQueue), c.want, "the limit after %d under way", c.most)
	}
	Bound(g, Config{Min: 45})
	notePressure(g, Evidence{}, 4)
	for i := 0; i < 300; i++ {
		notePressure(g, Evidence{}, 4)
	}
	must.Equal(t, begins(g, pressedQueue), 45.0, "the limit with that min")
}

func TestThatPressureHadAPartIsTold(t *testing.T) {
	var told []Change
	b := starved()
	b.pressed = risen
	b.play(Config{Notify: func(c Change) { told = append(told, c) }}, 0, 1)
	if len(told) == 0 || !told[0].Begins || !told[0].Queue || !told[0].Pressed || told[0].Limit >= Trust {
		t.Errorf("%+v; want that the queue was found by pressure", told)
	}
}

// In Traefik the number that one stands for changes while a limit holds.
func TestWhatIsServedCountsWhomARequestStandsFor(t *testing.T) {
	g := New(Config{Cells: 256})
	Count(g, 1, BeginFor(g, 0, false, 1_000_000, 1), 10_000) // a second begins
	for _, many := range []int64{8, 1} {
		before := g.through - g.failed
		for n := int64(0); n < 80/many; n++ {
			Count(g, many, BeginFor(g, uint64(n), false, 1_000_000, many), 10_000)
		}
		Count(g, 5, 1, -1) // a failure is not served
		g.baseline = 10_000
		CountLeft(g, many, 1, 20_000)
		CountLeft(g, many, 1, 5000) // it says nothing
		must.Equal(t, g.through-g.failed-before, 80+many, "served, where one stands for %d", many)
	}
}
