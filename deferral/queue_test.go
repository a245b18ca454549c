package deferral

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	client "github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
)

// noon is when tests on a server with a clock begin.
var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// bench is a queue on a Redis whose clock stands still.
type bench struct {
	*Queue
	t      testing.TB
	server *redistest.Server
	now    time.Time
}

func newBench(t testing.TB, change func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, server: redistest.Start(t, redistest.WithClock())}
	b.Queue = queueOn(t, b.server.Addr(), change)
	b.set(noon)
	return b
}

// queueOn returns a queue on a server, with room for 100 jobs, 10 of a key. It waits for Redis so long that no reply is lost: on a clock that stands still no claim
// would end.
func queueOn(t testing.TB, addr string, change func(*Config)) *Queue {
	t.Helper()
	universal, err := client.NewUniversal(client.Config{Addresses: []string{addr}}, patience/2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = universal.Close() })
	c := Config{Client: universal, Prefix: "weir:", Name: "/orders", MaxJobs: 100, MaxKeyJobs: 10, MaxBytes: 1 << 20,
		Keep: time.Hour, KeepDead: 24 * time.Hour, Lease: time.Minute, Timeout: patience / 2}
	if change != nil {
		change(&c)
	}
	return NewQueue(c)
}

func (b *bench) set(now time.Time) {
	b.now = now
	b.server.SetTime(now.UnixMicro())
}

