package front

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/words"
)

// MostUnderWay is the greatest max and min of a guard.
const MostUnderWay = 100_000

// CheckGuard says what is wrong with the name of a guard, "" if it has none, and with its max and min, 0 where they are not set.
func CheckGuard(name string, most, least int) error {
	if name != "" {
		if err := words.CheckName(name); err != nil {
			return words.Of(err).Within("name", "").Within("guard", "")
		}
	}
	if err := checkUnderWay("max", most); err != nil {
		return err
	}
	if err := checkUnderWay("min", least); err != nil {
		return err
	}
	if most > 0 && least > most {
		return guardWrong("min", fmt.Sprint(least), "must not be above max, which is %d", most)
	}
	return nil
}

// guardWrong returns what is wrong with a setting of a guard.
func guardWrong(name, value, says string, args ...interface{}) error {
	return words.Wrong(name, value, says, args...).Within("guard", "")
}

func checkUnderWay(word string, number int) error {
	if number < 0 || number > MostUnderWay {
		return guardWrong(word, fmt.Sprint(number), "must be from 1 to %d", MostUnderWay)
	}
	return nil
}

// The least and the greatest warm-up of a guard.
const (
	LeastWarmUp = 10 * time.Second
	MostWarmUp  = 720 * time.Hour
)

// GuardWarmUp returns the guard.Config.WarmUp of settings, or says what is wrong with them, as a words.Mistake: tighten is "on", "off" or "", and
// warmUp 0 where it is not set.
func GuardWarmUp(tighten string, warmUp time.Duration) (int64, error) {
	if err := words.CheckWord("tighten", tighten, []string{"on", "off"}); err != nil {
		return 0, words.Of(err).Within("guard", "")
	}
	if warmUp != 0 && (warmUp < LeastWarmUp || warmUp > MostWarmUp) {
		return 0, guardWrong("warm_up", warmUp.String(), "must be a duration from 10s to 720h")
	}
	if tighten != "off" {
		return int64(warmUp / time.Microsecond), nil
	}
	if warmUp != 0 {
		return 0, guardWrong("warm_up", "", "has no effect with tighten off")
	}
	return -1, nil
}

// CheckPriority says what is wrong with the source of a guard's priority and the values of it that have priority. fixed says that the source is
// the same for all requests, and such is one that is not, as an example.
func CheckPriority(source string, values []string, fixed bool, such string) error {
	if fixed {
		return guardWrong("priority", strconv.Quote(source), "is the same for all requests; write %s", such)
	}
	if len(values) == 0 {
		return guardWrong("priority", strconv.Quote(source), "has no values; write those that have priority")
	}
	for _, value := range values {
		if value == "" {
			return guardWrong("priority", strconv.Quote(source), "has an empty value, which requests without it have, too")
		}
	}
	return nil
}

// GuardKey returns the key of a client whose request comes under no rule: its address, of IPv6 the /64 network, in which one client usually has
// all addresses.
func GuardKey(address string) string {
	if strings.IndexByte(address, ':') < 0 {
		return address
	}
	networks := match.Prefixes{IPv6: 64}
	return networks.Mask(address)
}

// GuardWait returns after how many microseconds a request may come again that guard.Begin or guard.Ask has turned away, with jitter as for Jittered.
func GuardWait(why int64, jitter float64) int64 {
	if why == guard.Full {
		return Jittered(1_000_000, jitter)
	}
	return Jittered(guard.Window, jitter)
}

// The reasons, in metrics and logs, for which a guard turns requests away.
const (
	GuardFull      = "full"
	GuardUnfair    = "unfair"
	GuardTightened = "tightened"
)

// GuardReason returns the reason of what guard.Begin has returned, or of guard.Tightened.
func GuardReason(why int64) string {
	switch why {
	case guard.Unfair:
		return GuardUnfair
	case guard.Tightened:
		return GuardTightened
	}
	return GuardFull
}

// GuardChange says what a change of a guard is, with the figures that made it.
func GuardChange(c guard.Change) string {
	turns, turned := "turns away", "were turned away"
	if c.Shadow {
		turns, turned = "would turn away", "would have been turned away"
	}
	if !c.Begins {
		why := ""
		if c.Vain {
			why = ", since the limit made nothing quicker: the service is slow, and does not queue"
		}
		return fmt.Sprintf("the guard lets all requests through again%s; %d %s in %s", why, c.Rejected, turned, time.Duration(c.Lasted)*time.Microsecond)
	}
	if c.Queue {
		since := "since they queue"
		if c.Pressed {
			since = "since the pressure on the service is high and they seem to queue"
		}
		return fmt.Sprintf("the guard %s what is beyond %d requests under way, %s: %d are under way, the quickest fifth of the answers takes up to %s (usually %s), %.2f answers' time longer for each request more, and %.0f requests a second come (usually %.0f)",
			turns, c.Limit, since, c.UnderWay, milliseconds(c.Quickest), milliseconds(c.Usually), c.Slope, c.Coming, c.Came)
	}
	why := "so many at once are not usual"
	if c.Limit >= c.Max {
		why = "that is its max"
	}
	return fmt.Sprintf("the guard %s what is beyond %d requests under way: %s, and %.0f requests a second come (usually %.0f)", turns, c.Limit, why, c.Coming, c.Came)
}

func milliseconds(microseconds float64) time.Duration {
	return time.Duration(microseconds/1000) * time.Millisecond
}

// GuardReasons are all of them.
var GuardReasons = []string{GuardFull, GuardUnfair, GuardTightened}

// GuardCounts returns how many requests a guard rejected, or would have as a shadow, for each of GuardReasons. shown is false of a guard that never was a
// shadow.
func GuardCounts(at *guard.State, shadow bool) (counts []int64, shown bool) {
	if !shadow {
		return []int64{at.Full, at.Unfair, at.Tightened}, true
	}
	return []int64{at.ShadowFull, at.ShadowUnfair, at.ShadowTightened}, at.Shadow || at.ShadowFull+at.ShadowUnfair+at.ShadowTightened > 0
}
