package core

import (
	"testing"
	"time"
)

// A node with a steady demand leases, grows its leases, and gives back what it does not need.
func TestALeaseFollowsTheDemand(t *testing.T) {
	limit, err := NewLimit(LimitConfig{Requests: 10000, Period: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	terms, err := LeaseTermsOf(limit)
	if err != nil || terms.Length != 1000000 || terms.Pace != 100000 || terms.Longest != 500000 || terms.Few != 250 {
		t.Fatalf("%+v, %v", terms, err)
	}
	l := NewLease(5)
	if l.since != 5 {
		t.Fatalf("%+v", l)
	}
	var a LeaseAsk
	var d Decision
	steps := make([]int, 6)
	mono := int64(5)
	for i := 0; i < 1000; i++ {
		mono += 1000
		step := UseLease(&l, &terms, 1, mono, mono, &a)
		steps[step]++
		if step == Asking || step == HeldAndAsk {
			g := LeaseGrant{Units: a.Size - a.Spent + a.Want, Life: 1000000, Mark: 1, ToldIn: 1, Free: 9000}
			GrantLease(&l, &terms, &a, &g, mono)
		}
		if step == Held {
			DecideByLease(&l, limit, true, mono, &d)
			if !d.Allowed || d.Remaining != l.Left+9000 {
				t.Fatalf("%+v, %+v", d, l)
			}
		}
	}
	if steps[Held] < 900 || steps[Asking]+steps[HeldAndAsk] > 20 || steps[Refused] > 0 || l.last < 400 || l.last > 1000 {
		t.Errorf("%v, %+v", steps, l)
	}
	if ReturnLease(&l, mono, mono, &a) {
		t.Errorf("given back at once: %+v", l)
	}
	left := l.Left
	if !ReturnLease(&l, mono+520000, mono+520000, &a) || a.Size-a.Spent != left || a.Keep != 0 || l.Left != 0 || LeaseHeld(&l) {
		t.Errorf("given back: %+v, %+v", a, l)
	}
}

// Nothing is spent after the end of a lease, by whichever clock has gone further.
func TestALeaseEndsByEitherClock(t *testing.T) {
	limit, err := NewLimit(LimitConfig{Requests: 10000, Period: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	terms, err := LeaseTermsOf(limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mono, wall int64
		spends     bool
	}{{990000, 990000, true}, {1000000, 990000, false}, {990000, 1100000, false}, {10000, 1000000, false}, {990000, -5000000, true}} {
		var a LeaseAsk
		l := NewLease(0)
		l.rate = 1
		l.Came = 10
		if UseLease(&l, &terms, 1, 2000, 2000, &a) != Asking {
			t.Fatalf("%+v", l)
		}
		g := LeaseGrant{Units: 10, Life: 1000000, Mark: 1}
		GrantLease(&l, &terms, &a, &g, 2500)
		if got := UseLease(&l, &terms, 1, 2000+c.mono, 2000+c.wall, &a); (got == Held || got == HeldAndAsk) != c.spends {
			t.Errorf("%+v: step %d, %+v", c, got, l)
		}
	}
}
