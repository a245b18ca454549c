package memory

import (
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

func perMinute(t *testing.T, requests int64) *rate.Limit {
	return mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: requests, Period: time.Minute})
}

func TestTheLimitOfARequestIsTheKeysThenTheTiersThenTheRules(t *testing.T) {
	l, err := core.NewLimits(core.RuleConfig{Name: "r", Limit: perMinute(t, 5)}, core.MoreLimits{
		Tiers:     map[string]*rate.Limit{"pro": perMinute(t, 50), "staff": nil, "": perMinute(t, 1)},
		Overrides: map[string]*rate.Limit{"alice": perMinute(t, 500), "bob": nil, "": perMinute(t, 2)},
	})
	must.Succeed(t, err)
	for _, c := range []struct {
		tier, key string
		want      int64 // 0: no limit
	}{
		{"free", "carol", 5}, {"pro", "carol", 50}, {"staff", "carol", 0}, {"", "carol", 1}, {"free", "alice", 500}, {"staff", "alice", 500}, {"pro", "bob", 0}, {"pro", "", 2}, {"PRO", "Alice", 5},
	} {
		r := l.Of(c.tier, c.key)
		if c.want == 0 && r != nil || c.want > 0 && (r == nil || r.Limit.Requests != c.want) {
			t.Errorf("tier %q, key %q: %v, want %d", c.tier, c.key, r, c.want)
		}
	}
	if l.Own().Limit.Requests != 5 || l.Single() || len(l.Rules()) != 5 {
		t.Errorf("own %v, single %v, %d rules", l.Own(), l.Single(), len(l.Rules()))
	}
}

func TestALimitAloneIsSingle(t *testing.T) {
	l, err := core.NewLimits(core.RuleConfig{Name: "r", Limit: perMinute(t, 5)}, core.MoreLimits{})
	if err != nil || !l.Single() || l.Of("a", "b") != l.Own() || len(l.Rules()) != 1 {
		t.Errorf("%v, %+v", err, l)
	}
	none, err := core.NewLimits(core.RuleConfig{Name: "r"}, core.MoreLimits{})
	if err != nil || none.Single() || none.Of("a", "b") != nil || len(none.Rules()) != 0 {
		t.Errorf("%v, %+v", err, none)
	}
}

func TestEqualLimitsShareARule(t *testing.T) {
	overrides := make(map[string]*rate.Limit)
	for i := 0; i < 1000; i++ {
		overrides[strconv.Itoa(i)] = perMinute(t, 5+int64(i%3))
	}
	l, err := core.NewLimits(core.RuleConfig{Name: "r", Limit: perMinute(t, 5)}, core.MoreLimits{Tiers: map[string]*rate.Limit{"a": perMinute(t, 6), "b": perMinute(t, 8)}, Overrides: overrides})
	must.Succeed(t, err)
	if len(l.Rules()) != 4 || l.Of("", "0") != l.Own() || l.Of("", "1") != l.Of("a", "") || l.Of("b", "1") == l.Of("b", "") {
		t.Errorf("%d rules", len(l.Rules()))
	}
	// In the same order, whatever the order of the maps.
	text := ""
	for _, r := range l.Rules() {
		text += r.Limit.String() + " "
	}
	must.Equal(t, text, "5/1m fixed_window 6/1m fixed_window 8/1m fixed_window 7/1m fixed_window ")
	// The same numbers may mean different limits.
	apart, err := core.NewLimits(core.RuleConfig{Name: "r", Limit: perMinute(t, 5)}, core.MoreLimits{Tiers: map[string]*rate.Limit{
		"hour":     mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 5, Period: time.Hour}),
		"log":      mustLimit(t, rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: 5, Period: time.Minute}),
		"bucket":   mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 5, Period: time.Minute}),
		"burst":    mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 5, Period: time.Minute, Burst: 6}),
		"interval": mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 5, Period: time.Minute, Interval: true}),
		"queue":    mustLimit(t, rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 5, Period: time.Minute}),
		"patient":  mustLimit(t, rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 5, Period: time.Minute, MaxDelay: time.Minute}),
		"day":      mustLimit(t, rate.LimitConfig{Requests: 5, Calendar: rate.Day}),
		"east":     mustLimit(t, rate.LimitConfig{Requests: 5, Calendar: rate.Day, Location: time.FixedZone("east", 3600)}),
	}})
	if err != nil || len(apart.Rules()) != 10 {
		t.Errorf("%v, %d rules", err, len(apart.Rules()))
	}
}

