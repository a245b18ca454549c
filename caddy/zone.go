package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/match"
	"github.com/proxyweir/weir/ruleset"
	"github.com/proxyweir/weir/words"
	"go.uber.org/zap"
)

// Zone is a rule: the requests it covers, the key that tells their clients apart, and the limit of each key.
//
// The limit is `requests` per `period`. The words of caddy-ratelimit, `max_events` in a `window`, are understood too, and
// mean there what they mean here: a sliding window log.
type Zone struct {
	// Which requests the zone covers: those that one of the matcher sets matches. The default is all.
	MatcherSetsRaw caddyhttp.RawMatcherSets `json:"match,omitempty" caddy:"namespace=http.matchers"`

	// What tells clients apart: a text with placeholders, of which each value has counters of its own. A text without
	// placeholders makes one counter for all. The default is `{http.vars.client_ip}`, the client's address; with
	// `max_events` it is one counter for all.
	Key string `json:"key,omitempty"`

	// The requests that a key may make in a period: 1 to 1000000000, with a sliding window log up to 100000.
	Requests int64 `json:"requests,omitempty"`

	// The period of `requests`: a duration from 1ms to 366d, or `day`, `week` or `month` for fixed windows that follow the
	// calendar.
	Period string `json:"period,omitempty"`

	// As `requests`, in the words of caddy-ratelimit.
	MaxEvents int64 `json:"max_events,omitempty"`

	// As `period`, in the words of caddy-ratelimit.
	Window caddy.Duration `json:"window,omitempty"`

	// No limit for the keys that neither `tiers` nor `overrides` have one for: their requests are not counted. It stands in place
	// of `requests` and `period`.
	Unlimited bool `json:"unlimited,omitempty"`

	// Limits that depend on a value of the request. They have the zone's algorithm, burst and the like.
	Tiers *Tiers `json:"tiers,omitempty"`

	// The limits of single keys, which go before those of tiers.
	Overrides []Override `json:"overrides,omitempty"`

	// Addresses and networks of clients that the zone does not cover, such as `10.0.0.0/8`; `private_ranges` stands for all
	// private networks.
	Except []string `json:"except,omitempty"`

	// The time zone of a calendar period, such as `Europe/Berlin`. The default is UTC.
	TimeZone string `json:"time_zone,omitempty"`

	// How requests are counted: `token_bucket`, `leaky_bucket`, `fixed_window`, `sliding_window_log` or
	// `sliding_window_counter`. The default is `sliding_window_counter`; for a calendar period it is `fixed_window`, and for
	// `max_events` it is `sliding_window_log`.
	Algorithm string `json:"algorithm,omitempty"`

	// How many requests a token bucket holds, or how many may wait in a leaky bucket. The default is the limit's requests.
	Burst int64 `json:"burst,omitempty"`

	// How a token bucket is refilled: `continuous`, the default, or `interval`: with all its requests at each whole period
	// of the Unix epoch.
	Refill string `json:"refill,omitempty"`

	// How many requests one counts for: a whole number, or a placeholder that yields one. Less than 1, and what is no
	// number, counts as 1. The default is 1.
	Cost string `json:"cost,omitempty"`

	// Masks IPv4 addresses in the key to a network of so many bits, 1 to 32, so that the network shares a counter. The
	// default is that every address has its own.
	IPv4Prefix int `json:"ipv4_prefix,omitempty"`

	// Masks IPv6 addresses in the key to a network of so many bits, 1 to 128. Since whole networks of 64 bits are given to
	// single customers, 64 is what most want. The default is that every address has its own.
	IPv6Prefix int `json:"ipv6_prefix,omitempty"`

	// `hard`, the default, rejects what is over the limit. `shadow` counts, but lets everything pass and tells clients
	// nothing. `soft 20% 30s` lets through 20 % more than the limit, for 30 s from the first request on that exceeds it; then
	// the limit holds, until for one whole period no request would have exceeded it and what was let through more has come down.
	// The percentage is a whole number from 1 to 1000, and such that it is at least one request; the duration is from 1ms to 366d. Not with a leaky bucket.
	Enforcement string `json:"enforcement,omitempty"`

	// What happens to a request over the limit: `reject`, the default, or `delay`, which has it wait for its turn, first come,
	// first served. A sliding window counter cannot delay, and a shadow does not.
	OnLimit string `json:"on_limit,omitempty"`

	// The longest that a request waits, in a leaky bucket and with `on_limit` `delay`; one that would have to wait longer is
	// rejected at once. Up to 1h; the default is 10s.
	MaxDelay caddy.Duration `json:"max_delay,omitempty"`

	// How many requests of the zone may wait at a time in this process, with `on_limit` `delay`; more are rejected. From 1 to
	// 1000000; the default is 1000.
	MaxWaiting int64 `json:"max_waiting,omitempty"`

	// How many of them one key may have, from 1 to `max_waiting`. By default it is a quarter of the places that are left, so
	// that one key alone has a fifth of all at most; where all requests have one key, it is all.
	MaxWaitingPerKey int64 `json:"max_waiting_per_key,omitempty"`

	// The statuses of the responses whose requests count: codes such as `401`, and classes of them such as `4xx`. A request
	// takes its place until its response's status is known, and then keeps it or gives it back. The default is that all count.
	// Not with a leaky bucket.
	Count []string `json:"count,omitempty"`

	// How long a key is shut out that exceeds the limit: for the first time, the second and so on, the last for all further
	// ones. It starts over when it has not exceeded the limit for as long as the longest of them, since it was last let in. Up
	// to 16 durations from 1ms to 366d, such as `1m`, `10m` and `1h`. The default is none.
	Penalty []string `json:"penalty,omitempty"`

	// How many requests of a key may be under way at a time, beside the limit or in place of it: 1 to 1000000000. A request is
	// under way until its response has ended. The default is any number.
	Concurrency int64 `json:"concurrency,omitempty"`

	// A limit that is tried out on the same requests, beside the zone's own: what it would do is counted and compared, and
	// changes nothing.
	Candidate *Candidate `json:"candidate,omitempty"`

	// What happens when the store fails: `open` lets requests pass, `closed` answers 503, `local`, the default, counts in
	// memory. Memory itself does not fail.
	OnError string `json:"on_error,omitempty"`

	// What happens to a request for which a placeholder of the key is empty: `share`, the default, takes the empty value
	// for a value as any other, so that leaving a header out is no way round; `skip` lets it pass uncounted; `reject`
	// rejects it.
	OnMissingKey string `json:"on_missing_key,omitempty"`

	// Whether rejected requests count against the limit too, so that a client that does not slow down stays out.
	CountRejected bool `json:"count_rejected,omitempty"`

	matcherSets caddyhttp.MatcherSets
	except      *match.Matcher // nil: covers all addresses
	name        string
	limits      *core.Limits
	single      *core.Rule // nil: limits has several
	shadow      bool
	key         *keyMaker
	tier        *keyMaker // nil: no tiers
	cost        costMaker
	reporter    *reporter
	warned      atomic.Bool // of a key that is empty
	opened      []*core.Rule
}

