package ratelimit

import (
	"context"
	"time"

	"github.com/proxyweir/weir/caddy/adapt"
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/core/memory"
)

// MemoryInUse returns the stats of the running configuration's memory.
func MemoryInUse() (memory.Stats, error) {
	shared, err := acquireMemory()
	if err != nil {
		return memory.Stats{}, err
	}
	defer func() { _ = releaseMemory() }()
	return shared.store.Stats(), nil
}

// SetGuardClock has guards go by another clock, of microseconds, until the returned function is called.
func SetGuardClock(now func() int64) (restore func()) {
	before := protect.GuardNow
	protect.GuardNow = now
	return func() { protect.GuardNow = before }
}

// SetAdviceClock has advice go by another clock, of microseconds since the Unix epoch: ticks come when ticks says so, and pollers wait by wait. The
// returned function ends that.
func SetAdviceClock(now func() int64, ticks <-chan time.Time, wait func(context.Context, time.Duration)) (restore func()) {
	before := adapt.AdviceClock
	adapt.AdviceClock.Now, adapt.AdviceClock.Wait = now, wait
	adapt.AdviceClock.Ticks = func() (<-chan time.Time, func()) { return ticks, func() {} }
	return func() { adapt.AdviceClock = before }
}
