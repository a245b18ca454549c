package redis

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
)

// lender is a client of one server that grants the same lease to all who ask, unless it is away.
type lender struct {
	server *Server
	calls  atomic.Int64
	leases atomic.Int64
	away   atomic.Bool

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
func (l *lender) Servers() []*Server                 { return []*Server{l.server} }
func (l *lender) Name() string                       { return "lender" }
func (l *lender) Close() error                       { return nil }

func (l *lender) Run(c *Call) error {
	if l.away.Load() {
		return errors.New("away")
	}
	l.calls.Add(1)
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
	l, err := core.NewLimit(core.LimitConfig{Requests: requests, Period: time.Minute})
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
	if units == 0 || units != stats.Units || units != stats.Held[r.Identity()] || lasts <= 0 || lasts > 1_000_000 {
		t.Errorf("%d units for %d µs, %+v", units, lasts, stats)
	}
	if got := stats.Requests(); got[0].N+got[1].N+got[2].N != 100 || got[0].N < 50 || got[2].N == 0 {
		t.Errorf("100 requests are %v", got)
	}
	if got := stats.Calls(); got[0].N != l.leases.Load() || got[1].N+got[2].N+got[3].N != 0 {
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
