package redis

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// replicas has what this node knows of keys of rules with consistency eventual: package core's Replica says how that works, and scripts/replicas.lua what Redis
// does.
//
// A request whose replica is fresh does not call Redis. For any other, Redis is called once: it decides, if the request is under no other rule, and brings
// the state. So a key that is seldom asked for is decided on as with consistency strict. Once an interval, which is a round, the keys that were asked for
// since are synchronised, many in a call. No request waits for that. A key that nobody asks for costs nothing.
//
// As the memo has, it has two generations of keys at most, and as many that are to be synchronised, even if they are forgotten meanwhile. It is safe for
// concurrent use.
type replicas struct {
	store  *Store
	shards [memoShards]replicaShard

	mu     sync.Mutex
	rounds map[int64]*round // by the interval
	closed bool

	synced, failed atomic.Int64 // calls of rounds, by their outcome
}

type replicaShard struct {
	mu         sync.Mutex
	young, old map[uint64]*replicaOf
	due        []*replicaOf
	_          [64]byte
}

// replicaOf is a key's replica, under the lock of its shard.
type replicaOf struct {
	replica rate.Replica
	mu      *sync.Mutex // of its shard
	place   int         // of its shard
	rule    *core.Rule  // by which it was used last
	open    *openRule
	name    string // of the key in Redis
	listed  bool   // it is in its shard's due

	round *progress // in which it is due, if it is listed: a reload may have changed that of its rule
}

// round synchronises the keys of all rules with one interval.
type round struct {
	*progress
	every time.Duration
	again func() // one round: made once, as leases.again is

	mu      sync.Mutex
	timer   *time.Timer
	running bool // the timer is set
	busy    bool // a round is under way
}

// progress is what requests need of a round. (It is apart from that, since types that refer to each other in circles confuse the interpreter.)
type progress struct {
	failing atomic.Bool  // the last call has failed
	began   atomic.Int64 // when the round under way began, by the node's clock, and one more; 0: there is none
	took    atomic.Int64 // how long the last round took that has succeeded
	since   atomic.Int64 // when the first of the requests came that were not synchronised yet, by the node's clock; 0: there are none
}

const (
	mostTogether = 100            // keys in a call
	mostDue      = 2 * generation // keys of a shard that are listed
	mostAbreast  = 16             // calls of a round that are under way at a time
	stateNumbers = 8              // of a reply of scriptOfReplicas, for each key
)

// fails reports whether the last calls have failed, or those under way take longer than usual: nobody waits for them to be given up.
func (p *progress) fails(o *openRule, now int64) bool {
	if p.failing.Load() {
		return true
	}
	began := p.began.Load()
	if began == 0 {
		return false
	}
	usual := 2 * p.took.Load()
	if usual < o.sync.Slack {
		usual = o.sync.Slack
	}
	return now-began+1 > usual
}

func (r *replicas) begin(s *Store) {
	r.store = s
	r.rounds = make(map[int64]*round)
}

// roundOf returns the round of an interval, in microseconds.
func (r *replicas) roundOf(every int64) *round {
	r.mu.Lock()
	one := r.rounds[every]
	if one == nil {
		one = &round{progress: &progress{}, every: time.Duration(every) * time.Microsecond}
		one.again = func() { r.goRound(one) }
		r.rounds[every] = one
	}
	r.mu.Unlock()
	return one
}

func anyReplicated(rules []*openRule) bool {
	for _, o := range rules {
		if o.sync != nil {
			return true
		}
	}
	return false
}

// find returns the replica of a key. The caller has the lock of the shard.
func (r *replicas) find(hash uint64, c *core.Check, o *openRule) *replicaOf {
	place := int(hash % memoShards)
	shard := &r.shards[place]
	h := shard.young[hash]
	if h == nil {
		h = shard.old[hash]
		if h == nil {
			h = &replicaOf{mu: &shard.mu, place: place, name: r.store.naming.key(c.Key, o.suffix)}
		}
		if len(shard.young) >= generation {
			shard.old = shard.young
			shard.young = nil
		}
		if shard.young == nil {
			shard.young = make(map[uint64]*replicaOf)
		}
		shard.young[hash] = h
	}
	h.open = o
	h.rule = c.Rule
	return h
}

