package resp

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/proxyweir/weir/redis"
)

// finish goes on with a call, as redis.Pipeline.Finish says.
func finish(a *lane, t *redis.Turn) error {
	line := string(t.Line)
	if t.Err != nil {
		var err error
		line, err = wait(a, t, line)
		if err != nil {
			if errors.Is(err, errUnsent) {
				return sendAgain(a, t)
			}
			return err
		}
	}
	k := t.Stream.Owner.(*track)
	text := strings.TrimSuffix(line, "\r\n")
	numbers, ok := numbersOf(text, t.Call)
	if ok {
		t.Call.Reply = numbers
		return nil
	}
	if len(text) < 2 || text[0] != '-' {
		part(a, k, errMalformed(text))
		return fmt.Errorf("%w: the connection was lost: %w", redis.ErrLost, errMalformed(text))
	}
	word, _, _ := strings.Cut(text[1:], " ")
	if word == "NOSCRIPT" {
		return sendAgain(a, t)
	}
	if isReadOnly(word, text) { // the connection leads to the wrong server
		part(a, k, fmt.Errorf("%s%w", readable(text[1:]), redis.ErrReply))
		return sendAgain(a, t)
	}
	return explain(a.conn, text[1:])
}

// errUnsent is the error of a call that was certainly not sent.
var errUnsent = errors.New("not sent")

// sendAgain sends a call over the conn. The server has certainly not executed it.
func sendAgain(a *lane, t *redis.Turn) error {
	t.Call.Deadline = a.conn.started.Add(t.Began + a.conn.timeout)
	return a.conn.Run(t.Call)
}

// wait reads the reply to a call whose turn it is, after an error, and ends the turn. line is what was read before the error.
func wait(a *lane, t *redis.Turn, line string) (string, error) {
	s := t.Stream
	k := s.Owner.(*track)
	defer s.Turns.EndResponse(t.Number)
	err := t.Err
	line = k.partial + line
	k.partial = ""
	deadline := a.conn.started.Add(t.Began + a.conn.timeout)
	for {
		if err == nil && k.late == 0 {
			return line, nil
		}
		if err == nil {
			k.late--
			line = ""
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			return "", broken(a, k, t, err)
		} else if !time.Now().Before(deadline) {
			k.partial = line
			return "", giveUp(a, k, t)
		}
		if len(line) > longestLine {
			return "", broken(a, k, t, errMalformed(line))
		}
		_ = s.Conn.SetReadDeadline(deadline)
		var piece []byte
		piece, err = s.Reader.ReadSlice('\n')
		line += string(piece)
	}
}

// giveUp ends a call that is late. Its reply is dropped when it comes. Until then the lane is closed to new calls. If the reply is later than
// the read timeout, the connection is closed.
func giveUp(a *lane, k *track, t *redis.Turn) error {
	p := a.pipeline
	p.Mu.Lock()
	if p.Stream == k.stream {
		p.Stream = nil
	}
	p.Mu.Unlock()
	k.late++
	if k.since == 0 {
		k.since = t.Began
	}
	_ = k.stream.Conn.SetReadDeadline(a.conn.started)                  // long ago: so all calls that follow come to wait
	_ = k.stream.Conn.SetWriteDeadline(time.Now().Add(a.conn.timeout)) // a server that does not read must not block the one that sends
	if time.Since(a.conn.started) >= k.since+a.conn.readTimeout {
		part(a, k, silent(a, os.ErrDeadlineExceeded))
	}
	return redis.ErrTimeout
}

// broken ends a call whose connection has ended, and returns why; errUnsent, if it was certainly not sent.
func broken(a *lane, k *track, t *redis.Turn, err error) error {
	part(a, k, err)
	p := a.pipeline
	p.Mu.Lock()
	unsent := t.Number >= k.stream.Sent
	err = k.lost
	closed := a.closed
	p.Mu.Unlock()
	if closed {
		return errClosed
	}
	if unsent {
		return errUnsent
	}
	return fmt.Errorf("%w: the connection was lost: %w", redis.ErrLost, err)
}

// unsent notes that writing has failed, as redis.Pipeline.Unsent says.
func unsent(a *lane, s *redis.Stream, sent uint, bytes int, err error) {
	if bytes == 0 {
		a.pipeline.Mu.Lock()
		s.Sent = sent
		a.pipeline.Mu.Unlock()
	}
	part(a, s.Owner.(*track), err)
}
