package traefik

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/answer"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/front"
	"github.com/proxyweir/weir/match"
	"github.com/proxyweir/weir/ruleset"
)

// handler is a middleware in one router.
type handler struct {
	next   http.Handler
	engine *engine
}

// inquiry is what one request needs to be decided, kept for the next.
type inquiry struct {
	checks  []core.Check
	verdict core.Verdict
	lacking bool // a rule rejects the request for want of a key
	key     []byte

	set *ruleSet // whose rules the checks are of; nil: of the one rule of an engine that goes the express way

	// Of an engine with rule files.
	rules   []*rule
	places  []int
	lookup  *ruleset.Lookup // nil: never used
	entries []ruleset.Entry
}

var inquiries = sync.Pool{New: func() interface{} { return &inquiry{key: make([]byte, 0, 128)} }}

// ServeHTTP decides on the request and passes it on, holds it, or rejects it.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { serve(h, w, r) }

func serve(h *handler, w http.ResponseWriter, r *http.Request) {
	e := h.engine
	q := inquiries.Get().(*inquiry)
	inquire(e, q, r)
	if len(q.checks) == 0 {
		free(q)
		h.next.ServeHTTP(w, r)
		return
	}
	var err error
	if e.counts && atomic.AddInt64(e.turn, 1)%core.TimedShare == 1 {
		err = decideTimed(e, q)
	} else {
		err = e.limiter.Decide(q.checks, false, &q.verdict)
	}
	goOn(h, w, r, q, err)
}

// Conclude goes on with a request on which redis.Serve has decided.
func (h *handler) Conclude(w http.ResponseWriter, r *http.Request, c *core.Check, err error) {
	q := inquiries.Get().(*inquiry)
	q.checks = append(q.checks, *c)
	err = h.engine.limiter.Conclude(q.checks, false, err, &q.verdict)
	goOn(h, w, r, q, err)
}

// goOn does what the verdict says. The error is the store's.
func goOn(h *handler, w http.ResponseWriter, r *http.Request, q *inquiry, err error) {
	e := h.engine
	if err != nil {
		e.reportFailure(err)
	}
	if e.counts {
		if q.set == nil {
			count(e.fixed, q, err != nil)
		} else {
			count(q.set, q, err != nil)
		}
	}
	v := &q.verdict
	if v.Outcome == core.Unavailable {
		front.Unavailable(w, r, front.Jittered(v.RetryAfter, e.jitter), front.CannotCheck)
		free(q)
		return
	}
	if q.set != nil && q.set.watches {
		countShadows(q.set, q, err != nil)
	}
	if v.Outcome == core.Reject {
		v.RetryAfter = front.Jittered(v.RetryAfter, e.jitter)
		answer.WriteHeaders(w.Header(), e.fields, q.checks, v)
		front.Reject(w, r, e.message, q.lacking, q.checks, v)
		free(q)
		return
	}
	answer.WriteHeaders(w.Header(), e.fields, q.checks, v)
	if v.Holds {
		serveUnderWay(h, w, r, q)
		return
	}
	free(q)
	h.next.ServeHTTP(w, r)
}

// inquire fills in a check for each rule that covers the request.
func inquire(e *engine, q *inquiry, r *http.Request) {
	var (
		ruled         *ruleset.Rule
		limit         *core.Rule
		cost          int64
		address, key  string
		missing, made bool
	)
	s := e.fixed
	if s == nil {
		s = e.changing.Load().(*ruleSet)
	}
	q.set = s
	if s.needsAddress {
		address = clientAddress(&e.addressing, r)
		if address == "" || s.watchForwarded && len(r.Header[forwardedFor]) > 0 {
			noteAddress(e, r, address)
		}
	}
	rules := s.rules
	path := ""
	if s.files != nil {
		rules = candidates(s, q, r)
	}
	for _, rule := range rules {
		ruled = rule.ruled
		if ruled.Matcher != nil {
			if path == "" { // once a request
				path = match.CleanPath(r.URL.Path)
			}
			if !match.Covers(ruled.Matcher, r, path, address) {
				continue
			}
		}
		cost = ruled.Cost
		if ruled.CostFrom != nil {
			cost = core.ReadCost(ruled.CostFrom.Value(r, address))
		}
		if !made {
			key, missing = ruleset.KeyOf(ruled, r, address, q.key)
			made = s.oneKey
		}
		if missing && ruled.SkipMissing {
			continue
		}
		limit = rule.only
		if limit == nil {
			limit = ruleset.LimitOf(ruled, r, address, key)
		}
		if missing && ruled.RejectMissing {
			cost = core.Unaffordable
			limit = ruled.Limits.Rejecting(limit)
			q.lacking = q.lacking || limit != nil && !ruled.Shadow
		}
		if limit != nil {
			q.checks = append(q.checks, core.Check{Rule: limit, Key: key, Cost: cost})
			if rule.beside {
				addBeside(q, limit, key, cost)
			}
		}
	}
	if s.domain != nil {
		describe(e, s.domain, q, r, address)
	}
}

