package advisor

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// Source has the history of rules. Prometheus is one. It is safe for concurrent use.
type Source interface {
	// Series returns the values of a quantity at from, a step later, and so on up to to, which is a multiple of step after it. A value that is not known is
	// NaN. An error means that nothing is known of any of them.
	Series(ctx context.Context, q Quantity, from, to time.Time, step time.Duration) (Series, error)
}

// Quantity is what a Source has the values of.
type Quantity struct {
	Of       Measure
	Rule     string        // its label
	Quantile float64       // of KeyDemand: which of the keys, by their demand
	Window   time.Duration // the time before each value that it is about; 0: what suits the source and the step
	Query    string        // of QueryDemand: PromQL
}

// Measure says what a Quantity is of.
type Measure int

// The measures.
const (
	_           Measure = iota
	KeyDemand           // requests that the key at a quantile of the keys asks for in 10 seconds, rejected ones included; 0 if there is none
	TotalDemand         // requests of all keys in a second, rejected ones included
	QueryDemand         // requests in a second, of a query
	TopShare            // the part of all requests that the ten keys with the most make, from 0 to 1
)

// demandOf returns what a rule's limit is for.
func (r *Rule) demandOf() Quantity {
	switch r.Demand {
	case DemandInAll:
		return Quantity{Of: TotalDemand, Rule: r.Label}
	case DemandOfQuery:
		return Quantity{Of: QueryDemand, Rule: r.Label, Query: r.Query}
	}
	return Quantity{Of: KeyDemand, Rule: r.Label, Quantile: r.Quantile}
}

// perPeriod returns what a value of the rule's demand is multiplied by to be in requests in the limit's period.
func (r *Rule) perPeriod() float64 {
	if r.Demand == DemandOfKey {
		return r.Period().Seconds() / 10
	}
	return r.Period().Seconds()
}

// remembered is a Source that asks another for each value only once, as long as the values that are wanted begin ever later. Where there are gaps it asks
// for all values again after an hour of these: a source that could not read everything may have said that nothing was there. An error leaves what is
// remembered as it is.
type remembered struct {
	from Source
	mu   sync.Mutex
	held map[Quantity]heldSeries
}

// heldSeries is a series, and up to when the first part of it was asked for.
type heldSeries struct {
	Series
	asked time.Time
}

// gapsAgain is after how long gaps are asked for again.
const gapsAgain = time.Hour

func remember(from Source) *remembered {
	return &remembered{from: from, held: make(map[Quantity]heldSeries)}
}

// Series implements Source.
func (r *remembered) Series(ctx context.Context, q Quantity, from, to time.Time, step time.Duration) (Series, error) {
	if q.Window > 0 { // a single value over a long time
		return r.from.Series(ctx, q, from, to, step)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	held, ok := r.held[q]
	if !ok || held.Step != step || from.Before(held.Start) || from.After(held.End()) || from.Sub(held.Start)%step != 0 ||
		to.Sub(held.asked) >= gapsAgain && slices.ContainsFunc(held.Values, math.IsNaN) {
		held = heldSeries{Series{Start: from, Step: step}, to}
	}
	if next := held.At(len(held.Values)); !next.After(to) {
		news, err := r.from.Series(ctx, q, next, to, step)
		if err != nil {
			return Series{}, err
		}
		held.Values = append(held.Values, news.Values...)
	}
	first := int(from.Sub(held.Start) / step)
	last := int(to.Sub(held.Start) / step)
	if first > len(held.Values)/2 { // what nobody wants any more
		held.Series = Series{Start: from, Step: step, Values: append([]float64(nil), held.Values[first:]...)}
		first, last = 0, last-first
	}
	r.held[q] = held
	return Series{Start: from, Step: step, Values: held.Values[first : last+1 : last+1]}, nil
}

// unknown returns a series of gaps.
func unknown(from, to time.Time, step time.Duration) Series {
	s := Series{Start: from, Step: step, Values: make([]float64, int(to.Sub(from)/step)+1)}
	for i := range s.Values {
		s.Values[i] = math.NaN()
	}
	return s
}
