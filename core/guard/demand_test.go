package guard

import (
	"math"
	"math/rand"
	"sort"
	"testing"

	"github.com/proxyweir/weir/tools/underrace"
)

const begin = 1_700_000_000_000_000 // where a window begins

func TestDemandIsCountedOverTheLastWindow(t *testing.T) {
	d := newDemand(1024)
	turn(d, begin)
	for i := 0; i < 9; i++ {
		count(d, 7, begin)
	}
	for _, want := range []struct {
		after int64
		count float64
	}{{0, 10}, {Window - 1, 11}, {Window, 12}, {Window * 3 / 2, 1 + 11.0/2 + 1}, {Window*2 - 1, 3}, {Window * 4, 1}} {
		now := begin + want.after
		turn(d, now)
		if _, got := count(d, 7, now); math.Abs(got-want.count) > 0.01 {
			t.Errorf("%d µs later: %v, want %v", want.after, got, want.count)
		}
	}
	if _, got := count(d, 8, begin+Window*4); got != 1 {
		t.Errorf("another key: %v, want 1", got)
	}
}

func TestAClockThatStepsBackForgetsTheDemand(t *testing.T) {
	d := newDemand(64)
	turn(d, begin)
	count(d, 7, begin)
	turn(d, begin-5*Window)
	if _, got := count(d, 7, begin-5*Window); got != 1 {
		t.Errorf("%v, want 1", got)
	}
}

// TestWhatIsCountedIsNeverTooLittle, and for most keys not too much.
func TestWhatIsCountedIsNeverTooLittle(t *testing.T) {
	underrace.OneGoroutine(t)
	random := rand.New(rand.NewSource(2))
	d := newDemand(1024)
	turn(d, begin)
	counts := map[uint64]float64{}
	more := 0
	for i := 0; i < 20_000; i++ {
		key := uint64(random.Intn(300)) + 1
		if i%4 == 0 {
			key = uint64(random.Intn(5)) + 1
		}
		counts[key]++
		_, got := count(d, key, begin)
		if got < counts[key] {
			t.Fatalf("key %d: %v, and %v have come", key, got, counts[key])
		}
		if got > counts[key] {
			more++
		}
	}
	if more > 20_000/5 {
		t.Errorf("%d of 20,000 requests were counted too high", more)
	}
}

func TestTheFairLevelIsMaxMin(t *testing.T) {
	underrace.OneGoroutine(t)
	for _, c := range []struct {
		name   string
		rates  []float64
		budget float64
		want   float64
	}{
		{"nobody", nil, 10, 0},
		{"enough for all", []float64{1, 2, 3}, 7, 0},
		{"one asks for more", []float64{1, 2, 30}, 10, 7},
		{"all ask for more", []float64{10, 20, 30}, 15, 5},
		{"two do", []float64{1, 20, 30}, 11, 5},
	} {
		if got := level(append([]float64{}, c.rates...), c.budget); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	random := rand.New(rand.NewSource(3))
	for i := 0; i < 2000; i++ {
		rates := make([]float64, 1+random.Intn(30))
		sum := 0.0
		for j := range rates {
			rates[j] = math.Exp(3 * random.NormFloat64())
			sum += rates[j]
		}
		budget := sum * random.Float64() * 1.2
		got := level(append([]float64{}, rates...), budget)
		if got == 0 {
			if budget < sum*0.999999 {
				t.Fatalf("%v of %v: no level", rates, budget)
			}
			continue
		}
		filled := 0.0
		for _, rate := range rates {
			filled += math.Min(rate, got)
		}
		if math.Abs(filled-budget) > 1e-6*budget {
			t.Fatalf("%v of %v: cut to %v they make %v", rates, budget, got, filled)
		}
	}
}

func TestTheFairLevelIsFoundFromTheSketch(t *testing.T) {
	d := newDemand(4096)
	turn(d, begin)
	var rates []float64
	for key := uint64(1); key <= 100; key++ {
		n := key % 7
		if key <= 3 {
			n = 200
		}
		rates = append(rates, float64(n))
		for i := uint64(0); i < n; i++ {
			count(d, key, begin)
		}
	}
	sort.Float64s(rates)
	want := level(rates, 400)
	if got := fairLevel(d, begin, 400); math.Abs(got-want) > 0.05*want {
		t.Errorf("%v, want about %v", got, want)
	}
}
