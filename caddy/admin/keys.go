package admin

import (
	"net/http"

	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/byhand"
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
	for _, l := range s.LimitsOf(key) {
		list = append(list, standing(s, l, key))
	}
	return list
}

// standing returns the state of a key under one limit.
func standing(s *report.ActiveRule, l byhand.NamedLimit, key string) standingAnswer {
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

// keyRequest is a request's body that names a key.
type keyRequest struct {
	Rule string   `json:"rule"`
	Key  []string `json:"key"`
	ID   string   `json:"id"`
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
