package eventual_test

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/eventual"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/usage"
	"github.com/proxyweir/weir/tools/must"
)

// node is an instance whose documents a test carries.
type node struct {
	t     *testing.T
	store *eventual.Store
	rule  *core.Rule
	name  string // among the others
}

// newNodes returns instances with a limit of 100 in 10 s, by one clock.
func newNodes(t *testing.T, n int, now *int64, index memory.Index) []*node {
	t.Helper()
	l, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 100, Period: 10 * time.Second})
	must.Succeed(t, err)
	clock := func() int64 { return *now }
	var list []*node
	for i := 0; i < n; i++ {
		s := eventual.New(eventual.Config{Clock: clock, Index: index, Read: time.Second, Write: time.Second})
		r, err := core.NewRule(core.RuleConfig{Name: "r", Limit: l})
		if err == nil {
			err = s.Open(r)
		}
		must.Succeed(t, err)
		list = append(list, &node{t, s, r, "peer"})
	}
	return list
}

func (n *node) decide(key string, cost int64, peek bool) rate.Decision {
	checks := []core.Check{{Rule: n.rule, Key: key, Cost: cost}}
	_ = n.store.Decide(checks, peek)
	return checks[0].Decision
}

// remain checks how many units are left of a key, by what is known.
func (n *node) remain(what, key string, want int64) {
	n.t.Helper()
	n.decide(key, 0, true) // it is charged for what is known, but what others are probably admitted is kept free besides
	checks := []core.Check{{Rule: n.rule, Key: key}}
	_ = n.store.Memory().Decide(checks, true)
	if left := checks[0].Decision.Remaining; left != want {
		n.t.Errorf("%s: %d of %q remain, want %d", what, left, key, want)
	}
}

// tell has others hear what an instance has not told.
func (n *node) tell(now int64, others ...*node) {
	n.store.Collect()
	counts, marks := n.store.Ledger.Begin(now, false)
	n.store.Ledger.End(true)
	for _, o := range others {
		d, err := usage.Decode(usage.Encode(&usage.Document{Instance: usage.NewInstance(), Counts: counts, Marks: marks}))
		must.Succeed(n.t, err)
		var news usage.News
		o.store.Others.Learn(n.name, d, now, &news)
		o.store.Hear(&news)
	}
}

func indexes() map[string]memory.Index {
	return map[string]memory.Index{"probing": memory.Probing, "mapped": memory.Mapped}
}

// A request that came before a reload, and is decided after it, is told to the others like any other.
func TestWhatAReplacedRuleAdmitsIsTold(t *testing.T) {
	now := int64(1_700_006_400_000_000)
	list := newNodes(t, 2, &now, memory.Probing)
	a, b := list[0], list[1]
	reloaded, err := core.NewRule(core.RuleConfig{Name: "r", Limit: a.rule.Limit})
	must.Succeed(t, err)
	must.Succeed(t, a.store.Open(reloaded))
	a.store.Release(a.rule)
	a.decide("k", 10, false)
	a.tell(now, b)
	b.remain("b", "k", 90)
}

// What others tell of a key counts once, whether the key was asked for before or comes later.
func TestWhatOthersTellCountsOnce(t *testing.T) {
	for name, index := range indexes() {
		now := int64(1_700_006_400_000_000)
		list := newNodes(t, 2, &now, index)
		a, b := list[0], list[1]
		b.decide("known", 1, false)
		for _, key := range []string{"known", "new"} {
			a.decide(key, 10, false)
		}
		a.tell(now, b)
		b.remain(name, "known", 89)
		b.remain(name, "new", 90)
		a.decide("new", 5, false)
		a.tell(now, b)
		b.remain(name, "new", 85)
		a.tell(now, b) // nothing is new
		b.remain(name, "new", 85)
	}
}

