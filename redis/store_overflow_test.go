package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// counting is the overflow policy of a rule that counts by status. Its requests reserve their units until they end.
func counting(t *testing.T) core.OverflowPolicy {
	t.Helper()
	statuses, err := core.ParseCounted([]string{"401"})
	if err != nil {
		t.Fatal(err)
	}
	return core.OverflowPolicy{Count: statuses}
}

// reserving is the reply to a request that is admitted, and has reserved something.
func reserving() []int64 { return []int64{5, 0, 60 * second, second, isReserved} }

// leased returns how many leases the store has.
func (s *scene) leased() int {
	n := 0
	for _, members := range s.store.renewals.held {
		n += len(members)
	}
	return n
}

// An invalid reply is an error. The store takes nothing to be reserved by it, since nobody would end that reservation.
func TestAnInvalidReplyReservesNothing(t *testing.T) {
	good := []int64{5, 0, 60 * second, second, isReserved}
	for i, reply := range [][]int64{
		{},
		{5},
		good,
		{5, 0, 60 * second, second, isReserved, 5, 0, 60 * second, second},
		{5, 0, 60 * second, second, isReserved, 5, 0, 60 * second, second, isReserved, 0},
		{5, 0, 60 * second, second, isReserved, 11, 0, 60 * second, second, isReserved},
		{5, 0, 60 * second, second, isReserved, -12, 0, 60 * second, 0, 0},
		{11, 0, 60 * second, second, isReserved, 5, 0, 60 * second, second, isReserved},
		{5, 0, 60 * second, second, isReserved, 5, -2, 60 * second, second, isReserved},
		{5, 0, 60 * second, second, isReserved, 5, 0, -1, second, isReserved},
	} {
		s := newScene(t, false)
		a, b := s.open(core.RuleConfig{Name: "a", OverflowPolicy: counting(t)}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "b", OverflowPolicy: counting(t)}, rate.LimitConfig{})
		s.answer = func(c *sentCall) ([]int64, error) { return reply, nil }
		checks := []core.Check{check(a, "k", 1), check(b, "k", 1)}
		if err := s.store.Decide(checks, false); !errors.Is(err, errReply) {
			t.Errorf("%d: %v: %v, %+v", i, reply, err, checks)
		}
		if len(core.AppendReservations(nil, checks)) != 0 || s.leased() != 0 {
			t.Errorf("%d: %v: %d reservations, %d leases; want none", i, reply, len(core.AppendReservations(nil, checks)), s.leased())
		}
	}
}

// All reservations of a request are settled, even if one of them fails. Settle returns the error, and no lease is renewed any more.
func TestAFailureToSettleIsReturnedAndEndsAllLeases(t *testing.T) {
	s := newScene(t, false)
	a, b := s.open(core.RuleConfig{Name: "a", OverflowPolicy: counting(t)}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "b", OverflowPolicy: counting(t)}, rate.LimitConfig{})
	s.answer = func(c *sentCall) ([]int64, error) { return append(reserving(), reserving()...), nil }
	checks := []core.Check{check(a, "k", 1), check(b, "k", 2)}
	if err := s.store.Decide(checks, false); err != nil || s.leased() != 2 {
		t.Fatalf("%v, %d leases", err, s.leased())
	}
	reservations := core.AppendReservations(nil, checks)
	if len(reservations) != 2 {
		t.Fatalf("%d reservations", len(reservations))
	}
	reservations[1].Keep(true)
	s.forget()
	s.answer = func(c *sentCall) ([]int64, error) {
		if strings.Contains(c.keys[0], ":a:") {
			return nil, errDown
		}
		return []int64{0, 0}, nil
	}
	if err := s.store.Settle(reservations); !errors.Is(err, errDown) {
		t.Errorf("%v; want the failure", err)
	}
	if len(s.calls) != 2 || s.calls[0].args[1] != "0" || s.calls[1].args[1] != "2" || s.leased() != 0 {
		t.Errorf("%d calls, %d leases", len(s.calls), s.leased())
	}
	for i := 0; i < 5; i++ {
		s.server("k").breaker.Fail(s.server("k").trouble.Load())
		s.server("k").patient.Fail(s.server("k").patient.Trouble().Load())
	}
	s.forget()
	if err := s.store.Settle(reservations[:1]); !errors.Is(err, ErrOpen) || len(s.calls) != 0 {
		t.Errorf("of a server that is down: %v, %d calls; want none", err, len(s.calls))
	}
	if err := s.store.Block(a, "k", second); !errors.Is(err, ErrOpen) || len(s.calls) != 0 {
		t.Errorf("of a server that is down: %v, %d calls; want none", err, len(s.calls))
	}
	s.none = true
	if err := s.store.Reset(a, "k"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("where no server is known: %v", err)
	}
}

