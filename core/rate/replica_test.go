package rate

import (
	"testing"
	"time"
)

// replicaOf returns a replica that knows a fixed window of so many units, read at mono 0, and its terms.
func replicaOf(t *testing.T, c LimitConfig, units int64) (r Replica, l *Limit, terms SyncTerms) {
	t.Helper()
	l, err := NewLimit(c)
	if err != nil {
		t.Fatal(err)
	}
	if terms, err = SyncTermsOf(l, time.Second); err != nil {
		t.Fatal(err)
	}
	terms.Slack = 50000
	answer(&r, l, &terms, 0, 0, units)
	return r, l, terms
}

// midnight is the store's time at mono 0.
const midnight = 1_700_006_400_000_000

// look returns what the store answers at that time after midnight if it has counted so many units in its window.
func look(l *Limit, at, units int64) ReplicaState {
	now := midnight + at
	if l.IsLog {
		return ReplicaState{Now: now, A: units, B: 5, Reset: 7}
	}
	return ReplicaState{Now: now, A: now - now%l.Period, B: units}
}

// answer plays a call that brings a state and sends nothing.
func answer(r *Replica, l *Limit, t *SyncTerms, mono, at, units int64) {
	var c ReplicaCall
	BeginLook(mono, &c)
	s := look(l, at, units)
	EndReplicaCall(r, l, t, &c, &s, mono)
}

// request has a replica decide at a time, and charge the request.
func request(r *Replica, l *Limit, t *SyncTerms, cost, mono int64) (d Decision) {
	DecideByReplica(r, l, t, cost, mono, true, &d)
	return d
}

var window = LimitConfig{Algorithm: FixedWindow, Requests: 100, Period: time.Minute}

// What is charged while a call is under way counts after the answer, and is sent with the next call.
func TestChargesBesideACallAreKept(t *testing.T) {
	for _, c := range []LimitConfig{window, {Algorithm: SlidingWindowLog, Requests: 100, Period: time.Minute}} {
		r, l, terms := replicaOf(t, c, 10)
		request(&r, l, &terms, 5, 100)
		var first, second ReplicaCall
		if !ReplicaDue(&r) || !BeginSync(&r, l, &terms, 1000, &first) || first.Units != 5 || ReplicaDue(&r) {
			t.Fatalf("%+v, %+v", first, r)
		}
		if BeginSync(&r, l, &terms, 1000, &second) {
			t.Error("two calls at a time")
		}
		if d := request(&r, l, &terms, 3, 1500); d.Remaining != 82 {
			t.Errorf("beside the call: %+v", d)
		}
		answer(&r, l, &terms, 1700, 1700, 20) // of another call: the first may come after it
		if d := request(&r, l, &terms, 1, 1800); d.Remaining != 71 {
			t.Errorf("after a look: %+v", d)
		}
		s := look(l, 2000, 25)
		EndReplicaCall(&r, l, &terms, &first, &s, 2100)
		if d := request(&r, l, &terms, 1, 2200); d.Remaining != 70 {
			t.Errorf("after the answer: %+v", d)
		}
		if !BeginSync(&r, l, &terms, 3000, &second) || second.Units != 5 {
			t.Errorf("%+v", second)
		}
	}
}

// An answer that was overtaken by another changes nothing. One that is much older says that the store's clock was set back.
func TestAnAnswerThatWasOvertakenIsIgnored(t *testing.T) {
	r, l, terms := replicaOf(t, window, 10)
	answer(&r, l, &terms, 2000, 2000, 30)
	answer(&r, l, &terms, 1500, 1500, 20)
	if d := request(&r, l, &terms, 1, 2500); d.Remaining != 69 {
		t.Errorf("%+v", d)
	}
	answer(&r, l, &terms, 3000, -3_000_000, 40)
	if d := request(&r, l, &terms, 1, 3100); d.Remaining != 58 {
		t.Errorf("after the clock was set back: %+v", d)
	}
}

