package memory

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// storetest tests what holds for every store; these tests are about the memory alone.

// everyAlgorithm returns a limit of that many a minute for each algorithm.
func everyAlgorithm(t *testing.T, requests int64) []*rate.Limit {
	t.Helper()
	var list []*rate.Limit
	for a := rate.TokenBucket; a <= rate.SlidingWindowCounter; a++ {
		list = append(list, mustLimit(t, rate.LimitConfig{Algorithm: a, Requests: requests, Period: time.Minute}))
	}
	return append(list, mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: requests, Calendar: rate.Week}))
}

func (s *overflowScene) block(r *core.Rule, key string, duration int64) {
	s.t.Helper()
	must.Succeed(s.t, s.limiter.Block(r, key, duration))
}

// No state of a limit may look like that of a blocked key. The limits are the widest possible, full and half full.
func TestNoStateOfALimitIsThatOfABlockedKey(t *testing.T) {
	for _, c := range []rate.LimitConfig{
		{Algorithm: rate.TokenBucket, Requests: rate.MaxRequests, Period: rate.MaxPeriod},
		{Algorithm: rate.TokenBucket, Requests: rate.MaxRequests, Period: rate.MaxPeriod, Interval: true},
		{Algorithm: rate.LeakyBucket, Requests: rate.MaxRequests, Period: rate.MaxPeriod, MaxDelay: time.Hour},
		{Algorithm: rate.FixedWindow, Requests: rate.MaxRequests, Period: rate.MaxPeriod},
		{Algorithm: rate.FixedWindow, Requests: rate.MaxRequests, Calendar: rate.Month},
		{Algorithm: rate.SlidingWindowCounter, Requests: rate.MaxRequests, Period: rate.MaxPeriod},
	} {
		l := mustLimit(t, c)
		for _, now := range []int64{0, 1_772_452_820_000_000, 8_000_000_000_000_000} {
			for _, cost := range []int64{1, 2, rate.MaxRequests / 2, rate.MaxRequests - 1, rate.MaxRequests} {
				var s rate.State
				var d rate.Decision
				rate.Decide(l, &s, now, cost, &s, &d)
				if !d.Allowed || rate.IsBlocked(&s) {
					t.Errorf("%s, at %d, cost %d: %+v is taken for a blocked key: %+v", l, now, cost, s, d)
				}
				before := d
				rate.Decide(l, &s, now, rate.MaxRequests, &s, &d)
				if rate.IsBlocked(&s) {
					t.Errorf("%s, at %d, after %+v: %+v is taken for a blocked key", l, now, before, s)
				}
			}
		}
	}
}

// The shortcut does not look for blocks, yet it allows no request of a key that is blocked, or was.
func TestTheShortcutAllowsNoBlockedKey(t *testing.T) {
	const now = 1_772_452_820_000_000
	for _, requests := range []int64{1, 1000, rate.MaxRequests} {
		for _, l := range everyAlgorithm(t, smaller(requests, rate.MaxLogRequests)) {
			if l.Algorithm == rate.SlidingWindowLog {
				continue
			}
			for _, duration := range []int64{1, 60_000_000, int64(rate.MaxPeriod / 1000)} {
				for _, at := range []int64{now - 100_000_000, now - 1, now, now + 1, now + duration - 1, now + duration, now + 2*duration} {
					s := rate.BlockState(now, duration)
					if remaining, _, _ := rate.Take(l, &s, at); remaining != -1 || s != rate.BlockState(now, duration) {
						t.Errorf("%s, blocked for %d, after %d: %d remain, %+v", l, duration, at-now, remaining, s)
					}
					must.Equal(t, rate.Unused(l, &s, at), at >= now+duration, "%s, blocked for %d, after %d: unused", l, duration, at-now)
				}
			}
		}
	}
}

func TestTheFastPathAllowsNoBlockedKey(t *testing.T) {
	for _, l := range everyAlgorithm(t, 5) {
		if l.Algorithm == rate.SlidingWindowLog {
			continue
		}
		s := newOverflowScene(t, Config{Index: Mapped})
		r := s.open(core.RuleConfig{Name: "r", Limit: l})
		e := NewFastPath(s.store, r)
		s.ask("192.0.2.1", r)
		s.now += 60_000_000
		passed, left := 0, 0
		handler := Serve(e, &ServeConfig{
			QuotaFields: allQuotaFields(r), Key: hostOf, Direct: true,
			Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { passed++ }),
			Rest: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { left++ }),
		})
		request := &http.Request{Header: http.Header{}, RemoteAddr: "192.0.2.1:80"}
		s.block(r, "192.0.2.1", 30_000_000)
		for i := 0; i < 3; i++ {
			if remaining, _, _ := Take(e, "192.0.2.1"); remaining != -1 {
				t.Errorf("%s: %d remain", l, remaining)
			}
			handler.ServeHTTP(httptest.NewRecorder(), request)
			s.now += 14_000_000
		}
		if passed != 0 || left != 3 {
			t.Errorf("%s: %d passed, and %d were left to the rest", l, passed, left)
		}
		v, _ := s.ask("192.0.2.1", r) // after the block
		s.wants(l.String(), v, core.Allow, 0, 0)
	}
}

