//go:build gc
// +build gc

package resp

import (
	"runtime"
	"strings"
	"testing"
)

// FuzzReply checks that for anything that a server sends every call ends once, with the same result however the bytes are split, and that
// little memory is allocated.
func FuzzReply(f *testing.F) {
	for _, junk := range malformed {
		f.Add(junk, 3)
	}
	f.Add("*3\r\n:1\r\n:2\r\n:3\r\n+4 5 6\r\n-ERR x\r\n-READONLY y\r\n-NOSCRIPT z\r\n", 5)
	f.Add(strings.Repeat("*1\r\n", 10_000), 7)
	f.Fuzz(func(t *testing.T, stream string, size int) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		whole := play(t, []string{stream})
		runtime.ReadMemStats(&after)
		if most := uint64(1<<20 + 100*len(stream)); after.TotalAlloc-before.TotalAlloc > most {
			t.Errorf("%d bytes were allocated for %d", after.TotalAlloc-before.TotalAlloc, len(stream))
		}
		if size < 1 || len(stream)/size > 2000 {
			return
		}
		if got := play(t, cut(stream, size)); got != whole {
			t.Errorf("in pieces of %d:\n%s\nas a whole:\n%s", size, got, whole)
		}
	})
}
