package redistest

import (
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Proxy is a proxy between clients and a server that injects faults. It passes everything at first. Pass, Delay, BlackHole, Garble, HangUp
// and Refuse set its mode; each ends the one before. Cut, CutAfter and DropReply cause one fault. All methods may be called at any time, from
// any goroutine.
type Proxy struct {
	t      testing.TB
	addr   string
	target string
	wg     sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while it refuses
	closed   bool
	mode     mode
	delay    time.Duration
	junk     func([]byte) []byte
	links    map[*link]bool
	cutAfter int    // how many more bytes the clients get; negative: all
	drop     string // the text in the request whose reply is dropped
	dropping bool
	stats    ProxyStats
}

// link is the connection of a client, with the one to the server. While it is open it is one of the proxy's links. The proxy's mutex guards it.
type link struct {
	client, server net.Conn      // server is nil until it is connected
	done           chan struct{} // closed with the connections
	dropping       bool          // to be closed when the server replies
}

type mode int

const (
	passing mode = iota
	blackHole
	garbling
	hangingUp
	refusing
)

// ProxyStats are the counts of a proxy.
type ProxyStats struct {
	Accepted int // connections so far
	Open     int // connections now
	ToServer int // bytes that were passed to the server
	ToClient int // bytes that were passed to the clients
}

// NewProxy starts a proxy in front of an address. The proxy is closed when the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, target: target, links: make(map[*link]bool), cutAfter: -1}
	t.Cleanup(p.end)
	for attempt := 0; p.listener == nil; attempt++ {
		p.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
		if err := p.listen(); err != nil && attempt == 10 {
			t.Fatal(err)
		}
	}
	return p
}

// Addr returns the address that clients connect to.
func (p *Proxy) Addr() string { return p.addr }

// Stats returns the counts so far.
func (p *Proxy) Stats() ProxyStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := p.stats
	stats.Open = len(p.links)
	return stats
}

// Pass passes everything, and cancels a CutAfter or DropReply that has not happened yet.
func (p *Proxy) Pass() {
	p.mu.Lock()
	p.cutAfter, p.dropping = -1, false
	p.mu.Unlock()
	p.set(passing, 0, nil)
}

// Delay delays everything by at least that long, in both directions.
func (p *Proxy) Delay(d time.Duration) { p.set(passing, d, nil) }

// BlackHole accepts connections and reads from them, but passes nothing, whether there is a server or not. What it has read is lost for good.
func (p *Proxy) BlackHole() { p.set(blackHole, 0, nil) }

// Garble replaces the server's replies by what junk returns for them. nil turns each byte that does not end a line into a question mark, which
// is no reply in any version of the protocol.
func (p *Proxy) Garble(junk func(reply []byte) []byte) {
	if junk == nil {
		junk = questionMarks
	}
	p.set(garbling, 0, junk)
}

func questionMarks(reply []byte) []byte {
	for i, c := range reply {
		if c != '\r' && c != '\n' {
			reply[i] = '?'
		}
	}
	return reply
}

// HangUp closes all connections, and new ones as soon as they are accepted.
func (p *Proxy) HangUp() {
	p.set(hangingUp, 0, nil)
	p.Cut()
}

// Refuse closes all connections, and stops listening.
func (p *Proxy) Refuse() {
	p.set(refusing, 0, nil)
	p.mu.Lock()
	l := p.listener
	p.listener = nil
	p.mu.Unlock()
	if l != nil {
		l.Close()
	}
	p.Cut()
}

// Cut closes all open connections. The mode, for new ones, stays.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

func (p *Proxy) cut() {
	p.cutAfter = -1
	for l := range p.links {
		p.close(l)
	}
}

// close closes a link, if it is open. The caller has the mutex.
func (p *Proxy) close(l *link) {
	if !p.links[l] {
		return
	}
	delete(p.links, l)
	close(l.done)
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}

func (p *Proxy) disconnect(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close(l)
}

