package redis

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// clientSecret is the password in the configurations of these tests. No error may have it.
const clientSecret = "hunter2"

func TestConfigurationsThatAreRefused(t *testing.T) {
	t.Parallel()
	at := func(addresses ...string) ClientConfig { return ClientConfig{Addresses: addresses} }
	with := func(change func(c *ClientConfig)) ClientConfig {
		c := at("127.0.0.1:6379")
		c.Password = clientSecret
		change(&c)
		return c
	}
	for _, c := range []struct {
		name   string
		config ClientConfig
		want   []string // parts of the error: the setting, and what would be right
	}{
		{"no address", at(), []string{"address", "127.0.0.1:6379"}},
		{"an empty address", at(""), []string{`address ""`, "host:port"}},
		{"no host", at(":6379"), []string{`address ":6379"`, "host:port"}},
		{"no port after the colon", at("redis.example:"), []string{`address "redis.example:"`, "host:port"}},
		{"too many colons", at("a:b:6379"), []string{`address "a:b:6379"`, "host:port"}},
		{"a port in words", at("redis.example:redis"), []string{`address "redis.example:redis"`, "1 to 65535"}},
		{"a port too high", at("redis.example:65536"), []string{"65536", "1 to 65535"}},
		{"port 0", at("redis.example:0"), []string{"example:0", "1 to 65535"}},
		{"a space", at("redis .example"), []string{`"redis .example"`, "host:port"}},
		{"a database in an address", at("redis.example/1"), []string{`"redis.example/1"`, "URL"}},
		{"a second address", at("a:1", "b:2"), []string{`"b:2"`, "cluster", "master_name"}},
		{"a password in an address", at("user:" + clientSecret + "@redis.example:6379"), []string{"address", "URL"}},
		{"a password in a second address", ClientConfig{Addresses: []string{"a:1", ":" + clientSecret + "@b:2"}, Cluster: true}, []string{"address", "URL"}},
		{"a slash is missing", at("redis:/user:" + clientSecret + "@redis.example"), []string{"address", "URL"}},

		{"a URL of something else", at("http://user:" + clientSecret + "@redis.example"), []string{`"http"`, "redis-sentinel"}},
		{"a URL and an address", at("redis://a:1", "b:2"), []string{"address", "?addr="}},
		{"two URLs", at("redis://:"+clientSecret+"@a:1", "redis://:"+clientSecret+"@b:2"), []string{"address", "?addr="}},
		{"a URL behind an address", ClientConfig{Addresses: []string{"a:1", "redis://:" + clientSecret + "@b:2"}, Cluster: true}, []string{"address"}},
		{"a URL with a bad port", at("redis://:" + clientSecret + "@redis.example:port"), []string{"address", "redis://host:6379/0"}},
		{"a URL with a port too high", at("redis://:" + clientSecret + "@redis.example:70000"), []string{"70000", "1 to 65535"}},
		{"a URL with a bad escape", at("redis://:" + clientSecret + "%zz@redis.example"), []string{"address", "redis://host:6379/0"}},
		{"a URL with a control character", at("redis://:" + clientSecret + "\x7f@redis.example"), []string{"address", "redis://host:6379/0"}},
		{"a URL with a slash in the password", at("redis://:1/" + clientSecret + "@redis.example"), []string{"address"}},
		{"a URL with a question mark in the password", at("redis://:1?" + clientSecret + "@redis.example"), []string{"address"}},
		{"a URL with a hash in the password", at("redis://:a#" + clientSecret + "@redis.example"), []string{"address"}},
		{"a URL with a database in words", at("redis://:" + clientSecret + "@redis.example/main"), []string{"address", "redis://host:6379/0"}},
		{"a URL with two databases", at("redis://:" + clientSecret + "@redis.example/1/2"), []string{"address", "redis://host:6379/0"}},
		{"a URL with a negative database", at("redis://:" + clientSecret + "@redis.example/-1"), []string{"database -1", "0 or more"}},
		{"a URL with an unknown setting", at("redis://:" + clientSecret + "@redis.example?dial_timeout=1s"), []string{"dial_timeout", "db, master_name and addr"}},
		{"a URL with addr and no cluster", at("redis://:" + clientSecret + "@a:1?addr=b:2"), []string{"addr", "cluster", "master_name"}},
		{"a URL with the password in its query", at("redis://a:1?password=" + clientSecret), []string{"address", "username:password@host"}},
		{"a URL of a socket without a path", at("unix://:" + clientSecret + "@"), []string{"address"}},
		{"a Sentinel's URL without a master", at("redis-sentinel://:" + clientSecret + "@a:1"), []string{"address", "?master_name="}},
		{"a URL of a socket with two slashes", at("unix://run/redis.sock"), []string{"address", "unix:///"}},
		{"two addresses in one", at("a:1,b:2"), []string{`"a:1,b:2"`, "host:port"}},
		{"a URL with two hosts", at("redis://:" + clientSecret + "@a,b"), []string{"address", "host:port"}},
		{"a URL with two hosts and ports", at("redis://:" + clientSecret + "@a:1,b:2"), []string{"address"}},
		{"a URL without a host", at("redis://:" + clientSecret + "@/1"), []string{"address", "redis://host:6379/0"}},
		{"a URL with two databases that differ", at("redis://:" + clientSecret + "@a/1?db=2"), []string{"address", "keep one"}},
		{"a URL with a password in addr", ClientConfig{Addresses: []string{"redis://a?addr=:" + clientSecret + "@b:1"}, Cluster: true}, []string{"address"}},
		{"a URL of a Cluster in its scheme", at("redis-cluster://:" + clientSecret + "@a:1"), []string{`"redis-cluster"`, "redis-sentinel"}},
		{"a Sentinel's URL of a socket", at("unix-sentinel://:" + clientSecret + "@/socket?master_name=m"), []string{"address", "redis-sentinel"}},
		{"a Sentinel's URL with a bad database", at("redis-sentinel://:" + clientSecret + "@a:1/x?master_name=m"), []string{"address"}},
		{"a Cluster's URL with a database", ClientConfig{Addresses: []string{"redis://:" + clientSecret + "@a:1/2"}, Cluster: true}, []string{"database 2", "database 0"}},

		{"a Cluster with a master", with(func(c *ClientConfig) { c.Cluster, c.MasterName = true, "m" }), []string{`master_name "m"`, "cluster"}},
		{"a Cluster with a database", with(func(c *ClientConfig) { c.Cluster, c.Database = true, 1 }), []string{"database 1", "database 0"}},
		{"a negative database", with(func(c *ClientConfig) { c.Database = -1 }), []string{"database -1", "0 or more"}},
		{"a Sentinel's password without a master", with(func(c *ClientConfig) { c.SentinelPassword = clientSecret }), []string{"sentinel_password", "master_name"}},
		{"a Sentinel's user without a master", with(func(c *ClientConfig) { c.SentinelUsername = "user" }), []string{"sentinel", "master_name"}},
		{"a negative pool", with(func(c *ClientConfig) { c.PoolSize = -1 }), []string{"pool_size -1", "1 to 1000"}},
		{"a huge pool", with(func(c *ClientConfig) { c.PoolSize = 1001 }), []string{"pool_size 1001", "1 to 1000"}},
		{"a timeout too short", with(func(c *ClientConfig) { c.Timeout = time.Microsecond }), []string{"timeout 1µs", "1ms to 1m"}},
		{"a negative timeout", with(func(c *ClientConfig) { c.Timeout = -time.Second }), []string{"timeout -1s", "1ms to 1m"}},
		{"a timeout too long", with(func(c *ClientConfig) { c.Timeout = time.Hour }), []string{"timeout 1h0m0s", "1ms to 1m"}},
		{"a dial timeout too long", with(func(c *ClientConfig) { c.DialTimeout = time.Hour }), []string{"dial_timeout 1h0m0s", "1ms to 1m"}},
		{"a background timeout too long", with(func(c *ClientConfig) { c.Background = time.Hour }), []string{"background_timeout 1h0m0s", "1ms to 1m"}},
		{"a background timeout below the timeout", with(func(c *ClientConfig) { c.Background = 20 * time.Millisecond }), []string{"background_timeout 20ms", "50ms"}},
		{"a read timeout too long", with(func(c *ClientConfig) { c.ReadTimeout = time.Hour }), []string{"read_timeout 1h0m0s", "1ms to 1m"}},
		{"a read timeout below the timeout", with(func(c *ClientConfig) { c.ReadTimeout = 20 * time.Millisecond }), []string{"read_timeout 20ms", "50ms"}},
	} {
		err := c.config.Check()
		if err == nil {
			t.Errorf("%s: is accepted", c.name)
			continue
		}
		for _, want := range c.want {
			must.Contain(t, err.Error(), want, "%s: error %q does not say", c.name, err)
		}
		if strings.Contains(err.Error(), clientSecret) {
			t.Errorf("%s: error %q has a password in it", c.name, err)
		}
	}
}

