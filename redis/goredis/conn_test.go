package goredis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/tools/must"
)

// fake is a server that answers a script with its last argument, a number, once answer allows it.
type fake struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex
	changed  sync.Cond
	conns    []net.Conn
	scripts  int // how many have arrived
	answered int
	most     int      // how many it may answer; negative: all
	errors   []string // the replies to the next scripts
	log      []string // the names of the commands, each after the number of its connection
}

func newFake(t *testing.T) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	f := &fake{listener: l}
	f.changed.L = &f.mu
	f.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, c)
			f.mu.Unlock()
			f.wg.Go(func() { f.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.answer(-1)
		f.mu.Lock()
		for _, c := range f.conns {
			_ = c.Close()
		}
		f.mu.Unlock()
		f.wg.Wait()
	})
	return f
}

// answer lets the fake answer that many scripts in total; a negative number: all.
func (f *fake) answer(most int) {
	f.mu.Lock()
	f.most = most
	f.mu.Unlock()
	f.changed.Broadcast()
}

// arrived returns how many scripts have arrived.
func (f *fake) arrived() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.scripts
}

// serve reads in one goroutine, and answers in another. So calls arrive even while it answers none.
func (f *fake) serve(c net.Conn) {
	replies := make(chan string, 10_000)
	f.wg.Go(func() {
		for reply := range replies {
			if script, ok := strings.CutPrefix(reply, "script "); ok {
				f.mu.Lock()
				for f.most >= 0 && f.answered >= f.most {
					f.changed.Wait()
				}
				f.answered++
				f.mu.Unlock()
				reply = script
			}
			if _, err := io.WriteString(c, reply); err != nil {
				_ = c.Close()
			}
		}
	})
	defer close(replies)
	r := bufio.NewReader(c)
	for {
		command, err := readCommand(r)
		if err != nil {
			return
		}
		switch name := strings.ToLower(command[0]); name {
		case "hello":
			replies <- "-ERR unknown command\r\n"
		case "eval", "evalsha":
			reply := "script *1\r\n:" + command[len(command)-1] + "\r\n"
			f.mu.Lock()
			f.scripts++
			f.log = append(f.log, fmt.Sprintf("%d %s", slices.Index(f.conns, c), name))
			if len(f.errors) > 0 {
				reply = f.errors[0] + "\r\n"
				f.errors = f.errors[1:]
			}
			f.mu.Unlock()
			replies <- reply
		default:
			replies <- "+OK\r\n"
		}
	}
}

func readCommand(r *bufio.Reader) ([]string, error) {
	var n, length int
	if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
		return nil, err
	}
	list := make([]string, n)
	for i := range list {
		if _, err := fmt.Fscanf(r, "$%d\r\n", &length); err != nil {
			return nil, err
		}
		b := make([]byte, length+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		list[i] = string(b[:length])
	}
	return list, nil
}

// patience is the longest wait for something that takes no time, on a busy machine.
const patience = 30 * time.Second

func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// newCaller returns a conn to the fake, and a function that makes a call and checks that the reply is that of this call.
func newCaller(t *testing.T, f *fake, connections int, timeout time.Duration) (*conn, func(n int) error) {
	t.Helper()
	client, err := New(Config{Addresses: []string{f.listener.Addr().String()}, PoolSize: connections, Timeout: timeout, ReadTimeout: patience})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = client.Close() })
	script := &redis.Script{SHA1: strings.Repeat("0", 40)}
	return client.(*single).conn, func(n int) error {
		call := &redis.Call{Script: script, Keys: []string{"key"}, Args: []string{strconv.Itoa(n)}}
		err := client.(*single).conn.Run(call)
		if err == nil && (len(call.Reply) != 1 || call.Reply[0] != int64(n)) {
			return fmt.Errorf("call %d has the reply %v", n, call.Reply)
		}
		return err
	}
}

func (c *conn) queue() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

