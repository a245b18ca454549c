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
	_ "time/tzdata" // makes the calendar's tests independent of the machine

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// differentialDecisions is how many decisions of Redis are compared with the memory's. WEIR_DIFFERENTIAL sets another number (such as 1e6),
// and WEIR_DIFFERENTIAL_SEED another seed.
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
// decision: Go's and Lua's arithmetic agree to the microsecond.
func TestScriptsDecideAsMemoryDoes(t *testing.T) {
	underrace.OneGoroutine(t)
	playAll(t, duel{}, everyKind)
}

// TestARememberedRejectionIsOneThatRedisWouldMake plays them with the rejections that the store has cached: it answers what Redis would have
// answered.
func TestARememberedRejectionIsOneThatRedisWouldMake(t *testing.T) {
	underrace.OneGoroutine(t)
	playAll(t, duel{remembers: true}, everyKind)
}

// TestADenialByOneSlotIsGivenBackByOthers plays them as in a Cluster in which every client has a slot of its own: after a denial the state is as
// if nothing had been charged. The clock never steps back, since after that a charge restarts a key, and a refund does not undo that.
func TestADenialByOneSlotIsGivenBackByOthers(t *testing.T) {
	underrace.OneGoroutine(t)
	playAll(t, duel{slots: true, forward: true}, everyKind[len(everyKind)-1:])
}

// TestScriptsAgreeOnBlocksByHand plays them with keys that are blocked, unblocked, reset and given units back. The clock never steps back: the stores would
// disagree on a key that the memory has looked at, and Redis has let expire.
func TestScriptsAgreeOnBlocksByHand(t *testing.T) {
	underrace.OneGoroutine(t)
	playAll(t, duel{byHand: true, forward: true}, everyKind)
}

// TestScriptsAgreeOnAKeyWithSeveralLimits plays them with limits of one identity that are open at the same time. Tiers are such limits, and
// so are those of a fleet while its configuration changes.
func TestScriptsAgreeOnAKeyWithSeveralLimits(t *testing.T) {
	underrace.OneGoroutine(t)
	playAll(t, duel{viewers: true}, everyKind)
}

// kind describes the histories of one subtest.
type kind struct {
	name     string
	variants []variant
	rules    int // at most
	share    int // of all decisions, relative to the other kinds
}

// variant is an algorithm, or one of its modes.
type variant struct {
	algorithm rate.Algorithm
	interval  bool
	calendar  bool
	segments  int64
	start     rate.WindowStart
}

var (
	tokenBucket   = variant{algorithm: rate.TokenBucket}
	intervals     = variant{algorithm: rate.TokenBucket, interval: true}
	leakyBucket   = variant{algorithm: rate.LeakyBucket}
	fixedWindow   = variant{algorithm: rate.FixedWindow}
	calendar      = variant{algorithm: rate.FixedWindow, calendar: true}
	slidingLog    = variant{algorithm: rate.SlidingWindowLog}
	slidingCount  = variant{algorithm: rate.SlidingWindowCounter}
	segments      = variant{algorithm: rate.SlidingWindowCounter, segments: 5}
	firstRequest  = variant{algorithm: rate.FixedWindow, start: rate.FirstRequest}
	spreadWindow  = variant{algorithm: rate.FixedWindow, start: rate.Spread}
	spreadCount   = variant{algorithm: rate.SlidingWindowCounter, start: rate.Spread}
	spreadParts   = variant{algorithm: rate.SlidingWindowCounter, segments: 5, start: rate.Spread}
	everyVariant  = []variant{tokenBucket, intervals, leakyBucket, fixedWindow, calendar, slidingLog, slidingCount, segments, firstRequest, spreadWindow, spreadCount, spreadParts}
	everyKind     = append(kindsOfOne(), kind{"several rules", everyVariant, 5, 3})
	calendarZones = []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu", "Antarctica/Troll"}
)

func kindsOfOne() []kind {
	names := []string{"token_bucket", "token_bucket interval", "leaky_bucket", "fixed_window", "calendar", "sliding_window_log", "sliding_window_counter", "segments", "first_request", "spread fixed_window", "spread sliding_window_counter", "spread segments"}
	var kinds []kind
	for i, v := range everyVariant {
		kinds = append(kinds, kind{names[i], []variant{v}, 1, 1})
	}
	return kinds
}

