package eventual

import (
	"sync"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// flows has at which rates others admit requests, by rules and keys. A key of which others tell nothing has none. It is safe for concurrent use.
type flows struct {
	mu    sync.RWMutex
	flows map[uint64]flow
}

// flow is what others admit under a key.
type flow struct {
	rule   *core.Rule
	text   string  // the client's key
	rate   float64 // units a microsecond
	read   int64   // when others were heard last
	behind int64   // how old their counts were then, on average
	most   int64   // for how long after that the rate is believed
}

// A guess below this part of the limit is left out, so that a flow that makes no difference costs nothing.
const leastGuess = 1. / 256

// probable returns how many units others have probably admitted under a key, at a time, that they have not told yet.
func (f *flows) probable(id uint64, l *rate.Limit, now int64) int64 {
	f.mu.RLock()
	one, has := f.flows[id]
	f.mu.RUnlock()
	if !has {
		return 0
	}
	long := rate.AtLeast(now-one.read, 0) + one.behind
	long = rate.AtMost(rate.AtMost(long, one.most), rate.SlotShows(l, now))
	units := one.rate * float64(long)
	if units > rate.MaxRequests {
		units = rate.MaxRequests
	}
	if units < leastGuess*float64(l.Capacity) {
		return 0
	}
	return int64(units)
}

// forget forgets the flow of a key.
func (f *flows) forget(id uint64) {
	f.mu.Lock()
	delete(f.flows, id)
	f.mu.Unlock()
}

// learn sets the rates by what others have told since a time.
func (f *flows) learn(s *Store, admitted map[uint64]heard, since, now int64) {
	s.mu.RLock()
	read := s.read
	write := s.write
	f.mu.Lock()
	for id, one := range f.flows { // only this method adds any
		if _, open := s.ids[one.rule]; !open {
			delete(f.flows, id)
		} else if _, has := admitted[id]; !has {
			admitted[id] = heard{rule: one.rule, text: one.text}
		}
	}
	f.mu.Unlock()
	s.mu.RUnlock()
	for id, h := range admitted {
		f.learnOne(s, id, h, read, write, since, now)
	}
}

// learnOne sets the rate of a key. As long as the limit is used up, others are not admitted what they ask for, so the rate may rise then and does not fall.
func (f *flows) learnOne(s *Store, id uint64, h heard, read, write, since, now int64) {
	l := h.rule.Limit
	f.mu.RLock()
	before, known := f.flows[id]
	f.mu.RUnlock()
	if !known && float64(h.units-1)*4*3*float64(read+write) < leastGuess*float64(l.Capacity)*float64(rate.AtMost(read, write)) { // as with most keys
		return
	}
	next := flow{rule: h.rule, text: h.text, rate: before.rate, read: now, behind: write / 2, most: 3 * (read + write)}
	over := now - before.read
	if !known {
		over = rate.AtLeast(read, now-since) + write
	}
	if shows := rate.SlotShows(l, now) - write/2; shows < over { // a window has begun since
		over = shows
	}
	if over >= rate.AtMost(read, write)/4 {
		found := float64(rate.AtLeast(h.units-1, 0)) / float64(over) // one unit is no rate
		switch {
		case !known:
			next.rate = found
		case s.left(h)*50 > l.Capacity:
			next.rate += (found - next.rate) / 2
		case found > next.rate:
			next.rate = found
		}
	}
	f.mu.Lock()
	if next.rate*float64(next.most) < leastGuess*float64(l.Capacity) {
		delete(f.flows, id)
	} else {
		if f.flows == nil {
			f.flows = make(map[uint64]flow)
		}
		f.flows[id] = next
	}
	f.mu.Unlock()
}

// left returns how many units of a key the memory knows to be left.
func (s *Store) left(h heard) int64 {
	check := []core.Check{{Rule: h.rule, Key: h.text}}
	_ = s.memory.Decide(check, true) // memory never fails
	return check[0].Decision.Remaining
}
