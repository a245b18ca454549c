package ratelimit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/ruleset/yaml"
)

// join reads the files of a handler, which is being provisioned, and makes it use them from then on.
func (f *ruleFiles) join(h *Handler, patterns []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, err := f.group(patterns)
	if err != nil {
		return err
	}
	set := g.setOf(h)
	if set == nil {
		if set, err = newFileSet(g.files, h); err != nil {
			return err
		}
		if err = f.app.enter(f.app.fileRules, set, false); err != nil {
			set.release()
			return err
		}
		if err = set.open(); err != nil {
			return err
		}
		ours := make(limitsByName)
		ours.addFiles(set)
		ours.continueFrom(f.app.limitsBefore(), nil)
		f.advise(set)
		g.sets = append(g.sets, set)
	}
	view, err := h.viewOf(set)
	if err != nil {
		return err
	}
	if err := h.checkUse(set); err != nil {
		return err
	}
	if view.domain != nil {
		h.adviseDescriptors(view.domain)
	}
	h.files.Store(view)
	g.handlers = append(g.handlers, h)
	return nil
}

// delays reports whether files have a rule that makes requests wait. It ignores errors: join returns them.
func (f *ruleFiles) delays(patterns []string) bool {
	if len(patterns) == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g, err := f.group(patterns)
	return err == nil && firstDelaying(g.files) != ""
}

// firstDelaying returns the name of the first rule that makes requests wait, or "".
func firstDelaying(files []*ruleset.File) string {
	for _, file := range files {
		for i := range file.Rules {
			if file.Rules[i].Texts["on_limit"] == "delay" {
				return file.Rules[i].Name
			}
		}
	}
	return ""
}

// checkZones refuses files that newly make requests wait, next to zones that were prepared for files that do not.
func (h *Handler) checkZones(s *fileSet) error {
	for _, zone := range h.zones {
		if s.waits && !zone.Rule.Limits.TracksReservations() {
			return s.problem(firstDelaying(s.Files), "on_limit delay: is new beside zones of the same rate_limit; it takes effect when Caddy's configuration is loaded again")
		}
	}
	return nil
}

// group returns the group of patterns. It reads the files if there is no such group yet.
func (f *ruleFiles) group(patterns []string) (*fileGroup, error) {
	for _, g := range f.groups {
		if slices.Equal(g.patterns, patterns) {
			return g, nil
		}
	}
	contents, problems := ruleset.Read(patterns)
	if problems != nil {
		return nil, inRuleFiles(problems)
	}
	parsed, problems := f.parse(contents)
	if problems != nil {
		return nil, inRuleFiles(problems)
	}
	files := filesOf(contents, patterns, parsed)
	if problems := ruleset.Conflicts(files); problems != nil {
		return nil, inRuleFiles(problems)
	}
	if f.parsed == nil {
		f.parsed = make(map[string]parsedFile)
	}
	maps.Copy(f.parsed, parsed)
	if err := f.checkBounds(); err != nil {
		return nil, err
	}
	g := &fileGroup{patterns: patterns, files: files}
	f.groups = append(f.groups, g)
	return g, nil
}

// checkBounds refuses more files than can be checked together, as they will be when they change.
func (f *ruleFiles) checkBounds() error {
	total := 0
	for _, p := range f.parsed {
		total += p.size
	}
	if len(f.parsed) > ruleset.MaxFiles || total > ruleset.MaxTotal {
		return fmt.Errorf("rules_file: all handlers together read %d files with %d MB; there may be %d with %d MB", len(f.parsed), total>>20, ruleset.MaxFiles, ruleset.MaxTotal>>20)
	}
	return nil
}

// inRuleFiles joins problems to one error, each on its own line if there are several.
func inRuleFiles(problems ruleset.Problems) error {
	if len(problems) == 1 {
		return fmt.Errorf("rules_file: %w", problems)
	}
	return fmt.Errorf("rules_file: %d problems:\n%w", len(problems), problems)
}

// parse reads all files of contents, except those that have not changed.
func (f *ruleFiles) parse(c *ruleset.Contents) (map[string]parsedFile, ruleset.Problems) {
	parsed := make(map[string]parsedFile, len(c.Names))
	var problems ruleset.Problems
	for i, name := range c.Names {
		if p, ok := f.parsed[name]; ok && p.sum == c.Sums[i] {
			parsed[name] = p
			continue
		}
		file, wrong := ruleset.ParseFile(c, i, yaml.Parse)
		problems = append(problems, wrong...)
		parsed[name] = parsedFile{c.Sums[i], c.Sizes[i], file}
	}
	return parsed, problems
}

