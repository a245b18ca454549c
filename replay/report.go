package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/ruleset"
)

// Report is the result of a replay. Its JSON is stable: members may be added, and none changes its meaning.
type Report struct {
	From     time.Time    `json:"from"` // the beginning of the first request
	To       time.Time    `json:"to"`   // and of the last
	Files    []FileReport `json:"files"`
	Requests int64        `json:"requests"`

	Allowed     int64 `json:"allowed"`      // by all rules together
	AllowedSoft int64 `json:"allowed_soft"` // by a rule's tolerance
	Delayed     int64 `json:"delayed"`
	Rejected    int64 `json:"rejected"`
	Logged429   int64 `json:"logged_429"` // requests that the log has with status 429

	LoggedByRule int64 `json:"logged_by_rule"` // requests with another status for which the log names the rule that rejected them

	Unreadable int64     `json:"unreadable"`            // lines that could not be read
	Examples   []BadLine `json:"unreadable_examples"`   // the first of them
	Other      int64     `json:"other_lines"`           // lines that are not requests, or of requests that no limit covers
	OutOfOrder int64     `json:"out_of_order"`          // requests that came too late to be sorted
	Crowded    int64     `json:"out_of_order_crowded"`  // of them, those that came in time, but after more others than the window has
	ClockSteps int64     `json:"clock_steps"`           // how often the log's clock went back
	EndedEarly int64     `json:"ended_early,omitempty"` // requests under way whose end was brought forward

	Warnings    []string     `json:"warnings"`
	Rules       []RuleReport `json:"rules"`
	Candidate   *Comparison  `json:"candidate,omitempty"`
	Suggestions []Suggestion `json:"suggestions,omitempty"`
	Trades      []*Trade     `json:"trades,omitempty"` // of the rules with a limit of their own
	Passes      int          `json:"passes,omitempty"` // how often the logs were read for suggestions
}

// FileReport counts the lines of a file.
type FileReport struct {
	Name       string   `json:"name"`
	Formats    []string `json:"formats"`
	Lines      int64    `json:"lines"`
	Requests   int64    `json:"requests"`
	Unreadable int64    `json:"unreadable"`
	Other      int64    `json:"other_lines"`
}

// RuleReport has the outcomes of one rule's requests. A client is a key of the rule.
type RuleReport struct {
	Name        string `json:"name"`
	Place       string `json:"place"` // file:line
	Limit       string `json:"limit"`
	Algorithm   string `json:"algorithm"`
	Enforcement string `json:"enforcement"`

	Requests         int64   `json:"requests"` // that the rule covers
	Allowed          int64   `json:"allowed"`
	AllowedSoft      int64   `json:"allowed_soft"`
	Delayed          int64   `json:"delayed"`
	Rejected         int64   `json:"rejected"`
	ShadowRejected   int64   `json:"shadow_rejected"`
	ShadowDelayed    int64   `json:"shadow_delayed"`
	ForConcurrency   int64   `json:"rejected_for_concurrency"` // of both, those without a free place
	RejectedByOthers int64   `json:"rejected_by_others"`       // which this rule would have allowed
	RejectedShare    float64 `json:"rejected_share"`           // of the requests, shadow or not
	Clients          int64   `json:"clients"`
	Touched          int64   `json:"clients_touched"` // with at least one request that was rejected, or would have been
	TouchedShare     float64 `json:"clients_touched_share"`

	WorstMinutes []Minute       `json:"worst_minutes"`
	TopKeys      []KeyReport    `json:"top_keys"` // those most rejected
	PeakUse      []PeakUse      `json:"peak_use"` // how much of the limit clients have used
	Series       Series         `json:"series"`
	NotReplayed  []NotReplayed  `json:"not_replayed"`
	Candidate    *OwnComparison `json:"own_candidate,omitempty"`
}

// KeyReport has the outcomes of one key's requests.
type KeyReport struct {
	Key      string `json:"key"`
	Requests int64  `json:"requests"`
	Rejected int64  `json:"rejected"`
}

// PeakUse is how many clients have used at most so many percent of their limit. Clients that were rejected are in a row of their own.
type PeakUse struct {
	Percent  int   `json:"percent"`
	Rejected bool  `json:"rejected"`
	Clients  int64 `json:"clients"`
}

// Series are requests and rejections over time, in equal steps.
type Series struct {
	Start    time.Time `json:"start"`
	Step     float64   `json:"step_seconds"`
	Requests []uint32  `json:"requests"`
	Rejected []uint32  `json:"rejected"`
}