// Tiers choose a limit by a value of the request, such as the plan of the customer who is authenticated.
type Tiers struct {
	// Where the value is taken from: a text with placeholders. What clients can set themselves, they can choose their limit by.
	Source string `json:"source,omitempty"`

	// The limits by value, such as `100/1m`; `unlimited` is none. The one of `*` is for all other values, and stands in place of
	// the zone's own limit.
	Limits map[string]string `json:"limits,omitempty"`
}

// Override is the limit of a single key.
type Override struct {
	// The values of the key's placeholders, in their order.
	Key []string `json:"key,omitempty"`

	// The limit, such as `1000/1m`; `unlimited` is none.
	Limit string `json:"limit,omitempty"`
}

// provision makes the zone, which has been compiled, ready and enters it in the app's registry.
func (z *Zone) provision(ctx caddy.Context, h *Handler, name string) error {
	if len(z.MatcherSetsRaw) > 0 {
		matchers, err := ctx.LoadModule(z, "MatcherSetsRaw")
		if err != nil {
			return fmt.Errorf("zone %q: match: %w", name, err)
		}
		if err := z.matcherSets.FromInterface(matchers); err != nil {
			return fmt.Errorf("zone %q: match: %w", name, err)
		}
	}
	if err := h.app.register(h.Namespace, name, z.limits); err != nil {
		return err
	}
	for _, r := range z.limits.Rules() {
		if err := h.limiter.Open(r); err != nil {
			return fmt.Errorf("zone %q: %w", name, err)
		}
		z.opened = append(z.opened, r)
	}
	z.reporter = newReporter(h, h.Namespace, name, z.key.readable)
	if z.tier != nil {
		z.tier.warnOfClients(h.logger, name)
	}
	if z.key.needsAuthentication && !authenticatedBefore(ctx, h) {
		h.logger.Warn("the zone's key is about who is authenticated, but this handler runs before authentication: "+
			"put rate_limit after it in a route block, or set the global option: order rate_limit after basic_auth",
			zap.String("zone", name), zap.String("key", z.Key))
	}
	return nil
}

