package resp

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/redis"
)

const (
	longestLine = 8 << 10 // a longer line is not the reply of a script
	mostNumbers = 1024
	longestText = 32 << 20
)

// prove notes that a connection has brought a decision.
func prove(c *conn, l *link) {
	c.mu.Lock()
	if !l.retired {
		l.proved = true
		c.failures = 0
	}
	c.mu.Unlock()
}

// over reports whether the reader has nothing left to read: a retired connection has brought all its replies, or (the error is nil) callers may
// read again. rest is the beginning of a line.
func over(c *conn, l *link, rest string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.take()
	if l.first == nil && l.retired {
		return true, io.EOF
	}
	return l.first == nil && !l.idle && rest == "", nil
}

// refuse ends a pending call to which the server has replied with an error.
func refuse(c *conn, l *link, f *pendingCall, text string) {
	if f.asking { // the reply to the call follows, and has the reason
		f.asking = false
		return
	}
	l.first = f.next
	judge(c, l, f, text)
	if f.call != nil {
		end(f, f.err)
	} else {
		deliver(f.left, nil, f.err)
	}
}

// judge sets a pending call's error, and how to send it again, after the error that the server has replied with.
func judge(c *conn, l *link, f *pendingCall, text string) {
	f.err = explain(c, text)
	f.referral = text
	word, _, _ := strings.Cut(text, " ")
	switch {
	case word == "NOSCRIPT":
		f.retry = withSource
	case isReadOnly(word, text):
		f.retry = overAnother
		retire(c, l, fmt.Errorf("%s%w", readable(text), redis.ErrReply))
	case c.referrals == nil:
	case word == "MOVED":
		f.retry = elsewhere
	case word == "ASK":
		f.retry = asking
	case word == "CLUSTERDOWN":
		c.referrals.doubt()
	}
}

// isReadOnly reports whether an error, which begins with that word, says that the server is a replica. The second form is that of Redis 6.2.
func isReadOnly(word, text string) bool {
	return word == "READONLY" || strings.Contains(text, ": -READONLY")
}

// explain returns the error for the text of a reply, with what a user can do about it.
func explain(c *conn, text string) error {
	word, _, _ := strings.Cut(text, " ")
	switch word {
	case "MOVED", "ASK", "CLUSTERDOWN", "CROSSSLOT", "TRYAGAIN":
		if c.referrals == nil {
			return fmt.Errorf("redis: %s (the server is a node of a Cluster: configure it as one)%w", readable(text), redis.ErrReply)
		}
		if word == "TRYAGAIN" {
			return redis.ErrMoving
		}
	}
	return fmt.Errorf("redis: %s%w", readable(text), redis.OfReply(text))
}

// readable returns text from a server in a form that is safe in a log: short, and quoted if it has unusual characters.
func readable(text string) string {
	if len(text) > 300 {
		text = text[:300] + "…"
	}
	if quoted := strconv.QuoteToASCII(text); len(quoted) != len(text)+len(`""`) {
		return quoted
	}
	return text
}

func errMalformed(line string) error {
	if len(line) > 20 {
		line = line[:20] + "…"
	}
	return fmt.Errorf("%q is no reply to a script%w", line, redis.ErrReply)
}

// unasked returns the error for a line that nobody has asked for, after which the connection is unusable. A server may send one before it
// hangs up: because it has too many clients, or the connection was idle for too long.
func unasked(line string) error {
	if line[0] == '-' {
		return fmt.Errorf("the server says %s%w", readable(line[1:]), redis.ErrReply)
	}
	return errMalformed(line)
}

var _ redis.Conn = (*conn)(nil)
