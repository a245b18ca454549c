package storetest

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/proxyweir/weir/core"
)

// goroutines is how many ask at once.
const goroutines = 64

// testConcurrency: however many ask at once, exactly the limit is admitted.
func testConcurrency(t *testing.T, newStore func(t *testing.T, clock *Clock) core.Store) {
	each := 40
	if Interpreted() {
		each = 5
	}
	units := int64(goroutines * each / 4)
	for _, v := range variants() {
		s := newScene(t, newStore)
		t.Run("one key of "+v.name, func(t *testing.T) {
			s.t = t
			r := s.open(core.RuleConfig{Name: "one", Limit: v.limit(t, units, minute)})
			if n := crowd(s, []*core.Rule{r}, each); n != units {
				t.Fatalf("%d were admitted; want the limit, %d", n, units)
			}
		})
	}
	t.Run("several rules in any order", func(t *testing.T) {
		// Each request is under three rules, each rule at another place in each goroutine's checks, each key shared. A
		// store that locks in the order of the checks stops here for good.
		s := newScene(t, newStore)
		all := variants()
		tight := s.open(core.RuleConfig{Name: "tight", Limit: all[5].limit(t, units, minute)})
		wide := s.open(core.RuleConfig{Name: "wide", Limit: all[0].limit(t, 10*units, minute)})
		other := s.open(core.RuleConfig{Name: "other", Limit: all[4].limit(t, 10*units, minute)})
		if n := crowd(s, []*core.Rule{tight, wide, other}, each); n != units {
			t.Fatalf("%d were admitted; want the tightest limit, %d", n, units)
		}
		// What the tight rule rejected was not charged to the wide one: its three keys have used what was admitted.
		used := int64(0)
		for i := 0; i < 3; i++ {
			d := s.peek(wide, "group "+strconv.Itoa(i), 1)
			used += d.Limit - d.Remaining - 1
		}
		if used != units {
			t.Fatalf("%d units of the wide rule are used; want as many as were admitted, %d", used, units)
		}
	})
}

// crowd lets the goroutines ask of all the rules so many times each, and returns how many requests were admitted.
func crowd(s *scene, rules []*core.Rule, each int) int64 {
	var begin, done sync.WaitGroup
	var admitted atomic.Int64
	begin.Add(1)
	for g := 0; g < goroutines; g++ {
		done.Add(1)
		go askOften(s, rules, g, each, &begin, &done, &admitted)
	}
	begin.Done()
	done.Wait()
	return admitted.Load()
}

// askOften is one of the crowd. (A function, not a closure: the interpreter's closures are not safe in many goroutines.)
// The first rule has one key for all; of the others there are three. The checks are in an order of the goroutine's own.
func askOften(s *scene, rules []*core.Rule, number, each int, begin, done *sync.WaitGroup, admitted *atomic.Int64) {
	begin.Wait()
	n := len(rules)
	checks := make([]core.Check, n)
	for i := 0; i < each; i++ {
		for j := 0; j < n; j++ {
			place := (number + j) % n
			if number%2 == 1 {
				place = (number + n - j) % n
			}
			key := "everybody"
			if place > 0 {
				key = "group " + strconv.Itoa((number+i)%3)
			}
			checks[j] = core.Check{Rule: rules[place], Key: key, Cost: 1}
		}
		if err := s.store.Decide(checks, false); err != nil {
			s.t.Error(err)
		}
		all := true
		for j := 0; j < n; j++ {
			all = all && checks[j].Decision.Allowed
		}
		if all {
			admitted.Add(1)
		}
	}
	done.Done()
}
