package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/proxyweir/weir/core/fleetclock"
	"github.com/proxyweir/weir/core/leasetest"
	"github.com/proxyweir/weir/core/rate"
)

// world is regions with nodes that share one key's limit. By `consistency eventual` and `regions eventual` nodes decide by package rate's algorithms; what
// others have probably admitted since is not kept free, so that the excess is more than usual. By `regions lease` they are a leasetest.Fleet, whose store is home.
type world struct {
	regions, nodes int // nodes in all
	every, between time.Duration
	far            time.Duration // a call to another region
	limit          rate.LimitConfig
	load           float64
	moves          bool    // nine tenths of the demand come to one region, and to another one each period
	share          float64 // of each region, by lease
}

// area is a region: what its nodes were told of, and what it has told others, by slots. Numbers only grow.
type area struct {
	own, all map[rate.Slot]int64
	told     map[rate.Slot]int64   // its log, for others
	heard    []map[rate.Slot]int64 // by region
	nodes    []*proxy
}

// proxy is a node.
type proxy struct {
	of     *area
	state  rate.State
	untold map[rate.Slot]int64
	known  map[rate.Slot]int64 // of that, and what others have
}

const periods = 3 // that a world is played

// byRegions has worlds of several sizes, under a promise.
func byRegions(out io.Writer, promise string) error {
	play := world.play
	switch promise {
	case "eventual":
		fmt.Fprintln(out, "| regions | nodes | algorithm | demand | beyond the limit | the bound | admitted of what the limit allows |")
		fmt.Fprintln(out, "| ---: | ---: | --- | --- | ---: | ---: | ---: |")
	case "lease":
		fmt.Fprintln(out, "| regions | nodes | algorithm | share of each | demand | beyond the limit | admitted of what the limit allows | of that by shares | calls to home a second |")
		fmt.Fprintln(out, "| ---: | ---: | --- | ---: | --- | ---: | ---: | ---: | ---: |")
		play = world.lend
	default:
		return fmt.Errorf("-regions: %q is neither eventual nor lease", promise)
	}
	for _, size := range [][2]int{{3, 9}, {10, 1000}, {30, 10_000}} {
		for _, algorithm := range []rate.Algorithm{rate.FixedWindow, rate.SlidingWindowCounter, rate.TokenBucket} {
			for _, moves := range []bool{false, true} {
				w := world{regions: size[0], nodes: size[1], every: 100 * time.Millisecond, between: time.Second, far: 150 * time.Millisecond, load: 2, moves: moves, share: 0.3 / float64(size[0]),
					limit: rate.LimitConfig{Algorithm: algorithm, Period: time.Minute, Requests: max(10_000, int64(50*size[1]))}}
				if err := play(w, out); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// demand calls for each request, with the region to which it comes, and returns what the limit allows.
func (w world) demand(l *rate.Limit, r *rand.Rand, request func(at int64, place int)) float64 {
	perMicro := w.load * float64(l.Requests) / float64(l.Period)
	for at := float64(fleetclock.Start); at < float64(fleetclock.Start+periods*l.Period); at += r.ExpFloat64() / perMicro {
		place := r.IntN(w.regions)
		if w.moves && r.IntN(10) > 0 {
			place = int(int64(at)/l.Period) % w.regions
		}
		request(int64(at), place)
	}
	could := float64(periods * l.Requests)
	if l.Algorithm == rate.TokenBucket {
		could += float64(l.Capacity)
	}
	return could
}

func (w world) shape() string {
	if w.moves {
		return "moving"
	}
	return "even"
}

// lend plays a world whose regions lease.
func (w world) lend(out io.Writer) error {
	l, err := rate.NewLimit(w.limit)
	if err != nil {
		return err
	}
	part, rest, err := l.Divided(w.share, w.regions)
	if err != nil {
		return err
	}
	shares, err := newCounters(part, w.regions)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(uint64(w.nodes), 38))
	trip := float64(w.far.Microseconds()) / 2
	nodes, err := leasetest.NewFleet(leasetest.Config{
		Limit: rest, Store: leasetest.NewLedger(rest), Nodes: w.nodes, Rand: r, Drift: 0.0004, Far: true, Timeout: 2_000_000,
		Trip: func() int64 { return int64(trip * (0.9 + 0.1*r.ExpFloat64())) },
	})
	if err != nil {
		return err
	}
	judge := fleetclock.NewJudge(l)
	admitted, byShare, beyond := int64(0), int64(0), int64(0)
	could := w.demand(l, r, func(at int64, place int) {
		nodes.Until(at)
		n := place + w.regions*r.IntN((w.nodes-place+w.regions-1)/w.regions)
		if !nodes.Take(n, 1) {
			if !shares.admits(at, place) {
				return
			}
			byShare++
		}
		admitted++
		judge.Charge(at, 1)
		beyond = max(beyond, judge.Over(at))
	})
	fmt.Fprintf(out, "| %d | %d | %d/1m %s | %.2g | %s | %d | %.0f %% | %.0f %% | %.1f |\n", w.regions, w.nodes, l.Requests, l.Algorithm, w.share, w.shape(),
		beyond, 100*float64(admitted)/could, 100*float64(byShare)/float64(admitted), float64(nodes.Aside)/(periods*time.Minute.Seconds()))
	return nil
}

func (w world) play(out io.Writer) error {
	l, err := rate.NewLimit(w.limit)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(uint64(w.nodes), 37))
	c := fleetclock.Clock{Now: fleetclock.Start}
	areas := make([]*area, w.regions)
	repeat := func(every time.Duration, do func()) {
		var again func()
		again = func() {
			c.At(c.Now+every.Microseconds(), again)
			do()
		}
		c.At(c.Now+r.Int64N(every.Microseconds()), again)
	}
	for i := range areas {
		areas[i] = &area{own: map[rate.Slot]int64{}, all: map[rate.Slot]int64{}, told: map[rate.Slot]int64{}, heard: make([]map[rate.Slot]int64, w.regions)}
		for j := range areas[i].heard {
			areas[i].heard[j] = map[rate.Slot]int64{}
		}
	}
	for i, a := range areas {
		repeat(w.between, func() { // the courier
			for slot, units := range a.own {
				a.told[slot] = units
			}
			for j, b := range areas {
				if j == i {
					continue
				}
				c.At(c.Now+w.far.Microseconds()/2, func() { // what is in the other region's log when the call comes there
					for slot, units := range b.told {
						more := units - a.heard[j][slot]
						a.heard[j][slot] = units
						if more > 0 {
							c.At(c.Now+w.far.Microseconds()/2, func() { a.all[slot] += more })
						}
					}
				})
			}
		})
	}
	for i := range w.nodes {
		a := areas[i%w.regions]
		n := &proxy{of: a, untold: map[rate.Slot]int64{}, known: map[rate.Slot]int64{}}
		a.nodes = append(a.nodes, n)
		repeat(w.every, func() { n.round(l, c.Now) })
	}
	judge := fleetclock.NewJudge(l)
	lag := 2*(w.every+w.between) + w.far
	asked := fleetclock.Arrivals{Long: lag.Microseconds()}
	admitted, excess, bound := int64(0), int64(0), int64(0)
	could := w.demand(l, r, func(at int64, place int) {
		c.Until(at)
		a := areas[place]
		asked.Add(c.Now, 1)
		bound = max(bound, asked.Sum)
		if n := a.nodes[r.IntN(len(a.nodes))]; n.admits(l, c.Now, w.every.Microseconds()) {
			admitted++
			judge.Charge(c.Now, 1)
			excess = max(excess, judge.Over(c.Now))
		}
	})
	fmt.Fprintf(out, "| %d | %d | %d/1m %s | %s | %.1f %% | %.1f %% | %.0f %% |\n", w.regions, w.nodes, l.Requests, l.Algorithm, w.shape(),
		100*float64(excess)/float64(l.Requests), 100*float64(bound)/float64(l.Requests), 100*float64(admitted)/could)
	return nil
}

// admits decides on a request by what the node knows.
func (n *proxy) admits(l *rate.Limit, now, grain int64) bool {
	var d rate.Decision
	rate.Decide(l, &n.state, now, 1, &n.state, &d)
	if d.Allowed {
		n.untold[rate.SlotOf(l, now, grain)]++
	}
	return d.Allowed
}

// round tells what the node has admitted, and charges it for what others have.
func (n *proxy) round(l *rate.Limit, now int64) {
	for slot, units := range n.untold {
		n.of.own[slot] += units
		n.of.all[slot] += units
		n.known[slot] += units
		delete(n.untold, slot)
	}
	for slot, units := range n.of.all {
		if more := units - n.known[slot]; more > 0 && slot.End > now {
			n.known[slot] = units
			rate.ChargeLate(l, &n.state, &slot, now, more)
		}
	}
}
