package redis

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/recent"
)

// leaseCache has what this node holds of rules with consistency lease: package rate's Lease says how that works, and scripts/lease.lua what Redis does.
//
// A request whose units are held does not call Redis. Any other calls it once. If it is under a single rule that only rejects, that call can take a lease at
// the same time; otherwise the call about the lease is made aside. No request waits for calls that are made aside. One is
// about all leases that something has become due for since the one before; where Redis is far away, several are under way at a time.
//
// A key's lease is found by the numbers of the limit, too. So when a reload changes them, nobody spends under the new limit what was lent under the old
// one: that is given back.
//
// A lease that is forgotten counts as spent. It is safe for concurrent use.
type leaseCache struct {
	store  *Store
	shards [cacheShards]leaseShard
	again  func() // gives back what is due, and sets the timer again: made once, as leases.again is

	mu     sync.Mutex
	due    []*leaseCall
	unsent []*leaseCall // to be sent again
	active int          // so many goroutines make calls aside
	begun  time.Time    // when the last of these calls began
	timer  *time.Timer
	closed bool

	granted, refused, returned, failed atomic.Int64 // calls, by their outcome
	underWay                           atomic.Int64 // lease calls that are not done
}

// keyLease is a key's lease, under the lock of its shard.
type keyLease struct {
	lease  rate.Lease
	mu     *sync.Mutex // of its shard
	place  int         // of its shard
	rule   *core.Rule  // by which it was used last
	open   *openRule
	name   string // of the key in Redis; "": no call was made about it yet
	listed bool   // it is in its shard's held
}

type leaseShard struct {
	mu       sync.Mutex
	keys     recent.Map[keyLease]
	held     []*keyLease // those with leases, perhaps with some whose lease has ended
	spent    int64       // requests whose units were held
	rejected int64       // requests that were rejected without asking Redis
	asked    int64       // requests on which Redis had to decide
	_        [64]byte
}

// leaseCall is a call about a lease that no request waits for.
type leaseCall struct {
	of    *keyLease
	ask   rate.LeaseAsk
	tries int
}

const (
	returnsEvery   = 50 * time.Millisecond // how often leases are looked through for those to be given back
	mostLeaseCalls = 64                    // how many one call is for
	mostAside      = 32                    // calls that are made aside at a time
	apart          = 5 * time.Millisecond  // from one to the next, if the one is under way
	mostTries      = 20                    // how often units are given back, if Redis does not get the call: for a second
)

func (l *leaseCache) begin(s *Store) {
	l.store = s
	l.again = func() { l.returnLater() }
}

func anyLeased(rules []*openRule) bool {
	for _, o := range rules {
		if o.lease != nil {
			return true
		}
	}
	return false
}

// clocks returns the times of both clocks of the node.
func (s *Store) clocks() (mono, wall int64) {
	if s.ownClock != nil {
		mono = s.clock()
		wall = s.wallClock()
		return mono, wall
	}
	now := time.Now()
	mono = int64(now.Sub(Started) / time.Microsecond)
	wall = now.UnixMicro()
	return mono, wall
}

// find returns the lease of a key that is not among the young ones. The caller has the lock of its shard.
func (l *leaseCache) find(place int, hash uint64, mono int64) *keyLease {
	shard := &l.shards[place]
	k := shard.keys.Use(hash, shardKeys)
	if k.mu == nil {
		k.lease = rate.NewLease(mono)
		k.mu = &shard.mu
		k.place = place
	}
	return k
}

// forget forgets a key of a rule, and what is held of it.
func (l *leaseCache) forget(o *openRule, hash uint64) {
	hash ^= o.terms
	shard := &l.shards[hash%cacheShards]
	shard.mu.Lock()
	shard.keys.Delete(hash)
	shard.mu.Unlock()
}

// leaseTaken is what a request under way has taken of a key's lease.
type leaseTaken struct {
	of    *keyLease
	taken rate.LeaseTaken
}

// leaseUse is what decideLeased knows of a check.
type leaseUse struct {
	of    *keyLease // nil: its rule is not leased
	step  rate.LeaseStep
	calls int64
}

