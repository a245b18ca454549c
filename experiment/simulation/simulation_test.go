package simulation

import (
	"flag"
	"math"
	"sync"
	"testing"
)

var (
	seeds = flag.Int("seeds", 2, "how many runs of each situation")
	sigma = flag.Float64("sigma", 0, "of log-normal service times, in place of exponential ones")
)

// found is the goodput, in per cent, that a study of the same situations found, of which this model is written anew: of limits that are tuned
// with a cap of 48 requests under way, and of them with the policies that the study recommends.
var found = map[string]struct{ capped, recommended float64 }{
	"steady": {100, 100}, "bursts": {87.1, 87.0}, "crowd fits": {100, 100}, "crowd over": {55.4, 60.8}, "abuse at the peak": {69.7, 99.4},
	"abuse at night": {96.8, 99.9}, "quiet bots": {33.7, 37.1}, "slow": {75.8, 76.8}, "store out, open, abuse": {58.3, 73.2},
	"store out, local, abuse": {70.2, 99.1}, "growth": {98.6, 100},
}

// arm is what stands in front of the service in some runs.
type arm struct {
	name   string
	limits func(s *Situation) Limits
	policy func(calm *Situation) Policy
}

func unlimited(*Situation) Limits { return Limits{} }

func arms() []arm {
	return []arm{
		{"no limits", unlimited, func(*Situation) Policy { return None{} }},
		{"tuned limits", (*Situation).Tuned, func(*Situation) Policy { return None{} }},
		{"tuned limits, cap of 48", (*Situation).Tuned, func(*Situation) Policy { return &Cap{Most: 48} }},
		{"clients' limits, guard", func(s *Situation) Limits { return Limits{Client: s.Tuned().Client} }, func(*Situation) Policy { return NewGuarded(128) }},
		{"guard alone", unlimited, func(*Situation) Policy { return NewGuarded(128) }},
		{"guard alone, with a baseline", unlimited, func(calm *Situation) Policy { return NewLearnt(128, calm) }},
	}
}

// TestAQueueBeforeTheGuardGainsLittle: it is why there is none. A request that finds no room waits for half the mean service time.
func TestAQueueBeforeTheGuardGainsLittle(t *testing.T) {
	for _, name := range []string{"bursts", "crowd over", "abuse at the peak", "slow"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var without, queued float64
			runs := max(1, *seeds-1)
			for seed := uint64(1); seed <= uint64(runs); seed++ {
				s, n := New(name, seed, Options{Sigma: *sigma}), float64(runs)
				without += Run(s, unlimited(s), NewGuarded(128), nil, seed).Good / n
				queued += Run(s, unlimited(s), Queued{NewGuarded(128), 0.05}, nil, seed).Good / n
			}
			t.Logf("goodput of %.2f %% without a queue, %.2f %% with one", without, queued)
			if queued > without+1 {
				t.Error("a queue is worth having")
			}
		})
	}
}

var calmDays sync.Map // functions that return the steady situation, by seed

// calmDay returns the steady situation of a seed, which is made once for all that learn from it.
func calmDay(seed uint64) *Situation {
	made, _ := calmDays.LoadOrStore(seed, sync.OnceValue(func() *Situation { return New("steady", seed, Options{Sigma: *sigma}) }))
	return made.(func() *Situation)()
}

// outcomes plays a situation with each arm, and returns the means.
func outcomes(name string) []Outcome {
	list := arms()
	sums := make([]Outcome, len(list))
	for seed := uint64(1); seed <= uint64(*seeds); seed++ {
		s, calm := New(name, seed, Options{Sigma: *sigma}), calmDay(seed)
		for i, a := range list {
			o := Run(s, a.limits(s), a.policy(calm), nil, seed)
			n := float64(*seeds)
			sums[i].Good += o.Good / n
			sums[i].Rejected += o.Rejected / n
			sums[i].Away += o.Away / n
			sums[i].Abuse += o.Abuse / n
			sums[i].P95 += o.P95 / n
		}
	}
	return sums
}

