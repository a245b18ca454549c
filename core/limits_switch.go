package core

import (
	"sort"
	"sync/atomic"

	"github.com/proxyweir/weir/core/rate"
)

// Other limits may come in the place of a rule's limits while requests come under the rule: by a reload, by a rule file, or at run
// time. Where only numbers change, the new limits go on with the counters of the old ones. Where the algorithm or the period
// changes, the new limits have counters of their own, and a client that has used its quota up would get another. So a transition
// begins: until it is over, a request must pass the former limit, too, and is charged to both.
//
// Why no client gains by it. Let a limit's bound for a time W be the most that it allows within any W; and let the transition
// begin at T, and last for D. All that is allowed before T+D is charged to the former limit, which has allowed it. All that is
// allowed from T on is charged to the new limit, which has allowed it. A time of at most D does not reach from before T to after
// T+D. So it lies in one of the two parts, and what is allowed within it is at most the larger of the two bounds. This needs nothing of the
// algorithms but that each keeps to its own bound, and it holds for several transitions at once. D is the longest time for which
// one of the limits makes a promise: see Limit.memory. (Over longer times, each transition gives at most what one limit allows at
// once: there the former limit is forgotten.)
//
// A transition is longer by the time for which what the former limit alone has allowed may still depart: its max_delay, and
// switchSlack.
//
// Each node has its own transitions, by its own clock. A node that learns of the new limits later has its transition later; until then
// it charges the former limit alone, as it would before T.

// switchSlack is how much longer a transition lasts, in microseconds, for requests that have found the former limit just before
// it began, and are decided after.
const switchSlack = 1_000_000

// force is what is in force in place of limits.
type force struct {
	limits  *Limits
	formers []*former // of transitions, the latest first; immutable
	limiter *Limiter  // has opened the formers
}

// former has limits that were in force before, as they are during a transition: its rules are former rules.
type former struct {
	limits *Limits
	pairs  [][2]*Rule // a rule of limits, and one that took its place: what blocks keys under the first blocks them under the second
	since  int64      // of the store's time
	lasts  int64      // microseconds

	carrying *int64 // how many of pairs the store is still at work on
	carried  bool   // they were brought over again when its time was over; with the lock of the limits
}

// lives reports whether the transition is not over. After a step of the clock by more than it lasts, it is.
func (f *former) lives(now int64) bool {
	return now-f.since < f.lasts && f.since-now < f.lasts || atomic.LoadInt64(f.carrying) > 0
}

// InForce returns the limits in force: l itself, unless Limiter.SwitchTo has put others in its place.
func (l *Limits) InForce() *Limits {
	if atomic.LoadInt32(&l.Moved) == 0 {
		return l
	}
	return l.inForce.Load().(*force).limits
}

// Settled returns the limits in force, or nil while requests may have to pass a former limit, too. It is for adapters that keep something for the
// limits in force, so that they need not look for them at each request. While it returns nil, checks must have their Limits: a decision on them finds
// out when a transition is over.
func (l *Limits) Settled() *Limits {
	var none *Limits
	if atomic.LoadInt32(&l.Moved) == 0 {
		return l
	}
	in := l.inForce.Load().(*force)
	if len(in.formers) > 0 {
		return none
	}
	return in.limits
}

// InTransition reports whether requests must pass a former limit, too. now is the time of Store.Now.
func (l *Limits) InTransition(now int64) bool {
	if atomic.LoadInt32(&l.Moved) == 0 {
		return false
	}
	for _, f := range l.inForce.Load().(*force).formers {
		if f.lives(now) {
			return true
		}
	}
	return false
}

// InTransition reports whether requests under limits must pass a former limit, too, at the time of the limiter's store.
func (l *Limiter) InTransition(limits *Limits) bool {
	return atomic.LoadInt32(&limits.Moved) != 0 && limits.InTransition(l.store.Now())
}

// FormerRules returns all rules of former limits that requests must pass, too; none without a transition. They are open in the
// limiter. Whoever unblocks or resets a key must do so under these rules, and first: what blocks the key under them may be brought
// to the rules in force at any moment.
func (l *Limits) FormerRules() []*Rule {
	var rules []*Rule
	if atomic.LoadInt32(&l.Moved) == 0 {
		return rules
	}
	for _, f := range l.inForce.Load().(*force).formers {
		rules = append(rules, f.limits.rules...)
	}
	return rules
}

