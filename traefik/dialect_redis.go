package traefik

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"

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
	if len(r.Endpoints) > 1 {
		return fmt.Errorf("endpoints %q: are several; the Traefik plugin speaks to one server, without Sentinel or Cluster", strings.Join(r.Endpoints, ", "))
	}
	address := "localhost:6379"
	if len(r.Endpoints) == 1 {
		address = strings.TrimSpace(r.Endpoints[0])
	}
	text := *r
	if err := resolve("username", &text.Username); err != nil {
		return err
	}
	if err := resolve("password", &text.Password); err != nil {
		return err
	}
	s.client = resp.Config{Address: address, Username: text.Username, Password: text.Password}
	database, err := parseNumber("db", r.DB, 0, 1_000_000, 0)
	if err != nil {
		return err
	}
	s.client.Database = int(database)
	read, err := dialectTimeout("readTimeout", r.ReadTimeout)
	if err != nil {
		return err
	}
	write, err := dialectTimeout("writeTimeout", r.WriteTimeout)
	if err != nil {
		return err
	}
	s.client.Timeout = read
	if write > read {
		s.client.Timeout = write
	}
	if s.client.DialTimeout, err = dialectTimeout("dialTimeout", r.DialTimeout); err != nil {
		return err
	}
	pools := [][]string{{"poolSize", r.PoolSize}, {"minIdleConns", r.MinIdleConns}, {"maxActiveConns", r.MaxActiveConns}}
	for _, pool := range pools {
		n, err := parseNumber(pool[0], pool[1], 0, 1_000_000, 0)
		if err != nil {
			return err
		}
		if n > 0 {
			s.unused = append(s.unused, pool[0])
		}
	}
	var t RateLimitTLS
	secure, err := decodeObject("tls", r.TLS, &t)
	if err != nil {
		return err
	}
	text.TLS = nil // it may be written in several ways
	if !secure {
		return s.check(text, nil)
	}
	text.TLS = t
	config, contents, err := newDialectTLS(&t)
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	s.client.TLS = config
	return s.check(text, contents)
}

// dialectTimeout reads a duration as Traefik does: a bare number is seconds. 0, which is no limit there, is the longest here.
func dialectTimeout(field, value string) (time.Duration, error) {
	if text := strings.TrimSpace(value); text != "" && strings.Trim(text, "0123456789") == "" {
		value = text + "s"
	}
	d, err := parseDuration(field, value, 0, 24*time.Hour, 0)
	if err != nil {
		return 0, err
	}
	if value != "" && (d == 0 || d > longestWait) {
		return longestWait, nil
	}
	if value != "" && d < shortestWait {
		return shortestWait, nil
	}
	return d, nil
}

// newDialectTLS reads the certificates of a RateLimitTLS, or their files.
func newDialectTLS(t *RateLimitTLS) (*tls.Config, []byte, error) {
	skip, err := parseBool("insecureSkipVerify", t.InsecureSkipVerify)
	if err != nil {
		return nil, nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: skip} //nolint:gosec // as it is configured
	return loadTLS(config, "ca", "cert", "key", certificates{t.CA, t.Cert, t.Key, true})
}
