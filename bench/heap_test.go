package bench

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// BenchmarkHeap reports how many bytes of heap a key takes, without the key's own string. It ignores b.N.
func BenchmarkHeap(b *testing.B) {
	first, _ := addresses()
	for _, s := range subjects {
		b.Run("by="+s.name+"/keys="+strconv.Itoa(population), heapOf(s.open, allowing, first, 1))
	}
}

// BenchmarkHeapByCount is BenchmarkHeap for the token bucket with several numbers of keys. Tables grow in steps, and the bytes for a
// key depend on how full the last step is.
func BenchmarkHeapByCount(b *testing.B) {
	keys, _ := clients(1_500_000)
	for n := 700_000; n <= len(keys); n += 50_000 {
		b.Run(fmt.Sprintf("by=%s/keys=%d", weirBucket, n), heapOf(weir(rate.TokenBucket, memory.Probing), allowing, keys[:n], 1))
	}
}

// BenchmarkHeapOfLog is BenchmarkHeap for logs of 1000 a minute.
func BenchmarkHeapOfLog(b *testing.B) {
	first, _ := addresses()
	for _, events := range []int{1, 2, 10, 100, 1000} {
		keys := first[:20_000]
		if events == 1 {
			keys = first
		}
		open := func(tb testing.TB, _ int, q quota) limiter {
			// Weir bounds all logs together by MaxKeys: room for all of these.
			return weir(rate.SlidingWindowLog, memory.Probing)(tb, population, q)
		}
		// The period is longer than it takes to fill the limiter.
		b.Run(fmt.Sprintf("by=weir/events=%d", events), heapOf(open, quota{"log", 1000, time.Hour}, keys, events))
	}
}

// heapOf returns a benchmark that measures once, for any b.N.
func heapOf(open func(testing.TB, int, quota) limiter, q quota, keys []string, events int) func(*testing.B) {
	taken := int64(-1)
	return func(b *testing.B) {
		if taken < 0 {
			before := heap()
			l := open(b, len(keys), q)
			for range events {
				fill(l, keys)
			}
			taken = heap() - before
			runtime.KeepAlive(l)
		}
		b.ReportMetric(float64(taken)/float64(len(keys)), "B/key")
		b.ReportMetric(0, "ns/op")
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
