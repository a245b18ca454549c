package pressure

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Config is what a Watch is made of.
type Config struct {
	Source Source

	// Press is told until when the pressure is high, in microseconds by Now; 0: it is not.
	Press func(until int64)

	// Warn is told when questions begin to fail, or fail for another reason, at most once a minute, and Inform when they are answered again after it was.
	// They must not call the Watch.
	Warn, Inform func(message string)

	// Now returns the time in microseconds of a clock that does not go back. Wait waits for so long, or until the context ends.
	Now  func() int64
	Wait func(ctx context.Context, d time.Duration)
}

// Watch asks a source again and again. Renew makes it and starts it. Its functions may be called by any number of goroutines at a time.
type Watch struct {
	config Config
	client *http.Client
	cancel context.CancelFunc

	mu      sync.Mutex
	reading Reading
	known   int64  // until when
	failing string // the reason that Warn was told last; "": none, or Inform was since
	warned  int64  // when
}

// Reading is what a Watch knows.
type Reading struct {
	Known    bool // there is a value that is not older than three intervals; else the next two are zero
	Value    float64
	High     bool
	Why      string  // why the last question has brought no value; "": it has, or none was asked yet
	Failures []int64 // questions that have brought none, for each of Reasons
}

// Renew returns the Watch that takes the place of another, unless that asks the same source: then it returns that. nil is none, before and for no source. The
// other one's question is cut off. From then on it presses and tells nothing, and the pressure is not high until the new one says so.
func Renew(before *Watch, c Config) *Watch {
	var w *Watch
	if before != nil && before.config.Source == c.Source {
		return before
	}
	if before != nil {
		before.mu.Lock()
		before.cancel()
		before.config.Press(0)
		before.mu.Unlock()
	}
	if c.Source.URL == "" {
		return w
	}
	w = &Watch{config: c, client: &http.Client{
		Transport:     &http.Transport{DisableCompression: true, MaxResponseHeaderBytes: 64 << 10, MaxIdleConnsPerHost: 1},
		CheckRedirect: func(r *http.Request, via []*http.Request) error { return http.ErrUseLastResponse },
	}}
	w.reading.Failures = make([]int64, len(Reasons))
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go run(w, ctx)
	return w
}

func run(w *Watch, ctx context.Context) {
	for ctx.Err() == nil {
		began := w.config.Now()
		once(w, ctx, began)
		if rest := w.config.Source.Interval - time.Duration(w.config.Now()-began)*time.Microsecond; rest > 0 {
			w.config.Wait(ctx, rest)
		}
	}
	w.client.CloseIdleConnections()
}

// once asks once.
func once(w *Watch, ctx context.Context, began int64) {
	defer func() {
		if v := recover(); v != nil { // an interpreted program has no other recover, and would end the proxy
			note(w, ctx, began, 0, failed("invalid", "asking panicked, which is a defect: %v", v))
		}
	}()
	value, wrong := ask(ctx, w.client, w.config.Source)
	if wrong != nil && wrong.reason == "unreachable" {
		w.client.CloseIdleConnections() // the next question gets a new one: one of HTTP/2 that has died would be used again
	}
	note(w, ctx, began, value, wrong)
}

// note notes what a question has brought that began at a time. A value stays known when the next questions fail, for as long as it may.
func note(w *Watch, ctx context.Context, began int64, value float64, wrong *failure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	const lasts, seldom = 3, int64(time.Minute / time.Microsecond) // intervals from the beginning of its question, for which a value is known
	s, was := &w.config.Source, w.failing
	if wrong != nil {
		for i := range Reasons {
			if Reasons[i] == wrong.reason {
				w.reading.Failures[i]++
			}
		}
		w.reading.Why = wrong.text
		if was != wrong.reason && (w.warned == 0 || began-w.warned >= seldom) {
			w.failing = wrong.reason
			w.warned = began
			effect := ", and has no effect: "
			if w.reading.Known && began < w.known {
				effect = ", and what was read has an effect for " + (lasts * s.Interval).String() + " at most: "
			}
			address, _, _ := strings.Cut(s.URL, "?") // behind it a token may stand
			w.config.Warn("the pressure on the service cannot be read from " + address + effect + wrong.text)
		}
		return
	}
	w.failing = ""
	w.known = began + lasts*int64(s.Interval/time.Microsecond)
	w.reading = Reading{Known: true, Value: value, High: value >= s.High, Failures: w.reading.Failures}
	if w.reading.High {
		w.config.Press(w.known)
	} else {
		w.config.Press(0)
	}
	if was != "" {
		w.config.Inform(fmt.Sprintf("the pressure on the service can be read again: %.3g", value))
	}
}

// Read returns what a Watch knows at a time.
func Read(w *Watch, now int64) Reading {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := Reading{Why: w.reading.Why, Failures: append([]int64(nil), w.reading.Failures...)}
	if w.reading.Known && now < w.known {
		r.Known = true
		r.Value = w.reading.Value
		r.High = w.reading.High
	}
	return r
}
