package config

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// object is how an object of the configuration comes from Traefik.
type object = map[string]interface{}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// setenv is t.Setenv for the environment that an interpreter has of its own.
func setenv(t *testing.T, name, value string) {
	must.Succeed(t, os.Setenv(name, value))
	t.Cleanup(func() { _ = os.Unsetenv(name) })
}

func TestRedisSettings(t *testing.T) {
	setenv(t, "WEIR_TEST_SECRET", "hunter2\n") // as shells and tools leave it
	file := writeFile(t, t.TempDir()+"/secret", "hunter3\r\n")
	var s StoreSettings
	err := s.setRedis(object{
		"address": "env:WEIR_TEST_ADDRESS_" + "NONE",
	})
	if err == nil {
		t.Error("an address that is nowhere was taken")
	}
	setenv(t, "WEIR_TEST_ADDRESS", "redis.internal:7000")
	err = s.setRedis(object{
		"address":           "env:WEIR_TEST_ADDRESS",
		"username":          "weir",
		"password":          "env:WEIR_TEST_SECRET",
		"keySecret":         "file:" + file,
		"database":          3,
		"tls":               "true",
		"timeout":           "100ms",
		"dialTimeout":       "2s",
		"backgroundTimeout": "3s",
		"readTimeout":       "1s",
		"prefix":            "shop:",
		"plainKeys":         "false",
		"nodes":             3,
	})
	must.Succeed(t, err)
	c := s.Redis.Client
	if strings.Join(c.Addresses, " ") != "redis.internal:7000" || c.Username != "weir" || c.Password != "hunter2" || c.Database != 3 || c.TLS == nil || c.TLS.InsecureSkipVerify {
		t.Errorf("%+v", c)
	}
	if c.Timeout != 100*time.Millisecond || c.Background != 3*time.Second || c.DialTimeout != 2*time.Second || c.ReadTimeout != time.Second {
		t.Errorf("%+v", c)
	}
	if r := s.Redis.Store; r.Prefix != "shop:" || r.KeySecret != "hunter3" || r.PlainKeys || s.Redis.Nodes != 3 {
		t.Errorf("%+v", r)
	}
}

func TestSettingsOfSentinelsAndOfACluster(t *testing.T) {
	setenv(t, "WEIR_TEST_SECRET", "hunter2\n") // as shells and tools leave it
	setenv(t, "WEIR_TEST_ADDRESS", "c:3")
	for _, c := range []struct {
		settings object
		want     string // addresses, master, the Sentinels' user and password, Cluster
	}{
		{object{"address": "a:1, b:2,env:WEIR_TEST_ADDRESS", "masterName": "main", "sentinelUsername": "watch", "sentinelPassword": "env:WEIR_TEST_SECRET"}, "[a:1 b:2 c:3] main watch hunter2 false"},
		{object{"address": []interface{}{"a:1"}, "masterName": "main"}, "[a:1] main   false"},
		{object{"address": "redis-sentinel://a:1?master_name=main&addr=b:2"}, "[a:1 b:2] main   false"},
		{object{"address": "a:1,b:2", "cluster": "true"}, "[a:1 b:2]    true"},
		{object{"address": "a", "cluster": true}, "[a:6379]    true"},
		{object{"address": "a:1", "cluster": false}, "[a:1]    false"},
	} {
		var s StoreSettings
		if err := s.setRedis(c.settings); err != nil {
			t.Errorf("%v: %v", c.settings, err)
			continue
		}
		client := s.Redis.Client
		if err := client.Complete(); err != nil {
			t.Errorf("%v: %v", c.settings, err)
		}
		must.Equal(t, fmt.Sprint(client.Addresses, " ", client.MasterName, " ", client.SentinelUsername, " ", client.SentinelPassword, " ", client.Cluster), c.want, "%v", c.settings)
	}
	var one, two StoreSettings
	if one.setRedis(object{"address": "a:1", "masterName": "main"}) != nil || two.setRedis(object{"address": "a:1", "masterName": "other"}) != nil {
		t.Fatal("refused")
	}
	if one.Redis.Fingerprint == two.Redis.Fingerprint {
		t.Error("two masters share a store")
	}
}

func TestAChangedSecretIsAnotherSetting(t *testing.T) {
	file := writeFile(t, t.TempDir()+"/secret", "one\n")
	read := func(o object) string {
		var s StoreSettings
		must.Succeed(t, s.setRedis(o))
		return s.Redis.Fingerprint
	}
	settings := object{"address": "a:1", "password": "file:" + file, "nodes": 2}
	first := read(settings)
	must.Equal(t, read(settings), first, "the same settings are others")
	must.Equal(t, read(object{"address": "a:1", "password": "one", "nodes": 3}), first, "settings that come to the same do not share a store")
	writeFile(t, file, "two\n")
	if read(settings) == first {
		t.Error("another password shares a store")
	}
	if read(object{"address": "a:1", "password": "one", "tls": ""}) == first {
		t.Error("with TLS it shares a store with one without")
	}
	must.Equal(t, read(object{"address": "a:1", "password": "one", "tls": ""}), read(object{"address": "a:1", "password": "one", "tls": "true"}), "TLS that is written in two ways is two stores")
	if read(object{"address": "a:1", "tls": object{"serverName": "b"}}) == read(object{"address": "a:1", "tls": object{}}) {
		t.Error("with another server's name it shares a store")
	}
	careful, careless := StoreSettings{}, StoreSettings{}
	if careful.setDialectRedis(object{"tls": ""}) != nil || careless.setDialectRedis(object{"tls": object{"insecureSkipVerify": true}}) != nil {
		t.Fatal("refused")
	}
	if careful.Redis.Fingerprint == careless.Redis.Fingerprint {
		t.Error("who looks at certificates shares a store with who does not")
	}
}

