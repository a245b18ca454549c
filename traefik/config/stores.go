package config

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/regions"
	"github.com/proxyweir/weir/redis/resp"
)

// StoreSettings say where the counters of a middleware live.
type StoreSettings struct {
	MaxKeys int            // of the memory; 0: not set
	Redis   *RedisSettings // nil: memory
}

const maxMaxKeys = 100_000_000

// ReadStore reads where a middleware's counters live, in either dialect, with the values from the environment and from files.
func ReadStore(c *Config) (StoreSettings, error) {
	var settings StoreSettings
	if c.Redis != nil {
		if c.Store != nil {
			return settings, errors.New("redis and store are mutually exclusive: redis is of Traefik's rateLimit; remove one")
		}
		return settings, settings.setDialectRedis(c.Redis)
	}
	if c.Store == nil { // as for many
		return settings, nil
	}
	var s Store
	present, err := decodeObject("store", c.Store, &s)
	if err != nil || !present {
		return settings, err
	}
	if s.Memory != nil && s.Redis != nil {
		return settings, errors.New("store: memory and redis are mutually exclusive: remove one")
	}
	var m Memory
	counted, err := decodeObject("store: memory", s.Memory, &m)
	if err != nil {
		return settings, err
	}
	var in ruleset.Settings
	settings.MaxKeys = int(in.Number("maxKeys", m.MaxKeys, 1, maxMaxKeys, 0))
	if in.Err != nil {
		return settings, fmt.Errorf("store: memory: %w", in.Err)
	}
	if counted {
		return settings, nil
	}
	return settings, settings.setRedis(s.Redis)
}

// RedisSettings are the checked settings of a Redis, of either dialect, with the values of env: and file: filled in.
type RedisSettings struct {
	Client      resp.Config
	Store       redis.Config
	Nodes       int
	Regions     regions.Settings
	Fingerprint string   // a hash: it has secrets in it
	Unused      []string // settings of Traefik's RateLimit that have no effect here
	Dialect     bool     // they are written in the words of Traefik's RateLimit
}

