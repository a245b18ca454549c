package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"strings"
	"time"

	"github.com/proxyweir/weir/redis"
)

const (
	firstWait   = 10 * time.Millisecond // before connecting again; it doubles with each failure, up to lastWait
	lastWait    = time.Second
	mostAwaited = 3 // connections without a single decision in a row after which calls still wait for the next attempt: some 60 ms in all

	retryFor = 10 * time.Second // how long attempts go on after the last call that needed a connection
)

// await returns the connection, or nil with the reason in the pending call's error. It waits for the end of a current attempt to connect, but not
// for the next one. The caller has the conn's mutex. If await returns nil it has unlocked it.
func await(c *conn, f *pendingCall) *link {
	if c.closed {
		c.mu.Unlock()
		f.err = errClosed
		return nil
	}
	need(c)
	attempt := c.attempt
	if attempt != nil {
		reason := c.reason
		c.mu.Unlock()
		ended, letGo := context.WithTimeout(attempt, f.deadline-time.Since(c.started))
		<-ended.Done()
		letGo()
		if attempt.Err() == nil {
			f.err = fmt.Errorf("%w: connecting", redis.ErrUnsent)
			if reason != nil {
				f.err = fmt.Errorf("%w: connecting again, after %w", redis.ErrUnsent, reason)
			}
			return nil
		}
		c.mu.Lock()
		if c.link != nil {
			return c.link
		}
	}
	f.err = errClosed
	if !c.closed {
		f.err = fmt.Errorf("%w: %w", redis.ErrUnavailable, c.reason)
	}
	c.mu.Unlock()
	return nil
}

// need has a connection made, unless a goroutine is trying to. The caller has the conn's mutex.
func need(c *conn) {
	c.asked = time.Since(c.started)
	if !c.connecting {
		c.failures = 0
		connectNow(c)
	}
}

// connectNow starts an attempt to connect. The caller has the conn's mutex.
func connectNow(c *conn) {
	c.connecting = true
	c.attempt, c.attemptEnds = context.WithCancel(context.Background())
	go connect(c, false)
}

// connect tries to connect until it succeeds, no call has needed a connection for a while, or the conn is closed. Then it reads the replies. It waits
// before each attempt, and before the first if that is said.
func connect(c *conn, waits bool) {
	defer func() {
		if p := recover(); p != nil { // an interpreted program has no other recover
			c.mu.Lock()
			c.connecting = false
			attempted(c, fmt.Errorf("connecting panicked: %v", p))
			c.mu.Unlock()
		}
	}()
	c.mu.Lock()
	for {
		if waits {
			wait := backoff(c.failures, rand.Float64()) //nolint:gosec // spreads nodes, keeps no secret
			c.mu.Unlock()
			sleep(c.ctx, wait)
			c.mu.Lock()
			if c.attempt == nil {
				c.attempt, c.attemptEnds = context.WithCancel(context.Background())
			}
		}
		waits = true
		c.mu.Unlock()
		l, err := dial(c)
		c.mu.Lock()
		if err == nil && c.closed {
			hangUp(l)
			err = errClosed
		}
		if err == nil {
			c.link = l
			c.links[l] = true
			c.connecting = false
			attempted(c, nil)
			c.mu.Unlock()
			if c.pipeline == nil {
				go write(c, l)
			}
			read(c, l)
			return
		}
		c.failures++
		attempted(c, err)
		if c.referrals != nil {
			c.referrals.doubt()
		}
		if c.closed || time.Since(c.started)-c.asked > retryFor {
			c.connecting = false
			c.mu.Unlock()
			return
		}
	}
}

// attempted ends an attempt to connect; err is nil if it has succeeded. The caller has the conn's mutex.
func attempted(c *conn, err error) {
	if err != nil {
		c.reason = err
	}
	if c.attempt != nil {
		c.attemptEnds()
		c.attempt = nil
	}
}

// backoff returns how long to wait after so many failures. random is from 0 up to 1, so that the nodes of a fleet do not connect in step.
func backoff(failures int, random float64) time.Duration {
	wait := lastWait
	if failures < 8 {
		wait = firstWait << (failures - 1)
	}
	if wait > lastWait {
		wait = lastWait
	}
	return wait/2 + time.Duration(random*float64(wait/2))
}

// sleep returns after a while, or when ctx ends.
func sleep(ctx context.Context, wait time.Duration) {
	over, letGo := context.WithTimeout(ctx, wait)
	<-over.Done()
	letGo()
}

// dial makes a connection. If there are Sentinels, they know to which server, and the connection is left when that is another.
func dial(c *conn) (*link, error) {
	if c.sentinels == nil {
		return connectTo(c.ctx, c.config, c.address, nil)
	}
	return dialMaster(c.ctx, c.sentinels, func(l *link) {
		c.mu.Lock()
		abandon(c, l, errReplaced)
		c.mu.Unlock()
	})
}

// connectTo connects to an address, with TLS, AUTH and SELECT as configured, and then calls talk, unless that is nil. All of it may take as long as
// the dial timeout, and ends with ctx.
func connectTo(ctx context.Context, config Config, address string, talk func(s *redis.Stream) error) (*link, error) {
	limited, cancel := context.WithTimeout(ctx, config.DialTimeout)
	defer cancel()
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	dialer := &net.Dialer{}
	raw, err := dialer.DialContext(limited, network, address)
	if err != nil {
		return nil, err
	}
	l := newLink(raw)
	stop := context.AfterFunc(limited, func() { _ = raw.Close() })
	if config.TLS != nil {
		var encrypted net.Conn
		encrypted, err = encrypt(limited, raw, config.TLS, address)
		l.use(encrypted)
	}
	if err == nil {
		err = logIn(l.stream, config)
	}
	if err == nil && talk != nil {
		err = talk(l.stream)
	}
	if !stop() { // it took too long, or ctx has ended
		if config.TLS != nil && errors.Is(err, redis.ErrTLS) {
			err = fmt.Errorf("not connected %w in %s", redis.ErrTLS, config.DialTimeout)
		} else {
			err = fmt.Errorf("not connected in %s", config.DialTimeout)
		}
		if ctx.Err() != nil {
			err = errClosed
		}
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return l, nil
}

// encrypt starts TLS on a connection to an address.
func encrypt(ctx context.Context, raw net.Conn, config *tls.Config, address string) (net.Conn, error) {
	settings := config.Clone()
	if settings.ServerName == "" && !settings.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(address)
		if err != nil { // a Unix socket
			host = "localhost"
		}
		settings.ServerName = host
	}
	encrypted := tls.Client(raw, settings)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", redis.ErrTLS, err)
	}
	return encrypted, nil
}

// logIn logs in and selects the database, if these are configured.
func logIn(s *redis.Stream, config Config) error {
	out := ""
	replies := 0
	if config.Username != "" {
		out += command([]string{"AUTH", config.Username, config.Password})
		replies++
	} else if config.Password != "" {
		out += command([]string{"AUTH", config.Password})
		replies++
	}
	if config.Database != 0 {
		out += command([]string{"SELECT", fmt.Sprint(config.Database)})
		replies++
	}
	if replies == 0 {
		return nil
	}
	a, err := roundTrips(s, out, replies, config.Password)
	if err != nil {
		return err
	}
	for _, element := range a.elements {
		if element != "+OK" {
			return errNoRedis
		}
	}
	return nil
}
