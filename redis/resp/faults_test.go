//go:build gc
// +build gc

package resp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/redistest"
)

// secret is the password in the configurations of these tests. No error may have it.
const secret = "hunter2"

// rights are the permissions that a user needs for the script of these tests.
const rights = "+evalsha +eval +incr"

func TestEveryWayToAServer(t *testing.T) {
	t.Parallel()
	const password = `p@ss:w/o?r#d%`
	certificates := redistest.NewCertificates(t)
	dir, err := os.MkdirTemp("", "weir") // t.TempDir may be too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "redis.sock")
	plain := redistest.Start(t, redistest.WithPassword(password), redistest.WithUser("weir", "right", "~test* "+rights), redistest.WithConfig("unixsocket "+socket))
	encrypted := redistest.Start(t, redistest.WithTLS(certificates, "yes"), redistest.WithPassword(password))
	old := redistest.Start(t, redistest.WithConfig(`rename-command AUTH ""`))
	bare := &tls.Config{RootCAs: certificates.Config().RootCAs}
	named := certificates.Config()
	named.ServerName = "redis.example"
	escaped := url.QueryEscape(password)
	for _, c := range []struct {
		name   string
		config Config
		fails  string // a part of the error
	}{
		{"a password", Config{Addresses: []string{plain.Addr()}, Password: password}, ""},
		{"a password in a URL", Config{Addresses: []string{"redis://:" + escaped + "@" + plain.Addr() + "/2"}}, ""},
		{"a user with no other right", Config{Addresses: []string{plain.Addr()}, Username: "weir", Password: "right"}, ""},
		{"a user in a URL", Config{Addresses: []string{"redis://weir:right@" + plain.Addr()}}, ""},
		{"a Unix socket", Config{Addresses: []string{socket}, Password: password, Database: 3}, ""},
		{"a Unix socket's URL", Config{Addresses: []string{"unix://:" + escaped + "@" + socket + "?db=4"}}, ""},
		{"TLS", Config{Addresses: []string{encrypted.Addr()}, Password: password, TLS: certificates.Config()}, ""},
		{"TLS by a URL", Config{Addresses: []string{"rediss://:" + escaped + "@" + encrypted.Addr() + "/1"}, TLS: certificates.Config()}, ""},

		{"no password", Config{Addresses: []string{plain.Addr()}}, "NOAUTH"},
		{"no password, and a database", Config{Addresses: []string{plain.Addr()}, Database: 1}, "not available: NOAUTH"},
		{"a wrong password", Config{Addresses: []string{plain.Addr()}, Password: secret}, "not available: WRONGPASS"},
		{"a wrong password in a URL", Config{Addresses: []string{"redis://weir:" + secret + "@" + plain.Addr()}}, "not available: WRONGPASS"},
		{"a server that does not know AUTH", Config{Addresses: []string{old.Addr()}, Password: strings.Repeat(secret, 30)}, "not available: ERR unknown command 'AUTH'"},
		{"no such database", Config{Addresses: []string{plain.Addr()}, Password: password, Database: 99}, "not available: ERR DB index"},
		{"a right is missing", Config{Addresses: []string{plain.Addr()}, Username: "weir", Password: "right", Database: 1}, "NOPERM"},
		{"TLS to a server without", Config{Addresses: []string{"rediss://" + plain.Addr()}, DialTimeout: 100 * time.Millisecond}, "not connected over TLS in 100ms"},
		{"no TLS to a server with it", Config{Addresses: []string{encrypted.Addr()}}, "EOF|reset|broken pipe"},
		{"no client certificate", Config{Addresses: []string{encrypted.Addr()}, TLS: bare}, "certificate required|reset|broken pipe"},
		{"the certificate of another name", Config{Addresses: []string{encrypted.Addr()}, Password: password, TLS: named}, "certificate is valid for localhost, not redis.example"},
		{"an unknown authority", Config{Addresses: []string{"rediss://" + encrypted.Addr()}}, "certificate signed by unknown authority"},
		{"nobody there", Config{Addresses: []string{"127.0.0.1:1"}}, "not available: .*refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.config.DialTimeout == 0 { // on a busy machine a handshake takes seconds
				c.config.DialTimeout = patience
			}
			client := newClient(t, c.config)
			_, err := take(client, newName(), 1)
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !regexp.MustCompile(c.fails).MatchString(err.Error())) {
				t.Errorf("error %v, want %q", err, c.fails)
			}
			kind := ""
			if c.fails != "" {
				kind = "connection"
			}
			if strings.Contains(c.fails, "ERR") || strings.Contains(c.fails, "NO") || strings.Contains(c.fails, "WRONG") { // a reply of the server
				kind = "reply"
			}
			if got := redis.ErrorKind(err); got != kind {
				t.Errorf("error %v is of the kind %q, want %q", err, got, kind)
			}
			if err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), password)) {
				t.Errorf("error %q has a password in it", err)
			}
		})
	}
	t.Run("no other permission is needed", func(t *testing.T) {
		if log := plain.MustDo(t, "ACL", "LOG").String(); strings.Contains(log, "reason command") && !strings.Contains(log, "select") {
			t.Errorf("the server has refused something: %v", log)
		}
	})
}

