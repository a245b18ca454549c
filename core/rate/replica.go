package rate

import (
	"fmt"
	"time"
)

// Replica is what one node of a fleet knows of one key: the state that the store had when the node last synchronised, and what has been charged since, as
// far as the node can know. The node decides by it without asking. It is the node's part of consistency eventual, without any input or output; the store's
// part is its own (in Redis, a script). The zero value knows nothing. It is not safe for concurrent use. Times are in microseconds: mono is of a clock that
// never steps back.
//
// How the pieces meet:
//
//	ReplicaFresh     each request: whether the replica may decide; otherwise the store is asked, with BeginLook
//	DecideByReplica  decides, and charges the replica; what it has charged is to be sent
//	BeginSync        once an interval, for keys that were asked for since: takes what is to be sent
//	EndReplicaCall   the store's answer: its state takes the place of the replica's, and what was charged since is charged again
//	LoseSync         there was no answer: what was sent is never sent again, unless it certainly was not executed
//
// Between two calls the replica also charges what others have probably been admitted. It takes them to go on at the rate at which the store's state has
// grown by others' charges. While the limit is used up, that rate is not what they ask for, so it may rise then, and does not fall.
//
// # The bound
//
// A decision counts everything that other nodes have sent before the node's last call: all that is older than the age of the replica, at most S + d, and the
// time for which it was kept at the other node, at most S + d. S is the interval, and d the longest that a call takes. Charges that arrive late only make a
// state fuller. So at any time the state that the algorithm would have, had it been charged with everything that was admitted, exceeds the limit by at most
// what all nodes together are asked for in 2·(S + d); and by N−1 times the limit, since no node by itself admits more than the limit. Guesses only make a
// replica fuller: they lower the excess that is usual, and not this bound. While the store fails, replicas decide for three intervals; what was not sent then
// is sent when it is back. Until all nodes have reached it again, what they are asked for in 3·S + d is added.
type Replica struct {
	state State // of the key, with all charges and guesses since
	known State // as the store had it
	has   bool

	// Of a log, whose State has no times, but in B how many units count. They count until the store says that they have ceased to.
	free  int64 // how long after synced a unit is free
	reset int64 // how long after synced none is used

	synced int64 // when the store had that state, by its clock
	looked int64 // when the call was sent, by mono
	slack  int64 // how long the next call may take: twice what that took, or the terms' Slack if that is longer
	ahead  int64 // how far the store's clock is ahead of mono

	unsent int64 // units charged here that were not sent
	late   int64 // the same, of the window before; only of a sliding window counter
	window int64 // to which unsent belongs
	sent   int64 // units that are under way
	asked  bool  // a request has come since the last sync

	reserved int64 // units of requests that other rules still decide on

	rate    float64 // units a microsecond that others are charged
	guessed int64   // units charged for others since synced
}

// SyncTerms are how a limit is kept by replicas. Times are in microseconds.
type SyncTerms struct {
	Every int64 // the interval of synchronisation, S
	Slack int64 // how long a call may take at least, d, or twice what the last one took; the store sets it
	Whole int64 // in which the limit is whole again: P, or of a bucket B·P/R
}

// The intervals of synchronisation.
const (
	DefaultSync  = time.Second
	ShortestSync = 10 * time.Millisecond
	LongestSync  = time.Minute
)

// wholes is how many intervals the limit should take to be whole again.
const wholes = 20

// goesOn is for how many intervals replicas decide while the store fails.
const goesOn = 3

// SyncTermsOf returns the terms on which replicas keep a limit. The error says why they cannot.
func SyncTermsOf(l *Limit, every time.Duration) (SyncTerms, error) {
	t := SyncTerms{Every: int64(every / time.Microsecond), Whole: WholeAfter(l)}
	if t.Every > t.Whole {
		return t, fmt.Errorf("the limit %s is whole again after %s; the interval, %s, must not be longer: choose a shorter one, or consistency strict", l, FormatMicroseconds(t.Whole), FormatPeriod(every))
	}
	return t, nil
}