// compile checks every field that can be checked without Caddy running, and makes the zone's rules, key and cost.
func (z *Zone) compile(name, namespace string) error {
	if z == nil {
		return fmt.Errorf("zone %q: is null; it needs a limit", name)
	}
	if err := z.compileFields(name, namespace); err != nil {
		return fmt.Errorf("zone %q: %w", name, err)
	}
	return nil
}

func (z *Zone) compileFields(name, namespace string) error {
	prefixes := match.Prefixes{IPv4: z.IPv4Prefix, IPv6: z.IPv6Prefix}
	if z.isAlone() {
		if err := z.checkAlone(); err != nil {
			return err
		}
	}
	common, err := z.common()
	if err != nil {
		return err
	}
	own, err := z.limit(common)
	if err != nil {
		return err
	}
	if err := prefixes.Check(); err != nil {
		return err
	}
	key := z.Key
	if key == "" && z.MaxEvents == 0 {
		key = clientIPPlaceholder
	}
	if z.key, err = newKeyMaker(key, prefixes); err != nil {
		return err
	}
	own, more, err := z.more(own, common)
	if err != nil {
		return err
	}
	if z.cost, err = newCostMaker(z.Cost); err != nil {
		return err
	}
	if err := z.cost.check(own, more); err != nil {
		return err
	}
	if err := z.checkWords(); err != nil {
		return err
	}
	if err := z.setExcept(); err != nil {
		return err
	}
	onError, err := core.ParseOnError(z.OnError)
	if err != nil {
		return err
	}
	config := core.RuleConfig{Namespace: namespace, Name: name, KeySpec: z.key.spec, CountRejected: z.CountRejected, OnError: onError}
	if err := z.setConduct(&config, own, common); err != nil {
		return err
	}
	z.name = name
	z.shadow = config.Shadow
	z.limits, err = core.NewLimits(config, more)
	if err != nil {
		return ruleset.FieldOf(err, name)
	}
	if len(z.limits.Rules()) == 0 {
		if err := z.checkEffect(); err != nil {
			return err
		}
	}
	if z.OnMissingKey == "reject" && len(z.limits.Rules()) == 0 {
		return errors.New("on_missing_key reject: has no effect on a zone without any limit; write a limit, or leave it out")
	}
	if z.limits.Single() {
		z.single = z.limits.Own()
	}
	return nil
}

// more reads the tiers and overrides, and returns the zone's own limit with them.
func (z *Zone) more(own *core.Limit, common core.LimitConfig) (*core.Limit, core.MoreLimits, error) {
	var text ruleset.RuleText
	if z.Tiers != nil {
		tier, err := newKeyMaker(z.Tiers.Source, match.Prefixes{})
		if err == nil && z.Tiers.Source != "" && len(tier.parts) == 0 {
			err = fmt.Errorf("source %q: has no placeholder, so that it is the same for all; write one such as {http.auth.user.plan}", z.Tiers.Source)
		}
		if err != nil {
			return nil, core.MoreLimits{}, fmt.Errorf("tiers: %w", err)
		}
		z.tier = tier
		tiers := &ruleset.Object{}
		ruleset.SetText(tiers, "source", z.Tiers.Source)
		var limits []ruleset.Pair
		for _, value := range slices.Sorted(maps.Keys(z.Tiers.Limits)) {
			limits = append(limits, ruleset.Pair{Name: value, Value: z.Tiers.Limits[value]})
		}
		ruleset.SetPairs(tiers, "limits", limits)
		ruleset.AddObject(&text, "tiers", tiers)
	}
	for _, o := range z.Overrides {
		override := &ruleset.Object{}
		ruleset.SetList(override, "key", o.Key)
		ruleset.SetText(override, "limit", o.Limit)
		ruleset.AddObject(&text, "overrides", override)
	}
	if len(z.Overrides) > 0 && len(z.key.parts) == 0 {
		return nil, core.MoreLimits{}, fmt.Errorf("overrides: the key %q is the same for all, and has no other that could have a limit of its own", z.Key)
	}
	if err := z.checkOverrides(); err != nil {
		return nil, core.MoreLimits{}, err
	}
	if err := z.checkTiers(); err != nil {
		return nil, core.MoreLimits{}, err
	}
	own, more, errs := ruleset.More(&text, own, z.hasLimit(), common, len(z.key.parts), z.key.of, z.tierFor)
	if len(errs) > 0 {
		return nil, more, errs[0]
	}
	return own, more, nil
}

