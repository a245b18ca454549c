// Package guard keeps a service up that slows down. It lets as many requests be under way to the service as that answers without a queue of its
// own, and where more come, it turns those away first whose keys ask for more than their fair share. It goes by what a proxy sees: when requests
// begin, and when their answers do. Time is an argument, in microseconds of a clock that does not go back.
package guard

import (
	"sync"
	"sync/atomic"
)

// Config is how a guard is to behave. The zero value is usable.
type Config struct {
	// Max is how many requests may be under way at most, whatever the service does; 0 means DefaultMax. Min is how many may be at least,
	// however slow; 0 means DefaultMin, or Max where that is less.
	Max, Min int

	// WarmUp is the demand, in microseconds of traffic, that the guard learns of a rule before it tightens the rule's unusual keys; 0 means
	// DefaultWarmUp. A negative one has it never tighten any.
	WarmUp int64

	// Cells is how many keys are told apart, about; 0 means DefaultCells. Each takes 144 bytes.
	Cells int

	// Seed is mixed into keys, so that nobody outside knows which of them are counted together.
	Seed uint64

	// Shadow has the guard turn nobody away, and count who would be.
	Shadow bool

	// Notify is called when the guard begins to limit requests, and when it stops; nil: it is not. It must be quick, since a request waits for it.
	Notify func(c Change)
}

// The defaults of a Config.
const (
	DefaultMax   = 100_000
	DefaultMin   = 8
	DefaultCells = 4096
)

// What Begin returns of a request that is turned away.
const (
	Full   = -1 // as many requests are under way as may be
	Unfair = -2 // the limit is near, and the key asks for more than its fair share

	Tightened = -3 // not of Begin, but for those whom Ask has turned away
)

const (
	second = 1_000_000 // microseconds

	// share is the part of what the service gets through under load that the fair shares divide.
	share = 0.8

	// strict is the part of the limit that is closed to a key that asks for far more than its share.
	strict = 0.6

	// reserve is the part of the limit that is kept for requests with priority, while there are any.
	reserve = 0.1

	// A service is taken to get through so much more each second that it is not overloaded, and less by this part of the difference each
	// second that it is.
	probes, settles = 1.02, 0.3

	// Only a second in which so much of the limit was used says that a service gets through less.
	reached = 0.9

	// What a service gets through under load is not known any more when it would be so many times what it does.
	forgets = 4

	// outlier is how many times the baseline an answer counts at most: a long poll among quick answers says nothing of the service's state. For the
	// elasticity it counts for as many as there were requests under way, where these are more: that long it takes in the queue of one worker. Else
	// the time of a service with few workers would seem not to depend on how many are under way, just where it queues most.
	outlier = 8

	// tall is how many times that an answer counts at most for the slope of a queue.
	tall = 4

	// asks is how long it is, in microseconds, until it is asked again whether there is a queue, while as many are under way as are trusted.
	asks = second / 20
)

// Guard is that of one service. Use New. All its functions may be called by any number of goroutines at a time.
type Guard struct {
	word      int64 // see Gauge; first, since that is where 64 bits are aligned on every machine
	most      int64 // the most that were under way in this second
	answered  int64 // in this second, as are the next ones
	took      int64
	cut       int64 // what took leaves out
	met       int64 // under of all of them
	light     int64
	lightTook int64
	left      int64
	usual     int64 // mean time of the last second that had answers
	through   int64 // all that ended
	failed    int64 // those of them that say nothing of the time of an answer, less those of the others that do
	rejected  int64
	favoured  int64 // requests with priority
	next      int64 // when this second ends
	limit     int64
	open      int64 // the limit of requests without priority
	level     int64 // the fair share, in thousandths of a request a Window; 0: there is enough for all
	longest   int64 // what an answer counts at most
	full      int64 // since the beginning, as are the next two
	unfair    int64
	tightened int64
	shadow    int64 // 1: nobody is turned away
	spared    int64 // of rejected, in a shadow; those of the next three are since the beginning
	spFull    int64
	spUnfair  int64
	spTight   int64
	baseline  int64 // microseconds
	floor     int64
	ceiling   int64
	asking    int64 // when it is asked again whether there is a queue
	passes    int64 // see Gauge
	issued    int64 // tickets and passes, by the last Refill
	ample     int64 // up to how many under way there are tickets: makeAmple sets it
	clear     int64 // and passes
	stride    int64 // how many there are, on average, of those and one that finds none
	exact     int64 // 1: every request calls Begin
	turn      int64 // seconds that have ended
	lingering [2]int64
	strained  int64 // when the last second ended in which requests were turned away or keys were tightened; 0: none did
	warmUp    int64
	pressed   int64 // until when the pressure is high
	pressing  int64 // 1: it has a part in the limit
	turning   int32

	seed    uint64
	answers *answers
	demand  *demand // of what comes to the guard, by its keys
	asked   *demand // of the rules that are tracked, by their keys
	refused *demand // rejected requests of these

	mu    sync.Mutex
	rules []*Rule // is replaced, never written to

	// From here on for the one that turns the second.
	gradient Gradient
	belief   Belief
	began    int64   // when this second did
	present  int64   // how many were under way then
	passed   float64 // how many requests the service got through in the last second, and how many came
	came     float64
	capacity float64 // requests a second that the service gets through under load; 0: not known
	tight    bool    // unusual keys of a rule are tightened

	limiting limiting
	notify   func(c Change) // with mu

	lingersUntil int64   // until then there are no tickets
	before       float64 // how many requests the service got through in the second before the last
	peak         float64 // how many were under way at most, lately: see pressure.go
}

