package storetest

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/transition"
)

// testSwitching: other limits come in the place of a rule's while requests come under it.
func testSwitching(t *testing.T, newStore NewStore) {
	eachPair(t, newStore, variants(), variants(), nobodyGainsByASwitch, blocksSurviveASwitch, penaltiesSurviveASwitch)
	t.Run("there and back", func(t *testing.T) { thereAndBack(newScene(t, newStore)) })
	t.Run("numbers", func(t *testing.T) { otherNumbers(newScene(t, newStore)) })
	t.Run("tiers", func(t *testing.T) { tiersSwitch(newScene(t, newStore)) })
	t.Run("twice", func(t *testing.T) { aPreviousLimitThatComesTwice(newScene(t, newStore)) })
	t.Run("shadow", func(t *testing.T) { shadowsStartAfresh(newScene(t, newStore)) })
	t.Run("reload", func(t *testing.T) { aReloadSwitches(newScene(t, newStore)) })
	t.Run("look", func(t *testing.T) { lookSeesBoth(newScene(t, newStore)) })
	policiesInTransition(t, newStore)
	t.Run("random", func(t *testing.T) { RunSwitches(t, newStore, times(300, 40)) })
}

// switched is a rule whose limits change.
type switched struct {
	*scene
	limiter *core.Limiter
	config  core.RuleConfig
	active  *transition.Active // at first of the first limit
}

// switching returns a rule that is open with a limit.
func (s *scene) switching(c core.RuleConfig, more core.MoreLimits) *switched {
	s.t.Helper()
	c.KeySpec = "client_ip"
	w := &switched{scene: s, limiter: core.NewLimiter(s.store), config: c}
	limits := w.made(c.Limit, more)
	if _, err := w.limiter.OpenAll(limits.Rules()); err != nil {
		s.t.Fatal(err)
	}
	w.active = transition.NewActive(limits)
	return w
}

// made returns limits.
func (w *switched) made(l *rate.Limit, more core.MoreLimits) *core.Limits {
	w.t.Helper()
	c := w.config
	c.Limit = l
	limits, err := core.NewLimits(c, more)
	if err != nil {
		w.t.Fatal(err)
	}
	return limits
}

// to switches to another limit.
func (w *switched) to(l *rate.Limit, more core.MoreLimits) {
	w.t.Helper()
	if err := w.active.Replace(w.limiter, w.made(l, more)); err != nil {
		w.t.Fatal(err)
	}
}

// close releases all that is open.
func (w *switched) close() {
	w.active.End()
	for _, r := range w.active.Configured().Rules() {
		w.limiter.Release(r)
	}
}

// checks returns the checks of a request, as adapters make them.
func (w *switched) checks(tier, key string) []core.Check {
	check := core.Check{Rule: w.active.Of(tier, key), Key: key, Cost: 1}
	if w.active.Generation != 0 {
		check.Previous = w.active.Previous(tier, key, check.Rule)
	}
	return []core.Check{check}
}

// parts looks at a key, and returns what is decided together with its rule.
func (w *switched) parts(tier, key string) []core.Check {
	w.t.Helper()
	checks := w.checks(tier, key)
	var v core.Verdict
	if err := w.limiter.Decide(checks, true, &v); err != nil {
		w.t.Fatal(err)
	}
	return checks[0].Parts()
}

// ask decides on a request, and returns the decision of its rule.
func (w *switched) ask(tier, key string) rate.Decision {
	w.t.Helper()
	checks := w.checks(tier, key)
	var v core.Verdict
	if err := w.limiter.Decide(checks, false, &v); err != nil {
		w.t.Fatal(err)
	}
	if v.Reported >= 0 && core.Reported(checks, &v).Rule.IsPrevious() {
		w.t.Fatalf("the verdict reports a previous rule: %+v", v)
	}
	if allowed := v.Outcome == core.Allow || v.Outcome == core.Delay; allowed != checks[0].Decision.Allowed {
		w.t.Fatalf("the verdict is %s, the decision %+v", v.Outcome, checks[0].Decision)
	}
	return checks[0].Decision
}