func TestNewLimitsSaysWhatIsWrong(t *testing.T) {
	for _, more := range []core.MoreLimits{{}, {Tiers: map[string]*rate.Limit{"a": nil}}, {Tiers: map[string]*rate.Limit{"a": perMinute(t, 1)}}, {Overrides: map[string]*rate.Limit{"a": perMinute(t, 1)}}} {
		if l, err := core.NewLimits(core.RuleConfig{Name: "a b"}, more); l != nil || err == nil || err.Error() != `rule name "a b": must be 1 to 64 of A-Z a-z 0-9 _ . -` {
			t.Errorf("%v", err)
		}
		if _, err := core.NewLimits(core.RuleConfig{Name: "a", Namespace: "b c"}, more); err == nil || err.Error() != `rule "a": namespace name "b c": must be 1 to 64 of A-Z a-z 0-9 _ . -` {
			t.Errorf("%v", err)
		}
	}
}

func TestLimitsAreTheSameIfAllTheirChoicesAre(t *testing.T) {
	of := func(own *rate.Limit, tiers, overrides map[string]*rate.Limit) *core.Limits {
		l, err := core.NewLimits(core.RuleConfig{Name: "r", Limit: own}, core.MoreLimits{Tiers: tiers, Overrides: overrides})
		must.Succeed(t, err)
		return l
	}
	five := perMinute(t, 5)
	six := perMinute(t, 6)
	all := []*core.Limits{
		of(five, nil, nil), of(six, nil, nil), of(nil, nil, nil),
		of(five, map[string]*rate.Limit{"a": six}, nil), of(five, map[string]*rate.Limit{"a": five}, nil), of(five, map[string]*rate.Limit{"b": six}, nil), of(five, map[string]*rate.Limit{"a": nil}, nil),
		of(five, map[string]*rate.Limit{"a": six, "b": six}, nil), of(five, nil, map[string]*rate.Limit{"a": six}),
	}
	for i := range all {
		for j := range all {
			must.Equal(t, all[i].Same(all[j]), i == j, "%d and %d", i, j)
		}
	}
	if !of(five, map[string]*rate.Limit{"a": six}, nil).Same(of(perMinute(t, 5), map[string]*rate.Limit{"a": perMinute(t, 6)}, nil)) {
		t.Error("limits that are made again are others")
	}
}

// A client that changes its tier keeps what it has used. If its tier has another period, it starts there with an unused one.
func TestTiersShareCounters(t *testing.T) {
	now := int64(1_700_000_000_000_000)
	store := New(Config{Clock: func() int64 { return now }})
	l, err := core.NewLimits(core.RuleConfig{Name: "r", KeySpec: "client_ip", Limit: perMinute(t, 5)}, core.MoreLimits{
		Tiers:     map[string]*rate.Limit{"pro": perMinute(t, 8), "hourly": mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 2, Period: time.Hour})},
		Overrides: map[string]*rate.Limit{"bob": perMinute(t, 3)},
	})
	must.Succeed(t, err)
	for _, r := range l.Rules() {
		must.Succeed(t, store.Open(r))
	}
	take := func(tier, key string) int {
		n := 0
		for {
			checks := []core.Check{{Rule: l.Of(tier, key), Key: key, Cost: 1}}
			must.Succeed(t, store.Decide(checks, false))
			if !checks[0].Decision.Allowed {
				return n
			}
			n++
		}
	}
	for _, c := range []struct {
		tier, key string
		want      int
	}{
		{"", "alice", 5}, {"pro", "alice", 3}, {"", "alice", 0}, {"pro", "carol", 8}, {"", "carol", 0}, {"hourly", "alice", 2}, {"pro", "bob", 3}, {"pro", "alice", 0},
	} {
		if got := take(c.tier, c.key); got != c.want {
			t.Errorf("%s of tier %q: %d more, want %d", c.key, c.tier, got, c.want)
		}
	}
}
