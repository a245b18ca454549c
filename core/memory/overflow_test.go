package memory

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

func mustStatuses(t *testing.T, words ...string) *core.Counted {
	t.Helper()
	s, err := core.ParseCounted(words)
	must.Succeed(t, err)
	return s
}

func TestStatusesAreReadInAnyOrderAndWrittenInOne(t *testing.T) {
	for _, c := range []struct{ words, want string }{
		{"401", "401"},
		{"5xx 401", "401,5xx"},
		{"503,401, 401 \t404", "401,404,503"},
		{"4XX", "4xx"},
		{"4xx,404", "4xx"},
		{"599 101 200", "101,200,599"},
		{"2xx,3xx,4xx,5xx,101", "101,2xx,3xx,4xx,5xx"},
	} {
		s, err := core.ParseCounted([]string{c.words})
		if err != nil || s.String() != c.want {
			t.Errorf("%q: %v, %v; want %s", c.words, s, err, c.want)
			continue
		}
		again, err := core.ParseCounted(strings.Split(c.want, ","))
		if err != nil || again.String() != c.want {
			t.Errorf("%q, read again: %v, %v", c.want, again, err)
		}
	}
	s := mustStatuses(t, "101", "404", "5xx")
	for code, want := range map[int]bool{101: true, 404: true, 500: true, 599: true, 100: false, 403: false, 499: false, 600: false, 0: false, -1: false, 1 << 40: false} {
		must.Equal(t, s.Has(code), want, "%d", code)
	}
}

func TestWhatIsNoStatusIsRefusedByName(t *testing.T) {
	none := "count: names no status; write those of the responses that stay charged, such as 401 or 4xx"
	is := " must be the status code of a response, 101 or 200 to 599, a class of them such as 4xx, or a field such as header:X-Login, header:X-Login=failed or trailer:Grpc-Status=16"
	for _, c := range []struct{ words, want string }{
		{"", none},
		{" ,\t,", none},
		{"100", `count "100":` + is},
		{"102", `count "102":` + is},
		{"199", `count "199":` + is},
		{"600", `count "600":` + is},
		{"1xx", `count "1xx":` + is},
		{"6xx", `count "6xx":` + is},
		{"40x", `count "40x":` + is},
		{"401 wrong", `count "wrong":` + is},
		{"+401", `count "+401":` + is},
		{"-01", `count "-01":` + is},
		{"0401", `count "0401":` + is},
		{"4xxx", `count "4xxx":` + is},
		{"401;403", `count "401;403":` + is},
	} {
		if s, err := core.ParseCounted([]string{c.words}); err == nil || err.Error() != c.want || s != nil {
			t.Errorf("%q:\n got %v\nwant %s", c.words, err, c.want)
		}
	}
}

