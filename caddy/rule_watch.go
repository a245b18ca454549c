package ratelimit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/core/ruleset"
)

const defaultRulesInterval = 10 * time.Second

// watcher checks the rule files of a configuration for changes while it is in force: when the system reports a change in their
// folders, and at an interval, since not every file system reports changes.
type watcher struct {
	files    *ruleFiles
	watch    *ruleset.Watch
	patterns []string
	interval time.Duration
	logger   *zap.Logger

	notifier *fsnotify.Watcher // nil: the system reports no changes
	watched  []string          // the folders whose changes it reports
	places   places            // where a change may affect what the patterns name
	stop     chan struct{}
	stopped  chan struct{}
}

// startWatcher starts watching the files that are in force.
func startWatcher(f *ruleFiles, interval time.Duration, logger *zap.Logger) *watcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &watcher{
		files:    f,
		patterns: f.patterns(),
		interval: interval,
		logger:   logger,
		stop:     make(chan struct{}),
		stopped:  make(chan struct{}),
	}
	// The first look compares with empty contents, so that it finds changes since the files were read.
	w.watch = ruleset.NewWatch(w.patterns, &ruleset.Contents{})
	notifier, err := fsnotify.NewWatcher()
	if err != nil {
		logger.Warn("the system does not report changes of rule files; they are read at intervals", zap.Duration("rules_interval", interval), zap.Error(err))
	} else {
		w.notifier = notifier
	}
	go w.run()
	return w
}

// close stops watching. It returns when no replacement is under way, but waits only for a short time: a disk may not answer.
func (w *watcher) close() {
	close(w.stop)
	timer := time.NewTimer(longClose)
	defer timer.Stop()
	select {
	case <-w.stopped:
	case <-timer.C:
		w.logger.Warn("the rule files are still being read, though no longer needed; is their disk there?")
	}
}

const (
	longClose = 3 * time.Second
	longLook  = 30 * time.Second
)

func (w *watcher) run() {
	defer close(w.stopped)
	var events chan fsnotify.Event
	var failures chan error
	if w.notifier != nil {
		defer func() { _ = w.notifier.Close() }() // there is no one left to report an error to
		events, failures = w.notifier.Events, w.notifier.Errors
	}
	started := time.Now()
	next := time.NewTimer(0)
	defer next.Stop()
	soon := false // the next look is for an event
	for {
		select {
		case <-w.stop:
			return
		case event := <-events:
			if !soon && w.matters(event) {
				soon = true
				next.Reset(afterEvent)
			}
			continue
		case <-failures: // such as events that were lost
		case <-next.C:
		}
		soon = false
		again := w.look(time.Since(started))
		if again == 0 || again > w.interval {
			again = w.interval
		}
		next.Reset(again)
	}
}

// afterEvent is how long to wait for further events after one: a single look covers all.
const afterEvent = 50 * time.Millisecond

// matters reports whether an event may concern the rule files. An event of another file in their folders does not, unless the file
// is new or gone and its name matches a pattern.
func (w *watcher) matters(event fsnotify.Event) bool {
	name := filepath.Clean(event.Name)
	if w.places.named[name] {
		return true
	}
	if !event.Has(fsnotify.Create) && !event.Has(fsnotify.Rename) && !event.Has(fsnotify.Remove) {
		return false
	}
	base := filepath.Base(name)
	return slices.ContainsFunc(w.places.wild, func(pattern string) bool {
		fits, _ := filepath.Match(pattern, base)
		return fits && (base[0] != '.' || pattern[0] == '.')
	})
}

