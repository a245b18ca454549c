// Command herd plays 10,000 clients that obey Retry-After, each with a limit of its own, on a virtual clock around Weir's limiter, and prints how many come back in the
// busiest second: the table of docs/clients.md.
//
//	go run ./herd
package main

import (
	"container/heap"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

const (
	clients = 10_000
	pause   = 100_000 // between a client's requests while it has some left, in microseconds
	windows = 3       // that are counted, after the first
)

func main() {
	if err := table(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "herd:", err)
		os.Exit(1)
	}
}

func table(out io.Writer) error {
	limits := []string{"10/1m", "20/1h"}
	fmt.Fprintf(out, "| told | `%s` | `%s` |\n| --- | ---: | ---: |\n", limits[0], limits[1])
	for _, way := range []struct {
		name   string
		jitter float64 // negative: the default
		start  rate.WindowStart
	}{{"exact times: `jitter 0`", 0, rate.ByClock}, {"the default", -1, rate.ByClock}, {"`jitter 0.5`", 0.5, rate.ByClock}, {"exact times, of `window_start spread`", -1, rate.Spread}} {
		fmt.Fprintf(out, "| %s |", way.name)
		for _, limit := range limits {
			c := core.RuleConfig{Name: "api", KeySpec: "client"}
			config := rate.LimitConfig{Algorithm: rate.FixedWindow, Start: way.start}
			if err := rate.ParseLimit(limit, &config); err != nil {
				return err
			}
			if way.jitter >= 0 {
				c.Jitter = &way.jitter
			}
			var err error
			if c.Limit, err = rate.NewLimit(config); err != nil {
				return err
			}
			h, err := play(c)
			if err != nil {
				return err
			}
			if used := float64(h.admitted) / float64(windows*clients*config.Requests); used < 0.9995 {
				return fmt.Errorf("%s, %s: the clients use only %.2f %% of their limits", way.name, limit, 100*used)
			}
			fmt.Fprintf(out, " %d |", slices.Max(h.back))
		}
		fmt.Fprintln(out)
	}
	return nil
}

// herd counts what comes in each second.
type herd struct {
	begin, length int64 // of what is counted, in microseconds
	back          []int // by second
	admitted      int
}

// turn is when a client sends a request next.
type turn struct {
	at     int64
	client int
	back   bool // it has waited for that
}

type turns []turn

func (t turns) Len() int { return len(t) }
func (t turns) Less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].client < t[j].client
}
func (t turns) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *turns) Push(x any)   { *t = append(*t, x.(turn)) }
func (t *turns) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// play has clients that begin at any time of the first window. Each sends requests until one is rejected, waits as long as it is told, and goes on.
func play(c core.RuleConfig) (*herd, error) {
	rule, err := core.NewRule(c)
	if err != nil {
		return nil, err
	}
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC).UnixMicro()
	store := memory.New(memory.Config{Clock: func() int64 { return now }})
	if err := store.Open(rule); err != nil {
		return nil, err
	}
	limiter := core.NewLimiter(store)
	period := c.Limit.Period
	h := &herd{begin: now + period, length: windows * period}
	h.back = make([]int, h.length/1_000_000)
	random := rand.New(rand.NewPCG(1, 2))
	var queue turns
	for i := range clients {
		queue = append(queue, turn{at: now + random.Int64N(period), client: i})
	}
	heap.Init(&queue)
	nobody := new(http.Request)
	checks, v := []core.Check{{Rule: rule}}, core.Verdict{}
	for queue[0].at < h.begin+h.length {
		next := queue[0]
		now = next.at
		checks[0].Key = strconv.Itoa(next.client)
		if err := limiter.Decide(checks, false, &v); err != nil {
			return nil, err
		}
		if second := now - h.begin; second >= 0 {
			if next.back {
				h.back[second/1_000_000]++
			}
			if v.Outcome == core.Allow {
				h.admitted++
			}
		}
		queue[0].at, queue[0].back = now+pause, v.Outcome == core.Reject
		if v.Outcome == core.Reject {
			queue[0].at = now + 1_000_000*answer.RetrySeconds(front.WaitOf(v.RetryAfter, rule, checks[0].Key, nobody, -1))
		}
		heap.Fix(&queue, 0)
	}
	return h, nil
}
