package metrics

import (
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/pressure"
	"github.com/proxyweir/weir/core/rate"
)

// Rule is what a rule is at.
type Rule struct {
	Meter             *Meter
	Candidate, Blocks bool // it has a candidate, has a penalty
	Measures          bool // it charges what responses say
	Brings            bool // its requests bring limits

	Waiting         int64      // requests that wait now; Absent: it limits nothing
	Keys            int64      // in memory; Absent: it counts elsewhere
	Units           int64      // Absent: it is not leased
	Own, Configured *core.Rule // its own limit in force, and the configured one; nil: it has none
}

// Absent is a number that a rule does not have.
const Absent = -1

// AddRule adds the series of a rule. Rare outcomes are there from the start, so that the first is an increase. now is in microseconds since the Unix epoch.
func AddRule(p *Page, r *Rule, now int64) {
	label := r.Meter.Label
	Each(p, Requests, Read(r.Meter.Requests), label)
	if r.Candidate {
		compared := Read(r.Meter.Compared)
		for i, words := range front.ComparisonWords {
			Add(p, Candidates, float64(compared[i]), label, words[0], words[1])
		}
	}
	if r.Blocks {
		Add(p, Penalties, float64(atomic.LoadInt64(&r.Meter.Penalties)), label)
	}
	if r.Measures {
		Each(p, Measured, Read(r.Meter.Measured), label)
		Add(p, MeasuredUnits, float64(atomic.LoadInt64(&r.Meter.Units)), label)
	}
	if r.Brings {
		Each(p, Brought, Read(r.Meter.Brought), label)
	}
	if r.Waiting != Absent {
		Add(p, Waiting, float64(r.Waiting), label)
	}
	if r.Keys != Absent {
		Add(p, Keys, float64(r.Keys), label)
	}
	if r.Units != Absent {
		Add(p, LeaseUnits, float64(r.Units), label)
	}
	if r.Configured != nil {
		Add(p, Configured, float64(RequestsOf(r.Configured)), label)
	}
	if r.Own == nil {
		return
	}
	Add(p, Limit, float64(RequestsOf(r.Own)), label)
	if period := PeriodOf(r.Own.Limit, now); period > 0 {
		Add(p, Period, float64(period)/1e6, label)
	}
}

// RequestsOf returns the requests that a limit allows in a period; 0 if it rejects all.
func RequestsOf(r *core.Rule) int64 {
	if r.Blocks() {
		return 0
	}
	return r.Limit.Requests
}

// PeriodOf returns the period of a limit in microseconds: for a calendar period, the length of the current day, week or month; 0 if there is none.
func PeriodOf(l *rate.Limit, now int64) int64 {
	if w := l.Windows(now); w != nil {
		return w[2] - w[1]
	}
	if l.InFlight {
		return 0
	}
	return l.Period
}

// AddGuard adds the series of a guard. Those of a shadow are there of guards that are or were shadows.
func AddGuard(p *Page, name string, s *guard.State) {
	Add(p, GuardLimit, float64(s.Limit), name)
	Add(p, GuardUnderWay, float64(s.UnderWay), name)
	Add(p, GuardBaseline, float64(s.Baseline)/1e6, name)
	Add(p, GuardFair, float64(s.Fair)/1e3, name)
	rejected, _ := front.GuardCounts(s, false)
	Each(p, GuardRejected, rejected, name)
	if spared, shown := front.GuardCounts(s, true); shown {
		Each(p, GuardShadowRejected, spared, name)
	}
}

// AddPressure adds the series of the pressure on a guard's service; w is nil if nobody asks for it.
func AddPressure(p *Page, name string, s *guard.State, w *pressure.Watch, now int64) {
	if w == nil {
		return
	}
	r := pressure.Read(w, now)
	if r.Known {
		Add(p, Pressure, r.Value, name)
	}
	AddIf(p, PressureHigh, r.High, name)
	AddIf(p, PressureActs, s.Pressed, name)
	Each(p, PressureFailures, r.Failures, name)
}

// AddDemand adds the series of what a guard knows of a rule; its label is empty for requests under none.
func AddDemand(p *Page, name, label string, s *guard.RuleState) {
	if label == "" && s.Asked == 0 && s.Answers == 0 { // all requests come under rules
		return
	}
	addPowers(p, KeyDemand, s.Demand, 1, s.Asked, float64(s.Requests), name, label)
	Add(p, ActiveKeys, float64(s.Keys), name, label)
	Add(p, RejectedKeys, float64(s.Refused), name, label)
	Add(p, TopKeys, s.Top, name, label, "1")
	Add(p, TopKeys, s.Ten, name, label, "10")
	addPowers(p, FirstByte, s.Took, 0.001, s.Answers, float64(s.Time)/1e6, name, label)
	Each(p, UsualDemand, []int64{s.P99, s.Greatest}, name, label)
	Add(p, TightenedLimit, s.Limit, name, label)
}

// Advice is the advice of one advisor.
type Advice struct {
	State   *advice.State
	Polls   int64
	Applies bool // limits change
}

// AddAdvice adds the series of advice; without an advisor there are none. With several, the age is that of the oldest advice, the serial the least, and the
// others are of all. now is in microseconds since the Unix epoch.
func AddAdvice(p *Page, list []Advice, now int64) {
	if len(list) == 0 {
		return
	}
	polls := int64(0)
	refused := NewCounts(AdviceRefused)
	var oldest, least *advice.Document
	for _, a := range list {
		view := a.State.Look()
		polls += a.Polls
		for i, reason := range advice.Reasons {
			refused[i] += view.Refused[reason]
		}
		if d := view.Document; d != nil {
			if oldest == nil || d.IssuedAt.Before(oldest.IssuedAt) {
				oldest = d
			}
			if least == nil || d.Serial < least.Serial {
				least = d
			}
		}
	}
	if oldest != nil {
		Add(p, AdviceAge, time.UnixMicro(now).Sub(oldest.IssuedAt).Seconds())
		Add(p, AdviceSerial, float64(least.Serial))
	}
	Add(p, AdvicePolls, float64(polls))
	Each(p, AdviceRefused, refused)
	addAdvised(p, list)
}

// addAdvised adds the series of the rules that advice may change.
func addAdvised(p *Page, list []Advice) {
	applied := make(map[string]float64)
	clamped := make(map[string][]int64)
	var labels []string
	for _, a := range list {
		for _, label := range a.State.Labels() {
			of, _ := a.State.LookAt(label)
			if clamped[label] == nil {
				labels = append(labels, label)
				clamped[label] = NewCounts(AdviceClamped)
			}
			for i, kind := range advice.ClampKinds {
				clamped[label][i] += of.Clamped[kind]
			}
			if o, s := &of.Outcome, &of.Settings; a.Applies && (o.Requests != s.Requests || o.Algorithm != s.Algorithm || s.Burst > 0 && o.Burst != s.Burst) {
				applied[label] = 1
			}
		}
	}
	for _, label := range labels {
		Add(p, AdviceApplied, applied[label], label)
		Each(p, AdviceClamped, clamped[label], label)
	}
}
