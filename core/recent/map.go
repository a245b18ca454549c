// Package recent remembers what belongs to the keys that were used last. It keeps to the Go that the interpreter Yaegi can run: a
// method calls those alone that stand above it.
package recent

// Map has values of keys by the hash of the key, and forgets those that were not used for longest. A key that is used belongs to the young generation. When
// that is full, it becomes the old one, and the keys of the old one are forgotten. So at least as many keys as a generation has are remembered, and at most
// twice as many.
//
// The zero value is an empty map. It is not safe for concurrent use: its owner has a lock. Interpreted, a call takes 2 to 3 µs, as that of
// any method does, and to read Young takes 0.1: so the path of a request reads Young itself, and calls Use for a key that is not there.
type Map[V any] struct {
	Young, Old map[uint64]*V
}

// Put sets the value of a key, which is young then.
func (m *Map[V]) Put(key uint64, v *V, most int) {
	if len(m.Young) >= most {
		m.Old = m.Young
		m.Young = nil
	}
	if m.Young == nil {
		m.Young = make(map[uint64]*V)
	}
	m.Young[key] = v
}

// Use returns the value of a key, which is young then; a new one, if there is none. A generation has at most that many keys.
func (m *Map[V]) Use(key uint64, most int) *V {
	v := m.Young[key]
	if v != nil {
		return v
	}
	if v = m.Old[key]; v == nil {
		v = new(V)
	}
	m.Put(key, v, most)
	return v
}

// Find returns the value of a key, whose generation does not change; nil: there is none.
func (m *Map[V]) Find(key uint64) *V {
	v := m.Young[key]
	if v == nil {
		v = m.Old[key]
	}
	return v
}

// Delete forgets a key.
func (m *Map[V]) Delete(key uint64) {
	delete(m.Young, key)
	delete(m.Old, key)
}
