package redis

import (
	"context"
	"errors"
	"sort"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core"
)

// part is what of a request has one hash tag, and so lies in one slot.
type part struct {
	client string // whose key it is
	keys   []string
	rules  []*openRule
	checks []core.Check
	places []int // of the checks in the request

	shadow bool    // all its rules are shadows
	counts bool    // it has a rule with count_rejected
	share  float64 // how much its tightest enforced rule has left, as far as is known

	peeked   bool
	admitted bool
	time     int64 // the server's, at the call
}

// askBySlot decides on a request whose keys lie in several slots of a Cluster, which no script can see together: one call
// a slot, one after the other. Each call is atomic, but all of them together are not. The part that is the most likely to
// deny goes first: the one with the least left, as far as is known. After a denial nothing more is charged, and what was
// charged is given back. Until it is, others find less than there is, and where giving back fails it stays used: never is
// more admitted than a limit allows. All of it is waited for no longer than one decision is.
func (s *Store) askBySlot(q *inquiry, checks []core.Check, peek bool) error {
	return s.askParts(s.split(q, checks, false), checks, peek)
}

// askApart is askBySlot for a request whose keys are of one slot, which is on its way from one node to another, and some of them here
// and some there: no script can see them together either. Nothing of the request has been executed.
func (s *Store) askApart(q *inquiry, checks []core.Check, peek bool) error {
	q.bits = q.bits[:0]
	q.call.Keys = q.call.Keys[:0]
	for i := range checks {
		q.call.Keys = append(q.call.Keys, s.naming.key(checks[i].Key, q.rules[i].suffix))
	}
	return s.askParts(s.split(q, checks, true), checks, peek)
}

// askParts asks for one part after the other.
func (s *Store) askParts(parts []*part, checks []core.Check, peek bool) error {
	deadline := time.Now().Add(s.client.Timeout())
	for _, p := range parts { // before anything is charged
		server, err := s.client.Server(p.keys[0])
		if err != nil {
			return err
		}
		if server.breaker.Open() {
			return ErrOpen
		}
	}
	denied := false
	for i, p := range parts {
		p.peeked = peek || denied && !p.counts
		at, err := s.askPart(p, deadline)
		if err != nil {
			s.giveBack(parts[:i], deadline)
			return err
		}
		p.time = at
		p.admitted = true
		for j := range p.checks {
			if !p.checks[j].Decision.Allowed && !p.checks[j].Rule.Shadow() {
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
func (s *Store) askPart(p *part, deadline time.Time) (int64, error) {
	c := &Call{Keys: append([]string{}, p.keys...), Deadline: deadline}
	return askOnce(s, c, &inquiry{rules: p.rules}, p.checks, p.peeked, timed)
}

// runAgain is called after a call has failed, with its error: where its keys are on their way to another server, it tries with one of
// them alone.
func (s *Store) runAgain(server *Server, c *Call, err error) error {
	if len(c.Keys) > 1 && isOverflowScript(c.Script) && errors.Is(err, ErrMoving) {
		return s.runMoving(server, c)
	}
	return err
}

// isOverflowScript reports whether a script takes its keys as luaOverflowBegin does.
func isOverflowScript(script *Script) bool {
	return script == scriptOfOverflow || script == scriptOfSettle || script == scriptOfBlock || script == scriptOfReset
}

// runMoving runs a call whose slot is on its way from one node to another, which refuses calls of several keys as long as it does not
// have them all; most of a rule's keys do not exist, and it never has them all. Of a call of one key it does not ask that. So where the
// node that the slot leaves has none of the keys, the script is told of one, and given the names of the others. That holds until it has
// run: a key that the node which the slot leaves has not got does not come to be there. Where that node has any of them, it is ErrMoving:
// what is there would be counted apart.
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

// split returns the parts of a request, in the order that they are to be asked in: one for each key, or with each one for each check, but
// a candidate stays with the check before it. Shadows, which deny nothing, come last.
func (s *Store) split(q *inquiry, checks []core.Check, each bool) []*part {
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
		p.counts = p.counts || c.Rule.CountRejected()
		if c.Rule.Shadow() {
			continue
		}
		p.shadow = false
		var k known
		if s.memo.find(q.hashes[i], &k) {
			var d core.Decision
			k.last(now, c.Rule.Limit().Quota(), q.rules[i].atOnce, &d)
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

// giveBack takes back what the parts that have admitted a request were charged, as well as it can be done, and tells how
// things stand without the charge. What takes longer than the deadline goes on in the background.
func (s *Store) giveBack(parts []*part, deadline time.Time) {
	var refunds []*Call
	for _, p := range parts {
		if p.admitted { // else its script has charged nothing that is to be given back
			refunds = append(refunds, s.uncharge(p)...)
		}
	}
	if len(refunds) == 0 {
		return
	}
	done, end := context.WithDeadline(context.Background(), deadline)
	go s.refund(refunds, end)
	<-done.Done() // a context, for Yaegi's sake: see CONTRIBUTING.md on select
	end()
}

// uncharge writes into the decisions of a part how things stand without its charge, and returns the calls that give it back.
func (s *Store) uncharge(p *part) []*Call {
	var refunds []*Call
	for i := range p.checks {
		c := &p.checks[i]
		d := &c.Decision
		if !d.Allowed { // a shadow
			continue
		}
		if d.Delay == 0 || !c.Rule.Limit().Delays() { // else what it was to wait for was not there
			d.Remaining += c.Cost
		}
		d.Delay = 0
		if d.Remaining >= d.Limit {
			d.Remaining = d.Limit
			d.MoreAfter = 0
		}
		if c.Ticket != 0 {
			if leased(c.Rule) {
				s.leases.remove(heldUnder(p.keys[i], c.Rule, c.Cost), member(c.Rule, c.Cost, c.Ticket))
			}
			refunds = append(refunds, &Call{
				Script: scriptOfSettle,
				Keys:   furtherKeys(nil, p.keys[i]),
				Args:   []string{argument(s, p.rules[i], c, false) + furtherOf(s, p.rules[i], c), "0"},
			})
			c.Ticket = 0
		} else if !p.peeked {
			refunds = append(refunds, &Call{
				Script: scriptOfRefund,
				Keys:   p.keys[i : i+1],
				Args:   []string{argument(s, p.rules[i], c, false), strconv.FormatInt(p.time, 10)},
			})
		}
	}
	return refunds
}

// refund makes the calls. One that fails is not made again: it may have been executed.
func (s *Store) refund(calls []*Call, end func()) {
	defer func() {
		_ = recover() // in an interpreted program nobody above would
		end()
	}()
	for _, c := range calls {
		s.runAside(c)
	}
}

// runAside makes a call that decides on no request, unless its server is one that is not asked, and reports whether it was answered.
func (s *Store) runAside(c *Call) bool {
	server, err := s.client.Server(c.Keys[0])
	if err != nil || server.breaker.Open() {
		return false
	}
	seen := server.trouble.Load()
	if err = server.conn.Run(c); err != nil {
		err = s.runAgain(server, c, err)
	}
	if err != nil {
		s.failed(server, c.Keys[0], seen, err)
	}
	return err == nil
}
