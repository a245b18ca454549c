package traefik

import (
	"context"
	"time"

	"github.com/proxyweir/weir/core/guard"
)

// lingering is how long engines stay that no handler with a living context uses, from when the next ones have been made.
const lingering = 60 * time.Second

// begin notes that a handler is about to be made, in the generation of its context.
func (g *registry) begin(ctx context.Context) *generation {
	g.mu.Lock()
	defer g.mu.Unlock()
	done := ctx.Done()
	gen := g.generations[done]
	if gen == nil {
		g.begun++
		gen = &generation{ctx: ctx, number: g.begun, first: g.clock(), has: make(map[*engine]bool)}
		g.generations[done] = gen
		for _, l := range g.leaving {
			if l.next == nil {
				l.next = gen
			}
		}
		if done != nil {
			context.AfterFunc(ctx, func() { g.end(done) })
		}
	}
	gen.making++
	return gen
}

// made notes that begin's handler was made, or could not be.
func (g *registry) made(gen *generation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gen.making--
	gen.last = g.clock()
	if took := gen.last - gen.first; took > g.longest && gen.ctx.Done() != nil {
		g.longest = took
	}
}

// join adds an engine to a generation.
func (g *registry) join(gen *generation, e *engine) {
	if gen.has[e] {
		return
	}
	e.uses++
	if gen.ended {
		g.leave(&leaving{engines: []*engine{e}})
		return
	}
	gen.engines = append(gen.engines, e)
	gen.has[e] = true
	e.returned = e.returned || e.uses > 1 && e.living == 0
	e.living++
	if e.guard != nil {
		guard.Bound(e.guard, e.guardSettings.Bounds)
	}
	if e.monitoring.Address != "" {
		g.listen(e.monitoring.Address, e.name)
	}
}

// end notes that the context of a generation was cancelled. Its engines are released a while after the next ones are made.
func (g *registry) end(done <-chan struct{}) {
	defer contain()
	g.mu.Lock()
	defer g.mu.Unlock()
	gen := g.generations[done]
	if gen == nil {
		return
	}
	delete(g.generations, done)
	gen.ended = true
	for _, e := range gen.engines {
		e.living--
	}
	if len(g.listeners) > 0 {
		g.after(shownFor, g.settleLater)
	}
	l := &leaving{engines: gen.engines}
	for _, other := range g.generations {
		if other.number > gen.number && (l.next == nil || other.number < l.next.number) {
			l.next = other
		}
	}
	g.leave(l)
}

// leave schedules the release of something after a while.
func (g *registry) leave(l *leaving) {
	l.until = g.clock() + lingering
	g.leaving = append(g.leaving, l)
	if !g.expiring {
		g.expiring = true
		g.after(lingering, g.expireLater)
	}
}

// due returns when something that leaves is released.
func (l *leaving) due(now time.Duration) time.Duration {
	if l.next == nil || len(l.engines) == 0 {
		return l.until
	}
	made := l.next.last
	if l.next.making > 0 {
		made = now
	}
	if made+lingering > l.until {
		return made + lingering
	}
	return l.until
}

// expire releases what is due.
func (g *registry) expire() {
	defer contain()
	for _, shared := range g.letGo() {
		shared.close()
	}
}

// letGo is expire without closing the stores that nobody uses any more: it returns them.
func (g *registry) letGo() []*sharedRedis {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock()
	var unused []*sharedRedis
	for len(g.leaving) > 0 && g.leaving[0].due(now) <= now {
		l := g.leaving[0]
		closePlaces(l.places)
		endSwitches(l.limiter, l.limits)
		releaseRules(l.limiter, l.rules)
		for _, e := range l.engines {
			e.uses--
			if e.uses == 0 {
				if shared := g.close(e); shared != nil {
					unused = append(unused, shared)
				}
			}
		}
		g.leaving[0] = nil
		g.leaving = g.leaving[1:]
	}
	g.forgetMeters()
	g.forgetGuards()
	g.expiring = len(g.leaving) > 0
	if g.expiring {
		g.after(g.leaving[0].due(now)-now, g.expireLater)
	}
	return unused
}