// all sends requests until one is rejected, and returns how many were allowed.
func (w *switched) all(tier, key string) int {
	w.t.Helper()
	n := 0
	for w.ask(tier, key).Allowed {
		n++
	}
	return n
}

// blocked waits until a key is blocked, which a store may do in the background.
func (w *switched) blocked(key string, at int64) rate.Decision {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		checks := []core.Check{{Rule: w.active.Of("", key), Key: key, Cost: 1}}
		if err := w.store.Decide(checks, true); err != nil {
			w.t.Fatal(err)
		}
		d := checks[0].Decision
		if !d.Allowed && w.clock.Now()+d.RetryAfter >= at {
			return d
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s is not blocked until %d, %d µs from now: %+v", key, at, at-w.clock.Now(), d)
		}
		time.Sleep(time.Millisecond)
	}
}

// unblock unblocks a key in all places where it may be blocked.
func (w *switched) unblock(key string) {
	w.t.Helper()
	for _, r := range append(w.active.PreviousRules(), w.active.Limits().Rules()...) {
		if err := w.limiter.Unblock(r, key); err != nil {
			w.t.Fatal(err)
		}
	}
}

// over waits until requests need not pass previous limits any more. A store may still look for blocked keys when their time is over.
func (w *switched) over() {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for w.ask("", "carol"); w.active.Changing() || len(w.active.PreviousRules()) > 0; w.ask("", "carol") {
		if time.Now().After(deadline) {
			w.t.Fatal("the transition goes on")
		}
		time.Sleep(time.Millisecond)
	}
}

func nobodyGainsByASwitch(s *scene, v, w variant) {
	x := s.switching(core.RuleConfig{Namespace: "gain", Name: "x", Limit: v.limit(s.t, 5, minute)}, core.MoreLimits{})
	used := x.all("", "alice")
	x.to(w.limit(s.t, 6, 2*minute), core.MoreLimits{})
	if !x.active.Changing() {
		s.t.Fatal("there is no transition")
	}
	if d := x.ask("", "alice"); d.Allowed || d.Limit != x.active.Of("", "").Limit.Quota || d.RetryAfter <= 0 {
		s.t.Fatalf("after %d requests and the switch: %+v", used, d)
	}
	if d := x.ask("", "bob"); !d.Allowed || d.Remaining > 5 || d.Delay > 0 {
		s.t.Fatalf("the first request of another client: %+v", d)
	}
	s.clock.Add(300 * minute) // the requests of a leaky bucket may wait for an hour
	x.over()
	if got := x.all("", "alice"); got == 0 {
		s.t.Fatal("nothing is allowed after the transition")
	}
	x.close()
}

func blocksSurviveASwitch(s *scene, v, w variant) {
	x := s.switching(core.RuleConfig{Namespace: "block", Name: "x", Limit: v.limit(s.t, 5, minute)}, core.MoreLimits{})
	until := s.clock.Now() + 600*minute
	for _, key := range []string{"mallory", "trudy"} {
		if err := x.limiter.Block(x.active.Configured().Own(), key, 600*minute); err != nil {
			s.t.Fatal(err)
		}
	}
	x.to(w.limit(s.t, 5, 2*minute), core.MoreLimits{})
	x.blocked("mallory", until) // under the new rule alone
	x.blocked("trudy", until)
	x.unblock("trudy")
	if d := x.ask("", "trudy"); !d.Allowed {
		s.t.Fatalf("unblocked in the transition: %+v", d)
	}
	s.clock.Add(300 * minute)
	x.over()
	if d := x.ask("", "mallory"); d.Allowed || d.RetryAfter != 300*minute {
		s.t.Fatalf("when the transition is over: %+v; want a block of 300 minutes", d)
	}
	if d := x.ask("", "trudy"); !d.Allowed {
		s.t.Fatalf("unblocked in the transition, and blocked again when it is over: %+v", d)
	}
	x.unblock("mallory")
	if d := x.ask("", "mallory"); !d.Allowed {
		s.t.Fatalf("unblocked: %+v", d)
	}
	x.close()
}

