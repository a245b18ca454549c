package guard

import (
	"math"
	"sync"
	"sync/atomic"
)

const (
	// DefaultWarmUp is the demand, in microseconds of traffic, that a guard learns before it tightens.
	DefaultWarmUp = day

	// A key is unusual that asks for more than this times the greatest demand that was learnt. Such keys are tightened where they make more than
	// this part of the demand.
	unusual, concentrated = 1.25, 0.05

	// The guard turns nobody away for so many seconds before it releases what it has tightened. It then does so by this factor each second.
	calm, releases = 30, 1.25

	// doubted is the weight of a Window in which few keys made an unusual part of the demand: what stays is learnt in the end.
	doubted = 0.01
)

// golden is the fractional part of the golden ratio, times 2 to the power of 64.
const golden uint64 = 0x9e3779b97f4a7c15

// firstBytes is how many buckets there are for the time to the first byte: of 1, 2, 4 ms, and so on.
const firstBytes = 16

// Rule is what a guard knows of the demand of a rule's keys. Track makes it. Its size does not depend on the number of keys.
type Rule struct {
	limit    int64 // what unusual keys get, in thousandths of a request a Window; 0: nothing is tightened; first, as in Guard
	edge     int64 // beyond which a key is unusual, in requests a Window; 0: it is not known
	asked    int64 // requests in this second
	beyond   int64 // those of unusual keys
	most     int64 // the greatest demand of this Window
	requests int64 // of this Window
	refused  int64 // keys with a rejected request in this Window
	tookAll  int64 // what all answers took, in microseconds

	// Of Windows that have ended.
	last        int64 // the Window that the next four are of
	lastKeys    int64
	lastRefused int64
	lastTop     int64 // the part of the demand that the key with the most has, in millionths, and of ten keys
	lastTen     int64
	p90         int64
	p99         int64
	greatest    int64
	crowdedAt   int64 // when the last second ended in which few keys made much of the demand; 0: none did
	learnt      int64

	// What advice says of unusual keys: see Advise.
	advisedUntil, advisedEdge, advisedLimit int64 // the last as limit

	salt      uint64
	exceeding []int64 // keys of this Window that asked for more than each bound
	took      []int64 // answers by the time to their first byte

	mu           sync.Mutex // of the next two: a histogram is of one moment
	past         []int64    // as exceeding, of all Windows that have ended
	pastRequests int64

	// From here on for the one that turns the second.
	window     int64
	history    History
	overloaded bool // in this Window, or something was tightened
	crowded    bool // few keys made much of the demand in it
	calm       float64
}

// Track has a guard learn the demand of a rule, whose name sets its keys apart from those of other rules. Untrack ends that.
func Track(g *Guard, name string) *Rule {
	r := &Rule{
		exceeding: make([]int64, buckets), past: make([]int64, buckets), took: make([]int64, firstBytes+1),
	}
	for i := 0; i < len(name); i++ {
		r.salt = mix(r.salt + uint64(name[i]) + 1)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r.window = windowOf(g.asked)
	g.rules = append(g.rules[:len(g.rules):len(g.rules)], r)
	return r
}

// Untrack ends Track.
func Untrack(g *Guard, r *Rule) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var rest []*Rule
	for _, other := range g.rules {
		if other != r {
			rest = append(rest, other)
		}
	}
	g.rules = rest
}

// Ask counts a request of a key, which is its hash, under a rule. Each request is counted, also one that a limit rejects. It returns false where
// the rule's keys are tightened and this request is over what its key gets: then it must be turned away, and Tighten called.
func Ask(g *Guard, r *Rule, key uint64, now int64) bool { return AskFor(g, r, key, now, 1) }

// AskFor is Ask for a request that stands for so many of its kind: see Gauge. None passes by while keys are tightened.
func AskFor(g *Guard, r *Rule, key uint64, now, many int64) bool {
	if now >= atomic.LoadInt64(&g.next) {
		turnSecond(g, now)
	}
	n, asked := countMany(g.asked, key^g.seed^r.salt, now, uint32(many))
	atomic.AddInt64(&r.asked, many)
	atomic.AddInt64(&r.requests, many)
	first := 0
	if n > many {
		first = bucketOf(n-many-1) + 1
	}
	for last := bucketOf(n - 1); first <= last; first++ {
		atomic.AddInt64(&r.exceeding[first], 1)
	}
	if n > atomic.LoadInt64(&r.most) {
		atomic.StoreInt64(&r.most, n) // of two at a time either may stay: they hardly differ
	}
	limit := int64(0)
	if now < atomic.LoadInt64(&r.advisedUntil) && asked > float64(atomic.LoadInt64(&r.advisedEdge)) {
		limit = atomic.LoadInt64(&r.advisedLimit)
	}
	if edge := atomic.LoadInt64(&r.edge); edge > 0 && asked > float64(edge) {
		atomic.AddInt64(&r.beyond, many)
		if own := atomic.LoadInt64(&r.limit); own > 0 && (limit == 0 || own < limit) {
			limit = own
		}
	}
	if limit == 0 {
		return true
	}
	// The part of the requests is let through that the limit is of what is asked. Multiples of the golden ratio spread them evenly.
	return float64(uint64(n)*golden>>11)/(1<<53) < float64(limit)/1000/asked
}

