package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/experiment/simulation"
)

// workHeader is the field of a request that says how many microseconds the service is to work on it at its usual speed.
const workHeader = "X-Work"

// service is the protected one: its slots work on one request each at a time, which is that they sleep, and the others wait in a queue. It goes on
// with a request whose client has left, since it does not notice: as most programs do not.
type service struct {
	situation *simulation.Situation
	begin     time.Time // of the trace
	mu        sync.Mutex
	slots     simulation.Slots

	listener net.Listener
	server   *http.Server
	underWay atomic.Int64
	latest   atomic.Int64 // by how many nanoseconds an answer has been late at most
	served   atomic.Int64
	refused  atomic.Int64
}

// newService starts a service on a port of this machine. It must be stopped.
func newService(s *simulation.Situation) (*service, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v := &service{situation: s, begin: time.Now(), listener: listener}
	routes := http.NewServeMux()
	routes.Handle("/", v)
	routes.HandleFunc("/metrics", v.metrics)
	if s.Background != nil {
		routes.HandleFunc("/health", v.health)
	}
	v.server = &http.Server{Handler: routes}
	go func() { _ = v.server.Serve(listener) }()
	return v, nil
}

func (v *service) address() string { return v.listener.Addr().String() }

func (v *service) stop() { _ = v.server.Close() }

// beginAt says when the trace begins, by which the service knows how fast it is to work. Before that it is at its usual speed.
func (v *service) beginAt(t time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.begin = t
	v.slots = simulation.Slots{}
}

// ServeHTTP implements http.Handler. When a slot will be done is known at once, since all it does is sleep.
func (v *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	work, err := strconv.Atoi(r.Header.Get(workHeader))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	v.mu.Lock()
	begin := v.begin
	end, refused := v.slots.Take(v.situation, time.Since(begin).Seconds(), float64(work)/1e6)
	v.mu.Unlock()
	if refused {
		v.refused.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	v.underWay.Add(1)
	defer v.underWay.Add(-1)
	due := begin.Add(seconds(end))
	time.Sleep(time.Until(due))
	atMost(&v.latest, int64(time.Since(due)))
	v.served.Add(1)
	_, _ = w.Write([]byte("ok"))
}

// health tells the CPU use, averaged over a second.
func (v *service) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]float64{"load": v.load()})
}

func (v *service) load() float64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.slots.Load(time.Since(v.begin).Seconds())
}

// metrics serves what Prometheus scrapes.
func (v *service) metrics(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "# TYPE experiment_service_under_way gauge\nexperiment_service_under_way %d\n", v.underWay.Load())
	fmt.Fprintf(w, "# TYPE experiment_service_served_total counter\nexperiment_service_served_total %d\n", v.served.Load())
	fmt.Fprintf(w, "# TYPE experiment_service_refused_total counter\nexperiment_service_refused_total %d\n", v.refused.Load())
	if v.situation.Background != nil {
		fmt.Fprintf(w, "# TYPE experiment_service_load gauge\nexperiment_service_load %v\n", v.load())
	}
}

// atMost raises a maximum.
func atMost(greatest *atomic.Int64, n int64) {
	for {
		old := greatest.Load()
		if n <= old || greatest.CompareAndSwap(old, n) {
			return
		}
	}
}