func TestNewRuleRefusesOverflowPoliciesThatExcludeEachOther(t *testing.T) {
	day := 24 * time.Hour
	limit := mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 10, Period: time.Minute})
	leaky := mustLimit(t, rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 10, Period: time.Minute})
	delays := mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 10, Period: time.Minute, Delays: true})
	delaysByLog := mustLimit(t, rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: 10, Period: time.Minute, Delays: true})
	few := mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 3, Period: time.Minute})
	many := mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: rate.MaxRequests, Period: time.Minute})
	log := mustLimit(t, rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: rate.MaxLogRequests, Period: time.Minute})
	slow := mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1, Period: 366 * day, Burst: 9})
	places, err := rate.NewConcurrency(5)
	must.Succeed(t, err)
	soft := core.OverflowPolicy{SoftPercent: 10, SoftFor: time.Minute}
	count := core.OverflowPolicy{Count: mustStatuses(t, "401,5xx")}
	penalty := core.OverflowPolicy{Penalties: []time.Duration{time.Minute}}
	some := core.OverflowPolicy{CountsSome: true}
	softCount := soft
	softCount.Count = count.Count
	for _, c := range []struct {
		config core.RuleConfig
		want   string
	}{
		{core.RuleConfig{Limit: limit, OverflowPolicy: core.OverflowPolicy{SoftPercent: -1, SoftFor: time.Minute}}, "enforcement soft -1: must be from 1 to 1000 percent"},
		{core.RuleConfig{Limit: limit, OverflowPolicy: core.OverflowPolicy{SoftFor: time.Minute}}, "enforcement soft 0: must be from 1 to 1000 percent"},
		{core.RuleConfig{Limit: limit, OverflowPolicy: core.OverflowPolicy{SoftPercent: 1001, SoftFor: time.Minute}}, "enforcement soft 1001: must be from 1 to 1000 percent"},
		{core.RuleConfig{Limit: limit, OverflowPolicy: core.OverflowPolicy{SoftPercent: 10}}, "enforcement soft 10 0s: the duration must be from 1ms to 366d, in whole microseconds"},
		{core.RuleConfig{Limit: limit, OverflowPolicy: core.OverflowPolicy{SoftPercent: 10, SoftFor: 367 * day}}, "enforcement soft 10 8808h0m0s: the duration must be from 1ms to 366d, in whole microseconds"},
		{core.RuleConfig{Limit: limit, OverflowPolicy: core.OverflowPolicy{SoftPercent: 10, SoftFor: time.Second + 1}}, "enforcement soft 10 1.000000001s: the duration must be from 1ms to 366d, in whole microseconds"},
		{core.RuleConfig{Limit: few, OverflowPolicy: soft}, "enforcement soft: 10 % of 3/1m fixed_window is less than one request, so that there would be no tolerance"},
		{core.RuleConfig{Limit: many, OverflowPolicy: soft}, "enforcement soft: 10 % more than 1000000000/1m fixed_window is above 1000000000, the most that such a limit can have"},
		{core.RuleConfig{Limit: log, OverflowPolicy: soft}, "enforcement soft: 10 % more than 100000/1m sliding_window_log is above 100000, the most that such a limit can have"},
		{core.RuleConfig{Limit: slow, OverflowPolicy: core.OverflowPolicy{SoftPercent: 50, SoftFor: time.Minute}}, "enforcement soft: 50 % of 1/366d token_bucket burst 9: a full bucket would take more than 10 years to drain"},
		{core.RuleConfig{Limit: delays, OverflowPolicy: core.OverflowPolicy{MaxWaiting: -1}}, "max_waiting -1: must be from 1 to 1000000"},
		{core.RuleConfig{Limit: delays, OverflowPolicy: core.OverflowPolicy{MaxWaiting: 1_000_001}}, "max_waiting 1000001: must be from 1 to 1000000"},
		{core.RuleConfig{Limit: limit, OverflowPolicy: core.OverflowPolicy{MaxWaiting: 5}}, "max_waiting 5: requests wait only with on_limit delay"},
		{core.RuleConfig{Limit: limit, OverflowPolicy: core.OverflowPolicy{Penalties: make([]time.Duration, 17)}}, "penalty: has 17 durations; at most 16 are taken"},
		{core.RuleConfig{Limit: limit, OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Minute, 0}}}, "penalty 0s: must be from 1ms to 366d, in whole microseconds"},
		{core.RuleConfig{Limit: limit, OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{367 * day}}}, "penalty 8808h0m0s: must be from 1ms to 366d, in whole microseconds"},
		{core.RuleConfig{Limit: limit, OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Second + 1}}}, "penalty 1.000000001s: must be from 1ms to 366d, in whole microseconds"},

		{core.RuleConfig{Limit: places, OverflowPolicy: count}, "concurrency: without a limit, it excludes enforcement soft, count, penalty and count_rejected; write a limit, or remove them"},
		{core.RuleConfig{Limit: places, OverflowPolicy: penalty}, "concurrency: without a limit, it excludes enforcement soft, count, penalty and count_rejected; write a limit, or remove them"},
		{core.RuleConfig{Limit: places, CountRejected: true}, "concurrency: without a limit, it excludes enforcement soft, count, penalty and count_rejected; write a limit, or remove them"},
		{core.RuleConfig{Limit: places, Concurrency: 3}, "concurrency 3: the rule has one already"},
		{core.RuleConfig{Limit: limit, Concurrency: -1}, "concurrency -1: must be from 1 to 1000000000"},
		{core.RuleConfig{Limit: limit, Concurrency: rate.MaxRequests + 1}, "concurrency 1000000001: must be from 1 to 1000000000"},
		{core.RuleConfig{Limit: limit, Shadow: true, OverflowPolicy: soft}, "enforcement soft and enforcement shadow are mutually exclusive: remove one"},
		{core.RuleConfig{Limit: limit, Shadow: true, OverflowPolicy: penalty}, "penalty and enforcement shadow are mutually exclusive: a shadow blocks nobody; remove one"},
		{core.RuleConfig{Limit: delays, Shadow: true, OverflowPolicy: core.OverflowPolicy{MaxWaiting: 5}}, "max_waiting and enforcement shadow are mutually exclusive: a shadow makes nobody wait; remove one"},
		{core.RuleConfig{Limit: delaysByLog, Shadow: true}, "on_limit delay and enforcement shadow are mutually exclusive with sliding_window_log, which needs requests that wait to keep their places; choose token_bucket or fixed_window"},
		{core.RuleConfig{Limit: delays, OverflowPolicy: soft}, "on_limit delay and enforcement soft are mutually exclusive: past the limit, requests wait or pass; remove one"},
		{core.RuleConfig{Limit: delays, OverflowPolicy: count}, "on_limit delay and count are mutually exclusive: what a request is charged is known too late to say when the next may leave; remove one"},
		{core.RuleConfig{Limit: delays, CountRejected: true}, "on_limit delay and count_rejected are mutually exclusive: a rejected request has no place in the queue; remove one"},
		{core.RuleConfig{Limit: limit, OverflowPolicy: softCount}, "count and enforcement soft are mutually exclusive: remove one"},
		{core.RuleConfig{Limit: limit, CountRejected: true, OverflowPolicy: count}, "count and count_rejected are mutually exclusive: a rejected request has no response to count by; remove one"},
		{core.RuleConfig{Limit: leaky, OverflowPolicy: count}, "count: leaky_bucket reserves each request's departure on arrival, before its status is known; choose another algorithm"},
		{core.RuleConfig{Limit: leaky, OverflowPolicy: some}, "count_match: leaky_bucket has each request wait for its turn, which one that is not counted does not have; choose another algorithm"},
		{core.RuleConfig{Limit: limit, Candidate: few, OverflowPolicy: some}, "candidate and count_match are mutually exclusive: what the candidate allows and the limit rejects never has a response; remove one"},
		{core.RuleConfig{Limit: leaky, OverflowPolicy: soft}, "enforcement soft: leaky_bucket makes requests wait; write a larger burst, or choose another algorithm"},
		{core.RuleConfig{Limit: limit, Blocks: true, OverflowPolicy: soft}, "a rule that rejects every request: enforcement soft, on_limit delay, count and penalty have no effect"},
		{core.RuleConfig{Limit: limit, Blocks: true, OverflowPolicy: count}, "a rule that rejects every request: enforcement soft, on_limit delay, count and penalty have no effect"},
		{core.RuleConfig{Limit: limit, Blocks: true, OverflowPolicy: penalty}, "a rule that rejects every request: enforcement soft, on_limit delay, count and penalty have no effect"},
		{core.RuleConfig{Limit: delays, Blocks: true}, "a rule that rejects every request: enforcement soft, on_limit delay, count and penalty have no effect"},

		{core.RuleConfig{Limit: places, Candidate: limit}, "candidate: there is no limit for it to be compared with"},
		{core.RuleConfig{Limit: delays, Candidate: limit}, "candidate and on_limit delay are mutually exclusive: a candidate can be compared only with a limit that rejects; remove one"},
		{core.RuleConfig{Limit: limit, Candidate: delays}, "candidate and on_limit delay are mutually exclusive: a candidate can be compared only with a limit that rejects; remove one"},
		{core.RuleConfig{Limit: limit, Candidate: few, OverflowPolicy: count}, "candidate and count are mutually exclusive: what the candidate allows and the limit rejects never has a response; remove one"},
		{core.RuleConfig{Limit: limit, Candidate: few, Blocks: true}, "candidate: the rule rejects every request, and has no limit for it to be compared with"},
	} {
		c.config.Name = "r"
		r, err := core.NewRule(c.config)
		if err == nil || err.Error() != `rule "r": `+c.want || r != nil {
			t.Errorf("%+v:\n got %v\nwant rule \"r\": %s", c.config, err, c.want)
		}
	}
	for _, c := range []core.RuleConfig{
		{Limit: limit, OverflowPolicy: core.OverflowPolicy{SoftPercent: core.MaxSoftPercent, SoftFor: rate.MaxPeriod}},
		{Limit: limit, OverflowPolicy: core.OverflowPolicy{SoftPercent: 10, SoftFor: rate.MinPeriod, Penalties: []time.Duration{rate.MinPeriod, rate.MaxPeriod}}, CountRejected: true},
		{Limit: limit, OverflowPolicy: core.OverflowPolicy{Count: count.Count, Penalties: penalty.Penalties}, Concurrency: 1, Shadow: false},
		{Limit: limit, OverflowPolicy: count, Shadow: true},
		{Limit: leaky, OverflowPolicy: penalty, Candidate: limit, Concurrency: rate.MaxRequests},
		{Limit: delays, OverflowPolicy: core.OverflowPolicy{MaxWaiting: core.MaxMaxWaiting, Penalties: penalty.Penalties}, Concurrency: 1},
		{Limit: limit, Candidate: few, Concurrency: 5, Shadow: true, CountRejected: true},
		{Limit: places, Shadow: true},
	} {
		c.Name = "r"
		if _, err := core.NewRule(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestNewLimitRefusesDelaysThatItCannotMake(t *testing.T) {
	for _, c := range []struct {
		config rate.LimitConfig
		want   string
	}{
		{rate.LimitConfig{Algorithm: rate.SlidingWindowCounter, Delays: true}, "on_limit delay: sliding_window_counter cannot say when a request may leave; choose the algorithm token_bucket, sliding_window_log or fixed_window"},
		{rate.LimitConfig{Delays: true}, "on_limit delay: sliding_window_counter cannot say when a request may leave; choose the algorithm token_bucket, sliding_window_log or fixed_window"},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, MaxDelay: time.Second}, "max_delay 1s: only leaky_bucket and on_limit delay make requests wait, not token_bucket"},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Delays: true, MaxDelay: time.Hour + time.Second}, "max_delay 1h0m1s: must be from 1µs to 1h"},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Delays: true, MaxDelay: time.Second + 1}, "max_delay 1.000000001s: must be whole microseconds"},
	} {
		c.config.Requests = 10
		c.config.Period = time.Minute
		if l, err := rate.NewLimit(c.config); err == nil || err.Error() != c.want || l != nil {
			t.Errorf("%+v:\n got %v\nwant %s", c.config, err, c.want)
		}
	}
	if _, err := rate.NewConcurrency(0); err == nil || err.Error() != "concurrency 0: must be from 1 to 1000000000" {
		t.Error(err)
	}
}

