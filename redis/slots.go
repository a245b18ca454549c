package redis

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// part is those checks of a request whose keys have one hash tag, and so lie in one slot.
type part struct {
	client string // the checks' key, which is the hash tag
	keys   []string
	rules  []*openRule
	checks []core.Check
	places []int // the indices of the checks in the request

	shadow bool    // all its rules are shadow rules
	counts bool    // it has a rule with count_rejected
	share  float64 // the share of its quota that its tightest enforced rule has left, as far as is known

	peeked   bool
	admitted bool
	time     int64 // the server's, at the call
}

// askBySlot decides on a request whose keys lie in several slots of a Cluster. No script can see several slots, so it makes one call for
// each, one after the other. Each call is atomic; all of them together are not.
//
// The part that is the most likely to deny goes first: the one with the smallest share left, as far as is known. After a denial nothing
// more is charged, except by rules with count_rejected, and the charges made so far are given back. Until then other requests find less
// than there is. If giving back fails, the units stay used: no limit ever admits too much. All calls together take no longer than the
// timeout of one decision.
func (s *Store) askBySlot(q *callState, checks []core.Check, peek bool) error {
	return s.askParts(s.split(q, checks, false), checks, peek, q.call.wait)
}

// askApart does the same as askBySlot for a request whose keys are in one slot that migrates from one node to another. Some keys are on
// one node and some on the other, so no script can see them together. The caller has executed nothing of the request.
func (s *Store) askApart(q *callState, checks []core.Check, peek bool) error {
	q.bits = q.bits[:0]
	q.call.Keys = q.call.Keys[:0]
	for i := range checks {
		q.call.Keys = append(q.call.Keys, s.naming.key(checks[i].Key, q.rules[i].suffix))
	}
	return s.askParts(s.split(q, checks, true), checks, peek, q.call.wait)
}

// askParts decides on one part after the other.
func (s *Store) askParts(parts []*part, checks []core.Check, peek bool, wait wait) error {
	most := s.client.Timeout()
	if wait != promptly {
		most = s.client.Background()
	}
	deadline := time.Now().Add(most)
	for _, p := range parts { // before anything is charged
		server, err := s.client.Server(p.keys[0])
		if err != nil {
			return err
		}
		if b := server.breakerFor(wait); b.Open() {
			return ErrOpen
		}
	}
	denied := false
	for i, p := range parts {
		p.peeked = peek || denied && !p.counts
		at, err := s.askPart(p, deadline, wait)
		if err != nil {
			s.giveBack(parts[:i], deadline)
			return err
		}
		p.time = at
		p.admitted = true
		for j := range p.checks {
			if !p.checks[j].Decision.Allowed && !p.checks[j].Rule.Shadow {
				p.admitted = false
				denied = true
			}
		}
	}
	if denied {
		s.giveBack(parts, deadline)
	}
	for _, p := range parts {
		for j, place := range p.places {
			checks[place].Decision = p.checks[j].Decision
			checks[place].Ticket = p.checks[j].Ticket
		}
	}
	return nil
}

// askPart makes the call for a part, and returns the server's time.
func (s *Store) askPart(p *part, deadline time.Time, wait wait) (int64, error) {
	c := &Call{Keys: append([]string{}, p.keys...), Deadline: deadline, wait: wait}
	return askOnce(s, c, &callState{rules: p.rules}, p.checks, p.peeked, timed)
}

// runAgain is called with the error of a call that has failed. If the call's keys are migrating to another server, it tries again by
// runMoving. It returns the error that remains.
func (s *Store) runAgain(server *Server, c *Call, err error) error {
	if len(c.Keys) > 1 && isOverflowScript(c.Script) && errors.Is(err, ErrMoving) {
		return s.runMoving(server, c)
	}
	return err
}

// isOverflowScript reports whether a script begins with scripts/accounts.lua.
func isOverflowScript(script *Script) bool {
	return script == scriptOfOverflow || script == scriptOfSettle || script == scriptOfBlock || script == scriptOfReset
}

// runMoving runs a call whose slot migrates from one node, the source, to another, the target. The target refuses calls with several keys
// unless it has all of them, and most of a rule's keys never exist. It accepts calls with one key. So if the source has none of the keys,
// runMoving declares only the first to Redis, and passes the names of the others as arguments. This stays safe until the script has run:
// during a migration no key is created on the source. If the source has any of the keys, runMoving returns ErrMoving, since the units
// there would be counted apart.
func (s *Store) runMoving(server *Server, c *Call) error {
	deadline := c.Deadline
	if deadline.IsZero() {
		deadline = time.Now().Add(s.client.Timeout())
	}
	for i := range c.Keys {
		look := &Call{Script: scriptOfNothing, Keys: c.Keys[i : i+1], Deadline: deadline}
		if err := server.conn.Run(look); err != nil {
			return err
		}
		if !look.Asked {
			return ErrMoving
		}
	}
	alone := &Call{Script: c.Script, Keys: c.Keys[:1:1], Deadline: deadline}
	alone.Args = append(alone.Args, c.Args...)
	if len(alone.Args) == 1 {
		alone.Args = append(alone.Args, "")
	}
	alone.Args = append(alone.Args, c.Keys[1:]...)
	err := server.conn.Run(alone)
	c.Reply = alone.Reply
	return err
}

