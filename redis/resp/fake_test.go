package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis"
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
	most     int               // how many it may answer; negative: all
	replies  []string          // for the next scripts
	always   map[string]string // the replies to commands of other names
	logins   []string          // the arguments of AUTH, each with colons between them
	log      []string          // the names of the commands, each after the number of its connection
}

func newFake(t *testing.T) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{listener: l, most: -1}
	f.changed.L = &f.mu
	together(&f.wg, func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			number := len(f.conns)
			f.conns = append(f.conns, c)
			f.mu.Unlock()
			together(&f.wg, func() { f.serve(c, number) })
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

// together runs a function in a goroutine of the group.
func together(wg *sync.WaitGroup, f func()) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		f()
	}()
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

// commands returns the names of the commands, except for one.
func (f *fake) commands(except string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []string
	for _, entry := range f.log {
		_, name, _ := strings.Cut(entry, " ")
		if name != except {
			list = append(list, name)
		}
	}
	return strings.Join(list, ", ")
}

// connections returns how many connections there have been.
func (f *fake) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

// serve reads in one goroutine, and answers in another. So calls arrive even while it answers none.
func (f *fake) serve(c net.Conn, number int) {
	replies := make(chan string, 100_000)
	together(&f.wg, func() {
		for reply := range replies {
			f.mu.Lock()
			for f.most >= 0 && f.answered >= f.most {
				f.changed.Wait()
			}
			f.answered++
			f.mu.Unlock()
			if _, err := io.WriteString(c, reply); err != nil {
				_ = c.Close()
			}
		}
	})
	defer close(replies)
	r := bufio.NewReader(c)
	for {
		words, err := readCommand(r)
		if err != nil {
			return
		}
		reply := "*1\r\n:" + words[len(words)-1] + "\r\n"
		f.mu.Lock()
		if words[0] == "AUTH" {
			f.logins = append(f.logins, strings.Join(words[1:], ":"))
		}
		if always, ok := f.always[strings.ToLower(words[0])]; ok {
			f.log = append(f.log, fmt.Sprintf("%d %s", number, strings.ToLower(words[0])))
			f.mu.Unlock()
			replies <- always + "\r\n"
			continue
		}
		f.scripts++
		f.log = append(f.log, fmt.Sprintf("%d %s", number, strings.ToLower(words[0])))
		if len(f.replies) > 0 {
			reply = f.replies[0] + "\r\n"
			f.replies = f.replies[1:]
		}
		f.mu.Unlock()
		replies <- reply
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

var echo = &redis.Script{SHA1: strings.Repeat("0", 40), Source: "echo"}

// ask makes a call to a fake, and checks that the reply is that of this call.
func ask(c *single, n int, deadline time.Time) error {
	call := &redis.Call{Script: echo, Keys: []string{"key"}, Args: []string{strconv.Itoa(n)}, Deadline: deadline}
	err := c.conn.Run(call)
	if err == nil && (len(call.Reply) != 1 || call.Reply[0] != int64(n)) {
		return fmt.Errorf("call %d has the reply %v", n, call.Reply)
	}
	return err
}

func TestCallsThatWaitAreSentTogether(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer(0)
	c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}})
	l, err := dial(c.conn)
	if err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	var writes atomic.Int64
	inner := l.raw
	l.use(&hooked{read: inner.Read, deadline: func(at time.Time) { _ = inner.SetReadDeadline(at) }, write: func(b []byte) (int, error) {
		<-gate
		writes.Add(1)
		return inner.Write(b)
	}})
	c.conn.mu.Lock()
	c.conn.link = l
	c.conn.links[l] = true
	c.conn.mu.Unlock()
	go write(c.conn, l)
	go read(c.conn, l)
	const callers = 300
	var wg sync.WaitGroup
	for i := 0; i < callers; i++ {
		n := i
		together(&wg, func() {
			if err := ask(c, n, time.Time{}); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "all have asked", func() bool {
		c.conn.mu.Lock()
		defer c.conn.mu.Unlock()
		return l.stream.Number == callers
	})
	close(gate) // the first write has waited for it
	until(t, "all arrive, though none of them is answered", func() bool { return f.arrived() == callers })
	if got := writes.Load(); got > 3 {
		t.Errorf("%d calls were sent in %d pieces", callers, got)
	}
	f.answer(-1)
	wg.Wait()
	if got := f.connections(); got != 1 {
		t.Errorf("there were %d connections", got)
	}
}

// The server has certainly not executed calls that were not written before their connection ended. They are sent over the next connection.
func TestCallsThatWereNotSentAreSentOverTheNextConnection(t *testing.T) {
	t.Parallel()
	for _, nothing := range []bool{false, true} { // true: nothing of the first write arrives, and the connection says so
		f := newFake(t)
		c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}, DialTimeout: patience})
		l, err := dial(c.conn)
		if err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		inner := l.raw
		hook := &hooked{read: inner.Read, close: func() { _ = inner.Close() }, write: func(b []byte) (int, error) {
			<-gate
			if nothing {
				return 0, io.ErrClosedPipe
			}
			return len(b) / 2, io.ErrClosedPipe
		}}
		l.use(hook)
		l.raw = hook
		c.conn.mu.Lock()
		c.conn.link = l
		c.conn.links[l] = true
		c.conn.mu.Unlock()
		go write(c.conn, l)
		go read(c.conn, l)
		waiting := func(n uint) func() bool {
			return func() bool {
				c.conn.mu.Lock()
				defer c.conn.mu.Unlock()
				return l.stream.Number == n && (n > 1 || l.stream.Out == "")
			}
		}
		var wg sync.WaitGroup
		var first error
		together(&wg, func() { first = ask(c, 0, time.Time{}) })
		until(t, "the first call is being sent", waiting(1))
		const callers = 50
		for i := 1; i <= callers; i++ {
			n := i
			together(&wg, func() {
				if err := ask(c, n, time.Time{}); err != nil {
					t.Errorf("a call that was not sent: %v", err)
				}
			})
		}
		until(t, "the others wait", waiting(callers+1))
		close(gate)
		wg.Wait()
		want := callers
		if nothing {
			want++
		}
		if (first == nil) != nothing || f.arrived() != want {
			t.Errorf("nothing was sent: %v; of the first: %v; %d have arrived, want %d", nothing, first, f.arrived(), want)
		}
	}
}