func (b *bench) pass(d time.Duration) { b.set(b.now.Add(d)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// enter stores a request of a key with that body, and returns its id.
func (b *bench) enter(key, body string) string {
	b.t.Helper()
	got, err := b.Enter(context.Background(), entry(key, body))
	must(b.t, err)
	return got.ID
}

func entry(key, body string) *Entry {
	return &Entry{ID: NewID(), Key: key, Request: &Request{Method: "POST", URI: "/orders", Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte(body)}}
}

// claimOne claims a key, which must be that of the job with that id.
func (b *bench) claimOne(id string) *Job {
	b.t.Helper()
	c, err := b.claim(context.Background(), 1)
	must(b.t, err)
	if len(c.Jobs) != 1 || c.Jobs[0].ID != id {
		b.t.Fatalf("claimed %d jobs, want %s", len(c.Jobs), id)
	}
	return c.Jobs[0]
}

func (b *bench) claimNone() claims {
	b.t.Helper()
	c, err := b.claim(context.Background(), 10)
	must(b.t, err)
	if len(c.Jobs) != 0 {
		b.t.Fatalf("claimed %s, want nothing", c.Jobs[0].ID)
	}
	return c
}

// begin begins an attempt at a claimed job.
func begin(b *bench, j *Job) error {
	_, err := b.start(context.Background(), j, time.Minute)
	return err
}

func (b *bench) job(id string) *Job {
	b.t.Helper()
	j, err := b.Get(context.Background(), id)
	must(b.t, err)
	return j
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func TestAJobIsStoredClaimedAndDone(t *testing.T) {
	b := newBench(t, nil)
	ctx := context.Background()
	id := b.enter("k", "one")
	j := b.job(id)
	if j.State != Waiting || j.Position != 1 || !j.Accepted.Equal(noon) || !j.Due.Equal(noon) {
		t.Fatalf("stored: %+v", j)
	}
	_, r, err := b.RequestOf(ctx, id)
	must(t, err)
	if string(r.Body) != "one" || r.Method != "POST" || r.URI != "/orders" || r.Header.Get("Content-Type") != "text/plain" {
		t.Fatalf("stored: %+v", r)
	}
	claimed := b.claimOne(id)
	b.claimNone()
	must(t, begin(b, claimed))
	if j = b.job(id); j.State != Running || j.Attempts != 1 {
		t.Fatalf("started: %+v", j)
	}
	wantErr(t, b.Cancel(ctx, id), ErrRuns)
	b.pass(time.Second)
	must(t, b.finish(ctx, claimed, Done, "", &Answer{Status: 201, Header: http.Header{"Location": {"/orders/1"}}, Body: []byte("ordered")}, 0))
	j, answer, err := b.Result(ctx, id)
	must(t, err)
	if j.State != Done || j.Status != 201 || !j.Ended.Equal(b.now) || j.Position != 0 || answer == nil || answer.Status != 201 || string(answer.Body) != "ordered" || answer.Header.Get("Location") != "/orders/1" {
		t.Fatalf("done: %+v %+v", j, answer)
	}
	if _, r, _ := b.RequestOf(ctx, id); r != nil {
		t.Error("the request of a job that is done is still stored")
	}
	b.check()
}

func TestJobsOfAKeyAreClaimedInOrderAndOneAtATime(t *testing.T) {
	b := newBench(t, nil)
	ctx := context.Background()
	first, second, other := b.enter("k", "1"), b.enter("k", "2"), b.enter("other", "3")
	c, err := b.claim(ctx, 10)
	must(t, err)
	if len(c.Jobs) != 2 || c.Jobs[0].ID != first && c.Jobs[1].ID != first || c.Jobs[0].ID != other && c.Jobs[1].ID != other {
		t.Fatalf("claimed %d jobs, want the first of each key", len(c.Jobs))
	}
	j := c.Jobs[0]
	if j.ID != first {
		j = c.Jobs[1]
	}
	must(t, begin(b, j))
	must(t, b.putBack(ctx, j, time.Second, failed)) // it has failed, and nobody overtakes it
	if got := b.claimNone(); !got.Next.Equal(noon.Add(time.Second)) {
		t.Errorf("the next turn is %s, want in a second", got.Next)
	}
	b.pass(time.Second)
	j = b.claimOne(first)
	if j.Attempts != 1 {
		t.Errorf("%d attempts, want 1", j.Attempts)
	}
	must(t, begin(b, j))
	must(t, b.finish(ctx, j, Dead, "502", nil, 0))
	b.claimOne(second)
	b.check()
}

func TestTheTurnsOfKeysAreFair(t *testing.T) {
	b := newBench(t, nil)
	ctx := context.Background()
	var got []string
	for i := range 3 {
		b.enter("many", strconv.Itoa(i))
	}
	b.pass(time.Microsecond)
	b.enter("few", "x")
	for range 4 {
		b.pass(time.Microsecond)
		c, err := b.claim(ctx, 1)
		must(t, err)
		got = append(got, c.Jobs[0].Key)
		must(t, begin(b, c.Jobs[0]))
		must(t, b.finish(ctx, c.Jobs[0], Done, "", nil, 0))
	}
	if want := "many few many many"; strings.Join(got, " ") != want {
		t.Errorf("turns %s, want %s", got, want)
	}
}

func TestTheBoundsHold(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxJobs, c.MaxKeyJobs, c.MaxBytes = 5, 3, 5*(Overhead+1000) })
	ctx := context.Background()
	why := func(e *Entry) string {
		_, err := b.Enter(ctx, e)
		var full *FullError
		if !errors.As(err, &full) {
			t.Fatalf("error %v, want that there is no room", err)
		}
		return full.Why
	}
	for range 3 {
		b.enter("k", "")
	}
	if got := why(entry("k", "")); got != "key" {
		t.Errorf("the fourth of a key: %s, want key", got)
	}
	if look, err := b.Look(ctx, "k", "", time.Second); err != nil || look.Full != "key" || look.Waiting != 3 {
		t.Errorf("look: %+v, %v", look, err)
	}
	if got := why(entry("l", strings.Repeat("x", 8000))); got != "bytes" {
		t.Errorf("too many bytes: %s, want bytes", got)
	}
	b.enter("l", "")
	b.enter("m", "")
	if got := why(entry("n", "")); got != "jobs" {
		t.Errorf("the sixth: %s, want jobs", got)
	}
	if look, err := b.Look(ctx, "n", "", time.Second); err != nil || look.Full != "jobs" {
		t.Errorf("look: %+v, %v", look, err)
	}
	must(t, b.Drain(ctx, true))
	if got := why(entry("n", "")); got != "drain" {
		t.Errorf("draining: %s, want drain", got)
	}
	must(t, b.Drain(ctx, false))
	b.check()
}

func TestOldResultsMakeRoomForNewJobs(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxBytes = 3*Overhead + 3000 })
	ctx := context.Background()
	do := func(body, result string) string {
		id := b.enter("k", body)
		j := b.claimOne(id)
		must(t, begin(b, j))
		must(t, b.finish(ctx, j, Done, "", &Answer{Status: 200, Body: []byte(result)}, 0))
		b.pass(time.Second)
		return id
	}
	first := do("", strings.Repeat("r", 1000))
	second := do("", strings.Repeat("r", 1000))
	b.enter("l", strings.Repeat("x", 1500)) // needs the first's result
	if j := b.job(first); j.State != Done || j.HasResult {
		t.Errorf("the first: %+v, want that its result is gone", j)
	}
	if j := b.job(second); !j.HasResult {
		t.Errorf("the second has no result, though there is room")
	}
	j, answer, err := b.Result(ctx, first)
	if err != nil || answer != nil || j.State != Done {
		t.Errorf("its result: %+v %+v %v", j, answer, err)
	}
	b.check()
	b.enter("l", strings.Repeat("x", 1500)) // needs everything of jobs that are done
	if _, err := b.Get(ctx, first); err != ErrUnknown {
		t.Errorf("the first: %v, want that it is forgotten", err)
	}
	b.check()
}

func TestAResultThatIsTooLongIsNotKept(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxBytes = 2 * Overhead })
	ctx := context.Background()
	id := b.enter("k", "")
	j := b.claimOne(id)
	must(t, begin(b, j))
	must(t, b.finish(ctx, j, Done, "", &Answer{Status: 200, Body: make([]byte, 4*Overhead)}, 0))
	if j := b.job(id); j.State != Done || j.Status != 200 || j.HasResult {
		t.Errorf("%+v, want that it is done without a result", j)
	}
	b.check()
}

