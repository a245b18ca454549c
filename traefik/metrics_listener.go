package traefik

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// metricsListener serves the metrics on an address of its own, for all middlewares that name it.
type metricsListener struct {
	connections int64 // that are open; with functions of sync/atomic; first, as in meter

	address string
	pages   http.Handler
	later   func(func()) // runs a function after listenAgainAfter
	say     func(string) // writes a line to the log
	again   func()       // tries to listen: made once, see registry

	mu      sync.Mutex
	server  *http.Server // nil: nobody is served yet
	failing bool         // that was said
	closed  bool
}

// Whoever asks slowly, or often, gets no further than this. The page is asked for by a few, every few seconds.
const (
	listenAgainAfter = time.Second
	requestWithin    = 5 * time.Second
	responseWithin   = 10 * time.Second
	mostConnections  = 32
	mostHeaderBytes  = 4096
)

// listen serves until the listener is closed. An address that cannot be had is tried again after a while, as long as that takes.
func (l *metricsListener) listen() {
	defer guard()
	socket, err := net.Listen("tcp", l.address)
	if err == nil {
		server := l.newServer()
		if !l.serves(server) {
			_ = socket.Close() // nobody has it
			return
		}
		err = server.Serve(socket)
	}
	if !l.failed(err) {
		return
	}
	l.later(l.again)
}

// newServer returns what serves the connections: a request on each, so that those who keep theirs keep nobody else out.
func (l *metricsListener) newServer() *http.Server {
	server := &http.Server{
		Handler:           l.pages,
		ReadHeaderTimeout: requestWithin,
		ReadTimeout:       requestWithin,
		WriteTimeout:      responseWithin,
		MaxHeaderBytes:    mostHeaderBytes,
		ConnState:         func(c net.Conn, state http.ConnState) { l.track(c, state) },
	}
	server.SetKeepAlivesEnabled(false)
	return server
}

// track closes a connection at once if there are too many.
func (l *metricsListener) track(c net.Conn, state http.ConnState) {
	if state == http.StateNew {
		if atomic.AddInt64(&l.connections, 1) > mostConnections {
			_ = c.Close() // its end is tracked too
		}
		return
	}
	if state == http.StateClosed {
		atomic.AddInt64(&l.connections, -1)
	}
}

// serves notes that a server is about to serve, unless the listener was closed.
func (l *metricsListener) serves(server *http.Server) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.server = server
	if l.failing {
		l.failing = false
		l.say("metrics are served at " + l.address + " now")
	}
	return true
}

// failed notes that the address cannot be had, and reports whether it is to be tried again.
func (l *metricsListener) failed(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || errors.Is(err, http.ErrServerClosed) {
		return false
	}
	if !l.failing {
		l.failing = true
		l.say("metrics cannot be served at " + l.address + ", which is tried again every second: " + err.Error())
	}
	return true
}

func (l *metricsListener) close() {
	l.mu.Lock()
	l.closed = true
	server := l.server
	l.mu.Unlock()
	if server != nil {
		_ = server.Close() // the error would be that of closing a socket
	}
}

// metricsPath is where a listener has the metrics.
const metricsPath = "/metrics"

// metricsPages is what a listener serves.
type metricsPages struct {
	page *page
}

// ServeHTTP implements http.Handler.
func (p *metricsPages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != metricsPath {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuseMethod(w)
		return
	}
	servePage(w, r, p.page)
}
