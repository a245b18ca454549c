package redis

import (
	"crypto/tls"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

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
