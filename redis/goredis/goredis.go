// Package goredis is the client of package redis for compiled programs. It is based on go-redis. It connects to a single server, to a
// master under Sentinel, or to a Cluster, over TCP, TLS or a Unix socket.
package goredis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/proxyweir/weir/redis"
)

// Config says where Redis is, and how to connect to it. Only Addresses is required.
type Config struct {
	// Addresses are host:port (without a port, 6379) or paths of Unix sockets. They are those of the server, of the Sentinels if
	// MasterName is set, or of some nodes of a Cluster. Alternatively there is one URL, in the form of go-redis:
	//
	//	redis://user:password@host:6379/0
	//	rediss://…                          over TLS
	//	unix:///path?db=0
	//	redis-sentinel://user:password@host:26379/0?master_name=name&addr=host:26379
	//
	// The other parts of the URL set the fields below. (The user and password of a sentinel URL are for the Sentinels; username and
	// password in its query are for the servers.)
	Addresses []string

	// MasterName is the master's name in Sentinel; "" means no Sentinel.
	MasterName string

	// Cluster says that the addresses are nodes of a Redis Cluster.
	Cluster bool

	Username string // an ACL user; "" is the default user
	Password string
	Database int // 0 in a Cluster

	SentinelUsername string
	SentinelPassword string

	TLS *tls.Config // nil: no TLS

	PoolSize    int           // connections to each server; 0 means DefaultPoolSize
	Timeout     time.Duration // the longest wait for a decision; 0 means redis.DefaultTimeout
	DialTimeout time.Duration // for connecting, in the background; 0 means redis.DefaultDialTimeout
	ReadTimeout time.Duration // for a reply, in the background; after it the connection is closed; 0 means redis.DefaultReadTimeout, or Timeout if that is longer
}

// DefaultPoolSize is the default of Config.PoolSize.
const DefaultPoolSize = 2

// New returns a client. It does not wait for a server, and does not fail if there is none yet. The error says what is wrong with the
// configuration, and has no secrets in it.
func New(c Config) (redis.Client, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	if c.Cluster {
		return newCluster(c), nil
	}
	o := c.options(c.Addresses)
	var client *goredis.Client
	name := c.Addresses[0]
	if c.MasterName != "" {
		client = goredis.NewFailoverClient(o.Failover())
		name = "the master " + c.MasterName
	} else {
		client = goredis.NewClient(o.Simple())
	}
	one := newConn(client, c.PoolSize, c.Timeout)
	return &single{client: client, conn: one, server: redis.NewServer(name, one)}, nil
}

// single is the client of one server.
type single struct {
	client *goredis.Client
	conn   *conn
	server *redis.Server
}

// Server implements redis.Client.
func (s *single) Server(string) (*redis.Server, error) { return s.server, nil }

// Servers implements redis.Client.
func (s *single) Servers() []*redis.Server { return []*redis.Server{s.server} }

// Cluster implements redis.Client.
func (s *single) Cluster() bool { return false }

// Timeout implements redis.Client.
func (s *single) Timeout() time.Duration { return s.conn.timeout }

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
func (c *Config) options(addresses []string) *goredis.UniversalOptions {
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
		Dialer:           c.dialer(),
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// dialer returns the dialer of go-redis, with guarded connections.
func (c *Config) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := goredis.NewDialer(&goredis.Options{DialTimeout: c.DialTimeout, TLSConfig: c.TLS})
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil && c.TLS != nil {
			return nil, fmt.Errorf("%w: %w", errTLS, err)
		}
		if err != nil {
			return nil, err
		}
		return guard(conn), nil
	}
}

// Check returns the error that New would return for the configuration.
func (c Config) Check() error { return c.complete() }

