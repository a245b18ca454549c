package ratelimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

func init() {
	httpcaddyfile.RegisterGlobalOption("rate_limit", parseGlobalOption)
}

// parseGlobalOption reads the global option rate_limit. Syntax:
//
//	rate_limit {
//		store memory | redis {
//			...
//		}
//		rules_file     <path or glob...>
//		rules_interval <duration>
//	}
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	d.Next() // the option's name
	if existing != nil {
		return nil, d.Err("rate_limit: the global option is set twice")
	}
	app := &App{}
	if args := d.RemainingArgs(); len(args) > 0 {
		return nil, d.Errf("rate_limit: the global option takes a block, not %q; limits are written in sites", args[0])
	}
	line := d.Token()
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		switch word := d.Val(); word {
		case "store":
			if app.StoreRaw != nil {
				return nil, d.Err("rate_limit: store is set twice")
			}
			raw, err := parseStore(d)
			if err != nil {
				return nil, err
			}
			app.StoreRaw = raw
		case "rules_file":
			if err := rulesFiles(d, &app.RulesFiles); err != nil {
				return nil, err
			}
		case "rules_interval":
			if app.RulesInterval != 0 {
				return nil, d.Err("rate_limit: rules_interval is set twice")
			}
			if err := rulesInterval(d, &app.RulesInterval); err != nil {
				return nil, err
			}
		case "zone":
			return nil, d.Err("rate_limit: zones are written in sites; the global option says what they share")
		default:
			return nil, unknownWord(d, "the global option rate_limit", word, []string{"store", "rules_file", "rules_interval"})
		}
	}
	if app.StoreRaw == nil && len(app.RulesFiles) == 0 && app.RulesInterval == 0 {
		return nil, errorAt(line, errors.New("rate_limit: the global option is empty; write a store or a rules_file in it, or take it out"))
	}
	return httpcaddyfile.App{Name: "rate_limit", Value: caddyconfig.JSON(app, nil)}, nil
}

