package admin

import (
	"net/http"
	"slices"

	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/match"
)

// keyAnswer is the answer of /rate_limit/key: the state of a key in each rule whose keys have that form.
type keyAnswer struct {
	Key   []string         `json:"key"`
	Rules []standingAnswer `json:"rules"`
}

// standingAnswer is the state of a key in one rule, before a request: whether a request of cost 1 would be allowed, and the
// numbers. The numbers are missing if the requests have no limit, or the store has failed.
type standingAnswer struct {
	Rule       string   `json:"rule"`
	For        string   `json:"for,omitempty"` // the tier of the limit; empty: the rule's own limit, or an override
	LimitText  string   `json:"limit_text"`    // or "unlimited"
	Limit      *int64   `json:"limit,omitempty"`
	Remaining  *int64   `json:"remaining,omitempty"`
	Allowed    *bool    `json:"allowed,omitempty"` // nil: unknown
	Reset      *float64 `json:"reset_seconds,omitempty"`
	RetryAfter *float64 `json:"retry_after_seconds,omitempty"` // -1: never
	stores.InFleet
	Error string `json:"error,omitempty"` // of the store, if it failed
}

// hasUnlimited reports whether the rule may cover requests of a key without any limit for them.
func hasUnlimited(s *report.ActiveRule, key string) bool {
	return slices.ContainsFunc(limitsOf(s, key), func(l report.NamedLimit) bool { return l.Limit == nil })
}

// showKey answers with the state of a key in one rule, or in every rule whose keys have the same number of parts.
//
// Caddy logs the URIs of requests to its admin endpoint. A key that must not be logged is sent in the body of a POST.
func showKey(a *View, r *http.Request) (any, error) {
	if err := checkQuery(r, "rule", "key", "id"); err != nil {
		return nil, err
	}
	query := r.URL.Query()
	asked := keyRequest{Rule: query.Get("rule"), Key: query["key"], ID: query.Get("id")}
	if r.Method == http.MethodPost {
		if err := readBody(r, &asked); err != nil {
			return nil, err
		}
	}
	if len(asked.Key) == 0 && asked.ID == "" && asked.Rule == "" {
		return nil, adminError(http.StatusBadRequest, "key: is missing; write its parts, each as a parameter: ?key=192.0.2.7")
	}
	if asked.Rule == "" && asked.ID != "" {
		return nil, adminError(http.StatusBadRequest, "id: names a key of one rule; write rule=<name> beside it")
	}
	if asked.Rule != "" {
		s, key, err := named(a, asked)
		if err != nil {
			return nil, err
		}
		return keyAnswer{Key: s.Keys.Show(key), Rules: standings(s, key)}, nil
	}
	answer := keyAnswer{Key: asked.Key, Rules: []standingAnswer{}}
	for _, s := range a.Rules() {
		key, err := s.Keys.Of(asked.Key)
		if err == nil && len(s.Keys.Names) > 0 && !s.Keys.Free {
			answer.Rules = append(answer.Rules, standings(s, key)...)
		}
	}
	return answer, nil
}

// standings returns the state of a key under each limit that its requests may have: its override if there is one, else the rule's
// own limit and those of all tiers.
func standings(s *report.ActiveRule, key string) []standingAnswer {
	list := []standingAnswer{}
	for _, l := range limitsOf(s, key) {
		list = append(list, standing(s, l, key))
	}
	return list
}

// standing returns the state of a key under one limit.
func standing(s *report.ActiveRule, l report.NamedLimit, key string) standingAnswer {
	one := standingAnswer{Rule: s.Label, For: l.Of}
	if l.Limit == nil {
		one.LimitText = "unlimited"
		one.Allowed = new(true)
		return one
	}
	one.LimitText = l.Limit.Limit.String()
	checks := []core.Check{{Rule: l.Limit.For(key), Key: key, Cost: 1, Previous: s.Active.Previous(l.Value, key, l.Limit)}}
	var v core.Verdict
	if err := s.Limiter.Look(checks, &v); err != nil {
		one.Error = err.Error()
		return one
	}
	d := &checks[0].Decision
	one.Limit = new(d.Limit)
	one.Remaining = new(d.Remaining)
	one.Allowed = new(d.Allowed)
	one.Reset = new(stores.Seconds(d.ResetAfter))
	one.RetryAfter = new(stores.Seconds(d.RetryAfter))
	one.InFleet = s.Limiter.Stands(l.Limit, key)
	return one
}

