package ratelimit

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/front"
)

// adviceAnswer is the answer of /rate_limit/advice.
type adviceAnswer struct {
	Mode     string           `json:"mode"`
	Gates    string           `json:"gates"`
	Advisor  string           `json:"advisor"`
	Fleet    string           `json:"fleet,omitempty"`
	Config   string           `json:"config"` // the digest of the adaptable rules
	Document *documentAnswer  `json:"document,omitempty"`
	Poll     *pollAnswer      `json:"poll,omitempty"`
	Refused  map[string]int64 `json:"refused"` // documents, by reason
	Rules    []adviceRule     `json:"rules"`
}

// documentAnswer is the last document that was taken.
type documentAnswer struct {
	Serial    int64        `json:"serial"`
	Age       float64      `json:"age_seconds"` // since it was issued
	IssuedAt  time.Time    `json:"issued_at"`
	Effective time.Time    `json:"effective_at"`
	ExpiresAt time.Time    `json:"expires_at"`
	Model     advice.Model `json:"model"`
}

// pollAnswer is how this node gets on with the advisor.
type pollAnswer struct {
	Polls     int64      `json:"polls"`
	Failures  int64      `json:"failures"`            // in a row
	Elsewhere bool       `json:"elsewhere,omitempty"` // another node of the fleet polls
	LastGood  *time.Time `json:"last_success,omitempty"`
	LastBad   *time.Time `json:"last_failure,omitempty"`
	Reason    string     `json:"reason,omitempty"` // of that, one of the reasons of refusals
	Detail    string     `json:"detail,omitempty"`
}

// adviceRule is an adaptable rule.
type adviceRule struct {
	Rule       string            `json:"rule"`
	Configured front.AuditLimit  `json:"configured"`
	InForce    front.AuditLimit  `json:"in_force"`
	Would      *front.AuditLimit `json:"would_be,omitempty"` // in force, if the mode were apply
	Target     int64             `json:"target"`             // the requests that it steps towards
	Floor      int64             `json:"floor"`
	Ceiling    int64             `json:"ceiling"`
	Why        string            `json:"why"`
	Text       string            `json:"text"` // the same in words
	Reason     string            `json:"reason,omitempty"`
	Serial     int64             `json:"serial,omitempty"`
	Until      *time.Time        `json:"until,omitempty"` // when the advice expires, or the freeze ends
	WalksBack  float64           `json:"walks_back_seconds"`
	Above      string            `json:"above,omitempty"` // the threshold that holds, in words
	Advice     *advice.Rule      `json:"advice,omitempty"`
	Clamped    map[string]int64  `json:"clamped"`
}

// showAdvice answers with what is advised, and what has become of it.
func showAdvice(a *App, r *http.Request) (any, error) {
	if err := checkQuery(r); err != nil {
		return nil, err
	}
	return a.memory.adapting.answer(a)
}

func errNoAdvisor() error {
	return adminError(http.StatusNotFound, "the configuration in force has no advisor; write one into the global option rate_limit")
}

func (g *adapting) answer(a *App) (any, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.app != a || g.advised == nil {
		return nil, errNoAdvisor()
	}
	by := a.Advisor
	view := g.board.Look()
	answer := adviceAnswer{Mode: by.mode(), Gates: cmp.Or(by.Gates, front.AdvisorGates[0]), Advisor: by.URL, Fleet: by.fleet, Config: g.board.Digest(), Refused: view.Refused, Rules: []adviceRule{}}
	if d := view.Document; d != nil {
		answer.Document = &documentAnswer{d.Serial, time.UnixMicro(adviceClock.now()).Sub(d.IssuedAt).Seconds(), d.IssuedAt, d.EffectiveAt, d.ExpiresAt, d.Model}
	}
	answer.Poll = g.polled()
	for _, label := range g.board.Labels() {
		of, _ := g.board.LookAt(label)
		answer.Rules = append(answer.Rules, adviceRuleOf(label, &of, by.mode() == "apply"))
	}
	return answer, nil
}

// polled returns how this node gets on with the advisor; nil: it asks none. The caller holds the lock.
func (g *adapting) polled() *pollAnswer {
	if g.poller == nil {
		return nil
	}
	h := g.poller.Health()
	answer := &pollAnswer{Polls: h.Polls, Failures: h.Failures, Elsewhere: h.Elsewhere, LastGood: timeOf(h.SucceedAt), LastBad: timeOf(h.FailedAt)}
	if h.Refusal != nil {
		answer.Reason, answer.Detail = h.Refusal.Reason, h.Refusal.Text
	}
	return answer
}

// advisorAnswer is the health of the advisor, as this node sees it.
type advisorAnswer struct {
	Mode string `json:"mode"`
	*pollAnswer
}

// health returns the health of the advisor; nil: there is none.
func (g *adapting) health(a *App) *advisorAnswer {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.app != a || g.advised == nil {
		return nil
	}
	return &advisorAnswer{a.Advisor.mode(), g.polled()}
}

