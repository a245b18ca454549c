package ruleset

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/transition"
	"github.com/proxyweir/weir/core/words"
)

// Rule is a compiled RuleText. It is immutable, except for the data that stores keep in its core.Rules, so it belongs to one store.
type Rule struct {
	Name    string
	Limits  *core.Limits
	Active  *transition.Active // which of Limits, or of those in their place, are active
	Matcher *match.Matcher     // nil: all requests
	Excepts bool               // the matcher looks at the client's address
	Parts   []Part             // of the key
	Static  string             // the key, if it has no parts
	Shadow  bool

	// Counts reports whether a request that the rule covers counts, and is not only checked; nil: all do. path is its match.CleanPath. The proxy sets it if
	// its own matchers say so.
	Counts func(r *http.Request, path, address string) (bool, error)

	// Covering reports whether a proxy's own matchers, besides Matcher, cover a request; nil: there are none. The proxy sets it.
	Covering func(r *http.Request) (bool, error)

	Cost     int64         // if it is not taken from the request
	CostFrom *match.Source // nil: it is Cost
	Asks     bool          // what a request costs depends on it: there is a CostFrom, or a Counts

	Respects bool // it has respect_upstream

	SkipMissing, RejectMissing bool // on_missing_key; neither: share

	Adapt *Adapt // nil: advice cannot touch the rule

	Advice []*words.Mistake // what is valid, but most likely not intended

	answer        *core.Answer  // nil: the default one
	tier          *match.Source // nil: no tiers
	prefixes      match.Prefixes
	tierOfAddress bool // the tier is an address, in any spelling

	bare      bool   // no prefix is set, and none is the default
	masksIPv4 bool   // IPv4 addresses are masked
	spec      string // the parts of the key, for the rule's identity

	like *likeness   // all but its name and match; nil: it shares no parts
	made interface{} // *origin, which may be that of another rule, and have its name; an interface, since the type would be part of a circle in Yaegi
}

// Part is one part of a key.
type Part struct {
	Source  match.Source
	Address bool // it is client_ip
	Masked  bool // it may be an address, in any spelling
}

// Standard has the default prefixes of rules.
var Standard = match.Prefixes{IPv4: 32, IPv6: 64}

// Context says for which proxy and configuration a rule is compiled.
type Context struct {
	Namespace string
	Name      string         // of a RuleText without a name
	Prefixes  match.Prefixes // of a rule that sets none

	// Template reads a text in the proxy's own language for keys, tiers and costs; nil if the proxy has none.
	Template func(text string) (*Template, error)
}

// Template is a compiled text in a proxy's own language.
type Template struct {
	Sources []match.Source // of a key
	Static  string         // the key, if there are no sources
	Own     bool           // the key's identity is the text, and not that of the list of sources
	Source  match.Source   // the whole text, as one value
}

// compiler compiles a rule, and gathers its errors.
type compiler struct {
	text   *RuleText
	rule   *Rule
	in     Context
	common rate.LimitConfig // what all limits have in common
	limits []*rate.Limit    // the rule's limits, in any order
	errors []*words.Mistake
}

// fail notes what is wrong. path is where it is, if the names in the mistake do not lead there.
func (c *compiler) fail(wrong *words.Mistake, path ...string) {
	m := *wrong
	m.Path = path
	m.Path = m.Where()
	if len(m.Path) == 0 || fieldOf(m.Path[0]) == nil {
		m.Path = []string{"name"}
	}
	c.errors = append(c.errors, &m)
}

// check notes an error, and reports whether there is none.
func (c *compiler) check(err error, path ...string) (right bool) {
	if err != nil {
		c.fail(words.Of(err), path...)
	}
	return err == nil
}

// failIn is fail for what is wrong with an object, or with its member that sentences call by a value.
func (c *compiler) failIn(object, member string, wrong *words.Mistake, path ...string) {
	c.fail(wrong.Within("", member).Within(object, ""), path...)
}

