package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// failed notes that a call to a server, for those keys, has failed. b is the breaker for such calls, and seen its count of failures when the call
// began: see breaker.Fail.
func (s *Store) failed(server *Server, b *breaker, keys []string, seen int64, err error) {
	if errors.Is(err, ErrMoving) {
		return
	}
	if errors.Is(err, ErrRefused) { // it has answered
		b.Succeed()
		return
	}
	first := server.Available()
	if !b.Fail(seen) {
		return
	}
	if s.changed != nil && first {
		s.changed(server.name, err)
	}
	key := ""
	if len(keys) > 0 { // otherwise the call was about all of a server's keys
		key = keys[0]
	} else {
		key = s.naming.key("", "}:")
	}
	s.probeLater(server, b, key)
}

// probeLater sets the timer of the next probe for a server's breaker.
func (s *Store) probeLater(server *Server, b *breaker, key string) {
	wait := time.Duration(b.Wait(rand.Float64())) * time.Microsecond //nolint:gosec // spreads nodes, keeps no secret
	s.mu.Lock()
	if timer := s.timers[b]; s.closed {
		// no more probes
	} else if timer != nil { // not a new one: in Yaegi a function that is made in a timer's callback keeps all earlier ones in memory
		timer.Reset(wait)
	} else {
		s.timers[b] = time.AfterFunc(wait, func() { s.probe(server, b, key) })
	}
	s.mu.Unlock()
}

// probe runs a script on the server, to find out whether it works again. If the server no longer has the key's slot, it skips that: nobody
// else will call that server either.
func (s *Store) probe(server *Server, b *breaker, key string) {
	if !b.Probe() {
		return
	}
	var err error
	defer func() {
		if p := recover(); p != nil { // an interpreted program has no other recover
			err = fmt.Errorf("probing panicked: %v", p)
		}
		b.Probed(err == nil)
		if err != nil {
			s.probeLater(server, b, key)
			return
		}
		s.mu.Lock()
		delete(s.timers, b)
		s.mu.Unlock()
		if s.changed != nil && server.Available() {
			s.changed(server.name, nil)
		}
	}()
	now, _ := s.client.Server(key)
	if now == server {
		c := probeCall(key)
		if b == &server.patient {
			c.Deadline = time.Now().Add(s.client.Background())
		}
		err = server.conn.Run(c)
	}
	if errors.Is(err, ErrRefused) { // it answers; whether it refuses other calls they find out themselves
		err = nil
	}
}

// Check returns nil if Redis works, which it finds out by a charge to a key of its own. While there is no server or no answer it tries
// again, for at most that long. Then its error also says if only one of them speaks TLS, which it finds out in another quarter of a second.
func (s *Store) Check(most time.Duration) error {
	end := time.Now().Add(most)
	key := s.naming.key("", "}:")
	var server *Server
	var err error
	for {
		server, err = s.client.Server(key)
		if err == nil {
			began := time.Now()
			c := probeCall(key)
			c.Deadline = began.Add(s.client.Background())
			if err = server.conn.Run(c); err == nil {
				server.latency.note(time.Since(began))
			}
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrTimeout) || time.Now().After(end) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	name, encrypted := s.client.Name(), errors.Is(err, ErrTLS)
	if server != nil {
		name, encrypted = server.name, server.TLS
	}
	if why := mismatch(name, encrypted); why != "" {
		return fmt.Errorf("%w: %s", err, why)
	}
	return err
}

// probeCall returns a charge to a key in the same slot as the given one.
func probeCall(key string) *Call {
	return &Call{
		Script: scriptsOfOne[rate.TokenBucket],
		Keys:   []string{key[:strings.LastIndex(key, "}:")] + "}:probe"},
		Args:   []string{probeArgument},
	}
}

// probeArgument is the argument of a limit that is whole again at once, so that the probe's key expires at once.
var probeArgument = makeProbeArgument()

func makeProbeArgument() string {
	limit, _ := rate.NewLimit(rate.LimitConfig{Algorithm: rate.TokenBucket, Requests: rate.MaxRequests, Period: rate.MinPeriod})
	rule, _ := core.NewRule(core.RuleConfig{Name: "probe", Limit: limit}) // a valid rule
	return string(appendArgument(nil, rule, false, nil))
}

// ErrTLS is wrapped by the errors of attempts to connect over TLS. Its text tells them from others.
var ErrTLS = errors.New("over TLS")

// asked is how long mismatch waits for a server, connecting included.
const asked = 250 * time.Millisecond

// mismatch says that a server speaks TLS and its client does not, or the other way round if the client is encrypted; "": it is not so, or nobody knows. A
// server does not say so itself: it waits for more, or hangs up.
func mismatch(address string, encrypted bool) string {
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
	if !encrypted {
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
