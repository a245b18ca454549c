package ratelimit

import (
	"fmt"
	"slices"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/metrics"
)

// subjects returns the rules of the configuration, each once: those of zones, rule files and descriptors.
func (a *App) subjects() []*subject {
	a.files.mu.Lock() // so that the views of all handlers belong to the same files
	defer a.files.mu.Unlock()
	var list []*subject
	first := make(map[string]*subject)
	add := func(s *subject) {
		s.label = metrics.LabelOf(s.namespace, s.name)
		if before := first[s.label]; before != nil {
			before.also = append(before.also, s)
			return
		}
		first[s.label] = s
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
			h.subjectsOfFiles(view.set, add)
		}
		h.subjectsOfDomain(view, add)
	}
	return list
}

func (h *Handler) subjectOfZone(z *openZone) *subject {
	s := subjectOf(z.Rule, z.Text)
	s.namespace, s.limiter, s.stats, s.source = h.Namespace, h.limiter, z.reporter.stats, "zone"
	s.notes = append(s.notes, h.expected.notes(z)...)
	return s
}

// subjectsOfFiles adds the rules of a set, in the order of their files.
func (h *Handler) subjectsOfFiles(set *fileSet, add func(*subject)) {
	i := 0
	for _, file := range set.Files {
		for _, text := range file.Rules {
			s := subjectOf(set.Rules[i], &text.RuleText)
			s.namespace, s.limiter, s.stats, s.source = set.namespace, set.limiter, set.reporters[i].stats, fmt.Sprintf("%s:%d", file.Name, text.Line)
			add(s)
			i++
		}
	}
}

// subjectsOfDomain adds the limits of a handler's descriptors.
func (h *Handler) subjectsOfDomain(view *inForce, add func(*subject)) {
	if view.domain == nil {
		return
	}
	secret := false
	for _, other := range h.app.handlers { // any of them may make keys of the same descriptors
		for _, d := range other.descriptors {
			for i := range d {
				secret = secret || slices.ContainsFunc(d[i].value.Sources, isSecret)
			}
		}
	}
	for i, r := range view.domain.Rules() {
		add(&subject{namespace: view.set.namespace, name: r.Name(), enforcement: enforcementOf(map[bool]string{true: "shadow"}[r.Shadow]), limiter: view.set.limiter, stats: view.reporters[i].stats,
			desc: r, all: view.domain.Limits()[i], source: "domain " + view.domain.Name(), own: r, rules: []*core.Rule{r}, shadow: r.Shadow,
			keys: keyForm{names: []string{"descriptor"}, secret: []bool{secret}, free: true}})
	}
}

// adaptedRules returns the adaptable rules of a configuration by label, with the guards of the handlers that they are in.
func (a *App) adaptedRules() map[string]*front.AdaptedRule {
	rules := make(map[string]*front.AdaptedRule)
	add := func(h *Handler, p *front.Place, name string) {
		if p == nil {
			return
		}
		label := metrics.LabelOf(h.Namespace, name)
		r := rules[label]
		if r == nil {
			r = new(front.AdaptedRule)
			rules[label] = r
		}
		for _, other := range r.Places {
			if other == p { // a set that several handlers share
				return
			}
		}
		r.Places = append(r.Places, p)
		var watched front.Watched // of nobody
		if state := h.guarded.state(); state != nil {
			if of := state.tracked(label); of != nil {
				watched = front.Watched{Guard: state.Guard, Rule: of}
			}
		}
		r.Guards = append(r.Guards, watched)
	}
	a.files.mu.Lock()
	defer a.files.mu.Unlock()
	for _, h := range a.handlers {
		for _, z := range h.zones {
			add(h, z.place, z.Rule.Name)
		}
		if view := h.files.Load(); view != nil {
			for i, p := range view.set.places {
				add(h, p, view.set.Rules[i].Name)
			}
		}
	}
	return rules
}
