//go:build gc
// +build gc

package traefik

// The second line above is for Yaegi, which knows no other spelling of a build constraint and no compiler: it leaves this
// file out.

import _ "time/tzdata" // so that the calendar's tests do not depend on the machine

func init() {
	interpreted = false
}