// appendFormers appends a check for each former limit that a request must pass besides the rule of a check, which Of has chosen.
func (l *Limits) appendFormers(checks []Check, c *Check) []Check {
	r := c.Rule
	in := l.state()
	if len(in.formers) == 0 {
		return checks
	}
	now := in.limiter.store.Now()
	first := len(checks)
	over := false
	for _, f := range in.formers {
		if !f.lives(now) {
			over = true
			continue
		}
		former := f.limits.choose(c.Tier, c.Key)
		if former == nil || former.Identity == r.Identity || !mustPass(former, r) {
			continue
		}
		known := false
		for i := first; i < len(checks); i++ {
			known = known || checks[i].Rule.Identity == former.Identity // a later transition has it, too
		}
		if !known {
			checks = append(checks, Check{Rule: former, Key: c.Key, Cost: c.Cost, isPart: true})
		}
	}
	if over {
		l.endTransitions(now)
	}
	return checks
}

// SwitchTo puts the limits next in force in place of limits, or of those that it put in their place before: from now on
// limits.Of chooses among the rules of next. It is for limits that change while requests come under them; the caller goes on
// using limits. If the algorithm or the period of a rule changes, a transition begins. An error is that of a store that cannot open
// the former limits; then nothing has changed.
//
// Each change needs Limits of its own: made by NewLimits, of the same RuleConfig with another Limit (and the same MoreLimits, or
// others), and open in l, each of their Rules. When SwitchTo returns, the caller releases the rules of the limits that were in force
// before, unless these are limits itself, which may come back. To go back, switch to limits itself. Before it releases the rules of
// limits, and of those in force, the caller calls EndSwitch.
//
// The rules of next take over what adapters keep of the rules of limits (Note, Allowed), and their requests that wait.
func (l *Limiter) SwitchTo(limits, next *Limits) error {
	limits.changing.Lock()
	defer limits.changing.Unlock()
	before := limits.state()
	if next != limits { // else it has all of this
		takeOver(next, before.limits)
	}
	return l.putInForce(limits, next, before, 0)
}

// Succeed makes limits the successor of the limits before, of which it takes over the transitions, and their clocks. It is for a
// configuration that replaces another: both are open, limits in l. If they have another key than before, or the algorithm and
// the period of no rule changes, it does nothing. It reports whether a transition has begun.
//
// It may be called before the first request under limits, and again when limits replace those before: what was begun at
// the first time then begins again. For so many microseconds as late says, requests may still come under the limits before alone. An error is that of a store that cannot open the former limits.
func (l *Limiter) Succeed(limits, before *Limits, late int64) (begun bool, err error) {
	limits.changing.Lock()
	defer limits.changing.Unlock()
	in := limits.InForce()
	old := before.state()
	err = l.putInForce(limits, in, old, late)
	begun = err == nil && old.limits.differs(in)
	return begun, err
}

// EndSwitch ends the transitions of limits. It is for a caller that is about to release their rules.
func (l *Limiter) EndSwitch(limits *Limits) {
	limits.changing.Lock()
	in := limits.state()
	if len(in.formers) > 0 {
		limits.store(&force{limits: in.limits})
		in.release(in.formers)
	}
	limits.changing.Unlock()
}

// Overlap returns how long a transition from the limits to next lasts, in microseconds; 0: there is none.
func (l *Limits) Overlap(next *Limits) int64 {
	if !l.differs(next) {
		return 0
	}
	longest := int64(0)
	delay := int64(0)
	for _, r := range l.rules {
		longest = rate.Latest(longest, r.memory())
		delay = rate.Latest(delay, r.Limit.MaxDelay)
	}
	for _, r := range next.rules {
		longest = rate.Latest(longest, r.memory())
	}
	return longest + delay + switchSlack
}

// state returns what is in force.
func (l *Limits) state() *force {
	if atomic.LoadInt32(&l.Moved) == 0 {
		return &force{limits: l}
	}
	return l.inForce.Load().(*force)
}

// store sets what is in force. The caller holds the lock changing.
func (l *Limits) store(in *force) {
	l.inForce.Store(in)
	moved := int32(0)
	if in.limits != l || len(in.formers) > 0 {
		l.turns++
		moved = l.turns
	}
	atomic.StoreInt32(&l.Moved, moved)
}

// putInForce puts next in force in limits, as the successor of before, which may be of other limits. The caller holds the lock.
func (l *Limiter) putInForce(limits, next *Limits, before *force, late int64) error {
	now := l.store.Now()
	in := &force{limits: next, limiter: l}
	if lasts := before.limits.Overlap(next); lasts > 0 {
		f, err := l.former(before.limits, next)
		if err != nil {
			return err
		}
		f.since = now
		f.lasts = lasts + late
		in.formers = append(in.formers, f)
	}
	for _, old := range before.formers {
		if !old.lives(now) {
			before.carry(old)
			continue
		}
		if !old.limits.differs(next) {
			continue
		}
		f, err := l.former(old.limits, next)
		if err != nil {
			in.release(in.formers)
			return err
		}
		f.since = old.since
		f.lasts = old.lasts
		in.formers = append(in.formers, f)
	}
	last := limits.state()
	for _, f := range in.formers {
		if !f.goesOn(last.formers) && !f.goesOn(before.formers) {
			in.carry(f)
		}
	}
	limits.store(in)
	last.release(last.formers)
	return nil
}

