package redis

import (
	"sync"

	"github.com/proxyweir/weir/core"
)

// memo remembers what was last learned of keys, for two ends: a key that was rejected is rejected until its time has come,
// without asking again; and when Redis is gone, counting starts from there.
//
// It holds at most two generations of keys: when the young one is full it becomes the old one, and what nothing was
// learned of since then is forgotten with the next.
type memo struct {
	shards [memoShards]memoShard
}

type memoShard struct {
	mu         sync.Mutex
	young, old map[uint64]*known
	_          [64]byte // shards do not share a cache line
}

const (
	memoShards      = 16
	generation      = 4096       // keys of a shard: with two generations and 16 shards some 130,000 keys in all
	rememberAtMost  = 10_000_000 // µs; a rejection is asked about again after that, in case the key was reset
	rememberedNever = 1_000_000  // µs; the same, of a request that costs more than the limit can hold
)

// known is what was learned of a key. Times are the node's own, in microseconds.
type known struct {
	terms     uint64 // of the limit by which it was decided
	at        int64
	until     int64 // requests of that cost are rejected until then; 0: not known to be
	cost      int64
	retryAt   int64
	resetAt   int64
	moreAt    int64 // 0: not known
	limit     int64
	remaining int64
	name      string // of the key in Redis, where an express handler has noted it, and requests are not known to be rejected
}

// find returns what is known of the key with that hash.
func (m *memo) find(hash uint64, k *known) bool {
	s := &m.shards[hash%memoShards]
	s.mu.Lock()
	found, ok := s.young[hash]
	if !ok {
		found, ok = s.old[hash]
	}
	if ok {
		*k = *found
	}
	s.mu.Unlock()
	return ok
}

// learn remembers a decision that was come to at the node's time now, by a limit of those terms, on a request of that cost.
func (m *memo) learn(hash, terms uint64, now, cost int64, d *core.Decision) {
	k := known{terms: terms, at: now, resetAt: now + d.ResetAfter, limit: d.Limit, remaining: d.Remaining}
	if d.MoreAfter > 0 {
		k.moreAt = now + d.MoreAfter
	}
	if !d.Allowed {
		k.cost = cost
		k.retryAt = core.Never
		k.until = now + rememberedNever
		if d.RetryAfter != core.Never {
			k.retryAt = now + d.RetryAfter
			k.until = k.retryAt
			if d.RetryAfter > rememberAtMost {
				k.until = now + rememberAtMost
			}
		}
	}
	s := &m.shards[hash%memoShards]
	s.mu.Lock()
	entry := m.entry(s, hash)
	if k.until == 0 {
		k.name = entry.name
	}
	*entry = k
	s.mu.Unlock()
}

// forget forgets what is known of the key with that hash.
func (m *memo) forget(hash uint64) {
	s := &m.shards[hash%memoShards]
	s.mu.Lock()
	delete(s.young, hash)
	delete(s.old, hash)
	s.mu.Unlock()
}

// entry returns what is known of a key, in the young generation of its shard.
func (m *memo) entry(s *memoShard, hash uint64) *known {
	if k := s.young[hash]; k != nil {
		return k
	}
	k := s.old[hash]
	if k == nil {
		k = &known{}
	}
	if len(s.young) >= generation {
		s.old = s.young
		s.young = nil
	}
	if s.young == nil {
		s.young = make(map[uint64]*known)
	}
	s.young[hash] = k
	return k
}

// rejects reports whether a request of that cost is known to be rejected at time now.
func (k *known) rejects(now, cost int64) bool {
	return k.at <= now && now < k.until && cost == k.cost
}

// decision writes what is known at time now: of a key that is not known to reject, how it stood.
func (k *known) decision(now, cost int64, d *core.Decision) {
	*d = core.Decision{Allowed: !k.rejects(now, cost), Limit: k.limit, Remaining: k.remaining}
	if !d.Allowed {
		d.RetryAfter = core.Never
		if k.retryAt != core.Never {
			d.RetryAfter = k.retryAt - now
		}
	}
	if k.resetAt > now {
		d.ResetAfter = k.resetAt - now
	}
	if d.Allowed && k.moreAt > now {
		d.MoreAfter = k.moreAt - now
	}
}

// last writes what is known at time now of how many units of the quota are left, for counting on without Redis: units that
// were used come back evenly until the quota is whole, but for windows that end for all at once.
func (k *known) last(now, quota int64, atOnce bool, d *core.Decision) {
	used := k.limit - k.remaining
	if now >= k.resetAt || now < k.at {
		used = 0
	} else if !atOnce {
		left := float64(k.resetAt-now) / float64(k.resetAt-k.at)
		used = int64(float64(used)*left + 0.999)
	}
	if used > quota { // the limit was lowered
		used = quota
	}
	d.Limit = quota
	d.Remaining = quota - used
}
