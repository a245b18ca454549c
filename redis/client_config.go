package redis

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/words"
)

// ClientConfig says where Redis is, and how to connect to it. Only Addresses is required.
type ClientConfig struct {
	// Addresses are host:port (without a port, 6379) or paths of Unix sockets. They are those of the server, of the Sentinels if
	// MasterName is set, or of some nodes of a Cluster. Alternatively there is one URL:
	//
	//	redis://user:password@host:6379/0
	//	rediss://…                          over TLS
	//	unix://user:password@/path?db=0
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

	PoolSize    int           // connections to each server; 0 means DefaultPoolSize; the client of package resp has one, and one more for the fast path
	Timeout     time.Duration // the longest wait for a decision; 0 means DefaultTimeout
	Background  time.Duration // the longest that a call of consistency lease or eventual, or any that no request waits for, may take; 0 means DefaultBackground, or Timeout if that is longer
	DialTimeout time.Duration // for connecting, in the background; 0 means DefaultDialTimeout
	ReadTimeout time.Duration // for a reply, in the background; after it the connection is closed; 0 means DefaultReadTimeout, or Timeout if that is longer
}

// Defaults of a ClientConfig.
const (
	DefaultPoolSize    = 2
	DefaultTimeout     = 50 * time.Millisecond
	DefaultBackground  = 2 * time.Second
	DefaultDialTimeout = time.Second
	DefaultReadTimeout = 500 * time.Millisecond
)

const defaultPort = "6379" // of an address without one

// Check returns the error that Complete would return.
func (c ClientConfig) Check() error { return c.Complete() }

// Complete reads a URL and sets the defaults. The error says what is wrong, and has no secrets in it.
func (c *ClientConfig) Complete() error {
	if len(c.Addresses) == 0 {
		return words.Wrong("address", "", "is missing; write one such as 127.0.0.1:6379")
	}
	if strings.Contains(c.Addresses[0], "://") {
		if len(c.Addresses) > 1 {
			return words.Wrong("address", "", "a URL must be the only address; add further ones to it, as ?addr=host:port")
		}
		if err := readURL(c); err != nil {
			return err
		}
	}
	complete := make([]string, 0, len(c.Addresses)) // the caller has the other list
	for _, addr := range c.Addresses {
		addr, err := completeAddress(addr)
		if err != nil {
			return err
		}
		complete = append(complete, addr)
	}
	c.Addresses = complete
	if c.Cluster && c.MasterName != "" {
		return words.Wrong("master_name", strconv.Quote(c.MasterName), " and cluster are mutually exclusive: a Cluster has no Sentinels; remove one")
	}
	if c.Cluster && c.Database != 0 {
		return words.Wrong("database", fmt.Sprint(c.Database), "a Cluster has only the database 0")
	}
	if c.Database < 0 {
		return words.Wrong("database", fmt.Sprint(c.Database), "must be 0 or more")
	}
	if !c.Cluster && c.MasterName == "" && len(c.Addresses) > 1 {
		return words.Wrong("address", strconv.Quote(c.Addresses[1]), "is a second one; say cluster, or the `master_name` that Sentinel has, or take it out")
	}
	if c.MasterName == "" && (c.SentinelUsername != "" || c.SentinelPassword != "") {
		return words.Wrong("sentinel_username", "", " and `sentinel_password`: have no use without a `master_name`")
	}
	if c.PoolSize < 0 || c.PoolSize > 1000 {
		return words.Wrong("pool_size", fmt.Sprint(c.PoolSize), "must be from 1 to 1000")
	}
	if c.PoolSize == 0 {
		c.PoolSize = DefaultPoolSize
	}
	return completeTimeouts(c)
}

// completeAddress returns addr, with the default port added if it has none. The error says what is wrong with an address that is neither
// host:port nor the path of a Unix socket.
func completeAddress(addr string) (string, error) {
	const form = "must be host:port, the path of a Unix socket, or a URL"
	if strings.HasPrefix(addr, "/") {
		return addr, nil
	}
	if strings.Contains(addr, "@") { // there may be a password before it
		return "", words.Wrong("address", "", form+"; write a user and a password in a URL, or in settings of their own")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.Trim(addr, "[]")
		port = defaultPort
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			host = ""
		}
	}
	if host == "" || port == "" || strings.ContainsAny(host, " /?,;") {
		return "", words.Wrong("address", strconv.Quote(addr), "%s", form)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return "", words.Wrong("address", strconv.Quote(addr), "the port must be from 1 to 65535")
	}
	return net.JoinHostPort(host, port), nil
}

