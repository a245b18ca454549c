package goredis_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
)

// comparing is a proxy that collects the reports of Config.Differs.
type comparing struct {
	*node
	mu       sync.Mutex
	reported []string
}

func newComparing(t *testing.T, addr string, interpreted bool) *comparing {
	t.Helper()
	c := &comparing{}
	config := redis.Config{Prefix: "compared:", Lines: interpreted, Differs: func(_, rule string, here, there match.Prefixes) {
		c.mu.Lock()
		c.reported = append(c.reported, fmt.Sprint(rule, here, there))
		c.mu.Unlock()
	}}
	c.node = &node{store: newStore(t, config, goredis.Config{Addresses: []string{addr}, Username: user, Password: userPassword})}
	return c
}

// opens opens a rule with that name and key.
func (c *comparing) opens(t *testing.T, name, spec string) {
	t.Helper()
	config := rule(t, name, rate.TokenBucket, 100)
	config.KeySpec = spec
	c.open(t, config)
}

// saw compares, and checks what was reported since its last call.
func (c *comparing) saw(t *testing.T, what string, want ...string) {
	t.Helper()
	c.store.Compare()
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.reported)
	if !slices.Equal(c.reported, want) {
		t.Errorf("%s: reported %q, want %q", what, c.reported, want)
	}
	c.reported = nil
}

// By default Caddy does not mask IPv6 addresses, and the plugin masks them to /64. A rule that both have then counts twice.
func TestProxiesThatMaskAddressesDifferentlyAreReported(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithUser(user, userPassword, "~compared:* "+acl))
	caddy, traefik := newComparing(t, server.Addr(), false), newComparing(t, server.Addr(), true)
	caddy.opens(t, "api", "client_ip")
	caddy.opens(t, "same", "client_ip /0 /64")
	caddy.opens(t, "whole", "client_ip")
	caddy.opens(t, "tenants", "header:X-Tenant")
	caddy.saw(t, "the first")
	traefik.opens(t, "api", "client_ip /0 /64")
	traefik.opens(t, "same", "client_ip /0 /64")
	traefik.opens(t, "whole", "client_ip")
	traefik.opens(t, "other", "client_ip header:X-Plan /24 /64")
	traefik.saw(t, "the second", "api{32 64} {32 128}")
	traefik.saw(t, "the second, again")
	caddy.saw(t, "the first, again")

	// A mark with this node's own earlier settings is not that of another node.
	traefik.opens(t, "other", "client_ip header:X-Plan /24 /48")
	traefik.saw(t, "after a reload")
	caddy.opens(t, "other", "client_ip header:X-Plan /24 /64")
	caddy.saw(t, "the first, of what the second has changed", "other{24 64} {24 48}")

	keys := server.MustDo(t, "KEYS", "*").Strings()
	if len(keys) != 4 {
		t.Errorf("the marks are %q", keys)
	}
	for _, key := range keys {
		if ttl := server.MustDo(t, "PTTL", key).Int; ttl <= 0 || ttl > 1_800_000 {
			t.Errorf("%s lasts %d ms", key, ttl)
		}
	}
}

func TestAReleasedRuleIsNoLongerCompared(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithUser(user, userPassword, "~compared:* "+acl))
	c := newComparing(t, server.Addr(), false)
	c.opens(t, "api", "client_ip")
	c.opens(t, "api", "client_ip /0 /64") // a reload: the new one is opened before the old one goes
	c.store.Release(c.rules[0])
	c.saw(t, "after a reload")
	if keys := server.MustDo(t, "KEYS", "*").Strings(); len(keys) != 1 || server.MustDo(t, "GET", keys[0]).Text[:6] != "32 64 " {
		t.Errorf("the marks are %q", keys)
	}
	server.MustDo(t, "FLUSHALL")
	c.store.Release(c.rules[1])
	c.saw(t, "nothing is open")
	if keys := server.MustDo(t, "KEYS", "*").Strings(); len(keys) != 0 {
		t.Errorf("the marks are %q", keys)
	}
}