func TestConfigurationsThatAreAccepted(t *testing.T) {
	t.Parallel()
	at := func(addresses ...string) ClientConfig { return ClientConfig{Addresses: addresses} }
	// beside has everything that a URL may have, too.
	beside := ClientConfig{Database: 7, Username: "beside", Password: "beside"}
	beyond := beside
	beyond.MasterName = "beside"
	beyond.SentinelUsername = "beside"
	beyond.SentinelPassword = "beside"
	with := func(c ClientConfig, addresses ...string) ClientConfig {
		c.Addresses = addresses
		return c
	}
	cluster := ClientConfig{Cluster: true}
	for _, test := range []struct {
		config ClientConfig
		want   string // addresses, master, database, users and passwords, TLS
	}{
		{at("redis.example"), "[redis.example:6379]  0     false"},
		{at("redis.example:1"), "[redis.example:1]  0     false"},
		{at("::1"), "[[::1]:6379]  0     false"},
		{at("[::1]"), "[[::1]:6379]  0     false"},
		{at("[::1]:65535"), "[[::1]:65535]  0     false"},
		{ClientConfig{Addresses: []string{"/run/redis.sock"}, Database: 3}, "[/run/redis.sock]  3     false"},
		{at("redis://redis.example"), "[redis.example:6379]  0     false"},
		{at("redis://redis.example?db=3"), "[redis.example:6379]  3     false"},
		{at("redis://redis.example/2?db=2"), "[redis.example:6379]  2     false"},
		{at("rediss://user:p%40ss@[::1]:6380/15"), "[[::1]:6380]  15 user p@ss   true"},
		{at("unix://user:secret@/run/redis.sock?db=3"), "[/run/redis.sock]  3 user secret   false"},
		{ClientConfig{Addresses: []string{"redis://a"}, TLS: &tls.Config{}}, "[a:6379]  0     true"},
		{with(beside, "redis://a/"), "[a:6379]  7 beside beside   false"},
		{with(beside, "redis://:p@a:1?db=3"), "[a:1]  3 beside p   false"},
		{with(beside, "rediss://u:p@a:1/2"), "[a:1]  2 u p   true"},
		{with(beside, "unix://u:p@/path?db=4"), "[/path]  4 u p   false"},

		{with(beyond, "a", "b:1", "[::1]:2"), "[a:6379 b:1 [::1]:2] beside 7 beside beside beside beside false"},
		{with(beyond, "redis://a:1"), "[a:1] beside 7 beside beside beside beside false"},
		{with(beyond, "redis-sentinel://a:1?master_name=m"), "[a:1] m 7 beside beside beside beside false"},
		{with(beyond, "rediss-sentinel://su:sp@a:1/5?master_name=m&username=u&password=p&addr=b:2&addr=c"), "[a:1 b:2 c:6379] m 5 u p su sp true"},
		{at("redis://a:1?master_name=m"), "[a:1] m 0     false"},

		{with(cluster, "a", "b:1"), "[a:6379 b:1]  0     false"},
		{with(cluster, "rediss://u:p@a:1?addr=b:2&addr=c:3"), "[a:1 b:2 c:3]  0 u p   true"},
		{with(cluster, "redis://a/0"), "[a:6379]  0     false"},
	} {
		c := test.config
		before := strings.Join(c.Addresses, " ")
		if err := c.Complete(); err != nil {
			t.Errorf("%s: %v", before, err)
			continue
		}
		got := fmt.Sprint(c.Addresses, " ", c.MasterName, " ", c.Database, " ", c.Username, " ", c.Password, " ", c.SentinelUsername, " ", c.SentinelPassword, " ", c.TLS != nil)
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", before, got, test.want)
		}
		must.Equal(t, strings.Join(test.config.Addresses, " "), before, "the caller's addresses were changed, from %s to", before)
	}
}

func TestNumbersOfAClientThatAreAccepted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		config ClientConfig
		want   string
	}{
		{ClientConfig{}, "2 50ms 1s 500ms"},
		{ClientConfig{Timeout: 2 * time.Second}, "2 2s 1s 2s"},
		{ClientConfig{PoolSize: 1, Timeout: time.Millisecond, DialTimeout: time.Millisecond, ReadTimeout: time.Millisecond}, "1 1ms 1ms 1ms"},
		{ClientConfig{PoolSize: 1000, Timeout: time.Minute, DialTimeout: time.Minute, ReadTimeout: time.Minute}, "1000 1m0s 1m0s 1m0s"},
	} {
		c := test.config
		c.Addresses = []string{"a"}
		err := c.Complete()
		if got := fmt.Sprint(c.PoolSize, " ", c.Timeout, " ", c.DialTimeout, " ", c.ReadTimeout); err != nil || got != test.want {
			t.Errorf("got %s, %v; want %s", got, err, test.want)
		}
	}
}
