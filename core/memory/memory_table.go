package memory

import (
	"math/bits"
	"sync"

	"github.com/proxyweir/weir/core/rate"
)

// shard is a part of the keys, with a lock of its own.
//
// Its table uses open addressing with linear probing, and keys are in the order of their hashes. A hash's home is a slot at a
// place proportional to the hash. A key is at its home or behind it, after all keys with smaller hashes. A search stops at the
// first greater hash, so an absent key costs no more than a present one, and tables may be filled to 84 %. Slots hold no
// pointers, so the garbage collector never reads them.
//
// With an index (Mapped), slots have no gaps and no order, and the index has the slot of each key.
type shard struct {
	mu     sync.Mutex
	home   int // how many slots are homes; some more slots follow them, and the last one is always free
	n      int // keys
	slots  []slot
	owners []uint32 // whose keys they are: a space's number, and marks; apart from the slots, since they are seldom needed
	cursor int      // where expire continues

	logs      []rate.EventLog
	logHashes []uint64 // of the keys that the logs belong to
	freeLogs  []int    // numbers of logs that no key has

	index    map[uint64]int
	fast     map[uint64]int      // the same as index; of a store that tells, the keys that the fast path may admit
	accounts map[uint64]*account // by hash, for keys with the mark accounted
	untold   map[uint64]*Untold  // by hash
	admitted []int64             // what the fast path has admitted, by slot; only of a store that tells
	_        [48]byte            // pads to four cache lines, so that the locks of neighbours do not share one
}

// slot holds a key's State and its hash, which is 0 in a free slot.
type slot struct {
	hash  uint64
	state rate.State
}

// The marks of an owner. rejected: a request of the key was rejected. accounted: the key has an account. handMark: the key was
// blocked by hand; the mark may remain after the block, until somebody finds that it is over.
const (
	rejected  = 1 << 31
	accounted = 1 << 30
	handMark  = 1 << 29
	marks     = rejected | accounted | handMark
)

// minHome is the size of the smallest table.
const minHome = 8

// find returns the slot of hash h. If it is absent, the result is negative: -1-i, if it would have to be inserted at i.
func find(s *shard, h uint64) int {
	if s.index != nil {
		if i, ok := s.index[h]; ok {
			return i
		}
		return -1
	}
	if s.home == 0 {
		return -1
	}
	home, _ := bits.Mul64(h, uint64(s.home))
	slots := s.slots
	for i := int(home); i < len(slots); i++ {
		at := slots[i].hash
		if at == h {
			return i
		}
		if at == 0 || at > h {
			return -1 - i
		}
	}
	return -1 - len(slots) // not reached: the last slot is free
}

// insertKey gives a new key of the space sp a slot, and returns its index. It also looks at two old keys, and forgets them if they have
// expired, so that memory is freed as fast as it is used. It counts both at once: often they cancel out, and then it leaves the
// counters alone, for which all cores contend.
func insertKey(m *Store, s *shard, sp *space, hash uint64, now int64) int {
	more := 1 - expireKeys(m, s, 2, now, sp)
	if s.index == nil && s.n >= s.home*27/32 {
		more -= resizeTable(m, s, now, sp)
	}
	return addKey(m, s, sp, hash, now, more)
}

// insertMapped is insertKey for a store that is Mapped: in one function, and with a look at one old key only, for the interpreter. So keys that come and
// go take up to twice the room of those in use, where otherwise it is one and a half times: in the time in which each key is looked at once, as many
// come as there are.
func insertMapped(m *Store, s *shard, sp *space, hash uint64, now int64) int {
	var (
		i      int
		limits []*rate.Limit
		alone  bool
		more   int64
	)
	more = 1
	limits = sp.limits.Load().([]*rate.Limit)
	alone = len(limits) == 1 && !sp.isLog
	i = s.cursor
	if alone && i < len(s.slots) && s.owners[i] == sp.number && !rate.Unused(limits[0], &s.slots[i].state, now) {
		s.cursor++
	} else if s.n > 0 {
		more -= expireKeys(m, s, 1, now, sp)
	}
	i = len(s.slots)
	s.index[hash] = i
	s.slots = append(s.slots, slot{hash: hash})
	s.owners = append(s.owners, sp.number)
	if s.admitted != nil {
		s.admitted = append(s.admitted, 0)
	}
	if sp.isLog {
		startLog(s, i, now)
	}
	s.n++
	if more != 0 {
		sp.keys.Add(more)
		m.keys.Add(more)
	}
	return i
}

// addKey is insertKey without looking at old keys. more is by how many the space has more keys then.
func addKey(m *Store, s *shard, sp *space, hash uint64, now, more int64) int {
	i := placeKey(m, s, hash)
	s.owners[i] = sp.number
	if sp.isLog {
		startLog(s, i, now)
	}
	s.n++
	countKeys(m, sp, more)
	return i
}

// countKeys adds n to the number of keys of the space and of the store.
func countKeys(m *Store, sp *space, n int64) {
	if n != 0 {
		sp.keys.Add(n)
		m.keys.Add(n)
	}
}

// countKept counts a key that gets its first request under way, or has lost its last one.
func (m *Store) countKept(sp *space, a *account) {
	a.kept = !a.kept
	n := int64(-1)
	if a.kept {
		n = 1
	}
	sp.kept.Add(n)
	m.underWay.Add(n)
}

