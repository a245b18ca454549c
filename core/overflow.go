package core

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// Bounds of an overflow policy.
const (
	MaxSoftPercent    = 1000 // in percent: eleven times the limit
	MaxPenalties      = 16
	DefaultMaxWaiting = 1000      // how many requests of a rule may wait at a time
	MaxMaxWaiting     = 1_000_000 // the proxy keeps each of them open
)

// OverflowPolicy is what a rule does past its limit besides rejecting, and which requests it counts. With the zero value it only
// rejects, and counts all.
type OverflowPolicy struct {
	// SoftPercent is how many percent more than the limit the rule tolerates, 1 to MaxSoftPercent; 0: none. Tolerance begins with
	// the first request that exceeds the limit, and lasts for SoftFor. It is available again when no request would have exceeded
	// the limit for a whole period.
	SoftPercent int64
	SoftFor     time.Duration // 1 ms to 366 days, whole microseconds

	// MaxWaiting is how many requests of the rule may wait at a time in one process, if the limit Delays; 0 means
	// DefaultMaxWaiting.
	MaxWaiting int64

	// MaxWaitingPerKey is how many of these one key may have, 1 to MaxWaiting. 0 means a quarter of the places that are left, but
	// at least one; so a single key gets at most a fifth of all places.
	MaxWaitingPerKey int64

	// OneKey says that all requests have the same key. It may then take all places, unless MaxWaitingPerKey says less.
	OneKey bool

	// Count says which responses' requests stay charged; nil: all. A request reserves its charge, and
	// Limiter.Finish charges it or gives it back.
	Count *Counted

	// CountsSome says that only some of the requests are charged: those whose Check does not have the cost Spared. They reserve their charge, as with
	// Count. A spared request passes if anything is left.
	CountsSome bool

	// Response says where responses say what their requests have cost; nil: they do not. A request that passes reserves its cost, and
	// Limiter.Finish charges it what the response says. What goes beyond the limit is owed: see rate.LimitConfig.Owes.
	Response *ResponseCost

	// CostMax is the most that a request is charged by its response, 1 to rate.MaxRequests; 0 means that.
	CostMax int64

	// Penalties are how long a key is blocked when it exceeds the limit: for the first offence, the second and so on; the last is
	// for all further ones. A key whose last penalty ended at least as long ago as the longest penalty lasts starts over with the
	// first. Each is 1 ms to 366 days, in whole microseconds; none: no penalty.
	Penalties []time.Duration
}

// Overflow is the prepared form of an OverflowPolicy. A rule that needs none has nil. Times are in microseconds.
type Overflow struct {
	Wide          *rate.Limit // the limit during tolerance; nil: the rule has no tolerance
	SoftFor       int64
	maxWaiting    int64
	waitingPerKey int64 // the most of maxWaiting for one key; 0: a share of the places that are left
	Count         *Counted
	countsSome    bool
	Response      *ResponseCost
	CostMax       int64
	Penalties     []int64
	Longest       int64 // the longest of penalties
	tracked       bool  // see Rule.TrackReservations
	Candidate     bool  // the rule is decided in place of the rule of the check before it
	text          string
}

