package goredis

import (
	"context"
	"fmt"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// atATime is how many keys a server looks at for one answer of Names, so that no decision waits long for it.
const atATime = 500

// Names calls a function with the names of keys that match a pattern of SCAN: on all masters of a Cluster, over connections of its own, some at a time. A name
// may come twice. An error of the function ends it, and is returned; others are the server's.
func Names(ctx context.Context, c Config, pattern string, visit func(names []string) error) error {
	if err := c.Complete(); err != nil {
		return err
	}
	var turn sync.Mutex
	scan := func(ctx context.Context, client goredis.Cmdable) error {
		for cursor := uint64(0); ; {
			names, next, err := client.Scan(ctx, cursor, pattern, atATime).Result()
			if err != nil {
				return fmt.Errorf("SCAN: %w", err)
			}
			turn.Lock()
			err = visit(names)
			turn.Unlock()
			if cursor = next; err != nil || cursor == 0 {
				return err
			}
		}
	}
	o := options(&c, c.Addresses)
	o.IsClusterMode = c.Cluster
	client := goredis.NewUniversalClient(o)
	defer client.Close()
	if cluster, is := client.(*goredis.ClusterClient); is {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, client *goredis.Client) error { return scan(ctx, client) })
	}
	return scan(ctx, client)
}