// split returns the parts of a request, in the order in which they are to be decided: one for each client key. With each it returns one
// for each check, but a candidate stays with the check before it. Parts of shadow rules alone, which deny nothing, come last.
func (s *Store) split(q *callState, checks []core.Check, each bool) []*part {
	var parts []*part
	now := s.clock()
	for i := range checks {
		c := checks[i]
		var p *part
		for _, other := range parts {
			if other.client == c.Key {
				p = other
			}
		}
		if each && !c.Rule.IsCandidate() {
			p = nil
		}
		if p == nil {
			p = &part{client: c.Key, shadow: true, share: 1}
			parts = append(parts, p)
		}
		p.keys = append(p.keys, q.call.Keys[i])
		p.rules = append(p.rules, q.rules[i])
		p.checks = append(p.checks, c)
		p.places = append(p.places, i)
		p.counts = p.counts || c.Rule.CountRejected
		if c.Rule.Shadow {
			continue
		}
		p.shadow = false
		var k cachedDecision
		if s.decisions.find(q.hashes[i], &k) {
			var d rate.Decision
			k.estimate(now, c.Rule.Limit.Quota, q.rules[i].atOnce, &d)
			if share := float64(d.Remaining) / float64(d.Limit); share < p.share {
				p.share = share
			}
		}
	}
	sort.SliceStable(parts, func(i, j int) bool {
		if parts[i].shadow != parts[j].shadow {
			return parts[j].shadow
		}
		return parts[i].share < parts[j].share
	})
	return parts
}

// giveBack gives back the charges of the parts that have admitted the request, as far as that is possible, and corrects their decisions.
// It returns at the deadline at the latest; the rest goes on in the background.
func (s *Store) giveBack(parts []*part, deadline time.Time) {
	var refunds []*Call
	for _, p := range parts {
		if p.admitted { // otherwise its script has charged nothing that must be given back
			refunds = append(refunds, s.uncharge(p)...)
		}
	}
	if len(refunds) == 0 {
		return
	}
	done, end := context.WithDeadline(context.Background(), deadline)
	go s.refund(refunds, end)
	<-done.Done() // a context, since Yaegi has no select: see traefik/INTERPRETER.md
	end()
}

// uncharge corrects the decisions of a part to what they are without its charge, and returns the calls that give the charge back.
func (s *Store) uncharge(p *part) []*Call {
	var refunds []*Call
	for i := range p.checks {
		c := &p.checks[i]
		d := &c.Decision
		if !d.Allowed { // a shadow
			continue
		}
		if d.Delay == 0 || !c.Rule.Limit.Delays { // otherwise its units were reserved beyond those that remained
			d.Remaining += c.Cost
		}
		d.Delay = 0
		if d.Remaining >= d.Limit {
			d.Remaining = d.Limit
			d.MoreAfter = 0
		}
		if c.Ticket != 0 {
			if leased(c.Rule) {
				s.renewals.remove(heldUnder(p.keys[i], c.Rule, c.Cost), member(c.Rule, c.Cost, c.Ticket))
			}
			refunds = append(refunds, &Call{
				Script: scriptOfSettle,
				Keys:   furtherKeys(nil, p.keys[i]),
				Args:   []string{argument(s, p.rules[i], c, false) + furtherOf(s, p.rules[i], c), "0"},
			})
			c.Ticket = 0
		} else if !p.peeked && !c.Spared {
			refunds = append(refunds, &Call{
				Script: scriptOfRefund,
				Keys:   p.keys[i : i+1],
				Args:   []string{argument(s, p.rules[i], c, false), strconv.FormatInt(p.time, 10)},
			})
		}
	}
	return refunds
}

// refund makes the calls, and then calls end. It does not repeat a call that fails: the server may have executed it.
func (s *Store) refund(calls []*Call, end func()) {
	defer func() {
		_ = recover() // an interpreted program has no other recover
		end()
	}()
	for _, c := range calls {
		s.runAside(c)
	}
}

// runAside makes a call that no request waits for, unless the server's breaker is open. It reports whether the server has answered
// without an error.
func (s *Store) runAside(c *Call) bool { return s.callAside(c) == nil }

// callAside is runAside with the error.
func (s *Store) callAside(c *Call) error {
	server, err := s.client.Server(c.Keys[0])
	if err != nil {
		return err
	}
	c.wait = aside
	return s.callFor(server, c)
}

// callFor is call with the server's name in the error.
func (s *Store) callFor(server *Server, c *Call) error {
	err := s.call(server, c)
	if err == nil || errors.Is(err, ErrOpen) {
		return err
	}
	return fmt.Errorf("%s: %w", server.name, err)
}
