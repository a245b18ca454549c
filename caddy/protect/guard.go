// Package protect has what keeps the service behind a handler up: its guard, and who answers what is refused.
package protect

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/pressure"
)

// Guard limits how many requests are under way to what the handler stands before, by how long that takes to begin its answers. A
// request over that limit gets a 503. Requests are turned away first whose keys ask for more than their fair share.
type Guard struct {
	// Sets this guard apart from those of other handlers; the default is the empty name. What a guard has learnt survives reloads
	// under its name. Handlers with guards of one name share it: they stand before the same service, and must define it alike.
	Name string `json:"name,omitempty"`

	// How many requests may be under way at most, whatever the service does. From 1 to 100000; the default is 100000.
	Max int `json:"max,omitempty"`

	// How many requests may be under way at least, however slow the service is. From 1 to max; the default is 8, or max where that is
	// less.
	Min int `json:"min,omitempty"`

	// Which requests are turned away last.
	Priority *GuardPriority `json:"priority,omitempty"`

	// Whether the guard limits keys that ask for more than ever, while it has to turn requests away: "on", the default, or "off".
	Tighten string `json:"tighten,omitempty"`

	// How much traffic the guard learns from before it does that. From 10s to 720h; the default is 24h.
	WarmUp caddy.Duration `json:"warm_up,omitempty"`

	// How busy the service is by another sign, which has the guard find a queue sooner. Alone it turns nobody away.
	Pressure *GuardPressure `json:"pressure,omitempty"`

	// Whether the guard turns nobody away, and only says in the log and in metrics whom it would.
	Shadow bool `json:"shadow,omitempty"`
}

// GuardPriority says which requests have priority: those whose text has one of the values.
type GuardPriority struct {
	// A text with placeholders.
	Source string `json:"source"`

	// The values of it that have priority.
	Values []string `json:"values"`
}

// settings returns the lines that a guard's block may have.
func (g *Guard) settings() []syntax.Setting {
	return []syntax.Setting{
		syntax.NumberTo("max", &g.Max, 1, front.MostUnderWay),
		syntax.NumberTo("min", &g.Min, 1, front.MostUnderWay),
		{Word: "priority", To: g.priority},
		syntax.WordTo("tighten", &g.Tighten, "on", "off"),
		syntax.DurationTo("warm_up", &g.WarmUp, "10s", "720h"),
		{Word: "pressure", To: g.readPressure},
		{Word: "shadow", To: &g.Shadow},
	}
}

func (g *Guard) priority(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 2 {
		return d.Err("guard: priority: takes a placeholder and the values of it that have priority, such as {header.X-Plan} gold")
	}
	g.Priority = &GuardPriority{Source: args[0], Values: args[1:]}
	return syntax.NoBlock(d, "guard: ", "priority")
}

// Read reads guard [<name>] [{ ... }].
func (g *Guard) Read(d *caddyfile.Dispenser) error {
	line := d.Token()
	if args := d.RemainingArgs(); len(args) > 1 {
		return d.Errf("guard: takes one name, not %q", args)
	} else if len(args) == 1 {
		g.Name = args[0]
	}
	if _, err := syntax.ReadBlock(d, "guard", g.settings(), nil); err != nil {
		return err
	}
	if err := g.Check(); err != nil {
		return syntax.ErrorAt(line, err)
	}
	return nil
}

// Check says what is wrong with the settings.
func (g *Guard) Check() error {
	if err := front.CheckGuard(g.Name, g.Max, g.Min); err != nil {
		return err
	}
	if _, err := front.GuardWarmUp(g.Tighten, time.Duration(g.WarmUp)); err != nil {
		return err
	}
	if _, err := g.Pressure.source(); err != nil {
		return err
	}
	if p := g.Priority; p != nil {
		t, err := syntax.NewValue(p.Source)
		if err != nil {
			return fmt.Errorf("guard: priority %q: %w", p.Source, err)
		}
		if err = front.CheckPriority(p.Source, p.Values, len(t.Sources) == 0, "a placeholder, such as {http.request.header.X-Plan}"); err != nil {
			return err
		}
		for _, value := range p.Values {
			if _, err = t.Source().Canonicalize(value); err != nil {
				return fmt.Errorf("guard: priority %q: %w", p.Source, err)
			}
		}
	}
	return nil
}

