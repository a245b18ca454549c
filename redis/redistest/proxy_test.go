package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// dialProxy returns a connection that has passed a command.
func dialProxy(t *testing.T, p *Proxy) *Conn {
	t.Helper()
	c, err := Dial(p.Addr(), nil)
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	passes(t, c)
	return c
}

func passes(t *testing.T, c *Conn) {
	t.Helper()
	if got, err := c.Do("PING"); err != nil || got.Text != "PONG" {
		t.Errorf("PING: %v, %v", got, err)
	}
}

// closed checks that a connection ends, and returns what came before its end.
func closed(t *testing.T, c *Conn) string {
	t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(c.r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is open")
	}
	return string(b)
}

func send(t *testing.T, c *Conn, command string) {
	t.Helper()
	if _, err := fmt.Fprintf(c.conn, "%s\r\n", command); err != nil {
		t.Fatal(err)
	}
}

func TestProxyPassesAndCounts(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, Start(t).Addr())
	first := dialProxy(t, p)
	second := dialProxy(t, p)
	if got, want := p.Stats(), (ProxyStats{2, 2, 2 * len("*1\r\n$4\r\nPING\r\n"), 2 * len("+PONG\r\n")}); got != want {
		t.Errorf("stats %+v, %+v expected", got, want)
	}
	value := strings.Repeat("x", 1<<20)
	if got, err := first.Do("ECHO", value); err != nil || got.Text != value {
		t.Errorf("a megabyte: %d bytes came back, %v", len(got.Text), err)
	}
	second.Close()
	await(t, "one connection is open", func() error {
		if got := p.Stats(); got.Open != 1 || got.Accepted != 2 {
			return fmt.Errorf("stats %+v", got)
		}
		return nil
	})
}

func TestProxyDelays(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, Start(t).Addr())
	c := dialProxy(t, p)
	p.Delay(10 * time.Millisecond)
	passes(t, c)
	before := p.Stats()
	p.Delay(time.Hour)
	send(t, c, "PING")
	_ = c.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if b, err := c.r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) || p.Stats() != before {
		t.Errorf("reply %q, %v, with a delay of an hour; stats %+v", b, err, p.Stats())
	}
	p.Cut()
	closed(t, c)
	p.Pass()
	dialProxy(t, p)
}

func TestProxyCuts(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.MustDo(t, "SET", "key", "0123456789")
	p := NewProxy(t, s.Addr())
	first, second := dialProxy(t, p), dialProxy(t, p)
	p.Cut()
	closed(t, first)
	closed(t, second)
	const reply = "$10\r\n0123456789\r\n"
	for n := range len(reply) + 1 {
		c, idle := dialProxy(t, p), dialProxy(t, p)
		p.CutAfter(n)
		_, _ = fmt.Fprint(c.conn, "GET key\r\n")
		must.Equal(t, closed(t, c), reply[:n], "before the cut after %d bytes", n)
		closed(t, idle)
	}
	c := dialProxy(t, p)
	p.CutAfter(len(reply) + 1)
	for _, want := range []string{"0123456789", ""} {
		got, err := c.Do("GET", "key")
		if got.Text != want || (err == nil) != (want != "") {
			t.Errorf("reply %v, %v, %q expected", got, err, want)
		}
	}
}

func TestProxyRefusesAndHangsUp(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, Start(t).Addr())
	c := dialProxy(t, p)
	for range 2 {
		p.Refuse()
		closed(t, c)
		if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connecting to a proxy that refuses: %v", err)
		}
	}
	p.Pass()
	c = dialProxy(t, p)
	accepted := p.Stats().Accepted
	p.HangUp()
	closed(t, c)
	c, err := Dial(p.Addr(), nil)
	must.Succeed(t, err)
	defer c.Close()
	if got := closed(t, c); got != "" || p.Stats().Accepted != accepted+1 {
		t.Errorf("%q from a proxy that hangs up, stats %+v", got, p.Stats())
	}
	p.Pass()
	dialProxy(t, p)
}

