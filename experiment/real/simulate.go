package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/proxyweir/weir/core/rate"
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
		l.Algorithm = f.last.Algorithm
		f.last = l
	}
	return f.last
}

// timesSimulated is how often a cell is simulated, each time with other second tries: in a collapse these decide much.
const timesSimulated = 20

// simulate plays the cells of a folder in the simulation, where that has their arms. It writes a CSV file with the goodput of each in per cent, the mean
// of timesSimulated plays, and how much these differ. For the study's policy it has a second one, with the limits that were in force in each second of the cell: what is left of a
// difference to the cell then is not due to when limits moved.
func simulate(folder, out string) error {
	names, err := filepath.Glob(filepath.Join(folder, "*", "*.jsonl.gz"))
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return filepath.Base(filepath.Dir(name)) == "windows" }) // the advisor goes on and off in them
	slices.Sort(names)
	rows := make([]string, len(names))
	failed := make([]error, len(names))
	var wait sync.WaitGroup
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, name := range names {
		room <- struct{}{}
		wait.Go(func() {
			defer func() { <-room }()
			rows[i], failed[i] = simulatedRow(name)
		})
	}
	wait.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return os.WriteFile(out, []byte("scenario,algorithm,arm,pair,good,spread,followed\n"+strings.Join(rows, "")), 0o644)
}

// simulatedRow returns the line of a cell; "": the simulation does not have its arm.
func simulatedRow(name string) (string, error) {
	r, seconds, err := read(name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	p, err := scenarioOf(r.Scenario)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	s, err := p.cut(r.Pair, r.Sigma, r.Calm, r.Event)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	good, spread, ok, err := r.cell.simulated(s, nil)
	if err != nil || !ok {
		return "", err
	}
	row := fmt.Sprintf("%s,%s,%s,%d,%.3f,%.3f,", r.Scenario, r.Algorithm, r.Arm, r.Pair, good, spread)
	if a, _ := armOf(r.Arm); a.adviser == "study" {
		f := &followed{begin: s.Begin, seen: map[int]simulation.Limits{}}
		for _, of := range seconds {
			client, ok := of.Seen["limit_of_client"].(float64)
			all, both := of.Seen["limit_of_all"].(float64)
			if ok && both {
				f.seen[of.Second] = simulation.Limits{Client: client / simulation.PeriodOfClient.Seconds(), All: all / simulation.PeriodOfAll.Seconds()}
			}
		}
		if good, _, _, err = r.cell.simulated(s, f); err != nil {
			return "", err
		}
		row += fmt.Sprintf("%.3f", good)
	}
	return row + "\n", nil
}

// simulated plays the cell's requests in the simulation, and returns the mean of the goodput and its standard deviation from play to play; ok is false for
// arms that it does not have. With follows, limits move as that says.
func (c cell) simulated(s *simulation.Situation, follows *followed) (good, spread float64, ok bool, err error) {
	a, err := armOf(c.Arm)
	if err != nil {
		return 0, 0, false, err
	}
	l := a.limits(s)
	if c.Algorithm != "" {
		if l.Algorithm, err = rate.ParseAlgorithm(c.Algorithm); err != nil {
			return 0, 0, false, err
		}
	}
	var squares float64
	for n := range uint64(timesSimulated) {
		seed := 1000*c.Pair + n
		var policy simulation.Policy = simulation.None{}
		var adviser simulation.Adviser
		switch {
		case c.Arm == "guard alone":
			policy = simulation.NewGuarded(mostOfGuards)
		case c.Arm == "cap":
			policy = &simulation.Cap{Most: 48}
		case a.bare && c.Arm != "none":
			return 0, 0, false, nil
		case follows != nil:
			f := *follows
			f.last = l
			adviser = &f
		case a.adviser == "study":
			adviser = simulation.NewStudy(s, l)
		case a.adviser != "":
			return 0, 0, false, nil
		case a.guard:
			fleet := simulation.NewFleet(proxies, mostOfGuards, seed)
			policy = fleet
			if a.presses {
				policy = simulation.PressFleet(fleet)
			}
		}
		one := simulation.Run(s, l, policy, adviser, seed).Good
		good += one / timesSimulated
		squares += one * one / timesSimulated
	}
	spread = math.Sqrt(math.Max(0, squares-good*good) * timesSimulated / (timesSimulated - 1))
	return good, spread, true, nil
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
