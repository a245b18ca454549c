package goredis_test

import (
	"fmt"
	"math/rand/v2"
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

// eventual is a rule whose nodes synchronise when a test says so: a real minute is longer than a test.
var eventual = core.RuleConfig{Name: "r", Consistency: core.Eventual, SyncEvery: time.Minute}

var thousand = rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1000, Period: time.Hour}

// admit has a node decide on so many requests, and expects that all are admitted. It returns the last decision.
func (f *leasing) admit(node, requests int) (d rate.Decision) {
	f.t.Helper()
	for i := range requests {
		var err error
		if d, err = f.decide(node, 1); err != nil || !d.Allowed {
			f.t.Fatalf("request %d on node %d: %+v, %v", i, node, d, err)
		}
	}
	return d
}

func (f *leasing) synchronise(nodes ...int) {
	for _, i := range nodes {
		f.stores[i].Synchronise()
	}
}

// newcomer returns what is left for a node that starts, and knows what Redis has.
func (f *leasing) newcomer() int64 {
	f.t.Helper()
	c, g := f.configs()
	g.Addresses = []string{f.server.Addr()}
	s := newStore(f.t, c, g)
	r, err := core.NewRule(f.config)
	if err == nil {
		err = s.Open(r)
	}
	checks := []core.Check{{Rule: r, Key: "k", Cost: 1}}
	if err == nil {
		err = s.Decide(checks, true)
	}
	must.Succeed(f.t, err)
	if !checks[0].Decision.Allowed {
		return 0
	}
	return checks[0].Decision.Remaining + 1 // the decision of a peek includes its charge
}

// Nodes decide without Redis, and learn what others have admitted when they synchronise. The first request on a node asks Redis.
func TestEventualNodesLearnOfEachOther(t *testing.T) {
	f := newLeasing(t, 2, eventual, thousand)
	before := scriptCalls(f.conn)
	if d := f.admit(0, 100); d.Remaining != 900 {
		t.Errorf("node 0: %+v", d)
	}
	if d := f.admit(1, 50); d.Remaining != 950 {
		t.Errorf("node 1: %+v", d)
	}
	must.Equal(t, scriptCalls(f.conn)-before, 2, "calls for 150 requests")
	f.synchronise(0, 1)
	if d := f.admit(1, 1); d.Remaining != 849 {
		t.Errorf("node 1 afterwards: %+v", d)
	}
	must.Equal(t, f.newcomer(), 850, "a newcomer has left")
	f.synchronise(0, 1)
	must.Equal(t, f.newcomer(), 849, "a newcomer has left at the end")
}

// A node that has not heard from the others for longer than the interval asks before it decides.
func TestANodeThatHasHeardNothingForLongAsksRedis(t *testing.T) {
	f := newLeasing(t, 2, eventual, thousand)
	f.admit(0, 1)
	f.admit(1, 900)
	f.synchronise(1)
	f.step(20 * time.Minute)
	before := scriptCalls(f.conn)
	if d := f.admit(0, 1); d.Remaining > 98 {
		t.Errorf("%+v, though the other has told of 900", d)
	}
	if calls := scriptCalls(f.conn) - before; calls > 2 { // it learns of the other by the first
		t.Errorf("%d calls", calls)
	}
}

// What Redis loses, since it is killed or evicts keys, nodes tell again. They know themselves what they have heard before.
func TestWhatRedisLosesIsToldAgain(t *testing.T) {
	for _, lose := range [][]string{{"FLUSHALL"}, {"DEL", "fleet:{%eventual}:2"}} {
		f := newLeasing(t, 2, eventual, thousand)
		f.admit(0, 100)
		f.admit(1, 50)
		f.synchronise(0, 1, 0)
		if _, err := f.conn.Do(lose...); err != nil {
			t.Fatal(err)
		}
		f.admit(0, 1)
		f.synchronise(0, 1)
		if d := f.admit(1, 1); d.Remaining != 848 {
			t.Errorf("%v: %+v", lose, d)
		}
		must.Equal(t, f.newcomer(), 849, "%v: a newcomer has left", lose)
	}
}

