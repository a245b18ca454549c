// Package deferred does requests later that are over their limit: package deferral, in Caddy.
package deferred

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	client "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/deferral"
)

// Deferral is what a handler has whose zone defers: the clients' side and the worker of its queue. Package deferral says what becomes of a
// request.
type Deferral struct {
	Host
	Config     *syntax.Defer // with defaults
	API        *deferral.API
	Worker     *deferral.Worker
	redis      client.UniversalClient
	rules      map[string]*front.Rule // of the handler, by name
	results    map[string]bool        // the header fields of responses that are kept
	downstream caddyhttp.Handler      // what comes behind the handler
	server     *caddyhttp.Server      // in which it is
	named      []string               // the placeholders that are stored with a request
	known      string                 // the key in knownQueues
	started    bool
	ready      chan struct{} // closed when it has started, or will not: Caddy may serve requests before
	grace      time.Duration // of stop
	stopped    chan struct{} // closed when the worker has stopped; nil: stop was not called

	accessLog *zap.Logger // of all servers
}

// Host is what a handler is to its deferral.
type Host struct {
	Self      caddyhttp.MiddlewareHandler
	Namespace string
	Zone      *syntax.CompiledZone // that defers
	Zones     []*front.Rule        // all of the handler
	Stats     *report.Stats        // of that zone
	Limiter   *stores.Limiter
	Guarded   *protect.Guarded
	Errors    *protect.ErrorRoutes
	Jitter    float64
	HTTP      *caddyhttp.App // around it; nil: there is none
	Stopping  chan struct{}
	Context   caddy.Context
	Logger    *zap.Logger

	// reject answers a request that its checks' verdict rejects, or returns the error for the site's error routes.
	Reject func(w http.ResponseWriter, r *http.Request, q *front.Evaluation) error
}

// pace returns the time in which the zone's limit admits one more request of a key that has used it up.
func (d *Deferral) pace() time.Duration {
	l := describe.LimitOf(d.Zone.Rule.Active.Limits())
	return time.Duration(l.Period/l.Requests) * time.Microsecond
}

// knownQueues has what this node knows of the keys with jobs in each queue. It outlives reloads, since a new configuration cannot ask a Redis that is away.
var knownQueues = caddy.NewUsagePool()

// knownQueue is a member of knownQueues.
type knownQueue struct{ deferral.Known }

// Destruct implements caddy.Destructor.
func (*knownQueue) Destruct() error { return nil }

// report logs what an operator should know. It names no more of a request than its job's id.
func (d *Deferral) report(e deferral.Event) {
	log := d.Logger.With(zap.String("zone", d.Zone.Rule.Name))
	if e.ID != "" {
		log = log.With(zap.String("job", e.ID), zap.Int("attempts", e.Attempts))
	}
	if e.Err != nil {
		log = log.With(zap.Error(e.Err))
	}
	switch e.What {
	case "dead":
		log.Error("a deferred request could not be done")
	case "retry":
		log.Info("a deferred request has failed, and is repeated")
	case "lost":
		log.Warn("a deferred request is repeated, since nobody knows what became of it")
	case "unconfirmed":
		log.Warn("a deferred request has a 202, and nobody knows yet whether it is in the line; it is put there when Redis answers")
	case "missing":
		log.Error("a deferred request with a 202 is lost: Redis does not have it any more, or has not answered until this process ended")
	case "unreadable":
		log.Error("a deferred request cannot be read; it waits for the right encryption key")
	case "trouble":
		log.Error("Redis does not answer, so no deferred request is done")
	case "over":
		log.Info("deferred requests are done again")
	case "unsafe":
		if d.Worker.Unsafe {
			log.Warn("deferred requests may be lost")
		} else {
			log.Error("on_limit defer is off, since Redis may lose requests: until it is safe, those over the limit are rejected with 429; or write durability best_effort, and requests may be lost")
		}
	case "safe":
		log.Info("Redis keeps deferred requests safely now, so on_limit defer is on")
	}
}