// New makes a guard. It runs nothing in the background.
func New(c Config) *Guard {
	if c.Cells <= 0 {
		c.Cells = DefaultCells
	}
	g := &Guard{
		word: free * room, longest: 1 << 62, stride: 1, seed: c.Seed, answers: newAnswers(), demand: newDemand(c.Cells), asked: newDemand(4 * c.Cells), refused: newDemand(c.Cells),
	}
	Bound(g, c)
	return g
}

// bounds returns the least and the greatest limit.
func bounds(c Config) (floor, ceiling int64) {
	if c.Max <= 0 {
		c.Max = DefaultMax
	}
	if c.Min <= 0 {
		c.Min = DefaultMin
	}
	if c.Min > c.Max {
		c.Min = c.Max
	}
	return int64(c.Min), int64(c.Max)
}

// Begin says whether a request of a key, which is its hash, may go to the service. If so it returns how many are under way with it, and End must
// be called with that once, whatever becomes of the request; else Full or Unfair. A request with priority is turned away only where the whole
// limit is used.
//
// A key that asks for more than its fair share finds a part of the limit closed, the greater the more it asks for. That is trunk reservation, as
// telephone networks have it: what is left of the limit is there for those within their share, and while the service has room for all, nobody
// is turned away.
func Begin(g *Guard, key uint64, priority bool, now int64) int64 {
	return BeginFor(g, key, priority, now, 1)
}

// BeginFor is Begin for a request that stands for so many of its kind: see Gauge.
func BeginFor(g *Guard, key uint64, priority bool, now, many int64) int64 {
	if now >= atomic.LoadInt64(&g.next) {
		turnSecond(g, now)
	}
	_, asked := countMany(g.demand, key^g.seed, now, uint32(many))
	limit := atomic.LoadInt64(&g.open)
	refusal := int64(Full)
	if priority {
		atomic.AddInt64(&g.favoured, 1)
		limit = atomic.LoadInt64(&g.limit)
	} else if level := atomic.LoadInt64(&g.level); level > 0 {
		if fair := float64(level) / 1000; asked > fair {
			if limit = int64(float64(limit) * (1 - strict*(1-fair/asked))); limit < 1 {
				limit = 1 // what nobody uses is open to all
			}
			refusal = Unfair
		}
	}
	n := atomic.AddInt64(&g.word, Place) & underWay
	if n > limit && refusal == Full && now >= atomic.LoadInt64(&g.asking) && question(g, now) {
		limit = atomic.LoadInt64(&g.open)
	}
	if n > limit {
		atomic.AddInt64(&g.rejected, 1)
		if atomic.LoadInt64(&g.shadow) != 0 {
			pardon(g, refusal)
			greatest(g, n)
			return n
		}
		atomic.AddInt64(&g.word, -Place)
		if refusal == Unfair {
			atomic.AddInt64(&g.unfair, 1)
		} else {
			atomic.AddInt64(&g.full, 1)
		}
		return refusal
	}
	greatest(g, n)
	return n
}

// greatest takes in how many are under way.
func greatest(g *Guard, n int64) {
	for {
		most := atomic.LoadInt64(&g.most)
		if n <= most || atomic.CompareAndSwapInt64(&g.most, most, n) {
			return
		}
	}
}

