package deferral

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
)

// patience is how long tests wait for what must happen.
const patience = time.Minute

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for began := time.Now(); !condition(); time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("it never happened that %s", what)
		}
	}
}

// crew is a worker whose attempts the test sees.
type crew struct {
	*Worker
	mu     sync.Mutex
	done   []string // the bodies, in order
	events []Event
}

// work starts a worker that does jobs with do, until the test ends. It ignores whether Redis is safe.
func work(t testing.TB, q *Queue, do func(a *Attempt) Outcome) *crew {
	c := &crew{}
	c.Worker = &Worker{Queue: q, Known: new(Known), MostRunning: 4, Attempts: 5, Time: 2 * patience, Pause: time.Second, Unsafe: true,
		Report: func(e Event) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.events = append(c.events, e)
		}}
	c.Do = func(a *Attempt) Outcome {
		o := do(a)
		c.mu.Lock()
		defer c.mu.Unlock()
		if a.begun {
			c.done = append(c.done, string(a.Request.Body))
		}
		return o
	}
	c.Start()
	t.Cleanup(func() {
		if !c.stopping() {
			c.Stop(0)
		}
	})
	return c
}

func (c *crew) bodies() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.done)
}

func (c *crew) reported(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, e := range c.events {
		if e.What == what {
			n++
		}
	}
	return n
}

// answers returns a do that begins each job, and has that outcome.
func answers(o Outcome) func(a *Attempt) Outcome {
	return func(a *Attempt) Outcome {
		if a.Begin() != nil {
			return Outcome{}
		}
		return o
	}
}

func (b *bench) awaitState(id string, want State) *Job {
	b.t.Helper()
	var j *Job
	eventually(b.t, "the job is "+string(want), func() bool {
		j = b.job(id)
		return j.State == want
	})
	return j
}

func TestAWorkerDoesWhatWaits(t *testing.T) {
	b := newBench(t, nil)
	var ids []string
	for i := range 8 {
		ids = append(ids, b.enter("k", strconv.Itoa(i)))
	}
	c := work(t, b.Queue, answers(Outcome{Answer: &Answer{Status: 201}}))
	for _, id := range ids {
		if j := b.awaitState(id, Done); j.Status != 201 || j.Attempts != 1 {
			t.Errorf("%+v", j)
		}
	}
	if got := strings.Join(c.bodies(), ""); got != "01234567" {
		t.Errorf("done in the order %s", got)
	}
	b.check()
}

// The attempts that a job gets depend on what may have reached the service.
func TestWhatIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		once   bool
		o      Outcome
		state  State
		begins int
	}{
		"500":                             {"GET", true, Outcome{Answer: &Answer{Status: 500}}, Done, 1},
		"404":                             {"POST", false, Outcome{Answer: &Answer{Status: 404}}, Done, 1},
		"502, POST":                       {"POST", false, Outcome{Answer: &Answer{Status: 502}}, Dead, 1},
		"502, PUT":                        {"PUT", false, Outcome{Answer: &Answer{Status: 502}}, Dead, 5},
		"503, DELETE":                     {"DELETE", false, Outcome{Answer: &Answer{Status: 503}}, Dead, 5},
		"504, POST with Idempotency-Key":  {"POST", true, Outcome{Answer: &Answer{Status: 504}}, Dead, 5},
		"505, PUT":                        {"PUT", true, Outcome{Answer: &Answer{Status: 505}}, Done, 1},
		"unreachable, POST":               {"POST", false, Outcome{Failed: true, Unsent: true, Reason: "refused"}, Dead, 5},
		"the connection breaks, POST":     {"POST", false, Outcome{Failed: true, Reason: "broken"}, Dead, 1},
		"the connection breaks, GET":      {"GET", false, Outcome{Failed: true, Reason: "broken"}, Dead, 5},
		"the response is cut off, PATCH":  {"PATCH", false, Outcome{Failed: true, Answer: &Answer{Status: 200}}, Dead, 1},
		"the response is cut off, no key": {"POST", false, Outcome{Failed: true, Answer: &Answer{Status: 200}}, Dead, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			e := entry("k", "x")
			e.Request.Method, e.Request.Once = c.method, c.once
			_, err := b.Enter(context.Background(), e)
			must(t, err)
			next := b.enter("k", "next")
			crew := work(t, b.Queue, func(a *Attempt) Outcome {
				if a.Begin() != nil {
					return Outcome{}
				}
				if string(a.Request.Body) == "next" {
					return Outcome{Answer: &Answer{Status: 200}}
				}
				return c.o
			})
			pause := time.Second
			for n := 1; n < c.begins; n++ {
				eventually(t, "the attempt has failed", func() bool { return crew.reported("retry") == n })
				eventually(t, "it waits", func() bool { return b.job(e.ID).State == Waiting })
				if due := b.job(e.ID).Due; !due.Equal(b.now.Add(pause)) {
					t.Fatalf("after attempt %d it pauses %s, want %s", n, due.Sub(b.now), pause)
				}
				b.pass(pause)
				pause *= 2
				crew.Wake()
			}
			j := b.awaitState(e.ID, c.state)
			if j.Attempts != c.begins {
				t.Errorf("%d attempts, want %d", j.Attempts, c.begins)
			}
			if (j.State == Dead) != (j.Reason != "") {
				t.Errorf("%+v", j)
			}
			b.awaitState(next, Done)
			deaths := 0
			if j.State == Dead {
				deaths = 1
			}
			eventually(t, "the right deaths are reported", func() bool { return crew.reported("dead") == deaths })
			if got := crew.bodies(); len(got) != c.begins+1 || got[c.begins] != "next" {
				t.Errorf("done in the order %s", got)
			}
			b.check()
		})
	}
}

