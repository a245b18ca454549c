package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// What became of an attempt.
const (
	answered   = iota // with a status of 2xx, while its client waited
	limited           // by a limit: 429
	turnedAway        // by what stands in front of the service besides limits: 503
	refused           // by the service, whose queue is too long: 500
	left              // its client has given up
	failed            // anything else; there should be none
	outcomes
)

// outcomeNames are the words for outcomes in the data.
var outcomeNames = [outcomes]string{"answered", "limited", "turned_away", "refused", "left", "failed"}

// attempt is one that a client has made.
type attempt struct {
	of    *request
	again bool          // it is the second one
	at    time.Duration // when it was to be sent, since the beginning of the trace
	took  time.Duration // from then on, until it was over
	late  time.Duration // from then on, until it was written; negative: it was not, since no connection was made
	what  int
}

// load is an open-loop generator: it sends each request when its trace says, whatever has become of those before. Times count from when a request
// was to be sent. Each client has an address and connections of its own.
type load struct {
	targets  []string // host and port of each proxy
	patience time.Duration
	abusers  time.Duration // the patience of those that are not legitimate

	begin    time.Time
	clients  []*http.Client
	under    sync.WaitGroup
	mu       sync.Mutex
	attempts []attempt
	errors   map[string]int
	sent     atomic.Int64
	ended    [outcomes]atomic.Int64
}

// newLoad makes a generator with so many clients, whose addresses are from 127.1.0.1 on: all of 127.0.0.0/8 is this machine, on Linux.
func newLoad(targets []string, clients int) *load {
	l := &load{targets: targets, patience: time.Second, abusers: 10 * time.Second, errors: map[string]int{}}
	for i := range clients {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: addressOf(i)}}
		l.clients = append(l.clients, &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 64, DisableCompression: true}})
	}
	return l
}

func addressOf(client int) net.IP { return net.IPv4(127, 1, byte(client/250), byte(1+client%250)) }

// ServeHTTP implements http.Handler: it serves the generator's metrics.
func (l *load) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "# TYPE experiment_sent_total counter\nexperiment_sent_total %d\n# TYPE experiment_ended_total counter\n", l.sent.Load())
	for i, name := range outcomeNames {
		fmt.Fprintf(w, "experiment_ended_total{outcome=%q} %d\n", name, l.ended[i].Load())
	}
}

// play sends the requests of a trace that begins at an instant, and returns when all are over, or the context has ended.
func (l *load) play(ctx context.Context, begin time.Time, trace []request) []attempt {
	l.begin = begin
	for i := range trace {
		if !sleepUntil(ctx, begin.Add(trace[i].at)) {
			break
		}
		l.under.Go(func() { l.request(ctx, &trace[i]) })
	}
	l.under.Wait()
	for _, c := range l.clients {
		c.CloseIdleConnections()
	}
	return l.attempts
}

func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// request plays one of the trace. Its client may try once more.
func (l *load) request(ctx context.Context, q *request) {
	a := attempt{of: q, at: q.at}
	retryAfter := l.try(ctx, &a, q.work, q.node)
	var tries bool
	pause := q.pause
	switch a.what {
	case left, refused:
		tries = q.again
	case limited, turnedAway:
		tries = q.insists
		if q.heeds {
			pause += retryAfter
		}
	}
	if !q.legitimate || !tries {
		return
	}
	a = attempt{of: q, again: true, at: a.at + a.took + pause}
	if sleepUntil(ctx, l.begin.Add(a.at)) {
		l.try(ctx, &a, q.workAgain, q.nodeAgain)
	}
}

// try sends an attempt, and returns the Retry-After that it was told.
func (l *load) try(ctx context.Context, a *attempt, work time.Duration, node int) (retryAfter time.Duration) {
	patience := l.patience
	if !a.of.legitimate {
		patience = l.abusers
	}
	l.sent.Add(1)
	intended := l.begin.Add(a.at)
	ctx, cancel := context.WithDeadline(ctx, intended.Add(patience))
	defer cancel()
	var written atomic.Int64
	written.Store(-1)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
		written.CompareAndSwap(-1, int64(time.Since(intended)))
	}})
	status, retryAfter, err := l.send(ctx, l.clients[a.of.client], l.targets[node], work)
	a.took, a.late = time.Since(intended), time.Duration(written.Load())
	switch {
	case ctx.Err() != nil || a.took > patience:
		a.what, a.took = left, patience
	case err != nil:
		a.what = failed
	case status == http.StatusTooManyRequests:
		a.what = limited
	case status == http.StatusServiceUnavailable:
		a.what = turnedAway
	case status == http.StatusInternalServerError:
		a.what = refused
	case status == http.StatusOK:
		a.what = answered
	default:
		a.what = failed
	}
	l.ended[a.what].Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = append(l.attempts, *a)
	if a.what == failed {
		why := strconv.Itoa(status)
		if err != nil {
			why = err.Error()
		}
		l.errors[why]++
	}
	return retryAfter
}

// host is what all requests name as their host, so that it is the same key in all proxies.
const host = "shop.test"

func (l *load) send(ctx context.Context, client *http.Client, target string, work time.Duration) (status int, retryAfter time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target+"/", nil)
	if err != nil {
		return 0, 0, err
	}
	r.Host = host
	r.Header.Set(workHeader, strconv.FormatInt(work.Microseconds(), 10))
	response, err := client.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	told, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return response.StatusCode, time.Duration(told) * time.Second, err
}
