// Package simulation plays situations of load against policies, each request an event on a virtual clock: one service of a few workers, many
// unequal clients, limits a client, and what is set in front of the service to keep it up. All policies see the same arrivals and the same
// service times.
//
// The model: a day has 1800 s. The service has 16 workers, a mean service time of 0.1 s, and one queue; a request that would wait longer than
// 2.5 s is refused. A client waits for a second and leaves, which the proxy sees and the service does not; half of those that left try once more.
// A client that is rejected does not come back. A request is good that is answered within its second.
package simulation

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// What the model is made of, in seconds and requests a second.
const (
	Day      = 1800.0
	Workers  = 16
	Service  = 0.1
	Capacity = Workers / Service
	Patience = 1.0
	Queue    = 2.5 // the longest wait in the service's queue

	clients = 100  // of a usual day
	load    = 80.0 // of them together, on an average
	window  = 10.0 // over which a client's demand is counted
)

// Arrival is a request: when it comes, whose it is, and how long the service will work on it at its usual speed.
type Arrival struct {
	At      float64
	Client  int32
	Service float64
}

// Situation is a run's arrivals and conditions.
type Situation struct {
	Name       string
	Arrivals   []Arrival
	Clients    int // all of them; the first Legitimate are
	Legitimate int
	Begin, End float64 // of the event, in which goodput is measured
	Length     float64
	Sigma      float64 // this and the next as Options has it
	Insists    float64
	Apart      bool // what comes of illegitimate clients is drawn apart, so that nothing of the others depends on it

	// Slowness is how many times its usual time the service takes at an instant.
	Slowness func(t float64) float64

	// Background is what requests leave to do; nil: nothing.
	Background *Background

	// The store of the limits fails between these instants, in which the limits of clients are as Outage says: "open" does without them,
	// "local" has half of each.
	Outage          string
	StoreLost, Back float64

	// Requests a second of a client in a window of a usual day: quantiles over all windows of all clients, and the most.
	LearntP90, LearntP99, LearntP999, Largest float64

	Forecast  Forecast
	TimeOfDay func(t float64) float64 // of an instant of the run
}

// Names are the situations of the matrix. Besides them there are "flood N": two clients that send N requests a second together, whose own limits reject nearly
// all of them; and "cpu", in which the service's own CPU is the bottleneck: see Background.
var Names = []string{
	"steady", "bursts", "crowd fits", "crowd over", "abuse at the peak", "abuse at night", "quiet bots", "slow", "store out, open",
	"store out, open, abuse", "store out, local, abuse", "growth",
}

// plan is what a situation is made of.
type plan struct {
	from, length, begin, end float64 // from: the time of the day at which it begins
	load                     float64
	factor                   func(t float64) float64 // of what the usual clients send
	crowd                    int                     // further clients, while the event lasts
	bots                     int
	rate                     float64 // of a bot
	apart                    bool    // what the bots send is drawn apart from all else, and costs the service next to nothing
	slowness                 func(t float64) float64
	outage                   string
	background               *Background
}

func planOf(name string) plan {
	p := plan{from: 300, length: 1200, begin: 300, end: 900, load: load, factor: func(float64) float64 { return 1 }, slowness: func(float64) float64 { return 1 }}
	switch name {
	case "steady":
		p.from, p.length, p.begin, p.end = 0, Day, 0, Day
	case "bursts": // ten seconds of each minute
		p.factor = func(t float64) float64 {
			if t >= 300 && t < 900 && math.Mod(t, 60) < 10 {
				return 2.5
			}
			return 1
		}
	case "crowd fits":
		p.from, p.crowd = 1300, 90
	case "crowd over":
		p.crowd, p.end = 150, 600
	case "abuse at the peak":
		p.bots, p.rate = 5, 60
	case "abuse at night":
		p.from, p.bots, p.rate = 1300, 5, 60
	case "quiet bots":
		p.bots, p.rate = 200, 1.6
	case "slow": // to 45 % of its speed within five minutes, and so for a while
		p.slowness = func(t float64) float64 {
			if t < 300 || t > 960 {
				return 1
			}
			return 1 / (1 - 0.55*math.Min(1, (t-300)/300))
		}
	case "store out, open":
		p.outage = "open"
	case "store out, open, abuse":
		p.outage, p.bots, p.rate = "open", 5, 60
	case "store out, local, abuse":
		p.outage, p.bots, p.rate = "local", 5, 60
	case "growth": // of a service that has had a quarter of its capacity to do
		p.load, p.end = 0.35*load, 1200
		p.factor = func(t float64) float64 { return 1 + 2*math.Max(0, math.Min(1, (t-300)/120)) }
	case "cpu": // 40 seconds of each 100 are more than the CPU can do
		p.load, p.background = 0.65*load, &background
		p.factor = func(t float64) float64 {
			if t >= 300 && t < 900 && math.Mod(t, 100) < 40 {
				return 1.7
			}
			return 1
		}
	default:
		rate, err := strconv.ParseFloat(strings.TrimPrefix(name, "flood "), 64)
		if err != nil {
			panic("there is no situation " + name)
		}
		p.from, p.length, p.end, p.apart = 1300, 420, 420, true
		p.bots, p.rate = flooding, rate/flooding
	}
	return p
}

