package guard

import "testing"

// quiet plays ten requests a second that are answered within 80 ms.
func quiet(s *scene, seconds int) {
	for i := 0; i < 10*seconds; i++ {
		if s.begin(uint64(i%7), false) {
			s.now += 80_000
			s.end(1, 80_000)
		}
		s.now += 20_000
	}
}

func TestAGuardTellsWhenItBeginsAndStops(t *testing.T) { tells(t, false) }

func TestAShadowTellsWhenItWouldBeginAndStop(t *testing.T) { tells(t, true) }

func tells(t *testing.T, shadow bool) {
	s := newScene(t, Config{})
	var told []Change
	Bound(s.g, Config{Shadow: shadow, Notify: func(c Change) { told = append(told, c) }})
	quiet(s, 60)
	if len(told) != 0 {
		t.Fatalf("without any need: %+v", told)
	}
	small, greedy, smallAsked, greedyAsked := overload(s, 20)
	at := Look(s.g)
	if len(told) != 1 || !told[0].Begins || !told[0].Queue || told[0].Shadow != shadow || told[0].Limit <= 0 {
		t.Fatalf("shadow %t, in an overload: %+v", shadow, told)
	}
	if c := told[0]; c.Quickest < 1.5*c.Usually || c.Usually < 70_000 || c.Usually > 90_000 || c.Coming < 200 || c.Came > 30 || c.UnderWay < 16 || c.Max != DefaultMax {
		t.Errorf("shadow %t: its figures are %+v", shadow, c)
	}
	turned := smallAsked + greedyAsked - small - greedy
	if !shadow && (turned == 0 || at.Full+at.Unfair == 0 || at.Shadow || at.ShadowFull+at.ShadowUnfair > 0) {
		t.Errorf("%d were turned away: %+v", turned, at)
	}
	if shadow && (turned != 0 || at.Full+at.Unfair > 0 || !at.Shadow || at.ShadowFull == 0 || at.ShadowUnfair == 0) {
		t.Errorf("as a shadow %d were turned away: %+v", turned, at)
	}
	for n := at.UnderWay; n > 0; n-- { // what overload has left
		End(s.g, 1, 80_000)
	}
	quiet(s, 30)
	if len(told) != 2 || told[1].Begins || told[1].Rejected == 0 || told[1].Lasted < 20*second || told[1].Vain {
		t.Errorf("shadow %t, when it is over: %+v", shadow, told)
	}
}

func TestAGuardTellsOfItsMax(t *testing.T) {
	s := newScene(t, Config{})
	var told []Change
	Bound(s.g, Config{Max: 3, Notify: func(c Change) { told = append(told, c) }})
	quiet(s, 5)
	s.fill(1)
	s.now += second
	s.end(3, 80_000)
	quiet(s, 2)
	if len(told) != 1 || !told[0].Begins || told[0].Queue || told[0].Limit != 3 || told[0].Max != 3 || told[0].UnderWay != 3 || told[0].Rejected != 1 {
		t.Errorf("the max was reached: %+v", told)
	}
	quiet(s, 12)
	if len(told) != 2 || told[1].Begins || told[1].Rejected != 1 {
		t.Errorf("nobody was turned away for a while: %+v", told)
	}
	Bound(s.g, Config{Max: 3, Shadow: true})
	begun := 0
	for i := 0; i < 4; i++ {
		if s.begin(1, false) {
			begun++
		}
	}
	if begun != 4 || Look(s.g).UnderWay != 4 || Look(s.g).ShadowFull != 1 || Look(s.g).Full != 1 {
		t.Errorf("as a shadow: %+v", Look(s.g))
	}
	if Tighten(s.g, 1, s.now) || Look(s.g).ShadowTightened != 1 || Look(s.g).Tightened != 0 {
		t.Errorf("as a shadow: %+v", Look(s.g))
	}
}
