package core

// Never is the RetryAfter of a request that the rule can never admit: it costs more than the limit can ever hold.
const Never int64 = -1

// Decision is what one rule says of one request. Times are microseconds from now.
type Decision struct {
	Allowed    bool
	Soft       bool  // it is, by the tolerance of a rule whose limit it exceeds
	Penalty    bool  // it is not, and is the offence for which the key is shut out from now on
	Limit      int64 // the quota: a bucket's burst, else the requests per period
	Remaining  int64 // how many units are left, never below 0
	RetryAfter int64 // when the same request would be admitted: 0 if it is, Never if it cannot be
	ResetAfter int64 // when the quota is whole again, if nothing else comes
	MoreAfter  int64 // of an allowed request: when more remains than Remaining, if nothing else comes; 0: nothing was used, or it is not known
	Delay      int64 // how long an admitted request waits for its turn (leaky_bucket)
}

// State is what a store keeps of a key for the algorithms of constant size: two words whose meaning is the
// algorithm's. The zero State is a key that was never seen. It holds what was used and when, never what is left, so
// that a limit can change under it.
type State struct {
	A, B int64
}

// decide is the pure heart: what limit l says at time now of a request of that cost on state s, and in next the state
// to keep: if the request is allowed, the one after it; if not, the one that a rule with count_rejected keeps, in which
// the limit is used up, and more than that where another limit of the same identity has let more through. next may be s.
//
// A cost of 0 asks how things stand, and is always allowed; ResetAfter is then 0 only for a state that makes no
// difference any more. The log's state is of another kind: see decideLog. For that of a key that is shut out see shut_out.go.
func decide(l *Limit, s *State, now, cost int64, next *State, d *Decision) {
	if cost == 1 {
		*next = *s
		if remaining, reset, more := take(l, next, now); remaining >= 0 {
			*d = Decision{Allowed: true, Limit: l.quota, Remaining: remaining, ResetAfter: reset, MoreAfter: more}
			return
		}
	}
	if s.A >= shutMark { // of which take allows nothing, and which when it is over is of a time so far ahead that the key starts over
		if left := shutFor(s, now); left > 0 {
			*next = *s
			decideShut(l, left, cost, d)
			return
		}
	}
	*d = Decision{Limit: l.quota}
	switch l.algorithm {
	case TokenBucket:
		decideTokenBucket(l, s, now, cost, next, d)
	case LeakyBucket:
		decideLeakyBucket(l, s, now, cost, next, d)
	case FixedWindow:
		decideFixedWindow(l, s, now, cost, next, d)
	default:
		decideSlidingWindowCounter(l, s, now, cost, next, d)
	}
}

// charge writes into next the state after a request that is charged whatever the limit says of it by now: one that was admitted
// before, by this limit or by another of the same identity, and had reserved what it takes. It is charged whole, as far as the state
// can say. next may be s. The log's state is of another kind: see chargeLog.
func charge(l *Limit, s *State, now, cost int64, next *State) {
	var d Decision
	if shutFor(s, now) > 0 { // what is charged to a key that is shut out is forgotten with all else
		*next = *s
		return
	}
	decide(l, s, now, 0, next, &d)
	switch l.algorithm {
	case TokenBucket, LeakyBucket:
		chargeLevel(l, next, cost)
	case FixedWindow:
		next.B += cost
		if next.B > mostCounted {
			next.B = mostCounted
		}
	default:
		current := next.B&mostCounted + cost
		if current > mostCounted {
			current = mostCounted
		}
		next.B = next.B>>32<<32 | current
	}
}

// mostCounted is the most that a window's count is: four times the largest of limits.
const mostCounted = 1<<32 - 1

// take is the short way to decide on a request that costs 1, as most do: if it is allowed, and the limit's numbers and the
// state are none of the rare ones, the state is charged, and what remains, when the quota is whole again and when there is more are returned.
// Else remaining is -1, and nothing has changed.
func take(l *Limit, s *State, now int64) (remaining, reset, more int64) {
	switch l.algorithm {
	case TokenBucket:
		return takeFromTokenBucket(l, s, now)
	case LeakyBucket:
		return takeFromLeakyBucket(l, s, now)
	case FixedWindow:
		return takeFromFixedWindow(l, s, now)
	}
	return takeFromSlidingWindowCounter(l, s, now)
}

// unused reports whether a state makes no difference any more: whether decide, asked at a cost of 0, would tell a ResetAfter
// of 0. It is the short way for what most limits and states are.
func unused(l *Limit, s *State, now int64) bool {
	elapsed := now - s.A
	if elapsed >= 0 && s.A|s.B >= 0 {
		switch l.algorithm {
		case TokenBucket, LeakyBucket:
			if s.B <= l.full {
				return elapsed >= l.emptied || s.B <= elapsed*l.requests
			}
		case FixedWindow:
			if l.calendar == nil {
				return elapsed >= l.period || s.B == 0
			}
		case SlidingWindowCounter:
			if elapsed >= 2*l.period {
				return true
			}
			if elapsed < l.period && s.B&(1<<32-1) != 0 {
				return false
			}
		}
	}
	var next State
	var d Decision
	decide(l, s, now, 0, &next, &d)
	return d.ResetAfter == 0
}
