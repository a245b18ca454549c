package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
)

// cell is what a run is made of. Cells of one scenario, sigma and pair get the same requests, whatever the algorithm and the arm. The pair is the
// seed.
type cell struct {
	Scenario  string  `json:"scenario"`
	Algorithm string  `json:"algorithm"` // of all limits; "" without limits
	Arm       string  `json:"arm"`
	Pair      uint64  `json:"pair"`
	Sigma     float64 `json:"sigma"` // of service times, as simulation.Options has it
}

func (c cell) String() string {
	return fmt.Sprintf("%s, %s, %s, sigma %v, pair %d", c.Scenario, c.Algorithm, c.Arm, c.Sigma, c.Pair)
}

// file is the name of the cell's data in a folder. What is explored has a folder of the same form beside it, "../explored/real".
func (c cell) file(folder string) string {
	if c.Scenario == effectScenario {
		return c.fileOfEffects(folder)
	}
	if p, err := scenarioOf(c.Scenario); err == nil && p.explored {
		folder = filepath.Join(filepath.Dir(folder), "explored", filepath.Base(folder))
	}
	name := fmt.Sprintf("%s.%s.%d.jsonl.gz", c.Algorithm, strings.ReplaceAll(c.Arm, " ", "_"), c.Pair)
	if c.Algorithm == "" {
		name = name[1:]
	}
	if c.Sigma > 0 {
		name = fmt.Sprintf("sigma_%v.%s", c.Sigma, name)
	}
	return filepath.Join(folder, strings.ReplaceAll(c.Scenario, " ", "_"), name)
}

var (
	algorithms = []string{"fixed_window", "sliding_window_counter", "token_bucket"}
	mainArms   = []string{"static", "guard", "guard+go", "guard+prophet", "study"}
)

// cellsOf returns the cells of a matrix: "full", "small", or "guard", which is the comparison of the guard with others, without limits; or "explored",
// which has none: explored returns them.
func cellsOf(matrix string, pairs int) ([]cell, error) {
	var list []cell
	add := func(scenarios, algorithms, arms []string, pair uint64, sigma float64) {
		for _, s := range scenarios {
			for _, algorithm := range algorithms {
				for _, arm := range arms {
					list = append(list, cell{s, algorithm, arm, pair, sigma})
				}
			}
		}
	}
	bucket := []string{"token_bucket"}
	for i := range pairs {
		pair, before := uint64(i+1), len(list)
		switch matrix {
		case "full":
			add([]string{"steady", "bursts", "abuse", "redis off", "redis slow", "slow"}, algorithms, mainArms, pair, 0)
			add([]string{"crowd", "quiet bots", "world cup"}, bucket, mainArms, pair, 0)
			add([]string{"bursts", "world cup"}, bucket, []string{"guard+oracle", "guard+random"}, pair, 0)
			add([]string{"steady", "world cup"}, bucket, []string{"low", "low+guard", "low+guard+go", "low+guard+oracle", "low+guard+random"}, pair, 0)
		case "small":
			add([]string{"abuse", "slow"}, bucket, []string{"static", "guard"}, pair, 0)
			add([]string{"bursts"}, []string{"fixed_window", "token_bucket"}, []string{"static"}, pair, 0)
			add([]string{"bursts"}, bucket, []string{"guard"}, pair, 0)
			add([]string{"crowd"}, bucket, []string{"static", "guard", "study"}, pair, 0)
		case "guard":
			for _, sigma := range []float64{0, 1} {
				add([]string{"steady", "bursts", "crowd", "abuse", "slow"}, []string{""}, []string{"none", "cap", "failsafe", "guard alone"}, pair, sigma)
			}
		case "explored":
		default:
			return nil, fmt.Errorf("%q: a matrix must be full, small, guard or explored", matrix)
		}
		// So that no arm always comes first, or after the same other one.
		rand.New(rand.NewPCG(pair, 0x0d)).Shuffle(len(list)-before, func(a, b int) { list[before+a], list[before+b] = list[before+b], list[before+a] })
	}
	return list, nil
}
