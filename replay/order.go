package replay

// The bounds of the window in which requests are sorted by their beginnings: a log has them in the order of their ends.
const (
	Window       = 60 * 1_000_000 // microseconds
	WindowCount  = 100_000        // requests
	windowChecks = 1_000_000      // rules that cover them, all together
)

// order sorts requests by their beginnings, as far as the window goes: no request leaves it before those that have begun earlier, and
// requests that have begun at the same time leave in the order of their lines.
type order struct {
	heap    queue[*request]
	checks  int    // of the requests in heap
	number  uint64 // of requests that were in heap
	newest  int64  // when the last added request ended
	reached int64  // when the last request that left began
	any     bool

	late  int64 // requests that have begun before others that had left
	crowd int64 // of late, those within the window's time, which was full
	steps int64 // how often the log's clock went back by more than the window

	leave func(r *request, at int64) // is called with each request, and the time at which it is to be decided
	step  func()                     // is called when the clock goes back, behind the requests before that
}

// add adds the next request of the log.
func (o *order) add(r *request) {
	if o.any && r.end < o.newest-Window {
		o.flush()
		o.any = false
		o.steps++
		o.step()
	}
	if !o.any {
		o.any = true
		o.newest, o.reached = r.end, 0
	}
	o.newest = max(o.newest, r.end)
	if r.start < o.reached {
		o.late++
		if r.start > o.newest-Window {
			o.crowd++
		}
		o.leave(r, o.reached)
		return
	}
	o.heap.push(queued[*request]{r.start, o.number, r})
	o.number++
	o.checks += r.weight()
	for len(o.heap) > 0 && (o.heap[0].at <= o.newest-Window || len(o.heap) > WindowCount || o.checks > windowChecks) {
		o.pop()
	}
}

// flush makes all requests leave.
func (o *order) flush() {
	for len(o.heap) > 0 {
		o.pop()
	}
}

// weight returns how many checks a request keeps in memory.
func (r *request) weight() int { return len(r.checks[0]) + len(r.checks[1]) }

// pop makes the first request leave.
func (o *order) pop() {
	first := o.heap.pop()
	o.checks -= first.what.weight()
	o.reached = first.at
	o.leave(first.what, first.at)
}
