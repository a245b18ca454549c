package memory_test

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

func TestMemoryKeepsWhatEveryStorePromises(t *testing.T) {
	ofEachIndex(t, storetest.Run)
}

func TestMemoryKeepsWhatEveryStorePromisesInHistories(t *testing.T) {
	underrace.OneGoroutine(t)
	ofEachIndex(t, storetest.RunHistories)
}

func ofEachIndex(t *testing.T, run func(*testing.T, storetest.NewStore)) {
	for _, index := range indexes {
		t.Run(index.name, func(t *testing.T) {
			run(t, func(t *testing.T, clock *storetest.Clock) core.Store {
				return memory.New(memory.Config{Clock: clock.Now, Index: index.index, MaxKeys: 10_000})
			})
		})
	}
}

var indexes = []struct {
	name  string
	index memory.Index
}{
	{"probing", memory.Probing},
	{"mapped", memory.Mapped},
}

var limits = []struct {
	name   string
	config rate.LimitConfig
}{
	{"token_bucket", rate.LimitConfig{Algorithm: rate.TokenBucket}},
	{"token_bucket interval", rate.LimitConfig{Algorithm: rate.TokenBucket, Interval: true}},
	{"leaky_bucket", rate.LimitConfig{Algorithm: rate.LeakyBucket, MaxDelay: time.Hour}},
	{"fixed_window", rate.LimitConfig{Algorithm: rate.FixedWindow}},
	{"sliding_window_log", rate.LimitConfig{Algorithm: rate.SlidingWindowLog}},
	{"sliding_window_counter", rate.LimitConfig{Algorithm: rate.SlidingWindowCounter}},
	{"sliding_window_counter segments", rate.LimitConfig{Algorithm: rate.SlidingWindowCounter, Segments: 6}},
	{"fixed_window first_request", rate.LimitConfig{Algorithm: rate.FixedWindow, Start: rate.FirstRequest}},
}

// spreadLimits are limits whose windows begin at another time for each key.
var spreadLimits = append(limits[:0:0], limits[3], limits[5], limits[6])

func init() {
	for i := range spreadLimits {
		spreadLimits[i].name += " spread"
		spreadLimits[i].config.Start = rate.Spread
	}
}

// noon is when the tests begin: 12:30:20, in the middle of windows of an hour and of a minute.
var noon = time.Date(2026, 3, 2, 12, 30, 20, 0, time.UTC).UnixMicro()

// plain is a store with its clock, without the conformance suite.
type plain struct {
	*memory.Store
	clock *storetest.Clock
}

func newMemory(c memory.Config) plain {
	clock := &storetest.Clock{}
	clock.Set(noon)
	c.Clock = clock.Now
	return plain{memory.New(c), clock}
}

func (m plain) open(t *testing.T, name string, c rate.LimitConfig, requests int64, period time.Duration) *core.Rule {
	t.Helper()
	c.Requests = requests
	c.Period = period
	l, err := rate.NewLimit(c)
	must.Succeed(t, err)
	r, err := core.NewRule(core.RuleConfig{Name: name, KeySpec: "client_ip", Limit: l})
	must.Succeed(t, err)
	must.Succeed(t, m.Open(r))
	return r
}

func (m plain) take(r *core.Rule, key string, cost int64) rate.Decision {
	checks := []core.Check{{Rule: r, Key: key, Cost: cost}}
	_ = m.Decide(checks, false) // never fails
	return checks[0].Decision
}

// exhaust takes units until one is rejected, and returns how many were allowed.
func (m plain) exhaust(r *core.Rule, key string) int64 {
	n := int64(0)
	for m.take(r, key, 1).Allowed {
		n++
	}
	return n
}

// fewer returns n, or under the interpreter a number that it manages in a second.
func fewer(n int) int {
	if storetest.Interpreted() {
		return n / 40
	}
	return n
}