// flooding is how many clients a flood comes from. What the limits of so many let through fits beside the others within the limit of all.
const flooding = 2

// ofFlood is how long the service works on a request of a flood, in seconds: so short that what gets through slows no other request down.
const ofFlood = 1e-6

// shape is the load at a time of day, to its mean: a sine, and a minute-long peak that comes every day.
func shape(t float64) float64 {
	t = math.Mod(t, Day)
	f := 1 + 0.5*math.Sin(2*math.Pi*(t-450)/Day)
	if t >= 1200 && t < 1260 {
		f *= 1.3
	}
	return f
}

// visits returns when the requests of a client come that sends rate(t) a second, which is below most: in visits of one to five requests, a
// twentieth to a quarter of a second apart.
func visits(r *rand.Rand, rate func(t float64) float64, from, to, most float64) []float64 {
	var times []float64
	for t := from; ; {
		t += r.ExpFloat64() * 3 / most
		if t >= to {
			return times
		}
		if r.Float64()*most >= rate(t) {
			continue
		}
		n, gap := 1+r.IntN(5), 0.05+0.2*r.Float64()
		for i := 0; i < n; i++ {
			times = append(times, t+float64(i)*gap)
		}
	}
}

// Options are what may differ between situations of one name and seed.
type Options struct {
	// Sigma is of the service times. They are exponential; with a sigma above 0 they are log-normal with that standard deviation of their
	// logarithm, and of the same mean. 1 and more is a heavy tail.
	Sigma float64

	// Real makes clients as unequal as those of a real site: see clients.go. By default their weights are log-normal, with a standard deviation
	// of 0.8 of the logarithm.
	Real bool

	// Factor is how much more the usual clients send at an instant, besides what the situation has; nil: no more.
	Factor func(t float64) float64

	// Insists is the part of the legitimate clients that try once more after they were turned away. Half of these wait for as long as they were
	// told before that.
	Insists float64
}

// New makes a situation.
func New(name string, seed uint64, o Options) *Situation {
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	p := planOf(name)
	s := &Situation{Name: name, Begin: p.begin, End: p.end, Length: p.length, Sigma: o.Sigma, Insists: o.Insists, Apart: p.apart, Slowness: p.slowness, Background: p.background, Outage: p.outage, StoreLost: 420, Back: 660}
	if o.Factor == nil {
		o.Factor = func(float64) float64 { return 1 }
	}
	s.TimeOfDay = func(t float64) float64 { return t + p.from }
	weights := make([]float64, clients)
	for i := range weights {
		weights[i] = math.Exp(0.8 * r.NormFloat64())
	}
	if o.Real {
		weights = realWeights(r)
	}
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	for i := range weights {
		weights[i] *= clients / sum
	}
	level := math.Exp(0.08 * r.NormFloat64()) // of this day
	add := func(client int, times []float64) {
		for _, t := range times {
			if t < p.length {
				s.Arrivals = append(s.Arrivals, Arrival{At: t, Client: int32(client)})
			}
		}
	}
	s.Legitimate = clients + p.crowd
	for i := 0; i < s.Legitimate; i++ {
		from, to := 0.0, p.length
		weight := weights[i%clients]
		if i >= clients {
			weight = weights[i*37%clients]
			from, to = p.begin+20*r.Float64(), p.end
		}
		rate := weight * p.load / clients * level
		add(i, visits(r, func(t float64) float64 { return rate * shape(t+p.from) * p.factor(t) * o.Factor(t) }, from, to, rate*6.2))
	}
	bots := func(r *rand.Rand) {
		for i := 0; i < p.bots; i++ {
			var times []float64
			for t := p.begin + r.ExpFloat64()/p.rate; t < p.end; t += r.ExpFloat64() / p.rate {
				times = append(times, t)
			}
			add(s.Legitimate+i, times)
		}
	}
	if !p.apart {
		bots(r)
	}
	s.Clients = s.Legitimate + p.bots
	s.sort()
	for i := range s.Arrivals {
		s.Arrivals[i].Service = s.ServiceTime(r)
	}
	if legitimate := len(s.Arrivals); p.apart {
		bots(rand.New(rand.NewPCG(seed, 0xf100d)))
		for i := range s.Arrivals[legitimate:] {
			s.Arrivals[legitimate+i].Service = ofFlood
		}
		s.sort()
	}
	s.learn(r, weights, p.load)
	return s
}

