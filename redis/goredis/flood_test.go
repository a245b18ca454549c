package goredis_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// Under a flood the nodes of a large fleet do not all ask for each unit that becomes free, and the whole limit is admitted nevertheless.
func TestAFloodOnManyNodesAsksSeldom(t *testing.T) {
	const nodes, limit, demand = 30, 100, 3000 // units and requests a second
	f := newLeasing(t, nodes, core.RuleConfig{Name: "r"}, rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: limit, Period: time.Second})
	random := rand.New(rand.NewPCG(1, 2))
	flood := func(lasts time.Duration) (admitted int) {
		for end := f.time.Load() + lasts.Microseconds(); f.time.Load() < end; {
			f.step(time.Duration(random.ExpFloat64() * float64(time.Second) / demand))
			d, err := f.decide(random.IntN(nodes), 1)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				admitted++
			}
		}
		return admitted
	}
	flood(2 * time.Second)
	before := scriptCalls(f.conn)
	admitted := flood(5 * time.Second)
	calls := scriptCalls(f.conn) - before
	t.Logf("%d calls for %d admissions", calls, admitted)
	if admitted < 5*limit*99/100 || admitted > 5*limit+1 || calls > 10*admitted {
		t.Errorf("%d admitted of %d, with %d calls", admitted, 5*limit, calls)
	}
}
