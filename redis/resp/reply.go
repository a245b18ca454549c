package resp

import (
	"fmt"
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

// over reports whether a retired connection has brought all its replies.
func over(c *conn, l *link) bool {
	c.mu.Lock()
	l.take()
	c.mu.Unlock()
	return l.first == nil
}

// refuse ends a flight to which the server has replied with an error.
func refuse(c *conn, l *link, f *flight, text string) {
	if f.asking { // the reply to the call follows, and has the reason
		f.asking = false
		return
	}
	l.first = f.next
	err := explain(c, text)
	retry := 0
	word, _, _ := strings.Cut(text, " ")
	switch {
	case word == "NOSCRIPT":
		retry = withSource
	case isReadOnly(word, text):
		retry = overAnother
		retire(c, l, fmt.Errorf("%s%w", readable(text), redis.ErrReply))
	case c.referrals == nil:
	case word == "MOVED":
		retry = elsewhere
	case word == "ASK":
		retry = asking
	case word == "CLUSTERDOWN":
		c.referrals.doubt()
	}
	if f.call != nil {
		f.retry = retry
		f.referral = text
		land(f, err)
	} else {
		deliver(f.left, nil, err)
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
