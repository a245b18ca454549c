package usage

import "sync"

// book has units by slots and keys.
type book map[Slot]map[uint64]uint32

// drop forgets the slots that are over. It returns how many counts these had.
func (b book) drop(now int64) int {
	counts := 0
	for s, units := range b {
		if s.End <= now {
			counts += len(units)
			delete(b, s)
		}
	}
	return counts
}

// Ledger is what this process has admitted, by slots. Counts only grow. The zero value is empty. It is safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex
	counts  book
	untold  book // what of that was told to nobody yet
	telling book // what a document has that is under way
	marks   map[uint64]Mark
	size    int  // of counts
	marked  bool // there are marks that were not told
}

// Add adds units of a key to a slot. It returns false if there is no space: no more than MaxCounts are kept.
func (l *Ledger) Add(s Slot, key uint64, units int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = make(book)
		l.untold = make(book)
	}
	of := l.counts[s]
	sum, has := of[key]
	if !has {
		if l.size >= MaxCounts || of == nil && len(l.counts) >= maxSlots {
			return false
		}
		l.size++
	}
	if of == nil {
		of = make(map[uint64]uint32)
		l.counts[s] = of
	}
	if most := int64(MaxUnits - sum); units > most {
		units = most
	}
	of[key] = sum + uint32(units)
	news := l.untold[s]
	if news == nil {
		news = make(map[uint64]uint32)
		l.untold[s] = news
	}
	news[key] += uint32(units)
	return true
}

// AddMark notes that a key was blocked or reset by hand. It returns false if there is no space.
func (l *Ledger) AddMark(m Mark) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.marks == nil {
		l.marks = make(map[uint64]Mark)
	}
	if _, has := l.marks[m.Rule^m.Key]; !has && len(l.marks) >= MaxMarks {
		return false
	}
	l.marks[m.Rule^m.Key] = m
	l.marked = true
	return true
}

// Changed reports whether something is not told yet.
func (l *Ledger) Changed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.marked || len(l.untold) > 0
}

// Begin returns what is to be told: everything that is not over, or what has changed since. nil: nothing is. End must be called before the next Begin.
func (l *Ledger) Begin(now int64, all bool) ([]Counts, []Mark) {
	var counts []Counts
	var marks []Mark
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size -= l.counts.drop(now)
	l.untold.drop(now)
	from := l.untold
	if all {
		from = l.counts
	}
	for s, units := range from {
		c := Counts{Slot: s, Keys: make([]uint64, 0, len(units)), Units: make([]uint32, 0, len(units))}
		of := l.counts[s]
		for key := range units {
			c.Keys = append(c.Keys, key)
			c.Units = append(c.Units, of[key])
		}
		counts = append(counts, c)
	}
	for key, m := range l.marks {
		if m.End <= now {
			delete(l.marks, key)
		} else if all || l.marked {
			marks = append(marks, m)
		}
	}
	l.telling = l.untold
	l.untold = make(book)
	l.marked = false
	return counts, marks
}

// End ends what Begin began: the others were told, or perhaps not.
func (l *Ledger) End(told bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !told {
		l.marked = true
		for s, units := range l.telling {
			news := l.untold[s]
			if news == nil {
				l.untold[s] = units
				continue
			}
			for key, n := range units {
				news[key] += n
			}
		}
	}
	l.telling = nil
}

// Untold returns how many units of a key under a rule the others were not told.
func (l *Ledger) Untold(rule, key uint64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	units := int64(0)
	for _, b := range []book{l.untold, l.telling} {
		for s, of := range b {
			if s.Rule == rule {
				units += int64(of[key])
			}
		}
	}
	return units
}

// Size returns how many counts there are.
func (l *Ledger) Size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Of returns the counts of a key under a rule, by slots.
func (l *Ledger) Of(rule, key uint64) map[Slot]int64 {
	of := make(map[Slot]int64)
	l.mu.Lock()
	gather(l.counts, rule, key, of)
	l.mu.Unlock()
	return of
}

// gather adds the counts of a key.
func gather(b book, rule, key uint64, to map[Slot]int64) {
	for s, units := range b {
		if s.Rule == rule {
			if n := units[key]; n > 0 {
				to[s] += int64(n)
			}
		}
	}
}
