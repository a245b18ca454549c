package traefik

import (
	"fmt"
	"time"

	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/traefik/config"
)

// adviceEvery is how often advice is carried out.
const adviceEvery = time.Second

// takeAdvisor prepares an engine that is being opened for advice, if it has an advisor.
func (g *registry) takeAdvisor(e *engine) {
	if e.advisor == nil {
		return
	}
	s, name := e.advisor, e.name
	a := &advising{of: e.fingerprint}
	a.advised = &adaptive.Proxy{Controller: &adaptive.Controller{Tell: func(c adaptive.Change) { g.tellAdapted(s, name, c) }}, Clock: g.unixNow}
	if e.shared != nil {
		a.advised.Agree = redis.Agreeing(e.shared.store, s.Source.Fleet, s.Source.URL)
	}
	a.later = func() { g.adviceTick(a) }
	e.advising = a
	for _, r := range e.own {
		if r.Ruled.Adapt != nil {
			e.places = append(e.places, placeOf(e, r))
		}
	}
	g.place(e, e.inForce())
	if len(e.places) == 0 && e.files == nil {
		g.say(e.name, "advisor: has no effect, since no rule has adapt; write adapt into the rules that advice may change")
	}
	if s.Gates == advice.Bounds {
		g.say(e.name, "advisor: gates bounds lets advice lower limits, and raise them under overload; gates full checks it by what Traefik itself sees")
	}
}

// place gives the adaptable rules in a set's files their places.
func (g *registry) place(e *engine, s *ruleSet) {
	if e.advisor == nil {
		return
	}
	for _, r := range s.rules[s.own:] {
		if r.Ruled.Adapt != nil {
			s.places = append(s.places, placeOf(e, r))
		}
	}
}

func placeOf(e *engine, r *front.Rule) *adaptive.Place {
	return &adaptive.Place{Rule: r.Ruled, Limiter: e.limiter, Applies: e.advisor.Apply}
}

// goOnAdvised has the adaptable rules of a set go on with what advice has put in force in those of the set before that have the same names.
func goOnAdvised(e *engine, s, before *ruleSet) {
	old := make(map[string]*adaptive.Place, len(before.places))
	for _, p := range before.places {
		old[p.Rule.Name] = p
	}
	for _, p := range s.places {
		if err := p.GoOn(old[p.Rule.Name]); err != nil {
			e.reportFailure(err)
		}
	}
}

// advise has the rules of an engine follow advice from now on, if it has an advisor. It goes on with what the middleware's engine before had in force.
func (g *registry) advise(e *engine) {
	a := e.advising
	if a == nil {
		return
	}
	g.advices.Lock()
	defer g.advices.Unlock()
	if a.running {
		return
	}
	g.mu.Lock()
	before := e.advisedBefore
	e.advisedBefore = nil
	g.mu.Unlock()
	last := a.board
	if before != nil {
		before.turn.Lock()
		before.ended = true
		before.turn.Unlock()
		stopAdvice(before)
		a.polls = before.polls
		last = before.board
	}
	a.turn.Lock()
	a.ended = false
	a.turn.Unlock()
	a.board = g.adviceBoard(e, last)
	a.running = true
	poller, err := advice.NewPoller(advice.PollerConfig{
		Source: e.advisor.Source, Interval: e.advisor.Interval, Digest: a.advised.Digest, Take: a.advised.Take, Refuse: a.advised.Refuse,
		May: a.advised.MayPoll, Now: g.unixNow, Wait: g.waitFor,
	})
	if err != nil { // the settings were checked
		warn(e.name, "advisor: "+err.Error())
	} else {
		a.poller = poller
		poller.Start()
	}
	if !a.ticking {
		a.ticking = true
		g.tickAgain(a)
	}
}

// readvise has advice go on with the rules of an engine whose files have changed.
func (g *registry) readvise(e *engine) {
	a := e.advising
	if a == nil {
		return
	}
	g.advices.Lock()
	defer g.advices.Unlock()
	if a.running {
		a.board = g.adviceBoard(e, a.board)
	}
}

