package guard

import "sync/atomic"

// lately is how long ago a second may have ended that Overloaded and Concentrated tell of, in microseconds. Seconds end when requests come.
const lately = 2 * second

// Overloaded reports whether, in a second that has ended lately, the guard turned requests away that came to its limit, or unusual keys of a rule were
// tightened.
func Overloaded(g *Guard, now int64) bool {
	at := atomic.LoadInt64(&g.strained)
	return at > 0 && now-at <= lately
}

// Concentrated reports whether, in a second that has ended lately, keys that ask for more than 1.25 times the greatest demand that was learnt of the
// rule made more than 5 % of its demand: the condition, besides overload, for tightening them.
func Concentrated(r *Rule, now int64) bool {
	at := atomic.LoadInt64(&r.crowdedAt)
	return at > 0 && now-at <= lately
}
