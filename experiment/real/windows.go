package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/experiment/simulation"
)

// A run of windows has the advisor on and off by turns, in blocks of two windows with the same requests. ../hypotheses.toml says what for.
const (
	windowsOfRun = 40
	washout      = 10.0 // seconds at the begin of each window that do not count, at most
)

// turns is what such a run plays.
type turns struct {
	first  *simulation.Situation // of the first window
	length float64               // seconds of a window
	on     []bool                // by window: whether the advisor works
	used   []map[string]used     // by window
	trace  []request
}

// window is one that was played: a line of the run's file.
type window struct {
	Window int             `json:"window"`
	Block  int             `json:"block"`
	On     bool            `json:"on"`
	Used   map[string]used `json:"used,omitempty"`
	summary
}

// windowsOf returns how many windows a run of a scenario has.
func (s settings) windowsOf(p scenario) int {
	if s.windows > 0 {
		return min(s.windows, p.windows)
	}
	return p.windows
}

// turnsOf makes the turns of a run. Its blocks have seeds of their own, counted through all runs.
func (p scenario) turnsOf(run uint64, o settings, nodes int) (*turns, error) {
	w := &turns{on: orderOf(run, o.windowsOf(p)/2)}
	for n := range len(w.on) / 2 {
		seed := (run-1)*uint64(p.windows/2) + uint64(n) + 1
		s, err := p.cut(seed, 0, min(o.calm, washout), o.length)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			w.first, w.length = s, s.Length
		}
		trace := requestsOf(s, seed, nodes)
		for i := range 2 {
			begin := seconds(w.length * float64(2*n+i))
			for _, q := range trace {
				q.at += begin
				w.trace = append(w.trace, q)
			}
		}
	}
	return w, nil
}

// orderOf draws for each block whether the advisor is on first, and returns when it is on, by window.
func orderOf(run uint64, blocks int) (on []bool) {
	draws := rand.New(rand.NewPCG(run, 0x0f))
	for range blocks {
		first := draws.IntN(2) == 0
		on = append(on, first, !first)
	}
	return on
}

// advised waits until a poll has brought advice: while an advisor starts, polls fail, and become rare.
func (of *site) advised(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for begin, n := time.Now(), 1; sleepUntil(ctx, begin.Add(time.Duration(n)*time.Second)); n++ {
		ended, failed := 0, 0
		for name, n := range of.advice(ctx) {
			if strings.HasPrefix(name, "polls_total") {
				ended += n
			} else if strings.HasPrefix(name, "refused_total") {
				failed += n
			}
		}
		if ended > failed {
			return nil
		}
	}
	return fmt.Errorf("the proxies get no advice: %w", ctx.Err())
}

// take switches the advisor when a window begins, and has m measure it. Garbage is collected then, too, so that it delays no request that counts.
func (of *site) take(ctx context.Context, begin time.Time, w *turns, m *meter) error {
	for n, on := range w.on {
		if !sleepUntil(ctx, begin.Add(seconds(w.length*float64(n)))) {
			return nil
		}
		if used := m.lap(); n > 0 {
			w.used = append(w.used, used)
		}
		if err := of.switchAdvisor(on); err != nil {
			return err
		}
		runtime.GC()
	}
	return nil
}

// switchAdvisor stops the advisor's process where it is, or lets it go on, and cuts or opens the way of the polls to it.
func (of *site) switchAdvisor(on bool) error {
	of.polls.cut.Store(!on)
	return pause(of.adviser.process.Process, !on)
}

// polls is between the proxies and an advisor. While it is cut, it answers polls at once: nothing is new. If they failed, the next ones would be rarer.
type polls struct {
	listener net.Listener
	server   *http.Server
	on       http.Handler
	cut      atomic.Bool
}

func newPolls(target string) (*polls, error) {
	listener, err := listen()
	if err != nil {
		return nil, err
	}
	on := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: target})
	on.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) } // without a word: it has not begun yet
	p := &polls{listener: listener, on: on}
	p.server = &http.Server{Handler: p}
	go func() { _ = p.server.Serve(listener) }()
	return p, nil
}

func (p *polls) address() string { return p.listener.Addr().String() }

func (p *polls) stop() { _ = p.server.Close() }

// ServeHTTP implements http.Handler.
func (p *polls) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !p.cut.Load():
		p.on.ServeHTTP(w, r)
	case r.Header.Get("If-None-Match") != "":
		w.WriteHeader(http.StatusNotModified)
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// summarizeWindows counts what has become of the requests of each window. The run is thrown away if a window was thrown away in more than a quarter of the
// blocks.
func (r *record) summarizeWindows(w *turns, attempts []attempt) {
	of := make([][]attempt, len(w.on))
	for _, a := range attempts {
		n := min(int(a.of.at/seconds(w.length)), len(of)-1)
		of[n] = append(of[n], a)
	}
	spoilt := map[int]bool{}
	for n, on := range w.on {
		line := window{Window: n, Block: n / 2, On: on}
		if n < len(w.used) {
			line.Used = w.used[n]
		} else {
			line.Used = r.Used
		}
		line.summarize(of[n])
		if line.Thrown {
			spoilt[line.Block] = true
		}
		r.windows = append(r.windows, line)
	}
	r.summarize(attempts)
	r.Thrown = 4*len(spoilt) > len(w.on)/2
}
