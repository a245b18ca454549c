// Package cputime reads how much CPU time a process has used. It works on Linux only.
package cputime

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Of returns the CPU time that the process of that number has used, in user and kernel mode, in steps of a hundredth of a second.
func Of(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // after the name: the fields from the third on
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, stat)
	}
	ticks := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100), nil // USER_HZ is 100 on all systems of Go
}
