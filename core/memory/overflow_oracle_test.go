package memory

import (
	"fmt"
	"math/big"
	"math/rand"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/underrace"
)

// The oracles of rules with an overflow policy keep lists of all charges, and count them each time. They share no code with the
// code under test.

// chargedUnits is a number of units that were charged at one time.
type chargedUnits struct{ at, cost int64 }

// policed is the configuration of a rule, with times in microseconds, and the state of its keys.
type policed struct {
	algorithm rate.Algorithm // FixedWindow, SlidingWindowLog, or inFlight
	requests  int64
	wide      int64 // requests during tolerance; 0: no tolerance
	period    int64
	softFor   int64
	counts    bool
	penalties []int64
	keys      map[string]*policedKey
}

type policedKey struct {
	charges                  []chargedUnits
	underWay                 int64
	softUntil, softAgain     int64
	blockedUntil, quietUntil int64
	offences                 int
	byHand                   int64 // the end of a block by hand
}

func (o *policed) key(name string) *policedKey {
	k := o.keys[name]
	if k == nil {
		k = &policedKey{}
		o.keys[name] = k
	}
	return k
}

// counted reports whether a charge at a time counts now.
func (o *policed) counted(at, now int64) bool {
	if o.algorithm == rate.FixedWindow {
		return at/o.period == now/o.period
	}
	return at > now-o.period
}

func (o *policed) used(k *policedKey, now int64) int64 {
	n := int64(0)
	for _, c := range k.charges {
		if o.counted(c.at, now) {
			n += c.cost
		}
	}
	return n
}

// room returns when that many units are available, without further requests.
func (o *policed) room(k *policedKey, now, units int64) int64 {
	if o.algorithm == rate.FixedWindow {
		return (now/o.period + 1) * o.period
	}
	free := o.requests - o.used(k, now)
	for _, c := range k.charges { // in the order of time
		if !o.counted(c.at, now) {
			continue
		}
		free += c.cost
		if free >= units {
			return c.at + o.period
		}
	}
	return now
}

// ruling is the decision of an oracle.
type ruling struct {
	allowed, soft     bool
	exceeds           bool // the request exceeds the limit
	begins            bool // tolerance begins with it
	blocked, reserved bool // why it is rejected, if not only by the limit
	byHand            bool // it is blocked by hand
	offends           bool
	remaining         int64 // if it is allowed
	retry             int64 // if it is rejected; 0: any positive one
}

func (o *policed) look(name string, now, cost int64) ruling {
	k := o.key(name)
	if now < k.byHand {
		return ruling{blocked: true, byHand: true, retry: k.byHand - now}
	}
	if o.algorithm == rate.InFlight {
		r := ruling{allowed: k.underWay < o.requests, remaining: o.requests - k.underWay - 1, retry: 1_000_000}
		r.reserved = true
		return r
	}
	used := o.used(k, now)
	r := ruling{remaining: o.requests - used - k.underWay - cost}
	r.allowed = r.remaining >= 0
	r.exceeds = !r.allowed
	begun := now < k.softUntil
	if r.exceeds && o.wide > 0 && (begun || now >= k.softAgain) && used+k.underWay+cost <= o.wide {
		r.allowed = true
		r.soft = true
		r.begins = !begun
		r.remaining = 0
	}
	if !r.allowed {
		if o.wide == 0 {
			r.retry = o.room(k, now, cost) - now
		}
		if used+cost <= o.requests {
			r.reserved = true
			r.retry = 1_000_000
		}
	}
	if now < k.blockedUntil {
		left := k.blockedUntil - now
		if r.allowed || r.retry > 0 && r.retry < left {
			r.retry = left
		}
		r.blocked = true
		r.allowed = false
		r.soft = false
		r.begins = false
	}
	return r
}

// conclude charges a request after a ruling. others says that another rule rejects it.
func (o *policed) conclude(name string, now, cost int64, r *ruling, others bool) {
	k := o.key(name)
	if r.allowed && others {
		r.soft = false
		return
	}
	if o.wide > 0 && r.exceeds && !r.blocked {
		if r.begins {
			k.softUntil = now + o.softFor
		}
		if now < k.softUntil || now < k.softAgain {
			k.softAgain = now + o.period
		}
	}
	if r.allowed {
		if o.algorithm == rate.InFlight {
			k.underWay++
		} else if o.counts {
			k.underWay += cost
		} else {
			k.charges = append(k.charges, chargedUnits{now, cost})
		}
		return
	}
	if len(o.penalties) > 0 && !r.blocked && !r.reserved {
		if now >= k.quietUntil {
			k.offences = 0
		}
		which := k.offences
		if which > len(o.penalties)-1 {
			which = len(o.penalties) - 1
		}
		k.offences++
		r.offends = true
		k.blockedUntil = now + o.penalties[which]
		k.quietUntil = k.blockedUntil + o.longest()
		if r.retry > 0 && r.retry < o.penalties[which] {
			r.retry = o.penalties[which]
		}
	}
}

