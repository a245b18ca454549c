package traefik

import (
	"context"
	"fmt"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
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

// contain keeps a panic in a goroutine of the plugin from ending Traefik.
func contain() {
	if p := recover(); p != nil {
		warn("", fmt.Sprintf("a panic, which is a defect: %v", p))
	}
}
