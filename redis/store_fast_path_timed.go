package redis

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
)

// serveTimed does the same as the fast path, and times the decision. Only a few requests take it, so it need not be fast.
func serveTimed(e *fastPath, c *ServeConfig, direct bool, w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	timed := *e
	config := *c
	config.Direct = direct
	config.Metering = nil
	config.Next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		core.Observe(c.Metering.Durations, time.Since(begun))
		atomic.AddInt64(c.Metering.Allowed, 1)
		c.Next.ServeHTTP(w, r)
	})
	timed.rest = &timedRest{rest: e.rest, durations: c.Metering.Durations, begun: begun}
	handlerOf(&timed, &config).ServeHTTP(w, r)
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
