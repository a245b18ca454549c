// Package goredis is the client of package redis for compiled programs. It is based on go-redis. It connects to a single server, to a
// master under Sentinel, or to a Cluster, over TCP, TLS or a Unix socket.
package goredis

import (
	"context"
	"fmt"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/proxyweir/weir/redis"
)

// Config says where Redis is, and how to connect to it.
type Config = redis.ClientConfig

// New returns a client. It does not wait for a server, and does not fail if there is none yet. The error says what is wrong with the
// configuration, and has no secrets in it.
func New(c Config) (redis.Client, error) {
	if err := c.Complete(); err != nil {
		return nil, err
	}
	if c.Cluster {
		return newCluster(c), nil
	}
	o := options(&c, c.Addresses)
	var client *goredis.Client
	name := c.Addresses[0]
	if c.MasterName != "" {
		client = goredis.NewFailoverClient(o.Failover())
		name = "the master " + c.MasterName
	} else {
		client = goredis.NewClient(o.Simple())
	}
	one := newConn(client, c.PoolSize, c.Timeout)
	server := redis.NewServer(name, one)
	server.TLS = c.TLS != nil
	return &single{client: client, conn: one, server: server, background: c.Background}, nil
}

// single is the client of one server.
type single struct {
	client *goredis.Client
	conn   *conn
	server *redis.Server

	background time.Duration
}

// Server implements redis.Client.
func (s *single) Server(string) (*redis.Server, error) { return s.server, nil }

// Servers implements redis.Client.
func (s *single) Servers() []*redis.Server { return []*redis.Server{s.server} }

// Cluster implements redis.Client.
func (s *single) Cluster() bool { return false }

// Timeout implements redis.Client.
func (s *single) Timeout() time.Duration { return s.conn.timeout }

// Background implements redis.Client.
func (s *single) Background() time.Duration { return s.background }

// Name implements redis.Client.
func (s *single) Name() string { return s.server.Name() }

// Close implements redis.Client.
func (s *single) Close() error {
	s.conn.close()
	return s.client.Close()
}

// dialErrors is the size of go-redis's pools. There are far fewer connections: one for each worker. But after as many failed attempts to
// connect as the pool is large, go-redis tries only once a second, and that is the task of our breaker.
const dialErrors = 1024

// options returns the options of go-redis for one server, a master under Sentinel, or a Cluster.
func options(c *Config, addresses []string) *goredis.UniversalOptions {
	return &goredis.UniversalOptions{
		Addrs:            addresses,
		MasterName:       c.MasterName,
		SentinelUsername: c.SentinelUsername,
		SentinelPassword: c.SentinelPassword,
		Username:         c.Username,
		Password:         c.Password,
		DB:               c.Database,
		DialTimeout:      c.DialTimeout,
		ReadTimeout:      c.ReadTimeout,
		WriteTimeout:     c.ReadTimeout,
		PoolSize:         dialErrors,
		PipelinePoolSize: -1, // no pool of its own for pipelines: there is nothing else
		MaxRetries:       -1, // the server may have executed a call that has failed
		MaxRedirects:     -1, // conn follows them, and knows what must not be sent again
		DialerRetries:    1,
		Protocol:         2,
		DisableIdentity:  true,
		TLSConfig:        c.TLS,
		Dialer:           dialer(c),
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// dialer returns the dialer of go-redis, with guarded connections.
func dialer(c *Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := goredis.NewDialer(&goredis.Options{DialTimeout: c.DialTimeout, TLSConfig: c.TLS})
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil && c.TLS != nil {
			return nil, fmt.Errorf("%w: %w", redis.ErrTLS, err)
		}
		if err != nil {
			return nil, err
		}
		return guard(conn), nil
	}
}
