package redis

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// tally is a client of one server that counts what replicas send, for limits of fixed windows of an hour.
type tally struct {
	server *Server

	mu    sync.Mutex
	units map[string]int64
	keys  int // in the longest call
	calls int
	away  bool
}

const hour = 3_600_000_000

func newTally() *tally {
	c := &tally{units: make(map[string]int64)}
	c.server = NewServer("tally", c)
	return c
}

func (c *tally) Server(key string) (*Server, error) { return c.server, nil }
func (c *tally) Cluster() bool                      { return false }
func (c *tally) Timeout() time.Duration             { return 30 * time.Second }
func (c *tally) Background() time.Duration          { return c.Timeout() }
func (c *tally) Servers() []*Server                 { return []*Server{c.server} }
func (c *tally) Name() string                       { return "tally" }
func (c *tally) Close() error                       { return nil }

func (c *tally) Run(call *Call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return errors.New("away")
	}
	c.calls++
	if len(call.Keys) > c.keys {
		c.keys = len(call.Keys)
	}
	call.Reply = call.Reply[:0]
	now := time.Now().UnixMicro()
	argument := []byte(call.Args[0])
	part := len(argument) / len(call.Keys)
	for i, key := range call.Keys {
		of := argument[i*part:]
		c.units[key] += int64(math.Float64frombits(binary.LittleEndian.Uint64(of[16+costAt:])))
		call.Reply = append(call.Reply, 1000-c.units[key], 0, 1000, 1000, 0, now-now%hour, c.units[key], 0)
	}
	call.Reply = append(call.Reply, now)
	return nil
}

// sum returns how many units were counted.
func (c *tally) sum() int64 {
	sum := int64(0)
	c.mu.Lock()
	for _, n := range c.units {
		sum += n
	}
	c.mu.Unlock()
	return sum
}

func openReplicated(t *testing.T, s *Store, every time.Duration) *core.Rule {
	l, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1000, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	r, err := core.NewRule(core.RuleConfig{Name: "r", Limit: l, Consistency: core.Eventual, SyncEvery: every})
	if err != nil {
		t.Fatal(err)
	}
	if err = s.Open(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// A timer synchronises what is due, many keys in a call, until nothing is.
func TestATimerSynchronisesReplicas(t *testing.T) {
	c := newTally()
	s, err := NewStore(Config{Client: c})
	if err != nil {
		t.Fatal(err)
	}
	r := openReplicated(t, s, 10*time.Millisecond)
	sent := int64(0)
	for i := 0; i < 5; i++ {
		for key := 0; key < 250; key++ {
			checks := []core.Check{{Rule: r, Key: strconv.Itoa(key), Cost: 2}}
			if err = s.Decide(checks, false); err != nil || !checks[0].Decision.Allowed {
				t.Fatalf("%+v, %v", checks[0].Decision, err)
			}
			sent += 2
		}
	}
	for end := time.Now().Add(30 * time.Second); c.sum() != sent || s.SyncStats().Age != 0; {
		if time.Now().After(end) {
			t.Fatalf("%d units were sent of %d: %+v", c.sum(), sent, s.SyncStats())
		}
		time.Sleep(time.Millisecond)
	}
	c.mu.Lock()
	calls := c.calls
	if c.keys > mostTogether {
		t.Errorf("%d keys in a call", c.keys)
	}
	c.mu.Unlock()
	if stats := s.SyncStats(); stats.Synced == 0 || stats.Failed != 0 || calls > 250*5+int(stats.Synced) {
		t.Errorf("%d calls: %+v", calls, stats)
	}
	if err = s.Close(); err != nil {
		t.Error(err)
	}
}

// A defect: a key that was due in a round was synchronised in none any more when its rule had got another interval.
func TestAKeyWhoseRuleGetsAnotherIntervalIsSynchronised(t *testing.T) {
	c := newTally()
	s, err := NewStore(Config{Client: c})
	if err != nil {
		t.Fatal(err)
	}
	sent := int64(0)
	byReplica := func(r *core.Rule) { // decides until Redis is not asked
		t.Helper()
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
			c.mu.Lock()
			calls := c.calls
			c.mu.Unlock()
			checks := []core.Check{{Rule: r, Key: "k", Cost: 1}}
			if err := s.Decide(checks, false); err != nil || !checks[0].Decision.Allowed {
				t.Fatalf("%+v, %v", checks[0].Decision, err)
			}
			sent++
			c.mu.Lock()
			asked := c.calls > calls
			c.mu.Unlock()
			if !asked {
				return
			}
		}
		t.Fatal("each request asks Redis")
	}
	byReplica(openReplicated(t, s, time.Minute))
	byReplica(openReplicated(t, s, 100*time.Millisecond))
	for end := time.Now().Add(30 * time.Second); c.sum() != sent; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d units were sent of %d: %+v", c.sum(), sent, s.SyncStats())
		}
	}
	if err = s.Close(); err != nil {
		t.Error(err)
	}
}

// So many keys that they would fill the memory are synchronised before the interval is over, and no more than a bound are listed.
func TestManyKeysAreSynchronisedEarly(t *testing.T) {
	c := newTally()
	s, err := NewStore(Config{Client: c})
	if err != nil {
		t.Fatal(err)
	}
	r := openReplicated(t, s, time.Minute)
	o := opened(r)
	shard := &s.replicas.shards[0]
	touch := func(n int) {
		for i := 0; i < n; i++ {
			h := &replicaOf{mu: &shard.mu, rule: r, open: o, name: strconv.Itoa(i)}
			shard.mu.Lock()
			s.replicas.touch(h, 1)
			shard.mu.Unlock()
		}
	}
	one := s.replicas.roundOf(o.sync.Every)
	one.mu.Lock()
	one.busy = true // no round begins
	one.mu.Unlock()
	touch(mostDue + 10)
	if len(shard.due) != mostDue {
		t.Errorf("%d keys are listed", len(shard.due))
	}
	s.replicas.collect(one)
	one.mu.Lock()
	one.busy = false
	one.mu.Unlock()
	touch(mostDue / 2)
	for end := time.Now().Add(30 * time.Second); s.SyncStats().Synced < mostDue/2/mostTogether; {
		if time.Now().After(end) {
			t.Fatalf("%+v", s.SyncStats())
		}
		time.Sleep(time.Millisecond)
	}
	if err = s.Close(); err != nil {
		t.Error(err)
	}
}

// A call that fails is counted, and its keys come again. How long they have waited is told.
func TestRoundsThatFailComeAgain(t *testing.T) {
	c := newTally()
	s, err := NewStore(Config{Client: c})
	if err != nil {
		t.Fatal(err)
	}
	r := openReplicated(t, s, 10*time.Millisecond)
	checks := []core.Check{{Rule: r, Key: "k", Cost: 1}}
	if err = s.Decide(checks, false); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.away = true
	c.mu.Unlock()
	if err = s.Decide(checks, false); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); s.SyncStats().Failed == 0 || s.SyncStats().Age < 20_000; {
		if time.Now().After(end) {
			t.Fatalf("%+v", s.SyncStats())
		}
		time.Sleep(time.Millisecond)
	}
	if err = s.Close(); err != nil {
		t.Error(err)
	}
}
