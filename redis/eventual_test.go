package redis

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/usage"
	"github.com/proxyweir/weir/tools/must"
)

// shelf is a client of a server that keeps the logs of nodes, as scripts/eventual.lua does, and counts calls, and the units of the last document.
type shelf struct {
	server *Server
	calls  atomic.Int64
	units  atomic.Int64
	away   atomic.Bool

	mu    sync.Mutex
	names []string
	of    map[string]*shelved
}

type shelved struct {
	generation string
	log        string
}

func newShelf() *shelf {
	c := &shelf{of: make(map[string]*shelved)}
	c.server = NewServer("shelf", c)
	return c
}

func (c *shelf) Server(key string) (*Server, error) { return c.server, nil }
func (c *shelf) Cluster() bool                      { return false }
func (c *shelf) Timeout() time.Duration             { return 30 * time.Second }
func (c *shelf) Background() time.Duration          { return c.Timeout() }
func (c *shelf) Servers() []*Server                 { return []*Server{c.server} }
func (c *shelf) Name() string                       { return "shelf" }
func (c *shelf) Close() error                       { return nil }

func (c *shelf) Run(call *Call) error {
	if c.away.Load() {
		return errors.New("away")
	}
	c.calls.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	name := call.Args[0]
	if document := call.Args[4]; document != "" {
		d, err := usage.Decode([]byte(document))
		if err != nil {
			return err
		}
		sum := int64(0)
		for _, counts := range d.Counts {
			for _, n := range counts.Units {
				sum += int64(n)
			}
		}
		c.units.Store(sum)
		own := c.of[name]
		if own == nil {
			own = &shelved{}
			c.of[name] = own
			c.names = append(c.names, name)
		}
		own.generation = call.Args[1]
		if call.Args[3] == "1" {
			own.log = ""
		}
		own.log += document
	}
	index := ""
	for _, other := range c.names {
		n, _ := strconv.ParseInt(c.of[other].generation, 10, 64)
		index += other + string(appendDouble(appendDouble(appendDouble(nil, n), int64(len(c.of[other].log))), 1))
	}
	call.Texts = []string{"1 " + strconv.FormatInt(time.Now().UnixMicro(), 10), index}
	for at := 7; at < len(call.Args); at += 3 {
		other := c.of[call.Args[at]]
		from, _ := strconv.Atoi(call.Args[at+2])
		if call.Args[at+1] != other.generation {
			from = 0
		}
		call.Texts = append(call.Texts, other.log[from:])
	}
	return nil
}

func openEventual(t *testing.T, s *Store, every time.Duration) *core.Rule {
	l, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1000, Period: 366 * 24 * time.Hour})
	must.Succeed(t, err)
	r, err := core.NewRule(core.RuleConfig{Name: "r", Limit: l, Consistency: core.Eventual, SyncEvery: every})
	if err == nil {
		err = s.Open(r)
	}
	must.Succeed(t, err)
	return r
}

func awaits(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never happened that " + what)
		}
	}
}

// A timer has the node tell what it has admitted, until no requests come any more. Then there are no calls, and no goroutine waits.
func TestATimerTellsUntilNoRequestsCome(t *testing.T) {
	c := newShelf()
	s, err := NewStore(Config{Client: c})
	must.Succeed(t, err)
	defer s.CloseNow()
	r := openEventual(t, s, 10*time.Millisecond)
	decide := func() {
		checks := []core.Check{{Rule: r, Key: "k", Cost: 1}}
		must.Succeed(t, s.Decide(checks, false))
	}
	for i := 0; i < 20; i++ {
		decide()
	}
	awaits(t, "all is told", func() bool { return c.units.Load() == 20 && s.SyncStats().Age == 0 })
	awaits(t, "the rounds end", func() bool {
		s.eventually.mu.Lock()
		defer s.eventually.mu.Unlock()
		return !s.eventually.running
	})
	calls := c.calls.Load()
	decide()
	awaits(t, "they begin again", func() bool { return c.units.Load() == 21 && c.calls.Load() > calls })
	if stats := s.SyncStats(); !stats.Used || stats.Failed != 0 || stats.Synced < 2 {
		t.Errorf("%+v", stats)
	}
}

