package blobstore

import (
	"sync"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/tally"
)

// flows has at which rates others admit requests, by keys. A key of which others tell nothing has none. It is safe for concurrent use.
type flows struct {
	shards [64]flowShard
}

type flowShard struct {
	mu    sync.RWMutex
	flows map[tally.Key]flow
}

// flow is what others admit under a key.
type flow struct {
	rate   float64 // units a microsecond
	read   int64   // when others' counts were read last
	behind int64   // how old they were then, on average
	most   int64   // for how long after that the rate is believed
}

// A guess below this part of the limit is left out, so that a flow that makes no difference costs nothing.
const leastGuess = 1. / 256

func (f *flows) of(k tally.Key) *flowShard { return &f.shards[k[len(k)-1]%64] }

// probable returns how many units others have probably admitted under a key that they have not told yet.
func (f *flows) probable(k tally.Key, l *rate.Limit, clock func() int64) int64 {
	shard := f.of(k)
	shard.mu.RLock()
	flow, has := shard.flows[k]
	shard.mu.RUnlock()
	if !has {
		return 0
	}
	now := clock()
	units := min(flow.rate*float64(min(max(now-flow.read, 0)+flow.behind, flow.most, rate.SlotShows(l, now))), rate.MaxRequests)
	if units < leastGuess*float64(l.Capacity) {
		return 0
	}
	return int64(units)
}

// forget forgets the flow of a key.
func (f *flows) forget(k tally.Key) {
	shard := f.of(k)
	shard.mu.Lock()
	delete(shard.flows, k)
	shard.mu.Unlock()
}

// learn sets the rates by what others have told at that time. The caller holds s.mu.
func (f *flows) learn(s *Store, admitted map[tally.Key]int64, now int64) {
	for i := range f.shards {
		shard := &f.shards[i]
		shard.mu.Lock()
		for k := range shard.flows { // only this method adds any
			if _, has := admitted[k]; !has {
				admitted[k] = 0
			}
		}
		shard.mu.Unlock()
	}
	for k, units := range admitted {
		o := s.rules[idOf(k)]
		if o == nil {
			f.forget(k)
			continue
		}
		f.learnOne(s, o.rules[0], k, units, now)
	}
}

// learnOne sets the rate of a key. As long as the limit is used up, others are not admitted what they ask for, so the rate may rise then and does not fall.
func (f *flows) learnOne(s *Store, r *core.Rule, k tally.Key, units, now int64) {
	l := r.Limit
	limit := l.Capacity
	read, write := s.config.ReadEvery.Microseconds(), s.config.WriteEvery.Microseconds()

	shard := f.of(k)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	before, known := shard.flows[k]
	if !known && units <= 1 { // as with most keys
		return
	}
	check := []core.Check{{Rule: r, Key: string(k[:])}}
	_ = s.memory.Decide(check, true) // memory never fails
	left := check[0].Decision.Remaining
	next := flow{rate: before.rate, read: now, behind: write / 2, most: 3 * (read + write)}
	over := now - before.read
	if !known {
		over = read + write
	}
	if shows := rate.SlotShows(l, now) - write/2; shows < over { // a window has begun since
		over = shows
	}
	if over >= min(read, write)/4 {
		rate := float64(max(units-1, 0)) / float64(over) // one unit is no rate
		switch {
		case !known:
			next.rate = rate
		case left*50 > limit:
			next.rate += (rate - next.rate) / 2
		case rate > next.rate:
			next.rate = rate
		}
	}
	if next.rate*float64(next.most) < leastGuess*float64(limit) {
		delete(shard.flows, k)
		return
	}
	if shard.flows == nil {
		shard.flows = make(map[tally.Key]flow)
	}
	shard.flows[k] = next
}