// mode returns the mode, observe by default.
func (a *Advisor) mode() string { return cmp.Or(a.Mode, front.AdvisorModes[0]) }

func adviceRuleOf(label string, of *advice.RuleView, applied bool) adviceRule {
	s, o := &of.Settings, &of.Outcome
	rule := adviceRule{
		Rule: label, Configured: front.AuditLimit{Requests: s.Requests, Burst: s.Burst, Algorithm: s.Algorithm}, InForce: front.AuditLimitOf(o),
		Target: o.Target, Floor: s.Floor, Ceiling: s.Ceiling, Why: o.Why, Text: advice.Explain(o), Reason: o.Reason, Serial: o.Serial, Until: timeOf(o.Until),
		WalksBack: float64(of.WalksBack) / 1e6, Advice: of.Advice, Clamped: of.Clamped,
	}
	if !applied {
		would := rule.InForce
		rule.Would, rule.InForce = &would, rule.Configured
	}
	if o.Above != nil {
		rule.Above = o.Above.String()
	}
	return rule
}

// movedLimit says of a limit in force that advice has made it another than the configured one, which it has. If that is in force, it only says why the
// advisor abstains; it is empty if the advisor does not, or does not say.
type movedLimit struct {
	Configured string       `json:"configured,omitempty"`
	Advice     *movedAnswer `json:"advice,omitempty"`
}

// movedAnswer says why a limit is not the configured one, or why the advisor has nothing for it.
type movedAnswer struct {
	Serial int64  `json:"serial,omitempty"` // of the advice that is followed; none: it is over
	Reason string `json:"reason,omitempty"` // the advisor's, for its advice or for having none
	Why    string `json:"why"`
	Text   string `json:"text"` // the same in words
}

// movedLimit returns what is to be said of a limit of a rule that decides now.
func (a *App) movedLimit(s *subject, now *core.Rule) movedLimit {
	var moved movedLimit
	for _, one := range append([]*subject{s}, s.also...) {
		if one.rule == nil || one.rule.Adapt == nil || now != one.own { // it is of a tier or of a single key, which advice does not move
			continue
		}
		if configured := one.rule.Limits.Own().Limit.String(); configured != now.Limit.String() {
			moved = movedLimit{Configured: configured, Advice: a.memory.adapting.movedBy(a, s.label)}
		} else if by := a.memory.adapting.movedBy(a, s.label); by != nil && by.Why == advice.Abstains && by.Reason != "" {
			moved.Advice = by
		}
	}
	return moved
}

// movedBy returns why the limit of a rule is not the configured one.
func (g *adapting) movedBy(a *App, label string) *movedAnswer {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.app != a || g.board == nil {
		return nil
	}
	of, ok := g.board.LookAt(label)
	if !ok {
		return nil
	}
	o := &of.Outcome
	return &movedAnswer{Serial: o.Serial, Reason: o.Reason, Why: o.Why, Text: advice.Explain(o)}
}

// timeOf returns a time in microseconds since the epoch; nil for 0.
func timeOf(micros int64) *time.Time {
	if micros == 0 {
		return nil
	}
	t := time.UnixMicro(micros).UTC()
	return &t
}

// longestFreeze bounds how long a rule is frozen.
const longestFreeze = 30 * 24 * time.Hour

// freeze keeps a rule's limit as it is, until a time or until it is unfrozen.
func freeze(a *App, r *http.Request) (any, error) {
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
	return a.memory.adapting.byHand(a, body.Rule, "freeze "+d.String(), func(b *advice.Board, now int64) {
		until := int64(0)
		if d > 0 {
			until = now + d.Microseconds()
		}
		b.Freeze(body.Rule, until)
	})
}

// revert puts the configured limit of a rule in force, and has all advice so far ignored.
func revert(a *App, r *http.Request) (any, error) {
	var body struct {
		Rule string `json:"rule"`
	}
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	return a.memory.adapting.byHand(a, body.Rule, "revert", func(b *advice.Board, now int64) { b.Revert(body.Rule, now) })
}

// byHand does to a rule what an operator asks for, and carries it out at once.
func (g *adapting) byHand(a *App, label, what string, do func(b *advice.Board, now int64)) (any, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.app != a || g.advised == nil {
		return nil, errNoAdvisor()
	}
	if !slices.Contains(g.board.Labels(), label) {
		if _, err := a.subjectOf(label); err != nil {
			return nil, err
		}
		return nil, adminError(http.StatusNotFound, "rule %q: has no adapt, so advice never touches it", label)
	}
	now := adviceClock.now()
	do(g.board, now)
	a.Advisor.logger.Info("by hand", zap.String("rule", label), zap.String("done", what))
	g.advised.Now(now, guardNow())
	of, _ := g.board.LookAt(label)
	return adviceRuleOf(label, &of, a.Advisor.Mode == "apply"), nil
}
