package stores

import (
	"sync"

	"github.com/proxyweir/weir/redis"
)

// leaseBook has the stores of this process that may hold leases, and the counts of those that have ended, so that counters never fall.
type leaseBook struct {
	mu     sync.Mutex
	stores map[*redis.Store]bool
	ended  redis.LeaseStats
}

var Leases = &leaseBook{stores: make(map[*redis.Store]bool)}

func (b *leaseBook) add(s *redis.Store) {
	b.mu.Lock()
	b.stores[s] = true
	b.mu.Unlock()
}

// remove keeps the counts of a store that no configuration uses any more.
func (b *leaseBook) remove(s *redis.Store) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.stores, s)
	last := s.LeaseStats()
	last.Units, last.Held = 0, nil
	b.ended.Add(last)
}

// Stats returns the numbers of all stores together.
func (b *leaseBook) Stats() redis.LeaseStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := b.ended
	for s := range b.stores {
		sum.Add(s.LeaseStats())
	}
	return sum
}
