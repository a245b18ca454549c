package admin

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/excepted"
	"github.com/proxyweir/weir/core/exception"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
)

// decision is a request's body by which somebody decides something for a key: why, and who that is.
type decision struct {
	keyRequest
	Note string `json:"note"`
	By   string `json:"by"`
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
	for _, text := range []struct {
		name, value string
		most        int
	}{{"note", d.Note, exception.LongestNote}, {"by", d.By, exception.LongestBy}} {
		if len(text.value) > text.most {
			return nil, "", adminError(http.StatusBadRequest, "%s: has %d bytes; must be at most %d", text.name, len(text.value), text.most)
		}
		if strings.ContainsFunc(text.value, unicode.IsControl) {
			return nil, "", adminError(http.StatusBadRequest, "%s: must be one line of printable text", text.name)
		}
	}
	return named(a, d.keyRequest)
}

// until returns when a decision ends, by the store's clock.
func (l *lasting) until(s *report.ActiveRule) (int64, error) {
	if l.Until != "" && l.For != "" {
		return 0, adminError(http.StatusBadRequest, "until and for are mutually exclusive: remove one")
	}
	now := time.UnixMicro(s.Limiter.Exceptions.Now())
	if l.Until == "" {
		d, err := caddy.ParseDuration(l.For)
		if err != nil || d < time.Millisecond || d > rate.MaxPeriod {
			return 0, adminError(http.StatusBadRequest, "for %q: must be a duration from 1ms to 366d, such as 1h; or write until in its place, such as today", l.For)
		}
		return now.Add(d).UnixMicro(), nil
	}
	zone := time.UTC
	if s.Rule != nil {
		zone = ruleset.ZoneOfTime(s.Rule)
	}
	until, err := exception.ParseUntil(l.Until, now, zone)
	if err != nil {
		return 0, adminError(http.StatusBadRequest, "%w", err)
	}
	return until.UnixMicro(), nil
}