// A candidate, and the rule for requests in flight, have counters of their own. The latter has a name of its own for clients.
func TestRulesBesideARuleShareNothingWithIt(t *testing.T) {
	limit := mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 10, Period: time.Minute})
	r := mustRule(t, core.RuleConfig{Name: "r", Limit: limit, Candidate: limit, Concurrency: 5, CountRejected: true})
	if len(r.Linked()) != 2 {
		t.Fatalf("%v", r.Linked())
	}
	candidate, places := r.Linked()[0], r.Linked()[1]
	if !candidate.IsCandidate() || !candidate.Shadow || !candidate.CountRejected || candidate.Limit != limit {
		t.Errorf("candidate: %+v", candidate)
	}
	if places.IsCandidate() || places.Shadow || places.CountRejected || !places.Limit.InFlight || places.Limit.Requests != 5 {
		t.Errorf("concurrency: %+v", places)
	}
	if candidate.Identity == r.Identity || places.Identity == r.Identity || places.Identity == candidate.Identity {
		t.Errorf("%q, %q, %q", r.Identity, candidate.Identity, places.Identity)
	}
	must.Equal(t, places.PolicyText, `"r.concurrency";q=5;qu="concurrent-requests"`, "clients get")
	// A changed concurrency counts the same requests in flight: a reload changes only the number.
	more := mustRule(t, core.RuleConfig{Name: "r", Limit: limit, Concurrency: 9})
	if more.Linked()[0].Identity != places.Identity {
		t.Errorf("%q is not %q", more.Linked()[0].Identity, places.Identity)
	}
}