// newOverflow checks the overflow policy of a rule and prepares it; nil: the rule only rejects.
func newOverflow(c *RuleConfig) (*Overflow, error) {
	l := c.Limit
	policy := &Overflow{Count: c.OverflowPolicy.Count, countsSome: c.OverflowPolicy.CountsSome, Response: c.OverflowPolicy.Response, CostMax: c.OverflowPolicy.CostMax}
	var text []string
	if c.OverflowPolicy.SoftPercent != 0 || c.OverflowPolicy.SoftFor != 0 {
		if err := policy.setSoft(&c.OverflowPolicy, l); err != nil {
			return nil, err
		}
		text = append(text, fmt.Sprintf("soft %d %s", c.OverflowPolicy.SoftPercent, c.OverflowPolicy.SoftFor))
	}
	if c.OverflowPolicy.MaxWaiting < 0 || c.OverflowPolicy.MaxWaiting > MaxMaxWaiting {
		return nil, words.Wrong("max_waiting", fmt.Sprint(c.OverflowPolicy.MaxWaiting), "must be from 1 to %d", MaxMaxWaiting)
	}
	if c.OverflowPolicy.MaxWaiting != 0 && !l.Delays {
		return nil, words.Wrong("max_waiting", fmt.Sprint(c.OverflowPolicy.MaxWaiting), "requests wait only with `on_limit` delay")
	}
	if c.OverflowPolicy.MaxWaitingPerKey != 0 && !l.Delays {
		return nil, words.Wrong("max_waiting_per_key", fmt.Sprint(c.OverflowPolicy.MaxWaitingPerKey), "requests wait only with `on_limit` delay")
	}
	if l.Delays {
		if err := policy.setWaiting(&c.OverflowPolicy); err != nil {
			return nil, err
		}
		text = append(text, "max_waiting "+strconv.FormatInt(policy.maxWaiting, 10)+" "+strconv.FormatInt(policy.waitingPerKey, 10))
	}
	if policy.Count != nil {
		text = append(text, "count "+policy.Count.String())
	}
	if policy.countsSome {
		text = append(text, "count_match")
	}
	if policy.Response != nil {
		text = append(text, "cost_response "+policy.Response.String(), "cost_max "+strconv.FormatInt(policy.CostMax, 10))
	}
	if policy.CostMax < 0 || policy.CostMax > rate.MaxRequests {
		return nil, words.Wrong("cost_max", fmt.Sprint(policy.CostMax), "must be from 1 to %d", rate.MaxRequests)
	}
	if policy.CostMax != 0 && policy.Response == nil {
		return nil, words.Wrong("cost_max", fmt.Sprint(policy.CostMax), "bounds what responses say that requests cost; write `cost_response`, too, or remove it")
	}
	if policy.CostMax == 0 {
		policy.CostMax = rate.MaxRequests
	}
	if len(c.OverflowPolicy.Penalties) > 0 {
		if err := policy.setPenalties(c.OverflowPolicy.Penalties); err != nil {
			return nil, err
		}
		text = append(text, fmt.Sprint("penalty ", c.OverflowPolicy.Penalties))
	}
	if len(text) == 0 && !l.InFlight {
		return nil, nil
	}
	if err := policy.agree(c); err != nil {
		return nil, err
	}
	policy.text = strings.Join(text, "; ")
	return policy, nil
}

// setWaiting sets how many requests may wait.
func (policy *Overflow) setWaiting(c *OverflowPolicy) error {
	policy.maxWaiting = c.MaxWaiting
	if policy.maxWaiting == 0 {
		policy.maxWaiting = DefaultMaxWaiting
	}
	if c.MaxWaitingPerKey < 0 || c.MaxWaitingPerKey > policy.maxWaiting {
		return words.Wrong("max_waiting_per_key", fmt.Sprint(c.MaxWaitingPerKey), "must be from 1 to %d, the `max_waiting` of all keys together", policy.maxWaiting)
	}
	policy.waitingPerKey = c.MaxWaitingPerKey
	if policy.waitingPerKey == 0 && c.OneKey {
		policy.waitingPerKey = policy.maxWaiting
	}
	return nil
}

// setSoft sets how much tolerance there is, and for how long.
func (policy *Overflow) setSoft(c *OverflowPolicy, l *rate.Limit) error {
	if c.SoftPercent < 1 || c.SoftPercent > MaxSoftPercent {
		return words.Wrong("enforcement", fmt.Sprintf("soft %d", c.SoftPercent), "must be from 1 to %d percent", MaxSoftPercent)
	}
	if c.SoftFor < rate.MinPeriod || c.SoftFor > rate.MaxPeriod || c.SoftFor%time.Microsecond != 0 {
		return words.Wrong("enforcement", fmt.Sprintf("soft %d %s", c.SoftPercent, c.SoftFor), "the duration must be from 1ms to 366d, in whole microseconds")
	}
	wide, err := l.Widen(c.SoftPercent)
	if err != nil {
		return words.Of(err).Within("enforcement", "soft")
	}
	policy.Wide = wide
	policy.SoftFor = int64(c.SoftFor / time.Microsecond)
	return nil
}

// setPenalties sets how long offenders are blocked.
func (policy *Overflow) setPenalties(durations []time.Duration) error {
	if len(durations) > MaxPenalties {
		return words.Wrong("penalty", "", "has %d durations; at most %d are taken", len(durations), MaxPenalties)
	}
	for _, d := range durations {
		if d < rate.MinPeriod || d > rate.MaxPeriod || d%time.Microsecond != 0 {
			return words.Wrong("penalty", d.String(), "must be from 1ms to 366d, in whole microseconds")
		}
		micros := int64(d / time.Microsecond)
		policy.Penalties = append(policy.Penalties, micros)
		if micros > policy.Longest {
			policy.Longest = micros
		}
	}
	return nil
}