func (o *policed) longest() int64 {
	n := int64(0)
	for _, p := range o.penalties {
		n = larger(n, p)
	}
	return n
}

func (o *policed) settle(name string, now, cost int64, keep bool) {
	k := o.key(name)
	if o.algorithm == rate.InFlight {
		k.underWay--
		return
	}
	k.underWay -= cost
	if keep && now >= k.byHand {
		k.charges = append(k.charges, chargedUnits{now, cost})
	}
}

func (o *policed) block(name string, now, span int64) {
	k := o.key(name)
	k.blockedUntil = 0
	if span == 0 {
		k.byHand = 0
		k.quietUntil = 0
		k.offences = 0
		return
	}
	k.byHand = now + span
	k.charges = nil
	if now < k.quietUntil {
		k.quietUntil = larger(k.quietUntil, k.byHand+o.longest())
	}
}

// reset keeps only requests under way.
func (o *policed) reset(name string) {
	o.keys[name] = &policedKey{underWay: o.key(name).underWay}
}

// instants returns the times at which something of a key ends.
func (o *policed) instants(name string) []int64 {
	k := o.key(name)
	list := []int64{k.softUntil, k.softAgain, k.blockedUntil, k.quietUntil, k.byHand}
	if n := len(k.charges); n > 0 && o.period > 0 {
		at := k.charges[n-1].at
		list = append(list, at+o.period, (at/o.period+1)*o.period)
	}
	return list
}

// overflowHistory is a random history of a rule with an overflow policy, and of a plain rule that some requests come under, too.
type overflowHistory struct {
	r           *rand.Rand
	now         int64
	store       *Store
	rule, other *core.Rule
	is, beside  *policed
	under       []unsettled
	seen        map[string]int
}

// unsettled is a request with reservations.
type unsettled struct {
	reservations []core.Reservation
	key          string
	cost         int64
}

// begin makes the rules and their oracles.
func (h *overflowHistory) begin(a rate.Algorithm) error {
	r := h.r
	index := Probing
	if r.Intn(2) == 0 {
		index = Mapped
	}
	h.store = New(Config{Index: index, Clock: func() int64 { return h.now }})
	h.is = &policed{algorithm: a, requests: 1 + r.Int63n(8), keys: make(map[string]*policedKey)}
	h.is.period = []int64{1000, 1_000_000, 7_000_001, 60_000_000}[r.Intn(4)]
	h.beside = &policed{algorithm: rate.FixedWindow, requests: 1 + r.Int63n(8), period: h.is.period * 2, keys: make(map[string]*policedKey)}
	h.now = 1_772_452_820_000_000 + r.Int63n(h.is.period)
	c := core.RuleConfig{Name: "policed"}
	var err error
	if a == rate.InFlight {
		c.Limit, err = rate.NewConcurrency(h.is.requests)
	} else {
		c.Limit, err = rate.NewLimit(rate.LimitConfig{Algorithm: a, Requests: h.is.requests, Period: time.Duration(h.is.period) * time.Microsecond})
		h.overflow(&c.OverflowPolicy)
	}
	if err != nil {
		return err
	}
	if h.rule, err = core.NewRule(c); err != nil {
		return err
	}
	limit, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: h.beside.requests, Period: 2 * time.Duration(h.is.period) * time.Microsecond})
	if err != nil {
		return err
	}
	if h.other, err = core.NewRule(core.RuleConfig{Name: "beside", Limit: limit}); err != nil {
		return err
	}
	_ = h.store.Open(h.rule) // never fails
	return h.store.Open(h.other)
}