// counted returns how many calls a server has counted for a key.
func counted(t *testing.T, s *redistest.Server, key string) int64 {
	t.Helper()
	n := int64(0)
	_, _ = fmt.Sscan(s.MustDo(t, "GET", key).Text, &n)
	return n
}

// recovers waits until the server answers a client's calls again.
func recovers(t *testing.T, c *single) {
	t.Helper()
	until(t, "being answered again", func() bool { _, err := take(c, newName(), 1); return err == nil })
}

// load starts callers that count for a key, until the returned function is called. That returns how many calls were answered and how many
// failed.
func load(c *single, callers int, key string) (stop func() (answered, failed int64, last error)) {
	return loadAndCount(c, callers, key, new(atomic.Int64))
}

// loadAndCount does the same as load, and counts meanwhile how many calls have failed.
func loadAndCount(c *single, callers int, key string, failed *atomic.Int64) (stop func() (int64, int64, error)) {
	var answered atomic.Int64
	var last atomic.Value
	var wg sync.WaitGroup
	done := make(chan struct{})
	for i := range callers {
		wg.Go(func() {
			for n := int64(i) * 1_000_000_000; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				if _, err := take(c, key, n); err != nil {
					failed.Add(1)
					last.Store(&err)
					time.Sleep(time.Millisecond)
				} else {
					answered.Add(1)
				}
			}
		})
	}
	return func() (int64, int64, error) {
		close(done)
		wg.Wait()
		var err error
		if e, ok := last.Load().(*error); ok {
			err = *e
		}
		return answered.Load(), failed.Load(), err
	}
}

func TestACallThatMayHaveBeenExecutedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := newClient(t, Config{Addresses: []string{proxy.Addr()}})
	key := newName()
	lost := func(what string, spoil func()) {
		t.Helper()
		recovers(t, c)
		before := counted(t, server, key)
		spoil()
		if _, err := take(c, key, 1); err == nil {
			t.Errorf("%s: no error", what)
		}
		proxy.Pass()
		if after := counted(t, server, key); after != before+1 {
			t.Errorf("%s: the call was counted %d times", what, after-before)
		}
	}
	lost("the reply is dropped", func() { proxy.DropReply("evalsha") })
	for n := 1; n < len("*3\r\n:1\r\n:0\r\n:1\r\n"); n++ {
		lost(fmt.Sprintf("the reply is cut after %d bytes", n), func() { proxy.CutAfter(n) })
	}
	lost("the reply is garbled", func() { proxy.Garble(nil) })
	recovers(t, c)
}

func TestKilledConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := newClient(t, Config{Addresses: []string{server.Addr()}, Timeout: time.Second})
	key := newName()
	stop := load(c, 32, key)
	for range 50 {
		until(t, "a connection is killed", func() bool { return server.MustDo(t, "CLIENT", "KILL", "TYPE", "normal").Int > 0 })
	}
	recovers(t, c)
	answered, failed, last := stop()
	if used := counted(t, server, key); used < answered || used > answered+failed {
		t.Errorf("%d calls were counted; %d were answered, and %d failed", used, answered, failed)
	}
	t.Logf("%d calls were answered, %d failed: %v", answered, failed, last)
}

