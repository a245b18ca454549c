package resp

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"
)

// secret is the password in the configurations of these tests. No error may have it.
const secret = "hunter2"

func TestConfigurationsThatAreRefused(t *testing.T) {
	at := func(address string) Config { return Config{Address: address} }
	with := func(change func(c *Config)) Config {
		c := at("127.0.0.1:6379")
		c.Password = secret
		change(&c)
		return c
	}
	for _, c := range []struct {
		name   string
		config Config
		want   []string // parts of the error: the setting, and what would be right
	}{
		{"no address", at(""), []string{"address", "127.0.0.1:6379"}},
		{"no host", at(":6379"), []string{`address ":6379"`, "host:port"}},
		{"no port after the colon", at("redis.example:"), []string{`address "redis.example:"`, "host:port"}},
		{"too many colons", at("a:b:6379"), []string{`address "a:b:6379"`, "host:port"}},
		{"a port in words", at("redis.example:redis"), []string{`address "redis.example:redis"`, "1 to 65535"}},
		{"a port too high", at("redis.example:65536"), []string{"65536", "1 to 65535"}},
		{"port 0", at("redis.example:0"), []string{"example:0", "1 to 65535"}},
		{"a database in an address", at("redis.example/1"), []string{`"redis.example/1"`, "URL"}},
		{"two addresses", at("a:1,b:2"), []string{`"a:1,b:2"`, "is more than one", "one server"}},
		{"two addresses with a space", at("a:1 b:2"), []string{`"a:1 b:2"`, "is more than one", "one server"}},
		{"a password in an address", at("user:" + secret + "@redis.example:6379"), []string{"address", "URL"}},
		{"a password in a second address", at("a:1,:" + secret + "@b:2"), []string{"address", "URL"}},
		{"a slash is missing", at("redis:/user:" + secret + "@redis.example"), []string{"address", "URL"}},

		{"a URL of something else", at("http://user:" + secret + "@redis.example"), []string{`"http"`, "redis, rediss or unix"}},
		{"a Sentinel's URL", at("redis-sentinel://:" + secret + "@a:1?master_name=m"), []string{`"redis-sentinel"`, "Sentinel is not supported", "leads to the master"}},
		{"a Sentinel's URL over TLS", at("rediss-sentinel://:" + secret + "@a:1?master_name=m"), []string{`"rediss-sentinel"`, "Sentinel is not supported"}},
		{"a Sentinel's URL in other words", at("redis://:" + secret + "@a:1?master_name=m"), []string{"master_name", "Sentinel is not supported"}},
		{"a Cluster's URL", at("redis-cluster://:" + secret + "@a:1"), []string{`"redis-cluster"`, "a Cluster is not supported", "proxy"}},
		{"a URL with a second address", at("redis://:" + secret + "@a:1?addr=b:2"), []string{"addr", "second address"}},
		{"a URL with two hosts", at("redis://:" + secret + "@a,b"), []string{"more than one host"}},
		{"a URL with two hosts and ports", at("redis://:" + secret + "@a:1,b:2"), []string{"address"}},
		{"two URLs", at("redis://:" + secret + "@a:1,redis://:" + secret + "@b:2"), []string{"address"}},
		{"a URL with a bad port", at("redis://:" + secret + "@redis.example:port"), []string{"address", "redis://host:6379/0"}},
		{"a URL with a port too high", at("redis://:" + secret + "@redis.example:70000"), []string{"70000", "1 to 65535"}},
		{"a URL with a bad escape", at("redis://:" + secret + "%zz@redis.example"), []string{"address", "redis://host:6379/0"}},
		{"a URL with a control character", at("redis://:" + secret + "\x7f@redis.example"), []string{"address", "redis://host:6379/0"}},
		{"a URL with a slash in the password", at("redis://:1/" + secret + "@redis.example"), []string{"address"}},
		{"a URL with a question mark in the password", at("redis://:1?" + secret + "@redis.example"), []string{"address"}},
		{"a URL with a hash in the password", at("redis://:a#" + secret + "@redis.example"), []string{"address"}},
		{"a URL without a host", at("redis://:" + secret + "@/1"), []string{"address", "redis://host:6379/0"}},
		{"a URL with a database in words", at("redis://:" + secret + "@redis.example/main"), []string{"address", "redis://host:6379/0"}},
		{"a URL with two databases in its path", at("redis://:" + secret + "@redis.example/1/2"), []string{"address", "redis://host:6379/0"}},
		{"a URL with two databases", at("redis://:" + secret + "@redis.example/1?db=2"), []string{"address", "keep one"}},
		{"a URL with a negative database", at("redis://:" + secret + "@redis.example/-1"), []string{"database -1", "0 or more"}},
		{"a URL with an unknown setting", at("redis://:" + secret + "@redis.example?dial_timeout=1s"), []string{"dial_timeout", "may have db"}},
		{"a URL with the password in its query", at("redis://a:1?password=" + secret), []string{"address", "username:password@host"}},
		{"a URL of a socket without a path", at("unix://:" + secret + "@"), []string{"address", "unix:///"}},
		{"a URL of a socket with two slashes", at("unix://run/redis.sock"), []string{"address", "unix:///"}},

		{"a negative database", with(func(c *Config) { c.Database = -1 }), []string{"database -1", "0 or more"}},
		{"a timeout too short", with(func(c *Config) { c.Timeout = time.Microsecond }), []string{"timeout 1µs", "1ms to 1m"}},
		{"a negative timeout", with(func(c *Config) { c.Timeout = -time.Second }), []string{"timeout -1s", "1ms to 1m"}},
		{"a timeout too long", with(func(c *Config) { c.Timeout = time.Hour }), []string{"timeout 1h0m0s", "1ms to 1m"}},
		{"a dial timeout too long", with(func(c *Config) { c.DialTimeout = time.Hour }), []string{"dial_timeout 1h0m0s", "1ms to 1m"}},
		{"a read timeout too long", with(func(c *Config) { c.ReadTimeout = time.Hour }), []string{"read_timeout 1h0m0s", "1ms to 1m"}},
		{"a read timeout below the timeout", with(func(c *Config) { c.ReadTimeout = 20 * time.Millisecond }), []string{"read_timeout 20ms", "50ms"}},
	} {
		client, err := New(c.config)
		if err == nil {
			_ = client.Close()
			t.Errorf("%s: is accepted", c.name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q does not say %q", c.name, err, want)
			}
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error %q has a password in it", c.name, err)
		}
		if check := c.config.Check(); check == nil || check.Error() != err.Error() {
			t.Errorf("%s: Check says %v, and New %v", c.name, check, err)
		}
	}
}

