package stores

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/proxyweir/weir/caddy/syntax"
)

// ParseStore reads store <name> { … } into the JSON of the module.
func ParseStore(d *caddyfile.Dispenser) (json.RawMessage, error) {
	if !d.NextArg() {
		return nil, d.Err("store: takes the name of a store: memory, redis or storage")
	}
	name := d.Val()
	if _, err := caddy.GetModule("http.rate_limit.stores." + name); err != nil {
		return nil, d.Errf("store %q: there is no such store; write memory, redis or storage", name)
	}
	unmarshaler, err := caddyfile.UnmarshalModule(d, "http.rate_limit.stores."+name)
	if err != nil {
		return nil, err
	}
	return caddyconfig.JSONModuleObject(unmarshaler, "store", name, nil), nil
}

// UnmarshalCaddyfile sets up the store from Caddyfile tokens. Syntax:
//
//	memory {
//		max_keys <n>
//	}
func (m *MemoryStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the store's name
	if args := d.RemainingArgs(); len(args) > 0 {
		return d.Errf("store memory: takes a block, not %q", args[0])
	}
	_, err := syntax.ReadBlock(d, "store memory", []syntax.Setting{syntax.NumberTo("max_keys", &m.MaxKeys, 1, MaxMaxKeys)}, nil)
	return err
}

// UnmarshalCaddyfile sets up the store from Caddyfile tokens: redis [<address>...], and a block with the settings that the manual's page on Redis has.
func (s *RedisStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the store's name
	line := d.Token()
	s.Addresses = d.RemainingArgs()
	if _, err := syntax.ReadBlock(d, "store redis", s.Settings(), nil); err != nil {
		return err
	}
	if len(s.Addresses) == 0 {
		return syntax.ErrorAt(line, errors.New("store redis: has no address; write one such as 127.0.0.1:6379"))
	}
	if err := s.checkAsWritten(); err != nil {
		return syntax.ErrorAt(line, fmt.Errorf("store redis: %w", err))
	}
	return nil
}

// Settings returns the lines that the store's block may have.
func (s *RedisStore) Settings() []syntax.Setting {
	return []syntax.Setting{
		{Word: "address", To: s.address},
		{Word: "master_name", To: &s.MasterName},
		{Word: "cluster", To: &s.Cluster},
		{Word: "username", To: &s.Username},
		{Word: "password", To: &s.Password},
		{Word: "sentinel_username", To: &s.SentinelUsername},
		{Word: "sentinel_password", To: &s.SentinelPassword},
		syntax.NumberTo("database", &s.Database, 0, 1_000_000),
		{Word: "tls", To: s.tls},
		syntax.NumberTo("pool_size", &s.PoolSize, 1, 1000),
		syntax.DurationTo("timeout", &s.Timeout, "1ms", "1m"),
		syntax.DurationTo("background_timeout", &s.BackgroundTimeout, "1ms", "1m"),
		syntax.DurationTo("dial_timeout", &s.DialTimeout, "1ms", "1m"),
		syntax.DurationTo("read_timeout", &s.ReadTimeout, "1ms", "1m"),
		{Word: "prefix", To: &s.Prefix},
		{Word: "key_secret", To: &s.KeySecret},
		{Word: "plain_keys", To: &s.PlainKeys},
		syntax.NumberTo("nodes", &s.Nodes, 1, maxNodes),
		{Word: "region", To: &s.Region},
		{Word: "peers", To: s.peers},
		{Word: "share", To: s.share},
		{Word: "home", To: &s.Home},
	}
}

// UnmarshalCaddyfile sets up the store from Caddyfile tokens: a block with settings by their names in JSON.
func (s *StorageStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the store's name
	if args := d.RemainingArgs(); len(args) > 0 {
		return d.Errf("store storage: takes a block, not %q; the storage itself is Caddy's, or that of a line such as storage file_system /shared in the block", args[0])
	}
	settings := append(s.Settings(),
		syntax.NumberTo("max_keys", &s.MaxKeys, 1, MaxMaxKeys),
		syntax.Setting{Word: "storage", To: func(d *caddyfile.Dispenser) error { return ReadStorage(d, "store storage: ", &s.StorageRaw) }})
	_, err := syntax.ReadBlock(d, "store storage", settings, nil)
	return err
}

