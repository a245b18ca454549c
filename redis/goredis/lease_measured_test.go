package goredis_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// ofDebts judges what a fleet admits, by package memory's own decisions about all that was charged.
type ofDebts struct {
	t       *testing.T
	policy  core.OverflowPolicy
	now     int64
	store   *memory.Store
	rules   map[int64]*core.Rule // by their limit's requests
	charged []charge
	stale   bool // some was taken back
}

// charge is what was charged at a time, by a limit.
type charge struct {
	at, units int64
	limit     *rate.Limit
}

func (j *ofDebts) charge(c charge) {
	j.charged = append(j.charged, c)
	j.apply(c)
}

func (j *ofDebts) apply(c charge) {
	j.now = c.at
	must.Succeed(j.t, j.store.Settle([]core.Reservation{{Rule: j.ruleOf(c.limit), Key: "k", Units: c.units}}))
}

// ruleOf returns the rule with that limit.
func (j *ofDebts) ruleOf(l *rate.Limit) *core.Rule {
	if j.rules[l.Requests] == nil {
		r, err := core.NewRule(core.RuleConfig{Name: "r", Limit: l, OverflowPolicy: j.policy})
		must.Succeed(j.t, err)
		must.Succeed(j.t, j.store.Open(r))
		j.rules[l.Requests] = r
	}
	return j.rules[l.Requests]
}

func (j *ofDebts) begin() {
	j.rules = make(map[int64]*core.Rule)
	j.store = memory.New(memory.Config{Clock: func() int64 { return j.now }})
	for _, c := range j.charged {
		j.apply(c)
	}
}

func (j *ofDebts) allows(now, units int64, by *rate.Limit) bool {
	for {
		checks := []core.Check{{Rule: j.ruleOf(by), Key: "k", Cost: units}}
		j.now = now
		must.Succeed(j.t, j.store.Decide(checks, true))
		if checks[0].Decision.Allowed || !j.stale {
			return checks[0].Decision.Allowed
		}
		j.stale = false
		j.begin()
	}
}

// served is a request under way.
type served struct {
	node  int
	rule  *core.Rule
	life  int
	at    int64
	cost  int64
	taken bool // of a lease
	list  []core.Reservation
}

