package admin

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/core/byhand"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/excepted"
	"github.com/proxyweir/weir/core/exception"
)

// decision is a request's body by which somebody decides something for a key: why, and who that is.
type decision struct {
	keyRequest
	byhand.Decision
}

// lasting is a decision that holds until a time.
type lasting struct {
	decision
	Until string `json:"until"`
	For   string `json:"for"`
}

// deciding reads a decision into body, whose part is d, and returns the rule and the key.
func deciding(a *View, r *http.Request, body any, d *decision) (*report.ActiveRule, string, error) {
	if err := readBody(r, body); err != nil {
		return nil, "", err
	}
	if err := d.Check(); err != nil {
		return nil, "", refusal(err)
	}
	return named(a, d.keyRequest)
}

// refusal returns an error of package byhand as one of the API. An error of the store is a 503.
func refusal(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, byhand.ErrWrong):
		return adminError(http.StatusBadRequest, "%w", err)
	case errors.Is(err, byhand.ErrConflict):
		return adminError(http.StatusConflict, "%w", err)
	}
	return adminError(http.StatusServiceUnavailable, "%w", err)
}

// log logs what somebody has done to a key.
func (d *decision) log(s *report.ActiveRule, key, done string, r *http.Request, more ...zap.Field) {
	fields := append([]zap.Field{zap.String("rule", s.Label), zap.Strings("key", s.Keys.Show(key)), zap.String("done", done)}, more...)
	caddy.Log().Named("http.rate_limit.exceptions").Info("by hand", append(fields, zap.String("note", d.Note), zap.String("by", d.By), zap.String("remote", r.RemoteAddr))...)
}

// untilAnswer says when what somebody has decided ends.
type untilAnswer struct {
	Until    *time.Time `json:"until,omitempty"`         // nil: as long as the request has said
	Passing  bool       `json:"until_restart,omitempty"` // it is kept in this process alone
	Unlisted bool       `json:"unlisted,omitempty"`      // there are too many for the list
}

// limitKey gives a key another limit, until a time.
func limitKey(a *View, r *http.Request) (any, error) {
	var body struct {
		lasting
		Limit string `json:"limit"`
	}
	s, key, err := deciding(a, r, &body, &body.decision)
	if err != nil {
		return nil, err
	}
	until, err := s.Subject.Until(body.Until, body.For)
	if err == nil {
		err = s.Subject.Limit(key, body.Limit, until, body.Decision)
	}
	if err != nil {
		return nil, refusal(err)
	}
	at := time.UnixMicro(until).UTC()
	body.log(s, key, "limit", r, zap.String("limit", body.Limit), zap.Time("until", at))
	return untilAnswer{Until: &at, Passing: slices.Contains(s.Tables(), a.Passing)}, nil
}

// keysAnswer says how many keys an action has met: 1 if the key was counted, blocked or under a penalty, or had a limit of its own, else 0.
type keysAnswer struct {
	Keys int `json:"keys"`
}

// endLimit ends what limitKey has begun.
func endLimit(a *View, r *http.Request) (any, error) {
	return restore(a, r, "end", (*byhand.Subject).End)
}

// blockKey blocks a key until a time.
func blockKey(a *View, r *http.Request) (any, error) {
	var body lasting
	s, key, err := deciding(a, r, &body, &body.decision)
	if err != nil {
		return nil, err
	}
	var answer untilAnswer
	until, err := s.Subject.Until(body.Until, body.For)
	if err == nil {
		answer.Unlisted, err = s.Block(key, until, body.Decision)
	}
	if err != nil {
		return nil, refusal(err)
	}
	answer.Passing = slices.Contains(s.Tables(), a.Passing)
	at := time.UnixMicro(until).UTC()
	if body.Until != "" {
		answer.Until = &at
	}
	body.log(s, key, "block", r, zap.Time("until", at))
	return answer, nil
}

// unblockKey ends a block or a penalty.
func unblockKey(a *View, r *http.Request) (any, error) {
	return restore(a, r, "unblock", (*byhand.Subject).Unblock)
}

// resetKey forgets what was counted of a key, and ends a block.
func resetKey(a *View, r *http.Request) (any, error) {
	return restore(a, r, "reset", (*byhand.Subject).Reset)
}

// restore calls act with the key that a request names.
func restore(a *View, r *http.Request, done string, act func(s *byhand.Subject, key string) (changed bool, err error)) (any, error) {
	var body decision
	s, key, err := deciding(a, r, &body, &body)
	if err != nil {
		return nil, err
	}
	var answer keysAnswer
	changed, err := act(&s.Subject, key)
	if err != nil {
		return nil, refusal(err)
	}
	if changed {
		answer.Keys = 1
	}
	if done != "end" {
		a.Blocked.Forget(s.Label, key)
	}
	body.log(s, key, done, r)
	return &answer, nil
}

