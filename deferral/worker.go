package deferral

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Worker does the jobs of a queue, on one of any number of nodes. Its fields must be set before Start.
type Worker struct {
	Queue *Queue

	// Do does one job. It is called in a goroutine of its own.
	Do func(a *Attempt) Outcome

	// MostRunning is how many jobs run at a time on this node.
	MostRunning int

	// Attempts is how often a job is tried that may be repeated.
	Attempts int

	// Time is how long a job is tried, from its first attempt on: an attempt under way ends then, and none begins later. A job that nobody could try for so long
	// has as much again.
	Time time.Duration

	// Pause is how long it waits after the first attempt; after each further one twice as long, up to MostPause.
	Pause time.Duration

	// Report is called with what an operator should know; it must not block, and gets nothing of a request.
	Report func(e Event)

	// Known is what the node knows of the queue; its API has the same.
	Known *Known

	// Unsafe has jobs accepted by a Redis that may lose them. It is reported all the same.
	Unsafe bool

	wake, freed chan struct{}
	stop        chan struct{}
	looping     sync.WaitGroup
	attempts    sync.WaitGroup
	running     atomic.Int64
	all         context.Context // of all attempts
	halt        context.CancelFunc
	sums        atomic.Pointer[Sums]

	checked    time.Time // when Redis last said whether it is safe
	unsafe     bool      // it was reported that it is not
	followed   time.Time // up to when Known knows what was accepted, by Redis's clock; zero: it does not
	followedAt time.Time // when it last was brought up to date
	trouble    bool      // the last claim has failed
}

// Bounds of a worker's pauses.
const (
	MostPause  = time.Minute
	pollQueue  = time.Second      // for jobs that other nodes have accepted
	checkEvery = 30 * time.Second // whether Redis is still safe
)

// Event is what a Worker or an API reports.
type Event struct {
	What     string // "dead", "retry", "lost", "unreadable", "trouble", "over", "unsafe", "safe"; of an API "unconfirmed", "missing"
	ID       string // of the job; "": it is about none
	Attempts int
	Err      error
}

// Attempt is one attempt at a job.
type Attempt struct {
	Job     *Job
	Request *Request

	// Context ends when the worker may no longer do the job: its claim has ended, or its node stops.
	Context context.Context

	begin func() error
	begun bool
}

// Begin must be called when the limiter has admitted the job, before anything of it is sent. After an error the job must not be done.
func (a *Attempt) Begin() error {
	err := a.begin()
	a.begun = err == nil
	return err
}

// Outcome is what has become of an attempt.
type Outcome struct {
	// Wait is when the job is to be decided again, if Begin was not called; or if something turned the request away after that, before the
	// service had anything of it. Such an attempt does not count.
	Wait time.Duration

	// Answer is the response; nil: there is none.
	Answer *Answer

	// Unsent says that nothing of the request was sent: the service could not be reached.
	Unsent bool

	// Failed says that there is no complete response, or that the response is the proxy's own about a service that did not give one.
	Failed bool

	// Hopeless says that another attempt would fail in the same way.
	Hopeless bool

	// Reason is what has failed, in a few words, without anything of the request.
	Reason string

	// Next is how long the key's next job must wait, as far as the limiter knows.
	Next time.Duration
}

// Start starts the worker. It asks Redis once whether jobs are safe there, so that they are accepted from now on if they are.
func (w *Worker) Start() {
	w.wake, w.freed, w.stop = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	w.all, w.halt = context.WithCancel(context.Background())
	w.verify()
	w.looping.Add(1)
	go w.loop()
}

// Wake makes the worker look for jobs at once.
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Stop makes the worker claim nothing more, and hand back at once what it has not begun. It waits for the attempts under way, but no longer
// than grace: then it ends them, and hands their jobs back.
func (w *Worker) Stop(grace time.Duration) {
	close(w.stop)
	w.looping.Wait()
	over := time.AfterFunc(grace, w.halt)
	w.attempts.Wait()
	over.Stop()
	w.halt()
}