// Advice returns what in the settings has no effect, or not the likely one.
func (s *RedisSettings) Advice() []string {
	var list []string
	if len(s.Unused) > 0 {
		list = append(list, "redis: "+strings.Join(s.Unused, ", ")+": of no effect, since all requests travel over one connection")
	}
	if s.Nodes == 0 {
		todo := "set store.redis.nodes to the number of nodes that share it"
		if s.Dialect {
			todo = "write store.redis in place of redis, with nodes as the number of those that share it"
		}
		list = append(list, "nodes is not set: if Redis cannot be reached, each node lets the whole limit through; "+todo)
	}
	return list
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
func (s *StoreSettings) setRedis(value interface{}) error {
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
	settings := &RedisSettings{}
	if err := settings.read(&r); err != nil {
		return fmt.Errorf("store: redis: %w", err)
	}
	s.Redis = settings
	return nil
}

func (s *RedisSettings) read(r *Redis) error {
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
		{"region", &text.Region},
		{"home", &text.Home},
	}
	for i := range fields {
		if err := resolve(fields[i].name, fields[i].value); err != nil {
			return err
		}
	}
	peers, err := readPeers(r.Peers)
	if err != nil {
		return err
	}
	text.Peers = peers
	s.Client = resp.Config{
		Addresses:        text.Address,
		MasterName:       text.MasterName,
		Username:         text.Username,
		Password:         text.Password,
		SentinelUsername: text.SentinelUsername,
		SentinelPassword: text.SentinelPassword,
	}
	s.Store = redis.Config{Prefix: text.Prefix, KeySecret: text.KeySecret}
	var in ruleset.Settings
	s.Client.Cluster = in.Truth("cluster", r.Cluster)
	s.Client.Database = int(in.Number("database", r.Database, 0, 1_000_000, 0))
	s.Client.Timeout = in.Duration("timeout", r.Timeout, shortestWait, longestWait, 0)
	s.Client.Background = in.Duration("backgroundTimeout", r.BackgroundTimeout, shortestWait, longestWait, 0)
	s.Client.DialTimeout = in.Duration("dialTimeout", r.DialTimeout, shortestWait, longestWait, 0)
	s.Client.ReadTimeout = in.Duration("readTimeout", r.ReadTimeout, shortestWait, longestWait, 0)
	s.Store.PlainKeys = in.Truth("plainKeys", r.PlainKeys)
	s.Nodes = int(in.Number("nodes", r.Nodes, 1, maxNodes, 0))
	s.Regions = regions.Settings{Region: text.Region, Peers: peers, Home: text.Home}
	if text.Share != "" {
		share, err := strconv.ParseFloat(text.Share, 64)
		if err != nil || share <= 0 || share > 1 {
			return fmt.Errorf("share %q: must be above 0, and at most 1", text.Share)
		}
		s.Regions.Share = share
	}
	s.Store.Region = text.Region
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

// readPeers reads the addresses of other regions, by their names.
func readPeers(written interface{}) (map[string]string, error) {
	peers := make(map[string]string)
	if written == nil {
		return peers, nil
	}
	list, err := pairsOf("peers", reflect.ValueOf(written))
	for _, pair := range list {
		address := pair.Value
		if err == nil {
			err = resolve("peers", &address)
		}
		peers[pair.Name] = strings.TrimSpace(address)
	}
	return peers, err
}

// complete reads the TLS settings of either dialect into an object, of which load makes a configuration. It returns the errors of client and
// store, and sets the fingerprint of all settings but nodes: settings has the rest.
func (s *RedisSettings) complete(settings, written, object interface{}, load func() (*tls.Config, []byte, error)) error {
	secure, err := decodeObject("tls", written, object)
	if err != nil {
		return err
	}
	all := []interface{}{settings}
	var files []byte
	if secure {
		s.Client.TLS, files, err = load()
		if err != nil {
			return fmt.Errorf("tls: %w", err)
		}
		all = append(all, object)
	}
	if err := s.Client.Check(); err != nil {
		return InWords(words.Of(err))
	}
	if err := s.Store.Check(); err != nil {
		return InWords(words.Of(err))
	}
	if err := s.Regions.Check(s.Client); err != nil {
		return InWords(words.Of(err))
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	digest := sha256.New()
	digest.Write(text)
	digest.Write(files)
	s.Fingerprint = string(digest.Sum(nil))
	return nil
}

// setDialectRedis reads the settings of a Redis in the words of Traefik's RateLimit.
func (s *StoreSettings) setDialectRedis(value interface{}) error {
	var r RateLimitRedis
	present, err := decodeObject("redis", value, &r)
	if err != nil || !present {
		return err
	}
	settings := &RedisSettings{Dialect: true}
	if err := settings.readDialect(&r); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	s.Redis = settings
	return nil
}

func (s *RedisSettings) readDialect(r *RateLimitRedis) error {
	addresses := []string{"localhost:6379"}
	if len(r.Endpoints) > 0 {
		addresses = nil
		for _, endpoint := range r.Endpoints {
			addresses = append(addresses, strings.TrimSpace(endpoint))
		}
	}
	text := *r
	if err := resolve("username", &text.Username); err != nil {
		return err
	}
	if err := resolve("password", &text.Password); err != nil {
		return err
	}
	s.Client = resp.Config{Addresses: addresses, Cluster: len(addresses) > 1, Username: text.Username, Password: text.Password}
	var in ruleset.Settings
	s.Client.Database = int(in.Number("db", r.DB, 0, 1_000_000, 0))
	s.Client.Timeout = dialectTimeout(&in, "readTimeout", r.ReadTimeout)
	if write := dialectTimeout(&in, "writeTimeout", r.WriteTimeout); write > s.Client.Timeout {
		s.Client.Timeout = write
	}
	s.Client.DialTimeout = dialectTimeout(&in, "dialTimeout", r.DialTimeout)
	for _, pool := range [][]string{{"poolSize", r.PoolSize}, {"minIdleConns", r.MinIdleConns}, {"maxActiveConns", r.MaxActiveConns}} {
		if in.Number(pool[0], pool[1], 0, 1_000_000, 0) > 0 {
			s.Unused = append(s.Unused, pool[0])
		}
	}
	if in.Err != nil {
		return in.Err
	}
	text.TLS = nil // it may be written in several ways
	var t RateLimitTLS
	return s.complete(text, r.TLS, &t, func() (*tls.Config, []byte, error) {
		var in ruleset.Settings
		skip := in.Truth("insecureSkipVerify", t.InsecureSkipVerify)
		if in.Err != nil {
			return nil, nil, in.Err
		}
		config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: skip} //nolint:gosec // as it is configured
		return loadTLS(config, "ca", "cert", "key", certificates{t.CA, t.Cert, t.Key, true})
	})
}

// dialectTimeout reads a duration as Traefik does: a bare number is seconds. 0, which is no limit there, is the longest here.
func dialectTimeout(in *ruleset.Settings, field, value string) time.Duration {
	if text := strings.TrimSpace(value); text != "" && strings.Trim(text, "0123456789") == "" {
		value = text + "s"
	}
	d := in.Duration(field, value, 0, 24*time.Hour, 0)
	if value != "" && (d == 0 || d > longestWait) {
		return longestWait
	}
	if value != "" && d < shortestWait {
		return shortestWait
	}
	return d
}