// However many keys there are, a round is a call, or some if the others have much to tell.
func TestThousandsOfKeysAreToldInOneCall(t *testing.T) {
	f := newLeasing(t, 2, eventual, thousand)
	decide := func(node, key int) rate.Decision {
		checks := []core.Check{{Rule: f.rules[node], Key: fmt.Sprint("key ", key), Cost: 1}}
		must.Succeed(t, f.stores[node].Decide(checks, false))
		return checks[0].Decision
	}
	f.admit(1, 1)
	for key := range 5000 {
		decide(0, key)
	}
	before := scriptCalls(f.conn)
	f.synchronise(0, 1)
	if calls := scriptCalls(f.conn) - before; calls > 3 { // node 1 does not know the other before its first call
		t.Errorf("%d calls", calls)
	}
	for key := range 5000 {
		if d := decide(1, key); d.Remaining != 998 {
			t.Fatalf("key %d: %+v", key, d)
		}
	}
}

// A log does not grow without end, and a node that reads it later knows all.
func TestALogIsWrittenAfreshWhenItIsLong(t *testing.T) {
	f := newLeasing(t, 1, eventual, thousand)
	longest := int64(0)
	for range 900 {
		f.admit(0, 1)
		f.step(time.Second)
		f.synchronise(0)
		keys, err := f.conn.Do("KEYS", "fleet:{%eventual}:2:*")
		if err != nil || len(keys.List) != 1 {
			t.Fatalf("%v, %v", keys, err)
		}
		size, err := f.conn.Do("STRLEN", keys.List[0].Text)
		must.Succeed(t, err)
		longest = max(longest, size.Int)
	}
	if longest > 70_000 {
		t.Errorf("%d bytes", longest)
	}
	must.Equal(t, f.newcomer(), 100, "a newcomer has left")
}

// What was told with a call whose answer is lost counts once, whether Redis has it or not.
func TestWhatIsToldWithAnAnswerThatIsLostCountsOnce(t *testing.T) {
	f := newLeasing(t, 1, eventual, thousand)
	f.admit(0, 101)
	f.proxy.DropReply("evalsha")
	f.synchronise(0)
	if stats := f.stores[0].SyncStats(); stats.Failed != 1 {
		t.Errorf("%+v", stats)
	}
	if left := f.newcomer(); left != 899 {
		t.Fatalf("%d left after the lost answer", left)
	}
	f.synchronise(0)
	f.synchronise(0)
	if d := f.admit(0, 1); d.Remaining != 898 {
		t.Errorf("%+v", d)
	}
}

// While Redis is away, a node decides by what it knows for three intervals. Then requests get the store's error, with what was last known. What could not be
// sent is sent when Redis is back.
func TestEventualGoesOnForAWhileWhenRedisFails(t *testing.T) {
	f := newLeasing(t, 1, eventual, thousand)
	f.admit(0, 101)
	f.proxy.Refuse()
	f.step(time.Minute)
	for end := time.Now().Add(patience); f.stores[0].SyncStats().Failed < 5; { // the breaker opens, and then nothing is sent
		f.synchronise(0)
		if time.Now().After(end) {
			t.Fatalf("%+v", f.stores[0].SyncStats())
		}
	}
	f.step(time.Minute)
	f.admit(0, 99)
	if stats := f.stores[0].SyncStats(); stats.Age < (2 * time.Minute).Microseconds() {
		t.Errorf("%+v", stats)
	}
	f.step(2 * time.Minute)
	if d, err := f.decide(0, 1); err == nil || d.Limit != 1000 || d.Remaining < 800 || d.Remaining > 901 {
		t.Errorf("after three intervals: %+v, %v", d, err)
	}
	f.proxy.Pass()
	for end := time.Now().Add(patience); f.stores[0].SyncStats().Age > 0; {
		f.synchronise(0)
		if time.Now().After(end) {
			t.Fatalf("%+v", f.stores[0].SyncStats())
		}
	}
	if left := f.newcomer(); left > 901 || left < 800 {
		t.Errorf("%d left", left)
	}
	f.admit(0, 1)
}