// CutAfter passes that many more bytes from the server, over all connections, and then does the same as Cut. So clients get half a reply.
func (p *Proxy) CutAfter(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cutAfter = bytes; bytes == 0 {
		p.cut()
	}
}

// DropReply passes the next request that has this text in it, in any case, and closes its connection when the server replies. The server has
// executed the request, and the client cannot know.
func (p *Proxy) DropReply(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropping, p.drop = true, strings.ToLower(text)
}

func (p *Proxy) set(m mode, delay time.Duration, junk func([]byte) []byte) {
	p.t.Helper()
	p.mu.Lock()
	p.mode, p.delay, p.junk = m, delay, junk
	down := p.listener == nil
	p.mu.Unlock()
	if m == refusing || !down {
		return
	}
	await(p.t, "the proxy listens again", func() error {
		err := p.listen()
		if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			p.t.Fatal(err)
		}
		return err
	})
}

func (p *Proxy) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return nil
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.listener = l
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.accept(c)
		}
	})
	return nil
}

func (p *Proxy) end() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	p.cut()
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept(client net.Conn) {
	l := &link{client: client, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Accepted++
	if p.closed || p.mode == hangingUp || p.mode == refusing {
		client.Close()
		return
	}
	p.links[l] = true
	p.wg.Go(func() { p.serve(l) })
}

// serve passes the bytes of the client and of the server, until one of them or the proxy closes.
func (p *Proxy) serve(l *link) {
	defer p.disconnect(l)
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		if p.swallows() {
			_, _ = io.Copy(io.Discard, l.client)
		}
		return
	}
	defer server.Close()
	p.mu.Lock()
	l.server = server
	open := p.links[l]
	p.mu.Unlock()
	if !open {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.pump(l, server, l.client, p.request) })
	wg.Go(func() { p.pump(l, l.client, server, p.reply) })
	wg.Wait()
}

func (p *Proxy) swallows() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode == blackHole
}

// chunk is what was read at once, and when it is passed on.
type chunk struct {
	bytes []byte
	due   time.Time
}

// pump passes bytes in one direction, as the filter returns them. If the filter also returns a function, pump then calls that and ends. What is delayed does
// not delay what follows: a distance, and no bottleneck.
func (p *Proxy) pump(l *link, to, from net.Conn, filter func(*link, []byte) ([]byte, func())) {
	defer p.disconnect(l)
	chunks := make(chan chunk, 4096)
	p.wg.Go(func() {
		defer close(chunks)
		for {
			buf := make([]byte, 16<<10)
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case chunks <- chunk{buf[:n], time.Now().Add(p.distance())}:
				case <-l.done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	for c := range chunks {
		if !wait(l, time.Until(c.due)) {
			return
		}
		b, end := filter(l, c.bytes)
		if _, err := to.Write(b); err != nil {
			return
		}
		if end != nil {
			end()
			return
		}
	}
}

// distance returns the delay.
func (p *Proxy) distance() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

// wait waits so long, and reports whether the link is still open.
func wait(l *link, delay time.Duration) bool {
	if delay <= 0 {
		return true
	}
	select {
	case <-time.After(delay):
		return true
	case <-l.done:
		return false
	}
}

// request is the filter for bytes of a client.
func (p *Proxy) request(l *link, b []byte) ([]byte, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == blackHole {
		return nil, nil
	}
	if p.dropping && strings.Contains(strings.ToLower(string(b)), p.drop) {
		p.dropping = false
		l.dropping = true
	}
	p.stats.ToServer += len(b)
	return b, nil
}

// reply is the filter for bytes of the server.
func (p *Proxy) reply(l *link, b []byte) ([]byte, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.dropping {
		return nil, func() { p.disconnect(l) }
	}
	switch p.mode {
	case blackHole:
		return nil, nil
	case garbling:
		b = p.junk(b)
	}
	var end func()
	if p.cutAfter >= 0 {
		if p.cutAfter <= len(b) {
			b = b[:p.cutAfter]
			end = p.Cut
		}
		p.cutAfter -= len(b)
	}
	p.stats.ToClient += len(b)
	return b, end
}