// sort brings the arrivals into the order of time.
func (s *Situation) sort() {
	slices.SortFunc(s.Arrivals, func(a, b Arrival) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Client, b.Client)) })
}

// ServiceTime draws how long the service works on a request at its usual speed, in seconds.
func (s *Situation) ServiceTime(r *rand.Rand) float64 {
	if s.Sigma > 0 {
		return Service * math.Exp(s.Sigma*r.NormFloat64()-s.Sigma*s.Sigma/2)
	}
	return Service * r.ExpFloat64()
}

// Cut returns a piece of a situation as one of its own: so many seconds of calm, which are those just before calmEnds, and then those between from
// and to, which are its event. So it may leap into the midst of an event.
func (s *Situation) Cut(calm, calmEnds, from, to float64) *Situation {
	cut := *s
	cut.Begin, cut.End, cut.Length = calm, calm+to-from, calm+to-from
	whole := func(t float64) float64 { // the instant of the whole situation
		if t < calm {
			return t - calm + calmEnds
		}
		return t - calm + from
	}
	cut.Slowness = func(t float64) float64 { return s.Slowness(whole(t)) }
	cut.TimeOfDay = func(t float64) float64 { return s.TimeOfDay(whole(t)) }
	cut.Arrivals = nil
	for _, piece := range []struct{ from, to, at float64 }{{calmEnds - calm, calmEnds, 0}, {from, to, calm}} {
		for _, a := range s.Arrivals {
			if a.At >= piece.from && a.At < piece.to {
				a.At += piece.at - piece.from
				cut.Arrivals = append(cut.Arrivals, a)
			}
		}
	}
	return &cut
}

// learn finds out what clients send in a window of a usual day.
func (s *Situation) learn(r *rand.Rand, weights []float64, load float64) {
	var rates []float64
	for _, w := range weights {
		rate := w * load / clients
		counts := make([]float64, int(Day/window))
		for _, t := range visits(r, func(t float64) float64 { return rate * shape(t) }, 0, Day, rate*2) {
			if t < Day {
				counts[int(t/window)]++
			}
		}
		for _, n := range counts {
			rates = append(rates, n/window)
		}
	}
	sort.Float64s(rates)
	at := func(q float64) float64 { return rates[min(len(rates)-1, int(q*float64(len(rates))))] }
	s.LearntP90, s.LearntP99, s.LearntP999, s.Largest = at(.9), at(.99), at(.999), rates[len(rates)-1]
	s.Forecast = forecastOf(r, load)
}

// forecastOf draws seven usual days, and returns what they have shown. Visits make the number of requests in a window vary 3.7 times as much as if
// each request came by itself: that is the ratio of the mean of the square of a visit's requests to their mean.
func forecastOf(r *rand.Rand, load float64) Forecast {
	const days, clumping = 7, 11.0 / 3
	var f Forecast
	var squares, mean float64
	sums := [len(f.Mean)][days]float64{}
	for day := range days {
		level := math.Exp(0.08 * r.NormFloat64())
		for i := range sums {
			expected := load * shape((float64(i)+0.5)*window) * window
			sums[i][day] = (expected*level + math.Sqrt(clumping*expected)*r.NormFloat64()) / window
			f.Mean[i] += sums[i][day] / days
		}
	}
	for i := range sums {
		mean += f.Mean[i] / float64(len(sums))
		for day := range days {
			squares += (sums[i][day] - f.Mean[i]) * (sums[i][day] - f.Mean[i]) / (days - 1) / float64(len(sums))
		}
	}
	for i := range sums {
		f.Deviation[i] = math.Sqrt(squares * f.Mean[i] / mean)
	}
	return f
}

// Usual is what the clients of a usual day send together at a time of it, on an average over days, in requests a second.
func Usual(t float64) float64 { return load * shape(t) }
