// Package eventual is consistency eventual: each instance of a fleet decides by its own memory, and at intervals they tell each other what they have
// admitted. Package usage has what they tell. What carries it is a storage of blobs that all instances share, such as a folder (package blobstore), or Redis
// (package redis).
//
//	Store.Decide   decides in memory, and notes what it admits
//	Store.Collect  brings what was noted to the ledger, to be told to the others
//	Store.Hear     charges the memory for what the others tell
//
// The memory holds the keys that this instance was asked for. What others tell of other keys is only kept, and charged when a request for the key comes.
//
// # The bound
//
// A decision counts everything that this instance has admitted, and what the others had told before it has heard from them last: all that is older than
// W + R + d. W is the interval of telling, R that of hearing, and d the longest that both take together. Charges that come late only make a state fuller. So
// at any time the state that the algorithm would have, had it been charged with everything that was admitted, exceeds the limit by at most what the other
// instances were asked for in the last W + R + d; and by N−1 times the limit, since no instance by itself admits more than the limit. While instances
// hear nothing, they decide by what they know, and only the second bound holds.
//
// Requests that are charged when their responses have ended are told then, whatever the limit says of it. What a key owes by that every instance has that knows
// of it before its slot is over. An instance that hears of the key later, or of what belongs to a window that has ended, takes that for paid.
//
// What the others have probably been admitted since, by the rate of late, is kept free besides: it is not charged. That lowers the usual excess, and not the
// bound.
package eventual

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/recent"
	"github.com/proxyweir/weir/core/usage"
)

// Config configures New.
type Config struct {
	MaxKeys int          // that the memory holds; 0 means memory.DefaultMaxKeys
	Index   memory.Index // of the memory

	Clock func() int64 // the wall clock in microseconds since the Unix epoch; nil: the system's
	Ahead *int64       // by how much the clock that all instances go by is ahead of it: see memory.Config

	// Hash returns what a client's key is called among instances, which must all have the same; nil means a part of its SHA-256.
	Hash func(key string) uint64

	Read, Write time.Duration // the intervals of hearing and of telling
}

// seen is a key that was asked for here.
type seen struct {
	rule      uint64
	text      string
	evictions int64 // of the memory, when it was known to have the key
	serial    int64 // of what others had told when the key was charged for it: see usage.Counts
}

// Store is a core.Store. New makes it. It is safe for concurrent use.
type Store struct {
	Ledger usage.Ledger // what this instance has admitted
	Others usage.Others // what others have told

	memory *memory.Store
	clock  func() int64
	hash   func(key string) uint64
	flows  flows

	mu          sync.RWMutex
	read, write int64 // the intervals
	heardAt     int64 // when Hear was called last, by clock; 0: never
	rules       map[uint64][]*core.Rule
	ids         map[*core.Rule]uint64
	marks       map[uint64]usage.Mark // by rule and key
	keys        recent.Map[seen]      // those that were asked for here, by rule and key

	building sync.Mutex // held while a key gets what the ledger and the others know of it

	untold int64 // units that were admitted and cannot be told, since there is no space in the ledger
}

// generation is how many keys a generation of those that were asked for has.
const generation = memory.DefaultMaxKeys / 2

// New returns a store of a new instance.
func New(c Config) *Store {
	s := &Store{hash: c.Hash, rules: make(map[uint64][]*core.Rule), ids: make(map[*core.Rule]uint64)}
	if c.Ahead == nil {
		c.Ahead = new(int64)
	}
	s.memory = memory.New(memory.Config{MaxKeys: c.MaxKeys, Clock: c.Clock, Ahead: c.Ahead, Index: c.Index})
	s.clock = s.memory.Now
	if s.hash == nil {
		s.hash = hashOf
	}
	s.marks = make(map[uint64]usage.Mark)
	s.SetIntervals(c.Read, c.Write)
	return s
}

// IDOf returns what a rule of that identity is called among instances.
func IDOf(identity string) uint64 { return hashOf(identity) }

func hashOf(key string) uint64 {
	sum := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(sum[:8])
}

// SetIntervals sets the intervals of hearing and of telling.
func (s *Store) SetIntervals(read, write time.Duration) {
	s.mu.Lock()
	s.read = int64(read / time.Microsecond)
	s.write = int64(write / time.Microsecond)
	s.mu.Unlock()
}

// Open implements core.Store.
func (s *Store) Open(r *core.Rule) error {
	if err := s.memory.Open(r); err != nil {
		return err
	}
	id := hashOf(r.Identity)
	s.mu.Lock()
	s.rules[id] = append(s.rules[id], r)
	s.ids[r] = id
	s.mu.Unlock()
	return nil
}

