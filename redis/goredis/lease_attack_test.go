package goredis_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/tools/must"
)

// attacked is a fleet of nodes, strict ones among those that lease, whose connections are delayed and lost, and whose limit changes. Its clock is the test's.
type attacked struct {
	*leasing
	random *rand.Rand
	limit  rate.LimitConfig
	limits []int64 // of requests, one after the other
	nodes  []attackedNode
	memory *memory.Store
	judge  []core.Check // decides on each admission
}

type attackedNode struct {
	store *redis.Store
	rule  *core.Rule
	as    core.Consistency
}

// start starts a node. It waits for no answer longer than 20 ms.
func (a *attacked) start(as core.Consistency) attackedNode {
	a.t.Helper()
	c, g := a.configs()
	c.Lease = time.Minute // the clock is faster than that by which reservations are renewed
	g.Timeout, g.ReadTimeout = 20*time.Millisecond, 200*time.Millisecond
	client, err := goredis.New(g)
	must.Succeed(a.t, err)
	c.Client = client
	s, err := redis.NewStore(c)
	must.Succeed(a.t, err)
	a.t.Cleanup(func() { _ = s.CloseNow() })
	return attackedNode{s, a.rule(s, as), as}
}

// rule opens the rule with its present limit in a store.
func (a *attacked) rule(s core.Store, as core.Consistency) *core.Rule {
	a.t.Helper()
	l, err := rate.NewLimit(a.limit)
	must.Succeed(a.t, err)
	r, err := core.NewRule(core.RuleConfig{Name: "r", Limit: l, Consistency: as, OverflowPolicy: a.config.OverflowPolicy})
	if err == nil {
		err = s.Open(r)
	}
	must.Succeed(a.t, err)
	return r
}

// change has something happen to the fleet, once in a while.
func (a *attacked) change() {
	k := a.random.IntN(len(a.nodes))
	switch x := a.random.IntN(1500); {
	case x < 10:
		a.proxy.Delay(time.Duration(a.random.IntN(40)) * time.Millisecond)
	case x < 13:
		a.proxy.Cut()
	case x < 15:
		a.proxy.BlackHole()
	case x < 17:
		a.proxy.DropReply("evalsha")
	case x < 60:
		a.proxy.Pass()
	case x < 63: // the node dies, with what it holds
		a.nodes[k] = a.start(a.nodes[k].as)
	case x < 65: // the node ends, and one with another consistency begins
		_ = a.nodes[k].store.CloseNow()
		a.nodes[k] = a.start([]core.Consistency{core.Strict, core.Leased}[a.random.IntN(2)])
	case x < 69 && len(a.limits) > 0:
		a.relimit()
	case x < 71:
		a.step(2 * time.Second)
	}
}

// relimit puts another limit in force, in all nodes.
func (a *attacked) relimit() {
	a.limit.Requests = a.limits[a.random.IntN(len(a.limits))]
	for i := range a.nodes {
		a.nodes[i].rule = a.rule(a.nodes[i].store, a.nodes[i].as)
	}
	if a.memory != nil {
		a.judge[0].Rule = a.rule(a.memory, core.Strict)
	}
}

// Whatever happens to connections, nodes and the limit, real nodes and a real Redis admit nothing beyond the limit that is in force.
func TestNothingIsAdmittedBeyondALimitUnderAttack(t *testing.T) {
	for i, algorithm := range []rate.Algorithm{rate.FixedWindow, rate.SlidingWindowCounter, rate.SlidingWindowLog, rate.TokenBucket, rate.SlidingWindowSegments} {
		t.Run(algorithm.Row().Name, func(t *testing.T) {
			limit := rate.LimitConfig{Algorithm: algorithm, Requests: 2000, Period: 20 * time.Second}
			if algorithm == rate.SlidingWindowSegments {
				limit.Segments = 10
			}
			a := &attacked{leasing: newLeasing(t, 0, core.RuleConfig{Name: "r"}, limit), random: rand.New(rand.NewPCG(uint64(i), 5)), limit: limit}
			a.limits = []int64{500, 1000, 2000, 4000}
			a.memory = memory.New(memory.Config{Clock: a.time.Load})
			a.judge = []core.Check{{Rule: a.rule(a.memory, core.Strict), Key: "k"}}
			for _, as := range []core.Consistency{core.Leased, core.Leased, core.Strict} {
				a.nodes = append(a.nodes, a.start(as))
			}
			admitted := 0
			for n := range 2000 {
				a.step(time.Duration(a.random.IntN(8000)) * time.Microsecond)
				a.change()
				node := a.nodes[a.random.IntN(len(a.nodes))]
				c := core.Check{Rule: node.rule, Key: "k", Cost: 1 + a.random.Int64N(10)*a.random.Int64N(2)}
				checks := []core.Check{c}
				if node.store.Decide(checks, false) != nil || !checks[0].Decision.Allowed {
					continue
				}
				admitted++
				a.judge[0].Cost = c.Cost
				if err := a.memory.Decide(a.judge, false); err != nil || !a.judge[0].Decision.Allowed {
					t.Fatalf("request %d: beyond the limit of %d: %+v, %v", n, a.limit.Requests, checks[0].Decision, err)
				}
				if d := checks[0].Decision; d.Remaining >= d.Limit {
					t.Fatalf("request %d: nothing is used: %+v", n, d)
				}
			}
			if t.Logf("%d were admitted", admitted); admitted == 0 {
				t.Error("nothing was admitted")
			}
		})
	}
}
