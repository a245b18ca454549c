package redis

import (
	"context"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/eventual"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/usage"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/redis/logs"
)

// eventually carries what the nodes of a fleet tell each other of rules with consistency eventual: package eventual says how they decide by it, and
// scripts/eventual.lua what Redis does.
//
// Once an interval, which is a round, a node makes one call, however many keys there are: it appends what it has admitted since to its log in Redis, and
// gets what the others have appended. Logs are of documents (see package usage) with absolute numbers, and begin with one that has everything. So a node
// that starts reads the logs from their beginning, and a log that Redis has lost, or an answer that was lost, costs nothing but the whole to be told again.
//
// No request waits for a round, unless the node has not heard from the others for longer than the interval: when it starts, or after a time without
// requests, in which there are no rounds.
type eventually struct {
	store *Store
	of    *eventual.Store
	ahead int64 // how far the server's clock is ahead of the node's; functions of sync/atomic change it

	mu       sync.Mutex
	every    map[int64]int // how many rules with an interval are open, in microseconds
	had      bool          // there is a rule, or was one
	timer    *time.Timer
	again    func() // one round: made once, as renewals.again is
	running  bool   // the timer is set
	closed   bool
	current  context.Context //nolint:containedctx // ends with the round under way; nil: there is none
	ends     context.CancelFunc
	err      error // of the last round
	inactive int   // rounds without requests, in a row

	failing atomic.Bool  // the last round has failed
	began   atomic.Int64 // when the round under way began, by the node's clock, and one more; 0: there is none
	took    atomic.Int64 // how long the last round took that has succeeded
	heard   atomic.Int64 // when that began, and one more; 0: there was none
	since   atomic.Int64 // when the first of the requests came that were not told yet, by the node's clock; 0: there are none

	synced, failed atomic.Int64 // calls of rounds, by their outcome
	index          string       // the key of the nodes' index

	logs     *logs.Logs          // only the round under way uses it
	regional map[*core.Rule]bool // the open rules that hold across regions; mu guards it
}

const (
	versionOfEventual = "2" // of the keys, the index and the logs; until 1 it was another mechanism
	inactiveRounds    = 3   // after which there are no more, until a request comes
)

func (e *eventually) begin(s *Store, index memory.Index, clock func() int64) {
	e.store = s
	e.every = make(map[int64]int)
	e.index = s.IndexOfNodes()
	e.again = e.goRound
	e.of = eventual.New(eventual.Config{Index: index, Clock: clock, Ahead: &e.ahead, Hash: s.naming.hash, Read: rate.DefaultSync, Write: rate.DefaultSync})
	raw, _ := hex.DecodeString(usage.NewInstance())
	c := s.LogsIn(s.IndexOfNodes())
	c.Name = string(raw)
	c.Reads = anyLog
	c.Ledger = &e.of.Ledger
	c.Others = &e.of.Others
	e.logs = logs.New(c)
	e.regional = make(map[*core.Rule]bool)
}

func anyLog(string) bool { return true }

// IndexOfNodes returns the key of the index in which nodes tell each other.
func (s *Store) IndexOfNodes() string {
	return s.naming.prefix + "%eventual}:" + versionOfEventual // no client's key has a percent sign and a letter there: see plainKey
}

// IndexOfRegions returns the key of the index in which a region tells other regions.
func (s *Store) IndexOfRegions() string { return s.naming.prefix + "%regions}:" + versionOfEventual }

// LogsIn returns what logs in an index of this store go by: Redis's clock.
func (s *Store) LogsIn(index string) logs.Config {
	e := &s.eventually
	return logs.Config{Index: index, Ledger: &usage.Ledger{}, Others: &usage.Others{}, Now: e.of.Now, Wall: s.wallClock, Sets: e.setClock, Invalid: errReply}
}

// Background returns the longest time that a call may take that no request waits for.
func (s *Store) Background() time.Duration { return s.client.Background() }

// Ahead returns how far the server's clock is ahead of the node's, in microseconds, as far as nodes that tell each other know.
func (s *Store) Ahead() int64 { return atomic.LoadInt64(&s.eventually.ahead) }

// RegionalRules returns the open rules that hold across regions.
func (s *Store) RegionalRules() []*core.Rule {
	e := &s.eventually
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]*core.Rule, 0, len(e.regional))
	for r := range e.regional {
		list = append(list, r)
	}
	return list
}