// Advice returns what is unwise about the interval at which replicas of a limit are synchronised: it is long for the limit. "" means nothing.
func (t *SyncTerms) Advice(l *Limit) string {
	if t.Every*wholes <= t.Whole {
		return ""
	}
	return fmt.Sprintf("consistency eventual %s: is long for the limit %s, which is whole again after %s: in that time nodes can admit a large part of the limit more; an interval of at most %s is better",
		FormatMicroseconds(t.Every), l, FormatMicroseconds(t.Whole), FormatMicroseconds(t.Whole/wholes))
}

func FormatMicroseconds(n int64) string { return FormatPeriod(time.Duration(n) * time.Microsecond) }

// ReplicaCall is a call to the store about a replica, and what the node must remember of it until the answer.
type ReplicaCall struct {
	Units int64 // to charge, whatever the limit says
	Late  int64 // the same, in the window before the present one: only for a sliding window counter
	Own   int64 // what the store has charged for a request of this node, on which it has decided
	syncs bool
	sent  int64 // by mono
}

// ReplicaState is the store's answer. What A, B and C mean depends on the algorithm:
//
//	fixed_window            the start of the window, its units, 0
//	sliding_window_counter  the start of the window, the units of the one before, and its own
//	token_bucket            the time of the level, its units, and its P-ths of a unit
//	sliding_window_log      the units; after how long one of them ceases to count, so that one is free if none is; 0
type ReplicaState struct {
	Now     int64 // the store's time
	Blocked int64 // for how much longer the key is blocked by hand, or 0
	A, B, C int64
	Reset   int64 // after how long the limit is whole again
}

// ReplicaKnown reports whether the store has ever told the replica the key's state.
func ReplicaKnown(r *Replica) bool { return r.has }

// ReplicaStands returns how many units the node has admitted that the store has not confirmed, and how old the store's state is; -1: the replica knows none.
func ReplicaStands(r *Replica, mono int64) (untold, age int64) {
	if !r.has {
		return 0, -1
	}
	return r.unsent + r.late + AtLeast(r.sent-1, 0), AtLeast(mono-r.looked, 0)
}

// ReplicaFresh reports whether a replica may decide at that time. failing says that the last calls to the store have failed.
func ReplicaFresh(r *Replica, t *SyncTerms, mono int64, failing bool) bool {
	most := t.Every
	if failing {
		most *= goesOn
	}
	return r.has && mono-r.looked <= most+r.slack
}

// DecideByReplica sets the decision on a request of that cost. If it is allowed, and charge is set, it is charged.
func DecideByReplica(r *Replica, l *Limit, t *SyncTerms, cost, mono int64, charge bool, d *Decision) {
	var next State
	now := mono + r.ahead
	guess(r, l, t, now)
	decideReplica(r, l, now, cost, &next, d)
	if !d.Allowed || !charge {
		return
	}
	r.state = next
	rollUnsent(r, l, windowOf(l, &next, now))
	r.unsent += cost
}

// SpendReplica does what DecideByReplica and TouchReplica do for a request that costs 1, in few steps, if the replica is fresh, and nothing is rare. It
// returns what remains, and after how many microseconds the limit is whole again, and more is left than now; 0: that is not known. Otherwise it returns
// -1, and leaves the request to these functions.
func SpendReplica(r *Replica, l *Limit, t *SyncTerms, mono int64) (remaining, reset, more int64) {
	var (
		now, window int64
		state       State
	)
	if !r.has || r.reserved != 0 || mono-r.looked > t.Every+r.slack {
		return -1, 0, 0
	}
	now = mono + r.ahead
	if r.rate != 0 {
		guess(r, l, t, now)
	}
	state = r.state
	if l.IsLog {
		remaining = l.Requests - state.B - 1
		if remaining < 0 || state.A >= BlockMark {
			return -1, 0, 0
		}
		r.state.B = state.B + 1
		r.unsent++
		r.asked = true
		return remaining, l.Period, 0
	}
	remaining, reset, more = Take(l, &state, now)
	if remaining < 0 {
		return -1, 0, 0
	}
	r.state = state
	if l.interval || !l.IsBucket {
		window = windowOf(l, &state, now)
	}
	if r.window != window {
		rollUnsent(r, l, window)
	}
	r.unsent++
	r.asked = true
	return remaining, reset, more
}

