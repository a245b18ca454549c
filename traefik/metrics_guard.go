package traefik

import (
	"strconv"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
)

// guardSeries has what metrics show of one guard.
type guardSeries struct {
	guard  *guard.Guard
	labels []string      // of the rules; the first is empty: of requests under no rule
	rules  []*guard.Rule // of the same order
}

// guardLook is what one guard, or one of its rules, is at.
type guardLook struct {
	labels string // of the series, without the closing brace
	at     guard.State
	of     guard.RuleState
}

// appendGuards appends the metrics of the guards.
func appendGuards(b []byte, s *snapshot, now int64) []byte {
	if len(s.guardNames) == 0 {
		return b
	}
	var guards, rules []*guardLook
	for _, name := range s.guardNames {
		one := s.guards[name]
		begin := `{guard="` + name + `"`
		guards = append(guards, &guardLook{labels: begin, at: guard.Look(one.guard)})
		for k, r := range one.rules {
			look := &guardLook{labels: begin + `,rule="` + one.labels[k] + `"`, of: guard.LookAt(r, now)}
			if k > 0 || look.of.Asked > 0 || look.of.Answers > 0 { // else all requests come under rules
				rules = append(rules, look)
			}
		}
	}
	b = appendGauge(b, front.GuardLimit, guards, "", func(l *guardLook) float64 { return float64(l.at.Limit) })
	b = appendGauge(b, front.GuardUnderWay, guards, "", func(l *guardLook) float64 { return float64(l.at.UnderWay) })
	b = appendGauge(b, front.GuardBaseline, guards, "", func(l *guardLook) float64 { return float64(l.at.Baseline) / 1e6 })
	b = appendGauge(b, front.GuardFair, guards, "", func(l *guardLook) float64 { return float64(l.at.Fair) / 1e3 })
	b = appendGuardCounts(b, front.GuardRejected, guards, false)
	b = appendGuardCounts(b, front.GuardShadowRejected, guards, true)
	if len(rules) == 0 {
		return b
	}
	b = appendGauge(b, front.ActiveKeys, rules, "", func(l *guardLook) float64 { return float64(l.of.Keys) })
	b = appendGauge(b, front.RejectedKeys, rules, "", func(l *guardLook) float64 { return float64(l.of.Refused) })
	b = appendGauge(b, front.TopKeys, rules, `,keys="1"`, func(l *guardLook) float64 { return l.of.Top })
	b = appendGauges(b, front.TopKeys, rules, `,keys="10"`, func(l *guardLook) float64 { return l.of.Ten })
	b = appendGauge(b, front.UsualDemand, rules, `,share="0.99"`, func(l *guardLook) float64 { return float64(l.of.P99) })
	b = appendGauges(b, front.UsualDemand, rules, `,share="0.9999"`, func(l *guardLook) float64 { return float64(l.of.Greatest) })
	b = appendGauge(b, front.TightenedLimit, rules, "", func(l *guardLook) float64 { return l.of.Limit })
	b = appendFamily(b, front.KeyDemand.Name, "histogram", front.KeyDemand.Help)
	for _, l := range rules {
		b = appendPowers(b, front.KeyDemand.Name, l.labels, l.of.Demand, 1, l.of.Asked, float64(l.of.Requests))
	}
	b = appendFamily(b, front.FirstByte.Name, "histogram", front.FirstByte.Help)
	for _, l := range rules {
		b = appendPowers(b, front.FirstByte.Name, l.labels, l.of.Took, 0.001, l.of.Answers, float64(l.of.Time)/1e6)
	}
	return b
}

// appendGuardCounts appends how many requests the guards rejected, or would have as shadows.
func appendGuardCounts(b []byte, m front.GuardMetric, guards []*guardLook, shadow bool) []byte {
	any := false
	for _, l := range guards {
		counts, shown := front.GuardCounts(&l.at, shadow)
		if !shown {
			continue
		}
		if !any {
			any = true
			b = appendFamily(b, m.Name, "counter", m.Help)
		}
		for _, reason := range []string{front.GuardFull, front.GuardUnfair, front.GuardTightened} {
			b = appendSample(b, m.Name+l.labels+`,reason="`+reason+`"} `, counts[reason])
		}
	}
	return b
}

// appendGauge appends the family of a gauge, with a further label.
func appendGauge(b []byte, m front.GuardMetric, list []*guardLook, label string, of func(l *guardLook) float64) []byte {
	b = appendFamily(b, m.Name, "gauge", m.Help)
	return appendGauges(b, m, list, label, of)
}

func appendGauges(b []byte, m front.GuardMetric, list []*guardLook, label string, of func(l *guardLook) float64) []byte {
	for _, l := range list {
		b = append(b, m.Name+l.labels+label+"} "+shortest(of(l))+"\n"...)
	}
	return b
}

// appendPowers appends a histogram whose bounds are at a unit, twice that, four times that, and so on.
func appendPowers(b []byte, name, labels string, within []int64, unit float64, count int64, sum float64) []byte {
	for _, n := range within {
		b = appendSample(b, name+"_bucket"+labels+`,le="`+shortest(unit)+`"} `, n)
		unit *= 2
	}
	b = appendSample(b, name+"_bucket"+labels+`,le="+Inf"} `, count)
	b = append(b, name+"_sum"+labels+"} "+shortest(sum)+"\n"...)
	return appendSample(b, name+"_count"+labels+"} ", count)
}

func shortest(number float64) string { return strconv.FormatFloat(number, 'g', -1, 64) }