// Fits implements core.Selective.
func (s *Store) Fits(r *core.Rule) error {
	if r.RegionTerms() != nil && s.region == "" {
		return words.Wrong("regions", "eventual", "the store is of no region; give it region and peers, or remove it")
	}
	if r.LeasesFromHome() {
		return words.Wrong("regions", "lease", "the store has no home; give it region, peers, home and share, or remove it")
	}
	return nil
}

// open makes a rule ready.
func (e *eventually) open(r *core.Rule) error {
	e.mu.Lock()
	e.every[r.SyncTerms().Every]++
	e.had = true
	if r.RegionTerms() != nil {
		e.regional[r] = true
	}
	e.setInterval()
	e.mu.Unlock()
	return e.of.Open(r)
}

func (e *eventually) release(r *core.Rule) {
	e.mu.Lock()
	every := r.SyncTerms().Every
	if e.every[every]--; e.every[every] == 0 {
		delete(e.every, every)
	}
	delete(e.regional, r)
	e.setInterval()
	e.mu.Unlock()
	e.of.Release(r)
}

// setInterval tells the interval of rounds, which is the shortest of all rules.
func (e *eventually) setInterval() {
	if len(e.every) > 0 {
		e.of.SetIntervals(e.interval(), e.interval())
	}
}

// interval returns the interval of rounds. The caller has e.mu.
func (e *eventually) interval() time.Duration {
	shortest := int64(rate.LongestSync / time.Microsecond)
	for every := range e.every {
		shortest = rate.AtMost(shortest, every)
	}
	return time.Duration(shortest) * time.Microsecond
}

func anyEventual(rules []*openRule) bool {
	for _, o := range rules {
		if o.sync != nil {
			return true
		}
	}
	return false
}

// fails reports whether the last round has failed, or the one under way takes longer than usual: nobody waits for it to be given up.
func (e *eventually) fails(slack, now int64) bool {
	began := e.began.Load()
	return e.failing.Load() || began != 0 && now-began+1 > slack
}

// fresh reports whether the node may decide on a rule by what it has heard.
func (e *eventually) fresh(t *rate.SyncTerms, now int64) bool {
	heard := e.heard.Load()
	slack := rate.AtLeast(2*e.took.Load(), t.Slack)
	return heard != 0 && t.Fresh(now-heard+1, slack, e.fails(slack, now))
}

// ready waits until the node may decide on a rule. The error says why it may not. It notes that a request has come.
func (e *eventually) ready(o *openRule, now int64) error {
	if !e.fresh(o.sync, now) {
		if err := e.look(o.sync); err != nil {
			return err
		}
	}
	e.touch(now)
	return nil
}

// touch notes that a request has come, so that there is a round.
func (e *eventually) touch(now int64) {
	if e.since.Load() != 0 {
		return
	}
	e.since.CompareAndSwap(0, now+1)
	e.mu.Lock()
	e.inactive = 0
	if !e.running && !e.closed {
		e.running = true
		if e.timer == nil {
			e.timer = time.AfterFunc(e.interval(), e.again)
		} else {
			e.timer.Reset(e.interval())
		}
	}
	e.mu.Unlock()
}

// look waits for a round, which it begins unless one is under way.
func (e *eventually) look(t *rate.SyncTerms) error {
	server, err := e.store.client.Server(e.index)
	if err != nil {
		return err
	}
	patience := e.store.patience(server)
	current := e.start()
	if current == nil { // there is none under way
		e.mu.Lock()
		current = e.current
		e.mu.Unlock()
		go e.run(patiently)
	}
	done, end := context.WithTimeout(current, patience)
	<-done.Done() // a context, since Yaegi has no select: see traefik/INTERPRETER.md
	end()
	if e.fresh(t, e.store.clock()) {
		return nil
	}
	e.mu.Lock()
	err = e.err
	e.mu.Unlock()
	if err == nil {
		err = ErrTimeout
	}
	return err
}

// start begins a round. If one is under way, it returns what ends with it, and otherwise nil.
func (e *eventually) start() context.Context {
	var none context.Context
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current != nil {
		return e.current
	}
	e.current, e.ends = context.WithCancel(context.Background())
	return none
}

// goRound makes a round, unless one is under way, and sets the timer for the next one, unless no requests come any more.
func (e *eventually) goRound() {
	if e.start() == nil {
		e.run(aside)
	} else {
		e.of.Collect() // so that no fast path goes on by what is too old
	}
	e.mu.Lock()
	e.inactive++
	if e.since.Load() != 0 || e.of.Ledger.Changed() {
		e.inactive = 0
	}
	e.running = e.inactive <= inactiveRounds && !e.closed
	if e.running {
		e.timer.Reset(e.interval())
	}
	e.mu.Unlock()
}

