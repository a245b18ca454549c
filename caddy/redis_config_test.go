package ratelimit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/tools/must"
)

func init() {
	// The secret in the environment that golden files use.
	if err := os.Setenv("WEIR_TEST_REDIS_PASSWORD", "hunter2"); err != nil {
		panic(err)
	}
}

// nobody is an address without a Redis.
const nobody = `"addresses": ["127.0.0.1:1"]`

// storeRedis returns a configuration whose handler has the store redis with these fields.
func storeRedis(fields string) string {
	return configOf(handlerOf(apiZone, `"store": {"store": "redis", `+fields+`}`))
}

// TestStoreRedisIsRefusedWhenItLoads: mistakes in JSON are refused with the field, the value and what would be accepted, wherever
// the store is.
func TestStoreRedisIsRefusedWhenItLoads(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	prose := write("prose.pem", "this is no certificate")
	const (
		certificate = `"client_certificate": "testdata/redis/client.pem"`
		key         = `"client_key": "testdata/redis/client-key.pem"`
	)
	for _, c := range []struct{ name, fields, want string }{
		{"unknown field", nobody + `, "frobnicate": 1`, `unknown field "frobnicate"`},
		{"unknown field of TLS", nobody + `, "tls": {"insecure": true}`, `unknown field "insecure"`},
		{"word of the Caddyfile", `"address": "127.0.0.1:1"`, `unknown field "address"`},
		{"text for a list", `"addresses": "127.0.0.1:1"`, `addresses`},
		{"text for a number", nobody + `, "nodes": "4"`, `nodes`},
		{"fraction", nobody + `, "nodes": 1.5`, `nodes`},
		{"text for yes", nobody + `, "cluster": "yes"`, `cluster`},
		{"no duration", nobody + `, "timeout": "fast"`, `fast`},

		{"no address", `"nodes": 4`, "address: is missing; write one such as 127.0.0.1:6379"},
		{"empty list of addresses", `"addresses": []`, "address: is missing"},
		{"empty address", `"addresses": [""]`, `address "": must be host:port, the path of a Unix socket, or a URL`},
		{"address with a space", `"addresses": ["127.0.0.1 6379"]`, `address "127.0.0.1 6379": must be host:port`},
		{"address of a placeholder that is not set", `"addresses": ["{env.WEIR_TEST_UNSET}:1"]`, `address: `},
		{"database negative", nobody + `, "database": -1`, "database -1: must be 0 or more"},
		{"password that is not set", nobody + `, "password": "{env.WEIR_TEST_UNSET}"`, "password: "},
		{"password of a file that is not there", nobody + `, "password": "{file.testdata/redis/none}"`, "password: "},
		{"placeholder of requests", nobody + `, "prefix": "{http.request.host}:"`, "prefix: "},

		{"pool_size negative", nobody + `, "pool_size": -1`, "pool_size -1: must be from 1 to 1000"},
		{"pool_size too large", nobody + `, "pool_size": 1001`, "pool_size 1001: must be from 1 to 1000"},
		{"timeout negative", nobody + `, "timeout": "-1s"`, "timeout -1s: must be from 1ms to 1m"},
		{"timeout of nanoseconds", nobody + `, "timeout": 50`, "timeout 50ns: must be from 1ms to 1m"},
		{"timeout too long", nobody + `, "timeout": "61s"`, "timeout 1m1s: must be from 1ms to 1m"},
		{"dial_timeout negative", nobody + `, "dial_timeout": "-1s"`, "dial_timeout -1s: must be from 1ms to 1m"},
		{"dial_timeout too long", nobody + `, "dial_timeout": "2m"`, "dial_timeout 2m0s: must be from 1ms to 1m"},
		{"background_timeout too long", nobody + `, "background_timeout": "1h"`, "background_timeout 1h0m0s: must be from 1ms to 1m"},
		{"read_timeout negative", nobody + `, "read_timeout": "-1s"`, "read_timeout -1s: must be from 1ms to 1m"},
		{"nodes negative", nobody + `, "nodes": -1`, "nodes -1: must be from 1 to 100000"},
		{"nodes too many", nobody + `, "nodes": 100001`, "nodes 100001: must be from 1 to 100000"},

		{"prefix of a placeholder with a brace", nobody + `, "prefix": "{file.` + write("brace", "weir{") + `}"`, `prefix "weir{": must not have braces`},

		{"CA that is not there", nobody + `, "tls": {"ca": "testdata/redis/none.pem"}`, "tls: ca: open testdata/redis/none.pem: no such file"},
		{"CA that is prose", nobody + `, "tls": {"ca": "` + prose + `"}`, `tls: ca "` + prose + `": has no certificate in PEM`},
		{"certificate without key", nobody + `, "tls": {` + certificate + `}`, "tls: client_certificate and client_key: need each other"},
		{"key without certificate", nobody + `, "tls": {` + key + `}`, "tls: client_certificate and client_key: need each other"},
		{"certificate that is not there", nobody + `, "tls": {"client_certificate": "none.pem", ` + key + `}`, "tls: client_certificate: open none.pem: no such file"},
		{"key that is prose", nobody + `, "tls": {` + certificate + `, "client_key": "` + prose + `"}`, "tls: client_certificate: "},
		{"certificate and another's key", nobody + `, "tls": {"client_certificate": "testdata/redis/ca.pem", ` + key + `}`, "tls: client_certificate: "},
		{"server_name that is not set", nobody + `, "tls": {"server_name": "{env.WEIR_TEST_UNSET}"}`, "tls: server_name: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			for where, config := range map[string]string{
				"handler": storeRedis(c.fields),
				"app":     `{"apps": {"rate_limit": {"store": {"store": "redis", ` + c.fields + `}}}}`,
			} {
				_, err := validate(t, config)
				if err == nil {
					t.Errorf("in the %s: is not refused", where)
					continue
				}
				text := err.Error()
				if !strings.Contains(text, c.want) {
					t.Errorf("in the %s: got %v\nwant %s", where, err, c.want)
				}
				if strings.Contains(text, "hunter2") {
					t.Errorf("in the %s: shows the secret: %v", where, err)
				}
			}
		})
	}
	must.Equal(t, RedisStoresInUse(), 0, "stores are in use by configurations that were refused")
}

