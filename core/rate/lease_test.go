package rate

import (
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// A node with a steady demand leases, grows its leases, and gives back what it does not need.
func TestALeaseFollowsTheDemand(t *testing.T) {
	limit, err := NewLimit(LimitConfig{Requests: 10000, Period: time.Minute})
	must.Succeed(t, err)
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
	must.Succeed(t, err)
	terms, err := LeaseTermsOf(limit)
	must.Succeed(t, err)
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

// newLease returns a lease of a busy key of a limit of 100 a minute, and its terms.
func newLease(t *testing.T) (Lease, LeaseTerms, *Limit) {
	t.Helper()
	limit, err := NewLimit(LimitConfig{Requests: 100, Period: time.Minute})
	must.Succeed(t, err)
	terms, err := LeaseTermsOf(limit)
	must.Succeed(t, err)
	l := NewLease(0)
	l.rate = 1
	l.Came = 10
	return l, terms, limit
}

// A call for a request that costs more than is left gives back what is left, and asks for as much as it would have in addition. A defect: the rest was kept, and
// kept again with each call, and nobody could use it.
func TestWhatIsTooLittleForARequestIsGivenBackWithItsCall(t *testing.T) {
	l, terms, _ := newLease(t)
	var a LeaseAsk
	if UseLease(&l, &terms, 1, 2000, 2000, &a) != Asking || a.Keep != 0 || a.Size != 0 {
		t.Fatalf("%+v, %+v", a, l)
	}
	GrantLease(&l, &terms, &a, &LeaseGrant{Units: 10, Life: 1000000, Mark: 1}, 2000)
	for i := 0; i < 7; i++ {
		if UseLease(&l, &terms, 1, 3000, 3000, &a) != Held {
			t.Fatalf("%+v", l)
		}
	}
	if UseLease(&l, &terms, 5, 4000, 4000, &a) != Asking || a.Keep != 0 || a.Size-a.Spent != 3 || a.Want < 4 || l.Left != 0 {
		t.Fatalf("%+v, %+v", a, l)
	}
	undone := l
	OrphanLease(&undone, &terms, &a, false)
	if step := UseLease(&undone, &terms, 3, 4500, 4500, &LeaseAsk{}); step != Held && step != HeldAndAsk {
		t.Errorf("the store never got the call: %+v", undone)
	}
	GrantLease(&l, &terms, &a, &LeaseGrant{Units: 8, Life: 1000000, Mark: 2}, 5000)
	if l.Left != 8 || l.size != 8 {
		t.Errorf("%+v", l)
	}
}

// What is left when a lease ends is given back, or with the next call, where the store has charged it.
func TestWhatIsLeftAtTheEndOfALeaseIsGivenBack(t *testing.T) {
	l, terms, _ := newLease(t)
	var a LeaseAsk
	UseLease(&l, &terms, 1, 2000, 2000, &a)
	GrantLease(&l, &terms, &a, &LeaseGrant{Units: 10, Life: 1000000, Mark: 1}, 2000)
	l.Came = 10_000_000
	if UseLease(&l, &terms, 1, 1200000, 1200000, &a) != Asking || a.Keep != 0 || a.Size != 10 || a.Spent != 0 {
		t.Errorf("%+v, %+v", a, l)
	}
}

// An answer that comes after another decision says how many units are free: the decision may be older. A defect: the node took what it had been lent for
// free, and told a client that the whole limit remained.
func TestAnAdmissionDoesNotCountWhatIsLentAsFree(t *testing.T) {
	l, terms, limit := newLease(t)
	var a LeaseAsk
	var d Decision
	UseLease(&l, &terms, 1, 2000, 2000, &a)
	if UseLease(&l, &terms, 1, 2100, 2100, &LeaseAsk{}) != Missing {
		t.Fatalf("%+v", l)
	}
	GrantLease(&l, &terms, &a, &LeaseGrant{Units: 40, Life: 1000000, Mark: 1, Free: 58}, 2500)
	ConcludeLease(&l, &terms, 1, &Decision{Allowed: true, Remaining: 99, ResetAfter: 1}, 2600)
	if UseLease(&l, &terms, 1, 3000, 3000, &a) != Held {
		t.Fatalf("%+v", l)
	}
	if DecideByLease(&l, limit, true, 3000, &d); d.Remaining != 39+58 {
		t.Errorf("%+v", d)
	}
}

// Each look at the clocks notes a suspension, though the wall clock is set back before the next unit is spent. A defect: a request that cost more than was
// left, and the timer that gives leases back, did not look.
func TestASuspensionIsNotedByWhoeverLooksAtTheClocks(t *testing.T) {
	for name, look := range map[string]func(l *Lease, terms *LeaseTerms, mono, wall int64){
		"a request that costs more than is left": func(l *Lease, terms *LeaseTerms, mono, wall int64) {
			if UseLease(l, terms, 50, mono, wall, &LeaseAsk{}) != Missing {
				t.Fatalf("%+v", l)
			}
		},
		"the timer": func(l *Lease, terms *LeaseTerms, mono, wall int64) {
			ReturnLease(l, mono, wall, &LeaseAsk{})
		},
	} {
		l, terms, _ := newLease(t)
		var a LeaseAsk
		UseLease(&l, &terms, 1, 2000, 2000, &a)
		GrantLease(&l, &terms, &a, &LeaseGrant{Units: 10, Life: 1000000, Mark: 1}, 2000)
		l.asking = true // by another request
		look(&l, &terms, 3000, 2_003_000)
		l.asking = false
		if step := UseLease(&l, &terms, 1, 4000, 4000, &a); step == Held || step == HeldAndAsk {
			t.Errorf("%s: step %d after two seconds: %+v", name, step, l)
		}
	}
}

// A lease of a limit with segments ends with its segment, so these must not be too short.
func TestALeaseEndsWithItsSegment(t *testing.T) {
	limit := mustLimit(t, LimitConfig{Segments: 6, Requests: 100, Period: 3 * time.Second})
	if terms, err := LeaseTermsOf(limit); err != nil || !terms.Charges || terms.AtOnce || terms.Length != 500_000 {
		t.Errorf("%+v, %v", terms, err)
	}
	for _, c := range []struct {
		limit LimitConfig
		want  string
	}{
		{LimitConfig{Segments: 12, Requests: 100, Period: 2 * time.Second}, "a lease of the limit 100/2s sliding_window_counter segments 12 would be over after 166.667ms; it must last 250ms or more"},
		{LimitConfig{Requests: 100, Period: 500 * time.Millisecond}, "the limit 100/500ms sliding_window_counter is whole again after 500ms, and a lease would be over at once"},
	} {
		if _, err := LeaseTermsOf(mustLimit(t, c.limit)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
