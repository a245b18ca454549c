package simulation

// queue is a binary heap of what happens at some time. It is container/heap without interfaces, whose calls and allocations took most of the
// time of a run.
type queue[T any] []event[T]

type event[T any] struct {
	at float64
	of T
}

func (q *queue[T]) push(at float64, of T) {
	*q = append(*q, event[T]{at, of})
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if h[i].at >= h[parent].at {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

// pop takes out what happens first.
func (q *queue[T]) pop() (at float64, of T) {
	h := *q
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if other := child + 1; other < last && h[other].at < h[child].at {
			child = other
		}
		if h[child].at >= h[i].at {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	*q = h
	return first.at, first.of
}
