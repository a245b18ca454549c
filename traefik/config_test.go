package traefik

import (
	"context"
	"math/rand"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/underrace"
	"github.com/proxyweir/weir/traefik/config"
)

func TestEveryMistakeIsSaidWithRuleFieldAndValue(t *testing.T) {
	secret := writeFile(t, t.TempDir()+"/secret", "hunter2\n")
	setenv(t, "WEIR_TEST_SECRET", "hunter2")
	list := func(rules ...Rule) *Config { return &Config{Rules: rules} }
	one := func(r Rule) *Config { return &Config{Rule: r} }
	redis := func(o object) *Config {
		return &Config{Rule: Rule{Limit: "1/1s"}, Store: object{"redis": o}}
	}
	dialect := func(o object) *Config { return &Config{Average: "1", Redis: o} }
	good := Rule{Limit: "5/1m"}
	tests := []struct {
		config *Config
		want   string // what stands behind the middleware's name
	}{
		{nil, `rule "api": limit: is missing; write one such as 100/1m`},
		{&Config{}, `rule "api": limit: is missing; write one such as 100/1m`},
		{one(Rule{Limit: "5"}), `rule "api": limit "5": has no period; write <requests>/<period>, such as 5/1m`},
		{one(Rule{Limit: "5/1m", Algorithm: "token_buckets"}), `rule "api": algorithm "token_buckets": must be one of token_bucket, leaky_bucket, fixed_window, sliding_window_log, sliding_window_counter (did you mean token_bucket?)`},
		{one(Rule{Limit: "5/1m", Algorithm: "token_bucket", Burst: "0"}), `rule "api": burst "0": must be a whole number from 1 to 1000000000`},
		{one(Rule{Limit: "5/1m", Segments: "many"}), `rule "api": segments "many": must be a whole number from 2 to 60`},
		{one(Rule{Limit: "5/1m", WindowStart: "first_request"}), `rule "api": windowStart "first_request": the window of a sliding_window_counter slides, so that its quota comes back bit by bit wherever it begins; choose the algorithm fixed_window, or windowStart spread`},
		{one(Rule{Limit: "5/month on 40"}), `rule "api": limit "5/month on 40": a month begins on a day from 1 to 31, such as month on 17, not on "40"`},
		{one(Rule{Limit: "5/1m", Algorithm: "token_bucket", Refill: "intervals"}), `rule "api": refill "intervals": must be continuous or interval (did you mean interval?)`},
		{one(Rule{Limit: "5/1m", MaxDelay: "1s"}), `rule "api": maxDelay 1s: only leaky_bucket and onLimit delay make requests wait, not sliding_window_counter`},
		{one(Rule{Limit: "5/1m", Algorithm: "leaky_bucket", MaxDelay: "2h"}), `rule "api": maxDelay "2h": must be a duration from 1ms to 1h`},
		{one(Rule{Limit: "5/1m", TimeZone: "UTC"}), `rule "api": timeZone "UTC": only windows of the calendar have one (limit <requests>/day, /week or /month)`},
		{one(Rule{Limit: "5/day", TimeZone: "Mars/Olympus"}), `rule "api": timeZone "Mars/Olympus": must be a name of the time zone database, such as UTC or Europe/Berlin`},
		{one(Rule{Limit: "5/1m", Key: []string{"clientip"}}), `rule "api": key "clientip": the source must be one of client_ip, remote_ip, host, method, path, path_segment, path_regexp, header, cookie, query, unverified_jwt_claim, client_cert, static (did you mean client_ip?)`},
		{one(Rule{Limit: "5/1m", Cost: "0"}), `rule "api": cost "0": must be a whole number from 1 to 1000000000, or header:NAME, query:NAME or cookie:NAME that has one; 0 is for rules with costResponse`},
		{one(Rule{Limit: "5/1m", IPv4Prefix: "33"}), `rule "api": ipv4Prefix "33": must be a whole number from 1 to 32`},
		{one(Rule{Limit: "5/1m", IPv6Prefix: "0"}), `rule "api": ipv6Prefix "0": must be a whole number from 1 to 128`},
		{one(Rule{Limit: "5/1m", Enforcement: "0%"}), `rule "api": enforcement "0%": the share of enforced keys must be from 1% to 99%; write hard for all, and shadow for none`},
		{one(Rule{Limit: "5/1m", Enforcement: "12.5%"}), `rule "api": enforcement "12.5%": the share of enforced keys must be from 1% to 99%; write hard for all, and shadow for none`},
		{one(Rule{Limit: "5/1m", Enforcement: "shadows"}), `rule "api": enforcement "shadows": must be hard, shadow, soft <percent> <duration> or <percent>% (did you mean shadow?)`},
		{one(Rule{Limit: "5/1m", RespectUpstream: "25h"}), `rule "api": respectUpstream "25h": must be a duration from 1s to 24h`},
		{one(Rule{Limit: "5/1m", OnLimit: "defer"}), `rule "api": onLimit "defer": is only for zones of Caddy; use reject or delay`},
		{one(Rule{Limit: "5/1m", OnError: "pass"}), `rule "api": onError "pass": must be one of local, open, closed`},
		{one(Rule{Limit: "5/1m", OnMissingKey: "skips"}), `rule "api": onMissingKey "skips": must be share, skip or reject (did you mean skip?)`},
		{one(Rule{Limit: "5/1m", CountRejected: "yes"}), `rule "api": countRejected "yes": must be true or false`},
		{one(Rule{Limit: "5/1m", Name: "a b"}), `rule name "a b": must be 1 to 64 of A-Z a-z 0-9 _ . -`},
		{one(Rule{Limit: "5/1m", Match: "all"}), `rule "api": match "all": must be an object with some of methods, hosts, paths, pathPrefixes, headers, query, cookies, exceptIPs`},
		{one(Rule{Limit: "5/1m", Match: object{"pathPrefix": "/x"}}), `rule "api": match: "pathPrefix" is not a field (did you mean pathPrefixes?)`},
		{one(Rule{Limit: "5/1m", Match: object{"pathPrefixes": []interface{}{"v1"}}}), `rule "api": match: pathPrefixes: "v1" must begin with /`},
		{one(Rule{Limit: "5/1m", Match: object{"exceptIPs": "10.0.0.0/33"}}), `rule "api": match: exceptIPs: "10.0.0.0/33" must be an address or a network such as 10.0.0.0/8`},
		{one(Rule{Limit: "5/1m", Match: object{"headers": "X-A"}}), `rule "api": match: headers "X-A": must be an object`},
		{one(Rule{Limit: "5/1m", Match: object{"methods": object{"a": "b"}}}), `rule "api": match: methods {"a":"b"}: must be a list`},
		{one(Rule{Limit: "5/1m", Unknown: object{"limits": "5/1m"}}), `"limits" is not a field (did you mean limit?)`},
		{one(Rule{Limit: "5/1m", Unknown: object{"header": "none"}}), `"header" is not a field (did you mean headers?)`},
		{one(Rule{Limit: "5/1m", Unknown: object{"on_error": "open"}}), `"on_error" is not a field (did you mean onError?)`},

		{one(Rule{Limit: "unlimitted"}), `rule "api": limit "unlimitted": has no period; write <requests>/<period>, such as 100/1m (did you mean unlimited?)`},
		{one(Rule{Limit: "5/1m", Key: []string{"{client_ip}"}}), `rule "api": key "{client_ip}": the source must be one of client_ip, remote_ip, host, method, path, path_segment, path_regexp, header, cookie, query, unverified_jwt_claim, client_cert, static (did you mean client_ip?); placeholders are Caddy's alone: write header:NAME for a field`},
		{one(Rule{Limit: "5/1m", Tiers: "free"}), `rule "api": tiers "free": must be an object with some of source, limits`},
		{one(Rule{Limit: "5/1m", LimitFrom: "header:X-Limit"}), `rule "api": limitFrom "header:X-Limit": must be an object with some of source, max`},
		{one(Rule{Limit: "5/1m", LimitFrom: object{"max": "9/1m"}}), `rule "api": limitFrom: source: is missing; write what the limit is read from, such as header:X-Limit`},
		{one(Rule{Limit: "5/1m", LimitFrom: object{"source": "{http.vars.limit}"}}), `rule "api": limitFrom: source "{http.vars.limit}": the source must be one of client_ip, remote_ip, host, method, path, path_segment, path_regexp, header, cookie, query, unverified_jwt_claim, client_cert, static; placeholders are Caddy's alone: write header:NAME for a field`},
		{one(Rule{Limit: "5/1m", LimitFrom: object{"source": "static:5/1m"}}), `rule "api": limitFrom: source "static:5/1m": is the same for all requests; write what their limit is read from, such as header:X-Limit`},
		{one(Rule{Limit: "5/1m", LimitFrom: object{"source": "header:X-Limit", "max": "9/1y"}}), `rule "api": limitFrom: limit "9/1y": the period "1y" must be a duration such as 10s, 1m, 24h or 7d, or day, week or month`},
		{one(Rule{Limit: "unlimited", LimitFrom: object{"source": "header:X-Limit"}}), `rule "api": limitFrom: the rule's own limit is unlimited, so that a request without a valid one would pass uncounted; write a limit for these`},
		{one(Rule{LimitFrom: object{"source": "header:X-Limit"}}), `rule "api": limit: is missing; write one such as 100/1m`},
		{one(Rule{Limit: "5/1m", LimitFrom: object{"source": "header:X-Limit"}, Tiers: object{"source": "path", "limits": object{"/a": "5/1m"}}}), `rule "api": limitFrom and tiers are mutually exclusive: each chooses the limit by a value of the request; remove one`},
		{one(Rule{Limit: "5/1m", Tiers: object{}}), `rule "api": tiers: source: is missing; write what the tier is read from, such as header:X-Plan`},
		{one(Rule{Limit: "5/1m", Tiers: object{"source": "header:X-Plan"}}), `rule "api": tiers: limits: is missing; write a limit for each value, such as pro: 1000/1m`},
		{one(Rule{Limit: "5/1m", Tiers: object{"source": "header:X-Plan", "limit": object{"pro": "9/1m"}}}), `rule "api": tiers: "limit" is not a field (did you mean limits?)`},
		{one(Rule{Limit: "5/1m", Tiers: object{"source": "header:X-Plan", "limits": object{"pro": object{}}}}), `rule "api": tiers: limits: pro: must be a single value`},
		{one(Rule{Limit: "5/1m", Tiers: object{"source": "header:X-Plan", "limits": object{"*": "9/1m"}}}), `rule "api": tiers: "*" and limit are mutually exclusive: both are for all values without a tier; remove one`},
		{one(Rule{Tiers: object{"source": "header:X-Plan", "limits": object{"pro": "9/1m"}}}), `rule "api": tiers: say nothing of other values; write "*": 50/1m, or limit beside the tiers`},
		{one(Rule{Limit: "5/1m", Tiers: object{"source": "header:X-Plan", "limits": object{"<int Value>": "9/1m"}}}), `rule "api": tiers: limits: a value is a number, or true or false, which Traefik does not read there; put it in quotes`},
		{one(Rule{Limit: "5/1m", Overrides: object{"key": "a"}}), `rule "api": overrides {"key":"a"}: must be a list of objects, in YAML each with a dash in front`},
		{one(Rule{Limit: "5/1m", Overrides: []interface{}{"a"}}), `rule "api": overrides[0] "a": must be an object with some of key, limit`},
		{one(Rule{Limit: "5/1m", Overrides: []interface{}{object{"keys": "a"}}}), `rule "api": overrides[0]: "keys" is not a field (did you mean key?)`},
		{one(Rule{Limit: "5/1m", Overrides: []interface{}{object{"key": "192.0.2.1"}}}), `rule "api": overrides: "192.0.2.1": limit: is missing; write one such as 1000/1m`},
		{one(Rule{Limit: "5/1m", Overrides: []interface{}{object{"limit": "9/1m"}}}), `rule "api": overrides: key: is missing; write the key whose limit it is`},
		{one(Rule{Limit: "5/1m", Overrides: []interface{}{object{"key": "192.0.2.1,192.0.2.2", "limit": "9/1m"}}}), `rule "api": overrides: "192.0.2.1 192.0.2.2": has 2 values, and the rule's key 1 parts`},
		{one(Rule{Limit: "5/1m", Overrides: []interface{}{object{"key": "10.0.0.0/8", "limit": "9/1m"}}}), `rule "api": overrides: "10.0.0.0/8": is no client: each of its addresses is counted by itself; name one, or count by such networks (ipv4Prefix 8); addresses that are not to be counted are written in match: exceptIPs`},
		{one(Rule{Limit: "5/1m", IPv4Prefix: "24", Overrides: []interface{}{object{"key": "198.51.100.7", "limit": "unlimited"}}}), `rule "api": overrides: "198.51.100.7": has one counter with all of 198.51.100.0/24 (ipv4Prefix 24), so that this would be their limit, too; write 198.51.100.0/24 if that is meant, else count by addresses`},
		{one(Rule{Limit: "5/1m", Overrides: []interface{}{object{"key": "2001:db8::7", "limit": "unlimited"}}}), `rule "api": overrides: "2001:db8::7": has one counter with all of 2001:db8::/64 (ipv6Prefix 64), so that this would be their limit, too; write 2001:db8::/64 if that is meant, else count by addresses`},
		{&Config{Rule: good, Descriptors: []interface{}{object{"entries": []interface{}{object{"key": "a", "source": "path"}}}}}, `descriptors: are looked up in rule files; write rulesFile beside them`},
		{&Config{Rule: good, Domain: "auth"}, `domain: is one of rule files; write rulesFile beside it`},
		{&Config{Rule: good, RulesInterval: "1m"}, `rulesInterval: says how often rule files are looked at; write rulesFile beside it`},
		{&Config{RulesFile: []string{"x.json"}, RulesInterval: "0s"}, `rulesInterval "0s": must be a duration from 1s to 1h`},
		{&Config{RulesFile: []string{""}}, `rulesFile: the name of a file is empty`},
		{&Config{RulesFile: []string{"x.json"}, Domain: "auth"}, `domain: says which descriptors limit requests; write descriptors beside it, or leave it out`},
		{&Config{RulesFile: []string{"/nonexistent/x.json"}}, `rulesFile: /nonexistent/x.json: no such file or directory`},
		{&Config{RulesFile: []string{"/nonexistent/*.json"}}, `rulesFile: /nonexistent/*.json: no file matches`},
		{&Config{RulesFile: []string{secret}}, `rulesFile: ` + secret + `:1:1: is no JSON: invalid character 'h' looking for beginning of value`},
		{&Config{Rule: Rule{OnError: "closed"}, RulesFile: []string{"x.json"}, Descriptors: []interface{}{object{"entries": []interface{}{object{"key": "a", "source": "path"}}}}}, `rule "api": limit: is missing; write one such as 100/1m; or remove onError, if it is for the descriptors: it is a rule's, and they have none`},
		{&Config{RulesFile: []string{"x.json"}, Descriptors: "a"}, `descriptors "a": must be a list of objects, in YAML each with a dash in front`},
		{&Config{RulesFile: []string{"x.json"}, Descriptors: []interface{}{object{"key": "a", "source": "path"}}}, `descriptors[0]: write its entries as a list: entries: [{key: …, source: …}]`},
		{&Config{RulesFile: []string{"x.json"}, Descriptors: []interface{}{object{"entry": "a"}}}, `descriptors[0]: "entry" is not a field; there are entries`},
		{&Config{RulesFile: []string{"x.json"}, Descriptors: []interface{}{object{}}}, `descriptors[0]: entries: is empty; write a list such as [{key: path, source: path}]`},
		{&Config{RulesFile: []string{"x.json"}, Descriptors: []interface{}{[]interface{}{}}}, `descriptors[0]: is empty; write a list such as [{key: path, source: path}]`},
		{&Config{RulesFile: []string{"x.json"}, Descriptors: []interface{}{[]interface{}{object{"key": "a"}}}}, `descriptors[0][0]: source: is missing; write what the value is taken from, such as header:X-Plan`},
		{&Config{RulesFile: []string{"x.json"}, Descriptors: []interface{}{object{"entries": []interface{}{object{"source": "path"}}}}}, `descriptors[0]: entries[0]: key: is missing; write what the rule files call it`},
		{&Config{RulesFile: []string{"x.json"}, Descriptors: []interface{}{object{"entries": []interface{}{object{"key": "a", "source": "header"}}}}}, `descriptors[0]: entries[0]: source "header": write header:NAME`},

		{list(good), `rules[0]: name: is missing; write 1 to 64 of A-Z a-z 0-9 _ . -`},
		{list(Rule{Name: "a", Limit: "1/1s"}, Rule{Name: "a", Limit: "1/1s"}), `rule "a": duplicate name in this middleware; rename one`},
		{list(Rule{Name: "a", Limit: "1/1s"}, Rule{Name: "b"}), `rule "b": limit: is missing; write one such as 100/1m`},
		{list(Rule{Name: "a", Limit: "1/1s"}, Rule{Name: "b", Limit: "1/1s", Unknown: object{"algoritm": "x"}}), `rule "b": "algoritm" is not a field (did you mean algorithm?)`},
		{list(Rule{Limit: "1/1s", Unknown: object{"nam": "x"}}), `rules[0]: "nam" is not a field (did you mean name?)`},
		{&Config{Rule: good, Rules: []Rule{{Name: "a", Limit: "1/1s"}}}, `limit and rules are mutually exclusive: a rule's fields are at the top only where it is the only rule; write it into the rules`},
		{&Config{Rule: Rule{Match: object{"paths": "/"}}, Rules: []Rule{{Name: "a", Limit: "1/1s"}}}, `match and rules are mutually exclusive: a rule's fields are at the top only where it is the only rule; write it into the rules`},
		{&Config{Rule: Rule{Key: []string{"host"}}, Rules: []Rule{{Name: "a", Limit: "1/1s"}}}, `key and rules are mutually exclusive: a rule's fields are at the top only where it is the only rule; write it into the rules`},

		{&Config{Rule: good, Namespace: "a b"}, `namespace "a b": must be 1 to 64 of A-Z a-z 0-9 _ . -`},
		{&Config{Rule: good, Headers: []string{"x-ratelimit"}}, `headers "x-ratelimit": must be one of x_ratelimit, ietf, none (did you mean x_ratelimit?)`},
		{&Config{Rule: good, CORS: object{}}, `cors: names no origin; write those of the pages that may read answers, such as https://app.example.com, or * for all`},
		{&Config{Rule: good, CORS: object{"origins": "https://a.example:443"}}, `cors "https://a.example:443": must be an origin as browsers send it: scheme, host, and a port that is not the scheme's own, such as https://app.example.com, https://xn--bcher-kva.example or http://localhost:3000; https://*.example.com is every name one level below, and * every origin`},
		{&Config{Rule: good, CORS: object{"origins": "*", "credentials": "true"}}, `cors "*": excludes credentials, since browsers refuse answers with both; name the origins`},
		{&Config{Rule: good, CORS: object{"origins": "https://a.example", "credentials": "maybe"}}, `cors: credentials "maybe": must be true or false`},
		{&Config{Rule: good, CORS: object{"origin": "*"}}, `cors: "origin" is not a field (did you mean origins?)`},
		{&Config{Rule: good, HeaderPrefix: "X-Acme:"}, `headerPrefix "X-Acme:": must be what the names of header fields begin with, up to 64 characters without a dash at the end: X-Acme is for X-Acme-Limit, X-Acme-Remaining and X-Acme-Reset`},
		{&Config{Rule: good, HeaderReset: "unix"}, `headerReset "unix": must be seconds or epoch`},
		{&Config{Rule: good, Headers: []string{"ietf"}, HeaderReset: "epoch"}, `headerReset "epoch": has no effect where headers leaves out x_ratelimit; add that, or remove it`},
		{one(Rule{Limit: "5/1m", Answer: object{"status": "200"}}), `rule "api": answer: status 200: must be from 400 to 599; 302, 303 and 307 are for a redirect`},
		{one(Rule{Limit: "5/1m", Answer: object{"body": "a", "redirect": "/b"}}), `rule "api": answer: body and redirect are mutually exclusive: an answer has one text, or redirects; remove one`},
		{one(Rule{Limit: "5/1m", Answer: object{"file": "/no/such/file.html"}}), `rule "api": answer: file "/no/such/file.html": no such file or directory`},
		{one(Rule{Limit: "5/1m", Answer: object{"stauts": "403"}}), `rule "api": answer: "stauts" is not a field (did you mean status?)`},
		{&Config{Rule: good, Jitter: "20%"}, `jitter "20%": must be a fraction from 0 to 10, such as 0.2 for up to 20 %`},
		{&Config{Rule: good, LogLevel: "info"}, `logLevel "info": must be debug, error or off`},
		{&Config{Rule: good, LogLevel: "error", LogInterval: "2h"}, `logInterval "2h": must be a duration from 1s to 1h`},
		{&Config{Rule: good, LogKey: "true"}, `logInterval and logKey have no effect without logLevel: write logLevel: debug or error, too, or leave them out`},
		{&Config{Rule: good, Jitter: "NaN"}, `jitter "NaN": must be a fraction from 0 to 10, such as 0.2 for up to 20 %`},
		{&Config{Rule: good, IPStrategy: object{"depth": "-1"}}, `ipStrategy: depth "-1": must be a whole number from 0 to 1000`},
		{&Config{Rule: good, IPStrategy: object{"depht": 1}}, `ipStrategy: "depht" is not a field (did you mean depth?)`},
		{&Config{Rule: good, IPStrategy: object{"excludedIPs": "10.0.0.300"}}, `ipStrategy: excludedIPs: "10.0.0.300" must be an address or a network such as 10.0.0.0/8`},
		{&Config{Rule: good, IPStrategy: object{"ipv6Subnet": 129}}, `ipStrategy: ipv6Subnet "129": must be a whole number from 1 to 128`},
		{&Config{Rule: good, Store: object{}}, `store: is empty; write memory or redis into it, or leave it out`},
		{&Config{Rule: good, Store: "memory"}, `store "memory": must be an object with some of memory, redis`},
		{&Config{Rule: good, Store: object{"rediss": object{}}}, `store: "rediss" is not a field (did you mean redis?)`},
		{&Config{Rule: good, Store: object{"memory": object{}, "redis": object{}}}, `store: memory and redis are mutually exclusive: remove one`},
		{&Config{Rule: good, Store: object{"memory": object{"maxKeys": 0}}}, `store: memory: maxKeys "0": must be a whole number from 1 to 100000000`},
		{&Config{Rule: good, Store: object{"memory": object{"max_keys": 9}}}, `store: memory: "max_keys" is not a field (did you mean maxKeys?)`},

		{redis(object{}), `store: redis: address: is missing; write one such as 127.0.0.1:6379`},
		{redis(object{"address": "a:1,b:1"}), `store: redis: address "b:1": is a second one; say cluster, or the masterName that Sentinel has, or take it out`},
		{redis(object{"address": "host:port"}), `store: redis: address "host:port": the port must be from 1 to 65535`},
		{redis(object{"addresses": "a:1"}), `store: redis: addresses: write address, which takes several, too`},
		{redis(object{"address": "a:1", "masterName": "m", "cluster": true}), `store: redis: masterName "m" and cluster are mutually exclusive: a Cluster has no Sentinels; remove one`},
		{redis(object{"address": "redis://a:1?size=2"}), `store: redis: address: size in the URL: is not known; the URL may have db, master_name and addr, and all else is a setting of its own`},
		{redis(object{"address": "a:1", "cluster": true, "database": 2}), `store: redis: database 2: a Cluster has only the database 0`},
		{redis(object{"address": "a:1", "cluster": "maybe"}), `store: redis: cluster "maybe": must be true or false`},
		{redis(object{"address": "a:1", "sentinelPassword": "hunter2"}), `store: redis: sentinelUsername and sentinelPassword: have no use without a masterName`},
		{redis(object{"address": "redis-sentinel://:hunter2@a:1"}), `store: redis: address: a Sentinel's URL needs the master's name: ?master_name=name`},
		{redis(object{"address": "a:1,redis://:hunter2@b:1", "cluster": true}), `store: redis: address: must be host:port, the path of a Unix socket, or a URL; write a user and a password in a URL, or in settings of their own`},
		{redis(object{"address": "a:1", "masterNam": "m"}), `store: redis: "masterNam" is not a field (did you mean masterName?)`},
		{redis(object{"address": "a:1", "poolSize": 2}), `store: redis: poolSize: is not in the Traefik plugin; its requests travel together over one connection to each server`},
		{redis(object{"address": "a:1", "adress": "b"}), `store: redis: "adress" is not a field (did you mean address?)`},
		{redis(object{"address": "a:1", "database": -1}), `store: redis: database "-1": must be a whole number from 0 to 1000000`},
		{redis(object{"address": "a:1", "timeout": "1h"}), `store: redis: timeout "1h": must be a duration from 1ms to 1m`},
		{redis(object{"address": "a:1", "timeout": 50}), `store: redis: timeout "50": must be a duration from 1ms to 1m`},
		{redis(object{"address": "a:1", "dialTimeout": "0s"}), `store: redis: dialTimeout "0s": must be a duration from 1ms to 1m`},
		{redis(object{"address": "a:1", "timeout": "1s", "backgroundTimeout": "100ms"}), `store: redis: backgroundTimeout 100ms: must not be shorter than the timeout of a decision, 1s`},
		{redis(object{"address": "a:1", "timeout": "1s", "readTimeout": "100ms"}), `store: redis: readTimeout 100ms: must not be shorter than the timeout of a decision, 1s`},
		{redis(object{"address": "a:1", "prefix": "a{b"}), `store: redis: prefix "a{b": must not have braces, which a Redis Cluster finds slots by`},
		{redis(object{"address": "a:1", "keySecret": "file:" + secret, "plainKeys": "true"}), `store: redis: keySecret and plainKeys are mutually exclusive: remove one`},
		{redis(object{"address": "a:1", "plainKeys": "maybe"}), `store: redis: plainKeys "maybe": must be true or false`},
		{redis(object{"address": "a:1", "nodes": 0}), `store: redis: nodes "0": must be a whole number from 1 to 100000`},
		{redis(object{"address": "a:1", "password": "env:WEIR_TEST_MISSING"}), `store: redis: password "env:WEIR_TEST_MISSING": there is no environment variable of that name`},
		{redis(object{"address": "a:1", "password": "env:"}), `store: redis: password "env:": must have a name behind the colon`},
		{redis(object{"address": "a:1", "keySecret": "file:/nonexistent/key"}), `store: redis: keySecret "file:/nonexistent/key": open /nonexistent/key: no such file or directory`},
		{redis(object{"address": "a:1", "tls": object{"ca": "/nonexistent/ca"}}), `store: redis: tls: ca: open /nonexistent/ca: no such file or directory`},
		{redis(object{"address": "a:1", "tls": object{"ca": secret}}), `store: redis: tls: ca: has no certificate in PEM`},
		{redis(object{"address": "a:1", "tls": object{"clientKey": secret}}), `store: redis: tls: clientCertificate and clientKey: need each other`},
		{redis(object{"address": "a:1", "tls": object{"insecureSkipVerify": true}}), `store: redis: tls: "insecureSkipVerify" is not a field; there are ca, clientCertificate, clientKey, serverName`},
		{redis(object{"address": "a:1", "tls": "no"}), `store: redis: tls "no": must be an object with some of ca, clientCertificate, clientKey, serverName`},

		{&Config{Average: "x"}, `rule "api": average "x": must be a whole number from 0 to 1000000000`},
		{&Config{Average: "-1"}, `rule "api": average "-1": must be a whole number from 0 to 1000000000`},
		{&Config{Average: "1", Period: "-1s"}, `rule "api": period "-1s": must be a duration from 1ms to 366d, such as 1s or 1m, or a number of seconds`},
		{&Config{Average: "1", Period: "minute"}, `rule "api": period "minute": must be a duration from 1ms to 366d, such as 1s or 1m, or a number of seconds`},
		{&Config{Average: "1", Rule: Rule{Burst: "-1"}}, `rule "api": burst "-1": must be a whole number from 0 to 1000000000`},
		{&Config{Average: "1", Rule: Rule{Limit: "1/1s"}}, `rule "api": limit "1/1s" and average are mutually exclusive: average is of Traefik's rateLimit; remove one`},
		{&Config{Period: "1", Rule: Rule{Limit: "1/1s"}}, `rule "api": limit "1/1s" and period are mutually exclusive: period is of Traefik's rateLimit; remove one`},
		{&Config{Average: "1", Rules: []Rule{{Name: "a", Limit: "1/1s"}}}, `average and rules are mutually exclusive: average is of Traefik's rateLimit and makes a rule of its own; remove one`},
		{&Config{Redis: object{}, Rules: []Rule{{Name: "a", Limit: "1/1s"}}}, `redis and rules are mutually exclusive: redis is of Traefik's rateLimit and makes a rule of its own; remove one, or write store.redis`},
		{&Config{Average: "1", Rule: Rule{Algorithm: "fixed_window"}}, `rule "api": algorithm "fixed_window": beside average it can only be token_bucket; write limit instead of average`},
		{&Config{Average: "1", Rule: Rule{Key: []string{"host"}}, SourceCriterion: object{"requestHost": true}}, `rule "api": key "host" and sourceCriterion are mutually exclusive: they are two ways to write the same; remove one`},
		{&Config{Average: "1", SourceCriterion: object{"requestHost": true, "requestHeaderName": "X-A"}}, `rule "api": sourceCriterion: requestHeaderName and requestHost are mutually exclusive: remove one`},
		{&Config{Average: "1", SourceCriterion: object{"requestHost": true, "ipStrategy": ""}}, `rule "api": sourceCriterion: ipStrategy and requestHost are mutually exclusive: remove one`},
		{&Config{Average: "1", SourceCriterion: object{"requestHosts": true}}, `sourceCriterion: "requestHosts" is not a field (did you mean requestHost?)`},
		{&Config{Average: "1", SourceCriterion: object{"requestHost": "maybe"}}, `rule "api": sourceCriterion: requestHost "maybe": must be true or false`},
		{&Config{Average: "1", IPStrategy: object{}, SourceCriterion: object{"ipStrategy": object{"depth": 1}}}, `ipStrategy and sourceCriterion.ipStrategy are mutually exclusive: remove one`},
		{&Config{Average: "1", SourceCriterion: object{"ipStrategy": object{"depth": "one"}}}, `sourceCriterion: ipStrategy: depth "one": must be a whole number from 0 to 1000`},
		{&Config{Average: "1", Redis: object{}, Store: object{}}, `redis and store are mutually exclusive: redis is of Traefik's rateLimit; remove one`},
		{dialect(object{"endpoints": "a:1,b:1", "db": 1}), `redis: database 1: a Cluster has only the database 0`},
		{dialect(object{"endpoint": "a:1"}), `redis: "endpoint" is not a field (did you mean endpoints?)`},
		{dialect(object{"db": "x"}), `redis: db "x": must be a whole number from 0 to 1000000`},
		{dialect(object{"readTimeout": "x"}), `redis: readTimeout "x": must be a duration from 0s to 24h`},
		{dialect(object{"poolSize": "x"}), `redis: poolSize "x": must be a whole number from 0 to 1000000`},
		{dialect(object{"tls": object{"cert": secret}}), `redis: tls: cert and key: need each other`},
		{dialect(object{"tls": object{"ca": "hunter2"}}), `redis: tls: ca: is neither a file that can be read nor PEM`},
		{dialect(object{"tls": object{"insecureSkipVerify": "x"}}), `redis: tls: insecureSkipVerify "x": must be true or false`},
	}
	for _, test := range tests {
		s := newStage(t)
		got := s.refused(test.config, "api@file")
		if want := `middleware "api@file": ` + test.want; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if strings.Contains(got, "hunter2") {
			t.Errorf("the error has a secret in it: %s", got)
		}
		if len(s.engines)+s.pending() > 0 || len(s.redis) > 0 {
			t.Errorf("%s: something of it was kept", got)
		}
	}
}