// hooked is a connection with functions of the test in place of its methods.
type hooked struct {
	read, write func(b []byte) (int, error)
	close       func()
	deadline    func(t time.Time)
}

func (h *hooked) Read(b []byte) (int, error)  { return h.read(b) }
func (h *hooked) Write(b []byte) (int, error) { return h.write(b) }
func (h *hooked) Close() error {
	if h.close != nil {
		h.close()
	}
	return nil
}
func (h *hooked) LocalAddr() net.Addr           { return nil }
func (h *hooked) RemoteAddr() net.Addr          { return nil }
func (h *hooked) SetDeadline(t time.Time) error { return nil }
func (h *hooked) SetReadDeadline(t time.Time) error {
	if h.deadline != nil {
		h.deadline(t)
	}
	return nil
}
func (h *hooked) SetWriteDeadline(t time.Time) error { return nil }

func TestASingleCallIsSentAtOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer(0)
	c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}})
	var wg sync.WaitGroup
	for i := 0; i < 3; i++ { // each before the earlier ones are answered, and without any others
		n := i
		together(&wg, func() {
			if err := ask(c, n, time.Time{}); err != nil {
				t.Error(err)
			}
		})
		until(t, "the call is sent", func() bool { return f.arrived() == n+1 })
	}
	f.answer(-1)
	wg.Wait()
}

