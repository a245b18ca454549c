package redis

import (
	"strconv"
	"strings"
	"sync"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/recent"
)

// decisionCache remembers the last decision on each key. The store uses it for two things: it rejects the requests of a rejected key without
// calling Redis, until they would be admitted; and when Redis is down, counting in memory starts from what is remembered.
type decisionCache struct {
	shards [cacheShards]decisionShard
}

// cachedDecision is the last decision on a key, and when it ceases to hold. Times are by the node's clock, in microseconds.
type cachedDecision struct {
	terms     uint64 // of the limit that has decided
	at        int64
	until     int64 // requests of that cost are rejected until then; 0: they may be allowed
	cost      int64
	retryAt   int64
	resetAt   int64
	moreAt    int64 // 0: not known
	limit     int64
	remaining int64
	plain     bool // a request of cost 1 is rejected until retryAt, and nothing remains

	freeAt  int64 // of a rejection: by then units are free, unless somebody else has taken them; 0: not known
	backoff int64 // how long the next rejection counts at least: see backOff

	here hereDecision

	// A fast path notes these, if until is 0.
	command string // the key's name in Redis, as an argument of a command
	six     string // the same of the six keys of scripts/accounts.lua; "": its rule has not needed them
	line    string // the last reply, in place of ResetAt, moreAt and remaining; "": these have it
}

// hereDecision is what this node's own count has last said on a key, when it rejected a request that Redis could not be asked about. Times are as those of
// cachedDecision.
type hereDecision struct {
	terms   uint64
	quota   int64 // this node's share of the limit
	until   int64 // requests of cost 1 are rejected until then, and nothing remains; 0: they may be allowed
	retryAt int64
	resetAt int64
	left    int64 // of the quota, if until is 0
}

type decisionShard struct {
	mu   sync.Mutex
	keys recent.Map[cachedDecision]
	_    [64]byte // shards do not share a cache line
}

const (
	cacheShards     = 16
	shardKeys       = 4096       // of a generation: with two generations and 16 shards some 130,000 keys in all
	rememberAtMost  = 10_000_000 // µs; after that the store asks Redis again, in case the key was reset
	rememberedNever = 1_000_000  // µs; the same for a request that costs more than the limit can ever admit
	mostBackoff     = 500_000    // µs
)

// unfold reads what a fast path has noted.
func (k *cachedDecision) unfold() {
	words := strings.Split(k.line, " ")
	k.line = ""
	k.remaining, _ = strconv.ParseInt(words[0][1:], 10, 64) // a line that was noted is whole
	reset, _ := strconv.ParseInt(words[2], 10, 64)
	more, _ := strconv.ParseInt(words[3], 10, 64)
	k.resetAt = k.at + reset
	k.moreAt = 0
	if more > 0 {
		k.moreAt = k.at + more
	}
}

// longestBackoffOf returns how much longer a rejection is remembered at most: 500 ms, or a 20th of the time in which the limit is whole again.
func longestBackoffOf(l *rate.Limit) int64 {
	pace := rate.WholeAfter(l) / 20
	if pace > mostBackoff {
		pace = mostBackoff
	}
	return pace
}

// find copies to k what is known of the key with that hash. It returns false if there is nothing.
func (c *decisionCache) find(hash uint64, k *cachedDecision) bool {
	s := &c.shards[hash%cacheShards]
	s.mu.Lock()
	found := s.keys.Find(hash)
	if found != nil {
		*k = *found
		if k.line != "" {
			k.unfold()
		}
	}
	s.mu.Unlock()
	return found != nil
}