// An attacker invents keys past MaxKeys, and uses each once. The store does not grow, and keys that were rejected still are,
// under the flooded rule and under another.
func TestFloodOfInventedKeysNeitherGrowsTheStoreNorResetsAVictim(t *testing.T) {
	underrace.OneGoroutine(t)
	const maxKeys = 200
	for _, index := range indexes {
		for _, limit := range limits {
			for _, requests := range []int64{1, 100} {
				t.Run(index.name+" "+limit.name+" "+strconv.FormatInt(requests, 10), func(t *testing.T) {
					m := newMemory(memory.Config{MaxKeys: maxKeys, Index: index.index})
					flooded := m.open(t, "flooded", limit.config, requests, time.Hour)
					other := m.open(t, "other", limit.config, requests, time.Hour)
					m.exhaust(flooded, "victim")
					m.exhaust(other, "victim")
					checks := []core.Check{{Rule: flooded, Cost: 1}}
					both := []core.Check{{Rule: flooded, Cost: 1}, {Rule: other, Cost: 1}}
					for i := 0; i < fewer(8_000); i++ {
						m.clock.Add(10)
						if i%2 == 0 {
							checks[0].Key = strconv.Itoa(i)
							_ = m.Decide(checks, false)
						} else {
							both[0].Key = strconv.Itoa(i)
							both[1].Key = both[0].Key
							_ = m.Decide(both, false)
						}
						st := m.Stats()
						if st.Keys > maxKeys {
							t.Fatalf("after %d keys the store holds %d; want at most %d", i, st.Keys, maxKeys)
						}
						if st.LogBytes > 4*10*rate.MaxLogRequests {
							t.Fatalf("after %d keys the logs hold %d bytes", i, st.LogBytes)
						}
					}
					if m.Stats().Evictions == 0 {
						t.Fatal("nothing was evicted; the test is too small")
					}
					if sum := m.Keys(flooded) + m.Keys(other); sum != m.Stats().Keys {
						t.Errorf("the rules have %d keys, the store %d", sum, m.Stats().Keys)
					}
					if d := m.take(flooded, "victim", 1); d.Allowed {
						t.Errorf("the victim of the flooded rule was forgotten: %+v", d)
					}
					if d := m.take(other, "victim", 1); d.Allowed {
						t.Errorf("the victim of the other rule was forgotten: %+v", d)
					}
				})
			}
		}
	}
}

// The attacker makes each key be rejected, so that its keys cost as much to forget as the victim's. But its rule has more keys,
// so they go first.
func TestFloodOfRejectedKeysDoesNotResetAVictimOfAnotherRule(t *testing.T) {
	underrace.OneGoroutine(t)
	const maxKeys = 200
	for _, index := range indexes {
		for _, limit := range limits {
			t.Run(index.name+" "+limit.name, func(t *testing.T) {
				m := newMemory(memory.Config{MaxKeys: maxKeys, Index: index.index})
				flooded := m.open(t, "flooded", limit.config, 1, time.Hour)
				other := m.open(t, "other", limit.config, 1, time.Hour)
				m.exhaust(other, "victim")
				for i := 0; i < fewer(6_000); i++ {
					m.clock.Add(10)
					m.exhaust(flooded, strconv.Itoa(i))
				}
				if n := m.Stats().Keys; n > maxKeys {
					t.Errorf("the store holds %d keys; want at most %d", n, maxKeys)
				}
				if d := m.take(other, "victim", 1); d.Allowed {
					t.Errorf("the victim was forgotten: %+v", d)
				}
			})
		}
	}
}

// A request may cost as much as the limit holds. Its log then grows by that much at once, while the logs that are evicted for it
// are small.
func TestLogsOfCostlyRequestsStayInTheirBudget(t *testing.T) {
	underrace.OneGoroutine(t)
	m := newMemory(memory.Config{MaxKeys: 5000})
	r := m.open(t, "costly", rate.LimitConfig{Algorithm: rate.SlidingWindowLog}, rate.MaxLogRequests, time.Hour)
	for i := 0; i < fewer(5000); i++ {
		m.take(r, "small "+strconv.Itoa(i), 1)
	}
	budget := int64(4 * 10 * rate.MaxLogRequests)
	costly := 100
	if storetest.Interpreted() {
		costly = 12
	}
	for i := 0; i < costly; i++ {
		m.take(r, "costly "+strconv.Itoa(i), rate.MaxLogRequests)
		// Some thousand small logs go for one large log: until they are gone, a few large logs may exceed the budget.
		if n := m.Stats().LogBytes; n > budget+3*4*rate.MaxLogRequests {
			t.Fatalf("after %d costly requests the logs hold %d bytes; want about %d", i+1, n, budget)
		}
	}
	if n := m.Stats().LogBytes; n > budget {
		t.Fatalf("in the end the logs hold %d bytes; want at most %d", n, budget)
	}
}

// heapInUse returns the bytes that are reachable.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return int64(ms.HeapAlloc)
}

