package main

import (
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/fleetclock"
	"github.com/proxyweir/weir/core/leasetest"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// shape is how the demand is spread over the nodes, and what happens to them.
type shape int

const (
	even     shape = iota // each node gets as much
	unequal               // the nth node gets 1/n of what the first gets
	shifting              // each ten seconds another tenth of the nodes gets nine tenths of it
	dying                 // even, and each node dies once in ten seconds
	onAndOff              // even, and all of it comes in every other second
)

var shapes = []shape{even, unequal, shifting, dying}

func (s shape) String() string {
	return []string{"even", "unequal (Zipf)", "shifting", "even, nodes die", "on and off"}[s]
}

// mode is how the nodes keep to the limit together.
type mode int

const (
	lease mode = iota // by leases
	split             // each node keeps to its part of the limit
)

// fleet is what is played.
type fleet struct {
	nodes int
	limit rate.LimitConfig
	load  float64       // demand ÷ limit
	trip  time.Duration // to the store and back, on average
	long  time.Duration
	shape shape
}

// result is what has come of it.
type result struct {
	requests int
	admitted int
	could    int // that the limit allows, if one counter decides on each as it comes
	beyond   int // units that were admitted although the limit was used up
	lost     int // of could
	calls    int // to the store
	waits    int // of which a request waits for
}

// begins is the virtual time at which a fleet begins, in microseconds: the start of a window.
const begins = fleetclock.Start

// play plays a fleet. The same fleet gets the same requests in each mode.
func (f fleet) play(m mode) (result, error) {
	var r result
	limit, err := rate.NewLimit(f.limit)
	if err != nil {
		return r, err
	}
	one, err := newCounters(limit, 1)
	if err != nil {
		return r, err
	}
	messages := rand.New(rand.NewPCG(2, 22))
	half := float64(f.trip.Microseconds()) / 2
	leases, err := leasetest.NewFleet(leasetest.Config{
		Limit: limit, Store: leasetest.NewLedger(limit), Nodes: f.nodes, Rand: messages, Drift: 0.0004, Timeout: max(50_000, 5*f.trip.Microseconds()),
		Trip: func() int64 { return int64(half * (0.5 + 0.5*messages.ExpFloat64())) },
	})
	if err != nil {
		return r, err
	}
	part := f.limit
	part.Requests = max(1, part.Requests/int64(f.nodes))
	part.Burst /= int64(f.nodes)
	partOf, err := rate.NewLimit(part)
	if err != nil {
		return r, err
	}
	parts, err := newCounters(partOf, f.nodes)
	if err != nil {
		return r, err
	}
	f.demand(func(at int64, node int) {
		r.requests++
		if one.admits(at, 0) {
			r.could++
		}
		if m == split {
			if parts.admits(at, node) {
				r.admitted++
			}
			return
		}
		leases.Until(at)
		leases.Request(node, 1)
	}, func(at int64, node int) {
		leases.Until(at)
		leases.Die(node)
	})
	if m != split {
		leases.Until(begins + (f.long + time.Second).Microseconds())
		r.admitted, r.beyond, r.calls, r.waits = leases.Admitted, leases.Beyond, leases.Calls+leases.Aside, leases.Calls
	}
	r.lost = max(0, r.could-r.admitted)
	return r, nil
}

// demand calls for each request, in the order of time, and for each death.
func (f fleet) demand(request, death func(at int64, node int)) {
	random := rand.New(rand.NewPCG(1, 22))
	rate := f.load * float64(f.limit.Requests) / float64(f.limit.Period.Microseconds()) // requests a microsecond
	end := float64(f.long.Microseconds())
	dies := math.Inf(1)
	if f.shape == dying {
		dies = 0
	}
	var sums []float64
	second := -1
	for at := random.ExpFloat64() / rate; at < end; at += random.ExpFloat64() / rate {
		if f.shape == onAndOff && int(at/1e6)%2 == 1 {
			at = math.Floor(at/1e6)*1e6 + 1e6
		}
		for dies < at {
			death(begins+int64(dies), random.IntN(f.nodes))
			dies += 1e7 / float64(f.nodes) * random.ExpFloat64()
		}
		if now := int(at / 1e6); now != second {
			second, sums = now, f.weights(now)
		}
		request(begins+int64(at), sort.SearchFloat64s(sums, random.Float64()*sums[f.nodes-1]))
	}
}

// weights returns the running sums of what the nodes get in a second.
func (f fleet) weights(second int) []float64 {
	sums := make([]float64, f.nodes)
	sum := 0.0
	tenth := (f.nodes + 9) / 10
	for i := range sums {
		weight := 1.0
		switch f.shape {
		case unequal:
			weight = 1 / float64(i+1)
		case shifting:
			weight = 0.1 / float64(f.nodes)
			if (i+f.nodes-second/10*tenth%f.nodes)%f.nodes < tenth {
				weight += 0.9 / float64(tenth)
			}
		}
		sum += weight
		sums[i] = sum
	}
	return sums
}

// counters are counters of one limit, in one memory.
type counters struct {
	memory *memory.Store
	checks []core.Check
	keys   []string
	now    int64
}

func newCounters(limit *rate.Limit, many int) (*counters, error) {
	c := &counters{keys: make([]string, many)}
	c.memory = memory.New(memory.Config{Clock: func() int64 { return c.now }})
	rule, err := core.NewRule(core.RuleConfig{Name: "limit", Limit: limit})
	if err != nil {
		return nil, err
	}
	for i := range c.keys {
		c.keys[i] = strconv.Itoa(i)
	}
	c.checks = []core.Check{{Rule: rule, Cost: 1}}
	return c, c.memory.Open(rule)
}

func (c *counters) admits(at int64, of int) bool {
	c.now = at
	c.checks[0].Key = c.keys[of]
	_ = c.memory.Decide(c.checks, false) // memory does not fail
	return c.checks[0].Decision.Allowed
}
