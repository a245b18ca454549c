package traefik

import (
	"sort"

	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/front"
)

// advisedNow is the advice of one middleware, as metrics show it.
type advisedNow struct {
	of      *advising
	applies bool

	board *advice.Board // nil: it has not begun yet
	polls int64
}

// adviceNow fills in what the metrics of advice need.
func (g *registry) adviceNow(list []*advisedNow) []*advisedNow {
	g.advices.Lock()
	defer g.advices.Unlock()
	for i := range list {
		a := list[i].of
		list[i].board = a.board
		list[i].polls = a.polls
		if a.poller != nil {
			list[i].polls += a.poller.Health().Polls
		}
	}
	return list
}

// appendAdvice appends the metrics of advice. If several middlewares have an advisor, the age is that of the oldest advice, the serial the least, and
// the others are of all.
func appendAdvice(b []byte, list []*advisedNow, now int64) []byte {
	for i := range front.AdviceMetrics {
		m := &front.AdviceMetrics[i]
		values := make(map[string]float64)
		for k := range list {
			if list[k].board == nil {
				continue
			}
			for _, s := range front.AdviceSamples(m, list[k].board, list[k].polls, list[k].applies, now) {
				labels := adviceLabels(&s)
				before, there := values[labels]
				values[labels] = together(m, before, there, s.Value)
			}
		}
		if len(values) == 0 {
			continue
		}
		names := make([]string, 0, len(values))
		for labels := range values {
			names = append(names, labels)
		}
		sort.Strings(names)
		b = appendFamily(b, m.Name, m.Kind, m.Help)
		for _, labels := range names {
			b = append(b, m.Name+labels+" "+shortest(values[labels])+"\n"...)
		}
	}
	return b
}

// together returns the value of a sample of several middlewares.
func together(m *front.AdviceMetric, before float64, there bool, value float64) float64 {
	if !there {
		return value
	}
	if m.Kind == "counter" {
		return before + value
	}
	if (m.Name == front.AdviceSerial.Name) == (value < before) { // the least serial, the greatest age, and whether any is applied
		return value
	}
	return before
}

// adviceLabels returns the labels of a sample, in braces; "": it has none.
func adviceLabels(s *front.AdviceSample) string {
	if s.Rule == "" && s.Kind == "" {
		return ""
	}
	if s.Rule == "" {
		return `{reason="` + s.Kind + `"}`
	}
	if s.Kind == "" {
		return `{rule="` + s.Rule + `"}`
	}
	return `{rule="` + s.Rule + `",kind="` + s.Kind + `"}`
}
