package memory

import (
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// refusesIn reports whether a shadow surely would reject a request by the key in slot i, and marks the key as one of such.
func refusesIn(s *shard, p *severalRule, i int, now int64) bool {
	if !p.shadow || p.inFlight || p.countRejected || p.limit.Delays || p.limit.Cost != 1 {
		return false
	}
	retry, _ := rejectIn(s, p.limit, &s.slots[i].state, now)
	if retry >= 0 {
		s.owners[i] |= rejected
	}
	return retry >= 0
}

// freeIn returns how many requests of a key may still come beside one more; -1: not even that one. state is the key's.
func freeIn(s *shard, p *severalRule, hash uint64, state *rate.State) int64 {
	free := p.limit.Requests - 1
	if a := s.accounts[hash]; a != nil {
		free -= a.underWay
	}
	if free < 0 || state.A >= rate.BlockMark {
		return -1
	}
	return free
}

// flight is a request that is under way: a key that it counts for, until endInFlight.
type flight struct {
	shard  *shard
	memory *Store
	space  *space
	hash   uint64
}

// beginInFlight counts a request for the limits of requests in flight among its rules, with the locks of the shards held.
func beginInFlight(f *several, list []*severalRule, s *shard, base uint64, hashes []uint64, now int64) []flight {
	var flights []flight
	for n, p := range list {
		if !p.inFlight {
			continue
		}
		hash := base ^ p.salt
		if f.apart {
			hash = hashes[n]
			s = f.shards[hash&f.mask]
		}
		a := s.accounts[hash]
		if a == nil {
			c := core.Check{Rule: p.rule, Hash: hash}
			a = f.memory.accountOf(s, &c, now)
		}
		a.underWay++
		if !a.kept {
			f.memory.countKept(p.space, a)
		}
		flights = append(flights, flight{shard: s, memory: f.memory, space: p.space, hash: hash})
	}
	return flights
}

// endInFlight ends what beginInFlight has begun. A key keeps its account until it expires, since the next request needs it again.
func endInFlight(flights []flight) {
	for _, one := range flights {
		one.shard.mu.Lock()
		if a := one.shard.accounts[one.hash]; a != nil && a.underWay > 0 {
			a.underWay--
			if a.kept && !a.isUnderWay() {
				one.memory.countKept(one.space, a)
			}
		}
		one.shard.mu.Unlock()
	}
}
