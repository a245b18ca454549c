package ratelimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/proxyweir/weir/caddy/admin"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/byhand"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/metrics"
)

// activeRules returns the rules of the configuration, each once: those of zones, rule files and descriptors.
func (a *App) activeRules() []*report.ActiveRule {
	a.files.mu.Lock() // so that the views of all handlers belong to the same files
	defer a.files.mu.Unlock()
	var list []*report.ActiveRule
	first := make(map[string]*report.ActiveRule)
	add := func(s *report.ActiveRule) {
		s.Label, s.In = metrics.LabelOf(s.Namespace, s.Name), &s.Limiter.Counters
		if before := first[s.Label]; before != nil {
			before.Also, before.Others = append(before.Also, s), append(before.Others, &s.Subject)
			return
		}
		first[s.Label] = s
		list = append(list, s)
	}
	sets := make(map[*fileSet]bool)
	for _, h := range a.handlers {
		for _, z := range h.zones {
			add(h.subjectOfZone(z))
		}
		view := h.files.Load()
		if view == nil || sets[view.set] && view.domain == nil {
			continue
		}
		if !sets[view.set] {
			sets[view.set] = true
			h.activeRulesOfFiles(view.set, add)
		}
		h.activeRulesOfDomain(view, add)
	}
	return list
}

func (h *Handler) subjectOfZone(z *openZone) *report.ActiveRule {
	s := report.ActiveRuleOf(z.Rule, z.Text)
	s.Namespace, s.Limiter, s.Stats, s.Source = h.Namespace, h.limiter, z.reporter.Stats, "zone"
	s.Notes = append(s.Notes, h.expected.notes(z)...)
	return s
}

// activeRulesOfFiles adds the rules of a set, in the order of their files.
func (h *Handler) activeRulesOfFiles(set *fileSet, add func(*report.ActiveRule)) {
	i := 0
	for _, file := range set.Files {
		for _, text := range file.Rules {
			s := report.ActiveRuleOf(set.Rules[i], &text.RuleText)
			s.Namespace, s.Limiter, s.Stats, s.Source = set.namespace, set.limiter, set.reporters[i].Stats, fmt.Sprintf("%s:%d", file.Name, text.Line)
			add(s)
			i++
		}
	}
}

// activeRulesOfDomain adds the limits of a handler's descriptors.
func (h *Handler) activeRulesOfDomain(view *inForce, add func(*report.ActiveRule)) {
	if view.domain == nil {
		return
	}
	secret := false
	for _, other := range h.app.handlers { // any of them may make keys of the same descriptors
		for _, d := range other.descriptors {
			for i := range d {
				secret = secret || slices.ContainsFunc(d[i].Sources, describe.IsSecret)
			}
		}
	}
	for i := range view.domain.Rules() {
		add(&report.ActiveRule{Subject: byhand.SubjectOfDescriptor(view.domain, i, view.set.namespace, secret), Limiter: view.set.limiter, Stats: view.reporters[i].Stats, Source: "domain " + view.domain.Name()})
	}
}

// adaptableRules returns the adaptable rules of a configuration by label, with the guards of the handlers that they are in.
func (a *App) adaptableRules() map[string]*adaptive.Rule {
	rules := make(map[string]*adaptive.Rule)
	add := func(h *Handler, p *adaptive.Instance, name string) {
		if p == nil {
			return
		}
		label := metrics.LabelOf(h.Namespace, name)
		r := rules[label]
		if r == nil {
			r = new(adaptive.Rule)
			rules[label] = r
		}
		for _, other := range r.Instances {
			if other == p { // a set that several handlers share
				return
			}
		}
		r.Instances = append(r.Instances, p)
		var watched adaptive.Watched // of nobody
		if state := h.guarded.State(); state != nil {
			if of := state.Tracked(label); of != nil {
				watched = adaptive.Watched{Guard: state.Guard, Rule: of}
			}
		}
		r.Guards = append(r.Guards, watched)
	}
	a.files.mu.Lock()
	defer a.files.mu.Unlock()
	for _, h := range a.handlers {
		for _, z := range h.zones {
			add(h, z.instance, z.Rule.Name)
		}
		if view := h.files.Load(); view != nil {
			for i, p := range view.set.instances {
				add(h, p, view.set.Rules[i].Name)
			}
		}
	}
	return rules
}

// This file has what the admin API reads of a configuration.

// trusted returns the networks of the trusted proxies of all servers; known is false if this Caddy does not show them.
func (a *App) trusted() (networks []netip.Prefix, known bool) {
	known = true
	i := slices.IndexFunc(a.handlers, func(h *Handler) bool { return h.http != nil })
	if i < 0 {
		return nil, true
	}
	for _, server := range a.handlers[i].http.Servers {
		of, found := syntax.TrustedProxies(server)
		networks, known = append(networks, of...), known && found
	}
	return networks, known
}

func init() {
	admin.Show(func() *admin.View {
		a := appInForce()
		if a == nil {
			return nil
		}
		v := &admin.View{Rules: a.activeRules, Limiters: a.limiters(), Guards: a.guards(), Queues: a.queues(), Memory: a.memory.store, Blocked: a.memory.blocked, Adapting: &a.memory.adapting, AdviceSource: a.adviceSource, Ctx: a.ctx, Trusted: a.trusted}
		if a.ExceptionsFile == "" {
			v.Passing = a.memory.exceptions
		}
		if len(a.files.inUse()) > 0 {
			v.Files = &admin.FilesAnswer{Successful: !rulesRefused.Load(), Loaded: time.UnixMilli(rulesLoaded.Load() / 1000).UTC()}
		}
		return v
	})
}

// Explain decides on a request without charging it.
func (h *Handler) Explain(r *http.Request) (*admin.Explained, error) {
	of := &admin.Explained{Evaluation: new(front.Evaluation), Limiter: h.limiter, Guarded: h.guarded, Missing: h.expected.missing(r)}
	if _, err := h.assemble(of.Evaluation, r); err != nil {
		return nil, err
	}
	if len(of.Checks) > 0 {
		of.Failure = h.limiter.Decide(of.Checks, true, &of.Verdict)
	}
	for _, zone := range h.zones {
		if !slices.ContainsFunc(of.Checks, func(c core.Check) bool { return report.Of(&c) == zone.reporter }) {
			of.Uncovered = append(of.Uncovered, zone.reporter.Stats.Label)
		}
	}
	return of, nil
}
