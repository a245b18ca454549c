package ratelimit

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/metrics"
)

// reporter reports on the requests of one rule: it has its counts, and its log.
type reporter struct {
	reports
	name   string
	key    func(*http.Request) string // see newReporter
	stats  *ruleStats
	log    rejectionLog
	delays rejectionLog // of a shadow
	closed sync.Once

	tracked *guard.Rule // what the handler's guard knows of the rule; nil: there is no guard
	untrack func()      // tells the guard that the reporter has ended
}

// reports is how a handler reports on its rules.
type reports struct {
	logger   *zap.Logger
	level    string
	interval time.Duration
	logKey   bool
}

// newReporter returns a reporter of a rule. The caller must close it. key returns a request's key in readable form; nil: as it is.
func newReporter(how reports, namespace, name string, key func(*http.Request) string) *reporter {
	r := &reporter{reports: how, name: name, key: key, stats: acquireStats(metrics.LabelOf(namespace, name))}
	r.log.begin(how, name)
	r.delays.begin(how, name)
	r.delays.delays = true
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
		if r.untrack != nil {
			r.untrack()
		}
		r.stats.release()
	})
}

// rejected logs that a request of a key is rejected, with the wait.
func (rule *reporter) rejected(r *http.Request, key string, wait time.Duration) {
	rule.write(r, &rule.log, key, "rate limit exceeded", wait)
}

// reportShadows logs what shadow rules would have rejected.
func reportShadows(r *http.Request, checks []core.Check) {
	for i := range checks {
		c := &checks[i]
		if !c.Rule.Shadow {
			continue
		}
		rule := reporterOf(c)
		if !c.Decision.Allowed {
			rule.write(r, &rule.log, c.Key, "rate limit exceeded in shadow", time.Duration(max(c.Decision.RetryAfter, 0))*time.Microsecond)
		} else if c.Decision.Delay > 0 {
			rule.write(r, &rule.delays, c.Key, "request delayed in shadow", time.Duration(c.Decision.Delay)*time.Microsecond)
		}
	}
}

// write writes a line on a request that is over the rule's limit, if that sample of the rule's takes it. It leaves out the query of the URI, which may
// have secrets, or the key.
func (rule *reporter) write(r *http.Request, sample *rejectionLog, key, message string, wait time.Duration) {
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
	if rule.logKey {
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

// count counts the outcome of a request in each of its rules, at a time in seconds since the Unix epoch. failed says that the store
// has failed, so that the rules' on_error decided.
func count(q *front.Inquiry, at int64, failed bool) {
	if len(q.Checks) == 1 && q.Checks[0].Candidate == nil && q.Verdict.Outcome == core.Allow && !failed && !q.Verdict.Soft && !q.Checks[0].Rule.Shadow { // the most common case
		stats := reporterOf(&q.Checks[0]).stats
		atomic.AddInt64(stats.Allowed, 1)
		stats.requests.add(q.Checks[0].Key, at)
		return
	}
	var part front.Part
	for i := range q.Checks {
		stats := reporterOf(&q.Checks[i]).stats
		front.PartOf(&q.Checks[i], &q.Verdict, failed, &part)
		metrics.CountPart(stats.Meter, &part)
		if part.Outcome == front.NotCounted {
			continue
		}
		c := part.Check
		stats.requests.add(c.Key, at)
		if part.Outcome == front.Rejected || part.Outcome == front.ShadowRejected {
			stats.rejections.add(c.Key, at)
		}
	}
}