// markHand marks and counts the key in slot i as blocked by hand.
func (m *Store) markHand(s *shard, i int) {
	if s.owners[i]&handMark == 0 {
		m.spaces.Load().([]*space)[s.owners[i]&^marks].kept.Add(1)
		s.owners[i] |= handMark
		m.byHand.Add(1)
	}
}

// unmarkHand removes the mark from the key in slot i, if it has it.
func (m *Store) unmarkHand(s *shard, i int) {
	if s.owners[i]&handMark != 0 {
		s.owners[i] &^= handMark
		m.spaces.Load().([]*space)[s.owners[i]&^marks].kept.Add(-1)
		m.byHand.Add(-1)
	}
}

// placeKey returns a slot for a hash that is not in the table, and makes room for it.
func placeKey(m *Store, s *shard, h uint64) int {
	if s.index != nil {
		i := len(s.slots)
		s.index[h] = i
		s.slots = append(s.slots, slot{hash: h})
		s.owners = append(s.owners, 0)
		if s.admitted != nil {
			s.admitted = append(s.admitted, 0)
		}
		return i
	}
	for {
		i := -1 - find(s, h)
		free := i
		for s.slots[free].hash != 0 {
			free++
		}
		if free < len(s.slots)-1 {
			copy(s.slots[i+1:free+1], s.slots[i:free])
			copy(s.owners[i+1:free+1], s.owners[i:free])
			s.slots[i] = slot{hash: h}
			return i
		}
		m.rebuild(s, s.home+s.home/4+minHome) // the slots behind the homes are full, which is very rare
	}
}

// removeKey forgets the key in slot i. It returns the key's space, from whose count the caller must subtract it. Keys behind it move
// up, as far as their homes allow.
func removeKey(m *Store, s *shard, i int) *space {
	sp := m.spaces.Load().([]*space)[s.owners[i]&^marks]
	s.n--
	if s.owners[i]&accounted != 0 {
		if a := s.accounts[s.slots[i].hash]; a.kept {
			m.countKept(sp, a)
		}
		delete(s.accounts, s.slots[i].hash)
	}
	if s.owners[i]&handMark != 0 {
		m.unmarkHand(s, i)
	}
	if sp.isLog && !rate.IsBlocked(&s.slots[i].state) {
		m.freeLog(s, sp, int(s.slots[i].state.A))
	}
	if s.index != nil {
		last := len(s.slots) - 1
		if s.admitted != nil {
			s.forgetFast(i, last)
		}
		delete(s.index, s.slots[i].hash)
		if i != last {
			s.slots[i] = s.slots[last]
			s.owners[i] = s.owners[last]
			s.index[s.slots[i].hash] = i
		}
		s.slots = s.slots[:last]
		s.owners = s.owners[:last]
		return sp
	}
	end := i + 1
	for s.slots[end].hash != 0 {
		home, _ := bits.Mul64(s.slots[end].hash, uint64(s.home))
		if int(home) == end {
			break
		}
		end++
	}
	copy(s.slots[i:], s.slots[i+1:end])
	copy(s.owners[i:], s.owners[i+1:end])
	s.slots[end-1] = slot{}
	return sp
}

// resizeTable makes room in a full table. It forgets expired keys, and if they are few, it makes the table a quarter larger. It
// returns what expire returns.
func resizeTable(m *Store, s *shard, now int64, uncounted *space) int64 {
	forgotten := int64(0)
	if s.home > 0 {
		forgotten = expireKeys(m, s, len(s.slots), now, uncounted)
		if s.n < s.home*5/8 {
			return forgotten
		}
	}
	size := s.home + s.home/4
	if s.home < 512 {
		size = 2 * s.home
	}
	if size < minHome {
		size = minHome
	}
	m.rebuild(s, size)
	return forgotten
}

// rebuild moves the keys into a table with that many homes. They are in order, so each goes behind the previous one.
func (m *Store) rebuild(s *shard, home int) {
	size := home + home/64 + 16
	for {
		slots := make([]slot, size)
		owners := make([]uint32, size)
		next := 0
		for i := range s.slots {
			h := s.slots[i].hash
			if h == 0 {
				continue
			}
			at, _ := bits.Mul64(h, uint64(home))
			if next < int(at) {
				next = int(at)
			}
			if next >= size-1 {
				break
			}
			slots[next] = s.slots[i]
			owners[next] = s.owners[i]
			next++
		}
		if next < size-1 {
			s.slots, s.owners, s.home, s.cursor = slots, owners, home, 0
			return
		}
		size += home / 4
	}
}

// newLog returns the number of an empty log for the key with hash h.
func newLog(s *shard, h uint64) int {
	if k := len(s.freeLogs); k > 0 {
		number := s.freeLogs[k-1]
		s.freeLogs = s.freeLogs[:k-1]
		s.logHashes[number] = h
		return number
	}
	s.logs = append(s.logs, rate.EventLog{})
	s.logHashes = append(s.logHashes, h)
	return len(s.logs) - 1
}

func (m *Store) freeLog(s *shard, sp *space, number int) {
	m.countTimes(sp, -len(s.logs[number].Times))
	s.logs[number] = rate.EventLog{}
	s.freeLogs = append(s.freeLogs, number)
}

// countTimes adds n to the number of times that a rule's logs have room for.
func (m *Store) countTimes(sp *space, n int) {
	if n != 0 {
		sp.logTimes.Add(int64(n))
		m.logTimes.Add(int64(n))
	}
}