// forget forgets a key, and what is not sent yet.
func (r *replicas) forget(hash uint64) {
	shard := &r.shards[hash%memoShards]
	shard.mu.Lock()
	h := shard.young[hash]
	if h == nil {
		h = shard.old[hash]
	}
	if h != nil {
		h.replica = rate.Replica{}
	}
	delete(shard.young, hash)
	delete(shard.old, hash)
	shard.mu.Unlock()
}

// touch has a replica synchronised in the next round. The caller has the lock of its shard.
func (r *replicas) touch(h *replicaOf, mono int64) {
	rate.TouchReplica(&h.replica)
	shard := &r.shards[h.place]
	if h.listed && h.round == h.open.round {
		return
	}
	if !h.listed {
		if len(shard.due) >= mostDue { // its next request tries again
			return
		}
		h.listed = true
		shard.due = append(shard.due, h)
	}
	h.round = h.open.round
	r.roundOf(h.open.sync.Every).note(mono, len(shard.due) == mostDue/2)
}

// note sets the timer, unless it is set. If there are many keys, the round begins at once, so that few wait in memory.
func (r *round) note(mono int64, many bool) {
	r.since.CompareAndSwap(0, mono+1)
	r.mu.Lock()
	if r.running && many && !r.busy && r.timer != nil {
		r.timer.Reset(0)
	}
	if !r.running {
		r.running = true
		if r.timer == nil {
			r.timer = time.AfterFunc(r.every, r.again)
		} else {
			r.timer.Reset(r.every)
		}
	}
	r.mu.Unlock()
}

// decideByReplicas decides on several checks, at least one of which has a rule with replicas.
func (s *Store) decideByReplicas(q *inquiry, checks []core.Check, peek bool, now int64) error {
	list := make([]*replicaOf, len(checks))
	var stale []*replicaOf
	for i := range checks {
		if o := q.rules[i].sync; o != nil {
			shard := &s.replicas.shards[q.hashes[i]%memoShards]
			shard.mu.Lock()
			h := s.replicas.find(q.hashes[i], &checks[i], q.rules[i])
			list[i] = h
			if !rate.ReplicaFresh(&h.replica, o, now, h.open.round.fails(h.open, now)) {
				stale = append(stale, h)
			}
			shard.mu.Unlock()
		}
	}
	if err := s.lookAt(stale); err != nil {
		s.lastKnown(q, checks, s.clock())
		lastOfReplicas(list, checks, now)
		return err
	}
	reserved := make([]bool, len(checks))
	rejected := false
	for i := range checks {
		if h := list[i]; h != nil {
			c := &checks[i]
			h.mu.Lock()
			rate.DecideByReplica(&h.replica, c.Rule.Limit, q.rules[i].sync, c.Cost, now, false, &c.Decision)
			if c.Decision.Allowed && !peek {
				rate.ReserveInReplica(&h.replica, c.Cost)
				reserved[i] = true
			}
			if !peek {
				s.replicas.touch(h, now)
			}
			h.mu.Unlock()
			rejected = rejected || !c.Decision.Allowed && !c.Rule.Shadow
		}
	}
	err := s.decideOthers(q, checks, peek || rejected, !peek && rejected, now)
	for i := range checks {
		rejected = rejected || !checks[i].Decision.Allowed && !checks[i].Rule.Shadow
	}
	for i := range checks {
		if reserved[i] {
			h := list[i]
			c := &checks[i]
			h.mu.Lock()
			rate.SettleInReplica(&h.replica, c.Rule.Limit, q.rules[i].sync, c.Cost, now, err == nil && !rejected, &c.Decision)
			h.mu.Unlock()
		}
	}
	if err != nil {
		lastOfReplicas(list, checks, now)
	}
	return err
}

