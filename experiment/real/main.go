// Command real plays the first tier of the experiment: cells of load with real parts. They are clients that send when the trace says, two Caddys with
// Weir and a Traefik on one Redis, a Prometheus, advisors, and a service that sleeps. The traces are pieces of those of the simulation, so that what
// both find can be compared.
//
// It writes a file for each cell into a folder. A cell that has a file is not played again. ../README.md describes cells, arms and the files. A cell
// whose requests were sent too late is thrown away, and played again: so the machine must be quiet, and it helps to be root (see comeFirst). It runs on Linux, since each client has an
// address of its own in 127.1.0.0/16.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/proxyweir/weir/caddy"
	_ "github.com/proxyweir/weir/experiment/arms"
	"github.com/proxyweir/weir/experiment/progress"
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

func listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

func command(ctx context.Context) error {
	var (
		matrix  = flag.String("matrix", "full", "full: the pilot, what is explored, and then what the protocol has open; explored; small; or guard: the guard alone and others before a single Caddy")
		only    = flag.String("only", "", "play only cells whose descriptions have this text, such as \"bursts, token_bucket, guard,\"")
		pairs   = flag.Int("pairs", 3, "how many pairs, which are the runs of each cell")
		atATime = flag.Int("at-a-time", 2, "how many cells at a time")
		tries   = flag.Int("tries", 5, "how often a cell is played that is thrown away, or fails")
		within  = flag.Duration("for", 0, "begin no cell that would end after this time; 0: play all")
		out     = flag.String("out", "data/real", "the folder of the data")
		again   = flag.String("simulate", "", "play no cell, but those that are there in the simulation, and write what they come to into this file")
		list    = flag.Bool("list", false, "list the cells that are missing, and play none")
		left    = flag.Bool("left", false, "tell what is left of the pilot and the protocol, and play nothing")
		o       settings
	)
	flag.Float64Var(&o.calm, "calm", 15, "seconds of calm before each event, which do not count")
	flag.Float64Var(&o.length, "seconds", 0, "seconds of each event at most; 0: all")
	flag.IntVar(&o.windows, "windows", 0, "windows of a run of windows at most; 0: all")
	flag.Parse()
	if *again != "" {
		return simulate(*out, *again)
	}
	cells, err := cellsOf(*matrix, *pairs)
	if err != nil {
		return err
	}
	cells = missing(cells, *out)
	var others, protocol []open
	if *matrix == "full" || *matrix == "explored" {
		others = explored()
	}
	if *matrix == "full" {
		if protocol, err = openOf(checkout()); err != nil {
			return err
		}
	}
	if *left {
		tellLeft(os.Stdout, cells, others, protocol, *out, o, *atATime)
		return nil
	}
	for _, of := range slices.Concat(others, byTime(protocol, *out, o, *atATime)) {
		for _, c := range of.left(*out) {
			if !slices.Contains(cells, c) {
				cells = append(cells, c)
			}
		}
	}
	cells = slices.DeleteFunc(cells, func(c cell) bool { return !strings.Contains(c.String(), *only) })
	if *list {
		for _, c := range cells {
			fmt.Println(c)
		}
		return nil
	}
	o.origin = versions()
	debug.SetGCPercent(-1) // garbage is collected between cells, so that it delays no request
	debug.SetMemoryLimit(2 << 30)
	if err := comeFirst(); err != nil {
		fmt.Fprintln(os.Stderr, "real: clients and service do not come before other programs, so requests may be late: the scheduler:", err)
	}
	r := runner{settings: o, out: *out, tries: *tries, bar: progress.New(os.Stderr, len(cells))}
	if *within > 0 {
		r.until = time.Now().Add(*within)
	}
	return r.playAll(ctx, cells, *atATime)
}

// runner plays cells, and says what becomes of them.
type runner struct {
	settings settings
	out      string
	tries    int
	until    time.Time // no cell begins that would end after it, unless it is zero
	bar      *progress.Bar
}

// attempted is a cell with how often it was played.
type attempted struct {
	cell
	times int
}

