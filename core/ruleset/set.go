package ruleset

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/words"
)

// Set has the compiled rules of files for one store. It is immutable, except for the data that the store keeps in its core.Rules. The
// places of rules are in Files.
type Set struct {
	Files   []*File
	Rules   []*Rule // of all files, in their order
	Domains []*Domain
	index   *match.Index // nil: there are so few rules that evaluating each is as fast
}

// fewRules is the most rules that are evaluated one by one.
const fewRules = 8

// NewSet compiles the rules of files in which Parse has found no problems.
func NewSet(files []*File, namespace string) (*Set, error) {
	return newSet(files, Context{Namespace: namespace})
}

func newSet(files []*File, in Context) (*Set, error) {
	in.Prefixes = Standard
	s := &Set{Files: files}
	compiler := newAlike(in)
	names := countNames(files)
	for _, f := range files {
		for i := range f.Rules {
			r, errors := compiler.compile(&f.Rules[i].RuleText)
			if len(errors) > 0 {
				return nil, fmt.Errorf("%s: rule %q: %w", f.Name, f.Rules[i].Name, errors[0])
			}
			s.Rules = append(s.Rules, r)
		}
		if f.Domain == nil {
			continue
		}
		d, err := newDomain(f.Domain, in.Namespace, names)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		s.Domains = append(s.Domains, d)
	}
	if len(s.Rules) > fewRules {
		matchers := make([]*match.Matcher, len(s.Rules))
		for i, r := range s.Rules {
			matchers[i] = r.Matcher
		}
		s.index = match.NewIndex(matchers)
	}
	return s, nil
}

// DropTexts lets go of what the files say of rules that In can do without: about half of the memory of a large file's set.
func (s *Set) DropTexts() {
	at := 0
	for _, f := range s.Files {
		for i := range f.Rules {
			if s.Rules[at].like != nil {
				f.Rules[i].RuleText = RuleText{Name: f.Rules[i].Name}
			}
			at++
		}
	}
}

// In is NewSet for the same files and another context, and shares with s what does not depend on that: matchers, their index, the parts of keys. It
// takes a fraction of the time. It returns nil if a rule cannot be in that context.
func (s *Set) In(in Context) *Set {
	in.Prefixes = Standard
	other := &Set{Files: s.Files, Rules: make([]*Rule, 0, len(s.Rules)), index: s.index}
	at := 0
	for _, f := range s.Files {
		for i := range f.Rules {
			made := *s.Rules[at]
			r := &made
			at++
			if r.like == nil {
				compiled, errors := Compile(&f.Rules[i].RuleText, in)
				if len(errors) > 0 {
					return nil
				}
				r = compiled
			} else if !setLimits(r, in.Namespace) {
				return nil
			}
			other.Rules = append(other.Rules, r)
		}
		if f.Domain == nil {
			continue
		}
		d, err := newDomain(f.Domain, in.Namespace, countNames(s.Files))
		if err != nil {
			return nil
		}
		other.Domains = append(other.Domains, d)
	}
	return other
}

// All returns all rules, for a store to open.
func (s *Set) All() []*core.Rule {
	var all []*core.Rule
	for _, r := range s.Rules {
		all = append(all, r.Limits.Rules()...)
	}
	for _, d := range s.Domains {
		all = append(all, d.rules...)
	}
	return all
}

// ContinueWaiting makes the set's rules continue the counts of waiting requests of the set that it replaces.
func (s *Set) ContinueWaiting(before *Set) {
	old := make(map[string]*core.Limits, len(before.Rules))
	for _, r := range before.Rules {
		old[r.Name] = r.Limits
	}
	for _, r := range s.Rules {
		if limits := old[r.Name]; limits != nil {
			r.Limits.ContinueWaiting(limits)
		}
	}
}

// FitsMemory returns a problem for each rule that cannot count in memory: see core.FitsMemory.
func (s *Set) FitsMemory() Problems {
	var problems Problems
	at := 0
	for _, f := range s.Files {
		for i := range f.Rules {
			r := s.Rules[at]
			at++
			for _, one := range r.Limits.Rules() {
				if err := core.FitsMemory(one); err != nil {
					problems = append(problems, Problem{File: f.Name, Line: f.Rules[i].Line, Column: f.Rules[i].Column, Text: fmt.Sprintf("rule %q: %v", r.Name, err)})
					break
				}
			}
		}
	}
	return problems
}

// ReadAnswers is ReadAnswer for all rules of the set. It returns a problem for each whose file it cannot read.
func (s *Set) ReadAnswers() Problems {
	var problems Problems
	at := 0
	for _, f := range s.Files {
		for i := range f.Rules {
			if err := ReadAnswer(s.Rules[at]); err != nil {
				problems = append(problems, Problem{File: f.Name, Line: f.Rules[i].Line, Column: f.Rules[i].Column, Text: fmt.Sprintf("rule %q: %v", s.Rules[at].Name, err)})
			}
			at++
		}
	}
	return problems
}

// Covering appends to into the places of the rules that may cover a request: the caller must still evaluate their Matchers.
func (s *Set) Covering(r *http.Request, into []int) []int {
	if s.index != nil {
		return s.index.Candidates(r, into)
	}
	for i := range s.Rules {
		into = append(into, i)
	}
	return into
}

// CoveringFunc returns a function that returns Covering, in a list that must not be changed: one that costs an interpreter less.
func (s *Set) CoveringFunc() func(r *http.Request) []int {
	if s.index != nil {
		return s.index.CandidatesFunc()
	}
	return func(r *http.Request) []int { return s.Covering(r, nil) }
}

// Domain returns the domain with that name, or the only one if the name is "". The error says which domains there are.
func (s *Set) Domain(name string) (*Domain, error) {
	if name == "" && len(s.Domains) == 1 {
		return s.Domains[0], nil
	}
	names := make([]string, 0, len(s.Domains))
	for _, d := range s.Domains {
		if d.name == name && name != "" {
			return d, nil
		}
		names = append(names, d.name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("the rule files have no domain with descriptors")
	}
	if name == "" {
		return nil, fmt.Errorf("the rule files have the domains %s; say which with domain <name>", strings.Join(names, ", "))
	}
	text := fmt.Sprintf("domain %q: is not in the rule files, which have %s", name, strings.Join(names, ", "))
	if near := words.Nearest(name, names); near != "" {
		text += " (did you mean " + near + "?)"
	}
	return nil, fmt.Errorf("%s", text)
}

// mostAdvice is the most rules that Advice names.
const mostAdvice = 10

// Advice returns what is valid in the files, but most likely not intended.
func (s *Set) Advice() []string {
	var advice []string
	at, more := 0, 0
	for _, f := range s.Files {
		for i := range f.Rules {
			for _, one := range s.Rules[at].Advice {
				if len(advice) == mostAdvice {
					more++
					continue
				}
				reported := Problem{File: f.Name, Line: f.Rules[i].Line, Column: f.Rules[i].Column, Text: one.Within("rule", strconv.Quote(f.Rules[i].Name)).Error()}
				advice = append(advice, reported.String())
			}
			at++
		}
		if f.Domain == nil {
			continue
		}
		for _, one := range f.Domain.unheeded {
			reported := Problem{File: f.Name, Line: one.line, Column: one.column, Text: fmt.Sprintf("%s: has no effect: %s", one.field, unheededFields[one.field])}
			advice = append(advice, reported.String())
		}
	}
	if more > 0 {
		advice = append(advice, fmt.Sprintf("so it is with %d more rules", more))
	}
	return advice
}
