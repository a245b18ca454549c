package guard

import (
	"testing"

	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

func TestAGuardTellsOverloadAndConcentrationApart(t *testing.T) {
	underrace.OneGoroutine(t)
	for i, c := range []struct {
		name                     string
		most                     int
		attack                   func(v *town)
		overloaded, concentrated bool
	}{
		{"few keys, and no room", 40, func(v *town) { v.asks[21] = 60 }, true, true},
		{"few keys, and room", 1000, func(v *town) { v.asks[21] = 60 }, false, true},
		{"a crowd, and no room", 25, crowd, true, false},
		{"a crowd, and room", 1000, crowd, false, false},
		{"all is as it always was", 40, func(v *town) {}, false, false},
	} {
		if interpreted && i > 1 {
			break // each takes half a second there
		}
		name := c.name
		v := newTown(t, Config{Max: c.most, Cells: 256, WarmUp: 50 * second})
		v.seconds(70, 1000)
		if Overloaded(v.g, v.now) || Concentrated(v.rule, v.now) {
			t.Errorf("%s: overloaded or concentrated when it begins", name)
		}
		if s := v.state(); s.P90 < 10 || s.P90 > s.P99 {
			t.Errorf("%s: %+v", name, s)
		}
		c.attack(v)
		v.seconds(12, c.most)
		must.Equal(t, Overloaded(v.g, v.now), c.overloaded, "%s: overloaded", name)
		must.Equal(t, Concentrated(v.rule, v.now), c.concentrated, "%s: concentrated", name)
		v.now += lately + 1
		if Overloaded(v.g, v.now) || Concentrated(v.rule, v.now) {
			t.Errorf("%s: it is told for longer than %d µs without any request", name, lately)
		}
	}
}

// crowd has twenty more keys ask for what is usual.
func crowd(v *town) {
	for key := uint64(21); key <= 40; key++ {
		v.asks[key] = 3
	}
}