// overflowScene is a limiter over memory, at a time that stands still.
type overflowScene struct {
	t       *testing.T
	now     int64
	store   *Store
	limiter *core.Limiter
}

func newOverflowScene(t *testing.T, c Config) *overflowScene {
	s := &overflowScene{t: t, now: 1_772_452_820_000_000}
	c.Clock = s.clock
	s.store = New(c)
	s.limiter = core.NewLimiter(s.store)
	return s
}

func (s *overflowScene) clock() int64 { return s.now }

func (s *overflowScene) open(c core.RuleConfig) *core.Rule {
	s.t.Helper()
	r := mustRule(s.t, c)
	must.Succeed(s.t, s.limiter.Open(r))
	return r
}

// ask decides on a request under rules, and returns its reservations.
func (s *overflowScene) ask(key string, rules ...*core.Rule) (core.Verdict, []core.Reservation) {
	s.t.Helper()
	checks := make([]core.Check, len(rules))
	for i := range rules {
		checks[i].Rule = rules[i]
		checks[i].Key = key
	}
	var v core.Verdict
	must.Succeed(s.t, s.limiter.Decide(checks, false, &v))
	reservations := core.AppendReservations(nil, checks)
	if v.Reserved != (len(reservations) > 0) && v.Outcome != core.Reject {
		s.t.Fatalf("%+v, and yet it has the reservations %+v", v, reservations)
	}
	return v, reservations
}

