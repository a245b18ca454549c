package traefik

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/transition"
	"github.com/proxyweir/weir/traefik/config"
)

// registry keeps the state that outlives the handlers which Traefik makes.
//
// On every change of its configuration Traefik cancels the context of the existing handlers, calls New again for each router, and lets the
// old handlers finish their requests. All handlers of one context are a generation. What a generation uses is released a while after the next
// one was made, unless a later one uses it too. So counters survive if a configuration stays the same, if the numbers of a limit
// change, since rules that count the same share their counters in the store, and if a middleware is away for a moment.
//
// Only two timers run in the background, while there is something for them to do: one releases what is no longer used, and one sweeps the
// memory.
type registry struct {
	*host

	// The callbacks of timers. They are made once, since in Yaegi a function that is made inside a timer's callback keeps all frames
	// before it in memory.
	expireLater, sweepLater, settleLater func()

	mu          sync.Mutex
	engines     map[string]*engine // by fingerprint
	indexes     indexes            // of the same engines
	generations map[<-chan struct{}]*generation
	begun       int64         // generations
	longest     time.Duration // that any has taken from its first handler to its last
	leaving     []*leaving    // in the order in which they left
	expiring    bool          // a timer for leaving is set
	sweeping    bool          // a timer to sweep memory is set
	nextSweep   time.Duration // not before that; only the timer's
	memory      *memory.Store // nil if there is no engine
	engineCount int           // of all that have been made
	redis       map[string]*sharedRedis

	guards map[string]*sharedGuard // by their names

	advices sync.Mutex // held while advice begins, ends, or gets other rules; never while mu is held

	meters    map[string]*metrics.Meter // by their labels
	listeners map[string]*metricsListener
	maxKeys   int // of the memory
}

// generation is what the handlers of one context use: those that Traefik makes of one configuration.
type generation struct {
	ctx     context.Context
	number  int64
	engines []*engine
	has     map[*engine]bool // the same
	ended   bool             // the context was cancelled
	making  int              // handlers that are being made
	first   time.Duration    // of the registry's clock: when the first was begun
	last    time.Duration    // and when the last was made
}

// leaving is in use only by earlier requests: the engines of a generation whose context was cancelled, or rules of files that have changed.
type leaving struct {
	until   time.Duration // of the registry's clock: when they may be released, if next says nothing else
	next    *generation   // the one after engines: until it is made, Traefik lets the old handlers serve; nil: none has begun
	engines []*engine
	rules   []*core.Rule
	active  map[string]*transition.Active // of the rules, by name
	limiter *core.Limiter                 // that of the rules
}

const sweepInterval = time.Minute

// process is the registry of the interpreter. Traefik has one interpreter for the plugin.
var process = newRegistry()

func newRegistry() *registry {
	g := &registry{
		host:        newHost(),
		engines:     make(map[string]*engine),
		indexes:     newIndexes(),
		generations: make(map[<-chan struct{}]*generation),
		redis:       make(map[string]*sharedRedis),
		guards:      make(map[string]*sharedGuard),
		meters:      make(map[string]*metrics.Meter),
		listeners:   make(map[string]*metricsListener),
	}
	g.page = &page{write: func() []byte { return g.writeMetrics() }}
	g.expireLater = func() { g.expire() }
	g.sweepLater = func() { g.sweep() }
	g.settleLater = func() { g.settle() }
	return g
}

// newHandler is New.
func (g *registry) newHandler(ctx context.Context, next http.Handler, given *config.Config, name string) (h http.Handler, err error) {
	defer func() {
		if p := recover(); p != nil {
			h = nil
			err = fmt.Errorf("middleware %q: the configuration made the plugin panic, which is a defect: %v", name, p)
		}
	}()
	if given == nil {
		given = &config.Config{}
	}
	gen := g.begin(ctx)
	defer g.made(gen)
	e, err := g.engineOf(gen, given, name)
	if err != nil {
		return nil, fmt.Errorf("middleware %q: %s", name, strings.Join(fewLines(strings.Split(err.Error(), "\n")), "; "))
	}
	g.advise(e)
	return withCORS(e, next), nil
}

