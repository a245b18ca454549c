package core

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/proxyweir/weir/core/rate"
)

// Bounds of what the requests of one rule may bring.
const (
	MaxRequested        = 1000 // limits at a time
	MaxRequestedPeriods = 16   // periods, besides the rule's own
	longestRequested    = 64   // bytes of a value
)

// Requested has the limits that requests under a rule bring with them. Each value is a Rule of its own in place of the rule's own limit, as that of a
// tier is; values of one algorithm and period share counters. It is safe for concurrent use once the rule is open.
//
// What a rule knows of values is bounded. A value that is not used for as long as its limit makes a promise makes room for others; nothing is forgotten
// with it that would still count. The first value of each period stays, and with it the counters of the period.
type Requested struct {
	Source string           // what values are read from: rules of one name must agree
	Period string           // of a value without one: that of the rule's own limit
	Common rate.LimitConfig // what all limits of the rule have in common
	Max    *rate.Limit      // what a value is lowered to; nil: nothing
	MaxAs  string           // Max, as it is written

	Counts []int64                 // by RequestedMalformed and so on, by functions of sync/atomic; nil: nobody counts. It is set before the first request
	Report func(value, why string) // is told of a value that is not taken, at most once a minute; nil: nobody is. It is set before the first request

	config  RuleConfig
	next    *Rule // what Rule.previousTo takes; nil: the limits are no previous ones
	mu      sync.RWMutex
	opens   int // how many open rules have it
	limiter *Limiter
	known   map[string]*requestedLimit
	periods map[string]bool // the identities of limits, but for the rule's own
	looked  int64           // the second in which makeRoom looked last
	told    int64           // when Report was called
}

// What becomes of a value that is not taken as it is: the places in Requested.Counts.
const (
	RequestedMalformed = iota // it is no limit, or one that a configuration could not have: the rule's own limit applies
	RequestedAbove            // it is lowered to Requested.Max
	RequestedCrowded          // there are too many others: the rule's own limit applies
	requestedTaken
)

// requestedLimit is the limit of one value.
type requestedLimit struct {
	rule  *Rule // nil: no limit
	used  int64 // when it was used last
	is    int   // what became of the value
	stays bool
	why   string
}

// of returns the rule for a value of a request, or own. It counts what becomes of the value if counts is set.
func (q *Requested) of(own *Rule, value string, counts bool) *Rule {
	if value == "" {
		return own
	}
	q.mu.RLock()
	limiter := q.limiter
	known := q.known[value]
	q.mu.RUnlock()
	if limiter == nil { // late requests find what there was
		if known != nil {
			return known.rule
		}
		return own
	}
	now := limiter.Now()
	if known == nil {
		known = q.open(own, value, now)
	}
	atomic.StoreInt64(&known.used, now)
	if counts && known.is != requestedTaken {
		q.count(value, known, now)
	}
	return known.rule
}

// count counts a value that is not taken as it is.
func (q *Requested) count(value string, known *requestedLimit, now int64) {
	if q.Counts != nil {
		atomic.AddInt64(&q.Counts[known.is], 1)
	}
	told := atomic.LoadInt64(&q.told)
	if q.Report == nil || told != 0 && now-told < 60_000_000 && told-now < 60_000_000 || !atomic.CompareAndSwapInt64(&q.told, told, now) {
		return
	}
	if len(value) > longestRequested {
		value = value[:longestRequested]
	}
	q.Report(value, known.why)
}

