package traefik

import (
	"strconv"

	"github.com/proxyweir/weir/front"
	"github.com/proxyweir/weir/guard"
)

// appendGuards appends the metrics of the guards.
func appendGuards(b []byte, s *snapshot) []byte {
	if len(s.guardNames) == 0 {
		return b
	}
	states := make(map[string]guard.State)
	for _, name := range s.guardNames {
		states[name] = guard.Look(s.guards[name])
	}
	gauge := func(b []byte, m front.GuardMetric, of func(at guard.State) float64) []byte {
		b = appendFamily(b, m.Name, "gauge", m.Help)
		for _, name := range s.guardNames {
			b = append(b, m.Name+`{guard="`+name+`"} `+strconv.FormatFloat(of(states[name]), 'g', -1, 64)+"\n"...)
		}
		return b
	}
	b = gauge(b, front.GuardLimit, func(at guard.State) float64 { return float64(at.Limit) })
	b = gauge(b, front.GuardUnderWay, func(at guard.State) float64 { return float64(at.UnderWay) })
	b = gauge(b, front.GuardBaseline, func(at guard.State) float64 { return float64(at.Baseline) / 1e6 })
	b = gauge(b, front.GuardFair, func(at guard.State) float64 { return float64(at.Fair) / 1e3 })
	m := front.GuardRejected
	b = appendFamily(b, m.Name, "counter", m.Help)
	for _, name := range s.guardNames {
		begin := m.Name + `{guard="` + name + `",reason="`
		b = appendSample(b, begin+front.GuardFull+`"} `, states[name].Full)
		b = appendSample(b, begin+front.GuardUnfair+`"} `, states[name].Unfair)
	}
	return b
}
