package memory

import (
	"math/bits"
	"strconv"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// tableTest compares a shard with a map of what must be in it.
type tableTest struct {
	t     *testing.T
	m     *Store
	s     *shard
	rule  *core.Rule
	model map[uint64]int64 // hash to the content of its slot
	now   int64
}

func newTableTest(t *testing.T, index Index) *tableTest {
	t.Helper()
	now := time.Date(2026, 3, 2, 12, 0, 20, 0, time.UTC).UnixMicro()
	l, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: rate.MaxRequests, Period: time.Hour})
	must.Succeed(t, err)
	r, err := core.NewRule(core.RuleConfig{Name: "table", Limit: l})
	must.Succeed(t, err)
	m := New(Config{Index: index, Clock: func() int64 { return now }})
	_ = m.Open(r)
	return &tableTest{t: t, m: m, s: &m.shards[0], rule: r, model: make(map[uint64]int64), now: now}
}

func (tt *tableTest) insert(h uint64) {
	tt.t.Helper()
	if i := find(tt.s, h); i >= 0 {
		tt.t.Fatalf("%x is found at %d before it was inserted", h, i)
	}
	c := core.Check{Rule: tt.rule, Cost: 1, Hash: h}
	i := insertKey(tt.m, tt.s, c.Rule.InMemory.(*space), c.Hash, tt.now)
	used := int64(len(tt.model) + 1) // never 0, which would be an expired key
	tt.s.slots[i].state.A = tt.now - tt.now%int64(time.Hour/time.Microsecond)
	tt.s.slots[i].state.B = used
	tt.model[h] = used
}

func (tt *tableTest) remove(h uint64) {
	tt.t.Helper()
	i := find(tt.s, h)
	if i < 0 {
		tt.t.Fatalf("%x is not found", h)
	}
	countKeys(tt.m, removeKey(tt.m, tt.s, i), -1)
	delete(tt.model, h)
}

// check compares the table with the model, and checks its order.
func (tt *tableTest) check() {
	t, s := tt.t, tt.s
	t.Helper()
	n := int64(len(tt.model))
	if int64(s.n) != n || tt.m.keys.Load() != n || tt.rule.InMemory.(*space).keys.Load() != n {
		t.Fatalf("%d keys in the shard, %d in the store, %d of the rule; want %d", s.n, tt.m.keys.Load(), tt.rule.InMemory.(*space).keys.Load(), n)
	}
	for h, used := range tt.model {
		i := find(s, h)
		if i < 0 || s.slots[i].hash != h || s.slots[i].state.B != used || s.owners[i] != tt.rule.InMemory.(*space).number {
			t.Fatalf("%x is found at %d; want it, with what was put there", h, i)
		}
		if _, there := tt.model[h+1]; !there && h+1 != 0 {
			if i = find(s, h+1); i >= 0 {
				t.Fatalf("%x, which is not there, is found at %d", h+1, i)
			}
		}
	}
	if len(s.slots) != len(s.owners) {
		t.Fatalf("%d slots and %d owners", len(s.slots), len(s.owners))
	}
	if s.index != nil {
		if len(s.index) != len(tt.model) || len(s.slots) != len(tt.model) {
			t.Fatalf("%d keys in the index, %d slots; want %d", len(s.index), len(s.slots), n)
		}
		return
	}
	last := uint64(0)
	for i := range s.slots {
		h := s.slots[i].hash
		if h == 0 {
			continue
		}
		if h <= last {
			t.Fatalf("%x is at %d behind %x; want ascending order", h, i, last)
		}
		last = h
		home, _ := bits.Mul64(h, uint64(s.home))
		if i < int(home) {
			t.Fatalf("%x is at %d, before its home %d", h, i, home)
		}
		for j := int(home); j < i; j++ {
			if s.slots[j].hash == 0 {
				t.Fatalf("%x is at %d though %d is free, and its home %d", h, i, j, home)
			}
		}
	}
	if k := len(s.slots); k > 0 && s.slots[k-1].hash != 0 {
		t.Fatal("the last slot is not free")
	}
}

