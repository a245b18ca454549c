package ratelimit

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// configOf returns a configuration of one server whose first routes have these handlers, one each.
func configOf(handlers ...string) string {
	return `{"apps": {"http": {"servers": {"main": ` + serverOf(":8080", handlers...) + `}}}}`
}

func serverOf(listen string, handlers ...string) string {
	routes := make([]string, len(handlers))
	for i, h := range handlers {
		routes[i] = `{"handle": [` + h + `]}`
	}
	return `{"listen": ["` + listen + `"], "automatic_https": {"disable": true}, "routes": [` + strings.Join(routes, ", ") + `]}`
}

// handlerOf returns the JSON of a rate_limit handler with these zones and other fields.
func handlerOf(zones string, more ...string) string {
	return `{"handler": "rate_limit", "rate_limits": {` + zones + `}` + strings.Join(append([]string{""}, more...), ", ") + `}`
}

const (
	apiZone        = `"api": {"requests": 100, "period": "1m"}`
	authentication = `{"handler": "authentication", "providers": {"http_basic": {"accounts": [{"username": "bob", "password": "$2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG"}]}}}`
	userZone       = `"user": {"key": "{http.auth.user.id}", "requests": 100, "period": "1m"}`
)

// TestConfigurationIsRefusedWhenItLoads: `caddy validate` refuses mistakes that only JSON can have, with the zone, the field, the
// value and what would be accepted.
func TestConfigurationIsRefusedWhenItLoads(t *testing.T) {
	zone := func(fields string) string { return configOf(handlerOf(`"api": {` + fields + `}`)) }
	limited := func(fields string) string { return zone(`"requests": 100, "period": "1m", ` + fields) }
	with := func(fields string) string { return configOf(handlerOf(apiZone, fields)) }
	app := func(fields string) string { return `{"apps": {"rate_limit": {` + fields + `}}}` }
	for _, c := range []struct{ name, config, want string }{
		{"no zones", configOf(handlerOf("")), `rate_limit has no zone: write one into rate_limits, such as "api": {"requests": 100, "period": "1m"}, or the names of files with rules into rules_files`},
		{"descriptors without files", configOf(`{"handler": "rate_limit", "descriptors": [[{"key": "a", "value": "b"}]]}`), "descriptors: need rules_files"},
		{"rules_interval without files", with(`"rules_interval": "5s"`), "rules_interval 5s: has no effect without rule files, which rules_files has"},
		{"domain without descriptors", with(`"domain": "d"`), `write how a request becomes one: "descriptors": [[{"key": "<key>", "value": "{http.request.header.X-Key}"}]]`},
		{"status without rules", configOf(`{"handler": "rate_limit_status"}`), `rate_limit_status: names no rule; write those whose quotas clients may read: "rules": ["everyone"]`},
		{"zones left out", configOf(`{"handler": "rate_limit"}`), "rate_limit has no zone"},
		{"zone is null", configOf(handlerOf(`"api": null`)), `zone "api": is null; it needs a limit`},
		{"zone is empty", zone(``), `zone "api": has no limit; write one such as "requests": 100, "period": "1m"`},
		{"zone's name is bad", configOf(handlerOf(`"a b": {"requests": 1, "period": "1s"}`)), `name "a b": must be 1 to 64 of A-Z a-z 0-9 _ . -`},
		{"zone's name is empty", configOf(handlerOf(`"": {"requests": 1, "period": "1s"}`)), `name "": must be 1 to 64`},
		{"unknown field", limited(`"burts": 5`), `zone "api": unknown field "burts" (did you mean burst?)`},
		{"unknown field of the handler", with(`"respons": "auto"`), `unknown field "respons" (did you mean response?)`},
		{"distributed and store", with(`"distributed": {}, "store": {"store": "memory"}`), "distributed and store are mutually exclusive: distributed means a store in Caddy's storage; remove one"},
		{"distributed, read_interval", with(`"distributed": {"read_interval": "1ms"}`), "read_interval 1ms: must be from 10ms to 1h"},
		{"distributed, storage unknown", with(`"distributed": {}, "storage": {"module": "floppy"}`), "storage: "},
		{"distributed with concurrency", configOf(`{"handler": "rate_limit", "distributed": {}, "rate_limits": {"api": {"requests": 1, "period": "1s", "concurrency": 3}}}`), `zone "api": store storage and concurrency are mutually exclusive: every request begins and ends in the store; remove one, or count in another store`},
		{"store storage, max_keys", with(`"store": {"store": "storage", "max_keys": -1}`), "max_keys -1: must be from 1 to 100000000"},

		// caddy-ratelimit panics on a window with no events.
		{"max_events 0", zone(`"max_events": 0, "window": "1m"`), `zone "api": max_events: is missing or 0; a window needs a number from 1 to 100000`},
		{"max_events missing", zone(`"window": "1m"`), `zone "api": max_events: is missing or 0`},
		{"max_events negative", zone(`"max_events": -1, "window": "1m"`), `zone "api": max_events -1: must be from 1 to 100000`},
		{"max_events too large", zone(`"max_events": 100001, "window": "1m"`), `zone "api": max_events 100001: a sliding_window_log keeps a time for each request and takes at most 100000`},
		{"window missing", zone(`"max_events": 5`), `zone "api": max_events 5: has no window beside it; write a duration such as 1m`},
		{"window negative", zone(`"max_events": 5, "window": -1`), `zone "api": window -1ns: must be from 1ms to 366d`},
		{"both dialects", limited(`"max_events": 5, "window": "1m"`), `zone "api": max_events and window are mutually exclusive with a limit: remove one or the other`},

		{"requests missing", zone(`"period": "1m"`), `zone "api": requests 0: must be from 1 to 1000000000`},
		{"requests negative", zone(`"requests": -5, "period": "1m"`), `zone "api": requests -5: must be from 1 to 1000000000`},
		{"period missing", zone(`"requests": 5`), `zone "api": period: is missing; write a duration such as 1m, or day, week or month`},
		{"period zero", zone(`"requests": 5, "period": "0s"`), `zone "api": period "0s": must be a duration from 1ms to 366d`},
		{"period in words", zone(`"requests": 5, "period": "hour"`), `zone "api": period "hour": must be a duration from 1ms to 366d such as 10s, 1m or 7d, or day, week or month (did you mean 1h?)`},
		{"period in a number and a word", zone(`"requests": 5, "period": "15 minutes"`), `or day, week or month (did you mean 15m?)`},
		{"period unknown", zone(`"requests": 5, "period": "year"`), `zone "api": period "year": must be a duration from 1ms to 366d such as 10s, 1m or 7d, or day, week or month`},
		{"period is a whole limit", zone(`"requests": 5, "period": "100/1m"`), `zone "api": period "100/1m": must be a duration`},
		{"max_delay negative", limited(`"algorithm": "leaky_bucket", "max_delay": -1`), `zone "api": max_delay "-1ns": must be a duration from 1`},
		{"max_delay too long", limited(`"algorithm": "leaky_bucket", "max_delay": "2h"`), `zone "api": max_delay "2h0m0s": must be a duration from 1`},
		{"on_limit defer", limited(`"on_limit": "defer"`), `zone "api": on_limit "defer": has its settings in an object; write "defer": {} in its place`},
		{"defer's field unknown", limited(`"defer": {"max_wat": "1h"}`), `zone "api": defer: unknown field "max_wat" (did you mean max_wait?)`},
		{"defer's number negative", limited(`"defer": {"max_jobs": -1}`), `zone "api": on_limit defer: max_jobs -1: must be from 1 to 10000000`},
		{"defer's size too large", limited(`"defer": {"max_body": 99999999}`), `zone "api": on_limit defer: max_body 99999999: must be a size from 1B to 16MiB, such as 64KiB`},
		{"defer's path empty", limited(`"defer": {"path": "/"}`), `zone "api": on_limit defer: path "/": must be a path such as /jobs`},
		{"defer beside delay", limited(`"algorithm": "token_bucket", "on_limit": "delay", "defer": {}`), `zone "api": on_limit defer and on_limit delay are mutually exclusive`},
		{"defer in memory", limited(`"defer": {}`), `zone "api": on_limit defer: needs a store in Redis, which keeps the requests; write store redis and its address`},
		{"max_waiting 0", limited(`"algorithm": "token_bucket", "on_limit": "delay", "max_waiting": 0`), `zone "api": max_waiting 0: must be more than zero; for the default leave it out`},
		{"max_waiting_per_key 0", limited(`"algorithm": "token_bucket", "on_limit": "delay", "max_waiting_per_key": 0`), `zone "api": max_waiting_per_key 0: must be more than zero; for the default leave it out`},
		{"count of numbers", limited(`"count": [401]`), `zone "api": count: must be a list of texts in quotes, such as ["401"], not a number`},
		{"concurrency 0", limited(`"concurrency": 0`), `zone "api": concurrency 0: must be more than zero; for the default leave it out`},
		{"concurrency alone with a burst", zone(`"concurrency": 5, "burst": 5`), `zone "api": burst: needs a limit, and concurrency is none; write one such as "requests": 100, "period": "1m" beside it, or leave it out`},
		{"candidate's field unknown", limited(`"candidate": {"limt": "50/1m"}`), `zone "api": candidate: unknown field "limt" (did you mean limit?)`},
		{"candidate's field of a zone", limited(`"candidate": {"period": "1m"}`), `zone "api": candidate: unknown field "period"; there are limit, algorithm, burst, refill, segments, window_start, time_zone`},
		{"candidate's burst 0", limited(`"candidate": {"limit": "50/1m", "algorithm": "token_bucket", "burst": 0}`), `zone "api": candidate: burst 0: must be more than zero; for the default leave it out`},
		{"answer's status 0", limited(`"answer": {"status": 0}`), `zone "api": answer: status 0: must be more than zero; for the default leave it out`},
		{"answer's field unknown", limited(`"answer": {"stauts": 403}`), `zone "api": answer: unknown field "stauts" (did you mean status?)`},
		{"answer's file is missing", limited(`"answer": {"file": "/no/such/file.html"}`), `zone "api": answer: file "/no/such/file.html": no such file or directory`},
		{"candidate is a text", limited(`"candidate": "50/1m"`), `zone "api": candidate: must be an object, not a text`},

		// Outside a site of the Caddyfile a shorthand would be empty, and all clients would share one key.
		{"shorthand client_ip", limited(`"key": "{client_ip}"`), `zone "api": key "{client_ip}": {client_ip} is a shorthand that Caddy knows in the sites of a Caddyfile only; write {http.vars.client_ip}`},
		{"shorthand header", limited(`"key": "{http.vars.client_ip}{header.X-User}"`), `write {http.request.header.X-User}`},
		{"shorthand cost", limited(`"cost": "{query.n}"`), `zone "api": cost "{query.n}": {query.n} is a shorthand that Caddy knows in the sites of a Caddyfile only; write {http.request.uri.query.n}`},
		{"empty placeholder", limited(`"key": "{}"`), `zone "api": key "{}": has an empty placeholder`},
		{"unclosed placeholder", limited(`"key": "{http.vars.client_ip"`), `zone "api": key "{http.vars.client_ip": "{http.vars.client_ip" has no closing brace`},

		{"matcher unknown", limited(`"match": [{"methd": ["POST"]}]`), `zone "api": match: `},
		{"matcher's field unknown", limited(`"match": [{"path_regexp": {"patern": "x"}}]`), `zone "api": match: `},
		{"matcher's pattern is bad", limited(`"match": [{"path_regexp": {"pattern": "["}}]`), `zone "api": match: `},
		{"matcher's expression is bad", limited(`"match": [{"expression": "nobody("}]`), `zone "api": match: `},

		{"header_reset unknown", with(`"header_reset": "unix"`), `header_reset "unix": must be seconds or epoch`},
		{"header_prefix with a colon", with(`"header_prefix": "X:"`), `header_prefix "X:": must be what the names of header fields begin with`},
		{"cors without origins", with(`"cors": {}`), `cors: names no origin; write those of the pages`},
		{"cors is a list", with(`"cors": ["*"]`), `cors: must be an object, not a list`},
		{"cors' field unknown", with(`"cors": {"origin": ["*"]}`), `cors: unknown field "origin" (did you mean origins?)`},
		{"cors of no origin", with(`"cors": {"origins": ["null"]}`), `cors "null": must be an origin as browsers send it`},
		{"jitter -1", with(`"jitter": -1`), `jitter -1: must be a fraction from 0 to 10`},
		{"jitter 11", with(`"jitter": 11`), `jitter 11: must be a fraction from 0 to 10`},
		{"sweep_interval negative", with(`"sweep_interval": -1`), `sweep_interval -1ns: must be from 1s to 1d`},
		{"store unknown", with(`"store": {"store": "redis"}`), `redis`},
		{"store's max_keys in a handler", with(`"store": {"store": "memory", "max_keys": 5}`), `store memory: max_keys belongs in the store of the app rate_limit, since there is one memory for all handlers`},
		{"app's max_keys negative", app(`"store": {"store": "memory", "max_keys": -1}`), `max_keys -1: must be from 1 to 100000000`},
		{"app's max_keys too large", app(`"store": {"store": "memory", "max_keys": 100000001}`), `max_keys 100000001: must be from 1 to 100000000`},
		{"app's field unknown", app(`"stoer": {}`), `stoer`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := validate(t, c.config)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
	if _, err := validate(t, configOf(handlerOf(apiZone))); err != nil {
		t.Errorf("what all of these are made of is refused: %v", err)
	}
}

// TestZonesOfOneNameMustBeAlike: caddy-ratelimit silently lets two handlers with different limits share a counter.
func TestZonesOfOneNameMustBeAlike(t *testing.T) {
	zone := func(fields string) string { return `"api": {"requests": 100, "period": "1m"` + fields + `}` }
	for _, c := range []struct{ name, first, second, want string }{
		{"the same limit", handlerOf(zone("")), handlerOf(zone("")), ""},
		{"the same limit in the dialect's words", handlerOf(`"api": {"max_events": 5, "window": "1m"}`), handlerOf(`"api": {"max_events": 5, "window": "60s"}`), ""},
		{"the same limit of other requests", handlerOf(zone(`, "match": [{"method": ["GET"]}]`)), handlerOf(zone(`, "match": [{"method": ["POST"]}]`)), ""},
		{"another number", handlerOf(zone("")), handlerOf(`"api": {"requests": 200, "period": "1m"}`), "another limit: 100/1m sliding_window_counter and 200/1m sliding_window_counter"},
		{"another period", handlerOf(zone("")), handlerOf(`"api": {"requests": 100, "period": "1h"}`), "another limit: 100/1m sliding_window_counter and 100/1h sliding_window_counter"},
		{"another algorithm", handlerOf(zone("")), handlerOf(zone(`, "algorithm": "token_bucket"`)), "another limit: 100/1m sliding_window_counter and 100/1m token_bucket"},
		{"another key", handlerOf(zone("")), handlerOf(zone(`, "key": "{http.request.host}"`)), "another key"},
		{"another prefix", handlerOf(zone("")), handlerOf(zone(`, "ipv4_prefix": 24`)), "another key"},
		{"another enforcement", handlerOf(zone("")), handlerOf(zone(`, "enforcement": "shadow"`)), "another enforcement"},
		{"another count_rejected", handlerOf(zone("")), handlerOf(zone(`, "count_rejected": true`)), "another count_rejected"},
		{"another soft limit", handlerOf(zone("")), handlerOf(zone(`, "enforcement": "soft 20% 30s"`)), "another enforcement"},
		{"another penalty", handlerOf(zone(`, "penalty": ["1m"]`)), handlerOf(zone(`, "penalty": ["2m"]`)), "another enforcement, bound of waiting requests, count or penalty"},
		{"the same penalty", handlerOf(zone(`, "penalty": ["1m", "1h"]`)), handlerOf(zone(`, "penalty": ["60s 60m"]`)), ""},
		{"the same count", handlerOf(zone(`, "count": ["401", "403"]`)), handlerOf(zone(`, "count": ["403,401"]`)), ""},
		{"another candidate", handlerOf(zone(`, "candidate": {"limit": "5/1m"}`)), handlerOf(zone(`, "candidate": {"limit": "6/1m"}`)), "another candidate or concurrency"},
		{"another concurrency", handlerOf(zone(`, "concurrency": 5`)), handlerOf(zone(`, "concurrency": 6`)), "another candidate or concurrency"},
		{"another limit in another namespace", handlerOf(zone("")), handlerOf(`"api": {"requests": 200, "period": "1m"}`, `"namespace": "blue"`), ""},
		{"another limit in one namespace", handlerOf(zone(""), `"namespace": "blue"`), handlerOf(`"api": {"requests": 200, "period": "1m"}`, `"namespace": "blue"`), "another limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := validate(t, configOf(c.first, c.second))
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			for _, want := range []string{`zone "api": duplicate name, first at apps/http/servers/main/routes/0/handle/0, with ` + c.want, "rename one", "namespace"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v\nwant %s", err, want)
				}
			}
		})
	}
}

