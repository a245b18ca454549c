package ratelimit

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/excepted"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/ruleset"
)

// fileSet has the rules of a group prepared for one limiter, namespace and guard. Handlers share it.
type fileSet struct {
	*ruleset.Set
	sharing
	opened      []*core.Rule
	reporters   []*report.Reporter   // of Set.Rules
	rules       []*front.Rule        // the same rules, in the form in which requests are checked
	instances   []*adaptive.Instance // of Set.Rules; nil: advice cannot touch the rule
	descriptors map[*ruleset.Domain][]*report.Reporter
	obeying     *excepted.Group // nil: not open
	shadows     bool            // any rule is a shadow, or has a candidate
	waits       bool            // requests may wait while they are under these rules, since a zone or one of these rules makes them wait
}

// sharing is what handlers have in common that share a fileSet.
type sharing struct {
	limiter   *stores.Limiter
	namespace string
	guard     *protect.GuardState // nil: they have none
	zonesWait bool                // a zone makes requests wait
}

// definedElsewhere returns an error for a rule of the set that differs from another of its name.
func (s *fileSet) definedElsewhere(name, what string) error {
	return s.problem(name, fmt.Sprintf("is defined elsewhere, too, with %s; rules and zones of one name share their counters and must be alike: rename one, or give its handler a namespace", what))
}

// problem returns an error about a rule of the set, with its place.
func (s *fileSet) problem(name, text string) error {
	for _, f := range s.Files {
		for i := range f.Rules {
			if r := &f.Rules[i]; r.Name == name {
				return ruleset.Problems{{File: f.Name, Line: r.Line, Column: r.Column, Text: fmt.Sprintf("rule %q: %s", name, text)}}
			}
		}
	}
	return fmt.Errorf("rule %q: %s", name, text)
}

// keyReader returns a function that writes a request's key for the log: its values, separated by spaces.
func keyReader(rule *ruleset.Rule) func(*http.Request) string {
	return func(r *http.Request) string {
		values := make([]string, 0, len(rule.Parts))
		for i := range rule.Parts {
			values = append(values, rule.Parts[i].Source.Value(r, syntax.ClientIPOf(r)))
		}
		return strings.Join(values, " ")
	}
}

// open opens all rules in the limiter; on an error, none.
func (s *fileSet) open() error {
	if failed, err := s.limiter.OpenAll(s.All()); err != nil {
		s.release()
		return s.problem(failed.Name(), err.Error())
	}
	s.opened = s.All()
	for _, r := range s.opened {
		s.limiter.WarnOf(r)
	}
	s.obeying = s.limiter.Obeying(s.namespace, s.Rules, s.Domains)
	return nil
}

// release releases the rules that are open, and their reporters.
func (s *fileSet) release() {
	s.limiter.Disregard(s.obeying)
	for _, r := range s.Rules {
		r.Active.End()
	}
	for _, d := range s.Domains {
		for _, active := range d.Active() {
			active.End()
		}
	}
	for _, r := range s.opened {
		s.limiter.Release(r)
	}
	s.opened = nil
	for _, r := range s.reporters {
		r.Close()
	}
	for _, list := range s.descriptors {
		for _, r := range list {
			r.Close()
		}
	}
}