// decideOthers decides on the checks of rules without replicas. With rejected, a rule with replicas has rejected the request: only rules that
// reject it, too, and have count_rejected, are charged.
func (s *Store) decideOthers(q *inquiry, checks []core.Check, peek, rejected bool, now int64) error {
	var places []int
	for i := range checks {
		if q.rules[i].sync == nil {
			places = append(places, i)
		}
	}
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
func (s *Store) decideSome(q *inquiry, checks []core.Check, places []int, peek bool, now int64) error {
	if len(places) == 0 {
		return nil
	}
	some := make([]core.Check, len(places))
	rest := inquiries.Get().(*inquiry)
	rest.rules = rest.rules[:0]
	rest.hashes = rest.hashes[:0]
	rest.bits = rest.bits[:0]
	for n, i := range places {
		rest.rules = append(rest.rules, q.rules[i])
		rest.hashes = append(rest.hashes, q.hashes[i])
		some[n] = checks[i]
	}
	err := s.decideAsked(rest, some, peek, now)
	inquiries.Put(rest)
	for n, i := range places {
		checks[i] = some[n]
	}
	return err
}

// lastOfReplicas sets decisions to what replicas know, for counting on without Redis.
func lastOfReplicas(list []*replicaOf, checks []core.Check, now int64) {
	for i, h := range list {
		if h != nil {
			h.mu.Lock()
			h.last(&checks[i], now)
			h.mu.Unlock()
		}
	}
}

// last sets a decision to what the replica knows. The caller has the lock of its shard.
func (h *replicaOf) last(c *core.Check, now int64) {
	var d rate.Decision
	if rate.ReplicaKnown(&h.replica) {
		rate.DecideByReplica(&h.replica, c.Rule.Limit, h.open.sync, 0, now, false, &d)
	}
	c.Decision = rate.Decision{Limit: d.Limit, Remaining: d.Remaining}
}

// DecideByReplica decides on a single check.
func (s *Store) decideByReplica(o *openRule, checks []core.Check, peek bool) error {
	c := &checks[0]
	hash := s.hashOf(o, c.Key)
	now := s.clock()
	shard := &s.replicas.shards[hash%memoShards]
	shard.mu.Lock()
	h := s.replicas.find(hash, c, o)
	if rate.ReplicaFresh(&h.replica, o.sync, now, o.round.fails(o, now)) {
		rate.DecideByReplica(&h.replica, c.Rule.Limit, o.sync, c.Cost, now, !peek, &c.Decision)
		if !peek {
			s.replicas.touch(h, now)
		}
		shard.mu.Unlock()
		return nil
	}
	shard.mu.Unlock()
	var call rate.ReplicaCall
	rate.BeginLook(now, &call)
	one := &replicaVisit{of: h, call: call}
	err := error(nil)
	if peek {
		err = s.replicas.run([]*replicaVisit{one}, patiently)
	} else {
		err = s.replicas.runOne(one, c)
	}
	if err != nil || peek {
		shard.mu.Lock()
		if err != nil {
			h.last(c, s.clock())
		} else {
			rate.DecideByReplica(&h.replica, c.Rule.Limit, o.sync, c.Cost, s.clock(), false, &c.Decision)
		}
		shard.mu.Unlock()
	}
	return err
}

// lookAt has Redis bring the state of keys.
func (s *Store) lookAt(stale []*replicaOf) error {
	for len(stale) > 0 {
		n := s.replicas.together(stale)
		list := make([]*replicaVisit, n)
		for i := range list {
			list[i] = &replicaVisit{of: stale[i]}
			rate.BeginLook(s.clock(), &list[i].call)
		}
		if err := s.replicas.run(list, patiently); err != nil {
			return err
		}
		stale = stale[n:]
	}
	return nil
}

// together returns how many of the first keys can be in one call: in a Cluster one; and a key whose windows follow the calendar comes alone.
func (r *replicas) together(list []*replicaOf) int {
	if r.store.client.Cluster() {
		return 1
	}
	n := 0
	for n < len(list) && n < mostTogether {
		h := list[n]
		h.mu.Lock()
		alone := h.rule.Limit.Windows(0) != nil
		h.mu.Unlock()
		if alone {
			break
		}
		n++
	}
	if n == 0 {
		n = 1
	}
	return n
}

// replicaVisit is a key's part in a call.
type replicaVisit struct {
	of   *replicaOf
	call rate.ReplicaCall
	done bool
}

// runOne makes a call about one key that lets Redis decide on a request.
func (r *replicas) runOne(v *replicaVisit, c *core.Check) error {
	call := &Call{wait: patiently}
	if err := r.send(call, []*replicaVisit{v}, c); err != nil {
		return err
	}
	if !readDecision(c.Rule, call.Reply, &c.Decision) {
		return errReply
	}
	return nil
}

// run makes a call about keys, and takes over the answer.
func (r *replicas) run(list []*replicaVisit, wait wait) error {
	return r.send(&Call{wait: wait}, list, nil)
}

// send makes a call about keys, and takes over the answer. With a check Redis decides on it; the call has no other key then.
func (r *replicas) send(call *Call, list []*replicaVisit, c *core.Check) error {
	err := r.try(call, list, c)
	r.lose(list, err)
	return err
}

func (r *replicas) try(call *Call, list []*replicaVisit, c *core.Check) error {
	s := r.store
	call.Script = scriptOfReplicas
	for try := 0; ; try++ {
		call.Keys = call.Keys[:0]
		var argument strings.Builder
		for _, v := range list {
			v.of.mu.Lock()
			o := v.of.open
			check := core.Check{Rule: v.of.rule, Cost: v.call.Units}
			v.of.mu.Unlock()
			if c != nil {
				check = *c
			}
			call.Keys = append(call.Keys, v.of.name)
			argument.WriteString(replicaArgument(&v.call, c != nil))
			argument.WriteString(argumentOf(s, call, o, &check, false))
		}
		call.Args = []string{argument.String()}
		server, err := s.client.Server(call.Keys[0])
		if err == nil {
			err = s.callFor(server, call)
		}
		if err != nil {
			return err
		}
		if len(call.Reply) != 1 || try > 0 {
			break
		}
		s.ahead.Store(call.Reply[0] - s.wallClock()) // the server's time lies in none of the calendar's windows that were sent
	}
	if len(call.Reply) != stateNumbers*len(list)+1 {
		return errReply
	}
	mono := s.clock()
	for i, v := range list {
		state := stateOfReply(call.Reply, i, len(list))
		if c != nil && call.Reply[0] >= 0 {
			v.call.Own = c.Cost
		}
		v.of.mu.Lock()
		rate.EndReplicaCall(&v.of.replica, v.of.rule.Limit, v.of.open.sync, &v.call, &state, mono)
		if rate.ReplicaDue(&v.of.replica) {
			r.touch(v.of, mono)
		}
		v.of.open.round.failing.Store(false)
		v.of.mu.Unlock()
		v.done = true
	}
	return nil
}

// stateOfReply returns the state of the i-th of n keys.
func stateOfReply(reply []int64, i, n int) rate.ReplicaState {
	of := reply[stateNumbers*i:]
	return rate.ReplicaState{Now: reply[stateNumbers*n], Blocked: of[4], A: of[5], B: of[6], C: of[7], Reset: of[2]}
}

// lose takes note of those that were not answered. They come again in the next round.
func (r *replicas) lose(list []*replicaVisit, err error) {
	for _, v := range list {
		if !v.done {
			v.of.mu.Lock()
			rate.LoseSync(&v.of.replica, &v.call, executed(err))
			if rate.ReplicaDue(&v.of.replica) {
				r.touch(v.of, r.store.clock())
			}
			v.of.mu.Unlock()
		}
	}
}

// replicaArgument returns a key's part of the argument of scriptOfReplicas, before its rule's.
func replicaArgument(c *rate.ReplicaCall, decides bool) string {
	b := appendDouble(make([]byte, 0, 2*8), c.Late)
	return string(appendDouble(b, oneIf(decides)))
}

// goRound synchronises what is due, and sets the timer for the next time unless there was nothing.
func (r *replicas) goRound(one *round) {
	defer func() {
		_ = recover() // an interpreted program has no other recover
	}()
	due := r.collect(one)
	one.mu.Lock()
	one.running = len(due) > 0 && !r.isClosed()
	if one.running {
		one.timer.Reset(one.every)
	}
	late := one.busy
	one.busy = true
	one.mu.Unlock()
	if late { // the round before is under way: there is no use in another one
		r.putBack(due)
		return
	}
	r.synchronise(one, due)
	one.mu.Lock()
	one.busy = false
	one.mu.Unlock()
}

// collect takes the keys of the round that are due.
func (r *replicas) collect(one *round) []*replicaOf {
	var due []*replicaOf
	for i := range r.shards {
		shard := &r.shards[i]
		shard.mu.Lock()
		var others []*replicaOf
		for _, h := range shard.due {
			if h.round != one.progress {
				others = append(others, h)
				continue
			}
			h.listed = false
			due = append(due, h)
		}
		shard.due = others
		shard.mu.Unlock()
	}
	return due
}

// putBack lists keys again that were collected.
func (r *replicas) putBack(due []*replicaOf) {
	for _, h := range due {
		h.mu.Lock()
		r.touch(h, r.store.clock())
		h.mu.Unlock()
	}
}

// synchronise makes the calls of a round, several at a time.
func (r *replicas) synchronise(one *round, due []*replicaOf) {
	since := one.since.Load()
	one.since.Store(0) // requests from now on belong to the next round
	began := r.store.clock()
	one.began.Store(began + 1)
	var failed atomic.Int64
	for len(due) > 0 {
		if failed.Load() > 0 && r.isClosed() { // nobody waits for more than one call in vain
			r.putBack(due)
			break
		}
		var calls sync.WaitGroup
		for i := 0; i < mostAbreast && len(due) > 0; i++ {
			n := r.together(due)
			calls.Add(1)
			go syncSome(r, due[:n], &failed, &calls)
			due = due[n:]
		}
		calls.Wait()
	}
	one.failing.Store(failed.Load() > 0)
	one.began.Store(0)
	if failed.Load() == 0 {
		one.took.Store(r.store.clock() - began)
	}
	if failed.Load() > 0 {
		one.since.Store(since)
	}
}

// syncSome makes one call of a round.
func syncSome(r *replicas, due []*replicaOf, failed *atomic.Int64, calls *sync.WaitGroup) {
	var list []*replicaVisit
	defer func() {
		if recover() != nil { // an interpreted program has no other recover
			r.lose(list, errReply)
			failed.Add(1)
		}
		calls.Done()
	}()
	for _, h := range due {
		v := &replicaVisit{of: h}
		h.mu.Lock()
		if rate.BeginSync(&h.replica, h.rule.Limit, h.open.sync, r.store.clock(), &v.call) {
			list = append(list, v)
		}
		h.mu.Unlock()
	}
	if len(list) == 0 {
		return
	}
	if err := r.run(list, aside); err != nil {
		failed.Add(1)
		r.failed.Add(1)
		return
	}
	r.synced.Add(1)
}

func (r *replicas) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// close sends what is unsent. It waits for Redis if that is available.
func (r *replicas) close() {
	r.mu.Lock()
	r.closed = true
	var rounds []*round
	for _, one := range r.rounds {
		rounds = append(rounds, one)
	}
	r.mu.Unlock()
	for _, one := range rounds {
		one.mu.Lock()
		if one.timer != nil {
			one.timer.Stop()
		}
		one.running = true // so that nobody sets it again
		one.mu.Unlock()
	}
	r.store.Synchronise()
}

// Synchronise sends what is unsent of rules with consistency eventual, and learns what others have sent, before it is time for that. It waits for Redis if
// that is available.
func (s *Store) Synchronise() {
	s.replicas.mu.Lock()
	var rounds []*round
	for _, one := range s.replicas.rounds {
		rounds = append(rounds, one)
	}
	s.replicas.mu.Unlock()
	for _, one := range rounds {
		s.replicas.synchronise(one, s.replicas.collect(one))
	}
}

// Stands returns how many units of a key this node has admitted that Redis has not confirmed, and how old, in microseconds, what it knows of the other nodes
// is; -1: it knows nothing of the key. The rule must be open in the store.
func (s *Store) Stands(r *core.Rule, key string) (untold, age int64) {
	hash := s.hashOf(opened(r), key)
	shard := &s.replicas.shards[hash%memoShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	h := shard.young[hash]
	if h == nil {
		h = shard.old[hash]
	}
	if h == nil {
		return 0, -1
	}
	return rate.ReplicaStands(&h.replica, s.clock())
}

// SyncStats is the result of Store.SyncStats.
type SyncStats struct {
	Rounds         int   // how many intervals rules have, or had; 0: no rule has replicas
	Age            int64 // for how long the oldest request has waited to be synchronised, in microseconds; 0: there are none
	Synced, Failed int64 // calls, by their outcome
}

// SyncStats returns how the rules with consistency eventual are synchronised.
func (s *Store) SyncStats() SyncStats {
	r := &s.replicas
	stats := SyncStats{Synced: r.synced.Load(), Failed: r.failed.Load()}
	now := s.clock()
	r.mu.Lock()
	stats.Rounds = len(r.rounds)
	for _, one := range r.rounds {
		if since := one.since.Load(); since > 0 && now-since+1 > stats.Age {
			stats.Age = now - since + 1
		}
	}
	r.mu.Unlock()
	return stats
}

// Add adds the numbers of another store. The age is that of the older one.
func (s *SyncStats) Add(o SyncStats) {
	s.Rounds += o.Rounds
	s.Synced += o.Synced
	s.Failed += o.Failed
	if o.Age > s.Age {
		s.Age = o.Age
	}
}
