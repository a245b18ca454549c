package ratelimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// provisionLocal makes the rule that the zone counts by in memory when its own store fails.
func (z *Zone) provisionLocal(h *Handler) error {
	if h.store == core.Store(h.app.memory.store) || z.OnError == "open" || z.OnError == "closed" {
		return nil
	}
	local, err := core.NewRule(z.ruleConfig)
	if err != nil {
		return err
	}
	z.local = local
	return h.app.memory.store.Open(local)
}

// decideWithoutStore comes to a verdict where the store has failed: zones with on_error open are left out, the others are
// counted in memory. With one that is closed it returns false: the request cannot be served.
func (h *Handler) decideWithoutStore(r *http.Request, q *inquiry, failure error) bool {
	zones, checks := q.zones[:0], q.checks[:0]
	for i, zone := range q.zones {
		if c := zone.logger.Check(zapcore.ErrorLevel, "the store of rate limits has failed"); c != nil {
			c.Write(zap.String("zone", zone.rule.Name()), zap.Error(failure))
		}
		if zone.OnError == "closed" && !zone.rule.Shadow() {
			return false
		}
		if zone.local != nil {
			q.checks[i].Rule = zone.local
			zones, checks = append(zones, zone), append(checks, q.checks[i])
		}
	}
	q.zones, q.checks = zones, checks
	return h.app.local.Decide(q.checks, false, &q.verdict) == nil
}

// unavailable answers a request that cannot be served now, but after a while.
func unavailable(w http.ResponseWriter, r *http.Request, after time.Duration, message string) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Retry-After", strconv.FormatInt(core.RetrySeconds(after.Microseconds()), 10))
	if core.IsGRPC(r) {
		answerGRPC(w, grpcUnavailable, message)
		return
	}
	header.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(message + " Try again.\n")) // the client may be gone; there is nobody to tell
}
