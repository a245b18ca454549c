package redis

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
)

// serveTimed does what the express way does, and times the decision: for few requests, so that it may cost something.
func serveTimed(e *express, watch *core.Watch, direct bool, w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	timed := *e
	timed.next = &timedNext{next: e.next, allowed: watch.Allowed, durations: watch.Durations, begun: begun}
	timed.rest = &timedRest{rest: e.rest, durations: watch.Durations, begun: begun}
	wayOf(&timed, direct, nil).ServeHTTP(w, r)
}

// timedNext is where a request that is timed goes if it is allowed at once.
type timedNext struct {
	next      http.Handler
	allowed   *int64
	durations *core.Durations
	begun     time.Time
}

// ServeHTTP implements http.Handler.
func (t *timedNext) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	core.Observe(t.durations, time.Since(t.begun))
	atomic.AddInt64(t.allowed, 1)
	t.next.ServeHTTP(w, r)
}

// timedRest is where it goes else.
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
