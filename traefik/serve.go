package traefik

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/rate"
)

// handler is a middleware in one router.
type handler struct {
	next    http.Handler // guarded, if there is a guard
	engine  *engine
	guarded *guarded   // nil: there is no guard
	of      *front.Set // what fast paths conclude is of its rules; nil: the rules never change
}

// newHandler returns the general handler of a router.
func newHandler(e *engine, next http.Handler) *handler {
	h := &handler{next: next, engine: e, guarded: newGuarded(e, next)}
	if h.guarded != nil {
		h.next = h.guarded
	}
	return h
}

// ServeHTTP decides on the request, and passes it on, makes it wait, or rejects it.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { serve(h, w, r) }

func serve(h *handler, w http.ResponseWriter, r *http.Request) {
	var address string
	e := h.engine
	s := e.fixed
	if s == nil {
		s = e.changing.Load().(*ruleSet)
	}
	if s.needsAddress {
		address = clientAddress(&e.addressing, r)
		if address == "" || s.watchForwarded && len(r.Header[forwardedFor]) > 0 {
			noteAddress(e, r, address)
		}
	}
	if e.open.Load() > 0 {
		noteExpected(e, r, address)
	}
	q := front.Evaluations.Get().(*front.Evaluation)
	_ = front.Assemble(s.asked, q, r, address) // nothing that could fail is used here
	if len(q.Checks) == 0 {
		front.Free(q)
		serveAllowed(h, w, r, nil, "")
		return
	}
	var err error
	if e.counts && atomic.AddInt64(e.begun, 1)%memory.TimedShare == 1 {
		err = decideTimed(e, q)
	} else {
		err = e.limiter.Decide(q.Checks, false, &q.Verdict)
	}
	carryOut(h, w, r, q, err)
}

// Conclude goes on with a request on which a fast path of package redis has decided.
func (h *handler) Conclude(w http.ResponseWriter, r *http.Request, checks []core.Check, err error) {
	q := front.Evaluations.Get().(*front.Evaluation)
	q.Set = h.of
	q.Checks, err = h.engine.limiter.Conclude(q.Checks, checks, err, &q.Verdict)
	carryOut(h, w, r, q, err)
}

// Finish ends the reservations of a request that a fast path of package redis has served.
func (h *handler) Finish(reservations []core.Reservation) { finishReservations(h.engine, reservations) }

// carryOut does what the verdict says. The error is the store's.
func carryOut(h *handler, w http.ResponseWriter, r *http.Request, q *front.Evaluation, err error) {
	e := h.engine
	if err != nil {
		e.reportFailure(err)
	}
	s := e.fixed
	if s == nil { // it has files, and other rules may be in force by now
		s = q.Set.Adapter.(*ruleSet)
	}
	if e.counts {
		count(s, q, err != nil)
	}
	v := &q.Verdict
	if v.Outcome == core.Unavailable {
		front.Unavailable(w, r, front.Jittered(v.RetryAfter, waitJitter(e)), front.CannotCheck)
		front.Free(q)
		return
	}
	if s.besides {
		h = besides(h, s, q, r, err != nil)
	}
	if v.Outcome == core.Reject || q.Set != nil && q.Set.JittersReset { // nil: of a fast path, which such rules have none of
		front.SetLater(q, r, e.jitter)
	}
	if v.Outcome == core.Reject {
		reject(h, w, r, s, q)
		return
	}
	answer.WriteHeaders(w.Header(), e.fields, q.Checks, v)
	if v.Reserved {
		serveUnderWay(h, w, r, s, q)
		return
	}
	of, key := trackedOf(h, s, q), q.Checks[0].Key
	front.Free(q)
	serveAllowed(h, w, r, of, key)
}

// reject answers a request that is over a limit.
func reject(h *handler, w http.ResponseWriter, r *http.Request, s *ruleSet, q *front.Evaluation) {
	e := h.engine
	v := &q.Verdict
	answer.WriteHeaders(w.Header(), e.fields, q.Checks, v)
	if of := trackedOf(h, s, q); of != nil {
		countRefusal(h.guarded, of, q.Checks[0].Key)
	}
	if e.rejections != nil && v.Reported >= 0 {
		logRejection(e.rejections, q, r)
	}
	front.Reject(w, r, q, e.message, nil)
	front.Free(q)
}

// waitJitter returns the jitter of waits that no limit says.
func waitJitter(e *engine) float64 {
	if e.jitter < 0 {
		return 0
	}
	return e.jitter
}