// If the server's time lies in none of the windows that were sent, the script of a reset by hand is run a second time, and no more.
func TestAResetByHandGoesByTheServersCalendar(t *testing.T) {
	s := newScene(t, false)
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{Calendar: rate.Day})
	s.answer = func(c *sentCall) ([]int64, error) {
		if len(s.calls) == 1 {
			return []int64{serverTime + 40*24*3600*second}, nil
		}
		return []int64{0, 0}, nil
	}
	if err := s.store.Reset(r, "k"); err != nil || len(s.calls) != 2 || s.calls[0].args[0] == s.calls[1].args[0] {
		t.Errorf("%v, %d calls; want two, with other windows", err, len(s.calls))
	}
	s.forget()
	s.answer = func(c *sentCall) ([]int64, error) { return []int64{serverTime}, nil }
	if err := s.store.Reset(r, "k"); err != nil || len(s.calls) != 2 {
		t.Errorf("%v, %d calls; want two and no more", err, len(s.calls))
	}
}

// Leases are renewed some hundreds at a time, each once. In a Cluster each key has calls of its own.
func TestLeasesAreRenewedInBatches(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		s := newScene(t, cluster)
		l := &s.store.renewals
		l.closed = true // only the test renews leases
		want := map[string]bool{}
		add := func(key string, members int) {
			for i := 0; i < members; i++ {
				m := fmt.Sprintf("%016d", len(want))
				l.add(key, m)
				want[key+m] = true
			}
		}
		add("{many}:h", 2*leaseMembers+1)
		add("{some}:h", leaseMembers)
		for i := 0; i < leaseKeys+1; i++ {
			add(fmt.Sprint("{", i, "}:h"), 1)
		}
		s.answer = func(c *sentCall) ([]int64, error) { return []int64{0, 0}, nil }
		l.renew()
		got := map[string]bool{}
		for _, c := range s.calls {
			length := 0
			for i, members := range c.args[1:] {
				length += len(members) / memberLength
				for ; members != ""; members = members[memberLength:] {
					if m := c.keys[i] + members[:memberLength]; got[m] {
						t.Errorf("%s is renewed twice", m)
					} else {
						got[m] = true
					}
				}
			}
			if c.script != scriptOfRenewal || c.args[0] != fmt.Sprint(DefaultLease.Microseconds()) || len(c.keys) != len(c.args)-1 {
				t.Errorf("a call of %d keys and %d arguments, for %s µs", len(c.keys), len(c.args), c.args[0])
			}
			if length > leaseMembers || len(c.keys) > leaseKeys || cluster && len(c.keys) > 1 {
				t.Errorf("a call of %d keys and %d members", len(c.keys), length)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d members are renewed; want %d", len(got), len(want))
		}
		for m := range want {
			if !got[m] {
				t.Errorf("%s is not renewed", m)
			}
		}

		// A renewal that fails is a failure of its server. When the server is down, there are no more renewals.
		s.answer = func(c *sentCall) ([]int64, error) { return nil, errDown }
		for i := 0; i < 5; i++ {
			l.renewSome([]string{"{many}:h"}, []string{"0123456789abcdef"})
		}
		if s.server("many").Available() {
			t.Error("renewals that fail do not count as failures of the server")
		}
		s.forget()
		l.renewSome([]string{"{many}:h"}, []string{"0123456789abcdef"})
		s.none = true
		l.renewSome([]string{"{many}:h"}, []string{"0123456789abcdef"})
		if len(s.calls) != 0 {
			t.Errorf("%d calls of a server that is down", len(s.calls))
		}
	}
	var l renewals
	l.begin(nil, time.Minute)
	l.tickets.Store(^uint64(0))
	if n := l.ticket(); n != 1 {
		t.Errorf("after the last ticket comes %d; want 1, since 0 is none", n)
	}
}
