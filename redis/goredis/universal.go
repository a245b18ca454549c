package goredis

import (
	"context"
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
	client := goredis.NewUniversalClient(o)
	if k, ok := client.(*goredis.ClusterClient); ok {
		k.AddHook(reloader{k})
	}
	return client, nil
}

// reloader has a client of a Cluster ask where the slots are when a node does not answer: another may have taken over. Else go-redis asks only every minute,
// or when a node names another.
type reloader struct{ client *goredis.ClusterClient }

// DialHook implements goredis.Hook.
func (r reloader) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements goredis.Hook.
func (r reloader) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error { return r.after(ctx, next(ctx, cmd)) }
}

// ProcessPipelineHook implements goredis.Hook.
func (r reloader) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error { return r.after(ctx, next(ctx, cmds)) }
}

func (r reloader) after(ctx context.Context, err error) error {
	if err != nil && isConnections(err) {
		r.client.ReloadState(ctx) // in the background, and at most every 200 ms
	}
	return err
}