// noteAddress warns once of a request that comes through a proxy without an ipStrategy, and of one for which the ipStrategy finds no address.
// The fast path of a key that is the connection's address calls it only for new keys and for rejections.
func noteAddress(e *engine, r *http.Request, address string) {
	if address == "" {
		if !e.addressless.Swap(true) {
			e.host.log(e.name, "ipStrategy finds no address in the X-Forwarded-For of a request, and all such requests share one counter; "+
				"check depth and excludedIPs, and that the entry point's forwardedHeaders.trustedIPs has the load balancer")
		}
		return
	}
	if e.unsaid && len(r.Header[forwardedFor]) > 0 && !e.forwarded.Swap(true) {
		e.host.log(e.name, "requests come with X-Forwarded-For, but clients are told apart by the address of the connection, "+
			"which behind a load balancer is the same for all; set ipStrategy.depth to the number of proxies in front of Traefik")
	}
}

// serveUnderWay serves a request that was admitted with a reservation: a departure, for which it waits, a place among the requests in
// flight, or a charge that its response decides on. The reservation ends whatever happens to the request.
func serveUnderWay(h *handler, w http.ResponseWriter, r *http.Request, s *ruleSet, q *front.Evaluation) {
	var reservations []core.Reservation
	e := h.engine
	reservations = core.AppendReservations(reservations, q.Checks)
	delay := q.Verdict.Delay
	waiting := waitingOf(e, s, q)
	of, key := trackedOf(h, s, q), q.Checks[0].Key
	front.Free(q)
	if delay > 0 {
		passed := wait(e, w, r, time.Duration(delay)*time.Microsecond, waiting)
		if passed == nil {
			if err := e.limiter.Leave(reservations); err != nil {
				e.reportFailure(err)
			}
			return
		}
		e.limiter.Depart(reservations)
		r = passed
	}
	if core.ByResponse(reservations) {
		serveByResponse(h, w, r, s, reservations, of, key)
		return
	}
	if core.UnderWay(reservations) {
		defer finishReservations(e, reservations)
	}
	serveAllowed(h, w, r, of, key)
}

// finishReservations ends the reservations of a request under way.
func finishReservations(e *engine, reservations []core.Reservation) {
	if err := e.limiter.Finish(reservations, 0); err != nil { // no rule is charged by its response here
		e.reportFailure(err)
	}
}

// wait waits until a request may pass, and returns it then. If the client leaves before, it is not served, and wait returns nil. (There is no
// select here: in Yaegi, requests at the same one would wait for each other's channels.) meters are of the rules that it waits for.
func wait(e *engine, w http.ResponseWriter, r *http.Request, delay time.Duration, meters []*metrics.Meter) *http.Request {
	for _, m := range meters {
		atomic.AddInt64(&m.Waiting, 1)
	}
	same, ahead := readAhead(r)
	over, letGo := e.host.pause(r.Context(), delay)
	<-over.Done()
	letGo()
	ahead.Stop()
	for _, m := range meters {
		atomic.AddInt64(&m.Waiting, -1)
	}
	if r.Context().Err() != nil {
		w.WriteHeader(front.StatusClientClosedRequest)
		var none *http.Request
		return none
	}
	return same
}

// readAhead begins to read the body of a request that waits, and returns its Ahead: only of a body that net/http has made, or
// Traefik around it to count its bytes. Readers that others have put around it may act on the response as they read. (If a service
// reads nothing of a body, the access log may be written while Traefik's reader still counts: its size may then be that of a moment before.)
func readAhead(r *http.Request) (*http.Request, *front.Ahead) {
	var none *front.Ahead
	kind := fmt.Sprintf("%T", r.Body)
	if kind == "*http.body" || kind == "*http.expectContinueReader" || kind == "*capture.readCounter" {
		return front.ReadAhead(r)
	}
	return r, none
}

// waitingOf returns the meters of the rules that make a request wait; none if they are not metered.
func waitingOf(e *engine, s *ruleSet, q *front.Evaluation) []*metrics.Meter {
	var meters []*metrics.Meter
	if !e.counts {
		return meters
	}
	for i := range q.Checks {
		if m := s.meters[q.Checks[i].Rule.Name()]; m != nil && q.Checks[i].Decision.Delay > 0 && !q.Checks[i].Rule.Shadow {
			meters = append(meters, m)
		}
	}
	return meters
}

// decideTimed calls the limiter, and times it.
func decideTimed(e *engine, q *front.Evaluation) error {
	begun := time.Now()
	err := e.limiter.Decide(q.Checks, false, &q.Verdict)
	rate.Observe(e.durations(), time.Since(begun))
	return err
}