// A request under several rules is charged to all or to none, whichever of them are eventual.
func TestAllOrNoneOfTheRulesAreChargedBesideAnEventualOne(t *testing.T) {
	f := newLeasing(t, 1, eventual, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 5, Period: time.Hour})
	rule := func(name string, requests int64, counts bool, c core.Consistency) *core.Rule {
		l, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: requests, Period: time.Hour})
		must.Succeed(t, err)
		r, err := core.NewRule(core.RuleConfig{Name: name, Limit: l, CountRejected: counts, Consistency: c, SyncEvery: time.Minute})
		if err == nil {
			err = f.stores[0].Open(r)
		}
		must.Succeed(t, err)
		return r
	}
	strict, leased, counting, other := rule("strict", 3, false, core.Strict), rule("leased", 50, false, core.Leased), rule("counting", 7, true, core.Strict), rule("other", 100, false, core.Eventual)
	left := func(key string, r *core.Rule) int64 {
		t.Helper()
		checks := []core.Check{{Rule: r, Key: key, Cost: 1}}
		must.Succeed(t, f.stores[0].Decide(checks, true))
		if !checks[0].Decision.Allowed {
			return 0
		}
		return checks[0].Decision.Remaining + 1
	}
	decide := func(key string, rules ...*core.Rule) bool {
		t.Helper()
		var checks []core.Check
		for _, r := range rules {
			checks = append(checks, core.Check{Rule: r, Key: key, Cost: 1})
		}
		must.Succeed(t, f.stores[0].Decide(checks, false))
		for _, c := range checks {
			if !c.Decision.Allowed {
				return false
			}
		}
		return true
	}
	admitted := 0
	for range 8 { // the strict rule is full first
		if decide("a", f.rules[0], strict, leased, other) {
			admitted++
		}
	}
	if admitted != 3 || left("a", f.rules[0]) != 2 || left("a", leased) != 47 || left("a", other) != 97 {
		t.Errorf("%d admitted, left %d, %d, %d", admitted, left("a", f.rules[0]), left("a", leased), left("a", other))
	}
	admitted = 0
	for range 8 { // the eventual one is
		if decide("b", leased, f.rules[0], counting, other) {
			admitted++
		}
	}
	if admitted != 5 || left("b", leased) != 45 || left("b", counting) != 2 || left("b", other) != 95 {
		t.Errorf("%d admitted, left %d, %d, %d", admitted, left("b", leased), left("b", counting), left("b", other))
	}
}

// A rule that rejects a request, too, and has count_rejected, is charged for that when an eventual rule rejects it.
func TestARejectionByAnEventualRuleChargesWhatCountsRejections(t *testing.T) {
	f := newLeasing(t, 1, eventual, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Period: time.Hour})
	l, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.SlidingWindowCounter, Requests: 1, Period: time.Hour})
	must.Succeed(t, err)
	counting, err := core.NewRule(core.RuleConfig{Name: "counting", Limit: l, CountRejected: true})
	if err == nil {
		err = f.stores[0].Open(counting)
	}
	must.Succeed(t, err)
	wait := int64(0)
	for i := range 3 {
		checks := []core.Check{{Rule: f.rules[0], Key: "k", Cost: 1}, {Rule: counting, Key: "k", Cost: 1}}
		must.Succeed(t, f.stores[0].Decide(checks, false))
		d := checks[1].Decision
		if d.Allowed != (i == 0) || i == 2 && d.RetryAfter <= wait {
			t.Errorf("request %d: %+v, before %d", i, d, wait)
		}
		wait = d.RetryAfter
	}
}

// To ask what would be decided changes nothing.
func TestAPeekAtAnEventualRuleChargesNothing(t *testing.T) {
	f := newLeasing(t, 1, eventual, thousand)
	for range 3 {
		checks := []core.Check{{Rule: f.rules[0], Key: "k", Cost: 1}}
		if err := f.stores[0].Decide(checks, true); err != nil || checks[0].Decision.Remaining != 999 {
			t.Errorf("%+v, %v", checks[0].Decision, err)
		}
	}
	f.synchronise(0)
	if d := f.admit(0, 1); d.Remaining != 999 {
		t.Errorf("%+v", d)
	}
}