// Compile checks and compiles a rule. If the rule has errors, it returns all of them, and no rule.
func Compile(t *RuleText, in Context) (*Rule, []*words.Mistake) {
	return compile(t, in, &origin{})
}

// compile is Compile, and also fills in what the rule's limits are made of.
func compile(t *RuleText, in Context, made *origin) (*Rule, []*words.Mistake) {
	config := &made.config
	c := &compiler{text: t, in: in, rule: &Rule{Name: t.Name, Cost: 1}}
	r := c.rule
	if r.Name == "" {
		r.Name = in.Name
	}
	c.check(words.CheckName(r.Name))
	c.setMatcher()
	c.setPrefixes(in.Prefixes)
	if in.Template == nil {
		c.setKey()
	} else {
		c.setTemplate()
	}
	config.Namespace = in.Namespace
	config.Name = r.Name
	config.KeySpec = r.spec
	config.Message = t.Texts["message"]
	c.setAnswer(config)
	more := c.setLimits(config)
	c.setCandidate(config)
	c.setCost(config)
	c.setWords(config)
	c.setOverflowPolicy(config)
	c.setCounts(config)
	r.Asks = r.CostFrom != nil || config.OverflowPolicy.CountsSome
	if len(c.errors) == 0 && len(c.limits) == 0 {
		c.checkEffect()
	}
	if len(c.errors) > 0 {
		return nil, c.errors
	}
	limits, err := core.NewLimits(*config, more)
	if err != nil {
		c.fail(inRule(err))
		return nil, c.errors
	}
	if r.RejectMissing && len(limits.Rules()) == 0 {
		c.fail(words.Wrong("on_missing_key", `"reject"`, "has no effect on a `rule` without any limit; write a limit, or leave it out"))
		return nil, c.errors
	}
	if c.setAdapt(config, more); len(c.errors) > 0 {
		return nil, c.errors
	}
	r.Limits = limits
	for _, one := range limits.Rules() {
		if text := one.SyncAdvice(); text != "" {
			r.Advice = append(r.Advice, words.Wrong("", "", "%s", text))
		}
	}
	if r.Adapt != nil {
		if r.Limits, err = LimitsWith(r.Adapt, config.Limit.Requests, r.Adapt.common.Burst, config.Limit.Algorithm); !c.check(err) { // not reached: they are those
			return nil, c.errors
		}
	}
	made.more = more
	made.common = c.common
	if r.Adapt != nil {
		made.config = r.Adapt.config
	}
	r.made = made
	r.Active = transition.NewActive(r.Limits)
	r.Shadow = config.Shadow
	return r, nil
}

// setMatcher reads which requests the rule covers.
func (c *compiler) setMatcher() {
	o := One(c.text, "match")
	if o == nil || len(o.Lists)+len(o.Pairs) == 0 {
		return
	}
	m := MatchOf(o)
	matcher, err := m.Compile()
	if !c.check(err) {
		return
	}
	c.rule.Matcher = matcher
	c.rule.Advice = append(c.rule.Advice, m.Advice()...)
	c.rule.Excepts = len(o.Lists["except_ips"]) > 0
}

// setPrefixes reads the prefixes that addresses are masked to.
func (c *compiler) setPrefixes(standard match.Prefixes) {
	ipv4 := c.number("ipv4_prefix", int64(standard.IPv4))
	ipv6 := c.number("ipv6_prefix", int64(standard.IPv6))
	c.rule.prefixes = match.Prefixes{IPv4: int(ipv4), IPv6: int(ipv6)}
	c.rule.masksIPv4 = ipv4 > 0 && ipv4 < 32
	c.rule.bare = ipv4 == 0 && ipv6 == 0
}

