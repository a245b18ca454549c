package ratelimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

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
//		store memory {
//			max_keys <n>
//		}
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
		case "zone":
			return nil, d.Err("rate_limit: zones are written in sites; the global option says what they share")
		default:
			return nil, unknownWord(d, "the global option rate_limit", word, []string{"store"})
		}
	}
	if app.StoreRaw == nil {
		return nil, errorAt(line, errors.New("rate_limit: the global option is empty; write a store in it, or take it out"))
	}
	return httpcaddyfile.App{Name: "rate_limit", Value: caddyconfig.JSON(app, nil)}, nil
}

// parseStore reads store <name> { … } into the JSON of the module.
func parseStore(d *caddyfile.Dispenser) (json.RawMessage, error) {
	if !d.NextArg() {
		return nil, d.Err("store: takes the name of a store: memory")
	}
	name := d.Val()
	if _, err := caddy.GetModule("http.rate_limit.stores." + name); err != nil {
		if name == "redis" {
			return nil, d.Err("store redis: is not in this version; take it out, and counters live in the memory of each Caddy")
		}
		return nil, d.Errf("store %q: there is no such store; write memory", name)
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

// Interface guard
var _ caddyfile.Unmarshaler = (*MemoryStore)(nil)
