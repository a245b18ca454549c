//go:build gc
// +build gc

package traefik

// The second line above is for Yaegi, which knows no other spelling of a build constraint and no compiler: it leaves this
// file out.

import (
	"reflect"
	"testing"
	_ "time/tzdata" // so that the calendar's tests do not depend on the machine

	"github.com/proxyweir/weir/redis/redistest"
)

func init() {
	interpreted = false
	startServers = func(t *testing.T) [2]clockedServer {
		var servers [2]clockedServer
		for i := range servers {
			server := redistest.Start(t, redistest.WithClock())
			servers[i] = clockedServer{server.Addr(), server.SetTime}
		}
		return servers
	}
}

// TestUnderTheInterpreter gives the tests two servers whose clocks they can set.
func TestUnderTheInterpreter(t *testing.T) {
	redistest.RunInterpreted(t, "traefik", redistest.Start(t, redistest.WithClock()), redistest.Start(t, redistest.WithClock()))
}

// TestNumbersOfPassagesThatAreAtomicComeFirst since on machines with 32 bits those of 64 are aligned only there.
func TestNumbersOfPassagesThatAreAtomicComeFirst(t *testing.T) {
	for i, name := range []string{"refusals", "second"} {
		if f := reflect.TypeOf(guarded{}).Field(i); f.Name != name {
			t.Errorf("%s has the place of %s", f.Name, name)
		}
	}
	for i, name := range []string{"under", "begun", "took"} {
		if f := reflect.TypeOf(inflight{}).Field(i); f.Name != name {
			t.Errorf("%s has the place of %s", f.Name, name)
		}
	}
}
