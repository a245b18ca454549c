package blobstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

var (
	minutely = rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 10, Period: time.Minute}
	never    = int64(1e15) // after which a fleet's rounds begin, so that the test itself writes and reads
)

// use has an instance admit so many requests.
func (f *fleet) use(i *instance, requests int) {
	f.t.Helper()
	for range requests {
		if d := f.request(i, 1); !d.Allowed {
			f.t.Fatalf("a request is rejected: %+v", d)
		}
	}
}

// remain checks how many requests an instance would still admit.
func (f *fleet) remain(i *instance, want int64) {
	f.t.Helper()
	checks := []core.Check{{Rule: i.rule, Key: "client", Cost: 1}}
	_ = i.store.Decide(checks, true)
	got := checks[0].Decision.Remaining
	if checks[0].Decision.Allowed {
		got++
	}
	if got != want {
		f.t.Errorf("%d requests remain, want %d", got, want)
	}
}

func (i *instance) write(t *testing.T) {
	t.Helper()
	if err := i.store.Write(context.Background()); err != nil {
		t.Error(err)
	}
}

func (i *instance) read() { i.store.Read(context.Background()) }

// Instances count what others have told, once, and an instance that starts knows what was told before: also by one that has ended, as after a restart.
func TestInstancesTellEachOther(t *testing.T) {
	f := newFleet(t, minutely, time.Second, time.Second)
	a, b := f.start(never, never), f.start(never, never)
	f.use(a, 3)
	f.use(b, 2)
	f.remain(a, 7)
	a.write(t)
	b.write(t)
	for range 3 {
		a.read()
		b.read()
	}
	f.remain(a, 5)
	f.remain(b, 5)
	c := f.start(never, never)
	f.remain(c, 5)
	f.use(c, 5)
	c.write(t)
	a.read()
	f.remain(a, 0)
	f.Until(f.Now + time.Minute.Microseconds())
	f.remain(a, 10)
	a.write(t)
	a.read()
	f.remain(a, 10)
}

// A rule that is opened later counts what was told of it before, and a peek is told to nobody.
func TestARuleThatIsOpenedLater(t *testing.T) {
	f := newFleet(t, minutely, time.Second, time.Second)
	a, b := f.start(never, never), f.start(never, never)
	late := newRule(t, "late", f.limit)
	must.Succeed(t, a.store.Open(late))
	checks := []core.Check{{Rule: late, Key: "client", Cost: 4}}
	_ = a.store.Decide(checks, true)
	_ = a.store.Decide(checks, false)
	a.write(t)
	b.read()
	there := newRule(t, "late", f.limit)
	must.Succeed(t, b.store.Open(there))
	b.rule = there
	f.remain(b, 6)
	b.store.Release(there)
}

// Of a request under several rules all are told, or none. A shadow rejects nothing, and what it would reject is not told.
func TestSeveralRulesAreToldTogether(t *testing.T) {
	f := newFleet(t, minutely, time.Second, time.Second)
	a, b := f.start(never, never), f.start(never, never)
	small, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: 1, Period: time.Minute})
	must.Succeed(t, err)
	narrow := newRule(t, "narrow", small)
	shadow, err := core.NewRule(core.RuleConfig{Name: "shadow", Limit: small, Shadow: true})
	must.Succeed(t, err)
	for _, r := range []*core.Rule{narrow, shadow} {
		must.Succeed(t, a.store.Open(r))
	}
	for range 3 {
		checks := []core.Check{{Rule: a.rule, Key: "client", Cost: 1}, {Rule: narrow, Key: "client", Cost: 1}}
		_ = a.store.Decide(checks, false)
	}
	for range 3 {
		checks := []core.Check{{Rule: a.rule, Key: "client", Cost: 1}, {Rule: shadow, Key: "client", Cost: 1}}
		_ = a.store.Decide(checks, false)
	}
	a.write(t)
	b.read()
	f.remain(b, 6) // one of the first three, and all of the others
	f.remain(a, 6)
}

// While the storage fails, instances count by themselves, and tell of the trouble once. Then they catch up.
func TestAStorageThatFails(t *testing.T) {
	f := newFleet(t, minutely, time.Second, time.Second)
	var troubles []string
	f.config.Trouble = func(err error) { troubles = append(troubles, err.Error()) }
	a, b := f.start(never, never), f.start(never, never)
	f.use(a, 4)
	f.storage.fail = errors.New("the disk is full")
	for range 3 {
		f.Until(f.Now + time.Second.Microseconds())
		if err := a.store.Write(context.Background()); err == nil {
			t.Error("a write succeeds on a storage that fails")
		}
		a.read()
	}
	if want := []string{"writing weir/", "listing weir: the disk is full"}; len(troubles) != 2 || !strings.HasPrefix(troubles[0], want[0]) || troubles[1] != want[1] {
		t.Errorf("the troubles are %q", troubles)
	}
	if st := a.store.Stats(); st.Failed != 3 || st.Written != 0 || st.Age < 3_000_000 {
		t.Errorf("the statistics are %+v, want 3 failed writes, and an admission that has waited for 3 s", st)
	}
	f.remain(a, 6)
	f.remain(b, 10)
	f.storage.fail = nil
	a.write(t)
	b.read()
	f.remain(b, 6)
	if st := a.store.Stats(); st.Age != 0 || st.Written != 1 {
		t.Errorf("the statistics are %+v, want nothing that waits", st)
	}
	if st := b.store.Stats(); st.Instances != 1 || st.Damaged != 0 {
		t.Errorf("the statistics are %+v, want one other instance", st)
	}
}

