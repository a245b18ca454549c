package ratelimit_test

import (
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// A zone that two proxies share in Redis has two counters if they mask addresses with different prefixes. Nothing else would show
// that.
func TestProxiesThatMaskAddressesOtherwiseAreWarnedOf(t *testing.T) {
	server := redistest.Start(t)
	client, err := goredis.New(goredis.Config{Addresses: []string{server.Addr()}, Timeout: patience})
	must.Succeed(t, err)
	other, err := redis.NewStore(redis.Config{Client: client, Differs: func(_, _ string, _, _ match.Prefixes) {}})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = other.Close() })
	limit, err := rate.NewLimit(rate.LimitConfig{Requests: 100, Period: time.Hour})
	must.Succeed(t, err)
	rule, err := core.NewRule(core.RuleConfig{Namespace: "fleet", Name: "api", KeySpec: "client_ip /0 /64", Limit: limit}) // as the plugin has it
	must.Succeed(t, err)
	must.Succeed(t, other.Open(rule))
	other.Compare()

	site := func(lines string) string {
		return "rate_limit {\nnamespace fleet\nzone api {\nkey {client_ip}\nlimit 3/1h\n" + lines + "\n}\n" + storeAt(server.Addr(), patiently) + "\n}\nrespond ok"
	}
	s := startSite(t, site(""))
	s.admit(2, "/")
	s.reload(site("ipv4_prefix 32\nipv6_prefix 128")) // addresses stay whole, as by default
	s.admit(1, "/")
	s.reject("/")
	eventually(t, "a warning", func() bool { return len(s.logs(saysOtherNetworks)) > 0 })
	w := s.logs(saysOtherNetworks)[0]
	if w["level"] != "warn" || w["namespace"] != "fleet" || w["zone"] != "api" ||
		w["ipv4_prefix"] != 32.0 || w["their_ipv4_prefix"] != 32.0 || w["ipv6_prefix"] != 128.0 || w["their_ipv6_prefix"] != 64.0 {
		t.Errorf("the warning is %v", w)
	}
}
