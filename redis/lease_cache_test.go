package redis

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// lender is a client of one server that grants the same lease to all who ask, unless it is away.
type lender struct {
	server *Server
	calls  atomic.Int64
	leases atomic.Int64
	away   atomic.Bool
	closed atomic.Bool // it gets no call
	unsent atomic.Int64
	late   chan *Call // unless it is nil, leases are answered late, when somebody does it

	units   int64 // of each lease
	rejects bool  // all requests, for ten seconds
}

func newLender() *lender {
	l := &lender{units: 40}
	l.server = NewServer("lender", l)
	return l
}

func (l *lender) Server(key string) (*Server, error) { return l.server, nil }
func (l *lender) Cluster() bool                      { return false }
func (l *lender) Timeout() time.Duration             { return time.Second }
func (l *lender) Background() time.Duration          { return l.Timeout() }
func (l *lender) Servers() []*Server                 { return []*Server{l.server} }
func (l *lender) Name() string                       { return "lender" }
func (l *lender) Close() error                       { return nil }

func (l *lender) Run(c *Call) error {
	if l.away.Load() {
		return errors.New("away")
	}
	if l.closed.Load() {
		l.unsent.Add(1)
		return ErrUnsent
	}
	l.calls.Add(1)
	if l.late != nil && c.Script == scriptOfLease {
		l.late <- c
		return ErrTimeout
	}
	return l.answer(c)
}

func (l *lender) answer(c *Call) error {
	c.Reply = c.Reply[:0]
	if c.Script != scriptOfLease {
		for i := 0; i < len(c.Keys); i++ {
			if l.rejects {
				c.Reply = append(c.Reply, -1, 10_000_000, 10_000_000, 10_000_000)
			} else {
				c.Reply = append(c.Reply, 5000, 0, 1000, 1000)
			}
		}
		return nil
	}
	for i := 0; i < len(c.Keys); i += 2 {
		l.leases.Add(1)
		if l.rejects {
			c.Reply = append(c.Reply, -1, 10_000_000, 10_000_000, 10_000_000, 0, 0, 7, 1)
		} else {
			c.Reply = append(c.Reply, 5000, 0, 1000, 1000, l.units, 1000000, 7, 1)
		}
	}
	return nil
}

func openLeased(t *testing.T, name string, s *Store) *core.Rule {
	t.Helper()
	return openLeasedLimit(t, name, s, 10000)
}

