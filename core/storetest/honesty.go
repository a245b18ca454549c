package storetest

import (
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// testHonesty: the numbers of a decision are right to the microsecond. On random histories without further requests: a rejected
// request is allowed after RetryAfter, and not a microsecond before; Remaining units are available, and not one more; after
// MoreAfter one more is available, and not a microsecond before; after ResetAfter the key is as one that was never seen.
func testHonesty(t *testing.T, newStore NewStore) {
	sizes := []struct{ units, period int64 }{
		{2, second}, {3, second}, {7, minute}, {100, minute}, {5, 1000}, {3, 7001}, {1000, 10 * second}, {2, 30 * minute},
	}
	steps := times(60, 6)
	for n, v := range withOwnWindows() {
		t.Run(v.name, func(t *testing.T) {
			s := newScene(t, newStore)
			for i, size := range sizes {
				l := v.limit(t, size.units, size.period)
				h := history{scene: s, units: size.units, period: size.period, random: uint64(1000*n + i)}
				h.rule = s.open(core.RuleConfig{Name: "plain" + strconv.Itoa(i), Limit: l})
				h.run(steps)
				h.rule = s.open(core.RuleConfig{Name: "counted" + strconv.Itoa(i), Limit: l, CountRejected: true})
				h.run(steps)
			}
		})
	}
	t.Run("leaky_bucket with a short max_delay", func(t *testing.T) {
		s := newScene(t, newStore)
		l := limit(t, rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 7, Period: time.Second, Burst: 20, MaxDelay: 1234567 * time.Microsecond})
		h := history{scene: s, units: 21, period: second, impatient: true}
		h.rule = s.open(core.RuleConfig{Name: "impatient", Limit: l})
		h.run(4 * steps)
	})
}

// history is a random history, the same in every run: random is its seed.
type history struct {
	scene         *scene
	rule          *core.Rule
	units, period int64
	random        uint64
	impatient     bool // requests within Remaining may be rejected, because they would wait too long
}

// below returns a random number from 0 to n-1 (Knuth's MMIX generator).
func (h *history) below(n int64) int64 {
	h.random = h.random*6364136223846793005 + 1442695040888963407
	return int64(h.random>>33) % n
}

// wantMore compares MoreAfter with what is available after it. It does so only half of the time, so that histories without that
// check occur, too.
func (h *history) wantMore(now int64, d *rate.Decision) {
	s := h.scene
	t := s.t
	t.Helper()
	if d.MoreAfter == 0 {
		if d.Remaining != d.Limit {
			t.Fatalf("%s at %d: %+v; some is used, and MoreAfter is 0", h.rule.Limit, now, *d)
		}
		return
	}
	if d.MoreAfter > d.ResetAfter {
		t.Fatalf("%s at %d: %+v; ResetAfter is before MoreAfter", h.rule.Limit, now, *d)
	}
	if h.impatient || h.below(2) == 0 {
		return
	}
	s.comesTrue(h.rule, "alice", d.Remaining+1, *d, d.MoreAfter)
}

func (h *history) run(steps int) {
	s := h.scene
	t := s.t
	for i := 0; i < steps; i++ {
		if h.below(3) == 0 {
			s.clock.Add(h.below(h.period))
		} else {
			s.clock.Add(h.below(h.period/h.units + 2))
		}
		cost := 1 + h.below(h.units)
		if h.below(2) == 0 {
			cost = 1 + h.below(h.units/10+1)
		}
		now := s.clock.Now()
		d := s.take(h.rule, "alice", cost)
		if d.Remaining < 0 || d.Remaining > d.Limit || d.ResetAfter < 0 || d.Delay < 0 {
			t.Fatalf("%s at %d: cost %d: %+v; something is negative, or more than the limit", h.rule.Limit, now, cost, d)
		}
		if d.Allowed {
			if d.RetryAfter != 0 {
				t.Fatalf("%s at %d: cost %d: %+v; allowed, with a RetryAfter", h.rule.Limit, now, cost, d)
			}
			if more := s.peek(h.rule, "alice", d.Remaining+1); more.Allowed {
				t.Fatalf("%s at %d: %+v; yet %d are available", h.rule.Limit, now, d, d.Remaining+1)
			}
			if d.Remaining > 0 && !h.impatient {
				if rest := s.peek(h.rule, "alice", d.Remaining); !rest.Allowed {
					t.Fatalf("%s at %d: %+v; yet these are not available: %+v", h.rule.Limit, now, d, rest)
				}
			}
			h.wantMore(now, &d)
		} else {
			if d.RetryAfter <= 0 {
				t.Fatalf("%s at %d: cost %d: %+v; rejected, without a RetryAfter", h.rule.Limit, now, cost, d)
			}
			s.comesTrue(h.rule, "alice", cost, d, d.RetryAfter)
			s.yes("then", s.take(h.rule, "alice", cost), whatever)
		}
		if h.below(8) == 0 {
			d = s.take(h.rule, "alice", 1)
			s.clock.Add(d.ResetAfter)
			if d.Allowed && !h.rule.Limit.Spread { // else a new key has other windows
				s.unchanged(h.rule.Limit.String()+" after ResetAfter, beside a new key", s.peek(h.rule, "new", 1), s.peek(h.rule, "alice", 1))
			}
		}
	}
}
