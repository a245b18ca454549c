//go:build gc
// +build gc

package pressure

// The second line above is for Yaegi, as in traefik/compiled_test.go.

func init() {
	interpreted = false
}
