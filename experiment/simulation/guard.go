package simulation

import (
	"math/rand/v2"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
)

// Guarded is Weir's guard: the one that both proxies have.
type Guarded struct {
	Guard *guard.Guard
	rule  *guard.Rule         // whose keys' demand was learnt; nil: it was not
	began map[float64][]int64 // what Begin has returned of the requests under way, by when they began
	wait  float64             // that whoever was turned away last was told, in seconds
}

// NewGuarded returns a guard of at most so many requests.
func NewGuarded(most int) *Guarded {
	return &Guarded{Guard: guard.New(guard.Config{Max: most, Seed: 1}), began: map[float64][]int64{}}
}

// NewLearnt returns a guard of at most so many requests, that has learnt what clients ask for in another situation.
func NewLearnt(most int, calm *Situation) *Guarded {
	g := guard.New(guard.Config{Max: most, Seed: 1, WarmUp: 1})
	learnt := &Guarded{Guard: g, rule: guard.Track(g, "all"), began: map[float64][]int64{}}
	last := calm.Arrivals[len(calm.Arrivals)-1].At
	for _, a := range calm.Arrivals {
		guard.Ask(g, learnt.rule, keyOf(int(a.Client)), micros(a.At-last-60))
	}
	return learnt
}

func keyOf(client int) uint64 { return uint64(client) * 0x9e3779b97f4a7c15 }

const epoch = 1_700_000_000_000_000

func micros(t float64) int64 { return epoch + int64(t*1e6) }

// Admit implements Policy.
func (g *Guarded) Admit(t float64, client int) bool {
	if g.rule != nil && !guard.Ask(g.Guard, g.rule, keyOf(client), micros(t)) {
		guard.Tighten(g.Guard, keyOf(client), micros(t))
		return g.turnAway(guard.Tightened)
	}
	n := guard.Begin(g.Guard, keyOf(client), false, micros(t))
	if n < 0 {
		return g.turnAway(n)
	}
	g.began[t] = append(g.began[t], n)
	return true
}

func (g *Guarded) turnAway(why int64) bool {
	g.wait = float64(front.GuardWait(why, 0)) / 1e6
	return false
}

// RetryAfter implements Policy.
func (g *Guarded) RetryAfter() float64 { return g.wait }

// Rejected implements Policy.
func (*Guarded) Rejected(float64, int) {}

// Answered implements Policy.
func (g *Guarded) Answered(t, begun float64, failed bool) {
	took := int64((t - begun) * 1e6)
	if failed {
		took = -1
	}
	guard.End(g.Guard, g.one(begun), took)
}

// Left implements Policy.
func (g *Guarded) Left(t, begun float64) { guard.Leave(g.Guard, g.one(begun), int64((t-begun)*1e6)) }

// one returns what Begin has returned of one of those that began then, and forgets it.
func (g *Guarded) one(begun float64) int64 {
	list := g.began[begun]
	if g.began[begun] = list[1:]; len(list) == 1 {
		delete(g.began, begun)
	}
	return list[0]
}

// Queued is a guard before which requests wait that find no room, each for so many seconds at most.
type Queued struct {
	*Guarded
	Seconds float64
}

// Wait implements Patient.
func (q Queued) Wait() float64 { return q.Seconds }

// AdmitWaiting implements Patient.
func (q Queued) AdmitWaiting(t float64, client int) bool {
	n := guard.BeginFor(q.Guard, keyOf(client), false, micros(t), 0) // its demand was counted when it came
	if n < 0 {
		return q.turnAway(n)
	}
	q.began[t] = append(q.began[t], n)
	return true
}

// Fleet is several proxies with a guard each, to which requests go at random.
type Fleet struct {
	guards []*Guarded
	random *rand.Rand
	last   *Guarded               // the one that was asked last
	of     map[float64][]*Guarded // those that passed the requests under way on, by when that was
}

// NewFleet returns so many guards, which let at most so many requests be under way together.
func NewFleet(guards, most int, seed uint64) *Fleet {
	f := &Fleet{random: rand.New(rand.NewPCG(seed, 0xf1ee)), of: map[float64][]*Guarded{}}
	for range guards {
		f.guards = append(f.guards, NewGuarded(most/guards))
	}
	return f
}

// Admit implements Policy.
func (f *Fleet) Admit(t float64, client int) bool {
	g := f.guards[f.random.IntN(len(f.guards))]
	f.last = g
	if !g.Admit(t, client) {
		return false
	}
	f.of[t] = append(f.of[t], g)
	return true
}

// RetryAfter implements Policy.
func (f *Fleet) RetryAfter() float64 { return f.last.RetryAfter() }

// Rejected implements Policy.
func (*Fleet) Rejected(float64, int) {}

// Answered implements Policy.
func (f *Fleet) Answered(t, begun float64, failed bool) { f.one(begun).Answered(t, begun, failed) }

// Left implements Policy.
func (f *Fleet) Left(t, begun float64) { f.one(begun).Left(t, begun) }

func (f *Fleet) one(begun float64) *Guarded {
	list := f.of[begun]
	if f.of[begun] = list[1:]; len(list) == 1 {
		delete(f.of, begun)
	}
	return list[0]
}