func TestCallsThatWaitAreSentTogether(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, call := newCaller(t, f, 1, patience)
	var wg sync.WaitGroup
	send := func(from, to int) {
		for n := from; n < to; n++ {
			wg.Go(func() {
				if err := call(n); err != nil {
					t.Error(err)
				}
			})
		}
	}
	// A call without an answer has the connection, and the others wait.
	send(0, 1)
	until(t, "the first call is sent at once", func() bool { return f.arrived() == 1 })
	const others = most + 44
	send(1, 1+others)
	until(t, "the others wait", func() bool { return c.queue() == others })
	must.Equal(t, f.arrived(), 1, "calls were sent over a connection that was not free")
	f.answer(1)
	until(t, "all that one pipeline takes arrive, though none of them is answered", func() bool { return f.arrived() == 1+most })
	if got := c.queue(); got != 44 {
		t.Errorf("%d calls wait, want 44", got)
	}
	f.answer(1 + most)
	until(t, "the rest arrives", func() bool { return f.arrived() == 1+others })
	f.answer(-1)
	wg.Wait()
}

func TestASingleCallIsSentAtOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, call := newCaller(t, f, 3, patience)
	var wg sync.WaitGroup
	for n := range 3 { // each before the earlier ones are answered, and without any others
		wg.Go(func() {
			if err := call(n); err != nil {
				t.Error(err)
			}
		})
		until(t, "the call is sent", func() bool { return f.arrived() == n+1 })
		must.Equal(t, c.queue(), 0, "calls wait")
	}
	f.answer(-1)
	wg.Wait()
}

func TestACallThatTimesOutInTheQueueIsNotSent(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, call := newCaller(t, f, 1, 50*time.Millisecond)
	for n := range 20 {
		if err := call(n); !errors.Is(err, redis.ErrTimeout) {
			t.Errorf("call %d: %v", n, err)
		}
	}
	f.answer(-1)
	later := 0
	until(t, "a later call is answered", func() bool {
		later++
		return call(100) == nil
	})
	if got := f.arrived(); got < 2 || got > 1+later { // the first, and those when answers came, of which some may time out
		t.Errorf("%d calls were sent, %d of them when answers came", got, later)
	}
	must.Equal(t, c.queue(), 0, "calls wait")
}

func TestCallsThatWaitEndWithClose(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c, call := newCaller(t, f, 1, patience)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := call(0); err == nil {
			t.Error("a call without an answer has no error")
		}
	})
	until(t, "the first call is sent", func() bool { return f.arrived() == 1 })
	for n := range 5 {
		wg.Go(func() {
			if err := call(n); !errors.Is(err, redis.ErrUnavailable) {
				t.Errorf("a call that waits: %v", err)
			}
		})
	}
	until(t, "the others wait", func() bool { return c.queue() == 5 })
	c.close()
	_ = c.client.Close()
	wg.Wait()
	must.Equal(t, f.arrived(), 1, "calls were sent")
}