// setLimits reads the rule's own limit into the configuration, and returns the others.
func (c *compiler) setLimits(config *core.RuleConfig) core.MoreLimits {
	t := c.text
	var more core.MoreLimits
	config.Concurrency = c.number("concurrency", 0)
	if c.isAlone() {
		c.setAlone(config)
		return more
	}
	wrong := len(c.errors)
	c.setCommon(0)
	if len(c.errors) > wrong { // whether the limits agree with it cannot be said; but whether one can be read
		if text := strings.TrimSpace(t.Texts["limit"]); text != "" && text != Unlimited {
			read := c.common
			c.check(rate.ParseLimit(text, &read))
		}
		return more
	}
	hasOwn := strings.TrimSpace(t.Texts["limit"]) != ""
	if One(t, "tiers") == nil && !hasOwn {
		c.fail(words.Wrong("limit", "", "is missing; write one such as `100/1m`"))
		return more
	}
	if hasOwn {
		config.Limit = c.limit(t.Texts["limit"], "", "", "limit")
	}
	if One(t, "tiers") != nil {
		c.setTier()
		config.Limit, more.Tiers = c.tiers(config.Limit, hasOwn)
	}
	if One(t, "limit_from") != nil {
		more.Requested = c.requested(config.Limit)
	}
	if len(t.Objects["overrides"]) > 0 && len(c.rule.Parts) == 0 && c.in.Template != nil && len(c.errors) == 0 {
		c.fail(words.Wrong("overrides", "", "the key %q is the same for all, and has no other that could have a limit of its own", c.rule.Static))
	} else if len(t.Objects["overrides"]) > 0 && len(c.rule.Parts) > 0 && len(c.rule.Parts) >= len(match.Joined(t.Lists["key"])) { // if the key itself is valid
		c.checkOverrides()
		more.Overrides = c.overrides()
	}
	if c.common.Location != nil && len(c.errors) == wrong && !followsCalendar(c.limits) {
		c.fail(words.Wrong("time_zone", strconv.Quote(t.Texts["time_zone"]), "only windows of the calendar have one (limit <requests>/day, /week or /month)"))
	}
	return more
}

// followsCalendar reports whether any of the limits follows the calendar.
func followsCalendar(limits []*rate.Limit) bool {
	for _, l := range limits {
		if l.Windows(0) != nil {
			return true
		}
	}
	return false
}

// checkOverrides refuses overrides that no client could match, and overrides of an address that would apply to its whole network.
func (c *compiler) checkOverrides() {
	for i, o := range c.text.Objects["overrides"] {
		values := o.Lists["key"]
		if len(values) != len(c.rule.Parts) { // which overrides reports
			continue
		}
		for j := range c.rule.Parts {
			part := &c.rule.Parts[j]
			_, err := spell(c.rule, part, values[j])
			of, _, rest, _ := part.Source.Chosen(values[j])
			if err != nil && of.IsAddress() {
				err = words.Of(err).And("; addresses that are not to be counted are written `in match: except_ips`")
			} else if err == nil && of.MayHoldAddress() {
				err = ofOneAddress(rest, c.rule.prefixes)
			}
			if err != nil {
				c.fail(words.Of(err).Within("overrides", ""), "overrides", strconv.Itoa(i), "key")
				break
			}
		}
	}
}

