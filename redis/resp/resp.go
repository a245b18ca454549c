// Package resp is the client of package redis for interpreted programs, such as a plugin of Traefik. It connects to a single server, over
// TCP, TLS or a Unix socket. Besides package redis it imports the standard library alone, and it keeps to the Go that Yaegi can run. Compiled
// programs can use it too, but have package goredis, which also supports Sentinel and a Cluster.
package resp

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/proxyweir/weir/redis"
)

// Config says where Redis is, and how to connect to it. Only Address is required.
type Config struct {
	// Address is host:port (without a port, 6379), the path of a Unix socket, or a URL:
	//
	//	redis://user:password@host:6379/0
	//	rediss://…                          over TLS
	//	unix://user:password@/path?db=0
	//
	// The other parts of the URL set the fields below. URLs of Sentinels or a Cluster are errors.
	Address string

	Username string // an ACL user; "" is the default user
	Password string
	Database int

	TLS *tls.Config // nil: no TLS

	Timeout     time.Duration // the longest wait for a decision; 0 means redis.DefaultTimeout
	DialTimeout time.Duration // for connecting, in the background; 0 means redis.DefaultDialTimeout
	ReadTimeout time.Duration // for a reply, in the background; after it the connection is closed; 0 means redis.DefaultReadTimeout, or Timeout if that is longer
}

// Client is the client of one server. It has one connection, which all callers share. It makes the connection when that is first needed, and
// again in the background when it is lost. It is safe for concurrent use.
type Client struct {
	conn   *conn
	server *redis.Server
}

// New returns a client. It does not wait for a server, and does not fail if there is none yet. The error says what is wrong with the
// configuration, and has no secrets in it.
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

// Check returns the error that New would return for the configuration.
func (c Config) Check() error { return complete(&c) }

// complete reads a URL, sets the defaults, and returns an error if something is wrong.
func complete(c *Config) error {
	if err := completeAddress(c); err != nil {
		return err
	}
	if c.Database < 0 {
		return fmt.Errorf("database %d: must be 0 or more", c.Database)
	}
	return redis.CompleteTimeouts(&c.Timeout, &c.DialTimeout, &c.ReadTimeout)
}
