package replay

// queue is a heap of events by time, and by number if the times are equal.
type queue[T any] []queued[T]

// queued is an item of a queue.
type queued[T any] struct {
	at     int64
	number uint64
	what   T
}

func (a *queued[T]) before(b *queued[T]) bool {
	return a.at < b.at || a.at == b.at && a.number < b.number
}

func (q *queue[T]) push(one queued[T]) {
	list := append(*q, one)
	i := len(list) - 1
	for i > 0 && one.before(&list[(i-1)/2]) {
		list[i] = list[(i-1)/2]
		i = (i - 1) / 2
	}
	list[i] = one
	*q = list
}

// pop removes the first item. The queue must not be empty.
func (q *queue[T]) pop() queued[T] {
	list := *q
	last := len(list) - 1
	first, moved := list[0], list[last]
	i := 0
	for down := 1; down < last; down = 2*i + 1 {
		if down+1 < last && list[down+1].before(&list[down]) {
			down++
		}
		if !list[down].before(&moved) {
			break
		}
		list[i] = list[down]
		i = down
	}
	list[i] = moved
	list[last] = queued[T]{}
	*q = list[:last]
	return first
}