// look checks the files, and puts changes in force. It returns after how long to look again if that is soon, else 0.
func (w *watcher) look(now time.Duration) time.Duration {
	if w.notifier != nil {
		w.ask() // first, so that no change is lost between the look and the registration
	}
	late := time.AfterFunc(longLook, func() {
		w.logger.Warn("reading the rule files takes long, and changes are not in force yet; is their disk there?", zap.Duration("longer_than", longLook))
	})
	e := w.watch.Follow(now, func(c *ruleset.Contents) (bool, ruleset.Problems) {
		late.Stop()
		if w.isStopped() || w.files.areInForce(c) {
			return true, nil
		}
		err := w.files.replace(c)
		var problems ruleset.Problems
		if err != nil && !errors.As(err, &problems) {
			problems = ruleset.Problems{{Text: err.Error()}}
		}
		return false, problems
	})
	late.Stop()
	switch {
	case w.isStopped() && !e.Taken: // no one waits for it any more
		return 0
	case e.Refused != nil:
		noteRulesRefused()
		w.report(e.Refused)
	case e.Restored:
		noteRulesTaken()
		w.logger.Info("the rule files are again those that are in force")
	case e.Taken:
		noteRulesTaken()
		rules, descriptors := w.files.counts()
		w.logger.Info("new rule files are in force", zap.Int("rules", rules), zap.Int("descriptors", descriptors))
		_ = w.files.app.checkNamed() // with rule files it only warns
	}
	return e.Again
}

func (w *watcher) isStopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// mostProblems is how many problems of one change are logged.
const mostProblems = 10

// report logs what is wrong with the files.
func (w *watcher) report(problems ruleset.Problems) {
	const message = "the rule files are refused; the previous rules stay in force"
	for i, p := range problems {
		if i == mostProblems {
			w.logger.Error(message, zap.Int("more_problems", len(problems)-i))
			return
		}
		if p.File == "" {
			w.logger.Error(message, zap.String("error", p.Text))
			continue
		}
		fields := []zap.Field{zap.String("file", p.File), zap.String("problem", p.Text)}
		if p.Line > 0 {
			fields = append(fields, zap.Int("line", p.Line), zap.Int("column", p.Column))
		}
		w.logger.Error(message, fields...)
	}
}

// ask registers the folders whose changes the system is to report. The system itself drops folders that are gone.
func (w *watcher) ask() {
	w.places = placesOf(w.patterns)
	known := w.notifier.WatchList()
	for _, folder := range w.places.folders {
		if !slices.Contains(known, folder) {
			_ = w.notifier.Add(folder) // a folder that cannot be watched is still checked at the interval
		}
	}
	for _, folder := range w.watched {
		if !slices.Contains(w.places.folders, folder) {
			_ = w.notifier.Remove(folder) // it may be gone
		}
	}
	w.watched = w.places.folders
}

// places are the folders where a change may affect what patterns name. Their paths have no links.
type places struct {
	folders []string
	named   map[string]bool // in the folders: the existing files and folders, and the links on the way to them
	wild    []string        // patterns for the names of new ones
}

// mostFolders is how many folders are watched. All are checked at the interval.
const mostFolders = 256

func placesOf(patterns []string) places {
	p := places{named: make(map[string]bool)}
	for _, pattern := range patterns {
		fixed := filepath.Dir(pattern)
		for strings.ContainsAny(fixed, "*?[") {
			fixed = filepath.Dir(fixed)
		}
		_, folder := follow(fixed)
		p.add(folder)
		for part := range strings.SplitSeq(pattern, string(filepath.Separator)) {
			if strings.ContainsAny(part, "*?[") {
				p.wild = append(p.wild, part)
			}
		}
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			names = []string{pattern}
		}
		for _, name := range names {
			links, real := follow(name)
			for _, place := range append(links, real) {
				p.named[place] = true
				p.add(filepath.Dir(place))
			}
		}
	}
	return p
}

// add adds a folder.
func (p *places) add(folder string) {
	if !p.named[folder] && len(p.folders) < mostFolders {
		p.folders = append(p.folders, folder)
		p.named[folder] = true // the folder itself may be moved away
	}
}

// follow returns the links on the way to a file, and the path of its target.
func follow(name string) (links []string, real string) {
	const most = 40 // more than the system follows
	name, err := filepath.Abs(name)
	if err != nil {
		return nil, name
	}
	var rest []string
	begin := func(path string) string {
		root := filepath.VolumeName(path) + string(filepath.Separator)
		rest = append(strings.Split(strings.TrimPrefix(path, root), string(filepath.Separator)), rest...)
		return root
	}
	real = begin(name)
	for len(rest) > 0 {
		next := filepath.Join(real, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(next)
		if err != nil || len(links) == most {
			real = next
			continue
		}
		links = append(links, next)
		if filepath.IsAbs(target) {
			real = begin(target)
		} else {
			rest = append(strings.Split(target, string(filepath.Separator)), rest...)
		}
	}
	return links, real
}
