package goredis_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// leasing is a fleet of stores on one Redis, whose clocks and the server's are one.
type leasing struct {
	t      *testing.T
	server *redistest.Server
	proxy  *redistest.Proxy
	conn   *redistest.Conn
	time   atomic.Int64
	config core.RuleConfig
	stores []*redis.Store
	rules  []*core.Rule // of each store
}

// newLeasing starts a fleet of so many stores, each with a rule of the configuration.
func newLeasing(t *testing.T, nodes int, c core.RuleConfig, l rate.LimitConfig) *leasing {
	t.Helper()
	f := &leasing{t: t, config: c, server: redistest.Start(t, redistest.WithClock())}
	f.proxy = redistest.NewProxy(t, f.server.Addr())
	f.time.Store(1_700_006_400_000_000)
	f.step(0)
	var err error
	if f.conn, err = redistest.Dial(f.server.Addr(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.conn.Close)
	if f.config.Limit, err = rate.NewLimit(l); err != nil {
		t.Fatal(err)
	}
	for range nodes {
		c, g := f.configs()
		f.open(newStore(t, c, g))
	}
	return f
}

func (f *leasing) configs() (redis.Config, goredis.Config) {
	return redis.Config{Clock: f.time.Load, WallClock: f.time.Load, Prefix: "fleet:"}, goredis.Config{Addresses: []string{f.proxy.Addr()}, Timeout: patience}
}

// open adds a store to the fleet.
func (f *leasing) open(s *redis.Store) {
	f.t.Helper()
	r, err := core.NewRule(f.config)
	if err == nil {
		err = s.Open(r)
	}
	must.Succeed(f.t, err)
	f.stores = append(f.stores, s)
	f.rules = append(f.rules, r)
}

func (f *leasing) step(by time.Duration) {
	f.server.SetTime(f.time.Add(by.Microseconds()))
}

func (f *leasing) decide(node int, cost int64) (rate.Decision, error) {
	checks := []core.Check{{Rule: f.rules[node], Key: "k", Cost: cost}}
	err := f.stores[node].Decide(checks, false)
	return checks[0].Decision, err
}

// calm waits until no call about a lease is under way.
func (f *leasing) calm(node int) {
	f.t.Helper()
	for end := time.Now().Add(patience); f.stores[node].LeaseStats().UnderWay > 0; {
		if time.Now().After(end) {
			f.t.Fatal("calls about leases do not end")
		}
		time.Sleep(time.Millisecond)
	}
}

// warm lets a node have requests until it holds at least that many units. It returns how many were admitted.
func (f *leasing) warm(node int, units int64) (admitted int) {
	f.t.Helper()
	for range 3000 {
		f.calm(node)
		if f.stores[node].LeaseStats().Units >= units {
			return admitted
		}
		f.step(time.Millisecond)
		d, err := f.decide(node, 1)
		must.Succeed(f.t, err)
		if d.Allowed {
			admitted++
		}
	}
	f.t.Fatalf("the node holds %+v", f.stores[node].LeaseStats())
	return 0
}

// Three nodes with twice the limit's demand admit exactly the limit, with few calls.
func TestNodesThatLeaseAdmitTheLimitWithFewCalls(t *testing.T) {
	for name, l := range map[string]rate.LimitConfig{
		"fixed_window": {Algorithm: rate.FixedWindow, Requests: 6000, Period: 10 * time.Second},
		"token_bucket": {Algorithm: rate.TokenBucket, Requests: 6, Burst: 6000, Period: 10 * time.Millisecond * 1000},
	} {
		t.Run(name, func(t *testing.T) {
			f := newLeasing(t, 3, core.RuleConfig{Name: "r", Consistency: core.Leased}, l)
			before, admitted := scriptCalls(f.conn), 0
			for i := range 9000 {
				d, err := f.decide(i%3, 1)
				must.Succeed(t, err)
				if d.Allowed {
					admitted++
				}
				if i%30 == 0 {
					f.calm(i % 3)
				}
				f.step(time.Second / 1000)
			}
			calls := scriptCalls(f.conn) - before
			if admitted > 6000+6 || admitted < 5900 || calls > 900 {
				t.Errorf("%d admitted of 6000, with %d calls for 9000 requests", admitted, calls)
			}
		})
	}
}

// What a node holds it spends without Redis. Then requests get the store's error.
func TestALeaseIsSpentWhileRedisIsAway(t *testing.T) {
	f := newLeasing(t, 1, core.RuleConfig{Name: "r", Consistency: core.Leased}, rate.LimitConfig{Requests: 10000, Period: time.Minute})
	f.warm(0, 40)
	held := f.stores[0].LeaseStats().Units
	f.proxy.Refuse()
	for i := range held {
		if d, err := f.decide(0, 1); err != nil || !d.Allowed {
			t.Fatalf("unit %d of %d: %+v, %v", i+1, held, d, err)
		}
	}
	f.calm(0)
	if d, err := f.decide(0, 1); err == nil {
		t.Errorf("beyond what it held: %+v", d)
	}
	f.proxy.Pass()
	if stats := f.stores[0].LeaseStats(); stats.Failed == 0 {
		t.Errorf("%+v", stats)
	}
}

// Nothing of a lease is spent after its end: the request asks Redis.
func TestALeaseEnds(t *testing.T) {
	f := newLeasing(t, 1, core.RuleConfig{Name: "r", Consistency: core.Leased}, rate.LimitConfig{Requests: 10000, Period: time.Minute})
	f.warm(0, 40)
	f.proxy.Refuse()
	f.step(time.Second)
	if d, err := f.decide(0, 1); err == nil {
		t.Errorf("after a second: %+v", d)
	}
	f.proxy.Pass()
}

// What a node has held is free for others two epochs after its death, as far as the bucket refills; and at once if it has given it back.
func TestWhatADeadNodeHeldIsFreeForOthers(t *testing.T) {
	l := rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1000, Burst: 1000, Period: time.Second}
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprint("closes ", closes), func(t *testing.T) {
			f := newLeasing(t, 2, core.RuleConfig{Name: "r", Consistency: core.Leased}, l)
			held := int64(30)
			if !closes {
				f.warm(0, held)
			} else {
				c, g := f.configs()
				client, err := goredis.New(g)
				must.Succeed(t, err)
				c.Client = client
				s, err := redis.NewStore(c)
				must.Succeed(t, err)
				f.open(s)
				f.warm(2, held)
				if err := s.CloseNow(); err != nil {
					t.Error(err)
				}
			}
			if !closes {
				f.step(600 * time.Millisecond) // two epochs, with leases of 250 ms, and some time to refill
			}
			d, err := f.decide(1, 1)
			if err != nil || !d.Allowed || closes && d.Remaining < 1000-60 || !closes && d.Remaining < 999 {
				t.Errorf("the other held %d: %+v, %v", held, d, err)
			}
		})
	}
}

