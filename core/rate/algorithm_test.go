package rate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// panicOf returns the text of a call's panic. Under the interpreter a panic's value is not a string.
func panicOf(call func()) (said string) {
	defer func() { said = fmt.Sprint(recover()) }()
	call()
	return said
}

func TestARowWithoutAPartIsRefusedByItsName(t *testing.T) {
	for want, drop := range map[string]func(row *algorithmRow){
		"no row for algorithm 3 in its place":   func(row *algorithmRow) { row.algorithm++ },
		"(fixed_window) has no decide":          func(row *algorithmRow) { row.decide = nil },
		"(fixed_window) has no take":            func(row *algorithmRow) { row.take = nil },
		"(fixed_window) has no reject":          func(row *algorithmRow) { row.reject = nil },
		"(fixed_window) has no charge":          func(row *algorithmRow) { row.charge = nil },
		"(fixed_window) has no credit":          func(row *algorithmRow) { row.credit = nil },
		"(sliding_window_log) has no creditLog": func(row *algorithmRow) { row.creditLog = nil },
		"(fixed_window) has no spent":           func(row *algorithmRow) { row.spent = nil },
		"(fixed_window) has no late":            func(row *algorithmRow) { row.late = nil },
		"(fixed_window) has no slot":            func(row *algorithmRow) { row.slot = nil },
		"(fixed_window) has no lease":           func(row *algorithmRow) { row.lease = nil },
		"(sliding_window_log) has no decideLog": func(row *algorithmRow) { row.decideLog = nil },
		"(sliding_window_log) has no chargeLog": func(row *algorithmRow) { row.chargeLog = nil },
		"(sliding_window_log) has no lateLog":   func(row *algorithmRow) { row.lateLog = nil },
		"(sliding_window_log) has no slot":      func(row *algorithmRow) { row.slot = nil },
		"(sliding_window_log) has no lease":     func(row *algorithmRow) { row.lease = nil },
		"(fixed_window) has no MostRequests":    func(row *algorithmRow) { row.MostRequests = 0 },
		"algorithm 3 () has no name":            func(row *algorithmRow) { row.Name = "" },
	} {
		rows := append([]algorithmRow{}, algorithms[1:]...)
		if strings.Contains(want, "sliding_window_log") {
			drop(&rows[SlidingWindowLog-1])
		} else {
			drop(&rows[FixedWindow-1])
		}
		must.Contain(t, panicOf(func() { tabulate(rows) }), want, "it panics with")
	}
	must.Contain(t, panicOf(func() { tabulate(algorithms[1:last]) }), fmt.Sprintf("has %d rows, for %d", int(last)-1, int(last)), "without the last row it panics with")
}

// Without a case in algorithm_dispatch.go, as for a log, the panic names the algorithm. No other algorithm decides.
func TestAnAlgorithmWithoutAFunctionPanicsWithItsName(t *testing.T) {
	l := mustLimit(t, LimitConfig{Algorithm: SlidingWindowLog, Requests: 5, Period: time.Minute})
	for name, call := range map[string]func(){
		"decide": func() { Decide(l, &State{}, 1, 0, &State{}, &Decision{}) },
		"take":   func() { Take(l, &State{}, 1) },
		"spent":  func() { Unused(l, &State{}, 1) },
	} {
		if said := panicOf(call); !strings.HasPrefix(said, "rate: algorithm 4 (sliding_window_log) has no "+name+":") {
			t.Errorf("%s: it panics with %q", name, said)
		}
	}
}

func TestEachAlgorithmHasItsNameAndItsNumber(t *testing.T) {
	if len(AlgorithmNames) != int(InFlight)-1 || SlidingWindowSegments.String() != SlidingWindowCounter.String() {
		t.Fatalf("there are the names %q, for %d algorithms", AlgorithmNames, int(InFlight)-1)
	}
	for i, name := range AlgorithmNames {
		a, err := ParseAlgorithm(name)
		if err != nil || int(a) != i+1 || a.String() != name {
			t.Errorf("%s is algorithm %d (%s, %v), want %d", name, int(a), a, err, i+1)
		}
	}
	if _, err := ParseAlgorithm("concurrency"); err == nil {
		t.Error("a configuration can name the algorithm of requests in flight")
	}
	for _, a := range []Algorithm{-1, 0, last + 1} {
		must.Equal(t, a.String(), "", "algorithm %d is called %q", int(a), a)
		_, err := NewLimit(LimitConfig{Algorithm: a, Requests: 1, Period: time.Second})
		must.Equal(t, (err == nil), a == 0, "a limit of algorithm %d: %v", int(a), err)
	}
}
