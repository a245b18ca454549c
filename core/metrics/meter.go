package metrics

import (
	"sync/atomic"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
)

// Meter counts the requests under one rule. Functions of sync/atomic change its numbers, since they cost an interpreter less than methods.
type Meter struct {
	Waiting   int64   // requests that wait now, in Traefik; first, where 64 bits are aligned on every machine
	Units     int64   // that requests were charged by their responses
	Penalties int64   // keys that were blocked for exceeding the limit
	Allowed   *int64  // of Requests: the most frequent outcome
	Requests  []int64 // by front.Outcome
	Compared  []int64 // by front.Comparison
	Measured  []int64 // by MeasuredRead and so on
	Brought   []int64 // limits that requests brought: by core.RequestedMalformed and so on
	Label     string  // the rule's: see LabelOf
}

// NewMeter returns a meter that has counted nothing.
func NewMeter(label string) *Meter {
	m := &Meter{Label: label, Requests: make([]int64, front.NotCounted), Compared: make([]int64, front.Comparisons), Measured: make([]int64, MeasuredCut+1), Brought: make([]int64, core.RequestedCrowded+1)}
	m.Allowed = &m.Requests[front.Allowed]
	return m
}

// What responses say of the costs of their requests: the places of these in Meter.Measured.
const (
	MeasuredRead = iota
	MeasuredMissing
	MeasuredCut
)

// Measure has a request charged what its response says, unless its status does not count, and counts what that was; m may be nil.
func Measure(m *Meter, r *core.Reservation, units int64, known bool, status int) {
	said := MeasuredMissing
	if known {
		said = MeasuredRead
		if r.Measure(units) {
			said = MeasuredCut
		}
	}
	if m == nil {
		return
	}
	atomic.AddInt64(&m.Measured[said], 1)
	if r.Counts(status) {
		atomic.AddInt64(&m.Units, r.Units)
	}
}

// LabelOf returns the name of a rule in metrics.
func LabelOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// CountPart counts the result of a rule for a request.
func CountPart(m *Meter, part *front.Part) {
	if part.Compared != front.NotCompared {
		atomic.AddInt64(&m.Compared[part.Compared], 1)
	}
	if part.Outcome == front.NotCounted {
		return
	}
	atomic.AddInt64(&m.Requests[part.Outcome], 1)
	if part.Check.Decision.Penalty {
		atomic.AddInt64(&m.Penalties, 1)
	}
}