// Alike reports whether two guards of one name are the same.
func (g *Guard) Alike(other *Guard) bool {
	mine, _ := g.Pressure.source()
	theirs, _ := other.Pressure.source()
	if mine != theirs || g.Max != other.Max || g.Min != other.Min || g.Tighten != other.Tighten || g.WarmUp != other.WarmUp || g.Shadow != other.Shadow || (g.Priority == nil) != (other.Priority == nil) {
		return false
	}
	return g.Priority == nil || g.Priority.Source == other.Priority.Source && slices.Equal(g.Priority.Values, other.Priority.Values)
}

// config returns what the guard is configured by.
func (g *Guard) config() guard.Config {
	warmUp, _ := front.GuardWarmUp(g.Tighten, time.Duration(g.WarmUp))
	return guard.Config{Max: g.Max, Min: g.Min, WarmUp: warmUp, Shadow: g.Shadow}
}

// guards holds what guards have learnt, by namespace and name. It outlives reloads.
var guards = caddy.NewUsagePool()

// Guarded is the guard of a handler, ready.
type Guarded struct {
	*GuardState
	id       string
	priority *syntax.Template // nil: no request has priority
	values   map[string]bool
	config   guard.Config
	pressure pressure.Source
	jitter   float64 // of the waits of those who are turned away
	errors   *ErrorRoutes
	logger   *zap.Logger
}

// GuardState is what survives reloads.
type GuardState struct {
	*guard.Guard
	Label string
	alone *guard.Rule // of requests under no rule

	mu       sync.Mutex
	rules    map[string]*trackedRule // by label
	pressure *pressure.Watch         // nil: nobody is asked for it
}

// trackedRule is a rule whose demand a guard learns, for as many reporters as it has.
type trackedRule struct {
	*guard.Rule
	users int
}

func newGuardState(label string, c guard.Config) *GuardState {
	c.Seed = maphash.String(guardSeed, label)
	s := &GuardState{Guard: guard.New(c), Label: label, rules: make(map[string]*trackedRule)}
	s.alone = guard.Track(s.Guard, "")
	return s
}

// track returns what the guard knows of a rule, which the caller must untrack.
func (s *GuardState) track(label string) *guard.Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rules[label]
	if r == nil {
		r = &trackedRule{Rule: guard.Track(s.Guard, label)}
		s.rules[label] = r
	}
	r.users++
	return r.Rule
}

// Tracked returns what the guard knows of a rule that it tracks; nil: it tracks none of that label.
func (s *GuardState) Tracked(label string) *guard.Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rules[label]; r != nil {
		return r.Rule
	}
	return nil
}

func (s *GuardState) untrack(label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rules[label]
	if r.users--; r.users == 0 {
		guard.Untrack(s.Guard, r.Rule)
		delete(s.rules, label)
	}
}

// Each calls a function with each rule that requests came under, and with that of requests under none, in alphabetical order.
func (s *GuardState) Each(do func(label string, r *guard.Rule)) {
	s.mu.Lock()
	rules := maps.Clone(s.rules)
	s.mu.Unlock()
	do("", s.alone)
	for _, label := range slices.Sorted(maps.Keys(rules)) {
		do(label, rules[label].Rule)
	}
}

// addMetrics adds what the guard and its rules are at.
func (s *GuardState) addMetrics(p *metrics.Page) {
	at, now := guard.Look(s.Guard), GuardNow()
	metrics.AddGuard(p, s.Label, &at)
	metrics.AddPressure(p, s.Label, &at, s.Pressure(), now)
	s.Each(func(label string, r *guard.Rule) {
		of := guard.LookAt(r, now)
		metrics.AddDemand(p, s.Label, label, &of)
	})
}

// AddGuards adds what all guards are at.
func AddGuards(p *metrics.Page) {
	guards.Range(func(_, value any) bool {
		value.(*GuardState).addMetrics(p)
		return true
	})
}

// Destruct implements caddy.Destructor.
func (s *GuardState) Destruct() error {
	s.watch(pressure.Source{})
	return nil
}

var (
	guardSeed  = maphash.MakeSeed()
	guardBegun = time.Now() // by whose monotonic clock guards go
	GuardNow   = func() int64 { return time.Since(guardBegun).Microseconds() }
)

