// Command real plays situations of load with real parts: a service that sleeps, a Caddy with Weir's guard or something else before it, and clients
// that send when the trace says. The traces are pieces of those of the simulation, so that what both find can be compared.
//
// It adds a line of JSON for each run to a file, and in the end it prints a table. A run that the file has is not played again. With -table it
// plays nothing, and prints the table of the file. The machine must be quiet: a run in which a request was sent, or an answer given, 50 ms late is
// marked as disturbed, and played again. It runs on Linux, since each client has an address of its own in 127.1.0.0/16.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/proxyweir/weir/caddy"
	_ "github.com/proxyweir/weir/experiment/arms"
)

// beCaddy makes this process Caddy if its first argument says so.
func beCaddy() {
	if len(os.Args) > 1 && os.Args[1] == caddyWord {
		os.Args = os.Args[1:]
		caddycmd.Main()
		os.Exit(0)
	}
}

func main() {
	beCaddy()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "real:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context) error {
	var (
		situations = flag.String("situations", "steady,bursts,crowd,abuse,slow,slow at once", "which situations")
		withArms   = flag.String("arms", "none,cap,failsafe,guard", "what stands in front of the service; there are failsafe queue and failsafe fair, too")
		sigmas     = flag.String("sigmas", "0,1", "0: exponential service times; else log-normal ones, of which this is the standard deviation of the logarithm")
		pairs      = flag.Int("pairs", 10, "how many runs of each")
		atATime    = flag.Int("at-a-time", 4, "how many runs at a time")
		tries      = flag.Int("tries", 5, "how often a run is played that is disturbed")
		out        = flag.String("out", "runs.jsonl", "the file of the runs")
		table      = flag.Bool("table", false, "print the table of the file alone")
		o          settings
	)
	flag.Float64Var(&o.calm, "calm", 10, "seconds of calm before each event, which do not count")
	flag.Float64Var(&o.length, "seconds", 0, "seconds of each event at most; 0: all")
	flag.BoolVar(&o.watch, "watch", false, "keep what happens in each second, and what the guard is at then")
	flag.Parse()
	known, err := read(*out)
	if err != nil {
		return err
	}
	if !*table {
		var runs []run
		for seed := range uint64(*pairs) {
			for _, arm := range strings.Split(*withArms, ",") {
				for _, sigma := range strings.Split(*sigmas, ",") {
					n, err := strconv.ParseFloat(sigma, 64)
					if err != nil {
						return err
					}
					for _, s := range strings.Split(*situations, ",") { // next to each other, since some have much more load than others
						runs = append(runs, run{Situation: s, Sigma: n, Seed: seed + 1, Arm: arm})
					}
				}
			}
		}
		if err := playAll(ctx, missing(runs, known), o, *atATime, *tries, *out); err != nil {
			return err
		}
		if known, err = read(*out); err != nil {
			return err
		}
	}
	fmt.Print(tableOf(known))
	return nil
}

// missing returns the runs that are not known yet.
func missing(runs []run, known []result) []run {
	return slices.DeleteFunc(runs, func(r run) bool {
		return slices.ContainsFunc(known, func(k result) bool { return k.run == r && !k.Disturbed })
	})
}

// job is a run with all that can be known before it.
type job struct {
	run
	with      prepared
	simulated float64
}

// prepareAll makes jobs of runs, all before the first, since that takes a core for a while.
func prepareAll(runs []run, o settings) ([]job, error) {
	var jobs []job
	shared := map[run]prepared{}
	for _, r := range runs {
		key := run{r.Situation, r.Sigma, r.Seed, ""}
		with, ok := shared[key]
		if !ok {
			var err error
			if with, err = prepare(r, o); err != nil {
				return nil, err
			}
			shared[key] = with
		}
		jobs = append(jobs, job{r, with, simulated(with.situation, r)})
	}
	return jobs, nil
}

// playAll plays runs, and adds each result to a file.
func playAll(ctx context.Context, runs []run, o settings, atATime, tries int, out string) error {
	file, err := os.OpenFile(out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var workers sync.WaitGroup
	jobs, err := prepareAll(runs, o)
	if err != nil {
		return err
	}
	next := make(chan job)
	for range atATime {
		workers.Go(func() {
			for j := range next {
				for range tries {
					found, err := play(ctx, j.run, j.with, o)
					if err != nil {
						cancel(fmt.Errorf("%v: %w", j.run, err))
						break
					}
					found.Simulated = j.simulated
					mu.Lock()
					err = json.NewEncoder(file).Encode(found)
					mu.Unlock()
					if err != nil {
						cancel(err)
						break
					}
					fmt.Fprintf(os.Stderr, "%v: good %.1f %%, lag %.0f and %.0f ms%s\n", j.run, found.Good, found.Lag, found.ServiceLag, map[bool]string{true: ", disturbed"}[found.Disturbed])
					if !found.Disturbed {
						break
					}
				}
			}
		})
	}
	for _, j := range jobs {
		select {
		case next <- j:
		case <-ctx.Done():
		}
		sleepUntil(ctx, time.Now().Add(time.Second/2)) // so that not all begin at once
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

// read returns the results of a file; none if there is no such file.
func read(name string) ([]result, error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var list []result
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, r)
	}
	return list, lines.Err()
}
