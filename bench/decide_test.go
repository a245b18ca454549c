package bench

import (
	"math/rand/v2"
	"net/netip"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const population = 1_000_000

// clients returns n different IPv4 addresses in random order, and copies of them in another order for later requests: the address of a request is
// never the same string in memory as the one that a map has kept.
func clients(n int) (first, later []string) {
	random := rand.New(rand.NewPCG(1, 2))
	seen := make(map[uint32]bool, n)
	first = make([]string, 0, n)
	for len(first) < n {
		u := random.Uint32()
		if !seen[u] {
			seen[u] = true
			first = append(first, netip.AddrFrom4([4]byte{byte(u >> 24), byte(u >> 16), byte(u >> 8), byte(u)}).String())
		}
	}
	later = make([]string, n)
	for i, at := range random.Perm(n) {
		later[i] = strings.Clone(first[at])
	}
	return first, later
}

var addresses = sync.OnceValues(func() ([]string, []string) { return clients(population) })

// fill makes one decision on each key.
func fill(l limiter, keys []string) {
	decide := l()
	for _, key := range keys {
		decide(key)
	}
}

// BenchmarkDecide makes decisions in parallel, on a million keys that the limiter already has. Each goroutine goes through the keys
// in an order that is unrelated to where a limiter keeps them.
func BenchmarkDecide(b *testing.B) {
	first, later := addresses()
	for _, q := range []quota{allowing, rejecting, passing} {
		for _, s := range subjects {
			b.Run("by="+s.name+"/mostly="+q.name, func(b *testing.B) {
				l := s.open(b, population, q)
				fill(l, first)
				var goroutines, allowed atomic.Int64
				b.ReportAllocs()
				b.ResetTimer()
				before := cpuTime()
				b.RunParallel(func(pb *testing.PB) {
					decide := l()
					i := int(goroutines.Add(1)) * population / 7 % population
					n := int64(0)
					for pb.Next() {
						if decide(later[i]) {
							n++
						}
						if i++; i == population {
							i = 0
						}
					}
					allowed.Add(n)
				})
				b.StopTimer()
				b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
				b.ReportMetric(float64(allowed.Load())/float64(b.N), "allowed/op")
			})
		}
	}
}

// BenchmarkDecideInTurn is BenchmarkDecide for a machine with other work. The limiters take turns of half a million decisions. It reports the
// median turn of each, also as a multiple of go-limiter's. It ignores b.N.
func BenchmarkDecideInTurn(b *testing.B) {
	first, later := addresses()
	for _, q := range []quota{allowing, rejecting, passing} {
		turns := sync.OnceValue(func() map[string][]turn { return takeTurns(b, q, first, later) })
		for _, s := range subjects {
			b.Run("by="+s.name+"/mostly="+q.name, func(b *testing.B) {
				all := turns()
				var wall, cpu, ratios []float64
				for i, t := range all[s.name] {
					wall = append(wall, t.wall)
					cpu = append(cpu, t.cpu)
					ratios = append(ratios, t.wall/all[goLimiter][i].wall)
				}
				b.ReportMetric(median(wall), "ns/op")
				b.ReportMetric(median(cpu), "cpu-ns/op")
				b.ReportMetric(median(ratios), "×go-limiter")
			})
		}
	}
}

const (
	turnsEach  = 15
	turnLength = 500_000
	goroutines = 2
)

// turn is the time of a decision in one of a subject's turns, in nanoseconds: the elapsed time, with all goroutines at work, and the CPU time.
// The CPU time says more if other processes use the cores, too, and less if goroutines wait for each other.
type turn struct {
	wall, cpu float64
}

// takeTurns measures the turns of each subject.
func takeTurns(b *testing.B, q quota, first, later []string) map[string][]turn {
	limiters := make([]limiter, len(subjects))
	for i, s := range subjects {
		limiters[i] = s.open(b, population, q)
		fill(limiters[i], first)
	}
	turns := make(map[string][]turn)
	for number := 0; number <= turnsEach; number++ {
		for i, s := range subjects {
			start, startCPU := time.Now(), cpuTime()
			var wg sync.WaitGroup
			for g := range goroutines {
				wg.Go(func() {
					decide := limiters[i]()
					at := (number*turnLength + g*population/goroutines) % population
					for range turnLength / goroutines {
						decide(later[at])
						if at++; at == population {
							at = 0
						}
					}
				})
			}
			wg.Wait()
			if number > 0 { // the first is a warm-up
				turns[s.name] = append(turns[s.name], turn{
					wall: float64(time.Since(start)) / turnLength,
					cpu:  float64(cpuTime()-startCPU) / turnLength,
				})
			}
		}
	}
	return turns
}

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(values []float64) float64 {
	sorted := append([]float64(nil), values...)
	sort.Float64s(sorted)
	return sorted[len(sorted)/2]
}