// overflow chooses an overflow policy.
func (h *overflowHistory) overflow(c *core.OverflowPolicy) {
	r := h.r
	kind := r.Intn(5)
	if kind == 0 || kind == 3 { // soft, perhaps with penalties
		percent := 100 + r.Int63n(200)
		h.is.wide = h.is.requests + h.is.requests*percent/100
		h.is.softFor = larger(1000, h.is.period/4+r.Int63n(2*h.is.period))
		c.SoftPercent = percent
		c.SoftFor = time.Duration(h.is.softFor) * time.Microsecond
	}
	if kind == 2 || kind == 4 { // count, perhaps with penalties
		c.Count, _ = core.ParseCounted([]string{"4xx"})
		h.is.counts = true
	}
	if kind == 1 || kind > 2 {
		for n := 1 + r.Intn(3); n > 0; n-- {
			p := larger(1000, h.is.period/4+r.Int63n(3*h.is.period))
			h.is.penalties = append(h.is.penalties, p)
			c.Penalties = append(c.Penalties, time.Duration(p)*time.Microsecond)
		}
	}
}

// move lets time pass: a little, or until shortly before, at or after the end of something.
func (h *overflowHistory) move(key string) {
	if h.r.Intn(3) == 0 {
		list := h.is.instants(key)
		if at := list[h.r.Intn(len(list))] + h.r.Int63n(3) - 1; at > h.now {
			h.now = at
		}
		return
	}
	h.now += h.r.Int63n(h.is.period/h.is.requests/2 + 2)
}

// step asks once, or ends a request under way, and compares.
func (h *overflowHistory) step() error {
	key := string(rune('a' + h.r.Intn(3)))
	h.move(key)
	if len(h.under) > 0 && h.r.Intn(3) == 0 {
		i := h.r.Intn(len(h.under))
		u := h.under[i]
		h.under = append(h.under[:i], h.under[i+1:]...)
		keep := h.is.counts && h.r.Intn(2) == 0
		u.reservations[0].Keep(keep)
		h.is.settle(u.key, h.now, u.cost, keep)
		return h.store.Settle(u.reservations)
	}
	if h.r.Intn(20) == 0 {
		h.store.Sweep()
	}
	if h.r.Intn(25) == 0 {
		return h.byHand(key)
	}
	cost := 1 + h.r.Int63n(h.is.requests)
	if h.r.Intn(3) > 0 {
		cost = 1
	}
	checks := []core.Check{{Rule: h.rule, Key: key, Cost: cost}}
	mine := 0
	want := h.is.look(key, h.now, cost)
	var beside ruling
	both := cost <= h.beside.requests && h.r.Intn(3) == 0
	if both {
		beside = h.beside.look(key, h.now, cost)
		checks = append(checks, core.Check{Rule: h.other, Key: key, Cost: cost})
		if h.r.Intn(2) == 0 {
			checks[0].Rule = h.other
			checks[1].Rule = h.rule
			mine = 1
		}
	}
	peek := h.r.Intn(6) == 0
	if err := h.store.Decide(checks, peek); err != nil {
		return err
	}
	others := both && !beside.allowed
	if !peek {
		if both {
			h.beside.conclude(key, h.now, cost, &beside, !want.allowed)
		}
		h.is.conclude(key, h.now, cost, &want, others)
	}
	if others {
		want.soft = false
	}
	d := checks[mine].Decision
	remaining := d.Allowed && !others && d.Remaining != want.remaining
	retry := !d.Allowed && (d.RetryAfter <= 0 || want.retry > 0 && d.RetryAfter != want.retry)
	if want.offends != d.Penalty {
		return fmt.Errorf("at %d, %s, cost %d, peek %t: %+v; a penalty: want %t", h.now, key, cost, peek, d, want.offends)
	}
	if d.Allowed != want.allowed || d.Soft != want.soft || remaining || retry || d.Limit != h.is.requests {
		return fmt.Errorf("at %d, %s, cost %d, peek %t, with another %t: %+v, want %+v", h.now, key, cost, peek, both, d, want)
	}
	if both && checks[1-mine].Decision.Allowed != beside.allowed {
		return fmt.Errorf("at %d, %s, cost %d: the rule beside it says %+v, want %+v", h.now, key, cost, checks[1-mine].Decision, beside)
	}
	h.note(&want)
	reservations := core.AppendReservations(nil, checks)
	if len(reservations) > 0 != (!peek && want.allowed && !others && (h.is.counts || h.is.algorithm == rate.InFlight)) {
		return fmt.Errorf("at %d, %s, cost %d: it has the reservations %+v", h.now, key, cost, reservations)
	}
	if len(reservations) > 0 {
		h.under = append(h.under, unsettled{reservations, key, cost})
	}
	return nil
}