// RedisStoresInUse returns how many Redis stores exist.
func RedisStoresInUse() int {
	n := 0
	stores.RedisStores.Range(func(_, _ any) bool {
		n++
		return true
	})
	return n
}

// TestStoreRedisSurvivesTheWayThroughJSON: each field is read, and written as it was.
func TestStoreRedisSurvivesTheWayThroughJSON(t *testing.T) {
	const config = `{
		"addresses": ["127.0.0.1:1", "127.0.0.1:2"], "master_name": "m", "cluster": true, "username": "u", "password": "p",
		"sentinel_username": "su", "sentinel_password": "sp", "database": 3,
		"tls": {"ca": "ca.pem", "client_certificate": "c.pem", "client_key": "k.pem", "server_name": "redis.internal"},
		"pool_size": 4, "timeout": 40000000, "background_timeout": 3000000000, "dial_timeout": 2000000000, "read_timeout": 400000000, "prefix": "shop:",
		"key_secret": "s", "plain_keys": true, "nodes": 4, "region": "eu", "peers": {"us": "127.0.0.1:3"}, "share": 0.2, "home": "us"
	}`
	s := new(stores.RedisStore)
	must.Succeed(t, caddy.StrictUnmarshalJSON([]byte(config), s))
	if again := caddyconfig.JSON(s, nil); !sameJSON(t, []byte(config), again) {
		t.Errorf("%s became %s", config, again)
	}
	var fields, tlsFields map[string]any
	must.Succeed(t, json.Unmarshal([]byte(config), &fields))
	tlsFields = fields["tls"].(map[string]any)
	for _, name := range syntax.FieldNames(reflect.TypeFor[stores.RedisStore]()) {
		if fields[name] == nil {
			t.Errorf("the field %s is not in this test", name)
		}
	}
	for _, name := range syntax.FieldNames(reflect.TypeFor[stores.ClientTLS]()) {
		if tlsFields[name] == nil {
			t.Errorf("the field %s of TLS is not in this test", name)
		}
	}
}

