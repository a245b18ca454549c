package traefik

import (
	"fmt"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/traefik/config"
)

// takeFiles puts contents in force in a new engine, or returns the problems in them. known is another engine's set of them, nil if there is none.
func (e *engine) takeFiles(contents *ruleset.Contents, known *ruleset.Set) ruleset.Problems {
	set, wrong := e.newSet(contents, known)
	if len(wrong) == 0 {
		e.changing.Store(set)
	}
	return wrong
}

// newSet compiles the rules of files together with the engine's own. known is as in takeFiles.
func (e *engine) newSet(contents *ruleset.Contents, known *ruleset.Set) (*ruleSet, ruleset.Problems) {
	set := quickSet(contents, e.namespace, known)
	if set == nil || e.hasNameOf(set) || e.needsRedis(set) || len(set.ReadAnswers()) > 0 {
		careful, wrong := e.parseSet(contents)
		if len(wrong) > 0 {
			return nil, wrong
		}
		set = careful
	}
	var domain *ruleset.Domain
	if len(e.descriptors) > 0 {
		found, err := set.Domain(e.domain)
		if err != nil {
			return nil, unplaced(err)
		}
		domain = found
	}
	next := newRuleSet(e, set, domain)
	next.digest = contents.Digest
	if before, ok := e.changing.Load().(*ruleSet); ok {
		next.continueWaiting(before)
	}
	return next, nil
}

// quickSet returns the set of files that are plain and right, else nil. It shares what it can with a known set of the same files, if there is one.
func quickSet(contents *ruleset.Contents, namespace string, known *ruleset.Set) *ruleset.Set {
	in := ruleset.Context{Namespace: namespace}
	if known != nil {
		return known.In(in)
	}
	for _, name := range contents.Names {
		if config.IsYAML(name) {
			return nil
		}
	}
	set := ruleset.QuickSet(contents, in)
	if set != nil {
		set.DropTexts()
	}
	return set
}

// hasNameOf reports whether the configuration has a rule of its own with a name of a set's.
func (e *engine) hasNameOf(set *ruleset.Set) bool {
	if len(e.ownNames) == 0 {
		return false
	}
	for _, r := range set.Rules {
		if e.ownNames[r.Name] {
			return true
		}
	}
	return false
}

// needsRedis reports whether a rule of a set cannot count in memory, and there is no Redis.
func (e *engine) needsRedis(set *ruleset.Set) bool {
	return e.store.Redis == nil && len(set.FitsMemory()) > 0
}

// parseSet returns the set of files, or what is wrong with them.
func (e *engine) parseSet(contents *ruleset.Contents) (*ruleset.Set, ruleset.Problems) {
	files, problems := ruleset.Parse(contents, config.ParseFile)
	for _, f := range files {
		for i := range f.Rules {
			r := &f.Rules[i]
			if r.Name != "" && e.ownNames[r.Name] {
				text := fmt.Sprintf("rule %q: duplicate name, also among the middleware's own rules; rename one", r.Name)
				problems = append(problems, ruleset.Problem{File: f.Name, Line: r.Line, Column: r.Column, Text: text})
			}
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	set, err := ruleset.NewSet(files, e.namespace)
	if err != nil {
		return nil, unplaced(err)
	}
	if e.needsRedis(set) {
		return nil, set.FitsMemory()
	}
	if wrong := set.ReadAnswers(); len(wrong) > 0 {
		return nil, wrong
	}
	return set, nil
}

// unplaced returns an error as a problem of no single file.
func unplaced(err error) ruleset.Problems { return ruleset.Problems{{Text: err.Error()}} }

// lines returns a line for each problem.
func lines(problems ruleset.Problems) []string {
	list := make([]string, 0, len(problems))
	for i := range problems {
		if problems[i].File == "" {
			list = append(list, problems[i].Text)
			continue
		}
		list = append(list, problems[i].String())
	}
	return list
}

// adviceOf returns what in a set's files is most likely not intended.
func adviceOf(e *engine, s *ruleSet) []string {
	advice := s.files.Advice()
	for _, r := range s.files.Rules {
		if text := config.Exempted(r); e.unsaid && text != "" {
			advice = append(advice, text)
		}
	}
	if s.domain != nil {
		unreachable := func(line, entry int, value string) string {
			source := e.descriptors[line][entry].Source
			spell := func(value string) (string, error) { return source.Canonicalize(value) }
			return ruleset.Unreachable(value, ruleset.FormOf(source), spell)
		}
		for _, one := range front.UnreachableValues(s.domain, e.descriptors, unreachable) {
			advice = append(advice, fmt.Sprintf("domain %q: descriptor %q: a value is met by no request: %s", s.domain.Name(), one.Key, one.Why))
		}
	}
	if len(s.files.Domains) > 0 && s.domain == nil {
		advice = append(advice, "the rule files have a domain with descriptors, and nothing says how a request becomes a descriptor; write descriptors beside rulesFile")
	}
	return advice
}

// report logs what has become of files.
func (f *ruleFiles) report(middleware string, event *ruleset.Event) {
	const taken = "the rule files have changed, and the new rules are in force"
	if event.Restored {
		warn(middleware, "the rule files are again those that are in force")
	}
	if event.Taken && event.Before {
		warn(middleware, taken)
	} else if event.Taken {
		inform(middleware, taken)
	}
	if len(event.Refused) == 0 {
		return
	}
	warn(middleware, "the rule files have changed and are refused; the previous rules stay in force:")
	for _, line := range fewLines(lines(event.Refused)) {
		warn(middleware, line)
	}
}
