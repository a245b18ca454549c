// Command caddybench measures what a rate limiter adds to the CPU time that Caddy spends on a request.
//
// It builds three Caddys (cmd/plain, cmd/weir, cmd/ratelimit), and starts each on loopback with one core to itself. It loads them one after
// the other from another core, for some seconds each and several rounds, so that other work of the machine affects all alike. It divides the
// CPU time of the process, from /proc, by the number of answered requests. So it runs on Linux only. Run it in the bench module's folder.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 9, "rounds of each scenario")
	length := flag.Duration("length", 2*time.Second, "of the load on one Caddy in one round, in whole seconds")
	only := flag.String("only", "", "run this scenario alone")
	dir := flag.String("bin", "", "folder with the binaries plain, weir and ratelimit; empty: build them")
	flag.StringVar(&earlier, "before", "", "binary of a Caddy with an earlier Weir, which then takes part in place of caddy-ratelimit")
	builtin := flag.Bool("builtin", false, "use the built-in load generator even where wrk is there")
	flag.Parse()
	log.SetFlags(0)

	work, err := os.MkdirTemp("", "caddybench")
	if err != nil {
		log.Fatal(err)
	}
	err = run(work, *dir, *only, *rounds, *length, *builtin)
	os.RemoveAll(work)
	if err != nil {
		log.Fatal(err)
	}
}

func run(work, bin, only string, rounds int, length time.Duration, builtin bool) error {
	if bin == "" {
		bin = filepath.Join(work, "bin") + string(filepath.Separator)
		fmt.Fprintln(os.Stderr, "building three Caddys")
		build := exec.Command("go", "build", "-o", bin, "./cmd/...")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building the Caddys (run this in the bench module's folder): %w", err)
		}
	}
	load := pickLoad(work, builtin)
	fmt.Printf("Load by %s, %d connections; %d rounds of %s. Medians, and in brackets the least and the greatest.\n\n", load.name, connections, rounds, length)
	for _, s := range scenarios {
		if only != "" && only != s.name {
			continue
		}
		results, err := measure(s, work, bin, load, rounds, length)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		print(s, results)
	}
	if only != "" && only != "deferred" {
		return nil
	}
	return measureDeferred(work, filepath.Join(bin, "weir"), rounds, length)
}

// measure starts the Caddy of every contestant, and loads them one after the other. It returns the figures of each, by round.
func measure(s scenario, work, bin string, load generator, rounds int, length time.Duration) (results [][]figures, err error) {
	if s.redis || s.defers {
		stop, err := startRedis()
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	if s.proxied {
		stop, err := startUpstream(filepath.Join(bin, plain), filepath.Join(work, "upstream.caddyfile"))
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	contestants := s.contestants()
	servers := make([]*server, len(contestants))
	defer func() {
		for _, srv := range servers {
			if srv != nil {
				srv.stop()
			}
		}
	}()
	for i, c := range contestants {
		binary := c.binary
		if !filepath.IsAbs(binary) {
			binary = filepath.Join(bin, binary)
		}
		servers[i], err = start(binary, s.caddyfile(c), filepath.Join(work, fmt.Sprintf("%s-%d.caddyfile", s.name, i)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		want := 200
		if c.binary != plain {
			want = s.status
		}
		if err := servers[i].expect(want); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	results = make([][]figures, len(contestants))
	for round := -1; round < rounds; round++ {
		for k := range contestants {
			i := (k + round + len(contestants)) % len(contestants)
			seconds := length
			if round < 0 { // a warm-up
				seconds = time.Second
			}
			before, err := servers[i].cpu()
			if err != nil {
				return nil, err
			}
			done, err := load.run(servers[i].address, s.keys, seconds)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", contestants[i].name, err)
			}
			after, err := servers[i].cpu()
			if err != nil {
				return nil, err
			}
			if done.requests == 0 || (done.rejected > 0) != (contestants[i].binary != plain && s.status == 429) {
				return nil, fmt.Errorf("%s: %d requests of which %d were not answered with success", contestants[i].name, done.requests, done.rejected)
			}
			if round >= 0 {
				results[i] = append(results[i], figures{
					micros: float64((after - before).Microseconds()) / float64(done.requests),
					rate:   float64(done.requests) / seconds.Seconds(),
				})
			}
		}
		fmt.Fprintf(os.Stderr, "%s: round %d of %d\n", s.name, round+1, rounds)
	}
	return results, nil
}

// figures are the results of one round.
type figures struct {
	micros float64 // CPU time per request
	rate   float64 // requests per second
}

func print(s scenario, results [][]figures) {
	fmt.Printf("%s\n\n| | CPU µs a request | × no limiter | requests a second | × no limiter |\n| --- | --- | --- | --- | --- |\n", s.title)
	for i, c := range s.contestants() {
		var micros, ratios, rates, speeds []float64
		for round, f := range results[i] {
			micros = append(micros, f.micros)
			ratios = append(ratios, f.micros/results[0][round].micros)
			rates = append(rates, f.rate)
			speeds = append(speeds, f.rate/results[0][round].rate)
		}
		fmt.Printf("| %s | %s | %s | %s | %s |\n", c.name, spread("%.2f", micros), spread("%.3f", ratios), spread("%.0f", rates), spread("%.3f", speeds))
	}
	fmt.Println()
}

// spread writes the median and the extremes.
func spread(format string, values []float64) string {
	sorted := append([]float64(nil), values...)
	sort.Float64s(sorted)
	n := len(sorted)
	return fmt.Sprintf(format+" ("+format+"–"+format+")", sorted[n/2], sorted[0], sorted[n-1])
}
