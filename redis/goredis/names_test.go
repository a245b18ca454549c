package goredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

func TestNamesAreThoseOfAllMasters(t *testing.T) {
	cluster := redistest.StartCluster(t)
	sentinel := redistest.StartSentinel(t)
	for _, c := range []Config{
		{Addresses: []string{redistest.Start(t).Addr()}},
		{Addresses: cluster.Addrs(), Cluster: true},
		{Addresses: sentinel.Addrs(), MasterName: redistest.MasterName},
	} {
		o := options(&c, c.Addresses)
		o.ReadTimeout, o.DialTimeout, o.MaxRedirects, o.IsClusterMode = 0, 0, 3, c.Cluster
		client := goredis.NewUniversalClient(o)
		for i := range 1200 {
			must.Succeed(t, client.Set(context.Background(), fmt.Sprintf("a:{%d}:x", i), "1", 0).Err())
		}
		must.Succeed(t, client.Set(context.Background(), "b:{1}:x", "1", 0).Err())
		must.Succeed(t, client.Close())
		var all []string
		must.Succeed(t, Names(context.Background(), c, "a:{*}:x", func(names []string) error {
			all = append(all, names...)
			return nil
		}))
		slices.Sort(all)
		must.Equal(t, len(slices.Compact(all)), 1200, c.Addresses)
		enough := errors.New("enough")
		must.Equal(t, errors.Is(Names(context.Background(), c, "a:*", func([]string) error { return enough }), enough), true)
	}
}