func TestTraefiksRedisWords(t *testing.T) {
	setenv(t, "WEIR_TEST_SECRET", "hunter2")
	var s StoreSettings
	must.Succeed(t, s.setDialectRedis(""))
	if c := s.Redis.Client; strings.Join(c.Addresses, " ") != "localhost:6379" || c.Cluster || c.TLS != nil || c.Timeout != 0 || s.Redis.Nodes != 0 {
		t.Errorf("an empty one: %+v", c)
	}
	if err := s.setDialectRedis(object{"endpoints": "a:1, b:2"}); err != nil || fmt.Sprint(s.Redis.Client.Addresses, s.Redis.Client.Cluster) != "[a:1 b:2] true" {
		t.Errorf("several endpoints are a Cluster's: %+v, %v", s.Redis.Client, err)
	}
	err := s.setDialectRedis(object{"endpoints": []interface{}{"redis.internal:7000"}, "username": "u", "password": "env:WEIR_TEST_SECRET", "db": 3,
		"poolSize": 10, "minIdleConns": 0, "maxActiveConns": "5", "readTimeout": "100ms", "writeTimeout": 2, "dialTimeout": "3s",
		"tls": object{"insecureSkipVerify": true}})
	must.Succeed(t, err)
	c := s.Redis.Client
	if strings.Join(c.Addresses, " ") != "redis.internal:7000" || c.Username != "u" || c.Password != "hunter2" || c.Database != 3 || c.Timeout != 2*time.Second || c.DialTimeout != 3*time.Second || c.TLS == nil || !c.TLS.InsecureSkipVerify {
		t.Errorf("%+v", c)
	}
	must.Equal(t, strings.Join(s.Redis.Unused, " "), "poolSize maxActiveConns", "unused")
	if err := s.setDialectRedis(object{"readTimeout": 0, "writeTimeout": "-1s"}); err == nil {
		t.Error("a negative timeout was taken")
	}
	if err := s.setDialectRedis(object{"readTimeout": 0}); err != nil || s.Redis.Client.Timeout != time.Minute {
		t.Errorf("no timeout, which is the longest: %v %+v", err, s.Redis.Client)
	}
}

func TestSettingsOfRegions(t *testing.T) {
	setenv(t, "WEIR_TEST_ADDRESS", "redis://u:hunter2@c:3/1")
	var s StoreSettings
	must.Succeed(t, s.setRedis(object{"address": "a:1", "password": "own", "region": "eu", "peers": object{"us": "b:2", "ap": "env:WEIR_TEST_ADDRESS"}, "share": 0.4}))
	r := s.Redis.Regions
	must.Equal(t, fmt.Sprint(r.Region, r.Names(), r.Share, s.Redis.Store.Region), "eu[ap us] 0.4eu")
	for i, c := range r.Clients(s.Redis.Client) {
		must.Succeed(t, c.Complete())
		must.Equal(t, fmt.Sprint(c.Addresses, " ", c.Username, " ", c.Password, " ", c.Database), []string{"[c:3] u hunter2 1", "[b:2]  own 0"}[i])
	}
	for _, c := range []struct {
		settings object
		want     string
	}{
		{object{"region": "eu"}, "peers: is missing beside region"},
		{object{"peers": object{"us": "b:2"}}, "region: is missing beside peers, home or share"},
		{object{"region": "eu", "peers": "us"}, "peers \"us\": must be an object"},
		{object{"region": "eu", "peers": object{"us": "a:1"}}, "peers \"us\": has the same Redis as \"eu\""},
		{object{"region": "eu", "peers": object{"us": "b:2", "ap": "b:2"}}, "peers \"us\": has the same Redis as \"ap\""},
		{object{"region": "eu", "peers": object{"us": "redis://b:2/3", "ap": "redis://b:2/3"}}, "peers \"us\": has the same Redis as \"ap\""},
		{object{"region": "eu", "peers": object{"US": "b:2"}}, "peers \"US\": a name of a region has 1 to 32 of a-z 0-9 _ -"},
		{object{"region": "eu", "peers": object{"us": "b:2"}, "share": "2"}, "share \"2\": must be above 0, and at most 1"},
	} {
		c.settings["address"] = "a:1"
		var s StoreSettings
		if err := s.setRedis(c.settings); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.settings, err, c.want)
		}
	}
}
