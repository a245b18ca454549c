// Package report has what is said of the rules in force: the counts of their requests, the keys that send the most, the log of rejections, and
// each rule as the admin API, metrics and rate_limit_status show it.
package report

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/metrics"
)

// Reporter reports on the requests of one rule: it has its counts, and its log.
type Reporter struct {
	Config
	Name    string
	key     func(*http.Request) string // see New
	Stats   *Stats
	Address *match.Source // see AddressOf
	log     rejectionLog
	delays  rejectionLog // of a shadow
	closed  sync.Once

	Tracked *guard.Rule // what the handler's guard knows of the rule; nil: there is no guard
	Untrack func()      // tells the guard that the reporter has ended
}

// New returns a reporter of a rule. The caller must close it. key returns a request's key in readable form; nil: as it is.
func New(how Config, namespace, name string, key func(*http.Request) string) *Reporter {
	r := &Reporter{Config: how, Name: name, key: key, Stats: acquireStats(metrics.LabelOf(namespace, name))}
	r.log.begin(how, name)
	r.delays.begin(how, name)
	r.delays.delays = true
	return r
}

// Of returns the reporter of a check's rule.
func Of(c *core.Check) *Reporter { return c.Rule.Noted().(*Reporter) }

// ReportLimits has the reporter count and log the limits that requests bring and that are not taken as they are; nil: they bring none. It is called before
// the first request.
func (rule *Reporter) ReportLimits(q *core.Requested) {
	if q == nil {
		return
	}
	q.Counts = rule.Stats.Brought
	q.Report = func(value, why string) {
		fields := []zap.Field{zap.String("zone", rule.Name), zap.String("why", why)}
		if rule.LogKey {
			fields = append(fields, zap.String("value", value))
		}
		rule.Logger.Warn("a request brings a limit that is not taken as it is", fields...)
	}
}

// Close releases what the reporter holds. It may be called again, and on nil.
func (r *Reporter) Close() {
	if r == nil {
		return
	}
	r.closed.Do(func() {
		r.log.end()
		r.delays.end()
		if r.Untrack != nil {
			r.Untrack()
		}
		r.Stats.release()
	})
}

// Rejected logs that a request of a key is rejected, with the wait.
func (rule *Reporter) Rejected(r *http.Request, key string, wait time.Duration) {
	rule.write(r, &rule.log, key, "rate limit exceeded", wait)
}

// Paused logs that the service asks to wait, and for how long the key is paused; said is its Retry-After if that is not it.
func (rule *Reporter) Paused(r *http.Request, key string, wait time.Duration, said string) {
	message := "the service asks to wait"
	if said != "" {
		message += ", by a Retry-After that is not taken: " + strconv.Quote(cut(said))
	}
	rule.write(r, &rule.log, key, message, wait)
}

// Shadows logs what shadow rules would have rejected.
func Shadows(r *http.Request, checks []core.Check) {
	for i := range checks {
		c := &checks[i]
		if !c.Rule.Shadow {
			continue
		}
		rule := Of(c)
		if !c.Decision.Allowed {
			rule.write(r, &rule.log, c.Key, "rate limit exceeded in shadow", time.Duration(max(c.Decision.RetryAfter, 0))*time.Microsecond)
		} else if c.Decision.Delay > 0 {
			rule.write(r, &rule.delays, c.Key, "request delayed in shadow", time.Duration(c.Decision.Delay)*time.Microsecond)
		}
	}
}

