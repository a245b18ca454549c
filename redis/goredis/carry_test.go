package goredis_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/transition"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// limitsOf returns limits with one rule.
func limitsOf(t *testing.T, c core.RuleConfig) *core.Limits {
	t.Helper()
	limits, err := core.NewLimits(c, core.MoreLimits{})
	must.Succeed(t, err)
	return limits
}

// opened returns limits with one rule, which is open.
func opened(t *testing.T, l *core.Limiter, c core.RuleConfig) *core.Limits {
	t.Helper()
	limits := limitsOf(t, c)
	must.Succeed(t, l.Open(limits.Own()))
	return limits
}

// Keys are found by their names, whatever else is in Redis and however names are written.
func TestBlockedKeysAreFoundAmongOthers(t *testing.T) {
	server := redistest.Start(t)
	for name, c := range map[string]redis.Config{
		"plain":   {Prefix: "p[a]*?\\:", PlainKeys: true},
		"secret":  {Prefix: "secret:", KeySecret: "s3cret"},
		"default": {},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, c, goredis.Config{Addresses: []string{server.Addr()}})
			limiter := core.NewLimiter(store)
			config := rule(t, "x", rate.TokenBucket, 5)
			config.KeySpec, config.OverflowPolicy = "client_ip", core.OverflowPolicy{Penalties: []time.Duration{time.Hour}}
			limits := opened(t, limiter, config)
			for i := range 3000 {
				server.MustDo(t, "SET", "other{"+strconv.Itoa(i)+"}:x", "12345678901234")
			}
			for i := range 50 {
				must.Succeed(t, limiter.Block(limits.Own(), "client "+strconv.Itoa(i), 3600_000_000))
			}
			config.Limit = rule(t, "x", rate.SlidingWindowLog, 5).Limit
			next := limitsOf(t, config)
			must.Succeed(t, transition.NewActive(limits).Replace(limiter, next))
			within(t, "all keys are blocked", func() bool {
				blocked := 0
				for i := range 50 {
					checks := []core.Check{{Rule: next.Own(), Key: "client " + strconv.Itoa(i), Cost: 1}}
					must.Succeed(t, store.Decide(checks, true))
					if !checks[0].Decision.Allowed {
						blocked++
					}
				}
				return blocked == 50
			})
			checks := []core.Check{{Rule: next.Own(), Key: "client 50", Cost: 1}}
			if err := store.Decide(checks, true); err != nil || !checks[0].Decision.Allowed {
				t.Errorf("a client that was not blocked: %+v, %v", checks[0].Decision, err)
			}
		})
	}
}

// A key may have an account under the new rule already, which would expire before the penalty of the previous rule ends.
func TestAPenaltyIsCarriedIntoAnAccountThatWouldExpireEarlier(t *testing.T) {
	server := redistest.Start(t)
	store := newStore(t, redis.Config{PlainKeys: true}, goredis.Config{Addresses: []string{server.Addr()}})
	punish := func(a rate.Algorithm, penalty time.Duration) *core.Rule {
		config := rule(t, "x", a, 1)
		config.OverflowPolicy = core.OverflowPolicy{Penalties: []time.Duration{penalty}}
		r, err := core.NewRule(config)
		must.Succeed(t, err)
		must.Succeed(t, store.Open(r))
		for range 2 {
			must.Succeed(t, store.Decide([]core.Check{{Rule: r, Key: "mallory", Cost: 1}}, false))
		}
		return r
	}
	previous, next := punish(rate.TokenBucket, time.Hour), punish(rate.FixedWindow, time.Minute)
	done := make(chan bool)
	store.Carry(previous, next, func() { close(done) })
	<-done
	accounts := server.MustDo(t, "KEYS", "*:a").Strings()
	for _, account := range accounts {
		if left := server.MustDo(t, "PTTL", account).Int; left < 59*60_000 {
			t.Errorf("%s expires in %d ms, and the penalty is an hour", account, left)
		}
	}
	must.Equal(t, len(accounts), 2, "accounts %q, want one under each rule", accounts)
}

// within waits until something is so.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not so that %s", what)
		}
	}
}

// Without the command SCAN decisions are as with it, and the store says what follows.
func TestWithoutScanTheFormerLimitHoldsAndTheStoreSaysSo(t *testing.T) {
	server := redistest.Start(t, redistest.WithUser(user, userPassword, "~weir:* "+acl))
	said := make(chan string, 10)
	store := newStore(t, redis.Config{Prefix: "weir:", NotCarried: func(server string, err error) { said <- err.Error() }},
		goredis.Config{Addresses: []string{server.Addr()}, Username: user, Password: userPassword})
	limiter := core.NewLimiter(store)
	config := rule(t, "x", rate.TokenBucket, 1)
	config.KeySpec = "client_ip"
	active := transition.NewActive(opened(t, limiter, config))
	ask := func() bool {
		r := active.Of("", "alice")
		checks := []core.Check{{Rule: r, Key: "alice", Cost: 1, Previous: active.Previous("", "alice", r)}}
		var v core.Verdict
		must.Succeed(t, limiter.Decide(checks, false, &v))
		return v.Outcome == core.Allow
	}
	if !ask() || ask() {
		t.Fatal("the first limit is not 1")
	}
	config.Limit = rule(t, "x", rate.FixedWindow, 5).Limit
	must.Succeed(t, active.Replace(limiter, limitsOf(t, config)))
	if ask() {
		t.Error("a client has gained by the switch")
	}
	if text := <-said; !strings.Contains(strings.ToLower(text), "scan") && !strings.Contains(text, "can't run this command") {
		t.Errorf("the store says %q", text)
	}
	server.MustDo(t, append([]string{"ACL", "SETUSER", user}, strings.Fields(aclSwitch)...)...)
	must.Succeed(t, limiter.Block(active.Limits().Own(), "mallory", 3600_000_000))
	config.Limit = rule(t, "x", rate.SlidingWindowLog, 5).Limit
	next := limitsOf(t, config)
	must.Succeed(t, active.Replace(limiter, next))
	within(t, "the block is found", func() bool {
		checks := []core.Check{{Rule: next.Own(), Key: "mallory", Cost: 1}}
		must.Succeed(t, store.Decide(checks, true))
		return !checks[0].Decision.Allowed
	})
	if len(said) > 0 {
		t.Errorf("with the command: %s", <-said)
	}
}