func (s *overflowScene) wants(what string, got core.Verdict, outcome core.Outcome, retry, delay int64) {
	s.t.Helper()
	if got.Outcome != outcome || got.RetryAfter != retry || got.Delay != delay {
		s.t.Fatalf("%s: %+v; want %s, retry %d, delay %d", what, got, outcome.String(), retry, delay)
	}
}

func slowly(t *testing.T, requests int64, period, longest time.Duration) *rate.Limit {
	t.Helper()
	return mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: requests, Period: period, Delays: true, MaxDelay: longest})
}

// inSeconds is a second in a store's unit of time.
const inSeconds int64 = 1_000_000

func TestNoMoreRequestsOfARuleWaitThanMay(t *testing.T) {
	s := newOverflowScene(t, Config{})
	r := s.open(core.RuleConfig{Name: "r", Limit: slowly(t, 1, 10*time.Second, time.Minute), OverflowPolicy: core.OverflowPolicy{MaxWaiting: 2, MaxWaitingPerKey: 2}})
	v, _ := s.ask("alice", r)
	s.wants("the first", v, core.Allow, 0, 0)
	v, first := s.ask("alice", r)
	s.wants("the second", v, core.Delay, 0, 10*inSeconds)
	v, last := s.ask("alice", r)
	s.wants("the third", v, core.Delay, 0, 20*inSeconds)
	v, none := s.ask("alice", r)
	s.wants("a third that would wait", v, core.Reject, 30*inSeconds, 0)
	if len(none) > 0 || v.Reserved {
		t.Errorf("it has the reservations %+v", none)
	}
	v, _ = s.ask("bob", r) // a request that does not wait is not one too many
	s.wants("bob", v, core.Allow, 0, 0)
	v, _ = s.ask("bob", r) // the places are the rule's, whatever the key
	s.wants("bob, waiting", v, core.Reject, 10*inSeconds, 0)

	must.Succeed(t, s.limiter.Leave(last))
	v, last = s.ask("alice", r)
	s.wants("in place of the one that left", v, core.Delay, 0, 20*inSeconds)
	s.limiter.Depart(first)
	v, more := s.ask("alice", r)
	s.wants("when one has departed", v, core.Delay, 0, 30*inSeconds)
	s.limiter.Depart(last)
	s.limiter.Depart(more)
	s.limiter.Depart(more) // a second call has no effect
	must.Equal(t, r.Waiting(), 0, "wait, when all have departed")
}

// Concurrent requests may all get a delay before the first is counted. The last of them is then rejected after all, and gives
// everything back.
func TestARequestOneTooManyGivesEverythingBack(t *testing.T) {
	s := newOverflowScene(t, Config{})
	r := s.open(core.RuleConfig{Name: "r", Limit: slowly(t, 1, 10*time.Second, time.Minute), OverflowPolicy: core.OverflowPolicy{MaxWaiting: 1}})
	count := s.open(core.RuleConfig{Name: "count", Limit: perHour(t, rate.FixedWindow, 5), OverflowPolicy: core.OverflowPolicy{Count: mustStatuses(t, "401")}})
	s.ask("alice", r)
	var early, late core.Verdict
	one := []core.Check{{Rule: r, Key: "alice", Cost: 1}}
	two := []core.Check{{Rule: count, Key: "alice", Cost: 1}, {Rule: r, Key: "alice", Cost: 1}}
	for _, checks := range [][]core.Check{one, two} { // as adapters do that ask the store themselves
		must.Succeed(t, s.store.Decide(checks, false))
	}
	_, err := s.limiter.Conclude(one[:0], one, nil, &early)
	must.Succeed(t, err)
	late.Reserved = true // left from an earlier request
	_, err = s.limiter.Conclude(two[:0], two, nil, &late)
	must.Succeed(t, err)
	s.wants("the early one", early, core.Delay, 0, 10*inSeconds)
	s.wants("the late one", late, core.Reject, 20*inSeconds, 0)
	if late.Reported != 1 || late.Reserved || two[1].Decision.Allowed || two[1].Decision.RetryAfter != 20*inSeconds || two[1].Decision.Delay != 0 {
		t.Errorf("%+v, %+v", late, two)
	}
	if n := r.Waiting(); n != 1 {
		t.Errorf("%d wait; want the early one", n)
	}
	s.limiter.Depart(core.AppendReservations(nil, one))
	v, _ := s.ask("alice", r, count)
	s.wants("in its place", v, core.Delay, 0, 20*inSeconds)
	checks := []core.Check{{Rule: count, Key: "alice"}}
	if err := s.store.Decide(checks, true); err != nil || checks[0].Decision.Remaining != 4 {
		t.Errorf("%v, %+v; want one reserved", err, checks[0].Decision)
	}
}

