package ruleset

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// SetEnforcement reads an enforcement into a configuration: hard, shadow, soft with a percentage and a duration, such as "soft 20% 30s", or the share of keys
// that are enforced, such as "10%".
// "" is hard. The error begins with the field.
func SetEnforcement(text string, c *core.RuleConfig) error {
	said := strings.Fields(text)
	if len(said) == 1 && strings.HasSuffix(said[0], "%") {
		percent, err := words.ParseCount(strings.TrimSuffix(said[0], "%"), 99)
		if err != nil {
			return words.Wrong("enforcement", strconv.Quote(text), "the share of enforced keys must be from 1%% to 99%%; write hard for all, and shadow for none")
		}
		c.EnforcedPercent = percent
		return nil
	}
	if len(said) == 0 || said[0] != "soft" {
		c.Shadow = text == "shadow"
		return words.CheckWord("enforcement", text, []string{"hard", "shadow", "soft <percent> <duration>", "<percent>%"})
	}
	if len(said) != 3 {
		return words.Wrong("enforcement", strconv.Quote(text), "soft takes a percentage and a duration, such as soft 20%% 30s")
	}
	percent, err := words.ParseCount(strings.TrimSuffix(said[1], "%"), rate.MaxRequests)
	if err != nil || percent > core.MaxSoftPercent {
		return words.Wrong("enforcement", strconv.Quote(text), "the percentage must be a whole number from 1 to %d, such as 20%%", core.MaxSoftPercent)
	}
	duration, err := rate.ParsePeriod(said[2])
	if err != nil {
		return words.Wrong("enforcement", strconv.Quote(text), "the duration must be from 1ms to 366d, in whole microseconds, such as 30s or 1d")
	}
	c.OverflowPolicy.SoftPercent = percent
	c.OverflowPolicy.SoftFor = duration
	return nil
}

// ParsePenalties reads a list of durations, with spaces or commas between them. The error begins with the field. (Whether there are too
// many is checked by core.)
func ParsePenalties(texts []string) ([]time.Duration, error) {
	list := SplitWords(texts)
	if len(list) == 0 {
		return nil, words.Wrong("penalty", "", "names no duration; write how long a key is blocked that exceeds the limit, such as 10m, or 1m 10m 1h")
	}
	durations := make([]time.Duration, 0, len(list))
	for _, word := range list {
		d, err := rate.ParsePeriod(word)
		if err != nil {
			return nil, words.Wrong("penalty", strconv.Quote(word), "must be a duration from 1ms to 366d, in whole microseconds, such as 10m or 1d")
		}
		durations = append(durations, d)
	}
	return durations, nil
}

// SplitWords returns the members of a list. One text may have several, with commas or spaces between them.
func SplitWords(list []string) []string {
	return strings.FieldsFunc(strings.Join(list, ","), isSeparator)
}

func isSeparator(r rune) bool { return r == ',' || r == ' ' || r == '\t' }

// setOverflowPolicy reads the rule's overflow policy, except for the parts that its limits have themselves.
func (c *compiler) setOverflowPolicy(config *core.RuleConfig) {
	t := c.text
	c.check(SetEnforcement(t.Texts["enforcement"], config))
	config.OverflowPolicy.MaxWaiting = c.number("max_waiting", 0)
	config.OverflowPolicy.MaxWaitingPerKey = c.number("max_waiting_per_key", 0)
	config.OverflowPolicy.OneKey = OneKey(c.rule)
	if _, counts := t.Lists["count"]; counts {
		c.setCount(config)
	}
	if list := t.Lists["cost_response"]; len(list) > 0 {
		response, err := core.ParseResponseCost(list)
		if c.check(err) {
			config.OverflowPolicy.Response = response
		}
	}
	config.OverflowPolicy.CostMax = c.number("cost_max", 0)
	config.RespectUpstream = c.duration("respect_upstream")
	c.rule.Respects = config.RespectUpstream != 0
	if _, said := t.Lists["penalty"]; said {
		c.setPenalty(config)
	}
}

