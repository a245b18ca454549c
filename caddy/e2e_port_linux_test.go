package ratelimit_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// reusePort is SO_REUSEPORT, which package syscall does not define.
const reusePort = 0xf

// freeAddr returns an address at which Caddy, which shares its ports, may listen until the test ends. Nobody else gets it, since a
// socket that does not listen is bound to it.
func freeAddr(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	for _, option := range []int{syscall.SO_REUSEADDR, reusePort} {
		must.Succeed(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, option, 1))
	}
	must.Succeed(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := syscall.Getsockname(fd)
	must.Succeed(t, err)
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}