// NotReplayed are requests that a rule could not decide on.
type NotReplayed struct {
	Field    string `json:"field"`
	Why      string `json:"why"` // not_logged, redacted, or never_seen
	Requests int64  `json:"requests"`
}

// OwnComparison compares a rule's limit with the rule's own candidate.
type OwnComparison struct {
	Limit         string `json:"limit"`
	NewlyRejected int64  `json:"newly_rejected"`
	NewlyAllowed  int64  `json:"newly_allowed"`
	BothAllow     int64  `json:"both_allow"`
	BothReject    int64  `json:"both_reject"`
}

// Comparison says what the candidate rules would change.
type Comparison struct {
	Rejected      int64            `json:"rejected"` // by the candidate
	NewlyRejected int64            `json:"newly_rejected"`
	NewlyAllowed  int64            `json:"newly_allowed"`
	Rules         []RuleComparison `json:"rules"`
	OnlyNow       []string         `json:"only_now"`       // rules that only the current files have
	OnlyCandidate []string         `json:"only_candidate"` // and rules that only the candidate has
	Report        []RuleReport     `json:"candidate_rules"`
}

// RuleComparison says what would change for one rule.
type RuleComparison struct {
	Name          string      `json:"name"`
	Limit         string      `json:"limit"`
	Candidate     string      `json:"candidate"`
	NewlyRejected int64       `json:"newly_rejected"`
	NewlyAllowed  int64       `json:"newly_allowed"`
	Shadow        [2]bool     `json:"-"`         // whether today's rule and the candidate's are shadows
	SameKeys      bool        `json:"same_keys"` // whether both have the same keys; if not, there are no numbers of clients
	NewlyTouched  int64       `json:"clients_newly_touched"`
	Spared        int64       `json:"clients_spared"`
	Keys          []KeyChange `json:"keys"` // those most affected
}

// KeyChange says what would change for one key.
type KeyChange struct {
	Key           string `json:"key"`
	NewlyRejected int64  `json:"newly_rejected"`
	NewlyAllowed  int64  `json:"newly_allowed"`
}

// topKeys is the most keys of a rule that the report names.
const topKeys = 10

// conclude makes the report of the first pass.
func (p *replay) conclude() {
	s, r := p.sides[0], p.report
	r.From, r.To = time.UnixMicro(p.first).UTC(), time.UnixMicro(p.last).UTC()
	r.Allowed, r.AllowedSoft, r.Delayed, r.Rejected = s.allowed, s.soft, s.delayed, s.refused
	r.OutOfOrder, r.Crowded, r.ClockSteps, r.EndedEarly = p.order.late, p.order.crowd, p.order.steps, s.player.early
	r.Rules = p.ruleReports(s)
	r.Warnings = append(append(r.Warnings, p.notes...), p.warnings(s)...)
	if p.pairing != nil {
		r.Candidate = p.comparison()
		for _, w := range p.warnings(p.sides[1]) {
			if !slices.Contains(r.Warnings, w) {
				r.Warnings = append(r.Warnings, "candidate: "+w)
			}
		}
	}
}

// ruleReports reports the rules of a side.
func (p *replay) ruleReports(s *side) []RuleReport {
	list := make([]RuleReport, 0, len(s.tallies))
	i := 0
	for _, f := range s.rules.set.Files {
		for j := range f.Rules {
			one := p.ruleReport(s, i)
			one.Place = shown(f.Name, 200)
			if line := f.Rules[j].Line; line > 0 { // else it is a zone's
				one.Place += fmt.Sprintf(":%d", line)
			}
			list = append(list, one)
			i++
		}
	}
	return list
}

