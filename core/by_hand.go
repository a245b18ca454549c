package core

import (
	"errors"
	"fmt"

	"github.com/proxyweir/weir/core/rate"
)

// Block blocks a key of a rule for that many microseconds, up to 366 days. It replaces a penalty or an earlier block. All
// requests of the key are rejected (a shadow rule only counts them as rejected). When the time is over, the key starts afresh.
// The error is the store's; the memory that takes the store's place when it fails blocks the key even then.
//
// The key is compared byte by byte with those of requests. Nobody here can say whether requests have such a key; a key that no
// request has blocks nobody. Convert what a person has written with Prefixes.Key and Source.Canonicalize first.
func (l *Limiter) Block(r *Rule, key string, duration int64) error {
	if duration <= 0 || duration > int64(rate.MaxPeriod/1000) {
		return fmt.Errorf("a key is blocked for 1µs to 366d, not for %d µs", duration)
	}
	return l.block(r, key, duration)
}

// BlockedFor returns for how much longer a key of a rule is blocked, in microseconds; 0: it is not. The error is the store's. With an overflow policy that has nobody
// wait, a key whose whole quota is used up, and comes back at once, may count as blocked until then.
func (l *Limiter) BlockedFor(r *Rule, key string) (int64, error) {
	checks := []Check{{Rule: r, Key: key}} // that costs nothing: a limit that is used up allows it, and says when there is more
	err := l.store.Decide(checks, true)
	d := &checks[0].Decision
	if err != nil || d.Remaining != 0 || d.MoreAfter != 0 || d.Delay != 0 || !d.Allowed && d.RetryAfter != d.ResetAfter ||
		!d.Allowed && r.HasOverflowPolicy() && !r.Waits() && r.Limit.Quota == 1 && d.RetryAfter <= r.Limit.Refilled() {
		return 0, err
	}
	return d.ResetAfter, nil
}

// Unblock ends a block or a penalty, and forgets the key's offences. The error is the store's.
func (l *Limiter) Unblock(r *Rule, key string) error { return l.block(r, key, 0) }

func (l *Limiter) block(r *Rule, key string, duration int64) error {
	err := l.store.Block(r, key, duration)
	if r.Local != nil {
		_ = l.local.Block(r.Local, key, duration) // used while the store has failed
	}
	return err
}

// Reset forgets the state of a key under a rule and the rules beside it: counters, tolerance, penalties and blocks, as
// Store.Reset does. The error is the first of the store's.
func (l *Limiter) Reset(r *Rule, key string) error {
	err := l.store.Reset(r, key)
	if r.Local != nil {
		_ = l.local.Reset(r.Local, key)
	}
	for _, other := range r.linked {
		if failure := l.Reset(other, key); err == nil {
			err = failure
		}
	}
	return err
}

// ErrNoCredit is wrapped by the errors of stores that cannot give units back.
var ErrNoCredit = errors.New("")

// Credit gives units back to a key of a rule, as Store.Credit does, but not to the rules beside it. The error is the store's.
func (l *Limiter) Credit(r *Rule, key string, units int64) error {
	if units < 1 || units > rate.MaxRequests {
		return fmt.Errorf("1 to %d units are given back, not %d", rate.MaxRequests, units)
	}
	if r.Limit.InFlight {
		return fmt.Errorf("%wrequests in flight end by themselves, and there is nothing to give back", ErrNoCredit)
	}
	err := l.store.Credit(r, key, units)
	if err == nil && r.Local != nil {
		_ = l.local.Credit(r.Local, key, (units*r.Local.Limit.Quota+r.Limit.Quota-1)/r.Limit.Quota)
	}
	return err
}