// Blobs that are damaged, cut off or foreign lose nothing of the others.
func TestDamagedBlobsLoseNothingElse(t *testing.T) {
	f := newFleet(t, minutely, time.Second, time.Second)
	var troubles []string
	f.config.Trouble = func(err error) { troubles = append(troubles, err.Error()) }
	a, b, c, reader := f.start(never, never), f.start(never, never), f.start(never, never), f.start(never, never)
	names := func() []string {
		all, _ := f.storage.List(context.Background(), "weir", false)
		return all
	}
	f.use(a, 1)
	a.write(t)
	damaged := names()[0]
	f.use(b, 1)
	b.write(t)
	reader.read()
	f.remain(reader, 8)
	f.use(a, 1)
	a.write(t)
	whole := f.storage.of[damaged]
	f.use(c, 1)
	c.write(t)
	for _, blob := range [][]byte{nil, whole[:len(whole)/2], append(slices.Clone(whole[:len(whole)-1]), whole[len(whole)-1]^1), []byte("something else")} {
		f.storage.of[damaged] = blob
		reader.read()
		f.remain(reader, 7) // what a has told before still counts, and c is new
		if st := reader.store.Stats(); st.Damaged != 1 || st.Instances != 3 {
			t.Errorf("the statistics are %+v, want one of three blobs damaged", st)
		}
	}
	if len(troubles) == 0 {
		t.Error("nobody was told")
	}
	f.storage.of[damaged] = whole
	reader.read()
	f.remain(reader, 6)
}

// Rules that need one store for all nodes are refused, by name.
func TestRulesThatDoNotFit(t *testing.T) {
	f := newFleet(t, minutely, time.Second, time.Second)
	a := f.start(never, never)
	log, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.LeakyBucket, Requests: 10, Period: time.Minute})
	must.Succeed(t, err)
	for want, c := range map[string]core.RuleConfig{
		"leaky_bucket":         {Limit: log},
		"concurrency":          {Limit: f.limit, Concurrency: 3},
		"count_rejected":       {Limit: f.limit, CountRejected: true},
		"penalty":              {Limit: f.limit, OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Minute}}},
		"candidate":            {Limit: f.limit, Candidate: f.limit},
		"enforcement soft":     {Limit: f.limit, OverflowPolicy: core.OverflowPolicy{SoftPercent: 10, SoftFor: time.Minute}},
		"consistency lease":    {Limit: f.limit, Consistency: core.Leased},
		"consistency eventual": {Limit: f.limit, Consistency: core.Eventual, SyncEvery: time.Second},
	} {
		c.Name = "unfit"
		r, err := core.NewRule(c)
		must.Succeed(t, err)
		if err := core.NewLimiter(a.store).Fits(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the rule with %s: %v, want an error that names it", want, err)
		}
	}
}

// Blocks and resets are this instance's own.
func TestBlocksAndResetsByHand(t *testing.T) {
	f := newFleet(t, minutely, time.Second, time.Second)
	a, b := f.start(never, never), f.start(never, never)
	must.Succeed(t, a.store.Block(a.rule, "client", 1_000_000))
	f.remain(a, 0)
	f.remain(b, 10)
	f.use(b, 4)
	b.write(t)
	a.read()
	f.Until(f.Now + 1_000_000)
	f.remain(a, 10) // what is told of a key that is blocked is forgotten with the block
	must.Succeed(t, b.store.Reset(b.rule, "client"))
	f.remain(b, 10)
}

// What a storage does wrong with one blob keeps no other from being read, and is told once.
func TestAStorageThatPanics(t *testing.T) {
	f := newFleet(t, minutely, time.Second, time.Second)
	var troubles []string
	f.config.Trouble = func(err error) { troubles = append(troubles, err.Error()) }
	a, b := f.start(never, never), f.start(never, never)
	f.use(a, 1)
	a.write(t)
	f.use(b, 2)
	b.write(t)
	names, _ := f.storage.List(context.Background(), "weir", false)
	slices.Sort(names)
	f.storage.panics = names[0]
	reader := f.start(never, never)
	reader.read()
	want := int64(9)
	if f.storage.ofFirst == names[0] {
		want = 8
	}
	f.remain(reader, want)
	if len(troubles) != 1 || !strings.Contains(troubles[0], names[0]) || !strings.Contains(troubles[0], "panicked: a defect") {
		t.Errorf("the troubles are %q, want one of %s", troubles, names[0])
	}
	f.storage.panics = ""
	reader.read()
	f.remain(reader, 7)
}

// A storage that does not return when it shall give up, as a folder on a server that has gone, is told. Decisions go on.
func TestAStorageThatHangs(t *testing.T) {
	f := newFleet(t, minutely, time.Hour, time.Hour)
	f.config.Patience = 10 * time.Millisecond
	told := make(chan string, 100)
	f.config.Trouble = func(err error) { told <- err.Error() }
	a := f.start(never, never)
	f.storage.hang = make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.store.Run(ctx)
	}()
	must.Contain(t, <-told, "has not answered", "the trouble")
	if !a.store.Stats().Failing {
		t.Error("the store does not say that it fails")
	}
	f.use(a, 3)
	stop()
	close(f.storage.hang)
	<-ended
}

// Run reads at once, and writes a last time when it ends.
func TestRunWritesALastTime(t *testing.T) {
	f := newFleet(t, minutely, time.Hour, time.Hour)
	a := f.start(never, never)
	f.use(a, 3)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.store.Run(ctx)
	}()
	stop()
	<-ended
	b := f.start(never, never)
	f.remain(b, 7)
}
