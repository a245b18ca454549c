//go:build unix

package replay

import (
	"syscall"
	"time"
)

// cpuTime returns how long this process has been running on any core.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
