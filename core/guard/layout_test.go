//go:build gc
// +build gc

package guard

import (
	"reflect"
	"testing"
)

// TestNumbersThatAreAtomicComeFirst checks it of all structs that have any: on machines with 32 bits those of 64 are aligned only there.
func TestNumbersThatAreAtomicComeFirst(t *testing.T) {
	for _, c := range []struct {
		of   reflect.Type
		last string
	}{{reflect.TypeOf(Guard{}), "pressing"}, {reflect.TypeOf(Rule{}), "learnt"}, {reflect.TypeOf(demand{}), "state"}} {
		for i := 0; ; i++ {
			f := c.of.Field(i)
			kind := f.Type.Kind()
			if kind == reflect.Array {
				kind = f.Type.Elem().Kind()
			}
			if kind != reflect.Int64 {
				t.Errorf("%v.%s comes before %s", c.of, f.Name, c.last)
			}
			if f.Name == c.last {
				break
			}
		}
	}
}
