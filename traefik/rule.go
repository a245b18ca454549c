package traefik

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
)

// rule is a Rule made ready: immutable but for what stores keep in the core.Rule, of which it has one of its own.
type rule struct {
	rule     *core.Rule
	matcher  *core.Matcher // nil: all requests
	excepts  bool          // the matcher looks at the client's address
	parts    []keyPart
	prefixes core.Prefixes

	masksIPv4 bool // so that IPv4 addresses do not stay as they are

	cost     int64 // where it is not taken from the request
	costFrom *core.Source

	skipMissing, rejectMissing bool // onMissingKey; neither: share

	shadowed atomic.Int64 // requests that a shadow would have rejected since that was last said
}

// keyPart is one part of a key.
type keyPart struct {
	source  core.Source
	address bool // it is client_ip
	masked  bool // it may be an address, in any spelling
}

// newRule checks r and makes it ready. The error does not say which rule it is about.
func newRule(r *Rule, namespace, name string, limit *core.Limit, prefixes core.Prefixes) (*rule, error) {
	compiled := &rule{prefixes: prefixes, cost: 1, masksIPv4: prefixes.IPv4 > 0 && prefixes.IPv4 < 32}
	if err := compiled.setMatcher(r.Match); err != nil {
		return nil, err
	}
	if err := compiled.setKey(r.Key); err != nil {
		return nil, err
	}
	if err := compiled.setCost(r.Cost, limit); err != nil {
		return nil, err
	}
	if err := checkWords(r); err != nil {
		return nil, err
	}
	compiled.skipMissing = r.OnMissingKey == "skip"
	compiled.rejectMissing = r.OnMissingKey == "reject"
	countRejected, err := parseBool("countRejected", r.CountRejected)
	if err != nil {
		return nil, err
	}
	onError, err := core.ParseOnError(r.OnError)
	if err != nil {
		return nil, inOurWords(err)
	}
	compiled.rule, err = core.NewRule(core.RuleConfig{
		Namespace:     namespace,
		Name:          name,
		KeySpec:       compiled.keySpec(),
		Limit:         limit,
		Shadow:        r.Enforcement == "shadow",
		CountRejected: countRejected,
		OnError:       onError,
	})
	return compiled, err
}

// setMatcher reads which requests the rule covers.
func (r *rule) setMatcher(value interface{}) error {
	var m Match
	present, err := decodeObject("match", value, &m)
	if err != nil || !present {
		return err
	}
	if len(m.Methods)+len(m.Hosts)+len(m.Paths)+len(m.PathPrefixes)+len(m.Headers)+len(m.ExceptIPs) == 0 {
		return nil
	}
	r.matcher, err = core.Match{
		Methods:      trimmed(m.Methods),
		Hosts:        trimmed(m.Hosts),
		Paths:        trimmed(m.Paths),
		PathPrefixes: trimmed(m.PathPrefixes),
		Headers:      m.Headers,
		ExceptIPs:    trimmed(m.ExceptIPs),
	}.Compile()
	if err != nil {
		return inOurWords(err)
	}
	r.excepts = len(m.ExceptIPs) > 0
	return nil
}

// setKey reads the sources of the key.
func (r *rule) setKey(key []string) error {
	if len(key) == 0 {
		key = []string{"client_ip"}
	}
	for _, text := range trimmed(key) {
		source, err := core.ParseSource(text)
		if err != nil {
			return err
		}
		kind, _, _ := strings.Cut(text, ":")
		r.parts = append(r.parts, keyPart{source: source, address: kind == "client_ip", masked: kind == "client_ip" || kind == "remote_ip" || kind == "header"})
	}
	return nil
}

// keySpec returns what the key is made of, for the rule's identity. A prefix that leaves addresses whole is not said, nor is
// one where the key has no address.
func (r *rule) keySpec() string {
	spec := ""
	masked := false
	for i := range r.parts {
		if i > 0 {
			spec += " "
		}
		spec += r.parts[i].source.String()
		masked = masked || r.parts[i].masked
	}
	p := r.prefixes
	if p.IPv4 == 32 {
		p.IPv4 = 0
	}
	if p.IPv6 == 128 {
		p.IPv6 = 0
	}
	if masked && p.IPv4+p.IPv6 > 0 {
		spec += " /" + strconv.Itoa(p.IPv4) + " /" + strconv.Itoa(p.IPv6)
	}
	return spec
}

