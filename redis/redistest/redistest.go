// Package redistest starts real Redis servers on loopback for tests: a single server, a cluster, a server under
// Sentinel. It can kill, pause and restart them, set the time that a server goes by, and put a proxy with faults before
// one.
//
//	server := redistest.Start(t, redistest.WithClock())
//	server.SetTime(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC).UnixMicro())
//	server.MustDo(t, "SET", "key", "value", "PX", "1000")
//
// It needs redis-server, 7.0 or newer, on the PATH, and for WithClock a C compiler: without them a test fails, and is not
// skipped. Pause and WithClock need Linux. The package imports the standard library alone, so that the tests of any module
// can use it. Whatever it starts is gone when the test ends.
package redistest

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait for a server. It is far longer than any takes, for machines that are busy.
const patience = 60 * time.Second

// Server is a redis-server on loopback, without persistence. It is safe for concurrent use.
type Server struct {
	t       testing.TB
	options options
	dir     string
	port    int
	bus     int // where the nodes of a cluster talk
	clock   *clock

	mu      sync.Mutex
	process *process
	paused  bool
}

// Start starts a server and waits until it answers. The server is stopped when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return start(t, newOptions(opts))
}

func start(t testing.TB, o options) *Server {
	t.Helper()
	s := &Server{t: t, options: o, dir: t.TempDir()}
	if o.clock {
		s.clock = newClock(t, s.dir)
	}
	t.Cleanup(s.Stop)
	for attempt := 1; ; attempt++ {
		s.port, s.bus = freePort(t), freePort(t)
		config := o.config(s.port, s.bus)
		if err := os.WriteFile(s.path("redis.conf"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		err := s.run()
		if err == nil {
			return s
		}
		if attempt == 10 || !portTaken(s.Log()) {
			t.Fatal(err)
		}
	}
}

// portTaken reports whether a server that wrote this log ended because somebody else had its port.
func portTaken(log string) bool {
	return strings.Contains(log, "Address already in use")
}

// run starts the process with the configuration that stands in its folder, and waits until it answers.
func (s *Server) run() error {
	args := []string{"redis.conf"}
	ready := "Ready to accept connections"
	if s.options.sentinel {
		args = append(args, "--sentinel")
		ready = "Sentinel ID is"
	}
	var env []string
	if s.clock != nil {
		env = s.clock.env()
	}
	p, err := startProcess(s.t, s.dir, env, args...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.process, s.paused = p, false
	s.mu.Unlock()
	// The log is asked first: with the port lost to another server, it is that one that would answer.
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		if strings.Contains(s.Log(), ready) {
			if err = s.ping(); err == nil {
				return nil
			}
		}
		if !p.running() {
			return fmt.Errorf("redis-server on %s ended before it was ready; its log:\n%s", s.Addr(), s.Log())
		}
		if time.Now().After(deadline) {
			p.kill()
			return fmt.Errorf("redis-server on %s was not ready in %v (%v); its log:\n%s", s.Addr(), patience, err, s.Log())
		}
	}
}

func (s *Server) ping() error {
	c, err := s.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Do("PING")
	if _, replied := err.(Error); replied {
		return nil // an answer, such as that the user may not
	}
	return err
}

// Addr returns the address, as host:port: the port for TLS if the server was started with WithTLS, which then has no
// other.
func (s *Server) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// Log returns what the server has written to its log since it was started or restarted.
func (s *Server) Log() string {
	b, _ := os.ReadFile(s.path("log"))
	return string(b)
}

func (s *Server) path(name string) string {
	return filepath.Join(s.dir, name)
}

// Dial connects to the server, as its default user.
func (s *Server) Dial() (*Conn, error) {
	var config *tls.Config
	if s.options.certificates != nil {
		config = s.options.certificates.Config()
	}
	c, err := Dial(s.Addr(), config)
	if err != nil {
		return nil, err
	}
	if s.options.password != "" {
		if _, err = c.Do("AUTH", s.options.password); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Do sends a command over a connection of its own, as the default user, and returns the reply. If that is an error, so is
// the error that Do returns, of type Error.
func (s *Server) Do(args ...string) (Reply, error) {
	c, err := s.Dial()
	if err != nil {
		return Reply{}, err
	}
	c.abandon()
	defer c.Close()
	return c.Do(args...)
}

// MustDo does the same as Do, and an error ends the test.
func (s *Server) MustDo(t testing.TB, args ...string) Reply {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%s: %s: %v", s.Addr(), strings.Join(args, " "), err)
	}
	return reply
}

// Running reports whether the process is alive, be it paused.
func (s *Server) Running() bool {
	p := s.current()
	return p != nil && p.running()
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// Stop asks the server to end, kills it if it does not, and waits until it is gone. It does nothing to one that is not
// running.
func (s *Server) Stop() {
	if p := s.current(); p != nil {
		p.stop()
	}
}

// Kill kills the server, and waits until it is gone. It does nothing to one that is not running.
func (s *Server) Kill() {
	if p := s.current(); p != nil {
		p.kill()
	}
}

// Pause stops the process as it is: its connections stay open, and nothing is answered until Resume. New connections are
// still accepted, by the system.
func (s *Server) Pause() {
	s.t.Helper()
	s.setPaused(true, sigstop)
}

// Resume lets a paused process go on.
func (s *Server) Resume() {
	s.t.Helper()
	s.setPaused(false, sigcont)
}

func (s *Server) setPaused(paused bool, signal os.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.signal(signal); err != nil {
		s.t.Fatalf("redis-server on %s: %v: %v", s.Addr(), signal, err)
	}
	s.paused = paused
}

// live reports whether the process runs and is not paused.
func (s *Server) live() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.running() && !s.paused
}

// Restart kills the server if it runs, and starts it again on its port and without its keys, scripts, and what CONFIG SET
// has set. A node of a cluster still knows the cluster. The clock stays.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := os.Remove(s.path("dump.rdb")); err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	await(s.t, "the server starts again", func() error {
		err := s.run()
		if err != nil && !portTaken(s.Log()) {
			s.t.Fatal(err)
		}
		return err
	})
}

// SetTime sets the time of a server that was started with WithClock, in microseconds since the Unix epoch. From when it
// returns, TIME and the expiry of keys go by that time, which stands still until it is set again. It may go back.
func (s *Server) SetTime(micros int64) {
	s.t.Helper()
	if s.clock == nil {
		s.t.Fatalf("redis-server on %s: SetTime needs a server that was started with WithClock", s.Addr())
	}
	s.clock.set(micros)
}

// ClockFile returns the file that the time of a server lies in which was started with WithClock, for a process of its own that
// sets it: the microseconds since the Unix epoch, as eight bytes in the machine's order.
func (s *Server) ClockFile() string {
	s.t.Helper()
	if s.clock == nil {
		s.t.Fatalf("redis-server on %s: ClockFile needs a server that was started with WithClock", s.Addr())
	}
	return s.clock.file
}
