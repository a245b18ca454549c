package resp

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/storetest"
	"github.com/proxyweir/weir/redis"
)

// lining is counting with a line in place of an array.
var lining = newScript("return {ok = redis.call('INCR', KEYS[1]) .. ' ' .. ARGV[1] .. ' ' .. KEYS[1]}")

// listing is the same with an array.
var listing = newScript("return {redis.call('INCR', KEYS[1]), tonumber(ARGV[1])}")

// pass makes a call over a client's pipeline, as the fast path does: with an odd number one that an array replies to. It returns the two numbers of the reply, and whether the pipeline was open.
func pass(c *single, key string, n int64) ([]int64, bool, error) {
	call := &redis.Call{Script: lining, Keys: []string{key}, Args: []string{strconv.FormatInt(n, 10)}}
	if n%2 != 0 {
		call.Script = listing
	}
	p := c.fast.pipeline
	began := time.Since(redis.Started)
	p.Mu.Lock()
	s := p.Stream
	if s == nil {
		p.Mu.Unlock()
		p.Wake()
		err := c.conn.Run(call)
		return call.Reply, false, err
	}
	number := s.Number
	s.Number++
	s.Out += script(call, false)
	sending := s.Sending
	s.Sending = true
	p.Mu.Unlock()
	if !sending {
		s.Writing.Lock()
		p.Mu.Lock()
		out := s.Out
		s.Out = ""
		sent := s.Sent
		s.Sent = s.Number
		s.Sending = false
		p.Mu.Unlock()
		if bytes, err := io.WriteString(s.Conn, out); err != nil {
			p.Unsent(s, sent, bytes, err)
		}
		s.Writing.Unlock()
	}
	s.Turns.StartResponse(number)
	line, err := s.Reader.ReadSlice('\n')
	text := string(line)
	for err == nil && call.Script == listing && !whole(text) {
		line, err = s.Reader.ReadSlice('\n')
		text += string(line)
	}
	turn := &redis.Turn{Stream: s, Number: number, Call: call, Began: began, Line: []byte(text), Err: err}
	if err == nil {
		s.Turns.EndResponse(number)
	}
	err = p.Finish(turn)
	return call.Reply, true, err
}

// passes makes a call over the pipeline once that is open.
func passes(t *testing.T, c *single, key string, n int64) ([]int64, error) {
	t.Helper()
	var reply []int64
	var err error
	until(t, "the pipeline is open", func() bool {
		open := false
		reply, open, err = pass(c, key, n)
		return open
	})
	return reply, err
}