// Whatever ends a connection whose callers read by themselves, or makes replies late, no caller gets the reply of another, and none is counted twice.
func TestCallersWhoReadGetTheirOwnRepliesThroughFaults(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := newClient(t, Config{Addresses: []string{proxy.Addr()}, Timeout: 50 * time.Millisecond, ReadTimeout: 200 * time.Millisecond, DialTimeout: patience})
	key := newName()
	var answered, failed, overPipeline atomic.Int64
	var seen sync.Map
	var wg sync.WaitGroup
	done := make(chan struct{})
	for i := range 16 {
		wg.Go(func() {
			for n := int64(i) * 1_000_000_000; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				reply, open, err := pass(c, key, n)
				if open {
					overPipeline.Add(1)
				}
				if err != nil {
					failed.Add(1)
					continue
				}
				answered.Add(1)
				if len(reply) != 2 || reply[1] != n {
					t.Errorf("call %d has the reply %v", n, reply)
					return
				}
				if _, twice := seen.LoadOrStore(reply[0], n); twice {
					t.Errorf("two calls have the reply %v", reply)
				}
			}
		})
	}
	link := func() *link {
		c.fast.mu.Lock()
		defer c.fast.mu.Unlock()
		return c.fast.link
	}
	late := func() {
		before := failed.Load()
		until(t, "calls fail", func() bool { return failed.Load() > before })
	}
	left := func() {
		before := link()
		until(t, "the connection is left", func() bool { return link() != before })
	}
	for _, fault := range []func(){
		func() { server.MustDo(t, "CLIENT", "KILL", "TYPE", "normal") },
		func() { server.Pause(); late(); server.Resume() },
		func() { server.Pause(); left(); server.Resume() },
		func() { server.MustDo(t, "SCRIPT", "FLUSH") },
		func() { proxy.CutAfter(3); left(); proxy.Pass() },
		func() { proxy.HangUp(); proxy.Pass() },
		func() {
			server.MustDo(t, "REPLICAOF", "127.0.0.1", "1")
			left()
			server.MustDo(t, "REPLICAOF", "NO", "ONE")
		},
	} {
		for range 2 {
			before := overPipeline.Load()
			until(t, "callers read", func() bool { return overPipeline.Load() > before+100 })
			fault()
		}
	}
	close(done)
	wg.Wait()
	if used := counted(t, server, key); used < answered.Load() || used > answered.Load()+failed.Load() {
		t.Errorf("%d calls were counted; %d were answered, and %d failed", used, answered.Load(), failed.Load())
	}
}

// A call that comes while a client waits before it connects again is not lost: it was not sent. But if nobody serves it for some connections, calls
// fail at once.
func TestACallThatWasNotSentWaitsForTheNextConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := newClient(t, Config{Addresses: []string{proxy.Addr()}})
	waitsBefore := func() (link, attempt, connecting bool, failures int) {
		c.conn.mu.Lock()
		defer c.conn.mu.Unlock()
		return c.conn.link != nil, c.conn.attempt != nil, c.conn.connecting, c.conn.failures
	}
	for n := int64(1); n <= 20; n++ {
		recovers(t, c)
		proxy.HangUp()
		until(t, "the client waits before it connects again", func() bool {
			link, _, connecting, failures := waitsBefore()
			if !link && !connecting { // nobody asks
				_, _ = take(c, newName(), 1)
			}
			return !link && connecting && failures >= 2
		})
		proxy.Pass()
		if _, attempt, _, failures := waitsBefore(); !attempt && failures <= mostAwaited {
			t.Errorf("after %d connections in a row calls do not wait for the next one", failures)
		}
	}
	proxy.HangUp()
	until(t, "calls fail at once", func() bool {
		_, err := take(c, newName(), 1)
		_, attempt, connecting, failures := waitsBefore()
		return err != nil && connecting && !attempt && failures > mostAwaited
	})
}

func TestFlushedScriptsUnderLoad(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := newClient(t, Config{Addresses: []string{server.Addr()}})
	key := newName()
	stop := load(c, 32, key)
	for range 100 {
		server.MustDo(t, "SCRIPT", "FLUSH")
	}
	answered, failed, last := stop()
	if used := counted(t, server, key); failed != 0 || used != answered {
		t.Errorf("%d calls were counted; %d were answered, and %d failed: %v", used, answered, failed, last)
	}
}

