package traefik

import (
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/ruleset"
)

// mostMisses is after how many requests in a row without a value that is told. A field that only some clients send comes before.
const mostMisses = 1000

// mostOthers is after how many requests that are not its rule's a value is looked for no more, since to see that costs an interpreter some time.
const mostOthers = 10 * mostMisses

// expected is a value that requests are expected to have: what the cost or tier of a rule, or an entry of a descriptor, is taken from. A key is not among
// them: requests without it share a counter, and so are limited.
type expected struct {
	what   string
	source *match.Source
	rule   *front.Rule // whose requests have it; nil: all requests
	misses atomic.Int64
	others atomic.Int64 // requests that are not the rule's
	over   atomic.Bool  // one had it, or it was told, or the rule has hardly any requests
}

// expect notes the values that requests of the configuration's own rules and descriptors are expected to have.
func (e *engine) expect() {
	add := func(what string, rule *front.Rule, source *match.Source) {
		if source == nil {
			return
		}
		if source.ClientChooses() {
			e.expected = append(e.expected, &expected{what: what, source: source, rule: rule})
		}
	}
	for _, r := range e.own {
		add(fmt.Sprintf("rule %q: cost", r.Ruled.Name), r, r.Ruled.CostFrom)
		chooser := "tiers"
		if r.Ruled.Limits.Requested() != nil {
			chooser = "limitFrom"
		}
		add(fmt.Sprintf("rule %q: %s", r.Ruled.Name, chooser), r, ruleset.TierSource(r.Ruled))
	}
	for i := range e.descriptors {
		for j := range e.descriptors[i] {
			source := e.descriptors[i][j].Source
			add(fmt.Sprintf("descriptors: %s", e.descriptors[i][j].Key), nil, &source)
		}
	}
	e.open.Store(int64(len(e.expected)))
}

// noteExpected looks for the values that no request has had yet, and tells once of one that does not come.
func noteExpected(e *engine, r *http.Request, address string) {
	for _, one := range e.expected {
		if one.over.Load() {
			continue
		}
		if one.rule != nil && one.rule.Matcher != nil && !match.Covers(one.rule.Matcher, r, match.CleanPath(r.URL.Path), address) {
			if one.others.Add(1) == mostOthers && one.over.CompareAndSwap(false, true) {
				e.open.Add(-1)
			}
			continue
		}
		there := one.source.Value(r, address) != ""
		if !there && one.misses.Add(1) < mostMisses || !one.over.CompareAndSwap(false, true) {
			continue
		}
		e.open.Add(-1)
		if !there {
			warn(e.name, fmt.Sprintf("%s: the first %d requests had no %s; is its name spelt as they have it?", one.what, mostMisses, one.source))
		}
	}
}
