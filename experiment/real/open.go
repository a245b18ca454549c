package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/proxyweir/weir/experiment/protocol"
)

// open is a combination that the protocol has open, or that is explored.
type open struct {
	name  string
	cells [][]cell // by pair, or by run of windows
}

// openOf returns what the protocol has open with real parts. Within a pair, the seed draws the order of the arms.
func openOf(checkout string) ([]open, error) {
	cells, err := protocol.Read(checkout, "real")
	if err != nil {
		return nil, err
	}
	runs, err := protocol.Read(checkout, "windows")
	if err != nil {
		return nil, err
	}
	var list []open
	add := func(situation string, algorithms, arms []string, first uint64, pairs int) {
		list = append(list, openPairs([]string{situation}, algorithms, arms, first, pairs))
	}
	for _, e := range cells {
		if len(e.Policies) == 1 { // the algorithms are compared
			add(e.Situation, e.Algorithms, e.Policies, e.First, e.Pairs)
			continue
		}
		for _, algorithm := range e.Algorithms {
			add(e.Situation, []string{algorithm}, e.Policies, e.First, e.Pairs)
		}
	}
	for _, e := range runs { // each has both: the advisor, and without it
		add(e.Situation, e.Algorithms, e.Policies[:1], e.First, e.Pairs/(windowsOfRun/2))
	}
	return list, nil
}

// openPairs returns a combination of so many pairs from the first on. Within each, the seed draws the order.
func openPairs(scenarios, algorithms, arms []string, first uint64, pairs int) open {
	o := open{name: fmt.Sprintf("%s, %s, %s", strings.Join(scenarios, " and "), strings.Join(algorithms, " and "), strings.Join(arms, " and "))}
	for n := range uint64(pairs) {
		var of []cell
		for _, s := range scenarios {
			for _, algorithm := range algorithms {
				for _, arm := range arms {
					of = append(of, cell{Scenario: s, Algorithm: algorithm, Arm: arm, Pair: first + n})
				}
			}
		}
		rand.New(rand.NewPCG(first+n, 0x0e)).Shuffle(len(of), func(a, b int) { of[a], of[b] = of[b], of[a] })
		o.cells = append(o.cells, of)
	}
	return o
}

// explored returns what is played beside the hypotheses, between the pilot and what the protocol has open.
func explored() []open {
	bucket := []string{"token_bucket"}
	list := []open{
		openPairs([]string{"flood 0", "flood 1000", "flood 2000", "flood 3000"}, bucket, []string{"static"}, 1, 6),
	}
	for _, interval := range intervals {
		list = append(list, openPairs([]string{effectScenario}, []string{algorithmOfEffects}, []string{intervalWord + interval.String()}, 1, 3))
	}
	return append(list, openPairs([]string{"cpu"}, bucket, []string{"static", "guard", "guard+pressure"}, 1, 5))
}

// missing returns the cells that have no file in a folder.
func missing(cells []cell, folder string) []cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c cell) bool {
		_, err := os.Stat(c.file(folder))
		return err == nil
	})
}

// left returns the missing cells of a combination.
func (o open) left(folder string) []cell { return missing(slices.Concat(o.cells...), folder) }

// byTime returns combinations in the order of the time that they still need: the shortest first, so that it is decided if the time ends.
func byTime(list []open, folder string, s settings, atATime int) []open {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b open) int {
		return int(s.takeAll(a.left(folder), atATime) - s.takeAll(b.left(folder), atATime))
	})
	return list
}

// about is what starting and stopping a cell's servers takes.
const about = 25 * time.Second

// takes returns how long a cell takes, nearly.
func (s settings) takes(c cell) time.Duration {
	if c.Scenario == effectScenario {
		return s.takesEffect(c)
	}
	p, err := scenarioOf(c.Scenario)
	if err != nil {
		return 0
	}
	length := p.to - p.from
	if s.length > 0 {
		length = min(length, s.length)
	}
	if p.windows > 0 {
		return about + time.Duration(s.windowsOf(p))*seconds(min(s.calm, washout)+length)
	}
	return about + seconds(s.calm+length)
}

// takeAll returns how long cells take, so many at a time, but for those that are alone.
func (s settings) takeAll(cells []cell, atATime int) (all time.Duration) {
	for _, c := range cells {
		if c.alone() {
			all += s.takes(c)
		} else {
			all += s.takes(c) / time.Duration(atATime)
		}
	}
	return all
}

// alone reports whether a cell is played with no other at the same time.
func (c cell) alone() bool {
	p, _ := scenarioOf(c.Scenario)
	return p.alone
}

// goesWith reports whether two cells can be played at the same time. Those that measure effects go with one another.
func (c cell) goesWith(other cell) bool {
	return !c.alone() && !other.alone() && (c.Scenario == effectScenario) == (other.Scenario == effectScenario)
}

// tellLeft writes what is left to do: cells of the pilot, what is explored, and what the protocol has open.
func tellLeft(to io.Writer, cells []cell, others, protocol []open, folder string, s settings, atATime int) {
	total := s.takeAll(cells, atATime)
	if len(cells) > 0 {
		fmt.Fprintf(to, "of the pilot: %d cells, %s\n", len(cells), minutes(total))
	}
	for _, o := range slices.Concat(others, byTime(protocol, folder, s, atATime)) {
		cells := o.left(folder)
		whole := 0
		for _, of := range o.cells {
			if len(missing(of, folder)) == 0 {
				whole++
			}
		}
		what, needs := "pairs", s.takeAll(cells, atATime)
		switch o.cells[0][0].Scenario {
		case "windows":
			what = "runs of windows"
		case effectScenario:
			what = "runs"
		}
		total += needs
		fmt.Fprintf(to, "%s: %d of %d %s are there, %s\n", o.name, whole, len(o.cells), what, minutes(needs))
	}
	if total == 0 {
		fmt.Fprintln(to, "nothing is left")
		return
	}
	fmt.Fprintf(to, "in all %s of a quiet machine, with %d cells at a time\n", minutes(total), atATime)
}

func minutes(d time.Duration) string {
	if d == 0 {
		return "complete"
	}
	return fmt.Sprintf("%.0f minutes left", d.Minutes())
}
