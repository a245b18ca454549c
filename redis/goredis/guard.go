package goredis

import (
	"errors"
	"net"
	"strings"
	"syscall"
)

// guarded is a connection that ends when what it reads is not what a server of ours sends. The client library reserves memory
// for whatever a reply announces, and keeps reading whatever has no end: a peer that means harm, or is no Redis, could take
// the program down by it.
type guarded struct {
	net.Conn
	state  guardState
	kind   byte // the line's first byte
	length int  // of the line so far
	skip   int  // what a length has announced; of a bulk, then, what is still to come; -1: nil
}

type guardState int

const (
	lineBegins guardState = iota
	inLine
	inBulk
)

// The longest line (an error's text, at most), and the most that a length may announce: the longest reply is a large Cluster's
// table of slots, of which there are 16,384.
const (
	longestLine = 4096
	mostOfAll   = 99_999
)

// The first bytes of lines: of those that begin a reply or a part of one, of those that have a length, and of those behind which
// so many bytes come. RESP3's attributes (|) are not among them: the library calls itself for each, and nobody sends them.
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

// see takes a byte of a line behind its first, and reports whether it may stand there.
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
