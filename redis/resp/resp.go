// Package resp is the client of package redis for interpreted programs, such as a plugin of Traefik. It connects to a single server, to a
// master under Sentinel, or to a Cluster, over TCP, TLS or a Unix socket. Besides package redis it imports the standard library alone, and it
// keeps to the Go that Yaegi can run. Compiled programs can use it too, but have package goredis.
package resp

import (
	"time"

	"github.com/proxyweir/weir/redis"
)

// New returns a client. It does not wait for a server, and does not fail if there is none yet. The error says what is wrong with the
// configuration, and has no secrets in it.
func New(config Config) (redis.Client, error) {
	if err := config.Complete(); err != nil {
		return nil, err
	}
	if config.Cluster {
		return newCluster(config), nil
	}
	return newSingle(config), nil
}

// single is the client of one server, which may be a master under Sentinel. It has one connection that all callers share, and another for the
// fast path. It makes each when it is first needed, and again in the background when it is lost. It is safe for concurrent use.
type single struct {
	conn   *conn
	fast   *conn // of the fast path's pipeline
	server *redis.Server
}

func newSingle(config Config) *single {
	name := config.Addresses[0]
	c := newConn(config, name, redis.Started)
	fast := newFast(c)
	if config.MasterName != "" {
		name = "the master " + config.MasterName
		c.sentinels = newSentinels(config)
		fast.sentinels = newSentinels(config)
	}
	server := redis.NewPipelinedServer(name, c, fast.pipeline)
	server.TLS = config.TLS != nil
	return &single{conn: c, fast: fast, server: server}
}

// Server implements redis.Client.
func (s *single) Server(key string) (*redis.Server, error) { return s.server, nil }

// Servers implements redis.Client.
func (s *single) Servers() []*redis.Server { return []*redis.Server{s.server} }

// Cluster implements redis.Client.
func (s *single) Cluster() bool { return false }

// Timeout implements redis.Client.
func (s *single) Timeout() time.Duration { return s.conn.timeout }

// Background implements redis.Client.
func (s *single) Background() time.Duration { return s.conn.config.Background }

// Name implements redis.Client.
func (s *single) Name() string { return s.server.Name() }

// Close implements redis.Client.
func (s *single) Close() error {
	s.conn.close()
	s.fast.close()
	return nil
}