// For a defect: a request was counted among those that wait for a rule which would have let it depart at once.
func TestARequestThatWaitsForAnotherRuleTakesNoPlace(t *testing.T) {
	s := newOverflowScene(t, Config{})
	slow := s.open(core.RuleConfig{Name: "slow", Limit: slowly(t, 1, 10*time.Second, time.Minute)})
	quick := s.open(core.RuleConfig{Name: "quick", Limit: slowly(t, 100, 10*time.Second, time.Minute), OverflowPolicy: core.OverflowPolicy{MaxWaiting: 1}})
	s.ask("alice", slow)
	for i := int64(1); i <= 3; i++ {
		v, reservations := s.ask("alice", slow, quick)
		s.wants("beside a slow rule", v, core.Delay, 0, 10*i*inSeconds)
		if len(reservations) != 2 || quick.Waiting() != 0 || slow.Waiting() != i {
			t.Errorf("it has the reservations %+v; %d wait for the quick rule", reservations, quick.Waiting())
		}
	}
}

func TestFinishChargesByTheStatus(t *testing.T) {
	s := newOverflowScene(t, Config{})
	count := s.open(core.RuleConfig{Name: "count", Limit: perHour(t, rate.FixedWindow, 3), OverflowPolicy: core.OverflowPolicy{Count: mustStatuses(t, "401,5xx")}, Concurrency: 2})
	places := count.Linked()[0]
	for i, c := range []struct {
		status  int
		charged int64
	}{{200, 0}, {401, 1}, {404, 1}, {503, 2}, {0, 2}, {599, 3}} {
		v, reservations := s.ask("alice", count)
		if v.Outcome != core.Allow || !v.Reserved || len(reservations) != 2 {
			t.Fatalf("request %d: %+v with the reservations %+v", i+1, v, reservations)
		}
		must.Succeed(t, s.limiter.Finish(reservations, c.status))
		checks := []core.Check{{Rule: count, Key: "alice"}, {Rule: places, Key: "alice"}}
		must.Succeed(t, s.store.Decide(checks, true))
		if d := checks[0].Decision; 3-d.Remaining != c.charged {
			t.Errorf("after a %d: %+v; want %d charged", c.status, d, c.charged)
		}
		if d := checks[1].Decision; d.Remaining != 1 && c.charged < 3 {
			t.Errorf("after a %d: %+v; want both places free", c.status, d)
		}
	}
	v, reservations := s.ask("alice", count)
	if v.Outcome != core.Reject || v.Reported != 0 || v.InFlight || len(reservations) > 0 {
		t.Errorf("after three that stay charged: %+v, with the reservations %+v", v, reservations)
	}
}

// A request that has waited, and is counted by status too, is charged once by each rule.
func TestARequestThatHasWaitedIsFinishedLikeOthers(t *testing.T) {
	s := newOverflowScene(t, Config{})
	slow := s.open(core.RuleConfig{Name: "slow", Limit: slowly(t, 1, 10*time.Second, time.Minute)})
	count := s.open(core.RuleConfig{Name: "count", Limit: perHour(t, rate.FixedWindow, 3), OverflowPolicy: core.OverflowPolicy{Count: mustStatuses(t, "401")}})
	s.ask("alice", slow)
	v, reservations := s.ask("alice", slow, count)
	s.wants("the second", v, core.Delay, 0, 10*inSeconds)
	s.now += 10 * inSeconds
	s.limiter.Depart(reservations)
	must.Succeed(t, s.limiter.Finish(reservations, 401))
	checks := []core.Check{{Rule: count, Key: "alice"}, {Rule: slow, Key: "alice", Cost: 1}}
	if err := s.store.Decide(checks, true); err != nil || checks[0].Decision.Remaining != 2 || checks[1].Decision.Delay != 10*inSeconds {
		t.Errorf("%v, %+v", err, checks)
	}
}

