// Package blobstore is the store of a fleet that has no Redis, but a storage of blobs that all its instances share, such as a folder. Its consistency is
// eventual: each instance decides by its own memory, and at intervals they tell each other what they have admitted. Package tally is the transport.
//
//	Store.Decide  decides in memory, and notes what it admits in the ledger
//	Store.Write   tells the others
//	Store.Read    charges the memory for what the others tell
//	Run           does both at their intervals
//
// # The bound
//
// A decision counts everything that this instance has admitted, and what the others had written before the last read: all that is older than W + R + d. W is
// the interval of writing, R that of reading, and d the longest that a write and a read take together. Charges that come late only make a state fuller. So
// at any time the state that the algorithm would have, had it been charged with everything that was admitted, exceeds the limit by at most what the other
// instances were asked for in the last W + R + d; and by N−1 times the limit, since no instance by itself admits more than the limit. While the storage
// fails, instances decide by what they know, and only the second bound holds.
//
// What the others have probably been admitted since, by the rate of late, is kept free besides: it is not charged. That lowers the usual excess, and not the
// bound.
package blobstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/tally"
	"github.com/proxyweir/weir/core/words"
)

// The defaults of a Config, and the shortest interval.
const (
	DefaultInterval = 5 * time.Second
	DefaultPurgeAge = time.Hour
	DefaultPatience = 30 * time.Second
	MinInterval     = 10 * time.Millisecond
)

// Config configures New.
type Config struct {
	Storage tally.Storage
	Folder  string // in which the blobs are

	ReadEvery  time.Duration // how often others' blobs are read; 0 means DefaultInterval
	WriteEvery time.Duration // how often this instance's blob is written, if there is news; 0 means DefaultInterval

	// PurgeAge is after how long without a change another instance's blob is deleted, when nothing in it counts any more; 0 means DefaultPurgeAge. It is at
	// least three intervals of writing and one of reading, so that no living instance seems to be gone.
	PurgeAge time.Duration

	Patience time.Duration // how long the storage may take for a round of reading or writing; 0 means DefaultPatience

	MaxKeys int // that the memory holds, those of others included; 0 means core.DefaultMaxKeys

	Clock func() int64 // the wall clock in microseconds since the Unix epoch; nil: the system's
	Mono  func() int64 // a clock in microseconds that never steps back; nil: the system's

	// Trouble is called for what went wrong, once until it changes or ends; nil: nobody is told. It must not call the store. Calls can be concurrent.
	Trouble func(error)

	// Purged is called with the name of a blob that was deleted, since its instance is gone; nil: nobody is told.
	Purged func(name string)
}

// Store is a core.Store. New makes it. It is safe for concurrent use.
type Store struct {
	memory   *memory.Store
	exchange *tally.Exchange
	config   Config
	flows    flows

	mu      sync.Mutex
	rules   map[ruleID]*opened
	pending map[tally.Slot]int64 // what others have admitted under rules that are not open here

	going   sync.Mutex // held while blobs are read or written
	trouble string     // of the last write

	stats struct {
		written, writeFailed, read, readTroubles, purged, untold atomic.Int64
		instances                                                atomic.Int64
		readAt                                                   atomic.Int64 // when the blobs were read last, by Mono, plus 1; 0: never
		failing, blind                                           atomic.Bool  // the last write has failed; the folder could not be listed
		stuck                                                    atomic.Bool  // a round does not end, though it was told to
		since                                                    atomic.Int64 // when the first admission came that is not written yet, by Mono, plus 1; 0: all is written
	}
}

// ruleID is the first part of the keys of a rule.
type ruleID [6]byte

// opened is what the store keeps of an identity.
type opened struct {
	digest [sha256.Size]byte // of the identity
	rules  []*core.Rule
}

