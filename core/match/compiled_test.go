//go:build gc
// +build gc

package match

// The second line above is for Yaegi, which knows no other spelling of a build constraint and no compiler: it leaves this
// file out.

func init() {
	interpreted = false
}