func TestTheSameIdempotencyKeyIsTheSameJob(t *testing.T) {
	b := newBench(t, nil)
	ctx := context.Background()
	with := func(print string) Entered {
		e := entry("k", print)
		e.Once, e.Fingerprint = "once", []byte(print)
		got, err := b.Enter(ctx, e)
		must(t, err)
		return got
	}
	first := with("a")
	again := with("b")
	if !again.Same || again.ID != first.ID || string(again.Fingerprint) != "a" {
		t.Errorf("again: %+v, want %s", again, first.ID)
	}
	if look, err := b.Look(ctx, "k", "once", time.Second); err != nil || look.ID != first.ID || string(look.Fingerprint) != "a" {
		t.Errorf("look: %+v, %v", look, err)
	}
	must(t, b.Cancel(ctx, first.ID))
	if third := with("c"); third.Same {
		t.Errorf("after the job was cancelled: %+v, want a new one", third)
	}
	b.check()
}

// What may be sent again after a lost reply does nothing the second time.
func TestStoringAJobTwiceStoresOne(t *testing.T) {
	b := newBench(t, nil)
	e := entry("k", "")
	for range 2 {
		got, err := b.Enter(context.Background(), e)
		must(t, err)
		if got.ID != e.ID || got.Position != 1 {
			t.Fatalf("%+v", got)
		}
	}
	b.check()
}

// A job that is stored and not confirmed is in no line: no worker takes it, whatever happens to Redis and to the node that has stored it.
func TestAJobIsInTheLineOnceItIsCertain(t *testing.T) {
	b := newBench(t, nil)
	ctx := context.Background()
	lost := errors.New("the connection broke")
	for name, c := range map[string]struct {
		fail    func(s *goredis.Script, executed bool) bool // which of the scripts has no reply
		want    error
		inLine  bool
		promise bool // Confirm is called afterwards
	}{
		"the first step is not executed":  {func(s *goredis.Script, executed bool) bool { return s == enterScript && !executed }, lost, false, false},
		"nobody knows of the first step":  {func(s *goredis.Script, executed bool) bool { return s == enterScript && executed }, lost, false, false},
		"the second step is not executed": {func(s *goredis.Script, executed bool) bool { return s == confirmScript && !executed }, ErrUnconfirmed, false, true},
		"nobody knows of the second step": {func(s *goredis.Script, executed bool) bool { return s == confirmScript && executed }, ErrUnconfirmed, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			q := queueOn(t, b.server.Addr(), func(c *Config) { c.MaxJobs, c.MaxKeyJobs, c.MaxBytes = 10, 10, 100*Overhead })
			q.Client.AddHook(&losses{lost, c.fail})
			e := entry("k", "body")
			_, err := q.Enter(ctx, e)
			wantErr(t, err, c.want)
			list, err := b.ListKey(ctx, "k", 0, 10)
			must(t, err)
			if inLine := len(list) == 1; inLine != c.inLine {
				t.Errorf("in the line: %v, want %v", inLine, c.inLine)
			}
			b.check()
			if !c.promise {
				b.claimNone()
				if err := b.Withdraw(ctx, e.ID); err != nil && !errors.Is(err, ErrUnknown) {
					t.Error(err)
				}
				_, err = b.Get(ctx, e.ID)
				wantErr(t, err, ErrUnknown)
				b.check()
				return
			}
			for range 2 {
				got, err := b.Confirm(ctx, e, true)
				must(t, err)
				if got.ID != e.ID || got.Position != 1 {
					t.Errorf("%+v", got)
				}
			}
			wantErr(t, b.Withdraw(ctx, e.ID), ErrRuns)
			b.check()
			j := b.claimOne(e.ID)
			must(t, begin(b, j))
			must(t, b.finish(ctx, j, Done, "", nil, 0))
			_, err = b.Confirm(ctx, e, true) // as a late one
			must(t, err)
			b.claimNone()
			b.check()
		})
	}
}

// losses loses the replies of some scripts, or the scripts themselves.
type losses struct {
	err  error
	fail func(s *goredis.Script, executed bool) bool
}

func (l *losses) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (l *losses) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (l *losses) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		fails := func(executed bool) bool {
			return slices.ContainsFunc([]*goredis.Script{enterScript, confirmScript, lookScript}, func(s *goredis.Script) bool {
				text, _ := cmd.Args()[1].(string) // its hash, or itself
				return (text == s.Hash() || fmt.Sprintf("%x", sha1.Sum([]byte(text))) == s.Hash()) && l.fail(s, executed)
			})
		}
		if !fails(false) {
			if err := next(ctx, cmd); err != nil || !fails(true) {
				return err
			}
		}
		cmd.SetErr(l.err)
		return l.err
	}
}

