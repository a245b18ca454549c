package simulation

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/proxyweir/weir/core/guard"
)

// Kind is one kind of requests to a service that has as many workers as come.
type Kind struct {
	Rate func(t float64) float64 // requests a second
	Time func(t float64) float64 // mean seconds of one that begins then
	Vary string                  // its times: "" they differ by a tenth, "exponential", or "heavy": log-normal with a sigma of 1.5
	Pool int                     // of so many workers of its own, with a queue; 0: it needs none
	Idle bool                    // what becomes of it does not count
}

// Healthy is a situation of a service that nobody need be turned away from.
type Healthy struct {
	Name   string
	Kinds  []Kind
	Stalls func(t float64) float64 // until when the whole service stands still at an instant; nil: it never does
	Length float64

	Patient bool    // it is one of Patients
	Want    float64 // how many must be answered in time then, in per cent
}

func always(x float64) func(float64) float64 { return func(float64) float64 { return x } }

func from(begin, before, after float64) func(float64) float64 {
	return func(t float64) float64 {
		if t < begin {
			return before
		}
		return after
	}
}

func between2(begin, end, usual, then float64) func(float64) float64 {
	return func(t float64) float64 {
		if t >= begin && t < end {
			return then
		}
		return usual
	}
}

func ramp(begin, end, before, after float64) func(float64) float64 {
	return func(t float64) float64 {
		return before + (after-before)*math.Max(0, math.Min(1, (t-begin)/(end-begin)))
	}
}

func every(period, length, usual, then float64) func(float64) float64 {
	return func(t float64) float64 {
		if t >= period && math.Mod(t, period) < length {
			return then
		}
		return usual
	}
}

func sine(period, low, high float64) func(float64) float64 {
	return func(t float64) float64 { return low + (high-low)*(1-math.Cos(2*math.Pi*t/period))/2 }
}

// Healthies are the healthy situations.
func Healthies() []Healthy {
	one := func(name string, rate, time func(float64) float64, vary string) Healthy {
		return Healthy{Name: name, Kinds: []Kind{{Rate: rate, Time: time, Vary: vary}}}
	}
	two := func(name string, a, at, b, bt func(float64) float64) Healthy {
		return Healthy{Name: name, Kinds: []Kind{{Rate: a, Time: at}, {Rate: b, Time: bt}}}
	}
	stall := func(period, length float64) func(float64) float64 {
		return func(t float64) float64 {
			if at := math.Mod(t, period); t > period && at < length {
				return t + length - at
			}
			return t
		}
	}
	e := "exponential"
	list := []Healthy{
		two("a mix: more of a slow kind", always(400), always(.02), from(15, 0, 270), always(.4)),
		two("waves of a slow kind", always(300), always(.02), every(20, 5, 0, 300), always(.4)),
		two("a slow kind grows", always(300), always(.02), ramp(20, 60, 0, 200), always(.4)),
		two("long polls", always(200), always(.02), always(20), always(10)),
		one("a slow dependency, 10 s", always(400), between2(30, 40, .02, .3), ""),
		one("a slow dependency, for good", always(400), from(30, .02, .3), ""),
		one("the same, times vary", always(400), from(30, .02, .3), e),
		one("a sine of 20 to 200 ms", always(400), sine(60, .02, .2), ""),
		one("the same, times vary", always(400), sine(60, .02, .2), e),
		one("cold start", always(300), ramp(0, 20, .3, .02), ""),
		one("three times the traffic", from(30, 150, 450), always(.05), e),
		one("pauses", every(20, 10, 300, 0.01), always(.1), e),
		one("2 a second", always(2), always(.3), e),
		one("slow start", ramp(20, 50, 20, 800), always(.08), e),
		one("a deploy", always(300), func(t float64) float64 {
			if t < 40 {
				return .05
			}
			return .05 * (1 + 4*math.Exp(-(t-40)/8))
		}, ""),
		{Name: "garbage collection", Kinds: []Kind{{Rate: always(300), Time: always(.03)}}, Stalls: stall(5, .3)},
		{Name: "a long stall", Kinds: []Kind{{Rate: always(300), Time: always(.03)}}, Stalls: stall(30, 1.2)},
		one("a daily wave", sine(120, 50, 900), always(.06), e),
		{Name: "overload behind a cache", Kinds: []Kind{{Rate: always(300), Time: always(.002)}, {Rate: from(20, 20, 60), Time: always(.2), Vary: e, Pool: 8, Idle: true}}},
		two("the quick kind ends", between2(0, 40, 0, 400), always(.005), always(150), always(.3)),
		one("heavy tail", always(300), always(.1), "heavy"),
		one("slower within 10 s", always(400), ramp(30, 40, .02, .3), ""),
		one("slower within 2 s", always(400), ramp(30, 32, .02, .3), ""),
		one("slower within 2 s, times vary", always(400), ramp(30, 32, .05, .4), e),
		one("3000 a second become slower", always(3000), from(30, .05, .15), ""),
		one("a herd each 10 s", every(10, .3, 50, 1000), always(.1), ""),
		one("one kind ever slower", always(200), ramp(20, 80, .05, .5), e),
		one("slower by 2 s within 10 s", always(60), ramp(30, 40, .1, 2), e),
		one("slower by 2 s at once", always(300), between2(30, 60, .05, 2), e),
		two("slower by 2 s, in 30 s, beside quick ones", always(100), ramp(30, 60, .1, 2), always(60), always(.01)),
		one("3000 a second within 10 s", always(3000), ramp(30, 40, .05, .15), e),
		one("times and traffic grow together", ramp(30, 40, 200, 400), ramp(30, 40, .05, .3), e),
		one("a jump of both", from(30, 200, 400), from(30, .05, .3), e),
		{Name: "a mix after an overload", Kinds: []Kind{{Rate: always(200), Time: always(.02)}, {Rate: from(60, 0, 270), Time: always(.4)},
			{Rate: between2(20, 30, 0, 300), Time: always(.1), Vary: e, Pool: 16, Idle: true}}},
		{Name: "slow after an overload", Kinds: []Kind{{Rate: from(60, 0, 300), Time: from(90, .02, .35)},
			{Rate: between2(20, 30, 80, 300), Time: always(.1), Vary: e, Pool: 16, Idle: true}}},
		{Name: "many workers, half busy", Kinds: []Kind{{Rate: always(320), Time: always(.1), Vary: e, Pool: 64}}},
	}
	for i := range list {
		list[i].Length = 120
	}
	return list
}