// byHand blocks, unblocks or resets a key.
func (h *overflowHistory) byHand(key string) error {
	if h.r.Intn(3) == 0 {
		h.seen["reset"]++
		h.is.reset(key)
		return h.store.Reset(h.rule, key)
	}
	span := h.r.Int63n(2) * h.r.Int63n(2*h.is.period)
	h.is.block(key, h.now, span)
	return h.store.Block(h.rule, key, span)
}

func (h *overflowHistory) note(want *ruling) {
	h.seen["decisions"]++
	if want.soft {
		h.seen["soft"]++
	}
	if want.begins {
		h.seen["begins"]++
	}
	if want.blocked {
		h.seen["blocked"]++
	}
	if want.byHand {
		h.seen["by hand"]++
	}
	if want.reserved && !want.allowed {
		h.seen["reserved"]++
	}
}

// end ends all requests under way: after a long silence the store has forgotten everything.
func (h *overflowHistory) end() error {
	for _, u := range h.under {
		if err := h.store.Settle(u.reservations); err != nil {
			return err
		}
	}
	h.now += 100 * h.is.period
	h.store.Sweep()
	return leak(h.store)
}

// leak returns an error if a store has not forgotten everything.
func leak(m *Store) error {
	for i := range m.shards {
		if n := len(m.shards[i].accounts); n > 0 {
			return fmt.Errorf("%d accounts are left in shard %d", n, i)
		}
	}
	if n := m.Stats().Keys; n > 0 {
		return fmt.Errorf("%d keys are left", n)
	}
	return nil
}

func TestOverflowPolicyAgreesWithItsOracle(t *testing.T) {
	underrace.OneGoroutine(t)
	decisions, seed := oracleDecisions(t)
	for _, a := range []rate.Algorithm{rate.FixedWindow, rate.SlidingWindowLog, rate.InFlight} {
		seen := make(map[string]int)
		r := rand.New(rand.NewSource(seed))
		for histories := 1; seen["decisions"] < decisions/3; histories++ {
			h := &overflowHistory{r: r, seen: seen}
			err := h.begin(a)
			for i := 0; i < 150 && err == nil; i++ {
				err = h.step()
			}
			if err == nil {
				err = h.end()
			}
			if err != nil {
				t.Fatalf("%s, seed %d, history %d: %+v: %v", a.String(), seed, histories, h.rule.Overflow, err)
			}
		}
		t.Logf("%s: %v", a.String(), seen)
		if interpreted { // a few histories show less
			continue
		}
		for _, what := range []string{"soft", "begins", "blocked", "reserved", "by hand", "reset"} {
			if (a != rate.InFlight || what == "by hand" || what == "reset") && seen[what] < decisions/1000 {
				t.Errorf("%s: %q was seen %d times", a.String(), what, seen[what])
			}
		}
	}
}

// queued is a rule that delays, and the departures of all requests that it allowed.
type queued struct {
	algorithm        rate.Algorithm
	requests, period int64
	longest          int64
	departures       []chargedUnits // in order
}

// departure returns the earliest time, from now on and not before the last departure, at which that many units are within the
// limit.
func (o *queued) departure(now, cost int64) int64 {
	n := len(o.departures)
	first := now
	if n > 0 {
		first = larger(first, o.departures[n-1].at)
	}
	switch o.algorithm {
	case rate.TokenBucket:
		level := new(big.Rat)
		at := int64(0)
		for _, d := range o.departures {
			level.Sub(level, product(d.at-at, o.requests, o.period))
			if level.Sign() < 0 {
				level.SetInt64(0)
			}
			level.Add(level, whole(d.cost))
			at = d.at
		}
		over := level.Add(level, whole(cost-o.requests)) // the level to drain
		if over.Sign() <= 0 {
			return first
		}
		return larger(first, at+ceilOf(over.Mul(over, product(o.period, 1, o.requests))))
	case rate.FixedWindow:
		for t := first; ; t = (t/o.period + 1) * o.period {
			if o.sum(t)+cost <= o.requests {
				return t
			}
		}
	}
	if o.sum(first)+cost <= o.requests {
		return first
	}
	for _, d := range o.departures {
		if t := d.at + o.period; t > first && o.sum(t)+cost <= o.requests {
			return t
		}
	}
	return first
}