// A job for which there is no room is never put into the line by what comes late. If it was promised all the same, since nobody knew, it is.
func TestAJobWithoutRoomIsInNoLineUnlessItWasPromised(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxJobs, c.MaxKeyJobs = 1, 1 })
	ctx := context.Background()
	first := b.enter("k", "")
	b.Client.AddHook(&losses{errors.New("lost"), func(s *goredis.Script, executed bool) bool { return s == confirmScript && executed }})
	e := entry("k", "")
	_, err := b.Enter(ctx, e)
	wantErr(t, err, ErrUnconfirmed)
	other := queueOn(t, b.server.Addr(), nil)
	must(t, other.Cancel(ctx, first))
	_, err = other.confirm(ctx, e, false)
	if full := new(FullError); !errors.As(err, &full) || full.Why != "jobs" {
		t.Errorf("error %v, want that there is no room", err)
	}
	b.claimNone()
	_, err = other.Confirm(ctx, e, true)
	must(t, err)
	b.claimOne(e.ID)
	b.check()
}

// What a node has left unconfirmed and not withdrawn goes after a day.
func TestWhatStaysUnconfirmedIsForgotten(t *testing.T) {
	b := newBench(t, nil)
	e := entry("k", "")
	b.Client.AddHook(&losses{errors.New("lost"), func(s *goredis.Script, executed bool) bool {
		return s == confirmScript && !executed && b.now.Equal(noon)
	}})
	_, err := b.Enter(context.Background(), e)
	wantErr(t, err, ErrUnconfirmed)
	if j := b.job(e.ID); j.State != Unconfirmed || j.Position != 0 {
		t.Errorf("%+v", j)
	}
	b.pass(24*time.Hour + time.Second)
	b.claimNone()
	_, err = b.Get(context.Background(), e.ID)
	wantErr(t, err, ErrUnknown)
	_, err = b.Confirm(context.Background(), e, true)
	wantErr(t, err, ErrUnknown)
	b.check()
}

func TestADeadNodesJobIsRetaken(t *testing.T) {
	b := newBench(t, nil)
	ctx := context.Background()
	id, next := b.enter("k", "1"), b.enter("k", "2")
	b.claimOne(id)
	b.pass(claimFor)
	dead := b.claimOne(id) // it had not started, so its lease was short
	must(t, begin(b, dead))
	b.pass(b.Lease - 1000)
	b.claimNone()
	must(t, b.renew(ctx, dead))
	b.pass(b.Lease - 1000)
	if c := b.claimNone(); !c.Next.Equal(b.now.Add(1000)) {
		t.Errorf("to ask again at %s, want when the lease ends", c.Next)
	}
	b.pass(1000)
	j := b.claimOne(id)
	if j.Attempts != 1 {
		t.Errorf("%d attempts, want 1", j.Attempts)
	}
	// The dead one comes back: none of its steps has an effect.
	wantErr(t, begin(b, dead), ErrLost)
	wantErr(t, b.renew(ctx, dead), ErrLost)
	wantErr(t, b.putBack(ctx, dead, 0, failed), ErrLost)
	wantErr(t, b.finish(ctx, dead, Done, "", nil, 0), ErrLost)
	must(t, begin(b, j))
	must(t, b.finish(ctx, j, Done, "", nil, 0))
	b.claimOne(next)
	sums, err := b.Sums(ctx)
	must(t, err)
	if sums.Retaken != 1 || sums.Attempts != 2 || sums.Accepted != 2 || sums.Done != 1 || sums.Open != 1 {
		t.Errorf("%+v", sums)
	}
	b.check()
}

func TestACancelledJobIsNotStarted(t *testing.T) {
	b := newBench(t, nil)
	ctx := context.Background()
	first, second := b.enter("k", "1"), b.enter("k", "2")
	j := b.claimOne(first)
	must(t, b.Cancel(ctx, first))
	wantErr(t, begin(b, j), ErrGone)
	must(t, b.putBack(ctx, j, 0, failed))
	j = b.claimOne(second)
	must(t, b.Cancel(ctx, second))
	must(t, b.putBack(ctx, j, 0, failed))
	b.claimNone()
	third := b.enter("k", "3")
	b.claimOne(third)
	b.check()
}

// A key whose only job was cancelled while a worker had claimed it is still claimed when the next job comes.
func TestAJobOfAClaimedKeyWaitsForTheClaim(t *testing.T) {
	b := newBench(t, nil)
	ctx := context.Background()
	first := b.enter("k", "1")
	j := b.claimOne(first)
	must(t, b.Cancel(ctx, first))
	second := b.enter("k", "2")
	b.claimNone()
	b.check()
	must(t, b.putBack(ctx, j, 0, failed))
	b.claimOne(second)
}

