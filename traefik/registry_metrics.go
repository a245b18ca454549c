package traefik

import (
	"sort"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/regions"
)

// shownFor is how long the metrics still have engines that no handler with a living context uses, from when the next ones have been made. Traefik
// cancels the old handlers before it makes the new ones, so in between a middleware may have none.
const shownFor = 10 * time.Second

// meter gives the rules of a set their meters: existing ones, or new ones.
func (g *registry) meter(s *ruleSet) {
	s.meters = make(map[string]*metrics.Meter)
	s.enforced = true
	for _, r := range s.rules {
		limits := r.Ruled.Limits.Rules()
		if len(limits) == 0 {
			continue // it limits nothing
		}
		s.add(r.Ruled.Name, g.meterOf(limits[0]), r.Ruled.Limits.Own(), limits)
		one := s.series[len(s.series)-1]
		one.active = r.Ruled.Active
		if q := r.Ruled.Limits.Requested(); q != nil {
			one.of.Brings = true
			if q.Counts == nil { // an engine's own rules come with each new set
				q.Counts = one.of.Meter.Brought
			}
		}
	}
	if s.domain != nil {
		for _, r := range s.domain.Rules() {
			s.add(r.Name(), g.meterOf(r), r, []*core.Rule{r})
		}
	}
}

func (g *registry) meterOf(r *core.Rule) *metrics.Meter {
	label := labelOf(r)
	m := g.meters[label]
	if m == nil {
		m = metrics.NewMeter(label)
		g.meters[label] = m
	}
	return m
}

// forgetMeters removes the meters of rules that no configuration has any more.
func (g *registry) forgetMeters() {
	if len(g.meters) == 0 {
		return
	}
	kept := make(map[string]*metrics.Meter)
	for _, e := range g.engines {
		if e.counts {
			for _, one := range e.inForce().series {
				kept[one.of.Meter.Label] = one.of.Meter
			}
		}
	}
	for _, old := range g.leaving { // files may get these rules back
		for _, r := range old.rules {
			label := labelOf(r)
			if m := g.meters[label]; m != nil {
				kept[label] = m
			}
		}
	}
	g.meters = kept
}

// shown returns the engines whose metrics are shown: those of living handlers, the newest last, and before them those that ended a
// moment ago, if their middleware has no other yet.
func (g *registry) shown() []*engine {
	living := make(map[*engine]bool) // false: it ended a moment ago
	names := make(map[string]bool)   // of the middlewares that have a living one
	now := g.clock()
	for _, l := range g.leaving {
		if l.isShown(now) {
			for _, e := range l.engines {
				living[e] = false
			}
		}
	}
	for _, gen := range g.generations {
		for _, e := range gen.engines {
			living[e] = living[e] || gen.ctx.Err() == nil
			names[e.name] = names[e.name] || living[e]
		}
	}
	list := make([]*engine, 0, len(living))
	for e, lives := range living {
		if lives || !names[e.name] {
			list = append(list, e)
		}
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := list[i], list[j]
		if living[a] != living[b] {
			return living[b]
		}
		return a.number < b.number
	})
	return list
}

// isShown reports whether the metrics still have the engines of a generation that has ended.
func (l *leaving) isShown(now time.Duration) bool {
	return len(l.engines) > 0 && l.due(now)-lingering+shownFor > now
}

// listen starts serving the metrics on an address, unless they are served there already. middleware names the address, for the log.
func (g *registry) listen(address, middleware string) {
	if g.listeners[address] != nil {
		return
	}
	l := &metricsListener{
		address: address,
		pages:   &metricsPages{page: g.page},
		later:   func(f func()) { g.after(listenAgainAfter, f) },
		say:     func(text string) { warn(middleware, text) },
	}
	g.listeners[address] = l
	l.again = func() { go l.listen() }
	l.again()
}

// settle closes the listeners that no configuration names any more. While the next configuration is being made, it comes back.
func (g *registry) settle() {
	defer contain()
	list, again := g.unnamed()
	for _, l := range list {
		l.close()
	}
	if again {
		g.after(shownFor, g.settleLater)
	}
}

// unnamed removes from the registry the listeners that no configuration names any more, and returns them. again: there may be more of them later.
func (g *registry) unnamed() (list []*metricsListener, again bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock()
	named := make(map[string]bool)
	for _, e := range g.shown() {
		named[e.monitoring.Address] = true
	}
	for _, l := range g.leaving {
		again = again || l.isShown(now)
	}
	for address, l := range g.listeners {
		if !named[address] {
			delete(g.listeners, address)
			list = append(list, l)
		}
	}
	return list, again && len(g.listeners) > 0
}

// adviseMetrics warns once of middlewares that count although nothing serves the counts.
func (g *registry) adviseMetrics() {
	counts := false
	for _, e := range g.engines {
		counts = counts || e.counts
	}
	if !counts {
		return
	}
	list := g.shown()
	for _, e := range list {
		if e.monitoring.Address != "" || e.monitoring.Metrics != memory.NoPath {
			return
		}
	}
	for _, e := range list {
		if e.counts {
			g.log(e.name, "metrics has neither address nor path, nor has that of another middleware, so that nobody can read them; write one of the two")
		}
	}
}