// setCommon reads the settings that all limits of the rule have in common. algorithm is the default.
func (c *compiler) setCommon(algorithm rate.Algorithm) {
	t := c.text
	common := &c.common
	common.Algorithm = algorithm
	if text := strings.TrimSpace(t.Texts["algorithm"]); text != "" {
		a, err := rate.ParseAlgorithm(text)
		c.check(err)
		common.Algorithm = a
	}
	common.Burst = c.number("burst", 0)
	refill, right := c.word("refill")
	if right && refill != "" && common.Algorithm != rate.TokenBucket {
		c.fail(words.Wrong("refill", strconv.Quote(refill), "only token_bucket is refilled"))
	}
	common.Interval = refill == "interval"
	common.Segments = c.number("segments", 0)
	start, right := c.word("window_start")
	for i, word := range rate.WindowStarts {
		if start == word && right {
			common.Start = rate.WindowStart(i)
		}
	}
	if start != "" && right && common.Algorithm != 0 {
		c.check(rate.CheckWindowStart(common.Algorithm, start))
	}
	onLimit, _ := c.word("on_limit")
	common.Delays = onLimit == "delay"
	if onLimit == "reject" && common.Algorithm == rate.LeakyBucket {
		c.fail(words.Wrong("on_limit", `"reject"`, "leaky_bucket makes requests wait, and rejects those that do not fit in its burst; choose another algorithm, or leave it out"))
	}
	common.MaxDelay = c.duration("max_delay")
	common.Owes = len(t.Lists["cost_response"]) > 0
	if t.Texts["time_zone"] != "" {
		location, err := locationOf(t.Texts["time_zone"], time.LoadLocation)
		if c.check(err) {
			common.Location = location
		}
	}
}

// locationOf returns the time zone of that name; load is time.LoadLocation. Its error is the same for a name that is wrong and for a machine without
// a time zone database, so a second name tells them apart. The error begins with the field.
func locationOf(name string, load func(name string) (*time.Location, error)) (*time.Location, error) {
	location, err := load(name)
	if err == nil && name != "Local" {
		return location, nil
	}
	if _, missing := load("Europe/London"); missing != nil {
		return nil, words.Wrong("time_zone", strconv.Quote(name), "this machine has no time zone database, so that only UTC is known; install the package tzdata, or set the environment variable ZONEINFO to the path of a zoneinfo.zip")
	}
	return nil, words.Wrong("time_zone", strconv.Quote(name), "must be a name of the time zone database, such as UTC or Europe/Berlin")
}

// limit reads one limit. It returns nil for Unlimited, and after an error, which it reports at path. object and member are where the limit is that is not
// the rule's own.
func (c *compiler) limit(text, object, member string, path ...string) *rate.Limit {
	common := c.common
	text = strings.TrimSpace(text)
	if text == Unlimited {
		return nil
	}
	if err := rate.ParseLimit(text, &common); err != nil {
		c.failIn(object, member, words.Of(err).Guess(words.Nearest(text, []string{Unlimited})), path...)
		return nil
	}
	if common.Calendar == rate.Epoch && object != "" { // which has a time zone only where it is a calendar's
		common.Location = nil
	}
	limit, err := rate.NewLimit(common)
	if err == nil {
		c.limits = append(c.limits, limit)
		return limit
	}
	field := words.Of(err).At[0].Name
	if field == "requests" || field == "period" {
		c.failIn(object, member, words.Of(err).Within("limit", strconv.Quote(text)), path...)
	} else {
		c.failIn(object, member, words.Of(err), field)
	}
	return nil
}

// requested reads which limits requests bring. own is the rule's own limit.
func (c *compiler) requested(own *rate.Limit) *core.Requested {
	var none *core.Requested
	source, right := c.chooser("limit_from", "limit is read from, such as header:X-Limit")
	if One(c.text, "tiers") != nil {
		c.fail(words.Wrong("limit_from", "", " and tiers are mutually exclusive: each chooses the limit by a value of the request; remove one"))
		return none
	}
	if own == nil {
		if text := c.ownText(); text == Unlimited {
			c.fail(words.Wrong("limit_from", "", "the `rule`'s own limit is unlimited, so that a request without a valid one would pass uncounted; write a limit for these"))
		}
		return none
	}
	if !right {
		return none
	}
	_, period, _ := strings.Cut(c.ownText(), "/")
	made := &core.Requested{Source: source.String(), Period: period, Common: c.common}
	made.MaxAs = strings.TrimSpace(One(c.text, "limit_from").Texts["max"])
	if made.MaxAs == "" {
		return made
	}
	if made.MaxAs == Unlimited {
		c.failIn("limit_from", "", words.Wrong("max", strconv.Quote(Unlimited), "would bound nothing; write a limit such as 1000/1m, or leave it out"), "limit_from", "max")
		return none
	}
	if !strings.Contains(made.MaxAs, "/") {
		made.MaxAs += "/" + period
	}
	if made.Max = c.limit(made.MaxAs, "limit_from", "", "limit_from", "max"); made.Max == nil {
		return none
	}
	return made
}

