package replay

import "github.com/proxyweir/weir/core"

// player decides requests by rules in a memory of its own, whose clock is the log's.
type player struct {
	now     int64
	limiter *core.Limiter
	due     queue[due]
	number  uint64
	early   int64 // requests whose end was brought forward, since more were under way than are kept
}

// newPlayer returns a player with these rules open. Its memory forgets no key that counts.
func newPlayer(rules []*core.Rule) (*player, error) {
	p := &player{}
	p.limiter = core.NewLimiter(core.NewMemory(core.MemoryConfig{MaxKeys: 1 << 40, Clock: func() int64 { return p.now }}))
	for _, r := range rules {
		if err := p.limiter.Open(r); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// The statuses of requests that wait, and are not served: what Caddy logs for a client that left, and what those are answered whose wait a
// reload ends. A 503 may be the upstream's, too; of the same rules' log it is Weir's where it came sooner than the request's turn.
const (
	statusLeft   = 499
	statusReload = 503
)

// decide decides a request that ends, by its log, at that time and with that status. It must not be earlier than the one before it.
func (p *player) decide(at int64, r *request, checks []core.Check, v *core.Verdict) {
	p.advance(at)
	_ = p.limiter.Decide(checks, false, v) // memory does not fail
	if !v.Reserved {
		return
	}
	p.number++
	end := max(at, r.end)
	next := queued[due]{end, p.number, due{end: end, status: int(r.status), reservations: core.AppendReservations(nil, checks), finish: true}}
	if turn := at + v.Delay; v.Delay > 0 {
		d := &next.what
		d.leave = end < turn && (d.status == statusLeft || d.status == statusReload) // it left while it waited
		d.finish = d.leave
		if !d.leave {
			next.at = turn
			d.end = max(end, turn)
		}
	}
	if next.at <= at {
		p.settle(next)
		return
	}
	p.due.push(next)
	if len(p.due) > mostUnderWay {
		p.early++
		p.settle(p.due.pop())
	}
}

// mostUnderWay is how many requests may be under way, by a log, before the end of some is brought forward.
const mostUnderWay = 2_000_000

// advance has all come to pass that is due by a time.
func (p *player) advance(to int64) {
	for len(p.due) > 0 && p.due[0].at <= to {
		next := p.due.pop()
		p.now = max(p.now, next.at)
		p.settle(next)
	}
	p.now = to
}

// finish has all come to pass that is due.
func (p *player) finish() {
	for len(p.due) > 0 {
		p.advance(p.due[0].at)
	}
}

// settle does what is due.
func (p *player) settle(next queued[due]) {
	d := next.what
	switch {
	case d.leave:
		_ = p.limiter.Leave(d.reservations)
	case d.finish:
		_ = p.limiter.Finish(d.reservations, d.status)
	default: // its turn has come
		p.limiter.Depart(d.reservations)
		if !core.UnderWay(d.reservations) {
			return
		}
		d.finish = true
		end := queued[due]{d.end, next.number, d}
		if end.at <= next.at {
			p.settle(end)
			return
		}
		p.due.push(end)
	}
}

// due is something that is to come of a request under way: its turn, its end, or that its client leaves.
type due struct {
	end          int64
	status       int
	reservations []core.Reservation
	finish       bool // the request is over then
	leave        bool // its client leaves
}
