package redis

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
)

// Express is the way of a request under one rule, as most are, in as few steps as it can have: for interpreted programs,
// which pay for each of them. Made by NewExpress, safe for concurrent use.
type Express struct {
	store   *Store
	rule    *core.Rule
	open    *openRule
	server  *Server
	conn    Conn
	trouble *atomic.Int64 // failures of the server in a row
	calls   *sync.Pool    // of *Call, ready but for the key
	clock   func() int64  // nil: monotonic
	shards  []*memoShard
	seed    maphash.Seed
	salt    uint64
	terms   uint64
	quota   int64
}

// NewExpress returns the express way of a rule that has been opened in the store. Where the rule's limit follows the calendar, or
// the server depends on the key, there is none: it returns nil then.
func NewExpress(s *Store, r *core.Rule) *Express {
	o := s.rules.Load().(map[*core.Rule]*openRule)[r]
	if o == nil || o.charge == "" || s.client.Cluster() {
		return nil
	}
	server, err := s.client.Server("")
	if err != nil {
		return nil
	}
	e := &Express{
		store:   s,
		rule:    r,
		open:    o,
		server:  server,
		conn:    server.conn,
		trouble: server.breaker.Trouble(),
		clock:   s.ownClock,
		seed:    s.seed,
		salt:    o.salt,
		terms:   o.terms,
		quota:   r.Limit().Quota(),
	}
	for i := range s.memo.shards {
		e.shards = append(e.shards, &s.memo.shards[i])
	}
	script := scriptsOfOne[r.Limit().Algorithm()]
	e.calls = &sync.Pool{New: func() interface{} {
		return &Call{Script: script, Keys: make([]string, 1), Args: []string{o.charge}}
	}}
	return e
}

// Take decides on a request that costs 1 and of which c has the rule and the key, as Store.Decide does. If the request is allowed
// at once, it returns what remains and when the quota is whole again, in microseconds; else remaining is -1, and the decision
// is in c, or the error. What is rare goes the way of all: a key of which little is known or that is rejected, a server that
// has failed.
func Take(e *Express, c *core.Check) (remaining, reset int64, err error) {
	var (
		hash  uint64
		now   int64
		shard *memoShard
		k     *known
		name  string
		call  *Call
	)
	hash = maphash.String(e.seed, c.Key) ^ e.salt
	shard = e.shards[hash%memoShards]
	shard.mu.Lock()
	k = shard.young[hash]
	if k == nil || k.until != 0 || k.terms != e.terms || k.name == "" {
		shard.mu.Unlock()
		return -1, 0, takeSlowly(e, c, hash)
	}
	name = k.name
	shard.mu.Unlock()
	if e.trouble.Load() != 0 {
		return -1, 0, takeSlowly(e, c, hash)
	}
	if e.clock == nil {
		now = int64(time.Since(started) / time.Microsecond)
	} else {
		now = e.clock()
	}
	call = e.calls.Get().(*Call)
	call.Keys[0] = name
	err = e.conn.Run(call)
	if err != nil || len(call.Reply) != 3 {
		return -1, 0, settle(e, c, call, hash, now, err)
	}
	remaining = call.Reply[0]
	reset = call.Reply[2]
	if remaining < 0 || remaining > e.quota || call.Reply[1] != 0 || reset < 0 || reset > longest {
		return -1, 0, settle(e, c, call, hash, now, nil)
	}
	e.calls.Put(call)
	shard.mu.Lock()
	k.at = now
	k.resetAt = now + reset
	k.remaining = remaining
	shard.mu.Unlock()
	return remaining, reset, nil
}

// takeSlowly goes the way of all, and notes what the next request of the key needs.
func takeSlowly(e *Express, c *core.Check, hash uint64) error {
	c.Cost = 1
	checks := []core.Check{*c}
	err := e.store.Decide(checks, false)
	*c = checks[0]
	if err == nil {
		name := e.store.naming.key(c.Key, e.open.suffix)
		shard := e.shards[hash%memoShards]
		shard.mu.Lock()
		e.store.memo.entry(shard, hash).name = name
		shard.mu.Unlock()
	}
	return err
}

// settle reads what a call has come to, where that is not that the request is allowed at once.
func settle(e *Express, c *core.Check, call *Call, hash uint64, now int64, err error) error {
	c.Cost = 1
	if err != nil {
		e.store.failed(e.server, call.Keys[0], err)
	} else if len(call.Reply) != 3 || !readDecision(c.Rule, call.Reply[0], call.Reply[1], call.Reply[2], &c.Decision) {
		err = errReply
	}
	if err == nil {
		e.store.memo.learn(hash, e.terms, now, 1, &c.Decision)
	} else {
		err = fmt.Errorf("%s: %w", e.server.name, err)
		checks := []core.Check{*c}
		e.store.lastKnown(&inquiry{rules: []*openRule{e.open}, hashes: []uint64{hash}}, checks, e.store.clock())
		*c = checks[0]
	}
	if !errors.Is(err, ErrTimeout) { // the other is still being read
		e.calls.Put(call)
	}
	return err
}
