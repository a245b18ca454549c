package deferred

import (
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/deferral"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
)

// jobLease is how long a job of a node that has died waits for another node.
const jobLease = 20 * time.Second

// leastTimeout is the shortest wait for Redis when jobs are stored and claimed: an append-only file may take its time.
const leastTimeout = 2 * time.Second

// jobPause is the pause after the first attempt at a job; each further one is twice as long, up to deferral.MostPause.
const jobPause = 5 * time.Second

// New makes the queue of a handler ready. It does not wait for Redis.
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
	d.API = &deferral.API{Queue: queue, Known: at, Path: c.Path, Always: c.Accept == "always", MaxBody: c.MaxBody, Headers: headers, MaxWait: time.Duration(c.MaxWait),
		Pace: d.pace, Stopping: h.Stopping, Report: d.report, Doubt: longestSettling}
	d.Worker = &deferral.Worker{Queue: queue, Known: at, Do: d.do, MostRunning: int(c.MaxRunning), Attempts: int(c.MaxAttempts), Time: time.Duration(c.GiveUpAfter), Pause: jobPause, Report: d.report,
		Unsafe: c.Durability == "best_effort"}
	return d, nil
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
			d.API.Settle(d.grace)
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

// resultHeaders are the header fields of responses that are always kept: those that describe the body, or what was made.
var resultHeaders = []string{"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Range", "Content-Type", "Etag", "Last-Modified", "Link", "Location", "Vary"}
