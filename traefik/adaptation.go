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
	a := &adaptation{of: e.fingerprint}
	a.proxy = &adaptive.Proxy{Controller: &adaptive.Controller{Notify: func(c adaptive.Change) { g.logAdapted(s, name, c) }}, Clock: g.unixNow}
	if e.shared != nil {
		a.proxy.Agree = redis.Agreeing(e.shared.store, s.Source.Fleet, s.Source.URL)
	}
	a.later = func() { g.adaptationTick(a) }
	e.adaptation = a
	for _, r := range e.own {
		if r.Ruled.Adapt != nil {
			e.instances = append(e.instances, instanceOf(e, r))
		}
	}
	g.addInstances(e, e.inForce())
	for _, text := range s.Advice(len(e.instances) > 0 || e.files != nil) {
		g.log(e.name, text)
	}
}

// addInstances adds the instances of the adaptable rules in a set's files.
func (g *registry) addInstances(e *engine, s *ruleSet) {
	if e.advisor == nil {
		return
	}
	for _, r := range s.rules[s.own:] {
		if r.Ruled.Adapt != nil {
			s.instances = append(s.instances, instanceOf(e, r))
		}
	}
}

func instanceOf(e *engine, r *front.Rule) *adaptive.Instance {
	return &adaptive.Instance{Rule: r.Ruled, Limiter: e.limiter, Applies: e.advisor.Apply}
}

// resumeAdvised has the adaptable rules of a set go on with what advice has put in force in those of the set before that have the same names.
func resumeAdvised(e *engine, s, before *ruleSet) {
	old := make(map[string]*adaptive.Instance, len(before.instances))
	for _, p := range before.instances {
		old[p.Rule.Name] = p
	}
	for _, p := range s.instances {
		if err := p.Resume(old[p.Rule.Name]); err != nil {
			e.reportFailure(err)
		}
	}
}

// advise has the rules of an engine follow advice from now on, if it has an advisor. It goes on with what the middleware's engine before had in force.
func (g *registry) advise(e *engine) {
	a := e.adaptation
	if a == nil {
		return
	}
	g.advices.Lock()
	defer g.advices.Unlock()
	if a.running {
		return
	}
	g.mu.Lock()
	before := e.adaptationBefore
	e.adaptationBefore = nil
	g.mu.Unlock()
	last := a.state
	if before != nil {
		before.turn.Lock()
		before.ended = true
		before.turn.Unlock()
		stopAdaptation(before)
		a.polls = before.polls
		last = before.state
	}
	a.turn.Lock()
	a.ended = false
	a.turn.Unlock()
	a.state = g.adviceState(e, last)
	a.running = true
	poller, err := advice.NewPoller(advice.PollerConfig{
		Source: e.advisor.Source, Interval: e.advisor.Interval, Digest: a.proxy.Digest, Take: a.proxy.Take, Refuse: a.proxy.Refuse,
		May: a.proxy.MayPoll, Now: g.unixNow, Wait: g.waitFor,
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
	a := e.adaptation
	if a == nil {
		return
	}
	g.advices.Lock()
	defer g.advices.Unlock()
	if a.running {
		a.state = g.adviceState(e, a.state)
	}
}

// stopAdaptation ends polling, and has no further second come.
func stopAdaptation(a *adaptation) {
	a.running = false
	a.proxy.End()
	if a.poller != nil {
		a.poller.Stop()
		a.polls += a.poller.Health().Polls
		a.poller = nil
	}
}

// adaptationTick carries advice out, each second while handlers with a living context use the engine.
func (g *registry) adaptationTick(a *adaptation) {
	defer contain()
	if !g.stillAdapts(a) {
		return
	}
	defer g.tickAgain(a)
	a.turn.Lock()
	defer a.turn.Unlock()
	if !a.ended {
		a.proxy.Tick(g.unixNow(), guardNow(g.host))
	}
}

// tickAgain sets the timer of the next whole second of the clock: nodes whose clocks agree change a limit together.
func (g *registry) tickAgain(a *adaptation) {
	g.after(adviceEvery-time.Duration(g.unixNow()%1_000_000)*time.Microsecond, a.later)
}

// stillAdapts reports whether advice goes on; if not, it ends it.
func (g *registry) stillAdapts(a *adaptation) bool {
	g.advices.Lock()
	defer g.advices.Unlock()
	g.mu.Lock()
	e := g.engines[a.of]
	lives := e != nil && e.adaptation == a && e.living > 0
	g.mu.Unlock()
	if lives && a.running {
		return true
	}
	stopAdaptation(a)
	a.ticking = false
	return false
}

// adviceState returns the state of an engine's adaptable rules, and puts in force what it goes on with.
func (g *registry) adviceState(e *engine, before *advice.State) *advice.State {
	rules := g.adaptedRules(e)
	c := advice.StateConfig{PublicKey: e.advisor.Key, Advisor: e.advisor.Source.URL + " " + e.advisor.Source.Fleet, Applies: e.advisor.Apply}
	c.Rules = adaptive.SettingsOf(rules, e.advisor.Gates, e.advisor.WarmUp, func(label string, err error) {
		warn(e.name, fmt.Sprintf("advice cannot change the rule %q: %s", label, err))
	})
	return e.adaptation.proxy.Renew(c, rules, before, g.unixNow(), guardNow(g.host))
}

// adaptedRules returns the adaptable rules of an engine by label, with the guard of its middleware.
func (g *registry) adaptedRules(e *engine) map[string]*adaptive.Rule {
	g.mu.Lock()
	defer g.mu.Unlock()
	rules := make(map[string]*adaptive.Rule)
	set := e.inForce()
	var all []*adaptive.Instance
	all = append(all, e.instances...)
	all = append(all, set.instances...)
	for _, p := range all {
		label := labelOf(p.Rule.Limits.Own())
		r := rules[label]
		if r == nil {
			r = &adaptive.Rule{}
			rules[label] = r
		}
		r.Instances = append(r.Instances, p)
		if of := set.tracked[p.Rule.Name]; of != nil {
			r.Guards = append(r.Guards, adaptive.Watched{Guard: e.guard, Rule: of})
		}
	}
	return rules
}

// logAdapted logs a change of a limit, and writes it to the audit file.
func (g *registry) logAdapted(s *config.AdvisorSettings, middleware string, c adaptive.Change) {
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
		g.log(middleware, "advisor: the audit file cannot be written: "+err.Error())
	}
}
