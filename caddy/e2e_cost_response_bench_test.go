package ratelimit_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// BenchmarkStreams shows what it costs a stream of events through Caddy that the response tells its cost: how long its client waits for the first byte, at
// the median, and how much the heap grows while 200 of 10 MB are under way.
func BenchmarkStreams(b *testing.B) {
	event := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hello"}}],"usage":null}` + "\n\n")
	long := bytes.Repeat(event, 10<<20/len(event)/100)
	for name, limit := range map[string]string{"none": "", "plain": "rate_limit 1000000000/1h\n", "measured": "rate_limit {\nzone tokens {\nlimit 1000000000/1h\ncost 0\ncost_response json usage.total_tokens\n}\n}\n"} {
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			part, parts := event, 3
			if r.URL.Path == "/long" {
				part, parts = long, 100
			}
			for range parts {
				_, _ = w.Write(part)
				_ = http.NewResponseController(w).Flush()
			}
		}))
		b.Run(name, func(b *testing.B) {
			s := startSite(b, limit+"reverse_proxy "+service.URL)
			get := func(path string) io.ReadCloser {
				answer, err := s.client.Get("http://" + s.addr + path)
				must.Succeed(b, err)
				return answer.Body
			}
			var waits []time.Duration
			for b.Loop() {
				began := time.Now()
				body := get("/")
				_, _ = body.Read(make([]byte, 1))
				waits = append(waits, time.Since(began))
				_, _ = io.Copy(io.Discard, body)
				body.Close()
			}
			b.StopTimer()
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "µs-to-first-byte")
			b.ReportMetric(heapOf200(get), "MB-heap")
		})
		service.Close()
	}
}

// heapOf200 returns by how many megabytes the heap grows at most while 200 long streams are read.
func heapOf200(get func(path string) io.ReadCloser) float64 {
	in := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most := in(), uint64(0)
	var all sync.WaitGroup
	for range 200 {
		all.Add(1)
		go func() {
			defer all.Done()
			body := get("/long")
			defer body.Close()
			_, _ = io.Copy(io.Discard, body)
		}()
	}
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	for {
		select {
		case <-over:
			return float64(most-before) / 1e6
		case <-time.After(200 * time.Millisecond):
			most = max(most, in(), before)
		}
	}
}
