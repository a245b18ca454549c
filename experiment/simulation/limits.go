package simulation

import (
	"math"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// Limits are those of the configuration: of each client, and of all together, in requests a second; 0 stands for none. Core decides them, with a
// rule each. A client's has a period of ten seconds, over which its demand is learnt, and that of all has two. A bucket's burst, or queue, is what
// the limit allows in two seconds, and ten requests at least.
type Limits struct {
	Client, All float64
	Algorithm   rate.Algorithm // TokenBucket by default
}

const (
	// PeriodOfClient and PeriodOfAll are the periods of the two limits.
	PeriodOfClient = 10 * time.Second
	PeriodOfAll    = 2 * time.Second

	// LongestDelay is how long a leaky bucket has a request wait: so that there is time left for its answer.
	LongestDelay = time.Second / 2
)

// Tuned are limits that fit the situation as well as one can who knows it: a quarter more than the largest client has ever sent, and 0.9 of what
// the service can do.
func (s *Situation) Tuned() Limits { return Limits{Client: 1.25 * s.Largest, All: 0.9 * s.capacity()} }

// Low are limits that were not tuned: a quarter of the tuned one of a client, and 0.55 of what the service can do.
func (s *Situation) Low() Limits {
	return Limits{Client: 1.25 * s.Largest / 4, All: 0.55 * s.capacity()}
}

// Requests is a limit in requests in its period, as a configuration has it.
func Requests(rate float64, period time.Duration) int64 {
	return max(1, int64(math.Round(rate*period.Seconds())))
}

// Burst is what a bucket of a limit holds.
func Burst(rate float64) int64 { return max(10, int64(math.Round(2*rate))) }

// limiter is a node's, or that of all nodes with a store that they share.
type limiter struct {
	core   *core.Limiter
	store  *memory.Store
	now    int64
	rules  []*core.Rule
	checks []core.Check
	of     int // the place of the client's check; -1: there is none
	part   float64
}

// newLimiter makes a limiter that has a part of all limits.
func newLimiter(part float64) *limiter {
	l := &limiter{part: part}
	l.store = memory.New(memory.Config{MaxKeys: 16000, Clock: func() int64 { return l.now }})
	l.core = core.NewLimiter(l.store)
	return l
}

// set puts limits in force. Counts stay, but for those of keys that are unused by then: without the sweep hashes would decide which of them are
// still there for the new limits, and the same seed would not always give the same run.
func (l *limiter) set(limits Limits) {
	l.store.Sweep()
	former := l.rules
	l.rules, l.checks, l.of = nil, nil, -1
	add := func(name string, most float64, period time.Duration) {
		if most == 0 {
			return
		}
		algorithm := limits.Algorithm
		if algorithm == 0 {
			algorithm = rate.TokenBucket
		}
		config := rate.LimitConfig{Algorithm: algorithm, Requests: Requests(most*l.part, period), Period: period}
		if algorithm == rate.TokenBucket || algorithm == rate.LeakyBucket {
			config.Burst = Burst(most * l.part)
		}
		if algorithm == rate.LeakyBucket {
			config.MaxDelay = LongestDelay
		}
		limit, err := rate.NewLimit(config)
		if err != nil {
			panic(err)
		}
		rule, err := core.NewRule(core.RuleConfig{Name: name, KeySpec: name, Limit: limit})
		if err != nil {
			panic(err)
		}
		if err := l.core.Open(rule); err != nil {
			panic(err)
		}
		l.rules = append(l.rules, rule)
		l.checks = append(l.checks, core.Check{Rule: rule, Key: "all", Cost: 1})
	}
	add("client", limits.Client, PeriodOfClient)
	if len(l.rules) > 0 {
		l.of = 0
	}
	add("all", limits.All, PeriodOfAll)
	for _, r := range former {
		l.core.Release(r)
	}
}

// take charges a request of a client. If it is allowed, wait is how many seconds it must wait, which only a leaky bucket's do; else the
// Retry-After.
func (l *limiter) take(t float64, key string) (wait float64, ok bool) {
	if len(l.checks) == 0 {
		return 0, true
	}
	l.now = micros(t)
	if l.of >= 0 {
		l.checks[l.of].Key = key
	}
	var v core.Verdict
	if err := l.core.Decide(l.checks, false, &v); err != nil {
		panic(err)
	}
	if v.Outcome == core.Reject {
		return math.Ceil(float64(v.RetryAfter) / 1e6), false
	}
	return float64(v.Delay) / 1e6, true
}

// keysOf names clients in limits.
func keysOf(clients int) []string {
	keys := make([]string, clients)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	return keys
}
