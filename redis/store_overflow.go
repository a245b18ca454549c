package redis

import (
	"encoding/binary"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core"
)

// Bits of a reply of scriptOfOverflow: see scripts/overflow.lua.
const (
	isSoft     = 1
	isReserved = 2
	isBlocked  = 4
	isPenalty  = 8
)

// The offsets of the numbers that differ from request to request, in the bytes that appendOverflow appends.
const (
	patienceAt = 1 + 3*8
	ticketAt   = 1 + 6*8
)

// appendOverflow appends what follows a rule's part of the argument in scripts of rules with an overflow policy: see scripts/accounts.lua. lease
// is in microseconds.
func appendOverflow(b []byte, r *core.Rule, lease int64) []byte {
	t, _ := r.Terms()
	l := r.Limit
	a := algorithmOf(l)
	kind := a.kind + kindInFlight*oneIf(l.InFlight) + kindCounts*oneIf(t.Counts) + kindSoft*oneIf(t.Wide != nil) +
		kindDelays*oneIf(l.Delays) + kindCandidate*oneIf(r.IsCandidate())
	wide := t.Wide
	if wide == nil {
		wide = l
	}
	x, _ := a.numbers(wide)
	b = append(b, byte(kind))
	b = appendDouble(b, wide.Requests)
	b = appendDouble(b, x)
	b = appendDouble(b, t.SoftFor)
	b = appendDouble(b, 0)         // patience
	b = appendDouble(b, l.Ahead()) // how far a key's time may be ahead
	b = appendDouble(b, lease)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // the ticket
	b = append(b, byte(len(t.Penalties)))
	for _, p := range t.Penalties {
		b = appendDouble(b, p)
	}
	return b
}

// furtherOf returns what follows a check's part of the argument: see appendOverflow. A check of a rule without an overflow policy has it, too,
// with an empty policy.
func furtherOf(s *Store, o *openRule, c *core.Check) string {
	further := o.further
	if further == nil {
		further = appendOverflow(nil, c.Rule, s.renewals.lasts)
	}
	b := append([]byte{}, further...)
	putDouble(b[patienceAt:], c.Rule.Patience(c.Key))
	binary.LittleEndian.PutUint64(b[ticketAt:], c.Ticket)
	return string(b)
}

// keysOfCheck is how many keys furtherKeys appends.
const keysOfCheck = 6

// furtherKeys appends the six keys of a check: see scripts/accounts.lua. name is the first.
func furtherKeys(keys []string, name string) []string {
	return append(keys, name, name+":a", name+":h", name+":m", name+":p", name+":l")
}

// runOverflow makes one call for checks with a rule that has an overflow policy. c has the first key of each check. If second is timed it
// returns the server's time.
func runOverflow(s *Store, c *Call, q *callState, checks []core.Check, peek bool, second string) (int64, error) {
	names := append([]string{}, c.Keys...)
	c.Keys = c.Keys[:0]
	for i := range checks {
		c.Keys = furtherKeys(c.Keys, names[i])
		checks[i].Ticket = s.renewals.ticket()
	}
	c.Script = scriptOfOverflow
	at, err := run(s, c, q.rules, checks, peek, second, overflowNumbers) // reads the whole reply first: after an error nobody would end a reservation
	if err == nil {
		q.bits = readBits(s, q.bits, names, checks, c.Reply)
		return at, nil
	}
	for i := range checks {
		checks[i].Ticket = 0
	}
	return at, err
}

// overflowNumbers is how many numbers a reply of scriptOfOverflow has for each check.
const overflowNumbers = 5

// readBits reads the bits of a reply into checks, and appends them to list. A check has its ticket before, and keeps it if something is reserved: what lasts
// as long as the request is renewed from then on. names are the first keys of the checks.
func readBits(s *Store, list []int64, names []string, checks []core.Check, reply []int64) []int64 {
	for i := range checks {
		c := &checks[i]
		bits := reply[overflowNumbers*i+4]
		c.Decision.Soft = bits&isSoft != 0
		c.Decision.Penalty = bits&isPenalty != 0
		list = append(list, bits)
		if bits&isReserved == 0 || c.Spared {
			c.Ticket = 0
		} else if leased(c.Rule) {
			s.renewals.add(heldUnder(names[i], c.Rule, c.Cost), member(c.Rule, c.Cost, c.Ticket))
		}
	}
	return list
}

// leased reports whether requests of the rule reserve units for as long as they are under way.
func leased(r *core.Rule) bool {
	t, _ := r.Terms()
	return t.Counts || r.Limit.InFlight
}

// heldUnder returns the key of the sorted set for a reservation. Those of one unit have a set of their own, whose size is their number.
func heldUnder(name string, r *core.Rule, cost int64) string {
	if cost == 1 || r.Limit.InFlight {
		return name + ":h"
	}
	return name + ":m"
}