// If a server is silent, a call fails at its deadline. If the server says, or shows, that it does not answer, the call fails with that at once.
func TestServersThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	hurried := newClient(t, Config{Addresses: []string{proxy.Addr()}, Timeout: 50 * time.Millisecond, DialTimeout: 100 * time.Millisecond, ReadTimeout: 100 * time.Millisecond})
	patient := newClient(t, Config{Addresses: []string{proxy.Addr()}, DialTimeout: patience})
	for _, fault := range []struct {
		name   string
		begin  func()
		end    func()
		silent bool
		kind   string // of errors; if the server is silent, of those before the deadline
	}{
		{"a black hole", proxy.BlackHole, proxy.Pass, true, "connection"},
		{"a slow network", func() { proxy.Delay(time.Second) }, proxy.Pass, true, "connection"},
		{"a stopped server", server.Pause, server.Resume, true, "connection"},
		{"closed connections", proxy.HangUp, proxy.Pass, false, "connection"},
		{"refused connections", proxy.Refuse, proxy.Pass, false, "connection"},
		{"garbage", func() { proxy.Garble(nil) }, proxy.Pass, false, "reply"},
		{"a dead server", server.Kill, server.Restart, false, "connection"},
	} {
		c := patient
		if fault.silent {
			c = hurried
		}
		recovers(t, c)
		fault.begin()
		for range 10 {
			began := time.Now()
			_, err := take(c, newName(), 1)
			late := fault.silent && errors.Is(err, redis.ErrTimeout)
			if !late && !errors.Is(err, redis.ErrUnavailable) {
				t.Errorf("%s: error %v", fault.name, err)
			}
			if kind := redis.ErrorKind(err); !late && kind != fault.kind {
				t.Errorf("%s: error %v is of the kind %q, want %q", fault.name, err, kind, fault.kind)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: a call took %v", fault.name, took)
			}
		}
		var failed atomic.Int64
		stop := loadAndCount(c, 16, newName(), &failed)
		until(t, "calls fail, and another connection is tried", func() bool {
			c.conn.mu.Lock()
			defer c.conn.mu.Unlock()
			return failed.Load() > 0 && (c.conn.failures > 0 || c.conn.link == nil)
		})
		fault.end()
		recovers(t, c)
		stop()
	}
}

func TestAReplicaIsUsedAgainWhenItIsTheMaster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := newClient(t, Config{Addresses: []string{server.Addr()}})
	key := newName()
	if _, err := take(c, key, 1); err != nil {
		t.Fatal(err)
	}
	server.MustDo(t, "REPLICAOF", "127.0.0.1", "1")
	for range 20 {
		if _, err := take(c, key, 1); err == nil || !strings.Contains(err.Error(), "READONLY") {
			t.Fatalf("a replica: %v", err)
		}
	}
	server.MustDo(t, "REPLICAOF", "NO", "ONE")
	recovers(t, c)
	if used := counted(t, server, key); used != 1 {
		t.Errorf("%d calls were counted, want 1", used)
	}

	// Back and forth under load: calls that were answered were counted once, and those that failed were not.
	stop := load(c, 8, key)
	for range 10 {
		server.MustDo(t, "REPLICAOF", "127.0.0.1", "1")
		before := c.conn.failuresSeen()
		until(t, "it has refused", func() bool { return c.conn.failuresSeen() > before || c.conn.failuresSeen() > 0 })
		server.MustDo(t, "REPLICAOF", "NO", "ONE")
		recovers(t, c)
	}
	answered, failed, last := stop()
	if used := counted(t, server, key); used != answered+1 {
		t.Errorf("%d calls were counted, and %d were answered; %d failed: %v", used, answered, failed, last)
	}
}

func (c *conn) failuresSeen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failures
}