// write writes a line on a request that is over the rule's limit, if that sample of the rule's takes it. It leaves out the query of the URI, which may
// have secrets, or the key.
func (rule *Reporter) write(r *http.Request, sample *rejectionLog, key, message string, wait time.Duration) {
	if !sample.admit(key) {
		return
	}
	c := rule.Logger.Check(sample.level, message)
	if c == nil {
		return
	}
	id, _ := syntax.ReplacerOf(r).GetString("http.request.uuid")
	path, _, _ := strings.Cut(r.RequestURI, "?")
	fields := []zap.Field{
		zap.String("zone", rule.Name),
		zap.Duration("wait", wait),
		zap.String("client_ip", syntax.ClientAddress(r)),
		zap.String("remote_ip", match.HostOf(r.RemoteAddr)),
	}
	if trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool); trusted {
		fields = append(fields, zap.Bool("trusted_proxy", true))
	}
	if r.TLS != nil && !r.TLS.HandshakeComplete { // anybody can have sent it, from any address
		fields = append(fields, zap.Bool("early_data", true))
	}
	fields = append(fields,
		zap.String("method", r.Method),
		zap.String("host", r.Host),
		zap.String("uri", path),
		zap.String("request_id", id))
	if trace, ok := caddyhttp.GetVar(r.Context(), "trace_id").(string); ok {
		fields = append(fields, zap.String("trace_id", trace))
	}
	if rule.LogKey {
		fields = append(fields, zap.String("key", cut(rule.readable(r, key))))
	}
	c.Write(fields...)
}

// readable returns a request's key as people read it.
func (rule *Reporter) readable(r *http.Request, key string) string {
	if rule.key != nil {
		return rule.key(r)
	}
	return key
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

// Count counts the outcome of a request in each of its rules, at a time in seconds since the Unix epoch. failed says that the store
// has failed, so that the rules' on_error decided.
func Count(q *front.Evaluation, at int64, failed bool) {
	if len(q.Checks) == 1 && q.Checks[0].Candidate == nil && q.Verdict.Outcome == core.Allow && !failed && !q.Verdict.Soft && !q.Checks[0].Rule.Shadow { // the most common case
		stats := Of(&q.Checks[0]).Stats
		atomic.AddInt64(stats.Allowed, 1)
		stats.TopRequests.add(q.Checks[0].Key, at)
		return
	}
	var part front.Part
	for i := range q.Checks {
		stats := Of(&q.Checks[i]).Stats
		front.PartOf(&q.Checks[i], &q.Verdict, failed, &part)
		metrics.CountPart(stats.Meter, &part)
		if part.Outcome == front.NotCounted {
			continue
		}
		c := part.Check
		stats.TopRequests.add(c.Key, at)
		if part.Outcome == front.Rejected || part.Outcome == front.ShadowRejected {
			stats.TopRejections.add(c.Key, at)
		}
	}
}

// Stats has the counts of one rule's requests since the process first had the rule. All handlers with a rule of the name share
// it, also across reloads. It ends with the last of them, and so do its series.
type Stats struct {
	*metrics.Meter
	Refused       []int64 // of metrics.DeferredRefused
	TopRequests   topKeys // requests under the rule
	TopRejections topKeys // requests that the rule rejected, or would have rejected as a shadow
}

// allStats has the Stats of all configurations' rules, by their labels.
var allStats = caddy.NewUsagePool()

// acquireStats returns the stats of a rule. The caller must release them.
func acquireStats(label string) *Stats {
	value, _, _ := allStats.LoadOrNew(label, func() (caddy.Destructor, error) { // cannot fail
		return &Stats{Meter: metrics.NewMeter(label), Refused: metrics.NewCounts(metrics.DeferredRefused)}, nil
	})
	return value.(*Stats)
}

func (s *Stats) release() {
	_, _ = allStats.Delete(s.Label) // Destruct cannot fail
}

// Destruct implements caddy.Destructor.
func (s *Stats) Destruct() error {
	s.TopRequests.end()
	s.TopRejections.end()
	return nil
}

// SweepTopKeys frees the memory of keys that have sent nothing for long.
func SweepTopKeys() {
	now := time.Now().Unix()
	allStats.Range(func(_, value any) bool {
		s := value.(*Stats)
		s.TopRequests.look(now)
		s.TopRejections.look(now)
		return true
	})
}

// Interface guard
var _ caddy.Destructor = (*Stats)(nil)