// addBeside adds checks of what is decided together with a limit.
func addBeside(q *inquiry, limit *core.Rule, key string, cost int64) {
	for _, other := range limit.Beside() {
		q.checks = append(q.checks, core.Check{Rule: other, Key: key, Cost: cost})
	}
}

// noteAddress warns, once, of a request that comes through a proxy which nobody has said how to see through, and of one of
// which the configured strategy finds no address. The express way of a key that is the connection's address comes by here
// with new keys, and with rejections.
func noteAddress(e *engine, r *http.Request, address string) {
	if address == "" {
		if !e.addressless.Swap(true) {
			e.registry.warnOnce(e.name, "ipStrategy finds no address in the X-Forwarded-For of a request, and all such requests share one counter; "+
				"check depth and excludedIPs, and that the entry point's forwardedHeaders.trustedIPs has the load balancer")
		}
		return
	}
	if e.unsaid && len(r.Header[forwardedFor]) > 0 && !e.forwarded.Swap(true) {
		e.registry.warnOnce(e.name, "requests come with X-Forwarded-For, but clients are told apart by the address of the connection, "+
			"which behind a load balancer is the same for all; set ipStrategy.depth to the number of proxies in front of Traefik")
	}
}

// mostPlaces is how many candidates a request may have had for their room to be kept for the next.
const mostPlaces = 1024

// free gives q back to the pool, without what it remembers of the request.
func free(q *inquiry) {
	for i := range q.checks {
		q.checks[i] = core.Check{}
	}
	q.checks = q.checks[:0]
	q.lacking = false
	q.set = nil
	if cap(q.places) > mostPlaces {
		var none []int
		q.places = none
		q.rules = q.rules[:0:0]
	}
	inquiries.Put(q)
}

// serveUnderWay serves a request that was admitted and has reserved something: its turn, for which it waits, or a place among those in
// flight. Whatever becomes of the request, what it has reserved comes to an end.
func serveUnderWay(h *handler, w http.ResponseWriter, r *http.Request, q *inquiry) {
	var holds []core.Hold
	e := h.engine
	holds = core.Holds(holds, q.checks)
	delay := q.verdict.Delay
	waiting := waitingOf(e, q)
	free(q)
	if delay > 0 {
		passed := hold(e, w, r, time.Duration(delay)*time.Microsecond, waiting)
		if passed == nil {
			if err := e.limiter.Leave(holds); err != nil {
				e.reportFailure(err)
			}
			return
		}
		e.limiter.Depart(holds)
		r = passed
	}
	if core.UnderWay(holds) {
		defer finish(e, holds)
	}
	h.next.ServeHTTP(w, r)
}

// finish ends what a request under way has reserved.
func finish(e *engine, holds []core.Hold) {
	if err := e.limiter.Finish(holds, 0); err != nil { // no rule counts by status here
		e.reportFailure(err)
	}
}

// hold waits for the turn of a request, and returns it when that has come, else nil. A client that leaves is not served. (There is no
// select here: in Yaegi, requests at the same one would wait for each other's channels.) meters are of the rules that it waits for.
func hold(e *engine, w http.ResponseWriter, r *http.Request, delay time.Duration, meters []*meter) *http.Request {
	for _, m := range meters {
		atomic.AddInt64(&m.waiting, 1)
	}
	same, ahead := readAhead(r)
	turn, letGo := e.registry.turn(r.Context(), delay)
	<-turn.Done()
	letGo()
	ahead.Stop()
	for _, m := range meters {
		atomic.AddInt64(&m.waiting, -1)
	}
	if r.Context().Err() != nil {
		w.WriteHeader(front.StatusClientClosedRequest)
		var none *http.Request
		return none
	}
	return same
}

// readAhead begins to read the body of a request that waits, and returns what ends that: where it is one that net/http has made, or
// Traefik around it to count its bytes. Readers that others have put around it may act on the response as they read. (Where a service
// reads none of a body, the access log may be written while Traefik's reader still counts: its size may then be that of a moment before.)
func readAhead(r *http.Request) (*http.Request, *front.Ahead) {
	var none *front.Ahead
	kind := fmt.Sprintf("%T", r.Body)
	if kind == "*http.body" || kind == "*http.expectContinueReader" || kind == "*capture.readCounter" {
		return front.ReadAhead(r)
	}
	return r, none
}