// filesOf returns the files that match patterns.
func filesOf(c *ruleset.Contents, patterns []string, parsed map[string]parsedFile) []*ruleset.File {
	var files []*ruleset.File
	for _, pattern := range patterns {
		for _, name := range c.ByPattern[pattern] {
			if file := parsed[name].file; !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files
}

// inUse returns the sets of all groups.
func (f *ruleFiles) inUse() []*fileSet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.allSets()
}

func (f *ruleFiles) allSets() []*fileSet {
	var sets []*fileSet
	for _, g := range f.groups {
		sets = append(sets, g.sets...)
	}
	return sets
}

// patterns returns the patterns of all groups, each once.
func (f *ruleFiles) patterns() []string {
	var all []string
	for _, g := range f.groups {
		for _, pattern := range g.patterns {
			if !slices.Contains(all, pattern) {
				all = append(all, pattern)
			}
		}
	}
	return all
}

// setOf returns the set that a handler can share, or nil.
func (g *fileGroup) setOf(h *Handler) *fileSet {
	for _, s := range g.sets {
		if s.sharing == h.sharing() {
			return s
		}
	}
	return nil
}

// viewOf returns the handler's view of a set.
func (h *Handler) viewOf(s *fileSet) (*inForce, error) {
	view := &inForce{set: s}
	if len(h.Descriptors) > 0 {
		domain, err := s.Domain(h.Domain)
		if err != nil {
			return nil, err
		}
		view.domain, view.reporters = domain, s.descriptors[domain]
	}
	view.asked = front.NewSet(h.rules, s.rules, s.Set, view.domain, h.described)
	return view, nil
}

// checkUse says what in a configuration that is being loaded would have no effect, or count requests twice.
func (h *Handler) checkUse(s *fileSet) error {
	if err := cmp.Or(h.checkNames(s), h.checkAny(s)); err != nil {
		return err
	}
	if len(h.Descriptors) > 0 || len(s.Domains) == 0 {
		return nil
	}
	h.logger.Warn("the rule files have descriptors that nothing uses, since the handler has no line that makes descriptors of a request", zap.String("domain", s.Domains[0].Name()))
	return nil
}

// checkAny refuses files that only have descriptors for a handler that makes none and has nothing else.
func (h *Handler) checkAny(s *fileSet) error {
	if len(h.Descriptors) > 0 || len(s.Domains) == 0 || len(s.Rules) > 0 || len(h.RateLimits) > 0 {
		return nil
	}
	return fmt.Errorf("rules_file: the files have descriptors alone, of domain %q, and nothing says what of a request they are: write a line such as descriptor <key> {header.X-Key} beside rules_file, in JSON %s beside rules_files", s.Domains[0].Name(), syntax.EntryInJSON)
}

// adviseDescriptors warns of descriptors without any limit, and of values in rule files that no request has; of each once, however often the files change.
func (h *Handler) adviseDescriptors(domain *ruleset.Domain) {
	if h.advised == nil {
		h.advised = make(map[string]bool)
	}
	warn := func(text string, fields ...zap.Field) {
		if said := fmt.Sprint(text, fields); !h.advised[said] {
			h.advised[said] = true
			h.logger.Warn(text, fields...)
		}
	}
	for _, d := range h.Descriptors {
		keys := make([]string, 0, len(d))
		for _, e := range d {
			keys = append(keys, e.Key)
		}
		if !domain.Knows(keys) {
			warn("a descriptor has no effect: the rule files have no limit for its keys", zap.String("domain", domain.Name()), zap.Strings("keys", keys))
		}
	}
	tries := mostUnreachableTries
	unreachable := func(line, entry int, value string) string {
		return h.descriptors[line][entry].Unreachable(value, &tries)
	}
	for _, one := range front.UnreachableValues(domain, h.described, unreachable) {
		warn("a descriptor's value is met by no request", zap.String("domain", domain.Name()), zap.String("key", one.Key), zap.String("value", one.Why))
	}
}

// mostUnreachableTries bounds the search for such values over all values of a load. Values beyond it are not warned of.
const mostUnreachableTries = 50000

// checkNames refuses a rule in a file that has the name of a zone of the same handler: both would count each request in the same
// counters.
func (h *Handler) checkNames(s *fileSet) error {
	for _, r := range s.Rules {
		if h.RateLimits[r.Name] != nil {
			return s.problem(r.Name, "has the name of a zone of the handler that reads the file; rename one")
		}
	}
	return nil
}

// replace puts new contents of the files in force, or says what is wrong with them. Counters survive: a rule whose identity is
// unchanged stays open in its store.
func (f *ruleFiles) replace(c *ruleset.Contents) error {
	err := f.replaceAll(c)
	if err == nil && f.app.memory != nil {
		f.app.memory.adapting.Refresh(f.app.adviceSource)
	}
	return err
}

func (f *ruleFiles) replaceAll(c *ruleset.Contents) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	parsed, problems := f.parse(c)
	if problems != nil {
		return problems
	}
	var made []*fileSet // those of all groups, in the order of allSets
	var files [][]*ruleset.File
	fail := func(err error) error {
		for _, s := range made {
			s.release()
		}
		return err
	}
	views := make(map[*Handler]*inForce)
	for _, g := range f.groups {
		files = append(files, filesOf(c, g.patterns, parsed))
		if problems := ruleset.Conflicts(files[len(files)-1]); problems != nil {
			return fail(problems)
		}
		sets, err := g.remake(files[len(files)-1], views)
		made = append(made, sets...)
		if err != nil {
			return fail(err)
		}
	}
	known := newFileRules()
	for _, s := range made {
		if err := f.app.enter(known, s, true); err != nil {
			return fail(err)
		}
	}
	before := f.allSets()
	was, is := make(limitsByName), make(limitsByName)
	for i := range before {
		was.addFiles(before[i])
		is.addFiles(made[i])
	}
	is.continueFrom(was, f.app.reportTransition)
	for _, s := range made {
		f.advise(s)
	}
	for h, view := range views {
		h.files.Store(view)
		h.warnOfExceptions("rule", view.set.rules)
		if view.domain != nil {
			h.adviseDescriptors(view.domain)
		}
	}
	f.app.fileRules = known
	f.parsed = parsed
	for i, g := range f.groups {
		g.files = files[i]
		g.sets, made = made[:len(g.sets)], made[len(g.sets):]
	}
	for _, s := range before {
		s.release()
	}
	return nil
}

