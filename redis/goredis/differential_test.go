package goredis_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // so that the calendar's tests do not depend on the machine

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/underrace"
)

// differentialDecisions is how many decisions of Redis are compared with the memory's; WEIR_DIFFERENTIAL (1e6) says
// another number, WEIR_DIFFERENTIAL_SEED another seed.
func differentialDecisions(t *testing.T) (decisions int, seed uint64) {
	t.Helper()
	decisions, seed = 20_000, 1
	if s := os.Getenv("WEIR_DIFFERENTIAL"); s != "" {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatalf("WEIR_DIFFERENTIAL: %v", err)
		}
		decisions = int(f)
	}
	if s := os.Getenv("WEIR_DIFFERENTIAL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("WEIR_DIFFERENTIAL_SEED: %v", err)
		}
	}
	return decisions, seed
}

// TestScriptsDecideAsMemoryDoes plays random histories on Redis and on the memory, and compares every number of every
// decision: Go's and Lua's arithmetic agree to the last microsecond.
func TestScriptsDecideAsMemoryDoes(t *testing.T) {
	underrace.OneGoroutine(t)
	playAll(t, duel{}, everyKind)
}

// TestARememberedRejectionIsOneThatRedisWouldMake plays them with the store's memory of rejections: what it answers without
// asking is what would have been answered.
func TestARememberedRejectionIsOneThatRedisWouldMake(t *testing.T) {
	underrace.OneGoroutine(t)
	playAll(t, duel{remembers: true}, everyKind)
}

// TestWhatAnotherSlotDeniedIsGivenBack plays them as a Cluster sees them in which every client has a slot of its own: after
// a denial all is as if nothing had been charged. The clock never steps back: what a charge has restarted a refund does not
// bring back.
func TestWhatAnotherSlotDeniedIsGivenBack(t *testing.T) {
	playAll(t, duel{slots: true, forward: true}, everyKind[len(everyKind)-1:])
}

// TestScriptsAgreeOnWhatIsDoneByHand plays them with keys that are shut out, let in and reset. The clock never steps back: what the
// memory has looked at, and Redis has let expire, they would not agree on.
func TestScriptsAgreeOnWhatIsDoneByHand(t *testing.T) {
	underrace.OneGoroutine(t)
	playAll(t, duel{byHand: true, forward: true}, everyKind)
}

// TestScriptsAgreeOnAKeyThatSeveralLimitsLookAt plays them with limits of one identity that are open at once, as those of tiers are,
// and those of a fleet while one is changed.
func TestScriptsAgreeOnAKeyThatSeveralLimitsLookAt(t *testing.T) {
	underrace.OneGoroutine(t)
	playAll(t, duel{viewers: true}, everyKind)
}

// kind is what histories of one subtest are about.
type kind struct {
	name     string
	variants []variant
	rules    int // at most
	share    int // of all decisions, relative to the other kinds
}

// variant is an algorithm, or one of its ways.
type variant struct {
	algorithm core.Algorithm
	interval  bool
	calendar  bool
}

var (
	tokenBucket   = variant{algorithm: core.TokenBucket}
	intervals     = variant{algorithm: core.TokenBucket, interval: true}
	leakyBucket   = variant{algorithm: core.LeakyBucket}
	fixedWindow   = variant{algorithm: core.FixedWindow}
	calendar      = variant{algorithm: core.FixedWindow, calendar: true}
	slidingLog    = variant{algorithm: core.SlidingWindowLog}
	slidingCount  = variant{algorithm: core.SlidingWindowCounter}
	everyVariant  = []variant{tokenBucket, intervals, leakyBucket, fixedWindow, calendar, slidingLog, slidingCount}
	everyKind     = append(kindsOfOne(), kind{"several rules", everyVariant, 5, 3})
	calendarZones = []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu", "Antarctica/Troll"}
)

func kindsOfOne() []kind {
	names := []string{"token_bucket", "token_bucket interval", "leaky_bucket", "fixed_window", "calendar", "sliding_window_log", "sliding_window_counter"}
	var kinds []kind
	for i, v := range everyVariant {
		kinds = append(kinds, kind{names[i], []variant{v}, 1, 1})
	}
	return kinds
}

