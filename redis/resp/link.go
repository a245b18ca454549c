package resp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/redis"
)

// link is one connection, with the calls that wait for their replies.
type link struct {
	stream *redis.Stream
	raw    net.Conn // the connection below TLS, or that of the stream: closing it never blocks

	wake chan struct{} // wakes the sending goroutine; has a buffer of one

	unwatch context.CancelFunc // ends watchMaster; nil: there is none

	// The conn's mutex guards these, and what the stream says.
	queue, last *pendingCall       // the first and the last pending call that the reader has not taken over yet
	watched     time.Duration      // the reader's deadline
	looked      time.Duration      // when a caller began to look at what had come, since calls were late; 0: never
	broken      error              // why the connection was closed
	retired     bool               // it gets no new calls
	idle        bool               // the reader reads, even though no call waits for a reply
	takeOver    context.CancelFunc // has the reader read, while callers do

	// Only the reader uses these.
	first  *pendingCall // whose reply comes next
	proved bool         // it has brought a decision
	rest   string       // what a caller has read of the first reply, before it handed its call over
}

func newLink(raw net.Conn) *link {
	l := &link{stream: &redis.Stream{Turns: &textproto.Pipeline{}}, raw: raw, watched: never, wake: make(chan struct{}, 1), idle: true, takeOver: func() {}}
	l.stream.Owner = l
	l.use(raw)
	return l
}

// use sets the connection that commands and replies take.
func (l *link) use(nc net.Conn) {
	l.stream.Conn = nc
	l.stream.Reader = bufio.NewReaderSize(nc, longestLine)
}

const (
	never       = time.Duration(1<<63 - 1)
	bufferSize  = 16 << 10
	largeBuffer = 64 << 10
)

// add adds a pending call to the queue. The caller has the conn's mutex.
func (l *link) add(f *pendingCall) {
	if l.last == nil {
		l.queue = f
	} else {
		l.last.next = f
	}
	l.last = f
}

// hangUp closes a connection. Reading and writing then fail, and the reader cleans up.
func hangUp(l *link) {
	_ = l.raw.Close()
	if l.unwatch != nil {
		l.unwatch()
	}
}

// watch sets the time at which the reader ends late calls. The caller has the conn's mutex.
func watch(c *conn, l *link, at time.Duration) {
	l.watched = at
	until := time.Time{}
	if at != never {
		until = c.started.Add(at)
	}
	_ = l.stream.Conn.SetReadDeadline(until) // fails if the connection is closed, which the reader finds out itself
}

// read reads replies until the connection ends.
func read(c *conn, l *link) {
	var err error
	defer func() {
		if p := recover(); p != nil { // an interpreted program has no other recover
			err = fmt.Errorf("reading panicked: %v", p)
		}
		lose(c, l, err)
	}()
	for err == nil {
		if c.pipeline == nil {
			err = replies(c, l)
		} else {
			err = alternate(c, l)
		}
	}
}

// replies reads replies, each of which ends the next pending call, and returns why there are no more; nil: callers may read again. A reply is an array of
// numbers or texts, a line that numbersOf reads, or an error. After anything else the connection is unusable.
//
// The function is long and calls few others, since every request needs it, and an interpreter allocates variables with each call.
func replies(c *conn, l *link) error {
	buffer := make([]byte, bufferSize)
	rest := l.rest // the beginning of a line that is not complete
	l.rest = ""
	want := 0 // how many numbers of an array are still to come
	var reply []int64
	for {
		size, failure := l.stream.Reader.Read(buffer)
		late := size == 0 && errors.Is(failure, os.ErrDeadlineExceeded)
		if late {
			size, failure = lookAgain(c, l, buffer)
		}
		if failure != nil {
			return failure
		}
		lines := strings.Split(rest+string(buffer[:size]), "\r\n")
		last := len(lines) - 1
		for i := 0; i < last; i++ {
			line := lines[i]
			if len(line) < 2 || len(line) > longestLine {
				return errMalformed(line)
			}
			f := l.first
			if f == nil {
				c.mu.Lock()
				f = l.queue
				l.first = f
				l.queue = nil
				l.last = nil
				c.mu.Unlock()
				if f == nil {
					return unasked(line)
				}
			}
			kind := line[0]
			if want > 0 {
				n, err := strconv.ParseInt(line[1:], 10, 64)
				if err != nil || kind != ':' {
					return errMalformed(line)
				}
				reply = append(reply, n)
				want--
				if want > 0 {
					continue
				}
			} else if kind == '*' && wantsTexts(callOf(f)) {
				texts, behind, err := readTexts(c, l, line, strings.Join(lines[i+1:], "\r\n"))
				if err != nil {
					return err
				}
				if f = l.first; f.call != nil { // its caller may have left meanwhile
					f.call.Texts = texts
				}
				reply = nil
				lines = strings.Split(behind, "\r\n")
				last = len(lines) - 1
				i = -1
			} else if kind == '*' {
				n, err := strconv.Atoi(line[1:])
				if err != nil || n < 0 || n > mostNumbers {
					return errMalformed(line)
				}
				want = n
				reply = nil
				if f.call != nil {
					reply = f.call.Reply[:0]
				}
				if want > 0 {
					continue
				}
			} else if kind == '+' {
				var ok bool
				reply, ok = numbersOf(line, callOf(f))
				if !ok {
					if f.asking && line == "+OK" {
						f.asking = false
						continue
					}
					return errMalformed(line)
				}
			} else if kind == '-' {
				refuse(c, l, f, line[1:])
				continue
			} else {
				return errMalformed(line)
			}
			if !l.proved {
				prove(c, l)
			}
			l.first = f.next
			f.next = nil
			if f.call != nil {
				f.call.Reply = reply
				f.done <- struct{}{}
			} else {
				deliver(f.left, reply, nil)
			}
		}
		rest = lines[last]
		if len(rest) > longestLine+len("\r") {
			return errMalformed(rest)
		}
		if late {
			failure = seeToLate(c, l)
			if failure != nil {
				return failure
			}
			if l.first != nil && l.first.call == nil {
				reply = nil // its caller has left, and may use the memory
			}
		}
		if l.first == nil && (c.pipeline != nil || l.retired) {
			if ends, why := over(c, l, rest); ends {
				return why
			}
		}
	}
}