// checkOverrides refuses overrides that no client could ever come under, and those of an address that would be of its whole network.
func (z *Zone) checkOverrides() error {
	for _, o := range z.Overrides {
		if len(o.Key) != len(z.key.parts) { // which ruleset says
			continue
		}
		for i := range z.key.parts {
			part := &z.key.parts[i]
			if _, err := z.key.named(part, o.Key[i]); err != nil {
				hint := ""
				if part.isAddress() {
					hint = "; addresses that are not to be counted are written behind except"
				}
				return fmt.Errorf("overrides: %w%s", err, hint)
			}
			if problem := ruleset.OfOneAddress(o.Key[i], z.key.prefixes); problem != "" {
				return errors.New("overrides: " + problem)
			}
		}
	}
	return nil
}

// checkTiers refuses tiers that no request could ever have.
func (z *Zone) checkTiers() error {
	if z.Tiers == nil {
		return nil
	}
	for _, value := range slices.Sorted(maps.Keys(z.Tiers.Limits)) {
		if value == ruleset.AnyTier {
			continue
		}
		if !z.tier.whole {
			if _, err := z.tier.textNamed(value); err != nil {
				return fmt.Errorf("tiers: %w", err)
			}
			continue
		}
		if _, err := z.tier.keyNamed([]string{value}); err != nil {
			if z.tier.ofAddress {
				return fmt.Errorf("tiers: %q: must be an address, since the tier is one; an override with a prefix beside it is for a network", value)
			}
			return fmt.Errorf("tiers: %w", err)
		}
	}
	return nil
}

// tierFor returns the tier of requests for whose source of it the configuration has that value.
func (z *Zone) tierFor(value string) string {
	if z.tier.whole {
		return z.tier.of([]string{value})
	}
	spelt, _ := z.tier.textNamed(value) // checked
	return spelt
}

// hasLimit reports whether the zone says what its own limit is, in whichever words.
func (z *Zone) hasLimit() bool {
	return z.Unlimited || z.Requests != 0 || z.Period != "" || z.MaxEvents != 0 || z.Window != 0
}

// setExcept reads which addresses the zone does not cover.
func (z *Zone) setExcept() (err error) {
	var networks []string
	for _, s := range z.Except {
		if s == "private_ranges" {
			networks = append(networks, caddyhttp.PrivateRangesCIDR()...)
		} else {
			networks = append(networks, s)
		}
	}
	if len(networks) == 0 {
		return nil
	}
	z.except, err = match.Match{ExceptIPs: networks}.Compile()
	if err != nil {
		return errors.New(strings.Replace(err.Error(), "match: except IPs", "except", 1))
	}
	return nil
}

// common reads what all limits of the zone have in common.
func (z *Zone) common() (core.LimitConfig, error) {
	c := core.LimitConfig{Burst: z.Burst, Interval: z.Refill == "interval", Delays: z.OnLimit == "delay", MaxDelay: time.Duration(z.MaxDelay)}
	if z.MaxEvents != 0 || z.Window != 0 {
		c.Algorithm = core.SlidingWindowLog
	}
	if z.Algorithm != "" {
		a, err := core.ParseAlgorithm(z.Algorithm)
		if err != nil {
			return c, err
		}
		c.Algorithm = a
	}
	if z.TimeZone != "" {
		location, err := time.LoadLocation(z.TimeZone)
		if err != nil || z.TimeZone == "Local" {
			return c, fmt.Errorf("time_zone %q: must be a name of the time zone database, such as UTC or Europe/Berlin", z.TimeZone)
		}
		c.Location = location
	}
	if z.Refill != "" && c.Algorithm != core.TokenBucket {
		return c, fmt.Errorf("refill %s: only token_bucket is refilled", z.Refill)
	}
	return c, nil
}

