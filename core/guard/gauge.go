package guard

import (
	"math/rand"
	"sync/atomic"
)

// Gauge has what a program needs that an interpreter runs, to which a Begin and an End cost as much as all else. It may have most requests pass
// by them while there is room for all, since then nobody is turned away, whoever asks. A request may pass by that gets a ticket. The other
// requests call Refill and BeginFor. The numbers are for the functions of sync/atomic.
type Gauge struct {
	// Word has how many tickets there are, and how many requests are under way. Adding Take to it takes a ticket, and makes the request one of
	// those under way. If the sum has any bit of NoTicket, there was none: Take must be subtracted at once. Else Place is, in the end.
	//
	// Tickets are for requests that need not say when their answers begin, and are under way until those have ended. There are some while
	// a quarter of the limit is not in use, and no request that BeginFor has admitted waited on its client for a second: see Linger.
	Word *int64

	// Passes are tickets for requests that say when their answers begin: taking one off the number of passes leaves 0 or more. Place is added to
	// Word then, and subtracted in the end. There are some where there are no tickets, while nobody is turned away.
	Passes *int64
}

// GaugeOf returns the gauge of a guard.
func GaugeOf(g *Guard) Gauge {
	return Gauge{Word: &g.word, Passes: &g.passes}
}

// The word has three numbers, which one addition changes: the tickets, in the upper 16 bits, fewer than none for a moment; how many requests are under
// way, in the lower 24; and between them that number again, plus free, less the number up to which there are tickets. So the highest of the bits
// between is set where more than that are under way.
const (
	ticket   int64 = 1 << 48
	crowded  int64 = 1 << 47
	room     int64 = 1 << 24
	free     int64 = 1<<23 - 1
	underWay int64 = 1<<24 - 1 // the bits

	// Place makes a request one of those under way; Take also takes a ticket; NoTicket has the bits that say that there was none.
	Place    int64 = room + 1
	Take     int64 = Place - ticket
	NoTicket int64 = -1<<63 | crowded
)

const (
	// ample is the part of the limit up to which there are Tickets.
	ample = 0.25

	// So many requests a second call Begin, about, if that many come, and for how many each of them stands at most: while the limit is
	// used, which they move then, and otherwise.
	sampledUsed, widestUsed = 100, 8
	sampled, widest         = 25, 256

	// lingers is for how long, in microseconds, there are no Tickets after a request has waited on its client for a second.
	lingers = 60_000_000
)

// Exact has every request call Begin from now on.
func Exact(g *Guard) {
	atomic.StoreInt64(&g.exact, 1)
	withdraw(g)
}

// withdraw has every request call Begin until the next second.
func withdraw(g *Guard) {
	makeAmple(g, 0)
	atomic.StoreInt64(&g.clear, 0)
	cancel(g, swapTickets(g, 0))
	cancel(g, atomic.SwapInt64(&g.passes, 0))
}

// cancel notes that so many tickets or passes were taken back, for which nobody stands then.
func cancel(g *Guard, left int64) {
	if left > 0 {
		atomic.AddInt64(&g.issued, -left)
	}
}

// swapTickets sets how many tickets there are, and returns how many there were.
func swapTickets(g *Guard, tickets int64) int64 {
	for {
		word := atomic.LoadInt64(&g.word)
		left := word >> 48
		if atomic.CompareAndSwapInt64(&g.word, word, word+(tickets-left)*ticket) {
			return left
		}
	}
}

// makeAmple sets up to how many under way there are tickets.
func makeAmple(g *Guard, most int64) {
	was := atomic.SwapInt64(&g.ample, most)
	atomic.AddInt64(&g.word, (was-most)*room)
}

// Refill returns for how many requests one stands that has found no ticket: itself, and those that have found one since the last call. It
// issues new tickets: a random number of them, so that requests that take turns are all alike to it.
func Refill(g *Guard) int64 {
	tickets, passes := int64(0), int64(0)
	if stride := atomic.LoadInt64(&g.stride); stride > 1 {
		word := atomic.LoadInt64(&g.word)
		if (word+Place)&crowded == 0 {
			tickets = rand.Int63n(2*stride - 1) //nolint:gosec // a sample, and no secret
		} else if clear := atomic.LoadInt64(&g.clear) - word&underWay; clear > 0 {
			passes = upTo(rand.Int63n(2*stride-1), clear) //nolint:gosec // the same
		}
	}
	many := 1 + atomic.SwapInt64(&g.issued, tickets+passes)
	if left := swapTickets(g, tickets); left > 0 {
		many -= left
	}
	if left := atomic.SwapInt64(&g.passes, passes); left > 0 {
		many -= left
	}
	if many < 1 {
		many = 1
	}
	return many
}

func upTo(n, most int64) int64 {
	if n > most {
		return most
	}
	return n
}

// Linger notes that a request, which BeginFor has admitted, begins to wait on its client: for the rest of its body, or until it has read the
// answer. Proceed ends that, with what Linger has returned: 0 or 1.
func Linger(g *Guard) int32 {
	turn := int32(atomic.LoadInt64(&g.turn) & 1)
	atomic.AddInt64(&g.lingering[turn], 1)
	return turn
}

// Proceed ends a Linger.
func Proceed(g *Guard, turn int32) { atomic.AddInt64(&g.lingering[turn], -1) }

// Lingering returns for how many requests Linger was called, and Proceed was not yet.
func Lingering(g *Guard) int64 {
	return atomic.LoadInt64(&g.lingering[0]) + atomic.LoadInt64(&g.lingering[1])
}

// spare sets for how many requests those stand that call Begin, and while how many are under way: at the end of a second in which the service
// has got through so many, and in which the limit was used or not. What comes in bursts, with idle seconds between, is taken for that of one second,
// and of the last two seconds the one with more counts: a second may end just before a burst does.
func spare(g *Guard, now int64, open, through float64, used bool) {
	turn := atomic.AddInt64(&g.turn, 1) & 1
	if atomic.LoadInt64(&g.lingering[turn]) > 0 { // since before the last second
		g.lingersUntil = now + lingers
	}
	most := through
	if g.before > most {
		most = g.before
	}
	g.before = through
	stride := upTo(int64(most/sampled), widest)
	if used {
		stride = upTo(int64(most/sampledUsed), widestUsed)
	}
	if stride < 1 || atomic.LoadInt64(&g.exact) != 0 || g.tight {
		stride = 1
	}
	clear := (1 - strict) * open
	if atomic.LoadInt64(&g.level) == 0 {
		clear = open
	}
	atomic.StoreInt64(&g.stride, stride)
	atomic.StoreInt64(&g.clear, int64(clear))
	if now < g.lingersUntil {
		makeAmple(g, 0)
		cancel(g, swapTickets(g, 0))
	} else {
		makeAmple(g, int64(ample*open))
	}
}
