package leasetest

import (
	"github.com/proxyweir/weir/core/rate"
)

// Ledger is the store's part of leases for one key, in Go: what the script in Redis computes. A test compares them. Times are in microseconds.
type Ledger struct {
	Limit *rate.Limit

	// Early charges what it lends at once, whatever the algorithm. For a token bucket and a log that is wrong: the tests must notice.
	Early bool

	// Reserved is what requests under way have reserved on which the store has decided, if they are charged when their responses have ended.
	Reserved int64

	count demand
	state state
}

// state is what an algorithm keeps.
type state interface {
	// look brings the state to a time, and returns how many units are free.
	look(now int64) int64

	charge(now, n int64)

	// settle accounts for a lease of which so many units are spent. It returns how many of the rest the node may keep.
	settle(now int64, a *rate.LeaseAsk, length int64) (kept int64)

	// lend lends units. It returns the mark of the lease, and when it must have ended.
	lend(now, units int64) (mark, ends int64)

	wait(now int64) (retry, reset int64)
}

// NewLedger returns the ledger of a key that was never seen. Its windows are those of the clock, or begin with the first request.
func NewLedger(l *rate.Limit) *Ledger { return NewLedgerOf(l, "") }

// NewLedgerOf is NewLedger of a key whose windows may be spread.
func NewLedgerOf(l *rate.Limit, key string) *Ledger {
	g := &Ledger{Limit: l}
	zero := int64(0)
	if l.Spread {
		zero = rate.Phase(l, key)
	}
	r, p, b := l.Requests, l.Period, l.Capacity
	switch {
	case l.Algorithm == rate.FixedWindow:
		g.state = &windows{r: r, p: p, zero: zero, first: l.Start == rate.FirstRequest, owes: l.Owes}
	case l.Algorithm == rate.SlidingWindowCounter && l.Segments() == 0:
		g.state = &windows{r: r, p: p, zero: zero, slides: true, owes: l.Owes}
	case l.Segments() > 0:
		n := l.Segments()
		g.state = &segments{r: r, long: (p + n - 1) / n, counts: make([]int64, n+1)}
	case l.Algorithm == rate.SlidingWindowLog:
		g.state = &log{r: r, p: p}
	case l.Interval():
		g.state = &intervals{r: r, p: p, b: b}
	default:
		g.state = &bucket{r: r, p: p, b: b}
	}
	return g
}

// Lend decides on a request of that cost, 0 for none, and on a lease, at a time.
func (g *Ledger) Lend(now, cost int64, a *rate.LeaseAsk, length int64) (rate.Decision, rate.LeaseGrant) {
	kept := g.settle(now, a, length)
	d := g.Decide(now, cost)
	free := int64(0)
	if d.Allowed {
		free = max(d.Remaining-g.Reserved, 0)
	}
	grant := rate.LeaseGrant{ToldIn: a.ToldIn}
	extra := int64(0)
	if a.Want > 0 {
		extra, grant.ToldIn = g.count.portion(now, free, a, length)
	}
	var ends int64
	if g.Early {
		g.state.charge(now, extra)
		grant.Mark, ends = now, now+length
	} else {
		grant.Mark, ends = g.state.lend(now, extra)
	}
	grant.Units = kept + extra
	if grant.Units > 0 {
		grant.Life = min(length, ends-now)
	}
	grant.Free = max(g.state.look(now), 0)
	d.Remaining = grant.Free
	_, grant.Reset = g.state.wait(now)
	return d, grant
}

func (g *Ledger) settle(now int64, a *rate.LeaseAsk, length int64) int64 {
	if !g.Early {
		return g.state.settle(now, a, length)
	}
	if a.Keep == 0 {
		g.state.charge(now, a.Spent-a.Size)
		return 0
	}
	return a.Size - a.Spent
}

// Free returns how many units are free at a time; less than 0: so many are owed.
func (g *Ledger) Free(now int64) int64 { return g.state.look(now) }

// Reserve decides on a request that is charged when its response has ended.
func (g *Ledger) Reserve(now, cost int64) bool {
	if max(cost, 1)+g.Reserved > g.state.look(now) {
		return false
	}
	g.Reserved += cost
	return true
}

// Settle ends the reservation of a request, and charges it what it has cost, whatever the limit says.
func (g *Ledger) Settle(now, reserved, units int64) (free int64) {
	g.Reserved -= reserved
	if g.state.look(now); units > 0 {
		g.state.charge(now, units)
	}
	return g.state.look(now) - g.Reserved
}

// Decide decides as strict scripts do.
func (g *Ledger) Decide(now, cost int64) rate.Decision {
	d := rate.Decision{Limit: g.Limit.Quota, Remaining: g.state.look(now)}
	d.Allowed = cost <= d.Remaining
	if d.Allowed {
		g.state.charge(now, cost)
		d.Remaining -= cost
	} else {
		d.RetryAfter, _ = g.state.wait(now)
	}
	d.Remaining = max(d.Remaining, 0)
	_, d.ResetAfter = g.state.wait(now)
	return d
}