func TestADeadLetterIsTriedAgain(t *testing.T) {
	b := newBench(t, nil)
	ctx := context.Background()
	id := b.enter("k", "1")
	wantErr(t, b.Retry(ctx, "nobody"), ErrUnknown)
	if err := b.Retry(ctx, id); err == nil || !strings.Contains(err.Error(), "waiting") {
		t.Errorf("error %v, want that it waits", err)
	}
	j := b.claimOne(id)
	must(t, begin(b, j))
	must(t, b.finish(ctx, j, Dead, "no answer", &Answer{Status: 502, Body: []byte("bad")}, 0))
	letters, next, err := b.List(ctx, SetDead, Mark{}, 10)
	must(t, err)
	if next != (Mark{}) || len(letters) != 1 || letters[0].ID != id || letters[0].Reason != "no answer" || letters[0].Status != 502 {
		t.Fatalf("%+v", letters)
	}
	b.check()
	must(t, b.Retry(ctx, id))
	if j := b.job(id); j.State != Waiting || j.Attempts != 0 || j.Reason != "" || j.HasResult {
		t.Errorf("%+v", j)
	}
	b.check()
	j = b.claimOne(id)
	if r, err := b.open(j); err != nil || string(r.Body) != "1" {
		t.Errorf("%+v %v", r, err)
	}
}

// end has the first job of each key done, or dead.
func (b *bench) end(state State, keys int) {
	b.t.Helper()
	ctx := context.Background()
	c, err := b.claim(ctx, keys)
	must(b.t, err)
	if len(c.Jobs) != keys {
		b.t.Fatalf("claimed %d jobs, want %d", len(c.Jobs), keys)
	}
	for _, j := range c.Jobs {
		must(b.t, begin(b, j))
		must(b.t, b.finish(ctx, j, state, "", &Answer{Status: 200}, 0))
	}
}

// Redis's clock stands still for some of the jobs, so that they have the same time.
func TestJobsAreListedPageByPage(t *testing.T) {
	b := newBench(t, nil)
	ctx := context.Background()
	want := make(map[string]bool)
	for i := range 25 {
		want[b.enter("k"+strconv.Itoa(i), "")] = true
		if i%10 == 9 {
			b.pass(time.Second)
		}
	}
	b.wantPages(ctx, SetOpen, want)
	b.end(Dead, len(want))
	b.wantPages(ctx, SetDead, want)
	b.wantPages(ctx, SetOpen, nil)
}

// wantPages checks that the pages of a set have each of the jobs once, in the order of time.
func (b *bench) wantPages(ctx context.Context, set string, want map[string]bool) {
	b.t.Helper()
	for _, size := range []int{1, 7, 25, 1000} {
		seen := make(map[string]bool)
		var before Mark
		for after := (Mark{}); ; {
			jobs, next, err := b.List(ctx, set, after, size)
			must(b.t, err)
			for _, j := range jobs {
				if seen[j.ID] || !want[j.ID] || j.Mark().Time.Before(before.Time) {
					b.t.Errorf("%s by %d: %s comes again, or out of order, or is none of them", set, size, j.ID)
				}
				seen[j.ID] = true
				before = j.Mark()
			}
			if next == (Mark{}) {
				break
			}
			after = next
		}
		if len(seen) != len(want) {
			b.t.Errorf("%s by %d: %d jobs, want %d", set, size, len(seen), len(want))
		}
	}
}

func TestAllJobsOfAKeyAreCancelled(t *testing.T) {
	b := newBench(t, nil)
	ctx := context.Background()
	first, other := b.enter("k", "1"), b.enter("other", "1")
	for range 4 {
		b.enter("k", "")
	}
	c, err := b.claim(ctx, 1)
	must(t, err)
	must(t, begin(b, c.Jobs[0]))
	jobs, err := b.ListKey(ctx, "k", 1, 3)
	must(t, err)
	if len(jobs) != 3 || jobs[0].Position != 2 || jobs[2].Position != 4 {
		t.Errorf("%+v, want the second to the fourth", jobs)
	}
	if n, err := b.CancelKey(ctx, "k"); n != 4 || err != nil {
		t.Errorf("%d, %v, want the 4 that wait", n, err)
	}
	b.check()
	if j := b.job(first); j.State != Running {
		t.Errorf("%+v, want that the first goes on", j)
	}
	must(t, b.finish(ctx, c.Jobs[0], Done, "", nil, 0))
	if n, err := b.CancelKey(ctx, "other"); n != 1 || err != nil {
		t.Errorf("%d, %v, want the one", n, err)
	}
	_, err = b.Get(ctx, other)
	wantErr(t, err, ErrUnknown)
	b.claimNone()
	b.check()
}

