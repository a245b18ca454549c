//go:build gc
// +build gc

package resp

import (
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/redis"
)

// FuzzReply checks that for anything that a server sends every call ends once, with the same result however the bytes are split, and that
// little memory is allocated.
func FuzzReply(f *testing.F) {
	for _, junk := range malformed {
		f.Add(junk, 3, false)
		f.Add(junk, 3, true)
	}
	f.Add("*3\r\n:1\r\n:2\r\n:3\r\n+4 5 6\r\n-ERR x\r\n-READONLY y\r\n-NOSCRIPT z\r\n", 5, false)
	f.Add("+1\r\n*2\r\n$3\r\na\r\n\r\n$0\r\n\r\n+2\r\n", 2, true)
	f.Add(strings.Repeat("*1\r\n", 10_000), 7, false)
	f.Fuzz(func(t *testing.T, stream string, size int, texts bool) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var script *redis.Script
		if texts {
			script = &redis.Script{Texts: true}
		}
		whole := play(t, []string{stream}, script)
		runtime.ReadMemStats(&after)
		if most := uint64(1<<20 + 100*len(stream)); after.TotalAlloc-before.TotalAlloc > most {
			t.Errorf("%d bytes were allocated for %d", after.TotalAlloc-before.TotalAlloc, len(stream))
		}
		if size < 1 || len(stream)/size > 2000 {
			return
		}
		if got := play(t, cut(stream, size), script); got != whole {
			t.Errorf("in pieces of %d:\n%s\nas a whole:\n%s", size, got, whole)
		}
	})
}

// FuzzLine checks that the numbers of a reply to the pipeline are read as they are, or not at all, whatever a server sends.
func FuzzLine(f *testing.F) {
	for _, line := range []string{"+1 2 key", "+1 2", "+-3 0 9223372036854775807 1 key", "+", "", "-ERR x", "+1  2", "+1 2 other", "+key", "+ key"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		call := &redis.Call{Keys: []string{"first", "key"}}
		numbers, ok := numbersOf(line, call)
		if !ok {
			return
		}
		words := strings.Split(strings.TrimSuffix(line[1:], " key"), " ")
		if len(words) != len(numbers) {
			t.Fatalf("%q has the numbers %v", line, numbers)
		}
		for i, word := range words {
			if n, err := strconv.ParseInt(word, 10, 64); err != nil || n != numbers[i] {
				t.Errorf("%q has the numbers %v", line, numbers)
			}
		}
	})
}