// goesOn reports whether one of some formers has the same pairs, so that what blocks keys was brought over already. If it has, f takes over what
// the store still does for it. (Limits may change every few seconds while a former one holds, and a store may need long to find what blocks keys.)
func (f *former) goesOn(list []*former) bool {
	for _, other := range list {
		same := len(other.pairs) == len(f.pairs)
		for i := 0; same && i < len(f.pairs); i++ {
			same = other.pairs[i][0].Identity == f.pairs[i][0].Identity && other.pairs[i][1].Identity == f.pairs[i][1].Identity
		}
		if same {
			f.carrying = other.carrying
			return true
		}
	}
	return false
}

// endTransitions ends those that are over.
func (l *Limits) endTransitions(now int64) {
	l.changing.Lock()
	defer l.changing.Unlock()
	in := l.state()
	next := &force{limits: in.limits, limiter: in.limiter}
	var over []*former
	for _, f := range in.formers {
		if !f.lives(now) && !f.carried {
			f.carried = true
			in.carry(f) // what has come since it began, where the former limit alone was known
		}
		if f.lives(now) {
			next.formers = append(next.formers, f)
		} else {
			over = append(over, f)
		}
	}
	if len(over) == 0 { // another request was faster, or the store is not done yet
		return
	}
	l.store(next)
	in.release(over)
}

// carry makes what blocks keys under the rules of a former block them under the rules in their place, too.
func (in *force) carry(f *former) {
	carrying := f.carrying
	done := func() { atomic.AddInt64(carrying, -1) }
	for i := range f.pairs {
		atomic.AddInt64(carrying, 1)
		in.limiter.carry(f.pairs[i][0], f.pairs[i][1], done)
	}
}

func (l *Limiter) carry(from, to *Rule, done func()) {
	l.store.Carry(from, to, done)
	if from.Local != nil && to.Local != nil {
		l.local.Carry(from.Local, to.Local, func() {}) // memory, which is done at once
	}
}

// release releases the rules of formers.
func (in *force) release(formers []*former) {
	for _, f := range formers {
		for _, r := range f.limits.rules {
			in.limiter.release(r)
		}
	}
}

// former returns the former of some limits, for a transition to next, with its rules open.
func (l *Limiter) former(before, next *Limits) (*former, error) {
	made := make(map[*Rule]*Rule)
	f := &former{carrying: new(int64), limits: &Limits{tiers: make(map[string]*Rule), overrides: make(map[string]*Rule)}}
	of := func(r *Rule) *Rule {
		if r == nil {
			return r
		}
		if made[r] == nil {
			made[r] = r.asFormer(next.rules[0])
			f.limits.rules = append(f.limits.rules, made[r])
		}
		return made[r]
	}
	f.limits.own = of(before.own)
	for value, r := range before.tiers {
		f.limits.tiers[value] = of(r)
	}
	for key, r := range before.overrides {
		f.limits.overrides[key] = of(r)
	}
	for i, r := range f.limits.rules {
		if err := l.Open(r); err != nil {
			for _, opened := range f.limits.rules[:i] {
				l.release(opened)
			}
			return nil, err
		}
	}
	eachPair(f.limits, next, func(old, r *Rule) {
		if !mustPass(old, r) {
			return
		}
		for i := range f.pairs {
			if f.pairs[i][0].Identity == old.Identity && f.pairs[i][1].Identity == r.Identity {
				return
			}
		}
		f.pairs = append(f.pairs, [2]*Rule{old, r})
	})
	sort.Slice(f.pairs, func(i, j int) bool { // so that the same pairs are in the same order
		a, b := f.pairs[i], f.pairs[j]
		return a[0].Identity < b[0].Identity || a[0].Identity == b[0].Identity && a[1].Identity < b[1].Identity
	})
	return f, nil
}

