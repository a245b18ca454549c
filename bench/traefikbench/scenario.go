package main

import (
	"fmt"
	"regexp"
	"strings"
)

// scenario is a middleware of Traefik, and the load on it.
type scenario struct {
	name       string
	title      string
	limit      string
	middleware string // in YAML; REDIS stands for Redis's address
	status     int    // the status of answers after the first
	fields     bool   // answers must have all the fields of fieldNames
	redis      bool   // the scenario needs Redis
	clients    clients
	like       string  // the name of the scenario that it is to be as fast as; "": none
	least      float64 // the target: how many requests a second it has at least, relative to those of like; 0: there is none
}

// clients says which clients the requests of a load seem to come from.
type clients int

const (
	one       clients = iota // one address
	forwarded                // for each connection an address in X-Forwarded-For, which Traefik trusts
	many                     // connections from many addresses, far more than concurrent requests
	keyed                    // one address, with as many keys in keyHeader
	fresh                    // one address, with a new key in keyHeader for each request
)

// base returns the name of the scenario without a middleware with which this one is compared.
func (s scenario) base() string {
	switch s.clients {
	case forwarded:
		return "none-forwarded"
	case many:
		return "none-many"
	}
	return "none"
}

// keyHeader is the header field with the key of clients that are keyed. Every request has it, in every scenario.
const keyHeader = "X-Bench-Key"

// fieldNames are the header fields of answers of Weir, and of the plugin that has them prebuilt.
var fieldNames = []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Ratelimit", "Ratelimit-Policy"}

// The limits. Clients exceed only the last. The numbers are small, as most are in practice, since the answers have the units left.
const (
	perMilli = "1000/1ms"
	perTick  = "1000/20ms" // 50,000 per second, which one core of Traefik does not reach
	perHour  = "5000/1h"   // for many clients: none is forgotten between two of its requests
	large    = "500000/1m"
	hourly   = "1/1h" // all exceed it
)

const legend = `All requests pass and have one key, unless the row says otherwise. With a limit per millisecond nearly every request finds the whole
quota left; with one per 20 ms, less. A leaky bucket never delays a request. Traefik's rateLimit sets no header fields; Weir's five are
X-RateLimit-Limit, -Remaining and -Reset, RateLimit and RateLimit-Policy.
`

