package resp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/redis"
)

const oneServer = "this client speaks to one server: write its address, or that of a proxy or a name that leads to the master"

// completeAddress reads a URL, adds the port if the address has none, and returns an error if the address is invalid. No error quotes text
// that may have a password in it.
func completeAddress(c *Config) error {
	addr := c.Address
	if addr == "" {
		return errors.New("address: is missing; write one such as 127.0.0.1:6379")
	}
	if strings.HasPrefix(addr, "/") {
		return nil
	}
	if strings.Contains(addr, "://") {
		return readURL(c)
	}
	if strings.ContainsAny(addr, ",; ") && !strings.Contains(addr, "@") {
		return fmt.Errorf("address %q: is more than one; %s", addr, oneServer)
	}
	complete, err := redis.CompleteAddress(addr)
	if err != nil {
		return err
	}
	c.Address = complete
	return nil
}

// readURL sets the fields that a URL has.
func readURL(c *Config) error {
	u, err := url.Parse(c.Address)
	if err != nil {
		return redis.ErrURL
	}
	if err := checkScheme(u.Scheme); err != nil {
		return err
	}
	query := u.Query()
	if err := checkQuery(query); err != nil {
		return err
	}
	if u.Fragment != "" { // most likely a part of a password
		return redis.ErrURL
	}
	database := query.Get("db")
	if u.Scheme == "unix" {
		if u.Host != "" || u.Path == "" {
			return errors.New("address: the URL of a Unix socket must have its path behind three slashes: unix:///run/redis.sock?db=0")
		}
		c.Address = u.Path
	} else {
		if strings.Contains(u.Host, ",") {
			return errors.New("address: the URL has more than one host; " + oneServer)
		}
		if u.Hostname() == "" {
			return redis.ErrURL
		}
		port := u.Port()
		if port == "" {
			port = redis.DefaultPort
		}
		if c.Address, err = redis.CompleteAddress(net.JoinHostPort(u.Hostname(), port)); err != nil {
			return err
		}
		path := strings.Trim(u.Path, "/")
		if path != "" && database != "" && path != database {
			return errors.New("address: the URL has a database in its path and another as db; keep one")
		}
		if path != "" {
			database = path
		}
	}
	if database != "" {
		n, err := strconv.Atoi(database)
		if err != nil {
			return redis.ErrURL
		}
		c.Database = n
	}
	if u.User != nil {
		if name := u.User.Username(); name != "" {
			c.Username = name
		}
		if password, ok := u.User.Password(); ok && password != "" {
			c.Password = password
		}
	}
	if u.Scheme == "rediss" && c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return nil
}

func checkScheme(scheme string) error {
	switch scheme {
	case "redis", "rediss", "unix":
		return nil
	case "redis-sentinel", "rediss-sentinel", "sentinel", "redis+sentinel":
		return fmt.Errorf("address: the URL's scheme %q: Sentinel is not supported; %s", scheme, oneServer)
	case "redis-cluster", "rediss-cluster", "redis+cluster":
		return fmt.Errorf("address: the URL's scheme %q: a Cluster is not supported; %s", scheme, oneServer)
	}
	return fmt.Errorf("address: the URL's scheme %q: must be redis, rediss or unix", scheme)
}

func checkQuery(query url.Values) error {
	for name := range query {
		switch name {
		case "db":
		case "master_name":
			return errors.New("address: master_name in the URL: Sentinel is not supported; " + oneServer)
		case "addr":
			return errors.New("address: addr in the URL: is a second address; " + oneServer)
		case "username", "password":
			return errors.New("address: write username and password in front of the host: redis://username:password@host")
		default:
			if strings.ContainsAny(name, "@:/") { // the query begins within a password
				return redis.ErrURL
			}
			return fmt.Errorf("address: %s in the URL: is not known; the URL may have db, and all else is a setting of its own", name)
		}
	}
	return nil
}
