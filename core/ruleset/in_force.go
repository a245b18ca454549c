package ruleset

import (
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// origin is what the limits of a rule were made of.
type origin struct {
	config core.RuleConfig
	more   core.MoreLimits
	common rate.LimitConfig // what all limits have in common
}

func originOf(r *Rule) *origin { return r.made.(*origin) }

// inForce is what of a rule's limits is not as it is configured.
type inForce struct {
	own  *rate.Limit       // that advice has put in force; nil: the configured one
	keys map[string]string // the limits of exceptions, by key
}

// PutOwn puts another own limit of a rule in force; nil: the configured one. Exceptions stay.
func PutOwn(r *Rule, l *core.Limiter, own *rate.Limit) error {
	return alter(r, l, func(to *inForce) { to.own = own })
}

// PutExceptions gives single keys of a rule other limits, as NewException reads them, and no others. They hold at once: the keys need pass no limit before.
// It leaves out those that NewException refuses.
func PutExceptions(r *Rule, l *core.Limiter, keys map[string]string) error {
	return alter(r, l, func(to *inForce) { to.keys = keys })
}

func alter(r *Rule, l *core.Limiter, change func(to *inForce)) error {
	return r.Active.Alter(l, func(kept interface{}) (interface{}, *core.Limits, error) {
		to := &inForce{}
		if kept != nil {
			*to = *kept.(*inForce)
		}
		change(to)
		if to.own == nil && len(to.keys) == 0 {
			return to, r.Limits, nil
		}
		config := originOf(r).config
		config.Name = r.Name
		if to.own != nil {
			config.Limit = to.own
		}
		more := originOf(r).more
		more.Exceptions = make(map[string]*rate.Limit, len(to.keys))
		for key, text := range to.keys {
			limit, err := newException(r, config.Limit, key, text)
			if err == nil && divides(r, l, limit) == nil {
				more.Exceptions[key] = limit
			}
		}
		limits, err := core.NewLimits(config, more)
		return to, limits, err
	})
}

// NewException returns the limit of an exception for a key of a rule that counts in a limiter: "500/1m", or "+1000", which is that much more than the key has.
// The error says why it cannot be.
func NewException(r *Rule, l *core.Limiter, key, text string) (*rate.Limit, error) {
	var none *rate.Limit
	limit, err := newException(r, originOf(r).config.Limit, key, text)
	if err != nil {
		return none, err
	}
	config := originOf(r).config
	config.Limit = limit
	config.Name = r.Name
	if _, err = core.NewRule(config); err != nil {
		return none, inRule(err).Within("limit", strconv.Quote(text))
	}
	if err = divides(r, l, limit); err != nil {
		return none, words.Of(err).Within("limit", strconv.Quote(text))
	}
	if r.CostFrom == nil && r.Cost > limit.Capacity {
		return none, words.Wrong("limit", strconv.Quote(text), "can never hold what a request costs, %d", r.Cost)
	}
	return limit, nil
}

// divides says why regions cannot divide a limit, if they divide that of the rule.
func divides(r *Rule, l *core.Limiter, limit *rate.Limit) error {
	config := originOf(r).config
	if !config.RegionsLease {
		return nil
	}
	config.Limit = limit
	config.Name = r.Name
	rule, err := core.NewRule(config)
	if err == nil {
		err = l.Fits(rule)
	}
	return err
}

func newException(r *Rule, own *rate.Limit, key, text string) (*rate.Limit, error) {
	var none *rate.Limit
	if len(r.Limits.Rules()) == 0 {
		return none, words.Wrong("limit", strconv.Quote(text), "the rule has no limit at all, and so counts nothing; write one into the configuration, if it is a high one")
	}
	if l := originOf(r).config.Limit; l != nil && l.InFlight {
		return none, words.Wrong("limit", strconv.Quote(text), "the rule limits how many requests are in flight, and nothing else")
	}
	if text == Unlimited {
		return none, words.Wrong("limit", strconv.Quote(text), "is not available for a single key; write a large limit such as 1000000/1m, or, for addresses, except_ips in the rule file, which needs no reload")
	}
	if !strings.HasPrefix(text, "+") {
		c := originOf(r).common
		if err := rate.ParseLimit(text, &c); err != nil {
			return none, err
		}
		if c.Calendar == rate.Epoch {
			c.Location = nil
		}
		limit, err := rate.NewLimit(c)
		if err != nil {
			return none, words.Of(err).Within("limit", strconv.Quote(text))
		}
		return limit, nil
	}
	units, err := words.ParseCount(text[1:], rate.MaxRequests)
	if err != nil {
		return none, words.Wrong("limit", strconv.Quote(text), "must be + and a whole number from 1 to %d", rate.MaxRequests)
	}
	if configured, ok := originOf(r).more.Overrides[key]; ok {
		own = configured
	} else if len(originOf(r).more.Tiers) > 0 {
		return none, words.Wrong("limit", strconv.Quote(text), "the rule's tiers say how much the key has, each something else; write a whole limit, such as 500/1m")
	}
	if own == nil {
		return none, words.Wrong("limit", strconv.Quote(text), "the key is unlimited, and there is nothing to add to")
	}
	limit, err := own.More(units)
	if err != nil {
		return none, words.Of(err).Within("limit", strconv.Quote(text))
	}
	return limit, nil
}

// ZoneOfTime returns the time zone in which a rule's days begin; UTC unless it sets one.
func ZoneOfTime(r *Rule) *time.Location {
	if originOf(r).common.Location == nil {
		return time.UTC
	}
	return originOf(r).common.Location
}
