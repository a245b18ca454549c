package ratelimit

import (
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/proxyweir/weir/advice"
	"github.com/proxyweir/weir/front"
	"go.uber.org/zap"
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
	mode, gates := by.Mode, by.Gates
	if mode == "" {
		mode = front.AdvisorModes[0]
	}
	if gates == "" {
		gates = front.AdvisorGates[0]
	}
	view := g.board.Look()
	answer := adviceAnswer{Mode: mode, Gates: gates, Advisor: by.URL, Fleet: by.fleet, Config: g.board.Digest(), Refused: view.Refused, Rules: []adviceRule{}}
	if d := view.Document; d != nil {
		answer.Document = &documentAnswer{d.Serial, time.UnixMicro(adviceClock.now()).Sub(d.IssuedAt).Seconds(), d.IssuedAt, d.EffectiveAt, d.ExpiresAt, d.Model}
	}
	if g.poller != nil {
		h := g.poller.Health()
		answer.Poll = &pollAnswer{Polls: h.Polls, Failures: h.Failures, Elsewhere: h.Elsewhere, LastGood: timeOf(h.SucceedAt), LastBad: timeOf(h.FailedAt)}
		if h.Refusal != nil {
			answer.Poll.Reason, answer.Poll.Detail = h.Refusal.Reason, h.Refusal.Text
		}
	}
	for _, label := range g.board.Labels() {
		of, _ := g.board.LookAt(label)
		answer.Rules = append(answer.Rules, adviceRuleOf(label, &of, mode == "apply"))
	}
	return answer, nil
}

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