// playAll plays histories of those kinds, each kind on a server of its own.
func playAll(t *testing.T, like duel, kinds []kind) {
	decisions, seed := differentialDecisions(t)
	shares := 0
	for _, k := range kinds {
		shares += k.share
	}
	for i, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			d := like
			d.start(t, k, rand.New(rand.NewPCG(seed, uint64(i))))
			for d.decisions*shares < decisions*k.share {
				if err := d.play(); err != nil {
					t.Fatalf("seed %d, history %d: %v", seed, d.histories, err)
				}
			}
			t.Logf("seed %d: %d histories, %d decisions, %d allowed, %d of several rules; %d steps back, %d of more than a period; %d limits changed; %d calls",
				seed, d.histories, d.decisions, d.allowed, d.several, d.back, d.farBack, d.changes, d.calls())
			if d.allowed == 0 || d.allowed == d.decisions || d.changes == 0 && !d.byHand || !d.forward && (d.back == 0 || d.farBack == 0) {
				t.Error("the histories do not show what they are to show")
			}
			if d.byHand && d.handled < d.histories {
				t.Errorf("in %d histories %d keys were shut out or let in", d.histories, d.handled)
			}
			if d.remembers && d.calls() >= d.decisions {
				t.Errorf("%d calls for %d decisions: nothing was remembered", d.calls(), d.decisions)
			}
		})
	}
}

// duel plays random histories on Redis and on a memory, and compares them.
type duel struct {
	remembers bool // Redis's store answers what it remembers: then only who is admitted is compared, and when one would be
	slots     bool // each client's keys are in a slot of their own
	forward   bool // the clock never steps back
	byHand    bool // keys are shut out, let in and reset
	viewers   bool // a changed limit stands beside those before, and each request comes under one of them

	kind   kind
	r      *rand.Rand
	server *redistest.Server
	conn   *redistest.Conn
	clock  *storetest.Clock // of both
	redis  *redis.Store
	memory *core.Memory // a new one for each history

	rules     []*contender
	clients   []string
	low, high int64            // between which the clock stays
	until     int64            // when what was last rejected would be admitted, or be whole
	told      map[string]int64 // by rule and client: the latest expiry by what was told
	trace     []string

	histories, decisions, allowed, several, back, farBack, changes, handled int
}

// contender is a rule in both stores.
type contender struct {
	variant  variant
	config   core.LimitConfig
	rule     core.RuleConfig
	ofRedis  *core.Rule
	ofMemory *core.Rule
	trails   map[string]*trail // by client
	others   []contender       // with viewers: limits that are open besides
}

// view has the next request come under any of the limits that are open.
func (c *contender) view(r *rand.Rand) {
	if n := r.IntN(len(c.others) + 1); n < len(c.others) {
		other := c.others[n]
		c.others[n] = *c
		c.others[n].others = nil
		c.config, c.rule, c.ofRedis, c.ofMemory = other.config, other.rule, other.ofRedis, other.ofMemory
	}
}

func (d *duel) start(t *testing.T, k kind, r *rand.Rand) {
	t.Helper()
	d.kind = k
	d.r = r
	d.server = redistest.Start(t, redistest.WithClock())
	conn, err := d.server.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	d.conn = conn
	d.clock = &storetest.Clock{}
	d.clock.Follow(d.server.SetTime)
	c := redis.Config{WallClock: d.clock.Now, PlainKeys: true, Clock: d.clock.Now}
	if !d.remembers {
		day := int64(0)
		c.Clock = func() int64 { // nothing that is remembered is still valid
			day += 24 * time.Hour.Microseconds()
			return day
		}
	}
	d.redis = newStoreOver(t, c, goredis.Config{Addresses: []string{d.server.Addr()}}, d.slots)
}

// newStoreOver is newStore, of a client that says of itself that it is a Cluster's where slots says so. One server that has
// all slots is a Cluster too, but for the errors.
func newStoreOver(t testing.TB, c redis.Config, g goredis.Config, slots bool) *redis.Store {
	t.Helper()
	if !slots {
		return newStore(t, c, g)
	}
	g.Timeout = patience
	client, err := goredis.New(g)
	if err != nil {
		t.Fatal(err)
	}
	c.Client = slotted{client}
	s, err := redis.NewStore(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.CloseNow(); err != nil { // whatever the test has left under way
			t.Error(err)
		}
	})
	return s
}

type slotted struct{ redis.Client }

func (slotted) Cluster() bool { return true }

// calls returns how many scripts the server has run by their names.
func (d *duel) calls() int { return scriptCalls(d.conn) }