// decideLeased decides on one check, whose rule is leased. Nearly all requests are done in its first lines.
func (s *Store) decideLeased(o *openRule, checks []core.Check, peek bool) error {
	mono, wall := s.clocks()
	hash := s.hashOf(o, checks[0].Key)
	var ask rate.LeaseAsk
	var u leaseUse
	s.useLease(o, hash, &checks[0], peek, mono, wall, &u, &ask)
	if u.step == rate.Held || u.step == rate.Refused {
		return nil
	}
	q := s.takeCallState(checks)
	q.call.wait = patiently
	var err error
	if u.step == rate.Asking && o.further == nil {
		err = s.decideAndLease(q, checks, u.of, &ask, mono)
	} else {
		if u.step == rate.Asking {
			s.leaseCache.send(&leaseCall{of: u.of, ask: ask})
		}
		err = s.decideStrictly(q, checks, peek, mono)
		if err == nil && peek {
			rate.BoundReset(o.lease, &checks[0].Decision)
		} else if err == nil {
			s.concludeLease(u.of, &checks[0])
		}
	}
	q.call.wait = promptly // it may have another call now
	callStates.Put(q)
	return err
}

// decideSomeLeased decides on several checks, at least one of which has a rule that is leased.
func (s *Store) decideSomeLeased(q *callState, checks []core.Check, peek bool, now int64) error {
	mono, wall := s.clocks()
	uses := make([]leaseUse, len(checks))
	refused := false
	missing := 0
	for i := range checks {
		if q.rules[i].lease == nil {
			missing++
			continue
		}
		var ask rate.LeaseAsk
		s.useLease(q.rules[i], q.hashes[i], &checks[i], peek, mono, wall, &uses[i], &ask)
		if uses[i].step == rate.Asking {
			s.leaseCache.send(&leaseCall{of: uses[i].of, ask: ask})
		}
		if uses[i].step == rate.Refused && !checks[i].Rule.Shadow {
			refused = true
		} else if uses[i].step != rate.Held && uses[i].step != rate.Refused {
			missing++
		}
	}
	if missing == 0 && !refused {
		return nil
	}
	if refused && s.refuse(q, checks, uses, mono) {
		return nil
	}
	return s.decideRest(q, checks, uses, peek, now)
}

// UseLease sets what becomes of a check whose rule is leased, and its decision, if no call is needed for it. A call ahead of need is made aside.
func (s *Store) useLease(o *openRule, hash uint64, c *core.Check, peek bool, mono, wall int64, u *leaseUse, ask *rate.LeaseAsk) {
	hash ^= o.terms
	place := int(hash % cacheShards)
	shard := &s.leaseCache.shards[place]
	shard.mu.Lock()
	k := shard.keys.Young[hash]
	if k == nil {
		k = s.leaseCache.find(place, hash, mono)
	}
	u.of = k
	if k.open != o {
		k.open = o
		k.rule = c.Rule
	}
	if peek {
		u.step = rate.PeekLease(&k.lease, c.Cost, mono, wall)
	} else {
		u.step = rate.UseLease(&k.lease, o.lease, c.Cost, mono, wall, ask)
	}
	ahead := u.step == rate.HeldAndAsk
	if ahead {
		u.step = rate.Held
	}
	if u.step == rate.Asking && k.name == "" { // most keys never get here, and there are many
		k.name = s.naming.key(c.Key, o.suffix)
	}
	if u.step == rate.Held && o.settles && !peek && !c.Spared {
		c.Ticket = s.renewals.ticket()
		c.Taken = &leaseTaken{k, rate.TakenOfLease(&k.lease, c.Cost)}
		s.renewals.taken.Add(1)
	}
	if u.step == rate.Held || u.step == rate.Refused {
		rate.DecideByLease(&k.lease, c.Rule.Limit, u.step == rate.Held, mono, &c.Decision)
	}
	if peek {
		if u.step == rate.Held {
			c.Decision.Remaining -= c.Cost // as if it had been charged
		}
	} else if u.step == rate.Held {
		shard.spent++
	} else if u.step == rate.Refused {
		shard.rejected++
	} else {
		shard.asked++
	}
	u.calls = rate.LeaseCalls(&k.lease)
	shard.mu.Unlock()
	if ahead {
		s.leaseCache.send(&leaseCall{of: k, ask: *ask})
	}
}

// decideAndLease makes one call, which decides on a request and takes a lease.
func (s *Store) decideAndLease(q *callState, checks []core.Check, k *keyLease, ask *rate.LeaseAsk, now int64) error {
	c := q.call
	asked := *ask
	c.Late = func(late error) { s.leaseCache.settleLate(k, &asked, c.Reply, late) }
	g, err := s.lend(q, checks, k.name, ask)
	if !pending(err) { // then nobody else has the call
		c.Late = nil
	}
	if err == nil {
		s.leaseCache.grant(k, ask, &g)
		s.concludeLease(k, &checks[0])
	} else if !pending(err) {
		s.leaseCache.settle(k, ask, nil, executed(err))
	}
	err = s.conclude(q, checks, false, now, err)
	if err == nil && checks[0].Decision.Allowed {
		s.addHeld(k, &checks[0])
	}
	return err
}

