package goredis

import (
	"errors"
	"net"
	"strings"
	"syscall"
)

// guarded is a connection that fails when it reads something that no Redis server sends us. The client library reserves as much memory as a
// reply announces, and reads lines without end. Without a guard, a malicious peer, or one that is not Redis, could bring the program down.
type guarded struct {
	net.Conn
	state  guardState
	kind   byte // the line's first byte
	length int  // of the line so far
	skip   int  // the length that the line announces; in a bulk, how many bytes are still to come; -1: nil
}

type guardState int

const (
	lineBegins guardState = iota
	inLine
	inBulk
)

// The longest line, which is an error's text, and the highest length that a line may announce. The longest reply is a large Cluster's table
// of its 16,384 slots.
const (
	longestLine = 4096
	mostOfAll   = 99_999
)

// The first bytes of lines: of all that begin a reply or a part of one; of those with a length; and of those that so many bytes follow. RESP3's
// attributes (|) are not among them: the library recurses for each, and nobody sends them.
const (
	kinds   = "+-:_,#(" + lengths
	lengths = "*%~>" + bulks
	bulks   = "$=!"
)

var errMalformed = errors.New("the reply is malformed")

// Read implements net.Conn.
func (g *guarded) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	for i := 0; i < n; {
		switch g.state {
		case inBulk:
			step := min(g.skip, n-i)
			g.skip -= step
			i += step
			if g.skip == 0 {
				g.state = lineBegins
			}
			continue
		case lineBegins:
			g.kind, g.length, g.skip, g.state = b[i], 0, 0, inLine
			if strings.IndexByte(kinds, g.kind) < 0 {
				return 0, errMalformed
			}
		case inLine:
			if !g.see(b[i]) {
				return 0, errMalformed
			}
		}
		i++
	}
	return n, err
}

// see reads a byte of a line after its first, and reports whether it is valid there.
func (g *guarded) see(c byte) bool {
	if g.length++; g.length > longestLine {
		return false
	}
	if c == '\n' {
		g.state = lineBegins
		if strings.IndexByte(bulks, g.kind) >= 0 && g.skip >= 0 {
			g.state = inBulk
			g.skip += len("\r\n")
		}
		return true
	}
	if strings.IndexByte(lengths, g.kind) < 0 || c == '\r' {
		return true
	}
	switch {
	case c == '-' && g.length == 1: // nil
		g.skip = -1
	case c < '0' || c > '9':
		return false
	case g.skip >= 0:
		g.skip = g.skip*10 + int(c-'0')
	}
	return g.skip <= mostOfAll
}

// guardedSocket is a guarded connection that go-redis can check: it finds out whether the server has closed the socket.
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
