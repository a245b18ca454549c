package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// ofStudent are the quantiles of Student's distribution between which 95 % lie, by the degrees of freedom, from 1 on.
var ofStudent = []float64{
	12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
}

// interval returns the mean of values, and half the width of its 95 % interval; NaN if there are fewer than two.
func interval(values []float64) (mean, half float64) {
	n := float64(len(values))
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	for _, v := range values {
		mean += v / n
	}
	if n < 2 {
		return mean, math.NaN()
	}
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	t := 1.96
	if len(values)-2 < len(ofStudent) {
		t = ofStudent[len(values)-2]
	}
	return mean, t * math.Sqrt(squares/(n-1)/n)
}

// tableOf returns the means of what was good, with those of the simulation in brackets, and the differences of the guard to each of the others, in
// Markdown. Disturbed runs do not count.
func tableOf(results []result) string {
	found := map[run]result{}
	var rows []run // without a seed and an arm
	var columns []string
	var seeds []uint64
	for _, r := range results {
		if r.Disturbed {
			continue
		}
		found[r.run] = r
		if row := (run{Situation: r.Situation, Sigma: r.Sigma}); !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
		if !slices.Contains(columns, r.Arm) {
			columns = append(columns, r.Arm)
		}
		if !slices.Contains(seeds, r.Seed) {
			seeds = append(seeds, r.Seed)
		}
	}
	order := []string{"none", "cap", "failsafe", "failsafe queue", "failsafe fair", "guard"}
	slices.SortFunc(columns, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	slices.SortStableFunc(rows, func(a, b run) int {
		byName := func(name string) int { return slices.IndexFunc(pieces, func(p piece) bool { return p.name == name }) }
		if a.Sigma != b.Sigma {
			return int(math.Copysign(1, a.Sigma-b.Sigma))
		}
		return byName(a.Situation) - byName(b.Situation)
	})
	var b strings.Builder
	b.WriteString("| situation | sigma |")
	for _, arm := range columns {
		fmt.Fprintf(&b, " %s |", arm)
	}
	for _, arm := range columns {
		if arm != "guard" {
			fmt.Fprintf(&b, " guard − %s |", arm)
		}
	}
	heads := strings.Count(b.String(), "|") - 1
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", heads-1) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s | %v |", row.Situation, row.Sigma)
		for _, arm := range columns {
			var good, simulated []float64
			for _, seed := range seeds {
				if r, ok := found[run{row.Situation, row.Sigma, seed, arm}]; ok {
					good = append(good, r.Good)
					simulated = append(simulated, r.Simulated)
				}
			}
			mean, _ := interval(good)
			fmt.Fprintf(&b, " %.1f", mean)
			if m, _ := interval(simulated); m > 0 {
				fmt.Fprintf(&b, " (%.1f)", m)
			}
			b.WriteString(" |")
		}
		for _, arm := range columns {
			if arm == "guard" {
				continue
			}
			var differences []float64
			for _, seed := range seeds {
				g, has := found[run{row.Situation, row.Sigma, seed, "guard"}]
				if other, also := found[run{row.Situation, row.Sigma, seed, arm}]; has && also {
					differences = append(differences, g.Good-other.Good)
				}
			}
			mean, half := interval(differences)
			fmt.Fprintf(&b, " %+.2f ± %.2f |", mean, half)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