// Advise limits keys that ask for more than edge requests a Window to so many of them, 0.001 at least, until that time. It is for advice: the guard
// itself finds unusual keys under overload. An edge of 0 ends it.
func Advise(r *Rule, edge int64, limit float64, until int64) {
	if edge <= 0 {
		until = 0
	}
	atomic.StoreInt64(&r.advisedEdge, edge)
	atomic.StoreInt64(&r.advisedLimit, int64(math.Max(1, 1000*limit)))
	atomic.StoreInt64(&r.advisedUntil, until)
}

// Tighten counts a request that is to be turned away for that, once, however many of its rules say so: with a key as Begin has it. It returns false
// in a shadow: then the request goes on to Begin.
func Tighten(g *Guard, key uint64, now int64) bool {
	if atomic.LoadInt64(&g.shadow) != 0 {
		atomic.AddInt64(&g.spTight, 1)
		return false
	}
	atomic.AddInt64(&g.tightened, 1)
	count(g.demand, key^g.seed, now) // Begin does not see it
	return true
}

// Reject counts a request that Ask has counted among those that were rejected, by a limit or by the guard.
func Reject(g *Guard, r *Rule, key uint64, now int64) {
	if n, _ := count(g.refused, key^g.seed^r.salt, now); n == 1 {
		atomic.AddInt64(&r.refused, 1)
	}
}

// Took counts how long the service took to begin an answer to a request under a rule, in microseconds.
func Took(r *Rule, took int64) {
	i := 0
	for edge := int64(1000); i < firstBytes && took > edge; edge *= 2 {
		i++
	}
	atomic.AddInt64(&r.took[i], 1)
	atomic.AddInt64(&r.tookAll, took)
}

// turnRules draws the consequences of a second that ends now for the rules: overloaded says that the guard turned requests away in it, and level is the fair
// share in requests a Window, 0 if there is enough for all. It reports whether any rule's unusual keys are tightened, or limited by advice.
func turnRules(g *Guard, now int64, seconds float64, overloaded bool, level float64) (tight, advised bool) {
	g.mu.Lock()
	rules := g.rules
	g.mu.Unlock()
	window, warmUp := windowOf(g.asked), atomic.LoadInt64(&g.warmUp)
	for _, r := range rules {
		asked, over := atomic.SwapInt64(&r.asked, 0), atomic.SwapInt64(&r.beyond, 0)
		few := float64(over) > concentrated*float64(asked)
		if few {
			r.crowded = true
			atomic.StoreInt64(&r.crowdedAt, now)
		}
		warm := warmUp >= 0 && r.history.Learnt >= warmUp
		limit := float64(atomic.LoadInt64(&r.limit)) / 1000
		switch {
		case !warm:
			limit = 0
		case overloaded && few && level > 0:
			limit = math.Max(level, float64(atomic.LoadInt64(&r.p99)))
			r.calm = 0
		case overloaded:
			r.calm = 0
		case limit > 0:
			r.calm += seconds
			if r.calm > calm {
				limit *= math.Pow(releases, math.Min(seconds, r.calm-calm))
			}
			if r.calm > calm && (over == 0 || limit > float64(bound(buckets-1))) {
				limit = 0
			}
		}
		tight = tight || limit > 0
		advised = advised || now < atomic.LoadInt64(&r.advisedUntil)
		r.overloaded = r.overloaded || overloaded || limit > 0
		atomic.StoreInt64(&r.limit, int64(1000*limit))
		if window != r.window {
			turnWindow(r, window)
		}
	}
	return tight, advised
}