// playAll plays histories of those kinds, each kind with a server of its own.
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
				t.Error("the histories do not show what they should")
			}
			if d.byHand && d.handled < d.histories {
				t.Errorf("in %d histories %d keys were blocked or unblocked", d.histories, d.handled)
			}
			if d.remembers && d.calls() >= d.decisions {
				t.Errorf("%d calls for %d decisions: nothing was remembered", d.calls(), d.decisions)
			}
		})
	}
}

// duel plays random histories on Redis and on a memory, and compares them.
type duel struct {
	remembers bool // Redis's store answers from its cache: for rejections, only the outcome and the times are compared
	slots     bool // each client's keys are in a slot of their own
	forward   bool // the clock never steps back
	byHand    bool // keys are blocked, unblocked, reset and given units back
	viewers   bool // a changed limit does not replace the earlier ones, and each request comes under one of them

	kind   kind
	r      *rand.Rand
	server *redistest.Server
	conn   *redistest.Conn
	clock  *storetest.Clock // of both
	redis  *redis.Store
	memory *memory.Store // a new one for each history

	rules     []*contender
	clients   []string
	low, high int64            // the bounds of the clock
	until     int64            // when the last rejected request would be admitted, or its quota be whole
	expiries  map[string]int64 // by rule and client: the latest expiry according to the replies
	trace     []string

	histories, decisions, allowed, several, back, farBack, changes, handled int
}

// contender is a rule in both stores.
type contender struct {
	variant  variant
	config   rate.LimitConfig
	rule     core.RuleConfig
	ofRedis  *core.Rule
	ofMemory *core.Rule
	trails   map[string]*trail // by client
	others   []contender       // with viewers: the other limits that are open
}

// view chooses one of the limits that are open for the next request.
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
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	d.conn = conn
	d.clock = &storetest.Clock{}
	d.clock.Follow(d.server.SetTime)
	c := redis.Config{WallClock: d.clock.Now, PlainKeys: true, Clock: d.clock.Now}
	if !d.remembers {
		day := int64(0)
		c.Clock = func() int64 { // no remembered rejection is still valid
			day += 24 * time.Hour.Microseconds()
			return day
		}
	}
	d.redis = newStoreOver(t, c, goredis.Config{Addresses: []string{d.server.Addr()}}, d.slots)
}

// newStoreOver is newStore with a client that claims to be a Cluster's if slots is true. One server with all slots is like a Cluster, except
// for the errors.
func newStoreOver(t testing.TB, c redis.Config, g goredis.Config, slots bool) *redis.Store {
	t.Helper()
	if !slots {
		return newStore(t, c, g)
	}
	g.Timeout = patience
	client, err := goredis.New(g)
	must.Succeed(t, err)
	c.Client = slotted{client}
	s, err := redis.NewStore(c)
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := s.CloseNow(); err != nil { // at once, even if the test has left requests under way
			t.Error(err)
		}
	})
	return s
}

type slotted struct{ redis.Client }

func (slotted) Cluster() bool { return true }

// calls returns how many scripts the server has run by EVALSHA.
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