// Serve serves a request, and Decide decides on one whose checks are assembled.
type (
	Serve  func(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error
	Decide func(w http.ResponseWriter, r *http.Request, q *front.Evaluation) Decided
)

// Decided is what has become of a request: its verdict stands in the Evaluation, or it is answered.
type Decided struct {
	At       int64 // when, in seconds since the Unix epoch
	Failed   bool  // the store has failed
	Answered bool
	Err      error // for the site's error routes
}

// Around returns how a handler that defers serves a request and decides on it, around how it does without that.
func (d *Deferral) Around(serve Serve, decide Decide) (Serve, Decide) {
	return func(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
			if d.API.Serves(asSent(r)) {
				return d.serveJob(w, r)
			}
			return serve(w, r, next)
		}, func(w http.ResponseWriter, r *http.Request, q *front.Evaluation) Decided {
			asked, held := d.ask(q, r)
			switch {
			case held:
				front.Unavailable(w, r, front.Jittered(int64(time.Second/time.Microsecond), d.Jitter), front.CannotCheck)
				return Decided{Answered: true}
			case asked == nil:
				return decide(w, r, q)
			case asked.Waiting > 0 || asked.ID != "":
				return Decided{Answered: true, Err: d.queue(w, r, q, asked)}
			}
			decided := decide(w, r, q)
			if !decided.Failed && d.over(q) {
				decided.Answered, decided.Err = d.accept(w, r, q, asked, time.Duration(q.Verdict.RetryAfter)*time.Microsecond)
			}
			return decided
		}
}

// asSent returns a request with the URL that its client has sent, which handlers in front may have rewritten.
func asSent(r *http.Request) *http.Request {
	original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	if !ok || original.URL == nil {
		return r
	}
	same := *r
	same.URL = original.URL
	return &same
}

// serveJob answers a request about a job.
func (d *Deferral) serveJob(w http.ResponseWriter, r *http.Request) error {
	if r.TLS != nil && !r.TLS.HandshakeComplete { // anybody may have sent it once more
		return d.Errors.Refuse(w, http.StatusTooEarly, front.ErrEarly)
	}
	d.API.ServeHTTP(w, asSent(r))
	return nil
}

// ask looks at the queue for a request that may be deferred; nil: it may not. If Redis does not answer, the request is decided as if its zone
// did not defer, unless its key has jobs, as far as this node knows, or on_error is closed: held says that it would, or might, overtake them. The limiter may reach
// Redis again, a moment after the queue did not.
func (d *Deferral) ask(q *front.Evaluation, r *http.Request) (asked *deferral.Deferrable, held bool) {
	if q.Early || q.Lacking || !d.API.Wants(r) || protect.DispatchOf(r) != nil {
		return nil, false
	}
	own := d.ownCheck(q)
	if own < 0 || q.Checks[own].Cost > q.Checks[own].Rule.Limit.Capacity { // the latter is never admitted
		return nil, false
	}
	if slices.ContainsFunc(q.Checks, func(c core.Check) bool { return !deferral.IsText(c.Key) }) {
		return nil, false
	}
	select {
	case <-d.ready:
	case <-r.Context().Done():
		return nil, true
	}
	asked, err := d.API.Ask(r, q.Checks[own].Key, d.who(r)...)
	if err == nil {
		if d.Worker.Obstacle() != "" { // but what waits is not overtaken
			asked.Full = "unsafe"
		}
		return asked, false
	}
	if r.Context().Err() == nil { // else the client has left
		d.Limiter.Failed(err)
	}
	if held = errors.Is(err, deferral.ErrHeld) || q.Checks[own].Rule.RejectsWithoutStore(); held {
		countRefused(d.Stats, err)
	}
	return nil, held
}

// who returns what handlers in front have found out of who the client is, as far as that is stored.
func (d *Deferral) who(r *http.Request) []string {
	var list []string
	repl := syntax.ReplacerOf(r)
	for _, name := range d.named {
		if strings.HasPrefix(name, "http.auth.") || strings.HasPrefix(name, "http.request.tls.client.") {
			value, _ := repl.GetString(name)
			list = append(list, name, value)
		}
	}
	return list
}

// ownCheck returns the place of the zone's own check; -1: the zone does not cover the request.
func (d *Deferral) ownCheck(q *front.Evaluation) int {
	for i := range q.Checks {
		if q.Checks[i].Rule.Name() == d.Zone.Rule.Name {
			return i
		}
	}
	return -1
}

// over reports whether the zone rejects a request, and no other zone does: then it is to be deferred.
func (d *Deferral) over(q *front.Evaluation) bool {
	if q.Verdict.Outcome != core.Reject || q.Verdict.RetryAfter == rate.Never {
		return false
	}
	for i := range q.Checks {
		c := &q.Checks[i]
		if c.Rule.Name() == d.Zone.Rule.Name || c.Rule.Shadow {
			continue
		}
		if !c.Decision.Allowed || c.InFlight != nil && !c.InFlight.Decision.Allowed {
			return false
		}
	}
	return true
}

// accept stores a request as a job, whose first turn comes after a wait, and answers. If it cannot, it has not answered, and the request is
// to be rejected.
func (d *Deferral) accept(w http.ResponseWriter, r *http.Request, q *front.Evaluation, asked *deferral.Deferrable, wait time.Duration) (answered bool, err error) {
	checks := make([]deferral.Check, 0, len(q.Checks))
	address := syntax.ClientIPOf(r)
	for i := range q.Checks {
		c := &q.Checks[i]
		rule := d.rules[c.Rule.Name()]
		if rule == nil {
			continue
		}
		checks = append(checks, deferral.Check{Rule: c.Rule.Name(), Key: c.Key, Cost: c.Cost, Tier: ruleset.TierOf(rule.Ruled, r, address)})
	}
	extra, ok := d.keep(r)
	if !ok {
		return false, nil
	}
	switch err = asked.Accept(w, checks, extra, wait); {
	case err == nil:
		d.Worker.Wake()
		return true, nil
	case errors.Is(err, deferral.ErrBody):
		return true, d.Errors.Refuse(w, http.StatusBadRequest, err)
	case errors.Is(err, deferral.ErrReused):
		return true, d.Errors.Refuse(w, http.StatusUnprocessableEntity, err)
	case errors.As(err, new(*deferral.FullError)), errors.Is(err, deferral.ErrTooLate):
	default:
		d.Limiter.Failed(err)
	}
	countRefused(d.Stats, err)
	return false, nil
}

// queue answers a request that must not overtake jobs of its key, or whose Idempotency-Key has a job: it is not decided.
func (d *Deferral) queue(w http.ResponseWriter, r *http.Request, q *front.Evaluation, asked *deferral.Deferrable) error {
	if answered, err := d.accept(w, r, q, asked, 0); answered {
		return err
	}
	v := &q.Verdict
	if err := d.Limiter.Look(q.Checks, v); err != nil {
		d.Limiter.Failed(err)
		front.Unavailable(w, r, front.Jittered(int64(time.Second/time.Microsecond), d.Jitter), front.CannotCheck)
		return nil
	}
	if v.Outcome != core.Reject {
		at := d.ownCheck(q)
		wait := max(1, asked.Expected(0).Microseconds())
		q.Checks[at].Decision.Allowed = false
		q.Checks[at].Decision.RetryAfter = wait
		*v = core.Verdict{Outcome: core.Reject, Reported: at, RetryAfter: wait}
	}
	return d.Reject(w, r, q)
}

// surroundings is what is stored with a request, besides what package deferral stores.
type surroundings struct {
	Vars         map[string]any    `json:"vars,omitempty"`         // Caddy's variables, such as the client's address and the site's root
	Placeholders map[string]string `json:"placeholders,omitempty"` // that handlers in front have set, such as who is authenticated
	Forwarded    http.Header       `json:"forwarded,omitempty"`    // what a trusted proxy in front says of the client
	Proto        string            `json:"proto,omitempty"`
}

// forwardedHeaders are what reverse_proxy passes on from a trusted proxy.
var forwardedHeaders = []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"}

// keep returns what is stored of the request's surroundings; false: they have what is no text, and cannot be stored.
func (d *Deferral) keep(r *http.Request) (json.RawMessage, bool) {
	ok := true
	k := surroundings{Vars: make(map[string]any), Placeholders: make(map[string]string), Proto: r.Proto}
	vars, _ := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	for name, value := range vars {
		switch value := value.(type) {
		case string:
			ok = ok && deferral.IsText(value)
			k.Vars[name] = value
		case bool, int, int64, float64:
			k.Vars[name] = value
		}
	}
	repl := syntax.ReplacerOf(r)
	for _, name := range d.named {
		if value, found := repl.Get(name); found && value != nil {
			text := caddy.ToString(value)
			ok = ok && deferral.IsText(text)
			k.Placeholders[name] = text
		}
	}
	if trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool); trusted {
		k.Forwarded = make(http.Header)
		for _, name := range forwardedHeaders {
			if values := r.Header[name]; len(values) > 0 {
				ok = ok && deferral.IsText(values...)
				k.Forwarded[name] = values
			}
		}
	}
	text, _ := json.Marshal(k) // all of it can be marshalled
	return text, ok
}

// fromRequest reports whether a placeholder is made of what is stored of a request anyway, of the process, or of a response.
func fromRequest(name string) bool {
	if rest, found := strings.CutPrefix(name, "http.request."); found {
		for _, prefix := range []string{"tls.", "orig_", "uuid", "local", "auth."} {
			if strings.HasPrefix(rest, prefix) {
				return false
			}
		}
		return true
	}
	for _, prefix := range []string{"env.", "system.", "time.", "file.", "http.vars.", "http.response.", "http.reverse_proxy.", "http.error", "http.rate_limit.", "http.intercept.", "http.shutting_down", "http.time_until_shutdown"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// countRefused counts that a request could not be deferred.
func countRefused(s *report.Stats, err error) {
	reason := "store"
	full := new(deferral.FullError)
	switch {
	case errors.As(err, &full):
		reason = full.Why
	case errors.Is(err, deferral.ErrTooLate):
		reason = "wait"
	}
	metrics.Count(s.Refused, metrics.DeferredRefused, reason)
}
