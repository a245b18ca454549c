package replay

import (
	"container/heap"

	"github.com/proxyweir/weir/core"
)

// player decides requests by rules in a memory of its own, whose clock is the log's.
type player struct {
	now     int64
	limiter *core.Limiter
	due     dueHeap
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
	if !v.Holds {
		return
	}
	p.number++
	d := due{number: p.number, at: max(at, r.end), end: max(at, r.end), status: int(r.status), holds: core.Holds(nil, checks), finish: true}
	if turn := at + v.Delay; v.Delay > 0 {
		d.finish = d.end < turn && (d.status == statusLeft || d.status == statusReload) // it left while it waited
		d.leave = d.finish
		if !d.leave {
			d.at = turn
			d.end = max(d.end, turn)
		}
	}
	if d.at <= at {
		p.settle(&d)
		return
	}
	heap.Push(&p.due, d)
	if len(p.due) > mostUnderWay {
		p.early++
		first := heap.Pop(&p.due).(due)
		p.settle(&first)
	}
}

// mostUnderWay is how many requests may be under way, by a log, before the end of some is brought forward.
const mostUnderWay = 2_000_000

// advance has all come to pass that is due by a time.
func (p *player) advance(to int64) {
	for len(p.due) > 0 && p.due[0].at <= to {
		d := heap.Pop(&p.due).(due)
		p.now = max(p.now, d.at)
		p.settle(&d)
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
func (p *player) settle(d *due) {
	switch {
	case d.leave:
		_ = p.limiter.Leave(d.holds)
	case d.finish:
		_ = p.limiter.Finish(d.holds, d.status)
	default: // its turn has come
		p.limiter.Depart(d.holds)
		if !core.UnderWay(d.holds) {
			return
		}
		d.finish = true
		if d.end <= d.at {
			_ = p.limiter.Finish(d.holds, d.status)
			return
		}
		d.at = d.end
		heap.Push(&p.due, *d)
	}
}

// due is something that is to come of a request under way: its turn, its end, or that its client leaves.
type due struct {
	at     int64
	number uint64
	end    int64
	status int
	holds  []core.Hold
	finish bool // the request is over then
	leave  bool // its client leaves
}

// dueHeap has what is due first on top.
type dueHeap []due

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].number < h[j].number
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(due)) }
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = due{}
	*h = (*h)[:last]
	return d
}