// hashings are the hashes of a table: spread as a seed spreads them, and crowded as a seed never would.
var hashings = []struct {
	name string
	hash func(n uint64) uint64
}{
	{"spread", func(n uint64) uint64 { return scramble(n) }},
	{"all of one home", func(n uint64) uint64 { return 1<<63 + 2*n + 1 }},
	{"all of the first home", func(n uint64) uint64 { return 2*n + 1 }},
	{"all of the last home", func(n uint64) uint64 { return ^uint64(0) - 2*n }},
	{"in a few clusters", func(n uint64) uint64 { return scramble(n%5)>>8<<8 + 2*(n/5) + 1 }},
	{"in order", func(n uint64) uint64 { return n<<50 + 1 }},
}

func TestTableHoldsWhatAMapWould(t *testing.T) {
	underrace.OneGoroutine(t)
	steps := 4000
	if interpreted {
		steps = 300
	}
	for _, index := range []Index{Probing, Mapped} {
		for _, hashing := range hashings {
			hash := hashing.hash
			t.Run(strconv.Itoa(int(index))+" "+hashing.name, func(t *testing.T) {
				tt := newTableTest(t, index)
				random := uint64(1)
				for i := 0; i < steps; i++ {
					random = scramble(random)
					h := hash(random % 500) // a phase mostly inserts, the next mostly removes
					_, there := tt.model[h]
					grow := i/(steps/8)%2 == 0
					if !there && (grow || random>>60 < 4) {
						tt.insert(h)
					} else if there && (!grow || random>>60 < 4) {
						tt.remove(h)
					}
					if i%16 == 0 || len(tt.model) < 4 {
						tt.check()
					}
				}
				tt.check()
				for h := range tt.model {
					tt.remove(h)
				}
				tt.check()
			})
		}
	}
}

func TestSweptTableIsRebuiltInOrder(t *testing.T) {
	for _, index := range []Index{Probing, Mapped} {
		tt := newTableTest(t, index)
		for n := uint64(0); n < 400; n++ {
			tt.insert(scramble(n))
		}
		size := len(tt.s.slots)
		for n := uint64(0); n < 400; n++ {
			if n%8 != 0 {
				tt.remove(scramble(n))
			}
		}
		tt.m.Sweep()
		tt.check()
		if len(tt.s.slots) > size/2 {
			t.Errorf("%d slots for %d keys, after %d", len(tt.s.slots), tt.s.n, size)
		}
		for h := range tt.model {
			tt.remove(h)
		}
		tt.m.Sweep()
		tt.check()
		must.Equal(t, len(tt.s.slots), 0, "%d slots for no keys", len(tt.s.slots))
		tt.insert(1)
		tt.check()
	}
}

func TestReleasedIdentitiesLeaveNothingButTheirNumbers(t *testing.T) {
	m := New(Config{MaxKeys: 100})
	var last *core.Rule
	for i := 0; i < 50; i++ {
		for _, algorithm := range []rate.Algorithm{rate.TokenBucket, rate.SlidingWindowLog} {
			l, err := rate.NewLimit(rate.LimitConfig{Algorithm: algorithm, Requests: 5, Period: time.Hour})
			must.Succeed(t, err)
			last, err = core.NewRule(core.RuleConfig{Name: "r" + strconv.Itoa(i), Limit: l})
			must.Succeed(t, err)
			_ = m.Open(last)
			_ = m.Decide([]core.Check{{Rule: last, Key: "k", Cost: 1}}, false)
			m.Release(last)
		}
	}
	m.Sweep()
	for number, sp := range m.spaces.Load().([]*space) {
		if sp != m.buried[0] && sp != m.buried[1] {
			t.Fatalf("space %d is still there", number)
		}
	}
	// A request that was under way when its rule was released.
	_ = m.Decide([]core.Check{{Rule: last, Key: "late", Cost: 1}}, false)
	m.Sweep()
	if stats := m.Stats(); stats.Keys != 0 || stats.LogBytes != 0 {
		t.Errorf("%+v; want nothing", stats)
	}
}
