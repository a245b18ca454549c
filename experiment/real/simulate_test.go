package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// A cell is played again with the limits that were in force in it: with those that it began with this is what static limits come to, and lower ones in
// the burst let less pass.
func TestACellIsFollowed(t *testing.T) {
	c := cell{Scenario: "bursts", Algorithm: "fixed_window", Arm: "study", Pair: 1}
	p, err := scenarioOf(c.Scenario)
	must.Succeed(t, err)
	s, err := p.cut(1, 0, 15, 0)
	must.Succeed(t, err)
	static := c
	static.Arm = "static"
	want, _, _, err := static.simulated(s, nil)
	must.Succeed(t, err)
	found := func(limit func(second int) (client, all float64)) float64 {
		t.Helper()
		folder := t.TempDir()
		var seconds []second
		for n := -15; n < 75; n++ {
			client, all := limit(n)
			seconds = append(seconds, second{Second: n, Seen: map[string]any{"limit_of_client": client, "limit_of_all": all}})
		}
		must.Succeed(t, write(c.file(folder), &record{cell: c, Calm: 15, Event: 75}, seconds))
		out := filepath.Join(folder, "simulated.csv")
		must.Succeed(t, simulate(folder, out))
		text, err := os.ReadFile(out)
		must.Succeed(t, err)
		var good float64
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(lines) != 2 || lines[0] != "scenario,algorithm,arm,pair,good,spread,followed" {
			t.Fatalf("%q", text)
		}
		if _, err := fmt.Sscanf(strings.ReplaceAll(lines[1], ",", " "), "bursts fixed_window study 1 %f %f %f", new(float64), new(float64), &good); err != nil {
			t.Fatalf("%q: %v", lines[1], err)
		}
		return good
	}
	with := &plan{arm: arm{adviser: "study"}, limits: arm{}.limits(s), algorithm: c.Algorithm}
	zones := with.zones()
	client, all := float64(zones[0].requests), float64(zones[1].requests)
	same := found(func(int) (float64, float64) { return client, all })
	if same < want-0.5 || same > want+0.5 { // whole requests in a period, where the simulation has a rate
		t.Errorf("with the limits that it began with: %.2f, and static ones come to %.2f", same, want)
	}
	half := found(func(n int) (float64, float64) {
		if n >= 0 {
			return client / 2, all / 2
		}
		return client, all
	})
	if half > same-10 {
		t.Errorf("with half of the limits in the event: %.2f, and else %.2f", half, same)
	}
}
