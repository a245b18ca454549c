package rate

import "fmt"

// Lease is what one node of a fleet holds of one key's limit: units that it may spend without asking the store, until the lease ends. It is the node's
// part of consistency lease, without any input or output; the store's part is its own (in Redis, a script). NewLease makes it. It is not safe for
// concurrent use. Times are in microseconds: mono is of a clock that never steps back, and wall of the wall clock.
//
// The limit is never exceeded, since the store never counts less than what was admitted. A unit that is lent counts from the grant on, and at least until
// the moment at which the lease has ended for certain. There are two ways. Where all units of a window count alike until it ends (fixed windows, sliding
// window counters, buckets refilled at intervals), the store charges what it lends at once, and a lease ends with its window. Where units cease to count as
// time passes since they were charged (logs, buckets refilled continuously), that would let them cease before they are spent. There the store only holds
// them, and charges them when the node says that it has spent them; or, if it never does, when no lease of that time can last any longer.
//
// How the pieces meet:
//
//	UseLease       each request: spends units that are held, rejects, or says that the store must be asked, and whether for a lease too
//	GrantLease     the store's answer to a call about a lease
//	OrphanLease    there will be no answer
//	ConcludeLease  the store's decision on a request whose units were not held
//	SettleLease    what a request has cost, if that is known only when its response has ended
//	ReturnLease    from time to time: gives back what is left of a lease that is about to end
type Lease struct {
	// These are exported for fast paths, which do the same as spendLease and DecideByLease as long as more than Low are left.
	Left    int64 // units to spend
	Low     int64 // below so many left, more is asked for
	End     int64 // by mono
	Ahead   int64 // how far wall was ahead of mono, at the last look
	Came    int64 // units that requests have asked for since the demand was last estimated
	Free    int64 // units that were left to all nodes, by the last decision
	ResetAt int64 // of the last decision; by mono

	size  int64 // units that the store counts for this lease, spent or not
	mark  int64 // what the store knows the lease by
	begun int64 // when the call that granted it was sent, by mono

	asking bool
	calls  int64 // how many were made
	next   int64 // no call before; by mono
	back   int64 // how long the last calls that were granted nothing made it wait
	last   int64 // units of the last lease
	took   int64 // how long the call for it took

	since    int64   // Came counts from then; by mono
	rate     float64 // units a microsecond
	told     int64   // what the store has been told of the demand
	toldIn   int64   // in which epoch of the store
	retryAt  int64   // when units are free again, by the last decision; by mono
	used     int64   // until then the limit is taken for used up; by mono
	paused   int64   // until then requests are rejected; by mono
	pausedAt int64   // of this cost, or more
}

// LeaseTerms are how a limit is leased. Times are in microseconds.
type LeaseTerms struct {
	Length  int64 // how long a lease lasts at most: 1 s, or a quarter of the time in which the limit is whole again, if that is less
	Pace    int64 // how long a node waits that was granted nothing, at first: 100 ms, or a hundredth of that time
	Longest int64 // how long at last: 500 ms, or a hundredth
	Few     int64 // at most so many units are left to others by a node that waits: a 40th of the limit
	AtOnce  bool  // units come back at the end of a window, not one by one
	Charges bool  // the store charges what it lends at once
	Whole   int64 // in which the limit is whole again, unless the store charges what it lends
	Always  bool  // who comes seldom leases, too: nobody else decides on its requests
}

const (
	leastLeased  = 4       // units; smaller leases cost more than they save
	longestLease = 1000000 // µs
	leasePace    = 100000  // µs
	longestPace  = 500000  // µs
	leastTime    = 1000000 // µs in which a leased limit is whole again
	shortestLook = 1000    // µs, for an estimate of the demand
)

// LongestLease is how long a lease from another region lasts at most, in microseconds.
const LongestLease = 10_000_000

// SteppedClocks is by how much wall and mono may differ from what they did, in microseconds.
const SteppedClocks = 1000

// WholeAfter returns after how many microseconds without a request a limit that is used up is whole again.
func WholeAfter(l *Limit) int64 {
	if l.IsBucket && l.interval {
		return (l.Capacity + l.Requests - 1) / l.Requests * l.Period
	}
	if l.IsBucket {
		return int64(float64(l.Capacity) * float64(l.Period) / float64(l.Requests))
	}
	return l.Period
}