// demand is what the nodes have said of theirs.
type demand struct{ epoch, sum, before int64 }

func (c *demand) portion(now, room int64, a *rate.LeaseAsk, length int64) (units, epoch int64) {
	epoch = now - now%length
	if epoch != c.epoch {
		before := int64(0)
		if epoch-length == c.epoch {
			before = c.sum
		}
		*c = demand{epoch: epoch, before: before}
	}
	told := a.Told
	if a.ToldIn != epoch {
		told = 0
	}
	c.sum += max(a.Demand-told, 0)
	share := min(1, float64(a.Demand)/float64(max(c.sum, c.before, 1)))
	units = int64(min(float64(a.Want), float64(room)/2*share))
	if units < 4 {
		units = 0
		if room >= 8 {
			units = min(a.Want, 4)
		}
	}
	return units, epoch
}

// windows is the state of a fixed window; slides: of a sliding window counter.
type windows struct {
	r, p                     int64
	slides, first, owes      bool
	zero                     int64 // when a window began
	start, previous, current int64
}

func (s *windows) look(now int64) int64 {
	at := *s
	at.roll(now)
	return at.r - at.current - at.previous*(at.p-(now-at.zero)%at.p)/at.p
}

// roll brings the state to the window of a time. As in Redis, it is brought there when it is written.
func (s *windows) roll(now int64) {
	if s.first && (s.current == 0 || now >= s.start+s.p) {
		s.zero = now
	}
	start := now - (now-s.zero)%s.p
	if start == s.start {
		return
	}
	gone := (start - s.start) / s.p
	if s.slides && gone == 1 {
		s.previous = s.current
	} else {
		s.previous = 0
	}
	if s.owes && s.current > s.r { // what did not fit into a window counts in the next ones
		if s.slides {
			s.previous = min(max(s.current-(gone-1)*s.r, 0), s.r)
		}
		s.current = max(s.current-gone*s.r, 0)
	} else {
		s.current = 0
	}
	s.start = start
}

func (s *windows) charge(now, n int64) {
	s.roll(now)
	s.current += n
}

func (s *windows) settle(now int64, a *rate.LeaseAsk, _ int64) int64 {
	rest := a.Size - a.Spent
	if a.Keep == 0 {
		if a.Mark == s.start {
			s.current = max(s.current-rest, 0)
		} else if a.Mark == s.start-s.p {
			s.previous = max(s.previous-rest, 0)
		}
		rest = 0
	}
	at := *s
	if at.roll(now); a.Mark != at.start {
		return 0
	}
	return rest
}

func (s *windows) lend(now, units int64) (mark, ends int64) {
	if units > 0 || s.look(now) >= 0 {
		s.roll(now)
	}
	s.current += units
	at := *s
	at.roll(now)
	return at.start, at.start + s.p
}

func (s *windows) wait(now int64) (retry, reset int64) {
	left := s.p - (now-s.zero)%s.p
	if s.slides && s.previous > 0 {
		return s.p/s.previous + 1, left + s.p
	}
	return left, left
}

// segments is the state of a sliding window counter with segments: the count of each, the present one first.
type segments struct {
	r, long, start int64
	counts         []int64
}

func (s *segments) look(now int64) int64 {
	last := len(s.counts) - 1
	for start := now - now%s.long; s.start < start; s.start += s.long {
		if start-s.start > int64(last)*s.long {
			s.start = start - s.long
			clear(s.counts)
		}
		copy(s.counts[1:], s.counts)
		s.counts[0] = 0
	}
	left := s.r - s.counts[last]*(s.long-now%s.long)/s.long
	for _, n := range s.counts[:last] {
		left -= n
	}
	return left
}

func (s *segments) charge(_, n int64) { s.counts[0] += n }

func (s *segments) settle(now int64, a *rate.LeaseAsk, _ int64) int64 {
	s.look(now)
	rest := a.Size - a.Spent
	before := (s.start - a.Mark) / s.long
	if a.Keep == 0 && before < int64(len(s.counts)) {
		s.counts[before] = max(s.counts[before]-rest, 0)
		rest = 0
	}
	if before > 0 {
		return 0
	}
	return rest
}

func (s *segments) lend(now, units int64) (mark, ends int64) {
	s.look(now)
	s.counts[0] += units
	return s.start, s.start + s.long
}

func (s *segments) wait(now int64) (retry, reset int64) {
	return s.long / max(s.counts[len(s.counts)-1], 1), int64(len(s.counts)) * s.long
}

// intervals is the state of a token bucket with refill interval.
type intervals struct{ r, p, b, start, used int64 }

func (s *intervals) look(now int64) int64 {
	start := now - now%s.p
	s.used = max(s.used-(start-s.start)/s.p*s.r, 0)
	s.start = start
	return s.b - s.used
}

func (s *intervals) charge(_, n int64) { s.used += n }

func (s *intervals) settle(now int64, a *rate.LeaseAsk, _ int64) int64 {
	s.look(now)
	if a.Mark != s.start {
		return 0
	}
	rest := a.Size - a.Spent
	if a.Keep == 0 {
		s.used = max(s.used-rest, 0)
		return 0
	}
	return rest
}

