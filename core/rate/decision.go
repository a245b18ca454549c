package rate

// Never is the RetryAfter of a request that the rule can never allow: it costs more than the limit can ever hold.
const Never int64 = -1

// Decision is what one rule decides on one request. Times are microseconds from now.
type Decision struct {
	Allowed    bool
	Soft       bool  // it is allowed by tolerance, though it exceeds the limit
	Penalty    bool  // it is rejected, and is the offence that blocks the key from now on
	Limit      int64 // the quota: a bucket's burst, else the requests per period
	Remaining  int64 // the units left, never below 0
	RetryAfter int64 // when the same request would be allowed: 0 if it is, Never if it cannot be
	ResetAfter int64 // when the quota is whole again, without further requests
	MoreAfter  int64 // of an allowed request: when more than Remaining is left, without further requests; 0: nothing is used, or it is not known
	Delay      int64 // how long an allowed request waits before it departs
}

// State is what a store keeps of a key for the algorithms of constant size: two words, whose meaning depends on the algorithm.
// The zero State is that of a key that was never seen. It holds what was used and when, never what is left, so that a limit can
// change under it.
type State struct {
	A, B int64
}

// MostCounted is the most that a window's count can be: four times the largest limit.
const MostCounted = 1<<32 - 1

// Blocked turns a decision into one on a key that is blocked for that much longer. If the limit makes it wait longer than that,
// RetryAfter stays.
func (d *Decision) Blocked(wait int64) {
	if d.Allowed {
		d.RetryAfter = 0
	}
	d.Allowed = false
	d.Soft = false
	d.Delay = 0
	d.Remaining = 0
	d.MoreAfter = 0
	if d.RetryAfter != Never && d.RetryAfter < wait {
		d.RetryAfter = wait
	}
	if d.ResetAfter < wait {
		d.ResetAfter = wait
	}
}
