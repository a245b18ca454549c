package traefik

import (
	"context"
	"fmt"
	"hash/maphash"
	"log"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/traefik/config"
)

// host is what all middlewares of the process share besides the registry: clocks and timers, the log, and what is counted for no single rule.
type host struct {
	clock func() time.Duration        // since some time
	after func(time.Duration, func()) // runs a function later
	// For a request that waits: returns a context that ends after the wait, or with the given one, and its cancel function.
	pause func(context.Context, time.Duration) (context.Context, context.CancelFunc)
	wall  func() int64 // the memory's clock; nil: the wall clock
	near  func() int64 // the clock for what is remembered of Redis, which then also uses wall; nil: a monotonic one

	saying sync.Mutex
	said   map[string]map[string]bool // the warnings that are in the log already, by middleware

	metrics *processMetrics
	page    *page // of the metrics
}

func newHost() *host {
	started := time.Now()
	return &host{
		clock: func() time.Duration { return time.Since(started) },
		after: func(d time.Duration, f func()) { time.AfterFunc(d, f) },
		pause: func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, d)
		},
		said:    make(map[string]map[string]bool),
		metrics: &processMetrics{memory: rate.NewDurations(), redis: rate.NewDurations(), failures: metrics.NewCounts(metrics.StoreErrors)},
	}
}

// processMetrics are the metrics that belong to no rule: one for all middlewares, so that they survive reloads.
type processMetrics struct {
	memory, redis *rate.Durations
	failures      []int64          // of metrics.StoreErrors
	evicted       int64            // of memories that are closed; with the registry's lock
	leases        redis.LeaseStats // of stores that are closed; with the registry's lock
}

// unixNow is the time by which advice goes, in microseconds since the Unix epoch.
func (h *host) unixNow() int64 {
	if h.wall != nil {
		return h.wall()
	}
	return time.Now().UnixMicro()
}

// guardNow returns the time by which guards go. The clock is a call more, which only tests need.
func guardNow(h *host) int64 {
	if h.wall == nil {
		return int64(time.Since(guardsBegun) / time.Microsecond)
	}
	return int64(h.clock() / time.Microsecond)
}

var guardsBegun = time.Now()

// waitFor waits for so long, or until the context ends.
func (h *host) waitFor(ctx context.Context, d time.Duration) {
	over, letGo := h.pause(ctx, d)
	<-over.Done()
	letGo()
}

// log writes a line about a middleware to the log, unless it has been written since the middleware exists.
func (h *host) log(middleware, message string) {
	h.saying.Lock()
	defer h.saying.Unlock()
	said := h.said[middleware]
	if said == nil {
		said = make(map[string]bool)
		h.said[middleware] = said
	}
	already := said[message]
	said[message] = true
	if !already {
		warn(middleware, message)
	}
}

// forget has what was said of a middleware said again.
func (h *host) forget(middleware string) {
	h.saying.Lock()
	delete(h.said, middleware)
	h.saying.Unlock()
}

// warnings is the stream from which Traefik reads a plugin's errors; it has none for warnings.
var warnings = log.New(log.Writer(), "", 0)

// warn writes a line about a middleware to Traefik's log, at its level ERROR.
func warn(middleware, message string) {
	warnings.Println("weir: middleware " + middleware + ": " + message)
}

// inform writes a line about a middleware to Traefik's log, at its level DEBUG.
func inform(middleware, message string) {
	fmt.Println("weir: middleware " + middleware + ": " + message)
}

// informOfSome logs the first of some messages about rules, and what becomes of the others.
func informOfSome(middleware string, messages []string, others string) {
	const most = 10
	for i, message := range messages {
		if i == most {
			inform(middleware, fmt.Sprintf("and %d more rules %s", len(messages)-most, others))
			break
		}
		inform(middleware, message)
	}
}

// fewLines leaves out all but the first of many lines, and shortens those that are very long.
func fewLines(list []string) []string {
	const most = 10
	few := make([]string, 0, len(list))
	for i := range list {
		if i == most {
			few = append(few, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		few = append(few, brief(list[i]))
	}
	return few
}

// brief shortens a message that has a very long value.
func brief(message string) string {
	const most = 600
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most/2], "") + " … " + strings.ToValidUTF8(message[len(message)-most/2:], "")
}

