package report

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/proxyweir/weir/core/describe"
)

// topKeys finds the keys that have sent the most, in bounded memory for any number of keys. Each generation has a fixed number of
// counters. A key without a counter takes over the smallest one with its count, so its own count may then be too high. This is
// Space-Saving (Metwally, Agrawal and El Abbadi, 2005): of n requests, every key with more than n/mostCounters of them is found,
// and no count is too high by more than that.
//
// The list covers the time of the last one to two generations. The zero value is ready to use, and safe for concurrent use.
type topKeys struct {
	mu    sync.Mutex
	ends  int64 // when the young generation ends, in seconds since the Unix epoch
	young generation
	old   generation
	ended bool
}

const (
	MostCounters      = 64
	GenerationSeconds = 300
	longestTopKey     = describe.LongestKey // the longest key that is kept, in bytes; one of this length or longer is marked as cut
)

// bytesLeft is how many bytes are left for the counters of all rules together.
var bytesLeft atomic.Int64

func init() { bytesLeft.Store(32 << 20) }

// counterBytes is the size of a counter without its key.
const counterBytes = 40

// generation has the counters of one span of time.
type generation struct {
	hashes []uint64
	counts []uint64
	errors []uint64 // by how much each count may be too high
	keys   []string // the beginning of the key, if it is very long
}

// TopKey is one of the keys found. Count may be too high by up to Error.
type TopKey struct {
	Key          string
	Hash         uint64
	Count, Error uint64
	Cut          bool // key is only the beginning, or a whole key of just that length
}

// add counts a request of a key at a time, in seconds since the Unix epoch.
func (t *topKeys) add(key string, now int64) {
	hash := describe.HashOf(key)
	t.mu.Lock()
	if t.ended { // a request that came before the rule ended
		t.mu.Unlock()
		return
	}
	if now >= t.ends || now < t.ends-GenerationSeconds { // the clock may have stepped back
		t.rotate(now)
	}
	t.young.add(hash, key)
	t.mu.Unlock()
}

// add counts a request. Frequent keys move to the front, where they are found fast.
func (g *generation) add(hash uint64, key string) {
	i := slices.Index(g.hashes, hash)
	switch {
	case i >= 0:
		g.counts[i]++
		if i >= 8 {
			g.swap(i, i/2)
		}
	case len(g.hashes) < MostCounters && takeBytes(counterBytes+min(len(key), longestTopKey)):
		g.hashes = append(g.hashes, hash)
		g.counts = append(g.counts, 1)
		g.errors = append(g.errors, 0)
		g.keys = append(g.keys, kept(key))
	case len(g.hashes) > 0: // else the counters of all rules have used up their bytes
		i = g.smallest()
		if !takeBytes(min(len(key), longestTopKey) - len(g.keys[i])) {
			return
		}
		g.hashes[i] = hash
		g.errors[i] = g.counts[i]
		g.counts[i]++
		g.keys[i] = kept(key)
	}
}

func (g *generation) swap(i, j int) {
	g.hashes[i], g.hashes[j] = g.hashes[j], g.hashes[i]
	g.counts[i], g.counts[j] = g.counts[j], g.counts[i]
	g.errors[i], g.errors[j] = g.errors[j], g.errors[i]
	g.keys[i], g.keys[j] = g.keys[j], g.keys[i]
}

// takeBytes takes n bytes of those that are left, and reports whether there were enough; a negative number returns bytes.
func takeBytes(n int) bool {
	if bytesLeft.Add(int64(-n)) >= 0 || n <= 0 {
		return true
	}
	bytesLeft.Add(int64(n))
	return false
}

// kept returns a copy of the part of a key that is kept. The key itself may be part of a large text.
func kept(key string) string {
	if len(key) > longestTopKey {
		key = key[:longestTopKey]
	}
	return strings.Clone(key)
}

func (g *generation) smallest() int {
	least := 0
	for i, count := range g.counts {
		if count < g.counts[least] {
			least = i
		}
	}
	return least
}

// rotate begins a new generation, or two if nothing has come for long.
func (t *topKeys) rotate(now int64) {
	t.old, t.young = t.young, t.old
	t.young.clear()
	if now >= t.ends+GenerationSeconds || now < t.ends-2*GenerationSeconds {
		t.old.clear()
	}
	t.ends = now + GenerationSeconds
}

// clear returns the counters' bytes.
func (g *generation) clear() {
	for _, key := range g.keys {
		takeBytes(-counterBytes - len(key))
	}
	*g = generation{}
}

// look begins a new generation if the old one has ended, so that a rule without requests frees its memory.
func (t *topKeys) look(now int64) {
	t.mu.Lock()
	if len(t.young.hashes)+len(t.old.hashes) > 0 && (now >= t.ends || now < t.ends-GenerationSeconds) {
		t.rotate(now)
	}
	t.mu.Unlock()
}

// end returns the bytes of all counters.
func (t *topKeys) end() {
	t.mu.Lock()
	t.ended = true
	t.young.clear()
	t.old.clear()
	t.mu.Unlock()
}

// List returns the keys found, those with the highest counts first.
func (t *topKeys) List(now int64) []TopKey {
	t.look(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	var keys []TopKey
	for _, g := range []*generation{&t.young, &t.old} {
		for i, hash := range g.hashes {
			at := slices.IndexFunc(keys, func(k TopKey) bool { return k.Hash == hash })
			if at < 0 {
				at = len(keys)
				keys = append(keys, TopKey{Key: g.keys[i], Hash: hash, Cut: len(g.keys[i]) == longestTopKey})
			}
			keys[at].Count += g.counts[i]
			keys[at].Error += g.errors[i]
		}
	}
	slices.SortFunc(keys, func(a, b TopKey) int {
		return cmp.Or(cmp.Compare(b.Count-b.Error, a.Count-a.Error), cmp.Compare(b.Count, a.Count), strings.Compare(a.Key, b.Key))
	})
	return keys
}

// Counts returns how often each of some keys was counted at least; 0 for one that is not found.
func (t *topKeys) Counts(keys []TopKey) []uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := make([]uint64, 0, len(keys))
	for _, k := range keys {
		n := uint64(0)
		for _, g := range []*generation{&t.young, &t.old} {
			if i := slices.Index(g.hashes, k.Hash); i >= 0 {
				n += g.counts[i] - g.errors[i]
			}
		}
		counts = append(counts, n)
	}
	return counts
}
