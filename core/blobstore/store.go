// Package blobstore is the store of a fleet that has no Redis, but a storage of blobs that all its instances share, such as a folder. Its consistency is
// eventual: package eventual says how instances decide, and this package carries what they tell. Each instance has one blob, and nobody else writes it.
//
//	Store.Write  tells the others
//	Store.Read   hears what the others tell
//	Store.Run    does both at their intervals
package blobstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/eventual"
	"github.com/proxyweir/weir/core/rate"
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
	Storage Storage
	Folder  string // in which the blobs are

	ReadEvery  time.Duration // how often others' blobs are read; 0 means DefaultInterval
	WriteEvery time.Duration // how often this instance's blob is written, if there is news; 0 means DefaultInterval

	// PurgeAge is after how long without a change another instance's blob is deleted, when nothing in it counts any more; 0 means DefaultPurgeAge. It is at
	// least three intervals of writing and one of reading, so that no living instance seems to be gone.
	PurgeAge time.Duration

	Patience time.Duration // how long the storage may take for a round of reading or writing; 0 means DefaultPatience

	MaxKeys int // that the memory holds; 0 means memory.DefaultMaxKeys

	Clock func() int64 // the wall clock in microseconds since the Unix epoch; nil: the system's
	Mono  func() int64 // a clock in microseconds that never steps back; nil: the system's

	// Trouble is called for what went wrong, once until it changes or ends; nil: nobody is told. It must not call the store. Calls can be concurrent.
	Trouble func(error)

	// Purged is called with the name of a blob that was deleted, since its instance is gone; nil: nobody is told.
	Purged func(name string)
}

// Store is a core.Store. New makes it. It is safe for concurrent use.
type Store struct {
	*eventual.Store

	exchange *exchange
	config   Config

	going   sync.Mutex // held while blobs are read or written
	trouble string     // of the last write

	stats struct {
		written, writeFailed, read, readTroubles, purged atomic.Int64
		instances                                        atomic.Int64
		readAt                                           atomic.Int64 // when the blobs were read last, by Mono, plus 1; 0: never
		failing, blind                                   atomic.Bool  // the last write has failed; the folder could not be listed
		stuck                                            atomic.Bool  // a round does not end, though it was told to
		since                                            atomic.Int64 // when the first admission came that is not written yet, by Mono, plus 1; 0: all is written
	}
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
	for _, least := range []time.Duration{3*c.WriteEvery + c.ReadEvery, time.Second} {
		if c.PurgeAge < least {
			c.PurgeAge = least
		}
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	if c.Mono == nil {
		start := time.Now()
		c.Mono = func() int64 { return time.Since(start).Microseconds() }
	}
	s := &Store{config: c, Store: eventual.New(eventual.Config{MaxKeys: c.MaxKeys, Clock: c.Clock, Read: c.ReadEvery, Write: c.WriteEvery})}
	exchange, err := newExchange(&s.Ledger, &s.Others, steady{c.Storage}, c.Folder, c.PurgeAge)
	s.exchange = exchange
	return s, err
}

// Delay returns how old a decision's knowledge of other instances may be, apart from the time that the storage takes: the sum of both intervals.
func (s *Store) Delay() time.Duration { return s.config.ReadEvery + s.config.WriteEvery }

// Fits implements core.Selective.
func (s *Store) Fits(r *core.Rule) error { return Fits(r) }

// Fits reports why a rule cannot count in a Store, which decides on a request only by what its instance knows.
func Fits(r *core.Rule) error {
	if r.LeasesFromHome() {
		return words.Wrong("regions", "lease", "units are leased from Redis, and in this store every rule is eventual; remove it")
	}
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
	return s.Store.Open(r)
}

// Decide implements core.Store. It never fails.
func (s *Store) Decide(checks []core.Check, peek bool) error {
	_ = s.Store.Decide(checks, peek)
	if !peek && s.stats.since.Load() == 0 {
		for i := range checks {
			if checks[i].Decision.Allowed {
				s.stats.since.CompareAndSwap(0, s.config.Mono()+1)
			}
		}
	}
	return nil
}

// Write writes this instance's counts, if there is news. ctx bounds the time that the storage may take.
func (s *Store) Write(ctx context.Context) error {
	s.going.Lock()
	defer s.going.Unlock()
	since := s.stats.since.Swap(0)
	s.Collect()
	err := s.exchange.Write(ctx, s.Now(), s.config.Mono())
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
		s.report(err)
	}
	return err
}

func (s *Store) report(err error) {
	if s.config.Trouble != nil {
		s.config.Trouble(err)
	}
}

// Read charges the memory for what other instances have admitted since the last Read. ctx bounds the time that the storage may take.
func (s *Store) Read(ctx context.Context) {
	s.going.Lock()
	defer s.going.Unlock()
	news := s.exchange.Read(ctx, s.Now(), s.config.Mono())
	s.stats.read.Add(1)
	s.stats.readTroubles.Store(int64(s.exchange.Damaged()))
	s.stats.instances.Store(int64(s.exchange.Others()))
	s.stats.blind.Store(!s.exchange.Lists())
	if s.exchange.Lists() {
		s.stats.readAt.Store(s.config.Mono() + 1)
	}
	s.stats.purged.Add(int64(len(news.Purged)))
	for _, err := range news.Troubles {
		s.report(err)
	}
	if s.config.Purged != nil {
		for _, name := range news.Purged {
			s.config.Purged(name)
		}
	}
	s.Hear(&news)
}

// ReadAge returns how long ago, in microseconds, the counts of others were read; -1: never.
func (s *Store) ReadAge() int64 {
	at := s.stats.readAt.Load()
	if at == 0 {
		return -1
	}
	return rate.AtLeast(s.config.Mono()-at+1, 0)
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
		Untold:    s.Untold(),
		Keys:      s.Memory().Stats().Keys,
	}
	if since := s.stats.since.Load(); since > 0 {
		st.Age = rate.AtLeast(s.config.Mono()-since+1, 1)
	}
	return st
}

// Add adds the numbers of another store. The age is that of the older one, and both may see the same other instances.
func (s *Stats) Add(o Stats) {
	s.Instances = rate.AtLeast(s.Instances, o.Instances)
	s.Damaged = rate.AtLeast(s.Damaged, o.Damaged)
	s.Written += o.Written
	s.Failed += o.Failed
	s.Read += o.Read
	s.Purged += o.Purged
	s.Untold += o.Untold
	s.Failing = s.Failing || o.Failing
	s.Age = rate.AtLeast(s.Age, o.Age)
	s.Keys += o.Keys
}

// Interface guards
var (
	_ core.Store     = (*Store)(nil)
	_ core.Selective = (*Store)(nil)
)