func TestProxyIsABlackHole(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := NewProxy(t, s.Addr())
	old := dialProxy(t, p)
	before := p.Stats()
	p.BlackHole()
	fresh, err := Dial(p.Addr(), nil)
	must.Succeed(t, err)
	defer fresh.Close()
	s.Kill()
	orphan, err := Dial(p.Addr(), nil)
	must.Succeed(t, err)
	defer orphan.Close()
	closed(t, old) // by the server
	_, _ = fmt.Fprint(orphan.conn, "SET key value\r\n")
	_ = orphan.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if b, err := orphan.r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reply %q, %v, from a black hole", b, err)
	}
	s.Restart()
	living, err := Dial(p.Addr(), nil)
	must.Succeed(t, err)
	defer living.Close()
	send(t, living, "SET key value")
	_ = living.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if b, err := living.r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reply %q, %v, from a black hole", b, err)
	}
	if got := p.Stats(); got.ToServer != before.ToServer || got.ToClient != before.ToClient {
		t.Errorf("stats %+v of a black hole, before %+v", got, before)
	}
	p.Pass()
	passes(t, living)
	must.Equal(t, s.MustDo(t, "DBSIZE").Int, 0, "the black hole has passed a command")
}

func TestProxyGarbles(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := NewProxy(t, s.Addr())
	c := dialProxy(t, p)
	p.Garble(nil)
	send(t, c, "SET key value")
	if got, err := c.r.ReadString('\n'); got != "???\r\n" {
		t.Errorf("%q, %v, in place of +OK", got, err)
	}
	if got := s.MustDo(t, "GET", "key"); got.Text != "value" {
		t.Errorf("the server has got %v", got)
	}
	p.Garble(func(reply []byte) []byte { return bytes.Replace(reply, []byte("$5"), []byte(":7\r\n$5"), 1) })
	if got, err := c.Do("GET", "key"); err != nil || got.Int != 7 {
		t.Errorf("%v, %v, with junk of our own", got, err)
	}
	p.Pass()
	if got, err := c.Do("PING"); err != nil || got.Text != "value" { // what was left
		t.Errorf("%v, %v", got, err)
	}
}

func TestProxyDropsAReply(t *testing.T) {
	t.Parallel()
	s := Start(t)
	p := NewProxy(t, s.Addr())
	c, other := dialProxy(t, p), dialProxy(t, p)
	p.DropReply("incr")
	passes(t, c) // not that one
	if got, err := c.Do("INCR", "key"); err == nil {
		t.Errorf("reply %v", got)
	}
	if got := s.MustDo(t, "GET", "key"); got.Text != "1" {
		t.Errorf("GET %v: the server was not asked once", got)
	}
	if got, err := other.Do("INCR", "key"); err != nil || got.Int != 2 {
		t.Errorf("the next request, of another: %v, %v", got, err)
	}
	p.DropReply("")
	if got, err := other.Do("PING"); err == nil {
		t.Errorf("reply %v", got)
	}
	c = dialProxy(t, p)
	p.DropReply("")
	p.CutAfter(1)
	p.Pass()
	passes(t, c)
}

// It is not parallel: it counts goroutines.
func TestProxyLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("proxies", func(t *testing.T) {
		s := Start(t)
		for _, do := range []func(*Proxy){
			(*Proxy).Pass,
			(*Proxy).BlackHole,
			(*Proxy).HangUp,
			(*Proxy).Refuse,
			func(p *Proxy) { p.Delay(time.Hour) },
			func(p *Proxy) { p.CutAfter(2) },
			func(p *Proxy) { p.DropReply("") },
		} {
			p := NewProxy(t, s.Addr())
			for range 3 {
				c := dialProxy(t, p)
				defer func() { _, _ = fmt.Fprint(c.conn, "PING\r\n") }()
			}
			do(p)
		}
	})
	await(t, "the goroutines end", func() error {
		if now := runtime.NumGoroutine(); now > before {
			return fmt.Errorf("%d of them, before %d", now, before)
		}
		return nil
	})
}
