package advice

import (
	"math/rand"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// someRule returns the settings of a rule of 100 requests a minute, from 50 to 200.
func someRule(t testing.TB, gates string) *Settings {
	t.Helper()
	s := &Settings{
		Adaptable: Adaptable{Label: "api", Requests: 100, Period: 60 * seconds, Algorithm: "sliding_window_counter", Floor: 50, Ceiling: 200},
		Gates:     gates, WarmUp: 3600 * seconds,
	}
	must.Succeed(t, CheckSettings(s))
	return s
}

func TestSettingsAreChecked(t *testing.T) {
	for want, change := range map[string]func(s *Settings){
		"limit 0:":                     func(s *Settings) { s.Requests = 0 },
		"floor 0:":                     func(s *Settings) { s.Floor = 0 },
		"floor 101:":                   func(s *Settings) { s.Floor = 101 },
		"ceiling 99:":                  func(s *Settings) { s.Ceiling = 99 },
		"ceiling 1000000001:":          func(s *Settings) { s.Ceiling = MaxNumber + 1 },
		"step 101%:":                   func(s *Settings) { s.Step = 101 },
		"step -1%:":                    func(s *Settings) { s.Step = -1 },
		"step 1us:":                    func(s *Settings) { s.Every = 1 },
		`gates "open":`:                func(s *Settings) { s.Gates = "open" },
		`algorithms: "gcra"`:           func(s *Settings) { s.Algorithms = []string{"gcra"} },
		"algorithms: sliding_window_c": func(s *Settings) { s.Calendar = "day@UTC" },
		"ceiling 100001:": func(s *Settings) {
			s.Algorithms = []string{"sliding_window_log"}
			s.Ceiling = 100_001
		},
	} {
		s := someRule(t, Full)
		change(s)
		if err := CheckSettings(s); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
}

func TestABucketDrainsInTime(t *testing.T) {
	s := &Settings{Adaptable: Adaptable{
		Label: "x", Requests: 2, Period: 366 * 24 * 3600 * seconds, Burst: 19, Algorithm: "token_bucket", Floor: 1, Ceiling: 2,
	}, Gates: Bounds}
	must.Succeed(t, CheckSettings(s))
	st := Start(s)
	Take(&st, &Rule{Rule: "x", Limit: &Limit{Requests: 1, Burst: 19}, Reason: "growth"}, 1, begins, begins+3600*seconds, begins)
	for now := begins; now < begins+600*seconds; now += seconds {
		o := Turn(s, &st, Conditions{}, now)
		if o.Burst < 1 || o.Burst*s.Period/o.Requests > longestDrain {
			t.Fatalf("%+v", o)
		}
	}
}

// anything returns settings, advice and conditions by chance.
type anything struct{ random *rand.Rand }

func (a anything) number() int64 {
	switch a.random.Intn(4) {
	case 0:
		return 1 + a.random.Int63n(20)
	case 1:
		return MaxNumber - a.random.Int63n(20)
	default:
		return 1 + a.random.Int63n(MaxNumber)
	}
}

func (a anything) settings() *Settings {
	s := &Settings{Adaptable: Adaptable{Label: "api", Period: 60 * seconds, Requests: a.number()}}
	s.Floor = 1 + a.random.Int63n(s.Requests)
	s.Ceiling = s.Requests + a.random.Int63n(MaxNumber-s.Requests+1)
	some := []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter"}
	s.Algorithm = some[a.random.Intn(4)]
	s.Algorithms = some[:a.random.Intn(4)]
	if isBucket(s.Algorithm) {
		s.Burst = s.drainable(a.number(), s.Requests)
	}
	s.Step = 1 + a.random.Int63n(100)
	s.Every = (1 + a.random.Int63n(60)) * seconds
	s.Gates = Full
	if a.random.Intn(2) == 0 {
		s.Gates = Bounds
	}
	return s
}

func (a anything) rule() *Rule {
	if a.random.Intn(8) == 0 {
		return nil
	}
	r := &Rule{Rule: "api", Reason: "growth", Limit: &Limit{Requests: a.number()}}
	if a.random.Intn(2) == 0 {
		r.Limit.Burst = a.number()
	}
	if a.random.Intn(2) == 0 {
		r.Limit.Algorithm = rate.AlgorithmNames[a.random.Intn(len(rate.AlgorithmNames))]
	}
	if a.random.Intn(4) > 0 {
		r.Forecast = &Forecast{Upper: float64(a.random.Int63n(MaxDemand + 1))}
	}
	if a.random.Intn(4) == 0 {
		r.Above = &Above{RequestsPerSecond: float64(a.number()), Limit: "2/1s", For: "5m"}
	}
	return r
}

func (a anything) conditions() Conditions {
	chance := func() bool { return a.random.Intn(4) == 0 }
	return Conditions{
		Known: !chance(), Overloaded: chance(), Concentrated: chance(), Learnt: int64(a.random.Intn(2)) * 86400 * seconds, Switching: chance(),
		Edge: a.random.Int63n(1000), P90: a.random.Int63n(100),
	}
}

// Whatever advice says and whatever is seen, a limit stays in its bounds, moves by steps, and is the configured one in the end.
func TestLimitsStayInTheirBoundsAndReturn(t *testing.T) {
	underrace.OneGoroutine(t)
	rounds := 4000
	if interpreted {
		rounds = 20
	}
	a := anything{rand.New(rand.NewSource(1))}
	moved, loosened, lowered := 0, 0, 0
	for round := 0; round < rounds; round++ {
		s := a.settings()
		if err := CheckSettings(s); err != nil {
			continue // a log that is too long
		}
		st := Start(s)
		now := begins
		steppedAt := int64(0)
		ends := begins
		was := Turn(s, &st, Conditions{}, now)
		for turn := 0; turn < 60; turn++ {
			now += (1 + a.random.Int63n(20)) * seconds
			if turn%4 == 0 {
				effective := now + a.random.Int63n(30)*seconds
				expires := effective + a.random.Int63n(300)*seconds
				Take(&st, a.rule(), int64(a.random.Intn(60)), effective, expires, now)
				if expires > ends {
					ends = expires
				}
			}
			c := a.conditions()
			o := Turn(s, &st, c, now)
			inBounds(t, s, &o)
			atOnce := s.Gates == Full && c.Overloaded && o.Requests == s.Requests && o.Requests < was.Requests
			if o.Requests != was.Requests {
				moved++
				most := was.Requests * s.Step / 100
				if most < 1 {
					most = 1
				}
				if difference := o.Requests - was.Requests; !atOnce && (difference > most || -difference > most || now-steppedAt < s.Every) {
					t.Fatalf("round %d: from %d to %d after %d s, with %d%% each %d s", round, was.Requests, o.Requests, (now-steppedAt)/seconds, s.Step, s.Every/seconds)
				}
				steppedAt = now
			}
			if s.Gates == Full && o.Requests > was.Requests && (!c.Known || c.Overloaded || c.Concentrated || c.Learnt == 0 && s.WarmUp > 0) {
				t.Fatalf("round %d: loosened with %+v", round, c)
			}
			if s.Gates == Full && c.Overloaded && o.Requests > s.Requests {
				t.Fatalf("round %d: loosened while overloaded: %+v", round, o)
			}
			if s.Gates == Full && c.Overloaded && !c.Switching && o.Algorithm != s.Algorithm {
				t.Fatalf("round %d: another algorithm while overloaded: %+v", round, o)
			}
			if o.Requests > s.Requests {
				loosened++
			}
			if o.Requests < s.Requests {
				lowered++
			}
			was = o
		}
		if now < ends {
			now = ends
		}
		Turn(s, &st, Conditions{Known: true}, now)
		last := now + WalkBack(s, &st) + 2*s.Every
		for ; now <= last; now += s.Every {
			was = Turn(s, &st, Conditions{Known: true}, now)
		}
		if was.Requests != s.Requests || was.Algorithm != s.Algorithm || was.Why != Configured || (was.Burst != s.Burst && isBucket(s.Algorithm)) {
			t.Fatalf("round %d: %+v in the end, not %+v", round, was, s)
		}
	}
	if moved < rounds || loosened < rounds || lowered < rounds {
		t.Errorf("%d moves; %d times loosened, %d lowered", moved, loosened, lowered)
	}
}

func inBounds(t *testing.T, s *Settings, o *Outcome) {
	t.Helper()
	if o.Requests < s.least() || o.Requests > s.Ceiling {
		t.Fatalf("%d is not from %d to %d", o.Requests, s.least(), s.Ceiling)
	}
	if indexOf(s.allowed(), o.Algorithm) < 0 {
		t.Fatalf("%s is not allowed", o.Algorithm)
	}
	if isBucket(o.Algorithm) != (o.Burst > 0) || o.Burst > MaxNumber {
		t.Fatalf("%+v", *o)
	}
	if isBucket(o.Algorithm) && o.Burst < s.burstOf(s.least()) && o.Burst < s.drainable(MaxNumber, o.Requests) {
		t.Fatalf("%+v with %+v", *o, *s)
	}
	if a := o.Above; a != nil && (a.Edge < 1 || a.Limit <= 0) {
		t.Fatalf("%+v", *a)
	}
}

func TestACopyOfAStateIsIndependent(t *testing.T) {
	s := someRule(t, Bounds)
	st := Start(s)
	Take(&st, &Rule{Rule: "api", Reason: "growth", Limit: &Limit{Requests: 1000}}, 1, begins, begins+3600*seconds, begins)
	Turn(s, &st, Conditions{}, begins)
	kept := st
	for now := begins; now < begins+300*seconds; now += seconds {
		Turn(s, &st, Conditions{}, now)
	}
	if o := Turn(s, &kept, Conditions{}, begins+seconds); o.Requests != 125 || len(o.Clamps) != 0 {
		t.Errorf("%+v", o)
	}
}

func TestTheWayBackIsKnown(t *testing.T) {
	s := someRule(t, Bounds)
	s.Algorithms = []string{"token_bucket"}
	st := Start(s)
	must.Equal(t, WalkBack(s, &st), 0, "it is at the configured limit")
	Take(&st, &Rule{Rule: "api", Reason: "growth", Limit: &Limit{Requests: 100, Algorithm: "token_bucket"}}, 1, begins, begins+3600*seconds, begins)
	Turn(s, &st, Conditions{}, begins)
	must.Equal(t, WalkBack(s, &st), s.Every, "another algorithm takes")
	Take(&st, &Rule{Rule: "api", Reason: "growth", Limit: &Limit{Requests: 200}}, 2, begins, begins+3600*seconds, begins)
	now := begins
	for ; now < begins+600*seconds; now += seconds {
		Turn(s, &st, Conditions{}, now)
	}
	if got := WalkBack(s, &st); got != 3*s.Every { // 200, 150, 113, 100
		t.Errorf("from twice the limit it takes %d", got)
	}
}

// A defect: a turn that came a little earlier after its second than the one with the last step had to wait for another second, so that the nodes of a
// fleet drifted apart with each step.
func TestStepsKeepToTheSecondsThatTurnsComeWith(t *testing.T) {
	s := someRule(t, Bounds)
	st := Start(s)
	Take(&st, &Rule{Rule: "api", Reason: "growth", Limit: &Limit{Requests: 200}}, 1, begins, begins+3600*seconds, begins)
	late := []int64{1500, 1200, 9000, 400_000, 0} // microseconds
	was := s.Requests
	for turn := int64(0); turn <= 90; turn++ {
		o := Turn(s, &st, Conditions{}, begins+turn*seconds+late[turn%int64(len(late))])
		must.Equal(t, o.Requests != was, turn%30 == 0, "at second %d: from %d to %d", turn, was, o.Requests)
		was = o.Requests
		if turn%30 == 0 {
			late[0] /= 3
		}
	}
}

func TestOutcomesAreExplained(t *testing.T) {
	seen := make(map[string]bool)
	for _, why := range []string{
		Configured, Followed, HeldByStep, HeldByDeadband, HeldBySwitch, GateUnknown, GateWarmUp, GateOverload, GateConcentration, Frozen, Expired, Abstains,
		Reverted, Reloaded,
	} {
		text := Explain(&Outcome{Why: why, Serial: 4711, Reason: "growth"})
		if text == "" || seen[text] {
			t.Errorf("%s: %q", why, text)
		}
		seen[text] = true
	}
	must.Equal(t, Explain(&Outcome{Why: GateWarmUp, Serial: 4711, Reason: "growth"}), "advice 4711, growth: not loosened before usual demand is learnt")
	if !seen["frozen by hand"] || !seen["configured"] {
		t.Errorf("%v", seen)
	}
}

// Documents that come faster than they take effect are followed all the same: each as it takes effect, or a newer one.
func TestAdviceThatComesFasterThanItTakesEffectIsFollowed(t *testing.T) {
	s := someRule(t, Bounds)
	s.Step = 100
	st := Start(s)
	followed := int64(0)
	for second := int64(0); second < 20; second++ {
		now := begins + second*seconds
		Take(&st, &Rule{Rule: "api", Limit: &Limit{Requests: 150}, Reason: "growth"}, 10+second, now+4*seconds, now+60*seconds, now)
		if o := Turn(s, &st, Conditions{}, now); o.Serial > 0 {
			if second < 4 || o.Serial > 10+second-4 {
				t.Errorf("second %d: advice %d is followed before its time", second, o.Serial)
			}
			if o.Serial < 10+second-8 {
				t.Errorf("second %d: still advice %d is followed", second, o.Serial)
			}
			followed = o.Requests
		}
	}
	must.Equal(t, followed, 150, "the limit")
}
