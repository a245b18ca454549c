// Command metered compares Traefik middlewares with and without metrics, and with and without a guard, by the time that they take for a request.
// They take turns on one goroutine. For each it prints the shortest turn and the median, in nanoseconds per request. It can run under Yaegi: BenchmarkMetered of the
// bench module does that.
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sort"
	"time"

	"github.com/proxyweir/weir/traefik"
)

const (
	turns  = 150
	length = 500 // requests per turn
)

// subject is one middleware.
type subject struct {
	name    string
	handler http.Handler
	times   []float64 // nanoseconds per request, for each turn
}

// writer is a http.ResponseWriter that keeps header fields alone.
type writer struct{ header http.Header }

func (w *writer) Header() http.Header         { return w.header }
func (w *writer) Write(b []byte) (int, error) { return len(b), nil }
func (w *writer) WriteHeader(status int)      {}

func main() {
	bucket := traefik.Rule{Name: "bucket", Limit: "1000/1ms", Algorithm: "token_bucket"}
	counter := traefik.Rule{Name: "counter", Limit: "1000000/1s", Algorithm: "sliding_window_counter"}
	var subjects []*subject
	subjects = pair(subjects, "token_bucket", bucket)
	subjects = pair(subjects, "sliding_window_counter", counter)
	subjects = pair(subjects, "two_rules", bucket, counter)
	subjects = add(subjects, "token_bucket/guard=on", true, false, bucket)
	subjects = add(subjects, "token_bucket/guard=on,metrics=on", true, true, bucket)
	subjects = add(subjects, "none/guard=on", true, false)
	r := &http.Request{Method: "GET", URL: &url.URL{Path: "/path"}, RemoteAddr: "192.0.2.1:1234", Header: http.Header{}}
	w := &writer{header: make(http.Header)}
	for turn := 0; turn < turns; turn++ {
		for _, s := range subjects {
			start := time.Now()
			for i := 0; i < length; i++ {
				for field := range w.header {
					delete(w.header, field)
				}
				s.handler.ServeHTTP(w, r)
			}
			s.times = append(s.times, float64(time.Since(start).Nanoseconds())/length)
		}
	}
	for _, s := range subjects {
		sort.Float64s(s.times)
		fmt.Printf("%s/of=least %.0f\n%s/of=median %.0f\n", s.name, s.times[0], s.name, s.times[turns/2])
	}
}

// pair adds a middleware with rules, without metrics and with.
func pair(list []*subject, name string, rules ...traefik.Rule) []*subject {
	list = add(list, name+"/metrics=off", false, false, rules...)
	return add(list, name+"/metrics=on", false, true, rules...)
}

// add adds a middleware. The limit of its guard is so far away that most requests pass by that.
func add(list []*subject, name string, guard, metrics bool, rules ...traefik.Rule) []*subject {
	c := traefik.CreateConfig()
	c.Rules = rules
	if guard {
		c.Guard = map[string]interface{}{"max": 512, "min": 512}
	}
	if metrics {
		c.Metrics = map[string]interface{}{"path": "/metrics"}
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})
	h, err := traefik.New(context.Background(), next, c, name+"@file")
	if err != nil {
		panic(err)
	}
	return append(list, &subject{name: name, handler: h})
}
