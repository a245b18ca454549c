package ratelimit

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/proxyweir/weir/caddy/stores"
)

// TestJSONIsReadStrictly: an error has the zone, the field, its value and what would be accepted.
func TestJSONIsReadStrictly(t *testing.T) {
	zone := func(fields string) string { return `{"rate_limits": {"api": {` + fields + `}}}` }
	for _, c := range []struct{ name, config, want string }{
		{"handler's field with suggestion", `{"jiter": 1}`, `unknown field "jiter" (did you mean jitter?)`},
		{"handler's field without", `{"frobnicate": 1}`, `unknown field "frobnicate"; there are rate_limits, rules_files, rules_interval, domain, descriptors, namespace, store, headers, header_prefix, header_reset, cors, response, message, jitter, sweep_interval, log_key`},
		{"zone's field with suggestion", zone(`"algoritm": "token_bucket"`), `zone "api": unknown field "algoritm" (did you mean algorithm?)`},
		{"zone's field without", zone(`"frobnicate": 1`), `zone "api": unknown field "frobnicate"; there are match, key, requests, period,`},
		{"word of the Caddyfile", zone(`"events": 1`), `zone "api": unknown field "events"; in JSON it is max_events, with window beside it`},
		{"limit of the Caddyfile", zone(`"limit": "100/1m"`), `zone "api": unknown field "limit"; in JSON it is "requests": 100, "period": "1m"`},
		{"override of the Caddyfile", zone(`"override": {"a": "1/1m"}`), `zone "api": unknown field "override"; in JSON it is "overrides": [{"key": ["..."], "limit": "1000/1m"}]`},
		{"window that is no duration", zone(`"max_events": 5, "window": "hour"`), `zone "api": window "hour": must be a duration in quotes, such as "10s", "1m" or "1h"`},
		{"handler's interval that is none", `{"sweep_interval": "soon"}`, `sweep_interval "soon": must be a duration in quotes`},
		{"window that is of another type", zone(`"max_events": 5, "window": true`), `zone "api": window: must be a duration in quotes, such as "10s", "1m" or "1h", not true or false`},
		{"field of distributed", `{"distributed": {"write_intervall": "5s"}}`, `distributed: unknown field "write_intervall" (did you mean write_interval?)`},
		{"distributed that is none", `{"distributed": true}`, "distributed: must be an object, not true or false"},
		{"disable_metrics", `{"disable_metrics": true}`, "disable_metrics is not supported: there are a few series for each zone, and none for a key"},
		{"override's field with suggestion", zone(`"overrides": [{"key": ["a"], "limt": "9/1m"}]`), `zone "api": overrides: unknown field "limt" (did you mean limit?)`},
		{"override's field of a zone", zone(`"overrides": [{"key": ["a"], "burst": 9}]`), `zone "api": overrides: unknown field "burst"; there are key, limit`},
		{"tiers' field of a zone", zone(`"tiers": {"key": "{http.request.uri}"}`), `zone "api": tiers: unknown field "key"; there are source, limits`},
		{"descriptor's field", `{"descriptors": [[{"key": "a", "message": "b"}]]}`, `descriptors: unknown field "message"; there are key, value`},
		{"zone that is null", `{"rate_limits": {"api": null}}`, `zone "api": is null; it needs a limit`},
		{"zone that is no object", `{"rate_limits": {"api": 5}}`, `zone "api": `},
		{"duplicate zone", `{"rate_limits": {"api": {"requests": 1, "period": "1s"}, "api": {"requests": 2, "period": "1s"}}}`, `zone "api": duplicate name; keep one`},
		{"zones in a list", `{"rate_limits": [{}]}`, "rate_limits: must be an object of zones by their names"},
		{"zones that are null", `{"rate_limits": null}`, "rate_limits: must be an object of zones by their names"},
		{"number in quotes", zone(`"requests": "5"`), `zone "api": requests: must be a whole number without quotes, not a text`},
		{"number with a fraction", zone(`"max_events": 1.5`), `zone "api": max_events: must be a whole number without quotes, not 1.5`},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := json.Unmarshal([]byte(c.config), new(Handler))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// Defect found: errors about the app, stores and requests of the admin API were in Go's terms.
func TestJSONOfTheAppAndOfStoresIsReadAsStrictlyAsTheHandlers(t *testing.T) {
	app := func() any { return new(App) }
	store := func() any { return new(stores.RedisStore) }
	memory := func() any { return new(stores.MemoryStore) }
	for _, c := range []struct {
		into         func() any
		config, want string
	}{
		{app, `[]`, "must be an object, not a list"},
		{app, `{"store": "redis"}`, `store "redis": must be an object that has the store's name, such as "store": {"store": "redis", "addresses": ["127.0.0.1:6379"]}`},
		{app, `{"rules_file": ["a"]}`, `unknown field "rules_file" (did you mean rules_files?)`},
		{app, `{"rules_files": "a"}`, `rules_files: must be a list of texts in quotes, such as ["/etc/caddy/limits.yaml"], not a text`},
		{app, `{"rules_interval": "50"}`, `rules_interval "50": must be a duration in quotes`},
		{app, `{"rules_interval": true}`, `rules_interval: must be a duration in quotes`},
		{app, `{"distributed": {}}`, `unknown field "distributed"; there are store, rules_files,`},
		{func() any { return new(stores.StorageStore) }, `{"read_intervall": "5s"}`, `unknown field "read_intervall" (did you mean read_interval?)`},
		{store, `{"address": "a:1"}`, `unknown field "address" (did you mean addresses?)`},
		{store, `{"addresses": "a:1"}`, `addresses: must be a list of texts in quotes, such as ["127.0.0.1:6379"], not a text`},
		{store, `{"timeout": "50"}`, `timeout "50": must be a duration in quotes`},
		{store, `{"pool_size": "5"}`, "pool_size: must be a whole number without quotes, not a text"},
		{store, `{"tls": {"ca_files": "x"}}`, `tls: unknown field "ca_files"`},
		{memory, `{"max_keys": "5"}`, "max_keys: must be a whole number without quotes, not a text"},
		{memory, `{"max_key": 5}`, `unknown field "max_key" (did you mean max_keys?)`},
		{func() any { return new(Handler) }, `{"store": "redis"}`, `store "redis": must be an object that has the store's name`},
		{func() any { return new(Handler) }, `{"response": 5}`, `response: must be a text in quotes, such as "auto", not a number`},
		{func() any { return new(Handler) }, `{"rate_limits": {"api": {"requests": 5, "period": 60}}}`, `zone "api": period: must be a text in quotes, such as "1m", not a number`},
	} {
		err := json.Unmarshal([]byte(c.config), c.into())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.config, err, c.want)
		}
	}
}