// Release implements core.Store.
func (s *Store) Release(r *core.Rule) {
	s.mu.Lock()
	id := s.ids[r]
	delete(s.ids, r)
	var rest []*core.Rule
	for _, other := range s.rules[id] {
		if other != r {
			rest = append(rest, other)
		}
	}
	s.rules[id] = rest
	if len(rest) == 0 {
		delete(s.rules, id)
		for _, m := range []map[uint64]*seen{s.keys.Young, s.keys.Old} { // its keys are forgotten
			for key, k := range m {
				if k.rule == id {
					delete(m, key)
				}
			}
		}
	}
	s.mu.Unlock()
	s.memory.Release(r)
}

// idOf returns what a rule is called among instances. After a reload, requests that came before may ask for a rule that is no longer open.
func (s *Store) idOf(r *core.Rule) uint64 {
	s.mu.RLock()
	id, is := s.ids[r]
	s.mu.RUnlock()
	if !is {
		id = hashOf(r.Identity)
	}
	return id
}

// scratch is what a decision needs for each of its checks.
type scratch struct {
	rules, keys []uint64
	beside      []int64
}

var scratches = sync.Pool{New: func() interface{} { return new(scratch) }}

// Decide implements core.Store. It never fails.
func (s *Store) Decide(checks []core.Check, peek bool) error {
	if len(checks) == 1 && !peek && checks[0].Cost > 0 && s.memory.DecideCalm(&checks[0]) {
		return nil
	}
	w := scratches.Get().(*scratch)
	w.rules = w.rules[:0]
	w.keys = w.keys[:0]
	w.beside = w.beside[:0]
	guesses := false
	for i := range checks {
		c := &checks[i]
		rule := s.idOf(c.Rule)
		key, units := s.prepare(c, rule)
		units += s.flows.probable(rule^key, c.Rule.Limit, s.clock())
		guesses = guesses || units > 0
		w.rules = append(w.rules, rule)
		w.keys = append(w.keys, key)
		w.beside = append(w.beside, units)
	}
	if guesses {
		_ = s.memory.DecideWithExtra(checks, w.beside, peek) // memory never fails
	} else {
		_ = s.memory.Decide(checks, peek)
	}
	admits := !peek
	for i := range checks {
		admits = admits && (checks[i].Decision.Allowed || checks[i].Rule.Shadow)
	}
	if admits {
		now := s.clock()
		for i := range checks {
			c := &checks[i]
			if c.Decision.Allowed && c.Cost > 0 && c.Ticket == 0 { // else it is noted when it is charged
				s.note(c, w.rules[i], w.keys[i], c.Cost, w.beside[i], now)
			}
		}
	}
	scratches.Put(w)
	return nil
}

// prepare has the memory know of a check's key what the ledger and the others know. It returns the key's hash, and the units that are reserved under it.
func (s *Store) prepare(c *core.Check, rule uint64) (uint64, int64) {
	var key uint64
	u, known := s.memory.Find(c)
	if u != nil {
		key = u.Key
		if known {
			return key, s.memory.Reserved(u)
		}
	} else {
		key = s.hash(c.Key)
	}
	evictions := s.memory.Stats().Evictions
	s.mu.RLock()
	k := s.keys.Young[rule^key]
	s.mu.RUnlock()
	if k == nil || !known && k.evictions != evictions {
		s.build(c, rule, key, evictions)
	}
	if u != nil {
		return key, s.memory.Reserved(u)
	}
	return key, 0
}

// build charges a key that is new here, or that the memory has had to forget, for what the ledger and the others know of it.
func (s *Store) build(c *core.Check, rule, key uint64, evictions int64) {
	s.building.Lock()
	defer s.building.Unlock()
	_, known := s.memory.Find(c)
	s.mu.RLock()
	k := s.keys.Find(rule ^ key)
	mark, marked := s.marks[rule^key]
	s.mu.RUnlock()
	next := &seen{rule: rule, text: c.Key, evictions: evictions}
	var counts map[usage.Slot]int64
	if k == nil || !known && k.evictions != evictions {
		counts = s.Ledger.Of(rule, key)
		next.serial = s.Others.Of(rule, key, counts)
	} else {
		next.serial = k.serial
	}
	s.mu.Lock()
	s.keys.Put(rule^key, next, generation)
	s.mu.Unlock()
	now := s.clock()
	if counts != nil && marked && mark.Until > now {
		_ = s.memory.Block(c.Rule, c.Key, mark.Until-now)
	}
	for slot, units := range counts {
		if !marked || slot.Start >= mark.Until {
			s.memory.ChargeSlot(c.Rule, c.Key, rate.Slot{Start: slot.Start, End: slot.End}, units)
		}
	}
}

