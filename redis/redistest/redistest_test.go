package redistest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

func TestServerAnswers(t *testing.T) {
	t.Parallel()
	s := Start(t)
	if got := s.MustDo(t, "PING"); got.Kind != KindStatus || got.Text != "PONG" {
		t.Errorf("PING: %+v", got)
	}
	if got := s.MustDo(t, "DBSIZE"); got.Kind != KindInt || got.Int != 0 {
		t.Errorf("DBSIZE of an empty server: %+v", got)
	}
	if got := s.MustDo(t, "GET", "none"); !got.Nil() {
		t.Errorf("GET of no key: %+v", got)
	}
	value := "two\r\nlines and \x00"
	s.MustDo(t, "SET", "key", value)
	if got := s.MustDo(t, "GET", "key"); got.Kind != KindBulk || got.Text != value {
		t.Errorf("GET: %+v", got)
	}
	if got := s.MustDo(t, "EVAL", "return {1, 'a', {redis.error_reply('E x')}, false}", "0"); got.String() != "[1 a [E x] (nil)]" {
		t.Errorf("EVAL: %v", got)
	}
	_, err := s.Do("LPUSH", "key", "x")
	var reply Error
	if !errors.As(err, &reply) || !strings.HasPrefix(string(reply), "WRONGTYPE ") {
		t.Errorf("LPUSH to a string: %v", err)
	}
	s.MustDo(t, "DEBUG", "SET-ACTIVE-EXPIRE", "0")
}

func TestServerIsKilledAndRestartedEmpty(t *testing.T) {
	t.Parallel()
	s := Start(t, WithConfig("maxmemory 7mb"))
	addr := s.Addr()
	s.MustDo(t, "SET", "key", "value")
	s.Kill()
	if s.Running() {
		t.Error("it is running after Kill")
	}
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting to a killed server: %v", err)
	}
	if _, err := s.Do("PING"); err == nil {
		t.Error("a killed server answers")
	}
	for range 2 { // a dead one and a living one
		s.Restart()
		if s.Addr() != addr {
			t.Errorf("address %s after a restart, before it %s", s.Addr(), addr)
		}
		must.Equal(t, s.MustDo(t, "DBSIZE").Int, 0, "keys after a restart")
		if got := s.MustDo(t, "CONFIG", "GET", "maxmemory"); got.String() != "[maxmemory 7340032]" {
			t.Errorf("a line of the configuration is lost: %v", got)
		}
		s.MustDo(t, "SET", "key", "value")
	}
	s.Stop()
	s.Stop()
	s.Kill()
	if s.Running() {
		t.Error("it is running after Stop")
	}
}

func TestPausedServerAnswersWhenResumed(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c, err := s.Dial()
	must.Succeed(t, err)
	defer c.Close()
	s.Pause()
	answered := make(chan error, 1)
	go func() {
		_, err := c.Do("PING")
		answered <- err
	}()
	if state := processState(t, s); state != "T" {
		t.Errorf("a paused process is in state %s, T expected", state)
	}
	select {
	case <-answered:
		t.Error("a paused server answers")
	default:
	}
	s.Resume()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// processState waits until the process is stopped or the bound is reached, and returns its state.
func processState(t *testing.T, s *Server) string {
	t.Helper()
	var state string
	for range 1000 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.current().cmd.Process.Pid))
		must.Succeed(t, err)
		_, rest, _ := strings.Cut(string(b), ") ")
		if state = rest[:1]; state == "T" {
			break
		}
		time.Sleep(pause)
	}
	return state
}

func TestNothingIsLeftAfterATest(t *testing.T) {
	t.Parallel()
	pids := make(map[string]int)
	t.Run("servers", func(t *testing.T) {
		add := func(name string, s *Server) {
			pids[name] = s.current().cmd.Process.Pid
		}
		add("running", Start(t))
		paused := Start(t)
		paused.Pause()
		add("paused", paused)
		busy := Start(t)
		add("busy in a script", busy)
		c, err := busy.Dial()
		must.Succeed(t, err)
		defer c.Close()
		fmt.Fprintf(c.conn, "EVAL 'while true do end' 0\r\n")
		stopped := Start(t)
		add("stopped", stopped)
		stopped.Stop()
		restarted := Start(t, WithClock())
		add("before a restart", restarted)
		restarted.Restart()
		add("restarted", restarted)
	})
	for name, pid := range pids {
		p, err := os.FindProcess(pid)
		if err == nil {
			err = p.Signal(syscall.Signal(0))
		}
		if !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: process %d is still there: %v", name, pid, err)
		}
	}
}

