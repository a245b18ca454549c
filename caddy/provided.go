package ratelimit

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/match"
)

// Values of requests that never come are told: when the configuration is loaded, of placeholders that cannot have one, and at requests, of all
// others. That is for all settings that take placeholders: keys, costs, tiers and descriptors.

// mostMisses is after how many requests in a row without a value that is told. A field that only some clients send comes before.
const mostMisses = 1000

// expected is a value that requests are expected to have.
type expected struct {
	zone    *openZone // whose requests have it; nil: all requests of the handler
	setting string
	source  match.Source
	another bool         // if a request has none, the key takes another source
	misses  atomic.Int32 // requests in a row without it
	over    atomic.Bool  // one had it, or it is not looked for any more
	told    atomic.Bool  // that none has it
}

func (one *expected) placeholder() string { return strings.Trim(one.source.String(), "{}") }

// expectations are the values that a handler's requests are expected to have, and which none of them has had yet.
type expectations struct {
	list   []*expected
	at     string // where the handler is written
	logger *zap.Logger
	open   atomic.Int32
}

// expectationsOf returns those of a handler whose zones are compiled; nil: all values are those of any request.
func expectationsOf(zones []*openZone, descriptors [][]DescriptorEntry, at string, logger *zap.Logger) *expectations {
	e := &expectations{at: at, logger: logger}
	add := func(zone *openZone, setting string, sources []match.Source) {
		for _, source := range sources {
			for _, one := range source.Alternatives() {
				if syntax.IsCaddys(one) {
					e.list = append(e.list, &expected{zone: zone, setting: setting, source: one, another: true})
				}
			}
			if source.Alternatives() != nil {
				continue
			}
			if source.ClientChooses() || syntax.IsCaddys(source) {
				e.list = append(e.list, &expected{zone: zone, setting: setting, source: source})
			}
		}
	}
	of := func(text string) []match.Source {
		t, err := syntax.NewTemplate(text)
		if err != nil {
			return nil // which compile has reported
		}
		return t.Sources
	}
	for _, zone := range zones {
		add(zone, "key", of(zone.KeyText()))
		if strings.HasPrefix(zone.Cost, "{") {
			add(zone, "cost", of(zone.Cost))
		}
		if zone.Tiers != nil {
			add(zone, "tiers", of(zone.Tiers.Source))
		}
		if zone.LimitFrom != nil {
			add(zone, "limit_from", of(zone.LimitFrom.Source))
		}
	}
	for _, d := range descriptors {
		for _, entry := range d {
			add(nil, "descriptor "+entry.Key, of(entry.Value))
		}
	}
	if len(e.list) == 0 {
		return nil
	}
	for _, one := range e.list {
		name := one.placeholder()
		if meant := syntax.Meant(name); meant != "" && syntax.IsCaddys(one.source) {
			zone := ""
			if one.zone != nil {
				zone = one.zone.Rule.Name
			}
			logger.Warn("a placeholder of "+one.setting+" is none of Caddy's; did you mean {"+meant+"}?", zap.String("zone", zone), zap.String("placeholder", name), zap.String("at", at))
		}
	}
	e.open.Store(int32(len(e.list))) //nolint:gosec // as many as are written in a configuration
	return e
}

// note looks for the values that no request has had yet, and tells once of one that does not come.
func (e *expectations) note(r *http.Request) {
	if e == nil || e.open.Load() <= 0 {
		return
	}
	for _, one := range e.list {
		if one.over.Load() {
			continue
		}
		name := "handler"
		if one.zone != nil {
			name = one.zone.Rule.Name
			if one.zone.Rule.Covering != nil {
				if covered, err := one.zone.covers(r); err != nil || !covered {
					continue
				}
			}
		}
		if one.source.Value(r, syntax.ClientIPOf(r)) != "" {
			one.told.Store(false)
			e.end(one)
			continue
		}
		if one.told.Load() { // it is looked for all the same, so that the list of rules does not go on saying so
			continue
		}
		misses := one.misses.Add(1)
		placeholder := one.placeholder()
		subject := "the zone's " + one.setting
		if one.zone == nil {
			subject = "the " + one.setting
		}
		fields := []zap.Field{zap.String("zone", name), zap.String("placeholder", placeholder), zap.String("at", e.at)}
		_, known := syntax.ReplacerOf(r).Get(placeholder)
		auth := strings.HasPrefix(placeholder, "http.auth.")
		message := ""
		switch {
		case syntax.IsCaddys(one.source) && !known && !auth && !strings.HasPrefix(placeholder, "http.regexp."):
			message = subject + " has a placeholder that nothing provides, so it is empty for every request"
		case one.another: // it is foreseen
			if misses >= mostMisses {
				e.end(one)
			}
			continue
		case auth && one.setting == "key":
			if e.end(one) {
				e.logger.Warn(subject+" is empty for a request that nobody has authenticated; does rate_limit run before authentication?", fields...)
			}
			continue
		case misses >= mostMisses && one.setting == "key" && (one.zone.OnMissingKey == "skip" || one.zone.OnMissingKey == "reject"): // it is foreseen
			e.end(one)
			continue
		case misses >= mostMisses:
			message = fmt.Sprintf("%s has a placeholder that was empty for the first %d requests; is its name spelt as they have it?", subject, mostMisses)
		default:
			continue
		}
		if one.told.CompareAndSwap(false, true) {
			e.logger.Warn(message, fields...)
		}
	}
}

// notes says of a zone for which settings no value has come: for the list of rules, and the page.
func (e *expectations) notes(zone *openZone) (list []string) {
	if e == nil {
		return nil
	}
	for _, one := range e.list {
		if one.zone == zone && one.told.Load() {
			list = append(list, one.setting+": no request has had "+one.placeholder())
		}
	}
	return list
}

// missing says which values a request does not have: for explain.
func (e *expectations) missing(r *http.Request) (list []string) {
	if e == nil {
		return nil
	}
	for _, one := range e.list {
		of := one.setting
		if one.zone != nil {
			if covered, err := one.zone.covers(r); one.zone.Rule.Covering != nil && (err != nil || !covered) {
				continue
			}
			of = "the " + one.setting + " of zone " + one.zone.Rule.Name
		}
		if one.source.Value(r, syntax.ClientIPOf(r)) == "" && !one.another && !strings.HasPrefix(one.placeholder(), "http.auth.") { // which explain asks for by itself
			list = append(list, "the request has no "+one.placeholder()+", which "+of+" is taken from")
		}
	}
	return list
}

// end ends the search for a value. It reports whether it was not over before.
func (e *expectations) end(one *expected) bool {
	if !one.over.CompareAndSwap(false, true) {
		return false
	}
	e.open.Add(-1)
	return true
}