// TestZonesOfOneNameMustBeAlikeWhereverTheyStand: in one route, in subroutes, in other servers. The error has the place of the
// first; Caddy adds that of the second.
func TestZonesOfOneNameMustBeAlikeWhereverTheyStand(t *testing.T) {
	first, second := handlerOf(apiZone), handlerOf(`"api": {"requests": 5, "period": "1s"}`)
	in := func(before, handlers, after string) string {
		return before + `"routes": [{"handle": [` + handlers + `]}]` + after
	}
	const server = "apps/http/servers/main/"
	for _, c := range []struct{ name, config, place string }{
		{"one route", configOf(`{"handler": "vars", "a": "b"}, ` + first + ", " + second), server + "routes/0/handle/1"},
		{"behind others of its name that are alike", configOf(first, first, second), server + "routes/0/handle/0"},
		{"behind a zone of its name in a namespace", configOf(handlerOf(apiZone, `"namespace": "blue"`), first, second), server + "routes/1/handle/0"},
		{"subroutes", configOf(in(`{"handler": "subroute", `, first, `}`), in(`{"handler": "subroute", `, second, `}`)), server + "routes/0/handle/0/routes/0/handle/0"},
		{"responses of a backend",
			configOf(in(`{"handler": "reverse_proxy", "upstreams": [{"dial": "127.0.0.1:1"}], "handle_response": [{`, first, `}]}`), second),
			server + "routes/0/handle/0/handle_response/0/routes/0/handle/0"},
		{"error routes", strings.TrimSuffix(configOf(first), "}}}}}") + in(`, "errors": {`, second, `}`) + "}}}}}", server + "routes/0/handle/0"},
		{"named routes", configOf(`{"handler": "invoke", "name": "a"}`, `{"handler": "invoke", "name": "a"}`, first+", "+second), server + "routes/2/handle/0"},
		{"other servers", `{"apps": {"http": {"servers": {"a": ` + serverOf(":8080", first) + `, "b": ` + serverOf(":8081", second) + `}}}}`, `apps/http/servers/[ab]/routes/0/handle/0`},
	} {
		if c.name == "named routes" {
			c.config = strings.Replace(c.config, `"routes": [{"handle": [`, `"named_routes": {"a": {"handle": [`+first+`]}}, "routes": [{"handle": [`, 1)
		}
		want := regexp.MustCompile(`zone "api": duplicate name, first at ` + c.place + `, with`)
		if _, err := validate(t, c.config); err == nil || !want.MatchString(err.Error()) {
			t.Errorf("%s: %v\nwant %s", c.name, err, want)
		}
	}
}

