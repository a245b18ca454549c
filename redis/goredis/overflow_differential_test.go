package goredis_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

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

// TestScriptsBehaveAsMemoryDoes plays random histories of rules with an overflow policy on Redis and on the memory, and compares every
// decision. The histories have soft limits, requests that wait, reservations of requests under way, penalties, candidates, and rules
// without a policy.
func TestScriptsBehaveAsMemoryDoes(t *testing.T) {
	underrace.OneGoroutine(t)
	compareOverflows(t, false)
}

// TestScriptsBehaveAsMemoryDoesIfRulesShareAKey plays them with rules of one identity, whose limits and overflow policies differ.
func TestScriptsBehaveAsMemoryDoesIfRulesShareAKey(t *testing.T) {
	underrace.OneGoroutine(t)
	compareOverflows(t, true)
}

func compareOverflows(t *testing.T, twins bool) {
	t.Helper()
	decisions, seed := differentialDecisions(t)
	// As a user with just the permissions that docs/redis.md lists.
	server := redistest.Start(t, redistest.WithClock(), redistest.WithUser("weir", "secret", "~c:* "+acl+" "+aclOverflow))
	conn, err := server.Dial()
	must.Succeed(t, err)
	t.Cleanup(conn.Close)
	seen := make(map[string]int)
	histories := 0
	for seen["decisions"] < decisions {
		histories++
		if _, err := conn.Do("FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		h := &overflowHistory{t: t, r: rand.New(rand.NewPCG(seed, uint64(histories))), seen: seen, twins: twins}
		h.begin(server)
		if err := h.play(); err != nil {
			last := h.trace[max(0, len(h.trace)-90):]
			t.Fatalf("seed %d, history %d: %v\nrules and what came last:\n%s\n…\n%s", seed, histories, err, strings.Join(h.trace[:h.opened], "\n"), strings.Join(last, "\n"))
		}
	}
	t.Logf("seed %d: %d histories: %v", seed, histories, seen)
	for _, what := range []string{"rejected", "soft", "delayed", "reserved", "kept", "given back", "left", "blocked", "unblocked", "reset", "penalties", "back", "peeks", "candidate"} {
		if seen[what] < 10 {
			t.Errorf("%q occurred %d times; the histories do not show what they should", what, seen[what])
		}
	}
}

// overflowHistory is one history.
type overflowHistory struct {
	t      *testing.T
	r      *rand.Rand
	clock  *storetest.Clock
	redis  *redis.Store
	memory *memory.Store
	rules  []*policed
	twins  bool // some rules have a twin, with the same identity and count, but other numbers and another overflow policy
	under  []*underWay
	logs   bool // some limit is a log: the memory's log keeps when it was last looked at, Redis's when it was last written, and a step back of the clock counts from that
	seen   map[string]int
	trace  []string
	opened int // how many lines of trace describe the rules
}

// policed is a rule in both stores, with those that share its key.
type policed struct {
	name             string
	ofRedis, ofStore []*core.Rule
	limit            *rate.Limit
	delays           bool
	twin             *policed // nil: none
}

// all lists a rule and its twin.
func (c *policed) all() []*policed {
	if c.twin == nil {
		return []*policed{c}
	}
	return []*policed{c, c.twin}
}

// underWay is a request with reservations, in both stores.
type underWay struct {
	ofRedis, ofMemory []core.Reservation
}

func (h *overflowHistory) note(format string, args ...any) {
	h.trace = append(h.trace, fmt.Sprintf(format, args...))
}

func (h *overflowHistory) begin(server *redistest.Server) {
	h.clock = &storetest.Clock{}
	h.clock.Follow(server.SetTime)
	day := int64(0)
	forgets := func() int64 { // no remembered rejection is still valid
		day += 24 * time.Hour.Microseconds()
		return day
	}
	c := redis.Config{WallClock: h.clock.Now, Clock: forgets, PlainKeys: true, Prefix: "c:", Lease: 100 * 366 * 24 * time.Hour}
	h.redis = newStore(h.t, c, goredis.Config{Addresses: []string{server.Addr()}, Username: "weir", Password: "secret"})
	h.clock.Set(1_600_000_000_000_000 + h.r.Int64N(200_000_000_000_000))
	h.memory = memory.New(memory.Config{Clock: h.clock.Now})
	for i := range 1 + h.r.IntN(3) {
		h.open(i)
	}
	waits := false
	var rules []*policed
	for _, c := range h.rules {
		rules = append(rules, c.all()...)
	}
	for _, c := range rules {
		waits = waits || c.delays
	}
	for _, c := range rules {
		for i := range c.ofRedis {
			if waits {
				c.ofRedis[i].TrackReservations()
				c.ofStore[i].TrackReservations()
			}
			must.Succeed(h.t, h.redis.Open(c.ofRedis[i]))
			_ = h.memory.Open(c.ofStore[i])
		}
	}
	h.opened = len(h.trace)
}

// open makes a random rule, and perhaps its twin.
func (h *overflowHistory) open(number int) {
	c := h.make(fmt.Sprintf("r%d", number), nil)
	h.rules = append(h.rules, c)
	if h.twins && !c.limit.InFlight && h.r.IntN(3) > 0 {
		c.twin = h.make(c.name, c.limit)
	}
}

// make makes a random rule. If another limit is given, the rule's limit has the same identity.
func (h *overflowHistory) make(name string, beside *rate.Limit) *policed {
	for {
		config := h.randomRule(name)
		if beside != nil {
			config.Candidate = nil
			config.Limit = h.randomTwin(beside, config.Limit.Delays)
		}
		if config.Limit == nil {
			continue
		}
		a, err := core.NewRule(config)
		if err != nil {
			continue // some of its parts exclude each other
		}
		b, _ := core.NewRule(config)
		for _, r := range append([]*core.Rule{a}, a.Linked()...) {
			h.logs = h.logs || r.Limit.IsLog
		}
		c := &policed{
			name:    config.Name,
			ofRedis: append([]*core.Rule{a}, a.Linked()...),
			ofStore: append([]*core.Rule{b}, b.Linked()...),
			limit:   config.Limit,
			delays:  config.Limit.Delays,
		}
		h.note("%s: %s delays %v max %d shadow %v count_rejected %v %+v concurrency %d candidate %v", config.Name, config.Limit, config.Limit.Delays,
			config.Limit.MaxDelay, config.Shadow, config.CountRejected, config.OverflowPolicy, config.Concurrency, config.Candidate)
		return c
	}
}

// randomTwin returns a limit of the same identity. A bucket's has the same rate: with another rate it would expire at another time in Redis,
// while the memory would forget it when both are whole.
func (h *overflowHistory) randomTwin(of *rate.Limit, delays bool) *rate.Limit {
	for range 100 {
		c := rate.LimitConfig{
			Algorithm: of.Algorithm,
			Requests:  1 + h.r.Int64N(8),
			Period:    time.Duration(of.Period) * time.Microsecond,
			Delays:    delays,
			Interval:  of.Interval(),
			Segments:  of.Segments(),
			Start:     of.Start,
		}
		if of.Algorithm <= rate.LeakyBucket {
			c.Requests = of.Requests
			c.Burst = 1 + h.r.Int64N(10)
		}
		if delays {
			c.MaxDelay = time.Duration(of.MaxDelay) * time.Microsecond
		}
		if of.Windows(0) != nil {
			c.Calendar = rate.Day
			c.Period = 0
		}
		if l, err := rate.NewLimit(c); err == nil {
			return l
		}
	}
	return nil
}

func (h *overflowHistory) randomRule(name string) core.RuleConfig {
	c := core.RuleConfig{Name: name, KeySpec: "client_ip", Shadow: h.r.IntN(8) == 0, CountRejected: h.r.IntN(4) == 0}
	delays := h.r.IntN(3) == 0
	c.Limit = h.randomLimit(delays)
	if h.r.IntN(8) == 0 {
		c.Limit, _ = rate.NewConcurrency(1 + h.r.Int64N(4))
		return c
	}
	if h.r.IntN(3) == 0 {
		c.OverflowPolicy.SoftPercent = 1 + h.r.Int64N(200)
		c.OverflowPolicy.SoftFor = h.randomSpan()
		for h.r.IntN(4) > 0 && c.Limit.Algorithm != rate.TokenBucket { // it has the most special cases
			c.Limit = h.randomLimit(false)
		}
	}
	if h.r.IntN(3) == 0 {
		c.OverflowPolicy.Count, _ = core.ParseCounted([]string{"401"})
	}
	for range max(0, h.r.IntN(6)-2) {
		c.OverflowPolicy.Penalties = append(c.OverflowPolicy.Penalties, h.randomSpan())
	}
	if h.r.IntN(4) == 0 {
		c.Concurrency = 1 + h.r.Int64N(5)
	}
	if h.r.IntN(4) == 0 {
		c.Candidate = h.randomLimit(false)
	}
	return c
}

func (h *overflowHistory) randomSpan() time.Duration {
	return time.Duration(1+h.r.IntN(4000)) * []time.Duration{time.Millisecond, 10 * time.Millisecond, time.Second}[h.r.IntN(3)]
}

func (h *overflowHistory) randomLimit(delays bool) *rate.Limit {
	for {
		c := rate.LimitConfig{
			Algorithm: rate.Algorithm(1 + h.r.IntN(5)),
			Requests:  1 + h.r.Int64N(8),
			Period:    h.randomSpan(),
			Delays:    delays,
			Interval:  h.r.IntN(4) == 0,
		}
		if h.r.IntN(3) == 0 {
			c.Burst = 1 + h.r.Int64N(10)
		}
		if c.Algorithm == rate.SlidingWindowCounter && h.r.IntN(2) == 0 {
			c.Segments = 2 + h.r.Int64N(9)
		}
		if delays || h.r.IntN(3) == 0 {
			c.MaxDelay = h.randomSpan()
		}
		if h.r.IntN(8) == 0 {
			c.Calendar = rate.Day
			c.Period = 0
		} else if c.Algorithm == rate.FixedWindow || c.Algorithm == rate.SlidingWindowCounter {
			c.Start = rate.WindowStart(h.r.IntN(3))
		}
		if l, err := rate.NewLimit(c); err == nil {
			return l
		}
	}
}

// play plays some eighty steps.
func (h *overflowHistory) play() error {
	for range 80 {
		h.move()
		var err error
		switch n := h.r.IntN(12); {
		case n < 8:
			err = h.request()
		case n < 11:
			err = h.end()
		default:
			err = h.block()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// move moves the clock: mostly by a part of a period.
func (h *overflowHistory) move() {
	period := h.rules[h.r.IntN(len(h.rules))].limit.Period
	switch h.r.IntN(12) {
	case 0, 1, 2:
		return
	case 3:
		h.clock.Add(period * (1 + h.r.Int64N(3)))
	case 4:
		if h.logs || h.r.IntN(4) > 0 {
			return
		}
		h.seen["back"]++
		h.clock.Add(-h.r.Int64N(500)) // not to before the expiry of a key in Redis
		h.note("back")
	default:
		h.clock.Add(h.r.Int64N(period/4 + 2))
	}
}

// request makes a request under some of the rules.
func (h *overflowHistory) request() error {
	var ofRedis, ofMemory []core.Check
	for len(ofRedis) == 0 {
		for _, c := range h.rules {
			if h.r.IntN(3) == 0 {
				continue
			}
			c = c.all()[h.r.IntN(len(c.all()))]
			key := []string{"a", "b"}[h.r.IntN(2)]
			cost := int64(1)
			if h.r.IntN(4) == 0 {
				cost += h.r.Int64N(4)
			}
			for i := range c.ofRedis {
				ofRedis = append(ofRedis, core.Check{Rule: c.ofRedis[i], Key: key, Cost: cost})
				ofMemory = append(ofMemory, core.Check{Rule: c.ofStore[i], Key: key, Cost: cost})
			}
		}
	}
	peek := h.r.IntN(8) == 0
	if err := h.redis.Decide(ofRedis, peek); err != nil {
		return err
	}
	if err := h.memory.Decide(ofMemory, peek); err != nil {
		return err
	}
	h.seen["decisions"] += len(ofRedis)
	line := fmt.Sprintf("at %d, peek %v:", h.clock.Now(), peek)
	for i := range ofRedis {
		line += fmt.Sprintf(" %s %s cost %d %+v %v;", ofMemory[i].Rule.Identity, ofMemory[i].Key, ofMemory[i].Cost, ofMemory[i].Decision, ofMemory[i].Ticket != 0)
	}
	h.note("%s", line)
	for i := range ofRedis {
		a, b := &ofRedis[i], &ofMemory[i]
		if a.Decision != b.Decision || (a.Ticket != 0) != (b.Ticket != 0) {
			return fmt.Errorf("%s %s: Redis says %+v, ticket %v; the memory %+v, %v", a.Rule.Identity, a.Key, a.Decision, a.Ticket != 0, b.Decision, b.Ticket != 0)
		}
		h.count(b, peek)
	}
	if reservations := core.AppendReservations(nil, ofMemory); len(reservations) > 0 {
		h.under = append(h.under, &underWay{core.AppendReservations(nil, ofRedis), reservations})
	}
	return nil
}

func (h *overflowHistory) count(c *core.Check, peek bool) {
	d := &c.Decision
	for what, is := range map[string]bool{"rejected": !d.Allowed, "soft": d.Soft, "delayed": d.Delay > 0 && c.Ticket != 0, "reserved": c.Ticket != 0, "peeks": peek, "penalties": d.Penalty, "candidate": c.Rule.IsCandidate()} {
		if is {
			h.seen[what]++
		}
	}
}

// end ends a request under way: it was served, with a status that counts or another, or it leaves.
func (h *overflowHistory) end() error {
	if len(h.under) == 0 {
		return nil
	}
	which := h.r.IntN(len(h.under))
	u := h.under[which]
	h.under = append(h.under[:which], h.under[which+1:]...)
	keep := h.r.IntN(2) == 0
	h.note("at %d, the reservations of a request end, kept %v", h.clock.Now(), keep)
	for i := range u.ofRedis {
		r := u.ofRedis[i].Rule
		terms, _ := r.Terms()
		u.ofRedis[i].Keep(keep && terms.Counts)
		u.ofMemory[i].Keep(keep && terms.Counts)
		if u.ofRedis[i].Units > 0 {
			h.seen["kept"]++
		} else if terms.Counts {
			h.seen["given back"]++
		} else if !r.Limit.InFlight {
			h.seen["left"]++
		}
	}
	if err := h.redis.Settle(u.ofRedis); err != nil {
		return err
	}
	return h.memory.Settle(u.ofMemory)
}

// block blocks, unblocks or resets a key.
func (h *overflowHistory) block() error {
	c := h.rules[h.r.IntN(len(h.rules))]
	which := h.r.IntN(len(c.ofRedis)) // the rule, or one that shares its key
	key := []string{"a", "b"}[h.r.IntN(2)]
	if h.r.IntN(4) == 0 {
		h.seen["reset"]++
		h.note("at %d, %s is reset under %s", h.clock.Now(), key, c.ofStore[which].Identity)
		if err := h.redis.Reset(c.ofRedis[which], key); err != nil {
			return err
		}
		return h.memory.Reset(c.ofStore[which], key)
	}
	span := h.randomSpan().Microseconds()
	if h.r.IntN(2) == 0 {
		span = 0
		h.seen["unblocked"]++
	} else {
		h.seen["blocked"]++
	}
	h.note("at %d, %s is blocked under %s for %d", h.clock.Now(), key, c.ofStore[which].Identity, span)
	if err := h.redis.Block(c.ofRedis[which], key, span); err != nil {
		return err
	}
	return h.memory.Block(c.ofStore[which], key, span)
}
