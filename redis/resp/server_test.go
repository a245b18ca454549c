package resp

import (
	"bufio"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/tools/underrace"
)

// The tests of this file run compiled and in the interpreter, against a real server.

// patience is the longest wait for something that takes no time, on a busy machine.
const patience = 30 * time.Second

// startServer returns the address of a server, and a function that sets its clock, or nil. In the interpreter the server is running already.
// (The compiled tests have another function here.)
var startServer = serverOfEnvironment

func serverOfEnvironment(t *testing.T) (string, func(int64)) {
	addr := os.Getenv("WEIR_TEST_REDIS")
	if addr == "" {
		t.Fatal("WEIR_TEST_REDIS is not set: in the interpreter these tests need the address of a Redis server, which they write to")
	}
	file := os.Getenv("WEIR_TEST_CLOCK")
	if file == "" {
		return addr, nil
	}
	return addr, func(micros int64) {
		b := make([]byte, 8)
		binary.NativeEndian.PutUint64(b, uint64(micros))
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt(b, 0)
			_ = f.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func newScript(source string) *redis.Script {
	sum := sha1.Sum([]byte(source))
	return &redis.Script{Source: source, SHA1: hex.EncodeToString(sum[:])}
}

// counting is a script that counts its calls for a key, and replies with its argument, too.
var counting = newScript("return {redis.call('INCR', KEYS[1]), 0, tonumber(ARGV[1])}")

var (
	namesMu sync.Mutex
	names   int64
)

// newName returns a name that no other test has used on that server.
func newName() string {
	namesMu.Lock()
	names++
	n := names
	namesMu.Unlock()
	return "test" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-" + strconv.FormatInt(n, 10) + ":"
}

func newClient(t *testing.T, c Config) *single {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = patience
	}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	client := newSingle(c)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// take counts one call for a key, and checks that the reply is that of this call.
func take(c *single, key string, n int64) (int64, error) {
	call := &redis.Call{Script: counting, Keys: []string{key}, Args: []string{strconv.FormatInt(n, 10)}}
	if err := c.conn.Run(call); err != nil {
		return 0, err
	}
	if len(call.Reply) != 3 || call.Reply[2] != n {
		return 0, fmt.Errorf("call %d has the reply %v", n, call.Reply)
	}
	return call.Reply[0], nil
}

// do sends a command over a connection of its own, and returns the first line of the reply.
func do(t *testing.T, addr string, words ...string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err = c.Write([]byte(command(words))); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// TestConformance and TestConformanceOfHistories run the conformance suite of stores.
func TestConformance(t *testing.T) {
	storetest.Run(t, conforming(t))
}

func TestConformanceOfHistories(t *testing.T) {
	underrace.OneGoroutine(t)
	storetest.RunHistories(t, conforming(t))
}

// conforming starts a server that uses the suite's clock, for all stores.
func conforming(t *testing.T) storetest.NewStore {
	addr, setTime := startServer(t)
	if setTime == nil {
		t.Skip("WEIR_TEST_CLOCK is not set: it names the file with the server's time")
	}
	return func(t *testing.T, clock *storetest.Clock) core.Store {
		clock.Follow(setTime)
		client, err := New(Config{Addresses: []string{addr}, Timeout: patience, DialTimeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		// The suite's clock makes steps that are longer than a lease.
		s, err := redis.NewStore(redis.Config{Client: client, Prefix: newName(), Clock: clock.Now, WallClock: clock.Now, Lease: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.CloseNow() }) // reservations of the suite that never end would keep it open
		return s
	}
}

func TestRepliesOfEveryKind(t *testing.T) {
	addr, _ := startServer(t)
	c := newClient(t, Config{Addresses: []string{addr}})
	long := strings.Repeat("x", 3*longestReady)
	for _, test := range []struct {
		source     string
		keys, args []string
		want       string
		fails      string
	}{
		{"return {1, -2, 9007199254740991}", []string{"k"}, []string{"a"}, "[1 -2 9007199254740991]", ""},
		{"return {}", []string{"k"}, []string{"a"}, "[]", ""},
		{"return {7}", []string{"k"}, []string{"a"}, "[7]", ""},
		{"return {ok = '1 99 5'}", []string{"k"}, []string{"a"}, "[1 99 5]", ""},
		{"return {ok = '-1'}", []string{"k"}, []string{"a"}, "[-1]", ""},
		{"return {#KEYS, #ARGV}", nil, nil, "[0 0]", ""},
		{"return {#KEYS, #ARGV, #ARGV[2]}", []string{"a", "b", "c"}, []string{"d", "\r\n\x00"}, "[3 2 3]", ""},
		{"return {#KEYS[1], #ARGV[1]}", []string{long}, []string{"a"}, "[3072 1]", ""},
		{"return {#KEYS[1], #ARGV[1]}", []string{""}, []string{long}, "[0 3072]", ""},
		{"return {#KEYS[1], #ARGV[1]}", []string{long[:longestReady]}, []string{long[:longestReady-1]}, "[1024 1023]", ""},
		{"return redis.error_reply('ERR as it is')", []string{"k"}, []string{"a"}, "", "redis: ERR as it is"},
		{"return {", []string{"k"}, []string{"a"}, "", "Error compiling script"},
		{"return redis.call('NOTHING')", []string{"k"}, []string{"a"}, "", "redis: ERR"},
	} {
		for time := 0; time < 2; time++ { // the second time the server knows the script
			call := &redis.Call{Script: newScript(test.source), Keys: test.keys, Args: test.args, Reply: []int64{5, 6, 7, 8}}
			err := c.conn.Run(call)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("%s: error %v, want %s", test.source, err, test.fails)
				}
				continue
			}
			if got := fmt.Sprint(call.Reply); err != nil || got != test.want {
				t.Errorf("%s: %s, %v; want %s", test.source, got, err, test.want)
			}
		}
	}
}

func TestManyCallersShareTheConnection(t *testing.T) {
	addr, _ := startServer(t)
	c := newClient(t, Config{Addresses: []string{addr}})
	each := 200
	if storetest.Interpreted() {
		each = 20
	}
	key := newName()
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := make(map[int64]bool)
	for i := 0; i < 64; i++ {
		caller := int64(i)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := 0; j < each; j++ {
				n, err := take(c, key, caller*1_000_000+int64(j))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[n] {
					t.Errorf("two calls got the number %d", n)
				}
				seen[n] = true
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	if want := int64(64 * each); int64(len(seen)) != want || !seen[1] || !seen[want] {
		t.Errorf("%d numbers were replied, want 1 to %d", len(seen), want)
	}
}

func TestAScriptThatIsFlushedIsSentAgain(t *testing.T) {
	addr, _ := startServer(t)
	c := newClient(t, Config{Addresses: []string{addr}})
	key := newName()
	for want := int64(1); want <= 5; want++ {
		if got := do(t, addr, "SCRIPT", "FLUSH"); got != "+OK" {
			t.Fatal(got)
		}
		got, err := take(c, key, want)
		if err != nil || got != want {
			t.Fatalf("%d calls were counted, want %d: %v", got, want, err)
		}
	}
}

func TestDatabasesAreApart(t *testing.T) {
	addr, _ := startServer(t)
	key := newName()
	for _, config := range []Config{{Addresses: []string{addr}}, {Addresses: []string{addr}, Database: 3}, {Addresses: []string{"redis://" + addr + "/4"}}} {
		c := newClient(t, config)
		if got, err := take(c, key, 1); got != 1 || err != nil {
			t.Errorf("%+v: %d, %v", config, got, err)
		}
	}
}

func TestALostConnectionIsMadeAgain(t *testing.T) {
	addr, _ := startServer(t)
	c := newClient(t, Config{Addresses: []string{addr}})
	key := newName()
	for i := int64(1); i <= 3; i++ {
		if got, err := take(c, key, i); got != i || err != nil {
			t.Fatalf("%d: %d, %v", i, got, err)
		}
		c.conn.mu.Lock()
		before := c.conn.link
		hangUp(before)
		c.conn.mu.Unlock()
		until(t, "a new connection", func() bool {
			c.conn.mu.Lock()
			defer c.conn.mu.Unlock()
			return c.conn.link != before && c.conn.link != nil
		})
	}
}

// until waits for a condition.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what + ": it has not come to that")
		}
	}
}

func TestNobodyWaitsLongerThanTheTimeout(t *testing.T) {
	addr, _ := startServer(t)
	c := newClient(t, Config{Addresses: []string{addr}, Timeout: 20 * time.Millisecond, ReadTimeout: patience})
	key := newName()
	until(t, "the first call", func() bool { _, err := take(c, key, 1); return err == nil })
	c.conn.mu.Lock()
	first := c.conn.link
	c.conn.mu.Unlock()
	blocks := newScript("local n = 0; while n < 3e7 do n = n + 1 end; return {1, 2, 3}") // far longer than the timeout
	call := &redis.Call{Script: blocks, Keys: []string{key}, Args: []string{""}}
	if err := c.conn.Run(call); !errors.Is(err, redis.ErrTimeout) {
		t.Errorf("a script that takes too long: %v", err)
	}
	call = &redis.Call{Script: counting, Keys: []string{key}, Args: []string{"1"}, Deadline: time.Now().Add(-time.Second)}
	if err := c.conn.Run(call); !errors.Is(err, redis.ErrTimeout) {
		t.Errorf("a deadline that has passed: %v", err)
	}
	until(t, "the server answers again", func() bool { _, err := take(c, key, 2); return err == nil })
	c.conn.mu.Lock()
	if c.conn.link != first {
		t.Error("the connection was closed, though the reply has come")
	}
	c.conn.mu.Unlock()
}

func TestNothingIsAnsweredAfterClose(t *testing.T) {
	addr, _ := startServer(t)
	c := newClient(t, Config{Addresses: []string{addr}})
	if _, err := take(c, newName(), 1); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 2; i++ {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := take(c, newName(), 1); !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}
