package goredis_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// TestEveryKeyExpiresWhenItMakesNoDifference plays random histories and checks the keys that they leave: every key expires at most two
// milliseconds after the reset in the last reply (see expiry). No key exists after that, and no key is missing before.
func TestEveryKeyExpiresWhenItMakesNoDifference(t *testing.T) {
	underrace.OneGoroutine(t)
	for i, k := range everyKind {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			lookAtKeys(t, duel{}, k, uint64(i))
		})
	}
}

// TestKeysExpireAfterRefunds does the same with charges that are given back: a key then expires when the charge would have
// ended, or earlier.
func TestKeysExpireAfterRefunds(t *testing.T) {
	lookAtKeys(t, duel{slots: true, forward: true}, everyKind[len(everyKind)-1], 99)
}

func lookAtKeys(t *testing.T, d duel, k kind, stream uint64) {
	t.Helper()
	_, seed := differentialDecisions(t)
	d.start(t, k, rand.New(rand.NewPCG(seed, 1000+stream)))
	looked := 0
	for range 12 * k.rules {
		if err := d.play(); err != nil {
			t.Fatalf("seed %d, history %d: %v", seed, d.histories, err)
		}
		n, err := d.look()
		if err != nil {
			t.Fatalf("seed %d, history %d: %v", seed, d.histories, err)
		}
		looked += n
	}
	if looked == 0 {
		t.Error("there was no key to check")
	}
}

// look compares the keys in Redis with those that must be there, and lets their lifetimes pass. It returns how many there were.
func (d *duel) look() (int, error) {
	last, found, expires := int64(0), make(map[string]bool), make(map[string]int64)
	keys, err := d.keys()
	if err != nil {
		return 0, err
	}
	for _, key := range keys {
		name, err := whose(key)
		if err != nil {
			return 0, err
		}
		found[name] = true
		left, err := d.conn.Do("PTTL", key)
		if err != nil {
			return 0, err
		}
		at := d.clock.Now()/1000 + left.Int // without PEXPIRETIME, which Redis 6.2 does not know
		expires[key] = at
		last = max(last, at)
		if left.Int < 0 || at > d.expiries[name] {
			return 0, d.failed("%s expires in %d ms, at %d; by the replies it must expire by %d", key, left.Int, at, d.expiries[name])
		}
	}
	for _, c := range d.rules {
		for client, k := range c.trails {
			name := c.rule.Name + " " + client
			if k.gone { // perhaps not yet, if the clock was set back
				continue
			}
			if !found[name] {
				return 0, d.failed("%s is missing; it was to be there until %d", name, k.expires)
			}
			if d.slots {
				continue
			}
			for _, key := range keys {
				if of, _ := whose(key); of == name {
					if expires[key] != k.expires {
						return 0, d.failed("%s expires at %d; want %d", key, expires[key], k.expires)
					}
				}
			}
		}
	}
	d.server.SetTime((last + 1) * 1000)
	rest, err := d.keys()
	if err != nil {
		return 0, err
	}
	if size, err := d.conn.Do("DBSIZE"); err != nil || size.Int != 0 || len(rest) != 0 {
		return 0, d.failed("after the last has expired there are %d keys: %q, %v", size.Int, rest, err)
	}
	return len(keys), nil
}

// keys returns the names of all keys that have not expired.
func (d *duel) keys() ([]string, error) {
	var keys []string
	for cursor := "0"; ; {
		reply, err := d.conn.Do("SCAN", cursor, "COUNT", "1000")
		if err != nil {
			return nil, err
		}
		keys = append(keys, reply.List[1].Strings()...)
		if cursor = reply.List[0].Text; cursor == "0" {
			return keys, nil
		}
	}
}

// whose returns the rule and the client of a key, which are readable.
func whose(key string) (string, error) {
	_, rest, _ := strings.Cut(key, "{")
	client, rest, _ := strings.Cut(rest, "}:")
	rule, _, ok := strings.Cut(rest, ":")
	if !ok {
		return "", fmt.Errorf("key %s: is not one of the store's", strconv.Quote(key))
	}
	return rule + " " + client, nil
}

// A long log drops its expired entries from time to time.
func TestALongLogTakesAtMostTwiceTheSpaceOfItsEntries(t *testing.T) {
	underrace.OneGoroutine(t)
	server := redistest.Start(t, redistest.WithClock())
	clock := &storetest.Clock{}
	clock.Set(time.Date(2026, 3, 2, 12, 0, 20, 0, time.UTC).UnixMicro())
	clock.Follow(server.SetTime)
	s := newStore(t, redis.Config{Prefix: "log:", PlainKeys: true}, goredis.Config{Addresses: []string{server.Addr()}})
	limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: 500, Period: time.Minute})
	must.Succeed(t, err)
	r, err := core.NewRule(core.RuleConfig{Name: "r", Limit: limit})
	must.Succeed(t, err)
	must.Succeed(t, s.Open(r))
	longest := int64(0)
	for i := range 5000 { // ten minutes, and always 500 in the last of them
		checks := []core.Check{{Rule: r, Key: "k", Cost: 1}}
		if err := s.Decide(checks, false); err != nil || !checks[0].Decision.Allowed {
			t.Fatalf("request %d: %+v, %v", i, checks[0].Decision, err)
		}
		if i%10 == 0 {
			key := server.MustDo(t, "KEYS", "log:{k}:r:*").List[0].Text
			longest = max(longest, server.MustDo(t, "STRLEN", key).Int)
		}
		clock.Add(limit.Period / 500)
	}
	if longest > 11+4*(2*500+2) || longest < 11+4*500 {
		t.Errorf("500 times of 4 bytes take up to %d bytes", longest)
	}
}