// decideReplica decides, and sets next to the state after the request.
func decideReplica(r *Replica, l *Limit, now, cost int64, next *State, d *Decision) {
	if l.IsLog {
		decideByCount(r, l, now, cost, next, d)
		return
	}
	if r.reserved > 0 {
		Decide(l, &r.state, now, cost+r.reserved, next, d)
		if !d.Allowed {
			if d.RetryAfter == Never && cost <= l.Capacity { // once those requests are decided
				d.RetryAfter = 1
			}
			return
		}
	}
	Decide(l, &r.state, now, cost, next, d)
}

// decideByCount is decideReplica for a log.
func decideByCount(r *Replica, l *Limit, now, cost int64, next *State, d *Decision) {
	*next = r.state
	if left := BlockedFor(&r.state, now); left > 0 {
		DecideBlocked(l, left, cost, d)
		return
	}
	room := l.Requests - r.state.B - r.reserved
	since := AtLeast(now-r.synced, 0)
	*d = Decision{Limit: l.Quota, Allowed: cost <= room || cost == 0}
	if d.Allowed {
		next.B += cost
		room -= cost
	} else {
		d.RetryAfter = Never
		if cost <= l.Requests {
			d.RetryAfter = l.Period // all units have come since the last call
			if r.free > 0 {
				d.RetryAfter = AtLeast(r.free-since, 1)
			}
		}
	}
	d.Remaining = AtLeast(room, 0)
	d.ResetAfter = AtLeast(r.reset-since, 0)
	if d.Allowed && cost > 0 || r.unsent > 0 {
		d.ResetAfter = l.Period
	}
}

// windowOf returns the start of the window that a state is in, for limits whose units belong to windows; otherwise 0.
func windowOf(l *Limit, s *State, now int64) int64 {
	switch {
	case l.Algorithm == FixedWindow || l.Algorithm == SlidingWindowCounter:
		return s.A
	case l.interval:
		return now - now%l.Period
	}
	return 0
}

// rollUnsent takes note that a window has begun. Units of a fixed window that has ended make no difference any more, and neither do those of a bucket that
// is full after each interval.
func rollUnsent(r *Replica, l *Limit, window int64) {
	if r.window == window {
		return
	}
	units := r.unsent
	follows := window == r.window+l.Period
	r.window = window
	r.late = 0
	if l.interval && l.Capacity > l.Requests {
		return
	}
	r.unsent = 0
	if l.Algorithm == SlidingWindowCounter && follows {
		r.late = units
	}
}

// guess charges what others have probably been admitted since the store was asked, and what they had not yet sent then: on average, half of what they admit
// in an interval. It charges no more than is left, and nothing that is small beside the limit.
func guess(r *Replica, l *Limit, t *SyncTerms, now int64) {
	if r.rate == 0 {
		return
	}
	due := int64(r.rate * float64(now-r.synced+t.Every/2))
	units := due - r.guessed
	if units <= 0 || units*256 < l.Quota {
		return
	}
	r.guessed = due
	var next State
	var d Decision
	decideReplica(r, l, now, 0, &next, &d)
	r.state = chargeReplica(l, r.state, now, AtMost(units, d.Remaining))
}

// chargeReplica returns a state with so many units more.
func chargeReplica(l *Limit, s State, now, units int64) State {
	if units <= 0 || BlockedFor(&s, now) > 0 {
		return s
	}
	if l.IsLog {
		s.B = AtMost(s.B+units, MostCounted)
		return s
	}
	Charge(l, &s, now, units, &s)
	return s
}

// ReserveInReplica reserves units for a request that the replica allows, while other rules decide on it.
func ReserveInReplica(r *Replica, units int64) { r.reserved += units }

// SettleInReplica ends a reservation: the units are charged, or given back.
func SettleInReplica(r *Replica, l *Limit, t *SyncTerms, units, mono int64, keep bool, d *Decision) {
	r.reserved -= units
	DecideByReplica(r, l, t, units, mono, keep, d)
}

// TouchReplica notes that a request has come, so that the replica is synchronised.
func TouchReplica(r *Replica) { r.asked = true }

// ReplicaDue reports whether a replica is to be synchronised: a request has come since, or there are units to send.
func ReplicaDue(r *Replica) bool { return r.asked || r.unsent+r.late > 0 }

