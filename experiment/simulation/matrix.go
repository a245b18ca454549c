package simulation

import (
	"fmt"

	"github.com/proxyweir/weir/core/rate"
)

// Cell is a run of the matrix: a policy against a situation, with an algorithm of the limits. All cells of a situation and a seed have the same
// arrivals and service times.
type Cell struct {
	Situation, Policy, Algorithm string
	Seed                         uint64
}

// Policies are those of the matrix:
//
//	none   no limits
//	low    limits that were not tuned: see Situation.Low
//	tuned  see Situation.Tuned
//	cap    tuned limits, and at most 48 requests under way
//	study  limits that begin tuned and that the policy of Study moves
//	guard  the tuned limit of each client, and the guard in place of the limit of all
var Policies = []string{"none", "low", "tuned", "cap", "study", "guard"}

// Grid are static limits around the tuned ones: "grid", and the factors of the limit of a client and of that of all. The best of them, chosen
// after the fact, shows whether the tuned ones were tuned well. The first few seeds are enough for that.
var Grid = gridOf([]float64{0.75, 1, 1.5}, []float64{0.9, 1, 1.1, 1.25})

// seedsOfGrid is how many seeds the grid is played with.
const seedsOfGrid = 5

// How many requests may be under way: with a guard at most, and with a fixed cap.
const (
	mostUnderWay = 128
	capped       = 48
)

func gridOf(client, all []float64) []string {
	var list []string
	for _, c := range client {
		for _, a := range all {
			list = append(list, fmt.Sprintf("grid %v %v", c, a))
		}
	}
	return list
}

// Cells returns the cells of a situation and a seed.
func Cells(situation string, seed uint64) []Cell {
	list := []Cell{{situation, "none", "", seed}}
	policies := Policies[1:len(Policies):len(Policies)]
	if seed <= seedsOfGrid {
		policies = append(policies, Grid...)
	}
	for _, algorithm := range rate.AlgorithmNames {
		for _, policy := range policies {
			list = append(list, Cell{situation, policy, algorithm, seed})
		}
	}
	return list
}

// ExploredNames are the situations that are played beside the matrix, and belong to no hypothesis.
var ExploredNames = []string{"cpu"}

// Explored returns the cells of such a situation and a seed. Its policies are tuned, guard, and "guard+pressure", which is the guard that knows the service's
// CPU use.
func Explored(situation string, seed uint64) []Cell {
	var list []Cell
	for _, algorithm := range rate.AlgorithmNames {
		for _, policy := range []string{"tuned", "guard", "guard+pressure"} {
			list = append(list, Cell{situation, policy, algorithm, seed})
		}
	}
	return list
}

// Play plays a cell in its situation, which New makes of its name and seed.
func (c Cell) Play(s *Situation) (Outcome, error) {
	limits := s.Tuned()
	var policy Policy = None{}
	var adviser Adviser
	if c.Algorithm != "" {
		a, err := rate.ParseAlgorithm(c.Algorithm)
		if err != nil {
			return Outcome{}, err
		}
		limits.Algorithm = a
	}
	var client, all float64
	switch c.Policy {
	case "none":
		limits = Limits{}
	case "low":
		limits.Client, limits.All = s.Low().Client, s.Low().All
	case "tuned":
	case "cap":
		policy = &Cap{Most: capped}
	case "study":
		adviser = NewStudy(s, limits)
	case "guard":
		limits.All = 0
		policy = NewGuarded(mostUnderWay)
	case "guard+pressure":
		limits.All = 0
		policy = Press(NewGuarded(mostUnderWay))
	default:
		if _, err := fmt.Sscanf(c.Policy, "grid %g %g", &client, &all); err != nil {
			return Outcome{}, fmt.Errorf("%q: there is no such policy", c.Policy)
		}
		limits.Client *= client
		limits.All *= all
	}
	return Run(s, limits, policy, adviser, c.Seed), nil
}
