package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// ask is what an application asks: whether so many units of a key are within a rule's limit.
type ask struct {
	Rule string   `json:"rule"`
	Key  keyParts `json:"key"`
	Cost *int64   `json:"cost"` // nil: what the rule says that a request costs; 0: nothing is charged
	Tier string   `json:"tier"` // of the client, for rules with tiers or limit_from
}

// keyParts are the values of a key's parts. One is written without a list, too.
type keyParts []string

// UnmarshalJSON implements json.Unmarshaler.
func (k *keyParts) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil && text[0] == '"' {
		*k = keyParts{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(k))
}

// decided answers an ask. Times are in seconds.
type decided struct {
	Allowed    bool     `json:"allowed"`
	Limit      *int64   `json:"limit,omitempty"` // nil, and so are Remaining and Reset: no limit is enforced
	Remaining  *int64   `json:"remaining,omitempty"`
	Reset      *float64 `json:"reset,omitempty"`
	Delay      float64  `json:"delay,omitempty"`       // how long to wait before what was allowed is done
	RetryAfter *float64 `json:"retry_after,omitempty"` // nil if it is not allowed: it never will be
	Error      string   `json:"error,omitempty"`       // the store has failed, and the rule's on_error rejects
}

// mostAsks bounds how many asks a list may have.
const mostAsks = 100

// decide decides on what an application asks.
func decide(a *View, r *http.Request) (any, error) {
	return answerAsks(r, func(label string) (*report.ActiveRule, error) { return ruleNamed(a, label) })
}

// ServeDecide decides, as the endpoint decide does, on what an application asks under some rules. The request has passed what its site has against strangers.
func ServeDecide(w http.ResponseWriter, r *http.Request, rules map[string]*report.ActiveRule) error {
	if r.TLS != nil && !r.TLS.HandshakeComplete { // anybody can have sent it before
		return adminError(http.StatusTooEarly, "the TLS handshake is not complete")
	}
	if err := (endpoint{name: "rate_limit_decide", methods: writing}).check(w, r); err != nil {
		return err
	}
	answers, err := answerAsks(r, func(label string) (*report.ActiveRule, error) {
		if rule := rules[label]; rule != nil {
			return rule, nil
		}
		if label == "" {
			return nil, adminError(http.StatusBadRequest, "rule: is missing; write one of %s", strings.Join(slices.Sorted(maps.Keys(rules)), ", "))
		}
		hint := ""
		if near := words.Nearest(label, slices.Sorted(maps.Keys(rules))); near != "" {
			hint = fmt.Sprintf(" (did you mean %s?)", near)
		}
		return nil, adminError(http.StatusNotFound, "rule %q: is none of those that rate_limit_decide answers for%s", label, hint)
	})
	if err != nil {
		return err
	}
	return writeAnswer(w, answers)
}

// answerAsks reads a request's ask, or its list of them, decides on each by itself, in their order, and returns the answers in the same form. With an
// error nothing has been charged.
func answerAsks(r *http.Request, rule func(label string) (*report.ActiveRule, error)) (any, error) {
	asks, listed, err := readAsks(r)
	if err != nil {
		return nil, err
	}
	prepared := make([]prepared, len(asks))
	for i := range asks {
		if prepared[i], err = prepare(&asks[i], rule); err != nil {
			return nil, within(i, listed, err)
		}
	}
	answers := make([]decided, len(asks))
	for i := range prepared {
		answers[i] = prepared[i].decide(r)
	}
	if !listed {
		return answers[0], nil
	}
	return answers, nil
}

// readAsks returns the ask of a request's body, or the list of them.
func readAsks(r *http.Request) (asks []ask, listed bool, err error) {
	body, err := readWhole(r)
	if err != nil {
		return nil, false, err
	}
	list := []json.RawMessage{body}
	if listed = bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")); listed {
		list = nil
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, true, adminError(http.StatusBadRequest, "the request's body: %w", err)
		}
		if len(list) < 1 || len(list) > mostAsks {
			return nil, true, adminError(http.StatusBadRequest, "the list has %d asks; must be 1 to %d", len(list), mostAsks)
		}
	}
	asks = make([]ask, len(list))
	for i := range list {
		if err := parseBody(list[i], &asks[i]); err != nil {
			return nil, listed, within(i, listed, err)
		}
	}
	return asks, listed, nil
}

// within says in an error which ask of a list it is about.
func within(i int, listed bool, err error) error {
	if failed := new(caddy.APIError); listed && errors.As(err, failed) {
		return adminError(failed.HTTPStatus, "ask %d: %w", i+1, failed.Err)
	}
	return err
}

// prepared is an ask that is valid.
type prepared struct {
	rule *report.ActiveRule
	key  string
	cost int64 // 0: nothing is charged
	tier string
}

