package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
	client "github.com/proxyweir/weir/redis/goredis"
)

// single is a store with one rule.
type single struct {
	store *redis.Store
	rule  *core.Rule
}

func newSingle(addr, prefix string, c rate.LimitConfig) (*single, error) {
	limit, err := rate.NewLimit(c)
	if err != nil {
		return nil, err
	}
	rule, err := core.NewRule(core.RuleConfig{Name: "rule0", KeySpec: "client_ip", Limit: limit})
	if err != nil {
		return nil, err
	}
	conn, err := client.New(client.Config{Addresses: []string{addr}, Timeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	store, err := redis.NewStore(redis.Config{Client: conn, Prefix: prefix})
	if err != nil {
		return nil, err
	}
	return &single{store, rule}, store.Open(rule)
}

func (s *single) decide(key string) (rate.Decision, error) {
	checks := []core.Check{{Rule: s.rule, Key: key, Cost: 1}}
	err := s.store.Decide(checks, false)
	return checks[0].Decision, err
}

// printMemory prints the memory of a key in Redis.
func printMemory(addr string) error {
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	defer c.Close()
	fmt.Printf("Bytes a key in Redis (MEMORY USAGE), its name of 46 bytes included.\n\n| algorithm | bytes |\n| --- | --- |\n")
	for _, m := range []struct {
		algorithm rate.Algorithm
		requests  int64
		made      []int
	}{
		{rate.TokenBucket, 1000, []int{1}},
		{rate.LeakyBucket, 1000, []int{1}},
		{rate.FixedWindow, 1000, []int{1}},
		{rate.SlidingWindowCounter, 1000, []int{1}},
		{rate.SlidingWindowLog, 1000, []int{1, 100, 1000}},
		{rate.SlidingWindowLog, 100_000, []int{10_000, 100_000}},
	} {
		prefix := fmt.Sprintf("m%d-%d:", m.algorithm, m.requests)
		s, err := newSingle(addr, prefix, rate.LimitConfig{Algorithm: m.algorithm, Requests: m.requests, Period: time.Hour})
		if err != nil {
			return err
		}
		made := 0
		for _, n := range m.made {
			for ; made < n; made++ {
				if _, err := s.decide("192.0.2.1"); err != nil {
					return err
				}
			}
			names, err := c.Keys(context.Background(), prefix+"{*:rule0:*").Result()
			if err != nil || len(names) != 1 {
				return fmt.Errorf("keys of %s: %v, %v", prefix, names, err)
			}
			bytes, err := c.MemoryUsage(context.Background(), names[0], 0).Result()
			if err != nil {
				return err
			}
			fmt.Printf("| %s, after %d requests | %d |\n", m.algorithm, n, bytes)
		}
		if err := s.store.Close(); err != nil {
			return err
		}
	}
	fmt.Println()
	return nil
}

// printFlood prints how many commands a flood of one client costs Redis.
func printFlood(addr string) error {
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	defer c.Close()
	s, err := newSingle(addr, "flood:", rate.LimitConfig{Requests: 100, Period: time.Minute})
	if err != nil {
		return err
	}
	defer s.store.Close()
	before, err := calls(c)
	if err != nil {
		return err
	}
	const length = 5 * time.Second
	rate, err := decide(length, func(*rand.Rand) error {
		_, err := s.decide("192.0.2.1")
		return err
	})
	if err != nil {
		return err
	}
	after, err := calls(c)
	if err != nil {
		return err
	}
	fmt.Printf("A flood of one client, of 100 a minute, for %s: %.0f requests a second, %.1f commands a second reach Redis.\n\n",
		length, rate, float64(after-before)/length.Seconds())
	return nil
}

// calls returns how often the server has run a script.
func calls(c *goredis.Client) (int, error) {
	stats, err := c.Info(context.Background(), "commandstats").Result()
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
	number, _, _ := strings.Cut(rest, ",")
	return strconv.Atoi(number)
}

// printDown prints the time of a decision when Redis is down, next to that of one in memory.
func printDown(rounds int, length time.Duration) error {
	s, err := newSingle("127.0.0.1:1", "down:", rate.LimitConfig{Requests: requests, Period: time.Minute}) // nothing listens there
	if err != nil {
		return err
	}
	defer s.store.Close()
	local := memory.New(memory.Config{})
	withRedis := core.NewLimiter(s.store)
	withRedis.FallBack(local, 3)
	limit := s.rule.Limit
	rule, err := core.NewRule(core.RuleConfig{Name: "down", KeySpec: "client_ip", Limit: limit})
	if err != nil {
		return err
	}
	if err := withRedis.Open(rule); err != nil {
		return err
	}
	alone := core.NewLimiter(memory.New(memory.Config{}))
	inMemory, err := core.NewRule(core.RuleConfig{Name: "down", KeySpec: "client_ip", Limit: limit})
	if err != nil {
		return err
	}
	if err := alone.Open(inMemory); err != nil {
		return err
	}
	var down, up []float64
	for range rounds {
		down = append(down, median(withRedis, rule, length))
		up = append(up, median(alone, inMemory, length))
	}
	fmt.Printf("Median time of a decision with Redis down, one caller: %s µs; of one in memory: %s µs.\n", spread("%.2f", down), spread("%.2f", up))
	return nil
}

// median returns the median time of a decision, in microseconds, including the time to read the clock.
func median(l *core.Limiter, rule *core.Rule, length time.Duration) float64 {
	var took []float64
	checks := make([]core.Check, 1)
	var v core.Verdict
	for end := time.Now().Add(length); time.Now().Before(end); {
		checks[0] = core.Check{Rule: rule, Key: "192.0.2." + strconv.Itoa(rand.IntN(keys)), Cost: 1}
		begin := time.Now()
		_ = l.Decide(checks, false, &v) // measures the error
		took = append(took, float64(time.Since(begin).Nanoseconds())/1000)
	}
	slices.Sort(took)
	return took[len(took)/2]
}
