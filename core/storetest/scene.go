package storetest

import (
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// each plays scenes with each of some variants, in a subtest. Each scene begins at start, on a store of its own. A shared store
// would see the clock step back, and some keys of earlier scenes would have expired in Redis.
func each(t *testing.T, newStore NewStore, of string, list []variant, scenes ...func(s *scene, v variant)) {
	for _, v := range list {
		t.Run(of+v.name, func(t *testing.T) {
			for _, play := range scenes {
				play(newScene(t, newStore), v)
			}
		})
	}
}

// eachPair is each for every pair of variants from two lists.
func eachPair(t *testing.T, newStore NewStore, list, others []variant, scenes ...func(s *scene, v, w variant)) {
	for _, v := range list {
		for _, w := range others {
			t.Run(v.name+" with "+w.name, func(t *testing.T) {
				for _, play := range scenes {
					play(newScene(t, newStore), v, w)
				}
			})
		}
	}
}

// scene is a store under test, with its clock.
type scene struct {
	t     *testing.T
	clock *Clock
	store core.Store
}

func newScene(t *testing.T, newStore NewStore) *scene {
	t.Helper()
	clock := &Clock{now: start()}
	return &scene{t, clock, newStore(t, clock)}
}

// open opens a rule, and the rules beside it.
func (s *scene) open(c core.RuleConfig) *core.Rule {
	s.t.Helper()
	return s.opened(s.rule(c))
}

// rule returns a rule that is not open yet.
func (s *scene) rule(c core.RuleConfig) *core.Rule {
	s.t.Helper()
	if c.KeySpec == "" {
		c.KeySpec = "client_ip"
	}
	r, err := core.NewRule(c)
	must.Succeed(s.t, err)
	return r
}

func (s *scene) opened(r *core.Rule) *core.Rule {
	s.t.Helper()
	must.Succeed(s.t, core.NewLimiter(s.store).Open(r))
	return r
}

func (s *scene) decide(checks []core.Check, peek bool) {
	s.t.Helper()
	must.Succeed(s.t, s.store.Decide(checks, peek))
}

// request decides on a request under the rules of all checks.
func (s *scene) request(checks ...core.Check) []core.Check {
	s.t.Helper()
	s.decide(checks, false)
	return checks
}

// take asks for units of a rule, and returns the decision.
func (s *scene) take(r *core.Rule, key string, cost int64) rate.Decision {
	s.t.Helper()
	return s.request(core.Check{Rule: r, Key: key, Cost: cost})[0].Decision
}

// peek returns what take would return. It reserves nothing.
func (s *scene) peek(r *core.Rule, key string, cost int64) rate.Decision {
	s.t.Helper()
	checks := []core.Check{{Rule: r, Key: key, Cost: cost}}
	s.decide(checks, true)
	if checks[0].Ticket != 0 {
		s.t.Fatal("a peek has a ticket")
	}
	return checks[0].Decision
}

// both asks for a unit of each of two rules in one call, and returns the decisions in that order. With swapped the order of the
// checks is reversed.
func (s *scene) both(x, y *core.Rule, key string, swapped, peek bool) (rate.Decision, rate.Decision) {
	s.t.Helper()
	if swapped {
		b, a := s.ask(one(y, key), one(x, key), peek)
		return a.Decision, b.Decision
	}
	a, b := s.ask(one(x, key), one(y, key), peek)
	return a.Decision, b.Decision
}

// exhaust takes all units that a new key of a rule has, one by one.
func (s *scene) exhaust(r *core.Rule, key string, units int64) {
	s.t.Helper()
	for i := int64(0); i < units; i++ {
		if d := s.take(r, key, 1); !d.Allowed {
			s.t.Fatalf("%s, %s: request %d of %d is rejected: %+v", r.Identity, key, i+1, units, d)
		}
	}
	if d := s.peek(r, key, 1); d.Allowed {
		s.t.Fatalf("%s, %s: after %d units one more would be admitted: %+v", r.Identity, key, units, d)
	}
}

// whatever stands for any number of remaining units.
const whatever int64 = -1

// yes fails unless a decision allows its request, and leaves that many units.
func (s *scene) yes(what string, d rate.Decision, remaining int64) {
	s.t.Helper()
	if !d.Allowed || d.RetryAfter != 0 || remaining != whatever && d.Remaining != remaining {
		s.t.Fatalf("%s: got %+v, want yes, and %d left (-1: whatever)", what, d, remaining)
	}
}

// no fails unless a decision rejects its request for some time, and leaves that many units.
func (s *scene) no(what string, d rate.Decision, remaining int64) {
	s.t.Helper()
	if d.Allowed || d.RetryAfter <= 0 || remaining != whatever && d.Remaining != remaining {
		s.t.Fatalf("%s: got %+v, want no, and %d left (-1: whatever)", what, d, remaining)
	}
}

// never fails unless a decision says that its request can never be allowed.
func (s *scene) never(what string, d rate.Decision) {
	s.t.Helper()
	if d.Allowed || d.RetryAfter != rate.Never {
		s.t.Fatalf("%s: got %+v, want no, and never", what, d)
	}
}

// waits fails unless a decision allows its request after a delay.
func (s *scene) waits(what string, d rate.Decision) {
	s.t.Helper()
	if !d.Allowed || d.Delay <= 0 {
		s.t.Fatalf("%s: got %+v, want it to wait", what, d)
	}
}

// comesTrue waits for the time after which a decision has promised that units are available. It fails unless they are, and were
// not a microsecond before.
func (s *scene) comesTrue(r *core.Rule, key string, cost int64, promised rate.Decision, after int64) rate.Decision {
	s.t.Helper()
	now := s.clock.Now()
	s.clock.Add(after - 1)
	if early := s.peek(r, key, cost); early.Allowed {
		s.t.Fatalf("%s at %d, cost %d: got %+v; yet it is admitted a microsecond earlier: %+v", r.Limit, now, cost, promised, early)
	}
	s.clock.Add(1)
	then := s.peek(r, key, cost)
	if !then.Allowed {
		s.t.Fatalf("%s at %d, cost %d: got %+v; yet it is not admitted then: %+v", r.Limit, now, cost, promised, then)
	}
	return then
}

// unchanged fails unless a decision equals an earlier one.
func (s *scene) unchanged(what string, before, after rate.Decision) {
	s.t.Helper()
	if before != after {
		s.t.Fatalf("%s: was %+v, is %+v", what, before, after)
	}
}
