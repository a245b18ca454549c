package admin

import (
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/pressure"
)

// guardAnswer is the state of a guard.
type guardAnswer struct {
	Name      string           `json:"name"`
	UnderWay  int64            `json:"under_way"` // requests that the service has not begun to answer
	Limit     int64            `json:"limit"`     // how many these may be
	Max       int64            `json:"max"`
	Min       int64            `json:"min"`
	Baseline  float64          `json:"baseline_seconds"`     // that the service takes to begin an answer while it keeps up; 0: not known yet
	FairShare float64          `json:"fair_share,omitempty"` // requests in 10 s of a key beyond which a part of the limit is closed to it; 0: there is room for all
	Rejected  map[string]int64 `json:"rejected"`             // by reason
	Shadow    bool             `json:"shadow,omitempty"`     // nobody is turned away
	Spared    map[string]int64 `json:"shadow_rejected,omitempty"`
	Pressure  *pressureAnswer  `json:"pressure,omitempty"` // nil: nobody is asked for it
	Tightened []tightenedRule  `json:"tightened,omitempty"`
	Learning  bool             `json:"learning,omitempty"` // no rule has learnt for as long as warm_up says
}

// pressureAnswer is how busy the service is by another sign.
type pressureAnswer struct {
	Value *float64 `json:"value,omitempty"` // nil: it is not known
	High  bool     `json:"high"`
	Acts  bool     `json:"acts"`            // it has a part in the guard's limit
	Error string   `json:"error,omitempty"` // why the last question has brought no value
}

// tightenedRule is a rule whose unusual keys are limited.
type tightenedRule struct {
	Rule  string  `json:"rule"`
	Above int64   `json:"above"` // requests in 10 s, beyond which a key is unusual
	Limit float64 `json:"limit"` // that such a key gets in 10 s
}

// guardAnswerOf returns the state of the guard.
func guardAnswerOf(g *protect.Guarded) guardAnswer {
	at, now := guard.Look(g.Guard), protect.GuardNow()
	a := guardAnswer{
		Name: g.Label, UnderWay: at.UnderWay, Limit: at.Limit, Max: at.Max, Min: at.Min, Baseline: float64(at.Baseline) / 1e6,
		FairShare: float64(at.Fair) / 1e3, Shadow: at.Shadow, Learning: at.WarmUp >= 0,
	}
	rejected, _ := front.GuardCounts(&at, false)
	a.Rejected = metrics.ByValue(metrics.GuardRejected, rejected)
	if spared, shown := front.GuardCounts(&at, true); shown {
		a.Spared = metrics.ByValue(metrics.GuardShadowRejected, spared)
	}
	if w := g.Pressure(); w != nil {
		r := pressure.Read(w, now)
		a.Pressure = &pressureAnswer{High: r.High, Acts: at.Pressed, Error: r.Why}
		if r.Known {
			a.Pressure.Value = &r.Value
		}
	}
	g.Each(func(label string, r *guard.Rule) {
		of := guard.LookAt(r, now)
		if of.Limit > 0 {
			a.Tightened = append(a.Tightened, tightenedRule{Rule: label, Above: of.Edge, Limit: of.Limit})
		}
		a.Learning = a.Learning && of.Learnt < at.WarmUp
	})
	return a
}
