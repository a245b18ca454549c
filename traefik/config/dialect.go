package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
)

// isDialect reports whether a middleware is configured in the words of Traefik's RateLimit.
func isDialect(c *Config) bool {
	return c.Average != "" || c.Period != "" || c.SourceCriterion != nil || c.Redis != nil
}

// dialectRule reads the words of Traefik's RateLimit into a rule: a token bucket that holds burst and is refilled with average a
// period.
func dialectRule(c *Config, criterion *SourceCriterion) (*Rule, error) {
	if c.Limit != "" {
		return nil, fmt.Errorf("limit %q and %s are mutually exclusive: %[2]s is of Traefik's rateLimit; remove one", c.Limit, firstOfDialect(c))
	}
	if c.Algorithm != "" && c.Algorithm != "token_bucket" {
		return nil, fmt.Errorf("algorithm %q: beside average it can only be token_bucket; write limit instead of average", c.Algorithm)
	}
	r := c.Rule
	if err := setCriterion(&r, criterion, c.SourceCriterion != nil); err != nil {
		return nil, err
	}
	var in ruleset.Settings
	average := in.Number("average", c.Average, 0, rate.MaxRequests, 0)
	if in.Err != nil {
		return nil, in.Err
	}
	period, err := dialectPeriod(c.Period)
	if err != nil {
		return nil, err
	}
	if average == 0 && strings.TrimSpace(r.Concurrency) != "" { // which is then the rule's only limit
		return &r, nil
	}
	burst := in.Number("burst", r.Burst, 0, rate.MaxRequests, 1)
	if in.Err != nil {
		return nil, in.Err
	}
	if burst == 0 { // as Traefik has it
		burst = 1
	}
	r.Limit = fmt.Sprintf("%d/%s", average, period)
	r.Algorithm = "token_bucket"
	r.Burst = strconv.FormatInt(burst, 10)
	if average == 0 {
		r.Limit = ruleset.Unlimited
		if r.Tiers == nil && r.Overrides == nil { // Traefik allows a burst without an average, where it has no effect
			r.Algorithm = ""
			r.Burst = ""
		}
	}
	return &r, nil
}

// dialectPeriod reads a period as Traefik does: a bare number is seconds, and nothing or 0 is one of them.
func dialectPeriod(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return time.Second, nil
	}
	unit := ""
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		unit = "s"
	}
	d, err := time.ParseDuration(text + unit)
	if err == nil && d == 0 {
		return time.Second, nil
	}
	if err != nil || d < rate.MinPeriod || d > rate.MaxPeriod {
		return 0, fmt.Errorf("period %q: must be a duration from 1ms to 366d, such as 1s or 1m, or a number of seconds", text)
	}
	return d, nil
}

// setCriterion reads the sourceCriterion into the rule's key.
func setCriterion(r *Rule, s *SourceCriterion, present bool) error {
	if !present {
		return nil
	}
	var in ruleset.Settings
	host := in.Truth("requestHost", s.RequestHost)
	if in.Err != nil {
		return fmt.Errorf("sourceCriterion: %w", in.Err)
	}
	if len(r.Key) > 0 {
		return fmt.Errorf("key %q and sourceCriterion are mutually exclusive: they are two ways to write the same; remove one", strings.Join(r.Key, ","))
	}
	said := make([]string, 0, 3)
	if s.IPStrategy != nil {
		said = append(said, "ipStrategy")
		r.Key = []string{"client_ip"}
	}
	if s.RequestHeaderName != "" {
		said = append(said, "requestHeaderName")
		r.Key = []string{"header:" + s.RequestHeaderName}
	}
	if host {
		said = append(said, "requestHost")
		r.Key = []string{"host"}
	}
	if len(said) > 1 {
		return fmt.Errorf("sourceCriterion: %s and %s are mutually exclusive: remove one", said[0], said[1])
	}
	return nil
}

// firstOfDialect returns the first word of Traefik's RateLimit that is set.
func firstOfDialect(c *Config) string {
	if c.Average != "" {
		return "average"
	}
	if c.Period != "" {
		return "period"
	}
	if c.SourceCriterion != nil {
		return "sourceCriterion"
	}
	return "redis"
}
