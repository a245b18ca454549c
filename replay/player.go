package replay

import (
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
)

// player decides requests by rules in its own memory, whose clock is the log's.
type player struct {
	now     int64
	limiter *core.Limiter
	due     queue[due]
	number  uint64
	early   int64 // requests whose end was brought forward, since more were under way than are kept
}

// newPlayer returns a player with these rules open. Its memory evicts no key that counts.
func newPlayer(rules []*core.Rule) (*player, error) {
	p := &player{}
	p.limiter = core.NewLimiter(memory.New(memory.Config{MaxKeys: 1 << 40, Clock: func() int64 { return p.now }}))
	for _, r := range rules {
		if err := p.limiter.Open(r); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// The statuses of requests that wait and are not served: the one that Caddy logs for a client that left, and the response to requests whose wait a
// reload ends. A 503 may be the upstream's, too; in a log of the same rules it is Weir's if it came before the request's departure.
const (
	statusLeft   = 499
	statusReload = 503
)

// decide decides a request that ended, according to its log, at that time and with that status. Requests must come in the order of their times.
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

// mostUnderWay is the most requests that may be under way, according to a log, before the end of some is brought forward.
const mostUnderWay = 2_000_000

// advance runs all events that are due by a time.
func (p *player) advance(to int64) {
	for len(p.due) > 0 && p.due[0].at <= to {
		next := p.due.pop()
		p.now = max(p.now, next.at)
		p.settle(next)
	}
	p.now = to
}

// finish runs all events that are left.
func (p *player) finish() {
	for len(p.due) > 0 {
		p.advance(p.due[0].at)
	}
}

// settle runs an event.
func (p *player) settle(next queued[due]) {
	d := next.what
	switch {
	case d.leave:
		_ = p.limiter.Leave(d.reservations)
	case d.finish:
		_ = p.limiter.Finish(d.reservations, d.status)
	default: // its reservation is due
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

// due is an event of a request under way: its departure, its end, or that its client leaves.
type due struct {
	end          int64
	status       int
	reservations []core.Reservation
	finish       bool // the request is over then
	leave        bool // its client leaves
}