// parseStore reads store <name> { … } into the JSON of the module.
func parseStore(d *caddyfile.Dispenser) (json.RawMessage, error) {
	if !d.NextArg() {
		return nil, d.Err("store: takes the name of a store: memory or redis")
	}
	name := d.Val()
	if _, err := caddy.GetModule("http.rate_limit.stores." + name); err != nil {
		return nil, d.Errf("store %q: there is no such store; write memory or redis", name)
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
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		if word != "max_keys" {
			return unknownWord(d, "store memory", word, []string{"max_keys"})
		}
		if m.MaxKeys != 0 {
			return d.Err("store memory: max_keys is set twice")
		}
		err := oneArg(d, "store memory: ", func(s string) (err error) {
			if m.MaxKeys, err = strconv.Atoi(s); err != nil || m.MaxKeys < 1 || m.MaxKeys > maxMaxKeys {
				return fmt.Errorf("max_keys %q: must be from 1 to %d", s, maxMaxKeys)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var redisWords = []string{
	"address", "master_name", "cluster", "username", "password", "sentinel_username", "sentinel_password", "database", "tls",
	"pool_size", "timeout", "dial_timeout", "read_timeout", "prefix", "key_secret", "plain_keys", "nodes",
}

// UnmarshalCaddyfile sets up the store from Caddyfile tokens. Syntax:
//
//	redis [<address>...] {
//		address           <host:port | URL>...
//		master_name       <name>
//		cluster
//		username          <name>
//		password          <password>
//		sentinel_username <name>
//		sentinel_password <password>
//		database          <n>
//		tls {
//			ca                 <file>
//			client_certificate <certificate file> <key file>
//			server_name        <name>
//		}
//		pool_size         <n>
//		timeout           <duration>
//		dial_timeout      <duration>
//		read_timeout      <duration>
//		prefix            <text>
//		key_secret        <secret>
//		plain_keys
//		nodes             <n>
//	}
func (s *RedisStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the store's name
	line := d.Token()
	s.Addresses = d.RemainingArgs()
	said := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		if said[word] {
			return d.Errf("store redis: %s is set twice", word)
		}
		said[word] = true
		if err := s.subdirective(d, word); err != nil {
			return err
		}
	}
	if len(s.Addresses) == 0 {
		return errorAt(line, errors.New("store redis: has no address; write one such as 127.0.0.1:6379"))
	}
	if err := s.checkAsWritten(); err != nil {
		return errorAt(line, fmt.Errorf("store redis: %w", err))
	}
	return nil
}

func (s *RedisStore) subdirective(d *caddyfile.Dispenser, word string) error {
	const where = "store redis: "
	text := func(to *string) error {
		return oneArg(d, where, func(value string) error {
			*to = value
			return nil
		})
	}
	number := func(to *int, least, most int) error {
		return oneArg(d, where, func(value string) (err error) {
			if *to, err = strconv.Atoi(value); err != nil || *to < least || *to > most {
				return fmt.Errorf("%s %q: must be from %d to %d", word, value, least, most)
			}
			return nil
		})
	}
	duration := func(to *caddy.Duration) error {
		return oneArg(d, where, func(value string) error {
			v, err := caddy.ParseDuration(value)
			if err != nil || v < time.Millisecond || v > time.Minute {
				return fmt.Errorf("%s %q: must be a duration from 1ms to 1m", word, value)
			}
			*to = caddy.Duration(v)
			return nil
		})
	}
	switch word {
	case "address":
		if len(s.Addresses) > 0 {
			return d.Err("store redis: address is set twice")
		}
		if s.Addresses = d.RemainingArgs(); len(s.Addresses) == 0 {
			return d.Err("store redis: address: takes one or more, such as 127.0.0.1:6379")
		}
		return noBlock(d, where, word)
	case "master_name":
		return text(&s.MasterName)
	case "cluster":
		s.Cluster = true
		return noArg(d, where)
	case "username":
		return text(&s.Username)
	case "password":
		return text(&s.Password)
	case "sentinel_username":
		return text(&s.SentinelUsername)
	case "sentinel_password":
		return text(&s.SentinelPassword)
	case "database":
		return number(&s.Database, 0, 1_000_000)
	case "tls":
		s.TLS = new(RedisTLS)
		return s.TLS.unmarshalCaddyfile(d)
	case "pool_size":
		return number(&s.PoolSize, 1, 1000)
	case "timeout":
		return duration(&s.Timeout)
	case "dial_timeout":
		return duration(&s.DialTimeout)
	case "read_timeout":
		return duration(&s.ReadTimeout)
	case "prefix":
		return text(&s.Prefix)
	case "key_secret":
		return text(&s.KeySecret)
	case "plain_keys":
		s.PlainKeys = true
		return noArg(d, where)
	case "nodes":
		return number(&s.Nodes, 1, maxNodes)
	}
	return unknownWord(d, "store redis", word, redisWords)
}

var redisTLSWords = []string{"ca", "client_certificate", "server_name"}

func (t *RedisTLS) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	const where = "store redis: tls: "
	if args := d.RemainingArgs(); len(args) > 0 {
		return d.Errf("store redis: tls: takes a block, not %q", args[0])
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		switch word {
		case "ca", "server_name":
			to := &t.CA
			if word == "server_name" {
				to = &t.ServerName
			}
			if *to != "" {
				return d.Errf("%s%s is set twice", where, word)
			}
			err := oneArg(d, where, func(value string) error {
				*to = value
				return nil
			})
			if err != nil {
				return err
			}
		case "client_certificate":
			if t.ClientCertificate != "" {
				return d.Errf("%s%s is set twice", where, word)
			}
			args := d.RemainingArgs()
			if len(args) != 2 {
				return d.Errf("%sclient_certificate: takes the certificate's file and the key's, not %d", where, len(args))
			}
			if args[0] == "" || args[1] == "" {
				return d.Errf("%sclient_certificate: has an empty name; write the certificate's file and the key's", where)
			}
			t.ClientCertificate, t.ClientKey = args[0], args[1]
			if err := noBlock(d, where, word); err != nil {
				return err
			}
		default:
			return unknownWord(d, "store redis: tls", word, redisTLSWords)
		}
	}
	return nil
}

// Interface guards
var (
	_ caddyfile.Unmarshaler = (*MemoryStore)(nil)
	_ caddyfile.Unmarshaler = (*RedisStore)(nil)
)