func TestRepliesReachTheirCallers(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer(0)
	c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}})
	var callers sync.WaitGroup
	done := make(chan struct{})
	var answered, late atomic.Int64
	for i := 0; i < 32; i++ {
		caller := i
		together(&callers, func() {
			for n := caller * 1_000_000; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				deadline := time.Time{} // every other call waits for its answer, however busy the machine is
				if n%2 == 0 {
					deadline = time.Now().Add(2 * time.Millisecond)
				}
				err := ask(c, n, deadline)
				switch {
				case err == nil:
					answered.Add(1)
				case errors.Is(err, redis.ErrTimeout):
					late.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	allowed := 0
	until(t, "calls are answered and given up", func() bool {
		allowed += 50 // at this pace some answers come in time, and some do not
		if f.arrived() > allowed+2000 {
			allowed += 2000
		}
		f.answer(allowed)
		return answered.Load() >= 1000 && late.Load() >= 300
	})
	close(done)
	f.answer(-1)
	callers.Wait()
	if got := f.connections(); got != 1 {
		t.Errorf("there were %d connections: late replies are no reason for another one", got)
	}
}

func TestACallWithAnEarlierDeadlineDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer(0)
	c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}})
	var others sync.WaitGroup
	for i := 0; i < 3; i++ {
		n := i
		together(&others, func() {
			if err := ask(c, n, time.Time{}); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "the others are sent", func() bool { return f.arrived() == 3 })
	for n := 3; n < 6; n++ {
		if err := ask(c, n, time.Now().Add(5*time.Millisecond)); !errors.Is(err, redis.ErrTimeout) {
			t.Errorf("a call with a deadline: %v", err)
		}
	}
	f.answer(-1)
	others.Wait()
	if err := ask(c, 7, time.Now().Add(patience)); err != nil {
		t.Error(err)
	}
	if got := f.connections(); got != 1 {
		t.Errorf("there were %d connections", got)
	}
}

func TestAConnectionWithoutRepliesIsClosed(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer(0)
	c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}, Timeout: 5 * time.Millisecond, ReadTimeout: 20 * time.Millisecond})
	until(t, "another connection is made", func() bool {
		if err := ask(c, 1, time.Time{}); !errors.Is(err, redis.ErrTimeout) && !errors.Is(err, redis.ErrUnavailable) {
			t.Errorf("without a reply: %v", err)
		}
		return f.connections() >= 3
	})
	f.answer(-1)
	until(t, "it answers again", func() bool { return ask(c, 2, time.Time{}) == nil })
}

// A server that does not read blocks the writer, too. Only closing the connection helps.
func TestACallerDoesNotWaitForAServerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := newClient(t, Config{Addresses: []string{l.Addr().String()}, Timeout: 50 * time.Millisecond, ReadTimeout: time.Minute})
	call := func() error {
		return c.conn.Run(&redis.Call{Script: echo, Keys: []string{"key"}, Args: []string{strings.Repeat("x", 64<<20)}})
	}
	began := time.Now()
	if err := call(); !errors.Is(err, redis.ErrTimeout) {
		t.Errorf("a call that could not be sent: %v", err)
	}
	if took := time.Since(began); took > 30*time.Second { // the connection would be closed after a minute
		t.Errorf("the call took %v", took)
	}
}

