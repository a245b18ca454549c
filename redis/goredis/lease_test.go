package goredis_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/leasetest"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// leasedLimits are limits of all kinds that can be leased.
var leasedLimits = map[string]rate.LimitConfig{
	"fixed_window":           {Algorithm: rate.FixedWindow, Requests: 600, Period: 3 * time.Second},
	"sliding_window_counter": {Algorithm: rate.SlidingWindowCounter, Requests: 500, Period: 2 * time.Second},
	"segments":               {Algorithm: rate.SlidingWindowCounter, Requests: 500, Period: 2 * time.Second, Segments: 7},
	"sliding_window_log":     {Algorithm: rate.SlidingWindowLog, Requests: 300, Period: 1500 * time.Millisecond},
	"a long log":             {Algorithm: rate.SlidingWindowLog, Requests: 3000, Period: 5 * time.Second},
	"token_bucket":           {Algorithm: rate.TokenBucket, Requests: 200, Burst: 400, Period: time.Second},
	"refill interval":        {Algorithm: rate.TokenBucket, Requests: 300, Burst: 500, Period: 2 * time.Second, Interval: true},
}

// both is the store of a Fleet: the scripts in Redis, compared with the Ledger at each step.
type both struct {
	t      *testing.T
	server *redistest.Server
	book   *redis.Book
	ledger *leasetest.Ledger
	n      int

	store    *redis.Store
	reserved map[int64][]core.Reservation // by cost
	charged  int                          // how many were charged beyond what they have reserved, or in a debt
}

func (b *both) Lend(now, cost int64, a *rate.LeaseAsk, length int64) (rate.Decision, rate.LeaseGrant) {
	b.server.SetTime(now)
	d, g, err := b.book.Lend(cost, a)
	must.Succeed(b.t, err)
	want, grant := b.ledger.Lend(now, cost, a, length)
	if d.Allowed != want.Allowed && cost > 0 || g.Units != grant.Units || g.Life != grant.Life || g.Mark != grant.Mark || g.ToldIn != grant.ToldIn || max(g.Free, 0) != grant.Free {
		b.t.Fatalf("call %d at %d, cost %d, %+v:\n%+v %+v, the ledger\n%+v %+v", b.n, now, cost, *a, d, g, want, grant)
	}
	b.n++
	return d, g
}

func (b *both) Decide(now, cost int64) rate.Decision {
	b.server.SetTime(now)
	d, _, err := b.book.Decide(cost)
	must.Succeed(b.t, err)
	if want := b.ledger.Decide(now, cost); d.Allowed != want.Allowed || d.Remaining != want.Remaining {
		b.t.Fatalf("call %d at %d, cost %d: %+v, the ledger %+v", b.n, now, cost, d, want)
	}
	b.n++
	return d
}

func (b *both) Reserve(now, cost int64) bool {
	b.server.SetTime(now)
	d, list, err := b.book.Decide(cost)
	must.Succeed(b.t, err)
	if want := b.ledger.Reserve(now, cost); d.Allowed != want {
		b.t.Fatalf("call %d at %d, cost %d: %+v, the ledger %t: %d free, %d reserved", b.n, now, cost, d, want, b.ledger.Free(now), b.ledger.Reserved)
	}
	b.reserved[cost] = append(b.reserved[cost], list...)
	b.n++
	return d.Allowed
}

func (b *both) Settle(now, reserved, units int64) int64 {
	b.server.SetTime(now)
	free := b.ledger.Settle(now, reserved, units)
	if list := b.reserved[reserved]; len(list) > 0 {
		list[0].Units = units
		must.Succeed(b.t, b.store.Settle(list[:1]))
		b.reserved[reserved] = list[1:]
	} else {
		must.Succeed(b.t, b.book.Charge(units))
	}
	if free < 0 {
		b.charged++
	}
	return free
}

// openLeased opens a leased rule in a store on a Redis whose clock can be set.
func openLeased(t *testing.T, c rate.LimitConfig, policy core.OverflowPolicy) (*rate.Limit, *core.Rule, *redis.Store, *redistest.Server) {
	t.Helper()
	l, err := rate.NewLimit(c)
	must.Succeed(t, err)
	server := redistest.Start(t, redistest.WithClock())
	s := newStore(t, redis.Config{}, goredis.Config{Addresses: []string{server.Addr()}})
	of := core.RuleConfig{Name: "leased", Limit: l, Consistency: core.Leased}
	of.OverflowPolicy = policy
	rule, err := core.NewRule(of)
	if err == nil {
		err = s.Open(rule)
	}
	must.Succeed(t, err)
	return l, rule, s, server
}

