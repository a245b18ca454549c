package stores

import (
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// InFleet is how this process stands in its fleet with a key: what it has leased of the limit and not spent, if the rule is leased; what it has admitted that
// others cannot know yet, and how old its own knowledge of them is, if the rule is eventual.
type InFleet struct {
	Held    *int64   `json:"held,omitempty"`
	HeldFor *float64 `json:"held_seconds,omitempty"`   // until the lease ends
	Untold  *int64   `json:"untold,omitempty"`         // nil also over a storage, which tells all keys together
	Synced  *float64 `json:"synced_seconds,omitempty"` // nil also if nothing is known
}

// Stands returns how this process stands in its fleet with a key.
func (l *Limiter) Stands(r *core.Rule, key string) (in InFleet) {
	age := int64(-1)
	switch {
	case l.Storage != nil:
		age = l.Storage.Store.ReadAge()
	case l.Redis != nil && r.LeaseTerms() != nil:
		units, lasts := l.Redis.Holds(r, key)
		in.Held, in.HeldFor = &units, new(Seconds(lasts))
	case l.Redis != nil && r.SyncTerms() != nil:
		var untold int64
		untold, age = l.Redis.Stands(r, key)
		in.Untold = &untold
	}
	if age >= 0 {
		in.Synced = new(Seconds(age))
	}
	return in
}

// Seconds converts microseconds to seconds. rate.Never is -1.
func Seconds(d int64) float64 {
	if d == rate.Never {
		return -1
	}
	return float64(d) / 1e6
}

// Standing returns what a limit would decide on a request of a key.
func (l *Limiter) Standing(r *core.Rule, key string) (rate.Decision, error) {
	checks := []core.Check{{Rule: r, Key: key, Cost: 1}}
	var v core.Verdict
	err := l.Look(checks, &v)
	return checks[0].Decision, err
}