func (s *intervals) lend(_, units int64) (mark, ends int64) {
	s.used += units
	return s.start, s.start + s.p
}

func (s *intervals) wait(now int64) (retry, reset int64) { return s.p - now%s.p, s.p - now%s.p }

// held is what leases hold.
type held struct{ till, span, lent, owing int64 }

// turn returns what is to be charged at the end of an epoch, if one has ended: at is that time.
func (h *held) turn(now int64) (at, units int64, turned bool) {
	if h.lent+h.owing == 0 || now < h.till {
		return 0, 0, false
	}
	at, units = h.till, h.owing
	h.owing, h.lent, h.till = h.lent, 0, h.till+h.span
	return at, units, true
}

// settle returns how many units are to be charged now, and how many are kept.
func (h *held) settle(now int64, a *rate.LeaseAsk, length int64) (spent, kept int64) {
	if h.lent+h.owing == 0 {
		h.till, h.span = now+length, length
	}
	switch {
	case a.Size > 0 && a.Mark == h.till:
		h.lent = max(h.lent-a.Size, 0)
	case a.Size > 0 && a.Mark == h.till-h.span:
		h.owing = max(h.owing-a.Size, 0)
	default:
		return 0, 0
	}
	kept = a.Keep * (a.Size - a.Spent)
	h.lent += kept
	return a.Spent, kept
}

func (h *held) lend(units int64) (mark, ends int64) {
	h.lent += units
	return h.till, h.till + h.span
}

// bucket is the state of a token bucket that is refilled continuously: its level in parts of which a unit has p.
type bucket struct {
	held
	r, p, b   int64
	at, level int64
}

func (s *bucket) drain(to int64) {
	if to > s.at {
		if (to - s.at) >= s.level/s.r+1 {
			s.level = 0
		} else {
			s.level = max(s.level-(to-s.at)*s.r, 0)
		}
		s.at = to
	}
}

func (s *bucket) look(now int64) int64 {
	for {
		at, units, turned := s.turn(now)
		if !turned {
			break
		}
		s.drain(at)
		s.level += units * s.p
	}
	s.drain(now)
	return s.b - (s.level+s.p-1)/s.p - s.lent - s.owing
}

func (s *bucket) charge(_, n int64) { s.level = max(s.level+n*s.p, 0) }

func (s *bucket) settle(now int64, a *rate.LeaseAsk, length int64) int64 {
	s.look(now)
	spent, kept := s.held.settle(now, a, length)
	if a.Spent < 0 {
		spent = min(a.Spent+(max(now-a.Mark+1e6, 0)*s.r+s.p-1)/s.p, 0)
	}
	s.charge(now, spent)
	return kept
}

func (s *bucket) lend(_, units int64) (mark, ends int64) { return s.held.lend(units) }

func (s *bucket) wait(int64) (retry, reset int64) { return s.p/s.r + 1, s.level/s.r + 1 }

// log is the state of a sliding window log: when units were charged, and how many.
type log struct {
	held
	r, p  int64
	times []int64
	units []int64
	sum   int64
}

// look takes what was held and not accounted for to be spent at the turn of the epoch. Only settle makes entries of it.
func (s *log) look(now int64) int64 {
	s.expire(now)
	holds := int64(0)
	if now < s.till+s.p+1 {
		holds = s.owing
	}
	until := s.till + s.p + 1
	if s.lent > 0 {
		until += s.span
	}
	if now < until {
		holds += s.lent
	}
	return s.r - s.sum - holds
}

func (s *log) expire(now int64) {
	gone := 0
	for gone < len(s.times) && s.times[gone]+s.p <= now {
		s.sum -= s.units[gone]
		gone++
	}
	s.times, s.units = s.times[gone:], s.units[gone:]
}

func (s *log) charge(now, n int64) {
	if n != 0 {
		s.times, s.units = append(s.times, now), append(s.units, n)
		s.sum += n
	}
}

func (s *log) settle(now int64, a *rate.LeaseAsk, length int64) int64 {
	s.expire(now)
	for {
		at, units, turned := s.turn(now)
		if !turned {
			break
		}
		if now < at+s.p+1 {
			s.charge(now, units)
		}
	}
	spent, kept := s.held.settle(now, a, length)
	s.charge(now, spent)
	for i := 0; i < len(s.times) && a.Spent < 0 && now < a.Mark-1e6+s.p; i++ { // the oldest that were charged since
		if back := min(s.units[i], -a.Spent); s.times[i] >= a.Mark-1e6 {
			s.units[i] -= back
			s.sum -= back
			a.Spent += back
		}
	}
	return kept
}

func (s *log) lend(_, units int64) (mark, ends int64) { return s.held.lend(units) }

func (s *log) wait(now int64) (retry, reset int64) {
	if len(s.times) == 0 {
		return s.span + 1, s.p
	}
	return s.times[0] + s.p - now, s.times[len(s.times)-1] + s.p - now
}
