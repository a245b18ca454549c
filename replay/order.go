package replay

// Bounds of the window in which requests are put into the order of their beginnings: a log has them in the order of their ends.
const (
	Window       = 60 * 1_000_000 // microseconds
	WindowCount  = 100_000        // requests
	windowChecks = 1_000_000      // rules that they come under, all together
)

// waiting is a request that others may still come before.
type waiting struct {
	start  int64
	number uint64 // in the order of the lines
	r      *request
}

// order puts requests into the order of their beginnings, as far as the window goes. It is a heap: no request leaves it before those that
// have begun earlier, and those that have begun together leave as their lines came.
type order struct {
	heap    []waiting
	checks  int // of the requests in heap
	number  uint64
	newest  int64 // when the last request ended that has come
	reached int64 // when the last one began that has left
	any     bool

	late  int64 // requests that have begun before others that had left
	crowd int64 // of late, those within the window's time, which too many others had made leave
	steps int64 // how often the log's clock went back by more than the window

	leave func(r *request, at int64) // is called with each request, and the time at which it is to be decided
	step  func()                     // is called when the clock goes back, behind the requests before that
}

// add takes the next request of the log.
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
	o.push(waiting{r.start, o.number, r})
	o.number++
	for len(o.heap) > 0 && (o.heap[0].start <= o.newest-Window || len(o.heap) > WindowCount || o.checks > windowChecks) {
		o.pop()
	}
}

// flush has all requests leave.
func (o *order) flush() {
	for len(o.heap) > 0 {
		o.pop()
	}
}

func (a waiting) before(b waiting) bool {
	return a.start < b.start || a.start == b.start && a.number < b.number
}

// weight is how many checks a request keeps in memory.
func (w *waiting) weight() int { return len(w.r.checks[0]) + len(w.r.checks[1]) }

func (o *order) push(w waiting) {
	o.checks += w.weight()
	o.heap = append(o.heap, w)
	i := len(o.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !w.before(o.heap[up]) {
			break
		}
		o.heap[i] = o.heap[up]
		i = up
	}
	o.heap[i] = w
}

// pop has the first request leave.
func (o *order) pop() {
	first := o.heap[0]
	o.checks -= first.weight()
	last := len(o.heap) - 1
	w := o.heap[last]
	o.heap[last] = waiting{}
	o.heap = o.heap[:last]
	if last > 0 {
		i := 0
		for {
			down := 2*i + 1
			if down >= last {
				break
			}
			if down+1 < last && o.heap[down+1].before(o.heap[down]) {
				down++
			}
			if !o.heap[down].before(w) {
				break
			}
			o.heap[i] = o.heap[down]
			i = down
		}
		o.heap[i] = w
	}
	o.reached = first.start
	o.leave(first.r, first.start)
}