// completeTimeouts sets the timeouts that are 0 to their defaults.
func completeTimeouts(c *ClientConfig) error {
	standard := DefaultReadTimeout
	if standard < c.Timeout {
		standard = c.Timeout
	}
	background := DefaultBackground
	if background < c.Timeout {
		background = c.Timeout
	}
	for _, t := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"timeout", &c.Timeout, DefaultTimeout},
		{"background_timeout", &c.Background, background},
		{"dial_timeout", &c.DialTimeout, DefaultDialTimeout},
		{"read_timeout", &c.ReadTimeout, standard},
	} {
		if *t.value == 0 {
			*t.value = t.standard
		}
		if *t.value < time.Millisecond || *t.value > time.Minute {
			return words.Wrong(t.name, t.value.String(), "must be from 1ms to 1m")
		}
	}
	if c.Background < c.Timeout {
		return words.Wrong("background_timeout", c.Background.String(), "must not be shorter than the timeout of a decision, %s", c.Timeout.String())
	}
	if c.ReadTimeout < c.Timeout {
		return words.Wrong("read_timeout", c.ReadTimeout.String(), "must not be shorter than the timeout of a decision, %s", c.Timeout.String())
	}
	return nil
}

// errURL is the error of an address that is an invalid URL. It does not quote the URL, which may have a password in it.
var errURL = words.Wrong("address", "", "the URL cannot be read; write redis://host:6379/0, for example; in a password, write %%xx for what is not a letter or digit, or set the password by itself")

// readURL sets the fields that the URL has; what it does not have stays as it is. No error quotes text that may have a password in it.
func readURL(c *ClientConfig) error {
	u, err := url.Parse(c.Addresses[0])
	if err != nil {
		return errURL
	}
	if u.Fragment != "" { // most likely a part of a password
		return errURL
	}
	scheme := strings.TrimSuffix(u.Scheme, "-sentinel")
	query := u.Query()
	ofSentinels := scheme != u.Scheme || query.Has("master_name") || c.MasterName != ""
	if scheme != "redis" && scheme != "rediss" && (scheme != "unix" || ofSentinels) {
		if u.Scheme == "" {
			return errURL
		}
		return words.Wrong("address", "", "the URL's scheme %q: must be redis, rediss, unix, redis-sentinel or rediss-sentinel", u.Scheme)
	}
	if err := checkQuery(query, ofSentinels, c.Cluster); err != nil {
		return err
	}
	if err := readHosts(c, u); err != nil {
		return err
	}
	if err := readDatabase(c, u); err != nil {
		return err
	}
	password, _ := u.User.Password()
	if ofSentinels {
		override(&c.MasterName, query.Get("master_name"))
		if c.MasterName == "" {
			return words.Wrong("address", "", "a Sentinel's URL needs the master's name: ?master_name=name")
		}
		override(&c.SentinelUsername, u.User.Username())
		override(&c.SentinelPassword, password)
		override(&c.Username, query.Get("username"))
		override(&c.Password, query.Get("password"))
	} else {
		override(&c.Username, u.User.Username())
		override(&c.Password, password)
	}
	if scheme == "rediss" && c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return nil
}

// checkQuery returns an error if a URL's query has something that such a URL must not have.
func checkQuery(query url.Values, ofSentinels, ofCluster bool) error {
	for name := range query {
		switch name {
		case "db", "master_name":
		case "addr":
			if !ofSentinels && !ofCluster {
				return words.Wrong("address", "", "addr in the URL: is for a Cluster or Sentinels; say cluster, or `master_name`")
			}
		case "username", "password":
			if !ofSentinels {
				return words.Wrong("address", "", "write username and password in front of the host: redis://username:password@host")
			}
		default:
			if strings.ContainsAny(name, "@:/") { // the query begins within a password
				return errURL
			}
			return words.Wrong("address", "", "%s in the URL: is not known; the URL may have db, master_name and addr, and all else is a setting of its own", name)
		}
	}
	return nil
}

// readHosts sets the addresses to those in a URL.
func readHosts(c *ClientConfig, u *url.URL) error {
	if u.Scheme == "unix" {
		if u.Host != "" || u.Path == "" {
			return words.Wrong("address", "", "the URL of a Unix socket must have its path behind three slashes: unix:///run/redis.sock?db=0")
		}
		c.Addresses = []string{u.Path}
		return nil
	}
	if u.Hostname() == "" {
		return errURL
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	c.Addresses = append([]string{net.JoinHostPort(u.Hostname(), port)}, u.Query()["addr"]...)
	return nil
}

// readDatabase sets the database, if a URL has one.
func readDatabase(c *ClientConfig, u *url.URL) error {
	database := u.Query().Get("db")
	if path := strings.Trim(u.Path, "/"); path != "" && u.Scheme != "unix" {
		if database != "" && path != database {
			return words.Wrong("address", "", "the URL has a database in its path and another as db; keep one")
		}
		database = path
	}
	if database == "" {
		return nil
	}
	n, err := strconv.Atoi(database)
	if err != nil {
		return errURL
	}
	c.Database = n
	return nil
}

// override sets a text to another, unless that is empty.
func override(text *string, by string) {
	if by != "" {
		*text = by
	}
}