// snapshot has the data that the metrics are written from.
type snapshot struct {
	rules           []*series       // by label
	breakers        map[string]bool // by the server's name: whether it is open
	memory          *memory.Store   // nil: there is none
	inMemory, redis bool            // there are rules that count there
	maxKeys         int
	evicted         int64
	leases          redis.LeaseStats
	syncs           redis.SyncStats
	regions         []regions.Stats
	divides         bool // a region lends units to others
	advised         []*engine
	guards          []*guardSeries // by name
}

// observe takes a snapshot.
func (g *registry) observe() *snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	store := g.memory
	s := &snapshot{memory: store, maxKeys: g.maxKeys, evicted: g.metrics.evicted, breakers: make(map[string]bool)}
	if store != nil {
		s.evicted += store.Stats().Evictions
	}
	s.leases.Add(g.metrics.leases)
	for _, shared := range g.redis {
		s.leases.Add(shared.store.LeaseStats())
		s.syncs.Add(shared.store.SyncStats())
		s.divides = s.divides || shared.divides != nil
		if shared.courier != nil {
			for _, peer := range shared.courier.Stores() {
				s.leases.Add(peer.LeaseStats())
			}
			s.regions = append(s.regions, shared.courier.Stats())
		}
	}
	found := make(map[*metrics.Meter]*series)
	shown := g.shown()
	s.guards = g.guardsOf(shown)
	for _, e := range shown {
		if !e.counts {
			continue
		}
		if e.adaptation != nil {
			s.advised = append(s.advised, e)
		}
		if e.shared != nil {
			s.redis = true
			for _, server := range e.shared.store.Servers() {
				s.breakers[server.Name] = s.breakers[server.Name] || server.Open
			}
		} else {
			s.inMemory = true
		}
		for _, one := range e.inForce().series {
			r := found[one.of.Meter]
			if r == nil {
				r = &series{}
				r.of.Meter = one.of.Meter
				found[one.of.Meter] = r
				s.rules = append(s.rules, r)
			}
			r.active = one.active
			r.of.Configured = one.of.Configured
			r.of.Candidate = r.of.Candidate || one.of.Candidate
			r.of.Blocks = r.of.Blocks || one.of.Blocks
			r.of.Measures = r.of.Measures || one.of.Measures
			r.of.Brings = r.of.Brings || one.of.Brings
			if e.shared == nil {
				r.inMemory = true
				r.limits = append(r.limits, one.activeRules()...)
			} else {
				r.inRedis = append(r.inRedis, one.activeRules()...)
			}
		}
	}
	rules := s.rules
	sort.Slice(rules, func(i, j int) bool { return rules[i].of.Meter.Label < rules[j].of.Meter.Label })
	return s
}

// writeMetrics returns the metrics of the process in Prometheus's text format, version 0.0.4.
func (g *registry) writeMetrics() []byte {
	s := g.observe()
	p := metrics.NewPage()
	now := time.Now().UnixMicro()
	leased := s.divides
	for _, r := range s.rules {
		r.look(s)
		metrics.AddRule(p, &r.of, now)
		leased = leased || r.of.Units != metrics.Absent
	}
	if s.inMemory {
		metrics.AddDecisions(p, "memory", g.metrics.memory)
	}
	if s.redis {
		metrics.AddDecisions(p, "redis", g.metrics.redis)
	}
	metrics.Each(p, metrics.StoreErrors, metrics.Read(g.metrics.failures))
	names := make([]string, 0, len(s.breakers))
	for name := range s.breakers {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		metrics.AddIf(p, metrics.BreakerOpen, s.breakers[name], name)
	}
	if leased {
		metrics.Each(p, metrics.LeaseRequests, s.leases.Requests())
		metrics.Each(p, metrics.LeaseCalls, s.leases.Calls())
	}
	if s.syncs.Used {
		metrics.Add(p, metrics.SyncAge, float64(s.syncs.Age)/1e6)
	}
	if heard := regions.Merge(s.regions); heard.Used {
		metrics.AddIf(p, metrics.RegionCourier, heard.Leads)
		metrics.AddIf(p, metrics.RegionsDiffer, heard.Differs)
		for _, r := range heard.Peers {
			metrics.AddRegion(p, r.Name, r.Age.Seconds(), r.Ahead.Seconds(), r.Cut, r.Units)
		}
	}
	metrics.Add(p, metrics.MaxKeys, float64(s.maxKeys))
	metrics.Add(p, metrics.Evictions, float64(s.evicted))
	metrics.AddAdvice(p, g.adviceNow(s.advised), g.unixNow())
	for _, one := range s.guards {
		addGuard(p, one, guardNow(g.host))
	}
	return text(p)
}

// adviceNow returns the advice of engines, as metrics show it; nothing of those that have not begun yet.
func (g *registry) adviceNow(engines []*engine) []metrics.Advice {
	g.advices.Lock()
	defer g.advices.Unlock()
	var list []metrics.Advice
	for _, e := range engines {
		a := e.adaptation
		if a.state == nil {
			continue
		}
		polls := a.polls
		if a.poller != nil {
			polls += a.poller.Health().Polls
		}
		list = append(list, metrics.Advice{State: a.state, Polls: polls, Applies: e.advisor.Apply})
	}
	return list
}
