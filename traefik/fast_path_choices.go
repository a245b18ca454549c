package traefik

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/ruleset"
)

// hasChoices reports whether any rule of a set has tiers or overrides.
func hasChoices(s *ruleSet) bool {
	for _, r := range s.rules {
		if r.Only == nil {
			return true
		}
	}
	return false
}

// choicesPath returns the path of several rules of which some have tiers or overrides: it finds the limits of these, and passes the request on to a path
// of all limits, which is made when the first request needs it.
func choicesPath(h *handler, s *ruleSet, metering *memory.Metering) http.Handler {
	var choosing []func(r *http.Request) string
	for _, r := range s.rules {
		if r.Only == nil {
			choosing = append(choosing, choiceFunc(h, r))
		}
	}
	general := generalPath(h, metering)
	none := withOwnPaths(h.next, metering)
	kept := &keptPaths{}
	kept.paths.Store(&pathList{several: make(map[string]http.Handler)})
	open := &h.engine.open
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var (
			text, one string
			path      http.Handler
		)
		if open.Load() > 0 { // whether requests have a tier is still looked at
			general.ServeHTTP(w, r)
			return
		}
		for _, choose := range choosing {
			one = choose(r)
			if one == "" {
				general.ServeHTTP(w, r)
				return
			}
			text += one
		}
		path = kept.paths.Load().(*pathList).several[text]
		if path == nil {
			path = keep(kept, -1, text, general, func() http.Handler { return pathOfChosen(h, s, text, none) })
		}
		path.ServeHTTP(w, r)
	})
}

// choiceFunc returns a function that chooses the limit of a rule for a request: its place, as Choices has it, as text with a blank behind it;
// "": it has no key, and the general path is to see to that.
func choiceFunc(h *handler, of *front.Rule) func(r *http.Request) string {
	byTier, byKey, others := of.Ruled.Limits.Choices()
	keyOf := keyFunc(h, of)
	noKey := ruleset.NoKey(of.Ruled)
	keyless := ""
	if of.Ruled.SkipMissing && !ruleset.NeedsAddress(of.Ruled) {
		keyless = "0 "
	}
	keyed := len(byKey) > 0 || of.Ruled.SkipMissing || of.Ruled.RejectMissing // a limit may be none, and then nobody else looks at the key
	tierOf := tierFunc(h.engine, of)
	return func(r *http.Request) string {
		var (
			key   string
			place int
			ok    bool
		)
		if keyed {
			key = keyOf(r)
			if key == noKey {
				return keyless
			}
			place, ok = byKey[key]
		}
		if !ok && tierOf != nil {
			place, ok = byTier[tierOf(r)]
		}
		if !ok {
			place = others
		}
		return strconv.Itoa(place) + " "
	}
}

// tierFunc returns a function that returns the tier of a request; nil: the rule has no tiers.
func tierFunc(e *engine, r *front.Rule) func(r *http.Request) string {
	tier := ruleset.TierFunc(r.Ruled)
	if tier == nil && ruleset.TierSource(r.Ruled) != nil {
		tier = addressTier(e, r)
	}
	return tier
}

// pathOfChosen returns the path of a set's rules with the limits of a text; none if these are none.
func pathOfChosen(h *handler, s *ruleSet, text string, none http.Handler) http.Handler {
	part := *s
	part.rules = nil
	places := strings.Fields(text)
	for _, r := range s.rules {
		if r.Only != nil {
			part.rules = append(part.rules, r)
			continue
		}
		place, _ := strconv.Atoi(places[0])
		places = places[1:]
		if place > 0 {
			chosen := *r
			chosen.Only = r.Ruled.Limits.Rules()[place-1]
			one := &chosen
			part.rules = append(part.rules, one)
		}
	}
	if len(part.rules) == 0 {
		return none
	}
	return severalPath(h, &part)
}
