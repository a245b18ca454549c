package goredis_test

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// wrongClocks are nodes with one server, and a memory. The memory has the server's clock. Each node has a clock that is wrong by its own
// difference.
type wrongClocks struct {
	t      *testing.T
	clock  *storetest.Clock // the server's and the memory's
	recall bool             // the nodes answer from memory
	conn   *redistest.Conn
	nodes  []*redis.Store
	wrong  []time.Duration
	rules  [][]*core.Rule // by node; those of the memory come last
	memory *memory.Store
	calls  int // of scripts, before the requests that are counted
	asked  int
}

// newWrongClocks returns wrongClocks with rules of those limits. With remember the nodes answer from memory.
func newWrongClocks(t *testing.T, remember bool, wrong []time.Duration, limits ...rate.LimitConfig) *wrongClocks {
	t.Helper()
	server := redistest.Start(t, redistest.WithClock())
	conn, err := server.Dial()
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	w := &wrongClocks{t: t, clock: &storetest.Clock{}, recall: remember, conn: conn, wrong: wrong}
	w.clock.Set(time.Date(2026, 3, 2, 12, 0, 20, 0, time.UTC).UnixMicro())
	w.clock.Follow(server.SetTime)
	w.memory = memory.New(memory.Config{Clock: w.clock.Now})
	for i := range wrong {
		own := func() int64 { return w.clock.Now() + w.wrong[i].Microseconds() }
		c := redis.Config{Prefix: "clocks:", Clock: own, WallClock: own}
		if !remember {
			day := int64(0)
			c.Clock = func() int64 {
				day += 24 * time.Hour.Microseconds()
				return day
			}
		}
		w.nodes = append(w.nodes, newStore(t, c, goredis.Config{Addresses: []string{server.Addr()}}))
	}
	// Loads the scripts into the server.
	w.open(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Period: time.Second}, "warm")
	w.open(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Period: time.Second}, "up")
	w.take(0, "k", 0)
	w.take(0, "k", 0, 1)
	for i := range w.rules {
		w.rules[i] = nil
	}
	for i, l := range limits {
		w.open(l, "r"+string(rune('0'+i)))
	}
	w.calls, w.asked = scriptCalls(conn), 0
	return w
}

func (w *wrongClocks) open(l rate.LimitConfig, name string) {
	w.t.Helper()
	limit, err := rate.NewLimit(l)
	must.Succeed(w.t, err)
	if w.rules == nil {
		w.rules = make([][]*core.Rule, len(w.nodes)+1)
	}
	for i := range w.rules {
		r, err := core.NewRule(core.RuleConfig{Name: name, Limit: limit})
		must.Succeed(w.t, err)
		var s core.Store = w.memory
		if i < len(w.nodes) {
			s = w.nodes[i]
		}
		must.Succeed(w.t, s.Open(r))
		w.rules[i] = append(w.rules[i], r)
	}
}

// take takes a unit of each of those rules by a node, and fails unless the memory decides the same. It reports whether the request is
// admitted.
func (w *wrongClocks) take(node int, client string, rules ...int) bool {
	w.t.Helper()
	last := len(w.nodes)
	var checks, wants []core.Check
	for _, r := range rules {
		checks = append(checks, core.Check{Rule: w.rules[node][r], Key: client, Cost: 1})
		wants = append(wants, core.Check{Rule: w.rules[last][r], Key: client, Cost: 1})
	}
	if err := w.nodes[node].Decide(checks, false); err != nil {
		w.t.Fatalf("at %s, node %d: %v", w.time(), node, err)
	}
	must.Succeed(w.t, w.memory.Decide(wants, false))
	w.asked++
	admitted := true
	for i := range checks {
		got, want := checks[i].Decision, wants[i].Decision
		if w.recall && !got.Allowed && got.Remaining < want.Remaining {
			got.Remaining = want.Remaining // the node remembers how many remained then
		}
		if got != want {
			w.t.Fatalf("at %s, node %d, %s: %+v, the memory says %+v", w.time(), node, checks[i].Rule.Identity, got, want)
		}
		admitted = admitted && checks[i].Decision.Allowed
	}
	return admitted
}

func (w *wrongClocks) time() string {
	return time.UnixMicro(w.clock.Now()).UTC().Format("2006-01-02T15:04:05.000000")
}

// extra returns how many calls there were in addition to one for each request.
func (w *wrongClocks) extra() int { return scriptCalls(w.conn) - w.calls - w.asked }

func TestNodesWithWrongClocksShareOneLimit(t *testing.T) {
	for i, a := range rate.AlgorithmNames {
		t.Run(a, func(t *testing.T) {
			t.Parallel()
			w := newWrongClocks(t, true, []time.Duration{time.Hour, -time.Hour, 0},
				rate.LimitConfig{Algorithm: rate.Algorithm(i + 1), Requests: 7, Period: time.Minute})
			admitted := 0
			for step := range 500 { // of 0.7 s: more than five minutes
				for k := range 3 {
					if w.take((step+k)%3, "k", 0) {
						admitted++
					}
				}
				w.clock.Add(700_000)
			}
			if admitted < 7*5 || admitted > 7*8 {
				t.Errorf("%d admitted in 350 seconds at 7 a minute", admitted)
			}
		})
	}
}

