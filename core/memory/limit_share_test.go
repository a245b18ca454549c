package memory

import (
	"math/rand"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/rate"
)

func TestAShareIsAPartOfRequestsAndBurstButAtLeastOne(t *testing.T) {
	for _, c := range []struct {
		config             rate.LimitConfig
		nodes              int
		requests, capacity int64
		quota              int64
	}{
		{rate.LimitConfig{Requests: 100, Period: time.Minute}, 3, 33, 33, 33},
		{rate.LimitConfig{Requests: 100, Period: time.Minute}, 1, 100, 100, 100},
		{rate.LimitConfig{Requests: 100, Period: time.Minute}, 0, 100, 100, 100},
		{rate.LimitConfig{Requests: 100, Period: time.Minute}, -2, 100, 100, 100},
		{rate.LimitConfig{Requests: 1, Period: time.Minute}, 10, 1, 1, 1},
		{rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 10, Period: time.Minute}, 11, 1, 1, 1},
		{rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: 10, Period: time.Minute}, 4, 2, 2, 2},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 10, Period: time.Minute, Burst: 31}, 3, 3, 10, 10},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 10, Period: time.Minute, Burst: 2}, 3, 3, 1, 1},
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 10, Period: time.Minute, Interval: true}, 3, 3, 3, 3},
		{rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 10, Period: time.Minute, Burst: 31}, 3, 3, 11, 10},
		{rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 1, Period: time.Minute, Burst: 1}, 3, 1, 2, 1},
		// At a third of the rate, half of the burst would take more than ten years to drain.
		{rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 3, Period: rate.MaxPeriod, Burst: 29}, 2, 1, 7, 7},
		{rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 3, Period: rate.MaxPeriod, Burst: 29}, 2, 1, 8, 7},
		{rate.LimitConfig{Requests: 100, Calendar: rate.Month}, 7, 14, 14, 14},
	} {
		whole := mustLimit(t, c.config)
		share := whole.Share(float64(c.nodes))
		if share.Requests != c.requests || share.Capacity != c.capacity || share.Quota != c.quota {
			t.Errorf("%s by %d: %d requests, capacity %d, quota %d; want %d, %d and %d",
				whole.String(), c.nodes, share.Requests, share.Capacity, share.Quota, c.requests, c.capacity, c.quota)
		}
		if share.Identity() != whole.Identity() || share.Period != whole.Period || share.MaxDelay != whole.MaxDelay {
			t.Errorf("%s by %d: identity %s, want the whole one's", whole.String(), c.nodes, share.Identity())
		}
		if again := mustLimit(t, c.config); !whole.Same(again) || whole.Capacity != again.Capacity {
			t.Errorf("%s by %d: the whole limit has changed", whole.String(), c.nodes)
		}
	}
}

// All shares together are at most the limit if it can be divided, and each share is a valid limit.
func TestSharesAreWithinTheLimitAndItsBounds(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	tried := 0
	for tried < 2000 {
		n := numbers{algorithm: rate.TokenBucket + rate.Algorithm(r.Intn(5))}
		randomNumbers(r, &n)
		c := rate.LimitConfig{Algorithm: n.algorithm, Requests: n.requests, Period: time.Duration(n.period) * time.Microsecond}
		if n.algorithm == rate.TokenBucket || n.algorithm == rate.LeakyBucket {
			c.Burst = n.burst
		}
		whole, err := rate.NewLimit(c)
		if err != nil {
			continue
		}
		tried++
		nodes := 1 + r.Intn(200)
		share := whole.Share(float64(nodes))
		k := int64(nodes)
		if share.Requests < 1 || share.Capacity < 1 || share.Requests*k > whole.Requests && share.Requests != 1 ||
			share.Quota*k > whole.Quota && share.Quota != 1 {
			t.Fatalf("%s by %d: %s", whole.String(), nodes, share.String())
		}
		c.Requests, c.Burst = share.Requests, share.Burst
		accepted, err := rate.NewLimit(c)
		if err != nil {
			t.Fatalf("%s by %d: %v", whole.String(), nodes, err)
		}
		if accepted.Capacity != share.Capacity || accepted.Quota != share.Quota || accepted.Narrow != share.Narrow || accepted.Full != share.Full || accepted.Emptied != share.Emptied {
			t.Fatalf("%s by %d: %+v, configured it would be %+v", whole.String(), nodes, *share, *accepted)
		}
	}
}

func TestALimitThatDoesNotFollowTheCalendarHasNoWindows(t *testing.T) {
	if w := mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Period: time.Hour}).Windows(1_700_000_000_000_000); w != nil {
		t.Errorf("windows %d", w)
	}
}