func TestAServerThatComesLaterIsFound(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	c := newClient(t, Config{Addresses: []string{server.Addr()}})
	if _, err := take(c, newName(), 1); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("a server that is not there: %v", err)
	}
	server.Restart()
	until(t, "a connection is made, though nobody asks", func() bool {
		c.conn.mu.Lock()
		defer c.conn.mu.Unlock()
		return c.conn.link != nil
	})
	if n, err := take(c, newName(), 1); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	began := time.Now() // between two attempts to connect a call fails at once
	server.Stop()
	for range 10_000 {
		_, _ = take(c, newName(), 1)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("10000 calls to a dead server took %v", took)
	}
}

// Some servers close idle connections. One that nobody has used is not made again then.
func TestAnIdleConnectionIsMadeAgainOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := newClient(t, Config{Addresses: []string{server.Addr()}})
	if _, err := take(c, newName(), 1); err != nil {
		t.Fatal(err)
	}
	kill := func() {
		until(t, "the connection is closed", func() bool { return server.MustDo(t, "CLIENT", "KILL", "TYPE", "normal").Int > 0 })
	}
	state := func() (connected, connecting bool) {
		c.conn.mu.Lock()
		defer c.conn.mu.Unlock()
		return c.conn.link != nil, c.conn.connecting
	}
	c.conn.mu.Lock()
	first := c.conn.link
	c.conn.mu.Unlock()
	kill()
	until(t, "it is made again", func() bool {
		c.conn.mu.Lock()
		defer c.conn.mu.Unlock()
		return c.conn.link != nil && c.conn.link != first
	})
	c.conn.mu.Lock()
	c.conn.asked = -time.Hour // long ago
	c.conn.mu.Unlock()
	kill()
	until(t, "it is not made again", func() bool { connected, connecting := state(); return !connected && !connecting })
	if _, err := take(c, newName(), 1); err != nil {
		t.Error(err)
	}
}

// ours returns the stacks of goroutines that clients have started.
func ours() []string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var list []string
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		for _, name := range []string{"connect", "write", "dial", "lookUp", "leave"} {
			if strings.Contains(stack, "redis/resp."+name) {
				list = append(list, stack)
				break
			}
		}
	}
	return list
}

// It is not parallel, since it looks at all goroutines.
func TestNothingIsLeftAfterClose(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	dead := redistest.Start(t)
	dead.Stop()
	if left := ours(); len(left) != 0 {
		t.Fatalf("there are goroutines before the test begins:\n%s", strings.Join(left, "\n\n"))
	}
	var clients []*single
	var stops []func() (int64, int64, error)
	for _, addr := range []string{server.Addr(), proxy.Addr(), dead.Addr()} {
		for _, address := range []string{addr, "rediss://" + addr} {
			c := newClient(t, Config{Addresses: []string{address}, Timeout: 20 * time.Millisecond, DialTimeout: time.Minute, ReadTimeout: time.Minute})
			clients = append(clients, c)
			stops = append(stops, load(c, 4, newName()))
		}
	}
	for _, addr := range []string{server.Addr(), dead.Addr()} { // where there are neither Sentinels nor a Cluster
		c := newClient(t, Config{Addresses: []string{addr}, MasterName: "m", Timeout: 20 * time.Millisecond})
		clients = append(clients, c)
		stops = append(stops, load(c, 1, newName()))
		k, err := New(Config{Addresses: []string{addr}, Cluster: true})
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, func() (int64, int64, error) {
			_, err := k.Server("key")
			if err == nil {
				t.Error("a Cluster without nodes has a server")
			}
			return 0, 0, k.Close()
		})
	}
	for _, fault := range []func(){
		proxy.Cut,
		func() { proxy.Garble(nil) },
		proxy.HangUp,
		proxy.Refuse,
		proxy.BlackHole,
		func() { server.MustDo(t, "REPLICAOF", "127.0.0.1", "1") },
	} {
		fault()
		for range 20 {
			_, _ = take(clients[0], newName(), 1)
			_, _ = take(clients[2], newName(), 1)
		}
	}
	if n := len(ours()); n == 0 || n > 2*len(stops) {
		t.Errorf("%d clients have %d goroutines", len(stops), n)
	}
	for _, c := range clients {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, stop := range stops {
		stop()
	}
	left := ours
	until(t, "all goroutines end", func() bool { return len(left()) == 0 })
}
