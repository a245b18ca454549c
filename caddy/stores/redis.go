package stores

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	client "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/excepted"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/regions"
)

func init() {
	caddy.RegisterModule(RedisStore{})
}

// RedisStore keeps counters in Redis, so that a limit applies to all Caddys that share it. All handlers with the same settings
// share one client, which survives reloads.
//
// While Redis is unreachable, each zone's `on_error` decides; Caddy still starts, validates and reloads.
//
// All settings may have global placeholders such as `{env.REDIS_PASSWORD}` or `{file./run/secrets/redis}`.
type RedisStore struct {
	// The addresses of Redis: `host:port` (the default port is 6379), or the path of a Unix socket. Several are the Sentinels of
	// `master_name`, or nodes of a `cluster`. A single URL is accepted too: `redis://user:password@host:port/database`, `rediss://`
	// for TLS, `unix://path`, or `redis-sentinel://host:port/database?master_name=name&addr=host:port`.
	Addresses []string `json:"addresses,omitempty"`

	// The name of the master that the Sentinels at the addresses monitor.
	MasterName string `json:"master_name,omitempty"`

	// Whether the addresses are nodes of a Redis Cluster.
	Cluster bool `json:"cluster,omitempty"`

	// The ACL user. The default is Redis's default user.
	Username string `json:"username,omitempty"`

	// The password.
	Password string `json:"password,omitempty"`

	// The user and password for the Sentinels, if they require any.
	SentinelUsername string `json:"sentinel_username,omitempty"`
	SentinelPassword string `json:"sentinel_password,omitempty"`

	// The number of the database. The default is 0, the only one in a Cluster.
	Database int `json:"database,omitempty"`

	// Connects over TLS. An empty object is enough if the system trusts the server's CA.
	TLS *ClientTLS `json:"tls,omitempty"`

	// Connections to each server. The default is 2: requests that wait at the same time share a round trip.
	PoolSize int `json:"pool_size,omitempty"`

	// The longest that a request waits for a decision. The default is 50ms.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// The longest that a call of `consistency lease` or `eventual` may take, or any that no request waits for. The default is 2s, or the
	// timeout if that is longer.
	BackgroundTimeout caddy.Duration `json:"background_timeout,omitempty"`

	// How long connecting may take, in the background. The default is 1s.
	DialTimeout caddy.Duration `json:"dial_timeout,omitempty"`

	// After how long without a reply a connection is closed, in the background. The default is 500ms, or the timeout if that is
	// longer.
	ReadTimeout caddy.Duration `json:"read_timeout,omitempty"`

	// The prefix of the keys in Redis. The default is `weir:`. Caddys with the same prefix on one Redis share counters.
	Prefix string `json:"prefix,omitempty"`

	// Makes the clients' keys in Redis an HMAC with this secret, so that someone who reads Redis cannot find addresses by trying
	// all. All Caddys must have the same secret.
	KeySecret string `json:"key_secret,omitempty"`

	// Keeps the clients' keys in Redis readable, rather than hashed.
	PlainKeys bool `json:"plain_keys,omitempty"`

	// How many Caddys share the Redis. While it is unreachable, each applies its part of a limit, for `on_error local`. The default
	// is 1: each applies the whole limit.
	Nodes int `json:"nodes,omitempty"`

	// The name of the region that this Redis is for, such as `eu`.
	Region string `json:"region,omitempty"`

	// The addresses of the other regions' Redis, by the names of the regions. Where an address says no more, all other settings are those
	// of this store.
	Peers map[string]string `json:"peers,omitempty"`

	// The part of a limit that this region keeps to while it does not hear from others: above 0 and at most 1. Those of all regions should
	// be 1 together. The default is an equal part for each.
	Share float64 `json:"share,omitempty"`

	// The region whose Redis lends units of limits with `regions lease`: this one or a peer, the same in all regions. It needs a `share`, which is then
	// the part of such limits that each region always keeps to by itself, also the same in all regions.
	Home string `json:"home,omitempty"`

	shared   *sharedRedis
	resolved *redisSettings
}

