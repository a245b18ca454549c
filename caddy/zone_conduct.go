package ratelimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/ruleset"
	"github.com/proxyweir/weir/words"
)

// Candidate is a limit that is tried out on the requests of a zone, beside the zone's own: what it would do is counted and
// compared, and changes nothing. It cannot stand beside `tiers`, `overrides`, `count` or `on_limit` `delay`.
type Candidate struct {
	// The limit, such as `100/1m`. Required.
	Limit string `json:"limit,omitempty"`

	// How requests are counted, as the zone's `algorithm`. The default is what the zone says, since mostly the numbers are
	// compared; where the zone says nothing, the default is a zone's.
	Algorithm string `json:"algorithm,omitempty"`

	// How many requests a token bucket holds, or how many may wait in a leaky bucket. The default is the candidate's requests,
	// whatever the zone's `burst` is.
	Burst int64 `json:"burst,omitempty"`

	// How a token bucket is refilled: `continuous`, the default, or `interval`.
	Refill string `json:"refill,omitempty"`

	// The time zone of a calendar period, such as `Europe/Berlin`. The default is UTC.
	TimeZone string `json:"time_zone,omitempty"`
}

var candidateWords = []string{"limit", "algorithm", "burst", "refill", "time_zone"}

// isAlone reports whether the zone limits how many requests are under way, and nothing else.
func (z *Zone) isAlone() bool {
	return z.Concurrency != 0 && !z.hasLimit() && z.Tiers == nil
}

// checkAlone refuses what a zone without a limit cannot have.
func (z *Zone) checkAlone() error {
	for _, field := range []struct {
		what string
		said bool
	}{
		{"overrides", len(z.Overrides) > 0},
		{"time_zone", z.TimeZone != ""},
		{"algorithm", z.Algorithm != ""},
		{"burst", z.Burst != 0},
		{"refill", z.Refill != ""},
		{"cost", z.Cost != ""},
		{"enforcement soft", z.isSoft()},
		{"on_limit delay", z.OnLimit == "delay"},
		{"max_delay", z.MaxDelay != 0},
		{"max_waiting", z.MaxWaiting != 0},
		{"max_waiting_per_key", z.MaxWaitingPerKey != 0},
		{"count", z.Count != nil},
		{"penalty", z.Penalty != nil},
		{"count_rejected", z.CountRejected},
		{"candidate", z.Candidate != nil},
	} {
		if field.said {
			return errors.New(field.what + ": needs a limit, and concurrency is none; write one such as " + limitInJSON + " beside it, or leave it out")
		}
	}
	return nil
}

// checkEffect refuses what would have none, since all of the zone's limits are unlimited.
func (z *Zone) checkEffect() error {
	for _, field := range []struct {
		what string
		said bool
	}{
		{"enforcement soft", z.isSoft()},
		{"on_limit delay", z.OnLimit == "delay"},
		{"max_waiting", z.MaxWaiting != 0},
		{"max_waiting_per_key", z.MaxWaitingPerKey != 0},
		{"count", z.Count != nil},
		{"penalty", z.Penalty != nil},
		{"candidate", z.Candidate != nil},
	} {
		if field.said {
			return fmt.Errorf("%s: has no effect on a zone without any limit; write a limit, or leave it out", field.what)
		}
	}
	if z.Concurrency != 0 {
		return errors.New("concurrency: has no effect beside unlimited, by which no request is counted; leave that out to have concurrency alone")
	}
	return nil
}

func (z *Zone) isSoft() bool {
	var c core.RuleConfig
	return ruleset.SetEnforcement(z.Enforcement, &c) == nil && c.Conduct.SoftPercent > 0
}

// checkEnforcement says what is wrong with the enforcement, which needs no other field to be judged.
func (z *Zone) checkEnforcement() error {
	return ruleset.SetEnforcement(z.Enforcement, new(core.RuleConfig))
}

func (z *Zone) checkOnLimit() error {
	_, err := ruleset.ParseOnLimit(z.OnLimit)
	return err
}

