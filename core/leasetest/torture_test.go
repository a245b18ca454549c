package leasetest

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/fleetclock"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// story is a random fleet, with what happens to it.
type story struct {
	config   rate.LimitConfig
	nodes    int
	load     float64 // demand, relative to the limit
	trip     float64 // µs
	lost     float64
	costs    int64
	deaths   float64 // how many there are in a second
	stops    float64
	suspends float64
	clocks   float64
	pattern  int // steady, every other moment, or bursts after a silence
}

func randomStory(r *rand.Rand) story {
	s := story{nodes: 1 + r.IntN(30), load: 0.3 + 20*math.Pow(r.Float64(), 3), trip: math.Pow(10, 1.7+3*r.Float64()), pattern: r.IntN(3), costs: 1}
	period := math.Pow(10, 6+2*r.Float64())
	s.config = rate.LimitConfig{
		Algorithm: []rate.Algorithm{rate.FixedWindow, rate.SlidingWindowCounter, rate.SlidingWindowLog, rate.TokenBucket, rate.TokenBucket}[r.IntN(5)],
		Period:    time.Duration(period) * time.Microsecond,
		Requests:  int64(float64(s.nodes)*math.Pow(10, 3*r.Float64())) + 1,
	}
	if s.config.Algorithm == rate.TokenBucket {
		if s.config.Interval = r.IntN(4) == 0; !s.config.Interval {
			s.config.Burst = int64(float64(s.config.Requests)*math.Max(1e6/period, r.Float64()*1.5)) + 2
		}
	}
	if most := min(period/250_000, 60); s.config.Algorithm == rate.SlidingWindowCounter && most > 2 && r.IntN(2) == 0 {
		s.config.Segments = 2 + r.Int64N(int64(most)-2)
	}
	rare := func(most float64) float64 {
		if r.IntN(2) == 0 {
			return 0
		}
		return most * r.Float64()
	}
	s.lost, s.deaths, s.stops, s.suspends, s.clocks = rare(0.1), rare(2), rare(2), rare(1), rare(2)
	if r.IntN(3) == 0 {
		s.costs = 1 + r.Int64N(10)
	}
	return s
}

// play plays a story with so many requests, and returns what the fleet has done.
func play(t *testing.T, s story, early bool, requests int, r *rand.Rand) Stats {
	t.Helper()
	l, err := rate.NewLimit(s.config)
	must.Succeed(t, err)
	ledger := NewLedger(l)
	ledger.Early = early
	trip := func() int64 { return int64(s.trip * (0.5 + r.ExpFloat64())) }
	f, err := NewFleet(Config{Limit: l, Store: ledger, Nodes: s.nodes, Rand: r, Trip: trip, Lost: s.lost, Drift: 0.0004})
	must.Succeed(t, err)
	rate := s.load * float64(l.Requests) / float64(l.Period) * 2 / float64(1+s.costs) // requests a microsecond
	if most := float64(requests) / 3 / float64(l.Period); rate < most && s.pattern == 0 {
		requests = int(3*rate*float64(l.Period)) + 1000
	}
	unit := float64(l.Period) / 10
	at := float64(fleetclock.Start)
	for range requests {
		gap := r.ExpFloat64() / rate
		phase := math.Mod(at/unit, 1)
		switch {
		case s.pattern == 1 && phase > 0.5:
			gap += (1 - phase) * unit
		case s.pattern == 2 && phase > 0.3:
			if phase < 0.95 {
				gap = (0.95 - phase) * unit
			} else {
				gap /= 20
			}
		}
		f.Until(int64(at))
		at += gap
		for _, mishap := range []struct {
			rate float64
			do   func(i int)
		}{
			{s.deaths, f.Die},
			{s.stops, func(i int) { f.Stop(i, r.Int64N(3e6)) }},
			{s.suspends, func(i int) { f.Suspend(i, r.Int64N(5e6)) }},
			{s.clocks, func(i int) { f.SetClock(i, r.Int64N(6e6)-3e6) }},
		} {
			if r.Float64() < mishap.rate*gap/1e6*float64(s.nodes)/3 {
				mishap.do(r.IntN(s.nodes))
			}
		}
		f.Request(r.IntN(s.nodes), 1+r.Int64N(s.costs))
	}
	f.Until(f.Now + 10e6)
	return f.Stats
}

// until returns which random fleet is the last: 250 are played. WEIR_TORTURE plays as many as come within a duration in place of that, such as 2h.
func until(t *testing.T) func(seed uint64) bool {
	text := os.Getenv("WEIR_TORTURE")
	if text == "" {
		return func(seed uint64) bool { return seed > 250 }
	}
	long, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("WEIR_TORTURE: %v", err)
	}
	end := time.Now().Add(long)
	return func(uint64) bool { return time.Now().After(end) }
}

