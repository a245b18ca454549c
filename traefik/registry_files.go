package traefik

import (
	"fmt"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/ruleset"
)

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
	before := g.indexes.newestOf(e.name)
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
	if len(wrong) == 0 && !next.tracksReservations() {
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
	if e.counts {
		g.meter(next)
	}
	obeyExceptions(e, next, before)
	continueLimits(e, next, before, true, 0)
	g.addInstances(e, next)
	resumeAdvised(e, next, before)
	g.track(e, next)
	g.indexes.replace(e, before, next)
	e.changing.Store(next)
	f.contents = contents
	for _, text := range adviceOf(e, next) {
		g.log(e.name, text)
	}
	g.leave(&leaving{rules: before.ofFiles, active: before.active(before.own), limiter: e.limiter})
	return nil
}
