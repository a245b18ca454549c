package core

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Watch is what an express way does beside deciding, where somebody looks on. All of it must be set.
type Metering struct {
	Allowed   *int64     // counts the requests that are allowed at once; with functions of sync/atomic
	Durations *Durations // of the decisions on them: of one in TimedShare, as chance has it

	// Aside sees to the requests for exactly one of these two paths, on which nothing is decided.
	Aside       http.Handler
	Path, Other string
}

// TimedShare is of how many decisions one is timed. Reading the clock and counting the time would else cost an interpreter more than
// counting the request does.
const TimedShare = 32

// NoPath is a path that no request has, for a Watch.
const NoPath = "no path"

// timedFastPath does what Serve does, for the decisions that are timed: in functions of their own, since they are few.
type timedFastPath struct {
	fastPath    *FastPath
	quotaFields *QuotaFields
	metering    *Metering
	next, rest  http.Handler
}

// ServeHTTP implements http.Handler.
func (e *timedFastPath) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	i := strings.IndexByte(r.RemoteAddr, ':')
	remaining, reset, more := int64(-1), int64(0), int64(0)
	if i > 0 {
		remaining, reset, more = Take(e.fastPath, r.RemoteAddr[:i])
	}
	if remaining < 0 {
		e.rest.ServeHTTP(w, r)
		return
	}
	Observe(e.metering.Durations, time.Since(begun))
	atomic.AddInt64(e.metering.Allowed, 1)
	SetQuotaFields(e.quotaFields, w.Header(), remaining, (reset+999_999)/1_000_000, (more+999_999)/1_000_000)
	e.next.ServeHTTP(w, r)
}
