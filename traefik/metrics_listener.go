package traefik

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// metricsListener serves the metrics on an address for all middlewares that name the address.
type metricsListener struct {
	connections int64 // open ones; changed with functions of sync/atomic; first, as in meter

	address string
	pages   http.Handler
	later   func(func()) // runs a function after listenAgainAfter
	say     func(string) // writes a line to the log
	again   func()       // tries to listen: made once, see registry

	mu      sync.Mutex
	server  *http.Server // nil: nobody is served yet
	failing bool         // that is in the log already
	closed  bool
}

// Bounds for slow clients and for many. A few clients read the page every few seconds.
const (
	listenAgainAfter = time.Second
	requestWithin    = 5 * time.Second
	responseWithin   = 10 * time.Second
	mostConnections  = 32
	mostHeaderBytes  = 4096
)

// listen serves until the listener is closed. It tries an address that is not available again and again.
func (l *metricsListener) listen() {
	defer contain()
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

// newServer returns the server: it serves one request per connection, so that idle connections keep nobody else out.
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
			_ = c.Close() // track is called for its end, too
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

// failed notes that the address is not available, and reports whether to try again.
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

// metricsPath is the path of the metrics on a listener.
const metricsPath = "/metrics"

// metricsPages is the handler of a listener.
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