// setConduct reads what the zone does past its limit. own is its limit, nil: there is none; common is what all limits have in common.
func (z *Zone) setConduct(c *core.RuleConfig, own *core.Limit, common core.LimitConfig) (err error) {
	if err := ruleset.SetEnforcement(z.Enforcement, c); err != nil {
		return err
	}
	c.Conduct.MaxWaiting = z.MaxWaiting
	c.Conduct.MaxWaitingPerKey = z.MaxWaitingPerKey
	c.Conduct.OneKey = len(z.key.parts) == 0
	if z.Count != nil {
		if c.Conduct.Count, err = core.ParseStatuses(z.Count); err != nil {
			return err
		}
	}
	if z.Penalty != nil {
		if c.Conduct.Penalties, err = ruleset.ParsePenalties(z.Penalty); err != nil {
			return err
		}
	}
	if z.Candidate != nil {
		if c.Candidate, err = z.candidateLimit(own, common); err != nil {
			return err
		}
	}
	c.Limit = own
	c.Concurrency = z.Concurrency
	if z.isAlone() {
		c.Concurrency = 0
		c.Limit, err = core.NewConcurrency(z.Concurrency)
	}
	return err
}

// candidateLimit makes the limit of the candidate.
func (z *Zone) candidateLimit(own *core.Limit, common core.LimitConfig) (*core.Limit, error) {
	if z.Tiers != nil || len(z.Overrides) > 0 {
		return nil, errors.New("candidate: stands beside tiers or overrides; it can be compared only with one limit, keep one")
	}
	text := &ruleset.Object{Texts: map[string]string{"limit": z.Candidate.Limit, "algorithm": z.Candidate.Algorithm, "refill": z.Candidate.Refill, "time_zone": z.Candidate.TimeZone}}
	if z.Candidate.Burst != 0 {
		text.Texts["burst"] = strconv.FormatInt(z.Candidate.Burst, 10)
	}
	limit, errs := ruleset.NewCandidate(text, common.Algorithm, time.Duration(z.MaxDelay))
	if len(errs) > 0 {
		return nil, errs[0]
	}
	if own != nil && limit.Same(own) {
		return nil, fmt.Errorf("candidate: is the same as the limit, %s, so that it would say nothing; write what is to be tried out, or leave it out", limit)
	}
	if z.cost.number > limit.Capacity() {
		return nil, fmt.Errorf("cost %d: is more than the candidate can ever hold, which is %d, so that it would reject every request", z.cost.number, limit.Capacity())
	}
	return limit, nil
}

// candidate reads the block of a zone's candidate.
func (z *Zone) candidate(d *caddyfile.Dispenser, name string) error {
	if args := d.RemainingArgs(); len(args) > 0 {
		return d.Errf("zone %q: candidate: takes a block with limit %s in it, not a value", name, args[0])
	}
	z.Candidate = &Candidate{}
	where := fmt.Sprintf("zone %q: candidate: ", name)
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		if seen[word] {
			return d.Errf("%s%s is set twice", where, word)
		}
		seen[word] = true
		if !slices.Contains(candidateWords, word) {
			return unknownWord(d, fmt.Sprintf("zone %q: candidate", name), word, candidateWords)
		}
		if err := z.Candidate.subdirective(d, where, word); err != nil {
			return err
		}
	}
	return nil
}

// subdirective reads one line of a candidate's block.
func (c *Candidate) subdirective(d *caddyfile.Dispenser, where, word string) error {
	return oneArg(d, where, func(s string) (err error) {
		switch word {
		case "limit":
			c.Limit = s
			return checkLimit(s)
		case "algorithm":
			c.Algorithm = s
			_, err = core.ParseAlgorithm(s)
		case "burst":
			if c.Burst, err = words.ParseCount(s, core.MaxRequests); err != nil {
				return fmt.Errorf("burst %w", err)
			}
		case "refill":
			c.Refill = s
			err = words.CheckWord("refill", s, []string{"continuous", "interval"})
		case "time_zone":
			c.TimeZone = s
		}
		return err
	})
}

// UnmarshalJSON reads a candidate as strictly as a zone.
func (c *Candidate) UnmarshalJSON(data []byte) error {
	type plain Candidate // without this method
	if err := unmarshalPart("candidate", data, (*plain)(c)); err != nil {
		return err
	}
	if err := refuseZero(data, "burst"); err != nil {
		return &toldError{fmt.Errorf("candidate: %w", err)}
	}
	return nil
}

// Interface guard
var _ json.Unmarshaler = (*Candidate)(nil)
