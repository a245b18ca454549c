package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/experiment/simulation"
)

// followed has the limits of a simulation move as they did in a cell, second by second.
type followed struct {
	begin float64 // the instant of the simulation at which the event begins
	seen  map[int]simulation.Limits
	last  simulation.Limits
}

// Interval implements simulation.Adviser.
func (*followed) Interval() float64 { return 1 }

// Advise implements simulation.Adviser.
func (f *followed) Advise(t float64, _ int) simulation.Limits {
	if l, ok := f.seen[int(math.Floor(t-f.begin))]; ok {
		f.last = l
	}
	return f.last
}

// follow plays the cells of a folder in which the study's policy moved limits in the simulation, with the limits that were in force in each second of the
// cell. It writes a CSV file with the goodput of each, in per cent. What is left of a difference to the cell is not due to when limits moved.
func follow(folder, out string) error {
	names, err := filepath.Glob(filepath.Join(folder, "*", "*.study.*.jsonl.gz"))
	if err != nil {
		return err
	}
	slices.Sort(names)
	var text bytes.Buffer
	text.WriteString("scenario,algorithm,arm,pair,good\n")
	for _, name := range names {
		r, seconds, err := read(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		good, err := goodWith(r, seconds)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(&text, "%s,%s,%s,%d,%.3f\n", r.Scenario, r.Algorithm, r.Arm, r.Pair, good)
	}
	return os.WriteFile(out, text.Bytes(), 0o644)
}

// goodWith plays a cell in the simulation, with the limits that were in force.
func goodWith(r *record, seconds []second) (float64, error) {
	p, err := scenarioOf(r.Scenario)
	if err != nil {
		return 0, err
	}
	a, err := armOf(r.Arm)
	if err != nil {
		return 0, err
	}
	s, err := p.cut(r.Pair, r.Sigma, r.Calm, r.Event)
	if err != nil {
		return 0, err
	}
	l := a.limits(s)
	if l.Algorithm, err = core.ParseAlgorithm(r.Algorithm); err != nil {
		return 0, err
	}
	f := &followed{begin: s.Begin, seen: map[int]simulation.Limits{}, last: l}
	for _, of := range seconds {
		client, ok := of.Seen["limit_of_client"].(float64)
		all, both := of.Seen["limit_of_all"].(float64)
		if ok && both {
			f.seen[of.Second] = simulation.Limits{Client: client / simulation.PeriodOfClient.Seconds(), All: all / simulation.PeriodOfAll.Seconds(), Algorithm: l.Algorithm}
		}
	}
	return simulation.Run(s, l, simulation.None{}, f, r.Pair).Good, nil
}

// read reads a cell's file.
func read(name string) (*record, []second, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return nil, nil, err
	}
	decoder := json.NewDecoder(bufio.NewReader(unpacked))
	r := new(record)
	if err := decoder.Decode(r); err != nil {
		return nil, nil, err
	}
	var seconds []second
	for decoder.More() {
		var of second
		if err := decoder.Decode(&of); err != nil {
			return nil, nil, err
		}
		seconds = append(seconds, of)
	}
	return r, seconds, nil
}