// A job that the limiter does not admit waits for the time that the limiter says, and no attempt is counted.
func TestAJobThatIsNotAdmittedWaits(t *testing.T) {
	b := newBench(t, nil)
	id := b.enter("k", "x")
	var mu sync.Mutex
	asked, admitted := 0, false
	c := work(t, b.Queue, func(a *Attempt) Outcome {
		mu.Lock()
		defer mu.Unlock()
		asked++
		if !admitted {
			return Outcome{Wait: 3 * time.Second}
		}
		return answers(Outcome{Answer: &Answer{Status: 200}})(a)
	})
	eventually(t, "it is put back", func() bool { return b.job(id).Due.Equal(noon.Add(3 * time.Second)) })
	if j := b.job(id); j.State != Waiting || j.Attempts != 0 {
		t.Errorf("%+v", j)
	}
	mu.Lock()
	admitted = true
	mu.Unlock()
	b.pass(3*time.Second - time.Microsecond)
	c.Wake()
	if sums, err := b.Sums(context.Background()); err != nil || sums.Open != 1 {
		t.Errorf("%+v %v", sums, err)
	}
	b.pass(time.Microsecond)
	c.Wake()
	b.awaitState(id, Done)
	mu.Lock()
	defer mu.Unlock()
	if asked != 2 {
		t.Errorf("the limiter was asked %d times, want 2", asked)
	}
}

func TestOnlySoManyJobsRunAtATime(t *testing.T) {
	b := newBench(t, nil)
	for i := range 9 {
		b.enter(strconv.Itoa(i), "x")
	}
	proceed := make(chan bool)
	c := work(t, b.Queue, func(a *Attempt) Outcome {
		if a.Begin() == nil {
			select {
			case <-proceed:
			case <-a.Context.Done():
			}
		}
		return Outcome{Answer: &Answer{Status: 200}}
	})
	for left := 9; left > 0; left-- {
		want := int64(min(left, 4))
		attempts := func() int64 {
			sums, err := b.Sums(context.Background())
			must(t, err)
			return sums.Attempts
		}
		eventually(t, "all run that may", func() bool { return attempts() == 9-int64(left)+want && c.running.Load() == want })
		c.Wake()
		proceed <- true
	}
	eventually(t, "the last jobs are done", func() bool {
		sums, err := b.Sums(context.Background())
		must(t, err)
		return sums.Done == 9
	})
	b.check()
}

// A worker that stops hands back what it has not begun at once, lets what runs end, and ends it if that takes too long.
func TestAWorkerThatStopsHandsBackItsJobs(t *testing.T) {
	b := newBench(t, nil)
	ends, breaks := b.enter("ends", "ends"), b.enter("breaks", "breaks")
	ending := make(chan bool)
	c := work(t, b.Queue, func(a *Attempt) Outcome {
		if a.Begin() != nil {
			return Outcome{}
		}
		if string(a.Request.Body) == "ends" {
			<-ending
			return Outcome{Answer: &Answer{Status: 200}}
		}
		<-a.Context.Done()
		return Outcome{Failed: true}
	})
	b.awaitState(ends, Running)
	b.awaitState(breaks, Running)
	later := b.enter("later", "later")
	stopped := make(chan bool)
	go func() {
		c.Stop(2 * time.Second)
		close(stopped)
	}()
	eventually(t, "it stops", c.stopping)
	close(ending)
	b.awaitState(ends, Done)
	<-stopped
	for _, id := range []string{breaks, later} {
		if j := b.job(id); j.State != Waiting || j.Due.After(b.now) {
			t.Errorf("%+v, want that it waits for another node", j)
		}
	}
	b.check()
	next := work(t, b.Queue, answers(Outcome{Answer: &Answer{Status: 200}}))
	b.awaitState(breaks, Done)
	b.awaitState(later, Done)
	if got := len(next.bodies()); got != 2 {
		t.Errorf("%d jobs, want 2", got)
	}
}

