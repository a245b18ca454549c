package replay

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestRequestsAreDecidedInTheOrderOfTheirBeginnings(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 50 {
		var list []request
		end := int64(1_000_000_000_000)
		for range 2000 {
			end += random.Int64N(100_000)
			duration := random.Int64N(Window)
			if random.IntN(100) == 0 {
				duration = Window + random.Int64N(Window)
			}
			list = append(list, request{start: end - duration, end: end, line: int32(len(list))})
		}
		var got []request
		reached, late := int64(0), int64(0)
		o := order{step: func() { t.Error("the clock did not go back") }}
		o.leave = func(r *request, at int64) {
			if at < reached || at < r.start {
				t.Fatalf("request of %d is decided at %d, after %d", r.start, at, reached)
			}
			if at > r.start {
				late++
				if r.end-r.start <= Window {
					t.Fatalf("a request of %d µs was late", r.end-r.start)
				}
			}
			reached = at
			got = append(got, *r)
		}
		for i := range list {
			o.add(&list[i])
		}
		o.flush()
		if len(got) != len(list) || late != o.late || late == 0 {
			t.Fatalf("%d of %d requests; %d late, of which %d are reported", len(got), len(list), late, o.late)
		}
	}
}

func TestRequestsOfOneTimeKeepTheOrderOfTheirLines(t *testing.T) {
	list := make([]request, 5000)
	for i := range list {
		at := int64(i/50) * 1_000_000
		list[i] = request{start: 1e12 + at, end: 1e12 + at, line: int32(i)}
	}
	var got []int32
	o := order{leave: func(r *request, _ int64) { got = append(got, r.line) }}
	for i := range list {
		o.add(&list[i])
	}
	o.flush()
	if !slices.IsSorted(got) || len(got) != len(list) {
		t.Errorf("%d lines, in order: %v", len(got), slices.IsSorted(got))
	}
}

func TestTheWindowIsBoundedInNumber(t *testing.T) {
	list := make([]request, WindowCount+1000)
	left := 0
	o := order{leave: func(*request, int64) { left++ }}
	for i := range list {
		list[i] = request{start: 1e12, end: 1e12 + 1}
		o.add(&list[i])
	}
	if len(o.heap) != WindowCount || left != 1000 {
		t.Errorf("%d requests are kept, and %d have left", len(o.heap), left)
	}
	o.flush()
	for range 1000 {
		o.add(&request{start: 1e12, end: 1e12 + 1, checks: [2][]check{make([]check, 1500), make([]check, 500)}})
	}
	if len(o.heap) != windowChecks/2000 || o.checks != windowChecks {
		t.Errorf("%d requests are kept, of %d checks", len(o.heap), o.checks)
	}
}

func TestWhereTheClockGoesBackTheRequestsBeforeAreDecidedFirst(t *testing.T) {
	hour := int64(3600 * 1_000_000)
	list := []request{
		{start: 10 * hour, end: 10 * hour, line: 1}, {start: 10*hour + 1, end: 10*hour + 1, line: 2},
		{start: 9 * hour, end: 9 * hour, line: 3}, {start: 9*hour - 5, end: 9*hour + 7, line: 4},
		{start: 8*hour + 1, end: 9*hour + 8, line: 5},
	}
	var got []int32
	steps := 0
	o := order{leave: func(r *request, at int64) {
		got = append(got, r.line)
		if at != r.start {
			t.Errorf("line %d is decided at %d, and began at %d", r.line, at, r.start)
		}
	}, step: func() { steps++; got = append(got, 0) }}
	for i := range list {
		o.add(&list[i])
	}
	o.flush()
	if want := []int32{1, 2, 0, 5, 4, 3}; !slices.Equal(got, want) || steps != 1 || o.steps != 1 {
		t.Errorf("%v, want %v; %d steps", got, want, o.steps)
	}
}

func TestRequestsThatAreLateForTheCrowdDifferFromLongOnes(t *testing.T) {
	o := order{leave: func(*request, int64) {}, step: func() {}}
	const begin = int64(1e12)
	list := make([]request, WindowCount+2)
	for i := range list {
		list[i] = request{start: begin + int64(i), end: begin + int64(i)}
	}
	list[len(list)-1].start = begin - 1 // it took a tenth of a second
	for i := range list {
		o.add(&list[i])
	}
	o.add(&request{start: begin - 2*Window, end: begin + WindowCount + 3})
	if o.late != 2 || o.crowd != 1 {
		t.Errorf("%d late, %d for the crowd; want 2 and 1", o.late, o.crowd)
	}
	var text strings.Builder
	r := Report{OutOfOrder: 1, Crowded: 1}
	if err := r.WriteText(&text); err != nil || strings.Contains(text.String(), "1m0s") || !strings.Contains(text.String(), "100,000") {
		t.Errorf("%v, %s", err, text.String())
	}
}
