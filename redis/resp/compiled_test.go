//go:build gc
// +build gc

package resp

// The second line above is for Yaegi, which knows only that spelling of a build constraint, and is not gc: it ignores this
// file.

import (
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
)

func init() {
	startServer = func(t *testing.T) (string, func(int64)) {
		server := redistest.Start(t, redistest.WithClock())
		return server.Addr(), server.SetTime
	}
}