func penaltiesSurviveASwitch(s *scene, v, w variant) {
	penalties := core.OverflowPolicy{Penalties: []time.Duration{time.Hour, 3 * time.Hour}}
	if v.algorithm == rate.LeakyBucket || w.algorithm == rate.LeakyBucket {
		return // nothing is said of it that is not said of the others, and its requests wait
	}
	x := s.switching(core.RuleConfig{Namespace: "penalty", Name: "x", Limit: v.limit(s.t, 5, minute), OverflowPolicy: penalties}, core.MoreLimits{})
	x.all("", "mallory")
	until := s.clock.Now() + 60*minute
	x.to(w.limit(s.t, 5, 2*minute), core.MoreLimits{})
	x.blocked("mallory", until)
	s.clock.Add(10 * minute)
	x.over()
	if d := x.ask("", "mallory"); d.Allowed || d.RetryAfter != 50*minute || d.Penalty {
		s.t.Fatalf("when the transition is over: %+v; want a penalty of 50 minutes more", d)
	}
	s.clock.Add(51 * minute)
	if got := x.all("", "mallory"); got == 0 {
		s.t.Fatal("the penalty goes on")
	}
	if d := x.ask("", "mallory"); d.RetryAfter != 180*minute {
		s.t.Fatalf("the second offence: %+v; want 3 hours", d)
	}
	x.to(v.limit(s.t, 6, minute), core.MoreLimits{})
	x.all("", "fresh")
	x.to(w.limit(s.t, 7, minute), core.MoreLimits{})
	if d := x.ask("", "fresh"); d.Allowed {
		s.t.Fatalf("what the previous limit rejects: %+v", d)
	}
	x.close()
}

func thereAndBack(s *scene) {
	a := variant{"token_bucket", rate.TokenBucket, false, rate.ByClock}
	b := variant{"fixed_window", rate.FixedWindow, false, rate.ByClock}
	x := s.switching(core.RuleConfig{Namespace: "back", Name: "x", Limit: a.limit(s.t, 5, minute)}, core.MoreLimits{})
	if got := x.all("", "alice"); got != 5 {
		s.t.Fatalf("%d were allowed", got)
	}
	x.to(b.limit(s.t, 5, minute), core.MoreLimits{})
	s.clock.Add(12 * second)
	if d := x.ask("", "alice"); !d.Allowed { // one has drained
		s.t.Fatalf("12 s after: %+v", d)
	}
	x.to(a.limit(s.t, 6, minute), core.MoreLimits{})
	if got := x.all("", "alice"); got != 1 { // the larger burst
		s.t.Fatalf("back again, %d were allowed, want 1", got)
	}
	if got := len(x.active.PreviousRules()); got != 1 {
		s.t.Fatalf("%d previous rules, want 1: that of the window", got)
	}
	if err := x.active.Replace(x.limiter, x.active.Configured()); err != nil { // the first limits themselves
		s.t.Fatal(err)
	}
	if x.active.Limits() != x.active.Configured() || x.ask("", "alice").Allowed {
		s.t.Fatal("the first limits are not in force")
	}
	s.clock.Add(5 * minute)
	x.over()
	if x.active.Generation != 0 {
		s.t.Fatal("the first limits are in force alone, and requests look for others")
	}
	x.close()
}

