package leasetest

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/fleetclock"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// debts is the Judge of a limit that owes: by storetest's Debtor, which shares no code with what it judges. What is beyond the limit by that must have been
// lent before a debt arose.
type debts struct {
	limit    *rate.Limit
	charged  []units
	debtor   *storetest.Debtor
	stale    bool // some was taken back
	reserved int64
	since    int64 // when the store was in debt last
	excused  int
}

type units struct{ at, n int64 }

func newDebts(l *rate.Limit) *debts {
	return &debts{limit: l, debtor: storetest.NewDebtor(l, "k", fleetclock.Start)}
}

func (j *debts) charge(at, n int64) {
	j.charged = append(j.charged, units{at, n})
	j.debtor.Charge(at, n)
}

func (j *debts) Admit(now, cost, reserved, since int64) bool {
	need := max(cost, 1) + j.reserved
	within := j.debtor.Allows(now, need)
	if !within && j.stale {
		j.debtor, j.stale = storetest.NewDebtor(j.limit, "k", fleetclock.Start), false
		for _, c := range j.charged {
			j.debtor.Charge(c.at, c.n)
		}
		within = j.debtor.Allows(now, need)
	}
	if !within && since <= j.since {
		within = true
		j.excused++
	}
	j.reserved += reserved
	j.charge(now, cost-reserved)
	return within
}

func (j *debts) Owe(now, reserved, units, free int64) {
	j.reserved -= reserved
	j.charge(now, units)
	if free < 0 {
		j.since = now
	}
}

func (j *debts) Back(n, at int64) {
	for i := len(j.charged) - 1; n > 0; i-- {
		if c := &j.charged[i]; c.at == at && c.n > 0 {
			back := min(n, c.n)
			c.n -= back
			n -= back
		}
	}
	j.stale = true
}

// measuredStory makes a story one of requests that are charged when their responses have ended.
func measuredStory(r *rand.Rand) story {
	s := randomStory(r)
	s.config.Segments, s.config.Interval, s.config.Owes = 0, false, s.config.Algorithm != rate.SlidingWindowLog
	s.config.Requests = min(s.config.Requests, 2000)
	s.nodes, s.load, s.costs = 1+r.IntN(5), 2.5*r.Float64(), 1+r.Int64N(10)
	if s.config.Algorithm == rate.TokenBucket {
		s.config.Period = (1 << (20 + r.IntN(6))) * time.Microsecond // its level is exact in a double
		s.config.Burst = s.config.Requests + r.Int64N(s.config.Requests+1)
	}
	return s
}

// playMeasured plays a story of so many requests whose responses say what they have cost.
func playMeasured(t *testing.T, s story, requests int, r *rand.Rand) (*Fleet, *Ledger, *debts) {
	t.Helper()
	l, err := rate.NewLimit(s.config)
	must.Succeed(t, err)
	ledger, judge := NewLedger(l), newDebts(l)
	trip := func() int64 { return int64(s.trip * (0.5 + r.ExpFloat64())) }
	f, err := NewFleet(Config{Limit: l, Store: ledger, Nodes: s.nodes, Rand: r, Trip: trip, Lost: s.lost, Drift: 0.0004, Judge: judge})
	must.Succeed(t, err)
	gap := float64(l.Period) / float64(l.Requests) / s.load * float64(1+s.costs) / 2
	least, lasts := r.Int64N(2), int64(math.Pow(10, 3+3.5*r.Float64()))
	owes := s.config.Owes && (least == 0 || r.IntN(2) == 0)
	if !s.config.Owes {
		least = 1
	}
	at := float64(f.Now)
	for range requests {
		f.Until(int64(at))
		pause := r.ExpFloat64() * gap
		if r.IntN(500) == 0 {
			pause += float64(r.Int64N(2 * l.Period))
		}
		at += pause
		if r.Float64() < s.deaths*pause/1e6*float64(s.nodes)/3 {
			f.Die(r.IntN(s.nodes))
		}
		if r.Float64() < s.stops*pause/1e6*float64(s.nodes)/3 {
			f.Stop(r.IntN(s.nodes), r.Int64N(3e6))
		}
		cost := least * (1 + r.Int64N(s.costs))
		units := cost * r.Int64N(2)
		if owes {
			units = r.Int64N(2 + s.costs)
		}
		if owes && r.IntN(500) == 0 {
			units = r.Int64N(1 + l.Requests/2)
		}
		f.Serve(r.IntN(s.nodes), cost, units, r.Int64N(lasts))
	}
	f.Until(f.Now + 10e6)
	return f, ledger, judge
}

// Whatever happens to the nodes and their messages: what is admitted beyond what is charged and owed was lent before the debt arose.
func TestNothingIsAdmittedBeyondWhatIsOwed(t *testing.T) {
	underrace.OneGoroutine(t)
	over := until(t)
	var all Stats
	excused := 0
	for seed := uint64(1); !over(seed); seed++ {
		r := rand.New(rand.NewPCG(seed, 36))
		s := measuredStory(r)
		f, _, judge := playMeasured(t, s, 3000, r)
		if f.Beyond > 0 {
			t.Fatalf("seed %d: %d units beyond %+v: %+v", seed, f.Beyond, s, f.Stats)
		}
		excused += judge.excused
		all.Admitted += f.Admitted
		all.Requests += f.Requests
		all.Calls += f.Calls
	}
	t.Logf("%d requests, %d units admitted, %d calls; %d times units were spent that were lent before a debt", all.Requests, all.Admitted, all.Calls, excused)
	if all.Calls > all.Requests*9/10 || excused == 0 {
		t.Error("this proves little")
	}
}
