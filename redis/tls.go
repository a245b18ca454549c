package redis

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"
)

// ErrTLS is wrapped by the errors of attempts to connect over TLS. Its text tells them from others.
var ErrTLS = errors.New("over TLS")

// asked is how long mismatch waits for a server, connecting included.
const asked = 250 * time.Millisecond

// mismatch says that a server speaks TLS and its client does not, or the other way round; "": it is not so, or nobody knows. The client has failed
// with err, which wraps ErrTLS if the client speaks TLS. A server does not say so itself: it waits for more, or hangs up.
func mismatch(address string, err error) string {
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	end := time.Now().Add(asked)
	dialer := net.Dialer{Deadline: end}
	nc, failed := dialer.Dial(network, address)
	if failed != nil {
		return ""
	}
	defer nc.Close()
	_ = nc.SetDeadline(end)
	if !errors.Is(err, ErrTLS) {
		if tls.Client(nc, &tls.Config{InsecureSkipVerify: true}).Handshake() != nil { //nolint:gosec // sends nothing
			return ""
		}
		return "what listens there speaks TLS, and the client does not: write tls, or rediss:// in a URL, or take the port without TLS"
	}
	if _, failed = nc.Write([]byte("PING\r\n")); failed != nil {
		return ""
	}
	first := make([]byte, 1)
	if n, _ := nc.Read(first); n == 0 || first[0] != '+' && first[0] != '-' { // neither PONG nor an error, such as for want of a password
		return ""
	}
	return "what listens there speaks no TLS, and the client does: take the port with TLS, or leave out tls, and write redis:// in a URL"
}
