// Command interpreted compares core's two indexes, Probing and Mapped, by CPU time, on one goroutine. It can run under Yaegi and compiled:
// BenchmarkIndex of the bench module runs it both ways.
//
//	interpreted <keys> <decisions a turn>
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// subject is a store with one rule, and the keys of its requests.
type subject struct {
	name    string
	limiter *core.Limiter
	checks  []core.Check
	next    int
	cpu     time.Duration
}

const turns = 15

func main() {
	args := os.Args[len(os.Args)-2:] // after those of the interpreter
	population, err := strconv.Atoi(args[0])
	if err != nil {
		panic("usage: interpreted <keys> <decisions a turn>")
	}
	length, err := strconv.Atoi(args[1])
	if err != nil {
		panic("usage: interpreted <keys> <decisions a turn>")
	}
	keys := make([]string, population)
	for i := range keys {
		keys[i] = "client-" + strconv.Itoa(i*7919%population)
	}
	subjects := []*subject{
		newSubject("probing/mostly=allowed", memory.Probing, 24*time.Hour, keys),
		newSubject("mapped/mostly=allowed", memory.Mapped, 24*time.Hour, keys),
		newSubject("probing/mostly=new", memory.Probing, time.Millisecond, keys),
		newSubject("mapped/mostly=new", memory.Mapped, time.Millisecond, keys),
	}
	for turn := 0; turn < turns; turn++ {
		for _, s := range subjects {
			start := cpuTime()
			decide(s, keys, length)
			s.cpu += cpuTime() - start
		}
	}
	for _, s := range subjects {
		fmt.Printf("%s %.1f\n", s.name, float64(s.cpu.Nanoseconds())/float64(turns*length))
	}
}

// cpuTime returns the CPU time that the process has used, to a hundredth of a second, since the interpreter has no package syscall.
func cpuTime() time.Duration {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		panic(err)
	}
	fields := strings.Fields(string(stat)[strings.LastIndex(string(stat), ")")+1:]) // the fields from the third on
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// newSubject makes a store that has had one request for each key. A key is whole again after a thousandth of the period.
func newSubject(name string, index memory.Index, period time.Duration, keys []string) *subject {
	limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1000, Period: period})
	if err != nil {
		panic(err)
	}
	rule, err := core.NewRule(core.RuleConfig{Name: "bench", Limit: limit})
	if err != nil {
		panic(err)
	}
	store := memory.New(memory.Config{MaxKeys: 2 * len(keys), Index: index})
	if err := store.Open(rule); err != nil {
		panic(err)
	}
	s := &subject{name: name, limiter: core.NewLimiter(store), checks: []core.Check{{Rule: rule}}}
	decide(s, keys, len(keys))
	return s
}

// decide makes that many decisions, on one key after the other.
func decide(s *subject, keys []string, count int) {
	var verdict core.Verdict
	for i := 0; i < count; i++ {
		s.checks[0].Key = keys[s.next]
		s.checks[0].Cost = 1
		if err := s.limiter.Decide(s.checks, false, &verdict); err != nil {
			panic(err)
		}
		s.next++
		if s.next == len(keys) {
			s.next = 0
		}
	}
}