// Whatever happens to connections, nodes, clients and the limit, real nodes and a real Redis admit nothing beyond what was charged and is owed, but units that a
// node held already when a debt arose.
func TestNothingIsAdmittedBeyondADebtUnderAttack(t *testing.T) {
	steps := 500
	if n, err := strconv.Atoi(os.Getenv("WEIR_MEASURED")); err == nil {
		steps = n
	}
	for i, algorithm := range []rate.Algorithm{rate.FixedWindow, rate.SlidingWindowCounter, rate.TokenBucket, rate.SlidingWindowLog} {
		t.Run(algorithm.Row().Name, func(t *testing.T) {
			t.Parallel()
			limit := rate.LimitConfig{Algorithm: algorithm, Requests: 300, Period: 5 * time.Second, Owes: algorithm != rate.SlidingWindowLog}
			j := &ofDebts{t: t}
			var err error
			if limit.Owes {
				j.policy.Response, err = core.ParseResponseCost([]string{"bytes"})
			} else {
				j.policy.CountsSome = true
				j.policy.Count, err = core.ParseCounted([]string{"4xx"})
			}
			must.Succeed(t, err)
			a := &attacked{leasing: newLeasing(t, 0, core.RuleConfig{Name: "r", OverflowPolicy: j.policy}, limit), random: rand.New(rand.NewPCG(uint64(i), 36)), limit: limit}
			j.begin()
			for _, as := range []core.Consistency{core.Leased, core.Leased, core.Strict} {
				a.nodes = append(a.nodes, a.start(as))
			}
			lives, held := make([]int, 3), make([]int64, 3)
			var underWay []served
			reserved, admitted, taken, excused, owed := int64(0), int64(0), 0, 0, 0
			since := int64(0) // the limit is in force
			within := func(n int, node int, units int64, leased bool) {
				need := max(units, 1) + reserved
				if a.time.Load() < since+20_000_000 {
					need-- // windows that have ended have as many as by the one limit or the other
				}
				if j.allows(a.time.Load(), need, a.nodes[node].rule.Limit) {
					return
				}
				if !leased || held[node] < max(units, 1) {
					t.Fatalf("step %d: node %d, leased %t, %d units beyond what is owed, with %d reserved; it held %d", n, node, leased, units, reserved, held[node])
				}
				excused++
			}
			for n := range steps {
				a.step(time.Duration(a.random.IntN(40_000)) * time.Microsecond)
				before := append([]attackedNode{}, a.nodes...)
				if a.change(); n%1000 == 250 && algorithm != rate.TokenBucket { // a bucket drains by either
					since = a.time.Load()
					a.limits = []int64{a.limit.Requests + 1}
					a.relimit()
					a.limits = nil
					clear(held)
				}
				for k := range a.nodes {
					if a.nodes[k].store != before[k].store {
						lives[k]++
						held[k] = 0
					}
				}
				now := a.time.Load()
				if k := len(underWay); k > 0 && a.random.IntN(2) == 0 {
					i := a.random.IntN(k)
					s := underWay[i]
					underWay = append(underWay[:i], underWay[i+1:]...)
					if !s.taken {
						reserved -= s.cost
					}
					if s.life != lives[s.node] { // its node is gone
						continue
					}
					units, status := s.cost, 200
					limiter := core.NewLimiter(a.nodes[s.node].store)
					switch {
					case a.random.IntN(10) == 0: // its client has left
						units = 0
						err = limiter.Leave(s.list)
					case limit.Owes:
						units = a.random.Int64N(7)
						if a.random.IntN(50) == 0 {
							units = a.random.Int64N(200)
						}
						s.list[0].Measure(units)
						err = limiter.Finish(s.list, status)
					default:
						if units *= a.random.Int64N(2); units > 0 {
							status = 404
						}
						err = limiter.Finish(s.list, status)
					}
					if !s.taken {
						if err == nil && units > 0 {
							j.charge(charge{now, units, s.rule.Limit})
						}
					} else if units < s.cost {
						for i := range j.charged {
							if c := &j.charged[i]; c.at == s.at && c.units > 0 {
								c.units -= s.cost - units
							}
						}
						j.stale = true
						held[s.node] += s.cost - units // what was held before the debt
					} else if err == nil && units > s.cost {
						j.charge(charge{now, units - s.cost, s.rule.Limit}) // some of it may have been held
					}
					if units > s.cost {
						owed++
						for k := range a.nodes {
							for end := time.Now().Add(time.Second); a.nodes[k].store.LeaseStats().UnderWay > 0 && time.Now().Before(end); {
								time.Sleep(100 * time.Microsecond)
							}
							held[k], _ = a.nodes[k].store.Holds(a.nodes[k].rule, "k")
						}
					}
					continue
				}
				k := a.random.IntN(len(a.nodes))
				node := a.nodes[k]
				s := served{node: k, rule: node.rule, life: lives[k], at: now, cost: a.random.Int64N(4)}
				spared := !limit.Owes && a.random.IntN(4) == 0
				if spared {
					s.cost = 0
				} else if !limit.Owes {
					s.cost++
				}
				checks := []core.Check{{Rule: node.rule, Key: "k", Cost: s.cost, Spared: spared}}
				if node.store.Decide(checks, false) != nil || !checks[0].Decision.Allowed {
					continue
				}
				admitted += s.cost
				s.list = core.AppendReservations(nil, checks)
				if len(s.list) == 1 != !spared {
					t.Fatalf("step %d: %d reservations, spared %t", n, len(s.list), spared)
				}
				if spared {
					within(n, k, 0, node.as == core.Leased)
					continue
				}
				s.taken = s.list[0].Taken != nil
				within(n, k, s.cost, s.taken)
				if s.taken {
					taken++
					held[k] = max(held[k]-s.cost, 0)
					if s.cost > 0 {
						j.charge(charge{now, s.cost, s.rule.Limit})
					}
				} else {
					reserved += s.cost
				}
				underWay = append(underWay, s)
			}
			t.Logf("%d units were admitted, %d requests took of leases, %d cost more than they took, %d times while a debt had arisen since", admitted, taken, owed, excused)
			if taken < steps/50 {
				t.Error("this shows little")
			}
		})
	}
}
