package transition

import (
	"sync/atomic"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// slack is how much longer a transition lasts, in microseconds, for requests that have found the previous limit just before
// it began, and are decided after.
const slack = 1_000_000

// overlap is the time of a transition, in which requests must pass previous limits besides the active ones.
type overlap struct {
	previous *core.Limits
	pairs    map[string]pair // by the two identities: what blocks keys under the first rule blocks them under the second
	since    int64           // of the store's time
	lasts    int64           // microseconds

	carrying *int64 // how many of pairs the store is still at work on
	carried  bool   // they were brought over again when its time was over; with the lock of the Active
}

// pair is a previous rule, and one that has taken its place.
type pair struct{ from, to *core.Rule }

// begin returns an overlap, with the previous rules open in l.
func begin(l *core.Limiter, before, next *core.Limits, since, lasts int64) (*overlap, error) {
	t := &overlap{previous: before.Previous(next), pairs: make(map[string]pair), since: since, lasts: lasts, carrying: new(int64)}
	if _, err := l.OpenAll(t.previous.Rules()); err != nil {
		return nil, err
	}
	eachPair(t.previous, next, func(old, r *core.Rule) {
		if bounds(old, r) {
			t.pairs[old.Identity+"\n"+r.Identity] = pair{old, r}
		}
	})
	return t, nil
}

// lives reports whether the overlap is not over. After a step of the clock by more than it lasts, it is.
func (t *overlap) lives(now int64) bool {
	return now-t.since < t.lasts && t.since-now < t.lasts || atomic.LoadInt64(t.carrying) > 0
}

// continues reports whether one of some overlaps has the same pairs, so that what blocks keys was brought over already. If it has, t takes over what
// the store still does for it. (Limits may change every few seconds while a previous one holds, and a store may need long to find what blocks keys.)
func (t *overlap) continues(list []*overlap) bool {
	for _, other := range list {
		same := len(other.pairs) == len(t.pairs)
		for identities := range t.pairs {
			_, has := other.pairs[identities]
			same = same && has
		}
		if same {
			t.carrying = other.carrying
			return true
		}
	}
	return false
}

// Change is what becomes of a rule's counters when other limits take the place of those before.
type Change struct {
	Lasts  int64 // how long requests must pass the limits before, too, in microseconds; 0: there is no transition
	Afresh bool  // no rule goes on with the counters of one before
}

// Compare returns the change from limits to others.
func Compare(before, next *core.Limits) Change {
	var c Change
	if differ(before, next) {
		longest := int64(0)
		delay := int64(0)
		for _, r := range before.All() {
			longest = rate.Latest(longest, r.Promise())
			delay = rate.Latest(delay, r.Limit.MaxDelay)
		}
		for _, r := range next.All() {
			longest = rate.Latest(longest, r.Promise())
		}
		c.Lasts = longest + delay + slack
	}
	c.Afresh = len(before.Rules()) > 0 && len(next.Rules()) > 0
	counted := make(map[string]bool) // there may be thousands
	for _, r := range before.Rules() {
		counted[r.Identity] = true
	}
	for _, r := range next.Rules() {
		c.Afresh = c.Afresh && !counted[r.Identity]
	}
	return c
}

// bounds reports whether requests under the rule must pass the previous one, too, for a while: the two count the same keys, and
// apart. What has limited nobody, such as a shadow, is no bound; and a rule that limits nobody has none.
func bounds(previous, r *core.Rule) bool {
	return previous.Identity != r.Identity && previous.KeySpec() == r.KeySpec() && previous.Name() == r.Name() && previous.Namespace == r.Namespace &&
		!previous.Shadow && !r.Shadow && !previous.Blocks() && !r.Blocks() && !previous.Limit.InFlight && !r.Limit.InFlight
}

// differ reports whether a request under next must pass one of the limits before, too.
func differ(before, next *core.Limits) bool {
	found := false
	eachPair(before, next, func(old, r *core.Rule) { found = found || bounds(old, r) })
	return found
}

// eachPair calls f with the rules of both limits for each kind of request that has a limit in both.
func eachPair(before, next *core.Limits, f func(old, r *core.Rule)) {
	tiers, keys := before.Kinds()
	ofTiers, ofKeys := next.Kinds()
	tiers = append(append(tiers, ofTiers...), "")
	keys = append(append(keys, ofKeys...), "")
	for _, key := range keys {
		if before.Excepts(key) || next.Excepts(key) { // what somebody has allowed it alone is no promise to anybody
			continue
		}
		for _, tier := range tiers {
			old := before.Look(tier, key)
			r := next.Look(tier, key)
			if old != nil && r != nil {
				f(old, r)
			}
			if before.Overrides(key) && next.Overrides(key) { // whatever the tier
				break
			}
		}
	}
}
