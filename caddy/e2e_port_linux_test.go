package ratelimit_test

import (
	"fmt"
	"syscall"
	"testing"
)

// reusePort is SO_REUSEPORT, which package syscall does not define.
const reusePort = 0xf

// freeAddr returns an address at which Caddy, which shares its ports, may listen until the test ends. Nobody else gets it, since a
// socket that does not listen is bound to it.
func freeAddr(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	for _, option := range []int{syscall.SO_REUSEADDR, reusePort} {
		if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, option, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}