// Without memory, too: an operator purges to get some.
func TestPurge(t *testing.T) {
	for _, full := range []bool{false, true} {
		b := newBench(t, nil)
		ctx := context.Background()
		dead := b.enter("k", "")
		b.end(Dead, 1)
		b.pass(time.Hour)
		young := b.enter("k", "")
		b.end(Dead, 1)
		waiting := b.enter("k", "")
		if full {
			b.server.MustDo(t, "CONFIG", "SET", "maxmemory", "1")
		}
		for _, dry := range []bool{true, false} {
			purged, left, err := b.Purge(ctx, SetDead, time.Hour, dry)
			if err != nil || purged+left != 1 || (purged == 0) != dry {
				t.Errorf("dry %v: purged %d, left %d, %v", dry, purged, left, err)
			}
		}
		_, err := b.Get(ctx, dead)
		wantErr(t, err, ErrUnknown)
		b.job(young)
		b.job(waiting)
		must(t, b.Cancel(ctx, waiting))
		b.server.MustDo(t, "CONFIG", "SET", "maxmemory", "0")
		b.check()
	}
}

func TestWhatIsOldIsForgotten(t *testing.T) {
	b := newBench(t, nil)
	ctx := context.Background()
	e := entry("k", "")
	e.Once = "once"
	_, err := b.Enter(ctx, e)
	must(t, err)
	dead := b.enter("l", "")
	for range 2 {
		c, err := b.claim(ctx, 1)
		must(t, err)
		j := c.Jobs[0]
		must(t, begin(b, j))
		state := Done
		if j.ID == dead {
			state = Dead
		}
		must(t, b.finish(ctx, j, state, "", &Answer{Status: 200}, 0))
	}
	waiting := b.enter("m", "")
	b.pass(b.Keep)
	b.claimOne(waiting)
	if j := b.job(e.ID); j.HasResult || j.State != Done {
		t.Errorf("%+v, want that it is done, and its result gone", j)
	}
	b.check()
	b.pass(b.Keep)
	b.claimOne(waiting)
	_, err = b.Get(ctx, e.ID)
	wantErr(t, err, ErrUnknown)
	if look, err := b.Look(ctx, "k", "once", time.Second); err != nil || look.ID != "" {
		t.Errorf("%+v %v, want that its Idempotency-Key is forgotten", look, err)
	}
	b.job(dead)
	b.pass(b.KeepDead)
	b.claimOne(waiting)
	_, err = b.Get(ctx, dead)
	wantErr(t, err, ErrUnknown)
	b.job(waiting) // however long it waits
	b.check()
}

func TestUnsafeRedisIsFound(t *testing.T) {
	server := redistest.Start(t)
	q := queueOn(t, server.Addr(), nil)
	for _, c := range []struct{ aof, policy, want string }{
		{"no", "noeviction", "append-only file"},
		{"yes", "volatile-lru", "noeviction"},
		{"yes", "noeviction", ""},
	} {
		server.MustDo(t, "CONFIG", "SET", "appendonly", c.aof)
		server.MustDo(t, "CONFIG", "SET", "maxmemory-policy", c.policy)
		err := q.CheckDurability(context.Background())
		var unsafe *UnsafeError
		if c.want == "" {
			must(t, err)
		} else if !errors.As(err, &unsafe) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("appendonly %s, %s: error %v, want %s", c.aof, c.policy, err, c.want)
		}
	}
	server.MustDo(t, "ACL", "SETUSER", "default", "-info")
	if err := q.CheckDurability(context.Background()); !errors.As(err, new(*UnsafeError)) || !strings.Contains(err.Error(), "allow the user INFO") {
		t.Errorf("without the right to INFO: %v", err)
	}
}

func TestJobsNeedAcknowledgingReplicas(t *testing.T) {
	server := redistest.Start(t)
	q := queueOn(t, server.Addr(), func(c *Config) { c.Replicas, c.Timeout = 1, 2*time.Second })
	_, err := q.Enter(context.Background(), entry("k", ""))
	wantErr(t, err, ErrNotReplicated)
	replica := redistest.Start(t)
	host, port, _ := strings.Cut(server.Addr(), ":")
	replica.MustDo(t, "REPLICAOF", host, port)
	eventually(t, "the replica acknowledges a job", func() bool {
		_, err := q.Enter(context.Background(), entry("k", ""))
		return err == nil
	})
}

