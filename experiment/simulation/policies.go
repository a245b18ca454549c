package simulation

import "sort"

// None sets nothing in front of the service.
type None struct{}

// Admit implements Policy.
func (None) Admit(float64, int) bool { return true }

// RetryAfter implements Policy.
func (None) RetryAfter() float64 { return 0 }

// Rejected implements Policy.
func (None) Rejected(float64, int) {}

// Answered implements Policy.
func (None) Answered(float64, float64, bool) {}

// Left implements Policy.
func (None) Left(float64, float64) {}

// Cap lets so many requests be under way.
type Cap struct{ Most, underWay int }

// Admit implements Policy.
func (c *Cap) Admit(float64, int) bool {
	if c.underWay >= c.Most {
		return false
	}
	c.underWay++
	return true
}

// RetryAfter implements Policy: a cap tells nothing.
func (*Cap) RetryAfter() float64 { return 0 }

// Rejected implements Policy.
func (*Cap) Rejected(float64, int) {}

// Answered implements Policy.
func (c *Cap) Answered(float64, float64, bool) { c.underWay-- }

// Left implements Policy.
func (c *Cap) Left(float64, float64) { c.underWay-- }

func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sort.Float64s(values)
	return values[int(q*float64(len(values)-1))]
}
