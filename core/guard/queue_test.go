package guard

import (
	"math"
	"math/rand"
	"testing"
)

// waitsUp is evidence of answers that all take longer than usual, and longer with each one more under way.
var waitsUp = Evidence{Answers: 100, Quick: 400_000, Met: 80, Slope: 0.9, Wrong: 0.1}

func usual() Belief {
	return Belief{Trusted: Trust, Quick: 20_000, Rate: 100, Most: 20, most: 20}
}

func TestAQueueIsFoundOnlyWhereEverythingSaysSo(t *testing.T) {
	for _, c := range []struct {
		name string
		of   func(e *Evidence, rate *float64)
		want bool
	}{
		{"everything", func(*Evidence, *float64) {}, true},
		{"some are as quick as usual", func(e *Evidence, _ *float64) { e.Quick = 25_000 }, false},
		{"time does not grow with the number under way", func(e *Evidence, _ *float64) { e.Slope = 0.1 }, false},
		{"it may be chance", func(e *Evidence, _ *float64) { e.Wrong = 0.5 }, false},
		{"as many come as usual", func(_ *Evidence, rate *float64) { *rate = 110 }, false},
		{"too few answers", func(e *Evidence, _ *float64) { e.Answers = 3 }, false},
	} {
		e, rate := waitsUp, 250.0
		c.of(&e, &rate)
		b := Doubt(usual(), e, rate, 1000)
		if b.Queue != c.want || !c.want && b.Trusted != raises*Trust {
			t.Errorf("%s: %+v", c.name, b)
		}
	}
	if b := Doubt(usual(), Evidence{}, 250, 140); b.Trusted != 140 {
		t.Errorf("of 140 at most %v are trusted", b.Trusted)
	}
}

func TestAQueueIsFoundWhereTheNumberGrowsAndGrows(t *testing.T) {
	e := Evidence{Answers: 100, Quick: 600_000, Met: 60}
	play := func(b Belief, e Evidence, most ...int64) Belief {
		for _, n := range most {
			b = Believe(b, e, Second{Answered: 100, Most: n}, 100, 1000)
		}
		return b
	}
	if b := play(usual(), e, 60, 90); !b.Queue {
		t.Errorf("growing, with everybody waiting: %+v", b)
	}
	if b := play(usual(), e, 60, 60, 90, 90); b.Queue {
		t.Errorf("not growing: %+v", b)
	}
	if b := play(usual(), e, 22, 25, 27, 30); b.Queue {
		t.Errorf("of a few: %+v", b)
	}
	e.Quick = 300_000
	if b := play(usual(), e, 60, 90, 110); b.Queue {
		t.Errorf("for a short time: %+v", b)
	}
}

func TestAQueueIsFoundWhereClientsLeave(t *testing.T) {
	s := Second{Answered: 100, Left: 30, Most: 20}
	if b := Believe(usual(), waitsUp, s, 100, 1000); !b.Queue {
		t.Errorf("they wait: %+v", b)
	}
	if b := Believe(usual(), Evidence{Answers: 100, Quick: 21_000, Met: 20}, s, 100, 1000); b.Queue {
		t.Errorf("they do not wait: %+v", b)
	}
}