// note notes what was admitted of a key, and how much is left, without what others are going to be admitted in an interval.
func (s *Store) note(c *core.Check, rule, key uint64, units, beside, now int64) *memory.Untold {
	s.mu.RLock()
	write := s.write
	mark, marked := s.marks[rule^key]
	s.mu.RUnlock()
	slot := rate.SlotOf(c.Rule.Limit, now, write)
	if marked && mark.Until > slot.Start {
		slot.Start = mark.Until
	}
	left := c.Decision.Remaining - s.flows.probable(rule^key, c.Rule.Limit, now+write) + beside
	return s.memory.Note(c, rule, key, slot, units, left)
}

// Collect brings what was admitted since to the ledger. It reports whether there was anything.
func (s *Store) Collect() bool {
	admitted := s.memory.Collect()
	now := s.clock()
	for _, a := range admitted {
		if a.Fast { // nobody knows whether the slot was over: the later one counts for longer
			s.mu.RLock()
			rules := s.rules[a.Rule]
			write := s.write
			s.mu.RUnlock()
			if len(rules) > 0 {
				if slot := rate.SlotOf(rules[0].Limit, now, write); slot.End > a.Slot.End {
					a.Slot = slot
				}
			}
		}
		if a.Slot.Start < 0 || !s.Ledger.Add(usage.Slot{Rule: a.Rule, Start: a.Slot.Start, End: a.Slot.End}, a.Key, a.Units) {
			s.mu.Lock()
			s.untold += a.Units
			s.mu.Unlock()
		}
	}
	return len(admitted) > 0
}

// Hear charges the memory for what others have told.
func (s *Store) Hear(news *usage.News) {
	now := s.clock()
	for _, m := range news.Marks {
		s.hearMark(m, now)
	}
	admitted := make(map[uint64]heard)
	for i := range news.Counts {
		c := &news.Counts[i]
		s.mu.RLock()
		rules := s.rules[c.Slot.Rule]
		s.mu.RUnlock()
		if len(rules) == 0 {
			continue
		}
		s.hearCounts(c, rules[0], admitted)
	}
	s.mu.Lock()
	for key, m := range s.marks {
		if m.End <= now {
			delete(s.marks, key)
		}
	}
	before := s.heardAt
	s.heardAt = now
	s.mu.Unlock()
	if before != 0 { // nobody knows in how long a time others were admitted what an instance hears first
		s.flows.learn(s, admitted, before, now)
	}
}

// heard is what others were admitted of a key, which was asked for here.
type heard struct {
	rule  *core.Rule
	text  string
	units int64
}

// hearCounts charges the memory for what others were admitted in a slot.
func (s *Store) hearCounts(c *usage.Counts, r *core.Rule, admitted map[uint64]heard) {
	var (
		k    *seen
		slot rate.Slot
		id   uint64
		h    heard
	)
	slot = rate.Slot{Start: c.Slot.Start, End: c.Slot.End}
	for n, key := range c.Keys {
		id = c.Slot.Rule ^ key
		s.building.Lock() // whoever builds the key has either done so, or is yet to read what was told
		s.mu.RLock()
		k = s.keys.Young[id]
		if k == nil {
			k = s.keys.Old[id]
		}
		s.mu.RUnlock()
		s.building.Unlock()
		if k == nil || k.serial >= c.Serial { // it was charged when the key was asked for
			continue
		}
		s.memory.ChargeSlot(r, k.text, slot, int64(c.Units[n]))
		h = admitted[id]
		h.rule = r
		h.text = k.text
		h.units += int64(c.Units[n])
		admitted[id] = h
	}
}

// hearMark blocks or resets a key, as another instance says.
func (s *Store) hearMark(m usage.Mark, now int64) {
	id := m.Rule ^ m.Key
	s.mu.Lock()
	known, has := s.marks[id]
	rules := s.rules[m.Rule]
	if has && known.At >= m.At {
		s.mu.Unlock()
		return
	}
	s.marks[id] = m
	k := s.keys.Find(id)
	s.mu.Unlock()
	if k == nil || len(rules) == 0 {
		return
	}
	s.begin(rules[0], k.text, id, m.Until-now)
}

// begin has a key begin afresh, after that many microseconds in which it is blocked.
func (s *Store) begin(r *core.Rule, key string, id uint64, blocked int64) {
	s.memory.ForgetUntold(r, key)
	s.flows.forget(id)
	_ = s.memory.Reset(r, key)
	if blocked > 0 {
		_ = s.memory.Block(r, key, blocked)
	}
}

