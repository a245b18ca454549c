package storetest

import (
	"math/rand"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// testRequested: requests bring limits with them.
func testRequested(t *testing.T, newStore NewStore) {
	each(t, newStore, "", variants(), valuesDecideAsTiersDo)
	for _, c := range []struct {
		name string
		play func(s *scene)
	}{
		{"values", whatValuesMean}, {"bounds", valuesAreBounded}, {"periods", periodsSurviveReloads}, {"switch", valuesSwitchWithTheirRule}, {"reservations", valuesOfRulesThatReserve},
	} {
		t.Run(c.name, func(t *testing.T) { c.play(newScene(t, newStore)) })
	}
}

// requesting returns a rule whose own limit is 5/1m, and whose requests bring limits.
func (s *scene) requesting(v variant, c core.RuleConfig, max string) (*switched, *core.Requested) {
	s.t.Helper()
	c.Name = "requesting"
	c.Limit = v.limit(s.t, 5, minute)
	q := &core.Requested{Period: "1m", Common: v.config(0, 0), Counts: make([]int64, 3), MaxAs: max}
	if v.algorithm == rate.LeakyBucket {
		q.Common.MaxDelay = time.Hour
	}
	if max != "" {
		read := v.config(0, 0)
		must.Succeed(s.t, rate.ParseLimit(max, &read))
		q.Max = limit(s.t, read)
	}
	return s.switching(c, core.MoreLimits{Requested: q}), q
}

// valuesDecideAsTiersDo: whatever values a key's requests bring at the same time, they decide as tiers with these limits do.
func valuesDecideAsTiersDo(s *scene, v variant) {
	values := []string{"", "3", "12/1m", "7", "4/10s", "40/1h"}
	tiers := make(map[string]*rate.Limit)
	for _, value := range values[1:] {
		read := v.config(0, 0)
		if read.Algorithm == rate.LeakyBucket {
			read.MaxDelay = time.Hour
		}
		text := value
		if len(value) == 1 {
			text += "/1m"
		}
		must.Succeed(s.t, rate.ParseLimit(text, &read))
		tiers[value] = limit(s.t, read)
	}
	x, q := s.requesting(v, core.RuleConfig{}, "")
	y := s.switching(core.RuleConfig{Name: "tiers", Limit: v.limit(s.t, 5, minute)}, core.MoreLimits{Tiers: tiers})
	random := rand.New(rand.NewSource(7))
	for i := 0; i < times(400, 60); i++ {
		value := values[random.Intn(len(values))]
		key := []string{"alice", "bob"}[random.Intn(2)]
		if got, want := x.ask(value, key), y.ask(value, key); got != want {
			s.t.Fatalf("request %d of %s with %q: %+v, want %+v", i, key, value, got, want)
		}
		s.clock.Add(random.Int63n(9 * second))
	}
	must.Equal(s.t, q.Counts[core.RequestedMalformed], int64(0))
	x.close()
	y.close()
}

// whatValuesMean: what a value allows a key at one instant.
func whatValuesMean(s *scene) {
	counter := variant{"fixed_window", rate.FixedWindow, false, rate.ByClock}
	const many = 1 << 20
	for i, c := range []struct {
		value, max string
		want, is   int // is: what is counted, and 0 of what is not
	}{
		{"", "", 5, 3}, {"8", "", 8, 3}, {" 8/1m ", "", 8, 3}, {"008", "", 8, 3}, {"9/day", "", 9, 3}, {"0", "", 0, 3}, {"0/1h", "", 0, 3}, {"000", "8/1m", 0, 3}, {"unlimited", "", many, 3},
		{"8", "7/1m", 7, core.RequestedAbove}, {"7", "7/1m", 7, 3}, {"unlimited", "7/1m", 7, core.RequestedAbove},
		{"8/1h", "7/1m", 7, core.RequestedAbove}, {"8/1h", "200/1h", 8, 3}, {"4/1m", "200/1h", 3, core.RequestedAbove}, {"9/1s", "8/1m", 8, core.RequestedAbove},
		{"x", "", 5, core.RequestedMalformed}, {"-1", "", 5, core.RequestedMalformed}, {"1.5", "", 5, core.RequestedMalformed}, {"8/", "", 5, core.RequestedMalformed}, {"/1m", "", 5, core.RequestedMalformed},
		{"8/1m/1m", "", 5, core.RequestedMalformed}, {"8, 9", "", 5, core.RequestedMalformed}, {"8/367d", "", 5, core.RequestedMalformed}, {"99999999999999999999", "", 5, core.RequestedMalformed},
		{"Unlimited", "", 5, core.RequestedMalformed}, {"                                                                8", "", 5, core.RequestedMalformed},
	} {
		x, q := s.requesting(counter, core.RuleConfig{Namespace: "n" + strconv.Itoa(i)}, c.max)
		told := ""
		q.Report = func(value, why string) { told = value + ": " + why }
		got := many
		if x.active.Of(c.value, "alice") != nil {
			got = x.all(c.value, "alice")
		}
		counted := 3
		for is, n := range q.Counts {
			if n > 0 {
				counted = is
			}
		}
		if got != c.want || counted != c.is || (told != "") != (c.is != 3) {
			s.t.Errorf("%q with max %q: %d were allowed, counted as %d, told %q; want %d and %d", c.value, c.max, got, counted, told, c.want, c.is)
		}
		x.close()
	}
	log := variant{"sliding_window_log", rate.SlidingWindowLog, false, rate.ByClock}
	x, q := s.requesting(log, core.RuleConfig{}, "")
	if got := x.all("100001", "alice"); got != 5 || q.Counts[core.RequestedMalformed] != 6 {
		s.t.Errorf("a value that a log cannot have: %d were allowed, %v", got, q.Counts)
	}
	if got := x.all("8/day", "bob"); got != 5 {
		s.t.Errorf("a log of the calendar: %d were allowed", got)
	}
	x.close()
}

// valuesAreBounded: however many values come, a rule knows a bounded number. Those that are in use stay.
func valuesAreBounded(s *scene) {
	if Interpreted() { // which takes milliseconds for each
		return
	}
	counter := variant{"sliding_window_counter", rate.SlidingWindowCounter, false, rate.ByClock}
	x, q := s.requesting(counter, core.RuleConfig{}, "")
	n := core.MaxRequested + 40
	for i := 0; i < n; i++ {
		x.ask(strconv.Itoa(1000+i), "alice")
	}
	if got := len(x.active.Limits().All()); got != core.MaxRequested+1 || q.Counts[core.RequestedCrowded] != 40 {
		s.t.Fatalf("%d rules are known, and %v counted", got, q.Counts)
	}
	for i := 0; i < 61; i++ { // one of them is used all the time
		s.clock.Add(second)
		if d := x.ask("1000", "bob"); d.Limit != 1000 {
			s.t.Fatalf("the limit in use is %d", d.Limit)
		}
	}
	for i := 0; i < core.MaxRequested+40; i++ {
		if d := x.ask(strconv.Itoa(5000+i), "alice"); i < core.MaxRequested-1 && d.Limit != int64(5000+i) {
			s.t.Fatalf("there is no room for value %d: %+v", i, d)
		}
	}
	if d := x.ask("1000", "bob"); len(x.active.Limits().All()) != core.MaxRequested+1 || d.Limit != 1000 || d.Remaining > 960 {
		s.t.Fatalf("%d rules are known; %+v", len(x.active.Limits().All()), d)
	}
	s.clock.Add(3600 * second)
	crowded := q.Counts[core.RequestedCrowded]
	for i := 1; i <= 40; i++ {
		want := int64(9)
		if i > core.MaxRequestedPeriods {
			want = 5
		}
		if d := x.ask("9/"+strconv.Itoa(i)+"h", "alice"); d.Limit != want {
			s.t.Fatalf("period %d: %+v", i, d)
		}
	}
	must.Equal(s.t, q.Counts[core.RequestedCrowded]-crowded, int64(40-core.MaxRequestedPeriods))
	x.close()
	must.Equal(s.t, x.active.Of("9/1h", "alice").Limit.Requests, int64(9)) // of late requests
}

// periodsSurviveReloads: counters of periods that only values have stay, whatever takes the place of the rule.
func periodsSurviveReloads(s *scene) {
	counter := variant{"fixed_window", rate.FixedWindow, false, rate.ByClock}
	x, q := s.requesting(counter, core.RuleConfig{}, "")
	must.Equal(s.t, x.all("8/1h", "alice"), 8)
	x.to(counter.limit(s.t, 6, minute), core.MoreLimits{Requested: q}) // as advice does
	must.Equal(s.t, x.all("8/1h", "alice"), 0)
	must.Equal(s.t, x.all("x", "alice"), 6)
	next, _ := s.requesting(counter, core.RuleConfig{}, "")
	_, err := next.active.Continue(next.limiter, x.active, 0)
	must.Succeed(s.t, err)
	x.close()
	must.Equal(s.t, next.all("9/1h", "alice"), 1)
	must.Equal(s.t, next.all("", "alice"), 0)
	next.close()
}

// valuesSwitchWithTheirRule: in a transition, a value has its own limit in the former period, too, and not that of the former rule.
func valuesSwitchWithTheirRule(s *scene) {
	counter := variant{"fixed_window", rate.FixedWindow, false, rate.ByClock}
	x, q := s.requesting(counter, core.RuleConfig{}, "")
	must.Equal(s.t, x.all("8", "alice"), 8)
	x.ask("8", "bob")
	hours := &core.Requested{Period: "1h", Common: q.Common}
	x.to(counter.limit(s.t, 6, 60*minute), core.MoreLimits{Requested: hours})
	must.Equal(s.t, x.all("8", "alice"), 0) // by the former limit
	must.Equal(s.t, x.all("8", "bob"), 7)
	s.clock.Add(2 * minute)
	must.Equal(s.t, x.all("8", "alice"), 8)
	must.Equal(s.t, x.all("8", "bob"), 1)
	x.close()
	if again, _ := s.requesting(counter, core.RuleConfig{}, ""); !again.active.Limits().Same(x.active.Configured()) || again.active.Limits().Same(x.made(x.config.Limit, core.MoreLimits{})) {
		s.t.Error("rules are not compared by what requests bring")
	}
}

// valuesOfRulesThatReserve: requests with limits of their own wait, and have room, with the others of the rule.
func valuesOfRulesThatReserve(s *scene) {
	window := variant{"fixed_window", rate.FixedWindow, false, rate.ByClock}
	x, _ := s.requesting(window, core.RuleConfig{Concurrency: 2}, "")
	var checks []core.Check
	var v core.Verdict
	for i, want := range []core.Outcome{core.Allow, core.Allow, core.Reject} {
		checks = x.checks([]string{"9", "", "7/1h"}[i], "alice")
		must.Succeed(s.t, x.limiter.Decide(checks, false, &v))
		must.Equal(s.t, v.Outcome.String(), want.String())
	}
	x.close()
	c := core.RuleConfig{Name: "waits", Limit: limit(s.t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Period: time.Minute, Delays: true, MaxDelay: time.Hour})}
	c.OverflowPolicy.MaxWaiting = 2
	c.OverflowPolicy.OneKey = true
	y := s.switching(c, core.MoreLimits{Requested: &core.Requested{Period: "1m", Common: rate.LimitConfig{Algorithm: rate.FixedWindow, Delays: true, MaxDelay: time.Hour}}})
	for i, want := range []core.Outcome{core.Allow, core.Allow, core.Delay, core.Delay, core.Reject, core.Reject} {
		checks = y.checks([]string{"2", "2", "2", "", "2", "0"}[i], "bob")
		must.Succeed(s.t, y.limiter.Decide(checks, false, &v))
		must.Equal(s.t, v.Outcome.String(), want.String(), i)
	}
	must.Equal(s.t, y.active.Of("", "").Waiting(), int64(2))
	y.close()
}

