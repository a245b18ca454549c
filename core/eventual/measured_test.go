//go:build gc
// +build gc

// The second line above is for Yaegi, which does not load this test: it leaves the file out.

package eventual_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/eventual"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/core/usage"
	"github.com/proxyweir/weir/tools/must"
)

// Instances that tell each other at once decide by all that responses have cost on any of them, as one that has it all.
func TestInstancesThatTellAtOnceOweWhatOneWould(t *testing.T) {
	steps := 2000
	if n, err := strconv.Atoi(os.Getenv("WEIR_MEASURED")); err == nil {
		steps = n
	}
	bytes, err := core.ParseResponseCost([]string{"bytes"})
	must.Succeed(t, err)
	for _, algorithm := range []rate.Algorithm{rate.FixedWindow, rate.SlidingWindowCounter, rate.SlidingWindowLog, rate.TokenBucket} {
		t.Run(algorithm.Row().Name, func(t *testing.T) {
			const units = 32
			l, err := rate.NewLimit(rate.LimitConfig{Algorithm: algorithm, Requests: units, Period: 1 << 24 * time.Microsecond, Owes: true}) // a bucket's level is exact in a double
			must.Succeed(t, err)
			now := int64(1_700_006_400_000_000)
			random := rand.New(rand.NewPCG(1, 36))
			debtor := storetest.NewDebtor(l, "k", now)
			var nodes []*node
			for range 3 {
				s := eventual.New(eventual.Config{Clock: func() int64 { return now }, Read: time.Second, Write: time.Second})
				r, err := core.NewRule(core.RuleConfig{Name: "r", Limit: l, OverflowPolicy: core.OverflowPolicy{Response: bytes}})
				must.Succeed(t, err)
				must.Succeed(t, s.Open(r))
				nodes = append(nodes, &node{t, s, r, strconv.Itoa(len(nodes))})
				nodes[len(nodes)-1].decide("k", 0, true)
			}
			type request struct {
				node int
				list []core.Reservation
			}
			var underWay []request
			reserved := make([]int64, len(nodes))
			allowed, owing := 0, 0
			for step := range steps {
				now += random.Int64N(1 << 21)
				for _, n := range nodes { // nothing that is new: what they are probably admitted is forgotten after a while
					n.store.Hear(&usage.News{})
				}
				if n := len(underWay); n > 0 && random.IntN(2) == 0 {
					i := random.IntN(n)
					q := underWay[i]
					underWay = append(underWay[:i], underWay[i+1:]...)
					reserved[q.node] -= q.list[0].Cost
					cost := random.Int64N(8)
					if random.IntN(10) == 0 {
						cost = random.Int64N(6 * units)
					}
					q.list[0].Measure(cost)
					must.Succeed(t, core.NewLimiter(nodes[q.node].store).Finish(q.list, 200))
					debtor.Charge(now, cost)
					var others []*node
					for k, n := range nodes {
						if k != q.node {
							others = append(others, n)
						}
					}
					nodes[q.node].tell(now, others...)
					continue
				}
				k := random.IntN(len(nodes))
				cost := random.Int64N(6)
				want := debtor.Allows(now, max(cost, 1)+reserved[k])
				nodes[k].decide("k", cost, true)
				checks := []core.Check{{Rule: nodes[k].rule, Key: "k", Cost: cost}}
				_ = nodes[k].store.Memory().Decide(checks, true) // without what others are probably admitted
				if checks[0].Decision.Allowed != want {
					t.Fatalf("step %d: node %d at a cost of %d, with %d reserved: %+v, want %t", step, k, cost, reserved[k], checks[0].Decision, want)
				}
				if !want && checks[0].Decision.RetryAfter > l.Period {
					owing++
				}
				if _ = nodes[k].store.Decide(checks, false); !checks[0].Decision.Allowed {
					continue
				}
				allowed++
				reserved[k] += cost
				underWay = append(underWay, request{k, core.AppendReservations(nil, checks)})
			}
			if allowed < steps/40 || owing < steps/100 {
				t.Errorf("%d of %d are allowed, and %d wait for longer than a period: this proves little", allowed, steps, owing)
			}
		})
	}
}
