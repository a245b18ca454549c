package guard

import "sync/atomic"

// Change is that a guard begins to limit requests, or stops. Its figures are of the second that made it.
type Change struct {
	Begins bool // else it stops
	Shadow bool // nobody is turned away
	Queue  bool // a queue is believed; else more came than may be under way
	Vain   bool // it stops since the limit made nothing quicker

	Pressed    bool  // the pressure on the service is high, and had a part in it: see Press
	Limit, Max int64 // of requests under way
	UnderWay   int64 // the most

	// How long the quickest fifth of the answers takes at most, now and usually, in microseconds; 0: it is not known.
	Quickest, Usually float64

	// How much longer an answer takes for each request more under way, in times between two answers: 1 in a queue, 0 where there is none.
	Slope float64

	// How many requests come a second, now and usually.
	Coming, Came float64

	// How many requests were turned away, or would have been, and in how many microseconds, by the time it stops.
	Rejected, Lasted int64
}

// limiting is what a guard has told of.
type limiting struct {
	now, queue bool
	since      int64 // when it began
	last       int64 // when the last second ended in which requests were turned away
	rejected   int64 // requests since it began
}

// report tells of a change, if there is one after a second that ended now; before is the belief at its beginning. The guard begins to limit requests
// when a queue is believed, or requests are turned away without one. It stops when the queue is over, and else when nobody was turned away for as
// long as that takes.
func report(g *Guard, now int64, before Belief, s Second, e Evidence) {
	l := &g.limiting
	if s.Rejected > 0 {
		l.last = now
	}
	queue := g.belief.Queue
	begins := !l.now && (queue || s.Rejected > 0)
	stops := l.now && !queue && (before.Queue || now-l.last >= releaseAfter*second)
	if begins {
		l.since = now
		l.rejected = 0
	}
	l.rejected += s.Rejected
	if l.now && queue && !l.queue {
		begins = true // for another reason
	}
	l.queue = queue
	if !begins && !stops {
		return
	}
	l.now = begins
	g.mu.Lock()
	tell := g.notify
	g.mu.Unlock()
	if tell == nil {
		return
	}
	tell(Change{
		Begins: begins, Shadow: atomic.LoadInt64(&g.shadow) != 0, Queue: queue, Vain: g.belief.denied > before.denied, Pressed: atomic.LoadInt64(&g.pressing) != 0,
		Limit: int64(g.gradient.Limit), Max: atomic.LoadInt64(&g.ceiling), UnderWay: s.Most,
		Quickest: e.Quick, Usually: g.belief.Quick, Slope: e.Slope, Coming: g.came, Came: g.belief.Rate, Rejected: l.rejected, Lasted: now - l.since,
	})
}