// limitsOf returns the limits that requests of a key may have. A nil limit means unlimited.
func limitsOf(s *report.ActiveRule, key string) []report.NamedLimit {
	if s.Desc != nil {
		return []report.NamedLimit{{Limit: s.Desc}}
	}
	if limits := s.Rule.Active.Limits(); limits.Overrides(key) { // overrides have priority over tiers
		return []report.NamedLimit{{Limit: limits.Of("", key)}}
	}
	list := []report.NamedLimit{{Limit: s.Own}}
	for _, l := range s.Limits {
		if l.Tier && l.Of != report.TierOf("*") { // the tier * is the rule's own limit
			list = append(list, l)
		}
	}
	return append(list, report.BroughtLimits(s.Rule.Active.Limits())...)
}

// keyRequest is a request's body that names a key.
type keyRequest struct {
	Rule string   `json:"rule"`
	Key  []string `json:"key"`
	ID   string   `json:"id"`
}

// eachPlace calls f once for each place where a key has counters: for the rules of all tiers, so that a client cannot escape by
// changing its tier, and in all stores, if handlers keep the rule in several.
func eachPlace(s *report.ActiveRule, f func(*stores.Limiter, *core.Rule) error) error {
	type place struct {
		limiter  *stores.Limiter
		identity string
	}
	seen := make(map[place]bool)
	for _, one := range append([]*report.ActiveRule{s}, s.Also...) {
		for _, r := range rulesCounting(one) {
			here := place{one.Limiter, r.Identity}
			if seen[here] {
				continue
			}
			seen[here] = true
			if err := f(one.Limiter, r); err != nil {
				return adminError(http.StatusServiceUnavailable, "rule %q: %w", s.Label, err)
			}
		}
	}
	return nil
}

// rulesCounting returns the rules under which keys are counted or blocked: the active ones, and before them the previous ones that requests must
// pass, too, which come first as transition.Active.PreviousRules says.
func rulesCounting(s *report.ActiveRule) []*core.Rule {
	var list []*core.Rule
	for _, previous := range s.Active.PreviousRules() {
		if !slices.ContainsFunc(s.Rules, func(r *core.Rule) bool { return r.Identity == previous.Identity }) {
			list = append(list, previous)
		}
	}
	return append(list, s.Rules...)
}

// passes says why no handler counts requests of the key under the rule, so that they pass whatever is done to the key; "" if any
// handler counts them.
func passes(s *report.ActiveRule, key string) string {
	why := ""
	for _, one := range append([]*report.ActiveRule{s}, s.Also...) {
		if why = passesHere(one, key); why == "" {
			return ""
		}
	}
	return why
}

func passesHere(s *report.ActiveRule, key string) string {
	var except *match.Matcher
	skips := false
	if s.Rule != nil {
		except, skips = s.Rule.Matcher, s.Rule.SkipMissing
	}
	parts := s.Keys.Parts(key)
	if len(parts) != len(s.Keys.Names) {
		return ""
	}
	for i, value := range parts {
		if value == "" && skips {
			return "requests without " + s.Keys.Names[i] + " pass uncounted (on_missing_key skip)"
		}
		if s.Keys.Names[i] != "client_ip" || except == nil {
			continue
		}
		if network, err := match.ParseNetwork(value); err == nil && except.Excepts(network) {
			return value + " is among the addresses that the rule exempts, whose requests pass uncounted"
		}
	}
	return ""
}

// named returns the rule and the key that a request names.
func named(a *View, k keyRequest) (*report.ActiveRule, string, error) {
	s, err := ruleNamed(a, k.Rule)
	if err != nil {
		return nil, "", err
	}
	key, err := keyOf(s, k.Key, k.ID)
	return s, key, err
}