// stopAdvice ends polling, and has no further second come.
func stopAdvice(a *advising) {
	a.running = false
	a.advised.End()
	if a.poller != nil {
		a.poller.Stop()
		a.polls += a.poller.Health().Polls
		a.poller = nil
	}
}

// adviceTick carries advice out, each second while handlers with a living context use the engine.
func (g *registry) adviceTick(a *advising) {
	defer contain()
	if !g.stillAdvises(a) {
		return
	}
	defer g.tickAgain(a)
	a.turn.Lock()
	defer a.turn.Unlock()
	if !a.ended {
		a.advised.Tick(g.unixNow(), guardNow(g.host))
	}
}

// tickAgain sets the timer of the next whole second of the clock: nodes whose clocks agree change a limit together.
func (g *registry) tickAgain(a *advising) {
	g.after(adviceEvery-time.Duration(g.unixNow()%1_000_000)*time.Microsecond, a.later)
}

// stillAdvises reports whether advice goes on; if not, it ends it.
func (g *registry) stillAdvises(a *advising) bool {
	g.advices.Lock()
	defer g.advices.Unlock()
	g.mu.Lock()
	e := g.engines[a.of]
	lives := e != nil && e.advising == a && e.living > 0
	g.mu.Unlock()
	if lives && a.running {
		return true
	}
	stopAdvice(a)
	a.ticking = false
	return false
}

// adviceBoard returns the board of an engine's adaptable rules, and puts in force what it goes on with.
func (g *registry) adviceBoard(e *engine, before *advice.Board) *advice.Board {
	rules := g.adaptedRules(e)
	c := advice.BoardConfig{PublicKey: e.advisor.Key, Advisor: e.advisor.Source.URL + " " + e.advisor.Source.Fleet, Applies: e.advisor.Apply}
	c.Rules = adaptive.SettingsOf(rules, e.advisor.Gates, e.advisor.WarmUp, func(label string, err error) {
		warn(e.name, fmt.Sprintf("advice cannot change the rule %q: %s", label, err))
	})
	return e.advising.advised.Renew(c, rules, before, g.unixNow(), guardNow(g.host))
}

// adaptedRules returns the adaptable rules of an engine by label, with the guard of its middleware.
func (g *registry) adaptedRules(e *engine) map[string]*adaptive.Rule {
	g.mu.Lock()
	defer g.mu.Unlock()
	rules := make(map[string]*adaptive.Rule)
	set := e.inForce()
	var all []*adaptive.Place
	all = append(all, e.places...)
	all = append(all, set.places...)
	for _, p := range all {
		label := labelOf(p.Rule.Limits.Own())
		r := rules[label]
		if r == nil {
			r = &adaptive.Rule{}
			rules[label] = r
		}
		r.Places = append(r.Places, p)
		if of := set.tracked[p.Rule.Name]; of != nil {
			r.Guards = append(r.Guards, adaptive.Watched{Guard: e.guard, Rule: of})
		}
	}
	return rules
}

// tellAdapted logs a change of a limit, and writes it to the audit file.
func (g *registry) tellAdapted(s *config.AdvisorSettings, middleware string, c adaptive.Change) {
	if c.Abstains {
		inform(middleware, fmt.Sprintf("the advisor has nothing for rule %q (serial %d): %s", c.Label, c.After.Serial, advice.Explain(&c.After)))
		return
	}
	said := fmt.Sprintf("of rule %q: from %s to %s (serial %d): %s", c.Label, adaptive.LimitText(&c.Before), adaptive.LimitText(&c.After), c.After.Serial, advice.Explain(&c.After))
	if c.Err != nil {
		warn(middleware, "advice could not change the limit "+said+": "+c.Err.Error())
	} else if c.Applied {
		inform(middleware, "the limit has changed "+said)
	} else {
		inform(middleware, "advice would change the limit, if mode were apply, "+said)
	}
	if s.Audit == "" {
		return
	}
	if err := adaptive.WriteAudit(s.Audit, adaptive.AuditOf(c, time.UnixMicro(g.unixNow()))); err != nil {
		g.say(middleware, "advisor: the audit file cannot be written: "+err.Error())
	}
}
