package redistest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// await calls f until it returns no error. If that takes longer than patience, it ends the test with what and the last error.
func await(t testing.TB, what string, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(4 * pause) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
	}
}

// stopTogether stops servers at the end of the test, all at the same time.
func stopTogether(t testing.TB, servers []*Server) {
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, s := range servers {
			wg.Go(s.Stop)
		}
		wg.Wait()
	})
}

// live returns those of the servers that run and are not paused.
func live(servers []*Server) []*Server {
	return slices.DeleteFunc(slices.Clone(servers), func(s *Server) bool { return !s.live() })
}

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}

// field returns the value of a line "name:value" of INFO or CLUSTER INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
