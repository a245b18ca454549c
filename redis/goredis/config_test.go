package goredis_test

import (
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/goredis"
)

// secret is the password in the configurations of these tests. No error may have it.
const secret = "hunter2"

func TestConfigurationsThatAreRefused(t *testing.T) {
	t.Parallel()
	at := func(addresses ...string) goredis.Config { return goredis.Config{Addresses: addresses} }
	with := func(change func(c *goredis.Config)) goredis.Config {
		c := at("127.0.0.1:6379")
		c.Password = secret
		change(&c)
		return c
	}
	for _, c := range []struct {
		name   string
		config goredis.Config
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
		{"a password in an address", at("user:" + secret + "@redis.example:6379"), []string{"address", "URL"}},
		{"a password in a second address", goredis.Config{Addresses: []string{"a:1", ":" + secret + "@b:2"}, Cluster: true}, []string{"address", "URL"}},
		{"a slash is missing", at("redis:/user:" + secret + "@redis.example"), []string{"address", "URL"}},

		{"a URL of something else", at("http://user:" + secret + "@redis.example"), []string{`"http"`, "redis-sentinel"}},
		{"a URL and an address", at("redis://a:1", "b:2"), []string{"address", "?addr="}},
		{"two URLs", at("redis://:"+secret+"@a:1", "redis://:"+secret+"@b:2"), []string{"address", "?addr="}},
		{"a URL behind an address", goredis.Config{Addresses: []string{"a:1", "redis://:" + secret + "@b:2"}, Cluster: true}, []string{"address"}},
		{"a URL with a bad port", at("redis://:" + secret + "@redis.example:port"), []string{"address", "redis://host:6379/0"}},
		{"a URL with a port too high", at("redis://:" + secret + "@redis.example:70000"), []string{"70000", "1 to 65535"}},
		{"a URL with a bad escape", at("redis://:" + secret + "%zz@redis.example"), []string{"address", "redis://host:6379/0"}},
		{"a URL with a control character", at("redis://:" + secret + "\x7f@redis.example"), []string{"address", "redis://host:6379/0"}},
		{"a URL with a slash in the password", at("redis://:1/" + secret + "@redis.example"), []string{"address"}},
		{"a URL with a question mark in the password", at("redis://:1?" + secret + "@redis.example"), []string{"address"}},
		{"a URL with a hash in the password", at("redis://:a#" + secret + "@redis.example"), []string{"address"}},
		{"a URL with a database in words", at("redis://:" + secret + "@redis.example/main"), []string{"address", "redis://host:6379/0"}},
		{"a URL with two databases", at("redis://:" + secret + "@redis.example/1/2"), []string{"address", "redis://host:6379/0"}},
		{"a URL with a negative database", at("redis://:" + secret + "@redis.example/-1"), []string{"database -1", "0 or more"}},
		{"a URL with an unknown setting", at("redis://:" + secret + "@redis.example?dial_timeout=1s"), []string{"dial_timeout", "db, master_name and addr"}},
		{"a URL with addr and no cluster", at("redis://:" + secret + "@a:1?addr=b:2"), []string{"addr", "cluster", "master_name"}},
		{"a URL with the password in its query", at("redis://a:1?password=" + secret), []string{"address", "username:password@host"}},
		{"a URL of a socket without a path", at("unix://:" + secret + "@"), []string{"address"}},
		{"a Sentinel's URL without a master", at("redis-sentinel://:" + secret + "@a:1"), []string{"address", "?master_name="}},
		{"a Sentinel's URL of a socket", at("unix-sentinel://:" + secret + "@/socket?master_name=m"), []string{"address", "redis-sentinel"}},
		{"a Sentinel's URL with a bad database", at("redis-sentinel://:" + secret + "@a:1/x?master_name=m"), []string{"address"}},
		{"a Cluster's URL with a database", goredis.Config{Addresses: []string{"redis://:" + secret + "@a:1/2"}, Cluster: true}, []string{"database in the URL", "database 0"}},

		{"a Cluster with a master", with(func(c *goredis.Config) { c.Cluster, c.MasterName = true, "m" }), []string{`master_name "m"`, "cluster"}},
		{"a Cluster with a database", with(func(c *goredis.Config) { c.Cluster, c.Database = true, 1 }), []string{"database 1", "database 0"}},
		{"a negative database", with(func(c *goredis.Config) { c.Database = -1 }), []string{"database -1", "0 or more"}},
		{"a Sentinel's password without a master", with(func(c *goredis.Config) { c.SentinelPassword = secret }), []string{"sentinel_password", "master_name"}},
		{"a Sentinel's user without a master", with(func(c *goredis.Config) { c.SentinelUsername = "user" }), []string{"sentinel", "master_name"}},
		{"a negative pool", with(func(c *goredis.Config) { c.PoolSize = -1 }), []string{"pool_size -1", "1 to 1000"}},
		{"a huge pool", with(func(c *goredis.Config) { c.PoolSize = 1001 }), []string{"pool_size 1001", "1 to 1000"}},
		{"a timeout too short", with(func(c *goredis.Config) { c.Timeout = time.Microsecond }), []string{"timeout 1µs", "1ms to 1m"}},
		{"a negative timeout", with(func(c *goredis.Config) { c.Timeout = -time.Second }), []string{"timeout -1s", "1ms to 1m"}},
		{"a timeout too long", with(func(c *goredis.Config) { c.Timeout = time.Hour }), []string{"timeout 1h0m0s", "1ms to 1m"}},
		{"a dial timeout too long", with(func(c *goredis.Config) { c.DialTimeout = time.Hour }), []string{"dial_timeout 1h0m0s", "1ms to 1m"}},
		{"a read timeout too long", with(func(c *goredis.Config) { c.ReadTimeout = time.Hour }), []string{"read_timeout 1h0m0s", "1ms to 1m"}},
		{"a read timeout below the timeout", with(func(c *goredis.Config) { c.ReadTimeout = 20 * time.Millisecond }), []string{"read_timeout 20ms", "50ms"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, err := goredis.New(c.config)
			if err == nil {
				_ = client.Close()
				t.Fatal("is accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("error %q has a password in it", err)
			}
		})
	}
}

func TestConfigurationsThatAreAccepted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]goredis.Config{
		"a host":                                 {Addresses: []string{"redis.example"}},
		"a host and a port":                      {Addresses: []string{"redis.example:1"}},
		"an IPv6 address":                        {Addresses: []string{"::1"}},
		"an IPv6 address in brackets":            {Addresses: []string{"[::1]"}},
		"an IPv6 address and a port":             {Addresses: []string{"[::1]:65535"}},
		"a socket":                               {Addresses: []string{"/run/redis.sock"}},
		"a URL":                                  {Addresses: []string{"redis://redis.example"}},
		"a URL with everything":                  {Addresses: []string{"rediss://user:p%40ss@[::1]:6380/15"}},
		"a URL with db":                          {Addresses: []string{"redis://redis.example?db=3"}},
		"a socket's URL":                         {Addresses: []string{"unix://user:secret@/run/redis.sock?db=3"}},
		"Sentinels":                              {Addresses: []string{"a", "b:1", "[::1]:2"}, MasterName: "m", SentinelPassword: secret},
		"a Sentinel's URL":                       {Addresses: []string{"rediss-sentinel://u:p@a:1/2?master_name=m&addr=b:2&addr=c:3&username=u&password=p"}},
		"a Sentinel's URL in other words":        {Addresses: []string{"redis://a:1?master_name=m"}},
		"a Cluster":                              {Addresses: []string{"a", "b:1"}, Cluster: true},
		"a Cluster's URL":                        {Addresses: []string{"rediss://u:p@a:1?addr=b:2&addr=c:3"}, Cluster: true},
		"the smallest":                           {Addresses: []string{"a"}, PoolSize: 1, Timeout: time.Millisecond, DialTimeout: time.Millisecond, ReadTimeout: time.Millisecond},
		"the largest":                            {Addresses: []string{"a"}, PoolSize: 1000, Timeout: time.Minute, DialTimeout: time.Minute, ReadTimeout: time.Minute},
		"a timeout above the default of reading": {Addresses: []string{"a"}, Timeout: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addresses := strings.Join(c.Addresses, " ")
			client, err := goredis.New(c)
			if err != nil {
				t.Fatal(err)
			}
			if client.Cluster() != c.Cluster {
				t.Errorf("a Cluster: %v", client.Cluster())
			}
			if server, err := client.Server(""); !c.Cluster && (err != nil || strings.Contains(server.Name(), secret)) {
				t.Errorf("the server is %v, error %v", server, err)
			}
			if err = client.Close(); err != nil {
				t.Error(err)
			}
			if after := strings.Join(c.Addresses, " "); after != addresses {
				t.Errorf("the caller's addresses were changed, from %s to %s", addresses, after)
			}
		})
	}
}