// agree returns an error if parts of a rule's overflow policy are mutually exclusive.
func (policy *Overflow) agree(c *RuleConfig) error {
	l := c.Limit
	row := l.Algorithm.Row()
	atEnd := c.OverflowPolicy.atEnd()
	switch {
	case l.InFlight && policy.Response != nil:
		return words.Wrong("cost_response", "", "there is no limit to charge; write one, or remove it")
	case l.InFlight && (policy.Wide != nil || policy.Count != nil || policy.countsSome || len(policy.Penalties) > 0 || c.CountRejected):
		return words.Wrong("concurrency", "", "without a limit, it excludes enforcement soft, count, penalty and `count_rejected`; write a limit, or remove them")
	case c.Shadow && policy.Wide != nil:
		return words.Wrong("enforcement", "soft", " and enforcement shadow are mutually exclusive: remove one")
	case c.Shadow && len(policy.Penalties) > 0:
		return words.Wrong("penalty", "", " and enforcement shadow are mutually exclusive: a shadow blocks nobody; remove one")
	case c.Shadow && l.Delays && row.IsLog:
		return words.Wrong("on_limit", "delay", " and enforcement shadow are mutually exclusive with %s, which needs requests that wait to keep their places; choose token_bucket or fixed_window", row.Name)
	case c.Shadow && (c.OverflowPolicy.MaxWaiting != 0 || c.OverflowPolicy.MaxWaitingPerKey != 0):
		return words.Wrong("max_waiting", "", " and enforcement shadow are mutually exclusive: a shadow makes nobody wait; remove one")
	case l.Delays && policy.Wide != nil:
		return words.Wrong("on_limit", "delay", " and enforcement soft are mutually exclusive: past the limit, requests wait or pass; remove one")
	case l.Delays && atEnd != "":
		return words.Wrong("on_limit", "delay", " and "+atEnd+" are mutually exclusive: what a request is charged is known too late to say when the next may leave; remove one")
	case l.Delays && c.CountRejected:
		return words.Wrong("on_limit", "delay", " and `count_rejected` are mutually exclusive: a rejected request has no place in the queue; remove one")
	case atEnd != "" && policy.Wide != nil:
		return words.Wrong(atEnd, "", " and enforcement soft are mutually exclusive: remove one")
	case atEnd != "" && c.CountRejected:
		return words.Wrong(atEnd, "", " and `count_rejected` are mutually exclusive: a rejected request has no response to count by; remove one")
	case policy.Count != nil && !row.CanCountByStatus:
		return words.Wrong("count", "", "%s reserves each request's departure on arrival, before its status is known; choose another algorithm", row.Name)
	case policy.Wide != nil && !row.CanSoften:
		return words.Wrong("enforcement", "soft", "%s makes requests wait; write a larger burst, or choose another algorithm", row.Name)
	case policy.countsSome && !row.CanCountByStatus:
		return words.Wrong("count_match", "", "%s has each request wait for its turn, which one that is not counted does not have; choose another algorithm", row.Name)
	case c.Blocks:
		return words.Wrong("", "", "a rule that rejects every request: enforcement soft, `on_limit` delay, count and penalty have no effect")
	}
	return nil
}

// atEnd returns the setting by which requests are charged when their responses have ended; "": they are charged on arrival.
func (p *OverflowPolicy) atEnd() string {
	switch {
	case p.Response != nil:
		return "cost_response"
	case p.Count != nil:
		return "count"
	case p.CountsSome:
		return "count_match"
	}
	return ""
}

// atEnd reports whether requests reserve their cost on arrival, and are charged when their responses have ended.
func (policy *Overflow) atEnd() bool {
	return policy != nil && (policy.Count != nil || policy.countsSome || policy.Response != nil)
}

// counted says which responses count; nil: all.
func (policy *Overflow) counted() *Counted {
	if policy == nil {
		var all *Counted
		return all
	}
	return policy.Count
}

// sharedBy returns the overflow policy for a rule that has one node's share of the limit.
func (policy *Overflow) sharedBy(nodes float64) *Overflow {
	if policy == nil {
		return nil
	}
	share := *policy
	if policy.Wide != nil {
		share.Wide = policy.Wide.Share(nodes)
	}
	return &share
}