// open returns the limit of a value, open if it can be. Its rule is own if it cannot.
func (q *Requested) open(own *Rule, value string, now int64) *requestedLimit {
	made := &requestedLimit{rule: own, is: requestedTaken}
	c := q.config
	err := q.read(value, &c, made)
	if err != nil {
		return notTaken(made, RequestedMalformed, err.Error())
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if known := q.known[value]; known != nil {
		return known
	}
	if q.limiter == nil || len(q.known) >= MaxRequested && !q.makeRoom(now) {
		return notTaken(made, RequestedCrowded, "requests bring more than "+strconv.Itoa(MaxRequested)+" different limits at a time")
	}
	if c.Limit == nil {
		var none *Rule
		made.rule = none
	} else if rule, err := q.rule(own, c, made); err != nil {
		return notTaken(made, RequestedMalformed, err.Error())
	} else if rule == nil {
		return notTaken(made, RequestedCrowded, "requests bring limits of more than "+strconv.Itoa(MaxRequestedPeriods)+" periods")
	} else {
		made.rule = rule
	}
	q.known[string([]byte(value))] = made // and not a part of the request's memory
	return made
}

// notTaken says why a value is not taken.
func notTaken(made *requestedLimit, is int, why string) *requestedLimit {
	made.is = is
	made.why = why
	return made
}

// rule returns the open rule of a limit; nil: there are too many periods.
func (q *Requested) rule(own *Rule, c RuleConfig, made *requestedLimit) (*Rule, error) {
	var none *Rule
	rule, err := NewRule(c)
	if err != nil {
		return none, err
	}
	if q.next != nil {
		rule = rule.previousTo(q.next)
	}
	known := rule.Identity == own.Identity || q.periods[rule.Identity]
	if !known && len(q.periods) >= MaxRequestedPeriods {
		return none, nil
	}
	rules := withUnenforced([]*Rule{rule})
	if _, err = q.limiter.OpenAll(rules); err != nil {
		return none, err
	}
	if !known {
		q.periods[rule.Identity] = true
		made.stays = true
	}
	for _, one := range rules {
		if q.next == nil {
			one.continueFrom(own)
			one.waitIn(own.waitQuota)
		}
	}
	return rule, nil
}

// read reads a value into a configuration. Without a limit and Blocks, there is no limit.
func (q *Requested) read(value string, c *RuleConfig, made *requestedLimit) error {
	text := "a longer text"
	if len(value) <= longestRequested {
		text = strings.TrimSpace(value)
	}
	c.Limit = nil
	if text == "unlimited" {
		if q.Max != nil {
			c.Limit = q.Max
			notTaken(made, RequestedAbove, "it is above max "+q.MaxAs)
		}
		return nil
	}
	if !strings.Contains(text, "/") {
		text += "/" + q.Period
	}
	read := q.Common
	if rest := strings.TrimLeft(text, "0"); len(rest) < len(text) && rest[0] == '/' { // nobody passes
		text = "1" + rest
		c.Blocks = true
		c.CountRejected = false
		c.OverflowPolicy = OverflowPolicy{}
		read.Delays = false
		read.MaxDelay = 0
	}
	if err := rate.ParseLimit(text, &read); err != nil {
		return err
	}
	if read.Calendar == rate.Epoch {
		read.Location = nil
	}
	limit, err := rate.NewLimit(read)
	if err != nil {
		return err
	}
	c.Limit = limit
	if q.Max == nil || c.Blocks {
		return nil
	}
	most := rate.MostWithin(q.Max, limit)
	if limit.Requests <= most {
		return nil
	}
	notTaken(made, RequestedAbove, "it is above max "+q.MaxAs)
	c.Limit = q.Max
	if read.Requests = most; most > 0 {
		c.Limit, err = rate.NewLimit(read)
	}
	return err
}

// makeRoom forgets the limits that need not be known any more, and reports whether there are any. It looks once a second.
func (q *Requested) makeRoom(now int64) bool {
	if now/1_000_000 == q.looked {
		return false
	}
	q.looked = now / 1_000_000
	for value, one := range q.known {
		if one.stays || atomic.LoadInt64(&one.used)+one.memory() >= now {
			continue
		}
		one.release(q.limiter)
		delete(q.known, value)
	}
	return len(q.known) < MaxRequested
}

// memory returns for how long a limit that is not used must still be known, in microseconds.
func (one *requestedLimit) memory() int64 {
	if one.rule == nil {
		return 0
	}
	return one.rule.Promise() + one.rule.Limit.MaxDelay
}

// release releases the limit's rules.
func (one *requestedLimit) release(l *Limiter) {
	if one.rule == nil {
		return
	}
	for _, r := range withUnenforced([]*Rule{one.rule}) {
		l.Release(r)
	}
}

// opened is called when a rule that has q is open in l.
func (q *Requested) opened(l *Limiter) {
	q.mu.Lock()
	if q.opens == 0 {
		q.limiter = l
		q.known = make(map[string]*requestedLimit)
		q.periods = make(map[string]bool)
	}
	q.opens++
	q.mu.Unlock()
}

// released is called when a rule that has q was released.
func (q *Requested) released() {
	q.mu.Lock()
	q.opens--
	if q.opens == 0 {
		for _, one := range q.known {
			one.release(q.limiter)
		}
		q.limiter = nil
	}
	q.mu.Unlock()
}

// values returns the values that are known, and rules their rules.
func (q *Requested) values() (values []string, rules []*Rule) {
	var list []string
	var all []*Rule
	q.mu.RLock()
	for value, one := range q.known {
		list = append(list, value)
		if one.rule != nil {
			all = append(all, withUnenforced([]*Rule{one.rule})...)
		}
	}
	q.mu.RUnlock()
	return list, all
}

// previousTo returns the limits of requests as they are in a transition to next.
func (q *Requested) previousTo(next *Rule) *Requested {
	return &Requested{Source: q.Source, Period: q.Period, Common: q.Common, Max: q.Max, MaxAs: q.MaxAs, config: q.config, next: next}
}

// sameRequested reports whether two rules take limits from requests in the same way. Either may be nil.
func sameRequested(a, b *Requested) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Source == b.Source && a.Period == b.Period && (a.Max == nil) == (b.Max == nil) && (a.Max == nil || a.Max.Same(b.Max))
}