func TestWindowsAreTheOneBeforeThisOneAndTheNextTwo(t *testing.T) {
	for _, c := range []struct {
		zone string
		unit rate.Calendar
		at   string
		want [5]string
	}{
		{"UTC", rate.Day, "2026-03-02T12:00:00Z", [5]string{"2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z", "2026-03-04T00:00:00Z", "2026-03-05T00:00:00Z"}},
		{"UTC", rate.Day, "2026-03-02T00:00:00Z", [5]string{"2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z", "2026-03-04T00:00:00Z", "2026-03-05T00:00:00Z"}},
		{"UTC", rate.Day, "2026-03-01T23:59:59.999999Z", [5]string{"2026-02-28T00:00:00Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z", "2026-03-04T00:00:00Z"}},
		{"UTC", rate.Week, "2026-03-04T12:00:00Z", [5]string{"2026-02-23T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z", "2026-03-16T00:00:00Z", "2026-03-23T00:00:00Z"}},
		{"UTC", rate.Month, "2028-02-29T12:00:00Z", [5]string{"2028-01-01T00:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", "2028-04-01T00:00:00Z", "2028-05-01T00:00:00Z"}},
		{"UTC", rate.Month, "2026-12-31T12:00:00Z", [5]string{"2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z", "2027-03-01T00:00:00Z"}},
		// A day of 23 hours, and one of 25.
		{"Europe/Berlin", rate.Day, "2026-03-29T12:00:00Z", [5]string{"2026-03-27T23:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z", "2026-03-31T22:00:00Z"}},
		{"Europe/Berlin", rate.Day, "2026-10-25T12:00:00Z", [5]string{"2026-10-23T22:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "2026-10-26T23:00:00Z", "2026-10-27T23:00:00Z"}},
		// A day that begins at one o'clock, and one that did not exist.
		{"America/Sao_Paulo", rate.Day, "2018-11-04T12:00:00Z", [5]string{"2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z", "2018-11-06T02:00:00Z", "2018-11-07T02:00:00Z"}},
		{"Pacific/Apia", rate.Day, "2011-12-30T09:00:00Z", [5]string{"2011-12-28T10:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z", "2012-01-01T10:00:00Z"}},
	} {
		location := loadZone(t, c.zone)
		if location == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, c.at)
		if err != nil {
			t.Fatal(err)
		}
		got := mustLimit(t, rate.LimitConfig{Requests: 1, Calendar: c.unit, Location: location}).Windows(at.UnixMicro())
		if len(got) != len(c.want) {
			t.Fatalf("%s in %s at %s: %d", c.unit.String(), c.zone, c.at, got)
		}
		for i := range got {
			if text := time.UnixMicro(got[i]).UTC().Format(time.RFC3339); text != c.want[i] {
				t.Errorf("%s in %s at %s: bound %d is %s, want %s", c.unit.String(), c.zone, c.at, i, text, c.want[i])
			}
		}
	}
}

// Each bound is the end of a window and the beginning of the next one, whenever Windows is called.
func TestWindowsFollowEachOther(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	times := 400
	if interpreted {
		times = 10
	}
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Antarctica/Troll", "Pacific/Apia"} {
		location := loadZone(t, zone)
		if location == nil {
			continue
		}
		for unit := rate.Day; unit <= rate.Month; unit++ {
			limit := mustLimit(t, rate.LimitConfig{Requests: 1, Calendar: unit, Location: location})
			for i := 0; i < times; i++ {
				now := 1_000_000_000_000_000 + r.Int63n(830_000_000_000_000) // from 2001 to 2027
				w := limit.Windows(now)
				before, after := limit.Windows(w[1]-1), limit.Windows(w[2])
				if w[1] > now || now >= w[2] || before[1] != w[0] || before[2] != w[1] || before[3] != w[2] ||
					after[0] != w[1] || after[1] != w[2] || after[2] != w[3] {
					t.Fatalf("%s in %s at %d: %d, before it %d, after it %d", unit.String(), zone, now, w, before, after)
				}
			}
		}
	}
}

// TestTheLastDaysOfALeapYearHaveWindows is for a defect: the search for the midnight before New Year never ended. Go's
// Time.ZoneBounds is wrong after the end of a zone's table of changes (in 2037 on Debian; in 1996 in time/tzdata, which keeps the
// rule instead): on 31 December of a leap year, the offset ends when it begins. (The search normally takes microseconds. The test
// gives it seconds, and then leaves it running.)
func TestTheLastDaysOfALeapYearHaveWindows(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York"} {
		location := loadZone(t, zone)
		if location == nil {
			continue
		}
		for _, year := range []int{2028, 2040} {
			for unit := rate.Day; unit <= rate.Month; unit++ {
				limit := mustLimit(t, rate.LimitConfig{Requests: 1, Calendar: unit, Location: location})
				found := make(chan []int64, 1)
				now := time.Date(year, 12, 31, 12, 0, 0, 0, time.UTC).UnixMicro()
				go findWindows(limit, now, found)
				select {
				case w := <-found:
					end := time.Date(year+1, 1, 1, 0, 0, 0, 0, location).UnixMicro()
					if unit == rate.Week {
						for end < now || time.UnixMicro(end).In(location).Weekday() != time.Monday {
							end += rate.MicrosPerDay
						}
					}
					if w[1] > now || w[2] != end || w[3] <= end {
						t.Errorf("%s in %s at the end of %d: %d, want it to end at %d", unit.String(), zone, year, w, end)
					}
				case <-time.After(time.Minute):
					t.Fatalf("%s in %s at the end of %d: the windows are not found", unit.String(), zone, year)
				}
			}
		}
	}
}

func findWindows(l *rate.Limit, now int64, found chan []int64) {
	found <- l.Windows(now)
}