// addHeld adds what the node holds to what remains, as rate.DecideByLease does.
func (s *Store) addHeld(k *keyLease, c *core.Check) {
	mono, wall := s.clocks()
	k.mu.Lock()
	units, _ := rate.LeaseHolds(&k.lease, mono, wall)
	k.mu.Unlock()
	c.Decision.Remaining += units
	if quota := c.Rule.Limit.Quota; c.Decision.Remaining > quota {
		c.Decision.Remaining = quota
	}
}

// lend makes a call about the lease of the check's key, whose name in Redis is given, and lets Redis decide on the check.
func (s *Store) lend(q *callState, checks []core.Check, name string, ask *rate.LeaseAsk) (g rate.LeaseGrant, err error) {
	c := q.call
	c.Script = scriptOfLease
	c.Keys = keysOfLease(c.Keys[:0], name, q.rules[0])
	server, err := execute(s, c, q.rules, checks, false, "", ask)
	if err != nil {
		return g, err
	}
	if len(c.Reply) != leaseNumbers || !readDecision(checks[0].Rule, c.Reply, &checks[0].Decision) || !readGrant(c.Reply, q.rules[0].lease, &g) {
		return g, fmt.Errorf("%s: %w", server.name, errReply)
	}
	return g, nil
}

// readGrant reads a lease's numbers of a reply. It returns false if they are out of range.
func readGrant(reply []int64, t *rate.LeaseTerms, g *rate.LeaseGrant) bool {
	free := reply[0]
	if free < 0 {
		free = -1 - free
	}
	*g = rate.LeaseGrant{Units: reply[4], Life: reply[5], Mark: reply[6], ToldIn: reply[7], Free: free, Reset: reply[2]}
	return g.Units >= 0 && g.Units <= rate.MaxRequests && g.Life >= 0 && g.Life <= t.Length
}

// ConcludeLease takes note of Redis's decision on a request whose units were not held.
func (s *Store) concludeLease(k *keyLease, c *core.Check) {
	mono, _ := s.clocks()
	k.mu.Lock()
	rate.ConcludeLease(&k.lease, k.open.lease, c.Cost, &c.Decision, mono)
	k.mu.Unlock()
}

// unspend gives back the units of a request that is rejected, and corrects the decision.
func (s *Store) unspend(c *core.Check, u *leaseUse, mono int64) {
	u.of.mu.Lock()
	rate.UnspendLease(&u.of.lease, c.Cost, u.calls)
	rate.DecideByLease(&u.of.lease, c.Rule.Limit, true, mono, &c.Decision)
	u.of.mu.Unlock()
	if c.Taken != nil {
		c.Ticket = 0
		c.Taken = nil
		s.renewals.taken.Add(-1)
	}
}

// settleTaken charges a request what it has cost in place of what it has taken of a lease. Redis is called, until the deadline, if that is more than the node
// holds. If the call fails, r is what is owed.
func (s *Store) settleTaken(r *core.Reservation, deadline time.Time) error {
	defer s.renewals.taken.Add(-1)
	taken := r.Taken.(*leaseTaken)
	mono, wall := s.clocks()
	var a rate.LeaseAsk
	k := taken.of
	k.mu.Lock()
	r.Units = rate.SettleLease(&k.lease, k.open.lease, &taken.taken, r.Units, mono, wall, &a)
	k.mu.Unlock()
	r.Taken = nil
	r.Cost = 0
	if a.Size > 0 || a.Spent < 0 {
		s.leaseCache.send(&leaseCall{of: k, ask: a})
	}
	if r.Units == 0 {
		return nil
	}
	return s.settleOne(r, deadline)
}

// refuse rejects a request that a lease has refused, if something is cached about each of the other rules whose units are not held. Otherwise it returns
// false.
func (s *Store) refuse(q *callState, checks []core.Check, uses []leaseUse, mono int64) bool {
	var k cachedDecision
	for i := range checks {
		c := &checks[i]
		if uses[i].step == rate.Held || uses[i].step == rate.Refused {
			continue
		}
		if c.Rule.CountRejected || c.Rule.Limit.InFlight || !s.decisions.find(q.hashes[i], &k) || k.terms != q.rules[i].terms {
			return false
		}
		k.decision(s.clock(), c.Cost, &c.Decision)
	}
	for i := range checks {
		if uses[i].step == rate.Held {
			s.unspend(&checks[i], &uses[i], mono)
		}
	}
	return true
}