func TestKeysAreBlockedAndUnblockedThroughTheLimiter(t *testing.T) {
	s := newOverflowScene(t, Config{})
	penal := s.open(core.RuleConfig{Name: "penal", Limit: perHour(t, rate.FixedWindow, 3), OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Minute}}})
	plain := s.open(core.RuleConfig{Name: "plain", Limit: perHour(t, rate.FixedWindow, 3)})
	for _, r := range []*core.Rule{penal, plain} {
		for _, c := range []struct {
			duration int64
			want     string
		}{
			{0, "a key is blocked for 1µs to 366d, not for 0 µs"},
			{-1, "a key is blocked for 1µs to 366d, not for -1 µs"},
			{366*24*3600*inSeconds + 1, "a key is blocked for 1µs to 366d, not for 31622400000001 µs"},
		} {
			if err := s.limiter.Block(r, "alice", c.duration); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		}
		must.Succeed(t, s.limiter.Block(r, "alice", 366*24*3600*inSeconds))
		v, _ := s.ask("alice", r)
		s.wants("a blocked key", v, core.Reject, 366*24*3600*inSeconds, 0)
		must.Succeed(t, s.limiter.Unblock(r, "alice"))
		v, _ = s.ask("alice", r)
		s.wants("an unblocked key", v, core.Allow, 0, 0)
	}
}

func TestAVerdictSaysThatARequestIsTolerated(t *testing.T) {
	s := newOverflowScene(t, Config{})
	r := s.open(core.RuleConfig{Name: "r", Limit: perHour(t, rate.FixedWindow, 2), OverflowPolicy: core.OverflowPolicy{SoftPercent: 50, SoftFor: time.Minute}})
	full := s.open(core.RuleConfig{Name: "full", Limit: perHour(t, rate.FixedWindow, 1)})
	s.ask("alice", full)
	for i, want := range []bool{false, false, true} {
		if i == 2 {
			v, _ := s.ask("alice", r, full)
			if v.Outcome != core.Reject || v.Soft {
				t.Errorf("beside a rule that rejects: %+v", v)
			}
		}
		if v, _ := s.ask("alice", r); v.Outcome != core.Allow || v.Soft != want {
			t.Errorf("request %d: %+v", i+1, v)
		}
	}
	if v, _ := s.ask("alice", r); v.Outcome != core.Reject || v.Soft {
		t.Errorf("the fourth: %+v", v)
	}
}

func TestAVerdictThatIsUsedAgainForgetsTheLast(t *testing.T) {
	store := &recorder{err: errors.New("down")}
	l := core.NewLimiter(store)
	r := mustRule(t, core.RuleConfig{Name: "r", OnError: core.RejectAll})
	v := core.Verdict{Outcome: core.Delay, Reported: 3, RetryAfter: 5, Delay: 7, Soft: true, Reserved: true}
	want := core.Verdict{Outcome: core.Unavailable, Reported: -1, RetryAfter: 1_000_000}
	if err := l.Decide([]core.Check{{Rule: r, Key: "k"}}, false, &v); err != store.err || v != want {
		t.Errorf("%v, %+v", err, v)
	}
}

// settledStore is a store that can fail, and records what it has to settle.
type settledStore struct {
	*shared
	settled int
}

func (s *settledStore) Settle(reservations []core.Reservation) error {
	s.settled += len(reservations)
	return s.Store.Settle(reservations)
}

// Reservations that a request made in memory while the store had failed end in memory, even if the store is back.
func TestReservationsMadeWithoutTheStoreEndInMemory(t *testing.T) {
	f := newFallen(t, 1)
	store := &settledStore{shared: f.store}
	f.limiter = core.NewLimiter(store)
	f.limiter.FallBack(f.local, 1)
	count := f.open(core.RuleConfig{Name: "count", Limit: perHour(t, rate.FixedWindow, 5), OverflowPolicy: core.OverflowPolicy{Count: mustStatuses(t, "401")}, Concurrency: 2})
	var all [][]core.Reservation
	for i := 0; i < 2; i++ {
		checks, v := f.ask("k", 1, false, count)
		if v.Outcome != core.Allow || !v.Reserved {
			t.Fatalf("%+v", v)
		}
		all = append(all, core.AppendReservations(nil, checks))
	}
	if _, v := f.ask("k", 1, false, count); v.Outcome != core.Reject || v.Reported != 0 || !v.InFlight {
		t.Fatalf("a third at once: %+v", v)
	}
	f.store.failure = nil
	checks, v := f.ask("k", 1, false, count) // the store does not know the two
	if v.Outcome != core.Allow {
		t.Fatalf("with the store back: %+v", v)
	}
	if err := f.limiter.Finish(core.AppendReservations(nil, checks), 401); err != nil || store.settled != 2 {
		t.Fatalf("%v, the store has settled %d", err, store.settled)
	}
	must.Succeed(t, f.limiter.Finish(all[0], 401))
	must.Succeed(t, f.limiter.Finish(all[1], 200))
	must.Equal(t, store.settled, 2, "the store has settled %d; want what was reserved in it", store.settled)
	f.store.failure = errors.New("down")
	checks, v = f.ask("k", 1, true, count)
	if v.Outcome != core.Allow || checks[0].Decision.Remaining != 3 || checks[0].InFlight.Decision.Remaining != 1 {
		t.Errorf("%+v: %+v; want one charged, and both places free", v, checks)
	}
}