// ruleReport reports one rule.
func (p *replay) ruleReport(s *side, i int) RuleReport {
	rule, t := s.rules.set.Rules[i], s.tallies[i]
	own, enforcement := rule.Limits.Own(), strings.Fields(s.rules.texts[i].Texts["enforcement"])
	r := RuleReport{
		Name: rule.Name, Limit: limitText(own), Enforcement: cmp.Or(strings.Join(enforcement, " "), "hard"),
		Requests: t.requests, Allowed: t.by[front.Allowed], AllowedSoft: t.by[front.AllowedSoft], Delayed: t.by[front.Delayed],
		Rejected: t.by[front.Rejected], ShadowRejected: t.by[front.ShadowRejected], ShadowDelayed: t.by[front.ShadowDelayed], ForConcurrency: t.places, RejectedByOthers: t.by[front.NotCounted],
		Clients: int64(len(t.keys.counts)), WorstMinutes: t.minutes.worst(), TopKeys: []KeyReport{}, NotReplayed: s.notReplayed(t),
		Series: Series{time.UnixMicro(t.series.start).UTC(), float64(t.series.step) / 1e6, t.series.requests, t.series.rejected},
	}
	r.RejectedShare = part(r.Rejected+r.ShadowRejected, t.requests)
	r.peaks(t.keys)
	r.TouchedShare = part(r.Touched, r.Clients)
	for _, at := range t.keys.named(topKeys, func(at uint32) int64 { return int64(t.keys.counts[at].rejected) }) {
		k := &t.keys.counts[at]
		r.TopKeys = append(r.TopKeys, KeyReport{showKey(rule, t.keys.names[at], p.config.PlainKeys), int64(k.requests), int64(k.rejected)})
	}
	if own == nil {
		return r
	}
	r.Algorithm = own.Limit.Algorithm.String()
	if beside := own.Linked(); len(beside) > 0 && beside[0].IsCandidate() {
		r.Candidate = &OwnComparison{
			Limit: beside[0].Limit.String(), NewlyRejected: t.compared[front.Stricter], NewlyAllowed: t.compared[front.Laxer],
			BothAllow: t.compared[front.BothAllowed], BothReject: t.compared[front.BothRejected],
		}
	}
	return r
}

// peaks counts how much of the limit clients have used.
func (r *RuleReport) peaks(t *keyTable) {
	for percent := 10; percent <= 100; percent += 10 {
		r.PeakUse = append(r.PeakUse, PeakUse{Percent: percent})
	}
	r.PeakUse = append(r.PeakUse, PeakUse{Percent: 100, Rejected: true})
	for i := range t.counts {
		k := &t.counts[i]
		if k.rejected > 0 {
			r.Touched++
			r.PeakUse[10].Clients++
			continue
		}
		r.PeakUse[max((int(k.peak)+99)/100-1, 0)].Clients++
	}
}

// notReplayed counts the requests that a rule could not decide on.
func (s *side) notReplayed(t *tally) []NotReplayed {
	list := []NotReplayed{}
	for m, n := range t.lacking {
		why := [...]string{"", "never_seen", "not_logged", "redacted"}[m.how]
		list = append(list, NotReplayed{s.rules.fields.list[m.field].text, why, n})
	}
	slices.SortFunc(list, func(a, b NotReplayed) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Field, b.Field), strings.Compare(a.Why, b.Why))
	})
	return list
}