// lookAgain reads once more when the reader's deadline has passed while calls wait: an answer that has come by then is not late, but this process, which may
// have been short of CPU, or collecting garbage. Else a busy proxy would take its Redis for one that does not answer, decide without it, which costs more, and
// be busier still.
func lookAgain(c *conn, l *link, buffer []byte) (int, error) {
	c.mu.Lock()
	if l.first == nil && l.queue == nil {
		c.mu.Unlock()
		return 0, nil
	}
	watch(c, l, time.Since(c.started)+glance(c))
	c.mu.Unlock()
	size, err := l.stream.Reader.Read(buffer)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return size, err
}

// glance is how long a look at what has come may take, once a call is late.
func glance(c *conn) time.Duration { return c.timeout / 10 }

// lookUntil returns until when callers that read may look at what has come, once calls are late. Those whose turn comes after that look no more, for a while:
// else a server that is slow, but answers, would have each caller wait for all before it. The caller has the conn's mutex.
func lookUntil(c *conn, l *link, now time.Duration) time.Duration {
	if l.looked == 0 || now-l.looked >= c.timeout {
		l.looked = now
	}
	return l.looked + glance(c)
}

// readTexts reads a list of texts, which begins with that line. text is what was read behind the line; readTexts returns what it has read behind the list.
func readTexts(c *conn, l *link, line, text string) ([]string, string, error) {
	var texts []string
	left, err := strconv.Atoi(line[1:])
	if err != nil || left < 0 || left > mostNumbers {
		return nil, "", errMalformed(line)
	}
	have := []byte(text)
	buffer := make([]byte, largeBuffer)
	need := 0 // how many bytes the next text takes, with its end; 0: that is not known yet
	for left > 0 {
		if need == 0 {
			if at := bytes.IndexByte(have, '\n'); at >= 0 {
				n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(string(have[:at]), "$"), "\r"))
				if err != nil || have[0] != '$' || n < 0 || n > longestText {
					return nil, "", errMalformed(string(have[:at]))
				}
				have = have[at+1:]
				need = n + 2
			} else if len(have) > longestLine {
				return nil, "", errMalformed(string(have))
			}
		}
		if need > 0 && len(have) >= need {
			texts = append(texts, string(have[:need-2]))
			have = have[need:]
			need = 0
			left--
			continue
		}
		if need == 0 && bytes.IndexByte(have, '\n') >= 0 {
			continue
		}
		size, failure := l.stream.Reader.Read(buffer)
		have = append(have, buffer[:size]...)
		if size == 0 && errors.Is(failure, os.ErrDeadlineExceeded) {
			failure = seeToLate(c, l)
		}
		if size == 0 && failure != nil {
			return nil, "", failure
		}
	}
	return texts, string(have), nil
}

func wantsTexts(call *redis.Call) bool { return call.Script != nil && call.Script.Texts }

// callOf returns the call of a pending call, whether its caller has left or not.
func callOf(f *pendingCall) *redis.Call {
	if f.call == nil {
		return f.left
	}
	return f.call
}

// deliver tells whoever has made a call, and has left, what has become of it.
func deliver(call *redis.Call, reply []int64, err error) {
	if call != nil && call.Late != nil {
		call.Reply = reply
		go callLate(call, err)
	}
}

// callLate is deliver's goroutine: deliver's caller may have the conn's mutex.
func callLate(call *redis.Call, err error) {
	defer func() {
		_ = recover() // an interpreted program has no other recover
	}()
	call.Late(err)
}

// take moves the queue to the end of the reader's pending calls. The caller has the conn's mutex.
func (l *link) take() {
	if l.first == nil {
		l.first = l.queue
	} else {
		f := l.first
		for f.next != nil {
			f = f.next
		}
		f.next = l.queue
	}
	l.queue = nil
	l.last = nil
}

