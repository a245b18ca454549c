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

// minutes keeps those with the most rejections.
type minutes struct {
	now   int64 // number of the minute that is counted
	one   Minute
	worst []Minute
}

// mostMinutes is how many are kept.
const mostMinutes = 5

const minuteMicros = 60 * 1_000_000

// count counts a request.
func (m *minutes) count(at int64, rejected bool) {
	if minute := at / minuteMicros; minute != m.now {
		m.close()
		m.now = minute
	}
	m.one.Requests++
	if rejected {
		m.one.Rejected++
	}
}

// close ends the minute that is counted.
func (m *minutes) close() {
	if m.one.Rejected > 0 {
		m.one.Start = time.UnixMicro(m.now * minuteMicros).UTC()
		m.worst = append(m.worst, m.one)
		slices.SortStableFunc(m.worst, func(a, b Minute) int {
			return cmp.Or(cmp.Compare(b.Rejected, a.Rejected), cmp.Compare(b.Requests, a.Requests), a.Start.Compare(b.Start))
		})
		m.worst = m.worst[:min(len(m.worst), mostMinutes)]
	}
	m.one = Minute{}
}