// A block by hand, and a reset, hold at once on the node where they are made, and on others after they have synchronised.
func TestABlockByHandReachesOtherNodes(t *testing.T) {
	for _, l := range []rate.LimitConfig{thousand, {Algorithm: rate.SlidingWindowLog, Requests: 1000, Period: time.Hour}} {
		f := newLeasing(t, 2, eventual, l)
		f.admit(0, 10)
		f.admit(1, 10)
		must.Succeed(t, f.stores[0].Block(f.rules[0], "k", time.Minute.Microseconds()))
		if d, err := f.decide(0, 1); err != nil || d.Allowed || d.RetryAfter != time.Minute.Microseconds() {
			t.Errorf("node 0: %+v, %v", d, err)
		}
		f.synchronise(0, 1)
		if d, err := f.decide(1, 1); err != nil || d.Allowed || d.RetryAfter != time.Minute.Microseconds() {
			t.Errorf("node 1: %+v, %v", d, err)
		}
		must.Succeed(t, f.stores[1].Reset(f.rules[1], "k"))
		if d := f.admit(1, 1); d.Remaining != 999 {
			t.Errorf("after the reset: %+v", d)
		}
	}
}

// A store that is closed tells what is untold.
func TestAStoreThatClosesTellsWhatIsUntold(t *testing.T) {
	f := newLeasing(t, 1, eventual, thousand)
	c, g := f.configs()
	client, err := goredis.New(g)
	must.Succeed(t, err)
	c.Client = client
	s, err := redis.NewStore(c)
	must.Succeed(t, err)
	f.open(s)
	f.admit(1, 100)
	if err := s.CloseNow(); err != nil {
		t.Error(err)
	}
	must.Equal(t, f.newcomer(), 900, "left")
}

// What a response has cost is charged on its node at once, and owed there; others hear of it when they synchronise, also from a store that was closed while the
// request was under way.
func TestWhatAResponseHasCostReachesOtherNodes(t *testing.T) {
	c, l := eventual, thousand
	l.Owes = true
	var err error
	c.OverflowPolicy.Response, err = core.ParseResponseCost([]string{"bytes"})
	must.Succeed(t, err)
	f := newLeasing(t, 1, c, l)
	rc, g := f.configs()
	rc.Client, err = goredis.New(g)
	must.Succeed(t, err)
	closing, err := redis.NewStore(rc)
	must.Succeed(t, err)
	f.open(closing)
	ask := func(node int) (rate.Decision, []core.Reservation) {
		t.Helper()
		checks := []core.Check{{Rule: f.rules[node], Key: "k"}}
		must.Succeed(t, f.stores[node].Decide(checks, false))
		return checks[0].Decision, core.AppendReservations(nil, checks)
	}
	finish := func(node int, list []core.Reservation, units int64) {
		t.Helper()
		list[0].Measure(units)
		must.Succeed(t, core.NewLimiter(f.stores[node]).Finish(list, 200))
	}
	_, first := ask(1)
	_, second := ask(1)
	_, third := ask(0)
	finish(1, first, 900)
	f.synchronise(1, 0)
	d, fourth := ask(0)
	must.Equal(t, d.Remaining, int64(100), "left on the other node")
	must.Succeed(t, closing.Close())
	finish(1, second, 2000) // 1900 are owed
	finish(0, fourth, 0)
	f.synchronise(0)
	if d, list := ask(0); d.Allowed || len(list) > 0 {
		t.Errorf("in a debt: %+v, %v", d, list)
	}
	finish(0, third, 1)
	must.Equal(t, f.newcomer(), int64(0), "a newcomer has left")
}

// A rule that is eventual needs a store that nodes share.
func TestAnEventualRuleDoesNotFitMemory(t *testing.T) {
	f := newLeasing(t, 1, eventual, thousand)
	if err := core.NewLimiter(memory.New(memory.Config{})).Fits(f.rules[0]); err == nil {
		t.Error("no error in memory")
	}
}

// Many requests at once, while their node synchronises: a node by itself never admits more than the limit, and sends exactly what it has admitted.
func TestManyRequestsAtOnceAreSentOnce(t *testing.T) {
	f := newLeasing(t, 1, eventual, thousand)
	var admitted atomic.Int64
	admitted.Store(1)
	f.admit(0, 1)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				d, err := f.decide(0, 1)
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	for range 20 {
		f.step(time.Millisecond)
		f.synchronise(0)
	}
	all.Wait()
	f.synchronise(0)
	if left := f.newcomer(); admitted.Load() > 1000 || admitted.Load() < 900 || left != 1000-admitted.Load() {
		t.Errorf("%d admitted, %d left", admitted.Load(), left)
	}
}

