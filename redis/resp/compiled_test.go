//go:build gc
// +build gc

package resp

// The second line above is for Yaegi, which knows no other spelling of a build constraint and no compiler: it leaves this
// file out.

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
