package simulation

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// requestsOfClients has how many requests each of 1753 clients has sent that are in a public access log of 10,000 lines, one number a line. They
// are counts alone: nothing else of the log is here.
//
//go:embed clients.txt
var requestsOfClients string

// realWeights returns how much each client of a usual day sends, to the others, in random order: the middles of a hundred equal parts of the
// sorted counts, so that clients are as unequal with each seed. One of them sends 16 % of all.
func realWeights(r *rand.Rand) []float64 {
	var counts, weights []float64
	for _, line := range strings.Fields(requestsOfClients) {
		var n float64
		if _, err := fmt.Sscan(line, &n); err != nil {
			panic(err)
		}
		counts = append(counts, n)
	}
	slices.Sort(counts)
	for i := range clients {
		weights = append(weights, counts[(2*i+1)*len(counts)/(2*clients)])
	}
	r.Shuffle(len(weights), func(i, j int) { weights[i], weights[j] = weights[j], weights[i] })
	return weights
}
