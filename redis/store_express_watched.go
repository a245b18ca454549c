package redis

import (
	"hash/maphash"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
)

// watchedExpress is an express with what a core.Watch has done beside it: in a type of its own, so that who does not watch pays nothing.
type watchedExpress struct {
	express *express

	path, other string // of the Watch
	aside       http.Handler
	allowed     *int64
	turn        *int64 // decisions that were begun
	durations   *core.Durations

	indirect *watchedExpress // as express.indirect
}

// ServeWatched is Serve for a rule that is watched. What is left to the Rest has not been counted; it has been timed, if it comes to
// Conclude.
func ServeWatched(s *Store, r *core.Rule, c ServeConfig, watch *core.Watch) http.Handler {
	made := Serve(s, r, c)
	if made == nil {
		return nil
	}
	watched := newWatched(made.(*express), watch)
	if watched.express.indirect != nil {
		watched.indirect = newWatched(watched.express.indirect, watch)
	}
	return watched
}

func newWatched(e *express, watch *core.Watch) *watchedExpress {
	return &watchedExpress{
		express: e, path: watch.Path, other: watch.Other, aside: watch.Aside, allowed: watch.Allowed, durations: watch.Durations, turn: new(int64),
	}
}

// serveTimed does what the express does, and times the decision: for few requests, so that it may cost something.
func serveTimed(o *watchedExpress, w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	next := &timedNext{next: o.express.next, allowed: o.allowed, durations: o.durations, begun: begun}
	rest := &timedRest{rest: o.express.rest, durations: o.durations, begun: begun}
	timed := *o.express
	timed.next = next
	timed.rest = rest
	if o.indirect != nil {
		indirect := *o.indirect.express
		indirect.next = next
		indirect.rest = rest
		timed.indirect = &indirect
	}
	timed.ServeHTTP(w, r)
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

// ServeHTTP implements http.Handler. It is express.ServeHTTP, line by line, but for the lines with what is watched: a test says so.
func (o *watchedExpress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var (
		e                *express
		path             string
		key              string
		i                int
		hash             uint64
		now              int64
		shard            *memoShard
		k                *known
		name             string
		call             *Call
		err              error
		remaining, reset int64
		more             int64
		h                http.Header
		t                *core.Told
	)
	path = r.URL.Path
	if path == o.path || path == o.other {
		o.aside.ServeHTTP(w, r)
		return
	}
	if atomic.AddInt64(o.turn, 1)%core.TimedShare == 1 {
		serveTimed(o, w, r)
		return
	}
	e = o.express
	key = r.RemoteAddr
	if e.direct {
		i = strings.IndexByte(key, ':')
		if i > 0 {
			key = key[:i] // of an IPv6 address what decideSeldom sees to
		}
	} else {
		key = e.keys.Key(r)
	}
	hash = maphash.String(e.seed, key) ^ e.salt
	shard = e.shards[hash%memoShards]
	shard.mu.Lock()
	k = shard.young[hash]
	if k == nil || k.name == "" || e.trouble.Load() != 0 {
		shard.mu.Unlock()
		if key != "" && key[0] == '[' && e.direct {
			o.indirect.ServeHTTP(w, r)
			return
		}
		decideSeldom(e, w, r, key, hash)
		return
	}
	name = k.name
	shard.mu.Unlock()
	if e.clock == nil {
		now = int64(time.Since(started) / time.Microsecond)
	} else {
		now = e.clock()
	}
	call = e.calls.Get().(*Call)
	call.Keys[0] = name
	err = e.conn.Run(call)
	if err != nil || len(call.Reply) != 4 {
		settle(e, w, r, key, call, hash, now, err)
		return
	}
	remaining = call.Reply[0]
	reset = call.Reply[2]
	more = call.Reply[3]
	if remaining|reset|more < 0 || call.Reply[1] != 0 || remaining > e.quota || reset > longest || more > reset {
		settle(e, w, r, key, call, hash, now, nil)
		return
	}
	e.calls.Put(call)
	shard.mu.Lock()
	k.at = now
	k.resetAt = now + reset
	k.moreAt = 0
	k.limit = e.quota
	k.remaining = remaining
	shard.mu.Unlock()
	atomic.AddInt64(o.allowed, 1)
	reset = (reset + 999_999) / 1_000_000
	more = (more + 999_999) / 1_000_000
	h = w.Header()
	t = e.told
	if len(h) > 1 || remaining|reset >= e.tabled { // one field stands in each of Traefik's responses
		core.Tell(t, h, remaining, reset, more)
	} else {
		h[core.HeaderLimit] = t.Limit
		h[core.HeaderRemaining] = t.Values[remaining]
		h[core.HeaderReset] = t.Values[reset]
		h[core.HeaderRateLimit] = []string{t.State + t.Numbers[remaining] + t.Ends[more]}
		h[core.HeaderPolicy] = t.Policy
	}
	e.next.ServeHTTP(w, r)
}