// asFormer returns the rule as it is in a transition to next: with the limit that it had and what belongs to that, and for the
// rest with what holds now. It rejects, but what it alone rejects is no offence; and it makes no requests wait
// where next does not, since others would have to know of that.
func (r *Rule) asFormer(next *Rule) *Rule {
	f := &Rule{
		Namespace:     r.Namespace,
		name:          r.name,
		keySpec:       r.keySpec,
		Identity:      r.Identity,
		Limit:         r.Limit,
		Shadow:        r.Shadow,
		blocks:        r.blocks,
		CountRejected: r.CountRejected,
		onError:       next.onError,
		waitQuota:     r.waitQuota,
		noted:         next.noted,
		former:        true,
		policy:        r.policy,
		Message:       next.Message,
		Allowed:       new(int64), // that nobody reads
	}
	if r.Overflow != nil {
		policy := *r.Overflow
		policy.Longest = 0
		if len(policy.Penalties) > 0 {
			policy.Penalties = []int64{0}
		}
		f.Overflow = &policy
	}
	if r.Limit.Delays && !next.Limit.Delays {
		limit := *r.Limit
		limit.Delays = false
		f.Limit = &limit
	}
	if r.TracksReservations() || next.TracksReservations() {
		f.TrackReservations()
	}
	return f
}

// takeOver gives the rules of next what adapters keep of those before.
func takeOver(next, before *Limits) {
	if len(before.rules) == 0 {
		return
	}
	old := before.rules[0]
	for _, r := range next.rules {
		r.Note(old.noted)
		r.Allowed = old.Allowed
		if old.Overflow != nil && old.Overflow.tracked && !r.TracksReservations() {
			r.TrackReservations()
		}
	}
	next.GoOnWaiting(before)
}

// mustPass reports whether requests under the rule must pass the former one, too, for a while: the two count the same keys, and
// apart. What has limited nobody, such as a shadow, is no bound; and a rule that limits nobody has none.
func mustPass(former, r *Rule) bool {
	return former.Identity != r.Identity && former.keySpec == r.keySpec && former.name == r.name && former.Namespace == r.Namespace &&
		!former.Shadow && !r.Shadow && !former.blocks && !r.blocks && !former.Limit.InFlight && !r.Limit.InFlight
}

// differs reports whether a request under next must pass one of the limits, too.
func (l *Limits) differs(next *Limits) bool {
	found := false
	eachPair(l, next, func(old, r *Rule) { found = found || mustPass(old, r) })
	return found
}

// eachPair calls f with the rules of both limits for each kind of request that has a limit in both.
func eachPair(before, next *Limits, f func(old, r *Rule)) {
	pair := func(old, r *Rule) {
		if old != nil && r != nil {
			f(old, r)
		}
	}
	pair(before.own, next.own)
	for value := range before.tiers {
		pair(before.tiers[value], next.choose(value, ""))
	}
	for value := range next.tiers {
		if _, ok := before.tiers[value]; !ok {
			pair(before.own, next.tiers[value])
		}
	}
	for key, old := range before.overrides {
		if r, ok := next.overrides[key]; ok {
			pair(old, r)
			continue
		}
		pair(old, next.own)
		for _, r := range next.tiers {
			pair(old, r)
		}
	}
	for key, r := range next.overrides {
		if _, ok := before.overrides[key]; ok {
			continue
		}
		pair(before.own, r)
		for _, old := range before.tiers {
			pair(old, r)
		}
	}
}

// memory returns the longest time for which the rule's limit makes a promise, in microseconds: its period, or the time in which a
// full bucket drains, if that is longer. The latter is how long a bucket's burst may stay used.
func (r *Rule) memory() int64 {
	longest := r.Limit.Memory()
	if r.Overflow != nil && r.Overflow.Wide != nil {
		longest = rate.Latest(longest, r.Overflow.Wide.Memory())
	}
	return longest
}

// merge combines a decision with that of a former limit. It then is that of a limit as strict as the two: the request passes if both allow it, as many
// units are left as the one with fewer has, and the wait is the longer. Its quota stays its own.
func merge(d, former *rate.Decision) {
	d.Penalty = d.Penalty || former.Penalty
	if former.ResetAfter > d.ResetAfter {
		d.ResetAfter = former.ResetAfter
	}
	if d.Allowed && former.Allowed {
		d.Soft = d.Soft || former.Soft
		if former.Delay > d.Delay {
			d.Delay = former.Delay
		}
		if former.Remaining < d.Remaining {
			d.MoreAfter = former.MoreAfter
		} else if former.Remaining == d.Remaining && (former.MoreAfter == 0 || d.MoreAfter != 0 && former.MoreAfter > d.MoreAfter) {
			d.MoreAfter = former.MoreAfter
		}
	} else {
		d.Soft = false
		d.Delay = 0
		d.MoreAfter = 0
		if !former.Allowed && (d.Allowed || longer(former.RetryAfter, d.RetryAfter)) {
			d.RetryAfter = former.RetryAfter
		}
		d.Allowed = false
	}
	if former.Remaining < d.Remaining {
		d.Remaining = former.Remaining
	}
}