// boundaries are times at which windows of the calendar begin.
var boundaries = []struct {
	name string
	unit rate.Calendar
	zone string
	at   time.Time // UTC
}{
	{"midnight", rate.Day, "UTC", time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC)},
	{"midnight elsewhere", rate.Day, "Asia/Kathmandu", time.Date(2026, 3, 2, 18, 15, 0, 0, time.UTC)},
	{"Monday", rate.Week, "Europe/Berlin", time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC)},
	{"the end of February", rate.Month, "UTC", time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)},
	{"the end of the year", rate.Month, "America/Sao_Paulo", time.Date(2027, 1, 1, 3, 0, 0, 0, time.UTC)},
	{"the start of a day of 23 hours", rate.Day, "Europe/Berlin", time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC)},
	{"its end", rate.Day, "Europe/Berlin", time.Date(2026, 3, 29, 22, 0, 0, 0, time.UTC)},
	{"the start of a day of 25 hours", rate.Day, "Europe/Berlin", time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC)},
	{"its end", rate.Day, "Europe/Berlin", time.Date(2026, 10, 25, 23, 0, 0, 0, time.UTC)},
	{"a week with a day of 25 hours", rate.Week, "Europe/Berlin", time.Date(2026, 10, 25, 23, 0, 0, 0, time.UTC)},
	{"a day without a midnight", rate.Day, "America/Sao_Paulo", time.Date(2018, 11, 4, 3, 0, 0, 0, time.UTC)},
	{"a day that was left out", rate.Day, "Pacific/Apia", time.Date(2011, 12, 30, 10, 0, 0, 0, time.UTC)},
}

// across takes units in a window's last hours and in the first hours of the next, by all nodes in turn. It fails unless each window admits
// exactly its limit. The second rule has a limit that is never used up.
func (w *wrongClocks) across(at time.Time, client string) {
	w.t.Helper()
	for window := range 2 {
		admitted := 0
		for _, offset := range []time.Duration{-2 * time.Hour, -90 * time.Minute, -time.Hour, -30 * time.Minute, -time.Microsecond} {
			if window == 1 {
				offset = 2*time.Hour + offset
			}
			w.clock.Set(at.Add(offset).UnixMicro())
			for node := range w.nodes {
				if w.take(node, client, 0, 1) {
					admitted++
				}
				w.take(node, client, 1)
			}
		}
		if admitted != 5 {
			w.t.Fatalf("window %d: %d admitted, the limit is 5", window, admitted)
		}
	}
}

func calendarLimits(t *testing.T, unit rate.Calendar, zone string) []rate.LimitConfig {
	t.Helper()
	location, err := time.LoadLocation(zone)
	must.Succeed(t, err)
	return []rate.LimitConfig{
		{Requests: 5, Calendar: unit, Location: location},
		{Requests: 1000, Calendar: unit, Location: location},
	}
}

// The windows of the calendar go by the server's clock, whatever a node's clock says. A difference of an hour costs no extra call.
func TestNodesWithWrongClocksAgreeOnTheCalendar(t *testing.T) {
	for _, b := range boundaries {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			w := newWrongClocks(t, false, []time.Duration{time.Hour, -time.Hour, 0}, calendarLimits(t, b.unit, b.zone)...)
			w.across(b.at, "k")
			if extra := w.extra(); extra != 0 {
				t.Errorf("%d calls more than requests", extra)
			}
		})
	}
}

// A node whose clock is off by years makes two calls for one request, and knows the difference from then on.
func TestANodeWhoseClockIsYearsOffMakesOneExtraCall(t *testing.T) {
	year := 365 * 24 * time.Hour
	for _, b := range boundaries {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			w := newWrongClocks(t, false, []time.Duration{-7 * year, 7 * year}, calendarLimits(t, b.unit, b.zone)...)
			w.across(b.at, "k")
			for range 70 { // over several windows
				w.clock.Add(13 * time.Hour.Microseconds())
				w.take(0, "another", 0, 1)
				w.take(1, "another", 1)
			}
			if extra := w.extra(); extra != 2 {
				t.Errorf("%d calls more than requests, of two nodes; want one each", extra)
			}
		})
	}
}

// A node whose clock is set while it runs makes one extra call again, and none of its requests fails.
func TestANodeWhoseClockLeapsMakesOneExtraCall(t *testing.T) {
	w := newWrongClocks(t, false, []time.Duration{0}, calendarLimits(t, rate.Day, "Europe/Berlin")...)
	w.take(0, "k", 0)
	for i, wrong := range []time.Duration{2000 * time.Hour, 0, -72 * time.Hour, 30 * time.Hour} {
		w.wrong[0] = wrong
		w.take(0, "k", 0, 1)
		w.take(0, "k", 1)
		if extra := w.extra(); extra != i+1 {
			t.Errorf("after a leap to %s: %d calls more than requests in all, want %d", wrong, extra, i+1)
		}
	}
}

// TestAClockSetBackOverAWholeWindowOfTheCalendarIsNoError is for a defect: the server's clock was set back so far that the
// key's window was the one after the next, and the node did not send that window. The memory then continues to count in the key's
// window.
func TestAClockSetBackOverAWholeWindowOfTheCalendarIsNoError(t *testing.T) {
	for _, c := range []struct {
		unit     rate.Calendar
		from, to time.Time
	}{
		{rate.Day, time.Date(2026, 3, 4, 0, 30, 0, 0, time.UTC), time.Date(2026, 3, 2, 22, 30, 0, 0, time.UTC)},
		{rate.Week, time.Date(2026, 3, 16, 0, 30, 0, 0, time.UTC), time.Date(2026, 3, 8, 23, 0, 0, 0, time.UTC)},
		{rate.Month, time.Date(2026, 3, 1, 0, 30, 0, 0, time.UTC), time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)},
	} {
		t.Run(c.unit.String(), func(t *testing.T) {
			w := newWrongClocks(t, false, []time.Duration{0}, calendarLimits(t, c.unit, "UTC")...)
			w.clock.Set(c.from.UnixMicro())
			w.take(0, "k", 0)
			w.clock.Set(c.to.UnixMicro())
			w.take(0, "k", 0)
		})
	}
}
