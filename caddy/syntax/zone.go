// Package syntax is how limits are written for Caddy, in a Caddyfile and in JSON: lines and fields, placeholders, matchers, zones, and what is
// around them in a configuration. It has no running state.
package syntax

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"
	_ "time/tzdata" // the time zone database for machines that have none, such as the Alpine image of Caddy: 450 KB of the program

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// Zone is a rule: the requests it covers, the key that tells their clients apart, and the limit of each key.
//
// The limit is `requests` per `period`. The words of caddy-ratelimit, `max_events` in a `window`, are accepted too, and mean what
// they mean there: a sliding window log.
type Zone struct {
	// Which requests the zone covers: those that match one of the matcher sets. The default is all requests.
	MatcherSetsRaw caddyhttp.RawMatcherSets `json:"match,omitempty" caddy:"namespace=http.matchers"`

	// What tells clients apart: a text with placeholders, each value of which has its own counters. A text without placeholders is
	// one counter for all clients. The default is `{http.vars.client_ip}`, the client's address; with `max_events` it is one
	// counter for all.
	Key string `json:"key,omitempty"`

	// How many requests a key may make in a period: 1 to 1000000000; with a sliding window log up to 100000.
	Requests int64 `json:"requests,omitempty"`

	// The period of `requests`: a duration from 1ms to 366d, or `day`, `week` or `month` for fixed windows that follow the
	// calendar, such as `month on 17` or `week on sunday`.
	Period string `json:"period,omitempty"`

	// The same as `requests`, in the words of caddy-ratelimit.
	MaxEvents int64 `json:"max_events,omitempty"`

	// The same as `period`, in the words of caddy-ratelimit.
	Window caddy.Duration `json:"window,omitempty"`

	// No limit for keys without a limit in `tiers` or `overrides`: their requests are not counted. Mutually exclusive with
	// `requests` and `period`.
	Unlimited bool `json:"unlimited,omitempty"`

	// Limits that depend on a value of the request. They share the zone's algorithm, burst and the like.
	Tiers *Tiers `json:"tiers,omitempty"`

	// A limit that requests bring, in place of the zone's own. It shares the zone's algorithm, burst and the like. Mutually exclusive with `tiers` and
	// `candidate`.
	LimitFrom *LimitFrom `json:"limit_from,omitempty"`

	// The limits of single keys. They have priority over tiers and `limit_from`.
	Overrides []Override `json:"overrides,omitempty"`

	// Addresses and networks of clients that the zone exempts, such as `10.0.0.0/8`; `private_ranges` is all private networks.
	Except []string `json:"except,omitempty"`

	// The time zone of a calendar period, such as `Europe/Berlin`. The default is UTC.
	TimeZone string `json:"time_zone,omitempty"`

	// How requests are counted: `token_bucket`, `leaky_bucket`, `fixed_window`, `sliding_window_log` or
	// `sliding_window_counter`. The default is `sliding_window_counter`; for a calendar period it is `fixed_window`, and for
	// `max_events` it is `sliding_window_log`.
	Algorithm string `json:"algorithm,omitempty"`

	// How many requests a token bucket holds, or how many may wait in a leaky bucket. The default is the limit's requests.
	Burst int64 `json:"burst,omitempty"`

	// How a token bucket is refilled: `continuous`, the default, or `interval`: completely, at each whole period of the Unix epoch.
	Refill string `json:"refill,omitempty"`

	// In how many segments, 2 to 60, a sliding window counter counts a period, in place of two whole windows. The more there are, the nearer it is to a
	// sliding window log; each takes 4 bytes a key. The default is two windows.
	Segments int `json:"segments,omitempty"`

	// When windows of a fixed window or a sliding window counter begin: `clock`, the default, at whole periods of the Unix epoch, for all keys at once;
	// `first_request`, each with the first request in it, only for `fixed_window`; or `spread`, at a time of each key's own, so that not all quotas are
	// renewed in one second. Not for a calendar period, and not with `consistency` `eventual`.
	WindowStart string `json:"window_start,omitempty"`

	// Over what part of the period clients are told to come back, so that not all come in the second in which their quotas are renewed: a fraction from 0 to
	// 1, such as `0.1`. Each key is told a time of its own, and no time is too early. It moves Retry-After, `t` and Reset; without it, Retry-After alone is
	// moved by a tenth of the period, by a minute at most, where the period is a minute or longer. `0`: all times are exact. For quotas that are renewed for
	// all keys at once: those of a `fixed_window` by the clock or the calendar, and of a `token_bucket` with `refill` `interval`.
	Jitter string `json:"jitter,omitempty"`

	// How many requests one request counts as: a whole number, or a placeholder that yields one. A value below 1, or that is no
	// number, counts as 1. With `cost_response` it may be 0: a request passes if anything is left. The default is 1.
	Cost string `json:"cost,omitempty"`

	// Masks IPv4 addresses in the key to a network with a prefix of so many bits, 1 to 32; the network then shares a counter. By
	// default every address has its own counter.
	IPv4Prefix int `json:"ipv4_prefix,omitempty"`

	// Masks IPv6 addresses in the key to a network with a prefix of so many bits, 1 to 128. Providers assign whole networks of 64
	// bits to single customers, so 64 is right for most sites. By default every address has its own counter.
	IPv6Prefix int `json:"ipv6_prefix,omitempty"`

	// `hard`, the default, rejects requests over the limit. `shadow` counts them, but lets everything pass, and sets no header
	// fields. `10%` rejects the requests of so many keys, always the same, and is a shadow for the others. `soft 20% 30s` allows 20 % more than the limit, for 30 s from the first request that exceeds it. Then the limit
	// holds, until for one whole period no request would have exceeded it and the excess has come down. The percentage is a whole
	// number from 1 to 1000, and must amount to at least one request; the duration is from 1ms to 366d. Not with a leaky bucket.
	Enforcement string `json:"enforcement,omitempty"`

	// What happens to a request over the limit: `reject`, the default, or `delay`: the request reserves a place in the queue and
	// waits until that is due, in the order of arrival. Not with a sliding window counter. With `shadow` nobody waits, and it is told who would.
	OnLimit string `json:"on_limit,omitempty"`

	// Has requests over the limit accepted with a 202, kept in Redis, and done when the limit admits them. In a Caddyfile it is
	// `on_limit defer`. It needs a store in Redis. Mutually exclusive with `on_limit` `delay`, `enforcement` other than `hard`,
	// `penalty`, `count_rejected`, `concurrency`, `candidate`, a leaky bucket and a `consistency` other than `strict`.
	Defer *Defer `json:"defer,omitempty"`

	// How long a request may wait, in a leaky bucket and with `on_limit` `delay`; one that would have to wait longer is rejected at
	// once. Up to 1h; the default is 10s.
	MaxDelay caddy.Duration `json:"max_delay,omitempty"`

	// How many requests of the zone may wait at a time in this process, with `on_limit` `delay`; further ones are rejected. From 1
	// to 1000000; the default is 1000.
	MaxWaiting int64 `json:"max_waiting,omitempty"`

	// How many of them one key may have, from 1 to `max_waiting`. The default is a quarter of the places that are left, so that one
	// key alone gets at most a fifth of all; if all requests have the same key, it is all places.
	MaxWaitingPerKey int64 `json:"max_waiting_per_key,omitempty"`

	// The statuses of the responses whose requests count: codes such as `401`, and classes such as `4xx`. A request is charged
	// until the status of its response is known, and then stays charged or is refunded. The default is that all requests count. Not
	// with a leaky bucket.
	Count []string `json:"count,omitempty"`

	// Which of the requests that the zone covers count: those that match one of the matcher sets. All of them are checked against the limit; one that does
	// not match is not charged, and passes if anything is left. With `count` and `cost_response`, a request counts if it matches and its response says so.
	// The default is all requests. Not with a leaky bucket.
	CountMatcherSetsRaw caddyhttp.RawMatcherSets `json:"count_match,omitempty" caddy:"namespace=http.matchers"`

	// Where a response says what its request has cost: `header` and a name, `trailer` and a name, `json` and a path such as
	// `usage.total_tokens` (of a stream of events, the last that has it), or `bytes`, the length of the body. A request that passes
	// reserves its `cost`, and is charged what the response says when that has ended; without a value, its `cost`. What goes beyond the
	// limit is owed, and paid before the next request passes. With the algorithms `token_bucket`, `fixed_window` and
	// `sliding_window_counter`.
	CostResponse []string `json:"cost_response,omitempty"`

	// The most that a request is charged by its response, from 1 to 1000000000, the default.
	CostMax int64 `json:"cost_max,omitempty"`

	// Pauses a key when the service answers a request of it with 429 or 503 and `Retry-After`: all its requests are rejected for as long, but at most for
	// this duration, from 1s to 24h. With limits whose period is at most 1h. The default is not to look.
	RespectUpstream caddy.Duration `json:"respect_upstream,omitempty"`

	// How long a key is blocked that exceeds the limit: the first time, the second time and so on; the last duration is for all
	// further times. The sequence starts over when the key, since it was last unblocked, has not exceeded the limit for as long as
	// the longest duration. Up to 16 durations from 1ms to 366d, such as `1m`, `10m` and `1h`. The default is none.
	Penalty []string `json:"penalty,omitempty"`

	// How many requests of a key may be under way at a time, in addition to the limit or in place of it: 1 to 1000000000. A request
	// is under way until its response has ended. The default is any number.
	Concurrency int64 `json:"concurrency,omitempty"`

	// A limit that is tried out on the same requests. It has no effect: only what it would do is counted and compared.
	Candidate *Candidate `json:"candidate,omitempty"`

	// How far advice may move the zone's own limit. Advice never touches a zone without it.
	Adapt *Adapt `json:"adapt,omitempty"`

	// How the nodes of a fleet keep to the limit together: `strict`, the default, lets Redis decide on every request. With `lease` a
	// node takes units of the limit for up to a second, and spends them without asking; the limit is kept all the same, with far fewer
	// calls. With `eventual 1s` nodes decide by themselves, and tell each other by Redis once a second, or at another interval from 10ms
	// to 1m: no request of a busy key waits, and together they may exceed the limit. Both need a store in Redis. The limit must be whole
	// again after a second or more, or with `eventual` not before the interval has passed.
	Consistency string `json:"consistency,omitempty"`

	// How several regions, each with a Redis of its own, keep to the limit together. No request waits for another region. With `lease` each
	// always keeps to a share of the limit, and one region lends the rest, so that the limit is never exceeded; it needs a store in Redis with
	// `region`, `peers`, `home` and `share`. With `eventual 1s` each admits by what it knows, and they tell each other once a second, or at another
	// interval from 100ms to 1m; together they may exceed the limit; it needs `consistency` `eventual`. By default the limit holds in each region
	// by itself.
	Regions string `json:"regions,omitempty"`

	// What happens when the store fails: `open` lets requests pass, `closed` answers 503, and `local`, the default, counts in
	// memory. Memory itself does not fail.
	OnError string `json:"on_error,omitempty"`

	// What happens to a request if a placeholder of the key is empty: `share`, the default, treats the empty value as any other, so
	// that a client cannot escape by leaving a header field out; `skip` lets the request pass uncounted; `reject` rejects it.
	OnMissingKey string `json:"on_missing_key,omitempty"`

	// Whether rejected requests also count against the limit, so that a client that does not slow down stays over it.
	CountRejected bool `json:"count_rejected,omitempty"`

	// The body of a rejection for which this zone is the reported rule: of the zones that reject, the one with the longest wait. It
	// may have placeholders. The default is the handler's `message`.
	Message string `json:"message,omitempty"`

	// What requests are answered with that this zone rejects, in place of a 429 with the `message`: that of the reported rule.
	Answer *Answer `json:"answer,omitempty"`
}

