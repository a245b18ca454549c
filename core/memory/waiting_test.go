package memory

import (
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// fill sends requests of a key until one is rejected, and returns the reservations of those that wait.
func (s *overflowScene) fill(key string, r *core.Rule) [][]core.Reservation {
	s.t.Helper()
	var waiting [][]core.Reservation
	for {
		v, reservations := s.ask(key, r)
		if v.Outcome == core.Reject {
			return waiting
		}
		if v.Outcome == core.Delay {
			waiting = append(waiting, reservations)
		}
	}
}

func patient(t *testing.T, overflow core.OverflowPolicy) core.RuleConfig {
	t.Helper()
	return core.RuleConfig{Name: "r", Limit: slowly(t, 1, time.Second, time.Hour), OverflowPolicy: overflow}
}

// For a defect: one key, or a few, could take all the places of a rule.
func TestKeysThatTakeAllTheyCanLeaveRoomForOthers(t *testing.T) {
	for _, keys := range []int{1, 2, 3, 12} {
		s := newOverflowScene(t, Config{})
		r := s.open(patient(t, core.OverflowPolicy{MaxWaiting: 100}))
		for round := 0; round < 2; round++ { // the first finds more room than the last, and none gets more later
			for k := 0; k < keys; k++ {
				s.fill("greedy"+strconv.Itoa(k), r)
			}
		}
		if left := 100 - r.Waiting(); left < 1 {
			t.Errorf("%d keys leave %d of 100 places", keys, left)
		}
		s.ask("victim", r)
		v, _ := s.ask("victim", r)
		s.wants("a key of which none waits", v, core.Delay, 0, 1*inSeconds)
	}
}

// Keys that send in turn get equal shares, and leave as much for others.
func TestKeysShareTheRoom(t *testing.T) {
	for _, keys := range []int{1, 3, 9} {
		s := newOverflowScene(t, Config{})
		r := s.open(patient(t, core.OverflowPolicy{MaxWaiting: 100}))
		for i := 0; i < 200; i++ {
			for k := 0; k < keys; k++ {
				s.ask(strconv.Itoa(k), r)
			}
		}
		each := r.Waiting() / int64(keys)
		if want := int64(100 / (keys + 4)); each < want || each > want+1 {
			t.Errorf("of %d keys %d wait each; want %d", keys, each, want)
		}
	}
}

func TestAKeyHasNoMoreRequestsWaitingThanItMay(t *testing.T) {
	for _, c := range []struct {
		overflow core.OverflowPolicy
		want     int
	}{
		{core.OverflowPolicy{MaxWaiting: 100}, 20},
		{core.OverflowPolicy{}, core.DefaultMaxWaiting / 5},
		{core.OverflowPolicy{MaxWaiting: 1}, 1},
		{core.OverflowPolicy{MaxWaiting: 100, MaxWaitingPerKey: 7}, 7},
		{core.OverflowPolicy{MaxWaiting: 100, MaxWaitingPerKey: 100}, 100},
		{core.OverflowPolicy{MaxWaiting: 100, OneKey: true}, 100},
		{core.OverflowPolicy{MaxWaiting: 100, OneKey: true, MaxWaitingPerKey: 7}, 7},
	} {
		s := newOverflowScene(t, Config{})
		r := s.open(patient(t, c.overflow))
		waiting := s.fill("alice", r)
		if len(waiting) != c.want {
			t.Errorf("%+v: %d wait; want %d", c.overflow, len(waiting), c.want)
			continue
		}
		if c.overflow.MaxWaitingPerKey == 7 && !c.overflow.OneKey {
			if n := len(s.fill("bob", r)); n != 7 {
				t.Errorf("%+v: %d of another key wait", c.overflow, n)
			}
		}
		s.limiter.Depart(waiting[0])
		if v, _ := s.ask("alice", r); v.Outcome != core.Delay {
			t.Errorf("%+v: when one has departed: %+v", c.overflow, v)
		}
	}
}

func TestMoreWaitingForAKeyThanForAllIsRefused(t *testing.T) {
	for _, c := range []struct {
		overflow core.OverflowPolicy
		want     string
	}{
		{core.OverflowPolicy{MaxWaiting: 5, MaxWaitingPerKey: 6}, `rule "r": max_waiting_per_key 6: must be from 1 to 5, the max_waiting of all keys together`},
		{core.OverflowPolicy{MaxWaitingPerKey: 1001}, `rule "r": max_waiting_per_key 1001: must be from 1 to 1000, the max_waiting of all keys together`},
		{core.OverflowPolicy{MaxWaitingPerKey: -1}, `rule "r": max_waiting_per_key -1: must be from 1 to 1000, the max_waiting of all keys together`},
	} {
		if _, err := core.NewRule(patient(t, c.overflow)); err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v", c.overflow, err)
		}
	}
	_, err := core.NewRule(core.RuleConfig{Name: "r", Limit: perHour(t, rate.TokenBucket, 5), OverflowPolicy: core.OverflowPolicy{MaxWaitingPerKey: 5}})
	if err == nil || err.Error() != `rule "r": max_waiting_per_key 5: requests wait only with on_limit delay` {
		t.Error(err)
	}
}

