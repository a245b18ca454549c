package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/experiment/simulation"
)

// scenario is the part of one of the simulation's situations that is played, in seconds of it: the calm before calmEnds, then what is between from and
// to, which is the event.
type scenario struct {
	name, situation    string
	calmEnds, from, to float64

	// The service becomes slower so many times as quickly as in the simulation; 0: as quickly.
	lapse float64

	// What happens to Redis between two seconds of the event: "off" or "slow".
	redis           string
	faultAt, backAt float64

	// From which second of the event on all is as usual again; 0: it always is, or never.
	over float64

	// How many windows it has, in which the advisor is on and off by turns; each is the part above. 0: it is no run of windows.
	windows int

	// It belongs to no hypothesis, and its data have a folder of their own.
	explored bool

	// It is played with no other at the same time, since it takes so much of the machine.
	alone bool

	// The requests are those of an evening of the World Cup, or the bursts come every day.
	worldCup, daily bool
}

var scenarios = []scenario{
	{name: "steady", situation: "steady", calmEnds: 780, from: 780, to: 840},
	{name: "bursts", over: 70, situation: "bursts", calmEnds: 480, from: 480, to: 555, daily: true}, // two bursts of ten seconds
	{name: "crowd", over: 40, situation: "crowd over", calmEnds: 300, from: 560, to: 620},           // 40 s of it
	{name: "abuse", over: 40, situation: "abuse at the peak", calmEnds: 300, from: 860, to: 920},    // 40 s of it
	{name: "quiet bots", over: 40, situation: "quiet bots", calmEnds: 300, from: 860, to: 920},
	{name: "slow", over: 44, situation: "slow", calmEnds: 300, from: 300, to: 360, lapse: 15}, // within 20 s, and then until second 44
	{name: "redis off", over: 45, situation: "abuse at the peak", calmEnds: 300, from: 855, to: 915, redis: "off", faultAt: 10, backAt: 35},
	{name: "redis slow", over: 50, situation: "steady", calmEnds: 780, from: 780, to: 840, redis: "slow", faultAt: 10, backAt: 50},
	{name: "world cup", situation: "steady", calmEnds: worldCupCalm, from: worldCupCalm, to: worldCupCalm + 60, worldCup: true},
	{name: "windows", situation: "steady", calmEnds: 780, from: 780, to: 810, windows: windowsOfRun, alone: true},
	{name: "cpu", over: 40, situation: "cpu", calmEnds: 500, from: 500, to: 560, explored: true}, // 40 s of more than the CPU can do
	{name: "flood 0", situation: "flood 0", calmEnds: 300, from: 300, to: 330, explored: true, alone: true},
	{name: "flood 1000", situation: "flood 1000", calmEnds: 300, from: 300, to: 330, explored: true, alone: true},
	{name: "flood 2000", situation: "flood 2000", calmEnds: 300, from: 300, to: 330, explored: true, alone: true},
	{name: "flood 3000", situation: "flood 3000", calmEnds: 300, from: 300, to: 330, explored: true, alone: true},
}

// quiet reports whether a cell of the scenario asks for a quiet machine beside its own load: a flood, or an advisor that is a program, has proxies wait for
// a core by itself.
func (p scenario) quiet(of *site) bool { return !p.explored && of.adviserAt == "" }

func scenarioOf(name string) (scenario, error) {
	for _, s := range scenarios {
		if s.name == name {
			return s, nil
		}
	}
	return scenario{}, fmt.Errorf("%q: there is no such scenario", name)
}

// A day of the World Cup is compressed to 432 s: five minutes to one and a half seconds. The evening is that of 30 June 1998, from seven o'clock on;
// its greatest demand is scaled to one and a half times what the service can do.
const (
	binsOfDay    = 288
	worldCupBin  = 1.5
	worldCupCalm = 19 * 12 * worldCupBin // seven o'clock
	worldCupMost = 1.5 * simulation.Capacity
	ofEvening    = 60*binsOfDay + 30 // the same of 30 June
)

// worldCup returns the demand of a day of the World Cup at an instant of it, in requests a second, given the bin of the data at which it begins.
func worldCup(first int) (func(t float64) float64, error) {
	bins, err := worldCupData()
	if err != nil {
		return nil, err
	}
	most := 0.0
	for _, n := range bins[ofEvening : ofEvening+binsOfDay] {
		most = math.Max(most, n)
	}
	return func(t float64) float64 {
		at := float64(first) + t/worldCupBin - 0.5
		i := int(math.Max(0, math.Min(math.Floor(at), float64(len(bins)-2))))
		part := at - float64(i)
		return worldCupMost * (bins[i]*(1-part) + bins[i+1]*part) / most
	}, nil
}

