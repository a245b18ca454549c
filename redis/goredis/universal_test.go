package goredis_test

import (
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"

	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
)

// A universal client finds the replica that has taken over as soon as a command has failed. By itself go-redis would look for it after a minute.
func TestAUniversalClientFollowsAFailoverInACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	write := map[string]func(c client.UniversalClient) error{
		"a command": func(c client.UniversalClient) error { return c.Set(t.Context(), "k", "v", 0).Err() },
		"a pipeline": func(c client.UniversalClient) error {
			_, err := c.Pipelined(t.Context(), func(p client.Pipeliner) error { return p.Set(t.Context(), "k", "v", 0).Err() })
			return err
		},
	}
	clients := make(map[string]client.UniversalClient)
	for name, f := range write {
		c, err := goredis.NewUniversal(goredis.Config{Addresses: cluster.Addrs(), Cluster: true}, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		eventually(t, name, func() error { return f(c) })
		clients[name] = c
	}
	cluster.KillMaster(redistest.Slot("k"))
	for name, f := range write {
		eventually(t, name+" after the failover", func() error { return f(clients[name]) })
	}
}
