package replay

import (
	"cmp"
	"slices"
	"time"
)

// series counts requests and rejections over time, in a fixed number of steps of equal length. After the last step all become twice as long,
// so that it has the same size for an hour and for a year.
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
	i := max(at-s.start, 0) / s.step // a clock that went back to before the first request counts as the time of that
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

// Minute counts a rule's requests in a minute.
type Minute struct {
	Start    time.Time `json:"start"`
	Requests int64     `json:"requests"`
	Rejected int64     `json:"rejected"`
}

// minutes counts by the minute, and keeps the minutes with the most rejections. If the log's clock goes back and a minute comes again, its
// counts add up: exactly for the first keptMinutes, and after that for the worst ones that are kept.
type minutes struct {
	one  minute // the current minute
	list []minute
}

// minute is a compact Minute.
type minute struct {
	number             int32 // since the epoch
	requests, rejected uint32
}

const (
	mostMinutes = 5    // in the report
	keptMinutes = 4096 // in memory; up to twice as many for a while
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

// close ends the current minute.
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

// merge adds up counts of the same minute, and puts the worst minutes first.
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

// worst returns the minutes with the most rejections, and only minutes that have any.
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
