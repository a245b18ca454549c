package redis

import (
	"encoding/binary"
	"hash/maphash"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core"
)

// Bits of a reply to scriptOfOverflow, and of a rule's kind: see luaOverflowBegin.
const (
	isSoft     = 1
	isReserved = 2
	isBlocked  = 4
	isPenalty  = 8

	kindInFlight  = 1
	kindCounts    = 2
	kindSoft      = 4
	kindDelays    = 8
	kindCandidate = 16
	kindBucket    = 32
	kindQueue     = 64
	kindLog       = 128
)

// Where the numbers that differ from request to request are, in what appendOverflow writes.
const (
	patienceAt = 1 + 3*8
	ticketAt   = 1 + 6*8
)

// appendOverflow appends what luaOverflowBegin reads of a check behind its rule's argument. lease is in microseconds.
func appendOverflow(b []byte, r *core.Rule, lease int64) []byte {
	t, _ := r.Terms()
	l := r.Limit()
	a := algorithmOf(l)
	kind := a.kind + kindInFlight*oneIf(l.InFlight()) + kindCounts*oneIf(t.Counts) + kindSoft*oneIf(t.Wide != nil) +
		kindDelays*oneIf(l.Delays()) + kindCandidate*oneIf(r.IsCandidate())
	wide := t.Wide
	if wide == nil {
		wide = l
	}
	x, _ := a.numbers(wide)
	b = append(b, byte(kind))
	b = appendDouble(b, wide.Requests())
	b = appendDouble(b, x)
	b = appendDouble(b, t.SoftFor)
	b = appendDouble(b, 0)                              // patience
	b = appendDouble(b, oneIf(l.Delays())*l.MaxDelay()) // how far a key's time may be ahead
	b = appendDouble(b, lease)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // the ticket
	b = append(b, byte(len(t.Penalties)))
	for _, p := range t.Penalties {
		b = appendDouble(b, p)
	}
	return b
}

// furtherOf returns what is behind a check's argument. A check of a rule that has no conduct has one that says nothing.
func furtherOf(s *Store, o *openRule, c *core.Check) string {
	further := o.further
	if further == nil {
		further = appendOverflow(nil, c.Rule, s.leases.lasts)
	}
	b := append([]byte{}, further...)
	putDouble(b[patienceAt:], c.Rule.Patience(c.Key))
	binary.LittleEndian.PutUint64(b[ticketAt:], c.Ticket)
	return string(b)
}

// furtherKeys appends the keys that a check has, of which name is the first.
func furtherKeys(keys []string, name string) []string {
	return append(keys, name, name+":a", name+":h", name+":m", name+":p", name+":l")
}

// runOverflow makes one call for checks of which a rule has a conduct; the first keys of the checks are in c. It returns the
// server's time, where second is timed.
func runOverflow(s *Store, c *Call, q *inquiry, checks []core.Check, peek bool, second string) (int64, error) {
	names := append([]string{}, c.Keys...)
	c.Keys = c.Keys[:0]
	for i := range checks {
		c.Keys = furtherKeys(c.Keys, names[i])
		checks[i].Ticket = s.leases.ticket()
	}
	c.Script = scriptOfOverflow
	at, err := run(s, c, q.rules, checks, peek, second, 5) // the whole reply, before anything is taken to be reserved, since nobody would end it
	for i := range checks {
		ticket := checks[i].Ticket
		checks[i].Ticket = 0
		if err != nil {
			continue
		}
		reply := c.Reply[5*i : 5*i+5]
		checks[i].Decision.Soft = reply[4]&isSoft != 0
		checks[i].Decision.Penalty = reply[4]&isPenalty != 0
		q.bits = append(q.bits, reply[4])
		if reply[4]&isReserved != 0 {
			checks[i].Ticket = ticket
			if leased(checks[i].Rule) {
				s.leases.add(heldUnder(names[i], checks[i].Rule, checks[i].Cost), member(checks[i].Rule, checks[i].Cost, ticket))
			}
		}
	}
	return at, err
}

// leased reports whether requests of the rule reserve units for as long as they are under way.
func leased(r *core.Rule) bool {
	t, _ := r.Terms()
	return t.Counts || r.Limit().InFlight()
}

// heldUnder returns the key of the sorted set that a reservation is in: those of one unit need not be looked at to count them.
func heldUnder(name string, r *core.Rule, cost int64) string {
	if cost == 1 || r.Limit().InFlight() {
		return name + ":h"
	}
	return name + ":m"
}

// member returns what stands for a reservation in a sorted set.
func member(r *core.Rule, cost int64, ticket uint64) string {
	if r.Limit().InFlight() {
		cost = 1
	}
	return string(appendDouble(binary.LittleEndian.AppendUint64(nil, ticket), cost))
}

// Settle implements core.Store. Each hold is settled by itself, but all of them are waited for no longer than one decision is: what is
// left then is settled in the background. A hold whose settling fails is given back when its lease has run out.
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
		}
	}
	s.leases.settled()
	return failure
}

// settleLater is Settle for holds that nobody waits for. Of those whose settling fails nobody is told.
func (s *Store) settleLater(reservations []core.Reservation) {
	defer func() {
		_ = recover() // in an interpreted program nobody above would
		s.leases.settled()
	}()
	for i := range reservations {
		_ = s.settleOne(&reservations[i], time.Time{})
	}
}

// settleOne makes the call for one hold.
func (s *Store) settleOne(h *core.Reservation, deadline time.Time) error {
	keep := "0"
	if h.Keep {
		keep = "1"
	}
	name := s.naming.key(h.Key, opened(h.Rule).suffix)
	if leased(h.Rule) {
		s.leases.remove(heldUnder(name, h.Rule, h.Cost), member(h.Rule, h.Cost, h.Ticket))
	}
	c := core.Check{Rule: h.Rule, Key: h.Key, Cost: h.Cost, Ticket: h.Ticket}
	return s.send(scriptOfSettle, name, &c, keep, deadline)
}

// Block implements core.Store.
func (s *Store) Block(r *core.Rule, key string, duration int64) error {
	return s.sendFor(scriptOfBlock, r, key, strconv.FormatInt(duration, 10))
}

// Reset implements core.Store.
func (s *Store) Reset(r *core.Rule, key string) error {
	return s.sendFor(scriptOfReset, r, key, "")
}

// sendFor runs a script of one key that somebody sees to by hand. What was learned of the key until then is forgotten, also where the
// call has failed: it may have been executed.
func (s *Store) sendFor(script *Script, r *core.Rule, key, what string) error {
	o := opened(r)
	c := core.Check{Rule: r, Key: key, Cost: 1}
	err := s.send(script, s.naming.key(key, o.suffix), &c, what, time.Time{})
	s.memo.forget(maphash.String(s.seed, key) ^ o.salt)
	return err
}

// tell runs a script of one check that has no reply, by that deadline; zero: the client's timeout from now.
func (s *Store) send(script *Script, name string, check *core.Check, what string, deadline time.Time) error {
	c := &Call{Script: script, Keys: furtherKeys(nil, name), Deadline: deadline}
	_, err := execute(s, c, []*openRule{opened(check.Rule)}, []core.Check{*check}, false, what)
	return err
}
