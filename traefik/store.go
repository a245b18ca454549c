package traefik

import (
	"errors"
	"fmt"

	"github.com/proxyweir/weir/core/ruleset"
)

const maxMaxKeys = 100_000_000

// newStoreSettings reads where a middleware's counters live, in either dialect, with the values from the environment and from files.
func newStoreSettings(c *Config) (storeSettings, error) {
	var settings storeSettings
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
	settings.maxKeys = int(in.Number("maxKeys", m.MaxKeys, 1, maxMaxKeys, 0))
	if in.Err != nil {
		return settings, fmt.Errorf("store: memory: %w", in.Err)
	}
	if counted {
		return settings, nil
	}
	return settings, settings.setRedis(s.Redis)
}