// pardon counts a request that a shadow does not turn away.
func pardon(g *Guard, refusal int64) {
	atomic.AddInt64(&g.spared, 1)
	if refusal == Unfair {
		atomic.AddInt64(&g.spUnfair, 1)
	} else {
		atomic.AddInt64(&g.spFull, 1)
	}
}

// End says that a request that was admitted is under way no more. under is what Begin has returned of it. took is how long the service took to
// begin its answer, in microseconds; it is negative where that says nothing of how the service keeps up: it failed.
func End(g *Guard, under, took int64) {
	atomic.AddInt64(&g.word, -Place)
	Count(g, 1, under, took)
}

// Count is End without taking the request out of those under way, for one that stands for so many.
func Count(g *Guard, many, under, took int64) {
	atomic.AddInt64(&g.through, many)
	if took >= 0 {
		sample(g, under, took)
	} else {
		atomic.AddInt64(&g.failed, many)
	}
}

// Leave ends a request as End does, whose client has left before the answer began, after having waited for so many microseconds. The answer would
// have taken longer than that. So if it is more than the baseline, it counts as the time of an answer: else a guard would learn nothing of a
// service that is so slow that all clients leave. If it is less, it says nothing.
func Leave(g *Guard, under, waited int64) {
	atomic.AddInt64(&g.word, -Place)
	CountLeft(g, 1, under, waited)
}

// CountLeft is Leave without taking the request out of those under way, for one that stands for so many.
func CountLeft(g *Guard, many, under, waited int64) {
	if baseline := atomic.LoadInt64(&g.baseline); baseline > 0 && waited > baseline {
		atomic.AddInt64(&g.failed, -many) // it is not among those that ended, and counts as served
		atomic.AddInt64(&g.left, 1)
		sample(g, under, waited)
	}
}

// sample takes in how long an answer took.
func sample(g *Guard, under, took int64) {
	remind(g.answers, under, took)
	if longest := atomic.LoadInt64(&g.longest); took > longest {
		if most := longest / outlier * under; took > most {
			took = most
		}
		if took > longest {
			atomic.AddInt64(&g.cut, took-longest)
		}
		took = longest
	}
	atomic.AddInt64(&g.answered, 1)
	atomic.AddInt64(&g.took, took)
	atomic.AddInt64(&g.met, under)
	if under <= atomic.LoadInt64(&g.floor) {
		atomic.AddInt64(&g.light, 1)
		atomic.AddInt64(&g.lightTook, took)
	}
}

// State is what a guard is at.
type State struct {
	UnderWay int64 // requests
	Limit    int64 // of them
	Max, Min int64 // of the limit
	WarmUp   int64 // microseconds of traffic that the guard learns before it tightens; negative: it never does
	Fair     int64 // requests a Window that a key may ask for before a part of the limit is closed to it, in thousandths; 0: any number
	Baseline int64 // the mean time that the service takes to begin an answer while it keeps up, in microseconds; 0: it is not known yet
	Full     int64 // requests that were turned away since the limit was reached
	Unfair   int64 // requests that were turned away since their keys asked for more than their share
	Pressed  bool  // pressure has a part in the limit: see Press

	// Tightened is how many requests were turned away since their keys were unusual, also under rules that are not tracked any more.
	Tightened int64

	// Shadow says that nobody is turned away now. ShadowFull, ShadowUnfair and ShadowTightened are how many requests would have been while that was so.
	Shadow                                    bool
	ShadowFull, ShadowUnfair, ShadowTightened int64
}

// Look returns what a guard is at.
func Look(g *Guard) State {
	return State{
		UnderWay: atomic.LoadInt64(&g.word) & underWay, Limit: atomic.LoadInt64(&g.limit), Max: atomic.LoadInt64(&g.ceiling), Min: atomic.LoadInt64(&g.floor), WarmUp: atomic.LoadInt64(&g.warmUp), Fair: atomic.LoadInt64(&g.level), Baseline: atomic.LoadInt64(&g.baseline),
		Full: atomic.LoadInt64(&g.full), Unfair: atomic.LoadInt64(&g.unfair), Tightened: atomic.LoadInt64(&g.tightened),
		Pressed: atomic.LoadInt64(&g.pressing) != 0,
		Shadow:  atomic.LoadInt64(&g.shadow) != 0, ShadowFull: atomic.LoadInt64(&g.spFull), ShadowUnfair: atomic.LoadInt64(&g.spUnfair), ShadowTightened: atomic.LoadInt64(&g.spTight),
	}
}