// turnWindow has a rule learn the Window that has ended.
func turnWindow(r *Rule, window int64) {
	ended := make([]int64, buckets)
	for i := range ended {
		ended[i] = atomic.SwapInt64(&r.exceeding[i], 0)
	}
	for i := buckets - 1; i > 0; i-- { // the count of a key passes over some numbers if others move its cells
		if ended[i-1] < ended[i] {
			ended[i-1] = ended[i]
		}
	}
	requests, most := atomic.SwapInt64(&r.requests, 0), atomic.SwapInt64(&r.most, 0)
	r.mu.Lock()
	for i := range ended {
		r.past[i] += ended[i]
	}
	r.pastRequests += requests
	r.mu.Unlock()
	atomic.StoreInt64(&r.last, r.window)
	atomic.StoreInt64(&r.lastKeys, ended[0])
	atomic.StoreInt64(&r.lastRefused, atomic.SwapInt64(&r.refused, 0))
	atomic.StoreInt64(&r.lastTop, partOf(float64(most), requests))
	atomic.StoreInt64(&r.lastTen, partOf(greatestTen(ended, most), requests))
	r.window = window
	if !r.overloaded {
		weight := 1.0
		if r.crowded {
			weight = doubted
		}
		r.history = Learn(r.history, ended, weight)
		greatest := Greatest(r.history)
		atomic.StoreInt64(&r.learnt, r.history.Learnt)
		atomic.StoreInt64(&r.p90, Quantile(r.history, 0.9))
		atomic.StoreInt64(&r.p99, Quantile(r.history, 0.99))
		atomic.StoreInt64(&r.greatest, greatest)
		atomic.StoreInt64(&r.edge, int64(math.Ceil(unusual*float64(greatest))))
	}
	r.overloaded, r.crowded = false, false
}

// partOf returns a part of a number of requests in millionths.
func partOf(n float64, requests int64) int64 {
	if requests <= 0 {
		return 0
	}
	return int64(1e6 * math.Min(1, n/float64(requests)))
}

// greatestTen estimates the demand of the ten keys with the most, of which one has so much.
func greatestTen(exceeding []int64, most int64) float64 {
	sum, left := float64(most), int64(9)
	above := int64(1)
	for i := buckets - 1; i >= 0 && left > 0; i-- {
		n := exceeding[i] - above
		if n <= 0 {
			continue
		}
		above = exceeding[i]
		if n > left {
			n = left
		}
		left -= n
		sum += float64(n) * math.Min(float64(most), float64(1+bound(i)+bound(i+1))/2)
	}
	return sum
}

// RuleState is what a guard knows of a rule.
type RuleState struct {
	Keys    int64   // that asked for anything in the last Window
	Refused int64   // those of them that had a request rejected
	Top     float64 // the part of the demand that the key with the most made in it, from 0 to 1
	Ten     float64 // the same of the ten keys with the most, as an estimate

	Limit    float64 // requests a Window that an unusual key gets; 0: nothing is tightened
	Edge     int64   // requests a Window beyond which a key is unusual; 0: it is not known
	P90      int64   // requests a Window that one key in ten exceeds, over a day; 0: it is not known
	P99      int64   // requests a Window that one key in a hundred exceeds, over a day; 0: it is not known
	Greatest int64   // the greatest number of requests a Window over a day, but for one key in 10,000; 0: it is not known
	Learnt   int64   // microseconds of traffic that these come from

	// Demand is the number of keys, one for each Window that they asked in, that asked for at most 1, 2, 4, ... requests in it: of all Windows that
	// have ended. Asked is the number of all of them, and Requests that of their requests.
	Demand   []int64
	Asked    int64
	Requests int64

	// Took is the number of answers that the service began within 1, 2, 4, ... ms; Answers is that of all, and Time what they took together, in
	// microseconds.
	Took          []int64
	Answers, Time int64
}

// demands is how many bounds RuleState.Demand has.
const demands = 15

// LookAt returns what a guard knows of a rule.
func LookAt(r *Rule, now int64) RuleState {
	var s RuleState
	s.Limit = float64(atomic.LoadInt64(&r.limit)) / 1000
	s.Edge = atomic.LoadInt64(&r.edge)
	s.P90 = atomic.LoadInt64(&r.p90)
	s.P99 = atomic.LoadInt64(&r.p99)
	s.Greatest = atomic.LoadInt64(&r.greatest)
	s.Learnt = atomic.LoadInt64(&r.learnt)
	s.Time = atomic.LoadInt64(&r.tookAll)
	if now/Window-atomic.LoadInt64(&r.last) <= 2 {
		s.Keys = atomic.LoadInt64(&r.lastKeys)
		s.Refused = atomic.LoadInt64(&r.lastRefused)
		s.Top = float64(atomic.LoadInt64(&r.lastTop)) / 1e6
		s.Ten = float64(atomic.LoadInt64(&r.lastTen)) / 1e6
	}
	r.mu.Lock()
	s.Asked = r.past[0]
	s.Requests = r.pastRequests
	most := int64(1)
	for i := 0; i < demands; i++ {
		s.Demand = append(s.Demand, s.Asked-r.past[bucketOf(most)])
		most *= 2
	}
	r.mu.Unlock()
	for i := range r.took {
		s.Answers += atomic.LoadInt64(&r.took[i])
		if i < firstBytes {
			s.Took = append(s.Took, s.Answers)
		}
	}
	return s
}