// setCost reads what a request costs.
func (r *rule) setCost(cost string, limit *core.Limit) error {
	text := strings.TrimSpace(cost)
	if text == "" {
		return nil
	}
	kind, _, named := strings.Cut(text, ":")
	if named && (kind == "header" || kind == "query" || kind == "cookie") {
		source, err := core.ParseSource(text)
		if err != nil {
			return fmt.Errorf("cost %q: write %s:NAME", cost, kind)
		}
		r.costFrom = &source
		return nil
	}
	n, err := core.ParseCount(text)
	if err != nil {
		return fmt.Errorf("cost %w, or header:NAME, query:NAME or cookie:NAME that has one", err)
	}
	if n > limit.Capacity() {
		return fmt.Errorf("cost %d: is more than the limit can ever hold, which is %d, so that every request would be rejected", n, limit.Capacity())
	}
	r.cost = n
	return nil
}

// newLimit reads the limit of a rule.
func newLimit(r *Rule) (*core.Limit, error) {
	var c core.LimitConfig
	if strings.TrimSpace(r.Limit) == "" {
		return nil, fmt.Errorf("limit: is missing; write one such as 100/1m")
	}
	if err := core.ParseLimit(strings.TrimSpace(r.Limit), &c); err != nil {
		return nil, err
	}
	if err := completeLimit(r, &c); err != nil {
		return nil, err
	}
	limit, err := core.NewLimit(c)
	if err != nil {
		text := ourWords.Replace(err.Error())
		if strings.HasPrefix(text, "requests ") || strings.HasPrefix(text, "period ") {
			text = fmt.Sprintf("limit %q: %s", r.Limit, text)
		}
		return nil, fmt.Errorf("%s", text)
	}
	return limit, nil
}

// completeLimit reads what a rule says of its limit beside the numbers.
func completeLimit(r *Rule, c *core.LimitConfig) error {
	if r.Algorithm != "" {
		a, err := core.ParseAlgorithm(strings.TrimSpace(r.Algorithm))
		if err != nil {
			return err
		}
		c.Algorithm = a
	}
	burst, err := parseNumber("burst", r.Burst, 1, core.MaxRequests, 0)
	if err != nil {
		return err
	}
	c.Burst = burst
	if err = core.CheckWord("refill", r.Refill, []string{"continuous", "interval"}); err != nil {
		return err
	}
	if r.Refill != "" && c.Algorithm != core.TokenBucket {
		return fmt.Errorf("refill %q: only token_bucket is refilled", r.Refill)
	}
	c.Interval = r.Refill == "interval"
	c.MaxDelay, err = parseDuration("maxDelay", r.MaxDelay, time.Millisecond, time.Hour, 0)
	if err != nil {
		return err
	}
	if r.TimeZone != "" {
		location, err := time.LoadLocation(r.TimeZone)
		if err != nil || r.TimeZone == "Local" {
			return fmt.Errorf("timeZone %q: must be a name of the time zone database, such as UTC or Europe/Berlin", r.TimeZone)
		}
		c.Location = location
	}
	return nil
}

// newPrefixes reads how far addresses are masked; standard is what is not said.
func newPrefixes(r *Rule, standard core.Prefixes) (core.Prefixes, error) {
	ipv4, err := parseNumber("ipv4Prefix", r.IPv4Prefix, 1, 32, int64(standard.IPv4))
	if err != nil {
		return core.Prefixes{}, err
	}
	ipv6, err := parseNumber("ipv6Prefix", r.IPv6Prefix, 1, 128, int64(standard.IPv6))
	return core.Prefixes{IPv4: int(ipv4), IPv6: int(ipv6)}, err
}

// checkWords says which of the fields that take one of a few words has another.
func checkWords(r *Rule) error {
	if word, _, _ := strings.Cut(r.Enforcement, " "); word == "soft" {
		return fmt.Errorf("enforcement %q: soft limits are not in this version; use hard, with a burst, or shadow", r.Enforcement)
	}
	if err := core.CheckWord("enforcement", r.Enforcement, []string{"hard", "shadow"}); err != nil {
		return err
	}
	if r.OnLimit == "delay" {
		return fmt.Errorf("onLimit \"delay\": is not in this version; algorithm leaky_bucket holds requests until their turn")
	}
	if r.OnLimit == "defer" {
		return fmt.Errorf("onLimit \"defer\": is not in this version; use reject")
	}
	if err := core.CheckWord("onLimit", r.OnLimit, []string{"reject"}); err != nil {
		return err
	}
	return core.CheckWord("onMissingKey", r.OnMissingKey, []string{"share", "skip", "reject"})
}