// put remembers a decision on a request of that cost. The node asked for it, and got it, at these times of its clock.
func (c *decisionCache) put(hash uint64, o *openRule, asked, answered, cost int64, d *rate.Decision) {
	k := cachedDecision{terms: o.terms, at: asked, resetAt: asked + d.ResetAfter, limit: d.Limit, remaining: d.Remaining}
	if d.MoreAfter > 0 {
		k.moreAt = asked + d.MoreAfter
	}
	if !d.Allowed {
		k.cost = cost
		k.retryAt = rate.Never
		k.until = asked + rememberedNever
		if d.RetryAfter != rate.Never {
			k.retryAt = asked + d.RetryAfter
			k.until = k.retryAt
			k.plain = cost == 1 && d.Remaining == 0
			if d.RetryAfter > rememberAtMost {
				k.until = asked + rememberAtMost
			} else {
				k.freeAt = answered + d.RetryAfter + d.RetryAfter/1000 // clocks drift
			}
		}
	}
	s := &c.shards[hash%cacheShards]
	s.mu.Lock()
	entry := s.keys.Use(hash, shardKeys)
	k.backOff(entry, o.longestBackoff)
	if k.until == 0 {
		k.command = entry.command
		k.six = entry.six
	}
	*entry = k
	s.mu.Unlock()
}

// RefusedLocally implements core.RefusedLocally: as long as Redis cannot be asked, a fast path then rejects those that follow without counting again. So a
// flood costs a proxy no more while Redis is away than otherwise.
func (s *Store) RefusedLocally(rules []*core.Rule, checks []core.Check) {
	now := s.clock()
	for i, r := range rules {
		o := opened(r)
		if o == nil { // its units are another region's, and it has no fast path
			return
		}
		d := &checks[i].Decision
		here := hereDecision{terms: o.terms, quota: checks[i].Rule.Limit.Quota, left: d.Remaining}
		if !d.Allowed {
			if checks[i].Cost != 1 || d.Remaining != 0 || d.RetryAfter == rate.Never || r.CountRejected {
				return
			}
			here.retryAt = now + d.RetryAfter
			here.resetAt = now + d.ResetAfter
			here.until = here.retryAt
			if d.RetryAfter > rememberAtMost {
				here.until = now + rememberAtMost
			}
		}
		hash := s.hashOf(o, checks[i].Key)
		shard := &s.decisions.shards[hash%cacheShards]
		shard.mu.Lock()
		shard.keys.Use(hash, shardKeys).here = here
		shard.mu.Unlock()
	}
}

// backOff makes a rejection count for longer, if the node has asked in vain. Under a flood all nodes of a fleet remember a rejection until the next unit is
// free. Then each asks, and one gets it. So a node whose units somebody else has taken waits longer, each time twice as long, up to most; and half as
// long after it was admitted while little was left. A node that is alone never asks in vain.
func (k *cachedDecision) backOff(before *cachedDecision, most int64) {
	if before.terms != k.terms {
		return
	}
	if k.until == 0 {
		if k.remaining <= k.limit/8 {
			k.backoff = before.backoff / 2
		}
		return
	}
	k.backoff = before.backoff
	if before.freeAt > 0 && k.at >= before.freeAt && k.cost == before.cost {
		k.backoff *= 2
		if k.backoff < most/16 {
			k.backoff = most / 16
		}
		if k.backoff > most {
			k.backoff = most
		}
	}
	if k.freeAt > 0 && k.until < k.at+k.backoff {
		k.until = k.at + k.backoff
		k.retryAt = k.until
	}
}

// forget forgets the key with that hash.
func (c *decisionCache) forget(hash uint64) {
	s := &c.shards[hash%cacheShards]
	s.mu.Lock()
	s.keys.Delete(hash)
	s.mu.Unlock()
}

// rejects reports whether a request of that cost at time now is certain to be rejected.
func (k *cachedDecision) rejects(now, cost int64) bool {
	return k.at <= now && now < k.until && cost == k.cost
}

// decision sets d to the remembered decision, with its times counted from now. If the rejection is over, or there was none, d allows.
func (k *cachedDecision) decision(now, cost int64, d *rate.Decision) {
	*d = rate.Decision{Allowed: !k.rejects(now, cost), Limit: k.limit, Remaining: k.remaining}
	if !d.Allowed {
		d.RetryAfter = rate.Never
		if k.retryAt != rate.Never {
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

// estimate sets in d how many units of the quota are left at time now, by estimate, so that counting can continue without Redis. It takes the
// used units to come back evenly until the quota is whole; or, with atOnce, all at that time.
func (k *cachedDecision) estimate(now, quota int64, atOnce bool, d *rate.Decision) {
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