// Patients are situations of overload whose clients are patient: what is answered within a second counts.
func Patients() []Healthy {
	pooled := func(name string, rate, time func(float64) float64, pool int, want float64) Healthy {
		return Healthy{Name: name, Kinds: []Kind{{Rate: rate, Time: time, Vary: "exponential", Pool: pool}}, Length: 120, Patient: true, Want: want}
	}
	return []Healthy{
		pooled("3 x slower", always(100), from(30, .1, .3), 16, 40),
		pooled("1.8 x slower", always(100), from(30, .1, .18), 16, 70),
		pooled("slower in 20 s", always(100), ramp(30, 50, .1, .3), 16, 50),
		pooled("2 x the traffic", from(30, 120, 240), always(.1), 16, 60),
		pooled("traffic grows", ramp(20, 80, 80, 240), always(.1), 16, 60),
		pooled("500 a second, 2 x slower", always(500), from(30, .1, .2), 64, 35),
		pooled("20 a second, 3 x slower", always(20), from(30, .1, .3), 4, 35),
		pooled("overloaded from the start", always(240), always(.1), 16, 50),
	}
}

// Play plays a healthy situation, and returns how many of its requests are served, in per cent.
func (h Healthy) Play(g *guard.Guard, seed uint64) float64 {
	type request struct {
		kind int
		work float64
	}
	r := rand.New(rand.NewPCG(seed, 0x4ea1))
	var arrivals []event[request]
	for k, kind := range h.Kinds {
		most := 1.0
		for t := 0.0; t < h.Length; t += 0.05 {
			most = math.Max(most, kind.Rate(t))
		}
		for t := r.ExpFloat64() / most; t < h.Length; t += r.ExpFloat64() / most {
			if r.Float64()*most >= kind.Rate(t) {
				continue
			}
			work := kind.Time(t)
			switch kind.Vary {
			case "exponential":
				work *= r.ExpFloat64()
			case "heavy":
				work *= math.Exp(1.5*r.NormFloat64() - 1.5*1.5/2)
			default:
				work *= 1 + 0.1*r.NormFloat64()
			}
			arrivals = append(arrivals, event[request]{t, request{k, math.Max(work, 1e-4)}})
		}
	}
	slices.SortFunc(arrivals, func(a, b event[request]) int { return cmp.Compare(a.at, b.at) })
	type passed struct {
		begun float64
		under int64
	}
	var open queue[passed]
	pools := make([][]float64, len(h.Kinds))
	for k, kind := range h.Kinds {
		pools[k] = make([]float64, kind.Pool)
	}
	all, served := 0.0, 0.0
	for _, a := range arrivals {
		for len(open) > 0 && open[0].at <= a.at {
			end, p := open.pop()
			guard.End(g, p.under, int64((end-p.begun)*1e6))
		}
		counts := !h.Kinds[a.of.kind].Idle
		if counts {
			all++
		}
		under := guard.Begin(g, uint64(r.IntN(100))*0x9e3779b97f4a7c15, false, micros(a.at))
		if under < 0 {
			continue
		}
		if counts {
			served++
		}
		work := a.of.work
		end := a.at + work
		if pool := pools[a.of.kind]; len(pool) > 0 {
			first := 0
			for i := range pool {
				if pool[i] < pool[first] {
					first = i
				}
			}
			end = math.Max(a.at, pool[first]) + work
			pool[first] = end
			if h.Patient && end > a.at+1 {
				served--
			}
		}
		if h.Stalls != nil {
			for t := a.at; t < end; t += 0.01 {
				if until := h.Stalls(t); until > t {
					end += until - t
					t = until
				}
			}
		}
		open.push(end, passed{a.at, under})
	}
	return 100 * served / all
}