// advise logs once what in a set is probably a mistake.
func (f *ruleFiles) advise(s *fileSet) {
	if f.reported == nil {
		f.reported = make(map[string]bool)
	}
	for _, advice := range s.Advice() {
		if !f.reported[advice] {
			f.app.logger.Warn(advice)
			f.reported[advice] = true
		}
	}
}

// remake makes the group's sets from files, opens them, and adds the views of the group's handlers.
func (g *fileGroup) remake(files []*ruleset.File, views map[*Handler]*inForce) ([]*fileSet, error) {
	var made []*fileSet
	for _, old := range g.sets {
		first := g.handlers[slices.IndexFunc(g.handlers, func(h *Handler) bool { return h.sharing() == old.sharing })]
		s, err := newFileSet(files, first)
		if err != nil {
			return made, err
		}
		s.ContinueWaiting(old.Set)
		if err := s.open(); err != nil {
			return made, err
		}
		made = append(made, s)
		for _, h := range g.handlers {
			if h.sharing() != old.sharing {
				continue
			}
			view, err := h.viewOf(s)
			if err := cmp.Or(err, h.checkNames(s), h.checkAny(s), h.checkZones(s)); err != nil {
				return made, err
			}
			views[h] = view
		}
	}
	return made, nil
}

// areInForce reports whether the rules in force were made from contents.
func (f *ruleFiles) areInForce(c *ruleset.Contents) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, name := range c.Names {
		if p, ok := f.parsed[name]; !ok || p.sum != c.Sums[i] {
			return false
		}
	}
	for _, g := range f.groups { // the groups may have been read at different times
		if !slices.Equal(g.files, filesOf(c, g.patterns, f.parsed)) {
			return false
		}
	}
	return len(c.Names) == len(f.parsed)
}

// leave releases all rules, when no handler serves any more.
func (f *ruleFiles) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.allSets() {
		s.release()
	}
	f.groups = nil
}

// counts returns how many rules and limited descriptors all files have.
func (f *ruleFiles) counts() (rules, descriptors int) {
	for _, p := range f.parsed {
		rules += len(p.file.Rules)
		if p.file.Domain != nil {
			descriptors += p.file.Domain.Limits
		}
	}
	return rules, descriptors
}

// newFileSet prepares the rules of files for a handler and those like it, but does not open them.
func newFileSet(files []*ruleset.File, h *Handler) (*fileSet, error) {
	set, err := ruleset.NewSet(files, h.Namespace)
	if err != nil {
		return nil, err
	}
	if problems := set.ReadAnswers(); problems != nil {
		return nil, problems
	}
	s := &fileSet{
		Set:         set,
		sharing:     h.sharing(),
		waits:       h.waits,
		descriptors: make(map[*ruleset.Domain][]*report.Reporter),
	}
	for _, r := range set.Rules {
		rep := h.newReporter(r.Name, keyReader(r))
		rep.Address = report.AddressOf(r)
		for _, one := range r.Limits.Rules() {
			one.Note(rep)
		}
		rep.ReportLimits(r.Limits.Requested())
		s.reporters = append(s.reporters, rep)
		s.rules = append(s.rules, front.NewRule(r))
		var instance *adaptive.Instance
		if r.Adapt != nil {
			instance = h.instanceOf(r)
		}
		s.instances = append(s.instances, instance)
		s.shadows = s.shadows || r.Limits.HasShadow()
		s.waits = s.waits || r.Limits.Delays()
	}
	for _, d := range set.Domains {
		reporters := make([]*report.Reporter, 0, len(d.Rules()))
		for _, r := range d.Rules() {
			rep := h.newReporter(r.Name(), nil)
			r.Note(rep)
			reporters = append(reporters, rep)
			s.shadows = s.shadows || r.Shadow
		}
		s.descriptors[d] = reporters
	}
	if s.waits {
		for _, r := range s.All() {
			r.TrackReservations()
		}
	}
	return s, nil
}

// sharing returns what other handlers must have in common with h to share its fileSet.
func (h *Handler) sharing() sharing {
	return sharing{h.limiter, h.Namespace, h.guarded.State(), h.waits}
}
