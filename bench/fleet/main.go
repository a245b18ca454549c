// Command fleet plays fleets of proxies that share one key's limit, on a virtual clock, around package core's algorithms and leases, and prints what they admit
// and how often they call the store: the tables of README.md. The store's part is leasetest.Ledger, which a test compares with the script that Redis runs.
//
//	go run ./fleet                      all tables, some minutes
//	go run ./fleet -nodes 3,30 -only    the first one, with other fleets
//	go run ./fleet -regions eventual    those about regions, one for each promise
//	go run ./fleet -regions lease
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/rate"
)

func main() {
	nodes := flag.String("nodes", "3,30,1000,10000", "the sizes of the fleets of the first table; empty: leave it out")
	only := flag.Bool("only", false, "print the first table only")
	regions := flag.String("regions", "", "print a table about regions only: eventual or lease")
	flag.Parse()
	if *regions != "" {
		if err := byRegions(os.Stdout, *regions); err != nil {
			fmt.Fprintln(os.Stderr, "fleet:", err)
			os.Exit(1)
		}
		return
	}
	if err := tables(os.Stdout, *nodes, *only); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func tables(out io.Writer, nodes string, only bool) error {
	sizes, err := sizesOf(nodes)
	if err != nil {
		return err
	}
	all := []func(io.Writer) error{func(out io.Writer) error { return bySize(out, sizes) }, byRate, byAlgorithm, byDistance, byLimit}
	if len(sizes) == 0 {
		all = all[1:]
	} else if only {
		all = all[:1]
	}
	for _, table := range all {
		if err := table(out); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	return nil
}

func sizesOf(list string) ([]int, error) {
	var sizes []int
	for _, text := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-nodes: %q is no number of nodes: want numbers from 1, such as 3,30", text)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// usual is the fleet that each table varies: a fixed window of 1000 requests a node in 10 s, twice as many requests as that, and a millisecond to the store
// and back.
func usual(nodes int) fleet {
	return fleet{
		nodes: nodes, limit: rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: int64(1000 * nodes), Period: 10 * time.Second},
		load: 2, trip: time.Millisecond, long: 30 * time.Second,
	}
}

// bySize has fleets of several sizes, with each shape of the demand.
func bySize(out io.Writer, sizes []int) error {
	fmt.Fprintln(out, "| nodes | demand | leases: beyond | lost | calls for 1000 admitted | of 1000 requests wait | a part for each node: lost |")
	fmt.Fprintln(out, "| ---: | --- | ---: | ---: | ---: | ---: | ---: |")
	for _, n := range sizes {
		for _, s := range shapes {
			f := usual(n)
			f.shape = s
			leased, err := f.play(lease)
			if err != nil {
				return err
			}
			apart, err := f.play(split)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "| %d | %s | %s | %s | %s | %s |\n", n, s, leased.beyondAndLost(), leased.callsForAdmitted(), leased.waiting(), percent(apart.lost, apart.could))
		}
	}
	return nil
}

// byRate has four nodes with a token bucket of a minute, and more and more requests.
func byRate(out io.Writer) error {
	fmt.Fprintln(out, "| requests a second on each node | demand ÷ limit | beyond | lost | calls for 1000 admitted | of 1000 requests wait |")
	fmt.Fprintln(out, "| ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, asked := range []float64{5, 50, 500, 5000} {
		for _, load := range []float64{0.8, 2} {
			f := usual(4)
			f.load, f.long = load, 2*time.Minute
			f.limit = rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: int64(4 * 60 * asked / load), Period: time.Minute}
			r, err := f.play(lease)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "| %g | %g | %s | %s | %s |\n", asked, load, r.beyondAndLost(), r.callsForAdmitted(), r.waiting())
		}
	}
	return nil
}

// byAlgorithm has 30 nodes with the other algorithms, at several loads.
func byAlgorithm(out io.Writer) error {
	fmt.Fprintln(out, "| algorithm | demand ÷ limit | beyond | lost | calls for 1000 admitted |")
	fmt.Fprintln(out, "| --- | ---: | ---: | ---: | ---: |")
	for _, c := range []rate.LimitConfig{
		{Algorithm: rate.FixedWindow}, {Algorithm: rate.SlidingWindowCounter}, {Algorithm: rate.SlidingWindowLog}, {Algorithm: rate.TokenBucket},
		{Algorithm: rate.TokenBucket, Interval: true},
	} {
		for _, load := range []float64{0.8, 2, 10} {
			f := usual(30)
			f.limit.Algorithm, f.limit.Interval, f.load = c.Algorithm, c.Interval, load
			r, err := f.play(lease)
			if err != nil {
				return err
			}
			name := f.limit.Algorithm.String()
			if f.limit.Interval {
				name += ", refill interval"
			}
			fmt.Fprintf(out, "| %s | %g | %s | %s |\n", name, load, r.beyondAndLost(), r.callsForAdmitted())
		}
	}
	return nil
}

// byDistance has 30 nodes whose store is far away.
func byDistance(out io.Writer) error {
	fmt.Fprintln(out, "| to the store and back | demand ÷ limit | beyond | lost | of 1000 requests wait |")
	fmt.Fprintln(out, "| ---: | ---: | ---: | ---: | ---: |")
	for _, trip := range []time.Duration{200 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 80 * time.Millisecond} {
		for _, load := range []float64{0.8, 2} {
			f := usual(30)
			f.trip, f.load = trip, load
			r, err := f.play(lease)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "| %v | %g | %s | %s |\n", trip, load, r.beyondAndLost(), r.waiting())
		}
	}
	return nil
}

// byLimit has 1000 nodes with limits that are small beside their number, and 30 with a bucket of one second's burst.
func byLimit(out io.Writer) error {
	fmt.Fprintln(out, "| nodes | limit | demand | beyond | lost | calls for 1000 admitted |")
	fmt.Fprintln(out, "| ---: | --- | --- | ---: | ---: | ---: |")
	small := func(nodes int, requests int64, algorithm rate.Algorithm, burst int64, s shape) error {
		f := usual(nodes)
		f.limit.Requests, f.limit.Algorithm, f.limit.Burst, f.shape = requests, algorithm, burst, s
		limit, err := rate.NewLimit(f.limit)
		if err != nil {
			return err
		}
		r, err := f.play(lease)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "| %d | %s | %s | %s | %s |\n", nodes, limit, s, r.beyondAndLost(), r.callsForAdmitted())
		return nil
	}
	for _, requests := range []int64{1000, 10_000, 100_000} {
		if err := small(1000, requests, rate.FixedWindow, 0, even); err != nil {
			return err
		}
	}
	for _, s := range []shape{even, onAndOff} {
		for _, burst := range []int64{3000, 30_000} {
			if err := small(30, 30_000, rate.TokenBucket, burst, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// beyondAndLost are two cells of a table: units that were admitted beyond the limit, and the part of what the limit allows that was rejected.
func (r result) beyondAndLost() string {
	return fmt.Sprintf("%d | %s", r.beyond, percent(r.lost, r.could))
}

func percent(n, of int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(1, of))) }

// callsForAdmitted has how many calls there are to the store for 1000 requests that are admitted; strict needs 1000 at least.
func (r result) callsForAdmitted() string { return perThousand(r.calls, r.admitted) }

// waiting has how many of 1000 requests wait for the store.
func (r result) waiting() string { return perThousand(r.waits, r.requests) }

func perThousand(n, of int) string { return fmt.Sprintf("%.1f", 1000*float64(n)/float64(max(1, of))) }