// CompiledZone is a zone that was checked, with the rule that it is.
type CompiledZone struct {
	*Zone
	Rule *ruleset.Rule
	Text *ruleset.RuleText // that rule was made from
}

// Tiers choose a limit by a value of the request, such as the plan of the authenticated customer.
type Tiers struct {
	// The source of the value: a text with placeholders. If clients can set it themselves, they can choose their limit.
	Source string `json:"source,omitempty"`

	// The limits by value, such as `100/1m`, or `unlimited`. The limit of `*` is for all other values, and replaces the zone's own
	// limit.
	Limits map[string]string `json:"limits,omitempty"`
}

// LimitFrom has requests bring their limits, such as a claim of a token or a header field that an authenticating proxy sets.
type LimitFrom struct {
	// The source of the limit: a text with placeholders, whose value is such as `500/1m`, or `500` in the period of the zone's limit. `0` rejects every
	// request, `unlimited` lets each pass uncounted. If there is no value, or no valid one, the zone's limit applies. If clients can set it themselves,
	// they can choose their limit.
	Source string `json:"source,omitempty"`

	// The most that a request may bring, such as `1000/1m`, or `1000` in the period of the zone's limit. A limit that could allow more than these requests
	// in this period is lowered until it cannot. The default is any limit.
	Max string `json:"max,omitempty"`
}

