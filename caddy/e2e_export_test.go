package ratelimit

import "github.com/proxyweir/weir/core"

// MemoryInUse returns the stats of the running configuration's memory.
func MemoryInUse() (core.MemoryStats, error) {
	memory, err := acquireMemory()
	if err != nil {
		return core.MemoryStats{}, err
	}
	defer func() { _ = releaseMemory() }()
	return memory.store.Stats(), nil
}

// SetGuardClock has guards go by another clock, of microseconds, until the returned function is called.
func SetGuardClock(now func() int64) (restore func()) {
	before := guardNow
	guardNow = now
	return func() { guardNow = before }
}
