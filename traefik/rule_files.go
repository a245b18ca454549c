package traefik

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/traefik/config"
)

// ruleFiles are the files of an engine's rules. (It does not refer to the engine, which refers to it: see traefik/INTERPRETER.md.)
type ruleFiles struct {
	patterns []string
	interval time.Duration
	of       string // the engine's fingerprint
	later    func() // checks them: made once, see registry

	// Only the goroutine that checks them uses these.
	watch *ruleset.Watch
	due   time.Duration // of the registry's clock: when to check them

	contents *ruleset.Contents // in force; with the registry's lock
}

func isYAML(file string) bool {
	suffix := strings.ToLower(filepath.Ext(file))
	return suffix == ".yaml" || suffix == ".yml"
}

// parseFile is ruleset.ParseJSON, and says what to do with YAML.
func parseFile(file string, data []byte) (*ruleset.Node, ruleset.Problems) {
	if isYAML(file) {
		text := fmt.Sprintf("is YAML, and the interpreter that Traefik runs plugins with can read JSON only; convert it: yq -o=json . %s > %s (JSON is YAML, so Caddy reads that file too)",
			file, strings.TrimSuffix(file, filepath.Ext(file))+".json")
		return nil, ruleset.Problems{{File: file, Text: text}}
	}
	return ruleset.ParseJSON(file, data)
}

// readFiles reads the files of a new engine. If they are wrong, it takes the contents that an engine of the same middleware has in force: a change
// of the middleware's configuration must not break its routers because a file happens to be broken.
func (g *registry) readFiles(e *engine) error {
	if e.files == nil {
		return nil
	}
	contents, problems := ruleset.Read(e.files.patterns)
	wrong := problems
	if len(wrong) == 0 {
		wrong = e.takeFiles(contents, g.setOf(contents))
	}
	if len(wrong) > 0 {
		contents = g.lastGood(e)
		if contents == nil || len(e.takeFiles(contents, g.setOf(contents))) > 0 {
			return fmt.Errorf("rulesFile: %s", strings.Join(lines(wrong), "\n"))
		}
	}
	e.files.contents = contents
	e.files.watch = ruleset.NewWatch(e.files.patterns, contents)
	return nil
}

// lastGood returns the contents of the same files that an engine of the same middleware has in force, or nil.
func (g *registry) lastGood(e *engine) *ruleset.Contents {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.newestOf(e.name)
	if before == nil || before.files == nil || strings.Join(before.files.patterns, "\n") != strings.Join(e.files.patterns, "\n") {
		return nil
	}
	return before.files.contents
}

// setOf returns the set that an engine has of the same contents, nil if none has one.
func (g *registry) setOf(contents *ruleset.Contents) *ruleset.Set {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.indexes.files[contents.Digest] {
		return e.inForce().files
	}
	var none *ruleset.Set
	return none
}

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
	if set == nil || e.hasNameOf(set) || e.needsRedis(set) {
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
		next.goOn(before)
	}
	return next, nil
}

