package redistest

import (
	"net"
	"sync"
)

// link is the connection of a client with that to the server.
type link struct {
	client   net.Conn
	done     chan struct{} // closed with it
	dropping bool          // it is closed when the server replies

	mu     sync.Mutex
	server net.Conn // nil before it is there
	closed bool
}

// attach adds the connection to the server, unless the link is closed.
func (l *link) attach(server net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		server.Close()
		return false
	}
	l.server = server
	return true
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	close(l.done)
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}
