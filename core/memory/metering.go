package memory

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core/rate"
)

// Metering is what a fast path does for metrics and for paths of its own, besides deciding. All of its fields must be set.
type Metering struct {
	Allowed   *int64          // counts requests that are allowed at once; use functions of sync/atomic
	Durations *rate.Durations // the durations of these decisions; about one in TimedShare, chosen at random, is timed

	// OwnPaths handles the requests for exactly one of these two paths. Nothing is decided on them.
	OwnPaths    http.Handler
	Path, Other string
}

// TimedShare is the number of decisions of which one is timed. Timing every decision would cost an interpreter more than counting
// the request does.
const TimedShare = 32

// NoPath is a path that no request has, for Metering.
const NoPath = "no path"

// timedFastPath does what Serve does for the decisions that are timed. They are few, so they need no generated function.
type timedFastPath struct {
	fastPath *FastPath
	config   *ServeConfig
}

// ServeHTTP implements http.Handler.
func (e *timedFastPath) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := e.config
	begun := time.Now()
	key := KeyIn(c.Direct, c.Key, r)
	remaining, reset, more := Take(e.fastPath, key)
	if remaining < 0 {
		c.Rest.ServeHTTP(w, r)
		return
	}
	rate.Observe(c.Metering.Durations, time.Since(begun))
	atomic.AddInt64(c.Metering.Allowed, 1)
	SetQuotaFields(c.QuotaFields, w.Header(), remaining, (reset+999_999)/1_000_000, (more+999_999)/1_000_000)
	c.Next.ServeHTTP(w, r)
}