// engineOf returns the engine of a middleware, for handlers of a generation: the existing one, or a new one.
func (g *registry) engineOf(gen *generation, given *config.Config, name string) (*engine, error) {
	if err := config.CheckFields(given); err != nil {
		return nil, err
	}
	store, err := config.ReadStore(given)
	if err != nil {
		return nil, err
	}
	advisor, err := config.ReadAdvisor(given.Advisor)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(given)
	if err != nil {
		return nil, err
	}
	digest := sha256.New()
	digest.Write([]byte(name + "\n"))
	digest.Write(text)
	if store.Redis != nil {
		digest.Write([]byte(store.Redis.Fingerprint)) // what was read from the environment and from files
	}
	if advisor != nil {
		digest.Write([]byte(advisor.Fingerprint))
	}
	fingerprint := string(digest.Sum(nil))

	if e := g.joined(gen, fingerprint); e != nil {
		return e, nil
	}
	// Without the lock: large files take an interpreter seconds.
	settings, err := config.Read(given, name)
	if err != nil {
		return nil, err
	}
	e, err := newEngine(settings, name)
	if err == nil {
		e.store = store
		err = g.readFiles(e)
	}
	if err != nil {
		return nil, err
	}
	e.fingerprint = fingerprint
	e.advisor = advisor
	e.host = g.host
	return g.taken(gen, e)
}

// taken opens a new engine, and has it join a generation. It returns the engine that was made for another router meanwhile, if there
// is one.
func (g *registry) taken(gen *generation, e *engine) (*engine, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if other := g.engines[e.fingerprint]; other != nil {
		g.join(gen, other)
		return other, nil
	}
	if err := g.open(e); err != nil {
		return nil, err
	}
	g.join(gen, e)
	return e, nil
}

// joined returns the existing engine, after it has joined a generation; nil if there is none.
func (g *registry) joined(gen *generation, fingerprint string) *engine {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.engines[fingerprint]
	if e != nil {
		g.followNewest(e) // it may take the place of its own successor
		g.join(gen, e)
	}
	return e
}

// open gives an engine its store, and opens its rules there.
func (g *registry) open(e *engine) error {
	if g.memory == nil {
		g.memory = memory.New(memory.Config{Index: memory.Mapped, Clock: g.wall})
	}
	store := g.memory // apart: in Yaegi a Store made of the field would change with the field
	e.memory = store
	e.limiter = core.NewLimiter(store)
	if e.store.Redis != nil {
		shared, err := g.acquireRedis(e.store.Redis, e.name)
		if err != nil {
			return err
		}
		e.shared = shared
		if shared.divides != nil {
			e.limiter = core.NewLimiter(shared.divides)
		} else {
			e.limiter = core.NewLimiter(shared.store)
		}
		e.limiter.OnRefusedLocally(shared.store)
		e.limiter.FallBack(store, e.store.Redis.Nodes)
		e.limiter.InRegion(e.store.Redis.Regions.Part())
	}
	if err := openRules(e.limiter, append(e.ownCore(), e.inForce().ofFiles...)); err != nil {
		g.releaseRedis(e.shared)
		return err
	}
	if e.cors != nil {
		if err := e.cors.Count(store, e.namespace); err != nil {
			return err
		}
	}
	if e.files != nil {
		e.advice = append(e.advice, adviceOf(e, e.inForce())...)
		g.watchFiles(e.files, e.fingerprint)
	}
	for _, text := range e.advice {
		g.log(e.name, text)
	}
	if e.counts {
		g.meter(e.inForce())
	}
	var noSet *ruleSet
	obeyExceptions(e, e.inForce(), noSet)
	g.takeGuard(e)
	g.takeAdvisor(e)
	g.followNewest(e) // apart: in Yaegi the store keeps all that this function has in variables, so engines would keep those before them
	g.indexes.compare(e, g.lives)
	g.engines[e.fingerprint] = e
	g.indexes.add(e)
	g.bound()
	if !g.sweeping {
		g.sweeping = true
		g.after(sweepInterval, g.sweepLater)
	}
	return nil
}

// close ends an engine. It returns its store if nobody else uses that any more.
func (g *registry) close(e *engine) *sharedRedis {
	delete(g.engines, e.fingerprint)
	g.indexes.remove(e)
	disregardExceptions(e, e.inForce())
	endTransitions(e.inForce().active(0))
	releaseRules(e.limiter, e.ownCore())
	releaseRules(e.limiter, e.inForce().ofFiles)
	if e.cors != nil { // in Yaegi a nil has no methods
		e.cors.Release()
	}
	if g.indexes.newestOf(e.name) == nil {
		g.forget(e.name)
	}
	if len(g.engines) == 0 {
		g.metrics.evicted += g.memory.Stats().Evictions
		g.memory = nil
	}
	g.bound()
	return g.releaseRedis(e.shared)
}

// bound sets how many keys the memory holds: the largest number that an engine with counters there asks for. An engine that
// sets none asks for the default, so that a small number of one middleware does not evict the keys of others.
func (g *registry) bound() {
	if g.memory == nil {
		return
	}
	most := g.indexes.mostKeys()
	g.memory.SetMaxKeys(most)
	g.maxKeys = most
	if most == 0 { // all counters are in Redis
		g.maxKeys = memory.DefaultMaxKeys
	}
}

