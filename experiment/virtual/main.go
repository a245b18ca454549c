// Command virtual plays the matrix of the experiment's second tier: every policy against every situation, with every algorithm, on a virtual
// clock. It writes a line for each run to a compressed file of comma-separated values. A run that was begun and interrupted goes on where it was.
// The same seeds give the same file, but for its first line, which has the commit and the machine.
package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/proxyweir/weir/experiment/origin"
	"github.com/proxyweir/weir/experiment/progress"
	"github.com/proxyweir/weir/experiment/protocol"
	"github.com/proxyweir/weir/experiment/simulation"
)

const head = "situation,policy,algorithm,seed,good,rejected,turned_away,abuse,refused,mean,p95,p99,changes"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "virtual:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context) error {
	out := flag.String("out", "virtual.csv.gz", "the file of the runs")
	seeds := flag.Int("seeds", 20, "how many runs of each cell")
	situations := flag.String("situations", strings.Join(simulation.Names, ";"), "which situations, with semicolons between them")
	open := flag.Bool("open", false, "play what the protocol has open, and nothing else")
	explored := flag.Bool("explored", false, "play what is explored beside the matrix, and nothing else")
	flag.Parse()
	var batches []batch
	var cells cellsOfBatch = simulation.Cells
	if *open {
		list, err := protocol.Read(".", "virtual")
		if err != nil {
			return err
		}
		batches, cells = batchesOf(list), cellsOf(list)
	} else {
		names := strings.Split(*situations, ";")
		if *explored {
			names, cells = simulation.ExploredNames, simulation.Explored
		}
		for seed := range uint64(*seeds) { // so that what was played until an interruption has all situations
			for _, s := range names {
				batches = append(batches, batch{s, seed + 1})
			}
		}
	}
	partial := *out + ".part"
	known, err := read(partial)
	if err != nil {
		return err
	}
	if err := playAll(ctx, batches, cells, known, partial); err != nil {
		return err
	}
	if known, err = read(partial); err != nil {
		return err
	}
	if err := write(*out, batches, known); err != nil {
		return err
	}
	return os.Remove(partial)
}

// batch is all cells of a situation and a seed, which share its arrivals.
type batch struct {
	situation string
	seed      uint64
}

// batchesOf returns those of the protocol.
func batchesOf(list []protocol.Open) []batch {
	var batches []batch
	for _, o := range list {
		for n := range uint64(o.Pairs) {
			if b := (batch{o.Situation, o.First + n}); !slices.Contains(batches, b) {
				batches = append(batches, b)
			}
		}
	}
	return batches
}

// cellsOfBatch returns the cells of a situation and a seed.
type cellsOfBatch func(situation string, seed uint64) []simulation.Cell

// cellsOf returns the cells of the matrix that the protocol has open.
func cellsOf(list []protocol.Open) cellsOfBatch {
	return func(situation string, seed uint64) (cells []simulation.Cell) {
		for _, c := range simulation.Cells(situation, seed) {
			if slices.ContainsFunc(list, func(o protocol.Open) bool {
				return o.Situation == situation && seed >= o.First && seed < o.First+uint64(o.Pairs) && slices.Contains(o.Algorithms, c.Algorithm) && slices.Contains(o.Policies, c.Policy)
			}) {
				cells = append(cells, c)
			}
		}
		return cells
	}
}

// lines plays a batch.
func (b batch) lines(cells cellsOfBatch) (string, error) {
	s := simulation.New(b.situation, b.seed, simulation.Options{})
	var text strings.Builder
	for _, c := range cells(b.situation, b.seed) {
		o, err := c.Play(s)
		if err != nil {
			return "", err
		}
		text.WriteString(lineOf(c, o) + "\n")
	}
	return text.String(), nil
}

// lineOf is a cell's line. Names of situations are in quotes, since some have commas.
func lineOf(c simulation.Cell, o simulation.Outcome) string {
	return fmt.Sprintf("\"%s\",%s,%s,%d,%.3f,%.3f,%.3f,%.3f,%.3f,%.4f,%.4f,%.4f,%.1f", c.Situation, c.Policy, c.Algorithm, c.Seed,
		o.Good, o.Rejected, o.Away, o.Abuse, o.Refused, o.Mean, o.P95, o.P99, o.Changes)
}

// playAll plays the batches that are not known, and adds each to the partial file as a whole.
func playAll(ctx context.Context, batches []batch, cells cellsOfBatch, known map[batch]string, partial string) error {
	file, err := os.OpenFile(partial, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan batch)
	bar := progress.New(os.Stderr, len(batches)-len(known))
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for b := range next {
				text, err := b.lines(cells)
				mu.Lock()
				if err == nil {
					_, err = file.WriteString(text + end)
				}
				mu.Unlock()
				if err != nil {
					cancel(err)
					return
				}
				bar.Done()
			}
		})
	}
	for _, b := range batches {
		if _, is := known[b]; is {
			continue
		}
		select {
		case next <- b:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

// end is a line after each batch of the partial file. What comes after the last one is not whole.
const end = "end\n"

func read(partial string) (map[batch]string, error) {
	known := map[batch]string{}
	text, err := os.ReadFile(partial)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err != nil {
		return nil, err
	}
	whole := strings.Split(string(text), end)
	for _, lines := range whole[:len(whole)-1] {
		var b batch
		name, rest, _ := strings.Cut(strings.TrimPrefix(lines, `"`), `",`)
		b.situation = name
		if _, err := fmt.Sscanf(strings.Split(rest, ",")[2], "%d", &b.seed); err != nil {
			return nil, fmt.Errorf("%s: %w", partial, err)
		}
		known[b] = lines
	}
	return known, nil
}

// write writes the file in the order of the batches, whatever the order in which they were played.
func write(out string, batches []batch, known map[batch]string) error {
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer file.Close()
	compressed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(compressed)
	fmt.Fprintf(w, "# %s\n%s\n", origin.Of(), head)
	for _, b := range batches {
		fmt.Fprint(w, known[b])
	}
	return errors.Join(w.Flush(), compressed.Close())
}
