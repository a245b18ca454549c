package ruleset

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// Adapt says how far advice may move a rule's own limit. Its numbers are requests in the limit's period.
type Adapt struct {
	Floor, Ceiling int64 // the rule's own limit is not below the one, and not above the other

	StepPercent int64 // how far the limit moves at once, in per cent of what it is: 1 to 100
	StepEvery   int64 // how long it stays then, in microseconds

	Algorithms []rate.Algorithm // those that it may have: its own, and others; by their words

	config core.RuleConfig
	more   core.MoreLimits
	common rate.LimitConfig // of the rule's own limit
}

const (
	// DefaultStepPercent and DefaultStepEvery are the step of a rule that sets none: 25% 30s.
	DefaultStepPercent = 25
	DefaultStepEvery   = 30_000_000

	defaultStep = "25% 30s"

	leastStep, mostStep = time.Second, time.Hour
)

// burstFor returns the burst of a bucket of so many requests: the configured one, in proportion; at least 1.
func burstFor(a *Adapt, requests int64) int64 {
	own := a.config.Limit
	burst := own.Requests
	if own.IsBucket {
		burst = own.Quota
	}
	burst = burst * requests / own.Requests // at most 10¹⁸
	if burst < 1 {
		return 1
	}
	if burst > rate.MaxRequests {
		return rate.MaxRequests
	}
	return burst
}

// LimitsWith returns a rule's limits with another own limit: of so many requests in the same period, and another algorithm. burst is of buckets
// alone. Tiers and overrides stay as they are.
func LimitsWith(a *Adapt, requests, burst int64, algorithm rate.Algorithm) (*core.Limits, error) {
	var none *core.Limits
	limit, err := Adapted(a, requests, burst, algorithm)
	if err != nil {
		return none, err
	}
	config := a.config
	config.Limit = limit
	return core.NewLimits(config, a.more)
}

// Adapted returns the own limit of LimitsWith.
func Adapted(a *Adapt, requests, burst int64, algorithm rate.Algorithm) (*rate.Limit, error) {
	c := a.common
	c.Requests = requests
	c.Burst = burst
	// What the rule says of its own algorithm does not apply to others.
	c.Algorithm = algorithm
	if algorithm != rate.TokenBucket {
		c.Interval = false
	}
	if algorithm.Named() != rate.SlidingWindowCounter {
		c.Segments = 0
	}
	if !algorithm.HasWindows() || c.Start == rate.FirstRequest && algorithm != rate.FixedWindow {
		c.Start = rate.ByClock
	}
	if algorithm != rate.LeakyBucket && !c.Delays {
		c.MaxDelay = 0
	}
	if !algorithm.IsBucket() {
		c.Burst = 0
	}
	return rate.NewLimit(c)
}

// setAdapt reads how far advice may move the rule's own limit.
func (c *compiler) setAdapt(config *core.RuleConfig, more core.MoreLimits) {
	written := One(c.text, "adapt")
	if written == nil || c.isAlone() || len(c.errors) > 0 {
		return
	}
	own := config.Limit
	if own == nil {
		c.failAdapt(words.Wrong("", "", "the rule's own limit is unlimited, and has nothing to adapt; write a limit, or leave adapt out"))
		return
	}
	if config.Candidate != nil {
		c.failAdapt(words.Wrong("", "", "is mutually exclusive with candidate, which is compared with one limit; remove one"))
		return
	}
	if len(written.Texts)+len(written.Lists) == 0 {
		c.failAdapt(words.Wrong("", "", "is empty; write floor, ceiling or algorithms"))
		return
	}
	a := &Adapt{Floor: own.Requests, Ceiling: own.Requests, StepPercent: DefaultStepPercent, StepEvery: DefaultStepEvery, config: *config, more: more, common: c.common}
	c.check(rate.ParseLimit(c.ownText(), &a.common)) // which has been read without an error
	c.readBound(written, "floor", a, &a.Floor)
	c.readBound(written, "ceiling", a, &a.Ceiling)
	if a.Floor > own.Requests {
		c.failAdapt(words.Wrong("floor", written.Texts["floor"], "is above the limit, %s", own.String()))
	}
	if a.Ceiling < own.Requests {
		c.failAdapt(words.Wrong("ceiling", written.Texts["ceiling"], "is below the limit, %s", own.String()))
	}
	c.readStep(written, a)
	c.readAlgorithms(written, a)
	if len(c.errors) > 0 {
		return
	}
	a.config.Adapt = fmt.Sprint(a.Floor, a.Ceiling, a.StepPercent, a.StepEvery, a.Algorithms)
	c.checkAdapt(a)
	c.rule.Adapt = a
}

