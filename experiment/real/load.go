package main

import (
	"context"
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
	turnedAway        // by what stands in front of the service
	refused           // by the service, whose queue is too long
	left              // its client has given up
	failed            // anything else; there should be none
)

// attempt is one that a client has made.
type attempt struct {
	of    *request
	again bool          // it is the second one
	at    time.Duration // when it was to be sent, since the beginning of the trace
	took  time.Duration // from then on, until it was over
	what  int
}

// load is an open-loop generator: it sends each request when its trace says, whatever has become of those before. Times count from when a request
// was to be sent. Each client has an address and connections of its own.
type load struct {
	target   string // host and port
	patience time.Duration
	abusers  time.Duration // the patience of those that are not legitimate

	begin    time.Time
	clients  []*http.Client
	under    sync.WaitGroup
	mu       sync.Mutex
	attempts []attempt
	latest   atomic.Int64 // by how many nanoseconds a request has been sent late at most
	errors   map[string]int
}

// newLoad makes a generator with so many clients, whose addresses are from 127.1.0.1 on: all of 127.0.0.0/8 is this machine, on Linux.
func newLoad(target string, clients int) *load {
	l := &load{target: target, patience: time.Second, abusers: 10 * time.Second, errors: map[string]int{}}
	for i := range clients {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: addressOf(i)}}
		l.clients = append(l.clients, &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 64, DisableCompression: true}})
	}
	return l
}

func addressOf(client int) net.IP { return net.IPv4(127, 1, byte(client/250), byte(1+client%250)) }

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

// request plays one of the trace. A client that gives up, or that the service refuses, may try once more. One that was turned away does not.
func (l *load) request(ctx context.Context, q *request) {
	a := attempt{of: q, at: q.at}
	l.try(ctx, &a, q.work)
	if (a.what == left || a.what == refused) && q.legitimate && q.again {
		a = attempt{of: q, again: true, at: a.at + a.took + q.pause}
		if sleepUntil(ctx, l.begin.Add(a.at)) {
			l.try(ctx, &a, q.workAgain)
		}
	}
}

func (l *load) try(ctx context.Context, a *attempt, work time.Duration) {
	patience := l.patience
	if !a.of.legitimate {
		patience = l.abusers
	}
	intended := l.begin.Add(a.at)
	ctx, cancel := context.WithDeadline(ctx, intended.Add(patience))
	defer cancel()
	status, err := l.send(ctx, l.clients[a.of.client], intended, work)
	a.took = time.Since(intended)
	switch {
	case ctx.Err() != nil || a.took > patience:
		a.what, a.took = left, patience
	case err != nil:
		a.what = failed
	case status == http.StatusInternalServerError:
		a.what = refused
	case status == http.StatusServiceUnavailable:
		a.what = turnedAway
	case status == http.StatusOK:
		a.what = answered
	default:
		a.what = failed
	}
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
}

func (l *load) send(ctx context.Context, client *http.Client, intended time.Time, work time.Duration) (status int, err error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) {
		atMost(&l.latest, int64(time.Since(intended)))
	}})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.target+"/", nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set(workHeader, strconv.FormatInt(work.Microseconds(), 10))
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}