// Nothing is stored, as a whole or in part; and what is stored already is done, which frees memory.
func TestAServerWithoutMemoryStoresNothingAndDoesWhatItHas(t *testing.T) {
	b := newBench(t, nil)
	ctx := context.Background()
	running, claimed, waiting, dead := b.enter("k", "1"), b.enter("l", "2"), b.enter("k", "3"), b.enter("m", "4")
	byKey := make(map[string]*Job)
	c, err := b.claim(ctx, 10)
	must(t, err)
	for _, j := range c.Jobs {
		byKey[j.Key] = j
	}
	must(t, begin(b, byKey["k"]))
	must(t, begin(b, byKey["m"]))
	must(t, b.finish(ctx, byKey["m"], Dead, "", nil, 0))
	b.server.MustDo(t, "CONFIG", "SET", "maxmemory", "1")
	before := b.dump()
	for name, do := range map[string]func() error{
		"Enter": func() error { _, err := b.Enter(ctx, entry("m", "")); return err },
		"Retry": func() error { return b.Retry(ctx, dead) },
		"Drain": func() error { return b.Drain(ctx, true) },
	} {
		if err := do(); err == nil {
			t.Errorf("%s: no error", name)
		}
		if after := b.dump(); after != before {
			t.Errorf("%s has changed something:\n%s\n%s", name, before, after)
		}
	}
	must(t, begin(b, byKey["l"]))
	must(t, b.renew(ctx, byKey["l"]))
	must(t, b.putBack(ctx, byKey["l"], 0, failed))
	b.claimOne(claimed)
	must(t, b.finish(ctx, byKey["k"], Done, "", &Answer{Status: 200}, 0))
	if j := b.job(running); j.State != Done || !j.HasResult {
		t.Errorf("%+v, want that it is done, with its result", j)
	}
	must(t, b.Cancel(ctx, waiting))
	b.server.MustDo(t, "CONFIG", "SET", "maxmemory", "0")
	b.check()
}

// dump returns all that is stored.
func (b *bench) dump() string {
	var out []string
	keys, err := b.Client.Keys(context.Background(), "*").Result()
	must(b.t, err)
	slices.Sort(keys)
	for _, key := range keys {
		fields, err := b.Client.HGetAll(context.Background(), key).Result()
		if err == nil {
			out = append(out, fmt.Sprintf("%s %q", key, fields))
			continue
		}
		text, err := b.Client.Dump(context.Background(), key).Result()
		must(b.t, err)
		out = append(out, fmt.Sprintf("%s %x", key, text))
	}
	return strings.Join(out, "\n")
}

// check fails the test if the keys of the queue contradict each other.
func (b *bench) check() {
	b.t.Helper()
	ctx := context.Background()
	set := func(name string) map[string]float64 {
		all, err := b.Client.ZRangeWithScores(ctx, b.prefix+name, 0, -1).Result()
		must(b.t, err)
		m := make(map[string]float64)
		for _, z := range all {
			m[z.Member.(string)] = z.Score
		}
		return m
	}
	due, held, open, results, ended, dead, unconfirmed := set("due"), set("held"), set("open"), set("results"), set("ended"), set("dead"), set("unconfirmed")
	fences, err := b.Client.HGetAll(ctx, b.prefix+"fences").Result()
	must(b.t, err)
	keys, err := b.Client.Keys(ctx, b.prefix+"*").Result()
	must(b.t, err)
	var bytes int64
	queued := make(map[string]string)
	jobs := make(map[string]map[string]string)
	for _, key := range keys {
		kind, name, _ := strings.Cut(strings.TrimPrefix(key, b.prefix), ":")
		switch kind {
		case "job":
			jobs[name], err = b.Client.HGetAll(ctx, key).Result()
			must(b.t, err)
		case "queue":
			ids, err := b.Client.LRange(ctx, key, 0, -1).Result()
			must(b.t, err)
			for _, id := range ids {
				queued[id] = name
			}
			_, isDue := due[name]
			_, isHeld := held[name]
			if isDue == isHeld {
				b.t.Errorf("key %s with jobs: due %v, held %v", name, isDue, isHeld)
			}
		}
	}
	for key := range due {
		if n, _ := b.Client.LLen(ctx, b.prefix+"queue:"+key).Result(); n == 0 {
			b.t.Errorf("key %s is due and has no jobs", key)
		}
	}
	if len(held) != len(fences) {
		b.t.Errorf("%d keys are held, and there are %d fences", len(held), len(fences))
	}
	for id, j := range jobs {
		size, _ := strconv.ParseInt(j["z"], 10, 64)
		bytes += size
		if want := int64(len(j["b"]) + len(j["r"]) + Overhead); size != want {
			b.t.Errorf("job %s counts for %d bytes, want %d", id, size, want)
		}
		key, isQueued := queued[id]
		_, isOpen := open[id]
		_, hasResult := results[id]
		_, isEnded := ended[id]
		_, isDead := dead[id]
		_, isUnconfirmed := unconfirmed[id]
		waits := j["s"] == "waiting" || j["s"] == "running"
		if isQueued != waits || isOpen != waits || isQueued && key != j["q"] || isEnded != (j["s"] == "done") || isDead != (j["s"] == "dead") || isUnconfirmed != (j["s"] == "unconfirmed") || hasResult != (j["r"] != "") {
			b.t.Errorf("job %s is %s: unconfirmed %v, queued %v, open %v, ended %v, dead %v, result %v", id, j["s"], isUnconfirmed, isQueued, isOpen, isEnded, isDead, hasResult)
		}
		if _, isHeld := held[j["q"]]; j["s"] == "running" && !isHeld {
			b.t.Errorf("job %s runs, and nobody holds its key", id)
		}
	}
	for name, set := range map[string]map[string]float64{"unconfirmed": unconfirmed, "open": open, "results": results, "ended": ended, "dead": dead} {
		for id := range set {
			if jobs[id] == nil {
				b.t.Errorf("%s has the job %s, which is none", name, id)
			}
		}
	}
	for id := range queued {
		if jobs[id] == nil {
			b.t.Errorf("the job %s is queued, and is none", id)
		}
	}
	if got, _ := b.Client.HGet(ctx, b.prefix+"sums", "bytes").Int64(); got != bytes {
		b.t.Errorf("%d bytes are counted, want %d", got, bytes)
	}
	if bytes > b.MaxBytes {
		b.t.Errorf("%d bytes are stored, more than %d", bytes, b.MaxBytes)
	}
}