func TestMemoryOfAFloodedStoreIsBounded(t *testing.T) {
	underrace.OneGoroutine(t)
	if storetest.Interpreted() {
		t.Skip("the interpreter's own heap is not the store's")
	}
	const maxKeys = 10_000
	for _, index := range indexes {
		t.Run(index.name, func(t *testing.T) {
			before := heapInUse()
			m := newMemory(memory.Config{MaxKeys: maxKeys, Index: index.index})
			bucket := m.open(t, "bucket", rate.LimitConfig{Algorithm: rate.TokenBucket}, 5, time.Hour)
			log := m.open(t, "log", rate.LimitConfig{Algorithm: rate.SlidingWindowLog}, 5, time.Hour)
			for i := 0; i < 120_000; i++ {
				m.clock.Add(10)
				key := strconv.Itoa(i)
				if i%3 == 0 {
					m.take(log, key, 1)
				} else {
					m.take(bucket, key, 1)
				}
			}
			if n := m.Stats().Keys; n > maxKeys || n < maxKeys*9/10 {
				t.Errorf("the store holds %d keys; want up to %d", n, maxKeys)
			}
			grown := heapInUse() - before
			t.Logf("%d bytes a key, logs included", grown/maxKeys)
			if grown > 200*maxKeys {
				t.Errorf("the store takes %d bytes for %d keys", grown, maxKeys)
			}
			m.clock.Add(int64(3 * time.Hour / time.Microsecond))
			m.Sweep()
			if st := m.Stats(); st.Keys != 0 || st.LogBytes != 0 {
				t.Errorf("swept when all is unused, the store holds %+v; want nothing", st)
			}
			if rest := heapInUse() - before; rest > grown/10 {
				t.Errorf("swept, it takes %d of %d bytes", rest, grown)
			}
			runtime.KeepAlive(m.Store)
		})
	}
}

func TestKeysThatAreUnusedAgainMakeWayWithoutASweep(t *testing.T) {
	underrace.OneGoroutine(t)
	for _, index := range indexes {
		for _, limit := range limits {
			t.Run(index.name+" "+limit.name, func(t *testing.T) {
				m := newMemory(memory.Config{Index: index.index})
				r := m.open(t, "short", limit.config, 10, time.Second)
				most := int64(0)
				for i := 0; i < fewer(30_000); i++ {
					m.clock.Add(1000) // a thousand keys a second, each unused again after at most two
					m.take(r, strconv.Itoa(i), 1)
					if n := m.Stats().Keys; n > most {
						most = n
					}
				}
				if most > 12_000 {
					t.Errorf("the store came to hold %d keys, of which 2000 were in use", most)
				}
				if n := m.Stats().Evictions; n != 0 {
					t.Errorf("%d keys were evicted below the bound", n)
				}
			})
		}
	}
}

func TestSweepForgetsOnlyWhatIsUnused(t *testing.T) {
	underrace.OneGoroutine(t)
	for _, index := range indexes {
		for _, limit := range limits {
			t.Run(index.name+" "+limit.name, func(t *testing.T) {
				n := fewer(12_000)
				m := newMemory(memory.Config{MaxKeys: 15_000, Index: index.index})
				short := m.open(t, "short", limit.config, 3, time.Second)
				long := m.open(t, "long", limit.config, 3, time.Hour)
				for i := 0; i < n; i++ {
					m.take(short, strconv.Itoa(i), 1)
					if i%10 == 0 {
						m.take(long, strconv.Itoa(i), 1+int64(i/10%3))
					}
				}
				m.clock.Add(int64(5 * time.Second / time.Microsecond))
				m.Sweep()
				if k := m.Keys(short); k != 0 {
					t.Errorf("%d keys are left of the %d that are unused", k, n)
				}
				if k := m.Keys(long); k != int64(n/10) {
					t.Errorf("%d keys are left of the %d that are in use", k, n/10)
				}
				m.Sweep()
				whole := int64(3)
				if limit.config.Algorithm == rate.LeakyBucket {
					whole = 4 // the one that leaves at once
				}
				for i := 0; i < n; i += 10 {
					used := 1 + int64(i/10%3)
					d := m.take(long, strconv.Itoa(i), 1)
					if d.Allowed != (used < whole) || d.Allowed && d.Remaining != whole-used-1 {
						t.Fatalf("key %d, %d of %d used before the sweep: %+v", i, used, whole, d)
					}
				}
			})
		}
	}
}

