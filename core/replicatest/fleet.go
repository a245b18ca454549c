// Package replicatest plays fleets of nodes that keep replicas of one key, on a virtual clock, around package core's part of it. It measures by how much they
// exceed the limit together, and how much they may by the bound that core's Replica states.
package replicatest

import (
	"math/rand/v2"

	"github.com/proxyweir/weir/core/fleetclock"
	"github.com/proxyweir/weir/core/rate"
)

// Store is the store of a Fleet. Exchange answers a call at a time; if cost is not 0, it decides on a request of that cost in place of charging.
type Store interface {
	Exchange(now int64, c *rate.ReplicaCall, cost int64) (rate.Decision, rate.ReplicaState)
}

// Config configures a Fleet. Times are in microseconds.
type Config struct {
	Limit *rate.Limit
	Store Store
	Nodes int
	Terms rate.SyncTerms // Slack is how long a node waits for an answer
	Rand  *rand.Rand
	Trip  func() int64 // how long a message to the store, or from it, takes: less than half of Slack
	Lost  float64      // which part of the calls is lost on the way
	Drift float64      // by which part of the time the nodes' clocks are wrong at most
	Cuts  bool         // Cut is called: the bound is the one for that
}

// Stats are what a Fleet has done.
type Stats struct {
	Requests, Admitted, Rejected int

	Calls int   // that requests waited for
	Syncs int   // calls that none waited for
	Lost  int64 // units that were lost with calls

	Excess int64 // the most units that the limit's state had more than the limit allows
	Bound  int64 // the most units that nodes were asked for in the time of the bound
	Unused int   // rejections although the limit would have allowed the request
}

// Fleet plays the nodes, by its Clock.
type Fleet struct {
	Stats
	fleetclock.Clock

	c     Config
	judge Judge
	asked Arrivals
	nodes []node
}

type node struct {
	replica rate.Replica
	drift   float64
	ahead   int64 // of its clock
	running bool  // its rounds
	cut     int64 // until then its calls do not reach the store
	failing bool
}

// NewFleet returns a fleet that has just started.
func NewFleet(c Config) *Fleet {
	f := &Fleet{c: c, Clock: fleetclock.Clock{Now: fleetclock.Start}, judge: NewJudge(c.Limit), nodes: make([]node, c.Nodes)}
	f.asked.Long = 2 * (c.Terms.Every + c.Terms.Slack)
	if c.Lost > 0 { // replicas go on for three intervals
		f.asked.Long += 2 * c.Terms.Every
	}
	if c.Cuts {
		f.asked.Long = 5*c.Terms.Every + 3*c.Terms.Slack
	}
	for i := range f.nodes {
		f.nodes[i].drift = 1 + c.Drift*(2*c.Rand.Float64()-1)
		f.nodes[i].ahead = c.Rand.Int64N(1e9)
	}
	return f
}

func (f *Fleet) mono(n *node) int64 { return n.ahead + int64(float64(f.Now-fleetclock.Start)*n.drift) }

func (f *Fleet) after(long int64, do func()) { f.At(f.Now+long, do) }

// Cut keeps a node from the store for that long, and the node knows that its calls do not get there.
func (f *Fleet) Cut(i int, long int64) { f.nodes[i].cut = f.Now + long }

// Request plays a request that comes to a node.
func (f *Fleet) Request(i int, cost int64) {
	n := &f.nodes[i]
	f.Requests++
	f.asked.Add(f.Now, cost)
	f.Bound = max(f.Bound, f.asked.Sum)
	mono := f.mono(n)
	if !rate.ReplicaFresh(&n.replica, &f.c.Terms, mono, n.failing) {
		f.ask(n, cost)
		return
	}
	var d rate.Decision
	rate.DecideByReplica(&n.replica, f.c.Limit, &f.c.Terms, cost, mono, true, &d)
	f.settle(d.Allowed, cost)
	f.touch(n)
}

func (f *Fleet) touch(n *node) {
	rate.TouchReplica(&n.replica)
	if !n.running {
		n.running = true
		f.after(f.c.Terms.Every, func() { f.round(n) })
	}
}

// ask lets the store decide on a request.
func (f *Fleet) ask(n *node, cost int64) {
	f.Calls++
	var c rate.ReplicaCall
	rate.BeginLook(f.mono(n), &c)
	if f.Now < n.cut || f.lost() {
		f.after(f.c.Terms.Slack, func() { f.settle(false, cost) })
		return
	}
	f.after(f.c.Trip(), func() {
		d, s := f.c.Store.Exchange(f.Now, &c, cost)
		f.settle(d.Allowed, cost)
		if d.Allowed {
			c.Own = cost
		}
		f.after(f.c.Trip(), func() {
			n.failing = false
			rate.EndReplicaCall(&n.replica, f.c.Limit, &f.c.Terms, &c, &s, f.mono(n))
		})
	})
}

// round synchronises a node's replica.
func (f *Fleet) round(n *node) {
	n.running = rate.ReplicaDue(&n.replica)
	if !n.running {
		return
	}
	f.after(f.c.Terms.Every, func() { f.round(n) })
	var c rate.ReplicaCall
	if !rate.BeginSync(&n.replica, f.c.Limit, &f.c.Terms, f.mono(n), &c) {
		return
	}
	f.Syncs++
	if f.Now < n.cut {
		f.after(f.c.Terms.Slack, func() {
			n.failing = true
			rate.LoseSync(&n.replica, &c, false)
		})
		return
	}
	if f.lost() {
		f.Lost += c.Units + c.Late
		f.after(f.c.Terms.Slack, func() {
			n.failing = true
			rate.LoseSync(&n.replica, &c, true)
		})
		return
	}
	f.after(f.c.Trip(), func() {
		_, s := f.c.Store.Exchange(f.Now, &c, 0)
		f.after(f.c.Trip(), func() {
			n.failing = false
			rate.EndReplicaCall(&n.replica, f.c.Limit, &f.c.Terms, &c, &s, f.mono(n))
		})
	})
}

func (f *Fleet) lost() bool { return f.c.Lost > 0 && f.c.Rand.Float64() < f.c.Lost }

func (f *Fleet) settle(allowed bool, cost int64) {
	if !allowed {
		f.Rejected++
		if f.judge.Over(f.Now)+cost <= 0 {
			f.Unused++
		}
		return
	}
	f.Admitted += int(cost)
	f.judge.Charge(f.Now, cost)
	f.Excess = max(f.Excess, f.judge.Over(f.Now))
}

// Arrivals are the units that were asked for within a time.
type Arrivals struct {
	Long  int64 // the time, in microseconds
	times []int64
	units []int64
	Sum   int64
}

// Add adds units, and forgets those that came earlier.
func (a *Arrivals) Add(now, units int64) {
	a.times = append(a.times, now)
	a.units = append(a.units, units)
	a.Sum += units
	a.drop(now)
}

func (a *Arrivals) drop(now int64) {
	for len(a.times) > 0 && a.times[0] <= now-a.Long {
		a.Sum -= a.units[0]
		a.times = a.times[1:]
		a.units = a.units[1:]
	}
}
