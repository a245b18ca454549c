package guard

import (
	"sync/atomic"
	"testing"
)

func TestRequestsMayPassByWhileThereIsAmpleRoom(t *testing.T) {
	s := newScene(t, Config{Max: 100})
	gauge := GaugeOf(s.g)
	play := func(requests int, many int64) (ample, stride int64) {
		for i := 0; i < requests; i++ {
			if n := BeginFor(s.g, 1, false, s.now, many); n > 0 {
				Pause(s.g)
				Count(s.g, many, n, 100_000)
			}
		}
		s.now += second
		Count(s.g, 1, Begin(s.g, 2, false, s.now), 100_000)
		Pause(s.g)
		return atomic.LoadInt64(gauge.Ample), atomic.LoadInt64(gauge.Stride)
	}
	if a, b := atomic.LoadInt64(gauge.Ample), atomic.LoadInt64(gauge.Stride); a != 0 || b != 1 {
		t.Errorf("at first: %d, one in %d", a, b)
	}
	if a, b := play(100, 1); a != 40 || b != 1 {
		t.Errorf("after few requests: %d, one in %d; want 40, each", a, b)
	}
	if a, b := play(frequent, 1); a != 40 || b != widest {
		t.Errorf("after many requests: %d, one in %d; want 40, 1 in %d", a, b, widest)
	}
	if a, b := play(frequent/widest+1, widest); a != 40 || b != widest {
		t.Errorf("after many requests for which some stand: %d, one in %d", a, b)
	}
	if _, asked := countMany(&s.g.demand, 1^s.g.seed, s.now, 0); asked < 2*frequent {
		t.Errorf("the demand of those that have stood for others is %v, want %d and more", asked, 2*frequent)
	}
	Bound(s.g, Config{Max: 20})
	if a := atomic.LoadInt64(gauge.Ample); a != 0 {
		t.Errorf("with other bounds: %d, want 0 until they are in force", a)
	}
	if a, _ := play(1, 1); a != 8 {
		t.Errorf("a second later: %d, want 8", a)
	}
	Exact(s.g)
	if a := atomic.LoadInt64(gauge.Ample); a != 0 {
		t.Errorf("where each is to be exact: %d, want 0", a)
	}
	if a, _ := play(1, 1); a != 0 {
		t.Errorf("a second later: %d, want 0", a)
	}
	if n := Look(s.g).UnderWay; n != 0 {
		t.Errorf("%d are under way", n)
	}
}
