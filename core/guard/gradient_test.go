package guard

import (
	"math"
	"math/rand"
	"testing"

	"github.com/proxyweir/weir/tools/underrace"
)

// run plays so many seconds that are alike.
func run(g Gradient, s Second, seconds int) Gradient {
	for i := 0; i < seconds; i++ {
		g = Next(g, s, 8, 128)
	}
	return g
}

func seconds(answered, mean, most int64) Second {
	return Second{Answered: answered, Time: answered * mean, Met: answered * most, Most: most}
}

func TestTheLimitStaysWhereItIsNotUsed(t *testing.T) {
	g := Gradient{Limit: 40, Baseline: 100_000}
	for _, mean := range []int64{100, 100_000, 10_000_000} {
		turnedAway := seconds(100, mean, 20)
		turnedAway.Rejected = 1
		if got := run(g, turnedAway, 1).Limit; got == 40 {
			t.Errorf("at a mean of %d µs where somebody was turned away: %v", mean, got)
		}
		if got := run(g, seconds(100, mean, 20), 1).Limit; got != 40 {
			t.Errorf("at a mean of %d µs and 20 under way of 40: %v, want 40", mean, got)
		}
	}
}

func TestTheLimitGrowsToTheCeilingWhileTheServiceKeepsUp(t *testing.T) {
	g := Gradient{Limit: 8, Baseline: 100_000}
	for i := 0; i < 100; i++ {
		before := g.Limit
		g = Next(g, seconds(100, 100_000, int64(g.Limit)), 8, 128)
		if g.Limit < before {
			t.Fatalf("it falls from %v to %v", before, g.Limit)
		}
	}
	if g.Limit != 128 {
		t.Errorf("after 100 s: %v, want 128", g.Limit)
	}
}

// TestTheLimitSettlesAboveWhatTheServiceWorksOn: of a service of 16 workers that answers 160 a second, whose queue grows with what is under way.
func TestTheLimitSettlesAboveWhatTheServiceWorksOn(t *testing.T) {
	g := Gradient{Limit: 128, Baseline: 100_000}
	for i := 0; i < 60; i++ {
		under := int64(g.Limit)
		g = Next(g, seconds(160, under*1_000_000/160, under), 8, 128)
		if i == 5 && g.Limit > 64 {
			t.Errorf("after 6 s: %v, want it to have halved", g.Limit)
		}
	}
	if g.Limit < 24 || g.Limit > 48 {
		t.Errorf("after a minute: %v, want from 24 to 48", g.Limit)
	}
}

// TestALongOverloadIsNotLearntAsNormal: of 16 workers that take a third of their usual speed, for two hours in which far more is asked of them.
func TestALongOverloadIsNotLearntAsNormal(t *testing.T) {
	for _, noise := range []float64{1, 1.8} { // of the times of answers, to their mean: exponential, and with a heavy tail
		random := rand.New(rand.NewSource(6))
		g := Gradient{Limit: 128, Baseline: 100_000}
		for i := 0; i < 7200; i++ {
			mean := math.Max(300_000, g.Limit*1e6/53) * (1 + noise*random.NormFloat64()/math.Sqrt(53))
			g = Next(g, seconds(53, int64(math.Max(mean, 1000)), int64(g.Limit)), 8, 128)
			if i > 30 && (g.Limit < 12 || g.Limit > 64) {
				t.Fatalf("noise %v: after %d s: %+v; want a limit from 12 to 64", noise, i, g)
			}
		}
		t.Logf("noise %v: %+v", noise, g)
	}
}

func TestTheBaselineFollowsAServiceThatHasChanged(t *testing.T) {
	g := run(Gradient{Limit: 100, Baseline: 100_000}, seconds(50, 200_000, 20), 300)
	if g.Baseline < 190_000 {
		t.Errorf("after five minutes of 0.2 s with room to spare: %v µs, want 190,000 at least", g.Baseline)
	}
	g = run(g, seconds(50, 50_000, 20), 60)
	if g.Baseline > 60_000 {
		t.Errorf("after a minute of 0.05 s: %v µs, want at most 60,000", g.Baseline)
	}
}

func TestFewAnswersMoveTheBaselineLess(t *testing.T) {
	one := Next(Gradient{Limit: 100, Baseline: 100_000}, seconds(1, 50_000, 1), 8, 128).Baseline
	many := Next(Gradient{Limit: 100, Baseline: 100_000}, seconds(20, 50_000, 1), 8, 128).Baseline
	if one <= many || one >= 100_000 {
		t.Errorf("one answer: %v, twenty: %v; want one to move it less", one, many)
	}
}