// floodPast uses up keys that nobody has seen before.
func (s *overflowScene) floodPast(r *core.Rule, name string, keys int) {
	s.t.Helper()
	for i := 0; i < keys; i++ {
		s.now += 10
		for n := 0; n < 3; n++ {
			s.ask(name+strconv.Itoa(i), r)
		}
	}
}

func TestAFloodDoesNotUnblockKeysBlockedByHand(t *testing.T) {
	underrace.OneGoroutine(t)
	for _, index := range []Index{Probing, Mapped} {
		for i, l := range everyAlgorithm(t, 1) {
			if interpreted && Index(i%2) != index { // half of them
				continue
			}
			s := newOverflowScene(t, Config{Index: index, MaxKeys: 200})
			r := s.open(core.RuleConfig{Name: "r", Limit: l})
			penal := s.open(core.RuleConfig{Name: "penal", Limit: l, OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Hour}}})
			for i := 0; i < 3; i++ {
				s.block(r, "victim "+strconv.Itoa(i), 3600*inSeconds)
			}
			s.floodPast(r, "invented ", fewerRounds(2000))
			s.floodPast(penal, "offender ", fewerRounds(2000)) // with a penalty for each of them
			s.store.Sweep()
			for i := 0; i < 3; i++ {
				if d := s.peek(r, "victim "+strconv.Itoa(i), 1); d.Allowed || d.RetryAfter < 3500*inSeconds {
					t.Errorf("%s: after a flood %d is not blocked: %+v", l, i, d)
				}
			}
			// Blocks are bounded, too: if all keys are blocked, some are forgotten.
			for i := 0; i < 300; i++ {
				s.block(r, "one of many "+strconv.Itoa(i), 3600*inSeconds)
				s.ask("one of many "+strconv.Itoa(i), r)
			}
			if n := s.store.Stats().Keys; n > 200 {
				t.Errorf("%s: there are %d keys", l, n)
			}
		}
	}
}

// A key that is blocked between being considered and being forgotten stays.
func TestAKeyThatWasJustBlockedIsNotForgotten(t *testing.T) {
	s := newOverflowScene(t, Config{})
	r := s.open(core.RuleConfig{Name: "r", Limit: perHour(t, rate.FixedWindow, 3)})
	s.ask("alice", r)
	c := core.Check{Rule: r, Key: "alice"}
	sh := s.store.lockKey(&c)
	sh.mu.Unlock()
	e := eviction{victim: evictionScore{class: inUse}, hash: c.Hash, shard: int(c.Hash & s.store.mask), seen: 1}
	s.block(r, "alice", 60*inSeconds)
	if s.store.endEviction(&e); find(sh, c.Hash) < 0 {
		t.Error("it is forgotten")
	}
	must.Succeed(t, s.limiter.Unblock(r, "alice"))
	if s.store.endEviction(&e); find(sh, c.Hash) >= 0 {
		t.Error("a key that was unblocked is not forgotten")
	}
}

func TestABlockIsSweptWhenItIsOver(t *testing.T) {
	for _, index := range []Index{Probing, Mapped} {
		for _, l := range append(everyAlgorithm(t, 3), mustConcurrency(t, 3)) {
			s := newOverflowScene(t, Config{Index: index})
			r := s.open(core.RuleConfig{Name: "r", Limit: l})
			for i := 0; i < 40; i++ {
				key := strconv.Itoa(i)
				if i%2 == 0 {
					_, reservations := s.ask(key, r)
					_ = s.limiter.Finish(reservations, 200)
				}
				s.block(r, key, 30*24*3600*inSeconds)
			}
			s.now += 30*24*3600*inSeconds - 1
			s.store.Sweep()
			must.Equal(t, s.store.Keys(r), 40, "%s: before the end there are keys of 40", l)
			s.now++
			s.store.Sweep()
			if err := leak(s.store); err != nil {
				t.Errorf("%s: at the end: %v", l, err)
			}
			must.Equal(t, s.store.Stats().LogBytes, 0, "%s: bytes of logs are left", l)
		}
	}
}

// The block of a released rule does not stay in memory.
func TestABlockIsForgottenWithItsRule(t *testing.T) {
	for _, l := range everyAlgorithm(t, 3) {
		s := newOverflowScene(t, Config{})
		r := s.open(core.RuleConfig{Name: "r", Limit: l})
		s.block(r, "alice", 3600*inSeconds)
		s.limiter.Release(r)
		s.store.Sweep()
		if err := leak(s.store); err != nil {
			t.Errorf("%s: %v", l, err)
		}
	}
}

