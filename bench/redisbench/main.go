// Command redisbench measures decisions through Redis. It compares them with redis-benchmark running the same script, and with
// go-redis/redis_rate in the same program.
//
// It starts a redis-server of its own on loopback, without persistence. The subjects take turns, for some seconds each and several rounds, so
// that other work of the machine affects all alike.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
	client "github.com/proxyweir/weir/redis/goredis"
)

const (
	callers  = 64
	keys     = 100_000
	requests = 1_000_000 // a limit that nobody exceeds
)

func main() {
	log.SetFlags(0)
	rounds := flag.Int("rounds", 5, "rounds")
	length := flag.Duration("length", 3*time.Second, "of each subject in a round")
	only := flag.String("only", "", "the subjects with this in their names alone")
	pool := flag.Int("pool", 0, "connections; 0: the default")
	profile := flag.String("cpuprofile", "", "write a CPU profile to this file")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			log.Fatal(err)
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			log.Fatal(err)
		}
		defer pprof.StopCPUProfile()
	}
	if err := run(*rounds, *length, *pool, *only); err != nil {
		log.Fatal(err)
	}
}

// subject makes decisions. run does that for so long, and returns the number of decisions per second.
type subject struct {
	name string
	run  func(time.Duration) (float64, error)
}

func run(rounds int, length time.Duration, pool int, only string) error {
	addr, stop, err := startRedis()
	if err != nil {
		return err
	}
	defer stop()
	var subjects []subject
	names := []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter"}
	for i, name := range names {
		limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.Algorithm(i + 1), Requests: requestsOf(i + 1), Period: time.Minute})
		if err != nil {
			return err
		}
		subjects = append(subjects, weir(addr, pool, name, limit, 1))
		if name == "sliding_window_counter" || name == "token_bucket" {
			subjects = append(subjects, weir(addr, pool, name, limit, 4))
		}
		bench, err := redisBenchmark(addr, name, limit)
		if err != nil {
			return err
		}
		subjects = append(subjects, bench)
	}
	subjects = append(subjects, redisRate(addr))

	subjects = slices.DeleteFunc(subjects, func(s subject) bool { return !strings.Contains(s.name, only) })
	rates := make([][]float64, len(subjects))
	for round := range rounds {
		for k := range subjects {
			i := (k + round) % len(subjects)
			rate, err := subjects[i].run(length)
			if err != nil {
				return fmt.Errorf("%s: %w", subjects[i].name, err)
			}
			rates[i] = append(rates[i], rate)
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
	}
	fmt.Printf("Decisions a second, %d callers, %d keys. Medians of %d rounds, and in brackets the least and the greatest.\n\n", callers, keys, rounds)
	fmt.Printf("| | decisions a second |\n| --- | --- |\n")
	for i, s := range subjects {
		fmt.Printf("| %s | %s |\n", s.name, spread("%.0f", rates[i]))
	}
	fmt.Printf("\n| | ratio |\n| --- | --- |\n")
	for i, s := range subjects {
		for j, other := range subjects {
			if comparable(s.name, other.name) {
				fmt.Printf("| %s to %s | %s |\n", s.name, other.name, spread("%.2f", quotients(rates[i], rates[j])))
			}
		}
	}
	if only != "" {
		return nil
	}
	fmt.Println()
	if err := printMemory(addr); err != nil {
		return err
	}
	if err := printFlood(addr); err != nil {
		return err
	}
	if err := printLogs(addr); err != nil {
		return err
	}
	return printDown(rounds, length)
}

// comparable reports whether the table of ratios compares two subjects.
func comparable(name, other string) bool {
	algorithm, isWeir := strings.CutPrefix(name, "Weir, ")
	one, several := strings.CutSuffix(name, ", 4 rules")
	switch {
	case several:
		return other == one
	case !isWeir:
		return false
	}
	return other == "redis-benchmark, "+algorithm || other == "redis_rate/v10"
}

// quotients returns the ratios of the figures, by round.
func quotients(a, b []float64) []float64 {
	q := make([]float64, len(a))
	for i := range a {
		q[i] = a[i] / b[i]
	}
	return q
}

// spread writes the median and the extremes.
func spread(format string, values []float64) string {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return fmt.Sprintf(format+" ("+format+"–"+format+")", sorted[n/2], sorted[0], sorted[n-1])
}

func requestsOf(algorithm int) int64 {
	if rate.Algorithm(algorithm) == rate.SlidingWindowLog {
		return rate.MaxLogRequests
	}
	return requests
}

func startRedis() (addr string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "redisbench")
	if err != nil {
		return "", nil, err
	}
	const port = "17399"
	server := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir)
	if err := server.Start(); err != nil {
		return "", nil, fmt.Errorf("redis-server (apt-get install redis-server): %w", err)
	}
	stop = func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		os.RemoveAll(dir)
	}
	addr = "127.0.0.1:" + port
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	defer c.Close()
	for range 100 {
		if c.Ping(context.Background()).Err() == nil {
			return addr, stop, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	return "", nil, fmt.Errorf("redis-server does not answer on %s", addr)
}

// decide makes decisions by 64 callers for so long.
func decide(length time.Duration, one func(random *rand.Rand) error) (float64, error) {
	var count atomic.Int64
	var failure atomic.Value
	var done sync.WaitGroup
	end := time.Now().Add(length)
	begin := time.Now()
	for range callers {
		done.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
			n := int64(0)
			for time.Now().Before(end) {
				if err := one(random); err != nil {
					failure.Store(err)
					return
				}
				n++
			}
			count.Add(n)
		})
	}
	done.Wait()
	if err, _ := failure.Load().(error); err != nil {
		return 0, err
	}
	return float64(count.Load()) / time.Since(begin).Seconds(), nil
}

