// Package deferred does requests later that are over their limit: package deferral, in Caddy.
package deferred

import (
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/deferral"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
)

// deferring is what a handler has whose zone defers: the clients' side and the worker of its queue. Package deferral says what becomes of a
// request.
type Deferral struct {
	Host
	Config     *syntax.Defer // with defaults
	Desk       *deferral.Desk
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

// deferringHandler is what a handler is to its deferral.
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
	Reject func(w http.ResponseWriter, r *http.Request, q *front.Inquiry) error
}

// jobLease is how long a job of a node that has died waits for another node.
const jobLease = 20 * time.Second

// leastTimeout is the shortest wait for Redis when jobs are stored and claimed: an append-only file may take its time.
const leastTimeout = 2 * time.Second

// jobPause is the pause after the first attempt at a job; each further one is twice as long, up to deferral.MostPause.
const jobPause = 5 * time.Second

// newDeferring makes the queue of a handler ready. It does not wait for Redis.
func New(h Host) (*Deferral, error) {
	name := h.Zone.Rule.Name
	d := &Deferral{Host: h, Config: h.Zone.Defer.WithDefaults(name), rules: make(map[string]*front.Rule), results: make(map[string]bool), ready: make(chan struct{})}
	c, settings := d.Config, h.Limiter.Settings
	for _, rule := range h.Zones {
		d.rules[rule.Ruled.Name] = rule
		for _, limit := range rule.Ruled.Limits.Rules() {
			if limit.Limit.Waits() {
				return nil, fmt.Errorf("on_limit defer: the zone %q of its handler makes requests wait; write that into another rate_limit, behind this one", rule.Ruled.Name)
			}
		}
	}
	for _, other := range h.Zones {
		if err := syntax.CheckStoredKey(other.Ruled, c); err != nil {
			return nil, fmt.Errorf("zone %q of its handler: %w", other.Ruled.Name, err)
		}
	}
	keys, err := c.Keys()
	if err != nil {
		return nil, fmt.Errorf("on_limit defer: %w", err)
	}
	headers, err := deferral.CheckHeaders(c.Headers, keys.Encrypt())
	if err != nil {
		return nil, err // not reached: compile has reported it
	}
	kept, err := deferral.CheckHeaders(c.ResultHeaders, keys.Encrypt())
	if err != nil {
		return nil, err
	}
	for _, field := range append(kept, resultHeaders...) {
		d.results[field] = true
	}
	timeout := max(leastTimeout, time.Duration(settings.Client.ReadTimeout))
	if d.redis, err = goredis.NewUniversal(settings.Client, timeout); err != nil {
		return nil, err
	}
	prefix := settings.Store.Prefix
	if prefix == "" {
		prefix = redis.DefaultPrefix
	}
	queue := deferral.NewQueue(deferral.Config{
		Client: d.redis, Prefix: prefix, Name: syntax.ZoneID(h.Namespace, name), KeySecret: settings.Store.KeySecret, Keys: keys,
		MaxJobs: c.MaxJobs, MaxKeyJobs: c.MaxJobsPerKey, MaxBytes: c.MaxBytes, Keep: time.Duration(c.Keep), KeepDead: time.Duration(c.KeepDead),
		Lease: jobLease, Timeout: timeout, Replicas: int(c.Replicas),
	})
	d.known = fmt.Sprintf("%q %q %q", settings.Client.Addresses, prefix, queue.Name)
	known, _, err := knownQueues.LoadOrNew(d.known, func() (caddy.Destructor, error) { return new(knownQueue), nil })
	if err != nil {
		return nil, err // not reached
	}
	at := &known.(*knownQueue).Known
	d.Desk = &deferral.Desk{Queue: queue, Known: at, Path: c.Path, Always: c.Accept == "always", MaxBody: c.MaxBody, Headers: headers, MaxWait: time.Duration(c.MaxWait),
		Pace: d.pace, Stopping: h.Stopping, Report: d.report, Doubt: longestSettling}
	d.Worker = &deferral.Worker{Queue: queue, Known: at, Do: d.do, MostRunning: int(c.MaxRunning), Attempts: int(c.MaxAttempts), Time: time.Duration(c.GiveUpAfter), Pause: jobPause, Report: d.report,
		Unsafe: c.Durability == "best_effort"}
	return d, nil
}

// pace returns the time in which the zone's limit admits one more request of a key that has used it up.
func (d *Deferral) pace() time.Duration {
	l := report.LimitOf(d.Zone.Rule.Limits.InForce())
	return time.Duration(l.Period/l.Requests) * time.Microsecond
}