// turnSecond ends the second, unless somebody else is at it.
func turnSecond(g *Guard, now int64) {
	if !atomic.CompareAndSwapInt32(&g.turning, 0, 1) {
		return
	}
	if next := atomic.LoadInt64(&g.next); now >= next {
		seconds := 1.0
		if next > 0 {
			seconds += float64(now-next) / second
		}
		atomic.StoreInt64(&g.next, now+second)
		judge(g, now, seconds)
	}
	atomic.StoreInt32(&g.turning, 0)
}

// judge draws the consequences of what was seen in so many seconds.
func judge(g *Guard, now int64, seconds float64) {
	turn(g.demand, now)
	turn(g.asked, now)
	turn(g.refused, now)
	s := Second{
		Answered: atomic.SwapInt64(&g.answered, 0), Time: atomic.SwapInt64(&g.took, 0), Cut: atomic.SwapInt64(&g.cut, 0), Met: atomic.SwapInt64(&g.met, 0),
		Light: atomic.SwapInt64(&g.light, 0), LightTime: atomic.SwapInt64(&g.lightTook, 0), Most: atomic.SwapInt64(&g.most, atomic.LoadInt64(&g.word)&underWay),
		Rejected: atomic.SwapInt64(&g.rejected, 0), Left: atomic.SwapInt64(&g.left, 0),
	}
	passed := atomic.SwapInt64(&g.through, 0)
	s.Served = passed - atomic.SwapInt64(&g.failed, 0)
	through := float64(passed) / seconds
	favoured := atomic.SwapInt64(&g.favoured, 0)

	if s.Answered > 0 {
		atomic.StoreInt64(&g.usual, (s.Time+s.Cut)/s.Answered)
	}
	present := atomic.LoadInt64(&g.word) & underWay
	g.passed = through
	g.came = through + float64(s.Rejected-atomic.SwapInt64(&g.spared, 0)+present-g.present)/seconds
	g.began = now
	g.present = present
	ceiling := float64(atomic.LoadInt64(&g.ceiling))
	most := float64(atomic.LoadInt64(&g.open))
	before := g.belief
	e := evidence(g, through, now, s.Most)
	g.belief = Believe(g.belief, e, s, g.came, ceiling)
	g.answers.last = g.answers.this
	g.answers.this = atomic.LoadInt64(&g.answers.counted)
	if g.belief.Queue && !before.Queue {
		g.gradient.Limit = begins(g, e)
	}
	notePressure(g, e, s.Most)
	g.gradient = turnGradient(g.gradient, g.belief, s, e, float64(atomic.LoadInt64(&g.floor)), ceiling)
	limited := s.Rejected > 0 && (g.belief.Queue || g.belief.Trusted >= ceiling)
	open := g.gradient.Limit
	if favoured > 0 {
		if open *= 1 - reserve; open < 1 {
			open = 1
		}
	}
	atomic.StoreInt64(&g.limit, int64(g.gradient.Limit))
	atomic.StoreInt64(&g.open, int64(open))
	atomic.StoreInt64(&g.baseline, int64(g.gradient.Baseline))
	if g.gradient.Baseline > 0 {
		atomic.StoreInt64(&g.longest, int64(outlier*g.gradient.Baseline))
	}

	switch {
	case !limited:
		g.capacity *= probes
		if g.capacity > forgets*through {
			g.capacity = 0
		} else if g.capacity > 0 && through > g.capacity {
			g.capacity = through
		}
	case seconds > 2: // nobody came for a while, so it does not say what the service gets through under load
	case g.capacity == 0:
		g.capacity = through
	case through > g.capacity || float64(s.Most) >= reached*most:
		g.capacity += settles * (through - g.capacity)
	}
	level := 0.0
	// Else nobody would notice; but what is tightened may be released at any time.
	if g.capacity > 0 && (g.belief.Queue || g.belief.Trusted >= ceiling || g.tight) && (float64(s.Most) >= (1-strict)*open || g.tight) {
		level = fairLevel(g.demand, now, share*g.capacity*Window/second)
	}
	atomic.StoreInt64(&g.level, int64(1000*level))
	tight, advised := turnRules(g, now, seconds, limited, level)
	if limited || tight {
		atomic.StoreInt64(&g.strained, now)
	}
	g.tight = tight || advised // none passes by
	spare(g, now, open, through*seconds, s.Rejected > 0 || float64(s.Most) > g.gradient.Limit/2)
	report(g, now, before, s, e)
}

