package core

import "fmt"

// A key that was shut out by hand has in place of its limit's state one that no algorithm makes, whatever the rule is: in B the
// end, and in A a time that no clock tells before the year 2253, which says for how long it was shut out. So it costs other requests
// nothing: take allows no request of a key whose time is to come, and who asks further looks for it.
const blockMark = 1<<timeBits - 1<<46

// blockState returns the state of a key that is shut out from now on.
func blockState(now, duration int64) State { return State{A: blockMark + duration, B: now + duration} }

// isBlocked reports whether a state says that its key is shut out, or was until the end came.
func isBlocked(s *State) bool { return s.A >= blockMark && s.A < 1<<timeBits }

// blockedFor returns for how long yet a state has its key shut out: 0 or less if it does not. Where the clock has stepped back to before
// the key was shut out, it is for as long as it was to be.
func blockedFor(s *State, now int64) int64 {
	if !isBlocked(s) {
		return 0
	}
	left := s.B - now
	if longest := s.A - blockMark; left > longest {
		return longest
	}
	return left
}

// stepBack has the end of a shut-out step back with the clock.
func stepBack(s *State, now int64) {
	if isBlocked(s) && s.B-now > s.A-blockMark {
		s.B = now + s.A - blockMark
	}
}

// decideBlocked writes the decision on a request of a key that is shut out for that long. What can never be admitted is told so.
func decideBlocked(l *Limit, left, cost int64, d *Decision) {
	most := l.capacity
	if l.inFlight {
		most = MaxRequests
	}
	*d = Decision{Limit: l.quota, Allowed: cost == 0, RetryAfter: left, ResetAfter: left}
	if cost > most {
		d.RetryAfter = Never
	} else if cost == 0 {
		d.RetryAfter = 0
	}
}

// Block shuts a key of a rule out for that many microseconds, in place of a penalty or a shut-out that there is: all its requests are
// rejected (those of a shadow are said to be), and when the time is over it starts afresh. The error is the store's; what counts in
// place of the store when it fails has been told all the same.
//
// The key is as requests have it, to the byte: here nobody can say whether any has it, and one that none has shuts nobody out. What a
// person has written is for Prefixes.Key and Source.Spell first.
func (l *Limiter) Block(r *Rule, key string, duration int64) error {
	if duration <= 0 || duration > int64(MaxPeriod/1000) {
		return fmt.Errorf("a key is blocked for 1µs to 366d, not for %d µs", duration)
	}
	return l.block(r, key, duration)
}

// Unblock lifts a shut-out or a penalty, and forgets the offences of the key.
func (l *Limiter) Unblock(r *Rule, key string) error { return l.block(r, key, 0) }

func (l *Limiter) block(r *Rule, key string, duration int64) error {
	err := l.store.Block(r, key, duration)
	if r.local != nil {
		_ = l.local.Block(r.local, key, duration) // for as long as the store has failed
	}
	return err
}

// Reset forgets what was counted of a key under a rule and those beside it, tolerance, penalties and shut-outs, as Store.Reset does.
// The error is the first of the store's.
func (l *Limiter) Reset(r *Rule, key string) error {
	err := l.store.Reset(r, key)
	if r.local != nil {
		_ = l.local.Reset(r.local, key)
	}
	for _, other := range r.beside {
		if failure := l.Reset(other, key); err == nil {
			err = failure
		}
	}
	return err
}