// LeaseTermsOf returns the terms on which a limit is leased. The error says why it cannot be.
func LeaseTermsOf(l *Limit) (LeaseTerms, error) {
	t, err := leaseTermsFor(l, longestLease)
	return t, err
}

// RegionLeaseTermsOf returns the terms on which a limit is leased from another region.
func RegionLeaseTermsOf(l *Limit) (LeaseTerms, error) {
	t, err := leaseTermsFor(l, LongestLease)
	t.Always = true
	return t, err
}

func leaseTermsFor(l *Limit, longest int64) (LeaseTerms, error) {
	var t LeaseTerms
	whole := WholeAfter(l)
	if whole < leastTime {
		return t, fmt.Errorf("the limit %s is whole again after %s, and a lease would be over at once; it must take a second or more: choose a longer period, or consistency strict", l, FormatMicroseconds(whole))
	}
	t.Length = AtMost(whole/4, longest)
	t.Pace = AtMost(whole/100, leasePace)
	t.Longest = AtMost(whole/100, longestPace)
	t.Few = l.Quota / 40
	leaseBy(l, &t)
	if t.Length < leastTime/4 {
		return t, fmt.Errorf("a lease of the limit %s would be over after %s; it must last %s or more: choose fewer segments, a longer period, or consistency strict", l.String(), FormatMicroseconds(t.Length), FormatMicroseconds(leastTime/4))
	}
	return t, nil
}

// leaseAtOnce is lease of an algorithm whose units come back when their window ends.
func leaseAtOnce(l *Limit, t *LeaseTerms) {
	t.AtOnce = true
	t.Charges = true
}

// leaseByWindow is lease of one in whose windows all units count alike.
func leaseByWindow(l *Limit, t *LeaseTerms) { t.Charges = true }

// leaseByTime is lease of one whose units cease to count as time passes.
func leaseByTime(l *Limit, t *LeaseTerms) { t.Whole = WholeAfter(l) }

// AtOnce reports whether all units of a limit come back at the same time, when a window ends.
func AtOnce(l *Limit) bool {
	var t LeaseTerms
	if !l.InFlight {
		leaseBy(l, &t)
	}
	return t.AtOnce
}

func AtMost(n, most int64) int64 {
	if n > most {
		return most
	}
	return n
}

// LeaseAsk is a call to the store about a lease, and what the node must remember of it until the answer.
type LeaseAsk struct {
	Mark   int64 // of the lease so far
	Size   int64 // its units
	Spent  int64 // how many of them are spent; less than 0: without a lease, so many that were said to be spent are given back
	Keep   int64 // 1 if the rest stays with the node; 0 if it is given back, before anything is decided or lent
	Want   int64 // units in addition
	Demand int64 // units that the node expects to need in half the length of a lease
	Told   int64 // what it has said of that
	ToldIn int64 // in this epoch of the store

	sent, ahead int64
}

// LeaseGrant is the store's answer to a LeaseAsk.
type LeaseGrant struct {
	Units  int64 // of the lease, with those that were kept
	Life   int64 // how long it lasts from the store's decision, in microseconds
	Mark   int64
	ToldIn int64 // the epoch in which the demand was counted
	Free   int64 // units that are left to all nodes
	Reset  int64 // when the quota is whole again, in microseconds
}

// NewLease returns the lease of a key that was never seen: it has no units.
func NewLease(mono int64) Lease { return Lease{since: mono, last: leastLeased} }

// LeaseStep says what becomes of a request.
type LeaseStep int

// The steps.
const (
	_          LeaseStep = iota
	Held                 // it has its units
	HeldAndAsk           // it has; and the call is to be made, which no request waits for
	Refused              // the limit was used up a moment ago: it is rejected
	Asking               // its units are not held; the call is to be made, together with the decision or beside it
	Missing              // its units are not held: the store decides
)

