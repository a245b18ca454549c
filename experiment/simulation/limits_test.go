package simulation

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/proxyweir/weir/core/rate"
)

// TestLimitsAreCores: what passes at once, and what has a second later.
func TestLimitsAreCores(t *testing.T) {
	for _, c := range []struct {
		algorithm   rate.Algorithm
		atOnce      int
		afterSecond int
	}{
		{rate.TokenBucket, 10, 2}, // a burst of ten, and two a second
		{rate.LeakyBucket, 2, 2},  // one leaves, and one waits for half a second; after a second both are gone
		{rate.FixedWindow, 20, 0}, // twenty in ten seconds
		{rate.SlidingWindowLog, 20, 0},
		{rate.SlidingWindowCounter, 20, 0},
	} {
		l := newLimiter(0.5)
		l.set(Limits{Client: 4, Algorithm: c.algorithm})
		count := func(at float64) int {
			n := 0
			for range 100 {
				if _, ok := l.take(at, "a"); ok {
					n++
				}
			}
			return n
		}
		if a, b := count(0), count(1); a != c.atOnce || b != c.afterSecond {
			t.Errorf("%v: %d pass at once, and %d after a second; want %d and %d", c.algorithm, a, b, c.atOnce, c.afterSecond)
		}
	}
}

func TestABurstIsWhatComesInTwoSeconds(t *testing.T) {
	if a, b := Burst(8), Burst(1); a != 16 || b != 10 {
		t.Errorf("bursts of %d and %d for 8 and 1 requests a second, want 16 and 10", a, b)
	}
}

// TestLimitsMoveAndKeepTheirCounts.
func TestLimitsMoveAndKeepTheirCounts(t *testing.T) {
	l := newLimiter(1)
	l.set(Limits{Client: 1, Algorithm: rate.FixedWindow})
	passes := func() int {
		n := 0
		for range 100 {
			if _, ok := l.take(0, "a"); ok {
				n++
			}
		}
		return n
	}
	before := passes()
	l.set(Limits{Client: 1.5, All: 100, Algorithm: rate.FixedWindow})
	if after := passes(); before != 10 || after != 5 {
		t.Errorf("%d pass, and %d when the limit has grown by a half; want 10 and 5", before, after)
	}
	l.set(Limits{})
	if n := passes(); n != 100 {
		t.Errorf("without limits %d of 100 pass", n)
	}
}

// TestLimitsMoveAlikeWhateverTheStoreHasForgotten: when a store forgets what is unused depends on hashes, and must not show.
func TestLimitsMoveAlikeWhateverTheStoreHasForgotten(t *testing.T) {
	algorithms := []rate.Algorithm{rate.TokenBucket, rate.LeakyBucket, rate.FixedWindow, rate.SlidingWindowLog, rate.SlidingWindowCounter}
	for _, algorithm := range algorithms {
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 1))
			kept, swept := newLimiter(1), newLimiter(1)
			at := 0.0
			for range 6 {
				limits := Limits{Client: 0.5 + 3*r.Float64(), All: 40, Algorithm: algorithm}
				swept.store.Sweep()
				kept.set(limits)
				swept.set(limits)
				for range 40 {
					at += 2 * r.Float64() * r.Float64()
					key := strconv.Itoa(r.IntN(4))
					_, a := kept.take(at, key)
					_, b := swept.take(at, key)
					if a != b {
						t.Fatalf("%v, seed %d: at %.3f %v with what was kept, and %v when it was forgotten", algorithm, seed, at, a, b)
					}
				}
			}
		}
	}
}

func TestTheStudysPolicyFollowsDemandAndTightensInAnAnomaly(t *testing.T) {
	s := New("steady", 1, Options{})
	base := s.Tuned()
	y := NewStudy(s, base)
	usual := int(s.Forecast.Mean[1] * window)
	first := y.Advise(10, usual)
	if first.All < base.All/2 || first.All > 2*base.All || first.Client == base.Client {
		t.Errorf("%+v, configured are %+v", first, base)
	}
	y.Advise(20, 4*usual)
	risen := y.Advise(30, 4*usual)
	if risen.All <= first.All || y.anomaly {
		t.Errorf("%+v after demand has grown, and an anomaly: %v", risen, y.anomaly)
	}
	tight := y.Advise(40, 4*usual)
	if !y.anomaly || tight.All > risen.All {
		t.Errorf("%+v after three times unusual demand, and an anomaly: %v", tight, y.anomaly)
	}
	for i := range 6 {
		y.Advise(50+10*float64(i), usual)
	}
	if y.anomaly {
		t.Error("an anomaly after a minute of usual demand")
	}
}

func TestEveryCellOfTheMatrixIsPlayed(t *testing.T) {
	s := New("crowd over", 1, Options{}).Cut(5, 300, 480, 490)
	for _, c := range Cells("crowd over", 1) {
		if o, err := c.Play(s); err != nil || o.Good <= 0 || o.Good > 100 || (o.Changes > 0) != (c.Policy == "study") {
			t.Errorf("%+v: %+v, %v", c, o, err)
		}
	}
	if _, err := (Cell{Policy: "luck"}).Play(s); err == nil {
		t.Error("a policy that there is not is played")
	}
}

func TestRealClientsAreAsUnequalWithEachSeed(t *testing.T) {
	largest := func(seed uint64) float64 {
		s := New("steady", seed, Options{Real: true})
		counts := make([]float64, s.Clients)
		for _, a := range s.Arrivals {
			counts[a.Client]++
		}
		most := 0.0
		for _, n := range counts {
			most = max(most, n)
		}
		return most / float64(len(s.Arrivals))
	}
	for seed := range uint64(3) {
		if part := largest(seed); part < 0.13 || part > 0.20 {
			t.Errorf("seed %d: the largest client sends %.2f of all; want about 0.16", seed, part)
		}
	}
}
