package advice

import (
	"fmt"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/rate"
)

// The gates that a proxy may apply.
const (
	Full   = "full"   // advice loosens alone, and only where the proxy sees a healthy service; "" means this
	Bounds = "bounds" // advice may also lower a limit, and nothing is looked at but floor, ceiling, step, deadband and expiry
)

// The defaults of Settings.
const (
	DefaultStep  = 25
	DefaultEvery = 30 * seconds
)

// Settings are those of an adaptable rule. CheckSettings checks them.
type Settings struct {
	Adaptable

	// A limit in force moves at most once in Every microseconds, by Step percent of itself at most, but by 1 where that is less than 1. 0 means
	// DefaultStep and DefaultEvery.
	Step, Every int64

	Gates  string // Full or Bounds
	WarmUp int64  // microseconds of traffic that the proxy learns before the full gates loosen anything

	// OneKey says that the key is the same for all requests, so that one key makes all of the demand, whoever asks.
	OneKey bool
}

// longestDrain is how long a full bucket may take to drain, in microseconds.
const longestDrain = int64(rate.MaxDrain / time.Microsecond)

// CheckSettings checks the settings of a rule and sets what is not set. An error begins with the field.
func CheckSettings(s *Settings) error {
	if s.Step == 0 {
		s.Step = DefaultStep
	}
	if s.Every == 0 {
		s.Every = DefaultEvery
	}
	if s.Gates == "" {
		s.Gates = Full
	}
	switch {
	case s.Requests < 1 || s.Requests > MaxNumber:
		return fmt.Errorf("limit %d: must be from 1 to %d", s.Requests, MaxNumber)
	case s.Floor < 1 || s.Floor > s.Requests:
		return fmt.Errorf("floor %d: must be from 1 to the limit, %d", s.Floor, s.Requests)
	case s.Ceiling < s.Requests || s.Ceiling > MaxNumber:
		return fmt.Errorf("ceiling %d: must be from the limit, %d, to %d", s.Ceiling, s.Requests, MaxNumber)
	case s.Step < 1 || s.Step > 100:
		return fmt.Errorf("step %d%%: must be from 1%% to 100%%", s.Step)
	case s.Every < seconds || s.Every > 3600*seconds:
		return fmt.Errorf("step %dus: must be from 1s to 1h", s.Every)
	case s.Gates != Full && s.Gates != Bounds:
		return fmt.Errorf("gates %q: must be %s or %s", s.Gates, Full, Bounds)
	}
	for _, name := range s.allowed() {
		a, err := rate.ParseAlgorithm(name)
		if err != nil {
			return fmt.Errorf("algorithms: %q must be one of %s", name, strings.Join(rate.AlgorithmNames, ", "))
		}
		if s.Calendar != "" && !a.Row().HasCalendar {
			return fmt.Errorf("algorithms: %s cannot follow the calendar, as the limit does; only fixed_window can", name)
		}
		if most := a.Row().MostRequests; s.Ceiling > most {
			return fmt.Errorf("ceiling %d: must be at most %d with %s", s.Ceiling, most, name)
		}
	}
	return nil
}

// isBucket reports whether limits with an algorithm have a burst.
func isBucket(algorithm string) bool {
	a, err := rate.ParseAlgorithm(algorithm)
	return err == nil && a.IsBucket()
}

// least returns the least limit that may be in force.
func (s *Settings) least() int64 {
	if s.Gates == Bounds {
		return s.Floor
	}
	return s.Requests
}

// usualBurst returns the burst of the configured limit: that of a bucket of its requests where it is none.
func (s *Settings) usualBurst() int64 {
	if isBucket(s.Algorithm) && s.Burst > 0 {
		return s.Burst
	}
	return s.Requests
}

// burstOf returns the configured burst in proportion to a number of requests.
func (s *Settings) burstOf(requests int64) int64 {
	burst := s.usualBurst() * requests / s.Requests // at most 10^18
	if burst < 1 {
		return 1
	}
	if burst > MaxNumber {
		return MaxNumber
	}
	return burst
}

// drainable returns a burst, or the greatest that a bucket of so many requests in the period drains in time, if that is less.
func (s *Settings) drainable(burst, requests int64) int64 {
	most := float64(longestDrain) / float64(s.Period) * float64(requests)
	if float64(burst) > most {
		return int64(most)
	}
	return burst
}

// step returns the limit or burst that is next on the way from one to another.
func (s *Settings) step(from, to int64) int64 {
	most := from * s.Step / 100
	if most < 1 {
		most = 1
	}
	if to > from+most {
		return from + most
	}
	if to < from-most {
		return from - most
	}
	return to
}