// Override is the limit of a single key.
type Override struct {
	// The values of the key's placeholders, in order.
	Key []string `json:"key,omitempty"`

	// The limit, such as `1000/1m`, or `unlimited`.
	Limit string `json:"limit,omitempty"`
}

// Candidate is a limit that is tried out on the requests of a zone. It has no effect: only what it would do is counted and
// compared. Mutually exclusive with `tiers`, `overrides`, `count` and `on_limit` `delay`.
type Candidate struct {
	// The limit, such as `100/1m`. Required.
	Limit string `json:"limit,omitempty"`

	// How requests are counted, as the zone's `algorithm`. The default is the zone's `algorithm`, since usually only numbers are
	// compared; if the zone has none, it is the default of a zone.
	Algorithm string `json:"algorithm,omitempty"`

	// How many requests a token bucket holds, or how many may wait in a leaky bucket. The default is the candidate's requests, not
	// the zone's `burst`.
	Burst int64 `json:"burst,omitempty"`

	// How a token bucket is refilled: `continuous`, the default, or `interval`.
	Refill string `json:"refill,omitempty"`

	// In how many segments, 2 to 60, a sliding window counter counts a period. The default is two windows, whatever the zone has.
	Segments int `json:"segments,omitempty"`

	// When windows of a fixed window or a sliding window counter begin: `clock`, `first_request` or `spread`. The default is `clock`, whatever the zone has.
	WindowStart string `json:"window_start,omitempty"`

	// The time zone of a calendar period, such as `Europe/Berlin`. The default is UTC.
	TimeZone string `json:"time_zone,omitempty"`
}

