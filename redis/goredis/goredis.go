// Package goredis is the client of package redis for compiled programs, on go-redis: a single server, a master that
// Sentinel watches over, or a Cluster; over TCP, TLS or a Unix socket.
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

// Config says where Redis is, and how it is spoken to. Only Addresses is required.
type Config struct {
	// Addresses are host:port (the port is 6379 if it is left out), or paths of Unix sockets: of the server, of the
	// Sentinels where MasterName is set, or of some nodes of a Cluster. One URL may stand instead, as go-redis reads it:
	//
	//	redis://user:password@host:6379/0
	//	rediss://…                          over TLS
	//	unix:///path?db=0
	//	redis-sentinel://user:password@host:26379/0?master_name=name&addr=host:26379
	//
	// It sets what else it has in it. (A sentinel URL has the Sentinels' user and password; username and password, in its
	// query, are the servers'.)
	Addresses []string

	// MasterName is the name that Sentinel has for the master.
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
	Timeout     time.Duration // the longest that a decision is waited for; 0 means redis.DefaultTimeout
	DialTimeout time.Duration // for connecting, in the background; 0 means redis.DefaultDialTimeout
	ReadTimeout time.Duration // for a reply, in the background: then the connection is given up; 0 means redis.DefaultReadTimeout
}

// DefaultPoolSize is Config's.
const DefaultPoolSize = 2

// New returns a client. It does not wait for a server, nor fails if there is none yet; the error says what is wrong with
// the configuration, without its secrets.
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

// dialErrors is the size of go-redis's pools. There are as many connections as there are workers, which is fewer; but after as
// many failed attempts to connect as the pool is large, go-redis tries only once a second, which is the breaker's business.
const dialErrors = 1024

// options returns what go-redis needs to know to speak with one server, with a master that Sentinel watches over, or with a Cluster.
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
		PipelinePoolSize: -1, // pipelines are all there is
		MaxRetries:       -1, // what may have been executed is not sent again
		MaxRedirects:     -1, // followed by conn, which knows what must not be sent again
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

// dialer returns go-redis's own, whose connections are guarded.
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

// Check says what is wrong with the configuration, as New does.
func (c Config) Check() error { return c.complete() }

// complete reads a URL, puts in the defaults, and says what is wrong.
func (c *Config) complete() error {
	if len(c.Addresses) == 0 {
		return errors.New("address: is missing; write one such as 127.0.0.1:6379")
	}
	addresses := make([]string, len(c.Addresses))
	copy(addresses, c.Addresses)
	c.Addresses = addresses
	if strings.Contains(addresses[0], "://") {
		if len(addresses) > 1 {
			return errors.New("address: a URL stands alone; write further addresses in it, as ?addr=host:port")
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
		return fmt.Errorf("master_name %q: stands beside cluster; a Cluster has no Sentinels, keep one", c.MasterName)
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

// The settings that a URL's query may have, besides what go-redis takes the address from.
var urlSettings = map[string]bool{"db": true, "master_name": true, "addr": true, "username": true, "password": true}

// readURL sets what a URL says. No error of it repeats the URL, which may have a password in it.
func (c *Config) readURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return redis.ErrURL
	}
	if u.Fragment != "" { // most likely of a password
		return errURL(u.Scheme)
	}
	for name := range u.Query() {
		if !urlSettings[name] {
			if strings.ContainsAny(name, "@:/") { // it began in a password
				return errURL(u.Scheme)
			}
			return fmt.Errorf("address: %s in the URL: is not known; it may have db, master_name and addr, and what else there is is set beside it", name)
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
		return errors.New("address: username and password stand in front of the host: redis://username:password@host")
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

// set sets what a URL says of the servers, and leaves what it does not. Where it asks for TLS, what else is configured of that holds.
func (c *Config) set(addresses []string, database int, username, password string, overTLS bool) {
	c.Addresses = addresses
	c.Database = cmp.Or(database, c.Database)
	c.Username = cmp.Or(username, c.Username)
	c.Password = cmp.Or(password, c.Password)
	if overTLS && c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
}