// A request under a leased rule and one that is full takes nothing of the lease.
func TestAllOrNoneOfTheRulesAreChargedBesideALease(t *testing.T) {
	f := newLeasing(t, 1, core.RuleConfig{Name: "r", Consistency: core.Leased}, rate.LimitConfig{Requests: 10000, Period: time.Minute})
	l, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 2, Period: time.Minute})
	must.Succeed(t, err)
	full, err := core.NewRule(core.RuleConfig{Name: "full", Limit: l})
	must.Succeed(t, err)
	must.Succeed(t, f.stores[0].Open(full))
	f.warm(0, 40)
	before := f.stores[0].LeaseStats().Units
	admitted := int64(0)
	for range 10 {
		checks := []core.Check{{Rule: f.rules[0], Key: "k", Cost: 1}, {Rule: full, Key: "k", Cost: 1}}
		must.Succeed(t, f.stores[0].Decide(checks, false))
		if !checks[0].Decision.Allowed {
			t.Errorf("the leased rule: %+v", checks[0].Decision)
		}
		if checks[1].Decision.Allowed {
			admitted++
		}
	}
	if after := f.stores[0].LeaseStats().Units; admitted != 2 || after != before-2 {
		t.Errorf("%d admitted, %d units before, %d after", admitted, before, after)
	}
}

// A block by hand rejects at once on the node where it is made, whatever that held.
func TestABlockByHandForgetsTheLease(t *testing.T) {
	f := newLeasing(t, 1, core.RuleConfig{Name: "r", Consistency: core.Leased}, rate.LimitConfig{Requests: 10000, Period: time.Minute})
	f.warm(0, 40)
	must.Succeed(t, f.stores[0].Block(f.rules[0], "k", time.Minute.Microseconds()))
	if d, err := f.decide(0, 1); err != nil || d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}

