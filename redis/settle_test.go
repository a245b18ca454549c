package redis

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// stalled is a client whose server never answers: a call ends at its deadline.
type stalled struct {
	server  *Server
	timeout time.Duration

	mu        sync.Mutex
	deadlines []time.Time // of the calls
	gate      chan struct{}
}

func (s *stalled) Server(key string) (*Server, error) { return s.server, nil }
func (s *stalled) Servers() []*Server                 { return []*Server{s.server} }
func (s *stalled) Cluster() bool                      { return false }
func (s *stalled) Timeout() time.Duration             { return s.timeout }
func (s *stalled) Background() time.Duration          { return s.Timeout() }
func (s *stalled) Name() string                       { return "stalled" }
func (s *stalled) Close() error                       { return nil }

// calls returns how many calls have been made, and how many of them had a deadline.
func (s *stalled) calls() (all, limited int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.deadlines {
		if !at.IsZero() {
			limited++
		}
	}
	return len(s.deadlines), limited
}

// Run implements Conn. Calls without a deadline run in the background in these tests. They wait at the gate.
func (s *stalled) Run(call *Call) error {
	s.mu.Lock()
	s.deadlines = append(s.deadlines, call.Deadline)
	s.mu.Unlock()
	if call.Deadline.IsZero() {
		<-s.gate
		call.Reply = []int64{0, 0}
		return nil
	}
	over, letGo := context.WithDeadline(context.Background(), call.Deadline)
	<-over.Done()
	letGo()
	return ErrTimeout
}

// However many reservations a request has, to settle them takes no longer than the timeout of a decision: the calls share one deadline, and
// nobody waits after it.
func TestSettlingTakesNoLongerThanADecision(t *testing.T) {
	client := &stalled{timeout: 20 * time.Millisecond, gate: make(chan struct{})}
	client.server = NewServer("stalled", client)
	s, err := NewStore(Config{Client: client})
	must.Succeed(t, err)
	s.closed = true // no probes
	places, err := rate.NewConcurrency(100)
	must.Succeed(t, err)
	r, err := core.NewRule(core.RuleConfig{Name: "places", Limit: places})
	must.Succeed(t, err)
	must.Succeed(t, s.Open(r))
	reservations := make([]core.Reservation, 30)
	for i := range reservations {
		reservations[i] = core.Reservation{Rule: r, Key: "k", Cost: 1, Ticket: uint64(i + 1)}
	}
	if err := s.Settle(reservations); err == nil {
		t.Error("nothing was answered, and there is no error")
	}
	_, limited := client.calls()
	if limited != 1 { // the first has used up the time
		t.Errorf("%d calls were waited for, one after the other", limited)
	}
	close(client.gate)
	for all := 0; all < len(reservations); all, _ = client.calls() {
		time.Sleep(time.Millisecond) // lets the background continue
	}
	if all, limited := client.calls(); all != len(reservations) || limited != 1 {
		t.Errorf("%d calls, %d of them waited for; want %d and 1", all, limited, len(reservations))
	}
}