func TestObjectsComeInTheFormsThatProvidersWriteThemIn(t *testing.T) {
	// From a file an empty object comes as an empty text, from labels as true, from Kubernetes as itself; numbers and
	// booleans come as texts or as what they are; lists as such or with commas.
	configs := []*Config{
		{Rule: Rule{Limit: "2/1m", Match: ""}, IPStrategy: "", Store: object{"memory": ""}},
		{Rule: Rule{Limit: "2/1m", Match: "true"}, IPStrategy: "true", Store: object{"memory": "true"}},
		{Rule: Rule{Limit: "2/1m", Match: true}, IPStrategy: true, Store: object{"memory": true}},
		{Rule: Rule{Limit: "2/1m", Match: object{}}, IPStrategy: object{}, Store: object{"memory": object{}}},
		{Rule: Rule{Limit: "2/1m", Match: object{"METHODS": "GET,POST"}}, IPStrategy: object{"depth": ""}, Store: object{"Memory": object{"maxkeys": "7"}}},
		{Rule: Rule{Limit: "2/1m", Match: object{"methods": []interface{}{"GET"}, "hosts": nil}}, IPStrategy: object{"Depth": 0}, Store: object{"memory": object{"maxKeys": 7.0}}},
		{Rule: Rule{Limit: " 2/1m ", Match: object{"methods": []string{" GET "}, "headers": ""}}, IPStrategy: object{"excludedIPs": ""}, Store: object{"memory": object{"maxKeys": int64(7)}}},
		{Rule: Rule{Limit: "2/1m", CountRejected: "0"}, Store: object{"memory": map[string]string{"maxKeys": "7"}}},
	}
	for i, c := range configs {
		s := newStage(t)
		h := s.handler(context.Background(), c, "m@file")
		if got := statuses(h, "192.0.2.1", 3); got != "200 200 429" {
			t.Errorf("configuration %d: %s", i, got)
		}
	}
}