// scenarios are in the order of the table. Each has a router on an entry point of its own: Traefik would try routers on the same one one after
// the other, which makes the last ones slower.
var scenarios = []scenario{
	{name: "none", title: "no middleware", status: 200},
	{name: "plugin-nothing", title: "a plugin that does nothing", middleware: "plugin: {tiny: {kind: nothing}}", status: 200},
	{name: "plugin-headers", title: "a plugin that sets five prebuilt header fields", middleware: "plugin: {tiny: {kind: headers}}", status: 200, fields: true},
	{name: "native", title: "Traefik's rateLimit", limit: perMilli, middleware: "rateLimit: {average: 1000, period: 1ms, burst: 1000}", status: 200},
	weir("token-bucket", "Weir, token_bucket", perMilli, tokenBucket).asFastAs(fieldsAlone).must(0.92),
	weir("guard", "Weir, token_bucket, `guard`", perMilli, tokenBucket+", guard: {max: 512, min: 512}").asFastAs("weir-token-bucket"),
	weir("adapt", "Weir, token_bucket, `adapt`", perMilli, tokenBucket+", adapt: {ceiling: 2000/1ms}, advisor: {url: 'http://127.0.0.1:1/v1/advice'}").asFastAs("weir-token-bucket"),
	weir("guard-busy", "Weir, token_bucket, `guard`, half of its limit in use", perMilli, tokenBucket+", guard: {max: 64, min: 64}").asFastAs("weir-token-bucket"),
	guardAlone,
	weir("large", "Weir, token_bucket, a large limit", large, tokenBucket).asFastAs(fieldsAlone).must(0.88),
	weir("sliding-window-counter", "Weir, sliding_window_counter", perTick, "algorithm: sliding_window_counter").asFastAs(fieldsAlone),
	weir("fixed-window", "Weir, fixed_window", perTick, "algorithm: fixed_window").asFastAs(fieldsAlone),
	weir("leaky-bucket", "Weir, leaky_bucket", perMilli, "algorithm: leaky_bucket").asFastAs(fieldsAlone),
	weir("sliding-window-log", "Weir, sliding_window_log", perTick, "algorithm: sliding_window_log").asFastAs(fieldsAlone).must(0.85),
	weir("no-fields", "Weir, token_bucket, `headers: none`", perMilli, tokenBucket+", headers: none").asFastAs(nothing).must(0.92),
	weir("two-rules", "Weir, two rules: token_bucket and sliding_window_counter", perMilli+", "+perTick, twoRules).asFastAs(fieldsAlone).must(0.85),
	weir("four-rules", "Weir, four rules", perMilli+", "+perTick, fourRules).asFastAs(fieldsAlone).must(0.55),
	weir("metrics-header", "Weir, token_bucket, 512 keys in a header, `metrics`", perHour, tokenBucket+byHeader+", metrics: {path: /metrics}").from(keyed).asFastAs("weir-header").must(0.96),
	weir("header", "Weir, token_bucket, 512 keys in a header", perHour, tokenBucket+byHeader).from(keyed).asFastAs(fieldsAlone).must(0.85),
	weir("new-keys", "Weir, token_bucket, a new key in every request's header", perHour, tokenBucket+byHeader).from(fresh).asFastAs(fieldsAlone).must(0.7),
	weir("metrics", "Weir, token_bucket, `metrics`", perMilli, tokenBucket+", metrics: {path: /metrics}").asFastAs("weir-token-bucket").must(0.96),
	weir("metrics-counter", "Weir, sliding_window_counter, `metrics`", perTick, "algorithm: sliding_window_counter, metrics: {path: /metrics}").asFastAs("weir-sliding-window-counter").must(0.96),
	weir("metrics-two-rules", "Weir, two rules, `metrics`", perMilli+", "+perTick, twoRules+", metrics: {path: /metrics}").asFastAs("weir-two-rules").must(0.96),
	{name: "none-forwarded", title: "no middleware, X-Forwarded-For trusted", status: 200, clients: forwarded},
	{name: fieldsAlone + "-forwarded", title: "five prebuilt header fields, X-Forwarded-For trusted", middleware: "plugin: {tiny: {kind: headers}}", status: 200, fields: true, clients: forwarded},
	weir("depth", "Weir, token_bucket, `ipStrategy.depth: 1`", perMilli, tokenBucket+", ipStrategy: {depth: 1}").from(forwarded).asFastAs(fieldsAlone + "-forwarded").must(0.85),
	{name: "none-many", title: "no middleware, 512 addresses", status: 200, clients: many},
	{name: fieldsAlone + "-many", title: "five prebuilt header fields, 512 addresses", middleware: "plugin: {tiny: {kind: headers}}", status: 200, fields: true, clients: many},
	weir("addresses", "Weir, token_bucket, 512 addresses", perHour, tokenBucket).from(many).asFastAs(fieldsAlone + "-many").must(0.85),
	{name: "native-redis", title: "Traefik's rateLimit, Redis", limit: perMilli, middleware: "rateLimit: {average: 1000, period: 1ms, burst: 1000, redis: {endpoints: ['REDIS']}}", status: 200, redis: true},
	weir("redis-token-bucket", "Weir, token_bucket, Redis", perMilli, tokenBucket).inRedis().asFastAs("native-redis").must(1),
	weir("redis-sliding-window-counter", "Weir, sliding_window_counter, Redis", perTick, "algorithm: sliding_window_counter").inRedis().asFastAs("native-redis"),
	weir("redis-two-rules", "Weir, two rules, Redis", perMilli+", "+perTick, twoRules).inRedis().asFastAs("native-redis").must(0.6),
	weir("redis-metrics", "Weir, token_bucket, Redis, `metrics`", perMilli, tokenBucket+", metrics: {path: /metrics}").inRedis().asFastAs("weir-redis-token-bucket").must(0.96),
	{name: "native-rejected", title: "rejected: Traefik's rateLimit", limit: hourly, middleware: "rateLimit: {average: 1, period: 1h, burst: 1}", status: 429},
	weir("rejected", "rejected: Weir, token_bucket", hourly, tokenBucket).rejected().asFastAs("native-rejected").must(0.6),
	weir("two-rules-rejected", "rejected by one of two rules: Weir", hourly+", "+perTick, rejectingRules).rejected().asFastAs("native-rejected").must(0.4),
	weir("metrics-rejected", "rejected: Weir, token_bucket, `metrics`", hourly, tokenBucket+", metrics: {path: /metrics}").rejected().asFastAs("weir-rejected").must(0.96),
	{name: "native-redis-rejected", title: "rejected: Traefik's rateLimit, Redis", limit: hourly, middleware: "rateLimit: {average: 1, period: 1h, burst: 1, redis: {endpoints: ['REDIS']}}", status: 429, redis: true},
	weir("redis-rejected", "rejected: Weir, token_bucket, Redis", hourly, tokenBucket).inRedis().rejected().asFastAs("native-redis-rejected").must(0.9),
	weir("redis-two-rules-rejected", "rejected by one of two rules: Weir, Redis", hourly+", "+perTick, rejectingRules).inRedis().rejected().asFastAs("native-redis-rejected"),
}