// quickSet returns the set of files that are plain and right, else nil. It shares what it can with a known set of the same files, if there is one.
func quickSet(contents *ruleset.Contents, namespace string, known *ruleset.Set) *ruleset.Set {
	in := ruleset.Context{Namespace: namespace, NoCount: config.NoCount}
	if known != nil {
		return known.In(in)
	}
	for _, name := range contents.Names {
		if isYAML(name) {
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
	files, problems := ruleset.Parse(contents, parseFile, ruleset.Context{NoCount: config.NoCount})
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

// fewLines leaves out all but the first of many lines, and shortens those that are very long.
func fewLines(list []string) []string {
	const most = 10
	few := make([]string, 0, len(list))
	for i := range list {
		if i == most {
			few = append(few, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		few = append(few, brief(list[i]))
	}
	return few
}

// adviceOf returns what in a set's files is most likely not intended.
func adviceOf(e *engine, s *ruleSet) []string {
	advice := s.files.Advice()
	for _, r := range s.files.Rules {
		if text := exempted(e, r); text != "" {
			advice = append(advice, text)
		}
	}
	if s.domain != nil {
		unmet := func(line, entry int, value string) string {
			source := e.descriptors[line][entry].Source
			spell := func(value string) (string, error) { return source.Spell(value) }
			return ruleset.Unmet(value, ruleset.FormOf(source), spell)
		}
		for _, one := range front.UnmetValues(s.domain, e.descriptors, unmet) {
			advice = append(advice, fmt.Sprintf("domain %q: descriptor %q: a value is met by no request: %s", s.domain.Name(), one.Key, one.Why))
		}
	}
	if len(s.files.Domains) > 0 && s.domain == nil {
		advice = append(advice, "the rule files have a domain with descriptors, and nothing says how a request becomes a descriptor; write descriptors beside rulesFile")
	}
	return advice
}

// watchFiles starts checking the files of an engine for as long as the engine lives.
func (g *registry) watchFiles(f *ruleFiles, fingerprint string) {
	f.of = fingerprint
	f.later = func() { g.look(f) }
	f.due = g.clock() + f.interval
	g.lookLater(f)
}

// lookLater sets the timer of files: for the time when they are due, or sooner, to find out whether the engine has ended or is used again.
func (g *registry) lookLater(f *ruleFiles) {
	wait := f.due - g.clock()
	if wait > time.Second {
		wait = time.Second
	}
	g.after(wait, f.later)
}

// look checks files if they are due, and sets the timer again.
func (g *registry) look(f *ruleFiles) {
	e, living, again := g.watching(f)
	if e == nil {
		return
	}
	defer g.lookLater(f)
	defer contain()
	now := g.clock()
	if now < f.due && !again {
		return
	}
	f.due = now + f.interval
	if !living { // it leaves them to its successor
		return
	}
	event := f.watch.Follow(now, func(contents *ruleset.Contents) (bool, ruleset.Problems) {
		wrong := g.reload(f, e, contents)
		return false, wrong
	})
	if event.Again > 0 && event.Again < f.interval {
		f.due = now + event.Again
	}
	f.report(e.name, &event)
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

// watching returns the engine that has files, nil if it has ended; whether handlers with a living context use it; and whether they do
// so again, after there was none for a while in which nobody checked the files.
func (g *registry) watching(f *ruleFiles) (e *engine, living, again bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e = g.engines[f.of]
	if e == nil || e.files != f { // another engine has replaced it
		var none *engine
		return none, false, false
	}
	living = e.living > 0
	again = e.returned
	e.returned = false
	return e, living, again
}

// reload puts changed files in force, or says what is wrong with them.
func (g *registry) reload(f *ruleFiles, e *engine, contents *ruleset.Contents) ruleset.Problems {
	next, wrong := e.newSet(contents, g.setOf(contents))
	if len(wrong) == 0 && !next.accompanied() {
		wrong = ruleset.Problems{{Text: "a rule with onLimit delay is new beside rules of the middleware's own; it takes effect when the middleware's configuration changes"}}
	}
	if len(wrong) == 0 {
		if err := g.replace(f, e, next, contents); err != nil {
			wrong = unplaced(err)
		}
	}
	if len(wrong) == 0 {
		g.readvise(e)
	}
	return wrong
}

// replace puts a set in force in place of the current one. Counters of rules that count the same survive.
func (g *registry) replace(f *ruleFiles, e *engine, next *ruleSet, contents *ruleset.Contents) error {
	if err := openRules(e.limiter, next.ofFiles); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.engines[f.of] != e { // meanwhile it has ended
		releaseRules(e.limiter, next.ofFiles)
		return nil
	}
	before := e.inForce()
	next.keepTallies(before)
	succeed(e, next, before, true, 0)
	g.place(e, next)
	goOnAdvised(e, next, before)
	if e.counts {
		g.meter(next)
	}
	g.track(e, next)
	g.indexes.replace(e, before, next)
	e.changing.Store(next)
	f.contents = contents
	for _, text := range adviceOf(e, next) {
		g.say(e.name, text)
	}
	g.leave(&leaving{rules: before.ofFiles, limits: before.allLimits(before.own), places: before.places, limiter: e.limiter})
	return nil
}

// openRules opens rules, all or none.
func openRules(limiter *core.Limiter, rules []*core.Rule) error {
	if failed, err := limiter.OpenAll(rules); err != nil {
		return fmt.Errorf("rule %q: %w", failed.Name(), err)
	}
	return nil
}

func releaseRules(limiter *core.Limiter, rules []*core.Rule) {
	for _, r := range rules {
		limiter.Release(r)
	}
}
