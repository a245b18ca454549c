package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/proxyweir/weir/experiment/simulation"
)

// bareArms stand in a single Caddy before the service, without limits: lines of a Caddyfile.
var bareArms = map[string]string{
	"none":           "",
	"cap":            "cap 48",
	"failsafe":       "failsafe 8 128 20",
	"failsafe 128":   "failsafe 8 128 128",
	"failsafe queue": "failsafe 8 128 20 queue",
	"failsafe fair":  "failsafe 8 128 20 fair",
	"guard alone":    "rate_limit {\n guard {\n max 128\n min 8\n }\n }",
}

// How many requests the guards of a fleet let be under way together: each has its part.
const (
	mostOfGuards  = 128
	leastOfGuards = 8
	proxies       = 3
)

// arm is what stands in front of the service.
type arm struct {
	bare    bool
	lines   string // of a Caddyfile, if it is bare
	low     bool   // limits that were not tuned
	guard   bool
	presses bool   // the guard knows the service's CPU use
	adviser string // "go", "prophet", "oracle", "random", "study" or "changes"; "": nobody

	interval time.Duration // how often proxies ask the advisor; 0: each second
}

var advisers = []string{"go", "prophet", "oracle", "random", "study"}

func armOf(name string) (arm, error) {
	if lines, ok := bareArms[name]; ok {
		return arm{bare: true, lines: lines}, nil
	}
	if text, ok := strings.CutPrefix(name, intervalWord); ok {
		interval, err := time.ParseDuration(text)
		return arm{adviser: "changes", interval: interval}, err
	}
	var a arm
	for _, word := range strings.Split(name, "+") {
		switch {
		case word == "static":
		case word == "low":
			a.low = true
		case word == "guard":
			a.guard = true
		case word == "pressure":
			a.presses = true
		case a.adviser == "" && slices.Contains(advisers, word):
			a.adviser = word
		default:
			return arm{}, fmt.Errorf("%q: there is no such arm", name)
		}
	}
	if a.adviser != "" && a.guard == (a.adviser == "study") {
		return arm{}, fmt.Errorf("%q: study goes without a guard, and the other advisors go with one", name)
	}
	if a.presses && !a.guard {
		return arm{}, fmt.Errorf("%q: pressure is told to a guard", name)
	}
	return a, nil
}

// limits returns the limits that the arm begins with.
func (a arm) limits(s *simulation.Situation) simulation.Limits {
	if a.bare {
		return simulation.Limits{}
	}
	l := s.Tuned()
	if a.low {
		l = s.Low()
	}
	if a.guard {
		l.All = 0
	}
	return l
}
