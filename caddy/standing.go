package ratelimit

import (
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// inFleet is how this process stands in its fleet with a key: what it has leased of the limit and not spent, if the rule is leased; what it has admitted that
// others cannot know yet, and how old its own knowledge of them is, if the rule is eventual.
type inFleet struct {
	Held    *int64   `json:"held,omitempty"`
	HeldFor *float64 `json:"held_seconds,omitempty"`   // until the lease ends
	Untold  *int64   `json:"untold,omitempty"`         // nil also over a storage, which tells all keys together
	Synced  *float64 `json:"synced_seconds,omitempty"` // nil also if nothing is known
}

// stands returns how this process stands in its fleet with a key.
func (l *limiter) stands(r *core.Rule, key string) (in inFleet) {
	age := int64(-1)
	switch {
	case l.storage != nil:
		age = l.storage.store.ReadAge()
	case l.redis != nil && r.LeaseTerms() != nil:
		units, lasts := l.redis.Holds(r, key)
		in.Held, in.HeldFor = &units, new(seconds(lasts))
	case l.redis != nil && r.SyncTerms() != nil:
		var untold int64
		untold, age = l.redis.Stands(r, key)
		in.Untold = &untold
	}
	if age >= 0 {
		in.Synced = new(seconds(age))
	}
	return in
}

// seconds converts microseconds to seconds. rate.Never is -1.
func seconds(d int64) float64 {
	if d == rate.Never {
		return -1
	}
	return float64(d) / 1e6
}

// standing returns what a limit would decide on a request of a key.
func (l *limiter) standing(r *core.Rule, key string) (rate.Decision, error) {
	checks := []core.Check{{Rule: r, Key: key, Cost: 1}}
	var v core.Verdict
	err := l.Look(checks, &v)
	return checks[0].Decision, err
}