// A node that is alone decides as memory does, with any algorithm, whenever it synchronises. Only units that are sent later than they were admitted may
// count for longer.
func TestANodeThatIsAloneDecidesAsMemoryDoes(t *testing.T) {
	limits := map[string]rate.LimitConfig{"the calendar": {Requests: 500, Calendar: rate.Day}}
	for name, l := range leasedLimits {
		limits[name] = l
	}
	for name, l := range limits {
		for _, interpreted := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", interpreted), func(t *testing.T) {
				c := eventual
				c.SyncEvery = 500 * time.Millisecond
				f := newLeasing(t, 0, c, l)
				config, g := f.configs()
				config.Lines = interpreted
				f.open(newStore(t, config, g))
				now := &f.time
				memory := memory.New(memory.Config{Clock: now.Load})
				twin, err := core.NewRule(core.RuleConfig{Name: "r", Limit: f.config.Limit})
				if err == nil {
					err = memory.Open(twin)
				}
				must.Succeed(t, err)
				exact := l.Algorithm != rate.SlidingWindowLog && l.Algorithm != rate.TokenBucket // units belong to windows
				r := rand.New(rand.NewPCG(22, 5))
				differs, allowed := 0, 0
				for i := range 1500 {
					step := time.Duration(r.Int64N(3 * f.config.Limit.Period / f.config.Limit.Requests * 1000))
					f.step(step)
					if step >= c.SyncEvery || r.IntN(2) == 0 {
						f.synchronise(0)
					}
					cost := 1 + r.Int64N(4)
					d, err := f.decide(0, cost)
					must.Succeed(t, err)
					checks := []core.Check{{Rule: twin, Key: "k", Cost: cost}}
					must.Succeed(t, memory.Decide(checks, !d.Allowed))
					want := checks[0].Decision
					if d.Allowed {
						allowed++
					}
					if d.Allowed && !want.Allowed || exact && (d.Allowed != want.Allowed || d.Remaining != want.Remaining && d.Allowed) {
						t.Fatalf("request %d of cost %d: %+v, memory %+v", i, cost, d, want)
					}
					if gap := want.Remaining - d.Remaining; gap > f.config.Limit.Quota/20 { // a rejected request has less to leave
						differs++
					}
				}
				if differs > 75 || allowed < 200 {
					t.Errorf("%d of 1500 differ, %d allowed", differs, allowed)
				}
			})
		}
	}
}

// In a Cluster all nodes tell each other through the server that has the slot of their logs.
func TestEventualInACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.WithClock())
	now := int64(1_700_006_400_000_000)
	cluster.SetTime(now)
	clock := func() int64 { return now }
	var stores []*redis.Store
	var rules [][]*core.Rule
	for range 2 {
		s := newStore(t, redis.Config{Clock: clock, WallClock: clock, Prefix: "fleet:"}, goredis.Config{Addresses: cluster.Addrs(), Cluster: true})
		must.Succeed(t, s.Check(patience))
		var opened []*core.Rule
		for _, name := range []string{"a", "b"} {
			c := eventual
			c.Name = name
			l, err := rate.NewLimit(thousand)
			must.Succeed(t, err)
			c.Limit = l
			r, err := core.NewRule(c)
			if err == nil {
				err = s.Open(r)
			}
			must.Succeed(t, err)
			opened = append(opened, r)
		}
		stores = append(stores, s)
		rules = append(rules, opened)
	}
	decide := func(node, key int) []core.Check {
		checks := []core.Check{{Rule: rules[node][0], Key: fmt.Sprint("a ", key), Cost: 1}, {Rule: rules[node][1], Key: fmt.Sprint("b ", key), Cost: 1}}
		if err := stores[node].Decide(checks, false); err != nil || !checks[0].Decision.Allowed || !checks[1].Decision.Allowed {
			t.Fatalf("node %d, key %d: %+v, %v", node, key, checks, err)
		}
		return checks
	}
	for key := range 40 {
		for range 5 {
			decide(0, key)
			decide(1, key)
		}
	}
	stores[0].Synchronise()
	stores[1].Synchronise()
	for key := range 40 {
		for _, c := range decide(1, key) {
			must.Equal(t, c.Decision.Remaining, 989, "key %d: %+v", key, c.Decision)
		}
	}
	for _, s := range stores {
		if stats := s.SyncStats(); stats.Failed > 0 {
			t.Errorf("%+v", stats)
		}
	}
}
