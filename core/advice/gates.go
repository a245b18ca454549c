package advice

import (
	"fmt"
	"math"
)

// Conditions are what a proxy sees of its service and of a rule's keys. The zero value knows nothing.
type Conditions struct {
	// Known says that a guard watches the service.
	Known bool

	// Overloaded says that the guard turned requests away in the last second or two, or has tightened a rule's keys.
	Overloaded bool

	// Concentrated says that few keys make an unusual part of the demand: keys that ask for more than 1.25 times the greatest demand that was learnt
	// make more than 5 % of it. That is as many as one key could usually have at most, with some room, so it holds for any number of keys: a crowd
	// of keys with usual demand each is not concentrated, however few or many they are.
	Concentrated bool

	Learnt int64 // microseconds of traffic that the guard has learnt the keys' demand from
	Edge   int64 // requests in 10 s beyond which a key's demand is unusual; 0: not known
	P90    int64 // requests in 10 s that nine of ten keys do not exceed; 0: not known

	// Switching says that the rule passes from one algorithm to another, which takes it a period.
	Switching bool
}

// Kinds of clamps: what advice asked for and did not get. They are labels of metrics.
const (
	ClampFloor         = "floor"         // below the floor
	ClampCeiling       = "ceiling"       // above the ceiling
	ClampLowering      = "lowering"      // below the configured limit, with the full gates
	ClampForecast      = "forecast"      // above 1.2 times the forecast's upper bound, or without a forecast
	ClampDeadband      = "deadband"      // within a tenth of the limit in force
	ClampHealth        = "health"        // loosening while the service is overloaded, or nobody watches it
	ClampConcentration = "concentration" // loosening while few keys make an unusual part of the demand
	ClampWarmUp        = "warm_up"       // loosening before the proxy has learnt what is usual
	ClampAlgorithm     = "algorithm"     // one that may not be chosen, or a change while another one goes on
	ClampBurst         = "burst"         // outside of the bounds, in proportion
	ClampAbove         = "above"         // a threshold or its limit that would concern usual keys
)

// ClampKinds are all of them.
var ClampKinds = []string{
	ClampFloor, ClampCeiling, ClampLowering, ClampForecast, ClampDeadband, ClampHealth, ClampConcentration, ClampWarmUp, ClampAlgorithm, ClampBurst,
	ClampAbove,
}

const (
	// calm is how long the service must not be overloaded, nor demand concentrated, before a limit is loosened, in microseconds.
	calm = 30 * seconds

	// room is how much more than the forecast's upper bound a limit may be.
	room = 1.2

	// deadband is the part of the limit in force, one in so many, by which a target must differ to be followed.
	deadband = 10

	// window is the time that a guard counts the demand of keys over, in microseconds.
	window = 10 * seconds
)

// closed returns the gate that keeps a rule from being loosened, as a word of Outcome.Why and as a kind of clamps; "" if none does.
func closed(s *Settings, st *RuleState, c Conditions, now int64) (why, kind string) {
	if s.Gates == Bounds {
		return "", ""
	}
	if !c.Known {
		return GateUnknown, ClampHealth
	}
	if st.overloaded > 0 && now-st.overloaded < calm {
		return GateOverload, ClampHealth
	}
	if c.Learnt < s.WarmUp {
		return GateWarmUp, ClampWarmUp
	}
	if !s.OneKey && st.concentrated > 0 && now-st.concentrated < calm {
		return GateConcentration, ClampConcentration
	}
	return "", ""
}

// goal is what a rule steps towards.
type goal struct {
	requests, burst int64
	algorithm       string
	why             string // of the gate that is closed; "": none
}

// home returns the configured limit as a goal.
func (s *Settings) home() goal {
	return goal{requests: s.Requests, burst: s.usualBurst(), algorithm: s.Algorithm}
}

