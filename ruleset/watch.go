package ruleset

import "time"

// Watch finds out when the files of a list of patterns have changed. Whoever uses it looks now and then, and takes over what it
// returns or refuses it. It is not for concurrent use.
type Watch struct {
	patterns []string
	taken    *Contents // what is in force
	seen     string    // what was found at the last look, where that is something else
	since    time.Duration
	restless time.Duration // since when what is found has been something else, and another each time
	reported string        // what was found and is not in force: it has been told, and is not again
}

// How long what is found must stay as it is before it counts: so that a file which is being written is not read half, and that one
// which is away for a moment, since an editor puts another in its place, is not missed.
const (
	settled = 100 * time.Millisecond
	gone    = time.Second // where a file is no longer there, or much shorter

	// Files that change all the time are taken as they are: one of them must not keep the others from coming into force.
	patience = 5 * time.Second
)

// NewWatch returns a watch of files of which that much is in force.
func NewWatch(patterns []string, taken *Contents) *Watch {
	return &Watch{patterns: patterns, taken: taken}
}

// Change is what has been found. At most one field is set.
type Change struct {
	Contents *Contents // they are new: to be parsed, and then to be Taken or Refused
	Problems Problems  // the files cannot be read
	Restored bool      // what was refused, or could not be read, is again what is in force
	Again    time.Duration
}

// Look reads the files at a time, of any clock that goes on. Where Again is set, there may be more to say after that time.
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

// lacks reports whether a file that is in force is no longer there, or much shorter: as one is that is being written.
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

// Take says that contents are in force now.
func (w *Watch) Take(c *Contents) {
	w.taken = c
	w.reported = ""
}

// Refuse says that contents are wrong. What was in force stays so.
func (w *Watch) Refuse(c *Contents) {
	w.reported = c.Digest
}
