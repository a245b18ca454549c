package storetest

import (
	"testing"

	"github.com/proxyweir/weir/core/rate"
)

// passages is what limits have allowed for one key, in the order of time.
type passages struct {
	list    []passage
	fastest int64 // requests in a period of the fastest of the limits: how a bucket has drained
}

// passage is a number of units that have passed at one time.
type passage struct {
	at, cost int64
}

// add notes units that have passed a limit at a time. It fails unless they are within capacity, what the limit allows
// at once, given all that passed before, in exact arithmetic.
func (p *passages) add(t *testing.T, l *rate.Limit, capacity, at, cost int64) {
	t.Helper()
	p.list = append(p.list, passage{at, cost})
	for i := len(p.list) - 1; i > 0 && p.list[i-1].at > at; i-- { // some waiting requests depart before others that came earlier
		p.list[i] = p.list[i-1]
		p.list[i-1] = passage{at, cost}
	}
	period := l.Period
	sum, previous, oldest := int64(0), int64(0), int64(0)
	for i := len(p.list) - 1; i >= 0; i-- {
		from := p.list[i].at
		if from > at {
			continue
		}
		counted := true
		most := capacity
		switch l.Algorithm {
		case rate.FixedWindow:
			counted = from/period == at/period
		case rate.SlidingWindowLog:
			counted = from > at-period
		case rate.SlidingWindowCounter:
			if from/period == at/period-1 {
				previous += p.list[i].cost
			}
			counted = from/period == at/period
		case rate.SlidingWindowSegments:
			before := at/l.Quantum - from/l.Quantum
			if before == l.Window {
				oldest += p.list[i].cost
			}
			counted = before < l.Window
		default:
			most += p.drained(l, from, at)
		}
		if counted {
			sum += p.list[i].cost
		}
		if used := sum + previous*(period-at%period)/period + share(l, oldest, at); used > most {
			t.Fatalf("%s allows %d at %d: with that it is %d since %d; %d is the most\nall: %v", l, cost, at, used, from, most, p.list)
		}
	}
}

// share returns what the oldest segment still weighs.
func share(l *rate.Limit, units, at int64) int64 {
	if units == 0 {
		return 0
	}
	return units * (l.Quantum - at%l.Quantum) / l.Quantum
}

// drained returns the most that drains from a bucket between two times.
func (p *passages) drained(l *rate.Limit, from, to int64) int64 {
	if l.Interval() {
		return (to/l.Period - from/l.Period) * p.fastest
	}
	return (to - from) * p.fastest / l.Period
}