// judged is a leasetest.Judge that allows all: the ledger is judged elsewhere.
type judged struct{}

func (judged) Admit(_, _, _, _ int64) bool { return true }
func (judged) Owe(_, _, _, _ int64)        {}
func (judged) Back(_, _ int64)             {}

// Of requests that are charged when their responses have ended, too, the scripts compute what the Ledger does: what is reserved, charged, owed, lent and given back.
func TestLeasesOfWhatResponsesChargeAreThoseOfTheLedger(t *testing.T) {
	for name, c := range leasedLimits {
		t.Run(name, func(t *testing.T) {
			c.Owes = c.Algorithm != rate.SlidingWindowLog && c.Segments == 0
			var policy core.OverflowPolicy
			var err error
			if c.Owes {
				policy.Response, err = core.ParseResponseCost([]string{"bytes"})
			} else {
				policy.Count, err = core.ParseCounted([]string{"4xx"})
			}
			must.Succeed(t, err)
			l, rule, s, server := openLeased(t, c, policy)
			charged := 0
			for seed := uint64(1); seed <= 3; seed++ {
				r := rand.New(rand.NewPCG(seed, 36))
				book := redis.NewBook(s, rule, string(rune('a'+seed)))
				b := &both{t: t, server: server, store: s, book: book, ledger: leasetest.NewLedger(l), reserved: make(map[int64][]core.Reservation)}
				f, err := leasetest.NewFleet(leasetest.Config{
					Limit: l, Store: b, Nodes: 4, Rand: r, Lost: 0.02, Drift: 0.0004, Judge: judged{},
					Trip: func() int64 { return int64(2000 * r.ExpFloat64()) },
				})
				must.Succeed(t, err)
				gap := float64(l.Period) / float64(l.Requests) / []float64{0.6, 1.2, 3}[seed-1]
				at := float64(f.Now)
				for range 2000 {
					f.Until(int64(at))
					at += r.ExpFloat64() * gap
					if r.IntN(1000) == 0 {
						at += float64(r.Int64N(2 * l.Period))
					}
					if r.IntN(500) == 0 {
						f.Die(r.IntN(4))
					}
					cost, units := r.Int64N(4), r.Int64N(4)
					if r.IntN(100) == 0 {
						units = r.Int64N(l.Requests / 4)
					}
					if !c.Owes { // it counts some responses
						cost++
						units = cost * r.Int64N(2)
					}
					f.Serve(r.IntN(4), cost, units, r.Int64N(400_000))
				}
				f.Until(f.Now + 2e6)
				t.Logf("%d calls, %d charges in debt, %+v", b.n, b.charged, f.Stats)
				charged += b.charged
			}
			if charged < 100 && c.Owes {
				t.Errorf("%d were charged in debt: this shows little", charged)
			}
		})
	}
}

// Leases of windows of a key's own are those of the ledger, too.
func TestLeasesOfAKeysOwnWindowsAreThoseOfTheLedger(t *testing.T) {
	for name, c := range map[string]rate.LimitConfig{
		"first_request":      {Algorithm: rate.FixedWindow, Requests: 600, Period: 3 * time.Second, Start: rate.FirstRequest},
		"spread":             {Algorithm: rate.FixedWindow, Requests: 600, Period: 3 * time.Second, Start: rate.Spread},
		"spread, two counts": {Algorithm: rate.SlidingWindowCounter, Requests: 500, Period: 2 * time.Second, Start: rate.Spread},
	} {
		t.Run(name, func(t *testing.T) {
			l, rule, s, server := openLeased(t, c, core.OverflowPolicy{})
			r := rand.New(rand.NewPCG(1, 7))
			b := &both{t: t, server: server, book: redis.NewBook(s, rule, "alice"), ledger: leasetest.NewLedgerOf(l, "alice")}
			now, rejected := int64(1_790_000_000_000_000), 0
			var g rate.LeaseGrant
			for range 20_000 {
				now += r.Int64N(20_000)
				if r.IntN(200) == 0 {
					now += r.Int64N(3 * l.Period)
				}
				if r.IntN(3) > 0 {
					if d := b.Decide(now, 1+r.Int64N(9)); !d.Allowed {
						rejected++
					}
					continue
				}
				ask := rate.LeaseAsk{Mark: g.Mark, Size: g.Units, Spent: r.Int64N(g.Units + 1), Keep: r.Int64N(2), Want: r.Int64N(40), Demand: r.Int64N(60), ToldIn: g.ToldIn}
				_, g = b.Lend(now, r.Int64N(3), &ask, rule.LeaseTerms().Length)
			}
			if rejected < 100 {
				t.Errorf("%d were rejected, so that this shows little", rejected)
			}
		})
	}
}

