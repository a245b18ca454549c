package tally

import "sync"

// Ledger is what this process has admitted, by slots. Counts only grow. The zero value is empty. It is safe for concurrent use.
type Ledger struct {
	mu    sync.Mutex
	units map[Slot]int64
}

// Add adds units to a slot. It returns false if the slot is new and there is no space for it: no more than MaxCounts slots are kept. It panics if the
// slot or the units are out of range.
func (l *Ledger) Add(s Slot, units int64) bool {
	if s.Start < 0 || s.End <= s.Start || units < 1 {
		panic("tally: a count out of range")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.units == nil {
		l.units = make(map[Slot]int64)
	}
	sum, has := l.units[s]
	if !has && len(l.units) >= MaxCounts {
		return false
	}
	if units > MaxUnits-sum {
		units = MaxUnits - sum
	}
	l.units[s] = sum + units
	return true
}

// living forgets the slots that are over, and returns the counts of the others.
func (l *Ledger) living(now int64) []Count {
	l.mu.Lock()
	defer l.mu.Unlock()
	var counts []Count
	for s, units := range l.units {
		if s.End <= now {
			delete(l.units, s)
			continue
		}
		counts = append(counts, Count{s, units})
	}
	return counts
}
