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