// TestEveryFieldNameIsKnownByItself compares the list of suggestions with the structs.
func TestEveryFieldNameIsKnownByItself(t *testing.T) {
	const config = `{
		"rate_limits": {"api": {
			"match": [{"method": ["POST"]}], "key": "{http.request.host}", "requests": 100, "period": "1m", "max_events": 5,
			"window": "1m", "time_zone": "UTC", "algorithm": "token_bucket", "burst": 20, "refill": "interval", "cost": "2",
			"max_delay": "1s", "max_waiting": 9, "max_waiting_per_key": 3, "count": ["401", "5xx"], "count_match": [{"path": ["/login"]}], "penalty": ["2m", "1h"], "concurrency": 5,
			"candidate": {"limit": "9/day", "algorithm": "token_bucket", "burst": 5, "refill": "interval", "time_zone": "UTC"},
			"ipv4_prefix": 24, "ipv6_prefix": 64, "enforcement": "hard", "on_limit": "reject",
			"on_error": "local", "on_missing_key": "share", "count_rejected": true
		}},
		"namespace": "blue", "store": {"store": "memory"}, "headers": ["ietf"], "response": "auto", "message": "no",
		"jitter": 0.5, "sweep_interval": 60000000000, "log_key": true
	}`
	h := new(Handler)
	if err := json.Unmarshal([]byte(config), h); err != nil {
		t.Fatal(err)
	}
	raw := caddyconfig.JSON(h, nil)
	again := strings.NewReplacer(`"1m"`, "60000000000", `"1s"`, "1000000000").Replace(config)
	again = strings.Replace(again, `"period": 60000000000`, `"period": "1m"`, 1)
	if !sameJSON(t, []byte(again), raw) {
		t.Errorf("%s became %s", config, raw)
	}
}

// FuzzJSON: any JSON is refused, or is a configuration that survives being written and read.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"rate_limits": {"api": {"key": "{http.vars.client_ip}", "requests": 100, "period": "1m"}}, "jitter": 0.2}`))
	f.Add([]byte(`{"rate_limits": {"api": {"match": [{"method": ["GET"]}], "key": "static", "max_events": 10, "window": "1m"}}}`))
	f.Add([]byte(`{"rate_limits": {"a": null, "a": {}}, "store": {"store": "memory"}}`))
	f.Add([]byte(`{"rate_limits": {"a": {"algorithm": "leaky_bucket", "burst": 9, "max_delay": -1, "period": "day", "time_zone": "x"}}}`))
	f.Add([]byte(`{"rate_limits": {"a": {"requests": 9, "period": "1m", "enforcement": "soft 20% 30s", "penalty": ["1m"], "concurrency": 5, "candidate": {"limit": "8/1m"}}}}`))
	f.Add([]byte(`{"rate_limits": {"a": {"requests": 9, "period": "day", "on_limit": "delay", "max_waiting": 5}, "b": {"requests": 9, "period": "1m", "count": ["401", "5xx"]}}}`))
	f.Add([]byte(`{"rate_limits": {"a": {"concurrency": 5}, "b": {"concurrency": -5, "candidate": null, "count": null}}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := new(Handler)
		if err := json.Unmarshal(data, h); err != nil {
			return
		}
		if err := h.check(); err != nil {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(h.RateLimits)) {
			zone, err := h.RateLimits[name].Compile(name, h.Namespace)
			if err != nil {
				if !strings.HasPrefix(err.Error(), "zone") {
					t.Errorf("does not say which zone: %v", err)
				}
				return
			}
			if zone.Rule == nil || zone.Rule.Limits == nil || zone.Rule.Name != name {
				t.Errorf("zone %q is accepted and not ready", name)
			}
		}
		raw := caddyconfig.JSON(h, nil)
		again := new(Handler)
		if err := json.Unmarshal(raw, again); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if second := caddyconfig.JSON(again, nil); !sameJSON(t, raw, second) {
			t.Errorf("%s became %s", raw, second)
		}
	})
}