// New returns a store of a new instance.
func New(c Config) (*Store, error) {
	for _, interval := range []*time.Duration{&c.ReadEvery, &c.WriteEvery} {
		if *interval == 0 {
			*interval = DefaultInterval
		}
		if *interval < MinInterval {
			return nil, fmt.Errorf("interval %s: must be at least %s", *interval, MinInterval)
		}
	}
	if c.PurgeAge == 0 {
		c.PurgeAge = DefaultPurgeAge
	}
	c.PurgeAge = max(c.PurgeAge, 3*c.WriteEvery+c.ReadEvery, time.Second)
	if c.Clock == nil {
		c.Clock = func() int64 { return time.Now().UnixMicro() }
	}
	if c.Mono == nil {
		start := time.Now()
		c.Mono = func() int64 { return time.Since(start).Microseconds() }
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	exchange, err := tally.New(steady{c.Storage}, c.Folder, c.PurgeAge)
	if err != nil {
		return nil, err
	}
	return &Store{
		memory:   memory.New(memory.Config{MaxKeys: c.MaxKeys, Clock: c.Clock}),
		exchange: exchange,
		config:   c,
		rules:    make(map[ruleID]*opened),
		pending:  make(map[tally.Slot]int64),
	}, nil
}

// Delay returns how old a decision's knowledge of other instances may be, apart from the time that the storage takes: the sum of both intervals.
func (s *Store) Delay() time.Duration { return s.config.ReadEvery + s.config.WriteEvery }

// Fits implements core.Selective.
func (s *Store) Fits(r *core.Rule) error { return Fits(r) }

// Fits reports why a rule cannot count in a Store, which decides on a request only by what its instance knows.
func Fits(r *core.Rule) error {
	if r.LeaseTerms() != nil {
		return words.Wrong("consistency", "lease", "units are leased from Redis, and in this store every rule is eventual; remove it")
	}
	if r.SyncTerms() != nil {
		return words.Wrong("consistency", "eventual", "in this store every rule is eventual, by the store's read_interval and write_interval; remove it")
	}
	if why := r.NeedsOneStore(); why != "" {
		return words.Wrong("store", "storage", " and "+why+", or count in another store")
	}
	return nil
}

// Advice returns what is unwise about a rule's limit in this store: it is whole again so soon that instances hear of each other too late. "" means nothing.
func (s *Store) Advice(r *core.Rule) string {
	whole := time.Duration(rate.WholeAfter(r.Limit)) * time.Microsecond
	if r.Blocks() || whole >= 5*s.Delay() {
		return ""
	}
	return fmt.Sprintf("the limit %s is whole again after %s, and instances hear of each other after up to %s: together they can admit much more than the limit; "+
		"shorter read_interval and write_interval, or a store in Redis, keep to it", r.Limit, whole, s.Delay())
}

// Open implements core.Store.
func (s *Store) Open(r *core.Rule) error {
	if err := s.Fits(r); err != nil {
		return err
	}
	if err := s.memory.Open(r); err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(r.Identity))
	id := ruleID(digest[:len(ruleID{})])
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.rules[id]
	if o == nil {
		o = &opened{digest: digest}
		s.rules[id] = o
	}
	r.Keep(o)
	o.rules = append(o.rules, r)
	for slot, units := range s.pending {
		if idOf(slot.Key) == id {
			delete(s.pending, slot)
			s.charge(r, slot, units)
		}
	}
	return nil
}

// Release implements core.Store.
func (s *Store) Release(r *core.Rule) {
	s.mu.Lock()
	o := r.Kept().(*opened)
	for i := range o.rules {
		if o.rules[i] == r {
			o.rules = append(o.rules[:i:i], o.rules[i+1:]...)
			break
		}
	}
	if len(o.rules) == 0 {
		delete(s.rules, ruleID(o.digest[:len(ruleID{})]))
	}
	s.mu.Unlock()
	s.memory.Release(r)
}

func idOf(k tally.Key) ruleID { return ruleID(k[:len(ruleID{})]) }

// key returns what a client's key under the rule is called in blobs, and in the memory.
func (o *opened) key(key string) tally.Key {
	var space [256]byte
	sum := sha256.Sum256(append(append(space[:0], o.digest[:]...), key...))
	var k tally.Key
	copy(k[copy(k[:], o.digest[:len(ruleID{})]):], sum[:])
	return k
}