// Whatever happens to the nodes and their messages, no unit is admitted beyond the limit, by the algorithm's own judgement.
func TestNothingIsAdmittedBeyondTheLimit(t *testing.T) {
	underrace.OneGoroutine(t)
	over := until(t)
	var all Stats
	runs := 0
	for seed := uint64(1); !over(seed); seed++ {
		r := rand.New(rand.NewPCG(seed, 22))
		s := randomStory(r)
		stats := play(t, s, false, 6000, r)
		if stats.Beyond > 0 {
			t.Fatalf("seed %d: %d units beyond %+v: %+v", seed, stats.Beyond, s, stats)
		}
		all.Admitted += stats.Admitted
		all.Requests += stats.Requests
		all.Calls += stats.Calls
		runs++
	}
	t.Logf("%d fleets, %d requests, %d units admitted, %d calls", runs, all.Requests, all.Admitted, all.Calls)
}

// The torture can fail: a bucket or a log that is charged when units are lent, not when they are spent, admits more than the limit.
func TestUnitsThatAreChargedTooEarlyAreFound(t *testing.T) {
	underrace.OneGoroutine(t)
	found := make(map[rate.Algorithm]int)
	for seed := uint64(1); seed < 4000 && (found[rate.TokenBucket] < 3 || found[rate.SlidingWindowLog] < 3); seed++ {
		r := rand.New(rand.NewPCG(seed, 22))
		s := randomStory(r)
		a := s.config.Algorithm
		if (a != rate.TokenBucket || s.config.Interval) && a != rate.SlidingWindowLog {
			continue
		}
		if play(t, s, true, 6000, r).Beyond > 0 {
			found[a]++
		}
	}
	if found[rate.TokenBucket] < 3 || found[rate.SlidingWindowLog] < 3 {
		t.Errorf("found in %v", found)
	}
}

// Requests that cost much leave hardly any of the limit unused, though it is lent in parts that are too small for them. A defect: up to 6.7 % in these fleets.
func TestRequestsThatCostMuchGetTheWholeLimit(t *testing.T) {
	underrace.OneGoroutine(t)
	for _, c := range []struct {
		algorithm   rate.Algorithm
		nodes       int
		limit, cost int64
	}{
		{rate.FixedWindow, 1, 1000, 50}, {rate.FixedWindow, 3, 1000, 10}, {rate.SlidingWindowLog, 1, 100, 10}, {rate.SlidingWindowLog, 1, 1000, 50},
		{rate.SlidingWindowLog, 3, 1000, 10}, {rate.TokenBucket, 1, 100, 10}, {rate.SlidingWindowCounter, 3, 1000, 10},
	} {
		l, err := rate.NewLimit(rate.LimitConfig{Algorithm: c.algorithm, Requests: c.limit, Period: 10 * time.Second})
		must.Succeed(t, err)
		r := rand.New(rand.NewPCG(1, 2))
		f, err := NewFleet(Config{Limit: l, Store: NewLedger(l), Nodes: c.nodes, Rand: r, Trip: func() int64 { return int64(500 * (0.5 + r.ExpFloat64())) }, Drift: 0.0004})
		must.Succeed(t, err)
		one := NewLedger(l) // decides on each request as it comes
		could := 0
		rate := 2 * float64(c.limit) / 10e6 / float64(c.cost)
		for at := float64(fleetclock.Start); at < fleetclock.Start+60e6; at += r.ExpFloat64() / rate {
			f.Until(int64(at))
			f.Request(r.IntN(c.nodes), c.cost)
			if one.Decide(int64(at), c.cost).Allowed {
				could += int(c.cost)
			}
		}
		f.Until(f.Now + 5e6)
		if f.Beyond > 0 || f.Admitted < could-could/100 {
			t.Errorf("%+v: %d of %d admitted, %+v", c, f.Admitted, could, f.Stats)
		}
	}
}

// What is lent by an answer that comes later than a request waits is not lost: of a window that lasts for long, it could not be admitted until that ends. A
// defect: nodes took no answer after 50 ms, as they do here with impatience.
func TestLateAnswersLoseNothing(t *testing.T) {
	underrace.OneGoroutine(t)
	for _, impatient := range []bool{false, true} {
		l, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 60000, Period: time.Minute})
		must.Succeed(t, err)
		r := rand.New(rand.NewPCG(1, 2))
		trip := func() int64 {
			if r.IntN(10) == 0 {
				return 50_000 + r.Int64N(100_000)
			}
			return 500
		}
		c := Config{Limit: l, Store: NewLedger(l), Nodes: 4, Rand: r, Trip: trip}
		if impatient {
			c.Timeout = 50_000
		}
		f, err := NewFleet(c)
		must.Succeed(t, err)
		for at := float64(fleetclock.Start); at < fleetclock.Start+60e6; at += r.ExpFloat64() / 0.002 {
			f.Until(int64(at))
			f.Request(r.IntN(4), 1)
		}
		lost := 60000 - f.Admitted
		t.Logf("impatient %v: %d of 60000 units lost", impatient, lost)
		if f.Beyond > 0 || !impatient && lost > 60 || impatient && lost < 600 {
			t.Errorf("impatient %v: %d of 60000 units lost, %+v", impatient, lost, f.Stats)
		}
	}
}