// UseLease notes the demand of a request of that cost, and says what becomes of it. If fewer units are left than it costs, the call gives them back: so they
// are free for this request, or for another node's.
func UseLease(l *Lease, t *LeaseTerms, cost, mono, wall int64, a *LeaseAsk) LeaseStep {
	if spendLease(l, cost, mono, wall) {
		if l.Left < l.Low && mono >= l.used && askLease(l, t, mono, wall, a) {
			return HeldAndAsk
		}
		return Held
	}
	if mono < l.paused && AtLeast(cost, 1) >= l.pausedAt {
		return Refused
	}
	if l.asking && mono < l.used && l.Free <= t.Few { // the call under way will tell
		return Refused
	}
	if askLease(l, t, mono, wall, a) {
		a.Keep = 0
		a.Want += l.Left
		l.size -= l.Left
		l.Left = 0
		return Asking
	}
	return Missing
}

// LeaseHolds returns how many units are left to spend, and how much longer they may be spent, in microseconds; 0: the lease has ended.
func LeaseHolds(l *Lease, mono, wall int64) (units, lasts int64) {
	end := l.End
	if shift := wall - mono - l.Ahead; shift > SteppedClocks {
		end -= shift
	}
	if mono >= end {
		return 0, 0
	}
	return l.Left, end - mono
}

// PeekLease says what would become of a request, and changes nothing: Held, Refused or Missing.
func PeekLease(l *Lease, cost, mono, wall int64) LeaseStep {
	cost = AtLeast(cost, 1)
	if units, lasts := LeaseHolds(l, mono, wall); lasts > 0 && units >= cost {
		return Held
	}
	if mono < l.paused && cost >= l.pausedAt {
		return Refused
	}
	return Missing
}

// spendLease takes units of the lease for a request, and notes the demand. It returns false if there are too few: for a cost of 0, none.
func spendLease(l *Lease, cost, mono, wall int64) bool {
	l.Came += cost
	if cost == 0 {
		l.Came++ // until it is known what it has cost
	}
	lookAtClocks(l, mono, wall)
	if l.Left < cost || l.Left == 0 || mono >= l.End { // what is left is still to be given back
		return false
	}
	l.Left -= cost
	return true
}

// lookAtClocks takes note if one clock has gone further than the other. If that is the wall clock, mono may have stood still, as it does while a machine is
// suspended. So the lease ends earlier by as much. Whoever has both clocks looks: if the wall clock is then set back, the next look would not see it.
func lookAtClocks(l *Lease, mono, wall int64) {
	shift := wall - mono - l.Ahead
	if shift <= SteppedClocks && shift >= -SteppedClocks {
		return
	}
	l.Ahead += shift
	if shift > 0 {
		l.End -= shift
	}
}

// UnspendLease gives back units that a request does not use, since another rule rejects it. calls is LeaseCalls when it has taken them: if there was a call
// since, the store takes them for spent, and they are lost.
func UnspendLease(l *Lease, cost, calls int64) {
	if l.calls == calls && l.Left+cost <= l.size {
		l.Left += cost
	}
}

// LeaseTaken is what a request under way has taken of a lease, if what it has cost is known only when its response has ended.
type LeaseTaken struct{ cost, mark, calls int64 }

// TakenOfLease returns what a request has taken that was Held just now.
func TakenOfLease(l *Lease, cost int64) LeaseTaken { return LeaseTaken{cost, l.mark, l.calls} }

// SettleLease charges a request so many units in place of those that it has taken. What it has cost beyond them is taken of what the node still holds; beyond
// is what is missing then, which the store must charge. Of what it has cost less nothing is lost: if there was a call since, in which the store was told that it
// is spent, a is the call that gives it back, to be made aside. Where the store has charged units that it lends, those are given back like a lease that was not
// spent. Where it charges them when it is told, it knows by the mark since when it can have charged them, and gives back as many as still count for certain.
func SettleLease(l *Lease, t *LeaseTerms, k *LeaseTaken, units, mono, wall int64, a *LeaseAsk) (beyond int64) {
	l.Came = AtLeast(l.Came+units-AtLeast(k.cost, 1), 0)
	lookAtClocks(l, mono, wall)
	if units >= k.cost {
		beyond = units - k.cost
		if mono < l.End {
			held := AtMost(beyond, l.Left)
			l.Left -= held
			beyond -= held
		}
		return beyond
	}
	back := k.cost - units
	if l.calls == k.calls && l.Left+back <= l.size {
		l.Left += back
	} else if t.Charges {
		*a = LeaseAsk{Mark: k.mark, Size: back}
	} else {
		*a = LeaseAsk{Mark: k.mark, Spent: -back}
	}
	return 0
}

