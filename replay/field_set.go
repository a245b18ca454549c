package replay

// fieldSet is a set of places in a fieldTable. Most replays have so few that the first word is enough.
type fieldSet struct {
	first uint64
	more  []uint64
}

// add adds a place.
func (s *fieldSet) add(place int) {
	if place < 64 {
		s.first |= 1 << place
		return
	}
	word := place/64 - 1
	for len(s.more) <= word {
		s.more = append(s.more, 0)
	}
	s.more[word] |= 1 << (place % 64)
}

// has reports whether a place is in the set.
func (s *fieldSet) has(place int) bool {
	if place < 64 {
		return s.first&(1<<place) != 0
	}
	word := place/64 - 1
	return word < len(s.more) && s.more[word]&(1<<(place%64)) != 0
}

// join adds what is in another set.
func (s *fieldSet) join(other *fieldSet) {
	s.first |= other.first
	for i, word := range other.more {
		if i == len(s.more) {
			s.more = append(s.more, 0)
		}
		s.more[i] |= word
	}
}
