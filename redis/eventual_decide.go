package redis

import (
	"strconv"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// decideEventually decides on checks whose rules are all eventual.
func (s *Store) decideEventually(rules []*openRule, checks []core.Check, peek bool, now int64) error {
	e := &s.eventually
	for _, o := range rules {
		if err := e.ready(o, now); err != nil {
			s.lastOfEventual(checks)
			return err
		}
	}
	_ = e.of.Decide(checks, peek) // memory never fails
	s.noteTaken(checks)
	return nil
}

// noteTaken notes the requests that are charged when their responses have ended.
func (s *Store) noteTaken(checks []core.Check) {
	for i := range checks {
		if checks[i].Ticket != 0 {
			s.renewals.taken.Add(1)
		}
	}
}

// decideMixed decides on checks of which some have rules that are eventual. While others decide, the units of these are reserved.
func (s *Store) decideMixed(q *callState, checks []core.Check, peek bool, now int64) error {
	var own, others []int
	var rules []*openRule
	for i := range checks {
		if q.rules[i].sync == nil {
			others = append(others, i)
		} else {
			own = append(own, i)
			rules = append(rules, q.rules[i])
		}
	}
	if len(others) == 0 {
		return s.decideEventually(rules, checks, peek, now)
	}
	e := &s.eventually
	some := make([]core.Check, len(own))
	for n, i := range own {
		some[n] = checks[i]
	}
	err := s.decideEventually(rules, some, true, now)
	if err != nil {
		s.lastKnown(q, checks, s.clock())
	} else {
		var reserved []*memory.Untold
		if !peek {
			reserved = e.of.Reserve(some)
		}
		rejected := false
		for n := range some {
			rejected = rejected || !some[n].Decision.Allowed && !some[n].Rule.Shadow
		}
		err = s.decideOthers(q, checks, others, peek || rejected, !peek && rejected, now)
		if err != nil {
			s.lastOfEventual(some)
		}
		for _, i := range others {
			rejected = rejected || !checks[i].Decision.Allowed && !checks[i].Rule.Shadow
		}
		if reserved != nil {
			e.of.Conclude(some, reserved, err == nil && !rejected)
			s.noteTaken(some)
		}
	}
	if err != nil {
		s.lastOfEventual(some)
	}
	for n, i := range own {
		checks[i] = some[n]
	}
	return err
}

// decideOthers decides on the checks at those places, whose rules are not eventual. With rejected, a rule that is has rejected the request: only rules that
// reject it, too, and have count_rejected, are charged.
func (s *Store) decideOthers(q *callState, checks []core.Check, places []int, peek, rejected bool, now int64) error {
	err := s.decideSome(q, checks, places, peek, now)
	if err != nil || !rejected {
		return err
	}
	var counting []int
	for _, i := range places {
		if !checks[i].Decision.Allowed && checks[i].Rule.CountRejected {
			counting = append(counting, i)
		}
	}
	return s.decideSome(q, checks, counting, false, now)
}

// decideSome decides on the checks at those places.
func (s *Store) decideSome(q *callState, checks []core.Check, places []int, peek bool, now int64) error {
	if len(places) == 0 {
		return nil
	}
	some := make([]core.Check, len(places))
	rest := callStates.Get().(*callState)
	rest.rules = rest.rules[:0]
	rest.hashes = rest.hashes[:0]
	rest.bits = rest.bits[:0]
	for n, i := range places {
		rest.rules = append(rest.rules, q.rules[i])
		rest.hashes = append(rest.hashes, q.hashes[i])
		some[n] = checks[i]
	}
	err := s.decideAsked(rest, some, peek, now)
	callStates.Put(rest)
	for n, i := range places {
		checks[i] = some[n]
	}
	return err
}

// lastOfEventual sets decisions to what the node knows, for counting on without Redis.
func (s *Store) lastOfEventual(checks []core.Check) {
	for i := range checks {
		c := &checks[i]
		d := rate.Decision{}
		if s.eventually.heard.Load() != 0 {
			one := []core.Check{{Rule: c.Rule, Key: c.Key}}
			_ = s.eventually.of.Decide(one, true)
			d = rate.Decision{Limit: one[0].Decision.Limit, Remaining: one[0].Decision.Remaining}
		}
		c.Decision = d
	}
}

// byHand blocks, unblocks or resets a key by hand. Other nodes hear of it after the next round.
func (e *eventually) byHand(script *Script, r *core.Rule, key, what string) error {
	defer e.touch(e.store.clock())
	if script == scriptOfReset {
		return e.of.Reset(r, key)
	}
	duration, _ := strconv.ParseInt(what, 10, 64) // Block has written it
	return e.of.Block(r, key, duration)
}