// part returns a share; 0 if the whole is 0.
func part(n, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// LimitText writes the limit of a rule, without its algorithm.
func limitText(r *core.Rule) string {
	if r == nil {
		return "unlimited"
	}
	if r.Limit.InFlight {
		return r.Limit.String()
	}
	written := r.Limit.Written()
	if _, burst, ok := strings.Cut(strings.TrimPrefix(r.Limit.String(), written+" "), " "); ok {
		written += " " + burst
	}
	for _, beside := range r.Linked() {
		if !beside.IsCandidate() {
			written += ", " + beside.Limit.String()
		}
	}
	return written
}

// countsByField reports whether fields of responses have requests count.
func countsByField(r *core.Rule) bool {
	return r.Overflow != nil && r.Overflow.Count != nil && r.Overflow.Count.Fields()
}

// warnings says what a replay could not find out, once for each rule and field.
func (p *replay) warnings(s *side) []string {
	var list []string
	for i, t := range s.tallies {
		for _, n := range s.notReplayed(t) {
			list = append(list, fmt.Sprintf("rule %q: %s left out: %s", s.rules.set.Rules[i].Name, plural(n.Requests, "request is", "requests are"), because(n)))
		}
		if r := s.rules.set.Rules[i]; r.Limits != nil && slices.ContainsFunc(r.Limits.Rules(), (*core.Rule).Measures) {
			list = append(list, fmt.Sprintf("rule %q: the logs do not say what responses have cost (cost_response): each request is charged its cost, %d", r.Name, r.Cost))
		}
		if r := s.rules.set.Rules[i]; r.Limits != nil && slices.ContainsFunc(r.Limits.Rules(), countsByField) {
			list = append(list, fmt.Sprintf("rule %q: the logs do not have the fields of responses that count names: requests count by status alone", r.Name))
		}
		if r := s.rules.set.Rules[i]; r.Respects {
			list = append(list, fmt.Sprintf("rule %q: the logs do not say for how long services asked to wait (respect_upstream): no key is paused", r.Name))
		}
		for _, at := range s.rules.asks[i].rest {
			f := &p.fields.list[at]
			if f.header != "" && !p.seen[at] && t.requests > 0 {
				list = append(list, fmt.Sprintf("rule %q: no request in the logs has %s, so that all are counted as those without it are; has a filter taken it out of the log?", s.rules.set.Rules[i].Name, f.text))
			}
		}
	}
	if s != p.sides[0] {
		return list
	}
	if p.strange > 0 {
		list = append(list, fmt.Sprintf("%s a first column that is no address: %s; it is taken for the client as it is", plural(p.strange, "request has", "requests have"), shown(p.example, 40)))
	}
	if p.coarse > 0 {
		list = append(list, fmt.Sprintf("%s of %s have times in whole seconds: within a second they are taken in the order of their lines, and shorter periods than some seconds say little", grouped(p.coarse), plural(p.report.Requests, "request", "requests")))
	}
	if p.untimed > 0 && slices.ContainsFunc(s.rules.set.All(), underWay) {
		list = append(list, fmt.Sprintf("%s over at once for concurrency and count, since the log has no duration", plural(p.untimed, "request is", "requests are")))
	}
	return list
}

// underWay reports whether a rule depends on when requests end.
func underWay(r *core.Rule) bool {
	terms, _ := r.Terms()
	if r.Limit.InFlight || terms.Counts {
		return true
	}
	return slices.ContainsFunc(r.Linked(), func(other *core.Rule) bool { return other.Limit.InFlight })
}

// because says why a rule could not decide.
func because(n NotReplayed) string {
	switch n.Why {
	case "redacted":
		if strings.HasPrefix(n.Field, "query:") {
			return n.Field + " is REDACTED in the log (a filter of the log has put that there, or the client has sent it: in Caddy's, the action replace of the filter query)"
		}
		return n.Field + " is REDACTED in the log (in Caddy log_credentials, in Traefik fields.headers, would keep it)"
	case "never_seen":
		return "no line before them has " + n.Field + ", so that the log may leave it out (in Traefik fields.headers would keep it)"
	}
	return "the log does not have " + n.Field
}

// comparison reports what the candidate rules would change.
func (p *replay) comparison() *Comparison {
	c := &Comparison{
		Rejected: p.sides[1].refused, NewlyRejected: p.pairing.newly[0], NewlyAllowed: p.pairing.newly[1],
		OnlyNow: p.unpaired(0), OnlyCandidate: p.unpaired(1), Rules: []RuleComparison{},
	}
	for _, one := range p.pairing.pairs {
		c.Rules = append(c.Rules, p.compared(one))
	}
	c.Report = p.ruleReports(p.sides[1])
	return c
}

// unpaired returns the names of the rules that only one side has.
func (p *replay) unpaired(side int) []string {
	names := []string{}
	for i, at := range p.pairing.of[side] {
		if at < 0 {
			names = append(names, p.sides[side].rules.set.Rules[i].Name)
		}
	}
	return names
}

// compared reports one rule.
func (p *replay) compared(one *pair) RuleComparison {
	a, b := p.sides[0].rules.set.Rules[one.rules[0]], p.sides[1].rules.set.Rules[one.rules[1]]
	r := RuleComparison{
		Name: a.Name, Limit: limitText(a.Limits.Own()), Candidate: limitText(b.Limits.Own()),
		NewlyRejected: one.newly[0], NewlyAllowed: one.newly[1], Shadow: [2]bool{a.Shadow, b.Shadow}, SameKeys: ruleset.SameKey(a, b), Keys: []KeyChange{},
	}
	if r.SameKeys {
		r.NewlyTouched, r.Spared = one.clients(p.sides)
	}
	t := one.affected
	for _, at := range t.named(topKeys, func(at uint32) int64 { return int64(t.counts[at].rejected) + one.spared[at] }) {
		rule := a
		if t.counts[at].rejected > 0 {
			rule = b
		}
		r.Keys = append(r.Keys, KeyChange{showKey(rule, t.names[at], p.config.PlainKeys), int64(t.counts[at].rejected), one.spared[at]})
	}
	return r
}
