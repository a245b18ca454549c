package traefik

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core/excepted"
	"github.com/proxyweir/weir/core/exception"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/regions"
	"github.com/proxyweir/weir/redis/resp"
	"github.com/proxyweir/weir/traefik/config"
)

// sharedRedis is a store in Redis, for all middlewares with the same settings.
type sharedRedis struct {
	store       *redis.Store
	name        string // of the server, or of all of them
	fingerprint string
	uses        int         // engines
	silent      atomic.Bool // it did not answer at first, and has not answered since
	ended       atomic.Bool // no engine has it any more

	courier    *regions.Courier // nil: there are no regions
	divides    *regions.Store   // nil: no region lends units to others
	exceptions *excepted.Table  // what people have decided for single keys, by Caddy's admin API
}

// newSharedRedis returns a new store, which names the middleware in its log lines.
func newSharedRedis(s *config.RedisSettings, middleware string, h *host) (*sharedRedis, error) {
	client, err := resp.New(s.Client)
	if err != nil {
		return nil, config.InWords(words.Of(err))
	}
	shared := &sharedRedis{name: client.Name(), fingerprint: s.Fingerprint, uses: 1}
	c := s.Store
	c.Client = client
	c.Lines = true
	c.Clock = h.near
	if h.near != nil {
		c.WallClock = h.wall
	}
	c.Changed = func(server string, err error) { shared.report(middleware, server, err) }
	c.NotCarried = func(server string, err error) {
		warn(middleware, "the algorithm or period of a rule has changed, and Redis at "+server+" could not be searched for the keys that are blocked under it: "+
			"their blocks and penalties end with the former limit; allow +scan: "+err.Error())
	}
	c.Differs = func(namespace, rule string, here, there match.Prefixes) {
		shared.warnOfPrefixes(middleware, namespace, rule, here, there)
	}
	shared.store, err = redis.NewStore(c)
	if err != nil {
		_ = client.Close() // nothing was sent yet
		return nil, config.InWords(words.Of(err))
	}
	if s.Regions.Used() {
		if err = shared.joinRegions(s, c, middleware); err != nil {
			_ = shared.store.Close()
			return nil, err
		}
	}
	shared.exceptions = excepted.NewTable(redis.Exceptions(shared.store), func() int64 { return time.Now().UnixMicro() }, func(err error) {
		if (errors.Is(err, redis.ErrReply) || errors.Is(err, exception.ErrDamaged)) && !shared.ended.Load() { // of a Redis that does not answer, report tells
			warn(middleware, "what people have decided for single keys cannot be read from Redis at "+shared.name+"; what is known of it holds: "+err.Error())
		}
	})
	go shared.greet(middleware)
	go shared.obey()
	return shared, nil
}

// obey keeps up with the exceptions in Redis.
func (s *sharedRedis) obey() {
	for !s.ended.Load() {
		s.obeyOnce()
		time.Sleep(excepted.Every)
	}
}

func (s *sharedRedis) obeyOnce() {
	defer contain()
	s.exceptions.Tick()
}

// joinRegions has the store's region hear from the others. c is the store's configuration.
func (s *sharedRedis) joinRegions(settings *config.RedisSettings, c redis.Config, middleware string) error {
	own := regions.Config{Settings: settings.Regions, Store: s.store, Clock: c.Clock}
	say := func(text string) {
		if !s.ended.Load() {
			warn(middleware, text)
		}
	}
	own.Changed = func(region string, why error) {
		if why != nil {
			say("region " + region + " cannot be heard; until it can, this region keeps to its share of limits with regions: " + why.Error())
		} else {
			say("region " + region + " is heard again")
		}
	}
	own.Failed = func(what string, err error) {
		say("what regions tell each other cannot be carried: " + what + ": " + err.Error())
	}
	own.Differs = func(what string) {
		if what != "" {
			say("the settings of regions contradict each other; until they agree, rules with regions lease keep to the share: " + what)
		} else {
			say("the settings of regions agree again")
		}
	}
	names := settings.Regions.Names()
	for i, one := range settings.Regions.Clients(settings.Client) {
		name := names[i]
		client, err := resp.New(one)
		if err != nil {
			return config.InWords(words.Of(err))
		}
		peer := c
		peer.Client = client
		peer.Changed = func(_ string, err error) { s.courier.Fails(name, err) }
		peer.Differs = nil
		peer.NotCarried = nil
		store, err := redis.NewStore(peer)
		if err != nil {
			return config.InWords(words.Of(err))
		}
		own.Peers = append(own.Peers, store)
	}
	s.courier = regions.New(own)
	s.divides = s.courier.Divides()
	s.courier.Start()
	return nil
}

func (s *sharedRedis) close() {
	s.ended.Store(true)
	if s.courier != nil {
		s.courier.Close()
	}
	_ = s.store.Close() // the error would be that of closing a socket
}

// greet finds out whether a new store's Redis answers. If it does not, greet logs that, and later that it answers.
func (s *sharedRedis) greet(middleware string) {
	defer contain()
	err := s.store.Check(250 * time.Millisecond)
	if err == nil || s.ended.Load() {
		return
	}
	s.silent.Store(true)
	warn(middleware, "Redis at "+s.name+" cannot be used yet; until it can, rate limits go by the rules' onError: "+err.Error())
	for s.silent.Load() && !s.ended.Load() {
		if s.store.Check(time.Second) == nil && s.silent.Load() {
			s.report(middleware, s.name, nil)
			return
		}
		time.Sleep(time.Second)
	}
}

// report writes to the log when a server's circuit breaker opens, and when it closes.
func (s *sharedRedis) report(middleware, server string, err error) {
	if s.ended.Load() {
		return
	}
	s.silent.Store(false)
	if err != nil {
		warn(middleware, "Redis at "+server+" does not answer; until it does, rate limits go by the rules' onError: "+err.Error())
		return
	}
	warn(middleware, "Redis at "+server+" answers again")
}

// warnOfPrefixes warns that another proxy masks the addresses in a rule's key differently, so that the two do not share its counters.
func (s *sharedRedis) warnOfPrefixes(middleware, namespace, rule string, here, there match.Prefixes) {
	if s.ended.Load() {
		return
	}
	warn(middleware, fmt.Sprintf("rule %q in namespace %q: another proxy that shares it by Redis takes other networks for one client, so each of them counts apart and lets the whole limit through: "+
		"ipv4Prefix %d and ipv6Prefix %d here, %d and %d there; write the same on both (32 and 128 leave addresses whole)", rule, namespace, here.IPv4, here.IPv6, there.IPv4, there.IPv6))
}
