package storetest

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/proxyweir/weir/core"
)

// testInFlight: of a limit of requests in flight each key has at most so many under way, from the decision until they are settled.
func testInFlight(t *testing.T, newStore func(t *testing.T, clock *Clock) core.Store) {
	s := newScene(t, newStore)
	for _, part := range []struct {
		name string
		play func(s *scene)
	}{
		{"places", placesAreFreeWhenRequestsEnd},
		{"cost", costsTakeOnePlace},
		{"another rule rejects", anotherRulesRejectionTakesNoPlace},
		{"peeks", peeksTakeNoPlace},
		{"shadow", aShadowCountsPlacesAndRejectsNobody},
		{"all at once", aCrowdInFlight},
	} {
		t.Run(part.name, func(t *testing.T) {
			s.t = t
			part.play(s)
		})
	}
	for _, v := range variants() {
		t.Run("beside "+v.name, func(t *testing.T) {
			s.t = t
			placesBesideALimit(s, v)
		})
	}
}

func (s *scene) inFlight(n int64) *core.Limit {
	s.t.Helper()
	l, err := core.NewConcurrency(n)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func placesAreFreeWhenRequestsEnd(s *scene) {
	s.t.Helper()
	r := s.open(core.RuleConfig{Name: "places", Limit: s.inFlight(3)})
	full := core.Decision{Limit: 3, RetryAfter: second}
	var holds [][]core.Hold
	for i := int64(0); i < 3; i++ {
		d, h := s.hold(r, "alice", 1)
		s.is("a place", d, core.Decision{Allowed: true, Limit: 3, Remaining: 2 - i})
		if len(h) != 1 || h[0].Ticket == 0 {
			s.t.Fatalf("it holds %+v", h)
		}
		holds = append(holds, h)
	}
	d, none := s.hold(r, "alice", 1)
	s.is("the fourth", d, full)
	if len(none) != 0 {
		s.t.Fatalf("a rejected request holds %+v", none)
	}
	s.clock.Add(10 * second) // a place is taken for as long as the request lasts
	s.is("the fourth, later", s.take(r, "alice", 1), full)
	s.held(r, "bob", 1)
	s.settle(holds[1], false)
	holds[1] = s.held(r, "alice", 1)
	s.is("a place taken again", s.take(r, "alice", 1), full)
	for i := int64(0); i < 3; i++ {
		s.settle(holds[i], false)
		s.is("a place given back", s.peek(r, "alice", 1), core.Decision{Allowed: true, Limit: 3, Remaining: i})
	}
	s.is("where none is under way, of another key", s.peek(r, "bob", 1), core.Decision{Allowed: true, Limit: 3, Remaining: 1})
}

func costsTakeOnePlace(s *scene) {
	s.t.Helper()
	r := s.open(core.RuleConfig{Name: "cost", Limit: s.inFlight(2)})
	dear := s.held(r, "alice", 100)
	s.is("beside a dear one", s.peek(r, "alice", 1_000_000), core.Decision{Allowed: true, Limit: 2})
	s.settle(dear, false)
	s.is("after it", s.peek(r, "alice", 1), core.Decision{Allowed: true, Limit: 2, Remaining: 1})
	s.is("what no limit can hold", s.take(r, "alice", core.Unaffordable), core.Decision{Limit: 2, RetryAfter: core.Never})
}

func anotherRulesRejectionTakesNoPlace(s *scene) {
	s.t.Helper()
	for _, v := range variants() {
		r := s.open(core.RuleConfig{Name: "innocent", KeySpec: v.name, Limit: s.inFlight(2)})
		other := s.open(core.RuleConfig{Name: "other", Limit: v.limit(s.t, 2, hour)})
		s.exhaust(other, "alice", 2)
		for i := 0; i < 4; i++ {
			a, b := s.ask(one(r, "alice"), one(other, "alice"), false)
			s.is("beside a rule that rejects", a.Decision, core.Decision{Allowed: true, Limit: 2, Remaining: 2})
			if b.Decision.Allowed || a.Ticket != 0 {
				s.t.Fatalf("%+v and %+v; want the second to reject, and no ticket", a, b)
			}
		}
		s.held(r, "bob", 1)
		s.held(r, "bob", 1)
		before := s.peek(other, "bob", 1)
		for i := 0; i < 4; i++ {
			_, b := s.ask(one(r, "bob"), one(other, "bob"), false)
			if !b.Decision.Allowed {
				s.t.Fatalf("the other rule says %+v; want yes", b.Decision)
			}
		}
		s.asBefore("a rule beside one whose places are taken", before, s.peek(other, "bob", 1))
	}
}

func peeksTakeNoPlace(s *scene) {
	s.t.Helper()
	r := s.open(core.RuleConfig{Name: "peeks", Limit: s.inFlight(2)})
	for i := 0; i < 5; i++ {
		checks := []core.Check{one(r, "alice")}
		s.decide(checks, true)
		s.is("a peek", checks[0].Decision, core.Decision{Allowed: true, Limit: 2, Remaining: 1})
		if checks[0].Ticket != 0 {
			s.t.Fatal("a peek has a ticket")
		}
	}
}

func aShadowCountsPlacesAndRejectsNobody(s *scene) {
	s.t.Helper()
	shadow := s.open(core.RuleConfig{Name: "shadow", Limit: s.inFlight(1), Shadow: true})
	r := s.open(core.RuleConfig{Name: "enforced", Limit: s.inFlight(2)})
	first := []core.Check{one(shadow, "alice"), one(r, "alice")}
	s.decide(first, false)
	if holds := core.Holds(nil, first); len(holds) != 2 {
		s.t.Fatalf("the first holds %+v; want a place of each rule", holds)
	}
	next := []core.Check{one(shadow, "alice"), one(r, "alice")}
	s.decide(next, false)
	if holds := core.Holds(nil, next); len(holds) != 1 || holds[0].Rule != r || next[0].Decision.Allowed {
		s.t.Fatalf("the second holds %+v, and the shadow says %+v; want a place of the enforced rule", holds, next[0].Decision)
	}
	s.settle(core.Holds(nil, first), false)
	s.is("the shadow", s.peek(shadow, "alice", 1), core.Decision{Allowed: true, Limit: 1})
}

// placesBesideALimit: a rule's concurrency is a second rule, decided with it.
func placesBesideALimit(s *scene, v variant) {
	s.t.Helper()
	s.clock.Set(start())
	r := s.open(core.RuleConfig{Name: "beside", KeySpec: v.name, Limit: v.limit(s.t, 5, hour), Concurrency: 2})
	if len(r.Beside()) != 1 || !r.Beside()[0].Limit().InFlight() {
		s.t.Fatalf("beside it are %v", r.Beside())
	}
	places := r.Beside()[0]
	if err := s.store.Open(places); err != nil {
		s.t.Fatal(err)
	}
	quota := r.Limit().Quota()
	var holds []core.Hold
	for i := 0; i < 2; i++ {
		checks := []core.Check{one(r, "alice"), one(places, "alice")}
		s.decide(checks, false)
		holds = core.Holds(holds, checks)
	}
	if len(holds) != 2 || holds[0].Rule != places || holds[1].Rule != places {
		s.t.Fatalf("two hold %+v; want a place each", holds)
	}
	before := s.peek(r, "alice", 1)
	a, b := s.ask(one(r, "alice"), one(places, "alice"), false)
	s.is("the third at once", b.Decision, core.Decision{Limit: 2, RetryAfter: second})
	if !a.Decision.Allowed {
		s.t.Fatalf("its limit says %+v; want yes", a.Decision)
	}
	s.asBefore("the limit", before, s.peek(r, "alice", 1))
	s.settle(holds, false)
	for i := 0; i < 3; i++ {
		checks := []core.Check{one(r, "alice"), one(places, "alice")}
		s.decide(checks, false)
		s.is("one after the other", checks[1].Decision, core.Decision{Allowed: true, Limit: 2, Remaining: 1})
		s.settle(core.Holds(nil, checks), false)
	}
	a, b = s.ask(one(r, "alice"), one(places, "alice"), false)
	s.is("where the limit rejects, no place", b.Decision, core.Decision{Allowed: true, Limit: 2, Remaining: 2})
	s.is("the limit", a.Decision, core.Decision{Limit: quota, RetryAfter: some})
}

// aCrowdInFlight: of those that come at once exactly as many as there are places get one; of those that come and go never more.
func aCrowdInFlight(s *scene) {
	s.t.Helper()
	const places = 5
	f := &flights{scene: s, rule: s.open(core.RuleConfig{Name: "crowd", Limit: s.inFlight(places)}), each: 1, stays: true}
	f.run()
	if n := f.landed.Load(); n != places {
		s.t.Fatalf("%d of %d at once have a place; want %d", n, goroutines, places)
	}
	s.is("one more", s.take(f.rule, "everybody", 1), core.Decision{Limit: places, RetryAfter: second})
	s.settle(f.holds, false)

	f.now.Store(0)
	f.stays = false
	f.each = 40
	if Interpreted() {
		f.each = 5
	}
	f.run()
	if n := f.most.Load(); n > places {
		s.t.Fatalf("%d were in flight at a time; want at most %d", n, places)
	}
	s.is("when all have landed", s.peek(f.rule, "everybody", 1), core.Decision{Allowed: true, Limit: places, Remaining: places - 1})
}

// flights is a crowd of requests.
type flights struct {
	scene       *scene
	rule        *core.Rule
	each        int
	stays       bool // those that got a place keep it
	begin, done sync.WaitGroup
	mu          sync.Mutex
	holds       []core.Hold
	landed      atomic.Int64
	now, most   atomic.Int64 // in flight
}

func (f *flights) run() {
	f.begin.Add(1)
	for i := 0; i < goroutines; i++ {
		f.done.Add(1)
		go fly(f)
	}
	f.begin.Done()
	f.done.Wait()
}

func fly(f *flights) {
	f.begin.Wait()
	for i := 0; i < f.each; i++ {
		checks := []core.Check{one(f.rule, "everybody")}
		if err := f.scene.store.Decide(checks, false); err != nil {
			f.scene.t.Error(err)
		}
		holds := core.Holds(nil, checks)
		if len(holds) == 0 {
			continue
		}
		if n := f.now.Add(1); n > f.most.Load() {
			f.most.Store(n)
		}
		f.landed.Add(1)
		f.mu.Lock()
		f.holds = append(f.holds, holds...)
		f.mu.Unlock()
		if f.stays {
			continue
		}
		f.now.Add(-1)
		if err := f.scene.store.Settle(holds); err != nil {
			f.scene.t.Error(err)
		}
	}
	f.done.Done()
}