// play plays one history of about sixty decisions.
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
		for d.r.IntN(4) == 0 { // the same client again, at once
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
	d.expiries = make(map[string]int64)
	d.memory = memory.New(memory.Config{MaxKeys: 100, Clock: d.clock.Now})
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
		// The memory forgets keys only when new ones come. Here all keys come now, so it forgets none.
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

// open opens the limit of c.config in both stores.
func (d *duel) open(c *contender) error {
	limit, err := rate.NewLimit(c.config)
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

// change is a reload that changes a limit's numbers. Counters survive it.
func (d *duel) change(c *contender) error {
	if d.slots && c.isBucket() {
		// A charge that was given back has drained the bucket until its time at the former rate. In the other store, which was not charged,
		// the bucket drains at the new rate since the charge before.
		return nil
	}
	if d.byHand && c.isBucket() {
		// A key that is used again after a reset makes the memory forget others. By the new limit these may not be whole any more.
		return nil
	}
	before := *c
	d.randomNumbers(&c.config)
	if _, err := rate.NewLimit(c.config); err != nil {
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

// applies notes when the levels of a bucket are whole by its changed limit, which may drain more slowly. It returns false if the stores
// disagree at once, since Redis has let a key expire when the former limit was whole. It also returns false if the clock was set back to more
// than a period before a key's time: then nobody can find out the key's level.
func (d *duel) applies(c *contender) bool {
	now := d.clock.Now()
	var wholes []int64
	for client, k := range c.trails {
		if now < k.at-c.period() {
			return false
		}
		check := []core.Check{{Rule: c.ofMemory, Key: client}} // a cost of 0 only asks for the state
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
	return c.variant.algorithm == rate.TokenBucket || c.variant.algorithm == rate.LeakyBucket
}

func (c *contender) period() int64 { return c.rule.Limit.Period }

// seeTo blocks, unblocks or resets a client.
func (d *duel) seeTo(c *contender, client string) error {
	now := d.clock.Now()
	span := int64(0)
	switch d.r.IntN(6) {
	case 4, 5:
		units := 1 + d.r.Int64N(c.config.Requests)
		d.note("at %d %s %s is credited %d", now, c.rule.Name, client, units)
		if err := d.redis.Credit(c.ofRedis, client, units); err != nil {
			return err
		}
		return d.memory.Credit(c.ofMemory, client, units)
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
	d.note("at %d %s %s is blocked for %d", now, c.rule.Name, client, span)
	name := c.rule.Name + " " + client
	d.expiries[name] = max(d.expiries[name], expiry(now, span))
	d.handled++
	if err := d.redis.Block(c.ofRedis, client, span); err != nil {
		return err
	}
	return d.memory.Block(c.ofMemory, client, span)
}

// request makes a request under some of the rules.
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

// decide lets both stores decide, and compares.
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
			// The reset is that with the charge that was given back.
			got.ResetAfter = want.ResetAfter
		}
		if d.remembers && !admitted {
			// The cache has the state at its decision, and does not know what a rule has admitted since.
			if got.Allowed {
				got = want
			}
			got.Remaining = want.Remaining
			got.Limit = want.Limit
			// A request that costs more than the limit is also rejected when a clock that was set back makes the key start afresh. The memo
			// remembers that reset, although the key continues when the clock is right again.
			if want.RetryAfter == rate.Never {
				got.ResetAfter = want.ResetAfter
			}
			// A hundred years stand for any longer time. The cache counts them down.
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
		decision := ofRedis[i].Decision
		name := c.rule.Name + " " + clients[i]
		d.expiries[name] = max(d.expiries[name], expiry(now, decision.ResetAfter))
		c.follow(clients[i], now, &decision, !peek && (decision.Allowed && admitted || !decision.Allowed && c.rule.CountRejected))
		if k := c.trails[clients[i]]; k != nil && c.isBucket() && !decision.Allowed && !peek && !k.gone && !d.remembers {
			k.expires = max(k.expires, expiry(now, decision.ResetAfter)) // a rejection makes the key last until the reset in its reply
		}
		for _, other := range c.others { // a slower limit is whole later
			check := []core.Check{{Rule: other.ofMemory, Key: clients[i]}}
			if err := d.memory.Decide(check, true); err != nil {
				return err
			}
			if k := c.trails[clients[i]]; k != nil && c.isBucket() {
				k.whole = max(k.whole, after(now, check[0].Decision.ResetAfter))
			}
		}
		if !decision.Allowed && decision.RetryAfter != rate.Never {
			d.until = now + decision.RetryAfter
		} else if d.r.IntN(4) == 0 {
			d.until = now + decision.ResetAfter
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

// In microseconds: the longest time that a rejection is remembered, and the longest time in a decision.
const (
	remembered = int64(10_000_000)
	century    = int64(100 * 365 * 24 * time.Hour / time.Microsecond)
)

// trail is the history of a key by which a duel knows whether the stores must agree on the key when the clock is set. They need not agree if
//
//   - Redis has let the key expire, and the clock is set back to before that. (The memory forgets nothing: see begin.)
//   - The limit was lowered after a bucket was charged: Redis lets its key expire when the former limit would have been
//     whole, unless the lower one has rejected a request since.
//   - A log, or a key with segments, was looked at and not charged. The memory keeps the time of the look, and the key's time does not go back before it. A look at a
//     time so early that the log starts afresh empties the log. Redis writes only when it charges.
type trail struct {
	at      int64 // the time of the key's state, for buckets and logs: that of the last charge, or of the one before if the clock had stepped back
	looked  int64 // when the memory last looked at a log
	emptied bool  // the memory has emptied the log, and Redis has not
	expires int64 // when the key expires in Redis, in milliseconds
	whole   int64 // when its state begins to make no difference
	gone    bool  // it has expired
	floor   int64 // for sliding_window_counter, also with segments: the value of whole when the key had expired, while its window lasts
}

// follow notes the effect of a decision on a key.
func (c *contender) follow(client string, now int64, decision *rate.Decision, charged bool) {
	k, p, at := c.trails[client], c.period(), now
	begun := now - now%p // when the present window began, or the present segment
	if n := c.variant.segments; n > 0 {
		begun = now - now%((p+n-1)/n)
	}
	if c.variant.start == rate.Spread {
		begun = rate.Begun(c.ofMemory.Limit, client, now)
	}
	if c.variant.segments > 0 {
		at = begun // the time of the state
	}
	if k == nil {
		if !charged {
			return
		}
		k = &trail{at: at, looked: at}
		c.trails[client] = k
	}
	if !charged {
		if k.looked-now > p {
			k.looked = at
			k.emptied = true
		} else {
			k.looked = max(k.looked, at)
		}
		return
	}
	if k.at < now || k.at-now > p {
		k.at = at
	}
	if c.variant.algorithm == rate.SlidingWindowCounter && (k.gone || k.emptied && c.variant.segments > 0) {
		// Besides the count of this window one of the stores still has that of the one before. It makes no difference, unless the clock is set
		// back.
		k.floor = k.whole
	}
	k.looked = k.at
	k.emptied = false
	if begun > k.floor {
		k.floor = 0
	}
	k.whole = after(now, decision.ResetAfter)
	k.expires = expiry(now, decision.ResetAfter)
	k.gone = false
}

// expiry returns the millisecond in which a key expires that is whole again so many microseconds from now: at the latest the second
// millisecond after that.
func expiry(now, reset int64) int64 {
	return now/1000 + (reset+999)/1000 + 1
}

// after returns the time that is so many microseconds from now. For a hundred years, which stand for any longer time, it returns a time that
// never comes.
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
	if c.variant.algorithm == rate.SlidingWindowLog || c.variant.segments > 0 {
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

// step picks a time. Mostly that is later, by about the time in which a request's units are refilled. Sometimes it is the same time, a
// microsecond or years later, a time at which something begins or ends, or earlier.
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
	case k < 66: // when a rejected request would be admitted, and just before and after
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

// cost picks the cost of a request: mostly 1, sometimes the whole limit, or more.
func (d *duel) cost(c *contender) int64 {
	most := c.rule.Limit.Capacity
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
	return []int64{rate.MaxRequests, rate.Unaffordable, most + 1 + d.r.Int64N(most)}[d.r.IntN(3)]
}

// randomLimit returns a valid limit: a small one, an ordinary one, or an extreme one.
func (d *duel) randomLimit(v variant) rate.LimitConfig {
	for {
		c := rate.LimitConfig{Algorithm: v.algorithm, Interval: v.interval, Segments: v.segments, Start: v.start}
		if v.calendar {
			c.Calendar = rate.Day + rate.Calendar(d.r.IntN(3))
			location, err := time.LoadLocation(calendarZones[d.r.IntN(len(calendarZones))])
			if err != nil {
				panic(err) // time/tzdata has them
			}
			c.Location = location
		} else {
			c.Period = d.randomPeriod()
		}
		d.randomNumbers(&c)
		if _, err := rate.NewLimit(c); err == nil {
			return c
		}
	}
}

func (d *duel) randomPeriod() time.Duration {
	switch d.r.IntN(10) {
	case 0:
		return rate.MinPeriod
	case 1:
		return rate.MaxPeriod
	case 2, 3:
		// Around 2³¹ microseconds the quantum of a log's times begins to be more than one.
		return []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, (1<<31 - 1) * time.Microsecond,
			1 << 31 * time.Microsecond, (1<<32 - 1) * time.Microsecond, rate.MaxPeriod - time.Microsecond}[d.r.IntN(8)]
	}
	return time.Duration(d.spread(rate.MinPeriod.Microseconds(), rate.MaxPeriod.Microseconds())) * time.Microsecond
}

// randomNumbers changes numbers of a limit that a reload may change.
func (d *duel) randomNumbers(c *rate.LimitConfig) {
	most := int64(rate.MaxRequests)
	if c.Algorithm == rate.SlidingWindowLog {
		most = rate.MaxLogRequests
		if d.r.IntN(2) == 0 {
			most = 2000 // more than a log that is read whole
		}
	}
	if d.r.IntN(2) == 0 {
		most = 20
	}
	c.Requests = d.spread(1, most)
	if d.r.IntN(20) == 0 {
		c.Requests = most
	}
	if c.Algorithm == rate.TokenBucket || c.Algorithm == rate.LeakyBucket {
		switch d.r.IntN(5) {
		case 0:
			c.Burst = 0
		case 1:
			c.Burst = most
		case 2: // as many as drain in ten years
			years := float64(rate.MaxDrain) / float64(c.Period) * float64(c.Requests)
			c.Burst = max(1, int64(min(rate.MaxRequests, years)))
		default:
			c.Burst = d.spread(1, most)
		}
	}
	if c.Algorithm == rate.LeakyBucket {
		c.MaxDelay = time.Duration(d.spread(1, time.Hour.Microseconds())) * time.Microsecond
	}
}

// spread picks a number whose magnitude is uniformly distributed.
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

// between is a client, and its Conn, that calls a function before charges are given back. It claims that each of its keys has a slot of its
// own.
type between struct {
	conn   *redistest.Conn
	server *redis.Server
	refund func() // called before the first refund
}

func (b *between) Server(string) (*redis.Server, error) { return b.server, nil }

func (b *between) Cluster() bool { return true }

func (b *between) Servers() []*redis.Server { return []*redis.Server{b.server} }

func (b *between) Name() string { return "between" }

func (b *between) Timeout() time.Duration    { return patience }
func (b *between) Background() time.Duration { return b.Timeout() }

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

// Between a charge and its refund another node takes eight units of the same key. As many units are left then as if only those had been
// taken, or fewer.
func TestOthersChargesAreNotGivenBack(t *testing.T) {
	server := redistest.Start(t, redistest.WithClock())
	for _, c := range []struct {
		name    string
		variant variant
		later   time.Duration // when the last of them are taken; the first are taken at half of it
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
		{"first_request", firstRequest, time.Second},
		{"first_request, the next", firstRequest, time.Minute},
		{"spread sliding_window_counter", spreadCount, time.Second},
		{"spread sliding_window_counter, the next", spreadCount, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := server.Dial()
			must.Succeed(t, err)
			defer conn.Close()
			clock := &storetest.Clock{}
			clock.Set(time.Date(2026, 3, 2, 12, 0, 20, 0, time.UTC).UnixMicro())
			clock.Follow(server.SetTime)
			prefix := "between" + strconv.FormatInt(stores.Add(1), 10) + ":"
			b := &between{conn: conn}
			b.server = redis.NewServer("between", b)
			denied, err := redis.NewStore(redis.Config{Client: b, Prefix: prefix, WallClock: clock.Now})
			must.Succeed(t, err)
			other := newStore(t, redis.Config{Prefix: prefix, WallClock: clock.Now}, goredis.Config{Addresses: []string{server.Addr()}})
			memory := memory.New(memory.Config{Clock: clock.Now})
			open := func(s core.Store, name string, requests int64) *core.Rule {
				l := rate.LimitConfig{Algorithm: c.variant.algorithm, Interval: c.variant.interval, Segments: c.variant.segments, Start: c.variant.start, Requests: requests, Period: time.Minute}
				if c.variant.algorithm == rate.LeakyBucket {
					l.MaxDelay = time.Hour
				}
				limit, err := rate.NewLimit(l)
				must.Succeed(t, err)
				r, err := core.NewRule(core.RuleConfig{Name: name, Limit: limit})
				must.Succeed(t, err)
				must.Succeed(t, s.Open(r))
				return r
			}
			take := func(s core.Store, r *core.Rule, cost int64, peek bool) rate.Decision {
				t.Helper()
				checks := []core.Check{{Rule: r, Key: "k", Cost: cost}}
				must.Succeed(t, s.Decide(checks, peek))
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
				// The units that a bucket has drained since may be those of the charge: they are not given back.
				if got.Remaining > want.Remaining || got.Remaining < want.Remaining-3 {
					t.Errorf("%+v; want at most the state without the charge, %+v, and at most 3 fewer units", got, want)
				}
				return
			}
			if got != want {
				t.Errorf("%+v; want %+v, as if nothing had been denied", got, want)
			}
		})
	}
}
