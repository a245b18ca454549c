package advisor

import (
	"context"
	"math"
	"sync"
	"time"
)

// Telemetry is a Source that a proxy feeds with what it sees itself, so that it needs no Prometheus. It keeps what it has been told over History, in
// memory, and knows nothing of queries. NewTelemetry makes it; it is safe for concurrent use.
type Telemetry struct {
	step time.Duration
	keep int

	mu    sync.Mutex
	rules map[string]*snapshots
}

// Snapshot is what a proxy has counted of a rule since some time. All counts but TopShare only grow; if one falls, counting has begun anew.
type Snapshot struct {
	Keys     []int64 // keys that asked for at most 1, 2, 4, … requests in 10 seconds, each once for each of these
	AllKeys  int64   // the same, whatever they asked for
	Requests int64   // rejected ones included
	TopShare float64 // the part of the requests that the ten keys with the most make now, from 0 to 1
}

// snapshots are what is known of a rule: a snapshot each step, from start on. A zero snapshot has no Keys, and is a gap.
type snapshots struct {
	start time.Time
	list  []Snapshot
}

// NewTelemetry returns an empty Telemetry, which remembers a snapshot a step over the history.
func NewTelemetry(step, history time.Duration) *Telemetry {
	return &Telemetry{step: step, keep: int(history/step) + 1, rules: make(map[string]*snapshots)}
}

// Add tells of a rule, by its label, at a time. It should be called once each step; of several calls in a step the last counts.
func (t *Telemetry) Add(rule string, at time.Time, s Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at = at.Truncate(t.step)
	r := t.rules[rule]
	if r == nil || at.Before(r.start) || at.Sub(r.start) >= 2*time.Duration(t.keep)*t.step {
		r = &snapshots{start: at}
		t.rules[rule] = r
	}
	i := int(at.Sub(r.start) / t.step)
	for len(r.list) <= i {
		r.list = append(r.list, Snapshot{})
	}
	r.list[i] = s
	if extra := len(r.list) - t.keep; extra > t.keep/10 {
		r.list = append([]Snapshot(nil), r.list[extra:]...)
		r.start = r.start.Add(time.Duration(extra) * t.step)
	}
}

// Keep forgets all rules but those.
func (t *Telemetry) Keep(rules map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rule := range t.rules {
		if !rules[rule] {
			delete(t.rules, rule)
		}
	}
}

// Series implements Source.
func (t *Telemetry) Series(_ context.Context, q Quantity, from, to time.Time, step time.Duration) (Series, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := unknown(from, to, step)
	r := t.rules[q.Rule]
	if r == nil {
		return s, nil
	}
	window := q.Window
	if window == 0 {
		window = t.step
	}
	for i := range s.Values {
		s.Values[i] = r.value(q, s.At(i).Add(-window), s.At(i), t.step)
	}
	return s, nil
}

// value returns a quantity between two times; NaN if it is not known.
func (r *snapshots) value(q Quantity, from, to time.Time, step time.Duration) float64 {
	last := int(to.Sub(r.start) / step)
	if to.Before(r.start) || last >= len(r.list) || r.list[last].Keys == nil {
		return math.NaN()
	}
	if q.Of == TopShare {
		return r.list[last].TopShare
	}
	first := max(int(from.Sub(r.start)/step), 0)
	for first < last && r.list[first].Keys == nil {
		first++
	}
	a, b := r.list[first], r.list[last]
	if first >= last || b.AllKeys < a.AllKeys || b.Requests < a.Requests || len(a.Keys) != len(b.Keys) {
		return math.NaN()
	}
	switch q.Of {
	case TotalDemand:
		return float64(b.Requests-a.Requests) / (time.Duration(last-first) * step).Seconds()
	case KeyDemand:
		return demandAt(q.Quantile, a, b)
	}
	return math.NaN()
}

// demandAt returns what the key at a quantile of the keys asked for between two snapshots: interpolated within its bucket, as PromQL's histogram_quantile
// does; 0 if no key asked for anything.
func demandAt(quantile float64, a, b Snapshot) float64 {
	all := float64(b.AllKeys - a.AllKeys)
	if all == 0 {
		return 0
	}
	rank, below, bound := quantile*all, 0.0, 1.0
	for i := range b.Keys {
		upTo := float64(b.Keys[i] - a.Keys[i])
		if upTo >= rank && upTo > below {
			least := bound / 2
			if i == 0 {
				least = 0
			}
			return least + (bound-least)*(rank-below)/(upTo-below)
		}
		below = max(below, upTo)
		bound *= 2
	}
	return bound / 2 // the greatest bound that there is
}