// A leased rule needs a store that nodes share.
func TestALeasedRuleDoesNotFitMemory(t *testing.T) {
	f := newLeasing(t, 1, core.RuleConfig{Name: "r", Consistency: core.Leased}, rate.LimitConfig{Requests: 10000, Period: time.Minute})
	alone := core.NewLimiter(memory.New(memory.Config{}))
	if err := alone.Fits(f.rules[0]); err == nil {
		t.Error("no error in memory")
	}
	shared := core.NewLimiter(f.stores[0])
	shared.FallBack(memory.New(memory.Config{}), 2)
	if err := shared.Fits(f.rules[0]); err != nil {
		t.Error(err)
	}
}

// Many requests at once share what their nodes hold, and no unit is spent twice.
func TestManyRequestsAtOnceSpendNoUnitTwice(t *testing.T) {
	f := newLeasing(t, 2, core.RuleConfig{Name: "r", Consistency: core.Leased}, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 2000, Period: time.Minute})
	f.warm(0, 20)
	var admitted atomic.Int64
	admitted.Store(2000 - f.left())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 500 {
				d, err := f.decide(i%2, 1)
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					admitted.Add(1)
				}
				f.step(time.Millisecond / 8)
			}
		})
	}
	all.Wait()
	f.calm(0)
	f.calm(1)
	held := f.stores[0].LeaseStats().Units + f.stores[1].LeaseStats().Units
	if n := admitted.Load(); n+held > 2000 || n < 1900 {
		t.Errorf("%d admitted, %d held", n, held)
	}
}

// left returns how many units of the limit were not admitted so far, if only the first node has had requests.
func (f *leasing) left() int64 {
	d, err := f.decide(1, 1)
	must.Succeed(f.t, err)
	return d.Remaining + f.stores[0].LeaseStats().Units
}

// A reload that lowers a limit ends what nodes hold under the old one: not one unit of that is spent under the new limit, and it is given back. A defect:
// it was spent to the end of the lease.
func TestNothingThatWasLentUnderAHigherLimitIsSpentUnderALowerOne(t *testing.T) {
	f := newLeasing(t, 1, core.RuleConfig{Name: "r", Consistency: core.Leased}, rate.LimitConfig{Requests: 10000, Period: time.Minute})
	admitted := f.warm(0, 40)
	lower, err := rate.NewLimit(rate.LimitConfig{Requests: 20, Period: time.Minute})
	must.Succeed(t, err)
	f.config.Limit = lower
	f.open(f.stores[0])
	for i := range 50 {
		if d, err := f.decide(1, 1); err != nil || d.Allowed {
			t.Fatalf("request %d after the reload, with %d admitted before it: %+v, %v", i+1, admitted, d, err)
		}
	}
	f.step(time.Second)
	for end := time.Now().Add(patience); f.stores[0].LeaseStats().Returned == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not given back: %+v", f.stores[0].LeaseStats())
		}
	}
}

// What is lent by answers that come later than a request waits is spent or given back, and no unit of the limit is lost.
func TestNothingIsLostWithLateAnswers(t *testing.T) {
	const limit = 10000
	f := newLeasing(t, 1, core.RuleConfig{Name: "r", Consistency: core.Leased}, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: limit, Period: time.Minute})
	c, g := f.configs()
	g.Timeout = 50 * time.Millisecond
	f.open(newStore(t, c, g)) // waits no longer
	const node = 1
	admitted, unknown := int64(0), int64(0)
	request := func() {
		f.step(time.Millisecond)
		d, err := f.decide(node, 1)
		switch {
		case err != nil: // Redis may have charged it
			unknown++
		case d.Allowed:
			admitted++
		}
	}
	stats := func() redis.LeaseStats { return f.stores[node].LeaseStats() }
	calm := func() { until(t, "no call is under way", func() bool { return stats().UnderWay == 0 }) }
	until(t, "the node holds units", func() bool {
		request()
		calm()
		return stats().Units >= 40
	})
	until(t, "a late answer brings units", func() bool {
		request() // closes the breaker, if it is open
		calm()
		before := stats().Granted
		f.proxy.Delay(100 * time.Millisecond) // in each direction
		defer f.proxy.Pass()
		for i := 0; i < 100 && stats().UnderWay == 0; i++ {
			request()
		}
		calm()
		return stats().Granted > before
	})
	f.step(800 * time.Millisecond)
	until(t, "all units that were not admitted remain", func() bool {
		look := []core.Check{{Rule: f.rules[0], Key: "k", Cost: 1}}
		must.Succeed(t, f.stores[0].Decide(look, true))
		left := look[0].Decision.Remaining + 1 // a look counts its cost
		return left <= limit-admitted && left >= limit-admitted-unknown
	})
}