// TestTheGuardDoesAsWellAsTheStudyFound, without any limit of all clients together, and without any limit at all: against a fixed cap it gains
// what the study's policies gain, or more.
func TestTheGuardDoesAsWellAsTheStudyFound(t *testing.T) {
	var printing sync.Mutex
	for _, name := range Names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := outcomes(name)
			capped, beside, alone, learnt := o[2].Good, o[3].Good, o[4].Good, o[5].Good
			printing.Lock()
			for i, a := range arms() {
				t.Logf("%-28s good %5.1f %%, rejected %4.1f %%, abuse let through %5.1f %%, p95 %.2f s", a.name, o[i].Good, o[i].Rejected, o[i].Abuse, o[i].P95)
			}
			printing.Unlock()
			if f, ok := found[name]; ok {
				want := math.Min(f.recommended, capped+f.recommended-f.capped) - 3
				if beside < want || alone < want {
					t.Errorf("goodput of %.1f with limits a client, %.1f without: want %.1f", beside, alone, want)
				}
			}
			if learnt < alone-1 {
				t.Errorf("goodput of %.1f with a baseline, %.1f without", learnt, alone)
			}
			if alone < capped-2 || beside < capped-2 {
				t.Errorf("goodput of %.1f and %.1f; a fixed cap has %.1f", beside, alone, capped)
			}
			if name == "abuse at the peak" && alone < capped+20 {
				t.Errorf("goodput of %.1f; a fixed cap has %.1f, want 20 more", alone, capped)
			}
			if o[1].Away > 0 || o[4].Away != o[4].Rejected || name == "crowd over" && (o[4].Away == 0 || o[2].Away >= o[2].Rejected) {
				t.Errorf("turned away %.1f %% without a policy, %.1f by the guard alone, and %.1f by the cap; rejected %.1f by the last but one, and %.1f by the last and its limits", o[1].Away, o[4].Away, o[2].Away, o[4].Rejected, o[2].Rejected)
			}
			if name == "steady" && beside < o[1].Good-0.1 {
				t.Errorf("goodput of %.2f; without the guard %.2f", beside, o[1].Good)
			}
		})
	}
}

// TestRunsAreTheSameAgain: nothing but the seed says what a run comes to.
func TestRunsAreTheSameAgain(t *testing.T) {
	play := func() Outcome {
		s := New("abuse at the peak", 3, Options{Sigma: 1.2})
		return Run(s, s.Tuned(), NewGuarded(64), nil, 3)
	}
	if a, b := play(), play(); a != b {
		t.Errorf("%+v, then %+v", a, b)
	}
}

// TestACutIsTheSituationBetweenTwoInstants: the calm before the event, and then a part of the event, as it is in the whole.
func TestACutIsTheSituationBetweenTwoInstants(t *testing.T) {
	s := New("slow", 1, Options{})
	c := s.Cut(10, 300, 600, 640)
	if c.Begin != 10 || c.End != 50 || c.Length != 50 || c.Clients != s.Clients || c.Legitimate != s.Legitimate {
		t.Errorf("%+v", c)
	}
	var want []Arrival
	for _, a := range s.Arrivals {
		switch {
		case a.At >= 290 && a.At < 300:
			a.At -= 290
			want = append(want, a)
		case a.At >= 600 && a.At < 640:
			a.At -= 590
			want = append(want, a)
		}
	}
	if len(want) < 40*80 || len(c.Arrivals) != len(want) {
		t.Fatalf("%d requests, want %d, and more than 3200", len(c.Arrivals), len(want))
	}
	for i, a := range c.Arrivals {
		if math.Abs(a.At-want[i].At) > 1e-9 || a.Client != want[i].Client || a.Service != want[i].Service {
			t.Fatalf("request %d: %+v, want %+v", i, a, want[i])
		}
	}
	if before, after := c.Slowness(9.9), c.Slowness(10); before != 1 || math.Abs(after-1/0.45) > 1e-9 {
		t.Errorf("the service takes %v and then %v times its usual time; want 1 and %v", before, after, 1/0.45)
	}
}

func TestTheServiceWorksOnSixteenAtATime(t *testing.T) {
	s := New("steady", 1, Options{})
	var slots Slots
	for i := range 3 * Workers {
		end, refused := slots.Take(s, 0, 1.5)
		if i < 2*Workers {
			if want := 1.5 * float64(1+i/Workers); refused || end != want {
				t.Errorf("request %d: at %v (refused: %v), want %v", i, end, refused, want)
			}
		} else if !refused {
			t.Errorf("request %d would wait for 3 s, and is taken", i)
		}
	}
	if end, refused := slots.Take(s, 4, 0.25); refused || end != 4.25 {
		t.Errorf("an idle service: at %v (refused: %v), want 4.25", end, refused)
	}
}
