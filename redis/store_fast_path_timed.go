package redis

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
)

// serveTimed does the same as the fast path, and times the decision. Only a few requests take it, so it need not be fast.
func serveTimed(e *fastPath, metering *core.Metering, direct bool, w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	timed := *e
	timed.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		core.Observe(metering.Durations, time.Since(begun))
		atomic.AddInt64(metering.Allowed, 1)
		e.next.ServeHTTP(w, r)
	})
	timed.rest = &timedRest{rest: e.rest, durations: metering.Durations, begun: begun}
	handlerOf(&timed, direct, nil).ServeHTTP(w, r)
}

// timedRest is the Rest of a request that is timed.
type timedRest struct {
	rest      Rest
	durations *core.Durations
	begun     time.Time
}

// ServeHTTP implements Rest.
func (t *timedRest) ServeHTTP(w http.ResponseWriter, r *http.Request) { t.rest.ServeHTTP(w, r) }

// Conclude implements Rest.
func (t *timedRest) Conclude(w http.ResponseWriter, r *http.Request, c *core.Check, err error) {
	core.Observe(t.durations, time.Since(t.begun))
	t.rest.Conclude(w, r, c, err)
}