// setCount reads which responses' requests stay charged.
func (c *compiler) setCount(config *core.RuleConfig) {
	wrong := len(c.errors)
	for i, text := range c.text.Lists["count"] {
		_, err := core.ParseCounted([]string{text})
		c.check(err, "count", strconv.Itoa(i))
	}
	if len(c.errors) > wrong {
		return
	}
	statuses, err := core.ParseCounted(c.text.Lists["count"])
	if c.check(err) {
		config.OverflowPolicy.Count = statuses
	}
}

// setCounts reads which requests count.
func (c *compiler) setCounts(config *core.RuleConfig) {
	o := One(c.text, "count_match")
	if o == nil {
		return
	}
	config.OverflowPolicy.CountsSome = true
	if c.in.Template != nil && len(o.Lists)+len(o.Pairs) == 0 { // the proxy's own matchers say it
		return
	}
	m := MatchOf(o)
	matcher, err := m.Compile()
	if err == nil && len(o.Lists)+len(o.Pairs) == 0 {
		err = words.Wrong("match", "", "is empty; write what a request that counts has, such as methods: POST, or leave it out")
	}
	if err != nil {
		c.fail(inCounts(words.Of(err)))
		return
	}
	for _, advice := range m.Advice() {
		c.rule.Advice = append(c.rule.Advice, inCounts(advice))
	}
	c.rule.Excepts = c.rule.Excepts || len(o.Lists["except_ips"]) > 0
	c.rule.Counts = func(r *http.Request, path, address string) (bool, error) {
		return match.Covers(matcher, r, path, address), nil
	}
}

// inCounts returns what is wrong with a match as a mistake in count_match.
func inCounts(wrong *words.Mistake) *words.Mistake {
	m := *wrong
	m.At = append([]words.Part{}, m.At...)
	for i := range m.At {
		if m.At[i].Name == "match" {
			m.At[i].Name = "count_match"
		}
	}
	return &m
}

// setPenalty reads how long keys that exceed the limit are blocked.
func (c *compiler) setPenalty(config *core.RuleConfig) {
	if len(c.text.Lists["penalty"]) == 0 {
		_, err := ParsePenalties(c.text.Lists["penalty"])
		c.check(err)
	}
	for i, text := range c.text.Lists["penalty"] {
		durations, err := ParsePenalties([]string{text})
		c.check(err, "penalty", strconv.Itoa(i))
		config.OverflowPolicy.Penalties = append(config.OverflowPolicy.Penalties, durations...)
	}
}

// isAlone reports whether the rule has only a concurrency, and no limit.
func (c *compiler) isAlone() bool {
	t := c.text
	return One(t, "tiers") == nil && strings.TrimSpace(t.Texts["limit"]) == "" && strings.TrimSpace(t.Texts["concurrency"]) != ""
}

// setAlone makes the limit of a rule that has only a concurrency.
func (c *compiler) setAlone(config *core.RuleConfig) {
	c.refuse(withLimit, "needs a limit, and concurrency is none; write one such as `100/1m` beside it, or leave it out")
	limit, err := rate.NewConcurrency(config.Concurrency)
	if err != nil { // it is not a number, which is reported already
		return
	}
	c.limits = append(c.limits, limit)
	config.Limit = limit
	config.Concurrency = 0
}

// checkEffect refuses the settings of limits in a rule without any limit.
func (c *compiler) checkEffect() {
	c.refuse(withAny, "has no effect on a `rule` without any limit; write a limit, or leave it out")
	if strings.TrimSpace(c.text.Texts["concurrency"]) != "" {
		c.fail(words.Wrong("concurrency", "", "has no effect beside unlimited, which counts no request; remove unlimited to have concurrency alone"))
	}
}

// refuse refuses all settings that need a limit which the rule does not have.
func (c *compiler) refuse(lacking need, why string) {
	fields := Schema["rule"]
	for i := range fields {
		f := &fields[i]
		if f.Needs < lacking || !hasValue(c.text, f) {
			continue
		}
		value := ""
		if f.When != "" {
			value = firstWord(c.text.Texts[f.Name])
		}
		c.fail(words.Wrong(f.Name, value, why))
	}
}