// Reserve decides on checks as Decide does, and if all enforced rules allow the request, keeps the units of those that allow it until Conclude. It returns
// what Conclude needs; nil: a rule rejects the request.
func (s *Store) Reserve(checks []core.Check) []*memory.Untold {
	_ = s.Decide(checks, true)
	for i := range checks {
		if !checks[i].Decision.Allowed && !checks[i].Rule.Shadow {
			return nil
		}
	}
	list := make([]*memory.Untold, len(checks))
	now := s.clock()
	for i := range checks {
		c := &checks[i]
		if c.Decision.Allowed {
			key := s.hash(c.Key)
			list[i] = s.note(c, s.idOf(c.Rule), key, 0, 0, now)
			s.memory.Reserve(list[i], c.Cost)
		}
	}
	return list
}

// Conclude ends a reservation: the checks are charged, or decided as if the request had not come.
func (s *Store) Conclude(checks []core.Check, reserved []*memory.Untold, keep bool) {
	for i, u := range reserved {
		if u != nil {
			s.memory.Reserve(u, -checks[i].Cost)
		}
	}
	if keep {
		_ = s.Decide(checks, false)
		return
	}
	for i := range checks {
		if c := &checks[i]; reserved[i] != nil {
			cost := c.Cost
			c.Cost = 0
			_ = s.Decide(checks[i:i+1], true)
			c.Cost = cost
		}
	}
}

// Settle implements core.Store. What a request under way has reserved counts on this instance alone. Others hear of what it is charged.
func (s *Store) Settle(reservations []core.Reservation) error {
	now := s.clock()
	for i := range reservations {
		r := &reservations[i]
		c := core.Check{Rule: r.Rule, Key: r.Key}
		rule := s.idOf(r.Rule)
		key, _ := s.prepare(&c, rule)
		_ = s.memory.Settle(reservations[i : i+1]) // memory never fails
		if r.Units > 0 {
			s.note(&c, rule, key, r.Units, 0, now)
		}
	}
	return nil
}

// Block implements core.Store. Others hear of it.
func (s *Store) Block(r *core.Rule, key string, duration int64) error {
	if duration > 0 {
		s.mark(r, key, duration)
		return s.memory.Block(r, key, duration)
	}
	id := s.idOf(r) ^ s.hash(key)
	s.mu.RLock()
	mark, has := s.marks[id]
	s.mu.RUnlock()
	if has && mark.Until > s.clock() {
		s.mark(r, key, 0)
	}
	return s.memory.Block(r, key, 0)
}

// Credit implements core.Store: what was told cannot be taken back.
func (s *Store) Credit(r *core.Rule, key string, units int64) error {
	return fmt.Errorf("%wits instances have told each other what they have admitted, and cannot take that back; give the key a higher limit until a time", core.ErrNoCredit)
}

// Reset implements core.Store. Others hear of it.
func (s *Store) Reset(r *core.Rule, key string) error {
	s.mark(r, key, 0)
	s.begin(r, key, s.idOf(r)^s.hash(key), 0)
	return nil
}

// mark tells the others that a key begins afresh after a duration.
func (s *Store) mark(r *core.Rule, key string, duration int64) {
	now := s.clock()
	m := usage.Mark{Rule: s.idOf(r), Key: s.hash(key), At: now, Until: now + duration}
	s.mu.Lock()
	m.End = rate.SlotOf(r.Limit, m.Until, s.write).End
	s.marks[m.Rule^m.Key] = m
	s.mu.Unlock()
	s.Ledger.AddMark(m)
}

// Carry implements core.Store. Blocks that were made here are told under the other identity, too.
func (s *Store) Carry(from, to *core.Rule, done func()) {
	rule := s.idOf(from)
	other := s.idOf(to)
	s.mu.Lock()
	var carried []usage.Mark
	for _, m := range s.marks {
		if m.Rule == rule && m.Until > m.At {
			m.Rule = other
			s.marks[other^m.Key] = m
			carried = append(carried, m)
		}
	}
	s.mu.Unlock()
	for _, m := range carried {
		s.Ledger.AddMark(m)
	}
	s.memory.Carry(from, to, done)
}

// Now implements core.Store.
func (s *Store) Now() int64 { return s.memory.Now() }

// Memory returns the memory by which the store decides, for fast paths.
func (s *Store) Memory() *memory.Store { return s.memory }

// Stands returns how many units of a key this instance has admitted that the others were not told.
func (s *Store) Stands(r *core.Rule, key string) int64 {
	untold := int64(0)
	u, _ := s.memory.Find(&core.Check{Rule: r, Key: key})
	if u != nil {
		untold = s.memory.UntoldUnits(u)
	}
	return untold + s.Ledger.Untold(s.idOf(r), s.hash(key))
}

// Untold returns how many units were admitted and cannot be told, since there is no space in the ledger.
func (s *Store) Untold() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.untold
}

var _ core.Store = (*Store)(nil)
