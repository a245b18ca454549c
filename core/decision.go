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

// mostCounted is the most that a window's count is: four times the largest of limits.
const mostCounted = 1<<32 - 1