// Adapt says how far advice may move the limit of a zone. Mutually exclusive with `candidate` and `unlimited`.
type Adapt struct {
	// The least that advice may make of the limit, such as `50/1m`, in the limit's period. The default is the limit itself. Only an
	// advisor with the gates `bounds` goes below the limit.
	Floor string `json:"floor,omitempty"`

	// The most that advice may make of the limit, such as `200/1m`, in the limit's period. The default is the limit itself.
	Ceiling string `json:"ceiling,omitempty"`

	// How far the limit moves at once, and how long it stays then: a percentage of what it is, from 1 to 100, and a duration from
	// 1s to 1h. The default is `25% 30s`.
	Step string `json:"step,omitempty"`

	// The algorithms that advice may choose, besides the zone's own. The default is none.
	Algorithms []string `json:"algorithms,omitempty"`
}

// Answer is what requests are answered with that a zone rejects. gRPC calls get their own answer, and clients that ask for JSON problem
// details with the status, unless `type` is one of JSON.
type Answer struct {
	// The status, from 400 to 599; of a redirect 302, 303 or 307. The default is 429; of a redirect it is 302.
	Status int64 `json:"status,omitempty"`

	// The media type of `body` or `file`. The default is `text/html` if it begins with a `<`, and otherwise `text/plain`.
	Type string `json:"type,omitempty"`

	// The body. `{limit}`, `{remaining}`, `{reset}`, `{retry_after}` and `{rule}` stand for the values of the rejection, and Caddy's
	// placeholders for theirs, which are escaped in HTML and JSON.
	Body string `json:"body,omitempty"`

	// A file with the body, up to 256 KB. It is read when the configuration is loaded, and not when it changes.
	File string `json:"file,omitempty"`

	// Where the client is redirected to: a path, or a URL with `http` or `https`. The same stands for values as in `body`, escaped.
	// The zone must not cover that place.
	Redirect string `json:"redirect,omitempty"`

	// Whether the client's connection is closed after the answer.
	Close bool `json:"close,omitempty"`
}

