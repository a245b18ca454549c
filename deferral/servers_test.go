package deferral

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
)

// All keys of a queue are in one slot of a Cluster.
func TestAQueueInACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	universal, err := client.NewUniversal(client.Config{Addresses: cluster.Addrs(), Cluster: true}, 5*time.Second)
	must(t, err)
	t.Cleanup(func() { _ = universal.Close() })
	for _, name := range []string{"/a", "/b", "/c", "/d"} { // on several nodes
		q := NewQueue(Config{Client: universal, Prefix: "weir:", Name: name, MaxJobs: 10, MaxKeyJobs: 10, MaxBytes: 1 << 20, Keep: time.Hour, KeepDead: time.Hour,
			Lease: time.Minute, Timeout: 5 * time.Second})
		if err := q.CheckDurability(context.Background()); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Fatalf("error %v, want that there is no append-only file", err)
		}
		got, err := q.Enter(context.Background(), entry("k", "x"))
		must(t, err)
		c := work(t, q, answers(Outcome{Answer: &Answer{Status: 200}}))
		eventually(t, "it is done", func() bool {
			j, err := q.Get(context.Background(), got.ID)
			must(t, err)
			return j.State == Done
		})
		c.Stop(0)
	}
}

// Redis takes at most twice the bytes that are counted, however short or long the requests are.
func TestRedisTakesAtMostTwiceTheBytes(t *testing.T) {
	for _, length := range []int{0, 100, 1000, 10_000} {
		t.Run(strconv.Itoa(length), func(t *testing.T) {
			server := redistest.Start(t)
			q := queueOn(t, server.Addr(), func(c *Config) { c.MaxJobs, c.MaxBytes = 5000, 1<<30 })
			used := func() int64 {
				n, _ := strconv.ParseInt(infoField(q.Client.Info(context.Background(), "memory").Val(), "used_memory_dataset"), 10, 64)
				return n
			}
			_, _ = q.Look(context.Background(), "k", "", time.Second)
			before := used()
			for i := range 2000 {
				e := entry(NewID(), strings.Repeat("x", length)) // the worst case: each job has a key of its own
				e.Once = NewID()
				if i == 0 {
					e.Fingerprint = make([]byte, 32)
				}
				_, err := q.Enter(context.Background(), e)
				must(t, err)
			}
			took := used() - before
			sums, err := q.Sums(context.Background())
			must(t, err)
			t.Logf("%d bytes of body: a job takes %d bytes in Redis, and counts for %d", length, took/2000, sums.Bytes/2000)
			if took > 2*sums.Bytes {
				t.Errorf("Redis takes %d bytes, more than twice the %d that are counted", took, sums.Bytes)
			}
		})
	}
}

// Redis is killed again and again, and workers give up their jobs without a word: each job is done, in the order of its key, and more than once only if a worker
// or Redis has died during it.
func TestNoJobIsLostWhenRedisAndWorkersDie(t *testing.T) {
	server := redistest.Start(t, redistest.WithConfig("appendonly yes", "appendfsync always"))
	q := queueOn(t, server.Addr(), func(c *Config) {
		c.MaxJobs, c.MaxKeyJobs, c.MaxBytes, c.Lease, c.Timeout = 1000, 1000, 1<<30, 500*time.Millisecond, 200*time.Millisecond
	})
	const jobs, keys = 300, 6
	var mu sync.Mutex
	done := make(map[string][]int) // by key, what the service got
	total, broken := 0, 0          // the latter: attempts after which nobody said what became of the job
	do := func(a *Attempt) Outcome {
		if a.Begin() != nil {
			return Outcome{Wait: 10 * time.Millisecond}
		}
		n, _ := strconv.Atoi(string(a.Request.Body))
		mu.Lock()
		defer mu.Unlock()
		done[a.Job.Key] = append(done[a.Job.Key], n)
		total++
		return Outcome{Answer: &Answer{Status: 200}}
	}
	c := work(t, q, do)
	accepted := make(map[string][]int)
	for i := range jobs {
		key := strconv.Itoa(i % keys)
		e := entry(key, strconv.Itoa(i))
		eventually(t, "the job is accepted", func() bool { // sent again with the same id, so it is one job
			_, err := q.Enter(context.Background(), e)
			return err == nil
		})
		accepted[key] = append(accepted[key], i)
		switch i {
		case 60, 180:
			server.Restart() // kill -9
			broken += c.MostRunning
		case 120, 240:
			c.Stop(0) // which ends its attempts
			broken += c.MostRunning + c.reported("lost")
			c = work(t, q, do)
		}
	}
	eventually(t, "all jobs are done", func() bool {
		sums, err := q.Sums(context.Background())
		return err == nil && sums.Open == 0
	})
	broken += c.reported("lost") // to a busy machine: nobody renewed the claim in time
	mu.Lock()
	defer mu.Unlock()
	for key, want := range accepted {
		got := slices.Compact(slices.Clone(done[key])) // a job that is repeated is so before the next
		if !slices.Equal(got, want) {
			t.Errorf("key %s: the service got %v, want %v", key, done[key], want)
		}
	}
	if total > jobs+broken {
		t.Errorf("the service got %d requests for %d jobs; %d attempts may have broken off", total, jobs, broken)
	}
}

func BenchmarkEnter(b *testing.B) {
	for _, fsync := range []string{"everysec", "always"} {
		b.Run(fmt.Sprintf("appendfsync=%s", fsync), func(b *testing.B) {
			server := redistest.Start(b, redistest.WithConfig("appendonly yes", "appendfsync "+fsync))
			q := queueOn(b, server.Addr(), func(c *Config) { c.MaxJobs, c.MaxKeyJobs, c.MaxBytes = 1<<40, 1<<40, 1<<40 })
			body := strings.Repeat("x", 1000)
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := q.Enter(context.Background(), entry("k", body)); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