func TestKeyExpiresWhenEveryOpenLimitSaysSo(t *testing.T) {
	for _, index := range indexes {
		t.Run(index.name, func(t *testing.T) {
			m := newMemory(memory.Config{Index: index.index})
			bucket := rate.LimitConfig{Algorithm: rate.TokenBucket, Burst: 10}
			slow := m.open(t, "rule", bucket, 1, time.Minute)
			fast := m.open(t, "rule", bucket, 10, time.Minute)
			again := m.open(t, "rule", bucket, 10, time.Minute)
			m.take(fast, "alice", 1)                                // whole again after 6 s by the fast limit, after 60 s by the slow one
			m.clock.Add(int64(30 * time.Second / time.Microsecond)) // as in a reload, after which the old rules exist for a while
			m.Sweep()
			if n := m.Keys(fast); n != 1 {
				t.Fatalf("%d keys, one of which the slow limit still needs", n)
			}
			m.Release(again)
			m.Sweep()
			if n := m.Keys(fast); n != 1 {
				t.Fatalf("%d keys, after a rule was released whose limit another has", n)
			}
			m.Release(slow)
			m.Sweep()
			if n := m.Keys(fast); n != 0 {
				t.Fatalf("%d keys, which no open limit needs", n)
			}
		})
	}
}

func TestReleasedIdentityStartsAfresh(t *testing.T) {
	for _, index := range indexes {
		for _, limit := range limits {
			t.Run(index.name+" "+limit.name, func(t *testing.T) {
				m := newMemory(memory.Config{Index: index.index})
				r := m.open(t, "rule", limit.config, 3, time.Hour)
				whole := m.exhaust(r, "alice")
				next := m.open(t, "rule", limit.config, 3, time.Hour)
				m.Release(r)
				if d := m.take(next, "alice", 1); d.Allowed {
					t.Fatalf("the count did not outlive the first of two rules: %+v", d)
				}
				m.Release(next)
				fresh := m.open(t, "rule", limit.config, 3, time.Hour)
				if n := m.exhaust(fresh, "alice"); n != whole {
					t.Errorf("%d were admitted; want %d: no rule kept the count", n, whole)
				}

				// Requests that are under way still use the released rules.
				m.take(r, "alice", 1)
				m.take(next, "bob", 1)
				checks := []core.Check{{Rule: r, Key: "carol", Cost: 1}, {Rule: fresh, Key: "carol", Cost: 1}}
				if err := m.Decide(checks, false); err != nil || !checks[1].Decision.Allowed {
					t.Errorf("beside a released rule: %v, %+v", err, checks[1].Decision)
				}
				m.Release(r)
				m.Sweep()
				if k, all := m.Keys(fresh), m.Stats().Keys; k != 2 || all != 2 {
					t.Errorf("%d keys of %d are the open rule's; want alice and carol", k, all)
				}
				if d := m.take(fresh, "alice", 1); d.Allowed {
					t.Errorf("swept, alice starts afresh: %+v", d)
				}
			})
		}
	}
}

func TestLoweredMaxKeysIsReachedAsOthersCome(t *testing.T) {
	m := newMemory(memory.Config{MaxKeys: 1000})
	r := m.open(t, "rule", rate.LimitConfig{}, 3, time.Hour)
	for i := 0; i < 500; i++ {
		m.take(r, strconv.Itoa(i), 1)
	}
	m.SetMaxKeys(100)
	for i := 0; i < 200; i++ { // up to five are forgotten for one
		m.take(r, strconv.Itoa(500+i), 1)
	}
	if n := m.Stats().Keys; n > 100 {
		t.Errorf("the store holds %d keys; want 100", n)
	}
}

// Each of 64 goroutines asks once for every key, in an order of its own.
func TestCrowdOnManyKeysIsAdmittedExactlyTheLimitOfEach(t *testing.T) {
	const goroutines, requests = 64, 16
	keys := fewer(600)
	for _, index := range indexes {
		for _, limit := range limits {
			t.Run(index.name+" "+limit.name, func(t *testing.T) {
				m := newMemory(memory.Config{Index: index.index}) // in 256 shards: keys share shards, and move as tables grow
				r := m.open(t, "rule", limit.config, requests, time.Hour)
				want := int64(keys) * requests
				if limit.config.Algorithm == rate.LeakyBucket {
					want += int64(keys) // the one that leaves at once
				}
				var admitted atomic.Int64
				var done sync.WaitGroup
				for g := 0; g < goroutines; g++ {
					done.Add(1)
					go askForAll(m, r, g, keys, &admitted, &done)
				}
				for i := 0; i < 3; i++ {
					m.Sweep() // at the same time
				}
				done.Wait()
				if n := admitted.Load(); n != want {
					t.Errorf("%d were admitted; want %d", n, want)
				}
			})
		}
	}
}

