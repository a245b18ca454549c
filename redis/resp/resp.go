// Package resp is the client of package redis for interpreted programs, such as a plugin of Traefik: a single server, over
// TCP, TLS or a Unix socket. It imports the standard library alone, and keeps to the Go that Yaegi can run. It runs compiled
// too, though a program that is compiled has package goredis, which also speaks to Sentinel and to a Cluster.
package resp

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/proxyweir/weir/redis"
)

// Config says where Redis is, and how it is spoken to. Only Address is required.
type Config struct {
	// Address is host:port (the port is 6379 if it is left out), or the path of a Unix socket. A URL may stand instead:
	//
	//	redis://user:password@host:6379/0
	//	rediss://…                          over TLS
	//	unix://user:password@/path?db=0
	//
	// It sets what else it has in it. Sentinels and a Cluster are refused.
	Address string

	Username string // an ACL user; "" is the default user
	Password string
	Database int

	TLS *tls.Config // nil: no TLS

	Timeout     time.Duration // the longest that a decision is waited for; 0 means redis.DefaultTimeout
	DialTimeout time.Duration // for connecting, in the background; 0 means redis.DefaultDialTimeout
	ReadTimeout time.Duration // for a reply, in the background: then the connection is given up; 0 means redis.DefaultReadTimeout
}

// Client is the client of one server. It has one connection, which all callers share, made when it is first needed and
// again in the background whenever it is lost.
type Client struct {
	conn   *conn
	server *redis.Server
}

// New returns a client. It does not wait for a server, nor fails if there is none yet; the error says what is wrong with
// the configuration, without its secrets.
func New(config Config) (*Client, error) {
	if err := complete(&config); err != nil {
		return nil, err
	}
	c := newConn(config)
	return &Client{conn: c, server: redis.NewServer(config.Address, c)}, nil
}

// Server implements redis.Client.
func (c *Client) Server(key string) (*redis.Server, error) { return c.server, nil }

// Servers implements redis.Client.
func (c *Client) Servers() []*redis.Server { return []*redis.Server{c.server} }

// Cluster implements redis.Client.
func (c *Client) Cluster() bool { return false }

// Timeout implements redis.Client.
func (c *Client) Timeout() time.Duration { return c.conn.timeout }

// Name implements redis.Client.
func (c *Client) Name() string { return c.server.Name() }

// Close implements redis.Client.
func (c *Client) Close() error {
	c.conn.close()
	return nil
}

// Check says what is wrong with the configuration, as New does.
func (c Config) Check() error { return complete(&c) }

// complete reads a URL, puts in the defaults, and says what is wrong.
func complete(c *Config) error {
	if err := completeAddress(c); err != nil {
		return err
	}
	if c.Database < 0 {
		return fmt.Errorf("database %d: must be 0 or more", c.Database)
	}
	return redis.CompleteTimeouts(&c.Timeout, &c.DialTimeout, &c.ReadTimeout)
}