// A worker that has lost its claim ends its attempt, and has no say any more.
func TestAWorkerThatHasLostItsClaimEndsItsAttempt(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Lease = 400 * time.Millisecond })
	id := b.enter("k", "x")
	ended := make(chan bool)
	c := work(t, b.Queue, func(a *Attempt) Outcome {
		if a.Begin() != nil {
			return Outcome{}
		}
		<-a.Context.Done()
		close(ended)
		return Outcome{Answer: &Answer{Status: 200}}
	})
	b.awaitState(id, Running)
	c.MostRunning = 1
	b.Client.HSet(context.Background(), b.prefix+"fences", "k", "999") // another has claimed it
	<-ended
	eventually(t, "it is reported", func() bool { return c.reported("lost") == 1 })
	if j := b.job(id); j.State != Running {
		t.Errorf("%+v, want that it is as the other has left it", j)
	}
}

// The result of a job is recorded though Redis is away when it ends.
func TestAResultWaitsForRedis(t *testing.T) {
	b := newBench(t, nil)
	id := b.enter("k", "x")
	proxy := redistest.NewProxy(t, b.server.Addr())
	running, end := make(chan bool), make(chan bool)
	c := work(t, queueOn(t, proxy.Addr(), nil), func(a *Attempt) Outcome {
		if a.Begin() != nil {
			return Outcome{}
		}
		close(running)
		<-end
		return Outcome{Answer: &Answer{Status: 200}}
	})
	eventually(t, "the job runs", func() bool {
		select {
		case <-running:
			return true
		default:
			return false
		}
	})
	proxy.HangUp()
	c.Wake()
	eventually(t, "it is reported", func() bool { return c.reported("trouble") > 0 })
	close(end)
	eventually(t, "the attempt has ended", func() bool { return len(c.bodies()) == 1 })
	proxy.Pass()
	b.awaitState(id, Done)
	eventually(t, "the end of the trouble is reported", func() bool { return c.reported("over") == c.reported("trouble") })
	if got := c.bodies(); len(got) != 1 {
		t.Errorf("it was done %d times", len(got))
	}
}

// A job during whose last attempt its node has died is dead.
func TestAJobThatKillsItsNodesIsDead(t *testing.T) {
	b := newBench(t, nil)
	id := b.enter("k", "x")
	for range 5 {
		must(t, begin(b, b.claimOne(id)))
		b.pass(b.Lease)
	}
	c := work(t, b.Queue, answers(Outcome{Answer: &Answer{Status: 200}}))
	b.awaitState(id, Dead)
	if len(c.bodies()) != 0 {
		t.Error("it was done once more")
	}
	b.check()
}

// A job is tried for so long, from its first attempt on. After that it is a dead letter, and the next of its key has its turn. Time in which nobody could
// try it does not count.
func TestAJobIsTriedForALimitedTime(t *testing.T) {
	ctx := context.Background()
	b := newBench(t, nil)
	id := b.enter("k", "x")
	left := func(want time.Duration) *Job {
		t.Helper()
		j := b.claimOne(id)
		got, err := b.start(ctx, j, 10*time.Second)
		must(t, err)
		if got != want {
			t.Errorf("%s are left, want %s", got, want)
		}
		return j
	}
	must(t, b.putBack(ctx, left(10*time.Second), time.Second, failed))
	b.pass(4 * time.Second)
	must(t, b.putBack(ctx, left(6*time.Second), 0, failed))
	b.pass(10 * time.Second) // nobody has tried it
	must(t, b.putBack(ctx, left(10*time.Second), 0, failed))
	b.pass(time.Second)
	must(t, b.putBack(ctx, left(9*time.Second), 0, broken)) // Redis was away
	b.pass(time.Second)
	must(t, b.putBack(ctx, left(10*time.Second), 0, unused)) // a handler behind has no room
	b.pass(time.Second)
	left(10 * time.Second)
	b.pass(b.Lease) // its node dies
	j := left(10 * time.Second)
	must(t, b.finish(ctx, j, Dead, "", nil, 0))
	must(t, b.Retry(ctx, id)) // that it has no result once was an error
	b.pass(time.Second)
	left(10 * time.Second)
	b.check()
}