// run makes the round that start has begun.
func (e *eventually) run(w wait) {
	err := errReply
	began := e.store.clock()
	since := e.since.Swap(0) // requests from now on belong to the next round
	defer func() {
		_ = recover() // an interpreted program has no other recover
		e.failing.Store(err != nil)
		if err == nil {
			e.took.Store(e.store.clock() - began)
			e.heard.Store(began + 1)
			e.synced.Add(1)
		} else {
			if since != 0 {
				e.since.Store(since)
			}
			e.failed.Add(1)
		}
		e.began.Store(0)
		e.mu.Lock()
		e.err = err
		e.current = nil
		ends := e.ends
		e.mu.Unlock()
		ends()
	}()
	e.began.Store(began + 1)
	if e.of.Collect() {
		e.mu.Lock()
		e.inactive = 0
		e.mu.Unlock()
	}
	err = e.exchange(w)
}

// exchange tells what there is to tell, and hears what the others have told.
func (e *eventually) exchange(w wait) error {
	var news usage.News
	defer e.of.Hear(&news)
	err := e.logs.Round(func(keys, args []string) ([]string, bool, error) { return e.store.runLogs(w, keys, args) }, &news)
	return err
}

// runLogs makes a call of scriptOfEventual: see logs.Run.
func (s *Store) runLogs(w wait, keys, args []string) ([]string, bool, error) {
	var none []string
	server, err := s.client.Server(keys[0])
	if err != nil {
		return none, false, err
	}
	c := &Call{Script: scriptOfEventual, Keys: keys, Args: args, wait: w}
	if err = s.callFor(server, c); err != nil {
		return none, executed(err), err
	}
	return c.Texts, true, nil
}

// RunLogs is a logs.Run whose calls no request waits for.
func (s *Store) RunLogs(keys, args []string) ([]string, bool, error) {
	texts, executed, err := s.runLogs(aside, keys, args)
	return texts, executed, err
}

// setClock has the store go by the server's clock, which is ahead of the node's by a time between these.
func (e *eventually) setClock(least, most int64) {
	ahead := atomic.LoadInt64(&e.ahead)
	if ahead < least || ahead > most {
		atomic.StoreInt64(&e.ahead, least+(most-least)/2)
	}
}

// close tells what is untold. It waits for Redis if that is available.
func (e *eventually) close() {
	e.mu.Lock()
	e.closed = true
	if e.timer != nil {
		e.timer.Stop()
	}
	e.mu.Unlock()
	if e.since.Load() != 0 || e.of.Collect() || e.of.Ledger.Changed() {
		e.store.Synchronise()
	}
}

// Synchronise tells what is untold of rules with consistency eventual, and hears what others have told, before it is time for that. It waits for Redis if
// that is available.
func (s *Store) Synchronise() {
	e := &s.eventually
	for current := e.start(); current != nil; current = e.start() {
		<-current.Done()
	}
	e.run(aside)
}

// Stands returns how many units of a key this node has admitted that Redis has not confirmed, and how old, in microseconds, what it knows of the other nodes
// is; -1: it knows nothing of them. The rule must be open in the store.
func (s *Store) Stands(r *core.Rule, key string) (untold, age int64) {
	heard := s.eventually.heard.Load()
	if heard == 0 {
		return s.eventually.of.Stands(r, key), -1
	}
	return s.eventually.of.Stands(r, key), rate.AtLeast(s.clock()-heard+1, 0)
}

// SyncStats is the result of Store.SyncStats.
type SyncStats struct {
	Used           bool  // a rule is eventual, or was
	Age            int64 // for how long the oldest request has waited to be told, in microseconds; 0: there are none
	Synced, Failed int64 // rounds, by their outcome
}

// SyncStats returns how nodes hear of each other under rules with consistency eventual.
func (s *Store) SyncStats() SyncStats {
	e := &s.eventually
	stats := SyncStats{Synced: e.synced.Load(), Failed: e.failed.Load()}
	e.mu.Lock()
	stats.Used = e.had
	e.mu.Unlock()
	if since := e.since.Load(); since > 0 {
		stats.Age = rate.AtLeast(s.clock()-since+1, 1)
	}
	return stats
}

// Add adds the numbers of another store. The age is that of the older one.
func (s *SyncStats) Add(o SyncStats) {
	s.Used = s.Used || o.Used
	s.Synced += o.Synced
	s.Failed += o.Failed
	s.Age = rate.AtLeast(s.Age, o.Age)
}