func TestACallThatWasNotExecutedIsSentAgain(t *testing.T) {
	t.Parallel()
	const (
		readOnly   = "-READONLY You can't write against a read only replica. script: 1, on @user_script:1."
		readOnly62 = "-ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write against a read only replica."
		noScript   = "-NOSCRIPT No matching script. Please use EVAL."
		cluster    = "a node of a Cluster: configure it as one"
	)
	for _, test := range []struct {
		name    string
		replies []string // to the call, after a first reply on the connection
		log     string
		fails   string // a part of the error
	}{
		{"nothing is wrong", nil, "0 evalsha", ""},
		{"the script is not known", []string{noScript}, "0 evalsha, 0 eval", ""},
		{"the script is not known with its source", []string{noScript, noScript, noScript, noScript}, "0 evalsha, 0 eval, 0 eval, 0 eval", "NOSCRIPT"},
		{"the server is a replica", []string{readOnly}, "0 evalsha, 1 evalsha", ""},
		{"the server is an old replica", []string{readOnly62}, "0 evalsha, 1 evalsha", ""},
		{"one after the other", []string{readOnly, noScript}, "0 evalsha, 1 evalsha, 1 eval", ""},
		{"the server stays a replica", []string{readOnly, readOnly, readOnly, readOnly}, "0 evalsha, 1 evalsha, 2 evalsha, 3 evalsha", "READONLY"},
		{"the server has an error", []string{"-ERR user_script:1: something"}, "0 evalsha", "redis: ERR user_script:1: something"},
		{"the server loads", []string{"-LOADING Redis is loading the dataset in memory"}, "0 evalsha", "redis: LOADING Redis"},
		{"the master is down", []string{"-MASTERDOWN Link with MASTER is down"}, "0 evalsha", "redis: MASTERDOWN"},
		{"the server has no memory", []string{"-OOM command not allowed when used memory > 'maxmemory'."}, "0 evalsha", "OOM"},
		{"the server cannot save", []string{"-MISCONF Redis is configured to save RDB snapshots"}, "0 evalsha", "MISCONF"},
		{"the server is busy", []string{"-BUSY Redis is busy running a script."}, "0 evalsha", "BUSY"},
		{"a password is missing", []string{"-NOAUTH Authentication required."}, "0 evalsha", "NOAUTH"},
		{"a right is missing", []string{"-NOPERM this user has no permissions"}, "0 evalsha", "NOPERM"},
		{"the slot is elsewhere", []string{"-MOVED 1 127.0.0.1:1"}, "0 evalsha", cluster},
		{"the slot is on its way", []string{"-ASK 1 127.0.0.1:1"}, "0 evalsha", cluster},
		{"the Cluster is down", []string{"-CLUSTERDOWN The cluster is down"}, "0 evalsha", cluster},
		{"the keys are of two slots", []string{"-CROSSSLOT Keys in request don't hash to the same slot"}, "0 evalsha", cluster},
		{"the error has what a log must not have", []string{"-ERR a\nb\x1b[31m" + strings.Repeat("x", 1000)}, "0 evalsha", `"ERR a\nb\x1b[31m`},
	} {
		test := test // the interpreter has one variable for all rounds
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}})
			if err := ask(c, 0, time.Time{}); err != nil {
				t.Fatal(err)
			}
			f.mu.Lock()
			f.replies = test.replies
			f.log = nil
			f.mu.Unlock()
			err := ask(c, 1, time.Time{})
			says := ""
			if err != nil {
				says = err.Error()
			}
			if test.fails == "" && says != "" {
				t.Error(says)
			}
			if !strings.Contains(says, test.fails) || len(says) > 600 {
				t.Errorf("error %q, want %q", says, test.fails)
			}
			f.mu.Lock()
			got := strings.Join(f.log, ", ")
			f.mu.Unlock()
			if got != test.log && !(test.fails == "READONLY" && strings.HasPrefix(test.log, got)) { // fails at once if it must wait before it connects again
				t.Errorf("the connections and commands were %s, want %s", got, test.log)
			}
		})
	}
}