// limit makes the zone's own limit of whichever words it is written in. It is nil where there is none, or the tiers have it.
func (z *Zone) limit(c core.LimitConfig) (*core.Limit, error) {
	native, dialect := z.Requests != 0 || z.Period != "", z.MaxEvents != 0 || z.Window != 0
	switch {
	case native && dialect:
		return nil, errors.New("max_events and window: stand beside a limit; they are two ways to write the same, keep one")
	case z.Unlimited && (native || dialect):
		return nil, errors.New("unlimited: stands beside a limit; keep one")
	case dialect:
		if z.MaxEvents == 0 {
			return nil, fmt.Errorf("max_events: is missing or 0; a window needs a number from 1 to %d", core.MaxLogRequests)
		}
		if z.MaxEvents < 0 {
			return nil, fmt.Errorf("max_events %d: must be from 1 to %d", z.MaxEvents, core.MaxLogRequests)
		}
		if z.Window == 0 {
			return nil, fmt.Errorf("max_events %d: has no window beside it; write a duration such as 1m", z.MaxEvents)
		}
		c.Requests = z.MaxEvents
		c.Period = time.Duration(z.Window)
	case z.Unlimited:
		return nil, nil
	case !native:
		if z.Tiers != nil || z.isAlone() {
			return nil, nil
		}
		return nil, errors.New("has no limit; write one such as " + limitInJSON)
	default:
		if z.Period == "" {
			return nil, errors.New("period: is missing; write a duration such as 1m, or day, week or month")
		}
		if err := core.ParseLimit("1/"+z.Period, &c); err != nil {
			_, hint, _ := strings.Cut(err.Error(), " (did you mean ")
			if hint != "" {
				hint = " (did you mean " + hint
			}
			return nil, fmt.Errorf("period %q: must be a duration from 1ms to 366d such as 10s, 1m or 7d, or day, week or month%s", z.Period, hint)
		}
		c.Requests = z.Requests
	}
	limit, err := core.NewLimit(c)
	if err != nil && dialect { // in the dialect's words
		told := err.Error()
		told = strings.Replace(told, "requests ", "max_events ", 1)
		told = strings.Replace(told, "period ", "window ", 1)
		return nil, errors.New(told)
	}
	return limit, err
}

// What errors offer is in JSON's fields, since a configuration in JSON has nothing else; those of a Caddyfile are told by inCaddyfile.
const (
	limitInJSON = `"requests": 100, "period": "1m"`
	entryInJSON = `"descriptors": [[{"key": "<key>", "value": "{http.request.header.X-Key}"}]]`
)

// inCaddyfile puts an error into the words of the Caddyfile.
var inCaddyfile = strings.NewReplacer(limitInJSON, "100/1m", entryInJSON, "descriptor <key> {header.X-Key}", ": max_events", ": events")

// checkWords says which of the fields that take one of a few words has another.
func (z *Zone) checkWords() error {
	for _, err := range []error{
		words.CheckWord("refill", z.Refill, []string{"continuous", "interval"}),
		z.checkEnforcement(),
		z.checkOnLimit(),
		words.CheckWord("on_missing_key", z.OnMissingKey, []string{"share", "skip", "reject"}),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// costMaker says what a request costs: a number, or what a placeholder yields.
type costMaker struct {
	number      int64
	placeholder string
}

func newCostMaker(cost string) (costMaker, error) {
	if cost == "" {
		return costMaker{number: 1}, nil
	}
	if name, ok := placeholderName(cost); ok {
		if err := checkPlaceholder(name); err != nil {
			return costMaker{}, fmt.Errorf("cost %q: %w", cost, err)
		}
		return costMaker{placeholder: name}, nil
	}
	n, err := words.ParseCount(cost, core.MaxRequests)
	if err != nil {
		return costMaker{}, fmt.Errorf("cost %w, or one placeholder", err)
	}
	return costMaker{number: n}, nil
}

// check refuses a cost that a limit can never hold.
func (c costMaker) check(own *core.Limit, more core.MoreLimits) error {
	limits := append(slices.Collect(maps.Values(more.Tiers)), slices.Collect(maps.Values(more.Overrides))...)
	for _, l := range append(limits, own) {
		if l != nil && c.number > l.Capacity() {
			return fmt.Errorf("cost %d: is more than the limit can ever hold, which is %d, so that every request would be rejected", c.number, l.Capacity())
		}
	}
	return nil
}

// of returns the request's cost.
func (c costMaker) of(r *http.Request) int64 {
	if c.placeholder == "" {
		return c.number
	}
	value, _ := replacerOf(r).GetString(c.placeholder)
	return core.ReadCost(value)
}

// ruleOf returns the rule that a request of that key comes under; nil: none, it is not counted.
func (z *Zone) ruleOf(r *http.Request, key string) *core.Rule {
	if z.single != nil {
		return z.single
	}
	tier := ""
	if z.tier != nil {
		tier = z.tier.text(r)
	}
	return z.limits.Of(tier, key)
}
