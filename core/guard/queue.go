package guard

import (
	"math"
	"sort"
	"sync/atomic"
)

// answers remembers the last answers: how many requests were under way when each began, with it, and how many microseconds it took.
type answers struct {
	counted     int64 // atomic, and first, as in Guard
	under, took []int64

	// For the one that turns the second: since how many there are those of the last second, and those of this one.
	last, this int64
}

// remembered is how many answers are.
const remembered = 512

func newAnswers() *answers {
	return &answers{under: make([]int64, remembered), took: make([]int64, remembered)}
}

func remind(a *answers, under, took int64) {
	i := (atomic.AddInt64(&a.counted, 1) - 1) % remembered
	atomic.StoreInt64(&a.under[i], under)
	atomic.StoreInt64(&a.took[i], took)
}

// Evidence is what the answers of the last second and of this one say of a queue.
type Evidence struct {
	Answers int     // that there are
	Quick   float64 // how long the quickest fifth of them took at most, in microseconds
	Met     float64 // how many were under way when they began, on average

	// Slope is how much longer an answer took for each request more that was under way, in times between two answers: in a queue each waits for one
	// answer more. Wrong is its standard error.
	Slope, Wrong float64

	Pressed bool // the pressure on the service is high: see Press
	Above   bool // more are under way than would be let through if pressure had a queue found
}

// evidenceOf returns what the answers say, of which there are so many a microsecond. For the slope each counts as longest at most.
func evidenceOf(a *answers, rate, longest float64) Evidence {
	var e Evidence
	end := atomic.LoadInt64(&a.counted)
	first := a.last
	if first < end-remembered {
		first = end - remembered
	}
	e.Answers = int(end - first)
	if e.Answers < 1 {
		return Evidence{}
	}
	e.Wrong = math.Inf(1)
	n := float64(e.Answers)
	times := make([]float64, 0, e.Answers)
	var x, y, xx, xy, yy float64
	for i := first; i < end; i++ {
		under, took := float64(atomic.LoadInt64(&a.under[i%remembered])), float64(atomic.LoadInt64(&a.took[i%remembered]))
		times = append(times, took)
		e.Met += under / n
		took = math.Min(took, longest)
		under /= math.Max(rate, 1e-9)
		x += under
		y += took
		xx += under * under
		xy += under * took
		yy += took * took
	}
	xx -= x * x / n
	xy -= x * y / n
	yy -= y * y / n
	if xx > 0 && rate > 0 {
		e.Slope = xy / xx
		e.Wrong = blur + math.Sqrt(math.Max(0, yy-e.Slope*xy)/math.Max(1, n-2)/xx)
	}
	sort.Float64s(times)
	e.Quick = math.Max(1, times[int(quickest*n)]) // as meanOf has it
	return e
}

// Belief is whether a guard believes that the service queues. It is the state of a loop that turns once a second, and when as many are under way as
// are trusted: see Believe and Doubt. The zero value believes in none, and knows nothing.
type Belief struct {
	Queue   bool
	Pressed bool // it was found since the pressure on the service is high

	// Trusted is up to how many requests may be under way while no queue is believed; 0: Trust.
	Trusted float64

	// What is usual: how long the quickest answers take, in microseconds, how many requests come a second, and how many are under way at most in a
	// second. 0: it is not known.
	Quick, Rate, Most float64

	calm        float64 // seconds of a queue in which nobody was turned away
	most        float64 // under way in the last second
	grows       int     // for how many seconds that has grown
	slow        int     // for how many seconds even the quickest answers have taken patience longer than usual
	quick, met  float64 // Evidence of when the queue was longest, of seconds in which clients did not leave before it showed
	denied, not float64 // for how many seconds growth is no queue, and how often it was none

	// For how many seconds a limit under pressure was no good, for how many the pressure is ignored, how often it was, and the answers of the first second.
	held, ignores, ignored, passed float64
}