// tiers reads the limits by tier. It also returns the rule's own limit, which AnyTier may set.
func (c *compiler) tiers(own *rate.Limit, hasOwn bool) (*rate.Limit, map[string]*rate.Limit) {
	t := One(c.text, "tiers")
	limits := make(map[string]*rate.Limit, len(t.Pairs["limits"]))
	for _, tier := range t.Pairs["limits"] {
		name := strconv.Quote(tier.Name)
		limit := c.limit(tier.Value, "tiers", name, "tiers", "limits", tier.Name)
		value := tier.Name
		if value != AnyTier {
			value = TierFor(c.rule, value)
		}
		if _, twice := limits[value]; twice {
			c.failIn("tiers", name, words.Wrong("", "", "duplicate value; keep one"), "tiers", "limits", tier.Name)
		}
		limits[value] = limit
	}
	if len(limits) == 0 {
		c.failIn("tiers", "", words.Wrong("limits", "", "is missing; write a limit for each value, such as pro: 1000/1m"), "tiers")
		return own, limits
	}
	other, said := limits[AnyTier]
	if said && hasOwn {
		c.fail(words.Wrong("tiers", "", "\"*\" and limit are mutually exclusive: both are for all values without a tier; remove one"), "tiers", "limits", AnyTier)
	} else if !said && !hasOwn {
		c.fail(words.Wrong("tiers", "", "say nothing of other values; write \"*\": 50/1m, or limit beside the tiers"), "tiers", "limits")
	}
	if said {
		own = other
		delete(limits, AnyTier)
	}
	return own, limits
}

// overrides reads the limits of single keys.
func (c *compiler) overrides() map[string]*rate.Limit {
	limits := make(map[string]*rate.Limit, len(c.text.Objects["overrides"]))
	for i, o := range c.text.Objects["overrides"] {
		values := o.Lists["key"]
		place := strconv.Itoa(i)
		name := strconv.Quote(strings.Join(values, " "))
		if len(values) == 0 || len(values) == 1 && values[0] == "" {
			c.failIn("overrides", "", words.Wrong("key", "", "is missing; write the key whose limit it is"), "overrides", place)
			continue
		}
		if len(values) != len(c.rule.Parts) {
			c.failIn("overrides", name, words.Wrong("", "", "has %d values, and the rule's key %d parts", len(values), len(c.rule.Parts)), "overrides", place, "key")
			continue
		}
		if o.Texts["limit"] == "" {
			c.failIn("overrides", name, words.Wrong("limit", "", "is missing; write one such as 1000/1m"), "overrides", place)
			continue
		}
		limit := c.limit(o.Texts["limit"], "overrides", name, "overrides", place, "limit")
		key := KeyFor(c.rule, values)
		if _, twice := limits[key]; twice {
			c.failIn("overrides", name, words.Wrong("", "", "duplicate key; keep one"), "overrides", place, "key")
		}
		limits[key] = limit
	}
	return limits
}