// Complete reports whether the answer leaves nothing to error routes.
func (a *Answer) Complete() bool { return a.Body != "" || a.File != "" || a.Redirect != "" }

// KeyText returns the template of the zone's key.
func (z *Zone) KeyText() string {
	if z.Key == "" && z.MaxEvents == 0 {
		return ClientIPPlaceholder
	}
	return z.Key
}

// Compile checks every field that can be checked without a running Caddy, and makes the zone's rule. The error is a words.Mistake, which
// InJSON or InCaddyfile writes.
func (z *Zone) Compile(name, namespace string) (*CompiledZone, error) {
	c := &CompiledZone{Zone: z}
	err := c.compile(name, namespace)
	if err == nil {
		return c, nil
	}
	m := words.Of(err)
	if m.Path = m.Where(); len(m.Path) > 0 && m.Path[0] == "name" {
		return nil, m.Named("zone name")
	}
	return nil, m.Within("zone", strconv.Quote(name))
}

// compile is Zone.compile. The error does not name the zone.
func (c *CompiledZone) compile(name, namespace string) error {
	z := c.Zone
	if z == nil {
		return words.Wrong("", "", "is null; it needs a limit")
	}
	if z.OnLimit == "defer" {
		return words.Wrong("on_limit", `"defer"`, `has its settings in an object; write "defer": {} in its place`)
	}
	text := z.text(name)
	if err := z.setLimit(text); err != nil {
		return err
	}
	rule, mistakes := ruleset.Compile(text, ruleset.Context{Namespace: namespace, Template: keyTemplate})
	if len(mistakes) == 0 {
		if z.TimeZone != "" {
			noteZoneinfo()
		}
		c.Rule, c.Text = rule, text
		return c.checkDefer()
	}
	first := mistakes[0]
	switch {
	case first.Path[0] == "match": // of which a zone has except alone
		first.At = first.At[1:]
	case first.At[0] == words.Part{Name: "limit"}:
		first.At, first.Says = nil, "has no limit; write one such as `100/1m`"
	case first.At[0].Name == "limit" && len(first.At) > 1: // whose requests and period are fields of a zone
		first.At = first.At[1:]
		if z.isDialect() {
			first.At[0].Name = map[string]string{"requests": "max_events", "period": "window"}[first.At[0].Name]
		}
	}
	return first
}