// sweep removes keys that memory need not keep, and sets the timer again as long as there is an engine. Interpreted it takes some 50 µs for a
// key, so a memory of a million is swept less often: for at most one hundredth of the time.
func (g *registry) sweep() {
	defer contain()
	store := g.toSweep()
	if store == nil {
		return
	}
	defer g.after(sweepInterval, g.sweepLater)
	began := g.clock()
	if began < g.nextSweep {
		return
	}
	store.Sweep()
	now := g.clock()
	g.nextSweep = now + 100*(now-began)
}

// toSweep returns the memory, nil if nobody uses one any more. It also writes the reports that the log has once a minute.
func (g *registry) toSweep() *memory.Store {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweeping = len(g.engines) > 0
	g.reportShadows()
	g.adviseMetrics()
	store := g.memory
	return store
}

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
		g.watch(g.guards[e.guardSettings.Name], e.guardSettings.Pressure, e.name)
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
		endTransitions(l.active)
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

// line is one of the log's.
type line struct {
	middleware string
	message    string
	warns      bool // else it only informs
}

// reportShadows writes to the log what shadow rules would have rejected, and how candidates would have decided differently, since it
// was last called.
func (g *registry) reportShadows() {
	for _, l := range g.takeReports() {
		if l.warns {
			warn(l.middleware, l.message)
		} else {
			inform(l.middleware, l.message)
		}
	}
}

// takeReports returns the lines that reportShadows writes, and resets the counts.
func (g *registry) takeReports() []line {
	reports := make(map[string]*report)
	for _, e := range g.engines {
		e.inForce().addTo(reports, e.name)
	}
	order := make([]string, 0, len(reports))
	for id := range reports {
		order = append(order, id)
	}
	sort.Strings(order)
	var lines []line
	for _, id := range order {
		r := reports[id]
		if r.shadowed > 0 {
			lines = append(lines, line{r.middleware, fmt.Sprintf("rule %q, a shadow, would have rejected %d requests in the last minute", r.rule, r.shadowed), true})
		}
		if r.delayed > 0 {
			lines = append(lines, line{r.middleware, fmt.Sprintf("rule %q, a shadow, would have delayed %d requests in the last minute", r.rule, r.delayed), true})
		}
		if r.stricter+r.laxer > 0 {
			text := fmt.Sprintf("rule %q, of %d requests in the last minute: the candidate would have rejected %d that the limit allowed, and allowed %d that it rejected",
				r.rule, r.requests, r.stricter, r.laxer)
			lines = append(lines, line{r.middleware, text, false})
		}
	}
	return lines
}

// acquireRedis returns the store for these settings: the existing one, or a new one.
func (g *registry) acquireRedis(s *config.RedisSettings, middleware string) (*sharedRedis, error) {
	for _, text := range s.Advice() {
		g.log(middleware, text)
	}
	shared := g.redis[s.Fingerprint]
	if shared != nil {
		shared.uses++
		return shared, nil
	}
	shared, err := newSharedRedis(s, middleware, g.host)
	if err == nil {
		g.redis[s.Fingerprint] = shared
	}
	return shared, err
}

// releaseRedis ends one use of a store that acquireRedis began. It returns the store if nobody uses it any more: the caller must close it.
func (g *registry) releaseRedis(s *sharedRedis) *sharedRedis {
	if s == nil {
		return nil
	}
	s.uses--
	if s.uses > 0 {
		return nil
	}
	delete(g.redis, s.fingerprint)
	last := s.store.LeaseStats()
	if s.courier != nil {
		for _, peer := range s.courier.Stores() {
			last.Add(peer.LeaseStats())
		}
	}
	last.Units = 0
	last.Held = nil
	g.metrics.leases.Add(last)
	return s
}

// followNewest makes an engine the newest of its middleware, in the place of the one that was.
func (g *registry) followNewest(e *engine) {
	before := g.indexes.newestOf(e.name)
	if before == e {
		return
	}
	g.engineCount++
	e.number = g.engineCount
	if before != nil {
		e.adaptationBefore = before.adaptation
		continueLimits(e, e.inForce(), before.inForce(), e.shared == before.shared, handover+int64(g.longest/time.Microsecond))
	}
}

// lives reports whether an engine has handlers with a living context.
func (g *registry) lives(e *engine) bool {
	for _, gen := range g.generations {
		if gen.has[e] && gen.ctx.Err() == nil {
			return true
		}
	}
	return false
}