// prepare checks an ask.
func prepare(a *ask, rule func(label string) (*report.ActiveRule, error)) (p prepared, err error) {
	if p.rule, err = rule(a.Rule); err != nil {
		return p, err
	}
	bad := func(status int, format string, v ...any) (prepared, error) {
		return p, adminError(status, "rule %q: "+format, append([]any{a.Rule}, v...)...)
	}
	if p.key, err = p.rule.Keys.Of(a.Key); err != nil {
		return bad(http.StatusBadRequest, "%w", err)
	}
	p.cost = 1
	if p.rule.Rule != nil && p.rule.Rule.CostFrom == nil {
		p.cost = p.rule.Rule.Cost
	}
	if a.Cost != nil {
		if p.cost = *a.Cost; p.cost < 0 || p.cost > rate.MaxRequests {
			return bad(http.StatusBadRequest, "cost %d: must be 0 to %d, where 0 charges nothing", p.cost, rate.MaxRequests)
		}
	}
	for _, limit := range p.rule.Rules {
		if what := atEnd(limit); what != "" {
			return bad(http.StatusConflict, "has %s, which needs to know when a request is over and how, and nobody says that of what was asked; ask under a rule without it", what)
		}
	}
	if p.rule.Rule != nil && p.rule.Rule.RejectMissing && slices.Contains(a.Key, "") {
		return bad(http.StatusBadRequest, "key: a part is empty, and on_missing_key rejects such requests")
	}
	if a.Tier != "" {
		if p.rule.Rule == nil || p.rule.Rule.Limits.Single() {
			return bad(http.StatusBadRequest, "tier %q: the rule has one limit for all of them; leave tier out", a.Tier)
		}
		p.tier = a.Tier
	}
	return p, nil
}

// atEnd returns the setting by which a limit counts when requests have ended; "": it charges them on arrival.
func atEnd(r *core.Rule) string {
	switch {
	case slices.ContainsFunc(r.Linked(), func(beside *core.Rule) bool { return beside.Limit.InFlight }), r.Limit.InFlight:
		return "concurrency"
	case r.Measures():
		return "cost_response"
	case r.CountsByResponse():
		return "count or count_match"
	}
	return ""
}

// decide decides on an ask, and charges it.
func (p *prepared) decide(r *http.Request) decided {
	s := p.rule
	if s.Passes(p.key) != "" {
		return decided{Allowed: true}
	}
	tier := p.tier
	if s.Rule != nil {
		tier = ruleset.TierFor(s.Rule, tier)
	}
	limit := s.Active.Of(tier, p.key)
	if limit == nil {
		return decided{Allowed: true}
	}
	q := front.Evaluations.Get().(*front.Evaluation)
	defer front.Free(q)
	q.Checks = append(q.Checks, core.Check{Rule: limit, Key: p.key, Cost: max(p.cost, 1), Previous: s.Active.Previous(tier, p.key, limit)})
	v := &q.Verdict
	if p.cost == 0 {
		if err := s.Limiter.Look(q.Checks, v); err != nil {
			s.Limiter.Failed(err)
		}
		return answerOf(q, r)
	}
	at, err := s.Limiter.Charge(q.Checks, v)
	report.Count(q, at, err != nil)
	if v.Reserved { // it has a place among those that wait, until it leaves
		reservations := core.AppendReservations(nil, q.Checks)
		time.AfterFunc(time.Duration(v.Delay)*time.Microsecond, func() {
			s.Limiter.Depart(reservations)
			s.Limiter.Settle(reservations, http.StatusOK)
		})
	}
	return answerOf(q, r)
}

// answerOf returns the answer of a verdict on one check.
func answerOf(q *front.Evaluation, r *http.Request) decided {
	v := &q.Verdict
	front.SetLater(q, r, -1)
	front.SetQuotasLater(q.Checks, r, -1)
	d := decided{Allowed: v.Outcome == core.Allow || v.Outcome == core.Delay, Delay: inMillis(v.Delay)}
	if v.Outcome == core.Unavailable {
		d.Error = front.CannotCheck
	}
	if !d.Allowed && v.RetryAfter != rate.Never {
		d.RetryAfter = new(inMillis(v.RetryAfter))
	}
	if v.Reported >= 0 {
		of := core.Reported(q.Checks, v).Decision
		d.Limit, d.Remaining, d.Reset = &of.Limit, &of.Remaining, new(inMillis(of.ResetAfter))
	}
	return d
}

// inMillis converts microseconds to seconds, rounded up to a thousandth, so that nobody is told to come too early.
func inMillis(micros int64) float64 { return math.Ceil(float64(micros)/1e3) / 1e3 }