// text returns the zone in the form of a rule in a file, without its limit.
func (z *Zone) text(name string) *ruleset.RuleText {
	t := &ruleset.RuleText{Name: name}
	setTexts(&t.Object, "rule", reflect.ValueOf(z).Elem())
	ruleset.SetList(&t.Object, "key", []string{z.KeyText()})
	if z.Tiers != nil {
		addObject(t, "tiers", "tiers", *z.Tiers)
	}
	if z.LimitFrom != nil {
		addObject(t, "limit_from", "limit_from", *z.LimitFrom)
	}
	for _, override := range z.Overrides {
		addObject(t, "overrides", "override", override)
	}
	if z.Candidate != nil {
		addObject(t, "candidate", "candidate", *z.Candidate)
	}
	if z.Answer != nil {
		addObject(t, "answer", "answer", *z.Answer)
	}
	if z.Adapt != nil {
		addObject(t, "adapt", "adapt", *z.Adapt)
	}
	if len(z.CountMatcherSetsRaw) > 0 { // which are Caddy's matchers
		ruleset.AddObject(t, "count_match", new(ruleset.Object))
	}
	var except []string
	for _, s := range z.Except {
		if s == "private_ranges" {
			except = append(except, caddyhttp.PrivateRangesCIDR()...)
		} else {
			except = append(except, s)
		}
	}
	if len(except) > 0 {
		o := new(ruleset.Object)
		ruleset.SetList(o, "except_ips", except)
		ruleset.AddObject(t, "match", o)
	}
	return t
}

func (z *Zone) isDialect() bool { return z.MaxEvents != 0 || z.Window != 0 }

// setLimit sets the zone's own limit, in whichever words it is written. There is none if the zone has no limit, or its tiers have
// it.
func (z *Zone) setLimit(t *ruleset.RuleText) error {
	native := z.Requests != 0 || z.Period != ""
	limit := ""
	switch {
	case native && z.isDialect():
		return words.Wrong("max_events", "", " and window are mutually exclusive with a limit: remove one or the other")
	case z.Unlimited && (native || z.isDialect()):
		return words.Wrong("unlimited", "", " and a limit are mutually exclusive: remove one")
	case z.isDialect():
		if z.MaxEvents == 0 {
			return words.Wrong("max_events", "", "is missing or 0; a window needs a number from 1 to %d", rate.MaxLogRequests)
		}
		if z.MaxEvents < 0 || z.MaxEvents > rate.MaxRequests {
			return words.Wrong("max_events", fmt.Sprint(z.MaxEvents), "must be from 1 to %d", rate.MaxLogRequests)
		}
		if z.Window == 0 {
			return words.Wrong("max_events", fmt.Sprint(z.MaxEvents), "has no window beside it; write a duration such as 1m")
		}
		if d := time.Duration(z.Window); d < rate.MinPeriod || d > rate.MaxPeriod || d%time.Microsecond != 0 {
			return words.Wrong("window", d.String(), "must be from 1ms to 366d, in whole microseconds")
		}
		if z.Algorithm == "" {
			ruleset.SetText(&t.Object, "algorithm", rate.SlidingWindowLog.String())
		}
		limit = fmt.Sprintf("%d/%s", z.MaxEvents, time.Duration(z.Window))
	case z.Unlimited:
		limit = ruleset.Unlimited
	case native:
		if z.Requests < 1 || z.Requests > rate.MaxRequests {
			return words.Wrong("requests", fmt.Sprint(z.Requests), "must be from 1 to %d", rate.MaxRequests)
		}
		if z.Period == "" {
			return words.Wrong("period", "", "is missing; write a duration such as 1m, or day, week or month")
		}
		if err := rate.ParseLimit("1/"+z.Period, new(rate.LimitConfig)); err != nil {
			return words.Wrong("period", strconv.Quote(z.Period), "must be a duration from 1ms to 366d such as 10s, 1m or 7d, or day, week or month").Guess(words.Of(err).Meant)
		}
		limit = fmt.Sprintf("%d/%s", z.Requests, z.Period)
	default:
		return nil
	}
	ruleset.SetText(&t.Object, "limit", limit)
	return nil
}

// names are what a configuration calls settings, and else says in its own way.
type names map[string]string

// Write returns an error in the words of the configuration.
func (n names) Write(err error) error {
	return errors.New(words.Of(err).In(func(name string) string { return cmp.Or(n[name], name) }))
}

var (
	InJSON      = names{"rule": "zone", "except_ips": "except", "in match: except_ips": "behind except", "100/1m": LimitInJSON, "descriptor <key> {header.X-Key}": EntryInJSON}
	InCaddyfile = names{"rule": "zone", "except_ips": "except", "in match: except_ips": "behind except", "max_events": "events"}
)