// Start starts the worker. named are the placeholders that the configuration names. An error says why the configuration cannot be used.
func (d *Deferral) Start(named []string) error {
	if err := d.findDownstream(named); err != nil {
		return fmt.Errorf("zone %q: on_limit defer: %w", d.Zone.Rule.Name, err)
	}
	d.accessLog = d.Context.Logger(d.HTTP).Named("log.access")
	d.Worker.Start()
	d.started = true
	close(d.ready)
	return nil
}

// Stop ends the worker: it hands back what it has not begun. Requests under way may end, as those of clients may. exiting says that the
// process ends, so that stop must wait for them; a reload does not wait.
func (d *Deferral) Stop(grace time.Duration, exiting bool) {
	if d == nil || !d.started || d.stopped != nil {
		return
	}
	d.stopped = make(chan struct{})
	d.grace = grace
	if grace == 0 {
		d.grace = 366 * syntax.Day // as Caddy has it, which waits for as long as requests take
	}
	end := func() {
		d.Worker.Stop(d.grace)
		close(d.stopped)
	}
	if exiting {
		end()
	} else {
		go end()
	}
}

// longestSettling is how long a client, or a process that ends, waits for a Redis that does not say whether requests are in the line.
const longestSettling = 10 * time.Second

// Leave undoes provision. Caddy calls it while requests of clients may still be under way, unless it exits. They have as long as with any store; the
// connections to Redis are kept until then, until the worker has stopped, and until it is known of all requests whether they are in the line.
func (d *Deferral) Leave(exiting bool) {
	if d == nil {
		return
	}
	end := func() {
		if d.started {
			d.Stop(0, false) // if nobody has
			<-d.stopped
			if exiting {
				d.grace = min(d.grace, longestSettling)
			} else {
				time.Sleep(stores.Lingering)
			}
			d.Desk.Settle(d.grace)
		} else {
			close(d.ready)
		}
		_ = d.redis.Close() // at most an error of closing a socket
		_, _ = knownQueues.Delete(d.known)
	}
	if exiting {
		end()
	} else {
		go end()
	}
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

// Serves reports whether a request is about a job, by the path that its client has asked for.
func (d *Deferral) Serves(r *http.Request) bool { return d != nil && d.Desk.Serves(asSent(r)) }

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

// ServeJob answers a request about a job.
func (d *Deferral) ServeJob(w http.ResponseWriter, r *http.Request) error {
	if r.TLS != nil && !r.TLS.HandshakeComplete { // anybody may have sent it once more
		return d.Errors.Refuse(w, http.StatusTooEarly, front.ErrEarly)
	}
	d.Desk.ServeHTTP(w, asSent(r))
	return nil
}

// Ask looks at the queue for a request that may be deferred; nil: it may not. If Redis does not answer, the request is decided as if its zone
// did not defer, unless its key has jobs, as far as this node knows: held says that it would overtake them.
func (d *Deferral) Ask(q *front.Inquiry, r *http.Request) (asked *deferral.Deferrable, held bool) {
	if d == nil || q.Early || q.Lacking || !d.Desk.Wants(r) || protect.DispatchOf(r) != nil {
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
	asked, err := d.Desk.Ask(r, q.Checks[own].Key, d.who(r)...)
	if err == nil {
		if d.Worker.Obstacle() != "" { // but what waits is not overtaken
			asked.Full = "unsafe"
		}
		return asked, false
	}
	if r.Context().Err() == nil { // else the client has left
		d.Limiter.Failed(err)
	}
	if held = errors.Is(err, deferral.ErrHeld); held {
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
func (d *Deferral) ownCheck(q *front.Inquiry) int {
	for i := range q.Checks {
		if q.Checks[i].Rule.Name() == d.Zone.Rule.Name {
			return i
		}
	}
	return -1
}

// Over reports whether the zone rejects a request, and no other zone does: then it is to be deferred.
func (d *Deferral) Over(q *front.Inquiry) bool {
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

// Accept stores a request as a job, whose first turn comes after a wait, and answers. If it cannot, it has not answered, and the request is
// to be rejected.
func (d *Deferral) Accept(w http.ResponseWriter, r *http.Request, q *front.Inquiry, asked *deferral.Deferrable, wait time.Duration) (answered bool, err error) {
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

// Queue answers a request that must not overtake jobs of its key, or whose Idempotency-Key has a job: it is not decided.
func (d *Deferral) Queue(w http.ResponseWriter, r *http.Request, q *front.Inquiry, asked *deferral.Deferrable) error {
	if answered, err := d.Accept(w, r, q, asked, 0); answered {
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

// resultHeaders are the header fields of responses that are always kept: those that describe the body, or what was made.
var resultHeaders = []string{"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Range", "Content-Type", "Etag", "Last-Modified", "Link", "Location", "Vary"}

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