// failAdapt notes an error of adapt, or of a field in it.
func (c *compiler) failAdapt(wrong *words.Mistake, path ...string) {
	c.fail(wrong.Within("adapt", ""), path...)
}

// readBound reads the floor or the ceiling.
func (c *compiler) readBound(o *Object, field string, a *Adapt, bound *int64) {
	text := strings.TrimSpace(o.Texts[field])
	if text == "" {
		return
	}
	read := a.common
	if err := rate.ParseLimit(text, &read); err != nil {
		c.failAdapt(words.Of(err).Within(field, ""), "adapt", field)
		return
	}
	if read.Period != a.common.Period || read.Calendar != a.common.Calendar || read.On != a.common.On {
		c.failAdapt(words.Wrong(field, strconv.Quote(text), "must have the period of the limit, %s", a.config.Limit.String()))
		return
	}
	*bound = read.Requests
}

// ownText returns the text of the rule's own limit, which AnyTier may have.
func (c *compiler) ownText() string {
	if text := strings.TrimSpace(c.text.Texts["limit"]); text != "" {
		return text
	}
	if tiers := One(c.text, "tiers"); tiers != nil {
		for _, tier := range tiers.Pairs["limits"] {
			if tier.Name == AnyTier {
				return strings.TrimSpace(tier.Value)
			}
		}
	}
	return ""
}

// readStep reads how far the limit moves at once, and how long it stays then.
func (c *compiler) readStep(o *Object, a *Adapt) {
	text := o.Texts["step"]
	if text == "" {
		return
	}
	said := strings.Fields(text)
	if len(said) != 2 {
		c.failAdapt(words.Wrong("step", strconv.Quote(text), "takes a percentage and a duration, such as %s", defaultStep))
		return
	}
	percent, err := words.ParseCount(strings.TrimSuffix(said[0], "%"), 100)
	if err != nil {
		c.failAdapt(words.Wrong("step", strconv.Quote(text), "the percentage must be a whole number from 1 to 100, such as 25%%"))
		return
	}
	every, err := rate.ParsePeriod(said[1])
	if err != nil || every < leastStep || every > mostStep {
		c.failAdapt(words.Wrong("step", strconv.Quote(text), "the duration must be from 1s to 1h, such as 30s"))
		return
	}
	a.StepPercent = percent
	a.StepEvery = every.Microseconds()
}

// readAlgorithms reads which algorithms the limit may have.
func (c *compiler) readAlgorithms(o *Object, a *Adapt) {
	own := a.config.Limit.Algorithm
	a.Algorithms = []rate.Algorithm{own}
	for _, word := range SplitWords(o.Lists["algorithms"]) {
		algorithm, err := rate.ParseAlgorithm(word)
		if err != nil {
			c.failAdapt(words.Of(err).Within("algorithms", ""), "adapt", "algorithms")
			continue
		}
		known := false
		for _, other := range a.Algorithms {
			known = known || other == algorithm
		}
		if !known {
			a.Algorithms = append(a.Algorithms, algorithm)
		}
	}
	sort.Slice(a.Algorithms, func(i, j int) bool { return a.Algorithms[i].String() < a.Algorithms[j].String() })
}

// checkAdapt tries what advice may make of the limit.
func (c *compiler) checkAdapt(a *Adapt) {
	for _, algorithm := range a.Algorithms {
		for i, requests := range []int64{a.Floor, a.Ceiling} {
			field := []string{"floor", "ceiling"}[i]
			if algorithm != a.config.Limit.Algorithm {
				field = "algorithms"
			}
			_, err := LimitsWith(a, requests, burstFor(a, requests), algorithm)
			if err != nil {
				c.failAdapt(inRule(err).Within("", fmt.Sprintf("%d requests by %s", requests, algorithm)).Within(field, ""), "adapt", field)
				return
			}
			limit, _ := Adapted(a, requests, burstFor(a, requests), algorithm)
			if c.rule.CostFrom == nil && c.rule.Cost > limit.Capacity {
				c.failAdapt(words.Wrong(field, "", "the cost, %d, is more than %s can ever hold, which is %d", c.rule.Cost, limit.String(), limit.Capacity))
				return
			}
		}
	}
}
