package adapt

import (
	"cmp"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/advice"
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
	Rule       string               `json:"rule"`
	Configured adaptive.AuditLimit  `json:"configured"`
	InForce    adaptive.AuditLimit  `json:"in_force"`
	Would      *adaptive.AuditLimit `json:"would_be,omitempty"` // in force, if the mode were apply
	Target     int64                `json:"target"`             // the requests that it steps towards
	Floor      int64                `json:"floor"`
	Ceiling    int64                `json:"ceiling"`
	Why        string               `json:"why"`
	Text       string               `json:"text"` // the same in words
	Reason     string               `json:"reason,omitempty"`
	Serial     int64                `json:"serial,omitempty"`
	Until      *time.Time           `json:"until,omitempty"` // when the advice expires, or the freeze ends
	WalksBack  float64              `json:"walks_back_seconds"`
	Above      string               `json:"above,omitempty"` // the threshold that holds, in words
	Advice     *advice.Rule         `json:"advice,omitempty"`
	Clamped    map[string]int64     `json:"clamped"`
}

// Answer returns what is advised on the rules of a configuration, and what has become of it; nil: it has no advisor.
func (g *Controller) Answer(a *Source) *adviceAnswer {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a == nil || g.of != a {
		return nil
	}
	by := a.Advisor
	view := g.state.Look()
	answer := &adviceAnswer{Mode: by.mode(), Gates: cmp.Or(by.Gates, adaptive.AdvisorGates[0]), Advisor: by.URL, Fleet: by.fleet, Config: g.state.Digest(), Refused: view.Refused, Rules: []adviceRule{}}
	if d := view.Document; d != nil {
		answer.Document = &documentAnswer{d.Serial, time.UnixMicro(AdviceClock.Now()).Sub(d.IssuedAt).Seconds(), d.IssuedAt, d.EffectiveAt, d.ExpiresAt, d.Model}
	}
	answer.Poll = g.polled()
	for _, label := range g.state.Labels() {
		of, _ := g.state.LookAt(label)
		answer.Rules = append(answer.Rules, adviceRuleOf(label, &of, by.Applies()))
	}
	return answer
}

// polled returns how this node gets on with the advisor; nil: it asks none. The caller holds the lock.
func (g *Controller) polled() *pollAnswer {
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

// AdvisorAnswer is the health of the advisor, as this node sees it.
type AdvisorAnswer struct {
	Mode string `json:"mode"`
	*pollAnswer
}

// Health returns the health of the advisor; nil: there is none.
func (g *Controller) Health(a *Source) *AdvisorAnswer {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a == nil || g.of != a {
		return nil
	}
	return &AdvisorAnswer{a.mode(), g.polled()}
}

// mode returns the mode, observe by default.
func (a *Advisor) mode() string { return cmp.Or(a.Mode, adaptive.AdvisorModes[0]) }

func adviceRuleOf(label string, of *advice.RuleView, applied bool) adviceRule {
	s, o := &of.Settings, &of.Outcome
	rule := adviceRule{
		Rule: label, Configured: adaptive.AuditLimit{Requests: s.Requests, Burst: s.Burst, Algorithm: s.Algorithm}, InForce: adaptive.AuditLimitOf(o),
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

// MovedAnswer says why a limit is not the configured one, or why the advisor has nothing for it.
type MovedAnswer struct {
	Serial int64  `json:"serial,omitempty"` // of the advice that is followed; none: it is over
	Reason string `json:"reason,omitempty"` // the advisor's, for its advice or for having none
	Why    string `json:"why"`
	Text   string `json:"text"` // the same in words
}

// MovedBy returns why the limit of a rule is not the configured one.
func (g *Controller) MovedBy(a *Source, label string) *MovedAnswer {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a == nil || g.of != a || g.state == nil {
		return nil
	}
	of, ok := g.state.LookAt(label)
	if !ok {
		return nil
	}
	o := &of.Outcome
	return &MovedAnswer{Serial: o.Serial, Reason: o.Reason, Why: o.Why, Text: advice.Explain(o)}
}

// timeOf returns a time in microseconds since the epoch; nil for 0.
func timeOf(micros int64) *time.Time {
	if micros == 0 {
		return nil
	}
	t := time.UnixMicro(micros).UTC()
	return &t
}

// ByHand does to a rule what an operator asks for, and carries it out at once. It returns what the rule is then, nil if advice
// never touches it, and whether there is an advisor.
func (g *Controller) ByHand(a *Source, label, what string, do func(b *advice.State, now int64)) (rule *adviceRule, advises bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a == nil || g.of != a {
		return nil, false
	}
	if !slices.Contains(g.state.Labels(), label) {
		return nil, true
	}
	now := AdviceClock.Now()
	do(g.state, now)
	a.logger.Info("by hand", zap.String("rule", label), zap.String("done", what))
	g.proxy.Now(now, protect.GuardNow())
	of, _ := g.state.LookAt(label)
	return new(adviceRuleOf(label, &of, a.Applies())), true
}
