package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/proxyweir/weir/experiment/simulation"
)

// piece is the part of one of the simulation's situations that is played, in seconds of it: the calm before calmEnds, then what is between from and
// to. That is at the same time of the day in all of them, when the usual clients send some 117 requests a second.
type piece struct {
	name, situation    string
	calmEnds, from, to float64

	// The service becomes slower so many times as quickly as in the simulation; 0: as quickly.
	lapse float64
}

var pieces = []piece{
	{name: "steady", situation: "steady", calmEnds: 780, from: 780, to: 810},
	{name: "bursts", situation: "bursts", calmEnds: 480, from: 480, to: 520}, // a burst of ten seconds, and half a minute more
	{name: "crowd", situation: "crowd over", calmEnds: 300, from: 480, to: 510},
	{name: "abuse", situation: "abuse at the peak", calmEnds: 300, from: 480, to: 510},
	{name: "slow", situation: "slow", calmEnds: 300, from: 480, to: 520, lapse: 15}, // within 20 s, and 20 s more
	{name: "slow at once", situation: "slow", calmEnds: 300, from: 610, to: 640},
}

func pieceOf(name string) (piece, error) {
	for _, p := range pieces {
		if p.name == name {
			return p, nil
		}
	}
	return piece{}, fmt.Errorf("%q: there is no such situation", name)
}

// cut returns the piece of the situation of a seed, after so many seconds of calm. It plays length seconds at most; 0: all.
func (p piece) cut(seed uint64, sigma, calm, length float64) *simulation.Situation {
	to := p.to
	if length > 0 && p.from+length < to {
		to = p.from + length
	}
	s := simulation.New(p.situation, seed, simulation.Options{Sigma: sigma})
	cut := s.Cut(calm, p.calmEnds, p.from, to)
	if p.lapse > 0 {
		slowness := s.Slowness
		cut.Slowness = func(t float64) float64 { return slowness(p.calmEnds + p.lapse*(t-calm)) }
	}
	return cut
}

// request is one of a trace, with what becomes of it if its client gives up: all that is left to chance is drawn beforehand, so that all arms see
// the same.
type request struct {
	at         time.Duration // since the beginning of the trace
	work       time.Duration // of the service at its usual speed
	client     int
	legitimate bool
	counted    bool // in the event, and not in the calm before it

	again     bool          // it is sent a second time if its client gives up, or the service refuses it
	pause     time.Duration // before that
	workAgain time.Duration
}

// requestsOf returns the requests of a situation, in the order of time.
func requestsOf(s *simulation.Situation, seed uint64) []request {
	r := rand.New(rand.NewPCG(seed, 0xa9a1))
	list := make([]request, len(s.Arrivals))
	for i, a := range s.Arrivals {
		list[i] = request{
			at: seconds(a.At), work: seconds(a.Service), client: int(a.Client), legitimate: int(a.Client) < s.Legitimate, counted: a.At >= s.Begin,
			again: r.IntN(2) == 0, pause: seconds(0.5 + r.Float64()), workAgain: seconds(s.ServiceTime(r)),
		}
	}
	return list
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