// malformed are texts that are never a reply to a script.
var malformed = []string{
	"*99999999999\r\n", "*9999999\r\n", "*1025\r\n", "*-5\r\n", "*-1\r\n", "*\r\n", "*x\r\n", "*?\r\n",
	"$-5\r\n", "$99999999999\r\n", "$9223372036854775807\r\n", "$-1\r\n", "$0\r\n\r\n", "$5\r\nhello\r\n", "$\r\n",
	"*3\r\n$99999999999\r\n", "*3\r\n$-1\r\n", "*3\r\n*3\r\n", "*3\r\n+1\r\n", "*3\r\n-ERR\r\n",
	"*3\r\n:99999999999999999999\r\n", "*3\r\n:\r\n", "*1\r\n:1 \r\n", "*1\r\n:1.5\r\n", "*1\r\n: 1\r\n",
	"%1\r\n", "~1\r\n", ">1\r\n", "|1\r\n", "=1\r\n", "!1\r\n", ",1.5\r\n", "#t\r\n", "(123\r\n", "_\r\n", ":\r\n", ":1\r\n", "-\r\n", "+\r\n",
	"+OK\r\n", "+1  2\r\n", "+1 2 \r\n", "+ 1\r\n", "+1,2\r\n", "+0x1\r\n", "+99999999999999999999\r\n", "+" + strings.Repeat("1 ", 1024) + "1\r\n",
	"\r\n", "\x00\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", strings.Repeat("x", longestLine+1), "*1\r\n:" + strings.Repeat("0", longestLine),
}

func TestAMalformedReplyMakesANewConnection(t *testing.T) {
	t.Parallel()
	for _, line := range malformed {
		junk := line
		t.Run(fmt.Sprintf("%.30q", junk), func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}})
			if err := ask(c, 0, time.Time{}); err != nil {
				t.Fatal(err)
			}
			f.mu.Lock()
			f.replies = []string{strings.TrimSuffix(junk, "\r\n")}
			f.mu.Unlock()
			if err := ask(c, 1, time.Time{}); !errors.Is(err, redis.ErrUnavailable) || !strings.Contains(err.Error(), "is no reply") || redis.ErrorKind(err) != "reply" {
				t.Errorf("error %v, of the kind %q", err, redis.ErrorKind(err))
			}
			if err := ask(c, 2, time.Time{}); err != nil {
				t.Errorf("the next call: %v", err)
			}
			if got := f.connections(); got != 2 {
				t.Errorf("there were %d connections, want 2", got)
			}
		})
	}
}

func TestAReplyThatNobodyHasAskedForEndsTheConnection(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}})
	if err := ask(c, 0, time.Time{}); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	_, _ = io.WriteString(f.conns[0], "*1\r\n:7\r\n") // the next call must not take this for its reply
	f.mu.Unlock()
	until(t, "there is another connection", func() bool { return f.connections() == 2 })
	if err := ask(c, 2, time.Time{}); err != nil {
		t.Error(err)
	}
}

// A server may hang up on an idle connection, because it has too many clients, for example, and say why. The operator must read that.
func TestTheReasonIsWhatAServerSaysBeforeItHangsUp(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}})
	if err := ask(c, 0, time.Time{}); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	_, _ = io.WriteString(f.conns[0], "-ERR max number of clients reached\r\n")
	f.mu.Unlock()
	until(t, "there is another connection", func() bool { return f.connections() == 2 })
	c.conn.mu.Lock()
	reason := c.conn.reason
	c.conn.mu.Unlock()
	if reason == nil || !strings.Contains(reason.Error(), "the server says ERR max number of clients reached") || redis.ErrorKind(reason) != "reply" {
		t.Errorf("reason %v, of the kind %q", reason, redis.ErrorKind(reason))
	}
}

// played returns a connection that reads those pieces.
func played(pieces []string) net.Conn {
	return &hooked{read: func(b []byte) (int, error) {
		if len(pieces) == 0 {
			return 0, io.EOF
		}
		n := copy(b, pieces[0])
		pieces[0] = pieces[0][n:]
		if pieces[0] == "" {
			pieces = pieces[1:]
		}
		return n, nil
	}}
}

// cut splits a text into pieces of that size.
func cut(text string, size int) []string {
	var pieces []string
	for len(text) > size {
		pieces = append(pieces, text[:size])
		text = text[size:]
	}
	return append(pieces, text)
}

