package main

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/experiment/protocol"
	"github.com/proxyweir/weir/experiment/simulation"
	"github.com/proxyweir/weir/tools/must"
)

// TestTheCommittedDataAreWhatTheSimulationFinds: some cells of them. If a change of the simulation, the guard or the algorithms fails it, the data must
// be made anew: remove the files, and run make experiment FULL=1.
func TestTheCommittedDataAreWhatTheSimulationFinds(t *testing.T) {
	list, err := protocol.Read("../..", "virtual")
	must.Succeed(t, err)
	for _, c := range []struct {
		file  string
		batch batch
		cells cellsOfBatch
		want  int
	}{
		{"virtual.csv.gz", batch{"crowd over", 1}, simulation.Cells, len(simulation.Policies)},
		{"virtual-open.csv.gz", batchesOf(list)[0], cellsOf(list), 2},
		{"explored/virtual.csv.gz", batch{"cpu", 1}, simulation.Explored, 3},
	} {
		known := linesOf(t, c.file)
		s := simulation.New(c.batch.situation, c.batch.seed, simulation.Options{})
		played := 0
		for _, cell := range c.cells(c.batch.situation, c.batch.seed) {
			if cell.Algorithm != "token_bucket" && cell.Policy != "none" || strings.HasPrefix(cell.Policy, "grid") {
				continue
			}
			o, err := cell.Play(s)
			must.Succeed(t, err)
			if line := lineOf(cell, o); !known[line] {
				t.Errorf("not in %s: %s", c.file, line)
			}
			played++
		}
		must.Equal(t, played, c.want, "%d cells were played", played)
	}
}

// linesOf returns the lines of committed data.
func linesOf(t *testing.T, name string) map[string]bool {
	t.Helper()
	file, err := os.Open(filepath.Join("../data", name))
	must.Succeed(t, err)
	defer file.Close()
	text, err := gzip.NewReader(file)
	must.Succeed(t, err)
	known := map[string]bool{}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		known[lines.Text()] = true
	}
	return known
}

// TestWhatWasPlayedIsKept, without what an interruption has cut.
func TestWhatWasPlayedIsKept(t *testing.T) {
	folder := t.TempDir()
	partial, out := filepath.Join(folder, "runs.part"), filepath.Join(folder, "runs.gz")
	first, second := batch{"store out, open", 1}, batch{"steady", 1}
	lines := map[batch]string{
		first:  lineOf(simulation.Cell{Situation: "store out, open", Policy: "none", Seed: 1}, simulation.Outcome{Good: 12.5}) + "\n",
		second: lineOf(simulation.Cell{Situation: "steady", Policy: "none", Seed: 1}, simulation.Outcome{Good: 99}) + "\n",
	}
	must.Succeed(t, os.WriteFile(partial, []byte(lines[second]+end+lines[first]+end+"\"steady\",tuned"), 0o600))
	known, err := read(partial)
	if err != nil || len(known) != 2 || known[first] != lines[first] || known[second] != lines[second] {
		t.Fatalf("%v, %v", known, err)
	}
	must.Succeed(t, write(out, []batch{first, second}, known))
	file, err := os.Open(out)
	must.Succeed(t, err)
	defer file.Close()
	text, err := gzip.NewReader(file)
	must.Succeed(t, err)
	var got strings.Builder
	if _, err := bufio.NewReader(text).WriteTo(&got); err != nil {
		t.Fatal(err)
	}
	if want := head + "\n" + lines[first] + lines[second]; !strings.HasPrefix(got.String(), "# {") || !strings.HasSuffix(got.String(), "}\n"+want) {
		t.Errorf("%s", got.String())
	}
}

// TestWhatIsOpenIsPlayed, and no other cells.
func TestWhatIsOpenIsPlayed(t *testing.T) {
	list := []protocol.Open{{Situation: "slow", Algorithms: []string{"leaky_bucket"}, Policies: []string{"guard", "tuned"}, First: 21, Pairs: 2}}
	must.Equal(t, fmt.Sprint(batchesOf(append(list, list...))), "[{slow 21} {slow 22}]")
	var got string
	for seed := uint64(20); seed <= 23; seed++ {
		for _, c := range cellsOf(list)("slow", seed) {
			got += fmt.Sprintln(c.Situation, c.Policy, c.Algorithm, c.Seed)
		}
	}
	must.Equal(t, got, "slow tuned leaky_bucket 21\nslow guard leaky_bucket 21\nslow tuned leaky_bucket 22\nslow guard leaky_bucket 22\n")
}
