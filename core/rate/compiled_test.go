//go:build gc
// +build gc

package rate

// The second line above is for Yaegi, which reads only that form of a build constraint, and defines no compiler: it leaves this
// file out.

import _ "time/tzdata" // so that the calendar's tests do not depend on the machine

func init() {
	interpreted = false
}
