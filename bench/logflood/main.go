// Command logflood floods a memory store with the logs of invented keys. It prints the memory of the process and the bytes that the store
// counts, for docs/memory.md. Set GOGC or GOMEMLIMIT to see what they change.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

func main() {
	keys, requests := 3_000_000, int64(100)
	if len(os.Args) > 1 {
		keys, _ = strconv.Atoi(os.Args[1])
	}
	if len(os.Args) > 2 {
		requests, _ = strconv.ParseInt(os.Args[2], 10, 64)
	}
	m := memory.New(memory.Config{})
	limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: requests, Period: 24 * time.Hour})
	if err != nil {
		panic(err)
	}
	rule, err := core.NewRule(core.RuleConfig{Name: "log", Limit: limit})
	if err != nil {
		panic(err)
	}
	if err := m.Open(rule); err != nil {
		panic(err)
	}
	checks := make([]core.Check, 1)
	var waste []byte
	for i := range keys {
		for used := int64(0); used < requests; { // with doubling costs, which takes fewer requests than a cost of 1
			cost := max(used, 1)
			if used+cost > requests {
				cost = requests - used
			}
			checks[0] = core.Check{Rule: rule, Key: "key " + strconv.Itoa(i), Cost: cost}
			_ = m.Decide(checks, false)
			used += cost
			waste = make([]byte, 4096) // as much garbage as a proxy makes for a request
		}
	}
	_ = waste
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	runtime.GC()
	var live runtime.MemStats
	runtime.ReadMemStats(&live)
	st := m.Stats()
	const mb = 1 << 20
	fmt.Printf("%d keys, log_bytes %d MB, live heap %d MB, from the system %d MB, of which the heap %d, peak of the process %s\n",
		st.Keys, st.LogBytes/mb, live.HeapAlloc/mb, s.Sys/mb, s.HeapSys/mb, peak())
	runtime.KeepAlive(m)
}

// peak returns the largest resident memory that the process has had, according to Linux.
func peak() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "unknown"
	}
	for _, line := range strings.Split(string(status), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "unknown"
}