func TestRepliesReachTheirCallers(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer(0)
	_, call := newCaller(t, f, 2, 2*time.Millisecond)
	var callers sync.WaitGroup
	done := make(chan struct{})
	var mu sync.Mutex
	answered, late := 0, 0
	for caller := range 32 {
		callers.Go(func() {
			for n := caller * 1_000_000; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				err := call(n)
				mu.Lock()
				switch {
				case err == nil:
					answered++
				case errors.Is(err, redis.ErrTimeout):
					late++
				default:
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	allowed := 0
	until(t, "calls are answered and given up", func() bool {
		mu.Lock()
		defer mu.Unlock()
		allowed += 50 // at this pace some answers come in time, and some do not
		f.answer(allowed)
		return answered >= 1000 && late >= 300
	})
	close(done)
	f.answer(-1)
	callers.Wait()
}

func TestACallThatWasNotExecutedIsSentAgain(t *testing.T) {
	t.Parallel()
	const (
		readOnly   = "-READONLY You can't write against a read only replica. script: 1, on @user_script:1."
		readOnly62 = "-ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write against a read only replica."
		noScript   = "-NOSCRIPT No matching script. Please use EVAL."
	)
	for _, test := range []struct {
		name    string
		replies []string
		log     string
		fails   string // a part of the error
	}{
		{"nothing is wrong", nil, "0 evalsha", ""},
		{"the script is not known", []string{noScript}, "0 evalsha, 0 eval", ""},
		{"the server is a replica", []string{readOnly}, "0 evalsha, 1 evalsha", ""},
		{"the server is an old replica", []string{readOnly62}, "0 evalsha, 1 evalsha", ""},
		{"one after the other", []string{readOnly, noScript}, "0 evalsha, 1 evalsha, 1 eval", ""},
		{"the server stays a replica", []string{readOnly, readOnly, readOnly, readOnly, readOnly}, "0 evalsha, 1 evalsha, 2 evalsha, 3 evalsha", "READONLY"},
		{"the server has an error", []string{"-ERR user_script:1: something"}, "0 evalsha", "something"},
		{"the server loads", []string{"-LOADING Redis is loading the dataset in memory"}, "0 evalsha", "LOADING"},
		{"the server has no memory", []string{"-OOM command not allowed when used memory > 'maxmemory'."}, "0 evalsha", "OOM"},
		{"the server belongs to a Cluster", []string{"-MOVED 1 127.0.0.1:1"}, "0 evalsha", "configure it as one"},
		{"the server is busy", []string{"-BUSY Redis is busy running a script."}, "0 evalsha", "BUSY"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.answer(-1)
			f.errors = test.replies
			_, call := newCaller(t, f, 1, patience)
			err := call(1)
			if (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("error %v, want %q", err, test.fails)
			}
			f.mu.Lock()
			got := strings.Join(f.log, ", ")
			f.mu.Unlock()
			must.Equal(t, got, test.log, "the connections and commands were")
		})
	}
}

func TestReadingStopsAtAReplyThatAnnouncesTooMuch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		stream string
		ok     bool
	}{
		{"*3\r\n:1234567890123\r\n:0\r\n:0\r\n", true},
		{"*16384\r\n", true},
		{"$99999\r\n", true},
		{"-ERR 1234567890 is not *1234567890\r\n", true},
		{"+1234567890\r\n:1234567890\r\n$-1\r\n*-1\r\n*0\r\n", true},
		{"*100000\r\n", false},
		{"$100000\r\n", false},
		{"*+100000\r\n", false},
		{"*++100000\r\n", false},
		{"%100000\r\n", false},
		{"~100000\r\n", false},
		{">100000\r\n", false},
		{"=100000\r\n", false},
		{"!100000\r\n", false},
		{"*3\r\n:1\r\n$99999999999\r\n", false},
		{"+OK\r\n*99999999999\r\n", false},
	} {
		for name, source := range map[string]io.Reader{
			"at once":      strings.NewReader(test.stream),
			"byte by byte": iotest.OneByteReader(strings.NewReader(test.stream)),
		} {
			got, err := io.ReadAll(guard(&stream{Reader: source}))
			if test.ok && (err != nil || string(got) != test.stream) || !test.ok && !errors.Is(err, errMalformed) {
				t.Errorf("%q %s: %q, %v", test.stream, name, got, err)
			}
		}
	}
}

// stream is a connection to read from.
type stream struct {
	net.Conn
	io.Reader
}

func (s *stream) Read(b []byte) (int, error) { return s.Reader.Read(b) }

// A reply that comes after its caller has left goes to the call's Late; and so does the end of the connection. A call that was not sent has no Late.
func TestWhatComesLateReachesItsCall(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	client, _ := newCaller(t, f, 1, 50*time.Millisecond)
	came := make(chan error, 1)
	late := func(n int) *redis.Call {
		var c *redis.Call
		until(t, "a call is sent, and its caller leaves", func() bool {
			c = &redis.Call{Script: &redis.Script{SHA1: strings.Repeat("0", 40)}, Keys: []string{"key"}, Args: []string{strconv.Itoa(n)}}
			c.Late = func(err error) { came <- err }
			err := client.Run(c)
			if !errors.Is(err, redis.ErrTimeout) {
				t.Fatalf("call %d: %v", n, err)
			}
			return !errors.Is(err, redis.ErrUnsent)
		})
		return c
	}
	c := late(7)
	f.answer(1)
	if err := <-came; err != nil || len(c.Reply) != 1 || c.Reply[0] != 7 {
		t.Errorf("%v, %v", c.Reply, err)
	}
	late(8)
	f.mu.Lock()
	for _, conn := range f.conns {
		_ = conn.Close()
	}
	f.mu.Unlock()
	if err := <-came; err == nil {
		t.Error("no error, though the connection has ended")
	}
}