// complete reads a URL, sets the defaults, and returns an error if something is wrong.
func (c *Config) complete() error {
	if len(c.Addresses) == 0 {
		return errors.New("address: is missing; write one such as 127.0.0.1:6379")
	}
	addresses := make([]string, len(c.Addresses))
	copy(addresses, c.Addresses)
	c.Addresses = addresses
	if strings.Contains(addresses[0], "://") {
		if len(addresses) > 1 {
			return errors.New("address: a URL must be the only address; add further ones to it, as ?addr=host:port")
		}
		if err := c.readURL(addresses[0]); err != nil {
			return err
		}
	}
	for i, addr := range c.Addresses {
		complete, err := redis.CompleteAddress(addr)
		if err != nil {
			return err
		}
		c.Addresses[i] = complete
	}
	if c.Cluster && c.MasterName != "" {
		return fmt.Errorf("master_name %q and cluster are mutually exclusive: a Cluster has no Sentinels; remove one", c.MasterName)
	}
	if c.Cluster && c.Database != 0 {
		return fmt.Errorf("database %d: a Cluster has only the database 0", c.Database)
	}
	if c.Database < 0 {
		return fmt.Errorf("database %d: must be 0 or more", c.Database)
	}
	if !c.Cluster && c.MasterName == "" && len(c.Addresses) > 1 {
		return fmt.Errorf("address %q: is a second one; say cluster, or the master_name that Sentinel has, or take it out", c.Addresses[1])
	}
	if c.MasterName == "" && (c.SentinelUsername != "" || c.SentinelPassword != "") {
		return errors.New("sentinel_username and sentinel_password: have no use without a master_name")
	}
	if c.PoolSize < 0 || c.PoolSize > 1000 {
		return fmt.Errorf("pool_size %d: must be from 1 to 1000", c.PoolSize)
	}
	if c.PoolSize == 0 {
		c.PoolSize = DefaultPoolSize
	}
	return redis.CompleteTimeouts(&c.Timeout, &c.DialTimeout, &c.ReadTimeout)
}

// urlSettings are the names that a URL's query may have.
var urlSettings = map[string]bool{"db": true, "master_name": true, "addr": true, "username": true, "password": true}

// readURL sets the fields that a URL has. Its errors never quote the URL, which may have a password in it.
func (c *Config) readURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return redis.ErrURL
	}
	if u.Fragment != "" { // most likely a part of a password
		return errURL(u.Scheme)
	}
	for name := range u.Query() {
		if !urlSettings[name] {
			if strings.ContainsAny(name, "@:/") { // the query begins within a password
				return errURL(u.Scheme)
			}
			return fmt.Errorf("address: %s in the URL: is not known; the URL may have db, master_name and addr, and all else is a setting of its own", name)
		}
	}
	if servers := strings.TrimSuffix(u.Scheme, "-sentinel"); servers != u.Scheme || u.Query().Has("master_name") || c.MasterName != "" {
		if servers == "unix" {
			return errScheme(u.Scheme)
		}
		u.Scheme = servers
		o, err := goredis.ParseFailoverURL(u.String())
		if err != nil {
			return errURL(u.Scheme)
		}
		c.MasterName = cmp.Or(o.MasterName, c.MasterName)
		if c.MasterName == "" {
			return errors.New("address: a Sentinel's URL needs the master's name: ?master_name=name")
		}
		c.SentinelUsername = cmp.Or(o.SentinelUsername, c.SentinelUsername)
		c.SentinelPassword = cmp.Or(o.SentinelPassword, c.SentinelPassword)
		c.set(o.SentinelAddrs, o.DB, o.Username, o.Password, o.TLSConfig != nil)
		return nil
	}
	if u.Query().Has("username") || u.Query().Has("password") {
		return errors.New("address: write username and password in front of the host: redis://username:password@host")
	}
	if c.Cluster {
		o, err := goredis.ParseClusterURL(text)
		if err != nil {
			return errURL(u.Scheme)
		}
		if database := strings.Trim(u.Path, "/"); database != "" && database != "0" {
			return errors.New("database in the URL: a Cluster has only the database 0")
		}
		c.set(o.Addrs, 0, o.Username, o.Password, o.TLSConfig != nil)
		return nil
	}
	if u.Query().Has("addr") {
		return errors.New("address: addr in the URL: is for a Cluster or Sentinels; say cluster, or master_name")
	}
	o, err := goredis.ParseURL(text)
	if err != nil {
		return errURL(u.Scheme)
	}
	c.set([]string{o.Addr}, o.DB, o.Username, o.Password, o.TLSConfig != nil)
	return nil
}

func errURL(scheme string) error {
	switch scheme {
	case "redis", "rediss", "unix":
		return redis.ErrURL
	}
	return errScheme(scheme)
}

func errScheme(scheme string) error {
	return fmt.Errorf("address: the URL's scheme %q: must be redis, rediss, unix, redis-sentinel or rediss-sentinel", scheme)
}

// set sets the fields that a URL has for the servers; zero values leave the fields as they are. If the URL demands TLS and none is configured,
// it sets TLS 1.2 or newer.
func (c *Config) set(addresses []string, database int, username, password string, overTLS bool) {
	c.Addresses = addresses
	c.Database = cmp.Or(database, c.Database)
	c.Username = cmp.Or(username, c.Username)
	c.Password = cmp.Or(password, c.Password)
	if overTLS && c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
}