// worldCupData returns the requests in each five minutes.
func worldCupData() ([]float64, error) {
	file, err := os.Open(filepath.Join(checkout(), "testdata", "worldcup", "requests-in-5-minutes.txt.gz"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	all, err := io.ReadAll(text)
	if err != nil {
		return nil, err
	}
	var bins []float64
	for line := range strings.Lines(string(all)) {
		n, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err != nil && strings.TrimSpace(line) != "" {
			return nil, err
		}
		bins = append(bins, n)
	}
	return bins, nil
}

// insists is the part of the clients that try once more after they were turned away.
const insists = 0.5

// cut makes the situation of a pair, after so many seconds of calm. It plays length seconds at most; 0: all.
func (p scenario) cut(pair uint64, sigma, calm, length float64) (*simulation.Situation, error) {
	to := p.to
	if length > 0 && p.from+length < to {
		to = p.from + length
	}
	o := simulation.Options{Sigma: sigma, Real: true, Insists: insists}
	if p.worldCup {
		demand, err := worldCup(ofEvening)
		if err != nil {
			return nil, err
		}
		o.Factor = instead(demand)
	}
	s := simulation.New(p.situation, pair, o)
	cut := s.Cut(calm, p.calmEnds, p.from, to)
	if p.lapse > 0 {
		slowness := s.Slowness
		cut.Slowness = func(t float64) float64 { return slowness(p.calmEnds + p.lapse*(t-calm)) }
	}
	if p.redis == "off" {
		cut.Outage, cut.StoreLost, cut.Back = "open", calm+p.faultAt, calm+p.backAt+noticed
	}
	return cut, nil
}

// noticed is how long after Redis is back a proxy finds that out, in seconds: it looks each second, so half of one on average.
const noticed = 0.5

// instead makes the demand of a steady day another one.
func instead(demand func(t float64) float64) func(t float64) float64 {
	return func(t float64) float64 { return demand(t) / simulation.Usual(t) }
}

// day returns the arrivals of an earlier day, and how many seconds it has.
func (p scenario) day(number int) (arrivals []simulation.Arrival, length float64, err error) {
	o := simulation.Options{Real: true}
	length = simulation.Day
	switch {
	case p.worldCup:
		demand, err := worldCup(ofEvening - (daysOfHistory-number)*binsOfDay)
		if err != nil {
			return nil, 0, err
		}
		o.Factor, length = instead(demand), binsOfDay*worldCupBin
	case p.daily:
		o.Factor = func(t float64) float64 { // as in the situation, at the same times of the day
			if t >= 600 && t < 1200 && math.Mod(t, 60) < 10 {
				return 2.5
			}
			return 1
		}
	}
	s := simulation.New("steady", uint64(1000+number), o)
	for _, a := range s.Arrivals {
		if a.At < length {
			arrivals = append(arrivals, a)
		}
	}
	return arrivals, length, nil
}

// request is one of a trace, with what becomes of it if its client gives up: all that is left to chance is drawn beforehand, so that all arms see
// the same.
type request struct {
	at         time.Duration // since the beginning of the trace
	work       time.Duration // of the service at its usual speed
	client     int
	node       int // the proxy that it goes to
	legitimate bool
	counted    bool // in the event, and not in the calm before it

	again     bool          // it is sent a second time if its client gives up, or the service refuses it
	insists   bool          // it is sent a second time if it is turned away
	heeds     bool          // but not before its Retry-After
	pause     time.Duration // before that
	workAgain time.Duration
	nodeAgain int
}

// requestsOf returns the requests of a situation to so many proxies, in the order of time.
func requestsOf(s *simulation.Situation, seed uint64, nodes int) []request {
	ofAll, apart := rand.New(rand.NewPCG(seed, 0xa9a1)), rand.New(rand.NewPCG(seed, 0xa9a2))
	list := make([]request, len(s.Arrivals))
	for i, a := range s.Arrivals {
		r := ofAll
		if s.Apart && int(a.Client) >= s.Legitimate {
			r = apart
		}
		list[i] = request{
			at: seconds(a.At), work: seconds(a.Service), client: int(a.Client), legitimate: int(a.Client) < s.Legitimate, counted: a.At >= s.Begin,
			again: r.IntN(2) == 0, pause: seconds(0.5 + r.Float64()), workAgain: seconds(s.ServiceTime(r)),
			insists: r.Float64() < s.Insists, heeds: r.IntN(2) == 0, node: r.IntN(nodes), nodeAgain: r.IntN(nodes),
		}
	}
	return list
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