// seeToLate ends the calls whose deadline has passed. Their replies may still come, and go to the calls' Late. It returns an error if a reply is
// later than the read timeout: the connection must then be closed.
func seeToLate(c *conn, l *link) error {
	now := time.Since(c.started)
	c.mu.Lock()
	defer c.mu.Unlock()
	l.take()
	next := never
	var before *pendingCall
	longest := time.Duration(0) // of the pending calls so far: a reply does not come before those that it follows
	for f := l.first; f != nil; f = f.next {
		if f.call != nil && f.deadline <= now {
			left := leaving(c, f)
			left.next = f.next
			if left.deadline < longest {
				left.deadline = longest
			}
			if before == nil {
				l.first = left
			} else {
				before.next = left
			}
			end(f, redis.ErrTimeout)
			f = left
		}
		if f.deadline <= now {
			return fmt.Errorf("no reply in %s", c.readTimeout)
		}
		if f.deadline < next {
			next = f.deadline
		}
		if f.deadline > longest {
			longest = f.deadline
		}
		before = f
	}
	watch(c, l, next)
	return nil
}

// leaving returns what takes the place of a pending call whose caller leaves.
func leaving(c *conn, f *pendingCall) *pendingCall {
	left := &pendingCall{left: f.call, deadline: f.sent + c.readTimeout, asking: f.asking, number: f.number}
	if left.deadline < f.deadline {
		left.deadline = f.deadline
	}
	return left
}

// end ends a pending call with an error. After it nobody may read that: its caller may use it again.
func end(f *pendingCall, err error) {
	f.next = nil
	f.err = err
	f.done <- struct{}{}
}

// lose ends a connection and the calls that wait for its replies, and starts to connect again.
func lose(c *conn, l *link, err error) {
	hangUp(l)
	now := time.Since(c.started)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.links, l)
	l.take()
	close(l.wake) // nobody adds to it any more: the mutex is held until it is not the conn's link
	if l.broken != nil && (err == nil || errors.Is(err, net.ErrClosed)) {
		err = l.broken
	}
	abandon(c, l, err)
	lost := fmt.Errorf("%w: the connection was lost: %w", redis.ErrLost, err)
	retry := overAnother
	if c.closed {
		lost = errClosed
		retry = 0
	}
	for f := l.first; f != nil; {
		next := f.next
		call := callOf(f)
		why := lost
		tooLate := redis.ErrTimeout
		sent := f.number < l.stream.Sent
		if !sent { // certainly not executed
			why = redis.ErrUnsent
			tooLate = redis.ErrUnsent
		}
		switch {
		case f.call == nil:
			deliver(call, nil, why)
		case f.deadline <= now:
			end(f, tooLate)
			if sent {
				deliver(call, nil, why)
			}
		default:
			if !sent {
				f.retry = retry
			}
			end(f, lost)
		}
		f = next
	}
	l.first = nil
}

// retire keeps new calls off a connection that leads to the wrong server, as err says. The reader closes the connection after the last reply that
// is still to come.
func retire(c *conn, l *link, err error) {
	c.mu.Lock()
	l.retired = true
	abandon(c, l, err)
	c.mu.Unlock()
}

// abandon has new calls go over another connection. The caller has the conn's mutex.
func abandon(c *conn, l *link, err error) {
	if c.link != l {
		return
	}
	c.link = nil
	takeOver(c, l)
	fail(c, l, err)
}

// numbersOf returns the numbers of a line that replies to a call. Behind them may be the call's last key.
func numbersOf(line string, call *redis.Call) ([]int64, bool) {
	var none []int64
	if len(line) < 2 || line[0] != '+' {
		return none, false
	}
	words := strings.Split(line[1:], " ")
	if n := len(words) - 1; n > 0 && call != nil && len(call.Keys) > 0 && words[n] == call.Keys[len(call.Keys)-1] {
		words = words[:n]
	}
	if len(words) > mostNumbers {
		return none, false
	}
	numbers := make([]int64, 0, len(words))
	for _, word := range words {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return none, false
		}
		numbers = append(numbers, n)
	}
	return numbers, true
}

// fail notes that a connection has ended, and starts to connect again, unless nobody has used the connection for a while. The caller has the
// conn's mutex.
func fail(c *conn, l *link, err error) {
	c.reason = err
	if c.closed {
		return
	}
	if c.referrals != nil {
		c.referrals.doubt()
	}
	if c.connecting {
		return
	}
	if l.stream.Sent == 0 && time.Since(c.started)-c.asked > retryFor { // such as an idle connection that the server has closed
		return
	}
	c.asked = time.Since(c.started)
	if !l.proved {
		c.failures++
	}
	if c.failures <= 1 {
		connectNow(c)
		return
	}
	if c.failures <= mostAwaited { // calls wait for it: they were not sent
		c.attempt, c.attemptEnds = context.WithCancel(context.Background())
	}
	c.connecting = true
	go connect(c, true)
}