func TestThePipelineAnswersItsCallers(t *testing.T) {
	addr, _ := startServer(t)
	c := newClient(t, Config{Addresses: []string{addr}})
	each := 300
	if storetest.Interpreted() {
		each = 20
	}
	key := newName()
	if _, err := passes(t, c, newName(), 1); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := make(map[int64]bool)
	open := 0
	for i := 0; i < 32; i++ {
		caller := int64(i)
		together(&wg, func() {
			for j := 0; j < each; j++ {
				n := caller*1_000_000 + int64(j)
				reply, fast, err := pass(c, key, n)
				if err != nil || len(reply) != 2 || reply[1] != n {
					t.Errorf("call %d has the reply %v: %v", n, reply, err)
					return
				}
				if j%10 == 3 {
					_ = do(t, addr, "SCRIPT", "FLUSH")
				}
				mu.Lock()
				seen[reply[0]] = true
				if fast {
					open++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != 32*each || open < len(seen)/2 {
		t.Errorf("%d numbers were replied, want %d; %d calls took the pipeline", len(seen), 32*each, open)
	}
}

// openPipeline waits until a client's pipeline is open. It is open for a moment only, since nobody uses it.
func openPipeline(t *testing.T, c *single) {
	t.Helper()
	until(t, "the pipeline is open", func() bool {
		c.fast.pipeline.Wake()
		return isOpen(c)
	})
}

func isOpen(c *single) bool {
	c.fast.pipeline.Mu.Lock()
	defer c.fast.pipeline.Mu.Unlock()
	return c.fast.pipeline.Stream != nil
}

func TestThePipelineOpensAgainAfterALateReply(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}, Timeout: 20 * time.Millisecond, ReadTimeout: patience})
	lined := func(n string) { f.mu.Lock(); f.replies = append(f.replies, "+"+n); f.mu.Unlock() }
	f.answer(0)
	var late atomic.Int64
	for late.Load() == 0 { // a pipeline that was idle for too long takes no call
		openPipeline(t, c)
		var wg sync.WaitGroup
		for i := 0; i < 5; i++ {
			lined("1 " + strconv.Itoa(i))
			together(&wg, func() {
				_, open, err := pass(c, "key", 1)
				if !errors.Is(err, redis.ErrTimeout) {
					t.Errorf("a late reply: %v", err)
				}
				if open {
					late.Add(1)
				}
			})
		}
		wg.Wait()
	}
	if isOpen(c) {
		t.Error("the pipeline is open while replies are late")
	}
	f.answer(-1)
	openPipeline(t, c)
	f.mu.Lock()
	connections := len(f.conns)
	f.replies = []string{"+1 77 key"}
	f.mu.Unlock()
	openPipeline(t, c)
	reply, _, err := pass(c, "key", 77)
	if err != nil && !errors.Is(err, redis.ErrTimeout) || err == nil && reply[1] != 77 {
		t.Errorf("after late replies: %v, %v", reply, err)
	}
	if connections > 2 {
		t.Errorf("there were %d connections", connections)
	}
}

// A call has timed out before its reply has come, or in the middle of it. The reply to the call after it is for the same key, so that only their
// order tells them apart.
func TestALateReplyOfThePipelineAnswersNoOtherCall(t *testing.T) {
	t.Parallel()
	for _, inTime := range []string{"", "+1 7", "+1 7 key\r"} {
		f := newFake(t)
		c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}, Timeout: patience, ReadTimeout: 2 * patience})
		p := c.fast.pipeline
		var s *redis.Stream
		var first uint
		until(t, "two calls have a turn", func() bool {
			p.Wake()
			p.Mu.Lock()
			defer p.Mu.Unlock()
			s = p.Stream
			if s == nil {
				return false
			}
			first = s.Number
			s.Number += 2
			s.Sent = s.Number
			return true
		})
		var server net.Conn
		until(t, "the server has accepted it", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, conn := range f.conns {
				if conn.RemoteAddr().String() == s.Conn.LocalAddr().String() {
					server = conn
				}
			}
			return server != nil
		})
		callOf := func(n string) *redis.Call {
			return &redis.Call{Script: lining, Keys: []string{"key"}, Args: []string{n}}
		}

		s.Turns.StartResponse(first)
		_, _ = io.WriteString(server, inTime)
		if _, err := s.Reader.Peek(len(inTime)); err != nil {
			t.Fatal(err)
		}
		_, _ = s.Reader.Discard(len(inTime))
		late := &redis.Turn{Stream: s, Number: first, Call: callOf("7"), Began: time.Since(redis.Started) - patience - time.Millisecond, Line: []byte(inTime), Err: os.ErrDeadlineExceeded}
		if err := p.Finish(late); !errors.Is(err, redis.ErrTimeout) {
			t.Errorf("%q: the call that is late: %v", inTime, err)
		}

		_, _ = io.WriteString(server, strings.TrimPrefix("+1 7 key\r\n+1 8 key\r\n", inTime))
		s.Turns.StartResponse(first + 1)
		line, err := s.Reader.ReadSlice('\n')
		if err == nil {
			t.Errorf("%q: the call after it reads %q as its reply", inTime, line)
			s.Turns.EndResponse(first + 1)
		}
		next := &redis.Turn{Stream: s, Number: first + 1, Call: callOf("8"), Began: time.Since(redis.Started), Line: []byte(string(line)), Err: err}
		if err := p.Finish(next); err != nil || len(next.Call.Reply) != 2 || next.Call.Reply[1] != 8 {
			t.Errorf("%q: the call after it has the reply %v: %v", inTime, next.Call.Reply, err)
		}
	}
}

func TestWhatThePipelineDoesWithOtherReplies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reply string
		says  string // a part of the error; "": the call is sent again over the conn
		parts bool   // the connection is closed
	}{
		{"+1 2 key", "", false},
		{"+1 2 other", "is no reply", true},
		{"*1", "is no reply", true},
		{"", "is no reply", true},
		{"+" + strings.Repeat("1", 2*longestLine), "the connection was lost", true},
		{"-ERR x", "redis: ERR x", false},
		{"-READONLY x", "", true},
		{"-NOSCRIPT x", "", false},
	} {
		f := newFake(t)
		c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}})
		if err := ask(c, 0, time.Time{}); err != nil {
			t.Fatal(err)
		}
		openPipeline(t, c)
		c.fast.pipeline.Mu.Lock()
		l := c.fast.link
		c.fast.pipeline.Mu.Unlock()
		f.mu.Lock()
		f.replies = []string{test.reply}
		f.mu.Unlock()
		_, _, err := pass(c, "key", 2)
		if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%.20q: error %v, want %q", test.reply, err, test.says)
		}
		c.fast.pipeline.Mu.Lock()
		if parts := c.fast.link != l; parts != test.parts {
			t.Errorf("%.20q: the connection is left: %v", test.reply, parts)
		}
		c.fast.pipeline.Mu.Unlock()
	}
}

func TestAnIdlePipelineLearnsThatItsServerHangsUp(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := newClient(t, Config{Addresses: []string{f.listener.Addr().String()}})
	for _, says := range []string{"", "+1 2 key\r\n"} { // the second: a reply that nobody has asked for
		var l *link
		until(t, "the pipeline is idle", func() bool {
			c.fast.pipeline.Mu.Lock()
			if c.fast.link == nil {
				c.fast.pipeline.Mu.Unlock()
				c.fast.pipeline.Wake()
				c.fast.pipeline.Mu.Lock()
			}
			defer c.fast.pipeline.Mu.Unlock()
			l = c.fast.link
			return l != nil && l.idle
		})
		f.mu.Lock()
		last := f.conns[len(f.conns)-1]
		f.mu.Unlock()
		if says == "" {
			_ = last.Close()
		} else {
			_, _ = io.WriteString(last, says)
		}
		until(t, "it is closed", func() bool {
			c.fast.pipeline.Mu.Lock()
			defer c.fast.pipeline.Mu.Unlock()
			return c.fast.link != l && !c.fast.links[l]
		})
	}
}
