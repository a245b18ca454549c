package ratelimit

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/metrics"
)

// reporter reports on the requests of one rule: it has its counts, and its log.
type reporter struct {
	name   string
	logger *zap.Logger
	key    func(*http.Request) string // see newReporter
	stats  *ruleStats
	log    rejectionLog
	delays rejectionLog // of a shadow
	closed sync.Once

	guarded *guarded    // the handler's guard; nil: there is none
	tracked *guard.Rule // what it knows of the rule
}

// newReporter returns a reporter of a rule. The caller must close it. key returns a request's key in readable form; nil: as it is.
func newReporter(h *Handler, namespace, name string, key func(*http.Request) string) *reporter {
	r := &reporter{name: name, logger: h.logger, key: key, stats: acquireStats(metrics.LabelOf(namespace, name))}
	r.log.begin(h, name)
	r.delays.begin(h, name)
	r.delays.delays = true
	if r.guarded = h.guarded; r.guarded != nil {
		r.tracked = r.guarded.track(r.stats.Label)
	}
	return r
}

// reporterOf returns the reporter of a check's rule.
func reporterOf(c *core.Check) *reporter { return c.Rule.Noted().(*reporter) }

// close releases what the reporter holds. It may be called again, and on nil.
func (r *reporter) close() {
	if r == nil {
		return
	}
	r.closed.Do(func() {
		r.log.end()
		r.delays.end()
		if r.guarded != nil {
			r.guarded.untrack(r.stats.Label)
		}
		r.stats.release()
	})
}

// report logs a rejection and emits its event.
func (h *Handler) report(r *http.Request, q *front.Inquiry) {
	v := &q.Verdict
	c := core.Reported(q.Checks, v)
	rule := reporterOf(c)
	wait := time.Duration(max(v.RetryAfter, 0)) * time.Microsecond // zero for rate.Never
	h.log(r, rule, &rule.log, c.Key, errExceeded.Error(), wait)
	if h.events.ShouldEmit("rate_limit_exceeded") {
		h.events.Emit(h.ctx, "rate_limit_exceeded", map[string]any{
			"zone":      rule.name,
			"wait":      wait,
			"remote_ip": match.HostOf(r.RemoteAddr),
			"client_ip": syntax.ClientAddress(r),
		})
	}
}

// reportShadows logs what shadow rules would have rejected.
func (h *Handler) reportShadows(r *http.Request, q *front.Inquiry) {
	for i := range q.Checks {
		d := &q.Checks[i].Decision
		if !q.Checks[i].Rule.Shadow {
			continue
		}
		rule := reporterOf(&q.Checks[i])
		if !d.Allowed {
			h.log(r, rule, &rule.log, q.Checks[i].Key, "rate limit exceeded in shadow", time.Duration(max(d.RetryAfter, 0))*time.Microsecond)
		} else if d.Delay > 0 {
			h.log(r, rule, &rule.delays, q.Checks[i].Key, "request delayed in shadow", time.Duration(d.Delay)*time.Microsecond)
		}
	}
}

// log writes a line on a request that is over a rule's limit, if that sample of the rule's takes it. It leaves out the query of the URI, which may
// have secrets, or the key.
func (h *Handler) log(r *http.Request, rule *reporter, sample *rejectionLog, key, message string, wait time.Duration) {
	if !sample.admit(key) {
		return
	}
	c := rule.logger.Check(sample.level, message)
	if c == nil {
		return
	}
	id, _ := syntax.ReplacerOf(r).GetString("http.request.uuid")
	path, _, _ := strings.Cut(r.RequestURI, "?")
	fields := []zap.Field{
		zap.String("zone", rule.name),
		zap.Duration("wait", wait),
		zap.String("client_ip", syntax.ClientAddress(r)),
		zap.String("method", r.Method),
		zap.String("host", r.Host),
		zap.String("uri", path),
		zap.String("request_id", id),
	}
	if trace, ok := caddyhttp.GetVar(r.Context(), "trace_id").(string); ok {
		fields = append(fields, zap.String("trace_id", trace))
	}
	if h.LogKey {
		if rule.key != nil {
			key = rule.key(r)
		}
		fields = append(fields, zap.String("key", cut(key)))
	}
	c.Write(fields...)
}

// longestLogged is how many bytes of a key the log has. Clients choose keys, and a server takes header fields of a megabyte.
const longestLogged = 256

// cut returns a key for the log: a longer one without its end, and with a sign of that.
func cut(key string) string {
	if len(key) <= longestLogged {
		return key
	}
	end := longestLogged
	for end > 0 && !utf8.RuneStart(key[end]) {
		end--
	}
	return fmt.Sprintf("%s… (of %d bytes)", key[:end], len(key))
}
