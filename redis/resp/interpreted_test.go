//go:build gc
// +build gc

package resp

import (
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
)

// TestUnderTheInterpreter gives the tests a server whose clock they can set.
func TestUnderTheInterpreter(t *testing.T) {
	redistest.RunInterpreted(t, "redis/resp", redistest.Start(t, redistest.WithClock()))
}
