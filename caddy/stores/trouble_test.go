package stores

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/tools/must"
)

// timers holds the timers that were set; a test makes them expire.
type timers struct{ waiting []func() }

func (c *timers) after(_ time.Duration, f func()) *time.Timer {
	c.waiting = append(c.waiting, f)
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return timer
}

func (c *timers) runOut() {
	waiting := c.waiting
	c.waiting = nil
	for _, f := range waiting {
		f()
	}
}

func TestTroubleOfAStoreIsLoggedOnceWhenItBeginsAndOnceWhenItIsOver(t *testing.T) {
	core, lines := observer.New(zap.DebugLevel)
	clock := new(timers)
	log := newTroubleLog("127.0.0.1:6379")
	log.logger = func() *zap.Logger { return zap.New(core) }
	log.after = clock.after
	reported := func(want int, what string) {
		t.Helper()
		if n := lines.Len(); n != want {
			t.Errorf("%s: %d lines, want %d: %v", what, n, want, lines.All())
		}
	}
	log.failed(redis.ErrUnavailable)
	reported(0, "a server that its breaker has reported")
	for range 100 {
		log.failed(errors.New("boom"))
	}
	reported(1, "a hundred failures")
	clock.runOut()
	reported(1, "they have come since it was last looked")
	log.failed(errors.New("boom"))
	clock.runOut()
	reported(1, "and another")
	clock.runOut()
	reported(2, "none since")
	last := lines.All()[1]
	if last.Level != zap.InfoLevel || last.ContextMap()["failures"] != int64(101) || last.ContextMap()["server"] != "127.0.0.1:6379" {
		t.Errorf("%v %v", last.Level, last.ContextMap())
	}
	must.Equal(t, len(clock.waiting), 0, "a timer is left")
	log.failed(errors.New("boom"))
	reported(3, "it begins again")
}

func TestEachRefusalOfAStoreIsLoggedOnceDuringTrouble(t *testing.T) {
	core, lines := observer.New(zap.DebugLevel)
	clock := new(timers)
	log := newTroubleLog("127.0.0.1:6379")
	log.logger = func() *zap.Logger { return zap.New(core) }
	log.after = clock.after
	for range 50 {
		log.failed(fmt.Errorf("rule a%w", redis.ErrRefused))
		log.failed(fmt.Errorf("rule b%w", redis.ErrRefused))
		log.failed(redis.ErrTimeout)
	}
	var reported []string
	for _, line := range lines.All() {
		reported = append(reported, fmt.Sprint(line.ContextMap()["error"]))
	}
	if want := []string{"rule a", "rule b", redis.ErrTimeout.Error()}; !slices.Equal(reported, want) {
		t.Errorf("reported %q, want %q", reported, want)
	}
	must.Equal(t, len(clock.waiting), 1, "%d timers", len(clock.waiting))
	for range 1000 { // errors whose texts all differ
		log.failed(fmt.Errorf("rule %d%w", lines.Len(), redis.ErrRefused))
	}
	must.Equal(t, lines.Len(), mostRefusals+1, "lines")
	clock.runOut()
	clock.runOut()
	log.failed(fmt.Errorf("rule a%w", redis.ErrRefused))
	if all := lines.All(); fmt.Sprint(all[len(all)-1].ContextMap()["error"]) != "rule a" {
		t.Error("when it begins again, it is not reported")
	}
}
