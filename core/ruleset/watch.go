package ruleset

import "time"

// Watch finds out when the files of a list of patterns have changed, and has changes put in force. Its user calls Follow at intervals. It is not safe for
// concurrent use.
type Watch struct {
	patterns []string
	taken    *Contents // what is in force
	seen     string    // what the last look found, if it differs from taken
	since    time.Duration
	restless time.Duration // since when each look has found something else
	reported string        // what was found and refused: it is not reported again
	refused  bool          // the files as last found are not in force
}

// How long the files must stay unchanged before a change counts, so that a file which is being written is not read half, and one
// which an editor replaces is not taken as removed.
const (
	settled = 100 * time.Millisecond
	gone    = time.Second // if a file is gone, or much shorter

	// Files that change all the time are taken after this time: one of them must not keep the others from coming into force.
	patience = 5 * time.Second
)

// NewWatch returns a Watch of files; taken are the contents that are in force.
func NewWatch(patterns []string, taken *Contents) *Watch {
	return &Watch{patterns: patterns, taken: taken}
}

// Event is what has become of files. At most one of Taken, Restored and Refused is set.
type Event struct {
	Taken    bool          // new contents are in force
	Restored bool          // after a refusal, the files are again those that are in force
	Refused  Problems      // they cannot be read, or are wrong: the previous rules stay in force
	Before   bool          // they had been refused before that
	Again    time.Duration // when to call Follow again; 0: it need not be soon
}

// Follow reads the files, and has replace put changed contents in force. replace returns what is wrong with them, or whether they are in force already.
// now is of any monotonic clock.
func (w *Watch) Follow(now time.Duration, replace func(c *Contents) (already bool, wrong Problems)) Event {
	change := w.look(now)
	e := Event{Restored: change.restored && w.refused, Refused: change.problems, Before: w.refused, Again: change.again}
	if c := change.contents; c != nil {
		w.refuse(c) // until they turn out to be right, and also if replace panics
		already, wrong := replace(c)
		e.Refused = wrong
		if len(wrong) == 0 {
			w.take(c)
			e.Taken = !already
			e.Restored = already && w.refused // a change was undone that had come before the Watch
		}
	}
	if len(e.Refused) > 0 {
		w.refused = true
	} else if e.Taken || e.Restored {
		w.refused = false
	}
	return e
}

// change is the result of a look. At most one field is set.
type change struct {
	contents *Contents     // new contents: take or refuse them
	problems Problems      // the files cannot be read
	restored bool          // after a refusal or a read error, the files are again those that are in force
	again    time.Duration // look again after that time
}

// look reads the files.
func (w *Watch) look(now time.Duration) change {
	contents, problems := Read(w.patterns)
	wait := settled
	found := ""
	if len(problems) > 0 {
		found = "problems: " + problems.Error()
		wait = gone
	} else {
		found = contents.Digest
		if w.lacks(contents) {
			wait = gone
		}
	}
	if found == w.taken.Digest {
		restored := w.reported != ""
		w.reported = ""
		w.seen = ""
		return change{restored: restored}
	}
	if found == w.reported {
		w.seen = ""
		return change{}
	}
	if found != w.seen {
		if w.seen == "" {
			w.restless = now
		}
		w.seen = found
		w.since = now
		if now-w.restless < patience {
			return change{again: wait}
		}
	} else if rest := wait - (now - w.since); rest > 0 {
		return change{again: rest}
	}
	w.seen = ""
	if len(problems) > 0 {
		w.reported = found
		return change{problems: problems}
	}
	return change{contents: contents}
}

// lacks reports whether a file that is in force is gone, or much shorter, as while it is being written.
func (w *Watch) lacks(c *Contents) bool {
	sizes := make(map[string]int, len(c.Names))
	for i, name := range c.Names {
		sizes[name] = c.Sizes[i]
	}
	for i, name := range w.taken.Names {
		size, ok := sizes[name]
		before := w.taken.Sizes[i]
		if !ok || 4*size < 3*before && before-size >= 16 {
			return true
		}
	}
	return false
}

// take notes that contents are in force now.
func (w *Watch) take(c *Contents) {
	w.taken = c
	w.reported = ""
}

// refuse notes that contents are refused. The previous contents stay in force.
func (w *Watch) refuse(c *Contents) {
	w.reported = c.Digest
}
