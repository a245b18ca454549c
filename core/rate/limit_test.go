package rate

import (
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

func TestParseLimitReadsRequestsAndPeriod(t *testing.T) {
	for _, c := range []struct {
		text     string
		requests int64
		period   time.Duration
		calendar Calendar
	}{
		{"100/1m", 100, time.Minute, Epoch},
		{"5/10s", 5, 10 * time.Second, Epoch},
		{"1/1ms", 1, time.Millisecond, Epoch},
		{"1/1.5s", 1, 1500 * time.Millisecond, Epoch},
		{"7/1m30s", 7, 90 * time.Second, Epoch},
		{"1000000000/366d", 1_000_000_000, 366 * 24 * time.Hour, Epoch},
		{"3/7d", 3, 7 * 24 * time.Hour, Epoch},
		{"3/1d12h", 3, 36 * time.Hour, Epoch},
		{"007/1m", 7, time.Minute, Epoch},
		{"1000/day", 1000, 0, Day},
		{"1000/week", 1000, 0, Week},
		{"1000/month", 1000, 0, Month},
	} {
		got := LimitConfig{Period: time.Hour, Calendar: Week} // left from an earlier limit
		if err := ParseLimit(c.text, &got); err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got.Requests != c.requests || got.Period != c.period || got.Calendar != c.calendar {
			t.Errorf("%s: %+v", c.text, got)
		}
	}
}

func TestParseLimitSaysWhatIsWrongAndWhatIsAccepted(t *testing.T) {
	duration := `must be a duration such as 10s, 1m, 24h or 7d, or day, week or month`
	for _, c := range []struct{ text, want string }{
		{"100", `limit "100": has no period; write <requests>/<period>, such as 100/1m`},
		{"", `limit "": has no period; write <requests>/<period>, such as 100/1m`},
		{"lots", `limit "lots": has no period; write <requests>/<period>, such as 100/1m`},
		{"25", `limit "25": has no period; write <requests>/<period>, such as 25/1m`},
		{"5/0s", `limit "5/0s": the period must be from 1ms to 366d`},
		{"5/0", `limit "5/0": the period must be from 1ms to 366d`},
		{"5/999us", `limit "5/999us": the period must be from 1ms to 366d`},
		{"5/367d", `limit "5/367d": the period must be from 1ms to 366d`},
		{"5/366d1ns", `limit "5/366d1ns": the period must be from 1ms to 366d`},
		{"5/65535d2562047h", `limit "5/65535d2562047h": the period must be from 1ms to 366d`},
		{"5/-1m", `limit "5/-1m": the period must be from 1ms to 366d`},
		{"5/1.0000001s", `limit "5/1.0000001s": the period must be whole microseconds`},
		{"-1/1m", `limit "-1/1m": the requests must be a whole number from 1 to 1000000000`},
		{"0/1m", `limit "0/1m": the requests must be a whole number from 1 to 1000000000`},
		{"+5/1m", `limit "+5/1m": the requests must be a whole number from 1 to 1000000000`},
		{"1e99/1m", `limit "1e99/1m": the requests must be a whole number from 1 to 1000000000`},
		{"1.5/1m", `limit "1.5/1m": the requests must be a whole number from 1 to 1000000000`},
		{"1000000001/1m", `limit "1000000001/1m": the requests must be a whole number from 1 to 1000000000`},
		{"99999999999999999999/1m", `limit "99999999999999999999/1m": the requests must be a whole number from 1 to 1000000000`},
		{"/1m", `limit "/1m": the requests must be a whole number from 1 to 1000000000`},
		{" 5/1m", `limit " 5/1m": the requests must be a whole number from 1 to 1000000000`},
		{"100/m", `limit "100/m": the period "m" has no number; write 1m`},
		{"100/d", `limit "100/d": the period "d" has no number; write 1d`},
		{"100/", `limit "100/": the period "" ` + duration},
		{"100/minute", `limit "100/minute": the period "minute" ` + duration + ` (did you mean 1m?)`},
		{"100/hour", `limit "100/hour": the period "hour" ` + duration + ` (did you mean 1h?)`},
		{"100/15 min", `limit "100/15 min": the period "15 min" ` + duration + ` (did you mean 15m?)`},
		{"100/2weeks", `limit "100/2weeks": the period "2weeks" ` + duration + ` (did you mean 14d?)`},
		{"100/year", `limit "100/year": the period "year" ` + duration},
		{"100/Day", `limit "100/Day": the period "Day" ` + duration + ` (did you mean day?)`},
		{"100/60", `limit "100/60": the period "60" ` + duration + ` (did you mean 60s?)`},
		{"100/1m/2", `limit "100/1m/2": the period "1m/2" ` + duration},
		{"100/1d-1h", `limit "100/1d-1h": the period "1d-1h" ` + duration},
		{"100/1.5d", `limit "100/1.5d": the period "1.5d" ` + duration},
		{"100/-1d", `limit "100/-1d": the period "-1d" ` + duration},
		{"10r/m", `limit "10r/m": the requests must be a whole number from 1 to 1000000000 (did you mean 10/1m?)`},
		{"5r/s", `limit "5r/s": the requests must be a whole number from 1 to 1000000000 (did you mean 5/1s?)`},
		{"20 requests / 30s", `limit "20 requests / 30s": the requests must be a whole number from 1 to 1000000000 (did you mean 20/30s?)`},
		{"10req/min", `limit "10req/min": the requests must be a whole number from 1 to 1000000000 (did you mean 10/1m?)`},
		{"10-M", `limit "10-M": has no period; write <requests>/<period>, such as 100/1m (did you mean 10/1m?)`},
		{"1000-H", `limit "1000-H": has no period; write <requests>/<period>, such as 100/1m (did you mean 1000/1h?)`},
		{"10 per minute", `limit "10 per minute": has no period; write <requests>/<period>, such as 100/1m (did you mean 10/1m?)`},
		{"10 requests per 15 minutes", `limit "10 requests per 15 minutes": has no period; write <requests>/<period>, such as 100/1m (did you mean 10/15m?)`},
		{"100 a day", `limit "100 a day": has no period; write <requests>/<period>, such as 100/1m (did you mean 100/day?)`},
		{"50rpm", `limit "50rpm": has no period; write <requests>/<period>, such as 100/1m (did you mean 50/1m?)`},
		{"50 rps", `limit "50 rps": has no period; write <requests>/<period>, such as 100/1m (did you mean 50/1s?)`},
		{"10 per fortnight", `limit "10 per fortnight": has no period; write <requests>/<period>, such as 100/1m`},
		{"10r", `limit "10r": has no period; write <requests>/<period>, such as 100/1m`},
		{"10 requests", `limit "10 requests": has no period; write <requests>/<period>, such as 100/1m`},
		{"10 / minute", `limit "10 / minute": the requests must be a whole number from 1 to 1000000000 (did you mean 10/1m?)`},
		{"100/1d1d", `limit "100/1d1d": the period "1d1d" ` + duration},
	} {
		var got LimitConfig
		if err := ParseLimit(c.text, &got); err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestNewLimitSaysWhatIsWrongAndWhatIsAccepted(t *testing.T) {
	berlin := time.FixedZone("Europe/Berlin", 3600)
	day := 24 * time.Hour
	for _, c := range []struct {
		name   string
		config LimitConfig
		want   string
	}{
		{"no requests", LimitConfig{Period: time.Minute}, "requests 0: must be from 1 to 1000000000"},
		{"negative requests", LimitConfig{Requests: -1, Period: time.Minute}, "requests -1: must be from 1 to 1000000000"},
		{"too many requests", LimitConfig{Requests: MaxRequests + 1, Period: time.Minute}, "requests 1000000001: must be from 1 to 1000000000"},
		{"too many for a log", LimitConfig{Algorithm: SlidingWindowLog, Requests: 100_001, Period: time.Minute},
			"requests 100001: a sliding_window_log keeps a time for each request and takes at most 100000; sliding_window_counter takes more"},
		{"no period", LimitConfig{Requests: 1}, "period 0s: must be from 1ms to 366d"},
		{"short period", LimitConfig{Requests: 1, Period: 999 * time.Microsecond}, "period 999µs: must be from 1ms to 366d"},
		{"long period", LimitConfig{Requests: 1, Period: 367 * day}, "period 367d: must be from 1ms to 366d"},
		{"part of a microsecond", LimitConfig{Requests: 1, Period: time.Second + 1}, "period 1.000000001s: must be whole microseconds"},
		{"zone without calendar", LimitConfig{Requests: 1, Period: day, Location: berlin},
			`time_zone "Europe/Berlin": only windows of the calendar have one (limit <requests>/day, /week or /month)`},
		{"no such calendar", LimitConfig{Algorithm: FixedWindow, Requests: 1, Calendar: 4}, "calendar 4: must be day, week or month"},
		{"negative calendar", LimitConfig{Algorithm: FixedWindow, Requests: 1, Calendar: -1}, "calendar -1: must be day, week or month"},
		{"calendar of another algorithm", LimitConfig{Algorithm: TokenBucket, Requests: 1, Calendar: Day},
			`period "day": only fixed_window follows the calendar, not token_bucket; write a duration such as 24h`},
		{"calendar and period", LimitConfig{Requests: 1, Calendar: Month, Period: time.Hour}, "period 1h: a window of the calendar has none of its own"},
		{"burst on a window", LimitConfig{Algorithm: FixedWindow, Requests: 1, Period: time.Minute, Burst: 5},
			"burst 5: only token_bucket and leaky_bucket have a burst, not fixed_window"},
		{"burst on the default", LimitConfig{Requests: 1, Period: time.Minute, Burst: 5},
			"burst 5: only token_bucket and leaky_bucket have a burst, not sliding_window_counter"},
		{"negative burst", LimitConfig{Algorithm: TokenBucket, Requests: 1, Period: time.Minute, Burst: -5}, "burst -5: must be from 1 to 1000000000"},
		{"large burst", LimitConfig{Algorithm: LeakyBucket, Requests: 1, Period: time.Minute, Burst: MaxRequests + 1}, "burst 1000000001: must be from 1 to 1000000000"},
		{"a bucket for more than ten years", LimitConfig{Algorithm: TokenBucket, Requests: 1, Period: 365 * day, Burst: 11},
			"burst 11: at 1 per 365d a full bucket would take more than 10 years to drain"},
		{"interval on another", LimitConfig{Algorithm: LeakyBucket, Requests: 1, Period: time.Minute, Interval: true},
			"refill interval: only token_bucket is refilled, not leaky_bucket"},
		{"delay on another", LimitConfig{Algorithm: TokenBucket, Requests: 1, Period: time.Minute, MaxDelay: time.Second},
			"max_delay 1s: only leaky_bucket and on_limit delay make requests wait, not token_bucket"},
		{"negative delay", LimitConfig{Algorithm: LeakyBucket, Requests: 1, Period: time.Minute, MaxDelay: -time.Second}, "max_delay -1s: must be from 1µs to 1h"},
		{"long delay", LimitConfig{Algorithm: LeakyBucket, Requests: 1, Period: time.Minute, MaxDelay: 2 * time.Hour}, "max_delay 2h0m0s: must be from 1µs to 1h"},
		{"short delay", LimitConfig{Algorithm: LeakyBucket, Requests: 1, Period: time.Minute, MaxDelay: 500}, "max_delay 500ns: must be from 1µs to 1h"},
		{"part of a microsecond of delay", LimitConfig{Algorithm: LeakyBucket, Requests: 1, Period: time.Minute, MaxDelay: 1500}, "max_delay 1.5µs: must be whole microseconds"},
	} {
		if l, err := NewLimit(c.config); err == nil || err.Error() != c.want || l != nil {
			t.Errorf("%s:\n got %v\nwant %s", c.name, err, c.want)
		}
	}
	if _, err := NewLimit(LimitConfig{Algorithm: InFlight, Requests: 1, Period: time.Minute}); err == nil || !strings.HasPrefix(err.Error(), "algorithm 6: must be one of token_bucket, ") {
		t.Errorf("an unknown algorithm: %v", err)
	}
}

func TestNewLimitTakesTheExtremes(t *testing.T) {
	for _, c := range []LimitConfig{
		{Requests: MaxRequests, Period: MaxPeriod},
		{Requests: 1, Period: MinPeriod},
		{Algorithm: SlidingWindowLog, Requests: MaxLogRequests, Period: MaxPeriod},
		{Algorithm: TokenBucket, Requests: MaxRequests, Period: MaxPeriod, Burst: MaxRequests},
		{Algorithm: TokenBucket, Requests: 1, Period: 365 * 24 * time.Hour, Burst: 10}, // ten years to the microsecond
		{Algorithm: LeakyBucket, Requests: MaxRequests, Period: MinPeriod, Burst: MaxRequests, MaxDelay: time.Hour},
		{Algorithm: LeakyBucket, Requests: 1, Period: MinPeriod, MaxDelay: time.Microsecond},
	} {
		if _, err := NewLimit(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func mustLimit(t testing.TB, c LimitConfig) *Limit {
	l, err := NewLimit(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestNewLimitFillsInDefaults(t *testing.T) {
	if a := mustLimit(t, LimitConfig{Requests: 1, Period: time.Second}).Algorithm; a != SlidingWindowCounter {
		t.Errorf("no algorithm: %s, want sliding_window_counter", a.String())
	}
	if a := mustLimit(t, LimitConfig{Requests: 1, Calendar: Day}).Algorithm; a != FixedWindow {
		t.Errorf("no algorithm, of a day: %s, want fixed_window", a.String())
	}
	l := mustLimit(t, LimitConfig{Algorithm: LeakyBucket, Requests: 7, Period: time.Second})
	if l.Quota != 7 || l.MaxDelay != 10_000_000 {
		t.Errorf("burst %d and max_delay %d, want 7 and 10 s", l.Quota, l.MaxDelay)
	}
}

func TestLimitIsWrittenAsItIsConfigured(t *testing.T) {
	for _, c := range []struct {
		config LimitConfig
		want   string
	}{
		{LimitConfig{Requests: 100, Period: time.Minute}, "100/1m sliding_window_counter"},
		{LimitConfig{Requests: 1, Period: 90 * time.Second}, "1/1m30s sliding_window_counter"},
		{LimitConfig{Requests: 1, Period: 36 * time.Hour}, "1/36h sliding_window_counter"},
		{LimitConfig{Requests: 1, Period: 48 * time.Hour}, "1/2d sliding_window_counter"},
		{LimitConfig{Requests: 1000, Calendar: Week}, "1000/week fixed_window"},
		{LimitConfig{Algorithm: TokenBucket, Requests: 5, Period: time.Second, Burst: 20}, "5/1s token_bucket burst 20"},
		{LimitConfig{Algorithm: TokenBucket, Requests: 5, Period: time.Second, Burst: 5}, "5/1s token_bucket"},
		{LimitConfig{Requests: 1000, Calendar: Month, On: 17}, "1000/month on 17 fixed_window"},
		{LimitConfig{Requests: 1000, Calendar: Week, On: 7}, "1000/week on sunday fixed_window"},
		{LimitConfig{Algorithm: FixedWindow, Requests: 5, Period: time.Second, Start: FirstRequest}, "5/1s fixed_window window_start first_request"},
		{LimitConfig{Requests: 5, Period: time.Second, Segments: 6, Start: Spread}, "5/1s sliding_window_counter segments 6 window_start spread"},
	} {
		l := mustLimit(t, c.config)
		must.Equal(t, l.String(), c.want)
		must.Equal(t, strings.HasPrefix(c.want, l.Written()+" "+l.Algorithm.String()), true, "%s is written %s", c.want, l.Written())
	}
}

// A reload may change the numbers of a limit, and counters survive. If it counts in another way, it starts afresh.
func TestIdentityHasWhatAReloadMustNotChange(t *testing.T) {
	base := LimitConfig{Algorithm: TokenBucket, Requests: 5, Period: time.Second, Burst: 20}
	same := LimitConfig{Algorithm: TokenBucket, Requests: 9, Period: time.Second, Burst: 1}
	a, b := mustLimit(t, base), mustLimit(t, same)
	must.Equal(t, a.Identity(), b.Identity(), "%q and %q differ in numbers alone", a.Identity(), b.Identity())
	if a.Same(b) || !a.Same(mustLimit(t, base)) {
		t.Error("Same must distinguish limits with other numbers, and no others")
	}
	if mustLimit(t, LimitConfig{Algorithm: LeakyBucket, Requests: 1, Period: time.Second, MaxDelay: 1000}).Same(
		mustLimit(t, LimitConfig{Algorithm: LeakyBucket, Requests: 1, Period: time.Second, MaxDelay: 2000})) {
		t.Error("Same must distinguish limits with another max_delay")
	}
	seen := map[string]int{}
	for i, c := range []LimitConfig{
		base,
		{Algorithm: TokenBucket, Requests: 5, Period: 2 * time.Second, Burst: 20},
		{Algorithm: TokenBucket, Requests: 5, Period: time.Second, Burst: 20, Interval: true},
		{Algorithm: LeakyBucket, Requests: 5, Period: time.Second, Burst: 20},
		{Algorithm: FixedWindow, Requests: 5, Period: time.Second},
		{Algorithm: FixedWindow, Requests: 5, Period: 24 * time.Hour},
		{Algorithm: FixedWindow, Requests: 5, Calendar: Day},
		{Algorithm: FixedWindow, Requests: 5, Calendar: Week},
		{Algorithm: FixedWindow, Requests: 5, Calendar: Day, Location: time.FixedZone("X", 3600)},
		{Algorithm: FixedWindow, Requests: 5, Calendar: Week, On: 7},
		{Algorithm: FixedWindow, Requests: 5, Calendar: Month},
		{Algorithm: FixedWindow, Requests: 5, Calendar: Month, On: 17},
		{Algorithm: FixedWindow, Requests: 5, Period: time.Second, Start: FirstRequest},
		{Algorithm: FixedWindow, Requests: 5, Period: time.Second, Start: Spread},
	} {
		id := mustLimit(t, c).Identity()
		if j, ok := seen[id]; ok {
			t.Errorf("limits %d and %d have one identity, %q", j, i, id)
		}
		seen[id] = i
	}
}

func TestAlgorithmAndCalendarNames(t *testing.T) {
	for i, name := range AlgorithmNames {
		a, err := ParseAlgorithm(name)
		if err != nil || int(a) != i+1 || a.String() != name {
			t.Errorf("%s: %d, %s, %v", name, int(a), a.String(), err)
		}
	}
	if _, err := ParseAlgorithm("token-bucket"); err == nil || err.Error() != `algorithm "token-bucket": must be one of `+
		`token_bucket, leaky_bucket, fixed_window, sliding_window_log, sliding_window_counter (did you mean token_bucket?)` {
		t.Errorf("token-bucket: %v", err)
	}
	must.Equal(t, Algorithm(0).String()+Algorithm(9).String()+Epoch.String()+Calendar(9).String(), "", "what has no name must have an empty one")
	if Day.String()+Week.String()+Month.String() != "dayweekmonth" {
		t.Error(Day.String() + Week.String() + Month.String())
	}
}

func TestALimitWithMoreUnitsCountsWhereTheLimitDoes(t *testing.T) {
	for _, c := range []LimitConfig{
		{Algorithm: FixedWindow, Calendar: Month, On: 17, Location: time.FixedZone("there", 3600)},
		{Algorithm: FixedWindow, Period: time.Hour, Start: FirstRequest},
		{Algorithm: SlidingWindowCounter, Period: time.Hour, Start: Spread},
		{Algorithm: SlidingWindowCounter, Period: time.Hour, Segments: 6},
		{Algorithm: TokenBucket, Period: time.Hour, Interval: true, Burst: 7, Owes: true},
	} {
		c.Requests = 5
		l, err := NewLimit(c)
		must.Succeed(t, err)
		more, err := l.More(2)
		must.Succeed(t, err)
		must.Equal(t, more.Identity(), l.Identity(), "identity")
		must.Equal(t, more.Requests, l.Requests+2, "requests")
	}
}