// Sums returns the numbers of the queue as the worker last had them, about a second ago; nil: Redis does not answer, or has not yet.
func (w *Worker) Sums() *Sums { return w.sums.Load() }

// Obstacle says why jobs may not be accepted: Redis may lose them, or has never answered. "" means that they may.
func (w *Worker) Obstacle() string {
	if w.Unsafe {
		return ""
	}
	if why := w.Known.obstacle.Load(); why != nil {
		return *why
	}
	return "nobody has found out yet whether Redis keeps jobs safely"
}

func (w *Worker) stopping() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// loop claims jobs whose turn has come, until the worker is stopped.
func (w *Worker) loop() {
	defer w.looping.Done()
	for {
		wait := w.round()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-w.wake:
		case <-w.freed:
		case <-w.stop:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// round claims what can be done now, and returns when to look again.
func (w *Worker) round() time.Duration {
	w.verify()
	free := w.MostRunning - int(w.running.Load())
	asked := time.Now()
	c, err := w.Queue.claim(w.all, free)
	w.note(err)
	if err != nil {
		w.sums.Store(nil)
		return pollQueue
	}
	w.sums.Store(&c.Sums)
	for _, j := range c.Jobs {
		w.running.Add(1)
		w.attempts.Add(1)
		go w.attempt(j)
	}
	w.follow(&c, asked)
	if free == 0 || len(c.Jobs) == free || c.Next.IsZero() {
		return pollQueue // or when an attempt ends
	}
	return max(time.Millisecond, min(pollQueue, c.Next.Sub(c.Now)))
}

// note reports when Redis begins to fail, and when it answers again.
func (w *Worker) note(err error) {
	if (err != nil) == w.trouble || errors.Is(err, context.Canceled) {
		return
	}
	w.trouble = err != nil
	if err != nil {
		w.Report(Event{What: "trouble", Err: err})
		return
	}
	w.checked = time.Time{} // it may be another server
	w.Report(Event{What: "over"})
}

// verify checks from time to time whether Redis keeps jobs safely; in each round, while that keeps it from accepting any. While Redis does not
// answer, what was last known holds.
func (w *Worker) verify() {
	if time.Since(w.checked) < checkEvery && w.Obstacle() == "" {
		return
	}
	err := w.Queue.CheckDurability(w.all)
	unsafe := errors.As(err, new(*UnsafeError))
	if err != nil && !unsafe {
		return
	}
	w.checked = time.Now()
	why := ""
	if unsafe {
		why = err.Error()
	}
	w.Known.obstacle.Store(&why)
	switch {
	case unsafe && !w.unsafe:
		w.Report(Event{What: "unsafe", Err: err})
	case w.unsafe && !unsafe:
		w.Report(Event{What: "safe"})
	}
	w.unsafe = unsafe
}

// attempt does a claimed job.
func (w *Worker) attempt(j *Job) {
	defer func() {
		w.running.Add(-1)
		w.attempts.Done()
		select {
		case w.freed <- struct{}{}:
		default:
		}
	}()
	q := w.Queue
	if w.stopping() {
		_ = q.putBack(w.all, j, 0, unused) // if that fails, its lease ends
		return
	}
	if j.Attempts >= w.Attempts {
		w.end(j, Dead, "its node died during the last attempt", nil, 0)
		return
	}
	r, err := q.open(j)
	if err != nil && (errors.Is(err, errTampered) || errors.Is(err, errMalformed)) {
		w.end(j, Dead, "what is stored of it is damaged", nil, 0)
		return
	}
	if err != nil { // another configuration can read it
		w.Report(Event{What: "unreadable", ID: j.ID, Err: err})
		_ = q.putBack(w.all, j, 10*time.Second, unused)
		return
	}
	ctx, cancel := context.WithCancelCause(w.all)
	defer cancel(nil)
	var end time.Time // of the time in which it is tried
	a := &Attempt{Job: j, Request: r, Context: ctx}
	var keeping sync.WaitGroup
	a.begin = func() error {
		sent := time.Now()
		left, err := q.start(ctx, j, w.Time)
		if err != nil {
			return err
		}
		j.Attempts++
		end = sent.Add(left)
		late := time.AfterFunc(time.Until(end), func() { cancel(errLate) })
		context.AfterFunc(ctx, func() { late.Stop() })
		keeping.Add(1)
		go func() {
			defer keeping.Done()
			w.keep(ctx, cancel, j, sent)
		}()
		return nil
	}
	o := w.Do(a)
	cause := context.Cause(ctx)
	cancel(nil)
	keeping.Wait()
	switch {
	case !a.begun || o.Wait > 0:
		_ = q.putBack(context.Background(), j, max(o.Wait, time.Millisecond), unused)
	case cause == errLate:
		if o.Failed { // else the answer was faster
			o = Outcome{Failed: true, Reason: errLate.Error(), Next: o.Next}
		}
		w.judge(j, r, o, end)
	case cause != nil: // the claim has ended, or the node stops
		_ = q.putBack(context.Background(), j, 0, broken)
		w.Report(Event{What: "lost", ID: j.ID, Attempts: j.Attempts})
	default:
		w.judge(j, r, o, end)
	}
}

// errLate ends an attempt when the time is over in which its job is tried.
var errLate = errors.New("the service did not answer in time")

// keep renews the lease of a job that runs, until ctx ends. If it may have ended, keep ends the attempt.
func (w *Worker) keep(ctx context.Context, cancel context.CancelCauseFunc, j *Job, renewed time.Time) {
	lease := w.Queue.Lease
	tick := time.NewTicker(lease / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sent := time.Now()
		err := w.Queue.renew(ctx, j)
		switch {
		case err == nil:
			renewed = sent
		case errors.Is(err, ErrLost):
			cancel(ErrLost)
			return
		}
		if left := lease - lease/1000 - time.Since(renewed); left < lease/4 { // the next tick would be too late
			cancel(ErrLost)
			return
		}
	}
}

// judge decides what becomes of a job after an attempt. It is tried until end.
func (w *Worker) judge(j *Job, r *Request, o Outcome, end time.Time) {
	status := 0
	if o.Answer != nil {
		status = o.Answer.Status
	}
	fails := o.Failed || status >= http.StatusBadGateway && status <= http.StatusGatewayTimeout
	if !fails {
		w.end(j, Done, "", o.Answer, o.Next)
		return
	}
	reason := o.Reason
	if reason == "" {
		reason = fmt.Sprintf("the service answered %d", status)
	}
	pause := min(w.Pause<<(j.Attempts-1), MostPause)
	switch {
	case !o.Unsent && !idempotent(r.Method) && !r.Once:
		w.end(j, Dead, reason+"; it is not repeated, since the service may have acted on it", o.Answer, o.Next)
	case j.Attempts >= w.Attempts || o.Hopeless:
		w.end(j, Dead, reason, o.Answer, o.Next)
	case time.Until(end) < pause:
		w.end(j, Dead, fmt.Sprintf("%s; it is not tried for longer than %s", reason, w.Time), o.Answer, o.Next)
	default:
		w.Report(Event{What: "retry", ID: j.ID, Attempts: j.Attempts, Err: errors.New(reason)})
		_ = w.Queue.putBack(context.Background(), j, pause, failed)
	}
}

// idempotent reports whether a method is idempotent (RFC 9110, section 9.2.2).
func idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// end records what became of a job. If Redis does not answer, it tries again until the claim is lost for certain, or the node stops: each job
// that is not recorded is done once more.
func (w *Worker) end(j *Job, state State, reason string, a *Answer, next time.Duration) {
	if state == Dead {
		w.Report(Event{What: "dead", ID: j.ID, Attempts: j.Attempts, Err: errors.New(reason)})
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := w.Queue.finish(context.WithoutCancel(w.all), j, state, reason, a, next)
		if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrGone) {
			return
		}
		select {
		case <-time.After(pause):
		case <-w.all.Done():
			w.Report(Event{What: "lost", ID: j.ID, Attempts: j.Attempts, Err: err})
			return
		}
	}
}