// TestRefusedConfigurationKeepsNothing: a refused configuration releases what it has acquired.
func TestRefusedConfigurationKeepsNothing(t *testing.T) {
	before, held := memories.References(memoryKey)
	for range 3 {
		if _, err := validate(t, configOf(handlerOf(apiZone), handlerOf(`"api": {"requests": 5, "period": "1s"}`))); err == nil {
			t.Fatal("is not refused")
		}
		if _, err := validate(t, configOf(handlerOf(apiZone, `"store": {"store": "memory", "max_keys": 5}`))); err == nil {
			t.Fatal("is not refused")
		}
		if _, err := validate(t, `{"apps": {"rate_limit": {"store": {"store": "memory", "max_keys": -5}}}}`); err == nil {
			t.Fatal("is not refused")
		}
	}
	if after, stillHeld := memories.References(memoryKey); after != before || stillHeld != held {
		t.Errorf("the memory is in use %d times (%v), and was %d times (%v) before", after, stillHeld, before, held)
	}
}

// TestKeyOfTheUserBeforeAuthenticationIsWarnedOf: a key after the authentication gets no warning.
func TestKeyOfTheUserBeforeAuthenticationIsWarnedOf(t *testing.T) {
	user := handlerOf(userZone)
	subroute := func(handlers ...string) string {
		routes := make([]string, len(handlers))
		for i, h := range handlers {
			routes[i] = `{"handle": [` + h + `]}`
		}
		return `{"handler": "subroute", "routes": [` + strings.Join(routes, ", ") + `]}`
	}
	const account = "\n\tbasic_auth {\n\t\tbob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n\t}\n"
	const limit = "\n\trate_limit 100/1m {http.auth.user.id}\n"
	caddyfile := func(config string) string {
		adapted, _, err := adaptText(config)
		must.Succeed(t, err)
		return string(adapted)
	}
	for _, c := range []struct {
		name, config string
		warned       bool
	}{
		{"no authentication", configOf(user), true},
		{"before, in another route", configOf(user, authentication), true},
		{"before, in one route", configOf(user + ", " + authentication), true},
		{"before, in one subroute", configOf(subroute(user, authentication)), true},
		{"before a subroute with it", configOf(user, subroute(authentication)), true},
		{"in a subroute before it", configOf(subroute(user), authentication), true},
		{"in a subroute before it in one route", configOf(subroute(user) + ", " + authentication), true},
		{"after, in another route", configOf(authentication, user), false},
		{"after, in one route", configOf(authentication + ", " + user), false},
		{"after, in one subroute", configOf(subroute(authentication, user)), false},
		{"after, in one route of a subroute", configOf(subroute(authentication + ", " + user)), false},
		{"in a subroute after it", configOf(authentication, subroute(user)), false},
		{"in a subroute after it in one route", configOf(authentication + ", " + subroute(user)), false},
		{"after a subroute with it", configOf(subroute(authentication), user), false},
		{"Caddyfile's order", caddyfile(":8080 {" + account + limit + "}"), true},
		{"Caddyfile's route, before", caddyfile(":8080 {\nroute {" + limit + account + "}\n}"), true},
		{"Caddyfile's route, after", caddyfile(":8080 {\nroute {" + account + limit + "}\n}"), false},
		{"Caddyfile's order changed", caddyfile("{\norder rate_limit after basic_auth\n}\n:8080 {" + limit + account + "}"), false},
		{"Caddyfile's host", caddyfile("http://a.example:8080 {\nroute {" + account + limit + "}\n}"), false},
		{"Caddyfile's other path", caddyfile(":8080 {\nhandle /admin {" + account + "}\nhandle {" + limit + "}\n}"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, err := validate(t, c.config)
			must.Succeed(t, err)
			if warned := strings.Contains(log, "runs before authentication"); warned != c.warned {
				t.Errorf("warned: %v, want %v\n%s", warned, c.warned, log)
			}
		})
	}
}

