package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/proxyweir/weir/core/rate"
)

// The log in the two forms in which most limiters keep it in Redis, for comparison: a list of times, and a sorted set of them. Both decide and
// reply as Weir's log does, but have no guard against a clock that steps back, and no costs above 1. ARGV: R, and P in microseconds.
const (
	logAsList = `
local key, R, P = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = (time[1] * 1000000 + time[2]) % 4294967296
local function age(v) return (now - v - 2147483648) % 4294967296 end
local first = redis.call('LINDEX', key, 0)
while first and age(first) >= P do
	redis.call('LPOP', key)
	first = redis.call('LINDEX', key, 0)
end
local n = redis.call('LLEN', key)
if n < R then
	redis.call('RPUSH', key, string.format('%d', now - 2147483648))
	redis.call('PEXPIRE', key, math.ceil(P / 1000))
	return {R - n - 1, 0, P}
end
return {-1, P - age(first), P - age(redis.call('LINDEX', key, -1))}
`
	logAsSortedSet = `
local key, R, P = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now - P))
local n = redis.call('ZCARD', key)
if n < R then
	local score = string.format('%.0f', now)
	redis.call('ZADD', key, score, score .. ':' .. n)
	redis.call('PEXPIRE', key, math.ceil(P / 1000))
	return {R - n - 1, 0, P}
end
local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
return {-1, first + P - now, last + P - now}
`
)

// printLogs prints the time in Redis of a decision by the log, and the memory of a key, next to those of a list and a sorted set.
func printLogs(addr string) error {
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	defer c.Close()
	fmt.Printf("The log kept as Weir does, as a list, and as a sorted set: µs of Redis's time a decision, and bytes a key.\n\n")
	fmt.Printf("| | Weir | list | sorted set |\n| --- | --- | --- | --- |\n")
	period := time.Hour
	for _, s := range []struct {
		title     string
		requests  int64
		keys      int
		fill, run int // decisions before and during the measurement
		memory    bool
	}{
		{"three requests a key, of 100", 100, 50_000, 0, 150_000, true},
		{"filling up to 100", 100, 1000, 0, 90_000, false},
		{"full at 100, rejected", 100, 1, 100, 100_000, true},
		{"filling up to 1000", 1000, 100, 0, 90_000, false},
		{"full at 1000, rejected", 1000, 1, 1000, 100_000, true},
		{"filling up to 100,000", 100_000, 1, 0, 90_000, false},
		{"full at 100,000, rejected", 100_000, 1, 100_000, 50_000, true},
	} {
		limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: s.requests, Period: period})
		if err != nil {
			return err
		}
		call, err := capture("logs:", limit)
		if err != nil {
			return err
		}
		numbers := fmt.Sprintf("local ARGV = {'%d', '%d'}\n", s.requests, period.Microseconds())
		row := "| " + s.title
		for _, source := range []string{literal(call.Args[0]) + call.Script.Source, numbers + logAsList, numbers + logAsSortedSet} {
			micros, bytes, err := runLog(c, addr, source, s.keys, s.fill, s.run)
			if err != nil {
				return err
			}
			row += fmt.Sprintf(" | %.1f", micros)
			if s.memory {
				row += fmt.Sprintf(", %d B", bytes)
			}
		}
		fmt.Println(row + " |")
	}
	fmt.Println()
	return nil
}

// runLog runs a script, and returns the microseconds per call, as the median of three runs, and the bytes of a key.
func runLog(c *goredis.Client, addr, source string, keys, fill, calls int) (micros float64, bytes int64, err error) {
	ctx := context.Background()
	sha, err := c.ScriptLoad(ctx, source).Result()
	if err != nil {
		return 0, 0, err
	}
	_, port, _ := strings.Cut(addr, ":")
	run := func(n int) error {
		if n == 0 {
			return nil
		}
		out, err := exec.Command("redis-benchmark", "-p", port, "-c", "4", "-P", "16", "-n", strconv.Itoa(n), "-r", strconv.Itoa(keys), "-q",
			"evalsha", sha, "1", "log:{0123456789__rand_int__}").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	var took []float64
	for range 3 {
		if err := c.FlushAll(ctx).Err(); err != nil {
			return 0, 0, err
		}
		if err := run(fill); err != nil {
			return 0, 0, err
		}
		if err := c.ConfigResetStat(ctx).Err(); err != nil {
			return 0, 0, err
		}
		if err := run(calls); err != nil {
			return 0, 0, err
		}
		stats, err := c.Info(ctx, "commandstats").Result()
		if err != nil {
			return 0, 0, err
		}
		_, rest, _ := strings.Cut(stats, "cmdstat_evalsha:")
		_, rest, _ = strings.Cut(rest, "usec_per_call=")
		number, _, _ := strings.Cut(rest, ",")
		micros, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return 0, 0, err
		}
		took = append(took, micros)
	}
	key, err := c.RandomKey(ctx).Result()
	if err != nil {
		return 0, 0, err
	}
	bytes, err = c.MemoryUsage(ctx, key, 0).Result()
	return max(min(took[0], took[1]), min(max(took[0], took[1]), took[2])), bytes, err
}