// weir decides through the store, under so many rules for each request.
func weir(addr string, pool int, name string, limit *rate.Limit, rules int) subject {
	c, err := client.New(client.Config{Addresses: []string{addr}, PoolSize: pool, Timeout: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	store, err := redis.NewStore(redis.Config{Client: c, Prefix: fmt.Sprintf("%s%d:", name, rules)})
	if err != nil {
		log.Fatal(err)
	}
	var opened []*core.Rule
	for i := range rules {
		rule, err := core.NewRule(core.RuleConfig{Name: "rule" + strconv.Itoa(i), KeySpec: "client_ip", Limit: limit})
		if err != nil {
			log.Fatal(err)
		}
		if err := store.Open(rule); err != nil {
			log.Fatal(err)
		}
		opened = append(opened, rule)
	}
	title := "Weir, " + name
	if rules > 1 {
		title += fmt.Sprintf(", %d rules", rules)
	}
	pooled := sync.Pool{New: func() any {
		checks := make([]core.Check, rules)
		return &checks
	}}
	return subject{title, func(length time.Duration) (float64, error) {
		return decide(length, func(random *rand.Rand) error {
			key := "192.0.2." + strconv.Itoa(random.IntN(keys))
			room := pooled.Get().(*[]core.Check)
			checks := *room
			for i := range checks {
				checks[i] = core.Check{Rule: opened[i], Key: key, Cost: 1}
			}
			err := store.Decide(checks, false)
			pooled.Put(room)
			return err
		})
	}}
}

// redisRate decides through redis_rate.
func redisRate(addr string) subject {
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	limiter := redis_rate.NewLimiter(c)
	limit := redis_rate.PerMinute(requests)
	ctx := context.Background()
	return subject{"redis_rate/v10", func(length time.Duration) (float64, error) {
		return decide(length, func(random *rand.Rand) error {
			_, err := limiter.Allow(ctx, "192.0.2."+strconv.Itoa(random.IntN(keys)), limit)
			return err
		})
	}}
}

// recorder is a client that keeps calls instead of making them.
type recorder struct {
	call   redis.Call
	server *redis.Server
}

func (r *recorder) Server(string) (*redis.Server, error) { return r.server, nil }
func (r *recorder) Servers() []*redis.Server             { return []*redis.Server{r.server} }
func (r *recorder) Timeout() time.Duration               { return time.Second }
func (r *recorder) Background() time.Duration            { return r.Timeout() }
func (r *recorder) Cluster() bool                        { return false }
func (r *recorder) Name() string                         { return "recorder" }
func (r *recorder) Close() error                         { return nil }
func (r *recorder) Run(c *redis.Call) error {
	r.call = *c
	c.Reply = append(c.Reply[:0], 0, 0, 0, 0)
	return nil
}

// capture returns the call that the store would make for a request under a limit of that algorithm.
func capture(prefix string, limit *rate.Limit) (redis.Call, error) {
	r := &recorder{}
	r.server = redis.NewServer("recorder", r)
	store, err := redis.NewStore(redis.Config{Client: r, Prefix: prefix})
	if err != nil {
		return redis.Call{}, err
	}
	rule, err := core.NewRule(core.RuleConfig{Name: "rule0", KeySpec: "client_ip", Limit: limit})
	if err != nil {
		return redis.Call{}, err
	}
	if err := store.Open(rule); err != nil {
		return redis.Call{}, err
	}
	err = store.Decide([]core.Check{{Rule: rule, Key: "k", Cost: 1}}, false)
	return r.call, err
}

// literal returns Lua that sets ARGV to an argument, since redis-benchmark cannot send its zero bytes.
func literal(argument string) string {
	text := "local ARGV = {'"
	for _, b := range []byte(argument) {
		text += fmt.Sprintf("\\%03d", b)
	}
	return text + "'}\n"
}

// redisBenchmark runs the script of a limit with the argument that the store would send. The argument is in the script; a text of the same
// length is sent in its place.
func redisBenchmark(addr, name string, limit *rate.Limit) (subject, error) {
	call, err := capture("bench"+name+":", limit)
	if err != nil {
		return subject{}, err
	}
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	defer c.Close()
	sha, err := c.ScriptLoad(context.Background(), literal(call.Args[0])+call.Script.Source).Result()
	if err != nil {
		return subject{}, err
	}
	key := call.Keys[0]
	open, end := strings.Index(key, "{"), strings.Index(key, "}")
	key = key[:open+1] + "0123456789__rand_int__"[:end-open-1] + key[end:] // of the same length
	_, port, _ := strings.Cut(addr, ":")
	return subject{"redis-benchmark, " + name, func(length time.Duration) (float64, error) {
		n := int(length.Seconds() * 120_000)
		out, err := exec.Command("redis-benchmark", "-p", port, "-c", "4", "-P", "16", "-n", strconv.Itoa(n), "-r", strconv.Itoa(keys),
			"--csv", "evalsha", sha, "1", key, strings.Repeat("x", len(call.Args[0]))).CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("%w: %s", err, out)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		fields := strings.Split(lines[len(lines)-1], `","`)
		if len(fields) < 2 {
			return 0, fmt.Errorf("redis-benchmark said %q", out)
		}
		return strconv.ParseFloat(strings.Trim(fields[1], `"`), 64)
	}}, nil
}
