package front

import (
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/guard"
)

func TestMistakesInAGuardAreNamed(t *testing.T) {
	for _, c := range []struct {
		name        string
		most, least int
		want        string
	}{
		{"", 0, 0, ""}, {"shop", 1, 1, ""}, {"", MostUnderWay, MostUnderWay, ""}, {"", 0, guard.DefaultMax, ""}, {"", 4, 0, ""},
		{"a b", 0, 0, "guard: name: "},
		{"", -1, 0, "guard: max -1: must be from 1 to 100000"},
		{"", 0, MostUnderWay + 1, "guard: min 100001: must be from 1 to 100000"},
		{"", 5, 6, "guard: min 6: must not be above max, which is 5"},
		{"", 128, 129, "guard: min 129: must not be above max, which is 128"}, {"", 0, 129, ""},
	} {
		got := ""
		if err := CheckGuard(c.name, c.most, c.least); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%q, %d, %d: %q, want %q", c.name, c.most, c.least, got, c.want)
		}
	}
}

func TestTheWarmUpOfAGuardIsChecked(t *testing.T) {
	for _, c := range []struct {
		tighten string
		warmUp  time.Duration
		want    int64
		wrong   string
	}{
		{"", 0, 0, ""}, {"on", 0, 0, ""}, {"off", 0, -1, ""}, {"on", time.Hour, 3_600_000_000, ""},
		{"maybe", 0, 0, `guard: tighten "maybe": must be on or off`},
		{"", time.Second, 0, "guard: warm_up 1s: must be a duration from 10s to 720h"},
		{"", 721 * time.Hour, 0, "guard: warm_up 721h0m0s: must be a duration from 10s to 720h"},
		{"off", time.Hour, 0, "guard: warm_up: has no effect with tighten off"},
	} {
		got, err := GuardWarmUp(c.tighten, c.warmUp)
		said := ""
		if err != nil {
			said = err.Error()
		}
		if got != c.want || said != c.wrong {
			t.Errorf("%q, %s: %d, %q; want %d, %q", c.tighten, c.warmUp, got, said, c.want, c.wrong)
		}
	}
}

func TestWhoAsksForMoreThanItsShareWaitsForAWindow(t *testing.T) {
	if got := GuardWait(guard.Full, 0); got != 1_000_000 || GuardReason(guard.Full) != "full" {
		t.Errorf("full: %d µs, %s", got, GuardReason(guard.Full))
	}
	if got := GuardWait(guard.Unfair, 0); got != guard.Window || GuardReason(guard.Unfair) != "unfair" {
		t.Errorf("unfair: %d µs, %s", got, GuardReason(guard.Unfair))
	}
	if got := GuardWait(guard.Full, 1); got < 1_000_000 || got > 2_000_000 {
		t.Errorf("with jitter: %d µs", got)
	}
}

func TestAnIPv6NetworkIsOneClientOfAGuard(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "2001:db8:1:2::1": "2001:db8:1:2::/64", "2001:db8:1:3::1": "2001:db8:1:3::/64", "": "", "a:b": "a:b",
	} {
		if got := GuardKey(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

func TestAChangeOfAGuardIsSaidWithItsFigures(t *testing.T) {
	queue := guard.Change{Begins: true, Queue: true, Limit: 107, Max: 100_000, UnderWay: 162, Quickest: 154_321, Usually: 89_000, Slope: 0.93, Coming: 250.4, Came: 107}
	shadow := queue
	shadow.Shadow = true
	for want, c := range map[string]guard.Change{
		"the guard turns away what is beyond 107 requests under way, since they queue: 162 are under way, the quickest fifth of the answers takes up to 154ms (usually 89ms), " +
			"0.93 answers' time longer for each request more, and 250 requests a second come (usually 107)": queue,
		"the guard would turn away what is beyond 107 requests under way, since they queue: 162 are under way, the quickest fifth of the answers takes up to 154ms (usually 89ms), " +
			"0.93 answers' time longer for each request more, and 250 requests a second come (usually 107)": shadow,
		"the guard turns away what is beyond 64 requests under way: that is its max, and 90 requests a second come (usually 40)":                             {Begins: true, Limit: 64, Max: 64, Coming: 90, Came: 40},
		"the guard turns away what is beyond 160 requests under way: so many at once are not usual, and 900 requests a second come (usually 40)":             {Begins: true, Limit: 160, Max: 100_000, Coming: 900, Came: 40},
		"the guard lets all requests through again; 1203 were turned away in 34s":                                                                            {Rejected: 1203, Lasted: 34_000_000},
		"the guard lets all requests through again; 5 would have been turned away in 12s":                                                                    {Shadow: true, Rejected: 5, Lasted: 12_000_000},
		"the guard lets all requests through again, since the limit made nothing quicker: the service is slow, and does not queue; 8 were turned away in 6s": {Vain: true, Rejected: 8, Lasted: 6_000_000},
	} {
		if got := GuardChange(c); got != want {
			t.Errorf("%+v:\n got %s\nwant %s", c, got, want)
		}
	}
}
