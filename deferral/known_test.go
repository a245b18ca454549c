package deferral

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

func TestLinesKnowWhichKeysHaveJobs(t *testing.T) {
	var l Known
	want := func(what string, keys map[string]bool) {
		t.Helper()
		for key, held := range keys {
			if l.held(key) != held {
				t.Errorf("%s: %s is held: %v, want %v", what, key, !held, held)
			}
		}
	}
	want("at first", map[string]bool{"a": false})
	before := time.Now()
	l.note("a", "b", "c")
	want("noted", map[string]bool{"a": true, "b": true, "d": false})
	l.forget(before, "a")
	l.empty(before)
	want("Redis was asked before", map[string]bool{"a": true, "b": true})
	l.forget(time.Now(), "a", "d")
	want("a has none", map[string]bool{"a": false, "b": true})
	l.doubt("a", 1)
	l.doubt("a", 1)
	l.doubt("a", -1)
	want("one job of a is unconfirmed", map[string]bool{"a": true})
	l.empty(time.Now())
	want("the queue is empty", map[string]bool{"a": true, "b": false, "c": false})
	l.doubt("a", -1)
	want("it is confirmed", map[string]bool{"a": false})
	for i := range mostKnown + 1 {
		l.note(strconv.Itoa(i))
	}
	want("there are too many", map[string]bool{"0": true, "anybody": true})
	if len(l.keys) != mostKnown || len(l.some(10)) != 10 {
		t.Errorf("%d are known", len(l.keys))
	}
	l.empty(time.Now())
	want("the queue is empty again", map[string]bool{"0": false, "anybody": false})
}

// A node knows a second later what others have put into the lines, and what is gone; also what was there before it started.
func TestAWorkerFollowsTheLines(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxJobs, c.MaxKeyJobs, c.MaxBytes = 5000, 5000, 1<<30 })
	const before = mostAsked + 500 // more than one page
	ids := make([]string, before)
	for i := range ids {
		b.pass(time.Microsecond)
		ids[i] = b.enter(fmt.Sprint("before-", i), "")
	}
	w := &Worker{Queue: b.Queue, Known: new(Known), MostRunning: 0, Unsafe: true, Report: func(Event) {}}
	w.all, w.halt = context.WithCancel(context.Background())
	defer w.halt()
	follow := func() {
		w.followedAt = time.Time{}
		w.round()
	}
	follow()
	for _, key := range []string{"before-0", fmt.Sprint("before-", mostAsked), fmt.Sprint("before-", before-1)} {
		if !w.Known.held(key) {
			t.Errorf("%s is not known", key)
		}
	}
	b.pass(10 * time.Second)
	follow()
	other := b.enter("other", "")
	b.pass(-500 * time.Millisecond) // a clock that is adjusted
	b.enter("another", "")
	follow()
	if !w.Known.held("other") || !w.Known.held("another") || w.Known.held("nobody") {
		t.Error("it does not follow")
	}
	must(t, b.Cancel(context.Background(), other))
	must(t, b.Cancel(context.Background(), ids[0]))
	eventually(t, "what is gone is forgotten", func() bool {
		follow()
		return !w.Known.held("other") && !w.Known.held("before-0") && w.Known.held("before-1")
	})
	must(t, b.Client.FlushAll(context.Background()).Err())
	w.round()
	if w.Known.held("before-1") {
		t.Error("the queue is empty, and a key is held")
	}
}

// A client whose key has jobs is held while Redis does not answer, and while one of its jobs is unconfirmed. Others are not.
func TestWhoWouldOvertakeIsHeld(t *testing.T) {
	b := newBench(t, nil)
	q := queueOn(t, b.server.Addr(), nil)
	d := newAPI(q)
	fails := map[*goredis.Script]bool{}
	hook := &losses{errors.New("away"), func(s *goredis.Script, executed bool) bool { return fails[s] && !executed }}
	q.Client.AddHook(hook)
	ask := func(key string) error {
		_, err := d.Ask(asking("POST", "x"), key)
		return err
	}
	_, err := d.accept(t, asking("POST", "x"), "ann")
	must(t, err)
	fails[lookScript] = true
	wantErr(t, ask("ann"), ErrHeld)
	if err := ask("bob"); err == nil || errors.Is(err, ErrHeld) {
		t.Errorf("bob: %v", err)
	}
	fails[lookScript] = false
	must(t, ask("ann"))
	_, err = b.CancelKey(context.Background(), q.KeyDigest("ann"))
	must(t, err)
	must(t, ask("ann"))
	fails[lookScript] = true
	if err := ask("ann"); errors.Is(err, ErrHeld) {
		t.Errorf("ann, who has no jobs any more: %v", err)
	}
	fails[lookScript] = false
	d.Known.doubt(q.KeyDigest("ann"), 1)
	wantErr(t, ask("ann"), ErrHeld)
	must(t, ask("bob"))
}

// Defect found: of a job with a 202 that said unconfirmed, only its own node knew. When Redis answered again, the next request of the key was done before it at
// another node, or came before it in the line.
func TestAnUnconfirmedJobIsNotOvertakenAtAnotherNode(t *testing.T) {
	b := newBench(t, nil)
	q := queueOn(t, b.server.Addr(), nil)
	var away atomic.Bool
	away.Store(true)
	q.Client.AddHook(&losses{errors.New("away"), func(s *goredis.Script, executed bool) bool { return s == confirmScript && !executed && away.Load() }})
	a, other := newAPI(q), newAPI(b.Queue)
	other.Doubt = patience
	w, err := a.accept(t, asking("POST", "1"), "ann")
	must(t, err)
	if s := wantStatus(t, w, http.StatusAccepted); s.Status != Unconfirmed {
		t.Fatalf("%+v", s)
	}
	ask := func(key string) error {
		_, err := other.Ask(asking("POST", "2"), key)
		return err
	}
	must(t, ask("ann")) // its client may be waiting for its answer
	b.pass(patience / 2)
	wantErr(t, ask("ann"), ErrHeld)
	must(t, ask("bob"))
	b.enter(q.KeyDigest("ann"), "3") // of a node that had asked before
	wantErr(t, ask("ann"), ErrHeld)
	first := maps.Clone(other.Known.orphans)
	for id, at := range first {
		other.Known.orphans[id] = at.Add(-patience)
	}
	must(t, ask("ann")) // its node must have died
	other.Known.orphans = first
	wantErr(t, ask("ann"), ErrHeld)
	away.Store(false)
	eventually(t, "it is in the line", func() bool { return ask("ann") == nil })
	for id := range first {
		if j := b.job(id); j.State != Waiting || j.Position != 2 {
			t.Errorf("%+v", j)
		}
	}
	b.check()
}

// A node may have had no chance to put a job into the line while Redis was away, for a defect: that time counted, so two outages after each other let requests overtake
// the job.
func TestTheTimeOfADoubtfulJobBeginsAgainAfterAnOutage(t *testing.T) {
	b := newBench(t, nil)
	d := newAPI(b.Queue)
	begin := time.Now()
	doubtful := func(after time.Duration) bool {
		return d.Known.doubtful("k", []string{"job"}, begin.Add(after), time.Minute)
	}
	if !doubtful(0) {
		t.Error("a job is not doubtful when it is seen first")
	}
	b.server.Kill()
	if _, err := d.Ask(asking("POST", "x"), "k"); err == nil {
		t.Fatal("Redis is dead, and there is no error")
	}
	if !doubtful(time.Hour) {
		t.Error("the time in which Redis was away counts")
	}
	if doubtful(time.Hour + time.Minute) {
		t.Error("the job's node has had its time, and it is still doubtful")
	}
}