func TestAQueueIsOver(t *testing.T) {
	queue := found(usual(), waitsUp, false)
	quick := Evidence{Answers: 100, Quick: 21_000, Met: 20}
	b := queue
	for i := 0; i < releaseAfter; i++ {
		if b = Believe(b, quick, Second{Answered: 100, Most: 20}, 100, 1000); !b.Queue {
			t.Fatalf("after %d s: %+v", i+1, b)
		}
	}
	if b = Believe(b, quick, Second{Answered: 100, Most: 20}, 100, 1000); b.Queue {
		t.Errorf("nobody was turned away for %v s: %+v", releaseAfter, b)
	}
	// Half as many are under way, and nothing is quicker.
	cut := Second{Answered: 100, Most: 40, Rejected: 50}
	b = Believe(queue, Evidence{Answers: 100, Quick: 390_000, Met: 40}, cut, 100, 1000)
	if b.Queue || b.Trusted < 2*waitsUp.Met || b.denied == 0 {
		t.Errorf("it made nothing quicker: %+v", b)
	}
	if b = Believe(queue, Evidence{Answers: 100, Quick: 210_000, Met: 40}, cut, 100, 1000); !b.Queue {
		t.Errorf("it made all quicker: %+v", b)
	}
	cut.Left = 50
	if b = Believe(queue, Evidence{Answers: 100, Quick: 390_000, Met: 40}, cut, 100, 1000); !b.Queue {
		t.Errorf("clients leave before one can know: %+v", b)
	}
	// Now they stay. What took longer than their patience was not seen before, so nothing is compared with that.
	cut.Left = 0
	if b = Believe(b, Evidence{Answers: 100, Quick: 385_000, Met: 35}, cut, 100, 1000); !b.Queue {
		t.Errorf("while clients left, the longest times were hidden: %+v", b)
	}
	if b = Believe(b, Evidence{Answers: 100, Quick: 380_000, Met: 20}, cut, 100, 1000); b.Queue {
		t.Errorf("since then half as many are under way, and nothing is quicker: %+v", b)
	}
}

func TestEvidenceIsOfTheLastAnswers(t *testing.T) {
	random := rand.New(rand.NewSource(3))
	a := newAnswers()
	for i := 0; i < 3000; i++ { // of a queue of a worker that answers 100 a second
		under := 1 + random.Int63n(40)
		remind(a, under, under*10_000+random.Int63n(1000))
	}
	e := evidenceOf(a, 100.0/second, 1e9)
	if e.Answers != remembered || math.Abs(e.Slope-1) > 0.05 || e.Wrong > 0.05 || math.Abs(e.Met-20.5) > 2 {
		t.Errorf("of a queue: %+v", e)
	}
	a.last = 3000
	for i := 0; i < 100; i++ { // of as many workers as come
		remind(a, 1+random.Int63n(40), 50_000+random.Int63n(1000))
	}
	if e = evidenceOf(a, 100.0/second, 1e9); e.Answers != 100 || math.Abs(e.Slope) > 0.1 || e.Quick < 50_000 || e.Quick > 50_500 {
		t.Errorf("without a queue: %+v", e)
	}
	if e = evidenceOf(a, 0, 1e9); e.Quick < 50_000 || e.Slope != 0 || !math.IsInf(e.Wrong, 1) {
		t.Errorf("where all clients have left: %+v", e)
	}
	a.last = 3100
	if e = evidenceOf(a, 100.0/second, 1e9); e != (Evidence{}) {
		t.Errorf("of nothing: %+v", e)
	}
}

func FuzzBelieve(f *testing.F) {
	f.Add(true, 128.0, 1000.0, 10.0, 100, 2000.0, 5.0, 0.5, 0.1, int64(10), int64(20), int64(0), 100.0, 1000.0)
	f.Fuzz(func(t *testing.T, queue bool, trusted, quick, rate float64, answers int, now, met, slope, wrong float64, answered, most, left int64, came, ceiling float64) {
		for _, x := range []float64{trusted, quick, rate, now, met, slope, wrong, came, ceiling} {
			if math.IsNaN(x) || math.IsInf(x, 0) || math.Abs(x) > 1e12 {
				t.Skip()
			}
		}
		if ceiling < 1 || now < 0 || quick < 0 || met < 0 {
			t.Skip()
		}
		b := Belief{Queue: queue, Trusted: trusted, Quick: quick, Rate: rate, quick: quick, met: met}
		b = Believe(b, Evidence{Answers: answers, Quick: now, Met: met, Slope: slope, Wrong: wrong}, Second{Answered: answered, Most: most, Left: left}, came, ceiling)
		b = Doubt(b, Evidence{}, came, ceiling)
		if !(b.Trusted > 0 && b.Trusted <= ceiling) || math.IsNaN(b.Quick) || math.IsNaN(b.Rate) || b.Quick < 0 {
			t.Fatalf("%+v of at most %v", b, ceiling)
		}
	})
}