// A node takes others to go on as they did, counting from half an interval before it last knew; what it has charged itself is not theirs.
func TestAReplicaGuessesWhatOthersAreCharged(t *testing.T) {
	r, l, terms := replicaOf(t, LimitConfig{Algorithm: FixedWindow, Requests: 1000, Period: time.Hour}, 0)
	call := func(second, units int64) {
		t.Helper()
		var c ReplicaCall
		if !BeginSync(&r, l, &terms, second*1_000_000, &c) {
			t.Fatal("a call is under way")
		}
		s := look(l, second*1_000_000, units)
		EndReplicaCall(&r, l, &terms, &c, &s, second*1_000_000)
	}
	request(&r, l, &terms, 50, 500_000)
	call(1, 50)
	if d := request(&r, l, &terms, 1, 1_900_000); d.Remaining != 949 {
		t.Errorf("alone: %+v", d)
	}
	call(2, 51+41) // 40 of others, and one for rounding
	if d := request(&r, l, &terms, 1, 2_500_000); d.Remaining != 1000-92-20-1 {
		t.Errorf("with a rate of 20 a second, the half of what was seen once: %+v", d)
	}
	for second := int64(3); second < 10; second++ {
		call(second, 1000) // used up
	}
	if r.rate*1e6 < 900 {
		t.Errorf("a rate of %v", r.rate*1e6)
	}
	before := r.rate
	call(11, 1000)
	if r.rate != before {
		t.Errorf("the rate falls although nothing is left: %v", r.rate*1e6)
	}
}

// Units of a window that has ended are sent to that window, if it still weighs, or not at all.
func TestUnitsOfAWindowThatHasEnded(t *testing.T) {
	for algorithm, late := range map[Algorithm]int64{FixedWindow: 0, SlidingWindowCounter: 7} {
		r, l, terms := replicaOf(t, LimitConfig{Algorithm: algorithm, Requests: 100, Period: time.Minute}, 0)
		if algorithm == SlidingWindowCounter {
			terms.Every = 2_000_000
		}
		answer(&r, l, &terms, 59_500_000, 59_500_000, 0)
		request(&r, l, &terms, 7, 59_900_000)
		request(&r, l, &terms, 2, 60_100_000)
		var c ReplicaCall
		if !BeginSync(&r, l, &terms, 60_200_000, &c) || c.Units != 2 || c.Late != late {
			t.Errorf("%s: %+v", algorithm, c)
		}
	}
}

// What other rules still decide on is taken into account, and given back if they reject.
func TestReservationsInAReplica(t *testing.T) {
	r, l, terms := replicaOf(t, window, 90)
	var d Decision
	ReserveInReplica(&r, 8)
	DecideByReplica(&r, l, &terms, 3, 100, false, &d)
	if d.Allowed || d.RetryAfter == Never {
		t.Errorf("beside a reservation: %+v", d)
	}
	SettleInReplica(&r, l, &terms, 8, 200, false, &d)
	if DecideByReplica(&r, l, &terms, 3, 300, true, &d); !d.Allowed || d.Remaining != 7 {
		t.Errorf("after it was given back: %+v", d)
	}
	ReserveInReplica(&r, 5)
	if SettleInReplica(&r, l, &terms, 5, 400, true, &d); !d.Allowed || d.Remaining != 2 || r.unsent != 8 {
		t.Errorf("after it was charged: %+v, %d unsent", d, r.unsent)
	}
}

// A defect: a log that the node itself had filled told clients to come back at once.
func TestALogTellsWhenAUnitIsFree(t *testing.T) {
	const minute, second = 60_000_000, 1_000_000
	for _, test := range []struct{ known, free, want int64 }{
		{0, 0, minute},                   // all units have come since the last call
		{40, 30 * second, 30*second - 9}, // the oldest was there before
	} {
		r, l, terms := replicaOf(t, LimitConfig{Algorithm: SlidingWindowLog, Requests: 100, Period: time.Minute}, 0)
		var c ReplicaCall
		BeginLook(0, &c)
		EndReplicaCall(&r, l, &terms, &c, &ReplicaState{Now: midnight, A: test.known, B: test.free}, 0)
		if d := request(&r, l, &terms, 100-test.known, 5); !d.Allowed {
			t.Fatalf("%+v", d)
		}
		if d := request(&r, l, &terms, 1, 9); d.Allowed || d.RetryAfter != test.want {
			t.Errorf("with %d units known: %+v, want a wait of %d", test.known, d, test.want)
		}
	}
}