// creditAnswer says how many units more a key has.
type creditAnswer struct {
	Given int64 `json:"given"`
}

// creditKey gives units back to a key.
func creditKey(a *View, r *http.Request) (any, error) {
	var body struct {
		decision
		Units int64 `json:"units"`
	}
	s, key, err := deciding(a, r, &body, &body.decision)
	if err != nil {
		return nil, err
	}
	given, err := s.Credit(key, body.Units)
	if err != nil {
		return nil, refusal(err)
	}
	body.log(s, key, "credit", r, zap.Int64("units", body.Units), zap.Int64("given", given))
	return creditAnswer{given}, nil
}

// exceptionsAnswer is a page of the list of exceptions.
type exceptionsAnswer struct {
	Exceptions []exceptionAnswer `json:"exceptions"`
	Total      int               `json:"total"` // on all pages
}

type exceptionAnswer struct {
	Rule  string    `json:"rule"`
	Key   []string  `json:"key"`
	ID    string    `json:"id,omitempty"` // absent where no rule of the configuration has that name
	Kind  string    `json:"kind"`
	Limit string    `json:"limit,omitempty"`
	Made  time.Time `json:"made"`
	Until time.Time `json:"until"`
	Note  string    `json:"note,omitempty"`
	By    string    `json:"by,omitempty"`
}

// exceptionsOf returns the exceptions in all stores of a configuration.
func exceptionsOf(a *View) []exception.Exception {
	return slices.DeleteFunc(allExceptions(a), func(e exception.Exception) bool { return e.Kind == exception.Forget })
}

// allExceptions is exceptionsOf with those of the kind Forget.
func allExceptions(a *View) []exception.Exception {
	var tables []*excepted.Table
	var all []exception.Exception
	for _, l := range a.Limiters {
		if t := l.Exceptions; !slices.Contains(tables, t) {
			tables = append(tables, t)
			all = append(all, t.All()...)
		}
	}
	return all
}

const mostOnPage = 1000 // exceptions on a page

// listExceptions answers with the limits and blocks that people have set for single keys and that are in force, by rule and end.
func listExceptions(a *View, r *http.Request) (any, error) {
	if err := checkQuery(r, "rule", "from", "n"); err != nil {
		return nil, err
	}
	query := r.URL.Query()
	n, from := 100, 0
	for _, number := range []struct {
		name        string
		to          *int
		least, most int
	}{{"n", &n, 1, mostOnPage}, {"from", &from, 0, 1 << 20}} {
		if text := query.Get(number.name); text != "" {
			value, err := strconv.Atoi(text)
			if err != nil || value < number.least || value > number.most {
				return nil, adminError(http.StatusBadRequest, "%s %q: must be a whole number from %d to %d", number.name, text, number.least, number.most)
			}
			*number.to = value
		}
	}
	if label := query.Get("rule"); label != "" {
		if _, err := ruleNamed(a, label); err != nil {
			return nil, err
		}
	}
	rules := make(map[string]*report.ActiveRule)
	for _, s := range a.Rules() {
		rules[s.Label] = s
	}
	all := exceptionsOf(a)
	if label := query.Get("rule"); label != "" {
		all = slices.DeleteFunc(all, func(e exception.Exception) bool { return e.Rule != label })
	}
	slices.SortFunc(all, func(a, b exception.Exception) int {
		return cmp.Or(strings.Compare(a.Rule, b.Rule), cmp.Compare(a.Until, b.Until), strings.Compare(string(a.Key), string(b.Key)), strings.Compare(a.Kind, b.Kind))
	})
	answer := exceptionsAnswer{Exceptions: []exceptionAnswer{}, Total: len(all)}
	for _, e := range all[min(from, len(all)):min(from+n, len(all))] {
		one := exceptionAnswer{Rule: e.Rule, Kind: e.Kind, Limit: e.Limit, Note: e.Note, By: e.By, Made: time.UnixMicro(e.Made).UTC(), Until: time.UnixMicro(e.Until).UTC()}
		if s := rules[e.Rule]; s != nil {
			one.Key, one.ID = s.Keys.Show(string(e.Key)), describe.IdOf(s.Label, string(e.Key))
		} else {
			one.Key = []string{describe.Shortened(string(e.Key))}
		}
		answer.Exceptions = append(answer.Exceptions, one)
	}
	return answer, nil
}