// LeaseCalls returns how many calls were made about a lease.
func LeaseCalls(l *Lease) int64 { return l.calls }

// DecideByLease sets the decision on a request that was Held or Refused. What remains is what is left of the lease, and what the store has last said to be left
// to all nodes.
func DecideByLease(l *Lease, limit *Limit, held bool, mono int64, d *Decision) {
	*d = Decision{Allowed: held, Limit: limit.Quota}
	if l.ResetAt > mono {
		d.ResetAfter = l.ResetAt - mono
	}
	if held {
		d.Remaining = AtMost(l.Left+l.Free, limit.Quota)
		return
	}
	d.RetryAfter = AtLeast(l.paused-mono, 1)
	if l.retryAt > l.paused {
		d.RetryAfter = AtLeast(l.retryAt-mono, 1)
	}
}

// demandOf returns how many units the node is likely to need in half the length of a lease.
func demandOf(l *Lease, t *LeaseTerms, mono int64) int64 {
	elapsed := mono - l.since
	if elapsed > 2*t.Length { // who comes seldom leases nothing
		l.since = mono
		l.Came = 0
		l.rate = 0
		l.last = leastLeased
		return 0
	}
	if elapsed >= shortestLook && l.Came >= leastLeased || elapsed >= t.Length/4 {
		rate := float64(l.Came) / float64(elapsed)
		weight := float64(elapsed)/float64(t.Length) + 0.3
		if weight > 1 || l.rate == 0 {
			weight = 1
		}
		l.rate += weight * (rate - l.rate)
		l.since = mono
		l.Came = 0
	}
	return int64(l.rate * float64(t.Length) / 2)
}

// askLease makes a call to the store. It returns false if there is no reason for one: the demand is too small for a lease, a call is under way, or the last
// was granted nothing a moment ago.
func askLease(l *Lease, t *LeaseTerms, mono, wall int64, a *LeaseAsk) bool {
	if l.asking || mono < l.next {
		return false
	}
	demand := demandOf(l, t, mono)
	if demand < leastLeased && !t.Always {
		return false
	}
	demand = AtLeast(demand, leastLeased)
	beginAsk(l, mono, wall, a)
	a.Keep = 1
	a.Demand = demand
	a.Want = AtMost(demand+int64(l.rate*float64(l.took)), 2*l.last) - l.Left
	if a.Want < leastLeased {
		a.Want = leastLeased
	}
	return true
}

func beginAsk(l *Lease, mono, wall int64, a *LeaseAsk) {
	l.asking = true
	l.calls++
	*a = LeaseAsk{Mark: l.mark, Size: l.size, Spent: l.size - l.Left, Told: l.told, ToldIn: l.toldIn, sent: mono, ahead: wall - mono}
}

// GrantLease takes over the answer to a call, however late it comes. The life of a lease counts from when the call was sent, and is a thousandth shorter,
// since clocks drift. If it has ended already, ReturnLease gives the units back.
func GrantLease(l *Lease, t *LeaseTerms, a *LeaseAsk, g *LeaseGrant, mono int64) {
	since := AtLeast(l.size-l.Left-a.Spent, 0) // units that were spent meanwhile, of the rest
	l.asking = false
	l.mark = g.Mark
	l.size = g.Units
	l.Left = g.Units - since
	if l.Left < 0 { // the rest had ended
		l.Left = 0
	}
	l.begun = a.sent
	l.End = a.sent + g.Life - g.Life/1000 - 1
	l.Ahead = a.ahead
	l.Free = g.Free
	l.ResetAt = mono + g.Reset
	if t.Whole > 0 && g.Reset > t.Whole {
		l.ResetAt = mono + t.Whole
	}
	if a.Want == 0 {
		return
	}
	if l.toldIn != g.ToldIn || l.told < a.Demand {
		l.told = a.Demand
	}
	l.toldIn = g.ToldIn
	more := LeaseGained(a, g)
	l.took = AtMost(mono-a.sent, t.Length/4) // the next call may take as long
	l.Low = AtLeast(l.Left/4, AtMost(int64(2*l.rate*float64(l.took)), l.Left/2))
	l.last = AtLeast(g.Units, leastLeased)
	if more >= a.Want {
		l.back = 0
		l.used = 0
		return
	}
	if more > 0 {
		l.back = t.Pace
	} else {
		l.back = AtMost(AtLeast(2*l.back, t.Pace), t.Longest)
	}
	if more <= 0 || mono < l.used {
		l.next = a.sent + l.back
	}
	if mono < l.used && g.Free <= t.Few { // it still is used up
		l.used = mono + 2*t.Longest
		l.paused = l.next
		l.pausedAt = 1
	}
}

