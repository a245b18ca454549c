package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// deferring returns a rate_limit directive whose only rule defers what is over its limit.
func deferring(limit, more, durability, redis string) string {
	return fmt.Sprintf("rate_limit {\n\t\tzone orders {\n\t\t\tkey {header.%s}\n\t\t\tlimit %s\n\t\t\talgorithm token_bucket\n\t\t\tburst 1\n\t\t\ton_limit defer {\n\t\t\t\t%s\n\t\t\t\t%s\n\t\t\t}\n\t\t}\n"+
		"\t\tstore redis %s {\n\t\t\tnodes 1\n\t\t}\n\t}", keyHeader, limit, more, durability, redis)
}

// The load of deferred requests: few enough keys that all have used up their limit after the warm-up, and a limit so low that no job has its turn during a round.
const (
	deferredKeys  = 500
	deferredLimit = "1/1h"
	deferredBody  = 2048
)

// store is a Redis that keeps deferred requests, with the Caddy that accepts them.
type store struct {
	name   string
	fsync  string
	redis  *goredis.Client
	caddy  *server
	rates  []float64 // 202s a second, by round
	micros []float64 // of Caddy's CPU time for a 202
	bytes  []float64 // that Redis takes for a job
	counts []float64 // what a job counts for
}

// measureDeferred measures how many requests a second Caddy accepts and has stored, and what a job takes in Redis. A round begins with an empty Redis.
func measureDeferred(work, binary string, rounds int, length time.Duration) error {
	stores := []*store{{name: "`appendfsync everysec`", fsync: "everysec"}, {name: "`appendfsync always`", fsync: "always"}}
	for i, s := range stores {
		address := fmt.Sprintf("127.0.0.1:%d", 17390+i)
		dir := filepath.Join(work, "deferred-"+s.fsync)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		stop, err := startRedisAt(address, "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", s.fsync)
		if err != nil {
			return err
		}
		defer stop()
		s.redis = goredis.NewClient(&goredis.Options{Addr: address})
		defer s.redis.Close()
		more := "accept always\n\t\t\t\tmax_wait 30d\n\t\t\t\tmax_jobs 10000000 10000000\n\t\t\t\tmax_bytes 1TiB"
		config := "{\n\tadmin off\n\tpersist_config off\n\tauto_https off\n}\nhttp://%s {\n\t" + deferring(deferredLimit, more, "durability required", address) + "\n\trespond \"ok\"\n}\n"
		if s.caddy, err = start(binary, config, filepath.Join(dir, "caddyfile")); err != nil {
			return err
		}
		defer s.caddy.stop()
	}
	for round := range rounds {
		for k := range stores {
			s := stores[(k+round)%len(stores)]
			if err := s.round(length); err != nil {
				return fmt.Errorf("deferred, %s: %w", s.name, err)
			}
		}
		fmt.Fprintf(os.Stderr, "deferred: round %d of %d\n", round+1, rounds)
	}
	fmt.Printf("Deferred, %d keys, bodies of %d bytes, %d connections\n\n| | 202s a second | CPU µs of Caddy a 202 | bytes a job in Redis | it counts for |\n| --- | --- | --- | --- | --- |\n", deferredKeys, deferredBody, connections)
	for _, s := range stores {
		fmt.Printf("| %s | %s | %s | %s | %s |\n", s.name, spread("%.0f", s.rates), spread("%.1f", s.micros), spread("%.0f", s.bytes), spread("%.0f", s.counts))
	}
	fmt.Println()
	return nil
}

// round loads a Caddy for so long, after a warm-up.
func (s *store) round(length time.Duration) error {
	ctx := context.Background()
	if err := s.redis.FlushAll(ctx).Err(); err != nil {
		return err
	}
	r := request{"POST", strings.Repeat("x", deferredBody)}
	for warm := false; !warm; { // until each key has used up its limit
		done, err := runBuiltin(s.caddy.address, r, deferredKeys, time.Second)
		if err != nil {
			return err
		}
		warm = done.requests > 0 && done.accepted == done.requests
	}
	memory, counted, err := s.sizes(ctx)
	if err != nil {
		return err
	}
	before, err := s.caddy.cpu()
	if err != nil {
		return err
	}
	done, err := runBuiltin(s.caddy.address, r, deferredKeys, length)
	if err != nil {
		return err
	}
	after, err := s.caddy.cpu()
	if err != nil {
		return err
	}
	memoryAfter, countedAfter, err := s.sizes(ctx)
	if err != nil {
		return err
	}
	if done.accepted == 0 || done.accepted != done.requests {
		return fmt.Errorf("%d of %d requests were deferred", done.accepted, done.requests)
	}
	n := float64(done.accepted)
	s.rates = append(s.rates, n/length.Seconds())
	s.micros = append(s.micros, float64((after-before).Microseconds())/n)
	s.bytes = append(s.bytes, float64(memoryAfter-memory)/n)
	s.counts = append(s.counts, float64(countedAfter-counted)/n)
	return nil
}

// sizes returns how many bytes Redis has allocated for data, and for how many the jobs count.
func (s *store) sizes(ctx context.Context) (memory, counted int64, err error) {
	info, err := s.redis.Info(ctx, "memory").Result()
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(info) {
		if text, found := strings.CutPrefix(line, "used_memory_dataset:"); found {
			if memory, err = strconv.ParseInt(strings.TrimSpace(text), 10, 64); err != nil {
				return 0, 0, err
			}
		}
	}
	counted, err = s.redis.HGet(ctx, "weir:{defer:/orders}:sums", "bytes").Int64()
	return memory, counted, err
}