// TestAuthenticationOfAnotherServerIsNone tries several times, since Caddy provisions servers in any order.
func TestAuthenticationOfAnotherServerIsNone(t *testing.T) {
	config := `{"apps": {"http": {"servers": {"a": ` + serverOf(":8080", authentication) + `, "b": ` + serverOf(":8081", handlerOf(userZone)) + `}}}}`
	for range 8 {
		log, err := validate(t, config)
		must.Succeed(t, err)
		if !strings.Contains(log, "runs before authentication") {
			t.Fatalf("is not warned of\n%s", log)
		}
	}
}

// TestExemptPrivateAddressesWithoutTrustedProxiesAreWarnedOf: behind a load balancer such a zone limits nobody.
func TestExemptPrivateAddressesWithoutTrustedProxiesAreWarnedOf(t *testing.T) {
	const trusts = `"trusted_proxies": {"source": "static", "ranges": ["10.0.0.5/32"]}`
	zone := func(name, except string) string {
		return `"` + name + `": {"requests": 5, "period": "1m", "except": [` + except + `]}`
	}
	server := func(listen, more string, handlers ...string) string {
		return strings.TrimSuffix(serverOf(listen, handlers...), "}") + more + "}"
	}
	one := func(more string, handlers ...string) string {
		return `{"apps": {"http": {"servers": {"main": ` + server(":8080", more, handlers...) + `}}}}`
	}
	file := filepath.Join(t.TempDir(), "limits.yaml")
	must.Succeed(t, os.WriteFile(file, []byte("rules:\n  - {name: filed, limit: 5/1m, match: {except_ips: [10.0.0.0/8]}}\n"), 0o600))
	files := `{"handler": "rate_limit", "rules_files": ["` + file + `"]}`
	private := handlerOf(zone("api", `"private_ranges"`))
	for _, c := range []struct {
		name, config string
		warned       []string
	}{
		{"private ranges", one("", private), []string{`"zone":"api"`}},
		{"a private network", one("", handlerOf(zone("api", `"10.1.0.0/16"`))), []string{`"zone":"api"`}},
		{"the one of two", one("", handlerOf(zone("a", `"192.0.2.0/24"`)+", "+zone("b", `"private_ranges"`))), []string{`"zone":"b"`}},
		{"in a subroute", one("", `{"handler": "subroute", "routes": [{"handle": [`+private+`]}]}`), []string{`"zone":"api"`}},
		{"a rule of a file", one("", files), []string{`"rule":"filed"`}},
		{"an error route", one(`, "errors": {"routes": [{"handle": [`+private+`]}]}`, authentication), []string{`"zone":"api"`}},
		{"a named route", one(`, "named_routes": {"limits": {"handle": [`+private+`]}}`, `{"handler": "invoke", "name": "limits"}`), []string{`"zone":"api"`}},
		{"a single address", one("", handlerOf(zone("api", `"10.0.0.7"`))), nil},
		{"a public network", one("", handlerOf(zone("api", `"192.0.2.0/24"`))), nil},
		{"trusted proxies", one(", "+trusts, private), nil},
		{"a rule of a file, and trusted proxies", one(", "+trusts, files), nil},
		{"on a Unix socket", one(`, "trusted_proxies_unix": true`, private), nil},
		{"another server trusts", `{"apps": {"http": {"servers": {"a": ` + server(":8080", ", "+trusts, authentication) + `, "b": ` + server(":8081", "", private) + `}}}}`, []string{`"zone":"api"`}},
		{"another server does not", `{"apps": {"http": {"servers": {"a": ` + server(":8080", "", authentication) + `, "b": ` + server(":8081", ", "+trusts, private) + `}}}}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 4 { // Caddy provisions servers in any order
				log, err := validate(t, c.config)
				must.Succeed(t, err)
				lines := 0
				for line := range strings.Lines(log) {
					if !strings.Contains(line, "private addresses are exempt") {
						continue
					}
					if lines >= len(c.warned) || !strings.Contains(line, c.warned[lines]) {
						t.Fatalf("is warned of, and must not be: %s", line)
					}
					lines++
				}
				if lines != len(c.warned) {
					t.Fatalf("%d warnings, want %d\n%s", lines, len(c.warned), log)
				}
			}
		})
	}
}

// Defect found: `caddy validate` accepted a rate_limit_status of a rule that does not exist, but Caddy did not start with it. The
// rule may be anywhere in the configuration, also after the rate_limit_status or on another server.
func TestStatusOfARuleThatIsNotThereIsRefusedByValidate(t *testing.T) {
	const limit = `{"handler": "rate_limit", "rate_limits": {"here": {"requests": 5, "period": "1m"}}}`
	const inShop = `{"handler": "rate_limit", "namespace": "shop", "rate_limits": {"here": {"requests": 5, "period": "1m"}}}`
	server := func(rest string, handlers ...string) string {
		return `{"listen": ["127.0.0.1:PORT"], "automatic_https": {"disable": true}, ` + rest + ` "routes": [{"handle": [` + strings.Join(handlers, ", ") + `]}]}`
	}
	config := func(servers ...string) string {
		for i := range servers {
			servers[i] = fmt.Sprintf("%q: %s", fmt.Sprint("srv", i), strings.Replace(servers[i], ":PORT", fmt.Sprint(":", 8080+i), 1))
		}
		return `{"apps": {"http": {"servers": {` + strings.Join(servers, ", ") + `}}}}`
	}
	status := func(rule string) string { return `{"handler": "rate_limit_status", "rules": ["` + rule + `"]}` }
	subroute := func(handler string) string {
		return `{"handler": "subroute", "routes": [{"handle": [{"handler": "subroute", "routes": [{"handle": [` + handler + `]}]}]}]}`
	}
	file := filepath.Join(t.TempDir(), "a.yaml")
	must.Succeed(t, os.WriteFile(file, []byte("rules: [{name: in-file, limit: 5/1m}]"), 0o600))
	byFile := `{"handler": "rate_limit", "rules_files": ["` + file + `"]}`
	for name, c := range map[string]struct {
		config func(rule string) string
		rule   string
	}{
		"before it":            {func(rule string) string { return config(server("", limit, status(rule))) }, "here"},
		"behind it":            {func(rule string) string { return config(server("", status(rule), limit)) }, "here"},
		"of a namespace":       {func(rule string) string { return config(server("", status(rule), inShop)) }, "shop/here"},
		"in subroutes":         {func(rule string) string { return config(server("", status(rule), subroute(limit))) }, "here"},
		"around subroutes":     {func(rule string) string { return config(server("", subroute(status(rule)), limit)) }, "here"},
		"on another server":    {func(rule string) string { return config(server("", status(rule)), server("", limit), server("")) }, "here"},
		"on the one before it": {func(rule string) string { return config(server("", limit), server("", status(rule))) }, "here"},
		"in error routes": {func(rule string) string {
			return config(server(`"errors": {"routes": [{"handle": [`+limit+`]}]},`, status(rule)))
		}, "here"},
		"in a named route": {func(rule string) string {
			return config(server(`"named_routes": {"r": {"handle": [`+limit+`]}},`, status(rule)))
		}, "here"},
		"in upper case": {func(rule string) string {
			return config(server("", status(rule), subroute(strings.Replace(limit, "rate_limits", "RATE_LIMITS", 1))))
		}, "here"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 3 { // servers are provisioned in any order
				if _, err := validate(t, c.config(c.rule)); err != nil {
					t.Errorf("%s: %v", c.rule, err)
				}
				_, err := validate(t, c.config("nope"))
				if want := `rate_limit_status: rule "nope": must be ` + c.rule; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("nope: %v, want %s", err, want)
				}
			}
		})
	}
	if _, err := validate(t, config(server("", status("nope")))); err == nil || !strings.Contains(err.Error(), `rule "nope": there is none in the configuration`) {
		t.Errorf("without a rate_limit: %v", err)
	}
	// Rule files can change, so a missing rule only gets a warning.
	for _, handlers := range [][]string{{status("gone"), byFile}, {byFile, status("gone")}, {status("gone"), limit, subroute(byFile)}} {
		if _, err := validate(t, config(server("", handlers...))); err != nil {
			t.Errorf("with rule files: %v", err)
		}
	}
}
