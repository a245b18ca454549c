// Command segments says how far a sliding_window_counter is off beside a sliding_window_log, with two windows and with segments: the table of
// docs/algorithms.md. All decide on the same requests, at the same times.
//
//	go run ./segments                                   the traffic of a site, one request of ten, and random traffic: some minutes
//	go run ./segments -trace FILE -minutes 1            another site's: a number of requests a line, behind a comma if there is one, of so many minutes
//
// Wrong is a decision that differs from the log's where each counts all requests, also those that it rejects: so one wrong decision has no others in its
// train, as in Cloudflare's count of 2017. The most in a period is what gets through to a client in any time of that length, where rejected requests do not
// count.
package main

import (
	"bufio"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/rate"
)

const (
	requests = 100
	period   = time.Minute
	micros   = int64(period / time.Microsecond)
)

func main() {
	trace := flag.String("trace", "../testdata/worldcup/requests-in-5-minutes.txt.gz", "the numbers of requests, a gzip file")
	minutes := flag.Int64("minutes", 5, "the minutes of each number")
	one := flag.Int64("one", 10, "of so many requests of the trace, one is played")
	clients := flag.Int("clients", 10_000, "how many clients these come from; the busiest makes about a tenth of them")
	flag.Parse()
	fmt.Printf("limit %d/%s\n\n", requests, rate.FormatPeriod(period))
	site, err := open(*trace)
	if err != nil {
		fmt.Fprintln(os.Stderr, "segments:", err)
		os.Exit(1)
	}
	play("the trace", *clients, func(r *rand.Rand, request func(client int, at int64)) {
		zipf := rand.NewZipf(r, 1.01, 1, uint64(*clients-1))
		for at := int64(0); ; at += *minutes {
			n, ok := site()
			if !ok {
				return
			}
			for _, t := range someTimes(r, n / *one, *minutes*micros) {
				request(int(zipf.Uint64()), at*micros+t)
			}
		}
	})
	play("steady clients, at half the limit to twice", 1000, func(r *rand.Rand, request func(client int, at int64)) {
		for at := int64(0); at < 300*micros; at += micros {
			for client := range 1000 {
				for _, t := range someTimes(r, 50+int64(client)*150/1000, micros) {
					request(client, at+t)
				}
			}
		}
	})
	play("bursts of half the limit to all of it, one a period on average", 1000, func(r *rand.Rand, request func(client int, at int64)) {
		for client := range 1000 {
			for at := int64(0); at < 300*micros; at += r.Int64N(2 * micros) {
				for range 50 + r.IntN(51) {
					request(client, at)
				}
			}
		}
	})
}

// open returns a function that returns the next number of a file.
func open(name string) (func() (n int64, ok bool), error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(io.Reader(unzipped))
	return func() (int64, bool) {
		if !lines.Scan() {
			return 0, false
		}
		text := lines.Text()
		n, _ := strconv.ParseInt(text[strings.LastIndexByte(text, ',')+1:], 10, 64) // a line without a number has no requests
		return n, true
	}, nil
}

// someTimes returns so many random times in a span, in their order.
func someTimes(r *rand.Rand, n, span int64) []int64 {
	times := make([]int64, n)
	for i := range times {
		times[i] = r.Int64N(span)
	}
	slices.Sort(times)
	return times
}

// counter is an algorithm with the state of each client: strict counts the requests that it rejects, too; plain does not.
type counter struct {
	name          string
	limit         *rate.Limit
	strict, plain []state
	seen          [][]int64 // the times of what plain has let through to each client, of the last period
	most          int
	letIn, turned int64 // wrongly
}

type state struct {
	rate.State
	log rate.EventLog
}

// decide decides on a request at a time, and charges it.
func (s *state) decide(l *rate.Limit, now int64, all bool) bool {
	var d rate.Decision
	if l.IsLog {
		s.B = rate.DecideLog(l, &s.log, s.B, now, 1, &d)
		if d.Allowed || all {
			rate.ChargeLog(l, &s.log, s.B, 1, int(l.Requests))
		}
		return d.Allowed
	}
	next := s.State
	if rate.Decide(l, &s.State, now, 1, &next, &d); d.Allowed || all {
		s.State = next
	}
	return d.Allowed
}

// play plays requests on all counters, and prints what came of it.
func play(name string, clients int, requestsOf func(r *rand.Rand, request func(client int, at int64))) {
	configs := []rate.LimitConfig{{Algorithm: rate.SlidingWindowLog}, {}, {Segments: 6}, {Segments: 12}, {Segments: 60}}
	var counters []*counter
	for _, c := range configs {
		c.Requests, c.Period = requests, period
		l, err := rate.NewLimit(c)
		if err != nil {
			panic(err)
		}
		counters = append(counters, &counter{
			name: strings.TrimPrefix(l.String(), fmt.Sprintf("%d/1m ", requests)), limit: l,
			strict: make([]state, clients), plain: make([]state, clients), seen: make([][]int64, clients),
		})
	}
	n, over := int64(0), int64(0)
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC).UnixMicro()
	requestsOf(rand.New(rand.NewPCG(1, 34)), func(client int, at int64) {
		n++
		right := false
		for i, c := range counters {
			allowed := c.strict[client].decide(c.limit, start+at, true)
			switch {
			case i == 0:
				if right = allowed; !right {
					over++
				}
			case allowed && !right:
				c.letIn++
			case !allowed && right:
				c.turned++
			}
			if c.plain[client].decide(c.limit, start+at, false) {
				c.note(client, at)
			}
		}
	})
	fmt.Printf("%s: %d requests, of which %.3f %% over the limit\n\n", name, n, 100*float64(over)/float64(n))
	fmt.Println("| algorithm | wrongly admitted | wrongly rejected | the most in a period |\n| --- | --- | --- | --- |")
	for _, c := range counters {
		fmt.Printf("| %s | %.4f %% | %.4f %% | %d |\n", c.name, 100*float64(c.letIn)/float64(n), 100*float64(c.turned)/float64(n), c.most)
	}
	fmt.Println()
}

// note notes what was let through.
func (c *counter) note(client int, at int64) {
	times := c.seen[client]
	gone := 0
	for gone < len(times) && times[gone] <= at-micros {
		gone++
	}
	times = append(times[:copy(times, times[gone:])], at)
	c.seen[client] = times
	c.most = max(c.most, len(times))
}
