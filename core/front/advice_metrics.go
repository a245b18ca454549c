package front

import (
	"github.com/proxyweir/weir/core/advice"
)

// AdviceMetric is one of the metrics of advice.
type AdviceMetric struct {
	Name, Kind, Help string
}

// The metrics of advice. AdviceApplied has a label "rule", AdviceRefused "reason", AdviceClamped "rule" and "kind"; the others have none.
var (
	AdviceAge     = AdviceMetric{"weir_advice_age_seconds", "gauge", "How long ago the document of advice that was taken last was issued."}
	AdviceSerial  = AdviceMetric{"weir_advice_serial", "gauge", "The serial of the document of advice that was taken last."}
	AdviceApplied = AdviceMetric{"weir_advice_applied", "gauge", "Whether the limit of an adaptable rule in force is another than the configured one: 1, or 0 if it is that."}
	AdvicePolls   = AdviceMetric{"weir_advice_polls_total", "counter", "How often this proxy asked the advisor."}
	AdviceRefused = AdviceMetric{"weir_advice_refused_total", "counter", "Documents of advice that were refused or did not come, by reason."}
	AdviceClamped = AdviceMetric{"weir_advice_clamped_total", "counter", "Documents of advice that a gate cut, by rule and kind."}
)

// AdviceMetrics are all of them, in the order in which they are written.
var AdviceMetrics = []AdviceMetric{AdviceAge, AdviceSerial, AdviceApplied, AdvicePolls, AdviceRefused, AdviceClamped}

// AdviceSample is one sample of such a metric: the values of its labels, and its value.
type AdviceSample struct {
	Rule, Kind string // Kind: reason or kind; "": the metric has no such label
	Value      float64
}

// AdviceSamples returns the samples of a metric for a board that has been asked polls times. applies says that limits change. now is in microseconds
// since the Unix epoch. Reasons and kinds are there from the start, so that the first one is an increase.
func AdviceSamples(m *AdviceMetric, b *advice.Board, polls int64, applies bool, now int64) []AdviceSample {
	var list []AdviceSample
	view := b.Look()
	switch m.Name {
	case AdviceAge.Name:
		if view.Document != nil {
			list = append(list, AdviceSample{Value: float64(now-view.Document.IssuedAt.UnixMicro()) / 1e6})
		}
	case AdviceSerial.Name:
		if view.Document != nil {
			list = append(list, AdviceSample{Value: float64(view.Document.Serial)})
		}
	case AdvicePolls.Name:
		list = append(list, AdviceSample{Value: float64(polls)})
	case AdviceRefused.Name:
		for _, reason := range advice.Reasons {
			list = append(list, AdviceSample{Kind: reason, Value: float64(view.Refused[reason])})
		}
	default:
		for _, label := range b.Labels() {
			list = appendOfRule(list, m, b, label, applies)
		}
	}
	return list
}

// appendOfRule appends the samples of one rule.
func appendOfRule(list []AdviceSample, m *AdviceMetric, b *advice.Board, label string, applies bool) []AdviceSample {
	of, _ := b.LookAt(label)
	if m.Name == AdviceClamped.Name {
		for _, kind := range advice.ClampKinds {
			list = append(list, AdviceSample{Rule: label, Kind: kind, Value: float64(of.Clamped[kind])})
		}
		return list
	}
	value := 0.0
	o, s := &of.Outcome, &of.Settings
	if applies && (o.Requests != s.Requests || o.Algorithm != s.Algorithm || s.Burst > 0 && o.Burst != s.Burst) {
		value = 1
	}
	return append(list, AdviceSample{Rule: label, Value: value})
}
