// Command traefikbench measures what a rate limiter adds to a request through Traefik. It compares Weir as a plugin, Traefik's own
// rateLimit, and a plugin that does almost nothing, which shows the cost of the interpreter alone.
//
// It starts one Traefik (TRAEFIK_BIN, or ../bin/traefik) with a core to itself. It loads its routers one after the other from the other cores,
// where the service and Redis run, too: for a moment each and many rounds, so that other work of the machine affects all alike. It reads the
// CPU time of the processes from /proc, so it runs on Linux only. Run it in the bench module's folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"syscall"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 21, "rounds of each scenario")
	length := flag.Duration("time", 500*time.Millisecond, "of the load on one scenario in one round")
	only := flag.String("only", "", "run the scenarios alone whose name this regular expression finds")
	cores := flag.Int("cores", 1, "how many cores Traefik has to itself; 0: it shares all of them with load, service and Redis")
	profiles := flag.String("profile", "", "folder for a CPU profile of Traefik in each scenario, taken when the rounds are over")
	flag.Parse()
	log.SetFlags(0)
	pattern, err := regexp.Compile(*only)
	if err != nil {
		log.Fatal("-only: ", err)
	}
	list := selected(pattern)
	if len(list) == 0 {
		log.Fatalf("-only %s finds none of the scenarios", *only)
	}
	if *rounds < 1 || *length <= 0 {
		log.Fatal("-rounds and -time must be above 0")
	}
	if *cores < 0 || *cores > 0 && *cores >= runtime.NumCPU() {
		log.Printf("Traefik shares all cores: there are %d", runtime.NumCPU())
		*cores = 0
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()

	work, err := os.MkdirTemp("", "traefikbench")
	if err != nil {
		log.Fatal(err)
	}
	err = run(ctx, work, list, *cores, *rounds, *length, *profiles)
	os.RemoveAll(work)
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, work string, list []scenario, cores, rounds int, length time.Duration, profiles string) error {
	if err := leaveCores(cores); err != nil {
		return err
	}
	b, err := startBench(work, list, cores)
	if err != nil {
		return err
	}
	defer b.stop()
	version, err := b.version()
	if err != nil {
		return err
	}
	for _, s := range list {
		if err := b.expect(s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	where := fmt.Sprintf("with %d of %d cores to itself; load, service and Redis on the others", cores, runtime.NumCPU())
	if cores == 0 {
		where = fmt.Sprintf("on the %d cores that load, service and Redis are on too", runtime.NumCPU())
	}
	fmt.Printf("Traefik %s, %s; %d connections; %d rounds of %s. Medians, and in brackets the quartiles; ratios and differences are those within a round.\n\n", version, where, connections, rounds, length)

	results := make([][]figures, len(list))
	for round := -1; round < rounds; round++ {
		for k := range list {
			i := (k + max(round, 0)*len(list)/rounds) % len(list)
			turn, atLeast := length, 0
			if round < 0 { // a warm-up, in which every client makes two requests
				turn, atLeast = warmUp, 2*each
			}
			f, err := b.measure(ctx, list[i], turn, atLeast)
			if err != nil {
				return fmt.Errorf("%s: %w", list[i].name, err)
			}
			if round >= 0 {
				results[i] = append(results[i], f)
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
	}
	print(list, results)
	if profiles == "" {
		return nil
	}
	if err := os.MkdirAll(profiles, 0o755); err != nil {
		return err
	}
	for _, s := range list {
		if err := b.profile(ctx, s, length, filepath.Join(profiles, s.name+".prof")); err != nil {
			return fmt.Errorf("profile of %s: %w", s.name, err)
		}
	}
	return nil
}

const warmUp = time.Second

// figures are the results of one turn.
type figures struct {
	rate   float64 // requests per second
	micros float64 // Traefik's CPU time per request
	redis  float64 // that of Redis
}

// measure loads a scenario for some time.
func (b *bench) measure(ctx context.Context, s scenario, length time.Duration, atLeast int) (figures, error) {
	l, err := dial(b.addresses[s.name], s)
	if err != nil {
		return figures{}, err
	}
	defer l.close()
	var before, after [2]time.Duration
	if before, err = b.cpu(); err != nil {
		return figures{}, err
	}
	requests, took, err := l.run(ctx, length, atLeast)
	if err != nil {
		return figures{}, err
	}
	if after, err = b.cpu(); err != nil {
		return figures{}, err
	}
	perRequest := func(i int) float64 { return float64((after[i] - before[i]).Microseconds()) / float64(requests) }
	return figures{rate: float64(requests) / took.Seconds(), micros: perRequest(0), redis: perRequest(1)}, nil
}

func print(list []scenario, results [][]figures) {
	base := make(map[string][]figures)
	for i, s := range list {
		base[s.name] = results[i]
	}
	fmt.Print("| | limit | requests a second | × no middleware | Traefik's CPU µs a request | more than no middleware | Redis's | × its like | must | CPU, × its like |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for i, s := range list {
		without, like := base[s.base()], base[s.like]
		var rates, ratios, micros, more, redis, alike, alikeMicros []float64
		for round, f := range results[i] {
			rates = append(rates, f.rate)
			ratios = append(ratios, f.rate/without[round].rate)
			micros = append(micros, f.micros)
			more = append(more, f.micros-without[round].micros)
			redis = append(redis, f.redis)
			if like != nil {
				alike = append(alike, f.rate/like[round].rate)
				alikeMicros = append(alikeMicros, f.micros/like[round].micros)
			}
		}
		inRedis, ofLike, must, microsOfLike := "", "", "", ""
		if s.redis {
			inRedis = spread("%.1f", redis)
		}
		if like != nil {
			ofLike, microsOfLike = s.like+": "+spread("%.3f", alike), spread("%.3f", alikeMicros)
		}
		if s.least > 0 {
			must = fmt.Sprintf("%.2f", s.least)
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", s.title, s.limit, spread("%.0f", rates), spread("%.3f", ratios), spread("%.1f", micros), spread("%+.1f", more), inRedis, ofLike, must, microsOfLike)
	}
	fmt.Print("\n" + legend)
}

// spread writes the median and the quartiles.
func spread(format string, values []float64) string {
	sorted := append([]float64(nil), values...)
	sort.Float64s(sorted)
	n := len(sorted)
	return fmt.Sprintf(format+" ("+format+"–"+format+")", sorted[n/2], sorted[n/4], sorted[n-1-n/4])
}
