package blobstore_test

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/blobstore"
	"github.com/proxyweir/weir/core/fleetclock"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// blobs is a storage in memory.
type blobs struct {
	of   map[string][]byte
	fail error // what every operation returns, if it is not nil

	panics string        // a blob whose loading panics
	hang   chan struct{} // what listing waits for, if it is not nil, whatever the context says

	stored, loaded, listed int
	ofFirst                string // the blob that was stored first
}

func (b *blobs) Store(_ context.Context, name string, blob []byte) error {
	if b.fail != nil {
		return b.fail
	}
	if b.stored++; b.stored == 1 {
		b.ofFirst = name
	}
	b.of[name] = blob
	return nil
}

func (b *blobs) Load(_ context.Context, name string) ([]byte, error) {
	if b.fail != nil {
		return nil, b.fail
	}
	b.loaded++
	if name == b.panics {
		panic("a defect")
	}
	blob, has := b.of[name]
	if !has {
		return nil, fs.ErrNotExist
	}
	return blob, nil
}

func (b *blobs) Delete(_ context.Context, name string) error {
	if b.fail != nil {
		return b.fail
	}
	delete(b.of, name)
	return nil
}

func (b *blobs) List(_ context.Context, folder string, _ bool) ([]string, error) {
	if b.fail != nil {
		return nil, b.fail
	}
	b.listed++
	if b.hang != nil {
		<-b.hang
	}
	var names []string
	for name := range b.of {
		if strings.HasPrefix(name, folder+"/") {
			names = append(names, name)
		}
	}
	return names, nil
}

// fleet is some instances on one storage, by a virtual clock.
type fleet struct {
	fleetclock.Clock
	t         *testing.T
	limit     *rate.Limit
	storage   *blobs
	config    blobstore.Config
	instances []*instance
	judge     fleetclock.Judge
	asked     fleetclock.Arrivals

	admitted, unused int
	excess, bound    int64
}

type instance struct {
	store   *blobstore.Store
	rule    *core.Rule
	stopped bool
}

func newFleet(t *testing.T, limit rate.LimitConfig, read, write time.Duration) *fleet {
	t.Helper()
	l, err := rate.NewLimit(limit)
	must.Succeed(t, err)
	f := &fleet{t: t, limit: l, storage: &blobs{of: make(map[string][]byte)}, judge: fleetclock.NewJudge(l)}
	f.Now = fleetclock.Start
	f.asked.Long = (read + write).Microseconds()
	clock := func() int64 { return f.Now }
	f.config = blobstore.Config{Storage: f.storage, Folder: "weir", ReadEvery: read, WriteEvery: write, Clock: clock, Mono: clock,
		Trouble: func(err error) { t.Errorf("trouble: %v", err) }}
	return f
}

// start starts an instance. Its rounds begin after these times.
func (f *fleet) start(read, write int64) *instance {
	f.t.Helper()
	store, err := blobstore.New(f.config)
	must.Succeed(f.t, err)
	i := &instance{store: store, rule: newRule(f.t, "fleet", f.limit)}
	must.Succeed(f.t, store.Open(i.rule))
	store.Read(context.Background())
	f.instances = append(f.instances, i)
	f.every(i, read, f.config.ReadEvery, func() { store.Read(context.Background()) })
	f.every(i, write, f.config.WriteEvery, func() { _ = store.Write(context.Background()) })
	return i
}

func (f *fleet) every(i *instance, after int64, interval time.Duration, do func()) {
	var again func()
	again = func() {
		if i.stopped {
			return
		}
		do()
		f.At(f.Now+interval.Microseconds(), again)
	}
	f.At(f.Now+after, again)
}

// request plays a request that comes to an instance.
func (f *fleet) request(i *instance, cost int64) rate.Decision {
	f.asked.Add(f.Now, cost)
	f.bound = max(f.bound, f.asked.Sum)
	checks := []core.Check{{Rule: i.rule, Key: "client", Cost: cost}}
	_ = i.store.Decide(checks, false)
	if d := checks[0].Decision; !d.Allowed {
		if f.judge.Over(f.Now)+cost <= 0 {
			f.unused += int(cost)
		}
		return d
	}
	f.admitted += int(cost)
	f.judge.Charge(f.Now, cost)
	f.excess = max(f.excess, f.judge.Over(f.Now))
	return checks[0].Decision
}

func newRule(t *testing.T, name string, l *rate.Limit) *core.Rule {
	t.Helper()
	r, err := core.NewRule(core.RuleConfig{Name: name, Limit: l})
	must.Succeed(t, err)
	return r
}

// What random fleets admit beyond the limit stays below what they are asked for in the sum of the intervals, with steady demand and with bursts.
func TestRandomFleetsStayWithinTheBound(t *testing.T) {
	underrace.OneGoroutine(t)
	var worst, sum, cases float64
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := rate.LimitConfig{
			Algorithm: []rate.Algorithm{rate.FixedWindow, rate.SlidingWindowCounter, rate.SlidingWindowLog, rate.TokenBucket}[r.IntN(4)],
			Requests:  int64(20 + r.IntN(500)),
			Period:    []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute}[r.IntN(3)],
		}
		if limit.Algorithm == rate.SlidingWindowCounter && seed%2 == 0 {
			limit.Segments = 2 + r.Int64N(59)
		}
		if limit.Algorithm == rate.TokenBucket {
			limit.Interval = r.IntN(3) == 0
			limit.Burst = limit.Requests * int64(1+r.IntN(3)) / 2
			if limit.Interval {
				limit.Burst = max(limit.Burst, limit.Requests)
			}
		}
		interval := func() time.Duration { return limit.Period * time.Duration(1+r.IntN(20)) / 100 }
		f := newFleet(t, limit, interval(), interval())
		nodes := 2 + r.IntN(5)
		for range nodes {
			f.start(r.Int64N(f.config.ReadEvery.Microseconds()), r.Int64N(f.config.WriteEvery.Microseconds()))
		}
		demand := float64(limit.Requests) / limit.Period.Seconds() / 1e6 * (0.5 + 4*r.Float64()) // units a microsecond
		bursts := r.IntN(2) == 0
		end := f.Now + min(limit.Period.Microseconds()*4, 20_000*int64(1/demand)/10+limit.Period.Microseconds())
		for f.Now < end {
			gap := r.ExpFloat64() / demand
			if bursts && f.Now/5_000_000%2 == 0 {
				gap *= 10
			}
			f.Until(f.Now + max(int64(gap), 1))
			f.request(f.instances[r.IntN(nodes)], int64(1+r.IntN(2)*r.IntN(4)))
		}
		if f.excess > f.bound {
			t.Errorf("seed %d: %s, %d instances, intervals %s and %s: %d units beyond the limit, and the bound is %d", seed, f.limit, nodes, f.config.ReadEvery, f.config.WriteEvery, f.excess, f.bound)
		}
		share := float64(max(f.excess, 0)) / float64(f.bound)
		worst = max(worst, share)
		sum += share
		cases++
	}
	if sum == 0 {
		t.Error("no fleet has admitted anything beyond its limit, so that this test sees nothing")
	}
	t.Logf("excess: %.2f of the bound on average, %.2f at most", sum/cases, worst)
}