// otherNumbers plays advice, which changes a limit at run time every 30 seconds: nothing else changes, and nobody starts afresh.
func otherNumbers(s *scene) {
	a := variant{"sliding_window_counter", rate.SlidingWindowCounter, false, rate.ByClock}
	x := s.switching(core.RuleConfig{Namespace: "advice", Name: "x", Limit: a.limit(s.t, 10, minute), Concurrency: 50}, core.MoreLimits{})
	x.active.Configured().Own().Note("noted")
	used := int64(0)
	for _, requests := range []int64{12, 15, 12, 8, 14} {
		x.to(a.limit(s.t, requests, minute), core.MoreLimits{})
		d := x.ask("", "alice")
		used++
		if !d.Allowed || d.Limit != requests || d.Remaining != requests-used {
			s.t.Fatalf("%d a minute, after %d requests: %+v", requests, used, d)
		}
		if x.active.Changing() || len(x.parts("", "alice")) != 1 || x.active.Of("", "").Noted() != "noted" || x.active.Configured().Own().Limit.Requests != 10 {
			s.t.Fatal("more than a number has changed")
		}
		s.clock.Add(second)
	}
	b := variant{"token_bucket", rate.TokenBucket, false, rate.ByClock}
	x.to(b.limit(s.t, 20, minute), core.MoreLimits{})
	if got := x.all("", "alice"); got != 9 { // those that the counter had left
		s.t.Fatalf("another algorithm: %d were allowed, want 9", got)
	}
	x.close()
}

func tiersSwitch(s *scene) {
	a := variant{"token_bucket", rate.TokenBucket, false, rate.ByClock}
	b := variant{"sliding_window_log", rate.SlidingWindowLog, false, rate.ByClock}
	c := variant{"fixed_window", rate.FixedWindow, false, rate.ByClock}
	x := s.switching(core.RuleConfig{Namespace: "tiers", Name: "x", Limit: a.limit(s.t, 2, minute)}, core.MoreLimits{
		Tiers:     map[string]*rate.Limit{"gold": a.limit(s.t, 4, minute), "free": nil, "same": c.limit(s.t, 3, minute)},
		Overrides: map[string]*rate.Limit{"vip": b.limit(s.t, 5, minute)},
	})
	for _, one := range []struct {
		tier, key string
		want      int
	}{{"", "alice", 2}, {"gold", "bob", 4}, {"same", "carol", 3}, {"", "vip", 5}, {"gold", "vip", 0}} {
		if got := x.all(one.tier, one.key); got != one.want {
			s.t.Fatalf("%s of tier %q: %d, want %d", one.key, one.tier, got, one.want)
		}
	}
	x.to(b.limit(s.t, 10, minute), core.MoreLimits{
		Tiers:     map[string]*rate.Limit{"gold": b.limit(s.t, 20, minute), "free": a.limit(s.t, 3, minute), "same": c.limit(s.t, 4, minute)},
		Overrides: map[string]*rate.Limit{"bob": a.limit(s.t, 9, minute)},
	})
	for _, one := range []struct {
		tier, key string
		want      int
	}{{"", "alice", 0}, {"same", "carol", 1}, {"free", "dave", 3}, {"gold", "eve", 4}, {"", "vip", 5}, {"gold", "bob", 5}} {
		if got := x.all(one.tier, one.key); got != one.want {
			s.t.Fatalf("after the switch, %s of tier %q: %d, want %d", one.key, one.tier, got, one.want)
		}
	}
	x.close()
}

// aPreviousLimitThatComesTwice: two previous limits count in the same place for those without a tier, who are charged there once.
func aPreviousLimitThatComesTwice(s *scene) {
	a := variant{"token_bucket", rate.TokenBucket, false, rate.ByClock}.limit(s.t, 5, minute)
	b := variant{"fixed_window", rate.FixedWindow, false, rate.ByClock}.limit(s.t, 9, minute)
	c := variant{"sliding_window_log", rate.SlidingWindowLog, false, rate.ByClock}.limit(s.t, 9, minute)
	gold := func(l *rate.Limit) core.MoreLimits { return core.MoreLimits{Tiers: map[string]*rate.Limit{"gold": l}} }
	x := s.switching(core.RuleConfig{Namespace: "twice", Name: "x", Limit: a}, gold(b))
	x.to(b, gold(b))
	x.to(a, gold(c))
	x.to(b, gold(b))
	if d := x.ask("", "alice"); !d.Allowed || d.Remaining != 4 {
		s.t.Fatalf("the first request: %+v, want 4 left of the previous limit", d)
	}
	if got := len(x.parts("", "alice")); got != 1 {
		s.t.Fatalf("%d previous limits, want 1", got)
	}
	x.close()
}