// A key that the memory has had to forget gets back what it and others have admitted.
func TestAKeyThatIsForgottenIsBuiltAgain(t *testing.T) {
	now := int64(1_700_006_400_000_000)
	list := newNodes(t, 2, &now, memory.Probing)
	a, b := list[0], list[1]
	a.decide("key", 30, false)
	b.decide("key", 20, false)
	a.tell(now, b)
	b.tell(now, a)
	b.remain("before", "key", 50)
	b.store.Memory().SetMaxKeys(1)
	for i := 0; i < 200; i++ {
		b.decide(string(rune('a'+i)), 1, false)
	}
	b.remain("afterwards", "key", 50)
}

// A block and a reset by hand hold on other instances when they hear of them, also for a key that they were not asked for.
func TestOthersHearOfBlocksAndResets(t *testing.T) {
	now := int64(1_700_006_400_000_000)
	list := newNodes(t, 2, &now, memory.Probing)
	a, b := list[0], list[1]
	for _, key := range []string{"asked", "new"} {
		a.decide(key, 10, false)
		if key == "asked" {
			b.decide(key, 10, false)
		}
		must.Succeed(t, a.store.Block(a.rule, key, 3_000_000))
		a.tell(now, b)
		if d := b.decide(key, 1, false); d.Allowed || d.RetryAfter != 3_000_000 {
			t.Errorf("a key that is blocked elsewhere, %s: %+v", key, d)
		}
	}
	now += 3_000_000
	b.remain("after the block", "asked", 100)
	b.remain("after the block", "new", 100)
	a.decide("asked", 10, false)
	b.decide("asked", 10, false)
	a.tell(now, b)
	b.remain("before the reset", "asked", 80)
	now++
	must.Succeed(t, b.store.Reset(b.rule, "asked"))
	b.tell(now, a)
	a.remain("after the reset", "asked", 100)
	b.remain("after the reset", "asked", 100)
	a.decide("asked", 10, false)
	a.tell(now, b)
	b.remain("after the reset", "asked", 90)
}

// The fast path of a memory admits a busy key's requests, and they are told. When they are, it leaves the next request to the store.
func TestTheFastPathCountsWhatIsTold(t *testing.T) {
	now := int64(1_700_006_400_000_000)
	list := newNodes(t, 2, &now, memory.Mapped)
	a, b := list[0], list[1]
	way := memory.NewFastPath(a.store.Memory(), a.rule)
	fast := func() bool {
		remaining, _, _ := memory.Take(way, "key")
		return remaining >= 0
	}
	if fast() {
		t.Error("the fast path admits a key that nobody has decided on")
	}
	a.decide("key", 1, false)
	for i := 0; i < 5; i++ {
		if !fast() {
			t.Fatal("the fast path leaves a busy key")
		}
	}
	a.tell(now, b)
	b.remain("afterwards", "key", 94)
	if fast() {
		t.Error("the fast path admits a key that was told")
	}
	a.decide("key", 1, false)
	for fast() {
	}
	a.tell(now, b)
	if d := b.decide("key", 1, false); d.Allowed {
		t.Errorf("the limit is used up elsewhere: %+v", d)
	}
	now += 10_000_000
	a.decide("key", 1, false)
	a.tell(now, b)
	b.remain("in the next window", "key", 99)
}

// Units that are reserved for a request on which others still decide are nobody else's.
func TestReservedUnitsAreKept(t *testing.T) {
	now := int64(1_700_006_400_000_000)
	a := newNodes(t, 1, &now, memory.Probing)[0]
	one := []core.Check{{Rule: a.rule, Key: "key", Cost: 60}}
	two := []core.Check{{Rule: a.rule, Key: "key", Cost: 60}}
	reserved := a.store.Reserve(one)
	if reserved == nil || a.store.Reserve(two) != nil {
		t.Fatal("60 of 100 units are reserved twice, or not at all")
	}
	if d := a.decide("key", 60, false); d.Allowed {
		t.Errorf("%+v", d)
	}
	a.store.Conclude(one, reserved, false)
	a.remain("given back", "key", 100)
	must.Equal(t, one[0].Decision.Remaining, 100, "%+v", one[0].Decision)
	reserved = a.store.Reserve(one)
	a.store.Conclude(one, reserved, true)
	a.remain("charged", "key", 40)
}
