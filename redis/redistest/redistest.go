// Package redistest starts real Redis servers on loopback for tests: a single server, a cluster, or servers under
// Sentinel. It can kill, pause and restart them, set a server's clock, and put a proxy that injects faults in front of one.
//
//	server := redistest.Start(t, redistest.WithClock())
//	server.SetTime(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC).UnixMicro())
//	server.MustDo(t, "SET", "key", "value", "PX", "1000")
//
// It needs a server, and for WithClock a C compiler. Without them a test fails; it is not skipped. The server is the program that
// WEIR_REDIS_SERVER names, of Redis 6.2 or newer or of Valkey, or redis-server on the PATH. Pause and WithClock need Linux, and WithClock a
// server that is linked dynamically. The package imports the standard library alone, so that the tests of any module can use it. It stops everything that
// it has started when the test ends.
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

// patience is the longest wait for a server. It is far longer than any wait takes, for machines that are busy.
const patience = 60 * time.Second

// Server is a redis-server on loopback, without persistence. It is safe for concurrent use.
type Server struct {
	t       testing.TB
	options options
	program program
	dir     string
	port    int
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
	program, err := theProgram()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, options: o, program: program, dir: t.TempDir()}
	if o.clock {
		s.clock = newClock(t, s.dir)
	}
	t.Cleanup(s.Stop)
	for attempt := 1; ; attempt++ {
		s.port = freePort(t)
		config := o.config(s.port, program.major)
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

// portTaken reports whether a log says that the server has ended because another process had its port.
func portTaken(log string) bool {
	return strings.Contains(log, "Address already in use")
}

// run starts the process with the configuration in its folder, and waits until it answers.
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
	p, err := startProcess(s.program.path, s.dir, env, args...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.process, s.paused = p, false
	s.mu.Unlock()
	// Reads the log first: if another server has the port, that one would answer.
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
		return nil // any answer will do, even that the user has no permission
	}
	return err
}

// Addr returns the address, as host:port. With WithTLS the port is for TLS, and the server has no other.
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

// Do sends a command over a connection of its own, as the default user, and returns the reply. If the reply is an error, Do returns it as an
// error of type Error, too.
func (s *Server) Do(args ...string) (Reply, error) {
	c, err := s.Dial()
	if err != nil {
		return Reply{}, err
	}
	c.abandon()
	defer c.Close()
	return c.Do(args...)
}

// MustDo does the same as Do, but an error ends the test.
func (s *Server) MustDo(t testing.TB, args ...string) Reply {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%s: %s: %v", s.Addr(), strings.Join(args, " "), err)
	}
	return reply
}

// Running reports whether the process is alive, even if it is paused.
func (s *Server) Running() bool {
	p := s.current()
	return p != nil && p.running()
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// Stop asks the server to end, kills it if it does not, and waits for its end. It does nothing if the server is not running.
func (s *Server) Stop() {
	if p := s.current(); p != nil {
		p.stop()
	}
}

// Kill kills the server, and waits for its end. It does nothing if the server is not running.
func (s *Server) Kill() {
	if p := s.current(); p != nil {
		p.kill()
	}
}

// Pause suspends the process: its connections stay open, and it answers nothing until Resume. The system still accepts new
// connections.
func (s *Server) Pause() {
	s.t.Helper()
	s.setPaused(true, sigstop)
}

// Resume continues a paused process.
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

// Restart kills the server if it runs, and starts it again on its port, without its keys, its scripts, and the settings of CONFIG SET. A node
// of a cluster still knows the cluster. The clock stays as it is.
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

// SetTime sets the time of a server that was started with WithClock, in microseconds since the Unix epoch. When it has returned, TIME and the
// expiry of keys go by that time, which stands still until it is set again. It may be set back.
func (s *Server) SetTime(micros int64) {
	s.t.Helper()
	if s.clock == nil {
		s.t.Fatalf("redis-server on %s: SetTime needs a server that was started with WithClock", s.Addr())
	}
	s.clock.set(micros)
}

// ClockFile returns the file with the time of a server that was started with WithClock, so that another process can set it. The file has the
// microseconds since the Unix epoch, as eight bytes in the machine's byte order.
func (s *Server) ClockFile() string {
	s.t.Helper()
	if s.clock == nil {
		s.t.Fatalf("redis-server on %s: ClockFile needs a server that was started with WithClock", s.Addr())
	}
	return s.clock.file
}
