package traefik

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/ruleset"
)

// isDialect reports whether a middleware is configured in the words of Traefik's RateLimit.
func isDialect(c *Config) bool {
	return c.Average != "" || c.Period != "" || c.SourceCriterion != nil || c.Redis != nil
}

// dialectRule reads the words of Traefik's RateLimit into a rule: a token bucket that holds burst and is refilled with average a
// period.
func dialectRule(c *Config, criterion *SourceCriterion) (*Rule, error) {
	if c.Limit != "" {
		return nil, fmt.Errorf("limit %q: stands beside %s, which is of Traefik's rateLimit; they are two ways to write the same, keep one", c.Limit, firstOfDialect(c))
	}
	if c.Algorithm != "" && c.Algorithm != "token_bucket" {
		return nil, fmt.Errorf("algorithm %q: beside average it can only be token_bucket; write limit instead of average", c.Algorithm)
	}
	r := c.Rule
	if err := setCriterion(&r, criterion, c.SourceCriterion != nil); err != nil {
		return nil, err
	}
	average, err := parseNumber("average", c.Average, 0, core.MaxRequests, 0)
	if err != nil {
		return nil, err
	}
	period, err := dialectPeriod(c.Period)
	if err != nil {
		return nil, err
	}
	if average == 0 && strings.TrimSpace(r.Concurrency) != "" { // which is then what the rule has
		return &r, nil
	}
	r.Algorithm = "token_bucket"
	burst, err := parseNumber("burst", r.Burst, 0, core.MaxRequests, 1)
	if err != nil {
		return nil, err
	}
	if burst == 0 { // as Traefik has it
		burst = 1
	}
	r.Burst = strconv.FormatInt(burst, 10)
	r.Limit = fmt.Sprintf("%d/%s", average, period)
	if average == 0 {
		r.Limit = ruleset.Unlimited
	}
	return &r, nil
}

// dialectPeriod reads a period as Traefik does: a bare number is seconds, and nothing or 0 is one of them.
func dialectPeriod(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return time.Second, nil
	}
	wrong := fmt.Errorf("period %q: must be a duration from 1ms to 366d, such as 1s or 1m, or a number of seconds", text)
	d, err := time.ParseDuration(text)
	if seconds, notBare := strconv.ParseInt(text, 10, 64); notBare == nil {
		if seconds < 0 || seconds > int64(core.MaxPeriod/time.Second) {
			return 0, wrong
		}
		d = time.Duration(seconds) * time.Second
		err = nil
	}
	if err != nil {
		return 0, wrong
	}
	if d == 0 {
		return time.Second, nil
	}
	if d < core.MinPeriod || d > core.MaxPeriod {
		return 0, wrong
	}
	return d, nil
}

// setCriterion reads what tells clients apart into the rule's key.
func setCriterion(r *Rule, s *SourceCriterion, present bool) error {
	if !present {
		return nil
	}
	host, err := parseBool("requestHost", s.RequestHost)
	if err != nil {
		return fmt.Errorf("sourceCriterion: %w", err)
	}
	if len(r.Key) > 0 {
		return fmt.Errorf("key %q: stands beside sourceCriterion; they are two ways to write the same, keep one", strings.Join(r.Key, ","))
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
		return fmt.Errorf("sourceCriterion: %s and %s exclude each other; keep one", said[0], said[1])
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
