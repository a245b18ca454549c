package advisor

import (
	"context"
	"math"
	"testing"
	"time"
)

func TestTelemetryTellsWhatWasBetweenItsSnapshots(t *testing.T) {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	own := NewTelemetry(time.Minute, 10*time.Minute)
	at := func(q Quantity, minute int) float64 {
		t.Helper()
		q.Rule = "api"
		s, err := own.Series(context.Background(), q, start.Add(time.Duration(minute)*time.Minute), start.Add(time.Duration(minute)*time.Minute), time.Minute)
		if err != nil || len(s.Values) != 1 {
			t.Fatalf("%v, %v", s, err)
		}
		return s.Values[0]
	}
	own.Add("api", start.Add(3*time.Second), Snapshot{Keys: []int64{0, 0, 0}})
	own.Add("api", start.Add(61*time.Second), Snapshot{Keys: []int64{50, 90, 100}, AllKeys: 100, Requests: 600, TopShare: 0.4})
	own.Add("api", start.Add(181*time.Second), Snapshot{Keys: []int64{50, 90, 200}, AllKeys: 200, Requests: 1800, TopShare: 0.2})
	for _, c := range []struct {
		q      Quantity
		minute int
		want   float64
	}{
		{Quantity{Of: TotalDemand}, 1, 10},
		{Quantity{Of: KeyDemand, Quantile: 0.25}, 1, 0.5},
		{Quantity{Of: KeyDemand, Quantile: 0.9}, 1, 2},
		{Quantity{Of: KeyDemand, Quantile: 0.95}, 1, 3},
		{Quantity{Of: TopShare}, 1, 0.4},
		{Quantity{Of: TotalDemand}, 2, math.NaN()}, // a gap
		{Quantity{Of: TotalDemand}, 3, math.NaN()}, // and nothing is known a step before
		{Quantity{Of: TotalDemand, Window: 2 * time.Minute}, 3, 10},
		{Quantity{Of: KeyDemand, Quantile: 0.5, Window: time.Hour}, 3, 2 + 2*10.0/110},
		{Quantity{Of: TotalDemand}, 0, math.NaN()},
		{Quantity{Of: TotalDemand}, -1, math.NaN()},
		{Quantity{Of: TotalDemand}, 4, math.NaN()},
		{Quantity{Of: QueryDemand}, 1, math.NaN()},
	} {
		if got := at(c.q, c.minute); math.Abs(got-c.want) > 1e-9 || math.IsNaN(got) != math.IsNaN(c.want) {
			t.Errorf("%+v at minute %d: %v, want %v", c.q, c.minute, got, c.want)
		}
	}
	// Counting begins anew.
	own.Add("api", start.Add(4*time.Minute), Snapshot{Keys: []int64{1, 1, 1}, AllKeys: 1, Requests: 2})
	if got := at(Quantity{Of: TotalDemand}, 4); !math.IsNaN(got) {
		t.Errorf("counts that fell are taken for %v", got)
	}
	// Only the history is kept, and only rules that there are.
	for minute := 5; minute < 100; minute++ {
		own.Add("api", start.Add(time.Duration(minute)*time.Minute), Snapshot{Keys: []int64{1, 1, 1}, AllKeys: 1, Requests: int64(60 * minute)})
	}
	if n := len(own.rules["api"].list); n > 13 || at(Quantity{Of: TotalDemand}, 99) != 1 {
		t.Errorf("%d snapshots are kept; %v", n, at(Quantity{Of: TotalDemand}, 99))
	}
	own.Keep(map[string]bool{"other": true})
	if len(own.rules) != 0 {
		t.Error("a rule that is gone is kept")
	}
}
