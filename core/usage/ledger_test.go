package usage

import (
	"testing"

	"github.com/proxyweir/weir/tools/underrace"
)

const second = int64(1_000_000)

// cell is a key in a slot.
type cell struct {
	slot Slot
	key  uint64
}

func sum(counts []Counts) map[cell]int64 {
	units := make(map[cell]int64)
	for _, c := range counts {
		for i, key := range c.Keys {
			units[cell{c.Slot, key}] += int64(c.Units[i])
		}
	}
	return units
}

func TestLedgerIsBounded(t *testing.T) {
	underrace.OneGoroutine(t)
	var l Ledger
	slot := Slot{7, 0, second}
	for i := uint64(0); i < MaxCounts; i++ {
		if !l.Add(slot, i, 1) {
			t.Fatalf("key %d is refused", i)
		}
	}
	if l.Add(slot, MaxCounts, 1) || l.Add(Slot{7, 0, 2 * second}, 1, 1) {
		t.Error("one more count is accepted")
	}
	if !l.Add(slot, 1, MaxUnits) {
		t.Error("a count that is there is refused")
	}
	counts, _ := l.Begin(0, true)
	got, err := Decode(Encode(&Document{Instance: NewInstance(), Counts: counts}))
	if err != nil || len(got.Counts) != 1 || len(got.Counts[0].Keys) != MaxCounts {
		t.Fatalf("the largest document: %v", err)
	}
	if units := sum(got.Counts)[cell{slot, 1}]; units != MaxUnits {
		t.Errorf("%d units, want the most that there can be", units)
	}
	l.End(true)
	if counts, _ := l.Begin(1<<62, true); len(counts) != 0 || l.Size() != 0 {
		t.Error("slots that are over are kept")
	}
}

// A document that may not have arrived is told again, with what has come since.
func TestWhatWasPerhapsNotToldIsToldAgain(t *testing.T) {
	var l Ledger
	slot := Slot{7, 0, second}
	l.Add(slot, 1, 3)
	l.Begin(0, false)
	l.Add(slot, 1, 2)
	l.Add(slot, 2, 1)
	if n := l.Untold(7, 1); n != 5 {
		t.Errorf("%d units are untold, want 5", n)
	}
	l.End(false)
	counts, _ := l.Begin(0, false)
	if got := sum(counts); got[cell{slot, 1}] != 5 || got[cell{slot, 2}] != 1 {
		t.Errorf("%v", got)
	}
	l.End(true)
	l.Add(slot, 2, 1)
	counts, _ = l.Begin(0, false)
	if got := sum(counts); len(got) != 1 || got[cell{slot, 2}] != 2 {
		t.Errorf("of what has changed since: %v", got)
	}
	if n := l.Untold(7, 1); n != 0 {
		t.Errorf("%d units are untold, want none", n)
	}
}