// tablesOf returns the tables of the exceptions of a rule: that of each store that counts it.
func tablesOf(s *report.ActiveRule) []*excepted.Table {
	var list []*excepted.Table
	for _, one := range append([]*report.ActiveRule{s}, s.Also...) {
		if t := one.Limiter.Exceptions; !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

// change changes the exceptions of a rule. An error of the store is a 503.
func change(s *report.ActiveRule, how func(list []exception.Exception, now int64) []exception.Exception) error {
	for _, t := range tablesOf(s) {
		err := t.Change(func(list []exception.Exception, now int64) ([]exception.Exception, error) { return how(list, now), nil })
		if errors.Is(err, excepted.ErrFull) {
			return adminError(http.StatusConflict, "rule %q: %w", s.Label, err)
		}
		if err != nil {
			return adminError(http.StatusServiceUnavailable, "rule %q: %w", s.Label, err)
		}
	}
	return nil
}

// log logs what somebody has done to a key.
func (d *decision) log(s *report.ActiveRule, key, done string, r *http.Request, more ...zap.Field) {
	fields := append([]zap.Field{zap.String("rule", s.Label), zap.Strings("key", s.Keys.Show(key)), zap.String("done", done)}, more...)
	caddy.Log().Named("http.rate_limit.exceptions").Info("by hand", append(fields, zap.String("note", d.Note), zap.String("by", d.By), zap.String("remote", r.RemoteAddr))...)
}

// untilAnswer says when what somebody has decided ends.
type untilAnswer struct {
	Until    *time.Time `json:"until,omitempty"`    // nil: as long as the request has said
	Unlisted bool       `json:"unlisted,omitempty"` // there are too many for the list
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
	until, err := body.until(s)
	if err != nil {
		return nil, err
	}
	for _, one := range append([]*report.ActiveRule{s}, s.Also...) {
		if one.Limiter.Storage != nil {
			return nil, adminError(http.StatusConflict, "rule %q: counts in a storage, by which nodes tell each other what they count, and no limits; count in Redis, or change the configuration", s.Label)
		}
	}
	if s.Rule == nil {
		return nil, adminError(http.StatusConflict, "rule %q: is of a descriptor, whose limits are those of its file; change that, which holds at once", s.Label)
	}
	if s.Shadow {
		return nil, adminError(http.StatusConflict, "rule %q: is a shadow, and limits nobody", s.Label)
	}
	if why := passes(s, key); why != "" {
		return nil, adminError(http.StatusConflict, "rule %q: %s", s.Label, why)
	}
	if _, err := ruleset.NewException(s.Rule, s.Limiter.Limiter, key, body.Limit); err != nil {
		return nil, adminError(http.StatusBadRequest, "%w", err)
	}
	err = change(s, func(list []exception.Exception, now int64) []exception.Exception {
		return exception.With(list, exception.Exception{Rule: s.Label, Key: []byte(key), Kind: exception.Limit, Limit: body.Limit, Made: now, Until: until, Note: body.Note, By: body.By})
	})
	if err != nil {
		return nil, err
	}
	at := time.UnixMicro(until).UTC()
	body.log(s, key, "limit", r, zap.String("limit", body.Limit), zap.Time("until", at))
	return untilAnswer{Until: &at}, nil
}

// keysAnswer says how many keys an action has met: 1 if the key was counted or blocked, or had a limit of its own, else 0.
type keysAnswer struct {
	Keys int `json:"keys"`
}

// endLimit ends what limitKey has begun.
func endLimit(a *View, r *http.Request) (any, error) {
	var body decision
	s, key, err := deciding(a, r, &body, &body)
	if err != nil {
		return nil, err
	}
	var answer keysAnswer
	err = change(s, func(list []exception.Exception, _ int64) []exception.Exception {
		if exception.Find(list, exception.Limit, s.Label, key) != nil {
			answer.Keys = 1
		}
		return exception.Without(list, exception.Limit, s.Label, key)
	})
	if err != nil {
		return nil, err
	}
	body.log(s, key, "end", r)
	return &answer, nil
}

// blockKey blocks a key until a time.
func blockKey(a *View, r *http.Request) (any, error) {
	var body lasting
	s, key, err := deciding(a, r, &body, &body.decision)
	if err != nil {
		return nil, err
	}
	until, err := body.until(s)
	if err != nil {
		return nil, err
	}
	if !s.Shadow && len(s.Rules) > 0 && s.Rules[0].For(key).Shadow {
		return nil, adminError(http.StatusConflict, "rule %q: is a shadow for this key, which is not among the %s that it enforces", s.Label, s.Enforcement)
	}
	if s.Shadow {
		return nil, adminError(http.StatusConflict, "rule %q: is a shadow, and blocks nobody", s.Label)
	}
	if hasUnlimited(s, key) {
		return nil, adminError(http.StatusConflict, "rule %q: has no limit for some or all requests of this key, which are not counted and would pass all the same. Write a limit in place of unlimited, if it is a high one", s.Label)
	}
	if why := passes(s, key); why != "" {
		return nil, adminError(http.StatusConflict, "rule %q: %s", s.Label, why)
	}
	at := time.UnixMicro(until).UTC()
	var answer untilAnswer
	if body.Until != "" {
		answer.Until = &at
	}
	duration := int64(0)
	err = change(s, func(list []exception.Exception, now int64) []exception.Exception {
		duration = until - now
		e := exception.Exception{Rule: s.Label, Key: []byte(key), Kind: exception.Block, Made: now, Until: until, Note: body.Note, By: body.By}
		next := exception.With(list, e)
		if answer.Unlisted = len(next) > exception.Most; answer.Unlisted {
			return list
		}
		return next
	})
	if err == nil && answer.Unlisted {
		err = eachPlace(s, func(l *stores.Limiter, r *core.Rule) error { return l.Block(r, key, duration) })
	}
	if err != nil {
		return nil, err
	}
	body.log(s, key, "block", r, zap.Time("until", at))
	return answer, nil
}

// unblockKey ends a block or a penalty.
func unblockKey(a *View, r *http.Request) (any, error) {
	return restore(a, r, "unblock", func(l *stores.Limiter, r *core.Rule, key string) error { return l.Unblock(r, key) })
}

// resetKey forgets what was counted of a key, and ends a block.
func resetKey(a *View, r *http.Request) (any, error) {
	return restore(a, r, "reset", func(l *stores.Limiter, r *core.Rule, key string) error { return l.Reset(r, key) })
}

// restore ends the block of the key that a request names, and calls act in every place where the key is counted.
func restore(a *View, r *http.Request, done string, act func(l *stores.Limiter, r *core.Rule, key string) error) (any, error) {
	var body decision
	s, key, err := deciding(a, r, &body, &body)
	if err != nil {
		return nil, err
	}
	var answer keysAnswer
	before := make(map[*core.Rule]rate.Decision)
	err = eachPlace(s, func(l *stores.Limiter, r *core.Rule) (err error) {
		before[r], err = standingOf(s, l, r, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := change(s, func(list []exception.Exception, now int64) []exception.Exception {
		return forgetting(exception.Without(list, exception.Block, s.Label, key), s, key, now)
	}); err != nil {
		return nil, err
	}
	err = eachPlace(s, func(l *stores.Limiter, r *core.Rule) error {
		if err := act(l, r, key); err != nil {
			return err
		}
		after, err := standingOf(s, l, r, key)
		if was := before[r]; after.Remaining > was.Remaining || after.Allowed && !was.Allowed {
			answer.Keys = 1
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	a.Blocked.Forget(s.Label, key)
	body.log(s, key, done, r)
	return &answer, nil
}

// standingOf returns what a rule would decide on a request of a key: by the key's own limit, if that counts in the same place.
func standingOf(s *report.ActiveRule, l *stores.Limiter, r *core.Rule, key string) (rate.Decision, error) {
	if s.Rule != nil {
		if limits := s.Rule.Active.Limits(); limits.Overrides(key) {
			if own := limits.Of("", key); own != nil && own.Identity == r.Identity {
				r = own
			}
		}
	}
	return l.Standing(r, key)
}

// forgetFor is how long the nodes of a fleet are told to forget what they remember of a key: longer than they do.
const forgetFor = 15 * time.Second

// forgetting returns a list of exceptions by which the nodes that share a Redis forget what they remember of a key.
func forgetting(list []exception.Exception, s *report.ActiveRule, key string, now int64) []exception.Exception {
	if s.Limiter.Redis == nil || len(list) >= exception.Most {
		return list
	}
	return exception.With(list, exception.Exception{Rule: s.Label, Key: []byte(key), Kind: exception.Forget, Made: now, Until: now + forgetFor.Microseconds()})
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
	if body.Units < 1 || body.Units > rate.MaxRequests {
		return nil, adminError(http.StatusBadRequest, "units %d: must be a whole number from 1 to %d", body.Units, rate.MaxRequests)
	}
	var answer creditAnswer
	var refused error
	err = eachPlace(s, func(l *stores.Limiter, r *core.Rule) error {
		before, err := standingOf(s, l, r, key)
		if err != nil {
			return err
		}
		if err := l.Credit(r, key, body.Units); errors.Is(err, core.ErrNoCredit) {
			refused = err
			return nil
		} else if err != nil {
			return err
		}
		after, err := standingOf(s, l, r, key)
		answer.Given = max(answer.Given, after.Remaining-before.Remaining)
		return err
	})
	if err == nil && refused != nil {
		err = adminError(http.StatusConflict, "rule %q: %w", s.Label, refused)
	}
	if err == nil && s.Limiter.Redis != nil {
		err = change(s, func(list []exception.Exception, now int64) []exception.Exception {
			return forgetting(list, s, key, now)
		})
	}
	if err != nil {
		return nil, err
	}
	body.log(s, key, "credit", r, zap.Int64("units", body.Units), zap.Int64("given", answer.Given))
	return answer, nil
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