// openLeasedLimit opens a leased rule of so many requests a minute.
func openLeasedLimit(t *testing.T, name string, s *Store, requests int64) *core.Rule {
	t.Helper()
	l, err := rate.NewLimit(rate.LimitConfig{Requests: requests, Period: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	r, err := core.NewRule(core.RuleConfig{Name: name, Limit: l, Consistency: core.Leased})
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Open(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Most requests of a busy key do without a call, under one rule and under two.
func TestMostRequestsUnderALeaseDoWithoutACall(t *testing.T) {
	l := newLender()
	var now atomic.Int64
	now.Store(1)
	clock := func() int64 { return now.Load() }
	s, err := NewStore(Config{Client: l, Clock: clock, WallClock: clock})
	if err != nil {
		t.Fatal(err)
	}
	a := openLeased(t, "a", s)
	b := openLeased(t, "b", s)
	for i := 0; i < 600; i++ {
		now.Add(1000)
		checks := []core.Check{{Rule: a, Key: "k", Cost: 1}}
		if i%2 == 1 {
			checks = append(checks, core.Check{Rule: b, Key: "k", Cost: 1})
		}
		if err := s.Decide(checks, false); err != nil || !checks[0].Decision.Allowed {
			t.Fatalf("request %d: %+v, %v", i, checks[0].Decision, err)
		}
		for s.LeaseStats().UnderWay > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if stats := s.LeaseStats(); l.calls.Load() > 200 || stats.Granted < 10 {
		t.Errorf("%d calls for 600 requests, %+v", l.calls.Load(), stats)
	}
	before := s.LeaseStats().Units
	l.away.Store(true)
	checks := []core.Check{{Rule: a, Key: "k", Cost: 1}, {Rule: b, Key: "other", Cost: 1}}
	if err := s.Decide(checks, false); err == nil {
		t.Error("no error, though one key is not held")
	}
	if after := s.LeaseStats().Units; after != before {
		t.Errorf("%d units before a request that failed, %d after it", before, after)
	}
	l.away.Store(false)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if stats := s.LeaseStats(); stats.Units != 0 || stats.Returned == 0 {
		t.Errorf("after the end: %+v", stats)
	}
}

// What a node holds of a key, and what has become of requests and calls, can be asked for. Nobody is charged for that.
func TestWhatANodeHoldsCanBeAskedFor(t *testing.T) {
	l := newLender()
	var now atomic.Int64
	now.Store(1)
	clock := func() int64 { return now.Load() }
	s, err := NewStore(Config{Client: l, Clock: clock, WallClock: clock})
	if err != nil {
		t.Fatal(err)
	}
	r := openLeased(t, "a", s)
	for i := 0; i < 100; i++ {
		now.Add(1000)
		if err := s.Decide([]core.Check{{Rule: r, Key: "k", Cost: 1}}, false); err != nil {
			t.Fatal(err)
		}
		for s.LeaseStats().UnderWay > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	stats := s.LeaseStats()
	units, lasts := s.Holds(r, "k")
	if units == 0 || units != stats.Units || units != stats.Held[r.Identity] || lasts <= 0 || lasts > 1_000_000 {
		t.Errorf("%d units for %d µs, %+v", units, lasts, stats)
	}
	if got := stats.Requests(); got[0]+got[1]+got[2] != 100 || got[0] < 50 || got[2] == 0 {
		t.Errorf("100 requests are %v", got)
	}
	if got := stats.Calls(); got[0] != l.leases.Load() || got[1]+got[2]+got[3] != 0 {
		t.Errorf("%d leases are %v", l.leases.Load(), got)
	}
	look := []core.Check{{Rule: r, Key: "k", Cost: 1}}
	if err := s.Decide(look, true); err != nil || look[0].Decision.Remaining != units+5000-1 {
		t.Errorf("%+v, %v; %d units are held, and 5000 free", look[0].Decision, err, units)
	}
	if after := s.LeaseStats(); after.Units != units || after.Spent != stats.Spent {
		t.Errorf("%+v before a look, %+v after it", stats, after)
	}
	if units, lasts := s.Holds(r, "other"); units != 0 || lasts != 0 {
		t.Errorf("of another key %d units for %d µs", units, lasts)
	}
	l.away.Store(true)
	now.Add(1_000_000)
	if units, lasts := s.Holds(r, "k"); units != 0 || lasts != 0 || s.LeaseStats().Units != 0 {
		t.Errorf("after the end %d units for %d µs, %+v", units, lasts, s.LeaseStats())
	}
}

// newLending returns a store on a lender, with a leased rule, whose clock stands still but for the test's steps.
func newLending(t *testing.T, l *lender) (s *Store, r *core.Rule, now *atomic.Int64) {
	t.Helper()
	now = &atomic.Int64{}
	now.Store(1)
	clock := func() int64 { return now.Load() }
	s, err := NewStore(Config{Client: l, Clock: clock, WallClock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return s, openLeased(t, "a", s), now
}

// holdUnits has requests until the store holds units.
func holdUnits(t *testing.T, s *Store, r *core.Rule, now *atomic.Int64) {
	t.Helper()
	for i := 0; i < 100 && calm(s).Units < 10; i++ {
		now.Add(1000)
		if err := s.Decide([]core.Check{{Rule: r, Key: "k", Cost: 1}}, false); err != nil {
			t.Fatal(err)
		}
	}
	if stats := s.LeaseStats(); stats.Units < 10 {
		t.Fatalf("%+v", stats)
	}
}

// comes waits until the stats of the leases are as wanted.
func comes(t *testing.T, s *Store, what string, wanted func(stats LeaseStats) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !wanted(s.LeaseStats()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: %+v", what, s.LeaseStats())
		}
	}
}

// A lease whose answer comes after its request has left is spent, until it ends. No other call is made about it meanwhile. A defect: the answer was dropped,
// and what it had lent counted as spent.
func TestALateAnswerBringsItsLease(t *testing.T) {
	l := newLender()
	s, r, now := newLending(t, l)
	l.late = make(chan *Call, 10)
	decide := func() error {
		now.Add(1000)
		return s.Decide([]core.Check{{Rule: r, Key: "k", Cost: 1}}, false)
	}
	for i := 0; i < 10; i++ {
		if err := decide(); err != nil && !errors.Is(err, ErrTimeout) {
			t.Fatal(err)
		}
	}
	if len(l.late) != 1 || s.LeaseStats().Units != 0 {
		t.Fatalf("%d calls about the lease, %+v", len(l.late), s.LeaseStats())
	}
	c := <-l.late
	l.late = nil
	if err := l.answer(c); err != nil {
		t.Fatal(err)
	}
	c.Late(nil)
	if stats := s.LeaseStats(); stats.Units != 40 || stats.Granted != 1 || stats.Failed != 0 {
		t.Errorf("%+v", stats)
	}
	calls := l.calls.Load()
	if err := decide(); err != nil || l.calls.Load() != calls {
		t.Errorf("%v, %d calls, then %d", err, calls, l.calls.Load())
	}
	now.Add(1_000_000) // from when it was asked for
	if stats := s.LeaseStats(); stats.Units != 0 {
		t.Errorf("after its end: %+v", stats)
	}
}

// An answer that will never come ends the call, so that another can be made.
func TestALateAnswerThatNeverComesEndsTheCall(t *testing.T) {
	l := newLender()
	s, r, now := newLending(t, l)
	l.late = make(chan *Call, 10)
	for i := 0; i < 10; i++ {
		now.Add(1000)
		_ = s.Decide([]core.Check{{Rule: r, Key: "k", Cost: 1}}, false)
	}
	c := <-l.late
	l.late = nil
	c.Late(ErrLost)
	if stats := s.LeaseStats(); stats.Failed != 1 {
		t.Errorf("%+v", stats)
	}
	holdUnits(t, s, r, now)
}

// What could not be given back since Redis did not get the call is given back when it does.
func TestUnitsAreGivenBackAgainUntilRedisGetsThem(t *testing.T) {
	l := newLender()
	s, r, now := newLending(t, l)
	holdUnits(t, s, r, now)
	before := s.LeaseStats()
	l.closed.Store(true)
	now.Add(800_000)
	comes(t, s, "nobody gets the units", func(stats LeaseStats) bool { return stats.Units == 0 && l.unsent.Load() > 0 })
	l.closed.Store(false)
	comes(t, s, "they are given back", func(stats LeaseStats) bool { return stats.Returned == before.Returned+1 && stats.UnderWay == 0 })
}