// For a defect: what memory took over from the store's last knowledge was reserved, and nobody ended it.
func TestWhatMemoryTakesOverIsNotReservedForGood(t *testing.T) {
	f := newFallen(t, 1)
	count := f.open(core.RuleConfig{Name: "count", Limit: perHour(t, rate.FixedWindow, 5), OverflowPolicy: core.OverflowPolicy{Count: mustStatuses(t, "401")}})
	places := f.open(core.RuleConfig{Name: "places", Limit: mustConcurrency(t, 3)})
	f.store.known["count"] = rate.Decision{Limit: 5, Remaining: 1}
	f.store.known["places"] = rate.Decision{Limit: 3, Remaining: 0}
	for i := 0; i < 4; i++ {
		checks, v := f.ask("count", 1, false, count)
		if v.Outcome != core.Allow || checks[0].Decision.Remaining != 0 {
			t.Fatalf("request %d, 4 of 5 being used: %+v, %+v", i+1, v, checks[0].Decision)
		}
		must.Succeed(t, f.limiter.Finish(core.AppendReservations(nil, checks), 200))
		// Memory takes over no requests in flight: those that the store counts end in the store.
		checks, v = f.ask("places", 1, false, places)
		if v.Outcome != core.Allow || checks[0].Decision.Remaining != 2 {
			t.Fatalf("request %d: %+v, %+v", i+1, v, checks[0].Decision)
		}
		must.Succeed(t, f.limiter.Finish(core.AppendReservations(nil, checks), 200))
	}
	f.now += 2 * 3600 * inSeconds
	f.local.Sweep()
	if err := leak(f.local); err != nil {
		t.Error(err)
	}
}

func mustConcurrency(t *testing.T, n int64) *rate.Limit {
	t.Helper()
	l, err := rate.NewConcurrency(n)
	must.Succeed(t, err)
	return l
}

func TestPenaltiesApplyWithoutTheStoreToo(t *testing.T) {
	f := newFallen(t, 2)
	r := f.open(core.RuleConfig{Name: "r", Limit: perHour(t, rate.FixedWindow, 4), OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{2 * time.Hour}}})
	if n := f.admits("k", 3, r); n != 2 {
		t.Fatalf("%d of 3 are admitted; want this node's share of 4", n)
	}
	if _, v := f.ask("k", 1, false, r); v.RetryAfter != 2*3600*inSeconds {
		t.Errorf("a blocked key: %+v", v)
	}
	f.store.failure = nil
	must.Succeed(t, f.limiter.Block(r, "other", 60*inSeconds))
	f.store.failure = errors.New("down")
	if _, v := f.ask("other", 1, false, r); v.Outcome != core.Reject || v.RetryAfter != 60*inSeconds {
		t.Errorf("a key that was blocked before the store failed: %+v", v)
	}
}

func TestARuleThatCountsByStatusOrInFlightHasNoFastPath(t *testing.T) {
	m := New(Config{Index: Mapped})
	limit := mustLimit(t, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 5, Period: time.Minute})
	for i, c := range []core.RuleConfig{
		{Limit: limit, OverflowPolicy: core.OverflowPolicy{Count: mustStatuses(t, "401")}},
		{Limit: mustConcurrency(t, 5)},
	} {
		c.Name = "r" + strconv.Itoa(i)
		r := mustRule(t, c)
		must.Succeed(t, m.Open(r))
		if NewFastPath(m, r) != nil {
			t.Errorf("%+v has one", c)
		}
	}
}