// setCandidate reads the limit that is compared with the rule's.
func (c *compiler) setCandidate(config *core.RuleConfig) {
	t := c.text
	written := One(t, "candidate")
	if written == nil || c.isAlone() {
		return
	}
	if One(t, "tiers") != nil || One(t, "limit_from") != nil || len(t.Objects["overrides"]) > 0 {
		c.fail(words.Wrong("candidate", "", " is mutually exclusive with tiers, limit_from and overrides: it can be compared with one limit only; remove one"))
		return
	}
	if c.common.Algorithm == 0 && strings.TrimSpace(t.Texts["algorithm"]) != "" { // which is wrong, and reported already
		return
	}
	limit, errors := newCandidate(written, c.common.Algorithm, c.common.MaxDelay)
	c.errors = append(c.errors, errors...)
	if limit == nil {
		return
	}
	config.Candidate = limit
	if config.Limit != nil && limit.Same(config.Limit) {
		c.fail(words.Wrong("candidate", "", "is the same as the limit, %s, so that it would say nothing; write what is to be tried out, or leave it out", limit.String()))
	}
}

// newCandidate makes the limit of a candidate. algorithm is the rule's, 0 if it sets none; a candidate that sets none has it, too.
// maxDelay is the rule's, 0 if it sets none; a candidate that is a leaky bucket has it, too. The errors begin with candidate.
func newCandidate(o *Object, algorithm rate.Algorithm, maxDelay time.Duration) (*rate.Limit, []*words.Mistake) {
	c := &compiler{text: &RuleText{Object: *o}}
	c.setCommon(algorithm)
	if c.common.Algorithm == rate.LeakyBucket {
		c.common.MaxDelay = maxDelay
	}
	var limit *rate.Limit
	written := strings.TrimSpace(o.Texts["limit"])
	if written == "" {
		c.fail(words.Wrong("limit", "", "is missing; write one such as 100/1m"))
	} else if written == Unlimited {
		c.fail(words.Wrong("limit", strconv.Quote(written), "there would be nothing to compare; write one such as 100/1m"))
	} else if len(c.errors) == 0 {
		limit = c.limit(written, "", "", "limit")
	}
	for i, e := range c.errors {
		c.errors[i] = e.Within("candidate", "")
		c.errors[i].Path = append([]string{"candidate"}, e.Path...)
	}
	return limit, c.errors
}

// inRule returns the mistake of an error of core.NewLimits, without the name of the rule that it is in.
func inRule(err error) *words.Mistake {
	m := *words.Of(err)
	for len(m.At) > 0 && m.At[0].Name == "rule" {
		m.At = m.At[1:]
	}
	return &m
}

// OneKey reports whether a rule's key is the same for all requests.
func OneKey(r *Rule) bool {
	for i := range r.Parts {
		if !r.Parts[i].Source.Static() {
			return false
		}
	}
	return true
}

// setJitter reads by how much later clients are told to come back.
func (c *compiler) setJitter(config *core.RuleConfig) {
	text := strings.TrimSpace(c.text.Texts["jitter"])
	if text == "" {
		return
	}
	jitter, err := strconv.ParseFloat(text, 64)
	if err != nil || !(jitter >= 0 && jitter <= 1) {
		c.fail(words.Wrong("jitter", strconv.Quote(text), "must be a fraction of the period from 0 to 1, such as 0.1 for a tenth"))
		return
	}
	for _, limit := range c.limits {
		if limit.RenewsAtOnce() {
			config.Jitter = &jitter
			return
		}
	}
	if len(c.limits) > 0 { // else there are errors, or no limits
		c.fail(words.Wrong("jitter", strconv.Quote(text), "is for quotas that are renewed for all keys at once: of a fixed_window whose windows begin by the clock or the calendar, and of a token_bucket with `refill` interval; this one is renewed at a time of each key's own, leave it out"))
	}
}
