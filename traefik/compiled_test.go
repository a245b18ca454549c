//go:build gc
// +build gc

package traefik

// The second line above is for Yaegi, which knows no other spelling of a build constraint and no compiler: it leaves this
// file out.

import (
	"reflect"
	"testing"
	_ "time/tzdata" // so that the calendar's tests do not depend on the machine
)

func init() {
	interpreted = false
}

// TestNumbersOfPassagesThatAreAtomicComeFirst since on machines with 32 bits those of 64 are aligned only there.
func TestNumbersOfPassagesThatAreAtomicComeFirst(t *testing.T) {
	for i, name := range []string{"refusals", "second"} {
		if f := reflect.TypeOf(guarded{}).Field(i); f.Name != name {
			t.Errorf("%s has the place of %s", f.Name, name)
		}
	}
	for i, name := range []string{"under", "begun", "took"} {
		if f := reflect.TypeOf(passage{}).Field(i); f.Name != name {
			t.Errorf("%s has the place of %s", f.Name, name)
		}
	}
}
