package report

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// freshTopKeys returns the counters of a rule, which are freed when the test ends.
func freshTopKeys(t testing.TB) *topKeys {
	t.Helper()
	before := bytesLeft.Load()
	keys := new(topKeys)
	t.Cleanup(func() {
		keys.end()
		must.Equal(t, bytesLeft.Load(), before, "bytes are left, %d were before", before)
	})
	return keys
}

func TestTopKeysCountsAreExactWhereKeysAreFew(t *testing.T) {
	keys := freshTopKeys(t)
	for i := range MostCounters {
		for range i + 1 {
			keys.add(fmt.Sprint("key ", i), 1000)
		}
	}
	list := keys.List(1000)
	if len(list) != MostCounters {
		t.Fatalf("%d keys, want %d", len(list), MostCounters)
	}
	for i, k := range list {
		n := MostCounters - i
		if k.Key != fmt.Sprint("key ", n-1) || k.Count != uint64(n) || k.Error != 0 || k.Cut {
			t.Errorf("place %d: %+v, want key %d with %d", i, k, n-1, n)
		}
	}
}

// The guarantee of Space-Saving, with floods of keys that come once among some that come often.
func TestTopKeysFindsWhatIsHeavyAmongAMillionKeysAndIsNeverWrongByMoreThanItSays(t *testing.T) {
	underrace.OneGoroutine(t)
	const requests, heavy = 1_000_000, 10
	random := rand.New(rand.NewPCG(1, 2))
	keys := freshTopKeys(t)
	exact := make(map[string]uint64)
	for i := range requests {
		key := fmt.Sprint("once ", i)
		if random.IntN(3) == 0 {
			key = fmt.Sprint("heavy ", random.IntN(heavy))
		}
		exact[key]++
		keys.add(key, 1000)
	}
	list := keys.List(1000)
	if len(list) != MostCounters {
		t.Fatalf("%d keys, want %d", len(list), MostCounters)
	}
	for i, k := range list {
		must.Equal(t, i < heavy, strings.HasPrefix(k.Key, "heavy "), "place %d: %+v", i, k)
		if k.Count < exact[k.Key] || k.Count-k.Error > exact[k.Key] || k.Error > requests/MostCounters {
			t.Errorf("%+v, and it has come %d times", k, exact[k.Key])
		}
	}
}

func TestTopKeysAreThoseOfTheLastOneToTwoGenerations(t *testing.T) {
	keys := freshTopKeys(t)
	counts := func(now int64) string {
		var all []string
		for _, k := range keys.List(now) {
			all = append(all, fmt.Sprintf("%s=%d", k.Key, k.Count))
		}
		return strings.Join(all, " ")
	}
	add := func(key string, n int, now int64) {
		for range n {
			keys.add(key, now)
		}
	}
	add("a", 3, 1000)
	add("b", 5, 1000+GenerationSeconds-1)
	add("a", 4, 1000+GenerationSeconds)
	add("c", 2, 1000+GenerationSeconds)
	for _, step := range []struct {
		now  int64
		want string
	}{
		{1000 + GenerationSeconds, "a=7 b=5 c=2"},
		{1000 + 2*GenerationSeconds - 1, "a=7 b=5 c=2"},
		{1000 + 2*GenerationSeconds, "a=4 c=2"},
		{1000 + 3*GenerationSeconds, ""},
	} {
		must.Equal(t, counts(step.now), step.want, "%d s after the first", step.now-1000)
	}
	add("a", 1, 50_000)
	if got := counts(10_000); got != "" && got != "a=1" { // the clock has stepped back
		t.Errorf("behind a step back: %q", got)
	}
	add("d", 1, 10_000)
	must.Contain(t, counts(10_000), "d=1", "a key behind a step back")
	add("e", 1, 10_000+10*GenerationSeconds)
	if got := counts(10_000 + 10*GenerationSeconds); got != "e=1" {
		t.Errorf("after a long pause: %q, want e alone", got)
	}
}

func TestTopKeysOfAllRulesTogetherAreBounded(t *testing.T) {
	const room = 10 * (counterBytes + 2)
	before := bytesLeft.Swap(room)
	defer bytesLeft.Store(before)
	rules := []*topKeys{{}, {}}
	for i := range 90 {
		rules[0].add(fmt.Sprint(10+i), 1000)
	}
	rules[0].add(strings.Repeat("a key for which there is no room", 10), 1000)
	rules[1].add("for want of room", 1000)
	if a, b := len(rules[0].List(1000)), len(rules[1].List(1000)); a != 10 || b != 0 {
		t.Errorf("%d and %d keys, want 10 and none", a, b)
	}
	rules[0].look(1000 + 2*GenerationSeconds)
	rules[1].add("now there is", 1000)
	if n := len(rules[1].List(1000)); n != 1 {
		t.Errorf("%d keys after others were given back, want 1", n)
	}
	for _, keys := range rules {
		keys.end()
		keys.add("after the end", 1000)
	}
	if bytesLeft.Load() != room {
		t.Errorf("%d bytes are left, want all %d", bytesLeft.Load(), room)
	}
}

func TestTopKeysKeepsTheBeginningOfLongKeys(t *testing.T) {
	keys := freshTopKeys(t)
	long := strings.Repeat("k", 100_000)
	keys.add(long+"1", 1000)
	keys.add(long+"2", 1000)
	list := keys.List(1000)
	if len(list) != 2 || len(list[0].Key) != longestTopKey || !list[0].Cut {
		t.Errorf("%d keys, of %d bytes, cut: %t", len(list), len(list[0].Key), list[0].Cut)
	}
}

// With a million distinct keys, neither the counters' memory nor the API's answer grows.
func TestTopKeysTakeNoMoreMemoryForAMillionKeys(t *testing.T) {
	underrace.OneGoroutine(t)
	keys := freshTopKeys(t)
	grown := func(from, to int) uint64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := from; i < to; i++ {
			keys.add(fmt.Sprintf("2001:db8::%x", i), 1000)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		return max(after.HeapAlloc, before.HeapAlloc) - before.HeapAlloc
	}
	few, many := grown(0, 1000), grown(1000, 1_000_000)
	t.Logf("%d bytes for a thousand keys, %d more for a million", few, many)
	if many > 256<<10 {
		t.Errorf("%d bytes more for a million keys", many)
	}
}

func BenchmarkTopKeys(b *testing.B) {
	names := make([]string, 1<<16)
	for i := range names {
		names[i] = fmt.Sprintf("192.0.%d.%d", i/256, i%256)
	}
	for _, n := range []int{1, 16, 64, 1 << 16} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			keys := freshTopKeys(b)
			b.ReportAllocs()
			for i := range b.N {
				keys.add(names[i&(n-1)], 1000)
			}
		})
	}
}