// UnmarshalJSON reads tiers as strictly as a zone.
func (t *Tiers) UnmarshalJSON(data []byte) error {
	type plain Tiers
	return UnmarshalPart("tiers", data, (*plain)(t))
}

// UnmarshalJSON reads limit_from as strictly as a zone.
func (l *LimitFrom) UnmarshalJSON(data []byte) error {
	type plain LimitFrom
	return UnmarshalPart("limit_from", data, (*plain)(l))
}

// UnmarshalJSON reads an override as strictly as a zone.
func (o *Override) UnmarshalJSON(data []byte) error {
	type plain Override
	return UnmarshalPart("overrides", data, (*plain)(o))
}

// UnmarshalJSON reads a candidate as strictly as a zone.
func (c *Candidate) UnmarshalJSON(data []byte) error {
	type plain Candidate // without this method, which would call itself
	if err := UnmarshalPart("candidate", data, (*plain)(c)); err != nil {
		return err
	}
	if err := refuseZero(data, "candidate"); err != nil {
		return &ReportedError{fmt.Errorf("candidate: %w", err)}
	}
	return nil
}

// UnmarshalJSON reads adapt as strictly as a zone.
func (a *Adapt) UnmarshalJSON(data []byte) error {
	type plain Adapt
	return UnmarshalPart("adapt", data, (*plain)(a))
}

// UnmarshalJSON reads an answer as strictly as a zone.
func (a *Answer) UnmarshalJSON(data []byte) error {
	type plain Answer
	if err := UnmarshalPart("answer", data, (*plain)(a)); err != nil {
		return err
	}
	if err := refuseZero(data, "answer"); err != nil {
		return &ReportedError{fmt.Errorf("answer: %w", err)}
	}
	return nil
}

// UnmarshalZones reads an object of zones name by name, since a map would hide duplicates.
func UnmarshalZones(data []byte) (map[string]*Zone, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, fmt.Errorf("rate_limits: must be an object of zones by their names")
	}
	zones := make(map[string]*Zone)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("rate_limits: %w", err)
		}
		name := token.(string) // an object's keys are strings
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, fmt.Errorf("zone %q: %w", name, err)
		}
		if _, duplicate := zones[name]; duplicate {
			return nil, fmt.Errorf("zone %q: duplicate name; keep one", name)
		}
		if string(raw) == "null" {
			return nil, fmt.Errorf("zone %q: is null; it needs a limit", name)
		}
		zone := new(Zone)
		if err := UnmarshalStrict(raw, zone); err != nil {
			return nil, fmt.Errorf("zone %q: %w", name, err)
		}
		if err := refuseZero(raw, "rule"); err != nil {
			return nil, fmt.Errorf("zone %q: %w", name, err)
		}
		zones[name] = zone
	}
	return zones, nil
}

// Interface guards
var (
	_ json.Unmarshaler = (*Tiers)(nil)
	_ json.Unmarshaler = (*LimitFrom)(nil)
	_ json.Unmarshaler = (*Override)(nil)
	_ json.Unmarshaler = (*Candidate)(nil)
	_ json.Unmarshaler = (*Adapt)(nil)
	_ json.Unmarshaler = (*Answer)(nil)
)

// ZoneID identifies a zone: zones of the same namespace and name share their counters.
func ZoneID(namespace, name string) string { return namespace + "/" + name }

// noteZoneinfo says once if time zones are taken from this program, since the machine has none. It looks where Go looks.
var noteZoneinfo = sync.OnceFunc(func() {
	places := []string{"/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/locale/TZ", "/etc/zoneinfo"}
	has := func(place string) bool {
		_, err := os.Stat(filepath.Join(place, "UTC"))
		return err == nil
	}
	if os.Getenv("ZONEINFO") == "" && !slices.ContainsFunc(places, has) {
		caddy.Log().Named("rate_limit").Info("this machine has no time zone database; time zones are those of the day on which this Caddy was built")
	}
})