// Blocked keys give their logs back, for other keys. No log may be used by two keys.
func TestLogsOfBlockedKeysAreReused(t *testing.T) {
	for _, index := range []Index{Probing, Mapped} {
		s := newOverflowScene(t, Config{Index: index, MaxKeys: 16})
		r := s.open(core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: 8, Period: time.Minute}), CountRejected: true})
		for round := 0; round < fewerRounds(2000); round++ {
			a := "a" + strconv.Itoa(round)
			b := "b" + strconv.Itoa(round)
			for i := 0; i < 3; i++ {
				s.ask(a, r)
			}
			s.block(r, a, inSeconds)
			for i := 0; i < 5; i++ {
				s.ask(b, r)
				s.ask(a, r)
			}
			if d := s.peek(r, b, 1); d.Remaining != 2 {
				t.Fatalf("round %d: %+v; want 2 behind this", round, d)
			}
			s.now += inSeconds
			if d := s.peek(r, a, 1); d.Remaining != 7 {
				t.Fatalf("round %d, at the end: %+v; want 7 behind this", round, d)
			}
		}
	}
}

func TestAResetIncludesTheRulesBeside(t *testing.T) {
	f := newFallen(t, 2)
	limit := perHour(t, rate.FixedWindow, 4)
	r := f.open(core.RuleConfig{Name: "r", Limit: limit, Candidate: perHour(t, rate.FixedWindow, 6), Concurrency: 3})
	left := func() [3]int64 {
		checks, _ := f.ask("k", 1, true, r)
		c := &checks[0]
		return [3]int64{c.Decision.Remaining, c.Candidate.Decision.Remaining, c.InFlight.Decision.Remaining}
	}
	f.store.failure = nil
	f.admits("k", 1, r)
	if got := left(); got != [3]int64{2, 4, 1} {
		t.Fatalf("%d are left", got)
	}
	f.store.failure = errors.New("down")
	f.admits("k", 1, r) // counted here, by this node's share
	f.store.failure = nil
	must.Succeed(t, f.limiter.Reset(r, "k"))
	if got := left(); got != [3]int64{3, 5, 1} {
		t.Errorf("after a reset %d are left; want all of the limit, and of the candidate's, and one under way", got)
	}
	f.store.failure = errors.New("down")
	if checks, _ := f.ask("k", 1, true, r); !checks[0].Decision.Allowed || checks[0].Decision.Remaining != 2 {
		t.Errorf("after a reset, without the store: %+v; want this node's share of 2", checks[0].Decision)
	}
}

// The memory that counts while the store has failed is blocked and reset even if the store fails.
func TestWhenTheStoreFailsTheFallbackIsBlockedAndReset(t *testing.T) {
	now := int64(1_772_452_820_000_000)
	store := &recorder{err: errors.New("down")}
	l := core.NewLimiter(store)
	l.FallBack(New(Config{Clock: func() int64 { return now }}), 1)
	r := mustRule(t, core.RuleConfig{Name: "r", Limit: perHour(t, rate.FixedWindow, 3)})
	must.Succeed(t, l.Open(r))
	ask := func() core.Verdict {
		var v core.Verdict
		if err := l.Decide([]core.Check{{Rule: r, Key: "k", Cost: 1}}, false, &v); err != store.err {
			t.Fatal(err)
		}
		return v
	}
	store.limitless = true
	if err := l.Block(r, "k", 60*inSeconds); err != store.err {
		t.Fatal(err)
	}
	if v := ask(); v.Outcome != core.Reject || v.RetryAfter != 60*inSeconds {
		t.Errorf("a blocked key: %+v", v)
	}
	if err := l.Unblock(r, "k"); err != store.err {
		t.Fatal(err)
	}
	for i := 0; i < 4; i++ {
		if v := ask(); (v.Outcome == core.Allow) != (i < 3) {
			t.Errorf("request %d of an unblocked key: %+v", i, v)
		}
	}
	if err := l.Reset(r, "k"); err != store.err {
		t.Fatal(err)
	}
	if v := ask(); v.Outcome != core.Allow {
		t.Errorf("a key that was reset: %+v", v)
	}
}

func TestWaitingReportsHowManyRequestsWait(t *testing.T) {
	s := newOverflowScene(t, Config{})
	slow := s.open(core.RuleConfig{Name: "slow", Limit: slowly(t, 1, 10*time.Second, time.Hour)})
	plain := s.open(core.RuleConfig{Name: "plain", Limit: perHour(t, rate.FixedWindow, 3)})
	var waiting [][]core.Reservation
	for i := int64(0); i < 4; i++ {
		if n := slow.Waiting(); n != larger(0, i-1) || plain.Waiting() != 0 {
			t.Fatalf("%d wait, and %d for a rule that delays nobody; want %d", n, plain.Waiting(), larger(0, i-1))
		}
		_, reservations := s.ask("alice", slow, plain)
		waiting = append(waiting, reservations)
	}
	s.limiter.Depart(waiting[1])
	_ = s.limiter.Leave(waiting[3])
	if n := slow.Waiting(); n != 1 {
		t.Errorf("%d wait; want 1", n)
	}
}

func TestAMemorySaysHowManyKeysItMayHold(t *testing.T) {
	m := New(Config{MaxKeys: 7})
	must.Equal(t, m.Stats().MaxKeys, 7, "got")
	m.SetMaxKeys(0)
	must.Equal(t, m.Stats().MaxKeys, DefaultMaxKeys, "got")
}
