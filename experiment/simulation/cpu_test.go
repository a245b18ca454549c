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

// listener remembers when an answer came late first.
type listener struct {
	None
	late float64
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

// TestLatencyIsLateInTheSituationCPU: clients leave only after some ten seconds of a crowd that is more than the CPU can do.
func TestLatencyIsLateInTheSituationCPU(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		s := New("cpu", seed, Options{Real: true}).Cut(15, 500, 500, 560)
		heard := new(listener)
		Run(s, Limits{}, heard, nil, seed)
		if heard.late < s.Begin+8 || heard.late > s.Begin+30 {
			t.Errorf("seed %d: a client leaves at %.1f; the crowd comes at %.1f", seed, heard.late, s.Begin)
		}
	}
	if all := (&Situation{Background: &background}).Tuned().All; math.Abs(all-90) > 1e-9 {
		t.Errorf("a limit of %v is tuned to a CPU that can do 100 requests a second", all)
	}
}
