package core

import (
	"hash/maphash"
	"net/http"
	"time"
)

// Express is the way of a request under one rule, as most are, that a Memory counts, in as few steps as it can have: for interpreted
// programs, which pay for each of them. Made by NewExpress, safe for concurrent use.
type Express struct {
	shards    []*shard
	mask      uint64
	seed      maphash.Seed
	salt      uint64
	clock     func() int64 // nil: the wall clock
	limit     *Limit
	algorithm Algorithm
}

// NewExpress returns the express way of a rule that has been opened in the store. For a Memory that is not Mapped, and a sliding
// window log, or a rule with a conduct, there is none: it returns nil then.
func NewExpress(m *Memory, r *Rule) *Express {
	if m.shards[0].index == nil || r.space.isLog || r.conduct != nil {
		return nil
	}
	e := &Express{mask: m.mask, seed: m.seed, salt: r.space.salt, clock: m.ownClock, limit: r.limit, algorithm: r.limit.algorithm}
	for i := range m.shards {
		e.shards = append(e.shards, &m.shards[i])
	}
	return e
}

// Take decides on a request of that key that costs 1, as Memory.Decide does, and charges it. If the request is allowed at once, it
// returns what remains, and when the quota is whole again and when there is more of it, in microseconds. Else remaining is -1, and nothing has been done:
// Decide is to be asked. So it is too where something is rare, such as a new key.
//
// It is written for the interpreter: a variable that is declared before it is set, and set once, is made once; a function is
// called in half the time of a method.
func Take(e *Express, key string) (remaining, reset, more int64) {
	var (
		s     *shard
		hash  uint64
		i     int
		ok    bool
		now   int64
		state *State
	)
	hash = (maphash.String(e.seed, key) ^ e.salt) &^ kindBit
	s = e.shards[hash&e.mask]
	s.mu.Lock()
	if e.clock == nil { // under the lock, so that for a key the clock does not go back
		now = time.Now().UnixMicro()
	} else {
		now = e.clock()
	}
	i, ok = s.index[hash]
	if !ok {
		s.mu.Unlock()
		return -1, 0, 0
	}
	state = &s.slots[i].state
	if e.algorithm == SlidingWindowCounter {
		remaining, reset, more = takeFromSlidingWindowCounter(e.limit, state, now)
	} else if e.algorithm == TokenBucket {
		remaining, reset, more = takeFromTokenBucket(e.limit, state, now)
	} else if e.algorithm == FixedWindow {
		remaining, reset, more = takeFromFixedWindow(e.limit, state, now)
	} else {
		remaining, reset, more = takeFromLeakyBucket(e.limit, state, now)
	}
	s.mu.Unlock()
	return remaining, reset, more
}

// Serve returns a handler that does what Take and Tell do, in one function, where the key is the client's IPv4 address as the
// connection has it, all of it. Requests that are allowed at once go to next. All others, of which
// nothing has been charged, and those of clients with IPv6 addresses, are left to rest.
func Serve(e *Express, t *Told, next, rest http.Handler) http.Handler {
	switch e.algorithm {
	case TokenBucket:
		return newFlatTokenBucket(e, t, next, rest)
	case LeakyBucket:
		return newFlatLeakyBucket(e, t, next, rest)
	case FixedWindow:
		return newFlatFixedWindow(e, t, next, rest)
	}
	return newFlatSlidingWindowCounter(e, t, next, rest)
}