func shadowsStartAfresh(s *scene) {
	a := variant{"token_bucket", rate.TokenBucket, false, rate.ByClock}
	b := variant{"fixed_window", rate.FixedWindow, false, rate.ByClock}
	x := s.switching(core.RuleConfig{Namespace: "shadow", Name: "x", Limit: a.limit(s.t, 2, minute), Shadow: true}, core.MoreLimits{})
	x.to(b.limit(s.t, 3, minute), core.MoreLimits{})
	if x.active.Changing() {
		s.t.Fatal("a shadow, which has limited nobody, has a transition")
	}
	x.close()
}

// aReloadSwitches plays a reload: limits of a new configuration go on where those of an old one are, which are released then.
func aReloadSwitches(s *scene) {
	a := variant{"token_bucket", rate.TokenBucket, false, rate.ByClock}
	b := variant{"fixed_window", rate.FixedWindow, false, rate.ByClock}
	x := s.switching(core.RuleConfig{Namespace: "reload", Name: "x", Limit: a.limit(s.t, 5, minute)}, core.MoreLimits{})
	x.all("", "alice")
	for i, l := range []*rate.Limit{b.limit(s.t, 7, minute), b.limit(s.t, 8, minute), a.limit(s.t, 4, 2*minute)} {
		y := s.switching(core.RuleConfig{Namespace: "reload", Name: "x", Limit: l}, core.MoreLimits{})
		for _, begins := range []string{"when it is loaded", "when it serves alone"} {
			change, err := y.active.Continue(y.limiter, x.active, 0)
			if err != nil || change.Lasts > 0 != (i != 1) {
				s.t.Fatalf("reload %d, %s: %+v, %v", i, begins, change, err)
			}
			if y.ask("", "alice").Allowed {
				s.t.Fatalf("reload %d, %s: a client has gained by it", i, begins)
			}
		}
		x.close()
		x = y
		s.clock.Add(second)
	}
	if got := len(x.active.PreviousRules()); got != 2 {
		s.t.Fatalf("%d previous rules after two transitions, want 2", got)
	}
	s.clock.Add(30 * minute)
	x.over()
	if got := x.all("", "alice"); got != 4 {
		s.t.Fatalf("when all transitions are over: %d, want 4", got)
	}
	z := s.switching(core.RuleConfig{Namespace: "reload", Name: "x", Limit: b.limit(s.t, 8, minute)}, core.MoreLimits{})
	if change, err := z.active.Continue(z.limiter, x.active, 0); err != nil || change.Lasts == 0 {
		s.t.Fatal(change, err)
	}
	z.close()
	x.close()
}

func lookSeesBoth(s *scene) {
	a := variant{"token_bucket", rate.TokenBucket, false, rate.ByClock}
	b := variant{"fixed_window", rate.FixedWindow, false, rate.ByClock}
	x := s.switching(core.RuleConfig{Namespace: "look", Name: "x", Limit: a.limit(s.t, 5, minute)}, core.MoreLimits{})
	x.ask("", "alice")
	x.ask("", "alice")
	x.to(b.limit(s.t, 10, minute), core.MoreLimits{})
	x.ask("", "alice")
	checks := x.checks("", "alice")
	var v core.Verdict
	if err := x.limiter.Look(checks, &v); err != nil {
		s.t.Fatal(err)
	}
	if d := checks[0].Decision; len(checks[0].Parts()) != 1 || !d.Allowed || d.Limit != 10 || d.Remaining != 2 {
		s.t.Fatalf("%d previous limits, %+v; want 2 of 10 left", len(checks[0].Parts()), d)
	}
	x.close()
}