// ClientTLS has the settings of TLS connections to a server: Redis, or an advisor.
type ClientTLS struct {
	// A file with the CA's certificates in PEM. The default is the system's.
	CA string `json:"ca,omitempty"`

	// Files with the client's certificate and its key in PEM, if the server requires one.
	ClientCertificate string `json:"client_certificate,omitempty"`
	ClientKey         string `json:"client_key,omitempty"`

	// The name that the server's certificate must be for. The default is the address's host.
	ServerName string `json:"server_name,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (RedisStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.rate_limit.stores.redis",
		New: func() caddy.Module { return new(RedisStore) },
	}
}

const maxNodes = 100_000

// Provision acquires the client for these settings.
func (s *RedisStore) Provision(ctx caddy.Context) error {
	if s.Nodes < 0 || s.Nodes > maxNodes {
		return fmt.Errorf("nodes %d: must be from 1 to %d", s.Nodes, maxNodes)
	}
	settings, err := s.Resolve()
	if err != nil {
		return err
	}
	shared, err := acquireRedis(settings)
	if err != nil {
		return err
	}
	s.shared, s.resolved = shared, settings
	logger := ctx.Logger()
	shared.started.Do(func() {
		if s.Nodes == 0 {
			logger.Warn("nodes is not set: if Redis cannot be reached, each node lets the whole limit through",
				zap.String("server", shared.name))
		}
		if err := shared.store.Check(250 * time.Millisecond); err != nil {
			shared.silent.Store(true)
			logger.Warn("Redis cannot be used yet; until it can, rate limits go by the zones' on_error",
				zap.String("server", shared.name), zap.Error(err))
			go shared.awaitAnswer()
			return
		}
		shared.exceptions.Tick()
	})
	return nil
}

// Store implements StoreModule.
func (s *RedisStore) Store() core.Store {
	if s.shared.divides != nil {
		return s.shared.divides
	}
	return s.shared.store
}

// Fleet implements FleetStoreModule.
func (s *RedisStore) Fleet() int { return s.Nodes }

// Cleanup releases the client.
func (s *RedisStore) Cleanup() error {
	if s.shared == nil {
		return nil
	}
	s.shared = nil
	_, err := RedisStores.Delete(s.resolved.Key)
	return err
}

// redisSettings are the settings of a RedisStore with the values of placeholders, and the key that equal settings share.
type redisSettings struct {
	Client goredis.Config
	Store  redis.Config
	Key    string

	Regions regions.Settings
}

// Resolve inserts the values of placeholders, and reads the files of TLS. The key is a hash, since the settings have secrets.
func (s *RedisStore) Resolve() (*redisSettings, error) {
	resolved := *s
	resolved.shared, resolved.resolved, resolved.Nodes = nil, nil, 0
	repl := caddy.NewReplacer()
	if err := syntax.ResolveTexts(repl, &resolved); err != nil {
		return nil, err
	}
	resolved.Addresses = nil
	for _, addr := range s.Addresses {
		if err := syntax.ResolvePlaceholders(repl, "address", &addr); err != nil {
			return nil, err
		}
		resolved.Addresses = append(resolved.Addresses, addr)
	}
	resolved.Peers = make(map[string]string)
	for name, address := range s.Peers {
		if err := syntax.ResolvePlaceholders(repl, "peers", &address); err != nil {
			return nil, err
		}
		resolved.Peers[name] = address
	}
	settings := &redisSettings{}
	settings.Client, settings.Store = resolved.configs()
	settings.Regions = resolved.regions()
	if err := settings.Regions.Check(settings.Client); err != nil {
		return nil, err
	}
	digest := sha256.New()
	if s.TLS != nil {
		t := *s.TLS
		config, files, err := t.Load(repl)
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		settings.Client.TLS = config
		resolved.TLS = &t
		digest.Write(files) // a renewed certificate makes the settings different
	}
	text, err := json.Marshal(resolved)
	if err != nil {
		return nil, err
	}
	digest.Write(text)
	settings.Key = string(digest.Sum(nil))
	return settings, nil
}

// regions returns the settings of the store's regions.
func (s *RedisStore) regions() regions.Settings {
	return regions.Settings{Region: s.Region, Peers: s.Peers, Share: s.Share, Home: s.Home}
}

// configs returns the configurations of the client and the store, without TLS.
func (s *RedisStore) configs() (goredis.Config, redis.Config) {
	return goredis.Config{
			Addresses:        s.Addresses,
			MasterName:       s.MasterName,
			Cluster:          s.Cluster,
			Username:         s.Username,
			Password:         s.Password,
			Database:         s.Database,
			SentinelUsername: s.SentinelUsername,
			SentinelPassword: s.SentinelPassword,
			PoolSize:         s.PoolSize,
			Timeout:          time.Duration(s.Timeout),
			Background:       time.Duration(s.BackgroundTimeout),
			DialTimeout:      time.Duration(s.DialTimeout),
			ReadTimeout:      time.Duration(s.ReadTimeout),
		}, redis.Config{
			Prefix:    s.Prefix,
			KeySecret: s.KeySecret,
			PlainKeys: s.PlainKeys,
			Region:    s.Region,
		}
}

// checkAsWritten says what is wrong with the settings, as far as that is known before placeholders have values.
func (s *RedisStore) checkAsWritten() error {
	clientConfig, storeConfig := s.configs()
	for _, addr := range s.Addresses {
		if strings.Contains(addr, "{") {
			return nil
		}
	}
	if err := clientConfig.Check(); err != nil {
		return err
	}
	for _, addr := range s.Peers {
		if strings.Contains(addr, "{") {
			return nil
		}
	}
	own := s.regions()
	if err := own.Check(clientConfig); err != nil {
		return err
	}
	if strings.Contains(s.Prefix, "{") {
		return nil
	}
	return storeConfig.Check()
}

// Load reads the files. It also returns their contents.
func (t *ClientTLS) Load(repl *caddy.Replacer) (*tls.Config, []byte, error) {
	if err := syntax.ResolveTexts(repl, t); err != nil {
		return nil, nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	var files []byte
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, nil, fmt.Errorf("ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, nil, fmt.Errorf("ca %q: has no certificate in PEM", t.CA)
		}
		files = append(files, pem...)
	}
	if (t.ClientCertificate == "") != (t.ClientKey == "") {
		return nil, nil, errors.New("client_certificate and client_key: need each other")
	}
	if t.ClientCertificate != "" {
		certificate, err := tls.LoadX509KeyPair(t.ClientCertificate, t.ClientKey)
		if err != nil {
			return nil, nil, fmt.Errorf("client_certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{certificate}
		for _, der := range certificate.Certificate {
			files = append(files, der...)
		}
	}
	return config, files, nil
}

// RedisStores has the stores of all configurations by their settings, so that connections and remembered answers survive a reload.
var RedisStores = caddy.NewUsagePool()

// sharedRedis is a store that all handlers with the same settings share.
type sharedRedis struct {
	store   *redis.Store
	name    string
	started sync.Once   // guards what is logged only once for a store
	silent  atomic.Bool // it did not answer when it was made, and has not answered since
	ended   atomic.Bool // no configuration uses it any more
	trouble *troubleLog

	exceptions *excepted.Table
	courier    *regions.Courier // nil: there are no regions
	divides    *regions.Store   // nil: no region lends units to others
}

// Lingering is how long a store still works after Caddy has cleaned up its last configuration. Caddy does that after it has told
// the servers to stop, and does not wait for requests that are under way.
const Lingering = 2 * time.Second

func acquireRedis(settings *redisSettings) (*sharedRedis, error) {
	quietGoRedis()
	value, _, err := RedisStores.LoadOrNew(settings.Key, func() (caddy.Destructor, error) {
		c, err := goredis.New(settings.Client)
		if err != nil {
			return nil, err
		}
		shared := &sharedRedis{name: c.Name()}
		shared.trouble = newTroubleLog(shared.name)
		config := settings.Store
		config.Client = c
		config.Changed = shared.logAvailability
		config.Differs = shared.warnOfPrefixes
		config.NotCarried = shared.warnOfBlocks
		if shared.store, err = redis.NewStore(config); err != nil {
			_ = c.Close() // nothing has been sent yet
			return nil, err
		}
		if settings.Regions.Used() {
			if err := shared.joinRegions(settings, config); err != nil {
				_ = shared.store.Close()
				return nil, err
			}
		}
		Leases.add(shared.store)
		shared.exceptions = exceptionsOf(shared.store, shared.name)
		go shared.obey()
		return shared, nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*sharedRedis), nil
}

// awaitAnswer looks for the first answer of a store that did not answer when it was made. It stops when the breakers take over the
// log. A Cluster that was not found has no breakers.
func (s *sharedRedis) awaitAnswer() {
	for s.silent.Load() && !s.ended.Load() {
		if s.store.Check(time.Second) == nil && s.silent.Load() {
			s.logAvailability(s.name, nil)
			return
		}
		time.Sleep(time.Second)
	}
}

// obey keeps up with the exceptions in Redis.
func (s *sharedRedis) obey() {
	for !s.ended.Load() {
		time.Sleep(excepted.Every)
		s.exceptions.Tick()
	}
}

// joinRegions has the store's region hear from the others. config is that of the store.
func (s *sharedRedis) joinRegions(settings *redisSettings, config redis.Config) error {
	c := regions.Config{Settings: settings.Regions, Store: s.store, Changed: s.logRegion, Failed: s.logCourier, Differs: s.logDifferences}
	names := settings.Regions.Names()
	for i, one := range settings.Regions.Clients(settings.Client) {
		client, err := goredis.New(one)
		if err != nil {
			return err
		}
		config.Client, config.Differs, config.NotCarried = client, nil, nil
		config.Changed = func(_ string, err error) { s.courier.Fails(names[i], err) }
		peer, err := redis.NewStore(config)
		if err != nil {
			return err
		}
		c.Peers = append(c.Peers, peer)
	}
	s.courier = regions.New(c)
	s.divides = s.courier.Divides()
	for _, peer := range c.Peers {
		Leases.add(peer)
	}
	s.courier.Start()
	return nil
}

// logRegion logs that another region is cut off, or is heard again.
func (s *sharedRedis) logRegion(region string, why error) {
	switch {
	case s.ended.Load():
	case why != nil:
		redisLog().Error("a region cannot be heard; until it can, this region keeps to its share of limits with regions", zap.String("region", region), zap.Error(why))
	default:
		redisLog().Info("a region is heard again", zap.String("region", region))
	}
}

// logDifferences logs that the settings of regions contradict each other, or no longer do.
func (s *sharedRedis) logDifferences(what string) {
	switch {
	case s.ended.Load():
	case what != "":
		redisLog().Error("the settings of regions contradict each other; until they agree, rules with regions lease keep to the share: " + what)
	default:
		redisLog().Info("the settings of regions agree again")
	}
}

// logCourier logs that this node cannot carry what regions tell each other.
func (s *sharedRedis) logCourier(what string, err error) {
	if !s.ended.Load() {
		redisLog().Error("what regions tell each other cannot be carried: "+what, zap.Error(err))
	}
}

// Destruct implements caddy.Destructor.
func (s *sharedRedis) Destruct() error {
	s.ended.Store(true)
	if s.courier != nil {
		for _, peer := range s.courier.Stores() {
			Leases.remove(peer)
		}
		s.courier.Close()
	}
	Leases.remove(s.store)
	time.AfterFunc(Lingering, func() { _ = s.store.Close() }) // at most an error of closing a socket
	return nil
}

// logAvailability logs when a server's breaker opens, and when it closes again.
func (s *sharedRedis) logAvailability(server string, err error) {
	if s.ended.Load() {
		return
	}
	s.silent.Store(false)
	if err != nil {
		redisLog().Error("Redis does not answer; until it does, rate limits go by the zones' on_error",
			zap.String("server", server), zap.Error(err))
		return
	}
	redisLog().Info("Redis answers again", zap.String("server", server))
}

// warnOfPrefixes warns that another proxy masks the addresses in a zone's key with other prefixes, so that the two proxies do not
// share its counters.
func (s *sharedRedis) warnOfPrefixes(namespace, zone string, here, there match.Prefixes) {
	if s.ended.Load() {
		return
	}
	redisLog().Warn("another proxy that shares the zone by Redis takes other networks for one client, so each of them counts apart and lets the whole limit through; "+
		"write the same ipv4_prefix and ipv6_prefix on both (32 and 128 leave addresses whole)",
		zap.String("namespace", namespace), zap.String("zone", zone),
		zap.Int("ipv4_prefix", here.IPv4), zap.Int("ipv6_prefix", here.IPv6),
		zap.Int("their_ipv4_prefix", there.IPv4), zap.Int("their_ipv6_prefix", there.IPv6))
}

// warnOfBlocks warns that keys that are blocked may not stay so, when a zone's algorithm or period has changed.
func (s *sharedRedis) warnOfBlocks(server string, err error) {
	if s.ended.Load() {
		return
	}
	redisLog().Warn("a zone's algorithm or period has changed, and Redis could not be searched for the keys that are blocked in it: their blocks and penalties end "+
		"with the former limit; allow +scan",
		zap.String("server", server), zap.Error(err))
}

// quietGoRedis redirects what the client library writes to standard error to Caddy's log.
var quietGoRedis = sync.OnceFunc(func() { client.SetLogger(clientLogger{}) })

type clientLogger struct{}

// Printf implements go-redis's Logging. It omits the part of an error in which a server repeats an unknown command: for AUTH that
// would be the password.
func (clientLogger) Printf(_ context.Context, format string, v ...any) {
	text, _, _ := strings.Cut(fmt.Sprintf(format, v...), ", with args beginning with")
	redisLog().Debug(text)
}

// Interface guards
var (
	_ FleetStoreModule   = (*RedisStore)(nil)
	_ caddy.Provisioner  = (*RedisStore)(nil)
	_ caddy.CleanerUpper = (*RedisStore)(nil)
	_ caddy.Destructor   = (*sharedRedis)(nil)
)

// UnmarshalJSON reads the store's JSON as strictly as a handler's.
func (s *RedisStore) UnmarshalJSON(data []byte) error {
	type plain RedisStore
	return syntax.UnmarshalStrict(data, (*plain)(s))
}

// UnmarshalJSON reads the settings as strictly as their store's.
func (t *ClientTLS) UnmarshalJSON(data []byte) error {
	type plain ClientTLS
	return syntax.UnmarshalPart("tls", data, (*plain)(t))
}

// leaseBook has the stores of this process that may hold leases, and the counts of those that have ended, so that counters never fall.
type leaseBook struct {
	mu     sync.Mutex
	stores map[*redis.Store]bool
	ended  redis.LeaseStats
}

var Leases = &leaseBook{stores: make(map[*redis.Store]bool)}

func (b *leaseBook) add(s *redis.Store) {
	b.mu.Lock()
	b.stores[s] = true
	b.mu.Unlock()
}

// remove keeps the counts of a store that no configuration uses any more.
func (b *leaseBook) remove(s *redis.Store) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.stores, s)
	last := s.LeaseStats()
	last.Units, last.Held = 0, nil
	b.ended.Add(last)
}

// Stats returns the numbers of all stores together.
func (b *leaseBook) Stats() redis.LeaseStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := b.ended
	for s := range b.stores {
		sum.Add(s.LeaseStats())
	}
	return sum
}
