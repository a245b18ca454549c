package deferred

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/deferral"
)

// do does a job, if the limiter admits it now.
func (d *Deferral) do(a *deferral.Attempt) deferral.Outcome {
	var k surroundings
	if err := json.Unmarshal(a.Request.Extra, &k); err != nil {
		return deferral.Outcome{Wait: time.Minute} // not reached: deferral has authenticated or parsed it
	}
	q := front.Evaluations.Get().(*front.Evaluation)
	defer front.Free(q)
	for _, c := range a.Request.Checks {
		if rule := d.rules[c.Rule]; rule != nil { // else it was taken out of the configuration
			front.AddCheck(q, rule, c.Tier, c.Key, c.Cost)
		}
	}
	v := &q.Verdict
	at, failure := d.Limiter.Charge(q.Checks, v)
	if failure != nil {
		return deferral.Outcome{Wait: time.Second}
	}
	if v.Outcome == core.Reject && v.RetryAfter != rate.Never {
		return deferral.Outcome{Wait: time.Duration(v.RetryAfter) * time.Microsecond}
	}
	reservations := core.AppendReservations(nil, q.Checks)
	if a.Begin() != nil {
		d.Limiter.TakeBack(reservations)
		return deferral.Outcome{Wait: time.Second}
	}
	if v.Outcome == core.Reject {
		return deferral.Outcome{Failed: true, Unsent: true, Hopeless: true, Reason: "the limit can never admit it"}
	}
	report.Count(q, at, false)
	m := &protect.Dispatch{}
	r, err := d.request(context.WithValue(a.Context, protect.DispatchKey{}, m), a.Request)
	if err != nil {
		return deferral.Outcome{Failed: true, Unsent: true, Hopeless: true, Reason: "it cannot be made from what is stored"}
	}
	of := d.Guarded.Ask(q, r, false)
	o, status := d.pass(r, a.Job, &k, of)
	if m.Wait > 0 {
		d.Limiter.TakeBack(reservations)
		return deferral.Outcome{Wait: m.Wait}
	}
	d.Limiter.Settle(reservations, status)
	o.Next = d.next(q)
	return o
}

// next returns how long the key's next job must wait at least.
func (d *Deferral) next(q *front.Evaluation) time.Duration {
	if own := d.ownCheck(q); own >= 0 && q.Checks[own].Decision.Remaining == 0 {
		return time.Duration(q.Checks[own].Decision.MoreAfter) * time.Microsecond
	}
	return 0
}

// request makes a request of what is stored of it, as far as net/http's server does.
func (d *Deferral) request(ctx context.Context, stored *deferral.Request) (*http.Request, error) {
	target, err := url.ParseRequestURI(stored.URI)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, stored.Method, "/", bytes.NewReader(stored.Body))
	if err != nil {
		return nil, err
	}
	r.URL, r.RequestURI, r.Host, r.RemoteAddr = target, stored.URI, stored.Host, stored.Remote
	r.Header = stored.Header
	if stored.Secure {
		r.TLS = &tls.ConnectionState{HandshakeComplete: true}
	}
	return r, nil
}

// pass passes a request on to what is behind the handler, with its surroundings as they were, and returns what has become of it and the
// status of the response.
func (d *Deferral) pass(r *http.Request, job *deferral.Job, k *surroundings, of protect.Asker) (o deferral.Outcome, status int) {
	if major, minor, ok := http.ParseHTTPVersion(k.Proto); ok {
		r.Proto, r.ProtoMajor, r.ProtoMinor = k.Proto, major, minor
	}
	for name, values := range k.Forwarded {
		r.Header[name] = values
	}
	w := &resultWriter{header: make(http.Header), most: d.Config.MaxResult}
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, d.server)
	for name, value := range k.Vars {
		caddyhttp.SetVar(r.Context(), name, value)
	}
	repl := syntax.ReplacerOf(r)
	for name, value := range k.Placeholders {
		repl.Set(name, value)
	}
	log := d.logged(r, job)
	defer func() { log(w) }()
	err := d.call(w, r, of)
	status = w.status
	if err != nil && status == 0 {
		status = protect.StatusOf(err)
	}
	switch {
	case errors.Is(err, errAborted):
		return deferral.Outcome{Failed: true, Reason: "the response broke off"}, status
	case err != nil && w.status == 0:
		d.answerError(w, r, err, status)
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	o.Answer = w.answer(d.results)
	if err != nil && (status >= http.StatusBadGateway && status <= http.StatusGatewayTimeout || r.Context().Err() != nil) {
		o.Failed = true
		o.Unsent = unsent(err)
		o.Reason = fmt.Sprintf("there was no response from behind (%d)", status)
	}
	return o, status
}

// errAborted says that what is behind has ended a response in the middle.
var errAborted = errors.New("the response was aborted")

// call calls what is behind the handler. A panic is an error, as it is for net/http's server.
func (d *Deferral) call(w http.ResponseWriter, r *http.Request, of protect.Asker) (err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		err = errAborted
		if cause != http.ErrAbortHandler {
			d.Logger.Error("a deferred request has made a handler panic", zap.Any("error", cause), zap.ByteString("stack", debug.Stack()))
		}
	}()
	return d.Guarded.Admit(w, r, d.downstream, of)
}

// answerError answers a request that has failed, as its server does: by its error routes, if it has any.
func (d *Deferral) answerError(w *resultWriter, r *http.Request, err error, status int) {
	if d.server.Errors != nil && !errors.Is(err, protect.ErrTurnedAway) {
		r = d.server.Errors.WithError(r, err)
		_ = d.server.Errors.Routes.Compile(endOfChain).ServeHTTP(w, r) // an error's error has no routes
	}
	if w.status == 0 {
		w.WriteHeader(status)
	}
}

// unsent reports whether an error says that nothing of the request has reached a service.
func unsent(err error) bool {
	return errors.As(err, new(reverseproxy.DialError)) || strings.HasSuffix(err.Error(), "no upstreams available") // whose error is not exported
}