func scriptCalls(c *redistest.Conn) int {
	info, err := c.Do("INFO", "commandstats")
	if err != nil {
		return -1
	}
	_, after, _ := strings.Cut(info.Text, "cmdstat_evalsha:calls=")
	number, _, _ := strings.Cut(after, ",")
	n, _ := strconv.Atoi(number)
	return n
}

// play plays one history of some sixty decisions.
func (d *duel) play() error {
	if err := d.begin(); err != nil {
		return err
	}
	for range 60 {
		if d.r.IntN(15) == 0 {
			if err := d.change(d.rules[d.r.IntN(len(d.rules))]); err != nil {
				return err
			}
		}
		d.move()
		if d.byHand && d.r.IntN(10) == 0 {
			if err := d.seeTo(d.rules[d.r.IntN(len(d.rules))], d.clients[d.r.IntN(len(d.clients))]); err != nil {
				return err
			}
		}
		if err := d.request(); err != nil {
			return err
		}
		for d.r.IntN(4) == 0 { // the same client comes again at once
			if err := d.request(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *duel) begin() error {
	for _, c := range d.rules {
		d.redis.Release(c.ofRedis)
		for i := range c.others {
			d.redis.Release(c.others[i].ofRedis)
		}
	}
	if _, err := d.conn.Do("FLUSHALL"); err != nil {
		return err
	}
	d.histories++
	d.trace = nil
	d.rules = nil
	d.until = 0
	d.told = make(map[string]int64)
	d.memory = core.NewMemory(core.MemoryConfig{MaxKeys: 100, Clock: d.clock.Now})
	d.low, d.high = 1_000_000_000_000, 7_000_000_000_000_000
	d.clients = []string{"a"}
	rules := 1 + d.r.IntN(d.kind.rules)
	if d.kind.rules > 1 {
		d.clients = []string{"a", "b"}
	}
	for i := range rules {
		c := &contender{variant: d.kind.variants[d.r.IntN(len(d.kind.variants))], trails: make(map[string]*trail)}
		if c.variant.calendar {
			d.low, d.high = 1_000_000_000_000_000, 4_000_000_000_000_000 // from 2001 to 2096
		}
		c.rule = core.RuleConfig{
			Name:          fmt.Sprintf("h%d.%d", d.histories, i),
			CountRejected: d.r.IntN(3) == 0,
			Shadow:        d.r.IntN(5) == 0,
		}
		c.config = d.randomLimit(c.variant)
		d.rules = append(d.rules, c)
		if err := d.open(c); err != nil {
			return err
		}
	}
	d.clock.Set(1_600_000_000_000_000 + d.r.Int64N(200_000_000_000_000))
	if rules*len(d.clients) > 1 {
		// The memory forgets keys only as new ones come. So that it forgets none here, all come now.
		for _, c := range d.rules {
			for _, client := range d.clients {
				if err := d.decide([]*contender{c}, []string{client}, []int64{1}, false); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// open begins with the limit that c.config says, in both stores.
func (d *duel) open(c *contender) error {
	limit, err := core.NewLimit(c.config)
	if err != nil {
		return err
	}
	c.rule.Limit = limit
	if c.ofRedis, err = core.NewRule(c.rule); err != nil {
		return err
	}
	if c.ofMemory, err = core.NewRule(c.rule); err != nil {
		return err
	}
	if err = d.redis.Open(c.ofRedis); err != nil {
		return err
	}
	d.note("%s: %+v count_rejected %v shadow %v", c.rule.Name, c.config, c.rule.CountRejected, c.rule.Shadow)
	return d.memory.Open(c.ofMemory)
}

// change is a reload that changes a limit's numbers under what was counted.
func (d *duel) change(c *contender) error {
	if d.slots && c.isBucket() {
		// A charge that was given back has brought the bucket to its time at the former rate. Where nothing was charged, all
		// the time since the last charge is reckoned at the new one.
		return nil
	}
	if d.byHand && c.isBucket() {
		// A key that comes again after a reset has the memory forget others, whose levels might be whole no more.
		return nil
	}
	before := *c
	d.randomNumbers(&c.config)
	if _, err := core.NewLimit(c.config); err != nil {
		c.config = before.config
		return nil
	}
	if err := d.open(c); err != nil {
		return err
	}
	if c.isBucket() && !d.applies(c) {
		d.redis.Release(c.ofRedis)
		d.memory.Release(c.ofMemory)
		*c = before
		d.note("%s: taken back", c.rule.Name)
		return nil
	}
	d.changes++
	if d.viewers && len(c.others) < 3 {
		before.others = nil
		c.others = append(c.others, before)
		return nil
	}
	d.redis.Release(before.ofRedis)
	d.memory.Release(before.ofMemory)
	return nil
}

// applies notes from when on the changed limit of a bucket, which may drain slower, leaves nothing of the levels. It returns
// false where the stores differ about that at once: Redis has forgotten the key at the time that the former limit said. It
// does so too where the clock is set back beyond the key's time by more than a period, as nothing can be asked of the level
// then.
func (d *duel) applies(c *contender) bool {
	now := d.clock.Now()
	var wholes []int64
	for client, k := range c.trails {
		if now < k.at-c.period() {
			return false
		}
		check := []core.Check{{Rule: c.ofMemory, Key: client}} // a cost of 0 asks how things stand
		if err := d.memory.Decide(check, true); err != nil {
			return false
		}
		whole := after(now, check[0].Decision.ResetAfter)
		if whole > now && k.gone {
			return false
		}
		wholes = append(wholes, whole)
	}
	for _, k := range c.trails {
		for _, whole := range wholes { // the latest counts for all
			k.whole = max(k.whole, whole)
		}
	}
	return true
}

func (c *contender) isBucket() bool {
	return c.variant.algorithm == core.TokenBucket || c.variant.algorithm == core.LeakyBucket
}

func (c *contender) period() int64 { return c.rule.Limit.Period() }

// seeTo shuts a client out, lets it in or resets it.
func (d *duel) seeTo(c *contender, client string) error {
	now := d.clock.Now()
	span := int64(0)
	switch d.r.IntN(4) {
	case 0:
		d.note("at %d %s %s is reset", now, c.rule.Name, client)
		delete(c.trails, client)
		if err := d.redis.Reset(c.ofRedis, client); err != nil {
			return err
		}
		return d.memory.Reset(c.ofMemory, client)
	case 1, 2:
		span = 1 + d.r.Int64N(2*c.period())
		d.until = now + span
		delete(c.trails, client)
	}
	d.note("at %d %s %s is shut out for %d", now, c.rule.Name, client, span)
	name := c.rule.Name + " " + client
	d.told[name] = max(d.told[name], expiry(now, span))
	d.handled++
	if err := d.redis.Block(c.ofRedis, client, span); err != nil {
		return err
	}
	return d.memory.Block(c.ofMemory, client, span)
}

// request asks for something of some of the rules.
func (d *duel) request() error {
	for _, c := range d.rules {
		c.view(d.r)
	}
	var rules []*contender
	var clients []string
	var costs []int64
	for len(rules) == 0 {
		for _, c := range d.rules {
			if d.r.IntN(3) > 0 {
				rules = append(rules, c)
				clients = append(clients, d.clients[d.r.IntN(len(d.clients))])
				costs = append(costs, d.cost(c))
			}
		}
	}
	peek := d.r.IntN(8) == 0
	for again := true; again; again = d.remembers && d.r.IntN(2) == 0 {
		if err := d.decide(rules, clients, costs, peek); err != nil {
			return err
		}
	}
	return nil
}

// decide asks both stores, and compares.
func (d *duel) decide(rules []*contender, clients []string, costs []int64, peek bool) error {
	ofRedis, ofMemory := make([]core.Check, len(rules)), make([]core.Check, len(rules))
	for i, c := range rules {
		ofRedis[i] = core.Check{Rule: c.ofRedis, Key: clients[i], Cost: costs[i]}
		ofMemory[i] = core.Check{Rule: c.ofMemory, Key: clients[i], Cost: costs[i]}
	}
	now := d.clock.Now()
	if err := d.redis.Decide(ofRedis, peek); err != nil {
		return d.failed("at %d: %w", now, err)
	}
	if err := d.memory.Decide(ofMemory, peek); err != nil {
		return err
	}
	admitted := true
	for i, c := range rules {
		d.note("at %d %s %s cost %d peek %v: %+v", now, c.rule.Name, clients[i], costs[i], peek, ofMemory[i].Decision)
		admitted = admitted && (ofMemory[i].Decision.Allowed || c.rule.Shadow)
	}
	for i := range rules {
		got, want := ofRedis[i].Decision, ofMemory[i].Decision
		if d.slots && !admitted {
			// When the quota is whole is told as if the charge that was given back were still there.
			got.ResetAfter = want.ResetAfter
		}
		if d.remembers && !admitted {
			// What is remembered is how things stood, and nothing of a rule that has admitted since.
			if got.Allowed {
				got = want
			}
			got.Remaining = want.Remaining
			got.Limit = want.Limit
			// What the limit can never hold is rejected too where a clock that is set back lets the key start over, and the
			// reset of then is remembered when the clock is right again and the key goes on.
			if want.RetryAfter == core.Never {
				got.ResetAfter = want.ResetAfter
			}
			// A hundred years stand for anything longer, and are counted down where they are remembered.
			if longest := century - time.Hour.Microseconds(); want.ResetAfter >= longest { // a max_delay is at most an hour
				if want.RetryAfter >= longest && got.RetryAfter > want.RetryAfter-remembered {
					got.RetryAfter = want.RetryAfter
				}
				if got.ResetAfter > want.ResetAfter-remembered {
					got.ResetAfter = want.ResetAfter
				}
			}
		}
		if got != want {
			return d.failed("%s %s: Redis says %+v, the memory %+v", rules[i].rule.Name, clients[i], ofRedis[i].Decision, want)
		}
	}
	if d.remembers {
		other := true
		for i, c := range rules {
			other = other && (ofRedis[i].Decision.Allowed || c.rule.Shadow)
		}
		if admitted != other {
			return d.failed("admitted by Redis: %v, by the memory: %v", other, admitted)
		}
	}
	for i, c := range rules {
		told := ofRedis[i].Decision
		name := c.rule.Name + " " + clients[i]
		d.told[name] = max(d.told[name], expiry(now, told.ResetAfter))
		c.follow(clients[i], now, &told, !peek && (told.Allowed && admitted || !told.Allowed && c.rule.CountRejected))
		if k := c.trails[clients[i]]; k != nil && c.isBucket() && !told.Allowed && !peek && !k.gone && !d.remembers {
			k.expires = max(k.expires, expiry(now, told.ResetAfter)) // what is told of a rejected request is true yet when the key was to expire
		}
		for _, other := range c.others { // a slower one is whole later
			check := []core.Check{{Rule: other.ofMemory, Key: clients[i]}}
			if err := d.memory.Decide(check, true); err != nil {
				return err
			}
			if k := c.trails[clients[i]]; k != nil && c.isBucket() {
				k.whole = max(k.whole, after(now, check[0].Decision.ResetAfter))
			}
		}
		if !told.Allowed && told.RetryAfter != core.Never {
			d.until = now + told.RetryAfter
		} else if d.r.IntN(4) == 0 {
			d.until = now + told.ResetAfter
		}
	}
	d.decisions++
	if admitted {
		d.allowed++
	}
	if len(rules) > 1 {
		d.several++
	}
	return nil
}

// In microseconds: for how long a rejection is remembered at most, and the longest time that is told.
const (
	remembered = int64(10_000_000)
	century    = int64(100 * 365 * 24 * time.Hour / time.Microsecond)
)

// trail is what tells of a key whether the stores must agree on it when the clock is set. They need not where
//
//   - Redis has let the key expire, and the clock is set back to before that. (While the memory forgets nothing, see begin.)
//   - The limit was lowered since a bucket was charged: Redis lets its key expire when the former limit would have been
//     whole, unless the lower one has rejected a request since.
//   - A log was looked at and not charged. The memory notes the time of the look, before which the key's time does not go
//     back; and a look at a time so early that the log starts over empties it. Redis writes where it charges, and only there.
type trail struct {
	at      int64 // the key's own time, of buckets and logs: the last charge's, or the one before if the clock had stepped back
	looked  int64 // the memory's time of a log
	emptied bool  // the memory has emptied the log, and Redis has not
	expires int64 // when the key expires in Redis, in milliseconds
	whole   int64 // from when on its state makes no difference
	gone    bool  // it has expired
	floor   int64 // of a sliding_window_counter: whole, as it was when the key had expired, while its window lasts
}

// follow notes what a decision has done to a key.
func (c *contender) follow(client string, now int64, told *core.Decision, charged bool) {
	k, p := c.trails[client], c.period()
	if k == nil {
		if !charged {
			return
		}
		k = &trail{at: now, looked: now}
		c.trails[client] = k
	}
	if !charged {
		if k.looked-now > p {
			k.looked = now
			k.emptied = true
		} else {
			k.looked = max(k.looked, now)
		}
		return
	}
	if k.at < now || k.at-now > p {
		k.at = now
	}
	k.looked = k.at
	k.emptied = false
	if k.gone && c.variant == slidingCount {
		// Under the count of this window the memory still has that of the one before: it makes no difference, unless the
		// clock is set back.
		k.floor = k.whole
	}
	if now-now%p > k.floor {
		k.floor = 0
	}
	k.whole = after(now, told.ResetAfter)
	k.expires = expiry(now, told.ResetAfter)
	k.gone = false
}

// expiry returns the millisecond in which a key expires that is whole again so many microseconds from now: the next but one
// at the latest.
func expiry(now, reset int64) int64 {
	return now/1000 + (reset+999)/1000 + 1
}

// after returns the time that is told as so many microseconds from now, or one that never comes for a hundred years, which
// stand for anything longer.
func after(now, micros int64) int64 {
	if micros >= century {
		return math.MaxInt64
	}
	return now + micros
}

// agree reports whether the stores must agree on a key when the clock is set to that time.
func (c *contender) agree(k *trail, to int64) bool {
	if to < k.whole && (k.gone || to/1000 > k.expires) || to < k.floor {
		return false
	}
	p := c.period()
	if c.variant.algorithm == core.SlidingWindowLog {
		startsOver := to < k.at-p
		if k.emptied {
			return (to >= k.whole || startsOver) && (to >= k.looked || to < k.looked-p)
		}
		return k.looked == k.at || to >= k.looked || startsOver
	}
	return true
}

// move sets the clock to a time at which the stores must agree, if it finds one.
func (d *duel) move() {
	now := d.clock.Now()
	for range 10 {
		c := d.rules[d.r.IntN(len(d.rules))]
		to := d.step(c, now)
		if to < d.low || to >= d.high || d.forward && to < now {
			continue
		}
		agree := true
		for _, c := range d.rules {
			for _, k := range c.trails {
				agree = agree && c.agree(k, to)
			}
		}
		if !agree {
			continue
		}
		if to < now {
			d.back++
		}
		if now-to > c.period() {
			d.farBack++
		}
		d.clock.Set(to)
		for _, c := range d.rules {
			for _, k := range c.trails {
				k.gone = k.gone || to/1000 > k.expires
			}
		}
		return
	}
}

// step picks a time: mostly later by about what a request takes to be refilled, at times by nothing, by a microsecond, by
// years, to an instant at which something begins or ends, or earlier.
func (d *duel) step(c *contender, now int64) int64 {
	p, each := c.period(), c.period()/c.config.Requests+1
	switch k := d.r.IntN(100); {
	case k < 25:
		return now + d.r.Int64N(3*each+1)
	case k < 30:
		return now
	case k < 38:
		return now + d.r.Int64N(4)
	case k < 50:
		return now + d.r.Int64N(p)
	case k < 56:
		return now + []int64{p, p - 1, p + 1, p / 2, 2 * p}[d.r.IntN(5)]
	case k < 66: // when what was rejected would be admitted, and just before and after
		return d.until - 1 + d.r.Int64N(3)
	case k < 69: // the millisecond in which a key expires
		return d.until - d.until%1000 + 1000*d.r.Int64N(3) + d.r.Int64N(2)
	case k < 72:
		return now + d.r.Int64N(3*p)
	case k < 77:
		if windows := c.rule.Limit.Windows(now); windows != nil {
			return windows[1+d.r.IntN(3)] - 1 + d.r.Int64N(3)
		}
		return now + p - now%p - d.r.Int64N(2)
	case k < 85:
		return now - d.r.Int64N(p)
	case k < 90:
		return now - []int64{p, p + 1, p - 1, 2 * p, now % p}[d.r.IntN(5)]
	case k < 94:
		return now - p - d.r.Int64N(3*p)
	case k < 95:
		return now - d.r.Int64N(20*365*24*time.Hour.Microseconds())
	case k < 97:
		return now + d.r.Int64N(20*365*24*time.Hour.Microseconds())
	}
	return now + d.r.Int64N(200*p+1)
}

// cost picks what a request costs: mostly 1, at times all that the limit can hold, or more.
func (d *duel) cost(c *contender) int64 {
	most := c.rule.Limit.Capacity()
	switch k := d.r.IntN(100); {
	case k < 50:
		return 1
	case k < 65:
		return 1 + d.r.Int64N(5)
	case k < 75:
		return 1 + d.r.Int64N(most)
	case k < 88:
		return 1 + d.r.Int64N(most/3+1)
	case k < 97:
		return max(1, most-2+d.r.Int64N(5))
	}
	return []int64{core.MaxRequests, core.Unaffordable, most + 1 + d.r.Int64N(most)}[d.r.IntN(3)]
}

// randomLimit returns a limit that is accepted: small ones, ordinary ones, and the extremes.
func (d *duel) randomLimit(v variant) core.LimitConfig {
	for {
		c := core.LimitConfig{Algorithm: v.algorithm, Interval: v.interval}
		if v.calendar {
			c.Calendar = core.Day + core.Calendar(d.r.IntN(3))
			location, err := time.LoadLocation(calendarZones[d.r.IntN(len(calendarZones))])
			if err != nil {
				panic(err) // time/tzdata has them
			}
			c.Location = location
		} else {
			c.Period = d.randomPeriod()
		}
		d.randomNumbers(&c)
		if _, err := core.NewLimit(c); err == nil {
			return c
		}
	}
}

func (d *duel) randomPeriod() time.Duration {
	switch d.r.IntN(10) {
	case 0:
		return core.MinPeriod
	case 1:
		return core.MaxPeriod
	case 2, 3:
		// Around 2³¹ microseconds a log's times begin to be kept in more than one.
		return []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, (1<<31 - 1) * time.Microsecond,
			1 << 31 * time.Microsecond, (1<<32 - 1) * time.Microsecond, core.MaxPeriod - time.Microsecond}[d.r.IntN(8)]
	}
	return time.Duration(d.spread(core.MinPeriod.Microseconds(), core.MaxPeriod.Microseconds())) * time.Microsecond
}

// randomNumbers is what a reload may change of a limit.
func (d *duel) randomNumbers(c *core.LimitConfig) {
	most := int64(core.MaxRequests)
	if c.Algorithm == core.SlidingWindowLog {
		most = core.MaxLogRequests
		if d.r.IntN(2) == 0 {
			most = 2000 // around where a log is not read whole any more
		}
	}
	if d.r.IntN(2) == 0 {
		most = 20
	}
	c.Requests = d.spread(1, most)
	if d.r.IntN(20) == 0 {
		c.Requests = most
	}
	if c.Algorithm == core.TokenBucket || c.Algorithm == core.LeakyBucket {
		switch d.r.IntN(5) {
		case 0:
			c.Burst = 0
		case 1:
			c.Burst = most
		case 2: // as many as drain in ten years
			years := float64(core.MaxDrain) / float64(c.Period) * float64(c.Requests)
			c.Burst = max(1, int64(min(core.MaxRequests, years)))
		default:
			c.Burst = d.spread(1, most)
		}
	}
	if c.Algorithm == core.LeakyBucket {
		c.MaxDelay = time.Duration(d.spread(1, time.Hour.Microseconds())) * time.Microsecond
	}
}

// spread picks a number whose magnitude is evenly spread.
func (d *duel) spread(low, high int64) int64 {
	x := math.Exp(math.Log(float64(low)) + d.r.Float64()*(math.Log(float64(high))-math.Log(float64(low))))
	return min(high, max(low, int64(math.Round(x))))
}

func (d *duel) note(format string, args ...any) {
	d.trace = append(d.trace, fmt.Sprintf(format, args...))
}

// failed returns an error with the end of the history before it.
func (d *duel) failed(format string, args ...any) error {
	last := d.trace[max(0, len(d.trace)-40):]
	return fmt.Errorf("step %d\n%s\n%w", len(d.trace), strings.Join(last, "\n"), fmt.Errorf(format, args...))
}

// between is a client, and its connection, that lets something else happen before charges are given back. It says of itself
// that each of its keys has a slot of its own.
type between struct {
	conn   *redistest.Conn
	server *redis.Server
	refund func() // called before the first
}

func (b *between) Server(string) (*redis.Server, error) { return b.server, nil }

func (b *between) Cluster() bool { return true }

func (b *between) Servers() []*redis.Server { return []*redis.Server{b.server} }

func (b *between) Name() string { return "between" }

func (b *between) Timeout() time.Duration { return patience }

func (b *between) Close() error { return nil }

// Run implements redis.Conn.
func (b *between) Run(c *redis.Call) error {
	if f := b.refund; f != nil && len(c.Args) == 2 && c.Args[1] != "t" {
		b.refund = nil
		f()
	}
	args := append([]string{"EVAL", c.Script.Source, strconv.Itoa(len(c.Keys))}, c.Keys...)
	reply, err := b.conn.Do(append(args, c.Args...)...)
	c.Reply = c.Reply[:0]
	for _, n := range reply.List {
		c.Reply = append(c.Reply, n.Int)
	}
	return err
}

// TestOthersChargesAreNotGivenBack: between a charge and its refund another node takes eight units of the same key. What is
// left then is as if only that had come, or less.
func TestOthersChargesAreNotGivenBack(t *testing.T) {
	server := redistest.Start(t, redistest.WithClock())
	for _, c := range []struct {
		name    string
		variant variant
		later   time.Duration // when the last of them are taken; the first were at half of that
	}{
		{"token_bucket", tokenBucket, 0},
		{"token_bucket interval", intervals, time.Second},
		{"token_bucket that drains", tokenBucket, 4 * time.Second},
		{"token_bucket that has drained", tokenBucket, 30 * time.Second},
		{"leaky_bucket", leakyBucket, 0},
		{"leaky_bucket that drains", leakyBucket, 4 * time.Second},
		{"leaky_bucket that has drained", leakyBucket, 30 * time.Second},
		{"fixed_window", fixedWindow, time.Second},
		{"fixed_window, the next", fixedWindow, time.Minute},
		{"sliding_window_log", slidingLog, time.Second},
		{"sliding_window_log at once", slidingLog, 0},
		{"sliding_window_counter", slidingCount, time.Second},
		{"sliding_window_counter, the next", slidingCount, time.Minute},
		{"sliding_window_counter, the next but one", slidingCount, 2 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := server.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			clock := &storetest.Clock{}
			clock.Set(time.Date(2026, 3, 2, 12, 0, 20, 0, time.UTC).UnixMicro())
			clock.Follow(server.SetTime)
			prefix := "between" + strconv.FormatInt(stores.Add(1), 10) + ":"
			b := &between{conn: conn}
			b.server = redis.NewServer("between", b)
			denied, err := redis.NewStore(redis.Config{Client: b, Prefix: prefix, WallClock: clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			other := newStore(t, redis.Config{Prefix: prefix, WallClock: clock.Now}, goredis.Config{Addresses: []string{server.Addr()}})
			memory := core.NewMemory(core.MemoryConfig{Clock: clock.Now})
			open := func(s core.Store, name string, requests int64) *core.Rule {
				l := core.LimitConfig{Algorithm: c.variant.algorithm, Interval: c.variant.interval, Requests: requests, Period: time.Minute}
				if c.variant.algorithm == core.LeakyBucket {
					l.MaxDelay = time.Hour
				}
				limit, err := core.NewLimit(l)
				if err != nil {
					t.Fatal(err)
				}
				r, err := core.NewRule(core.RuleConfig{Name: name, Limit: limit})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Open(r); err != nil {
					t.Fatal(err)
				}
				return r
			}
			take := func(s core.Store, r *core.Rule, cost int64, peek bool) core.Decision {
				t.Helper()
				checks := []core.Check{{Rule: r, Key: "k", Cost: cost}}
				if err := s.Decide(checks, peek); err != nil {
					t.Fatal(err)
				}
				return checks[0].Decision
			}
			ofDenied, ofOther, ofMemory := open(denied, "wide", 20), open(other, "wide", 20), open(memory, "wide", 20)
			tight := open(denied, "tight", 1)
			take(other, ofOther, 1, false)
			take(memory, ofMemory, 1, false)
			b.refund = func() {
				for range 2 {
					clock.Add(c.later.Microseconds() / 2)
					take(other, ofOther, 4, false)
					take(memory, ofMemory, 4, false)
				}
			}
			checks := []core.Check{{Rule: ofDenied, Key: "k", Cost: 3}, {Rule: tight, Key: "another", Cost: 5}}
			if err := denied.Decide(checks, false); err != nil || checks[1].Decision.Allowed || b.refund != nil {
				t.Fatalf("%v, %+v; want it to be denied, and a charge given back", err, checks[1].Decision)
			}
			got, want := take(other, ofOther, 1, true), take(memory, ofMemory, 1, true)
			if c.later > 0 && strings.Contains(c.name, "bucket that") {
				// What a bucket has drained since the charge may have been the charge: it is not given back.
				if got.Remaining > want.Remaining || got.Remaining < want.Remaining-3 {
					t.Errorf("%+v; want at most what is left without the charge, %+v, and at least that without its 3", got, want)
				}
				return
			}
			if got != want {
				t.Errorf("%+v, and as if nothing had been denied %+v", got, want)
			}
		})
	}
}
