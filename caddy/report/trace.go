package report

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/proxyweir/weir/core/front"
)

// Trace adds an event to the span of the request for each of its rules that has an outcome, if Caddy's tracing records one. failed is as in Count. The key
// is among the attributes only with log_key.
func Trace(r *http.Request, q *front.Evaluation, failed bool) {
	span := trace.SpanFromContext(r.Context())
	if !span.IsRecording() {
		return
	}
	var part front.Part
	for i := range q.Checks {
		rule := Of(&q.Checks[i])
		front.PartOf(&q.Checks[i], &q.Verdict, failed, &part)
		if part.Outcome == front.NotCounted {
			continue
		}
		attributes := []attribute.KeyValue{
			attribute.String("rate_limit.rule", rule.Stats.Label),
			attribute.String("rate_limit.outcome", front.OutcomeNames[part.Outcome]),
		}
		if d := &part.Check.Decision; d.Limit > 0 { // else nobody has decided
			attributes = append(attributes, attribute.Int64("rate_limit.limit", d.Limit), attribute.Int64("rate_limit.remaining", d.Remaining))
			if d.RetryAfter > 0 {
				attributes = append(attributes, attribute.Float64("rate_limit.retry_after", float64(d.RetryAfter)/1e6))
			}
		}
		if rule.LogKey {
			attributes = append(attributes, attribute.String("rate_limit.key", cut(rule.readable(r, part.Check.Key))))
		}
		span.AddEvent("rate_limit", trace.WithAttributes(attributes...))
	}
}
