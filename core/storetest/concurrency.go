package storetest

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/proxyweir/weir/core"
)

// goroutines is how many ask at the same time.
const goroutines = 64

// testConcurrency: however many ask at the same time, exactly the limit is allowed.
func testConcurrency(t *testing.T, newStore NewStore) {
	each(t, newStore, "one key of ", variants(), aCrowdIsGivenTheLimit)
	t.Run("several rules in any order", func(t *testing.T) { severalRulesInAnyOrder(newScene(t, newStore)) })
}

func aCrowdIsGivenTheLimit(s *scene, v variant) {
	c := newCrowd(s, 40, 5)
	c.ask(s.open(core.RuleConfig{Name: "one", Limit: v.limit(s.t, c.quarter, minute)}))
	c.wants("the limit", c.quarter)
}

// severalRulesInAnyOrder: each request comes under three rules, in a different order in each goroutine, and they share keys. A
// store that locks in the order of the checks would deadlock here.
func severalRulesInAnyOrder(s *scene) {
	c := newCrowd(s, 40, 5)
	all := variants()
	tight := s.open(core.RuleConfig{Name: "tight", Limit: all[5].limit(s.t, c.quarter, minute)})
	wide := s.open(core.RuleConfig{Name: "wide", Limit: all[0].limit(s.t, 10*c.quarter, minute)})
	other := s.open(core.RuleConfig{Name: "other", Limit: all[4].limit(s.t, 10*c.quarter, minute)})
	c.ask(tight, wide, other)
	c.wants("the tightest limit", c.quarter)
	// What the tight rule rejected was not charged to the wide one: its three keys have used what was allowed.
	used := int64(0)
	for i := 0; i < 3; i++ {
		d := s.peek(wide, "group "+strconv.Itoa(i), 1)
		used += d.Limit - d.Remaining - 1
	}
	if used != c.quarter {
		s.t.Fatalf("%d units of the wide rule are used; want as many as were admitted, %d", used, c.quarter)
	}
}

// crowd is many goroutines that ask at the same time, and the results of their requests.
type crowd struct {
	scene   *scene
	each    int   // requests of one goroutine
	quarter int64 // a quarter of all requests; most limits are made from it, so that they are exceeded
	ends    bool  // each request ends at once; else its reservations stay in reservations
	keeps   bool  // every other request that ends stays charged

	rules        []*core.Rule
	begin, done  sync.WaitGroup
	admitted     atomic.Int64 // allowed by all rules
	kept         atomic.Int64 // those that have ended and stay charged
	now, most    atomic.Int64 // those with reservations, now and at most at the same time
	mu           sync.Mutex
	reservations []core.Reservation
	delays       []int64 // of the first rule
}

func newCrowd(s *scene, compiled, interpreted int) *crowd {
	each := times(compiled, interpreted)
	return &crowd{scene: s, each: each, quarter: int64(goroutines * each / 4)}
}

// ask makes all of them ask, of all the rules.
func (c *crowd) ask(rules ...*core.Rule) {
	c.rules = rules
	c.begin.Add(1)
	for number := 0; number < goroutines; number++ {
		c.done.Add(1)
		go askOften(c, number)
	}
	c.begin.Done()
	c.done.Wait()
}

// wants fails unless that many were allowed.
func (c *crowd) wants(what string, n int64) {
	c.scene.t.Helper()
	if admitted := c.admitted.Load(); admitted != n {
		c.scene.t.Fatalf("%d were admitted; want %s, %d", admitted, what, n)
	}
}

// askOften is one goroutine of the crowd. (It is a function, since closures are not safe in many goroutines under the
// interpreter.) The first rule has one key for all; the others have three. The order of the checks depends on the goroutine.
func askOften(c *crowd, number int) {
	c.begin.Wait()
	n := len(c.rules)
	for i := 0; i < c.each; i++ {
		checks := make([]core.Check, n)
		for j := 0; j < n; j++ {
			place := (number + j) % n
			if number%2 == 1 {
				place = (number + n - j) % n
			}
			key := "everybody"
			if place > 0 {
				key = "group " + strconv.Itoa((number+i)%3)
			}
			checks[j] = one(c.rules[place], key)
		}
		if err := c.scene.store.Decide(checks, false); err != nil {
			c.scene.t.Error(err)
		}
		all := true
		for j := 0; j < n; j++ {
			all = all && checks[j].Decision.Allowed
		}
		if all {
			c.admitted.Add(1)
			c.passed(checks, c.keeps && i%2 == 0)
		}
	}
	c.done.Done()
}

// passed notes an allowed request, and ends it if requests end at once.
func (c *crowd) passed(checks []core.Check, keep bool) {
	reservations := core.AppendReservations(nil, checks)
	if len(reservations) > 0 {
		if n := c.now.Add(1); n > c.most.Load() {
			c.most.Store(n)
		}
	}
	if !c.ends {
		c.mu.Lock()
		c.delays = append(c.delays, checks[0].Decision.Delay)
		c.reservations = append(c.reservations, reservations...)
		c.mu.Unlock()
		return
	}
	c.now.Add(-1)
	if keep {
		c.kept.Add(1)
	}
	for i := range reservations {
		reservations[i].Keep(keep)
	}
	if err := c.scene.store.Settle(reservations); err != nil {
		c.scene.t.Error(err)
	}
}
