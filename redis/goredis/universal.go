package goredis

import (
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// NewUniversal returns go-redis's own client, for programs that keep other things in the same Redis than counters. Each of its commands waits
// for a reply for up to that time. Unlike that of New, it does not guard against peers that are no Redis, since replies may be long. The error says what is
// wrong with the configuration, and has no secrets in it. The caller must close the client.
func NewUniversal(c Config, timeout time.Duration) (goredis.UniversalClient, error) {
	if err := c.Complete(); err != nil {
		return nil, err
	}
	o := options(&c, c.Addresses)
	o.ReadTimeout = timeout
	o.WriteTimeout = timeout
	o.PoolSize = 0     // go-redis's own
	o.MaxRedirects = 0 // the same
	o.Dialer = nil
	o.ContextTimeoutEnabled = true
	o.IsClusterMode = c.Cluster
	return goredis.NewUniversalClient(o), nil
}