const (
	// Trust is how many requests may be under way that nobody asks about, and raises by how much that is more where no queue is found.
	Trust, raises = 128, 1.25

	// quickest is the part of the answers by which it is judged whether everybody waits: in a queue the quickest do, too. Where only some kinds of
	// requests are slow, or more of them come, they do not. They wait who take waiting times what is usual, of enough answers.
	quickest, waiting, enough = 0.2, 1.5, 8

	// surges is how many times as many requests must come as usual for a queue to be found by its slope, which must be steep and so many standard
	// errors above 0. Where no more come than usual, a service that becomes slower looks the same from one second to the next. An error is blur more.
	surges, steep, certain, blur = 1.2, 0.3, 4, 0.02

	// Where no more come, it is a queue if even the quickest answers take patience microseconds longer than usual, for lasting seconds, and more than
	// few requests are under way, and more each second, for growing seconds.
	patience, few, growing, lasting = second / 2, 32, 2, 2

	// A queue is over when nobody was turned away for so many seconds.
	releaseAfter = 10

	// There was none if the number under way has fallen to shorter of what it was, and the quickest answers have become quicker by less than
	// this power of that, and clients do not leave before one can know. Then growth is none for denies seconds, and for more the next time.
	shorter, power, denies = 0.7, 0.3, 60

	// A mean of what is usual goes so much of the way in a second.
	usually = 0.05
)

// Waits reports whether even the quickest answers take longer than usual.
func Waits(b Belief, e Evidence) bool {
	return e.Answers >= enough && b.Quick > 0 && e.Quick > waiting*b.Quick
}

// Doubt returns the belief when as many requests are under way as are trusted, and rate come a second: there is a queue, or more are trusted.
func Doubt(b Belief, e Evidence, rate, ceiling float64) Belief {
	if own := Waits(b, e) && rate > surges*b.Rate && grown(e); own || decides(b, e) {
		return found(b, e, !own)
	}
	b.Trusted = math.Min(ceiling, raises*b.Trusted)
	return b
}

func found(b Belief, e Evidence, pressed bool) Belief {
	b.Queue = true
	b.Pressed = pressed
	b.calm = 0
	b.held = 0
	b.passed = 0
	b.quick = e.Quick
	b.met = e.Met
	return b
}

// Believe returns the belief after a second in which rate requests came.
//
// A queue is believed only where even the quickest answers take longer than usual, and that grows with the number under way: where more requests
// come than usual, or the number grows and grows, or clients leave. Whatever else is slow needs no limit: a service that becomes slower, of which
// more is asked, or of which slower things are, has more requests under way, and none of them is quicker if others are turned away.
//
// If the limit has made nothing quicker, there was no queue.
func Believe(b Belief, e Evidence, s Second, rate, ceiling float64) Belief {
	if !(b.Trusted > 0) {
		b.Trusted = Trust
	}
	b.Trusted = math.Min(b.Trusted, ceiling)
	most := float64(s.Most)
	b.grows++
	if most <= b.most {
		b.grows = 0
	}
	b.most = most
	b.denied = math.Max(0, b.denied-1)
	b.ignores = math.Max(0, b.ignores-1)
	waits, hidden := Waits(b, e), float64(s.Left) > impatient*float64(s.Answered)
	if b.Queue {
		b.calm++
		if s.Rejected > 0 {
			b.calm = 0
		}
		if b.calm > releaseAfter {
			b.Queue = false
		}
		if !waits || hidden || e.Met > b.met {
			b.quick = e.Quick
			b.met = e.Met
		}
		if waits && !hidden && e.Met < shorter*b.met && math.Log(e.Quick/b.quick) > power*math.Log(e.Met/b.met) {
			b.Queue = false
			if b.Pressed {
				b.ignored++
				b.ignores = denies * b.ignored
			} else {
				b.not++
				b.denied = denies * b.not
			}
			b.Trusted = math.Min(ceiling, math.Max(b.Trusted, 2*b.met))
		}
		return hold(b, e, s, waits)
	}
	b.slow++
	if !(e.Quick > b.Quick+patience) {
		b.slow = 0
	}
	grows := b.slow >= lasting && b.grows >= growing && s.Most > few && b.denied == 0
	if own := waits && (hidden || grows); own || decides(b, e) {
		return found(b, e, !own)
	}
	if b.Rate == 0 {
		b.Rate = rate
		b.Most = most
	}
	b.Rate += usually * (rate - b.Rate)
	if !waits {
		b.Most += usually * (most - b.Most)
	}
	if b.Quick == 0 {
		b.Quick = e.Quick
	}
	if e.Answers < enough {
		return b
	}
	share := improves
	if e.Quick > b.Quick {
		share = drifts
		if e.Slope < steep && e.Slope+2*e.Wrong < 1 {
			share = learns
		}
		if b.grows > 0 {
			share = 0
		}
	}
	b.Quick += share * (e.Quick - b.Quick)
	return b
}

// first returns the limit with which a belief in a queue begins.
func first(b Belief) float64 { return math.Min(b.Trusted, math.Max(Trust, 1.5*b.Most)) }
