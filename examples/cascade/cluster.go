package main

import (
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// workTime is how long a worker of a cluster takes for a request on average.
const workTime = 100 * time.Millisecond

// queueTime is how much work waits for workers at most. What comes then is answered with 503 at once.
const queueTime = 3 * time.Second

// capacityOf returns how many requests a second so many workers can do.
func capacityOf(workers int) int { return workers * int(time.Second/workTime) }

// cluster is a service as many are: first come, first served, and it works on a request also if its client has left meanwhile. So in an overload it
// works for nobody.
type cluster struct {
	mu       sync.Mutex
	free     []time.Time // when each worker will have done all that it has taken on
	underway int
	most     int // how many requests may be under way: one for each worker, and the queue
	random   *rand.Rand
	tally    *tally // learns how long requests were on their way
}

func newCluster(workers int, t *tally) *cluster {
	return &cluster{
		free: make([]time.Time, workers), most: workers + workers*int(queueTime/workTime),
		random: rand.New(rand.NewPCG(seed, seed)), tally: t,
	}
}

// startCluster starts a cluster that listens on that address.
func startCluster(address string, workers int, t *tally) (*http.Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: newCluster(workers, t)}
	go func() { _ = server.Serve(listener) }()
	return server, nil
}

// ServeHTTP answers after the wait for a worker and its work. /health says that the process lives, and waits for nobody.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		return
	}
	now := time.Now()
	if sent, err := time.Parse(time.RFC3339Nano, r.Header.Get("X-Sent")); err == nil {
		c.tally.noteLate(now.Sub(sent))
	}
	done, taken := c.take(now)
	if !taken {
		http.Error(w, "the queue is full", http.StatusServiceUnavailable)
		return
	}
	time.Sleep(time.Until(done)) // and not until r.Context() is done
	c.mu.Lock()
	c.underway--
	c.mu.Unlock()
	_, _ = io.WriteString(w, "Hello.\n")
}

// take gives a request to the worker that is free first, and returns when it will be done. It reports false if the queue is full. Work takes from
// half of workTime to one and a half of it.
func (c *cluster) take(now time.Time) (done time.Time, taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underway >= c.most {
		return time.Time{}, false
	}
	c.underway++
	first := 0
	for i := range c.free {
		if c.free[i].Before(c.free[first]) {
			first = i
		}
	}
	begin := slices.MaxFunc([]time.Time{now, c.free[first]}, time.Time.Compare)
	c.free[first] = begin.Add(workTime/2 + time.Duration(c.random.Int64N(int64(workTime))))
	return c.free[first], true
}
