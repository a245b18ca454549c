package redis

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
)

// lender is a client of one server that grants every lease what it wants, unless it is away.
type lender struct {
	server *Server
	calls  atomic.Int64
	leases atomic.Int64
	away   atomic.Bool
}

func newLender() *lender {
	l := &lender{}
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
			c.Reply = append(c.Reply, 5000, 0, 1000, 1000)
		}
		return nil
	}
	for i := 0; i < len(c.Keys); i += 2 {
		l.leases.Add(1)
		c.Reply = append(c.Reply, 5000, 0, 1000, 1000, 40, 1000000, 7, 1)
	}
	return nil
}

func openLeased(t *testing.T, name string, s *Store) *core.Rule {
	l, err := core.NewLimit(core.LimitConfig{Requests: 10000, Period: time.Minute})
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