// ReadStorage reads storage <module...> into the JSON of the module. Its errors begin with where.
func ReadStorage(d *caddyfile.Dispenser, where string, to *json.RawMessage) error {
	if !d.NextArg() {
		return d.Errf("%sstorage: takes the name of one of Caddy's storage modules, such as storage file_system /shared", where)
	}
	name := d.Val()
	if _, err := caddy.GetModule("caddy.storage." + name); err != nil {
		return d.Errf("%sstorage %q: there is no such storage module in this Caddy; file_system is one", where, name)
	}
	module, err := caddyfile.UnmarshalModule(d, "caddy.storage."+name)
	if err != nil {
		return err
	}
	*to = caddyconfig.JSONModuleObject(module, "module", name, nil)
	return nil
}

// address reads the addresses of a line in the block.
func (s *RedisStore) address(d *caddyfile.Dispenser) error {
	if len(s.Addresses) > 0 {
		return d.Err("store redis: duplicate address; keep one")
	}
	if s.Addresses = d.RemainingArgs(); len(s.Addresses) == 0 {
		return d.Err("store redis: address: takes one or more, such as 127.0.0.1:6379")
	}
	return syntax.NoBlock(d, "store redis: ", "address")
}

// peers reads the names of other regions, and the addresses of their Redis.
func (s *RedisStore) peers(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 0 || len(args)%2 != 0 {
		return d.Err("store redis: peers: takes the name of each other region and the address of its Redis, such as us 10.1.0.1:6379 ap 10.2.0.1:6379")
	}
	s.Peers = make(map[string]string)
	for i := 0; i < len(args); i += 2 {
		if _, duplicate := s.Peers[args[i]]; duplicate {
			return d.Errf("store redis: peers: duplicate region %s; keep one", args[i])
		}
		s.Peers[args[i]] = args[i+1]
	}
	return syntax.NoBlock(d, "store redis: ", "peers")
}

// share reads the region's part of limits.
func (s *RedisStore) share(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 1 {
		return d.Errf("store redis: share: takes one value, not %d", len(args))
	}
	share, err := strconv.ParseFloat(args[0], 64)
	if err != nil || !(share > 0 && share <= 1) {
		return d.Errf("store redis: share %q: must be above 0, and at most 1", args[0])
	}
	s.Share = share
	return syntax.NoBlock(d, "store redis: ", "share")
}

// tls reads the tls block.
func (s *RedisStore) tls(d *caddyfile.Dispenser) error {
	s.TLS = new(ClientTLS)
	return s.TLS.Read(d, "store redis: tls")
}

// Read reads the tls block; where names it.
func (t *ClientTLS) Read(d *caddyfile.Dispenser, where string) error {
	if args := d.RemainingArgs(); len(args) > 0 {
		return d.Errf("%s: takes a block, not %q", where, args[0])
	}
	_, err := syntax.ReadBlock(d, where, t.Settings(where+": "), nil)
	return err
}

// Settings returns the lines that the tls block may have.
func (t *ClientTLS) Settings(where string) []syntax.Setting {
	return []syntax.Setting{{Word: "ca", To: &t.CA}, {Word: "client_certificate", To: func(d *caddyfile.Dispenser) error { return t.clientCertificate(d, where) }}, {Word: "server_name", To: &t.ServerName}}
}

// clientCertificate reads the file names of a certificate and its key.
func (t *ClientTLS) clientCertificate(d *caddyfile.Dispenser, where string) error {
	args := d.RemainingArgs()
	if len(args) != 2 {
		return d.Errf("%sclient_certificate: takes the certificate's file and the key's, not %d", where, len(args))
	}
	if args[0] == "" || args[1] == "" {
		return d.Errf("%sclient_certificate: has an empty name; write the certificate's file and the key's", where)
	}
	t.ClientCertificate, t.ClientKey = args[0], args[1]
	return syntax.NoBlock(d, where, "client_certificate")
}

// Interface guards
var (
	_ caddyfile.Unmarshaler = (*MemoryStore)(nil)
	_ caddyfile.Unmarshaler = (*RedisStore)(nil)
	_ caddyfile.Unmarshaler = (*StorageStore)(nil)
)
