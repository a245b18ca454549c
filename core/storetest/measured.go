package storetest

import (
	"math"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// Debtor is an oracle of limits that owe: what the documentation says that a key owes, unit by unit: each is in the first window with room for it.
type Debtor struct {
	limit *rate.Limit
	used  map[int64]int64 // by the window's number
	level float64         // of a bucket
	taken []int64         // of a log: when each unit begins to count, those that are owed too
	at    int64
	zero  int64 // when the window with number 0 began
}

// NewDebtor returns a key that owes nothing.
func NewDebtor(l *rate.Limit, key string, now int64) *Debtor {
	d := &Debtor{limit: l, used: make(map[int64]int64), at: now}
	if l.Spread {
		d.zero = rate.Phase(l, key)
	}
	return d
}

func (d *Debtor) number(now int64) int64 {
	if d.limit.Calendar != nil {
		day := time.UnixMicro(now).UTC()
		return int64(day.Year()*12 + int(day.Month()))
	}
	if d.limit.Start == rate.FirstRequest && d.used[(now-d.zero)/d.limit.Period] == 0 {
		d.zero = now
		d.used = make(map[int64]int64)
	}
	return (now - d.zero) / d.limit.Period
}

// Charge charges it.
func (d *Debtor) Charge(now, units int64) {
	if d.limit.IsBucket {
		d.drain(now)
		d.level += float64(units)
		return
	}
	if d.limit.Algorithm == rate.SlidingWindowLog {
		for ; units > 0; units-- {
			at := now
			if k := len(d.taken) - int(d.limit.Requests); k >= 0 && d.taken[k]+d.limit.Period > now {
				at = d.taken[k] + d.limit.Period
			}
			d.taken = append(d.taken, at)
		}
		return
	}
	for w := d.number(now); units > 0; w++ {
		fits := rate.AtMost(units, d.limit.Requests-d.used[w])
		d.used[w] += fits
		units -= fits
	}
}

func (d *Debtor) drain(now int64) {
	d.level -= float64(now-d.at) * float64(d.limit.Requests) / float64(d.limit.Period)
	if d.level < 0 {
		d.level = 0
	}
	d.at = now
}

// Allows reports whether a request of that cost may pass.
func (d *Debtor) Allows(now, units int64) bool {
	w := d.number(now)
	switch {
	case d.limit.IsBucket:
		d.drain(now)
		return d.level+float64(units) <= float64(d.limit.Capacity) && (!d.limit.Queues || d.level*float64(d.limit.Period)/float64(d.limit.Requests) <= float64(d.limit.MaxDelay))
	case d.limit.Algorithm == rate.SlidingWindowLog:
		live := sort.Search(len(d.taken), func(i int) bool { return d.taken[i]+d.limit.Period > now })
		return units+int64(len(d.taken)-live) <= d.limit.Requests
	case d.limit.Algorithm == rate.FixedWindow:
		return d.used[w]+units <= d.limit.Requests
	}
	over := d.limit.Period - (now-d.zero)%d.limit.Period
	return d.used[w-1]*over/d.limit.Period+d.used[w]+units <= d.limit.Requests
}

// Delay returns how long a request that may pass waits in a queue, by what has been charged.
func (d *Debtor) Delay(now int64) int64 {
	if !d.limit.Queues {
		return 0
	}
	d.drain(now)
	return int64(math.Ceil(d.level * float64(d.limit.Period) / float64(d.limit.Requests)))
}

// measuredSteps is how many steps a random walk has: as many as WEIR_MEASURED says.
func measuredSteps() int {
	if n, err := strconv.Atoi(os.Getenv("WEIR_MEASURED")); err == nil {
		return n
	}
	return times(4000, 400)
}

// testMeasured: requests whose responses say what they have cost reserve their cost, are charged what the responses say, and what is beyond the limit is
// paid before the next request passes.
func testMeasured(t *testing.T, newStore NewStore) {
	each(t, newStore, "", withOwnWindows(), whatResponsesSayIsCharged, aBlockedKeyIsRejectedAtNoCost)
}

// measured opens a rule whose responses say what their requests have cost; nil: the algorithm cannot owe.
func (s *scene) measured(v variant, units int64) *core.Rule {
	s.t.Helper()
	if !v.algorithm.Row().CanOwe || v.interval {
		return nil
	}
	c := v.config(units, 1<<24) // a bucket's level is exact in a double
	c.Owes = true
	if v.algorithm == rate.LeakyBucket {
		c.MaxDelay = 20 * time.Second
	}
	bytes, err := core.ParseResponseCost([]string{"bytes"})
	must.Succeed(s.t, err)
	return s.open(core.RuleConfig{Name: "measured", Limit: limit(s.t, c), OverflowPolicy: core.OverflowPolicy{Response: bytes}})
}

// aBlockedKeyIsRejectedAtNoCost: a request that costs 0 until its response is there passes no block, either.
func aBlockedKeyIsRejectedAtNoCost(s *scene, v variant) {
	r := s.measured(v, 3)
	if r == nil {
		return
	}
	underWay := s.mustReserve(r, "alice", 0)
	s.block(r, "alice", second)
	s.is("blocked", s.take(r, "alice", 0), blockedFor(r, second))
	underWay[0].Measure(9)
	must.Succeed(s.t, core.NewLimiter(s.store).Finish(underWay, 200))
	s.is("charged while it is blocked", s.take(r, "alice", 0), blockedFor(r, second))
	s.clock.Add(second)
	s.yes("after the block", s.take(r, "alice", 0), whatever)
}

func whatResponsesSayIsCharged(s *scene, v variant) {
	const units = 32
	r := s.measured(v, units)
	if r == nil {
		return
	}
	l := r.Limit
	limiter := core.NewLimiter(s.store)
	random := rand.New(rand.NewSource(1))
	keys := []string{"alice", "bob", "carol"}
	debtors := make(map[string]*Debtor)
	reserved := make(map[string]int64)
	for _, key := range keys {
		debtors[key] = NewDebtor(l, key, s.clock.Now())
	}
	var underWay [][]core.Reservation
	allowed, owing, steps := 0, 0, measuredSteps()
	for step := 0; step < steps; step++ {
		s.clock.Add(random.Int63n(1 << 21))
		if random.Intn(100) == 0 {
			s.clock.Add(random.Int63n(1 << 27))
		}
		now := s.clock.Now()
		if k := len(underWay); k > 0 && random.Intn(2) == 0 {
			i := random.Intn(k)
			list := underWay[i]
			underWay = append(underWay[:i], underWay[i+1:]...)
			key := list[0].Key
			reserved[key] -= list[0].Cost
			if random.Intn(10) == 0 { // its client has left
				must.Succeed(s.t, limiter.Leave(list))
				continue
			}
			cost := list[0].Cost // the response does not say it
			if random.Intn(10) > 0 {
				cost = random.Int63n(8)
				if random.Intn(10) == 0 {
					cost = random.Int63n(6 * units)
				}
				list[0].Measure(cost)
			}
			must.Succeed(s.t, limiter.Finish(list, 200))
			debtors[key].Charge(now, cost)
			continue
		}
		key := keys[random.Intn(len(keys))]
		cost := random.Int63n(6)
		checks := []core.Check{{Rule: r, Key: key, Cost: cost}}
		var verdict core.Verdict
		must.Succeed(s.t, limiter.Decide(checks, false, &verdict))
		want := debtors[key].Allows(now, rate.AtLeast(cost, 1)+reserved[key])
		if got := checks[0].Decision; got.Allowed != want {
			s.t.Fatalf("step %d: %s at a cost of %d, with %d reserved: %+v; want allowed %t", step, key, cost, reserved[key], got, want)
		}
		if want {
			if got := checks[0].Decision.Delay; got != debtors[key].Delay(now) {
				s.t.Fatalf("step %d: %s at a cost of %d waits for %d µs, want %d", step, key, cost, got, debtors[key].Delay(now))
			}
			allowed++
			reserved[key] += cost
			underWay = append(underWay, core.AppendReservations(nil, checks))
		} else if got := checks[0].Decision; got.RetryAfter > l.Period {
			owing++
		}
	}
	if allowed < steps/10 || owing < steps/100 {
		s.t.Errorf("%d of %d are allowed, and %d wait for longer than a period: this proves little", allowed, steps, owing)
	}
}