// isSound reports whether a state is one that a limit from 8 to 128 can have.
func isSound(g Gradient) bool {
	return g.Limit >= 8 && g.Limit <= 128 && g.Baseline >= 0 && !math.IsInf(g.Baseline, 0) && !math.IsNaN(g.Baseline)
}

func TestASlowerSecondNeverHasTheHigherLimit(t *testing.T) {
	underrace.OneGoroutine(t)
	random := rand.New(rand.NewSource(1))
	for i := 0; i < 20_000; i++ {
		g := Gradient{Limit: 8 + 120*random.Float64(), Baseline: math.Exp(random.Float64() * 17)}
		for n := random.Intn(5); n > 0; n-- { // in which the elasticity becomes something
			remember(&g, math.Log(float64(1+random.Intn(128))), random.Float64()*17)
		}
		s := Second{Answered: 1 + random.Int63n(300), Most: random.Int63n(150)}
		s.Left = random.Int63n(s.Answered + 1)
		s.Time = int64(math.Exp(random.Float64()*17)) * s.Answered
		slower := s
		slower.Time += 1 + int64(math.Exp(random.Float64()*20))
		a, b := Next(g, s, 8, 128), Next(g, slower, 8, 128)
		if b.Limit > a.Limit || !isSound(a) || !isSound(b) {
			t.Fatalf("%+v: after %+v %+v, after %+v %+v", g, s, a, slower, b)
		}
	}
}

func FuzzNext(f *testing.F) {
	f.Add(40.0, 100_000.0, int64(100), int64(10_000_000), int64(40), int64(1), int64(0), 8.0, 128.0)
	f.Add(math.NaN(), math.Inf(1), int64(-1), int64(math.MinInt64), int64(-5), int64(-1), int64(math.MinInt64), math.NaN(), math.Inf(-1))
	f.Add(0.0, 0.0, int64(1), int64(0), int64(math.MaxInt64), int64(0), int64(1), -1.0, 0.0)
	f.Fuzz(func(t *testing.T, limit, baseline float64, answered, time, most, rejected, left int64, floor, ceiling float64) {
		g := Next(Gradient{Limit: limit, Baseline: baseline}, Second{Answered: answered, Time: time, Met: most, Light: answered / 2, LightTime: time / 2, Most: most, Rejected: rejected, Left: left}, floor, ceiling)
		lowest, highest := floor, ceiling
		if !(highest >= 1) {
			highest = 1
		}
		if !(lowest >= 1) {
			lowest = 1
		}
		if lowest > highest {
			lowest = highest
		}
		if !(g.Limit >= lowest && g.Limit <= highest) || math.IsNaN(g.Baseline) || math.IsInf(g.Baseline, 0) || g.Baseline < 0 {
			t.Fatalf("%+v with a limit from %v to %v", g, lowest, highest)
		}
	})
}

// TestAServiceThatBecomesSlowerWithoutAQueueKeepsWhatItCanDo: of 3000 requests a second, which take a tenth of a second, and then a quarter.
func TestAServiceThatBecomesSlowerWithoutAQueueKeepsWhatItCanDo(t *testing.T) {
	random := rand.New(rand.NewSource(5))
	g := Gradient{}
	least, recovered := 1000.0, 0
	for i := 0; i < 400; i++ {
		time := 100_000.0
		if i >= 60 {
			time = 250_000
		}
		most := math.Min(g.Limit, 3000*time/1e6)
		if i == 0 {
			most = 300
		}
		answered := most * 1e6 / time
		mean := time * (1 + random.NormFloat64()/math.Sqrt(answered))
		g = Next(g, Second{Answered: int64(answered), Time: int64(answered * mean), Met: int64(answered * most), Light: 10, LightTime: int64(10 * mean), Most: int64(most)}, 8, 1000)
		if i >= 60 {
			least = math.Min(least, g.Limit)
			if g.Limit >= 750 && recovered == 0 && least < 750 {
				recovered = i - 60
			}
		}
	}
	t.Logf("the limit falls to %.0f, and is 750 again after %d s", least, recovered)
	if least < 200 || g.Limit < 750 {
		t.Errorf("the limit falls to %v and ends at %v; want 200 at least and 750", least, g.Limit)
	}
}