// For a defect: nobody counted the requests that wait in a leaky bucket.
func TestRequestsInALeakyBucketAreCounted(t *testing.T) {
	s := newOverflowScene(t, Config{})
	limit := mustLimit(t, rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 1, Period: time.Second, Burst: 4, MaxDelay: time.Minute})
	r := s.open(core.RuleConfig{Name: "queue", Limit: limit})
	shadow := s.open(core.RuleConfig{Name: "shadow", Limit: limit, Shadow: true})
	if !r.Waits() || shadow.Waits() || s.open(core.RuleConfig{Name: "plain", Limit: perHour(t, rate.TokenBucket, 5)}).Waits() {
		t.Error("a leaky bucket has requests wait, and no other that rejects; a shadow does not")
	}
	var waiting [][]core.Reservation
	for i := int64(0); i <= 4; i++ {
		v, reservations := s.ask("alice", r, shadow)
		if v.Delay != i*inSeconds || r.Waiting() != i || shadow.Waiting() != 0 {
			t.Fatalf("%+v; %d wait, and %d for the shadow", v, r.Waiting(), shadow.Waiting())
		}
		if i > 0 {
			waiting = append(waiting, reservations)
		}
	}
	s.limiter.Depart(waiting[0])
	if core.UnderWay(waiting[0]) || r.Waiting() != 3 {
		t.Errorf("%d wait when one has departed", r.Waiting())
	}
	if err := s.limiter.Leave(waiting[3]); err != nil || r.Waiting() != 2 {
		t.Errorf("%v; %d wait when one has left, too", err, r.Waiting())
	}
	v, _ := s.ask("alice", r)
	s.wants("in place of the one that left, whose place is not given back", v, core.Reject, 1*inSeconds, 0)
}

// If more than a thousand requests of a key wait for another rule, a rule looks for no departure behind all of them: its
// RetryAfter is then the departure of the first of them.
func TestBehindAThousandThatWaitForAnotherRuleNoRequestWaits(t *testing.T) {
	s := newOverflowScene(t, Config{})
	slow := core.RuleConfig{Name: "slow", Limit: slowly(t, 1, time.Second, time.Hour), OverflowPolicy: core.OverflowPolicy{MaxWaiting: 5000, MaxWaitingPerKey: 5000}}
	beside := s.open(core.RuleConfig{Name: "beside", Limit: slowly(t, mostPending, time.Second, time.Hour), OverflowPolicy: core.OverflowPolicy{MaxWaiting: 5000, MaxWaitingPerKey: 5000}})
	rule := s.open(slow)
	s.ask("alice", rule, beside)
	wait := 0
	var v core.Verdict
	for v.Outcome != core.Reject {
		v, _ = s.ask("alice", rule, beside)
		if v.Outcome == core.Delay {
			wait++
		}
	}
	if wait != mostPending+1 {
		t.Errorf("%d wait, want %d", wait, mostPending+1)
	}
	s.now += inSeconds / 4
	v, _ = s.ask("alice", rule, beside)
	s.wants("one too many", v, core.Reject, inSeconds*3/4, 0)
	s.now += inSeconds * 3 / 4
	v, _ = s.ask("alice", rule, beside)
	s.wants("when one has left", v, core.Delay, 0, (mostPending+1)*inSeconds)
}
