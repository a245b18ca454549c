//go:build !linux

package ratelimit_test

import (
	"net"
	"testing"
)

// freeAddr returns an address at which nothing listens. Another process may get it before Caddy listens there.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
