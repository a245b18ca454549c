package simulation

import "math"

// Background is work that requests leave behind: an index, say, or garbage. The service's CPU does it when the request is under way or over, one piece
// after the other, at no cost to anybody. So the CPU is busy all the time as soon as more comes than it can do, and nothing takes longer. But when too much
// is left to do, the service is slow, at once, until all of it is done.
type Background struct {
	Work  float64 // of each request, in seconds of CPU
	Bound float64 // how many seconds of CPU may be left to do
	Slow  float64 // how many times its usual time the service takes then
}

// background is that of the situation "cpu": 100 requests a second keep the CPU busy, and the slots could do 160.
var background = Background{Work: 0.01, Bound: 4, Slow: 3}

// capacity is how many requests a second the service can do for good.
func (s *Situation) capacity() float64 {
	if s.Background != nil {
		return math.Min(Capacity, 1/s.Background.Work)
	}
	return Capacity
}

// cpu does background work. The zero value is idle.
type cpu struct {
	busy []span // when it is, as far as is known; in the order of time, with pauses between them
	slow bool
}

type span struct{ from, to float64 }

// kept is how many seconds of the past a cpu knows.
const kept = 10.0

// begin says that the service begins with a request at an instant, which is not before the last one. It returns how many times its usual time that takes.
func (c *cpu) begin(b *Background, t float64) float64 {
	if n := len(c.busy); n == 0 || c.busy[n-1].to <= t {
		c.busy, c.slow = append(c.busy, span{t, t + b.Work}), false
	} else {
		c.slow = c.slow || c.busy[n-1].to-t > b.Bound
		c.busy[n-1].to += b.Work
	}
	for c.busy[0].to < t-kept {
		c.busy = c.busy[1:]
	}
	if c.slow {
		return b.Slow
	}
	return 1
}

// load returns which part of the second before an instant it was busy.
func (c *cpu) load(t float64) float64 {
	part := 0.0
	for _, s := range c.busy {
		part += math.Max(0, math.Min(s.to, t)-math.Max(s.from, t-1))
	}
	return math.Min(1, part)
}

// Load returns the CPU use of the service, averaged over the second before an instant, from 0 to 1. It is known for the present, and for some seconds of the past.
func (v *Slots) Load(t float64) float64 { return v.cpu.load(t) }