// BeginSync makes a call that sends what is unsent. It returns false if one is under way. Units that the limit has forgotten by now are not sent.
func BeginSync(r *Replica, l *Limit, t *SyncTerms, mono int64, c *ReplicaCall) bool {
	if r.sent != 0 {
		return false
	}
	now := mono + r.ahead
	if !l.IsLog {
		var next State
		var d Decision
		Decide(l, &r.state, now, 0, &next, &d)
		rollUnsent(r, l, windowOf(l, &next, now))
	}
	if r.has && mono-r.looked > 2*t.Whole {
		r.unsent = 0
		r.late = 0
	}
	*c = ReplicaCall{Units: r.unsent, Late: r.late, syncs: true, sent: mono}
	r.sent = r.unsent + r.late + 1 // 1 says that a call is under way
	r.unsent = 0
	r.late = 0
	r.asked = false
	return true
}

// BeginLook makes a call that brings the state and sends nothing.
func BeginLook(mono int64, c *ReplicaCall) { *c = ReplicaCall{sent: mono} }

// EndReplicaCall takes over the answer to a call. An answer that is older than another is only noted.
func EndReplicaCall(r *Replica, l *Limit, t *SyncTerms, c *ReplicaCall, a *ReplicaState, mono int64) {
	if c.syncs {
		r.sent = 0
	}
	if back := r.synced - a.Now; r.has && back > 0 && back <= r.slack { // further back, it is the store's clock
		return
	}
	s := stateOf(l, a)
	if l.IsLog {
		r.free = a.B
		r.reset = a.Reset
	}
	learn(r, l, t, &s, a.Now, c.Units+c.Late+c.Own)
	r.known = s
	r.has = true
	r.synced = a.Now
	r.looked = c.sent
	r.slack = AtLeast(2*(mono-c.sent), t.Slack)
	r.ahead = a.Now - (c.sent+mono)/2
	r.guessed = 0
	since := r.unsent + r.late
	if r.sent > 0 { // perhaps executed after this call
		since += r.sent - 1
	}
	r.state = chargeReplica(l, s, a.Now, since)
}

// learn sets the rate of the others' charges from the store's state at that time and the one before, if own is what this node was charged between them. A
// difference of one unit may be due to rounding.
func learn(r *Replica, l *Limit, t *SyncTerms, s *State, now, own int64) {
	since := AtMost(now-r.synced, t.Whole)
	if !r.has || since < t.Every/4 {
		return
	}
	left := leftIn(l, s, now)
	others := leftIn(l, &r.known, now) - left - own
	if window := windowOf(l, s, now); l.Algorithm == FixedWindow && window > r.synced { // it has begun since
		since = now - window
		if since < t.Every/4 {
			return
		}
	}
	rate := float64(AtLeast(others-1, 0)) / float64(since)
	switch {
	case left*50 > l.Quota:
		r.rate += (rate - r.rate) / 2
	case rate > r.rate:
		r.rate = rate
	}
}

// leftIn returns how many units a state leaves at that time.
func leftIn(l *Limit, s *State, now int64) int64 {
	if l.IsLog {
		return AtLeast(l.Requests-s.B, 0)
	}
	var next State
	var d Decision
	Decide(l, s, now, 0, &next, &d)
	return d.Remaining
}

// stateOf returns the state of an answer.
func stateOf(l *Limit, a *ReplicaState) State {
	if a.Blocked > 0 {
		return BlockState(a.Now, a.Blocked)
	}
	switch {
	case l.IsLog:
		return State{B: a.A}
	case l.IsBucket:
		var s State
		hi, lo := addUnits(l, 0, uint64(a.C), a.B)
		setLevel(&s, a.A, hi, lo)
		return s
	case l.Algorithm == SlidingWindowCounter:
		return State{A: a.A, B: a.B<<32 | a.C}
	}
	return State{A: a.A, B: a.B}
}

// LoseSync takes note that a call was not answered. Nobody knows whether the store has charged what was sent, so it is lost, unless the call certainly was not
// executed: then it is sent again. Until the next answer the replica counts it in any case.
func LoseSync(r *Replica, c *ReplicaCall, executed bool) {
	if !c.syncs {
		return
	}
	r.sent = 0
	r.asked = true
	if !executed {
		r.unsent += c.Units
		r.late += c.Late
	}
}