// Rounds keep the shortest interval of the rules that are open.
func TestRoundsKeepTheShortestInterval(t *testing.T) {
	s, err := NewStore(Config{Client: newShelf()})
	must.Succeed(t, err)
	defer s.CloseNow()
	long := openEventual(t, s, time.Minute)
	short := openEventual(t, s, time.Second)
	interval := func() time.Duration {
		s.eventually.mu.Lock()
		defer s.eventually.mu.Unlock()
		return s.eventually.interval()
	}
	must.Equal(t, interval(), time.Second, "with both")
	s.Release(short)
	must.Equal(t, interval(), time.Minute, "with the long one")
	s.Release(long)
	if stats := s.SyncStats(); !stats.Used { // its counters stay
		t.Errorf("%+v", stats)
	}
}

// While rounds fail, what waits to be told gets older, and is told when they succeed again.
func TestTheAgeOfWhatIsUntoldGrowsWhileRoundsFail(t *testing.T) {
	c := newShelf()
	var now atomic.Int64
	s, err := NewStore(Config{Client: c, Clock: now.Load})
	must.Succeed(t, err)
	defer s.CloseNow()
	r := openEventual(t, s, time.Minute)
	checks := []core.Check{{Rule: r, Key: "k", Cost: 1}}
	must.Succeed(t, s.Decide(checks, false))
	c.away.Store(true)
	s.Synchronise()
	now.Add(20_000_000)
	if stats := s.SyncStats(); stats.Failed != 1 || stats.Age != 20_000_000 {
		t.Errorf("%+v", stats)
	}
	if untold, age := s.Stands(r, "k"); untold != 1 || age != 20_000_000 {
		t.Errorf("%d units are untold, and what is known is %d µs old", untold, age)
	}
	c.away.Store(false)
	s.Synchronise()
	if stats := s.SyncStats(); stats.Failed != 1 || stats.Age != 0 {
		t.Errorf("%+v", stats)
	}
	if untold, _ := s.Stands(r, "k"); untold != 0 {
		t.Errorf("%d units are untold", untold)
	}
}

// Nodes hear of each other, and of each other's blocks.
func TestNodesHearOfEachOther(t *testing.T) {
	c := newShelf()
	var stores []*Store
	var rules []*core.Rule
	for i := 0; i < 3; i++ {
		s, err := NewStore(Config{Client: c, Lines: true})
		must.Succeed(t, err)
		defer s.CloseNow()
		stores = append(stores, s)
		rules = append(rules, openEventual(t, s, time.Minute))
	}
	decide := func(node int, cost int64) rate.Decision {
		checks := []core.Check{{Rule: rules[node], Key: "k", Cost: cost}}
		must.Succeed(t, stores[node].Decide(checks, false))
		return checks[0].Decision
	}
	for round := int64(1); round <= 4; round++ {
		for i, s := range stores {
			if d := decide(i, 10); !d.Allowed {
				t.Fatalf("node %d: %+v", i, d)
			}
			s.Synchronise()
		}
		for i, s := range stores {
			s.Synchronise()
			if stats := s.SyncStats(); stats.Failed > 0 {
				t.Fatalf("node %d: %+v, %v", i, stats, s.eventually.err)
			}
			checks := []core.Check{{Rule: rules[i], Key: "k"}}
			_ = s.eventually.of.Memory().Decide(checks, true)
			must.Equal(t, checks[0].Decision.Remaining, 1000-30*round, "round %d, node %d: are left", round, i)
		}
	}
	must.Succeed(t, stores[0].Block(rules[0], "k", time.Hour.Microseconds()))
	stores[0].Synchronise()
	stores[1].Synchronise()
	if d := decide(1, 1); d.Allowed {
		t.Errorf("a key that is blocked elsewhere: %+v", d)
	}
}