// play makes five calls wait for their replies, reads the pieces, and returns the results of the calls.
func play(t *testing.T, pieces []string, script *redis.Script) string {
	t.Helper()
	c := newConn(Config{Timeout: time.Minute, ReadTimeout: time.Minute}, "", time.Now())
	defer c.cancel()
	c.closed = true // it makes no connections
	p := played(pieces)
	l := newLink(p)
	var list []*pendingCall
	for i := 0; i < 5; i++ {
		f := &pendingCall{call: &redis.Call{Reply: make([]int64, 1, 2)}, deadline: time.Hour, done: make(chan struct{}, 1)}
		if i == 1 || i == 3 {
			f.call.Script = script
		}
		if i == 2 { // its caller has left
			f.left = &redis.Call{Script: script}
			f.call = nil
		}
		l.add(f)
		list = append(list, f)
	}
	read(c, l)
	var b strings.Builder
	for i, f := range list {
		if i == 2 {
			if len(f.done) != 0 {
				t.Error("a caller that has left gets a result")
			}
			continue
		}
		if len(f.done) != 1 {
			t.Fatalf("call %d has not ended", i)
		}
		if f.err != nil {
			fmt.Fprintf(&b, "%v; ", f.err)
		} else if f.call.Script != nil {
			fmt.Fprintf(&b, "%q; ", f.call.Texts)
		} else {
			fmt.Fprintf(&b, "%v; ", f.call.Reply)
			if len(f.call.Reply) > mostNumbers {
				t.Errorf("a reply of %d numbers", len(f.call.Reply))
			}
		}
	}
	return b.String()
}

func TestRepliesThatComeInPieces(t *testing.T) {
	t.Parallel()
	const lost = "redis: not available: the client is closed; "
	for _, test := range []struct{ stream, want string }{
		{"", lost + lost + lost + lost},
		{"*3\r\n:1\r\n:-2\r\n:3\r\n+4 5 -6\r\n:7", "[1 -2 3]; [4 5 -6]; " + lost + lost},
		{"+1\r\n-ERR no\r\n*1\r\n:3\r\n+4\r\n*2\r\n:9223372036854775807\r\n:-9223372036854775808\r\n", "[1]; redis: ERR no; [4]; [9223372036854775807 -9223372036854775808]; "},
		{"+1\r\n+2\r\n+3\r\n+4\r\n+5\r\n+6\r\n", "[1]; [2]; [4]; [5]; "},
		{"+1\r\n+2\r\n-NOSCRIPT of nobody\r\n+4\r\n+5\r\n", "[1]; [2]; [4]; [5]; "},
		{"*0\r\n+2\r\n*0\r\n+4\r\n+5\r\n", "[]; [2]; [4]; [5]; "},
		{"+1\n\r\n+2\r\n", lost + lost + lost + lost},
		{"*2\r\n:1\r\n", lost + lost + lost + lost},
	} {
		for size := 1; size <= len(test.stream)+1; size++ {
			if got := play(t, cut(test.stream, size), nil); got != test.want {
				t.Errorf("%q in pieces of %d:\n got %s\nwant %s", test.stream, size, got, test.want)
			}
		}
	}
}

// The second call and the two behind it are of a script that replies with texts, which may have any bytes.
func TestTextsThatComeInPieces(t *testing.T) {
	t.Parallel()
	const lost = "redis: not available: the client is closed; "
	for _, test := range []struct{ stream, want string }{
		{"+1\r\n*3\r\n$2\r\n\r\n\r\n$0\r\n\r\n$6\r\na\n$*+:\r\n*1\r\n$1\r\nx\r\n*2\r\n$1\r\ny\r\n$1\r\nz\r\n+5\r\n", `[1]; ["\r\n" "" "a\n$*+:"]; ["y" "z"]; [5]; `},
		{"+1\r\n*0\r\n-ERR no\r\n*0\r\n+5\r\n", "[1]; []; []; [5]; "},
		{"+1\r\n*2\r\n$1\r\na\r\n", "[1]; " + lost + lost + lost},
		{"+1\r\n*1\r\n:1\r\n+3\r\n", "[1]; " + lost + lost + lost},
		{"+1\r\n*1\r\n$99999999999\r\n", "[1]; " + lost + lost + lost},
	} {
		for size := 1; size <= len(test.stream)+1; size++ {
			if got := play(t, cut(test.stream, size), &redis.Script{Texts: true}); got != test.want {
				t.Errorf("%q in pieces of %d:\n got %s\nwant %s", test.stream, size, got, test.want)
			}
		}
	}
}