// RunSwitches makes that many random switches of algorithm, numbers, period and burst, one after the other, while greedy clients
// come: at random, and in bursts just before and after the switches and the ends of windows. It fails if one client is allowed
// more within some time than the largest of the bounds of the limits that it has met. The time is at most the one for which a
// transition lasts.
func RunSwitches(t *testing.T, newStore NewStore, switches int) {
	s := newScene(t, newStore)
	g := &greedy{rand: rand.New(rand.NewSource(int64(switches)))}
	g.switched = s.switching(core.RuleConfig{Namespace: "random", Name: "x", Limit: g.limit(t)}, core.MoreLimits{})
	s.clock.Add(g.rand.Int63n(minute))
	for i := 0; i < switches; i++ {
		if i%4 == 0 {
			g.begin(i)
		}
		g.play()
		l := g.limit(t)
		before := g.active.Limits()
		g.to(l, core.MoreLimits{})
		if before.Own().Identity != g.active.Limits().Own().Identity {
			if lasts := longer(promise(before.Own().Limit), promise(l)); g.longest == 0 || lasts < g.longest {
				g.longest = lasts
			}
		}
		g.met = append(g.met, l)
		g.burst(g.rand.Int63n(8))
		if i%4 == 3 {
			g.play()
			g.check()
		}
	}
	g.close()
}

// promise returns the longest time for which a limit promises something: a transition lasts as long.
func promise(l *rate.Limit) int64 {
	if !l.IsBucket {
		return l.Period
	}
	return longer(l.Period, l.Capacity*l.Period/l.Requests)
}

func longer(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}

// greedy is a client that takes what it gets.
type greedy struct {
	*switched
	rand    *rand.Rand
	key     string
	allowed []int64 // when
	met     []*rate.Limit
	longest int64 // the shortest time for which a transition has lasted since the client came; 0: there was none
}