// rejections chooses which rejections of a middleware are logged, as caddy/report does: of each rule, in each interval, the first of each key, up to
// mostLogged. At the interval's end a line has the number of the others. It is safe for concurrent use.
type rejections struct {
	middleware string
	how        config.RejectionLog
	after      func(time.Duration, func())
	client     func(r *http.Request) string // the client's address

	mu    sync.Mutex
	rules map[string]*sample // of those that have begun an interval
}

// sample is what was logged of a rule in an interval.
type sample struct {
	keys   map[uint64]bool // hashes
	others int64           // rejections that were not logged
}

const (
	mostLogged    = 50  // rejections of a rule in an interval
	longestLogged = 256 // bytes of what a client has sent
)

var rejectionSeed = maphash.MakeSeed()

// newRejections returns the log of an engine's rejections.
func newRejections(e *engine, how config.RejectionLog) *rejections {
	l := &rejections{middleware: e.name, how: how, rules: make(map[string]*sample)}
	l.after = func(d time.Duration, f func()) { e.host.after(d, f) } // the engine gets its host later
	l.client = func(r *http.Request) string { return clientAddress(&e.addressing, r) }
	return l
}

// logRejection notes a rejection by the rule that is reported.
func logRejection(l *rejections, q *front.Evaluation, r *http.Request) {
	c := core.Reported(q.Checks, &q.Verdict)
	seconds := rate.Never
	if q.Verdict.RetryAfter != rate.Never {
		seconds = answer.RetrySeconds(q.Verdict.RetryAfter)
	}
	tell(l, c.Rule.Name(), c.Key, seconds, r)
}

// tell notes that a rule rejects a request of a key, which may come again after so many seconds; below 0: never.
func tell(l *rejections, rule, key string, seconds int64, r *http.Request) {
	if !takes(l, rule, maphash.String(rejectionSeed, key)) {
		return
	}
	again := "retry after " + strconv.FormatInt(seconds, 10) + "s"
	if seconds < 0 {
		again = "never to be retried"
	}
	writeOf(l, "rate limit exceeded", rule, key, again, r)
}

// tellPaused notes that the service asks to wait, and for how long a check's key is paused, as caddy/report does: said is its Retry-After if that is not it.
func tellPaused(l *rejections, c *core.Check, wait time.Duration, said string, r *http.Request) {
	if !takes(l, c.Rule.Name(), maphash.String(rejectionSeed, c.Key)) {
		return
	}
	what := "the service asks to wait"
	if said != "" {
		what += ", by a Retry-After that is not taken: " + quoted(said)
	}
	writeOf(l, what, c.Rule.Name(), c.Key, "paused for "+wait.String(), r)
}

// writeOf writes what has become of a request of a key.
func writeOf(l *rejections, what, rule, key, then string, r *http.Request) {
	text := fmt.Sprintf("%s: rule %q, %s, client %s, %s %s", what, rule, then, quoted(l.client(r)), quoted(r.Method), quoted(r.Host+r.URL.Path))
	if l.how.Key {
		text += ", key " + quoted(key)
	}
	l.write(text)
}

// takes reports whether a rejection of a key, of which this is the hash, is logged. If not, it counts it.
func takes(l *rejections, rule string, hash uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.rules[rule]
	if s == nil {
		s = &sample{keys: make(map[uint64]bool)}
		l.rules[rule] = s
		l.after(l.how.Interval, func() { l.conclude(rule) })
	}
	if s.keys[hash] || len(s.keys) >= mostLogged {
		s.others++
		return false
	}
	s.keys[hash] = true
	return true
}

// conclude ends an interval, and logs how many other rejections it had.
func (l *rejections) conclude(rule string) {
	defer contain()
	l.mu.Lock()
	s := l.rules[rule]
	delete(l.rules, rule)
	l.mu.Unlock()
	if s != nil && s.others > 0 {
		l.write(fmt.Sprintf("more requests exceeded the rate limit: rule %q, %d in %s; their keys are logged already, or are past the number that is logged", rule, s.others, l.how.Interval))
	}
}

// write writes a line at the level that is configured.
func (l *rejections) write(line string) {
	if l.how.Level == "error" {
		warn(l.middleware, line)
		return
	}
	inform(l.middleware, line)
}

// quoted returns what a client has sent as the log has it: in one line, and not long.
func quoted(text string) string {
	if len(text) > longestLogged {
		text = text[:longestLogged]
	}
	return strconv.Quote(text)
}

// contain keeps a panic in a goroutine of the plugin from ending Traefik.
func contain() {
	if p := recover(); p != nil {
		warn("", fmt.Sprintf("a panic, which is a defect: %v", p))
	}
}
