// Package leasetest plays fleets of nodes that lease units of one key's limit, on a virtual clock, around package rate's part of it: Ledger is the store's part,
// and Fleet the nodes, the net between them, and their clocks. Package core/storetest does the same for what all stores have in common.
package leasetest

import (
	"math"
	"math/rand/v2"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/fleetclock"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// Store is the store of a Fleet: a Ledger, or a real one.
type Store interface {
	Lend(now, cost int64, a *rate.LeaseAsk, length int64) (rate.Decision, rate.LeaseGrant)
	Decide(now, cost int64) rate.Decision
}

// Measuring is a Store whose requests are charged when their responses have ended.
type Measuring interface {
	Store
	Reserve(now, cost int64) bool
	Settle(now, reserved, units int64) (free int64) // less than 0: so many are owed
}

// Judge judges what is admitted of requests that are charged when their responses have ended.
type Judge interface {
	// Admit judges a request that passes by its cost; reserved of it is reserved, and not charged. since is when the store has lent last what it is admitted by;
	// math.MaxInt64: the store has decided.
	Admit(now, cost, reserved, since int64) bool

	// Owe ends a reservation, and charges units, whatever the limit says. free is how many are free in the store then.
	Owe(now, reserved, units, free int64)

	Back(units, charged int64) // takes back units that were charged then
}

// Config configures a Fleet. Times are in microseconds.
type Config struct {
	Limit *rate.Limit
	Store Store
	Nodes int
	Rand  *rand.Rand
	Trip  func() int64 // how long a message to the store, or from it, takes
	Lost  float64      // which part of the messages is lost
	Drift float64      // by which part of the time the nodes' clocks are wrong at most

	// Timeout is after how long a node takes an answer for lost; 0 means 500 ms. No request waits that long, but late answers count.
	Timeout int64

	// Strict lets the store decide on every request.
	Strict bool

	// Far is for Take: nodes lease on the terms of another region's store.
	Far bool

	// Judge judges what Serve admits. Store is Measuring then.
	Judge Judge
}

// Stats are what a Fleet has done.
type Stats struct {
	Requests, Admitted, Rejected int

	Beyond int // units that were admitted beyond the limit
	Unused int // rejections although the limit would have allowed the request
	Calls  int // that requests waited for
	Aside  int // that none waited for
}

// Fleet plays the nodes, by its Clock.
type Fleet struct {
	Stats
	fleetclock.Clock

	c      Config
	ahead  int64 // how far the store's clock is from the virtual one
	terms  rate.LeaseTerms
	judge  *memory.Store
	checks []core.Check
	nodes  []node
}

// node is one of the fleet, with its clocks.
type node struct {
	lease     rate.Lease
	since     int64 // when the store has lent something last
	life      int   // a call that was made in an earlier life is nobody's
	drift     float64
	mono      int64 // how far its clocks are from the virtual one
	wall      int64
	stopped   int64 // until then
	suspended bool  // since the last look at the clocks
	back      bool
	timer     bool
}

// NewFleet returns a fleet that has just started.
func NewFleet(c Config) (*Fleet, error) {
	f := &Fleet{c: c, Clock: fleetclock.Clock{Now: fleetclock.Start}}
	if c.Timeout == 0 {
		f.c.Timeout = 500_000
	}
	var err error
	f.terms, err = rate.LeaseTermsOf(c.Limit)
	if c.Far {
		f.terms, err = rate.RegionLeaseTermsOf(c.Limit)
	}
	if err != nil {
		return nil, err
	}
	f.judge = memory.New(memory.Config{Clock: f.atStore})
	r, err := core.NewRule(core.RuleConfig{Name: "judge", Limit: c.Limit})
	if err != nil {
		return nil, err
	}
	f.checks = []core.Check{{Rule: r, Key: "k"}}
	f.nodes = make([]node, c.Nodes)
	for i := range f.nodes {
		n := &f.nodes[i]
		n.drift = 1 + c.Drift*(2*c.Rand.Float64()-1)
		n.wall = c.Rand.Int64N(1e9)
		f.restart(n)
	}
	return f, f.judge.Open(r)
}

func (f *Fleet) restart(n *node) {
	n.life++
	n.timer = false
	n.lease = rate.NewLease(f.mono(n))
}

// clocks returns the times of both clocks, for a look at them.
func (f *Fleet) clocks(n *node) (mono, wall int64) {
	n.suspended, n.back = false, false
	return f.mono(n), fleetclock.Start + f.mono(n) - n.mono + n.wall
}

func (f *Fleet) mono(n *node) int64 { return int64(float64(f.Now-fleetclock.Start)*n.drift) + n.mono }

// Die ends a node, with what it holds. Another begins in its place.
func (f *Fleet) Die(i int) { f.restart(&f.nodes[i]) }

// Stop stops a node for that long. Its clocks go on.
func (f *Fleet) Stop(i int, long int64) { f.nodes[i].stopped = f.Now + long }

// Suspend suspends a node's machine for that long: one of its clocks stands still. If the other has been set back since the node last looked, the suspension
// could not be seen, and does not take place.
func (f *Fleet) Suspend(i int, long int64) {
	if n := &f.nodes[i]; !n.back {
		n.suspended = true
		n.stopped = f.Now + long
		n.mono -= long
	}
}

// SetClock moves a node's wall clock.
func (f *Fleet) SetClock(i int, by int64) {
	if n := &f.nodes[i]; by > 0 || !n.suspended {
		n.back = n.back || by < 0
		n.wall += by
	}
}

// SetStoreClock moves the store's clock, and that of the judge.
func (f *Fleet) SetStoreClock(by int64) { f.ahead += by }

func (f *Fleet) atStore() int64 { return f.Now + f.ahead }

// Holds returns how many units all nodes hold.
func (f *Fleet) Holds() int {
	units := int64(0)
	for i := range f.nodes {
		n := &f.nodes[i]
		left, _ := rate.LeaseHolds(&n.lease, f.mono(n), fleetclock.Start+f.mono(n)-n.mono+n.wall)
		units += left
	}
	return int(units)
}

// Request plays a request that comes to a node.
func (f *Fleet) Request(i int, cost int64) {
	n := &f.nodes[i]
	if f.Now < n.stopped {
		return
	}
	f.Requests++
	if f.c.Strict {
		f.decide(n, cost, n.life)
		return
	}
	var a rate.LeaseAsk
	mono, wall := f.clocks(n)
	switch rate.UseLease(&n.lease, &f.terms, cost, mono, wall, &a) {
	case rate.Held:
		f.admit(cost)
	case rate.HeldAndAsk:
		f.admit(cost)
		f.Aside++
		f.call(n, 0, a)
	case rate.Refused:
		f.reject(cost)
	case rate.Asking:
		f.Calls++
		f.call(n, cost, a)
	case rate.Missing:
		f.decide(n, cost, n.life)
	}
}

// Take plays a request that waits for no call, and is admitted if the node holds what it costs: it reports whether that is so. The caller judges it.
func (f *Fleet) Take(i int, cost int64) bool {
	n := &f.nodes[i]
	var a rate.LeaseAsk
	mono, wall := f.clocks(n)
	step := rate.UseLease(&n.lease, &f.terms, cost, mono, wall, &a)
	if step == rate.HeldAndAsk || step == rate.Asking {
		f.Aside++
		f.call(n, 0, a)
	}
	return step == rate.Held || step == rate.HeldAndAsk
}

// call makes a call about a lease.
func (f *Fleet) call(n *node, cost int64, a rate.LeaseAsk) {
	life := n.life
	answered := false
	lost := f.lost()
	executed := !lost || f.unaware()
	f.At(f.Now+f.c.Timeout, func() {
		if !answered && n.life == life {
			answered = true
			rate.OrphanLease(&n.lease, &f.terms, &a, executed)
			f.returnLater(n)
		}
	})
	if lost {
		return
	}
	f.At(f.Now+f.c.Trip(), func() {
		d, g := f.c.Store.Lend(f.atStore(), cost, &a, f.terms.Length)
		if cost > 0 {
			f.settle(d.Allowed, cost)
		}
		at := f.Now
		if f.lost() {
			return
		}
		f.At(f.Now+f.c.Trip(), func() {
			f.wake(n, func() {
				if n.life != life || answered {
					return
				}
				answered = true
				if rate.LeaseGained(&a, &g) > 0 {
					n.since = at
				}
				rate.GrantLease(&n.lease, &f.terms, &a, &g, f.mono(n))
				if cost > 0 {
					rate.ConcludeLease(&n.lease, &f.terms, cost, &d, f.mono(n))
				}
				f.returnLater(n)
			})
		})
	})
}

// wake does something in a node, as soon as it is not stopped.
func (f *Fleet) wake(n *node, do func()) {
	if f.Now < n.stopped {
		f.At(n.stopped, func() { f.wake(n, do) })
		return
	}
	do()
}

// decide lets the store decide on a request.
func (f *Fleet) decide(n *node, cost int64, life int) {
	f.Calls++
	if f.lost() {
		return
	}
	f.At(f.Now+f.c.Trip(), func() {
		d := f.c.Store.Decide(f.atStore(), cost)
		f.settle(d.Allowed, cost)
		if f.lost() || f.c.Strict {
			return
		}
		f.At(f.Now+f.c.Trip(), func() {
			f.wake(n, func() {
				if n.life == life {
					rate.ConcludeLease(&n.lease, &f.terms, cost, &d, f.mono(n))
				}
			})
		})
	})
}

// returnLater gives leases of a node back when their time comes, for as long as it has any.
func (f *Fleet) returnLater(n *node) {
	if n.timer {
		return
	}
	n.timer = true
	life := n.life
	f.At(f.Now+f.terms.Length/8, func() {
		f.wake(n, func() {
			if n.life != life {
				return
			}
			n.timer = false
			var a rate.LeaseAsk
			mono, wall := f.clocks(n)
			if rate.ReturnLease(&n.lease, mono, wall, &a) {
				f.giveBack(a)
			}
			if rate.LeaseHeld(&n.lease) {
				f.returnLater(n)
			}
		})
	})
}

// giveBack gives units back, again and again while the node knows that the store has not got the call.
func (f *Fleet) giveBack(a rate.LeaseAsk) {
	f.Aside++
	switch {
	case !f.lost():
		f.At(f.Now+f.c.Trip(), func() { f.c.Store.Lend(f.atStore(), 0, &a, f.terms.Length) })
	case !f.unaware():
		f.At(f.Now+50_000, func() { f.giveBack(a) })
	}
}

// unaware reports whether a node does not know that the store has not got a call.
func (f *Fleet) unaware() bool { return f.c.Rand.IntN(2) == 0 }

func (f *Fleet) lost() bool { return f.c.Lost > 0 && f.c.Rand.Float64() < f.c.Lost }

func (f *Fleet) settle(allowed bool, cost int64) {
	if allowed {
		f.admit(cost)
	} else {
		f.reject(cost)
	}
}

// admit judges an admission by package memory's own decision.
func (f *Fleet) admit(cost int64) {
	f.Admitted += int(cost)
	f.checks[0].Cost = cost
	_ = f.judge.Decide(f.checks, false) // memory does not fail
	if !f.checks[0].Decision.Allowed {
		f.Beyond += int(cost)
	}
}

func (f *Fleet) reject(cost int64) {
	f.Rejected++
	f.checks[0].Cost = cost
	_ = f.judge.Decide(f.checks, true)
	if f.checks[0].Decision.Allowed {
		f.Unused++
	}
}

// Serve plays a request that comes to a node, passes by its cost, and has cost so many units when its response has ended.
func (f *Fleet) Serve(i int, cost, units, after int64) {
	n := &f.nodes[i]
	if f.Now < n.stopped {
		return
	}
	f.Requests++
	var a rate.LeaseAsk
	mono, wall := f.clocks(n)
	step := rate.UseLease(&n.lease, &f.terms, cost, mono, wall, &a)
	if step == rate.HeldAndAsk || step == rate.Asking {
		f.Aside++
		f.call(n, 0, a)
	}
	life, at := n.life, f.Now
	switch step {
	case rate.Refused:
		f.Rejected++
	case rate.Held, rate.HeldAndAsk:
		taken := rate.TakenOfLease(&n.lease, cost)
		f.judged(f.c.Judge.Admit(f.Now, cost, 0, n.since), cost)
		f.At(f.Now+after, func() {
			f.wake(n, func() {
				if n.life == life {
					f.settleTaken(n, &taken, cost, units, at)
				}
			})
		})
	default:
		f.reserve(n, cost, units, after)
	}
}

func (f *Fleet) judged(within bool, cost int64) {
	f.Admitted += int(cost)
	if !within {
		f.Beyond += max(int(cost), 1)
	}
}

// settleTaken ends a request that has taken of a lease.
func (f *Fleet) settleTaken(n *node, taken *rate.LeaseTaken, cost, units, at int64) {
	var a rate.LeaseAsk
	mono, wall := f.clocks(n)
	beyond := rate.SettleLease(&n.lease, &f.terms, taken, units, mono, wall, &a)
	if held := units - cost - beyond; held > 0 {
		f.judged(f.c.Judge.Admit(f.Now, held, 0, n.since), held)
	} else if held < 0 {
		f.c.Judge.Back(-held, at)
	}
	if a.Size > 0 || a.Spent < 0 {
		f.giveBack(a)
	}
	if beyond > 0 && !f.lost() {
		f.At(f.Now+f.c.Trip(), func() {
			f.c.Judge.Owe(f.Now, 0, beyond, f.c.Store.(Measuring).Settle(f.atStore(), 0, beyond))
		})
	}
}

// reserve lets the store decide on a request. If its node dies, nothing is charged.
func (f *Fleet) reserve(n *node, cost, units, after int64) {
	f.Calls++
	life := n.life
	if f.lost() {
		return
	}
	f.At(f.Now+f.c.Trip(), func() {
		store := f.c.Store.(Measuring)
		d := rate.Decision{Limit: f.c.Limit.Quota, Allowed: store.Reserve(f.atStore(), cost)}
		if d.Allowed {
			f.judged(f.c.Judge.Admit(f.Now, cost, cost, math.MaxInt64), cost)
			f.At(f.Now+after, func() {
				if n.life != life {
					units = 0
				}
				f.c.Judge.Owe(f.Now, cost, units, store.Settle(f.atStore(), cost, units))
			})
		} else {
			f.Rejected++
			d.RetryAfter = f.terms.Pace
		}
		f.At(f.Now+f.c.Trip(), func() {
			f.wake(n, func() {
				if n.life == life {
					rate.ConcludeLease(&n.lease, &f.terms, cost, &d, f.mono(n))
				}
			})
		})
	})
}