// sum returns how many units count at a time that is not before any departure.
func (o *queued) sum(t int64) int64 {
	n := int64(0)
	for _, d := range o.departures {
		if o.algorithm == rate.FixedWindow && d.at/o.period == t/o.period || o.algorithm == rate.SlidingWindowLog && d.at > t-o.period {
			n += d.cost
		}
	}
	return n
}

// Each request departs at the first instant at which it may. The oracle finds it in another way.
func TestDeparturesAgreeWithTheirOracle(t *testing.T) {
	underrace.OneGoroutine(t)
	decisions, seed := oracleDecisions(t)
	for _, a := range []rate.Algorithm{rate.TokenBucket, rate.FixedWindow, rate.SlidingWindowLog} {
		r := rand.New(rand.NewSource(seed))
		seen := make(map[string]int)
		for seen["requests"] < decisions/5 {
			if err := playReservations(r, a, seen); err != nil {
				t.Fatalf("%s, seed %d: %v", a.String(), seed, err)
			}
		}
		t.Logf("%s: %v", a.String(), seen)
		if interpreted { // a few histories show less
			continue
		}
		if seen["waited"] < decisions/50 || seen["rejected"] < decisions/200 || seen["left"] < decisions/500 {
			t.Errorf("%s: the histories do not show what they are to show: %v", a.String(), seen)
		}
	}
}

func playReservations(r *rand.Rand, a rate.Algorithm, seen map[string]int) error {
	o := &queued{algorithm: a, requests: 1 + r.Int63n(6), period: []int64{1000, 1_000_000, 7_000_001, 60_000_000}[r.Intn(4)]}
	o.longest = 1 + r.Int63n(3*o.period)
	lc := rate.LimitConfig{Algorithm: a, Requests: o.requests, Delays: true}
	lc.Period = time.Duration(o.period) * time.Microsecond
	lc.MaxDelay = time.Duration(o.longest) * time.Microsecond
	limit, err := rate.NewLimit(lc)
	if err != nil {
		return err
	}
	rule, err := core.NewRule(core.RuleConfig{Name: "queued", Limit: limit})
	if err != nil {
		return err
	}
	now := 1_772_452_820_000_000 + r.Int63n(o.period)
	m := New(Config{Clock: func() int64 { return now }})
	_ = m.Open(rule)            // never fails
	var last []core.Reservation // of the last request in the queue
	for i := 0; i < 60; i++ {
		now += r.Int63n(2*o.period/o.requests + 2)
		if r.Intn(15) == 0 {
			now += r.Int63n(4 * o.period)
		}
		if r.Intn(10) == 0 {
			m.Sweep()
		}
		if n := len(o.departures); n > 0 && last != nil && r.Intn(6) == 0 {
			if o.departures[n-1].at > now { // else it has departed
				o.departures = o.departures[:n-1]
				seen["left"]++
			}
			if err = m.Settle(last); err != nil {
				return err
			}
			last = nil
		}
		cost := 1 + r.Int63n(o.requests)
		if r.Intn(2) == 0 {
			cost = 1
		}
		peek := r.Intn(6) == 0
		wait := o.departure(now, cost) - now
		checks := []core.Check{{Rule: rule, Key: "k", Cost: cost}}
		if err = m.Decide(checks, peek); err != nil {
			return err
		}
		d := checks[0].Decision
		seen["requests"]++
		want := rate.Decision{Allowed: true, Delay: wait}
		if wait > o.longest {
			want = rate.Decision{RetryAfter: wait - o.longest}
			seen["rejected"]++
		}
		if d.Allowed != want.Allowed || d.Delay != want.Delay || d.RetryAfter != want.RetryAfter {
			return fmt.Errorf("%s, max_delay %d µs, request %d at %d, cost %d, peek %t, after %v: %+v, want %+v",
				limit, o.longest, i+1, now, cost, peek, o.departures, d, want)
		}
		if d.Allowed && !peek {
			o.departures = append(o.departures, chargedUnits{now + wait, cost})
			last = core.AppendReservations(nil, checks)
			if wait > 0 {
				seen["waited"]++
			}
			if len(last) != int(smaller(wait, 1)) {
				return fmt.Errorf("request %d waits for %d and has %s reservations", i+1, wait, strconv.Itoa(len(last)))
			}
			if len(last) == 0 {
				last = nil
			}
		}
	}
	now += 100 * o.period
	m.Sweep()
	return leak(m)
}
