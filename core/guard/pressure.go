package guard

import (
	"math"
	"sync/atomic"
)

// Pressure is what something else than the guard says of how busy the service is: its CPU, its memory or its database. It only settles a doubt. Where
// answers take longer the more are under way, and no more requests come than usual, the service either queues, or has become slower for everybody. The
// times alone do not tell that apart for seconds. If the pressure is high, it is a queue, and the limit begins at what the service has lately had under way.
const (
	// late is how many times as long as usual the quickest answers must take for pressure to have a part: less than waiting.
	late = 1.2

	// A limit begins at headroom times the most that were under way lately, or at leastPeak, whichever is more. Each second that most fades to fades of
	// itself. The seconds in which pressure has a part say nothing of it.
	headroom, fades, leastPeak = 1.25, 1 - 1.0/30, 32
)

// Press says that the pressure on the service is high until a time, in microseconds as Begin has it; 0: it is not, or is not known. A guard that is never
// told behaves as if it were not.
func Press(g *Guard, until int64) { atomic.StoreInt64(&g.pressed, until) }

// lags reports whether the quickest answers take longer than usual, by what is enough together with pressure.
func lags(b Belief, e Evidence) bool {
	return e.Answers >= enough && b.Quick > 0 && e.Quick > late*b.Quick
}

// presses reports whether pressure has a part in what is believed: it is high, and the quickest answers take longer than usual. It has none for a while
// after a limit that it has brought about was no good.
func presses(b Belief, e Evidence) bool {
	return e.Pressed && b.ignores == 0 && b.denied == 0 && lags(b, e)
}

// grown reports whether the time of an answer clearly grows with the number under way.
func grown(e Evidence) bool { return e.Slope > steep && e.Slope > certain*e.Wrong }

// decides reports whether pressure has a queue found: it has a part, the time of an answer grows with the number under way, and the limit would be reached.
func decides(b Belief, e Evidence) bool { return presses(b, e) && e.Above && grown(e) }

// hold returns a belief in a queue after a second, by what pressure has to do with it. A queue that was found by pressure is over as soon as that is not
// high any more, unless even the quickest answers wait. The limit was no good if for releaseAfter seconds answers have not become as quick as ever, and either do
// not wait, or are fewer than half of what they were: a queue keeps a service busy. Then the pressure is ignored, for denies seconds, longer the next time.
func hold(b Belief, e Evidence, s Second, waits bool) Belief {
	if b.passed == 0 {
		b.passed = float64(s.Served)
	}
	b.held++
	if waits && float64(s.Served) > b.passed/2 || !b.Pressed && !presses(b, e) || e.Answers >= enough && !lags(b, e) {
		b.held = 0
	}
	if b.Queue && b.held > releaseAfter {
		b.held = 0
		b.ignored++
		b.ignores = denies * b.ignored
		b.Queue = !b.Pressed
	}
	if b.Pressed && !e.Pressed && !waits {
		b.Queue = false
	}
	b.Pressed = b.Pressed && b.Queue
	return b
}

// gate returns the state of the limit after a second in which a queue was believed; before is the limit at its beginning. Under pressure it does not grow.
// If pressure has found the queue, it grows quickly as soon as the answers are as quick as ever.
func gate(g Gradient, b Belief, e Evidence, before, ceiling float64) Gradient {
	if g.Limit > before && presses(b, e) {
		g.Limit = before
	}
	if b.Pressed && e.Answers >= enough && !lags(b, e) {
		g.Limit = math.Max(g.Limit, math.Min(ceiling, raises*before))
	}
	return g
}

// begins returns the limit with which a belief in a queue begins, which has just been found by such evidence.
func begins(g *Guard, e Evidence) float64 {
	if limit := pressedLimit(g); presses(g.belief, e) && limit < first(g.belief) {
		return limit
	}
	return first(g.belief)
}

// pressedLimit returns the limit with which a queue begins that is found by pressure; infinite: it is not known what was under way lately.
func pressedLimit(g *Guard) float64 {
	if g.peak == 0 {
		return math.Inf(1)
	}
	return math.Max(headroom*g.peak, math.Max(leastPeak, float64(atomic.LoadInt64(&g.floor))))
}

// notePressure notes of a second how many were under way, and whether pressure has a part in the limit.
func notePressure(g *Guard, e Evidence, most int64) {
	part, high := int64(0), presses(g.belief, e)
	if g.belief.Queue && (g.belief.Pressed || high) {
		part = 1
	}
	atomic.StoreInt64(&g.pressing, part)
	if !g.belief.Queue && !high {
		g.peak = math.Max(fades*g.peak, float64(most))
	}
}
