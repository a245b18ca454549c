package simulation

import (
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/pressure"
)

// Told is a Policy that is told the CPU use of the service now and then.
type Told interface {
	Policy

	// Tell tells it, from 0 to 1.
	Tell(t, load float64)
}

// Pressed is a policy of guards that take the service's CPU use as the pressure on it, with the defaults of the product.
type Pressed struct {
	Policy
	guards []*Guarded
	source pressure.Source
}

// Press returns a guard that does so.
func Press(g *Guarded) Pressed { return pressed(g, g) }

// PressFleet returns a fleet whose guards do so.
func PressFleet(f *Fleet) Pressed { return pressed(f, f.guards...) }

func pressed(p Policy, guards ...*Guarded) Pressed {
	source, err := pressure.NewSource("http://service/health", "load", "", "", 0)
	if err != nil {
		panic(err)
	}
	return Pressed{p, guards, source}
}

// toldEach is how often a policy is told, in seconds, and knownFor for how many such times the product knows what it was told.
const (
	toldEach = float64(pressure.DefaultInterval) / 1e9
	knownFor = 3
)

// Tell implements Told.
func (p Pressed) Tell(t, load float64) {
	until := int64(0)
	if load >= p.source.High {
		until = micros(t + knownFor*toldEach)
	}
	for _, g := range p.guards {
		guard.Press(g.Guard, until)
	}
}