// TestEveryWordOfStoreRedisHasAGoldenFile fails when a word is added without one.
func TestEveryWordOfStoreRedisHasAGoldenFile(t *testing.T) {
	good, refused := "", ""
	for _, g := range readGolden(t) {
		if !strings.Contains(filepath.Base(g.path), "store_redis") {
			continue
		}
		if g.isError() {
			refused += g.caddyfile
		} else {
			good += g.caddyfile
		}
	}
	for _, word := range append(append([]string{}, redisWords...), redisTLSWords...) {
		if !hasLineOf(good, word) {
			t.Errorf("no golden file has %s in a Caddyfile that is accepted", word)
		}
		if !hasLineOf(refused, word) {
			t.Errorf("no golden file has %s in a Caddyfile that is refused", word)
		}
	}
}

// TestEveryWordOfStoreRedisIsAFieldInJSON: JSON and the Caddyfile can express the same settings.
func TestEveryWordOfStoreRedisIsAFieldInJSON(t *testing.T) {
	jsonOf := map[string]string{"address": "addresses"}
	said := map[string]bool{"client_key": true} // the second value of client_certificate
	for _, word := range append(append([]string{}, redisWords...), redisTLSWords...) {
		if name := jsonOf[word]; name != "" {
			word = name
		}
		said[word] = true
	}
	names := append(syntax.FieldNames(reflect.TypeFor[stores.RedisStore]()), syntax.FieldNames(reflect.TypeFor[stores.ClientTLS]())...)
	for _, name := range names {
		if !said[name] {
			t.Errorf("the Caddyfile has no word for %s", name)
		}
		delete(said, name)
	}
	for word := range said {
		t.Errorf("JSON has no field for %s", word)
	}
}

// TestNoErrorOfTheCaddyfileShowsASecret: errors of the Caddyfile go into logs and tickets.
func TestNoErrorOfTheCaddyfileShowsASecret(t *testing.T) {
	for _, g := range readGolden(t) {
		if g.isError() && strings.Contains(g.want, "hunter2") {
			t.Errorf("%s: shows the secret: %s", filepath.Base(g.path), g.want)
		}
	}
}

// TestPlaceholdersOfStoreRedisGetTheirValues: a file's last line break is not part of its secret; in a value without a placeholder
// every byte counts.
func TestPlaceholdersOfStoreRedisGetTheirValues(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "secret")
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return "{file." + path + "}"
	}
	const placeholder = "{env.WEIR_TEST_REDIS_PASSWORD}"
	s := &stores.RedisStore{
		Addresses:        []string{placeholder + ":1"},
		MasterName:       placeholder + "-master",
		Username:         placeholder,
		Password:         file("correct horse {env.HOME}\n"),
		SentinelUsername: file("watcher\r\n"),
		SentinelPassword: file(" spaces are kept "),
		Prefix:           placeholder + ":",
		KeySecret:        file("p\x00\xff\n"),
		TLS:              &stores.ClientTLS{CA: file("testdata/redis/ca.pem\n"), ServerName: placeholder},
	}
	settings, err := s.Resolve()
	must.Succeed(t, err)
	for _, c := range []struct{ name, got, want string }{
		{"address", settings.Client.Addresses[0], "hunter2:1"},
		{"master_name", settings.Client.MasterName, "hunter2-master"},
		{"username", settings.Client.Username, "hunter2"},
		{"password", settings.Client.Password, "correct horse {env.HOME}"}, // a replaced value is not replaced again
		{"sentinel_username", settings.Client.SentinelUsername, "watcher"},
		{"sentinel_password", settings.Client.SentinelPassword, " spaces are kept "},
		{"prefix", settings.Store.Prefix, "hunter2:"},
		{"key_secret", settings.Store.KeySecret, "p\x00\xff"},
		{"tls server_name", settings.Client.TLS.ServerName, "hunter2"},
	} {
		must.Equal(t, c.got, c.want, "%s", c.name)
	}
	if settings.Client.TLS.RootCAs == nil {
		t.Error("the CA's file was not read")
	}
	for _, kept := range []string{s.Addresses[0], s.Username, s.Password, s.KeySecret, s.TLS.CA} {
		if !strings.HasPrefix(kept, "{") {
			t.Errorf("the module's own field has become %q; it must stay as it was written", kept)
		}
	}
}