// member returns the member for a reservation in its sorted set.
func member(r *core.Rule, cost int64, ticket uint64) string {
	if r.Limit.InFlight {
		cost = 1
	}
	return string(appendDouble(binary.LittleEndian.AppendUint64(nil, ticket), cost))
}

// Settle implements core.Store. It makes a call for each reservation, one after the other. It waits no longer than the timeout of one
// decision, and settles the rest in the background. A reservation whose call fails ends with its lease.
func (s *Store) Settle(reservations []core.Reservation) error {
	var failure error
	timeout := s.client.Timeout()
	deadline := time.Now().Add(timeout)
	for i := range reservations {
		if i > 0 && time.Until(deadline) < timeout/2 {
			go s.settleLater(append([]core.Reservation{}, reservations[i:]...))
			return failure
		}
		if err := s.settleOne(&reservations[i], deadline); err != nil {
			failure = err
			s.renewals.owe(&reservations[i], err, s.wallClock()+int64(owedFor/time.Microsecond))
		}
	}
	s.renewals.settled()
	return failure
}

// settleLater does the same as Settle in the background, and drops the errors.
func (s *Store) settleLater(reservations []core.Reservation) {
	defer func() {
		_ = recover() // an interpreted program has no other recover
		s.renewals.settled()
	}()
	for i := range reservations {
		if err := s.settleOne(&reservations[i], time.Time{}); err != nil {
			s.renewals.owe(&reservations[i], err, s.wallClock()+int64(owedFor/time.Microsecond))
		}
	}
}

// settleOne makes the call for one reservation.
func (s *Store) settleOne(r *core.Reservation, deadline time.Time) error {
	if r.Taken != nil {
		return s.settleTaken(r, deadline)
	}
	if opened(r.Rule).sync != nil {
		s.renewals.taken.Add(-1)
		s.eventually.touch(s.clock())
		return s.eventually.of.Settle([]core.Reservation{*r})
	}
	name := s.naming.key(r.Key, opened(r.Rule).suffix)
	if leased(r.Rule) {
		s.renewals.remove(heldUnder(name, r.Rule, r.Cost), member(r.Rule, r.Cost, r.Ticket))
	}
	c := core.Check{Rule: r.Rule, Key: r.Key, Cost: r.Cost, Ticket: r.Ticket}
	return s.send(scriptOfSettle, name, &c, strconv.FormatInt(r.Units, 10), deadline, promptly)
}

// Block implements core.Store.
func (s *Store) Block(r *core.Rule, key string, duration int64) error {
	return s.sendFor(scriptOfBlock, r, key, strconv.FormatInt(duration, 10))
}

// Reset implements core.Store.
func (s *Store) Reset(r *core.Rule, key string) error {
	return s.sendFor(scriptOfReset, r, key, "")
}

// Credit implements core.Store.
func (s *Store) Credit(r *core.Rule, key string, units int64) error {
	o := opened(r)
	if o.sync != nil {
		return s.eventually.of.Credit(r, key, units)
	}
	c := core.Check{Rule: r, Key: key, Cost: units}
	name := s.naming.key(key, o.suffix)
	defer s.Forget(r, key)
	return s.runApart(&Call{Script: scriptOfCredit, Keys: []string{name}, Args: []string{argument(s, o, &c, false)}})
}

// Forget forgets what the node remembers of a key, or holds for it, so that the next request asks Redis.
func (s *Store) Forget(r *core.Rule, key string) {
	if o := opened(r); o != nil && o.sync == nil {
		s.decisions.forget(s.hashOf(o, key))
		s.leaseCache.forget(o, s.hashOf(o, key))
	}
}

// sendFor runs a script for one key that somebody blocks, unblocks or resets by hand. It forgets the key in the caches, even if the call has
// failed: the server may have executed it.
func (s *Store) sendFor(script *Script, r *core.Rule, key, what string) error {
	o := opened(r)
	if o.sync != nil {
		return s.eventually.byHand(script, r, key, what)
	}
	c := core.Check{Rule: r, Key: key, Cost: 1}
	err := s.send(script, s.naming.key(key, o.suffix), &c, what, time.Time{}, aside)
	s.Forget(r, key)
	return err
}

// send runs a script of one check whose reply does not matter. The deadline is as in Call.
func (s *Store) send(script *Script, name string, check *core.Check, what string, deadline time.Time, wait wait) error {
	c := &Call{Script: script, Keys: furtherKeys(nil, name), Deadline: deadline, wait: wait}
	_, err := execute(s, c, []*openRule{opened(check.Rule)}, []core.Check{*check}, false, what, nil)
	return err
}
