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

	// Pause is how long it waits after the first attempt; after each further one twice as long, up to MostPause.
	Pause time.Duration

	// Report is called with what an operator should know; it must not block, and gets nothing of a request.
	Report func(e Event)

	// Unsafe has jobs accepted by a Redis that may lose them.
	Unsafe bool

	wake, freed chan struct{}
	stop        chan struct{}
	looping     sync.WaitGroup
	attempts    sync.WaitGroup
	running     atomic.Int64
	all         context.Context // of all attempts
	halt        context.CancelFunc
	sums        atomic.Pointer[Sums]

	verified atomic.Bool // Redis was found to be safe
	checked  time.Time   // when that was
	unsafe   bool        // it was reported that it is not
	trouble  bool        // the last claim has failed
}

// Bounds of a worker's pauses.
const (
	MostPause  = time.Minute
	pollQueue  = time.Second      // for jobs that other nodes have accepted
	checkEvery = 30 * time.Second // whether Redis is still safe
)

// Event is what a Worker reports.
type Event struct {
	What     string // "dead", "retry", "lost", "unreadable", "trouble", "over", "unsafe", "safe"
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

	// Reason is what has failed, in a few words, without anything of the request.
	Reason string

	// Next is how long the key's next job must wait, as far as the limiter knows.
	Next time.Duration
}

// Start starts the worker.
func (w *Worker) Start() {
	w.wake, w.freed, w.stop = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	w.all, w.halt = context.WithCancel(context.Background())
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

// Ready reports whether jobs may be accepted: whether Redis has been found safe.
func (w *Worker) Ready() bool { return w.Unsafe || w.verified.Load() }

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
	w.Report(Event{What: "over"})
}

// verify checks from time to time whether Redis keeps jobs safely. While it does not answer, what was last known holds.
func (w *Worker) verify() {
	if w.Unsafe || time.Since(w.checked) < checkEvery && w.verified.Load() {
		return
	}
	err := w.Queue.CheckDurability(w.all)
	switch {
	case err == nil:
		if w.unsafe {
			w.Report(Event{What: "safe"})
		}
		w.unsafe = false
		w.verified.Store(true)
		w.checked = time.Now()
	case errors.As(err, new(*UnsafeError)):
		w.verified.Store(false)
		if !w.unsafe {
			w.Report(Event{What: "unsafe", Err: err})
		}
		w.unsafe = true
	}
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
		_ = q.putBack(w.all, j, 0, true) // if that fails, its lease ends
		return
	}
	if j.Attempts >= w.Attempts {
		w.end(j, Dead, "its node died during the last attempt", nil, 0)
		return
	}
	r, err := q.open(j)
	if err != nil {
		w.Report(Event{What: "unreadable", ID: j.ID, Err: err})
		_ = q.putBack(w.all, j, 10*time.Second, true)
		return
	}
	ctx, cancel := context.WithCancel(w.all)
	defer cancel()
	a := &Attempt{Job: j, Request: r, Context: ctx}
	var keeping sync.WaitGroup
	a.begin = func() error {
		sent := time.Now()
		if err := q.start(ctx, j); err != nil {
			return err
		}
		j.Attempts++
		keeping.Add(1)
		go func() {
			defer keeping.Done()
			w.keep(ctx, cancel, j, sent)
		}()
		return nil
	}
	o := w.Do(a)
	lost := ctx.Err() != nil
	cancel()
	keeping.Wait()
	switch {
	case !a.begun || o.Wait > 0:
		_ = q.putBack(context.Background(), j, max(o.Wait, time.Millisecond), true)
	case lost: // the claim has ended, or the node stops
		_ = q.putBack(context.Background(), j, 0, false)
		w.Report(Event{What: "lost", ID: j.ID, Attempts: j.Attempts})
	default:
		w.judge(j, r, o)
	}
}

// keep renews the lease of a job that runs, until ctx ends. If it may have ended, keep ends the attempt.
func (w *Worker) keep(ctx context.Context, cancel context.CancelFunc, j *Job, renewed time.Time) {
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
			cancel()
			return
		}
		if left := lease - lease/1000 - time.Since(renewed); left < lease/4 { // the next tick would be too late
			cancel()
			return
		}
	}
}

// judge decides what becomes of a job after an attempt.
func (w *Worker) judge(j *Job, r *Request, o Outcome) {
	status := 0
	if o.Answer != nil {
		status = o.Answer.Status
	}
	failed := o.Failed || status >= http.StatusBadGateway && status <= http.StatusGatewayTimeout
	if !failed {
		w.end(j, Done, "", o.Answer, o.Next)
		return
	}
	reason := o.Reason
	if reason == "" {
		reason = fmt.Sprintf("the service answered %d", status)
	}
	switch {
	case !o.Unsent && !idempotent(r.Method) && !r.Once:
		w.end(j, Dead, reason+"; it is not repeated, since the service may have acted on it", o.Answer, o.Next)
	case j.Attempts >= w.Attempts:
		w.end(j, Dead, reason, o.Answer, o.Next)
	default:
		pause := min(w.Pause<<(j.Attempts-1), MostPause)
		w.Report(Event{What: "retry", ID: j.ID, Attempts: j.Attempts, Err: errors.New(reason)})
		_ = w.Queue.putBack(context.Background(), j, pause, false)
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