// TestALiteralSecretWithBracesIsNotShown: such a secret looks like an unknown placeholder.
func TestALiteralSecretWithBracesIsNotShown(t *testing.T) {
	for _, field := range []string{"password", "sentinel_password", "key_secret"} {
		_, err := validate(t, storeRedis(nobody+`, "master_name": "m", "`+field+`": "hun{ter}2"`))
		if err == nil || !strings.Contains(err.Error(), field+": ") {
			t.Errorf("%s: %v; want an error that names the field", field, err)
		} else if strings.Contains(err.Error(), "ter}") {
			t.Errorf("%s: shows a part of the secret: %v", field, err)
		}
	}
}

// TestStoresWithEqualSettingsAreOne: in any spelling of the settings. Different settings have different stores.
func TestStoresWithEqualSettingsAreOne(t *testing.T) {
	keyOf := func(fields string) string {
		t.Helper()
		s := new(stores.RedisStore)
		must.Succeed(t, caddy.StrictUnmarshalJSON([]byte("{"+fields+"}"), s))
		settings, err := s.Resolve()
		must.Succeed(t, err)
		return settings.Key
	}
	one := keyOf(nobody + `, "password": "hunter2"`)
	for _, same := range []string{
		nobody + `, "password": "{env.WEIR_TEST_REDIS_PASSWORD}"`,
		nobody + `, "password": "hunter2", "nodes": 4`, // it only affects what happens without Redis
	} {
		must.Equal(t, keyOf(same), one, "%s: is another store", same)
	}
	for _, other := range []string{
		nobody,
		nobody + `, "password": "hunter3"`,
		nobody + `, "username": "hunter2"`,
		nobody + `, "password": "hunter2", "database": 1`,
		nobody + `, "password": "hunter2", "prefix": "other:"`,
		nobody + `, "password": "hunter2", "plain_keys": true`,
		nobody + `, "password": "hunter2", "key_secret": "x"`,
		nobody + `, "password": "hunter2", "timeout": "60ms"`,
		nobody + `, "password": "hunter2", "pool_size": 3`,
		nobody + `, "password": "hunter2", "tls": {}`,
		nobody + `, "password": "hunter2", "cluster": true`,
	} {
		if keyOf(other) == one {
			t.Errorf("%s: is the same store", other)
		}
	}
	if strings.Contains(one, "hunter2") {
		t.Error("the key of the store has the password in it")
	}
}

// TestARenewedCertificateMakesAnotherStore: the next reload connects again, with the new certificate.
func TestARenewedCertificateMakesAnotherStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.pem")
	keyWith := func(certificate string) string {
		t.Helper()
		data, err := os.ReadFile(certificate)
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(path, data, 0o600))
		settings, err := (&stores.RedisStore{Addresses: []string{"127.0.0.1:1"}, TLS: &stores.ClientTLS{CA: path}}).Resolve()
		must.Succeed(t, err)
		return settings.Key
	}
	first := keyWith("testdata/redis/ca.pem")
	must.Equal(t, keyWith("testdata/redis/ca.pem"), first, "the same certificate makes another store")
	if keyWith("testdata/redis/client.pem") == first {
		t.Error("another certificate makes the same store")
	}
}