// Whatever clients, workers and operators do, in whichever order, and whichever of them die: nothing in Redis contradicts itself, no job is
// lost, and the jobs of a key begin in their order.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 23))
			b := newBench(t, func(c *Config) { c.MaxJobs, c.MaxKeyJobs, c.MaxBytes = 20, 6, 30*Overhead })
			ctx := context.Background()
			lost := errors.New("the reply is lost")
			uncertain := [3]*Queue{0: b.Queue}
			for i, step := range []*goredis.Script{enterScript, confirmScript} {
				uncertain[i+1] = queueOn(t, b.server.Addr(), func(c *Config) {
					its := c.Client
					*c = b.Config
					c.Client = its
				})
				uncertain[i+1].Client.AddHook(&losses{lost, func(s *goredis.Script, executed bool) bool { return s == step && executed == (random.IntN(2) == 0) }})
			}
			accepted := make(map[string][]string) // ids by key, in order
			gone := make(map[string]bool)         // that have ended, or were cancelled
			var mine []*Job                       // claimed, whether the lease has ended or not
			var all []string
			begun := make(map[string]int) // by key, the place of the job that has begun last
			for range 400 {
				switch n := random.IntN(100); {
				case n < 30:
					key := strconv.Itoa(random.IntN(5))
					e := entry(key, strings.Repeat("x", random.IntN(500)))
					if random.IntN(4) == 0 {
						e.Once = strconv.Itoa(random.IntN(5))
					}
					got, err := uncertain[random.IntN(3)].Enter(ctx, e)
					if errors.Is(err, ErrUnconfirmed) { // sooner or later
						got, err = b.Confirm(ctx, e, true)
					}
					if errors.Is(err, lost) {
						if random.IntN(2) == 0 {
							_ = b.Withdraw(ctx, e.ID)
						}
						continue
					}
					if err == nil && !got.Same {
						accepted[key] = append(accepted[key], got.ID)
						all = append(all, got.ID)
					} else if err != nil && !errors.As(err, new(*FullError)) {
						t.Fatal(err)
					}
				case n < 50:
					c, err := b.claim(ctx, 1+random.IntN(3))
					must(t, err)
					mine = append(mine, c.Jobs...)
				case n < 75 && len(mine) > 0:
					i := random.IntN(len(mine))
					j := mine[i]
					if err := begin(b, j); err == nil {
						place := slices.Index(accepted[j.Key], j.ID)
						if place < begun[j.Key] {
							t.Fatalf("key %s: the job at %d begins after the one at %d", j.Key, place, begun[j.Key])
						}
						for _, before := range accepted[j.Key][:place] {
							if !gone[before] {
								t.Fatalf("key %s: a job begins before one that came before it has ended", j.Key)
							}
						}
						begun[j.Key] = place
					}
				case n < 90 && len(mine) > 0:
					i := random.IntN(len(mine))
					j := mine[i]
					mine = slices.Delete(mine, i, i+1)
					switch random.IntN(5) {
					case 0:
						_ = b.putBack(ctx, j, time.Duration(random.IntN(2_000_000))*time.Microsecond, []string{unused, failed, broken}[random.IntN(3)])
					case 1: // its node dies
					default:
						if b.finish(ctx, j, []State{Done, Dead}[random.IntN(2)], "", &Answer{Status: 200, Body: make([]byte, random.IntN(500))}, 0) == nil {
							gone[j.ID] = true
						}
					}
				case n < 93 && len(all) > 0:
					id := all[random.IntN(len(all))]
					if b.Cancel(ctx, id) == nil {
						gone[id] = true
					}
				default:
					b.pass(time.Duration(random.Int64N(int64(b.Lease / 2))))
				}
			}
			b.check()
			for key, ids := range accepted { // what has not ended is still to come, in order
				var want []string
				for _, id := range ids {
					if !gone[id] {
						want = append(want, id)
					}
				}
				got, err := b.Client.LRange(ctx, b.prefix+"queue:"+key, 0, -1).Result()
				if err != nil && !errors.Is(err, goredis.Nil) || !slices.Equal(got, want) {
					t.Fatalf("key %s: %v, want %v", key, got, want)
				}
			}
		})
	}
}