// fieldNames returns the names in a configuration of the fields of a struct.
func fieldNames(v interface{}) []string {
	var names []string
	for i := 0; i < reflect.TypeOf(v).NumField(); i++ {
		name, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
		if name != "-" && name != "" {
			names = append(names, name)
		}
	}
	return names
}

func TestNewNeverPanics(t *testing.T) {
	words := []string{"", "true", "1", "-1", "0", "x", "5/1m", "1/day", "header:", "client_ip", "1s", "10.0.0.0/8", "::1", "/", "a b", "\x00", "{", "999999999999999999999", "NaN", "env:", "file:/", "token_bucket", "leaky_bucket", "redis://a:b@c/d", "interval", "shadow", "UTC", "soft 20% 30s", "delay"}
	rnd := rand.New(rand.NewSource(1))
	word := func() string { return words[rnd.Intn(len(words))] }
	keys := append(fieldNames(config.Redis{}), "depth", "excludedIPs", "ipv6Subnet", "methods", "hosts", "paths", "pathPrefixes", "headers", "exceptIPs", "memory", "redis", "maxKeys", "requestHost", "requestHeaderName", "ipStrategy", "endpoints", "db", "ca", "cert", "key", "source", "limits", "limit", "*", "entries", "algorithm", "burst", "")
	var thing func(depth int) interface{}
	thing = func(depth int) interface{} {
		kinds := 10
		if depth > 3 {
			kinds = 7
		}
		switch rnd.Intn(kinds) {
		case 0:
			return nil
		case 1:
			return rnd.Intn(3) - 1
		case 2:
			return rnd.Float64() * 1e18
		case 3:
			b := rnd.Intn(2) == 0 // apart: Yaegi cannot return a comparison as an interface
			return b
		case 4:
			return []string{word(), word()}
		case 5:
			return []interface{}{word(), nil, 1}
		case 6:
			return word()
		case 7:
			list := []interface{}{thing(depth + 1), thing(depth + 1)}
			return list
		}
		m := object{}
		for i := rnd.Intn(4); i > 0; i-- {
			m[keys[rnd.Intn(len(keys))]] = thing(depth + 1)
		}
		return m
	}
	sometimes := func() string {
		if rnd.Intn(16) > 0 {
			return ""
		}
		return word()
	}
	rule := func() Rule {
		r := Rule{Name: "r", Limit: "5/1m" + sometimes(), TimeZone: sometimes(), Algorithm: sometimes(), Burst: sometimes(), Refill: sometimes(),
			Cost: sometimes(), MaxDelay: sometimes(), IPv4Prefix: sometimes(), IPv6Prefix: sometimes(), Enforcement: sometimes(), OnLimit: sometimes(),
			OnError: sometimes(), OnMissingKey: sometimes(), CountRejected: sometimes(), MaxWaiting: sometimes(), MaxWaitingPerKey: sometimes(), Concurrency: sometimes()}
		if rnd.Intn(2) == 0 {
			r.Match = thing(0)
		}
		if rnd.Intn(2) == 0 {
			r.Key = []string{word()}
		}
		if rnd.Intn(30) == 0 {
			r.Tiers = thing(0)
		}
		if rnd.Intn(30) == 0 {
			r.Overrides = thing(0)
		}
		if rnd.Intn(30) == 0 {
			r.Candidate = thing(0)
		}
		if rnd.Intn(30) == 0 {
			r.Penalty = []string{word(), word()}
		}
		return r
	}
	s := newStage(t)
	file := writeFile(t, t.TempDir()+"/rules.json", `{"rules": [{"name": "of-file", "limit": "5/1m"}], "domain": "d", "descriptors": [{"key": "1", "rate_limit": {"unit": "day", "requests_per_unit": 1}}]}`)
	rounds := 20_000
	if interpreted {
		rounds = 300
	} else if underrace.On {
		rounds = 2000
	}
	taken := 0
	for i := 0; i < rounds; i++ {
		c := &Config{Namespace: sometimes(), Message: word(), Jitter: sometimes(), Average: sometimes(), Period: sometimes()}
		if rnd.Intn(3) == 0 {
			c.Rule = rule()
		} else {
			for j := rnd.Intn(3); j > 0; j-- {
				c.Rules = append(c.Rules, rule())
			}
		}
		if rnd.Intn(2) == 0 {
			c.IPStrategy = thing(0)
		}
		if rnd.Intn(2) == 0 {
			c.Store = object{"memory": thing(0)}
		}
		if rnd.Intn(4) == 0 {
			c.SourceCriterion = thing(0)
		}
		if rnd.Intn(8) == 0 {
			c.RulesFile = []string{file}
			if rnd.Intn(2) == 0 {
				c.Descriptors = thing(0)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		h, err := s.newHandler(ctx, http.NotFoundHandler(), c, word())
		if err != nil {
			if strings.Contains(err.Error(), "panic") {
				t.Fatalf("%+v: %v", *c, err)
			}
		} else {
			taken++
			get(h, "192.0.2.1", nil)
		}
		s.end(ctx, cancel)
	}
	if taken < rounds/100 {
		t.Errorf("of %d configurations only %d were taken", rounds, taken)
	}
}

func TestNewWithNothing(t *testing.T) {
	if _, err := New(context.Background(), nil, CreateConfig(), ""); err == nil {
		t.Error("a configuration without a limit was taken")
	}
	if _, err := New(context.Background(), nil, nil, ""); err == nil {
		t.Error("no configuration was taken")
	}
}

func TestAMessageIsNotAsLongAsTheValueThatIsWrong(t *testing.T) {
	s := newStage(t)
	_, err := s.newHandler(context.Background(), http.NotFoundHandler(), &Config{Rule: Rule{Limit: strings.Repeat("ü", 5000)}}, "m@file")
	if err == nil || len(err.Error()) > 700 || !strings.Contains(err.Error(), `middleware "m@file": rule "m": limit "ü`) {
		t.Errorf("%v", err)
	}
}

func TestADuplicateFieldIsRefused(t *testing.T) {
	s := newStage(t)
	_, err := s.newHandler(context.Background(), http.NotFoundHandler(), &Config{Rule: Rule{Limit: "1/1m"}, IPStrategy: object{"depth": 1, "Depth": 2}}, "m@file")
	if err == nil || !strings.Contains(err.Error(), "duplicate, in upper and lower case") {
		t.Errorf("%v", err)
	}
}

// Traefik gives the one field jitter of a middleware without rules to both that have its name: it is the middleware's.
func TestJitterBesideTheOnlyRuleIsTheMiddlewares(t *testing.T) {
	newStage(t).made(&Config{Jitter: "0.1", Rule: Rule{Jitter: "0.1", Limit: "1/1m", Algorithm: "sliding_window_counter"}}, "api@file")
}