// decideRest lets Redis decide on the checks whose units are not held. If it rejects the request, the others give theirs back.
func (s *Store) decideRest(q *callState, checks []core.Check, uses []leaseUse, peek bool, now int64) error {
	rest := callStates.Get().(*callState)
	rest.rules = rest.rules[:0]
	rest.hashes = rest.hashes[:0]
	rest.bits = rest.bits[:0]
	var some []core.Check
	wait := patiently // if none of them is strict
	for i := range checks {
		if uses[i].step != rate.Held {
			if q.rules[i].lease == nil {
				wait = promptly
			}
			rest.rules = append(rest.rules, q.rules[i])
			rest.hashes = append(rest.hashes, q.hashes[i])
			some = append(some, checks[i])
		}
	}
	rest.call.wait = wait
	err := s.decideStrictly(rest, some, peek, now)
	rest.call.wait = promptly
	callStates.Put(rest)
	rejected := err != nil
	mono, _ := s.clocks()
	n := 0
	for i := range checks {
		if uses[i].step == rate.Held {
			continue
		}
		checks[i] = some[n]
		n++
		if !checks[i].Decision.Allowed && !checks[i].Rule.Shadow {
			rejected = true
		}
		if err == nil && !peek && uses[i].of != nil {
			s.concludeLease(uses[i].of, &checks[i])
		}
	}
	if rejected && !peek {
		for i := range checks {
			if uses[i].step == rate.Held {
				s.unspend(&checks[i], &uses[i], mono)
			}
		}
	}
	return err
}

const (
	demandSuffix = ":d" // of the key of the nodes' demand
	leaseNumbers = 8    // of a reply of scriptOfLease, for each key
)

// keysOfLease appends the keys of a lease: see scripts/lease.lua. name is the first.
func keysOfLease(keys []string, name string, o *openRule) []string {
	keys = append(keys, name, name+demandSuffix)
	if o.settles {
		keys = append(keys, name+":h", name+":m")
	}
	return keys
}

// leaseArgument returns a lease's part of the argument of scriptOfLease.
func leaseArgument(a *rate.LeaseAsk, o *openRule) string {
	b := make([]byte, 0, 10*8)
	for _, n := range []int64{a.Mark, a.Size, a.Spent, a.Keep, a.Want, a.Demand, a.Told, a.ToldIn, o.lease.Length, oneIf(o.settles)} {
		b = appendDouble(b, n)
	}
	return string(b)
}

// close gives back all leases. It waits for Redis if that is available.
func (l *leaseCache) close() {
	l.mu.Lock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	due, _ := l.expiring(rate.LongestLease)
	l.mu.Lock()
	due = append(due, l.unsent...)
	l.unsent = nil
	l.mu.Unlock()
	l.underWay.Add(int64(len(due)))
	failed := l.failed.Load()
	for len(due) > 0 && l.failed.Load() == failed { // nobody waits for more than one call in vain
		n := l.together(len(due))
		l.sendSome(due[:n])
		due = due[n:]
	}
}

// Lent is what TakeLease has taken, for GiveBack.
type Lent struct {
	use leaseUse

	Coming bool // more was asked for, and as far as is known there is some
}

// TakeLease decides on a check whose rule is leased by what is held of its key. It returns false if too little is: then it has changed nothing, and asks for more
// aside. It never waits.
func (s *Store) TakeLease(c *core.Check, peek bool, taken *Lent) bool {
	o := opened(c.Rule)
	mono, wall := s.clocks()
	var ask rate.LeaseAsk
	s.useLease(o, s.hashOf(o, c.Key), c, peek, mono, wall, &taken.use, &ask)
	if taken.use.step == rate.Asking {
		k := taken.use.of
		k.mu.Lock()
		taken.Coming = k.lease.ResetAt == 0 || k.lease.Free >= c.Cost
		k.mu.Unlock()
		s.leaseCache.send(&leaseCall{of: k, ask: ask})
	}
	return taken.use.step == rate.Held
}

// GiveBack ends what TakeLease has taken for a check.
func (s *Store) GiveBack(c *core.Check, taken *Lent) {
	mono, _ := s.clocks()
	s.unspend(c, &taken.use, mono)
}
