package core

import (
	"hash/maphash"
)

// FastPath is the way of a request under one rule, as most are, that a Memory counts, in as few steps as it can have: for interpreted
// programs, which pay for each of them. Made by NewFastPath, safe for concurrent use.
type FastPath struct {
	shards    []*shard
	mask      uint64
	seed      maphash.Seed
	salt      uint64
	clock     func() int64 // nil: the wall clock
	limit     *Limit
	algorithm Algorithm
}

// NewFastPath returns the express way of a rule that has been opened in the store. For a Memory that is not Mapped, an algorithm
// that has none, such as the sliding window log, and a rule with a conduct, there is none: it returns nil then.
func NewFastPath(m *Memory, r *Rule) *FastPath {
	if m.shards[0].index == nil || !r.limit.fastPath || r.overflow != nil {
		return nil
	}
	e := &FastPath{mask: m.mask, seed: m.seed, salt: r.space.salt, clock: m.ownClock, limit: r.limit, algorithm: r.limit.algorithm}
	for i := range m.shards {
		e.shards = append(e.shards, &m.shards[i])
	}
	return e
}
