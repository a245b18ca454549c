package goredis

import (
	"errors"
	"net"
	"syscall"
)

// guarded is a connection that ends when a reply announces more than a server of ours ever sends: the client would reserve
// memory for it before it has arrived.
type guarded struct {
	net.Conn
	inLine bool // behind the first byte of a line
	digits int  // that are still allowed in the length that is being read; 0: none is
}

// Lengths have at most so many digits. The longest reply is a large Cluster's table of slots, of which there are 16,384.
const lengthDigits = 5

var errMalformed = errors.New("the reply is malformed: it announces more than a reply ever has")

// Read implements net.Conn.
func (g *guarded) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	for _, c := range b[:n] {
		switch {
		case c == '\n':
			g.inLine, g.digits = false, 0
		case !g.inLine:
			g.inLine = true
			if c == '*' || c == '$' || c == '%' || c == '~' || c == '>' || c == '=' || c == '!' {
				g.digits = lengthDigits + 1
			}
		case g.digits > 0 && c >= '0' && c <= '9':
			if g.digits--; g.digits == 0 {
				return 0, errMalformed
			}
		case g.digits > 0 && c == '+': // which the client takes for a part of the number
		default:
			g.digits = 0
		}
	}
	return n, err
}

// guardedSocket is one that the client can look at for whether the server has closed it.
type guardedSocket struct {
	guarded
	socket syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (g *guardedSocket) SyscallConn() (syscall.RawConn, error) { return g.socket.SyscallConn() }

func guard(c net.Conn) net.Conn {
	if socket, ok := c.(syscall.Conn); ok {
		return &guardedSocket{guarded{Conn: c}, socket}
	}
	return &guarded{Conn: c}
}