// turnGradient returns the state of the limit after a second. While no queue is believed, the limit is what is trusted, and only the baseline moves:
// not up while more and more are under way, as in a queue that is not believed yet.
func turnGradient(g Gradient, b Belief, s Second, e Evidence, floor, ceiling float64) Gradient {
	if b.Queue {
		return gate(Next(g, s, floor, ceiling), b, e, within(g.Limit, floor, ceiling), ceiling)
	}
	s.Most, s.Rejected = 0, 0
	baseline := g.Baseline
	g = Next(g, s, floor, ceiling)
	if baseline > 0 && g.Baseline > baseline && b.grows > 0 {
		g.Baseline = baseline
	}
	g.Limit = b.Trusted
	return g
}

// evidence returns what the last answers say, of which there were so many a second, and the pressure, while so many were under way at most.
func evidence(g *Guard, rate float64, now, most int64) Evidence {
	e := evidenceOf(g.answers, rate/second, tall*float64(atomic.LoadInt64(&g.longest)))
	e.Pressed = now < atomic.LoadInt64(&g.pressed)
	e.Above = float64(most) > pressedLimit(g)
	return e
}

// question finds out whether there is a queue, since as many are under way as are trusted. It reports whether the limit has changed.
func question(g *Guard, now int64) bool {
	if !atomic.CompareAndSwapInt32(&g.turning, 0, 1) {
		return false
	}
	changed := false
	if !g.belief.Queue && now >= atomic.LoadInt64(&g.asking) {
		atomic.StoreInt64(&g.asking, now+asks)
		part := float64(now-g.began) / second
		through := float64(atomic.LoadInt64(&g.through))
		came := through + float64(atomic.LoadInt64(&g.rejected)-atomic.LoadInt64(&g.spared)+atomic.LoadInt64(&g.word)&underWay-g.present)
		if part < 1 {
			came += (1 - part) * g.came
		}
		e := evidence(g, (g.passed+through)/(1+part), now, atomic.LoadInt64(&g.word)&underWay)
		g.belief = Doubt(g.belief, e, came, float64(atomic.LoadInt64(&g.ceiling)))
		limit := g.belief.Trusted
		if g.belief.Queue {
			limit = begins(g, e)
		}
		changed = limit != g.gradient.Limit
		g.gradient.Limit = limit
		atomic.StoreInt64(&g.limit, int64(limit))
		atomic.StoreInt64(&g.open, int64(limit))
	}
	atomic.StoreInt32(&g.turning, 0)
	return changed
}

// Bound changes how many requests may be under way at most and at least, and the warm-up, as a Config has them; what the guard has learnt stays.
func Bound(g *Guard, c Config) {
	floor, ceiling := bounds(c)
	atomic.StoreInt64(&g.floor, floor)
	atomic.StoreInt64(&g.ceiling, ceiling)
	if c.WarmUp == 0 {
		c.WarmUp = DefaultWarmUp
	}
	atomic.StoreInt64(&g.warmUp, c.WarmUp)
	shadow := int64(0)
	if c.Shadow {
		shadow = 1
	}
	atomic.StoreInt64(&g.shadow, shadow)
	g.mu.Lock()
	g.notify = c.Notify
	g.mu.Unlock()
	if ceiling > Trust {
		ceiling = Trust
	}
	if limit := atomic.LoadInt64(&g.limit); limit > ceiling || atomic.LoadInt64(&g.baseline) == 0 {
		atomic.StoreInt64(&g.limit, ceiling)
		atomic.StoreInt64(&g.open, ceiling)
	}
	withdraw(g)
}

// Pause takes a request out of those under way while something else than the service keeps it: its body has not come yet. Resume takes it in
// again, whatever the limit, and returns how many are under way with it.
func Pause(g *Guard) { atomic.AddInt64(&g.word, -Place) }

// Resume ends a Pause.
func Resume(g *Guard) int64 { return atomic.AddInt64(&g.word, Place) & underWay }

// Usual returns how long the service takes to begin an answer at present, in microseconds; 0 if that is not known. A request whose client has left, or
// does not send its body, keeps its place for as long: the service may work on it nevertheless. Else clients could give the service any
// amount of work.
func Usual(g *Guard) int64 { return atomic.LoadInt64(&g.usual) }

// Abandon ends a request that is paused.
func Abandon(g *Guard) {
	atomic.AddInt64(&g.through, 1)
	atomic.AddInt64(&g.failed, 1)
}
