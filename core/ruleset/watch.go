package ruleset

import "time"

// Watch finds out when the files of a list of patterns have changed. Its user calls Look at intervals, and takes the contents that it
// returns, or refuses them. It is not safe for concurrent use.
type Watch struct {
	patterns []string
	taken    *Contents // what is in force
	seen     string    // what the last look found, if it differs from taken
	since    time.Duration
	restless time.Duration // since when each look has found something else
	reported string        // what was found and refused: it is not reported again
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

// Change is the result of a Look. At most one field is set.
type Change struct {
	Contents *Contents // new contents: the caller parses them and calls Take or Refuse
	Problems Problems  // the files cannot be read
	Restored bool      // after a refusal or a read error, the files are again those that are in force
	Again    time.Duration
}

// Look reads the files. now is of any monotonic clock. If Again is set, Look should be called again after that time.
func (w *Watch) Look(now time.Duration) Change {
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
		return Change{Restored: restored}
	}
	if found == w.reported {
		w.seen = ""
		return Change{}
	}
	if found != w.seen {
		if w.seen == "" {
			w.restless = now
		}
		w.seen = found
		w.since = now
		if now-w.restless < patience {
			return Change{Again: wait}
		}
	} else if rest := wait - (now - w.since); rest > 0 {
		return Change{Again: rest}
	}
	w.seen = ""
	if len(problems) > 0 {
		w.reported = found
		return Change{Problems: problems}
	}
	return Change{Contents: contents}
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

// Take notes that contents are in force now.
func (w *Watch) Take(c *Contents) {
	w.taken = c
	w.reported = ""
}

// Refuse notes that contents are refused. The previous contents stay in force.
func (w *Watch) Refuse(c *Contents) {
	w.reported = c.Digest
}