// playAll plays cells in groups of so many at a time. It returns an error if some of them have no result that counts. A cell that is thrown away or fails
// is played again after all others.
func (r *runner) playAll(ctx context.Context, cells []cell, atATime int) error {
	var queue []attempted
	for _, c := range cells {
		queue = append(queue, attempted{cell: c})
	}
	failures := 0
	for len(queue) > 0 && ctx.Err() == nil {
		group, rest := r.next(queue, atATime)
		if len(group) == 0 {
			r.bar.Say("the time is up: %d cells are left, which the next run plays", len(queue))
			break
		}
		queue = rest
		runtime.GC()
		for i, counts := range r.playGroup(ctx, group) {
			c := group[i]
			c.times++
			switch {
			case counts:
				r.bar.Done()
			case c.times < r.tries:
				queue = append(queue, c)
			default:
				failures++
				r.bar.Done()
			}
		}
	}
	if failures > 0 {
		return fmt.Errorf("%d cells have no result that counts: run this again to repeat them", failures)
	}
	return ctx.Err()
}

// next returns the cells that are played next at the same time, and the others. They are the first that end in time; none, if none does.
func (r *runner) next(queue []attempted, atATime int) (group, rest []attempted) {
	for _, c := range queue {
		fits := r.until.IsZero() || time.Now().Add(r.settings.takes(c.cell)).Before(r.until)
		if fits && (len(group) == 0 || len(group) < atATime && c.goesWith(group[0].cell)) {
			group = append(group, c)
		} else {
			rest = append(rest, c)
		}
	}
	return group, rest
}

// playGroup plays cells at the same time, and returns which of them count.
func (r *runner) playGroup(ctx context.Context, group []attempted) []bool {
	counts := make([]bool, len(group))
	t := newTogether(len(group))
	var cells sync.WaitGroup
	for i, c := range group {
		cells.Go(func() { counts[i] = r.play(ctx, c, t) })
	}
	cells.Wait()
	return counts
}

// play plays a cell, and reports whether it counts.
func (r *runner) play(ctx context.Context, c attempted, t *together) bool {
	var found *record
	var seconds []second
	var err error
	if c.Scenario == effectScenario {
		found, err = playEffect(ctx, c.cell, r.settings, t)
	} else {
		found, seconds, err = play(ctx, c.cell, r.settings, t)
	}
	if ctx.Err() != nil {
		return false
	}
	name := c.file(r.out)
	if err == nil && found.Thrown {
		name = unused(name + ".thrown-")
	}
	if err == nil {
		err = write(name, found, seconds)
	}
	switch {
	case err != nil:
		r.bar.Say("%v: failed, and will be repeated: %v", c.cell, err)
	case found.Thrown && found.windows != nil:
		r.bar.Say("%v: thrown away, and will be repeated: in more than a quarter of its blocks requests were sent too late", c.cell)
	case found.Thrown && found.Lateness < milliseconds(mostLateness):
		r.bar.Say("%v: thrown away, and will be repeated: the machine was not quiet, or too slow: the proxies waited for a core %.1f s for each that they had one, and one of them had or wanted it for %.0f %% of the time",
			c.cell, wait(found.Used), 100*busy(found.Used, found.Event))
	case found.Thrown:
		r.bar.Say("%v: thrown away, and will be repeated: 99.9 %% of the requests were sent within %.1f ms only", c.cell, found.Lateness)
	case found.effects != nil:
		r.bar.Say("%v: %d of %d changes were in force before the next one", c.cell, found.tookEffect(), len(found.effects))
		return true
	default:
		r.bar.Say("%v: good %.1f %%, lateness %.1f ms", c.cell, 100*float64(found.Good)/float64(max(1, found.Legitimate)), found.Lateness)
		return true
	}
	return false
}

// unused returns a name with the first number behind it that no file has.
func unused(name string) string {
	for n := 1; ; n++ {
		if _, err := os.Stat(fmt.Sprint(name, n)); err != nil {
			return fmt.Sprint(name, n)
		}
	}
}
