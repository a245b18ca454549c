package main

import (
	"maps"
	"math"
)

// used is what a program of C, or an advisor, has used in the event, or in a window.
type used struct {
	CPU        float64 `json:"cpu"`                  // seconds on a core
	Waited     float64 `json:"waited"`               // seconds in which a thread was ready to run, and had no core: so whether the machine was quiet
	Resident   float64 `json:"resident"`             // MB of memory at most, by looks at each second
	Goroutines int     `json:"goroutines,omitempty"` // at most, of the first Caddy and of Traefik
}

// meter measures what programs use from one look to another.
type meter struct {
	programs map[string]*program
	begin    map[string]used
	most     map[string]used // resident and goroutines
}

func (of *site) meter() *meter {
	m := &meter{programs: map[string]*program{}, most: map[string]used{}}
	for _, p := range of.programs {
		if p.name != "prometheus" {
			m.programs[p.name] = p
		}
	}
	m.begin = m.look()
	return m
}

// look returns what the programs have used since they began, and notes how much memory they have.
func (m *meter) look() map[string]used {
	found := map[string]used{}
	for name, p := range m.programs {
		on, waited, resident, err := usageOf(p.process.Process.Pid)
		if err != nil { // it has ended, as its stop will say, or this is no Linux
			continue
		}
		most := m.most[name]
		most.Resident = max(most.Resident, float64(resident)/1e6)
		m.most[name] = most
		found[name] = used{CPU: on.Seconds(), Waited: waited.Seconds()}
	}
	return found
}

// saw notes how many goroutines a program has.
func (m *meter) saw(name string, goroutines float64) {
	most := m.most[name]
	most.Goroutines = max(most.Goroutines, int(goroutines))
	m.most[name] = most
}

// lap returns what the programs have used since the meter was made, or since the lap before, and begins the next one.
func (m *meter) lap() map[string]used {
	now := m.look()
	found := map[string]used{}
	for name, u := range now {
		rounded := func(s float64) float64 { return math.Round(s*1000) / 1000 }
		most := m.most[name]
		found[name] = used{CPU: rounded(u.CPU - m.begin[name].CPU), Waited: rounded(u.Waited - m.begin[name].Waited), Resident: math.Round(most.Resident*10) / 10, Goroutines: most.Goroutines}
	}
	m.begin = now
	maps.DeleteFunc(m.most, func(string, used) bool { return true })
	return found
}

// mostWait is how long the threads of the proxies may wait for a core, in seconds for each in which they have one: twice as long as on a quiet machine. A
// cell in which they waited longer is thrown away.
const mostWait = 4.0

// wait returns how long the threads of the proxies waited for a core, in seconds for each in which they had one.
func wait(by map[string]used) float64 {
	var on, waited float64
	for name, u := range by {
		if name != "advisor" {
			on, waited = on+u.CPU, waited+u.Waited
		}
	}
	if on == 0 {
		return 0
	}
	return waited / on
}

// mostBusy is for which part of the event the threads of one proxy may have a core, or wait for one. A cell in which they do for longer is thrown away:
// limits of such proxies did not hold, so the cell says how slow the machine is. experiment/README.md has more.
const mostBusy = 0.8

// busy returns for which part of an event of so many seconds the threads of the busiest proxy had a core, or waited for one.
func busy(by map[string]used, event float64) (most float64) {
	for name, u := range by {
		if name != "advisor" {
			most = max(most, (u.CPU+u.Waited)/event)
		}
	}
	return most
}