// testEnforcedShare: for the keys that are not enforced the rule is a shadow, which counts as the rule does.
func testEnforcedShare(t *testing.T, newStore NewStore) {
	each(t, newStore, "", variants(), func(s *scene, v variant) {
		whole := s.switching(core.RuleConfig{Name: "whole", Limit: v.limit(s.t, 5, minute)}, core.MoreLimits{})
		share, _ := s.requesting(v, core.RuleConfig{EnforcedPercent: 50}, "")
		rejected := make(map[bool]int)
		var d core.Verdict
		for i := 0; i < times(300, 60); i++ {
			key := "k" + strconv.Itoa(i%4)
			value := []string{"", "5", "5/1m"}[i%3]
			if v.algorithm == rate.LeakyBucket { // whose burst is not that of values here
				value = ""
			}
			want := whole.ask("", key)
			checks := share.checks(value, key)
			must.Succeed(s.t, share.limiter.Decide(checks, false, &d))
			enforced := core.Enforces(key, 50)
			if got := checks[0].Decision; got != want || checks[0].Rule.Shadow == enforced || (d.Outcome == core.Reject) != (enforced && !want.Allowed) {
				s.t.Fatalf("request %d of %s with %q: %+v, %+v, want %+v", i, key, value, d, got, want)
			}
			if !want.Allowed {
				rejected[enforced]++
			}
			s.clock.Add(second / 2)
		}
		if rejected[true] == 0 || rejected[false] == 0 {
			s.t.Fatalf("%v were rejected", rejected)
		}
		if err := share.active.Replace(share.limiter, share.made(v.limit(s.t, 5, minute), core.MoreLimits{})); err != nil {
			s.t.Fatal(err)
		}
		whole.close()
		share.close()
	})
}