// A service that fails for too long, or hangs, ends the attempts.
func TestAJobThatIsTriedForTooLongIsDead(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		do     func(a *Attempt) Outcome
		time   time.Duration
		reason string
	}{
		"it fails":                     {"PUT", answers(Outcome{Answer: &Answer{Status: 502}}), 900 * time.Millisecond, "the service answered 502; it is not tried for longer than 900ms"},
		"it hangs":                     {"PUT", nil, time.Millisecond, "the service did not answer in time; it is not tried for longer than 1ms"},
		"it hangs, and may have acted": {"POST", nil, time.Millisecond, "the service did not answer in time; it is not repeated, since the service may have acted on it"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			e := entry("k", "x")
			e.Request.Method = c.method
			w := &Worker{Queue: b.Queue, Known: new(Known), MostRunning: 1, Attempts: 5, Time: c.time, Pause: time.Second, Unsafe: true, Report: func(Event) {}}
			w.Do = func(a *Attempt) Outcome {
				if string(a.Request.Body) == "next" {
					return answers(Outcome{Answer: &Answer{Status: 200}})(a)
				}
				if c.do != nil {
					return c.do(a)
				}
				if a.Begin() != nil {
					return Outcome{}
				}
				<-a.Context.Done()
				return Outcome{Failed: true, Reason: "it was ended"}
			}
			_, err := b.Enter(context.Background(), e)
			must(t, err)
			next := b.enter("k", "next")
			w.Start()
			defer w.Stop(0)
			if j := b.awaitState(e.ID, Dead); j.Reason != c.reason || j.Attempts != 1 {
				t.Errorf("%+v", j)
			}
			b.awaitState(next, Done)
			b.check()
		})
	}
}

// What is damaged is a dead letter: no configuration can read it.
func TestADamagedJobIsDead(t *testing.T) {
	b := newBench(t, nil)
	id, next := b.enter("k", "x"), b.enter("k", "next")
	must(t, b.Client.HSet(context.Background(), b.prefix+"job:"+id, "b", strings.Repeat("?", len(b.Client.HGet(context.Background(), b.prefix+"job:"+id, "b").Val()))).Err())
	c := work(t, b.Queue, answers(Outcome{Answer: &Answer{Status: 200}}))
	if j := b.awaitState(id, Dead); j.Reason != "what is stored of it is damaged" {
		t.Errorf("%+v", j)
	}
	b.awaitState(next, Done)
	if c.reported("dead") != 1 {
		t.Error("it is not reported")
	}
	b.check()
}

// A node without the key to a job leaves it to others.
func TestAJobThatCannotBeReadWaits(t *testing.T) {
	keys := func(texts ...string) Keys {
		k, err := ParseKeys(texts)
		must(t, err)
		return k
	}
	one, two := strings.Repeat("01", 32), strings.Repeat("02", 32)
	b := newBench(t, func(c *Config) { c.Keys = keys(one) })
	id := b.enter("k", "x")
	other := *b.Queue
	other.Keys = keys(two)
	c := work(t, &other, answers(Outcome{Answer: &Answer{Status: 200}}))
	eventually(t, "it is reported", func() bool { return c.reported("unreadable") == 1 })
	eventually(t, "it is put back", func() bool { return b.job(id).Due.Equal(noon.Add(10 * time.Second)) })
	c.Stop(0)
	rotated := *b.Queue
	rotated.Keys = keys(two, one)
	b.pass(10 * time.Second)
	work(t, &rotated, answers(Outcome{Answer: &Answer{Status: 200, Body: []byte("ok")}}))
	b.awaitState(id, Done)
	_, a, err := rotated.Result(context.Background(), id)
	if err != nil || string(a.Body) != "ok" {
		t.Errorf("%+v %v", a, err)
	}
	_, _, err = b.Result(context.Background(), id)
	wantErr(t, err, errNoKey)
}

func TestAWorkerReportsARedisThatIsNotSafe(t *testing.T) {
	b := newBench(t, nil)
	c := &crew{}
	c.Worker = &Worker{Queue: b.Queue, Known: new(Known), MostRunning: 1, Attempts: 1, Report: func(e Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, e)
	}}
	c.Start()
	defer c.Stop(0)
	eventually(t, "it is reported", func() bool { return c.reported("unsafe") == 1 })
	if got := c.Obstacle(); !strings.Contains(got, "appendonly") {
		t.Errorf("the obstacle is %q", got)
	}
	b.server.MustDo(t, "CONFIG", "SET", "appendonly", "yes")
	eventually(t, "it is safe", func() bool {
		c.Wake()
		return c.reported("safe") == 1
	})
	if got := c.Obstacle(); got != "" {
		t.Errorf("the obstacle is %q", got)
	}
}

func TestAttemptsHaveTheRequest(t *testing.T) {
	b := newBench(t, nil)
	e := entry("k", "body")
	e.Request.Header = http.Header{"Accept": {"a", "b"}}
	_, err := b.Enter(context.Background(), e)
	must(t, err)
	var got *Request
	work(t, b.Queue, func(a *Attempt) Outcome {
		got = a.Request
		return answers(Outcome{Answer: &Answer{Status: 200}})(a)
	})
	b.awaitState(e.ID, Done)
	if string(got.Body) != "body" || got.URI != "/orders" || !slices.Equal(got.Header["Accept"], []string{"a", "b"}) {
		t.Errorf("%+v", got)
	}
}
