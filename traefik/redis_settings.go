package traefik

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/resp"
)

// redisSettings are the checked settings of a Redis, of either dialect, with the values of env: and file: filled in.
type redisSettings struct {
	client      resp.Config
	store       redis.Config
	nodes       int
	fingerprint string   // a hash: it has secrets in it
	unused      []string // settings of Traefik's RateLimit that have no effect here
	dialect     bool     // they are written in the words of Traefik's RateLimit
}

const (
	maxNodes     = 100_000
	shortestWait = time.Millisecond
	longestWait  = time.Minute
)

// refusedRedis are settings of other adapters, and why they are refused here.
var refusedRedis = map[string]string{
	"addresses": "write address, which takes several, too",
	"poolsize":  "is not in the Traefik plugin; its requests travel together over one connection to each server",
}

// setRedis reads the settings of a Redis.
func (s *storeSettings) setRedis(value interface{}) error {
	keys, _ := value.(map[string]interface{})
	for key := range keys {
		if why := refusedRedis[strings.ToLower(key)]; why != "" {
			return fmt.Errorf("store: redis: %s: %s", key, why)
		}
	}
	var r Redis
	present, err := decodeObject("store: redis", value, &r)
	if err != nil {
		return err
	}
	if !present {
		return errors.New("store: is empty; write memory or redis into it, or leave it out")
	}
	settings := &redisSettings{}
	if err := settings.read(&r); err != nil {
		return fmt.Errorf("store: redis: %w", err)
	}
	s.redis = settings
	return nil
}

func (s *redisSettings) read(r *Redis) error {
	text := *r
	text.Address = nil
	for _, address := range r.Address {
		address = strings.TrimSpace(address)
		if err := resolve("address", &address); err != nil {
			return err
		}
		if address != "" {
			text.Address = append(text.Address, address)
		}
	}
	fields := []struct {
		name  string
		value *string
	}{
		{"masterName", &text.MasterName},
		{"username", &text.Username},
		{"password", &text.Password},
		{"sentinelUsername", &text.SentinelUsername},
		{"sentinelPassword", &text.SentinelPassword},
		{"prefix", &text.Prefix},
		{"keySecret", &text.KeySecret},
	}
	for i := range fields {
		if err := resolve(fields[i].name, fields[i].value); err != nil {
			return err
		}
	}
	s.client = resp.Config{
		Addresses:        text.Address,
		MasterName:       text.MasterName,
		Username:         text.Username,
		Password:         text.Password,
		SentinelUsername: text.SentinelUsername,
		SentinelPassword: text.SentinelPassword,
	}
	s.store = redis.Config{Prefix: text.Prefix, KeySecret: text.KeySecret}
	var in ruleset.Settings
	s.client.Cluster = in.Truth("cluster", r.Cluster)
	s.client.Database = int(in.Number("database", r.Database, 0, 1_000_000, 0))
	s.client.Timeout = in.Duration("timeout", r.Timeout, shortestWait, longestWait, 0)
	s.client.Background = in.Duration("backgroundTimeout", r.BackgroundTimeout, shortestWait, longestWait, 0)
	s.client.DialTimeout = in.Duration("dialTimeout", r.DialTimeout, shortestWait, longestWait, 0)
	s.client.ReadTimeout = in.Duration("readTimeout", r.ReadTimeout, shortestWait, longestWait, 0)
	s.store.PlainKeys = in.Truth("plainKeys", r.PlainKeys)
	s.nodes = int(in.Number("nodes", r.Nodes, 1, maxNodes, 0))
	if in.Err != nil {
		return in.Err
	}
	text.Nodes = ""
	text.TLS = nil // it may be written in several ways
	var t ClientTLS
	return s.complete(text, r.TLS, &t, func() (*tls.Config, []byte, error) {
		config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
		return loadTLS(config, "ca", "clientCertificate", "clientKey", certificates{t.CA, t.ClientCertificate, t.ClientKey, false})
	})
}

// complete reads the TLS settings of either dialect into an object, of which load makes a configuration. It returns the errors of client and
// store, and sets the fingerprint of all settings but nodes: settings has the rest.
func (s *redisSettings) complete(settings, written, object interface{}, load func() (*tls.Config, []byte, error)) error {
	secure, err := decodeObject("tls", written, object)
	if err != nil {
		return err
	}
	all := []interface{}{settings}
	var files []byte
	if secure {
		s.client.TLS, files, err = load()
		if err != nil {
			return fmt.Errorf("tls: %w", err)
		}
		all = append(all, object)
	}
	if err := s.client.Check(); err != nil {
		return ourWords(words.Of(err))
	}
	if err := s.store.Check(); err != nil {
		return ourWords(words.Of(err))
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	digest := sha256.New()
	digest.Write(text)
	digest.Write(files)
	s.fingerprint = string(digest.Sum(nil))
	return nil
}
