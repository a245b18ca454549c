package main

import "fmt"

const plain = "plain"

// earlier is the absolute path of a Caddy with an earlier Weir; "": none is compared.
var earlier string

// contestant is a Caddy with a configuration for its limiter.
type contestant struct {
	name   string
	binary string
	zone   func(key string, events int, window string) string // the rate_limit directive
}

// scenario is a limit, and the load on it.
type scenario struct {
	name    string
	title   string
	events  int
	window  string
	keys    int  // how many keys the load has; 1: the client's address, otherwise a header field
	status  int  // the status of a limiter's answers after the first request
	routes  bool // the site has handle_errors
	silence bool // Weir without header fields is measured, too
	redis   bool // Weir counts in Redis, and its peers are not measured
	proxied bool // the site is a reverse proxy, as most are
	guard   bool // Weir with a guard beside the limit, and with a guard alone, is measured, and its peers are not
	defers  bool // Weir beside another rule with "on_limit defer" that gets no requests is measured, and its peers are not
}

var scenarios = []scenario{
	{name: "allowed", title: "Allowed, one key", events: 1_000_000, window: "1m", keys: 1, status: 200, silence: true},
	{name: "keys", title: "Allowed, 20,000 keys", events: 1000, window: "1m", keys: 20_000, status: 200, silence: true},
	{name: "rejected", title: "Rejected, without error routes", events: 1, window: "1h", keys: 1, status: 429, silence: true},
	{name: "routed", title: "Rejected, with error routes", events: 1, window: "1h", keys: 1, status: 429, routes: true, silence: true},
	{name: "guard", title: "Allowed, 20,000 keys, with a guard", events: 1_000_000, window: "1m", keys: 20_000, status: 200, guard: true},
	{name: "guard-proxied", title: "Allowed, 20,000 keys, with a guard, by a reverse proxy", events: 1_000_000, window: "1m", keys: 20_000, status: 200, guard: true, proxied: true},
	{name: "defer", title: "Allowed, 20,000 keys, beside a rule that defers", events: 1_000_000, window: "1m", keys: 20_000, status: 200, defers: true},
	{name: "redis", title: "Allowed, 20,000 keys, counted in Redis", events: 1_000_000, window: "1m", keys: 20_000, status: 200, silence: true, redis: true},
	{name: "redis-proxied", title: "Allowed, 20,000 keys, counted in Redis, by a reverse proxy", events: 1_000_000, window: "1m", keys: 20_000, status: 200, silence: true, redis: true, proxied: true},
}

// keyHeader is the header field that identifies clients if there are several.
const keyHeader = "X-Bench-Key"

func (s scenario) contestants() []contestant {
	all := []contestant{
		{"no limiter", plain, func(string, int, string) string { return "" }},
		{"Weir", "weir", func(key string, events int, window string) string { return weirZone(key, events, window, "") }},
	}
	if s.silence {
		all = append(all, contestant{"Weir, `headers none`", "weir", func(key string, events int, window string) string {
			return weirZone(key, events, window, "headers none")
		}})
	}
	if s.defers {
		all = append(all, contestant{"Weir, beside `on_limit defer`", "weir", func(key string, events int, window string) string {
			return "handle /orders* {\n\t\t" + deferring("1/1s", "path /orders/jobs", "durability best_effort", redisAddress) + "\n\t}\n\t" + weirZone(key, events, window, "")
		}})
	}
	if earlier != "" {
		return append(all, contestant{"Weir, before", earlier, all[1].zone})
	}
	if s.guard {
		const guard = "guard {\n\t\t\tmax 100000\n\t\t}"
		return append(all, contestant{"Weir, `guard`", "weir", func(key string, events int, window string) string {
			return weirZone(key, events, window, guard)
		}}, contestant{"Weir, `guard` alone", "weir", func(string, int, string) string { return "rate_limit {\n\t\t" + guard + "\n\t}" }})
	}
	if s.redis || s.defers {
		return all
	}
	return append(all, contestant{"caddy-ratelimit", "ratelimit", func(key string, events int, window string) string {
		if key == "{client_ip}" {
			key = "{remote_host}"
		}
		return fmt.Sprintf("rate_limit {\n\t\tzone bench {\n\t\t\tkey %s\n\t\t\tevents %d\n\t\t\twindow %s\n\t\t}\n\t}", key, events, window)
	}})
}

func weirZone(key string, events int, window, more string) string {
	return fmt.Sprintf("rate_limit {\n\t\tzone bench {\n\t\t\tkey %s\n\t\t\tlimit %d/%s\n\t\t}\n\t\t%s\n\t}", key, events, window, more)
}

// caddyfile returns the configuration, with %s for the address to listen on. Logging is Caddy's default, to standard error, which nobody
// reads.
func (s scenario) caddyfile(c contestant) string {
	key := "{client_ip}"
	if s.keys > 1 {
		key = "{header." + keyHeader + "}"
	}
	errors := ""
	if s.routes {
		errors = "handle_errors {\n\t\trespond \"slow down\"\n\t}"
	}
	answer := "respond \"ok\""
	if s.proxied {
		answer = "reverse_proxy " + upstreamAddress
	}
	store := ""
	if s.redis && c.binary != plain {
		store = "\trate_limit {\n\t\tstore redis " + redisAddress + " {\n\t\t\tnodes 1\n\t\t}\n\t}\n"
	}
	return "{\n\tadmin off\n\tpersist_config off\n\tauto_https off\n" + store + "}\nhttp://%s {\n\t" +
		c.zone(key, s.events, s.window) + "\n\t" + answer + "\n\t" + errors + "\n}\n"
}