func askForAll(m plain, r *core.Rule, number, keys int, admitted *atomic.Int64, done *sync.WaitGroup) {
	checks := []core.Check{{Rule: r, Cost: 1}}
	for i := 0; i < keys; i++ {
		checks[0].Key = strconv.Itoa((i*7 + number*13) % keys)
		_ = m.Decide(checks, false)
		if checks[0].Decision.Allowed {
			admitted.Add(1)
		}
	}
	done.Done()
}

// Requests under several rules, floods past the bound, reloads and sweeps happen at the same time. Nothing deadlocks, races or
// panics, and in the end the bound is kept.
func TestCrowdBesideReloadsAndSweeps(t *testing.T) {
	const maxKeys = 500
	for _, index := range indexes {
		t.Run(index.name, func(t *testing.T) {
			m := newMemory(memory.Config{MaxKeys: maxKeys, Index: index.index})
			rules := make([]*core.Rule, len(limits))
			for i := range limits {
				rules[i] = m.open(t, "rule"+strconv.Itoa(i), limits[i].config, 3, time.Hour)
			}
			var done sync.WaitGroup
			for g := 0; g < 16; g++ {
				done.Add(1)
				go askAllRules(m, rules, g, fewer(600), &done)
			}
			for i := 0; i < fewer(300); i++ {
				m.Release(m.open(t, "rule1", limits[1].config, 1+int64(i), time.Hour))
				m.Release(m.open(t, "passing", limits[4].config, 1+int64(i), time.Hour))
				if i%50 == 0 {
					m.Sweep()
				}
			}
			done.Wait()
			if n := m.Stats().Keys; n > maxKeys {
				t.Errorf("the store holds %d keys; want at most %d", n, maxKeys)
			}
		})
	}
}

func askAllRules(m plain, rules []*core.Rule, number, times int, done *sync.WaitGroup) {
	checks := make([]core.Check, len(rules))
	for i := 0; i < times; i++ {
		for j := range checks {
			checks[j] = core.Check{Rule: rules[(j+number)%len(rules)], Key: strconv.Itoa(i * (1 + number%3)), Cost: 1}
		}
		_ = m.Decide(checks, number%4 == 3)
		m.clock.Add(100)
	}
	done.Done()
}

func TestDecidingDoesNotAllocate(t *testing.T) {
	if storetest.Interpreted() {
		t.Skip("the interpreter allocates")
	}
	for _, index := range indexes {
		for _, limit := range append(limits[:len(limits):len(limits)], spreadLimits...) {
			t.Run(index.name+" "+limit.name, func(t *testing.T) {
				m := newMemory(memory.Config{Index: index.index})
				one := []core.Check{{Rule: m.open(t, "one", limit.config, 100, time.Minute), Key: "alice", Cost: 1}}
				two := []core.Check{
					{Rule: one[0].Rule, Key: "alice", Cost: 1},
					{Rule: m.open(t, "two", limit.config, 1000, time.Minute), Key: "alice", Cost: 1},
				}
				limiter := core.NewLimiter(m)
				var v core.Verdict
				for i := 0; i < 300; i++ {
					_ = limiter.Decide(two, false, &v) // its log grows as events come
				}
				ask := func(checks []core.Check, step int64, want bool) func() {
					return func() {
						m.clock.Add(step)
						_ = limiter.Decide(checks, false, &v)
						if (v.Outcome != core.Reject) != want {
							t.Errorf("%+v; want admitted %v", v, want)
						}
					}
				}
				const minute = 60_000_000
				for _, c := range []struct {
					what   string
					checks []core.Check
					step   int64
					want   bool
				}{
					{"rejecting", one, 0, false},
					{"rejecting, of two rules", two, 0, false},
					{"admitting", one, minute + 1, true},
					{"admitting, of two rules", two, minute + 1, true},
				} {
					if n := testing.AllocsPerRun(100, ask(c.checks, c.step, c.want)); n != 0 {
						t.Errorf("%s: %v allocations", c.what, n)
					}
				}
				must.Succeed(t, m.Block(one[0].Rule, "alice", minute))
				for _, checks := range [][]core.Check{one, two} {
					if n := testing.AllocsPerRun(100, ask(checks, 0, false)); n != 0 {
						t.Errorf("of %d rules, the key being blocked: %v allocations", len(checks), n)
					}
				}
			})
		}
	}
}
