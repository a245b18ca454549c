package traefik

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/redis/resp"
)

// setDialectRedis reads the settings of a Redis in the words of Traefik's RateLimit.
func (s *storeSettings) setDialectRedis(value interface{}) error {
	var r RateLimitRedis
	present, err := decodeObject("redis", value, &r)
	if err != nil || !present {
		return err
	}
	settings := &redisSettings{dialect: true}
	if err := settings.readDialect(&r); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	s.redis = settings
	return nil
}

func (s *redisSettings) readDialect(r *RateLimitRedis) error {
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
	s.client = resp.Config{Addresses: addresses, Cluster: len(addresses) > 1, Username: text.Username, Password: text.Password}
	var in ruleset.Settings
	s.client.Database = int(in.Number("db", r.DB, 0, 1_000_000, 0))
	s.client.Timeout = dialectTimeout(&in, "readTimeout", r.ReadTimeout)
	if write := dialectTimeout(&in, "writeTimeout", r.WriteTimeout); write > s.client.Timeout {
		s.client.Timeout = write
	}
	s.client.DialTimeout = dialectTimeout(&in, "dialTimeout", r.DialTimeout)
	for _, pool := range [][]string{{"poolSize", r.PoolSize}, {"minIdleConns", r.MinIdleConns}, {"maxActiveConns", r.MaxActiveConns}} {
		if in.Number(pool[0], pool[1], 0, 1_000_000, 0) > 0 {
			s.unused = append(s.unused, pool[0])
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