const (
	nothing     = "plugin-nothing"
	fieldsAlone = "plugin-headers"

	tokenBucket = "algorithm: token_bucket"
	byHeader    = ", key: 'header:" + keyHeader + "'"
	shortRule   = "{name: short, limit: " + perMilli + ", algorithm: token_bucket}"
	longRule    = "{name: long, limit: " + perTick + ", algorithm: sliding_window_counter}"
	twoRules    = "rules: [" + shortRule + ", " + longRule + "]"
	fourRules   = "rules: [" + shortRule + ", " + longRule + ", {name: window, limit: " + perTick + ", algorithm: fixed_window}, {name: leaky, limit: " + perMilli + ", algorithm: leaky_bucket}]"

	rejectingRules = "rules: [" + longRule + ", {name: spent, limit: " + hourly + ", algorithm: token_bucket}]"
)

// guardAlone has no limit, and a guard whose limit is far away.
var guardAlone = scenario{name: "weir-guard-alone", title: "Weir, `guard` alone", middleware: "plugin: {weir: {guard: {max: 512, min: 512}}}", status: 200}

// weir returns a scenario of Weir in memory. If config has no rules, the scenario has one rule, with the limit.
func weir(name, title, limit, config string) scenario {
	if !strings.HasPrefix(config, "rules") {
		config = "limit: " + limit + ", " + config
	}
	return scenario{name: "weir-" + name, title: title, limit: limit, middleware: "plugin: {weir: {" + config + "}}", status: 200, fields: !strings.Contains(config, "headers: none")}
}

func (s scenario) from(c clients) scenario {
	s.clients = c
	return s
}

// must sets the target.
func (s scenario) must(least float64) scenario {
	s.least = least
	return s
}

func (s scenario) asFastAs(like string) scenario {
	s.like = like
	return s
}

func (s scenario) inRedis() scenario {
	s.redis = true
	s.middleware = strings.TrimSuffix(s.middleware, "}}") + ", store: {redis: {address: 'REDIS', nodes: 1}}}}"
	return s
}

func (s scenario) rejected() scenario {
	s.status = 429
	return s
}

// selected returns the scenarios whose names match a pattern, and those with which they are compared.
func selected(pattern *regexp.Regexp) []scenario {
	needed := make(map[string]bool)
	for _, s := range scenarios {
		if pattern.MatchString(s.name) {
			needed[s.name], needed[s.base()], needed[s.like] = true, true, true
		}
	}
	var list []scenario
	for _, s := range scenarios {
		if needed[s.name] {
			list = append(list, s)
		}
	}
	return list
}

// dynamic returns the dynamic configuration: for each scenario a router, with its middleware.
func dynamic(list []scenario, service, redis string) string {
	var routers, middlewares strings.Builder
	for _, s := range list {
		uses := ""
		if s.middleware != "" {
			uses = ", middlewares: [" + s.name + "]"
			fmt.Fprintf(&middlewares, "    %s: {%s}\n", s.name, strings.ReplaceAll(s.middleware, "REDIS", redis))
		}
		fmt.Fprintf(&routers, "    %s: {entryPoints: [%s], rule: 'PathPrefix(`/`)', service: ok%s}\n", s.name, s.name, uses)
	}
	all := "http:\n  services:\n    ok: {loadBalancer: {servers: [{url: 'http://" + service + "'}]}}\n  routers:\n" + routers.String()
	if middlewares.Len() > 0 {
		all += "  middlewares:\n" + middlewares.String()
	}
	return all
}