func TestPortThatIsTakenIsReported(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Kill()
	l, err := net.Listen("tcp", s.Addr())
	must.Succeed(t, err)
	defer l.Close()
	if err = s.run(); err == nil || !portTaken(s.Log()) {
		t.Errorf("error %v, log\n%s", err, s.Log())
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	certs := NewCertificates(t)
	for _, clients := range []string{"yes", "no", "optional"} {
		s := Start(t, WithTLS(certs, clients))
		s.MustDo(t, "PING")
		bare := certs.Config()
		bare.Certificates = nil
		if err := pingTLS(s.Addr(), bare); (err != nil) != (clients == "yes") {
			t.Errorf("tls-auth-clients %s, a client without certificate: %v", clients, err)
		}
		stranger := NewCertificates(t).Config()
		if err := pingTLS(s.Addr(), stranger); err == nil {
			t.Errorf("tls-auth-clients %s: a client with another authority trusts the server", clients)
		}
		stranger.RootCAs = certs.roots
		if err := pingTLS(s.Addr(), stranger); (err != nil) != (clients != "no") {
			t.Errorf("tls-auth-clients %s, a client with another authority's certificate: %v", clients, err)
		}
		local := certs.Config()
		_, port, _ := net.SplitHostPort(s.Addr())
		if err := pingTLS("localhost:"+port, local); err != nil {
			t.Errorf("tls-auth-clients %s, as localhost: %v", clients, err)
		}
	}
}

func pingTLS(addr string, config *tls.Config) error {
	c, err := Dial(addr, config)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Do("PING")
	return err
}

func TestClockIsExact(t *testing.T) {
	t.Parallel()
	s := Start(t, WithClock())
	now := time.Now().Unix()
	if got := s.MustDo(t, "TIME").List[0].String(); strconv.FormatInt(now, 10)[:5] != got[:5] {
		t.Errorf("second %s before the time is set, really it is %d", got, now)
	}
	for _, micros := range []int64{
		1_772_452_800_000_000,
		1_772_452_800_000_001,
		1_772_452_800_999_999,
		1_772_452_799_999_999,   // back by a second
		4_000_000_000_123_456,   // years ahead
		1_000_000_000_000_007,   // years back
		253_402_300_799_999_999, // the year 9999
		0,                       // the epoch
		1_772_452_800_000_000,
	} {
		s.SetTime(micros)
		want := fmt.Sprintf("[%d %d]", micros/1_000_000, micros%1_000_000)
		for range 3 {
			if got := s.MustDo(t, "TIME").String(); got != want {
				t.Errorf("TIME %s, %s was set", got, want)
			}
			if got := s.MustDo(t, "EVAL", "return redis.call('TIME')", "0").String(); got != want {
				t.Errorf("TIME in a script %s, %s was set", got, want)
			}
		}
	}
}

func TestKeysExpireByTheClock(t *testing.T) {
	t.Parallel()
	for _, active := range []string{"0", "1"} {
		s := Start(t, WithClock())
		s.MustDo(t, "DEBUG", "SET-ACTIVE-EXPIRE", active)
		const start, year = int64(1_772_452_800_000_000), int64(366 * 24 * 3600 * 1_000_000)
		for _, lifetime := range []int64{1000, 1_000_000, 10 * year} {
			s.SetTime(start)
			end := start + lifetime
			s.MustDo(t, "SET", "key", "value", "PXAT", strconv.FormatInt(end/1000, 10))
			for _, step := range []struct {
				micros  int64
				visible bool
			}{
				{start + 999, true},
				{end - 1, true},
				{end, true},
				{start, true},
				{end + 999, true}, // the last microsecond of its millisecond
				{end + 1000, false},
			} {
				s.SetTime(step.micros)
				if got := s.MustDo(t, "EXISTS", "key"); (got.Int == 1) != step.visible {
					t.Errorf("active expiry %s, lifetime %dµs, %+dµs from its end: EXISTS %v", active, lifetime, step.micros-end, got)
				}
				if got := s.MustDo(t, "EVAL", "return redis.call('EXISTS', KEYS[1])", "1", "key"); (got.Int == 1) != step.visible {
					t.Errorf("active expiry %s, lifetime %dµs, %+dµs from its end: EXISTS in a script %v", active, lifetime, step.micros-end, got)
				}
			}
		}
		s.SetTime(start)
		s.MustDo(t, "SET", "key", "value", "PX", "1500")
		s.SetTime(start + 400_000)
		if got := s.MustDo(t, "PTTL", "key"); got.Int != 1100 {
			t.Errorf("PTTL %v after 400 of 1500 ms", got)
		}
		s.Restart()
		if got, want := s.MustDo(t, "TIME").String(), fmt.Sprintf("[%d %d]", (start+400_000)/1_000_000, 400_000); got != want {
			t.Errorf("TIME %s after a restart, %s was set", got, want)
		}
	}
}