// setCost reads what a request costs.
func (c *compiler) setCost(config *core.RuleConfig) {
	text := strings.TrimSpace(c.text.Texts["cost"])
	if text == "" || c.isAlone() {
		return
	}
	if c.in.Template != nil && strings.HasPrefix(text, "{") {
		made, err := c.in.Template(text)
		if err == nil && len(made.Sources) != 1 {
			err = words.Wrong("", "", "must be a whole number from 1 to %d, or one placeholder", rate.MaxRequests)
		}
		if err == nil {
			err = OnlyOfKey(made.Sources)
		}
		if err != nil {
			c.fail(words.Of(err).Within("cost", strconv.Quote(text)))
			return
		}
		c.rule.CostFrom = &made.Source
		return
	}
	kind, _, named := strings.Cut(text, ":")
	if named && c.in.Template == nil && match.IsField(kind) {
		source, err := match.ParseSource(text)
		if err != nil {
			c.fail(words.Wrong("cost", strconv.Quote(c.text.Texts["cost"]), "write %s:NAME", kind))
		}
		c.rule.CostFrom = &source
		return
	}
	if text == "0" && len(c.text.Lists["cost_response"]) > 0 {
		c.rule.Cost = 0
		return
	}
	n, err := words.ParseCount(text, rate.MaxRequests)
	if err != nil {
		or := "header:NAME, query:NAME or cookie:NAME that has one"
		if c.in.Template != nil {
			or = "one placeholder"
		}
		if text == "0" {
			or += "; 0 is for rules with `cost_response`"
		}
		c.fail(words.Of(err).Named("cost").And(", or " + or))
		return
	}
	var smallest *rate.Limit
	for _, l := range c.limits {
		smallest = smaller(smallest, l)
	}
	if smallest != nil && n > smallest.Capacity {
		c.fail(words.Wrong("cost", fmt.Sprint(n), "is more than the limit %s can ever hold, which is %d, so that every request would be rejected", smallest.String(), smallest.Capacity))
	}
	if l := config.Candidate; l != nil && n > l.Capacity {
		c.fail(words.Wrong("cost", fmt.Sprint(n), "is more than the candidate %s can ever hold, which is %d, so that it would reject every request", l.String(), l.Capacity))
	}
	c.rule.Cost = n
}

// smaller returns the limit that can hold less; if two hold the same, the first by name. a may be nil.
func smaller(a, b *rate.Limit) *rate.Limit {
	if a == nil || b.Capacity < a.Capacity || b.Capacity == a.Capacity && b.String() < a.String() {
		return b
	}
	return a
}

// setWords reads the fields whose values are words.
func (c *compiler) setWords(config *core.RuleConfig) {
	missing, _ := c.word("on_missing_key")
	c.rule.SkipMissing = missing == "skip"
	c.rule.RejectMissing = missing == "reject"
	onError, err := core.ParseOnError(c.text.Texts["on_error"])
	c.check(err)
	config.OnError = onError
	config.Consistency, config.SyncEvery, err = core.ParseConsistency(c.text.Texts["consistency"])
	c.check(err)
	config.RegionsLease, config.RegionsEvery, err = core.ParseRegions(c.text.Texts["regions"])
	c.check(err)
	config.Strictly = c.text.Texts["consistency"] != "" && config.Consistency == core.Strict
	c.setJitter(config)
	var s Settings
	config.CountRejected = s.Truth("count_rejected", c.text.Texts["count_rejected"])
	c.check(s.Err)
}

// word returns the value of a field whose values are words, and reports whether it is valid; "" is the default.
func (c *compiler) word(field string) (word string, right bool) {
	word = c.text.Texts[field]
	if word == "" {
		return word, true
	}
	return word, c.check(CheckWord(fieldOf(field), word))
}

// number reads a whole number; standard is the default.
func (c *compiler) number(field string, standard int64) int64 {
	text := c.text.Texts[field]
	if text == "" {
		return standard
	}
	f := fieldOf(field)
	var s Settings
	n := s.Number(field, text, f.Least, f.Most, standard)
	c.check(s.Err)
	return n
}

// duration reads a duration, 0 if there is none.
func (c *compiler) duration(field string) time.Duration {
	text := c.text.Texts[field]
	if text == "" {
		return 0
	}
	f := fieldOf(field)
	var s Settings
	d := s.Duration(field, text, time.Duration(f.Least), time.Duration(f.Most), 0)
	c.check(s.Err)
	return d
}
