package rate

import (
	"math/rand"
	"testing"
	"time"
)

// SpendReplica decides as DecideByReplica and TouchReplica do, leaves the replica as they do, and leaves to them what it does not decide.
func TestSpendReplicaDecidesAsDecideByReplica(t *testing.T) {
	for _, c := range []LimitConfig{
		{Algorithm: TokenBucket}, {Algorithm: TokenBucket, Interval: true}, {Algorithm: FixedWindow}, {Algorithm: SlidingWindowCounter}, {Algorithm: SlidingWindowLog},
	} {
		c.Requests = 600
		c.Period = time.Minute
		l := mustLimit(t, c)
		random := rand.New(rand.NewSource(5))
		terms, err := SyncTermsOf(l, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		terms.Slack = 1000
		var quick, general Replica
		var quickCall, generalCall ReplicaCall
		mono, spent, guessed, steps := int64(90_000_000), 0, 0, 20_000
		if interpreted {
			steps = 2000
		}
		for i := 0; i < steps; i++ {
			mono += random.Int63n(10_000)
			switch random.Intn(400) {
			case 0:
				mono += 30_000_000
			case 1:
				mono -= 3_000_000
			case 2:
				units := random.Int63n(3)
				ReserveInReplica(&quick, units)
				ReserveInReplica(&general, units)
			case 3:
				quick.reserved, general.reserved = 0, 0
			case 4, 5, 6, 7, 8, 9, 10:
				state := stateWith(l, mono+5_000_000, random.Int63n(600))
				if random.Intn(10) == 0 {
					state.Blocked = 500_000
				}
				if BeginSync(&quick, l, &terms, mono, &quickCall) != BeginSync(&general, l, &terms, mono, &generalCall) || quickCall != generalCall {
					t.Fatalf("%s: request %d: the calls are %+v and %+v", l, i, quickCall, generalCall)
				}
				EndReplicaCall(&quick, l, &terms, &quickCall, &state, mono)
				EndReplicaCall(&general, l, &terms, &generalCall, &state, mono)
			}
			remaining, reset, more := SpendReplica(&quick, l, &terms, mono)
			var want, got Decision
			if fresh := ReplicaFresh(&general, &terms, mono, false); !fresh {
				if remaining >= 0 {
					t.Fatalf("%s: request %d is allowed by a replica that is not fresh", l, i)
				}
				continue
			}
			before := general.guessed
			DecideByReplica(&general, l, &terms, 1, mono, true, &want)
			TouchReplica(&general)
			if general.guessed > before {
				guessed++
			}
			got = Decision{Allowed: true, Limit: l.Quota, Remaining: remaining, ResetAfter: reset, MoreAfter: more}
			if remaining < 0 {
				DecideByReplica(&quick, l, &terms, 1, mono, true, &got)
				TouchReplica(&quick)
			} else {
				spent++
			}
			if got != want || quick != general {
				t.Fatalf("%s: request %d: %+v with %+v, want %+v with %+v", l, i, got, quick, want, general)
			}
		}
		if spent < steps/10 && !l.interval || guessed < steps/1000 { // a bucket that is refilled at intervals is rare
			t.Errorf("%s: %d requests were decided, and units of others were guessed %d times", l, spent, guessed)
		}
	}
}

// stateWith returns the state of a store in which so many units are used.
func stateWith(l *Limit, now, units int64) ReplicaState {
	start := now - now%l.Period
	s := ReplicaState{Now: now, A: start, B: units, Reset: l.Period}
	switch l.Algorithm {
	case TokenBucket:
		s.A = now
	case SlidingWindowCounter:
		s.B, s.C = units/2, units/2
	case SlidingWindowLog:
		s.A, s.B = units, 1_000_000
	}
	return s
}