// scratch is what a decision needs for each of its checks.
type scratch struct {
	names  []string // the clients' keys
	keys   []tally.Key
	beside []int64
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// Decide implements core.Store. It never fails.
func (s *Store) Decide(checks []core.Check, peek bool) error {
	w := scratches.Get().(*scratch)
	w.names, w.keys, w.beside = w.names[:0], w.keys[:0], w.beside[:0]
	guesses := false
	for i := range checks {
		c := &checks[i]
		key := c.Rule.Kept().(*opened).key(c.Key)
		units := s.flows.probable(key, c.Rule.Limit, s.config.Clock)
		guesses = guesses || units > 0
		w.names, w.keys, w.beside = append(w.names, c.Key), append(w.keys, key), append(w.beside, units)
		c.Key = string(key[:])
	}
	if guesses {
		s.memory.DecideBeside(checks, w.beside, peek)
	} else {
		s.memory.Decide(checks, peek)
	}
	admits := !peek
	for i := range checks {
		c := &checks[i]
		c.Key = w.names[i]
		admits = admits && (c.Decision.Allowed || c.Rule.Shadow)
	}
	if admits {
		s.note(checks, w.keys)
	}
	clear(w.names)
	scratches.Put(w)
	return nil
}

// note notes what was admitted in the ledger.
func (s *Store) note(checks []core.Check, keys []tally.Key) {
	now := s.config.Clock()
	for i := range checks {
		c := &checks[i]
		if !c.Decision.Allowed || c.Cost < 1 {
			continue
		}
		slot := rate.SlotOf(c.Rule.Limit, now, s.config.WriteEvery.Microseconds())
		if slot.Start < 0 || !s.exchange.Ledger.Add(tally.Slot{Key: keys[i], Start: slot.Start, End: slot.End}, c.Cost) {
			s.stats.untold.Add(c.Cost)
		}
	}
	if s.stats.since.Load() == 0 {
		s.stats.since.CompareAndSwap(0, s.config.Mono()+1)
	}
}

// Settle implements core.Store. No rule of the store reserves anything.
func (s *Store) Settle(reservations []core.Reservation) error { return nil }

// Block implements core.Store, for this instance alone.
func (s *Store) Block(r *core.Rule, key string, duration int64) error {
	k := r.Kept().(*opened).key(key)
	return s.memory.Block(r, string(k[:]), duration)
}

// Carry implements core.Store. A key has another name under another identity, so blocks end with it.
func (s *Store) Carry(from, to *core.Rule, done func()) { done() }

// Reset implements core.Store, for this instance alone. Others still count what it has told them.
func (s *Store) Reset(r *core.Rule, key string) error {
	k := r.Kept().(*opened).key(key)
	s.flows.forget(k)
	return s.memory.Reset(r, string(k[:]))
}

// Now implements core.Store.
func (s *Store) Now() int64 { return s.memory.Now() }

// Write writes this instance's counts, if there is news. ctx bounds the time that the storage may take.
func (s *Store) Write(ctx context.Context) error {
	s.going.Lock()
	defer s.going.Unlock()
	since := s.stats.since.Swap(0)
	err := s.exchange.Write(ctx, s.config.Clock(), s.config.Mono())
	if err == nil {
		s.stats.written.Store(int64(s.exchange.Written()))
		s.stats.failing.Store(false)
		s.trouble = ""
		return nil
	}
	if since != 0 {
		s.stats.since.Store(since)
	}
	s.stats.writeFailed.Add(1)
	s.stats.failing.Store(true)
	if s.trouble != err.Error() {
		s.trouble = err.Error()
		s.tell(err)
	}
	return err
}

func (s *Store) tell(err error) {
	if s.config.Trouble != nil {
		s.config.Trouble(err)
	}
}

// Read charges the memory for what other instances have admitted since the last Read. ctx bounds the time that the storage may take.
func (s *Store) Read(ctx context.Context) {
	s.going.Lock()
	defer s.going.Unlock()
	now := s.config.Clock()
	news := s.exchange.Read(ctx, now, s.config.Mono())
	s.stats.read.Add(1)
	s.stats.readTroubles.Store(int64(s.exchange.Damaged()))
	s.stats.instances.Store(int64(s.exchange.Others()))
	s.stats.blind.Store(!s.exchange.Lists())
	if s.exchange.Lists() {
		s.stats.readAt.Store(s.config.Mono() + 1)
	}
	s.stats.purged.Add(int64(len(news.Purged)))
	for _, err := range news.Troubles {
		s.tell(err)
	}
	if s.config.Purged != nil {
		for _, name := range news.Purged {
			s.config.Purged(name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	admitted := make(map[tally.Key]int64, len(news.Counts))
	for _, c := range news.Counts {
		o := s.rules[idOf(c.Key)]
		if o == nil {
			if _, has := s.pending[c.Slot]; has || len(s.pending) < tally.MaxCounts {
				s.pending[c.Slot] += c.Units
			}
			continue
		}
		s.charge(o.rules[0], c.Slot, c.Units)
		admitted[c.Key] += c.Units
	}
	for slot := range s.pending {
		if slot.End <= now {
			delete(s.pending, slot)
		}
	}
	s.flows.learn(s, admitted, now)
}

// charge charges the memory for what another instance has admitted.
func (s *Store) charge(r *core.Rule, slot tally.Slot, units int64) {
	s.memory.ChargeSlot(r, string(slot.Key[:]), rate.Slot{Start: slot.Start, End: slot.End}, units)
}

// ReadAge returns how long ago, in microseconds, the counts of others were read; -1: never.
func (s *Store) ReadAge() int64 {
	at := s.stats.readAt.Load()
	if at == 0 {
		return -1
	}
	return max(s.config.Mono()-at+1, 0)
}

// Stats is the result of Store.Stats.
type Stats struct {
	Instances int64 // other instances of which there are blobs
	Damaged   int64 // those of them whose blob cannot be read
	Written   int64 // how often the blob was written
	Failed    int64 // how often it has failed
	Read      int64 // how often Read was called
	Purged    int64 // blobs that were deleted
	Untold    int64 // units that were admitted and not told, since there is no space in the ledger
	Failing   bool  // whether the last Write has failed, the last Read could not list the blobs, or Run waits in vain for the storage
	Age       int64 // for how long the oldest admission has waited to be written, in microseconds; 0: there is none
	Keys      int64 // that the memory holds
}

// Stats returns how the store does.
func (s *Store) Stats() Stats {
	st := Stats{
		Instances: s.stats.instances.Load(),
		Damaged:   s.stats.readTroubles.Load(),
		Written:   s.stats.written.Load(),
		Failed:    s.stats.writeFailed.Load(),
		Failing:   s.stats.failing.Load() || s.stats.blind.Load() || s.stats.stuck.Load(),
		Read:      s.stats.read.Load(),
		Purged:    s.stats.purged.Load(),
		Untold:    s.stats.untold.Load(),
		Keys:      s.memory.Stats().Keys,
	}
	if since := s.stats.since.Load(); since > 0 {
		st.Age = max(s.config.Mono()-since+1, 1)
	}
	return st
}

// Add adds the numbers of another store. The age is that of the older one, and both may see the same other instances.
func (s *Stats) Add(o Stats) {
	s.Instances = max(s.Instances, o.Instances)
	s.Damaged = max(s.Damaged, o.Damaged)
	s.Written += o.Written
	s.Failed += o.Failed
	s.Read += o.Read
	s.Purged += o.Purged
	s.Untold += o.Untold
	s.Failing = s.Failing || o.Failing
	s.Age = max(s.Age, o.Age)
	s.Keys += o.Keys
}

// Interface guards
var (
	_ core.Store     = (*Store)(nil)
	_ core.Selective = (*Store)(nil)
)