// New makes a guard ready, whose settings were checked.
func New(g *Guard, namespace string, jitter float64, errors *ErrorRoutes, logger *zap.Logger) (*Guarded, error) {
	label := g.Name
	if namespace != "" {
		label = namespace + "/" + g.Name
	}
	value, _, err := guards.LoadOrNew(label, func() (caddy.Destructor, error) {
		return newGuardState(label, g.config()), nil
	})
	if err != nil {
		return nil, err
	}
	made := &Guarded{GuardState: value.(*GuardState), id: label, config: g.config(), jitter: jitter, errors: errors, logger: logger}
	made.pressure, _ = g.Pressure.source() // which check has checked
	if p := g.Priority; p != nil {
		made.priority, _ = syntax.NewTemplate(p.Source)
		made.values = make(map[string]bool, len(p.Values))
		for _, v := range p.Values {
			spelt, _ := made.priority.Source().Canonicalize(v) // which check has checked
			made.values[spelt] = true
		}
	}
	return made, nil
}

// State returns what survives reloads; nil: there is no guard.
func (g *Guarded) State() *GuardState {
	if g == nil {
		return nil
	}
	return g.GuardState
}

// Learn has the guard learn the demand of a reporter's rule, until that is closed.
func (g *Guarded) Learn(r *report.Reporter) {
	if g != nil {
		r.Tracked = g.track(r.Stats.Label)
		r.Untrack = func() { g.untrack(r.Stats.Label) }
	}
}

// PutInForce has the bounds of the configuration hold, which others share until then: one that is refused changes nothing.
func (g *Guarded) PutInForce() {
	if g != nil {
		config := g.config
		config.Notify = g.logChange
		guard.Bound(g.Guard, config)
		g.watch(g.pressure)
	}
}

// logChange logs that the guard begins to limit requests, or stops.
func (g *Guarded) logChange(c guard.Change) {
	log, message := g.logger.Warn, "the guard begins to limit requests"
	if !c.Begins {
		log, message = g.logger.Info, "the guard stops limiting requests"
	}
	log(message, zap.String("guard", g.Label), zap.String("why", front.GuardChange(c)), zap.Int64("limit", c.Limit), zap.Int64("under_way", c.UnderWay), zap.Bool("shadow", c.Shadow), zap.Bool("pressure", c.Pressed))
}

// Leave undoes newGuarded.
func (g *Guarded) Leave() {
	if g != nil {
		_, _ = guards.Delete(g.id)
	}
}

// Asker is what the guard knows of a request before it is passed on.
type Asker struct {
	key  uint64      // sets the request's client apart from others
	rule *guard.Rule // the first that the request comes under, or that of requests under none
	over bool        // the client asks for more than ever, and for more than it gets now
	At   int64       // when; 0: it has waited since then
}

// Ask counts a request in the rules that it comes under. failed is whether their store has failed. The client is set apart by the key
// of the first of them, else by its address.
func (g *Guarded) Ask(q *front.Evaluation, r *http.Request, failed bool) (i Asker) {
	if g == nil {
		return i
	}
	now := GuardNow()
	i.At = now
	if len(q.Checks) == 0 {
		i.key, i.rule = maphash.String(guardSeed, front.GuardKey(syntax.ClientIPOf(r))), g.alone
		i.over = !guard.Ask(g.Guard, i.rule, i.key, now)
		return i
	}
	var part front.Part
	for at := range q.Checks {
		c := &q.Checks[at]
		front.PartOf(c, &q.Verdict, failed, &part)
		rule, key := report.Of(c).Tracked, maphash.String(guardSeed, c.Key)
		if i.rule == nil {
			i.key, i.rule = key, rule
		}
		i.over = !guard.Ask(g.Guard, rule, key, now) || i.over
		if part.Outcome == front.Rejected {
			guard.Reject(g.Guard, rule, key, now)
		}
	}
	return i
}

// overloaded is the error for error routes.
var overloaded = caddyhttp.HandlerError{StatusCode: http.StatusServiceUnavailable, Err: errors.New("the service is at its limit")}

// turnAway answers a request that the guard does not let through, or returns the error for the site's error routes.
func (g *Guarded) turnAway(w http.ResponseWriter, r *http.Request, why int64) error {
	after := front.GuardWait(why, g.jitter)
	if DispatchOf(r).TurnAway(after) {
		return ErrTurnedAway
	}
	header := w.Header()
	answer.SetRetryAfter(header, after)
	repl := syntax.ReplacerOf(r)
	repl.Set("http.rate_limit.guard.name", g.id)
	repl.Set("http.rate_limit.guard.retry_after", answer.RetrySeconds(after))
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if server != nil && server.Logs != nil {
		if extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
			extra.Set(zap.String("rate_limit_guard", front.GuardReason(why)))
		}
	}
	if g.errors.Take(r, server, overloaded) {
		return overloaded
	}
	front.Overloaded(w, r, after)
	return nil
}