// LeaseGained returns how many units a call has brought in addition to what the node has kept; less than 0 if that had ended.
func LeaseGained(a *LeaseAsk, g *LeaseGrant) int64 { return g.Units - a.Keep*(a.Size-a.Spent) }

func AtLeast(n, least int64) int64 {
	if n < least {
		return least
	}
	return n
}

// ConcludeLease takes note of the store's decision on a request of that cost. If it rejects, and the demand is large, the node does not ask again at once: a
// unit may be free after a moment, but most requests would ask in vain. An admission may be older than the lease, and count units as free that are lent. It
// calls BoundReset.
func ConcludeLease(l *Lease, t *LeaseTerms, cost int64, d *Decision, mono int64) {
	BoundReset(t, d)
	retry := d.RetryAfter
	if retry == Never {
		return
	}
	if d.Allowed {
		if l.Left == 0 {
			l.Free = d.Remaining
			l.ResetAt = mono + d.ResetAfter
		}
		return
	}
	l.Free = d.Remaining
	l.ResetAt = mono + d.ResetAfter
	l.retryAt = mono + retry
	l.used = mono + 2*t.Longest
	if demandOf(l, t, mono) < leastLeased {
		return
	}
	l.back = AtMost(AtLeast(2*l.back, t.Pace), t.Longest)
	wait := l.back // and not retry, if that is longer: other nodes may give units back
	if retry < wait {
		wait = retry
		if !t.AtOnce {
			wait = AtLeast(retry, t.Pace)
		}
	}
	l.paused = mono + wait
	l.pausedAt = cost
	l.next = l.paused
}

// BoundReset corrects when the quota is whole again, in a decision of the store. The store allows for the units that are held to be spent at the last moment.
// But the quota is whole again if nobody comes, and then nobody spends them.
func BoundReset(t *LeaseTerms, d *Decision) {
	if t.Whole > 0 && !d.Soft && !d.Penalty && d.ResetAfter > t.Whole {
		d.ResetAfter = AtLeast(t.Whole, d.RetryAfter) // which is longer if the key is blocked
	}
}

// OrphanLease takes note that there will be no answer to a call. If the store has certainly not carried it out, executed is false, and all is as before. If it
// may have, what was left counts for longer than before, or for as long, so it may be spent until the lease would have ended. But where the store holds what
// it lends, and charges it when it is spent, the store is never told of the lease again: it may know it no more.
func OrphanLease(l *Lease, t *LeaseTerms, a *LeaseAsk, executed bool) {
	l.asking = false
	if executed {
		l.size = l.Left
		if !t.Charges {
			l.mark = 0
		}
	} else if a.Keep == 0 {
		l.size += a.Size - a.Spent
		l.Left += a.Size - a.Spent
	}
}

// ReturnLease makes a call that accounts for a lease, and gives back what is left of it, if three quarters of its time are over. Nothing of it may be spent
// from then on. It returns false if it is too early, or there is no lease.
func ReturnLease(l *Lease, mono, wall int64, a *LeaseAsk) bool {
	lookAtClocks(l, mono, wall)
	if l.size == 0 || l.asking || mono < l.begun+(l.End-l.begun)/4*3 {
		return false
	}
	beginAsk(l, mono, wall, a)
	l.last = AtLeast(a.Spent, leastLeased)
	l.Left = 0
	l.size = 0
	l.mark = 0
	l.asking = false // the answer says nothing
	return true
}

// LeaseHeld reports whether there is a lease to return.
func LeaseHeld(l *Lease) bool { return l.size > 0 }