// In an interpreted program a panic in a goroutine would end the proxy.
func TestAPanicEndsOnlyTheConnection(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}})
	if err := ask(c, 0, time.Time{}); err != nil {
		t.Fatal(err)
	}
	nc := &hooked{read: func(b []byte) (int, error) { panic("reading") }}
	l := newLink(nc)
	waits := &pendingCall{call: &redis.Call{}, deadline: time.Hour, done: make(chan struct{}, 1)}
	l.add(waits)
	read(c.conn, l)
	if len(waits.done) != 1 || waits.err == nil || !strings.Contains(waits.err.Error(), "reading panicked") {
		t.Errorf("after a panic of the reader: %v", waits.err)
	}

	var closed atomic.Bool
	nc = &hooked{write: func(b []byte) (int, error) { panic("writing") }, close: func() { closed.Store(true) }}
	l = newLink(nc)
	l.stream.Out = "x"
	l.stream.Sending = true
	l.wake <- struct{}{}
	write(c.conn, l)
	if !closed.Load() {
		t.Error("after a panic of the writer the connection is open")
	}

	c.conn.mu.Lock()
	c.conn.ctx = nil // makes connecting panic
	hangUp(c.conn.link)
	c.conn.link = nil
	c.conn.mu.Unlock()
	if err := ask(c, 1, time.Time{}); !errors.Is(err, redis.ErrUnavailable) || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("after a panic while connecting: %v", err)
	}
}

func TestWaitsForConnectingGrow(t *testing.T) {
	t.Parallel()
	want := []time.Duration{10, 20, 40, 80, 160, 320, 640, 1000, 1000}
	for i, w := range want {
		for _, random := range []float64{0, 0.5, 0.999} {
			got := backoff(i+1, random)
			if got < w*time.Millisecond/2 || got > w*time.Millisecond {
				t.Errorf("after %d failures: %v, want up to %v", i+1, got, w*time.Millisecond)
			}
		}
	}
	if got := backoff(1<<40, 0.999); got > lastWait {
		t.Errorf("after very many failures: %v", got)
	}
}

// A reply that comes after its caller has left goes to the call's Late; and so does the end of the connection. A call that was not sent has no Late.
func TestWhatComesLateReachesItsCall(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer(0)
	client := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}, Timeout: 50 * time.Millisecond, ReadTimeout: patience})
	came := make(chan error, 1)
	late := func(n int) *redis.Call {
		var c *redis.Call
		until(t, "a call is sent, and its caller leaves", func() bool {
			c = &redis.Call{Script: echo, Keys: []string{"key"}, Args: []string{strconv.Itoa(n)}}
			c.Late = func(err error) { came <- err }
			err := client.conn.Run(c)
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

// A late line is a reply like any other. A defect: behind the numbers it has the key, for which the connection was closed, with all calls on it.
func TestALateLineClosesNoConnection(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer(0)
	f.replies = []string{"+7 0 0 0 0 0 key"}
	c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}, Timeout: 50 * time.Millisecond, ReadTimeout: patience})
	until(t, "a call is sent, and its caller leaves", func() bool {
		err := ask(c, 1, time.Time{})
		if !errors.Is(err, redis.ErrTimeout) {
			t.Fatal(err)
		}
		return f.arrived() > 0
	})
	f.answer(-1)
	until(t, "another call is answered", func() bool { return ask(c, 2, time.Time{}) == nil })
	if got := f.connections(); got != 1 {
		t.Errorf("there were %d connections", got)
	}
}