// The script of leases, and those that decide beside leases, compute what leasetest's Ledger does; and nothing is admitted beyond the limit.
func TestLeasesInRedisAreThoseOfTheLedger(t *testing.T) {
	for name, c := range leasedLimits {
		t.Run(name, func(t *testing.T) {
			l, rule, s, server := openLeased(t, c, core.OverflowPolicy{})
			for seed := uint64(1); seed <= 4; seed++ {
				r := rand.New(rand.NewPCG(seed, 22))
				b := &both{t: t, server: server, book: redis.NewBook(s, rule, string(rune('a'+seed))), ledger: leasetest.NewLedger(l)}
				f, err := leasetest.NewFleet(leasetest.Config{
					Limit: l, Store: b, Nodes: 5, Rand: r, Lost: 0.02, Drift: 0.0004,
					Trip: func() int64 { return int64(2000 * r.ExpFloat64()) },
				})
				must.Succeed(t, err)
				rate := []float64{0.7, 1.5, 4, 10}[seed-1] * float64(l.Requests) / float64(l.Period)
				at := float64(f.Now)
				for range 4000 {
					f.Until(int64(at))
					gap := r.ExpFloat64() / rate
					if r.IntN(2000) == 0 {
						gap += float64(r.Int64N(3 * l.Period))
					}
					at += gap
					if r.IntN(300) == 0 {
						f.Die(r.IntN(5))
					}
					cost := int64(1)
					if r.IntN(10) == 0 {
						cost = 1 + r.Int64N(6)
					}
					f.Request(r.IntN(5), cost)
				}
				if f.Until(f.Now + 2e6); f.Beyond > 0 || f.Admitted == 0 || b.n < 50 {
					t.Errorf("%d steps, %+v", b.n, f.Stats)
				}
			}
		})
	}
}

// stepping is the store of a Fleet: the scripts in Redis.
type stepping struct {
	t      *testing.T
	server *redistest.Server
	book   *redis.Book
}

func (b *stepping) Lend(now, cost int64, a *rate.LeaseAsk, _ int64) (rate.Decision, rate.LeaseGrant) {
	b.server.SetTime(now)
	d, g, err := b.book.Lend(cost, a)
	must.Succeed(b.t, err)
	return d, g
}

func (b *stepping) Decide(now, cost int64) rate.Decision {
	b.server.SetTime(now)
	d, _, err := b.book.Decide(cost)
	must.Succeed(b.t, err)
	return d
}

// If the clock of Redis is set, nodes spend what they hold to the end of their leases, which is by their own clocks. So much may be admitted beyond the
// limit, by the time of Redis, and no more: nothing if the clock is set back by less than a period. But with segments the oldest one weighs more again
// then, so that a key may be over its limit while nodes hold units of it.
func TestAStepOfRedissClockCostsWhatNodesHold(t *testing.T) {
	for name, c := range leasedLimits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, rule, s, server := openLeased(t, c, core.OverflowPolicy{})
			for i, by := range []time.Duration{-10 * time.Millisecond, -300 * time.Millisecond, -time.Second, -20 * time.Second, 10 * time.Millisecond, 300 * time.Millisecond, time.Second, 5 * time.Second} {
				r := rand.New(rand.NewPCG(uint64(i), 22))
				held, before, worst := 0, 0, 0
				book := redis.NewBook(s, rule, string(rune('a'+i)))
				f, err := leasetest.NewFleet(leasetest.Config{
					Limit: l, Store: &stepping{t, server, book}, Nodes: 4, Rand: r, Drift: 0.0004,
					Trip: func() int64 { return int64(500 * r.ExpFloat64()) },
				})
				must.Succeed(t, err)
				rate := 1.5 * float64(l.Requests) / float64(l.Period)
				at := float64(f.Now)
				next := f.Now + 2*l.Period
				for range 6000 {
					f.Until(int64(at))
					at += r.ExpFloat64() / rate
					if f.Now > next {
						next = f.Now + l.Period + r.Int64N(2*l.Period)
						worst, before = max(worst, f.Beyond-before), f.Beyond
						held += f.Holds()
						f.SetStoreClock(by.Microseconds())
					}
					f.Request(r.IntN(4), 1)
				}
				f.Until(f.Now + 2e6)
				t.Logf("steps of %v: at most %d beyond the limit", by, max(worst, f.Beyond-before))
				if by < 0 && -by < c.Period && c.Segments == 0 {
					held = 0
				}
				if f.Beyond > held || f.Admitted == 0 {
					t.Errorf("steps of %v: %d units beyond what the nodes held, %d: %+v", by, f.Beyond, held, f.Stats)
				}
			}
		})
	}
}
