package traefik

import (
	"context"
	"fmt"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/underrace"
)

// These combine the settings of rules, of which kinds has each by itself. What makes requests wait lets them pass at once.

// asMany returns how many requests or configurations a test compares: usual, or, if WEIR_COMPARED says so, that number divided by share.
func asMany(usual, share int) int {
	n, err := strconv.Atoi(os.Getenv("WEIR_COMPARED"))
	if err != nil {
		return usual
	}
	return n / share
}

// seedOf returns the seed of a configuration's random requests, which WEIR_COMPARED_SEED changes.
func seedOf(number int) int64 {
	seed, _ := strconv.ParseInt(os.Getenv("WEIR_COMPARED_SEED"), 10, 32)
	return seed<<20 + int64(number)
}

func pick(random *rand.Rand, list ...string) string { return list[random.Intn(len(list))] }

// parts are what a random rule has some of.
var parts = []func(r *Rule, random *rand.Rand){
	func(r *Rule, random *rand.Rand) {
		r.Enforcement = pick(random, "shadow", "shadow", "soft 50% 3s")
	},
	func(r *Rule, random *rand.Rand) { r.Penalty = []string{"1s", "3s"} },
	func(r *Rule, random *rand.Rand) { r.CountRejected = "true" },
	func(r *Rule, random *rand.Rand) { r.Concurrency = pick(random, "1", "2", "3") },
	func(r *Rule, random *rand.Rand) {
		*r = Rule{Name: r.Name, Key: r.Key, Concurrency: pick(random, "1", "2")}
	},
	func(r *Rule, random *rand.Rand) {
		r.Candidate = object{"limit": pick(random, "3/2s", "9/3s"), "algorithm": pick(random, "token_bucket", "sliding_window_log")}
	},
	func(r *Rule, random *rand.Rand) {
		r.OnLimit = "delay"
		r.MaxDelay = pick(random, "1ms", "1s")
	},
	func(r *Rule, random *rand.Rand) { r.Match = object{"methods": "GET"} },
	func(r *Rule, random *rand.Rand) {
		r.Answer = object{"status": pick(random, "403", "503"), "body": "{rule} {limit} {remaining} {retry_after}"}
	},
	func(r *Rule, random *rand.Rand) { r.Cost = pick(random, "2", "3") },
	func(r *Rule, random *rand.Rand) { r.Match = object{"exceptIPs": "192.0.2.2"} },
	func(r *Rule, random *rand.Rand) { r.OnMissingKey = pick(random, "skip", "reject", "share") },
	func(r *Rule, random *rand.Rand) {
		limits := object{"a": pick(random, "9/2s", "2/1s"), "b": pick(random, "unlimited", "7/3s"), "*": pick(random, "3/2s", "unlimited")}
		r.Limit = ""
		r.Tiers = object{"source": pick(random, "cookie:session", "header:X-Key", "client_ip"), "limits": limits}
	},
	func(r *Rule, random *rand.Rand) {
		r.Overrides = []object{{"key": "192.0.2.1", "limit": pick(random, "5/2s", "unlimited")}}
	},
	func(r *Rule, random *rand.Rand) {
		r.Message = "Slowly."
		r.IPv4Prefix, r.IPv6Prefix = pick(random, "", "24"), pick(random, "", "48", "128")
	},
}

// makeRandom makes a configuration, which may be refused.
func makeRandom(c *Config, random *rand.Rand) {
	c.IPStrategy = object{}
	c.Metrics = object{"path": "/metrics"}
	key := []string{pick(random, "client_ip", "client_ip", "header:X-Key", "cookie:session", "method")}
	if random.Intn(5) == 0 {
		key = []string{"client_ip", "header:X-Key"}
	}
	for i := 1 + random.Intn(4); i > 0; i-- {
		r := Rule{Name: fmt.Sprint("r", i), Limit: pick(random, "4/2s", "6/3s", "8/5s", "3/1s", "20000/5h"), Key: key}
		r.Algorithm = pick(random, "token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log")
		if random.Intn(3) == 0 {
			r.Key = []string{pick(random, "client_ip", "header:X-Key")}
		}
		for n := random.Intn(4); n > 0; n-- {
			parts[random.Intn(len(parts))](&r, random)
		}
		c.Rules = append(c.Rules, r)
	}
	if random.Intn(2) == 0 {
		c.Metrics = nil
	}
	if random.Intn(3) == 0 {
		c.StatusPath = "/a"
	}
	if random.Intn(4) == 0 {
		c.IPStrategy = nil
		c.Guard = object{"max": 512, "min": 512}
	}
}

func TestCombinationsOfSettingsAreAnsweredAsOnTheGeneralPath(t *testing.T) {
	underrace.OneGoroutine(t)
	configs, steps := asMany(1000, 2), 80
	if interpreted {
		configs, steps = 100, 20
	}
	for number := 0; number < configs; number++ {
		seed := seedOf(number)
		random := rand.New(rand.NewSource(seed))
		c := Config{}
		makeRandom(&c, random)
		if _, err := newStage(t).newHandler(context.Background(), http.NotFoundHandler(), &c, "m@file"); err != nil {
			continue
		}
		stages, handlers := onBothPaths(t, c)
		for _, s := range stages {
			s.pause = func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
				over, letGo := context.WithCancel(ctx)
				letGo()
				return over, letGo
			}
		}
		compareAnswers(t, fmt.Sprintf("concurrency in configuration %d, %+v", number, c.Rules), stages, handlers, seed, steps, func(span time.Duration) {
			span += time.Duration(random.Intn(40)) * time.Microsecond // so that some decisions are timed
			stages[0].step(span)
			stages[1].step(span)
		})
	}
}

// The fields have 32 limits at most, of which the concurrency of a rule is one.
func TestManyRulesAreListedAsOnTheGeneralPath(t *testing.T) {
	underrace.OneGoroutine(t)
	for _, number := range []int{31, 32, 33} {
		c := Config{IPStrategy: object{}}
		for i := 1; i <= number; i++ {
			c.Rules = append(c.Rules, Rule{Name: fmt.Sprint("r", i), Limit: fmt.Sprintf("%d/2s", i)})
		}
		c.Rules[number-1].Concurrency = "2"
		stages, handlers := onBothPaths(t, c)
		compareAnswers(t, fmt.Sprintf("%d rules", number), stages, handlers, 1, 20, func(span time.Duration) {
			stages[0].step(span)
			stages[1].step(span)
		})
	}
}

// Requests in ever other combinations fill the paths of several rules. Single rules keep theirs, and get them.
func TestPathsOfSeveralRulesTakeNoneFromSingleOnes(t *testing.T) {
	general, own := http.Handler(http.NewServeMux()), http.Handler(http.NewServeMux())
	k := &keptPaths{}
	k.paths.Store(&pathList{single: make([]http.Handler, 2), several: make(map[string]http.Handler)})
	newOwn := func() http.Handler { return own }
	for i := 0; i < mostPaths; i++ {
		if keep(k, -1, strconv.Itoa(i), general, newOwn) != own {
			t.Fatalf("list %d has no path", i)
		}
	}
	if keep(k, -1, "one more", general, newOwn) != general || len(k.paths.Load().(*pathList).several) != mostPaths {
		t.Error("there are more lists than may be")
	}
	if keep(k, 1, "", general, newOwn) != own || k.paths.Load().(*pathList).single[1] != own {
		t.Error("a single rule has no path")
	}
}