// A quota is whole again after its period, though nodes may spend later what they hold. A defect: with a log of an hour, X-RateLimit-Reset was 3603.
func TestALeasedQuotaIsWholeAgainAfterItsTime(t *testing.T) {
	for name, l := range map[string]rate.LimitConfig{
		"sliding_window_log": {Algorithm: rate.SlidingWindowLog, Requests: 1000, Period: time.Hour},
		"token_bucket":       {Algorithm: rate.TokenBucket, Requests: 1000, Period: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			f := newLeasing(t, 2, core.RuleConfig{Name: "r", Consistency: core.Leased}, l)
			held := 0
			for i := range 1100 {
				f.step(time.Millisecond)
				d, err := f.decide(i%2, 1)
				if err != nil || d.ResetAfter > time.Hour.Microseconds() {
					t.Fatalf("request %d: %+v, %v", i+1, d, err)
				}
				f.calm(i % 2)
				if f.stores[0].LeaseStats().Units > 0 {
					held++
				}
				look := []core.Check{{Rule: f.rules[0], Key: "k", Cost: 1}}
				if err := f.stores[0].Decide(look, true); err != nil || look[0].Decision.ResetAfter > time.Hour.Microseconds() {
					t.Fatalf("request %d: %+v, %v", i+1, look[0].Decision, err)
				}
			}
			if held < 100 {
				t.Errorf("units were held at %d moments", held)
			}
		})
	}
}

// Strict rules cannot keep to the timeout where Redis is far away. Their breaker opens, and the log says why; leases of the same store go on.
func TestAFarRedisIsToldAndServesLeases(t *testing.T) {
	server := redistest.Start(t)
	relay := redistest.NewProxy(t, server.Addr())
	client, err := goredis.New(goredis.Config{Addresses: []string{relay.Addr()}, Timeout: 20 * time.Millisecond, Background: patience, ReadTimeout: patience, DialTimeout: patience})
	must.Succeed(t, err)
	changes := make(chan error, 100)
	s, err := redis.NewStore(redis.Config{Client: client, Changed: func(_ string, err error) { changes <- err }})
	must.Succeed(t, err)
	defer s.Close()
	limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 100, Period: time.Hour})
	must.Succeed(t, err)
	var rules []*core.Rule
	for _, c := range []core.RuleConfig{{Name: "strict", Limit: limit}, {Name: "leased", Limit: limit, Consistency: core.Leased}, {Name: "eventual", Limit: limit, Consistency: core.Eventual, SyncEvery: time.Second}} {
		r, err := core.NewRule(c)
		if err == nil {
			err = s.Open(r)
		}
		must.Succeed(t, err)
		rules = append(rules, r)
	}
	ask := func(rule int, key string) error {
		return s.Decide([]core.Check{{Rule: rules[rule], Key: key, Cost: 1}}, false)
	}
	relay.Delay(60 * time.Millisecond)
	must.Succeed(t, ask(1, "first"))
	for range 5 {
		if err = ask(0, "k"); !errors.Is(err, redis.ErrTimeout) {
			t.Fatalf("%v within 20 ms of a server that is 120 ms away", err)
		}
	}
	if err = ask(0, "k"); !errors.Is(err, redis.ErrOpen) {
		t.Errorf("after five failures: %v", err)
	}
	if err = <-changes; err == nil || !strings.Contains(err.Error(), "longer than the timeout, 20ms: set one of several times that, or consistency lease or eventual") {
		t.Errorf("the change was told as %v", err)
	}
	for i := range 20 {
		if err = ask(1+i%2, "k"+strconv.Itoa(i)); err != nil {
			t.Fatalf("beside an open breaker: %v", err)
		}
	}
}
