package admin

import (
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/caddy/adapt"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/advice"
)

// showAdvice answers with what is advised, and what has become of it.
func showAdvice(a *View, r *http.Request) (any, error) {
	if err := checkQuery(r); err != nil {
		return nil, err
	}
	if answer := a.Adapting.Answer(a.AdviceSource); answer != nil {
		return answer, nil
	}
	return nil, errNoAdvisor()
}

func errNoAdvisor() error {
	return adminError(http.StatusNotFound, "the configuration in force has no advisor; write one into the global option rate_limit")
}

// movedLimit says of a limit in force that advice has made it another than the configured one, which it has. If that is in force, it only says why the
// advisor abstains; it is empty if the advisor does not, or does not say.
type movedLimit struct {
	Configured string             `json:"configured,omitempty"`
	Advice     *adapt.MovedAnswer `json:"advice,omitempty"`
}

// movedLimitOf returns what is to be said of a limit of a rule that decides now.
func movedLimitOf(a *View, s *report.ActiveRule, now *core.Rule) movedLimit {
	var moved movedLimit
	for _, one := range append([]*report.ActiveRule{s}, s.Also...) {
		if one.Rule == nil || one.Rule.Adapt == nil || now != one.Own { // it is of a tier or of a single key, which advice does not move
			continue
		}
		if configured := one.Rule.Limits.Own().Limit.String(); configured != now.Limit.String() {
			moved = movedLimit{Configured: configured, Advice: a.Adapting.MovedBy(a.AdviceSource, s.Label)}
		} else if by := a.Adapting.MovedBy(a.AdviceSource, s.Label); by != nil && by.Why == advice.Abstains && by.Reason != "" {
			moved.Advice = by
		}
	}
	return moved
}

// longestFreeze bounds how long a rule is frozen.
const longestFreeze = 30 * 24 * time.Hour

// freeze keeps a rule's limit as it is, until a time or until it is unfrozen.
func freeze(a *View, r *http.Request) (any, error) {
	var body struct {
		Rule string `json:"rule"`
		For  string `json:"for"`
	}
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	d, err := caddy.ParseDuration(body.For)
	if err != nil || d < 0 || d > longestFreeze {
		return nil, adminError(http.StatusBadRequest, "for %q: must be a duration up to 30d, such as 10m; 0s ends a freeze", body.For)
	}
	return byHand(a, body.Rule, "freeze "+d.String(), func(b *advice.State, now int64) {
		until := int64(0)
		if d > 0 {
			until = now + d.Microseconds()
		}
		b.Freeze(body.Rule, until)
	})
}

// revert puts the configured limit of a rule in force, and has all advice so far ignored.
func revert(a *View, r *http.Request) (any, error) {
	var body struct {
		Rule string `json:"rule"`
	}
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	return byHand(a, body.Rule, "revert", func(b *advice.State, now int64) { b.Revert(body.Rule, now) })
}

// byHand does to a rule what an operator asks for, and answers with what the rule is then.
func byHand(a *View, label, what string, do func(b *advice.State, now int64)) (any, error) {
	rule, advises := a.Adapting.ByHand(a.AdviceSource, label, what, do)
	switch {
	case !advises:
		return nil, errNoAdvisor()
	case rule != nil:
		return rule, nil
	}
	if _, err := ruleNamed(a, label); err != nil {
		return nil, err
	}
	return nil, adminError(http.StatusNotFound, "rule %q: has no adapt, so advice never touches it", label)
}
