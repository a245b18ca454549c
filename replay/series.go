package replay

import (
	"cmp"
	"slices"
	"time"
)

// series counts requests and rejections over time, in so many steps of equal length: when the last is passed, they become twice as long.
// So it has the same size for an hour and for a year.
type series struct {
	start, step int64 // microseconds; step 0: nothing has been counted
	requests    []uint32
	rejected    []uint32
}

const (
	mostSteps = 240
	firstStep = 1_000_000
)

func newSeries() series { return series{requests: []uint32{}, rejected: []uint32{}} }

// count counts a request.
func (s *series) count(at int64, rejected bool) {
	if s.step == 0 {
		s.step = firstStep
		s.start = at - at%s.step
	}
	i := max(at-s.start, 0) / s.step // where the log's clock went back, to before the first request, that is taken for its time
	for i >= mostSteps {
		s.double()
		i = max(at-s.start, 0) / s.step
	}
	for int(i) >= len(s.requests) {
		s.requests = append(s.requests, 0)
		s.rejected = append(s.rejected, 0)
	}
	s.requests[i]++
	if rejected {
		s.rejected[i]++
	}
}

// double makes the steps twice as long. They begin at a multiple of their length.
func (s *series) double() {
	offset := int(s.start / s.step & 1)
	s.start -= int64(offset) * s.step
	s.step *= 2
	for _, list := range []*[]uint32{&s.requests, &s.rejected} {
		halved := make([]uint32, (len(*list)+offset+1)/2, mostSteps)
		for i, n := range *list {
			halved[(i+offset)/2] += n
		}
		*list = halved
	}
}

// Minute is what became of a rule's requests in a minute.
type Minute struct {
	Start    time.Time `json:"start"`
	Requests int64     `json:"requests"`
	Rejected int64     `json:"rejected"`
}

// minutes counts by the minute, and knows those with the most rejections. A minute that comes again, since the log's clock went back, is one:
// of the first keptMinutes exactly, and then of those that were among so many of the worst.
type minutes struct {
	one  minute // that is counted
	list []minute
}

// minute is what Minute is, in a few bytes.
type minute struct {
	number             int32 // since the epoch
	requests, rejected uint32
}

const (
	mostMinutes = 5    // are told
	keptMinutes = 4096 // are kept; up to twice as many for a while
)

const minuteMicros = 60 * 1_000_000

// count counts a request.
func (m *minutes) count(at int64, rejected bool) {
	if number := int32(at / minuteMicros); number != m.one.number {
		m.close()
		m.one.number = number
	}
	m.one.requests++
	if rejected {
		m.one.rejected++
	}
}

// close ends the minute that is counted.
func (m *minutes) close() {
	if m.one.requests > 0 {
		m.list = append(m.list, m.one)
	}
	m.one = minute{}
	if len(m.list) == 2*keptMinutes {
		m.merge()
		m.list = m.list[:min(len(m.list), keptMinutes)]
	}
}

// merge makes one of those that are the same minute, and puts the worst first.
func (m *minutes) merge() {
	slices.SortFunc(m.list, func(a, b minute) int { return cmp.Compare(a.number, b.number) })
	merged := m.list[:0]
	for _, one := range m.list {
		if last := len(merged) - 1; last >= 0 && merged[last].number == one.number {
			merged[last].requests += one.requests
			merged[last].rejected += one.rejected
			continue
		}
		merged = append(merged, one)
	}
	m.list = merged
	slices.SortFunc(m.list, func(a, b minute) int {
		return cmp.Or(cmp.Compare(b.rejected, a.rejected), cmp.Compare(b.requests, a.requests), cmp.Compare(a.number, b.number))
	})
}

// worst returns the minutes with the most rejections, and none without.
func (m *minutes) worst() []Minute {
	m.close()
	m.merge()
	list := []Minute{}
	for _, one := range m.list[:min(len(m.list), mostMinutes)] {
		if one.rejected > 0 {
			list = append(list, Minute{time.UnixMicro(int64(one.number) * minuteMicros).UTC(), int64(one.requests), int64(one.rejected)})
		}
	}
	return list
}