func TestConfigurationsThatAreAccepted(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Address: "redis.example"}, "redis.example:6379 0   false"},
		{Config{Address: "redis.example:1"}, "redis.example:1 0   false"},
		{Config{Address: "::1"}, "[::1]:6379 0   false"},
		{Config{Address: "[::1]"}, "[::1]:6379 0   false"},
		{Config{Address: "[::1]:65535"}, "[::1]:65535 0   false"},
		{Config{Address: "/run/redis.sock", Database: 3}, "/run/redis.sock 3   false"},
		{Config{Address: "redis://redis.example"}, "redis.example:6379 0   false"},
		{Config{Address: "rediss://user:p%40ss@[::1]:6380/15"}, "[::1]:6380 15 user p@ss true"},
		{Config{Address: "redis://:p@redis.example?db=3", Database: 7, Username: "u", Password: "q"}, "redis.example:6379 3 u p false"},
		{Config{Address: "redis://redis.example/2?db=2", Database: 7}, "redis.example:6379 2   false"},
		{Config{Address: "redis://redis.example/", Database: 7, Username: "u", Password: "q"}, "redis.example:6379 7 u q false"},
		{Config{Address: "redis://redis.example", TLS: &tls.Config{}}, "redis.example:6379 0   true"},
		{Config{Address: "unix://user:secret@/run/redis.sock?db=3"}, "/run/redis.sock 3 user secret false"},
		{Config{Address: "a", Timeout: time.Millisecond, DialTimeout: time.Millisecond, ReadTimeout: time.Millisecond}, "a:6379 0   false"},
		{Config{Address: "a", Timeout: time.Minute, DialTimeout: time.Minute, ReadTimeout: time.Minute}, "a:6379 0   false"},
		{Config{Address: "a", Timeout: 2 * time.Second}, "a:6379 0   false"},
	} {
		client, err := New(c.config)
		if err != nil {
			t.Errorf("%s: %v", c.config.Address, err)
			continue
		}
		o := client.conn.config
		if got := fmt.Sprint(o.Address, " ", o.Database, " ", o.Username, " ", o.Password, " ", o.TLS != nil); got != c.want {
			t.Errorf("%s: got %s, want %s", c.config.Address, got, c.want)
		}
		server, err := client.Server("key")
		if err != nil || server == nil || client.Name() != o.Address || server.Name() != o.Address || client.Cluster() || client.Timeout() != o.Timeout {
			t.Errorf("%s: the client is called %s, its timeout is %s", c.config.Address, client.Name(), client.Timeout())
		}
		if err = client.Close(); err != nil {
			t.Error(err)
		}
		if o.ReadTimeout < o.Timeout || o.DialTimeout == 0 {
			t.Errorf("%s: timeouts %s, %s and %s", c.config.Address, o.Timeout, o.DialTimeout, o.ReadTimeout)
		}
	}
}