// limit returns a random limit.
func (g *greedy) limit(t *testing.T) *rate.Limit {
	requests := 1 + g.rand.Int63n(6)
	period := (1 + g.rand.Int63n(3)) * 20 * second
	list := withOwnWindows()
	v := list[g.rand.Intn(len(list))]
	c := rate.LimitConfig{Algorithm: v.algorithm, Interval: v.interval, Start: v.start, Requests: requests, Period: time.Duration(period) * time.Microsecond}
	if c.Algorithm == rate.TokenBucket || c.Algorithm == rate.LeakyBucket {
		c.Burst = 1 + g.rand.Int63n(2*requests)
	}
	l, err := rate.NewLimit(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// begin begins with another client.
func (g *greedy) begin(i int) {
	g.key = fmt.Sprintf("client %d", i)
	g.allowed = g.allowed[:0]
	g.met = append(g.met[:0], g.active.Limits().Own().Limit)
	g.longest = 0
}

// play lets some time pass, in which the client comes.
func (g *greedy) play() {
	period := g.active.Limits().Own().Limit.Period
	for n := 1 + g.rand.Intn(4); n > 0; n-- {
		now := g.clock.Now()
		switch g.rand.Intn(4) {
		case 0: // just before or after the end of a window
			g.clock.Set(now + period - now%period - 1 + g.rand.Int63n(2))
		case 1:
			g.clock.Add(g.rand.Int63n(period))
		case 2:
			g.clock.Add(g.rand.Int63n(period / 8))
		case 3:
			g.clock.Add(1)
		}
		g.burst(1 + g.rand.Int63n(8))
	}
}

// burst sends some requests at once, until one is rejected.
func (g *greedy) burst(n int64) {
	for ; n > 0; n-- {
		if !g.ask("", g.key).Allowed {
			return
		}
		g.allowed = append(g.allowed, g.clock.Now())
	}
}

// check fails if the client was allowed more than any limit promises, within a period of one of them or within the longest time.
func (g *greedy) check() {
	times := []int64{g.longest}
	for _, l := range g.met {
		times = append(times, l.Period)
	}
	for _, within := range times {
		if within == 0 || within > g.longest {
			continue
		}
		most := int64(0)
		for _, l := range g.met {
			if b := bound(l, within); b > most {
				most = b
			}
		}
		first := 0
		for i := range g.allowed {
			for g.allowed[i]-g.allowed[first] >= within {
				first++
			}
			if n := int64(i - first + 1); n > most {
				g.t.Fatalf("%s was allowed %d requests within %d µs, up to %d; the largest bound of %v is %d", g.key, n, within, g.allowed[i], g.met, most)
			}
		}
	}
}

// bound returns how many requests a limit allows at most within less than so many microseconds, by what its algorithm promises.
func bound(l *rate.Limit, within int64) int64 {
	periods := (within + l.Period - 1) / l.Period
	switch {
	case l.Interval():
		return l.Capacity + periods*l.Requests
	case l.IsBucket:
		return l.Capacity + within*l.Requests/l.Period
	case l.Algorithm == rate.SlidingWindowLog:
		return periods * l.Requests
	}
	return (periods + 1) * l.Requests // windows that overlap that time
}

// policiesInTransition: what the previous limit does besides rejecting goes on as it was.
func policiesInTransition(t *testing.T, newStore NewStore) {
	a := variant{"token_bucket", rate.TokenBucket, false, rate.ByClock}
	b := variant{"sliding_window_log", rate.SlidingWindowLog, false, rate.ByClock}
	c := variant{"fixed_window", rate.FixedWindow, false, rate.ByClock}
	t.Run("soft", func(t *testing.T) {
		s := newScene(t, newStore)
		x := s.switching(core.RuleConfig{Namespace: "soft", Name: "x", Limit: a.limit(t, 2, minute), OverflowPolicy: core.OverflowPolicy{SoftPercent: 100, SoftFor: time.Hour}}, core.MoreLimits{})
		for i := 0; i < 3; i++ {
			x.ask("", "alice")
		}
		x.config.OverflowPolicy = core.OverflowPolicy{}
		x.to(b.limit(t, 10, minute), core.MoreLimits{})
		if d := x.ask("", "alice"); !d.Allowed || !d.Soft {
			t.Fatalf("the fourth request, by the previous limit's tolerance: %+v", d)
		}
		s.no("the fifth", x.ask("", "alice"), 0)
		x.close()
	})
	t.Run("count", func(t *testing.T) {
		s := newScene(t, newStore)
		x := s.switching(core.RuleConfig{Namespace: "count", Name: "x", Limit: a.limit(t, 3, minute), OverflowPolicy: core.OverflowPolicy{Count: statuses(t, "401")}}, core.MoreLimits{})
		finish := func(status int) {
			t.Helper()
			checks := x.checks("", "alice")
			var v core.Verdict
			if err := x.limiter.Decide(checks, false, &v); err != nil || v.Outcome != core.Allow || !v.Reserved {
				t.Fatalf("%+v, %v", v, err)
			}
			if err := x.limiter.Finish(core.AppendReservations(nil, checks), status); err != nil {
				t.Fatal(err)
			}
		}
		finish(401)
		finish(401)
		finish(200)
		x.config.OverflowPolicy = core.OverflowPolicy{}
		x.to(b.limit(t, 4, minute), core.MoreLimits{}) // which counts all
		finish(200)
		finish(200)
		finish(401)
		if d := x.ask("", "alice"); d.Allowed || d.Remaining != 0 {
			t.Fatalf("after three requests with 401: %+v", d)
		}
		x.close()
	})
	t.Run("delay", func(t *testing.T) {
		s := newScene(t, newStore)
		x := s.switching(core.RuleConfig{Namespace: "delay", Name: "x", Limit: a.delaying(t, 1, minute, 10*minute)}, core.MoreLimits{})
		for i := int64(0); i < 3; i++ {
			if d := x.ask("", "alice"); !d.Allowed || d.Delay != i*minute {
				t.Fatalf("request %d: %+v", i, d)
			}
		}
		x.to(c.delaying(t, 2, minute, 10*minute), core.MoreLimits{})
		if d := x.ask("", "alice"); !d.Allowed || d.Delay != 3*minute {
			t.Fatalf("the first under both: %+v; want a delay of 3 minutes, behind those that wait", d)
		}
		if got := x.active.Of("", "").Waiting(); got != 3 {
			t.Fatalf("%d requests wait, want 3", got)
		}
		x.to(b.limit(t, 100, minute), core.MoreLimits{}) // rejects
		d := x.ask("", "alice")
		s.no("under a limit that delays none", d, 0)
		if d.Delay != 0 || d.RetryAfter != 4*minute {
			t.Fatalf("%+v; want a wait of 4 minutes", d)
		}
		s.clock.Add(4 * minute)
		s.yes("when those that wait have left", x.ask("", "alice"), whatever)
		s.no("one more", x.ask("", "alice"), whatever)
		x.close()
	})
	t.Run("queue", func(t *testing.T) {
		s := newScene(t, newStore)
		x := s.switching(core.RuleConfig{Namespace: "queue", Name: "x", Limit: variant{"leaky_bucket", rate.LeakyBucket, false, rate.ByClock}.limit(t, 5, minute)}, core.MoreLimits{})
		x.ask("", "alice")
		x.to(b.limit(t, 100, minute), core.MoreLimits{})
		if d := x.ask("", "alice"); !d.Allowed || d.Delay != 12*second {
			t.Fatalf("%+v; want a delay of 12 s by the previous limit", d)
		}
		x.close()
	})
	t.Run("candidate and concurrency", func(t *testing.T) {
		s := newScene(t, newStore)
		x := s.switching(core.RuleConfig{Namespace: "beside", Name: "x", Limit: a.limit(t, 2, minute), Candidate: c.limit(t, 5, minute), Concurrency: 9}, core.MoreLimits{})
		x.all("", "alice")
		x.to(b.limit(t, 3, minute), core.MoreLimits{})
		checks := x.checks("", "alice")
		var v core.Verdict
		if err := x.limiter.Decide(checks, false, &v); err != nil {
			t.Fatal(err)
		}
		asked := &checks[0]
		if len(asked.Parts()) != 3 || asked.Candidate == nil || asked.InFlight == nil || !asked.Parts()[2].Rule.IsPrevious() {
			t.Fatalf("the parts are %+v", asked.Parts())
		}
		if v.Outcome != core.Reject || v.Reported != 0 || v.InFlight || asked.Decision.Allowed || !asked.Candidate.Decision.Allowed || !asked.InFlight.Decision.Allowed {
			t.Fatalf("%+v; the candidate %+v", v, asked.Candidate.Decision)
		}
		if got := asked.InFlight.Decision.Remaining; got != 7 { // of the two that were allowed
			t.Fatalf("%d places are left, want 7", got)
		}
		x.close()
	})
	t.Run("rejected requests", func(t *testing.T) {
		s := newScene(t, newStore)
		x := s.switching(core.RuleConfig{Namespace: "rejected", Name: "x", Limit: c.limit(t, 2, minute), CountRejected: true}, core.MoreLimits{})
		x.all("", "alice")
		x.to(b.limit(t, 3, minute), core.MoreLimits{})
		s.no("the first after the switch", x.ask("", "alice"), 0)
		s.clock.Add(41 * second) // the next window
		if got := x.all("", "alice"); got != 2 {
			t.Fatalf("%d were allowed in the next window, want 2", got)
		}
		x.close()
	})
}