// aim returns what advice leaves of a limit at the gates.
func aim(s *Settings, st *RuleState, l *Limit, f *Forecast, c Conditions, now int64) goal {
	g := s.home()
	g.requests = l.Requests
	if least := s.least(); g.requests < least {
		g.requests = least
		if s.Gates == Bounds {
			st.clamp(ClampFloor)
		} else {
			st.clamp(ClampLowering)
		}
	}
	if g.requests > s.Ceiling {
		g.requests = s.Ceiling
		st.clamp(ClampCeiling)
	}
	if s.Gates != Bounds && g.requests > s.Requests {
		if most := foreseen(f); g.requests > most {
			g.requests = most
			if most < s.Requests {
				g.requests = s.Requests
			}
			st.clamp(ClampForecast)
		}
	}
	if l.Algorithm != "" {
		if indexOf(s.allowed(), l.Algorithm) >= 0 {
			g.algorithm = l.Algorithm
		} else {
			st.clamp(ClampAlgorithm)
		}
	}
	if g.requests > s.Requests || g.algorithm != s.Algorithm { // another algorithm may let through more at a time
		var kind string
		if g.why, kind = closed(s, st, c, now); kind != "" {
			g.requests = s.Requests
			g.algorithm = s.Algorithm
			st.clamp(kind)
		}
	}
	g.burst = s.burstOf(g.requests)
	if l.Burst > 0 && g.why == "" && isBucket(g.algorithm) {
		g.burst = aimBurst(s, st, l.Burst, g.requests)
	}
	return g
}

// foreseen returns the greatest limit that a forecast allows, in requests in the period.
func foreseen(f *Forecast) int64 {
	if f == nil {
		return 0
	}
	return int64(math.Floor(f.Upper*room + 1e-9)) // the product of decimals may be a little less than they say
}

// aimBurst returns the burst that goes with a goal of requests: what is advised, within the bounds of the requests in proportion. In the full gates
// it is loosened by no more than the requests are.
func aimBurst(s *Settings, st *RuleState, advised, requests int64) int64 {
	least := s.usualBurst()
	most := s.burstOf(requests)
	if s.Gates == Bounds {
		least = s.burstOf(s.Floor)
		most = s.burstOf(s.Ceiling)
	}
	burst := within(advised, least, most)
	if burst != advised {
		st.clamp(ClampBurst)
	}
	return burst
}

// Threshold is what a guard is to do with keys that ask for much: one that asks for more than Edge requests in 10 s gets Limit of them, until then.
type Threshold struct {
	Edge  int64   // requests in 10 s
	Limit float64 // the same
	Until int64   // microseconds since the epoch
}

// String returns it in words.
func (t *Threshold) String() string {
	return fmt.Sprintf("keys above %d requests in 10s get %g", t.Edge, t.Limit)
}

// threshold returns what becomes of advice on keys above a threshold; nil: nothing. In the full gates it begins while the service is overloaded and
// demand is concentrated; a key whose demand is usual is above no threshold, and a key above it gets no less than nine of ten keys ask for.
func threshold(s *Settings, st *RuleState, e *entry, c Conditions, now int64, frozen bool) *Threshold {
	a := e.rule.Above
	if a == nil || !c.Known {
		return nil
	}
	lasts, _ := readDuration(a.For)
	if s.Gates == Bounds && st.above == 0 && !frozen {
		st.above = now + lasts // once for each advice
	}
	if s.Gates != Bounds && !frozen && c.Overloaded && c.Concentrated && c.Learnt >= s.WarmUp && c.Edge > 0 && c.P90 > 0 {
		st.above = now + lasts
	}
	until := st.above
	if until > e.expires {
		until = e.expires
	}
	if until <= now {
		return nil
	}
	requests, period, _ := readRate(a.Limit)
	t := &Threshold{Edge: int64(math.Ceil(a.RequestsPerSecond * window / seconds)), Limit: float64(requests) * window / float64(period), Until: until}
	if least := float64(s.Floor) * window / float64(s.Period); s.Gates == Bounds && t.Limit < least {
		t.Limit = least
		st.clamp(ClampAbove)
	}
	if s.Gates != Bounds {
		if t.Edge < c.Edge {
			t.Edge = c.Edge
			st.clamp(ClampAbove)
		}
		if t.Limit < float64(c.P90) {
			t.Limit = float64(c.P90)
			st.clamp(ClampAbove)
		}
	}
	return t
}
