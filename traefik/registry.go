package traefik

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/metrics"
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
	clock func() time.Duration        // since some time
	after func(time.Duration, func()) // runs a function later
	// For a request that waits: returns a context that ends after the wait, or with the given one, and its cancel function.
	pause func(context.Context, time.Duration) (context.Context, context.CancelFunc)
	wall  func() int64 // the memory's clock; nil: the wall clock
	near  func() int64 // the clock for what is remembered of Redis, which then also uses wall; nil: a monotonic one

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
	warned      map[string]map[string]bool // the warnings that are in the log already, by middleware

	guards map[string]*sharedGuard // by their names

	advices sync.Mutex // held while advice begins, ends, or gets other rules; never while mu is held

	metrics   *processMetrics
	page      *page
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
	limits  []*core.Limits // of the rules
	places  []*front.Place // the same
	limiter *core.Limiter  // that of the rules
}

// indexes find engines of the registry, so that a new one need not go over all of them: there may be thousands.
type indexes struct {
	middlewares map[string][]*engine // by the middleware's name
	guards      map[string][]*engine // by the name of their guard
	rules       map[string][]*engine // by the namespace and name of a rule, where the namespace is configured
	files       map[string][]*engine // by the digest of their rule files
	maxKeys     map[int]int          // how many ask for so many keys in memory
}

const sweepInterval = time.Minute

// process is the registry of the interpreter. Traefik has one interpreter for the plugin.
var process = newRegistry()

func newRegistry() *registry {
	started := time.Now()
	g := &registry{
		clock: func() time.Duration { return time.Since(started) },
		after: func(d time.Duration, f func()) { time.AfterFunc(d, f) },
		pause: func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, d)
		},
		engines:     make(map[string]*engine),
		indexes:     newIndexes(),
		generations: make(map[<-chan struct{}]*generation),
		redis:       make(map[string]*sharedRedis),
		warned:      make(map[string]map[string]bool),
		metrics:     newProcessMetrics(),
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
func (g *registry) newHandler(ctx context.Context, next http.Handler, given *Config, name string) (h http.Handler, err error) {
	defer func() {
		if p := recover(); p != nil {
			h = nil
			err = fmt.Errorf("middleware %q: the configuration made the plugin panic, which is a defect: %v", name, p)
		}
	}()
	if given == nil {
		given = CreateConfig()
	}
	gen := g.begin(ctx)
	defer g.made(gen)
	e, err := g.engineOf(gen, given, name)
	if err != nil {
		return nil, fmt.Errorf("middleware %q: %s", name, strings.Join(fewLines(strings.Split(err.Error(), "\n")), "; "))
	}
	g.advise(e)
	return fastPath(newHandler(e, next)), nil
}

// brief shortens a message that has a very long value.
func brief(message string) string {
	const most = 600
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most/2], "") + " … " + strings.ToValidUTF8(message[len(message)-most/2:], "")
}

// engineOf returns the engine of a middleware, for handlers of a generation: the existing one, or a new one.
func (g *registry) engineOf(gen *generation, given *Config, name string) (*engine, error) {
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
	e.registry = g
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
		e.limiter = core.NewLimiter(shared.store)
		e.limiter.FallBack(store, e.store.Redis.Nodes)
	}
	if err := openRules(e.limiter, append(e.ownCore(), e.inForce().ofFiles...)); err != nil {
		g.releaseRedis(e.shared)
		return err
	}
	if e.files != nil {
		e.advice = append(e.advice, adviceOf(e, e.inForce())...)
		g.watchFiles(e.files, e.fingerprint)
	}
	for _, text := range e.advice {
		g.say(e.name, text)
	}
	if e.counts {
		g.meter(e.inForce())
	}
	g.takeGuard(e)
	g.takeAdvisor(e)
	g.followNewest(e) // apart: in Yaegi the store keeps all that this function has in variables, so engines would keep those before them
	g.compare(e)
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
	closePlaces(e.places)
	closePlaces(e.inForce().places)
	endSwitches(e.limiter, e.inForce().allLimits(0))
	releaseRules(e.limiter, e.ownCore())
	releaseRules(e.limiter, e.inForce().ofFiles)
	if g.newestOf(e.name) == nil {
		delete(g.warned, e.name)
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

// warnOnce writes a line about a middleware to the log, unless it has been written since the middleware exists.
func (g *registry) warnOnce(middleware, message string) {
	g.mu.Lock()
	g.say(middleware, message)
	g.mu.Unlock()
}

// say is warnOnce for callers that hold the lock.
func (g *registry) say(middleware, message string) {
	said := g.warned[middleware]
	if said == nil {
		said = make(map[string]bool)
		g.warned[middleware] = said
	}
	already := said[message]
	said[message] = true
	if !already {
		warn(middleware, message)
	}
}

// contain keeps a panic in a goroutine of the plugin from ending Traefik.
func contain() {
	if p := recover(); p != nil {
		warn("", fmt.Sprintf("a panic, which is a defect: %v", p))
	}
}
