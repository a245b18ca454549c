package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// A client tries up to so many times: a try without an answer after timeout is given up, and after a failed one it waits from half of backoff to one
// and a half of it. Random numbers come from seed.
const (
	tries   = 4
	timeout = time.Second
	backoff = 400 * time.Millisecond
	seed    = 1
)

// A row counts what happened in one second of a run.
type row struct {
	begun    int // requests that clients began
	tries    int // tries of these and of earlier ones
	answered int // tries that were answered with 200
	refused  int // tries that were answered with 429 or 503: turned away by a limit, or by a cluster whose queue was full
	failed   int // tries without such an answer: given up after the timeout, or lost with B
}

// tally counts what happens, by the second.
type tally struct {
	begun time.Time
	mu    sync.Mutex
	rows  []row
	late  time.Duration // see latest
}

func newTally(seconds int) *tally { return &tally{rows: make([]row, seconds)} }

// note changes the row of this second, and reports false if the run is over: what happens then is not counted.
func (t *tally) note(change func(*row)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	second := int(time.Since(t.begun) / time.Second)
	if second >= len(t.rows) {
		return false
	}
	change(&t.rows[second])
	return true
}

// noteLate notes that the machine has kept a request waiting.
func (t *tally) noteLate(wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = max(t.late, wait)
}

// latest returns for how long a request has waited at most because the machine did not keep up.
func (t *tally) latest() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.late
}

// send sends the requests of all clients to the load balancer, and returns when the last has ended. Clients begin so many a second on average,
// whatever becomes of those before, at random (a Poisson process), and in the same moments for the same seed.
func send(url string, rate float64, seed uint64, t *tally) {
	random := rand.New(rand.NewPCG(seed, seed))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	var running sync.WaitGroup
	var at time.Duration
	for {
		at += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		if at >= time.Duration(len(t.rows))*time.Second {
			break
		}
		// One of 1,000 clients: 198.18.0.0/15 are the addresses for tests of load.
		number, pause := random.IntN(1000), [tries]time.Duration{}
		for i := range pause {
			pause[i] = backoff/2 + time.Duration(random.Int64N(int64(backoff)))
		}
		time.Sleep(time.Until(t.begun.Add(at)))
		t.noteLate(time.Since(t.begun) - at)
		running.Go(func() { request(client, url, fmt.Sprintf("198.18.%d.%d", number/250, 1+number%250), pause, t) })
	}
	running.Wait()
}

// request is one request of a client, with its tries.
func request(client *http.Client, url, address string, pause [tries]time.Duration, t *tally) {
	t.note(func(r *row) { r.begun++ })
	for i := range pause {
		if !t.note(func(r *row) { r.tries++ }) {
			return
		}
		switch try(client, url, address) {
		case http.StatusOK:
			t.note(func(r *row) { r.answered++ })
			return
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			t.note(func(r *row) { r.refused++ })
		default:
			t.note(func(r *row) { r.failed++ })
		}
		time.Sleep(pause[i])
	}
}

// try returns the status of the answer, or 0 if there is none in time.
func try(client *http.Client, url, address string) int {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0
	}
	r.Header.Set("X-Forwarded-For", address)
	r.Header.Set("X-Sent", time.Now().Format(time.RFC3339Nano))
	response, err := client.Do(r)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0
	}
	return response.StatusCode
}
