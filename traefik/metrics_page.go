package traefik

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core/metrics"
)

// page writes the text of the metrics for all requests, one at a time, since with thousands of rules an interpreter takes a while. Requests
// that come while it is written wait, and all get the next text.
type page struct {
	asked int64 // how many times; changed with functions of sync/atomic; first, as in metrics.Meter
	write func() []byte

	mu   sync.Mutex
	upTo int64 // the value of asked when writing began
	text []byte
}

// get returns a text of the metrics as of now or later. The caller must not change it.
func (p *page) get() []byte {
	turn := atomic.AddInt64(&p.asked, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.upTo < turn {
		p.upTo = atomic.LoadInt64(&p.asked)
		p.text = p.write()
	}
	text := p.text
	return text
}

// servePage answers a GET or HEAD with the metrics.
func servePage(w http.ResponseWriter, r *http.Request, p *page) {
	text := p.get()
	header := w.Header()
	header["Content-Type"] = []string{"text/plain; version=0.0.4; charset=utf-8"}
	header["Cache-Control"] = []string{"no-store"}
	header["Content-Length"] = []string{strconv.Itoa(len(text))}
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // the client may be gone; there is nobody to tell
	}
}

// metricsListener serves the metrics on an address for all middlewares that name the address.
type metricsListener struct {
	connections int64 // open ones; changed with functions of sync/atomic; first, as in metrics.Meter

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

// refuseMethod answers a request with a method other than GET and HEAD.
func refuseMethod(w http.ResponseWriter) {
	w.Header()["Allow"] = []string{"GET, HEAD"}
	w.Header()["Content-Type"] = []string{"text/plain; charset=utf-8"}
	w.WriteHeader(http.StatusMethodNotAllowed)
	_, _ = w.Write([]byte("Only GET and HEAD are answered here.\n")) // the client may be gone; there is nobody to tell
}

// text writes a page.
func text(p *metrics.Page) []byte {
	b := make([]byte, 0, 65536)
	for _, f := range metrics.Families {
		list := metrics.Of(p, f)
		if len(list) == 0 {
			continue
		}
		b = append(b, "# HELP "+f.Name+" "+f.Help+"\n# TYPE "+f.Name+" "+f.Kind+"\n"...)
		for _, s := range list {
			b = appendSeries(b, f, s)
		}
	}
	return b
}

func appendSeries(b []byte, f *metrics.Family, s *metrics.Series) []byte {
	labels := ""
	before := "{"
	for i, value := range s.Labels {
		labels += before + f.Labels[i].Name + `="` + escaped.Replace(value) + `"`
		before = ","
	}
	if f.Kind == "histogram" {
		return appendHistogram(b, f.Name, labels, s)
	}
	if s.Values != nil {
		last := metrics.Last(f)
		begin := f.Name + labels + before + last.Name + `="`
		for i, n := range s.Values {
			b = append(b, begin+last.Values[i]+`"} `+strconv.FormatInt(n, 10)+"\n"...)
		}
		return b
	}
	if labels != "" {
		labels += "}"
	}
	return append(b, f.Name+labels+" "+number(s.Value)+"\n"...)
}

// escaped escapes the value of a label.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func appendHistogram(b []byte, name, labels string, s *metrics.Series) []byte {
	for i, n := range s.Within {
		b = append(b, name+"_bucket"+labels+`,le="`+number(s.Bounds[i])+`"} `+strconv.FormatInt(n, 10)+"\n"...)
	}
	count := strconv.FormatInt(s.Count, 10)
	b = append(b, name+"_bucket"+labels+`,le="+Inf"} `+count+"\n"...)
	b = append(b, name+"_sum"+labels+"} "+number(s.Value)+"\n"...)
	return append(b, name+"_count"+labels+"} "+count+"\n"...)
}

// number writes a number as Prometheus's own libraries do, but whole ones with all digits.
func number(n float64) string {
	if whole := int64(n); n < 1e15 && float64(whole) == n {
		return strconv.FormatInt(whole, 10)
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}
