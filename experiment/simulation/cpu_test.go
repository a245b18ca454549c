package simulation

import (
	"math"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// TestTheCPUIsBusyBeforeTheServiceIsSlow, and the service is slow until all that was left is done.
func TestTheCPUIsBusyBeforeTheServiceIsSlow(t *testing.T) {
	s := New("cpu", 1, Options{})
	must.Equal(t, s.Background, &background)
	var v Slots
	send := func(from, to, each float64) (slowFrom, quickFrom float64) {
		slowFrom, quickFrom = math.Inf(1), math.Inf(1)
		for n := 0; ; n++ {
			at := from + each*float64(n)
			if at >= to-1e-9 {
				return slowFrom, quickFrom
			}
			end, refused := v.Take(s, at, 0.01)
			switch took := end - at; {
			case refused:
				t.Fatalf("refused at %v", at)
			case math.Abs(took-0.01) < 1e-9:
				if slowFrom < at {
					quickFrom = math.Min(quickFrom, at)
				}
			case math.Abs(took-0.03) < 1e-9:
				slowFrom = math.Min(slowFrom, at)
			default:
				t.Fatalf("at %v it took %v", at, took)
			}
		}
	}
	near := func(got, want float64, what string) {
		t.Helper()
		if math.Abs(got-want) > 0.02 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	if slow, _ := send(0, 5, 0.02); !math.IsInf(slow, 1) {
		t.Errorf("slow at %v, at half of what the CPU can do", slow)
	}
	near(v.Load(5), 0.5, "CPU use at 50 requests a second")
	// At 125 a second a quarter of a second of work is left each second: after 16 s, four seconds.
	slow, _ := send(5, 22, 0.008)
	near(slow, 5+16, "slow from")
	near(v.Load(12.5), 1, "CPU use long before")
	near(v.Load(22), 1, "CPU use")
	// At 50 a second half a second of work is done each second.
	_, quick := send(22, 40, 0.02)
	near(quick, 22+2*(background.Bound+0.25), "as quick as ever from")
	near(v.Load(40), 0.5, "CPU use when all is done")
	near(v.Load(41.5), 0, "CPU use of an idle service")
}

// listener is told the CPU use, and remembers when it was full first in the event, and when an answer came late first.
type listener struct {
	None
	event, full, late float64
}

func (l *listener) Tell(t, load float64) {
	if load > 0.999 && l.full == 0 && t > l.event {
		l.full = t
	}
}

func (l *listener) Answered(t, begun float64, failed bool) {
	if (failed || t-begun > 1.5) && l.late == 0 {
		l.late = t
	}
}

func (l *listener) Left(t, begun float64) {
	if l.late == 0 {
		l.late = t
	}
}

// TestLatencyIsLateInTheSituationCPU: the CPU is full for seconds before clients leave. And a policy is told so each second.
func TestLatencyIsLateInTheSituationCPU(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		s := New("cpu", seed, Options{Real: true}).Cut(15, 500, 500, 560)
		heard := &listener{event: s.Begin}
		Run(s, Limits{}, heard, nil, seed)
		if heard.full == 0 || heard.late < heard.full+5 || heard.late > s.Begin+30 {
			t.Errorf("seed %d: the CPU is full from %.1f on, and a client leaves at %.1f; the crowd comes at %.1f", seed, heard.full, heard.late, s.Begin)
		}
	}
}

// TestAGuardIsPressedWhileTheCPUIsBusy, for as long as the product knows a value.
func TestAGuardIsPressedWhileTheCPUIsBusy(t *testing.T) {
	good := map[string]float64{}
	for seed := uint64(1); seed <= 3; seed++ {
		s := New("cpu", seed, Options{})
		for _, policy := range []string{"tuned", "guard", "guard+pressure"} {
			o, err := Cell{"cpu", policy, "token_bucket", seed}.Play(s)
			must.Succeed(t, err)
			good[policy] += o.Good / 3
		}
	}
	t.Logf("goodput: %v", good)
	if good["guard+pressure"] == good["guard"] {
		t.Error("what the guard is told has no effect")
	}
	if all := (&Situation{Background: &background}).Tuned().All; math.Abs(all-90) > 1e-9 {
		t.Errorf("a limit of %v is tuned to a CPU that can do 100 requests a second", all)
	}
}
