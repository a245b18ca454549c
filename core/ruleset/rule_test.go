package ruleset

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// compiledRule compiles a rule, whose name and limit are there unless they are said, and returns what is wrong with it as
// "path: text".
func compiledRule(text written) (*Rule, []string) {
	if text.Name == "" {
		text.Name = "r"
	}
	if text.Limit == "" && text.Tiers == nil {
		text.Limit = "100/1m"
	}
	r, errors := Compile(textOf(text), Context{Prefixes: Standard})
	list := make([]string, 0, len(errors))
	for _, e := range errors {
		list = append(list, strings.Join(e.Path, ".")+": "+e.Error())
	}
	return r, list
}

func mustCompile(t *testing.T, text written) *Rule {
	t.Helper()
	r, errors := compiledRule(text)
	if len(errors) > 0 {
		t.Fatalf("%+v: %s", text, strings.Join(errors, "\n"))
	}
	return r
}

func tiers(source string, pairs ...string) *writtenTiers {
	t := &writtenTiers{source: source}
	for i := 0; i+1 < len(pairs); i += 2 {
		t.limits = append(t.limits, Pair{pairs[i], pairs[i+1]})
	}
	return t
}

func TestCompileSaysAllThatIsWrong(t *testing.T) {
	const sources = "client_ip, remote_ip, host, method, path, path_segment, path_regexp, header, cookie, query, unverified_jwt_claim, client_cert, static"
	for _, c := range []struct {
		text written
		want []string
	}{
		{written{Name: "a b"}, []string{`name: name "a b": must be 1 to 64 of A-Z a-z 0-9 _ . -`}},
		{written{Limit: "unlimited", OnMissingKey: "reject"}, []string{`on_missing_key: on_missing_key "reject": has no effect on a rule without any limit; write a limit, or leave it out`}},
		{written{Limit: " "}, []string{`limit: limit: is missing; write one such as 100/1m`}},
		{written{Key: []string{"{http.rate_limit.path_segment:2}"}}, []string{`key.0: key "{http.rate_limit.path_segment:2}": the source must be one of ` + sources + `; the form in braces is Caddy's: write path_segment:2`}},
		{written{Key: []string{"first(header:X-User, client_ip)"}, Overrides: []override{{[]string{"acme"}, "9/1m"}}}, []string{
			`overrides.0.key: overrides: "acme": must have the source that it comes from in front, such as header:X-User=…`}},
		{written{Key: []string{"first(header:X-User, client_ip)"}, Overrides: []override{{[]string{"client_ip=2001:db8::7"}, "9/1m"}}}, []string{
			`overrides.0.key: overrides: "2001:db8::7": has one counter with all of 2001:db8::/64 (ipv6_prefix 64), so that this would be their limit, too; write 2001:db8::/64 if that is meant, else count by addresses`}},
		{written{Key: []string{"first(header:X-User, client_ip)"}, Overrides: []override{{[]string{"client_ip=acme"}, "9/1m"}}}, []string{
			`overrides.0.key: overrides: "acme": must be an address, such as 192.0.2.7, or a network such as 2001:db8::/64; addresses that are not to be counted are written in match: except_ips`}},
		{written{Tiers: tiers("first(header:X-Plan, query:plan)", "*", "1/1m")}, []string{
			`tiers.source: tiers: source "first(header:X-Plan, query:plan)": is only for the key of a rule; write one source here`}},
		{written{Match: &match.Match{Query: map[string]string{"a=b": "c"}}}, []string{`match.query: match: query: "a=b": must have the name of the parameter alone, such as query:token`}},
		{written{Match: &match.Match{Cookies: map[string]string{"a": "^b"}}}, []string{
			`match.cookies: match: cookies: a: "^b" looks like a regular expression, which is not available; write "text*" for what begins with a text, "*text" for what ends with it, "*text*" for what has it, and a ! in front for the others`}},
		{written{Limit: "100"}, []string{`limit: limit "100": has no period; write <requests>/<period>, such as 100/1m`}},
		{written{Limit: "0/1m"}, []string{`limit: limit "0/1m": the requests must be a whole number from 1 to 1000000000`}},
		{written{Limit: "Unlimited"}, []string{`limit: limit "Unlimited": has no period; write <requests>/<period>, such as 100/1m (did you mean unlimited?)`}},
		{written{Limit: "100001/1m", Algorithm: "sliding_window_log"}, []string{`limit: limit "100001/1m": requests 100001: a sliding_window_log keeps a time for each request and takes at most 100000; sliding_window_counter takes more`}},
		{written{Limit: "5/day", Algorithm: "token_bucket"}, []string{`limit: limit "5/day": period "day": only fixed_window follows the calendar, not token_bucket; write a duration such as 24h`}},
		{written{Match: &match.Match{Methods: []string{""}}}, []string{`match.methods: match: methods: "" is not a method; write one such as POST, each for itself, or !POST for all others`}},
		{written{Match: &match.Match{Hosts: []string{"a/b"}}}, []string{`match.hosts: match: hosts: "a/b" must be a host name without port, or *. and one; write a`}},
		{written{Match: &match.Match{PathPrefixes: []string{"v1"}}}, []string{`match.path_prefixes: match: path_prefixes: "v1" must begin with /`}},
		{written{Match: &match.Match{ExceptIPs: []string{"x"}}}, []string{`match.except_ips: match: except_ips: "x" must be an address or a network such as 10.0.0.0/8`}},
		{written{Match: &match.Match{Headers: map[string]string{"": "x"}}}, []string{`match.headers: match: headers: "" cannot be the name of a header field`}},
		{written{Key: []string{"ip"}}, []string{`key.0: key "ip": the source must be one of ` + sources}},
		{written{Key: []string{"host", "header"}}, []string{`key.1: key "header": write header:NAME`}},
		{written{Key: []string{"{http.request.host}"}}, []string{`key.0: key "{http.request.host}": the source must be one of ` + sources + `; placeholders are Caddy's alone: have request_header set a field to it, and take header:NAME`}},
		{written{Algorithm: "bucket"}, []string{`algorithm: algorithm "bucket": must be one of token_bucket, leaky_bucket, fixed_window, sliding_window_log, sliding_window_counter`}},
		{written{Algorithm: "bucket", Limit: "x"}, []string{`algorithm: algorithm "bucket": must be one of token_bucket, leaky_bucket, fixed_window, sliding_window_log, sliding_window_counter`, `limit: limit "x": has no period; write <requests>/<period>, such as 100/1m`}},
		{written{Burst: "0"}, []string{`burst: burst "0": must be a whole number from 1 to 1000000000`}},
		{written{Burst: "5"}, []string{`burst: burst 5: only token_bucket and leaky_bucket have a burst, not sliding_window_counter`}},
		{written{Algorithm: "token_bucket", Limit: "1/366d", Burst: "1000"}, []string{`burst: burst 1000: at 1 per 366d a full bucket would take more than 10 years to drain`}},
		{written{Segments: "61"}, []string{`segments: segments "61": must be a whole number from 2 to 60`}},
		{written{Segments: "1"}, []string{`segments: segments "1": must be a whole number from 2 to 60`}},
		{written{Segments: "12", Algorithm: "fixed_window"}, []string{`segments: segments 12: only sliding_window_counter has segments, not fixed_window`}},
		{written{Segments: "12", Limit: "5/day"}, []string{`segments: segments 12: only sliding_window_counter has segments, not fixed_window`}},
		{written{WindowStart: "first"}, []string{`window_start: window_start "first": must be clock, first_request or spread`}},
		{written{WindowStart: "first_request"}, []string{`window_start: window_start "first_request": the window of a sliding_window_counter slides, so that its quota comes back bit by bit wherever it begins; choose the algorithm fixed_window, or window_start spread`}},
		{written{WindowStart: "spread", Algorithm: "token_bucket"}, []string{`window_start: window_start "spread": only fixed_window and sliding_window_counter have windows, not token_bucket`}},
		{written{WindowStart: "clock", Algorithm: "token_bucket"}, []string{`window_start: window_start "clock": only fixed_window and sliding_window_counter have windows, not token_bucket`}},
		{written{WindowStart: "spread", Limit: "5/day"}, []string{`window_start: window_start "spread": a day of the calendar begins at midnight; write a duration, such as 24h, or leave it out`}},
		{written{WindowStart: "spread", Consistency: "eventual"}, []string{`consistency: consistency eventual: the limit 100/1m sliding_window_counter window_start spread has windows of each key's own, and nodes tell each other what they have admitted in windows of the clock; choose window_start clock, or consistency strict or lease`}},
		{written{Jitter: "2"}, []string{`jitter: jitter "2": must be a fraction of the period from 0 to 1, such as 0.1 for a tenth`}},
		{written{Jitter: "NaN"}, []string{`jitter: jitter "NaN": must be a fraction of the period from 0 to 1, such as 0.1 for a tenth`}},
		{written{Jitter: "0.1"}, []string{`jitter: jitter "0.1": is for quotas that are renewed for all keys at once: of a fixed_window whose windows begin by the clock or the calendar, and of a token_bucket with refill interval; this one is renewed at a time of each key's own, leave it out`}},
		{written{Jitter: "0", Algorithm: "fixed_window", WindowStart: "spread"}, []string{`jitter: jitter "0": is for quotas that are renewed for all keys at once: of a fixed_window whose windows begin by the clock or the calendar, and of a token_bucket with refill interval; this one is renewed at a time of each key's own, leave it out`}},
		{written{Limit: "5/month on 32"}, []string{`limit: limit "5/month on 32": a month begins on a day from 1 to 31, such as month on 17, not on "32"`}},
		{written{Limit: "5/week on 3"}, []string{`limit: limit "5/week on 3": a week begins on a day from monday to sunday, such as week on sunday, not on "3"`}},
		{written{Limit: "5/day on 3"}, []string{`limit: limit "5/day on 3": a day begins at midnight; leave "on 3" out`}},
		{written{Limit: "5/1m on 3"}, []string{`limit: limit "5/1m on 3": only a week or a month begins on a day; write such as 5/month on 17, or leave it out`}},
		{written{Refill: "intervall"}, []string{`refill: refill "intervall": must be continuous or interval (did you mean interval?)`}},
		{written{Refill: "interval"}, []string{`refill: refill "interval": only token_bucket is refilled`}},
		{written{Cost: "0"}, []string{`cost: cost "0": must be a whole number from 1 to 1000000000, or header:NAME, query:NAME or cookie:NAME that has one; 0 is for rules with cost_response`}},
		{written{Cost: "header:"}, []string{`cost: cost "header:": write header:NAME`}},
		{written{Cost: "path"}, []string{`cost: cost "path": must be a whole number from 1 to 1000000000, or header:NAME, query:NAME or cookie:NAME that has one`}},
		{written{Cost: "101"}, []string{`cost: cost 101: is more than the limit 100/1m sliding_window_counter can ever hold, which is 100, so that every request would be rejected`}},
		{written{Cost: "9", Tiers: tiers("path", "/a", "8/1m", "/b", "7/1m", "/c", "7/1h", "*", "10/1m")}, []string{`cost: cost 9: is more than the limit 7/1h sliding_window_counter can ever hold, which is 7, so that every request would be rejected`}},
		{written{Cost: "9", Overrides: []override{{[]string{"192.0.2.1"}, "8/1m"}}}, []string{`cost: cost 9: is more than the limit 8/1m sliding_window_counter can ever hold, which is 8, so that every request would be rejected`}},
		{written{MaxDelay: "5s"}, []string{`max_delay: max_delay 5s: only leaky_bucket and on_limit delay make requests wait, not sliding_window_counter`}},
		{written{Algorithm: "leaky_bucket", MaxDelay: "2h"}, []string{`max_delay: max_delay "2h": must be a duration from 1ms to 1h`}},
		{written{Algorithm: "leaky_bucket", MaxDelay: "5"}, []string{`max_delay: max_delay "5": must be a duration from 1ms to 1h`}},
		{written{TimeZone: "Berlin", Limit: "5/day"}, []string{`time_zone: time_zone "Berlin": must be a name of the time zone database, such as UTC or Europe/Berlin`}},
		{written{TimeZone: "Local", Limit: "5/day"}, []string{`time_zone: time_zone "Local": must be a name of the time zone database, such as UTC or Europe/Berlin`}},
		{written{TimeZone: "UTC"}, []string{`time_zone: time_zone "UTC": only windows of the calendar have one (limit <requests>/day, /week or /month)`}},
		{written{TimeZone: "UTC", Tiers: tiers("path", "*", "5/1m")}, []string{`time_zone: time_zone "UTC": only windows of the calendar have one (limit <requests>/day, /week or /month)`}},
		{written{TimeZone: "UTC", Limit: "unlimited"}, []string{`time_zone: time_zone "UTC": only windows of the calendar have one (limit <requests>/day, /week or /month)`}},
		{written{IPv4Prefix: "33"}, []string{`ipv4_prefix: ipv4_prefix "33": must be a whole number from 1 to 32`}},
		{written{IPv6Prefix: "0"}, []string{`ipv6_prefix: ipv6_prefix "0": must be a whole number from 1 to 128`}},
		{written{Enforcement: "shadows"}, []string{`enforcement: enforcement "shadows": must be hard, shadow, soft <percent> <duration> or <percent>% (did you mean shadow?)`}},
		{written{OnLimit: "defer"}, []string{`on_limit: on_limit "defer": is only for zones of Caddy; use reject or delay`}},
		{written{OnLimit: "drop"}, []string{`on_limit: on_limit "drop": must be reject or delay`}},
		{written{OnError: "close"}, []string{`on_error: on_error "close": must be one of local, open, closed (did you mean closed?)`}},
		{written{OnMissingKey: "skipp"}, []string{`on_missing_key: on_missing_key "skipp": must be share, skip or reject (did you mean skip?)`}},
		{written{CountRejected: "yes"}, []string{`count_rejected: count_rejected "yes": must be true or false`}},
		{written{Tiers: tiers("", "*", "5/1m")}, []string{`tiers: tiers: source: is missing; write what the tier is read from, such as header:X-Plan`}},
		{written{Tiers: tiers("plan", "*", "5/1m")}, []string{`tiers.source: tiers: source "plan": the source must be one of ` + sources}},
		{written{Tiers: tiers("path")}, []string{`tiers: tiers: limits: is missing; write a limit for each value, such as pro: 1000/1m`}},
		{written{Tiers: tiers("path", "/pro", "9/1m")}, []string{`tiers.limits: tiers: say nothing of other values; write "*": 50/1m, or limit beside the tiers`}},
		{written{Limit: "5/1m", Tiers: tiers("path", "/pro", "9/1m", "*", "5/1m")}, []string{`tiers.limits.*: tiers: "*" and limit are mutually exclusive: both are for all values without a tier; remove one`}},
		{written{Limit: "unlimited", Tiers: tiers("path", "/pro", "9/1m", "*", "5/1m")}, []string{`tiers.limits.*: tiers: "*" and limit are mutually exclusive: both are for all values without a tier; remove one`}},
		{written{Tiers: tiers("path", "/pro", "9/1m", "/pro", "8/1m", "*", "5/1m")}, []string{`tiers.limits./pro: tiers: "/pro": duplicate value; keep one`}},
		{written{Tiers: tiers("path", "/pro", "9", "*", "many")}, []string{
			`tiers.limits./pro: tiers: "/pro": limit "9": has no period; write <requests>/<period>, such as 9/1m`,
			`tiers.limits.*: tiers: "*": limit "many": has no period; write <requests>/<period>, such as 100/1m`,
		}},
		{written{Overrides: []override{{nil, "5/1m"}, {[]string{""}, "5/1m"}}}, []string{
			`overrides.0: overrides: key: is missing; write the key whose limit it is`,
			`overrides.1: overrides: key: is missing; write the key whose limit it is`,
		}},
		{written{Key: []string{"client_ip", "path"}, Overrides: []override{{[]string{"192.0.2.1"}, "5/1m"}, {[]string{"192.0.2.1", "/a"}, "x"}}}, []string{
			`overrides.0.key: overrides: "192.0.2.1": has 1 values, and the rule's key 2 parts`,
			`overrides.1.limit: overrides: "192.0.2.1 /a": limit "x": has no period; write <requests>/<period>, such as 100/1m`,
		}},
		// An address that shares its counter with a network has no limit of its own, neither where the rule says the prefix nor where it is the standard.
		{written{IPv4Prefix: "24", Overrides: []override{{[]string{"192.0.2.1"}, "5/1m"}, {[]string{"192.0.2.0/24"}, "5/1m"}, {[]string{"2001:db8::7"}, "5/1m"}}}, []string{
			`overrides.0.key: overrides: "192.0.2.1": has one counter with all of 192.0.2.0/24 (ipv4_prefix 24), so that this would be their limit, too; write 192.0.2.0/24 if that is meant, else count by addresses`,
			`overrides.2.key: overrides: "2001:db8::7": has one counter with all of 2001:db8::/64 (ipv6_prefix 64), so that this would be their limit, too; write 2001:db8::/64 if that is meant, else count by addresses`,
			`overrides.1.key: overrides: "192.0.2.0/24": duplicate key; keep one`,
		}},
		{written{Key: []string{"header:X-Ip"}, IPv4Prefix: "24", Overrides: []override{{[]string{"192.0.2.1"}, "5/1m"}}}, []string{
			`overrides.0.key: overrides: "192.0.2.1": has one counter with all of 192.0.2.0/24 (ipv4_prefix 24), so that this would be their limit, too; write 192.0.2.0/24 if that is meant, else count by addresses`,
		}},
		{written{IPv4Prefix: "24", Overrides: []override{{[]string{"192.0.2.0/24"}, "5/1m"}, {[]string{"192.0.2.9/24"}, "5/1m"}}}, []string{`overrides.1.key: overrides: "192.0.2.9/24": duplicate key; keep one`}},
		// Nor has a network that is no key of the rule, nor what is no address.
		{written{IPv4Prefix: "24", Overrides: []override{{[]string{"10.0.0.0/8"}, "5/1m"}, {[]string{"10.0.0.16/28"}, "5/1m"}, {[]string{"2001:db8::/32"}, "5/1m"}, {[]string{"home"}, "5/1m"}}}, []string{
			`overrides.0.key: overrides: "10.0.0.0/8": is no client: it is counted by smaller networks, such as 10.0.0.0/24 (ipv4_prefix 24); name one, or count by larger ones (ipv4_prefix 8); addresses that are not to be counted are written in match: except_ips`,
			`overrides.1.key: overrides: "10.0.0.16/28": is a part of 10.0.0.0/24, which is counted as one (ipv4_prefix 24); addresses that are not to be counted are written in match: except_ips`,
			`overrides.2.key: overrides: "2001:db8::/32": is no client: it is counted by smaller networks, such as 2001:db8::/64 (ipv6_prefix 64); name one, or count by larger ones (ipv6_prefix 32); addresses that are not to be counted are written in match: except_ips`,
			`overrides.3.key: overrides: "home": must be an address, such as 192.0.2.7, or a network such as 192.0.2.0/24 or 2001:db8::/64; addresses that are not to be counted are written in match: except_ips`,
		}},
		{written{Overrides: []override{{[]string{"10.0.0.0/8"}, "5/1m"}}}, []string{`overrides.0.key: overrides: "10.0.0.0/8": is no client: each of its addresses is counted by itself; name one, or count by such networks (ipv4_prefix 8); addresses that are not to be counted are written in match: except_ips`}},
		// Nor a path or a method that no request has; and the spellings of one are one.
		{written{Key: []string{"path"}, Overrides: []override{{[]string{"login"}, "5/1m"}, {[]string{"/login"}, "5/1m"}, {[]string{"//Login"}, "5/1m"}}}, []string{
			`overrides.0.key: overrides: "login": must be a path, which begins with /`,
			`overrides.2.key: overrides: "//Login": duplicate key; keep one`,
		}},
		{written{Key: []string{"method", "host"}, Overrides: []override{{[]string{"P T", "a.example"}, "5/1m"}, {[]string{"post", "A.example."}, "5/1m"}, {[]string{"POST", "a.example:80"}, "5/1m"}}}, []string{
			`overrides.0.key: overrides: "P T": must be a method such as POST`,
			`overrides.2.key: overrides: "POST a.example:80": duplicate key; keep one`,
		}},
		{written{Key: []string{"client_ip", "static:a"}, Overrides: []override{{[]string{"192.0.2.1", "b"}, "5/1m"}}}, []string{`overrides.0.key: overrides: "b": must be "a", which is the same for all`}},
		{written{Tiers: tiers("host", "a.example", "9/1m", "A.Example:443", "8/1m", "*", "5/1m")}, []string{`tiers.limits.A.Example:443: tiers: "A.Example:443": duplicate value; keep one`}},
		{written{Tiers: tiers("client_ip", "2001:db8::1", "9/1m", "2001:DB8:0::1", "8/1m", "*", "5/1m")}, []string{`tiers.limits.2001:DB8:0::1: tiers: "2001:DB8:0::1": duplicate value; keep one`}},
		{written{Tiers: tiers("path", "pro", "9/1m", "*", "5/1m")}, []string{`tiers.limits.pro: tiers: "pro": must be a path, which begins with /`}},
		{written{Tiers: tiers("method", "G T", "9/1m", "*", "5/1m")}, []string{`tiers.limits.G T: tiers: "G T": must be a method such as POST`}},
		// Of a key that is wrong the overrides cannot be judged, but for all else can.
		{written{Key: []string{"client_ip", "pat"}, Overrides: []override{{[]string{"192.0.2.1", "/a"}, "5/1m"}}, OnError: "x"}, []string{
			`key.1: key "pat": the source must be one of ` + sources + ` (did you mean path?)`,
			`on_error: on_error "x": must be one of local, open, closed`,
		}},
		{written{Key: []string{"pat"}, Tiers: tiers("path", "*", "x"), Overrides: []override{{[]string{"a"}, "5/1m"}, {[]string{"b"}, "5/1m"}}}, []string{
			`key.0: key "pat": the source must be one of ` + sources + ` (did you mean path?)`,
			`tiers.limits.*: tiers: "*": limit "x": has no period; write <requests>/<period>, such as 100/1m`,
		}},
		{written{Tiers: tiers("static:all", "*", "5/1m")}, []string{`tiers.source: tiers: source "static:all": is the same for all requests; write what their tier is read from, such as header:X-Plan`}},
		{written{Tiers: tiers("client_ip", "192.0.2.1", "9/1m", "192.0.2.0/24", "5/1m", "*", "5/1m")}, []string{`tiers.limits.192.0.2.0/24: tiers: "192.0.2.0/24": must be an address, since the tier is one; overrides with a prefix beside them are for networks`}},
		{written{Tiers: tiers("remote_ip", "office", "5/1m", "*", "9/1m")}, []string{`tiers.limits.office: tiers: "office": must be an address, since the tier is one; overrides with a prefix beside them are for networks`}},
		{written{Limit: "100/1m", Cost: "6", Tiers: tiers("header:X-Plan", "a", "5/1m", "b", "10/1m", "c", "7/1m")}, []string{`cost: cost 6: is more than the limit 5/1m sliding_window_counter can ever hold, which is 5, so that every request would be rejected`}},
		{written{Limit: "100/1m", Cost: "6", Tiers: tiers("header:X-Plan", "a", "5/1m", "b", "5/1h")}, []string{ // the same at each start
			`cost: cost 6: is more than the limit 5/1h sliding_window_counter can ever hold, which is 5, so that every request would be rejected`,
		}},
		{written{Limit: "100/1m", Cost: "6", Overrides: []override{{[]string{"192.0.2.1"}, "7/1m"}, {[]string{"192.0.2.2"}, "4/1m"}, {[]string{"192.0.2.3"}, "9/1m"}}}, []string{`cost: cost 6: is more than the limit 4/1m sliding_window_counter can ever hold, which is 4, so that every request would be rejected`}},
		{written{Name: "a b", Key: []string{"x"}, IPv4Prefix: "x", Cost: "x", Enforcement: "x", OnLimit: "x", OnMissingKey: "x", OnError: "x", CountRejected: "x", Burst: "x", MaxDelay: "x", Limit: "x"}, []string{
			`name: name "a b": must be 1 to 64 of A-Z a-z 0-9 _ . -`,
			`ipv4_prefix: ipv4_prefix "x": must be a whole number from 1 to 32`,
			`key.0: key "x": the source must be one of ` + sources,
			`burst: burst "x": must be a whole number from 1 to 1000000000`,
			`on_limit: on_limit "x": must be reject or delay`,
			`max_delay: max_delay "x": must be a duration from 1ms to 1h`,
			`limit: limit "x": has no period; write <requests>/<period>, such as 100/1m`,
			`cost: cost "x": must be a whole number from 1 to 1000000000, or header:NAME, query:NAME or cookie:NAME that has one`,
			`on_missing_key: on_missing_key "x": must be share, skip or reject`,
			`on_error: on_error "x": must be one of local, open, closed`,
			`count_rejected: count_rejected "x": must be true or false`,
			`enforcement: enforcement "x": must be hard, shadow, soft <percent> <duration> or <percent>%`,
		}},
	} {
		r, got := compiledRule(c.text)
		if r != nil || strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%+v:\n got %s\nwant %s", c.text, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

func TestARuleIsWhatItsFieldsSay(t *testing.T) {
	plain := mustCompile(t, written{})
	if plain.Name != "r" || plain.Matcher != nil || plain.Excepts || plain.Shadow || plain.Cost != 1 || plain.CostFrom != nil || plain.SkipMissing || plain.RejectMissing ||
		len(plain.Advice) != 0 || !Plain(plain) || !Whole(plain) || !NeedsAddress(plain) || plain.spec != "client_ip /0 /64" {
		t.Errorf("%+v, %s", plain, plain.spec)
	}
	own := plain.Limits.Own()
	if own.Name() != "r" || own.Limit.String() != "100/1m sliding_window_counter" || own.Shadow || own.CountRejected || own.Namespace != "" {
		t.Errorf("%+v", own)
	}
	full := mustCompile(t, written{
		Match: &match.Match{Paths: []string{"/a"}, ExceptIPs: []string{"10.0.0.0/8"}}, Key: []string{" host ", "cookie:id"}, Limit: " 5/10s ", Algorithm: "token_bucket", Burst: " 7 ", Refill: "interval",
		Cost: "7", IPv4Prefix: "24", IPv6Prefix: "48", Enforcement: "shadow", OnLimit: "reject", OnError: "closed", OnMissingKey: "reject", CountRejected: "true",
	})
	l := full.Limits.Own().Limit
	if full.Matcher == nil || !full.Excepts || !full.Shadow || full.Cost != 7 || !full.RejectMissing || full.SkipMissing || Plain(full) || Whole(full) || !NeedsAddress(full) || full.spec != "host cookie:id" {
		t.Errorf("%+v, %s", full, full.spec)
	}
	if l.Requests != 5 || l.Period != 10_000_000 || l.Quota != 7 || !l.Interval() || !full.Limits.Own().CountRejected || !full.Limits.Own().Shadow {
		t.Errorf("%+v", l)
	}
	named, errors := Compile(textOf(written{Limit: "5/1m"}), Context{Name: "from-the-handler", Namespace: "n", Prefixes: match.Prefixes{}})
	if len(errors) > 0 || named.Name != "from-the-handler" || named.Limits.Own().Namespace != "n" || named.spec != "client_ip" {
		t.Errorf("%v, %+v", errors, named)
	}
	if r := mustCompile(t, written{OnMissingKey: "skip", Enforcement: "hard", Match: &match.Match{}, TimeZone: "UTC", Limit: "5/month"}); !r.SkipMissing || r.Matcher != nil || r.Limits.Own().Limit.Windows(0) == nil {
		t.Errorf("%+v", r)
	}
	for _, text := range []string{"false", "0", "", "False"} {
		if r := mustCompile(t, written{CountRejected: text}); r.Limits.Own().CountRejected {
			t.Errorf("%q counts rejected requests", text)
		}
	}
}

func TestTheKeysSpecTellsWhatChangesKeys(t *testing.T) {
	for _, c := range []struct {
		key        []string
		ipv4, ipv6 string
		want       string
	}{
		{nil, "", "", "client_ip /0 /64"},
		{nil, "32", "128", "client_ip"},
		{nil, "24", "", "client_ip /24 /64"},
		{[]string{"path"}, "24", "48", "path"},
		{[]string{"header:x-user"}, "", "", "header:X-User"},
		{[]string{"static:a b", "remote_ip"}, "", "", "static:a b remote_ip /0 /64"},
		{[]string{"first(header:x-user, client_ip)"}, "", "", "first(header:X-User, client_ip) /0 /64"},
		{[]string{"first(header:x-user", "query:u)", "path_segment:2"}, "", "", "first(header:X-User, query:u) path_segment:2"},
	} {
		must.Equal(t, mustCompile(t, written{Key: c.key, IPv4Prefix: c.ipv4, IPv6Prefix: c.ipv6}).spec, c.want, "%v", c.key)
	}
}

// request is one with what the tests' keys are made of.
func request(header http.Header) *http.Request {
	return &http.Request{Method: "GET", Host: "Example.com:80", RemoteAddr: "198.51.100.7:1234", URL: &url.URL{Path: "/a", RawQuery: "q=5&n=x"}, Header: header}
}

func TestKeysAreMadeOfTheirSources(t *testing.T) {
	r := request(http.Header{"X-User": {"bob"}, "X-Real": {"::ffff:192.0.2.77"}, "Cookie": {"id=c1"}})
	for _, c := range []struct {
		text    written
		address string
		want    string
		missing bool
	}{
		{written{}, "192.0.2.1", "192.0.2.1", false},
		{written{}, "::ffff:192.0.2.1", "192.0.2.1", false},
		{written{}, "2001:db8::1", "2001:db8::/64", false},
		{written{IPv6Prefix: "128"}, "2001:DB8:0::1", "2001:db8::1", false},
		{written{IPv4Prefix: "24"}, "192.0.2.1", "192.0.2.0/24", false},
		{written{}, "", "", true},
		{written{Key: []string{"remote_ip"}}, "192.0.2.1", "198.51.100.7", false},
		{written{Key: []string{"host"}}, "", "example.com", false},
		{written{Key: []string{"header:X-User"}}, "", "bob", false},
		{written{Key: []string{"header:X-Real"}}, "", "192.0.2.77", false},
		{written{Key: []string{"header:X-Real"}, IPv4Prefix: "24"}, "", "192.0.2.0/24", false},
		{written{Key: []string{"header:X-None"}}, "", "", true},
		{written{Key: []string{"cookie:id"}}, "", "c1", false},
		{written{Key: []string{"query:q"}}, "", "5", false},
		{written{Key: []string{"static:all"}}, "", "all", false},
		{written{Key: []string{"client_ip", "path"}}, "192.0.2.1", "9:192.0.2.12:/a", false},
		{written{Key: []string{"header:X-None", "path"}}, "", "0:2:/a", true},
		{written{Key: []string{"path_segment:1"}}, "", "a", false},
		{written{Key: []string{"first(header:X-None, header:X-User, client_ip)"}}, "192.0.2.1", "header:X-User=bob", false},
		{written{Key: []string{"first(header:X-None", " client_ip)"}}, "2001:db8::1", "client_ip=2001:db8::/64", false},
		{written{Key: []string{"first(header:X-None, client_ip)"}, IPv4Prefix: "24"}, "192.0.2.1", "client_ip=192.0.2.0/24", false},
		{written{Key: []string{"first(header:X-Real, client_ip)"}}, "", "header:X-Real=192.0.2.77", false},
		{written{Key: []string{"first(cookie:id, client_ip)"}, IPv4Prefix: "24"}, "", "cookie:id=c1", false},
		{written{Key: []string{"first(query:none, remote_ip)", "path"}, IPv4Prefix: "24"}, "", "25:remote_ip=198.51.100.0/242:/a", false},
		{written{Key: []string{"first(query:none, cookie:none)"}}, "192.0.2.1", "", true},
	} {
		rule := mustCompile(t, c.text)
		byFunction := KeyFunc(rule, func(dressed func(value string) string) func(r *http.Request) string {
			return func(r *http.Request) string {
				if dressed == nil {
					return match.CleanAddress(c.address)
				}
				return dressed(c.address)
			}
		})
		if got := byFunction(r); got != c.want && !(c.missing && got == "") {
			t.Errorf("%v of %q: %q by a function, want %q", c.text.Key, c.address, got, c.want)
		}
		for _, buffer := range [][]byte{nil, []byte("something from before")} {
			if key, missing := KeyOf(rule, r, c.address, buffer); key != c.want || missing != c.missing {
				t.Errorf("%v of %q: %q %v, want %q", c.text.Key, c.address, key, missing, c.want)
			}
		}
	}
}

func TestALimitIsChosenByKeyThenTier(t *testing.T) {
	rule := mustCompile(t, written{
		Key:   []string{"client_ip"},
		Tiers: tiers("header:X-Plan", "pro", "1000/1m", "staff", "unlimited", "", "1/1m", "*", "50/1m"),
		Overrides: []override{
			{[]string{"192.0.2.1"}, "7/1m"}, {[]string{"192.0.2.2"}, "unlimited"}, {[]string{"2001:db8::/64"}, "8/1m"}, {[]string{"2001:DB8:1::/64"}, "9/1m"}, {[]string{"192.0.2.9/32"}, "9/1m"},
		},
	})
	if Plain(rule) || len(rule.Advice) != 1 || !strings.Contains(rule.Advice[0].Error(), "header X-Plan is what the client sends") {
		t.Errorf("%v", rule.Advice)
	}
	for _, c := range []struct {
		plan, address string
		want          int64 // 0: none
	}{
		{"pro", "192.0.2.99", 1000}, {"staff", "192.0.2.99", 0}, {"free", "192.0.2.99", 50}, {"*", "192.0.2.99", 50}, {"Pro", "192.0.2.99", 50}, {"", "192.0.2.99", 1},
		{"pro", "192.0.2.1", 7}, {"staff", "192.0.2.1", 7}, {"pro", "::ffff:192.0.2.1", 7}, {"pro", "192.0.2.2", 0},
		{"pro", "2001:db8::ffff", 8}, {"pro", "2001:db8:1::5", 9}, {"pro", "2001:db8:2::5", 1000}, {"pro", "192.0.2.9", 9},
	} {
		r := request(http.Header{})
		if c.plan != "" {
			r.Header["X-Plan"] = []string{c.plan}
		}
		key, _ := KeyOf(rule, r, c.address, nil)
		limit := LimitOf(rule, r, c.address, key)
		if c.want == 0 && limit != nil || c.want > 0 && (limit == nil || limit.Limit.Requests != c.want) {
			t.Errorf("%q from %s: %v, want %d", c.plan, c.address, limit, c.want)
		}
	}
	pair := mustCompile(t, written{Key: []string{"header:X-User", "client_ip"}, Overrides: []override{{[]string{"bob", "192.0.2.1"}, "7/1m"}, {[]string{"", "192.0.2.1"}, "8/1m"}}})
	for user, want := range map[string]int64{"bob": 7, "": 8, "eve": 100} {
		r := request(http.Header{})
		if user != "" {
			r.Header["X-User"] = []string{user}
		}
		key, _ := KeyOf(pair, r, "192.0.2.1", nil)
		must.Equal(t, LimitOf(pair, r, "192.0.2.1", key).Limit.Requests, want, "%q", user)
	}
}

// A key that an operator writes is the one that requests have, however either is spelt.
func TestAKeyThatIsWrittenIsThatOfRequests(t *testing.T) {
	rule := mustCompile(t, written{Key: []string{"client_ip", "host", "method", "path", "header:X-Ip", "static:s"}, IPv4Prefix: "24", Limit: "5/1m"})
	r := &http.Request{Method: "post", Host: "SHOP.test.:80", URL: &url.URL{Path: "//A/./b"}, Header: http.Header{"X-Ip": {"192.0.2.9"}}}
	key, _ := KeyOf(rule, r, "198.51.100.7", nil)
	for _, values := range [][]string{
		{"198.51.100.8", "shop.test", "POST", "/a/b", "192.0.2.1", "s"},
		{"198.51.100.0/24", "Shop.TEST:1", "Post", "/A//b", "192.0.2.0/24", "s"},
		{"198.51.100.77/24", "shop.test.", "post", "/a/b", "192.0.2.9", "s"},
	} {
		named := make([]string, len(values))
		for i := range values {
			var err error
			if named[i], err = Named(rule, i, values[i]); err != nil {
				t.Error(err)
			}
		}
		must.Equal(t, join(named), key, "%q", values)
		must.Equal(t, KeyFor(rule, values), key, "%q", values)
	}
	for _, c := range []struct {
		part        int
		value, want string
	}{
		{0, "198.51.0.0/16", `"198.51.0.0/16": is no client`},
		{0, "evil-host", `"evil-host": must be an address`},
		{3, "login", `"login": must be a path`},
		{5, "b", `"b": must be "s", which is the same for all`},
	} {
		if got, err := Named(rule, c.part, c.value); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %q, %v; want %s", c.value, got, err, c.want)
		}
	}
	first := mustCompile(t, written{Key: []string{"first(header:X-User", " client_ip", "path_segment:1)"}, Limit: "5/1m", Overrides: []override{
		{[]string{"header:X-User=acme"}, "9/1m"}, {[]string{"client_ip=2001:DB8::/64"}, "8/1m"}, {[]string{"path_segment:1=Shop"}, "7/1m"},
	}})
	for _, c := range []struct {
		user, address, path string
		want                int64
	}{{"acme", "192.0.2.1", "/", 9}, {"bob", "192.0.2.1", "/", 5}, {"", "2001:db8::7", "/", 8}, {"2001:db8::/64", "192.0.2.1", "/", 5}, {"", "", "/SHOP", 7}, {"", "", "/x", 5}} {
		r := &http.Request{URL: &url.URL{Path: c.path}, Header: http.Header{"X-User": {c.user}}}
		key, _ := KeyOf(first, r, c.address, nil)
		must.Equal(t, LimitOf(first, r, c.address, key).Limit.Requests, c.want, "%+v", c)
	}
	for _, missing := range []string{"", "@"} { // of a request without an address, or through a Unix socket
		if got, err := Named(rule, 0, missing); err != nil || got != missing {
			t.Errorf("%q: %q, %v", missing, got, err)
		}
	}
}

// A tier is found however a request spells what it is read from, and however the rule does.
func TestTiersTakeTheSpellingsOfOneValueForTheSame(t *testing.T) {
	for source, value := range map[string]string{"host": "Shop.TEST.", "method": "post", "path": "/A/b"} {
		rule := mustCompile(t, written{Tiers: tiers(source, value, "9/1m", "*", "5/1m")})
		r := &http.Request{Method: "pOST", Host: "SHOP.test:80", URL: &url.URL{Path: "//a/./B"}}
		must.Equal(t, LimitOf(rule, r, "192.0.2.1", "192.0.2.1").Limit.Requests, 9, "%s", source)
		if l := rule.Limits.Of(TierFor(rule, value), ""); l.Limit.Requests != 9 {
			t.Errorf("%s: %s, want 9", source, l.Limit)
		}
	}
}

func adviceOf(r *Rule) []string {
	var list []string
	for _, one := range r.Advice {
		list = append(list, one.Error())
	}
	return list
}

func TestTiersThatAClientChoosesAreAdvisedOf(t *testing.T) {
	for source, want := range map[string]string{
		"header:X-Plan": "header X-Plan", "cookie:plan": "cookie plan", "query:plan": "query plan", "client_ip": "", "host": "", "path": "", "method": "",
	} {
		r := mustCompile(t, written{Tiers: tiers(source, "*", "5/1m")})
		text := strings.Join(adviceOf(r), "\n")
		if (want == "") != (text == "") || !strings.Contains(text, want) {
			t.Errorf("%s: %q", source, text)
		}
		must.Equal(t, NeedsAddress(r), true, "%s: the key is an address", source)
	}
	byAddress := mustCompile(t, written{Key: []string{"path"}, Tiers: tiers("client_ip", "192.0.2.1", "9/1m", "*", "5/1m")})
	if !NeedsAddress(byAddress) || NeedsAddress(mustCompile(t, written{Key: []string{"path"}})) {
		t.Error("which rules need the client's address")
	}
	must.Equal(t, LimitOf(byAddress, request(nil), "192.0.2.1", "/a").Limit.Requests, 9, "by address")
}

// What is answered for a request before its body is read, and shown of one by an address, is answered by the connection's peer too.
func TestWhichRulesGoByWhereTheConnectionComesFrom(t *testing.T) {
	for _, c := range []struct {
		text                 written
		client, fromWherever bool // needs the client's address; depends on that or on the peer's
	}{
		{written{Key: []string{"path"}}, false, false},
		{written{Key: []string{"client_ip"}}, true, true},
		{written{Key: []string{"path", "client_ip"}}, true, true},
		{written{Key: []string{"first(header:X, client_ip)"}}, true, true},
		{written{Key: []string{"first(header:X, remote_ip)"}}, false, true},
		{written{Key: []string{"first(header:X, query:y)"}}, false, false},
		{written{Key: []string{"remote_ip"}}, false, true},
		{written{Key: []string{"path", "remote_ip"}}, false, true},
		{written{Key: []string{"path"}, Match: &match.Match{ExceptIPs: []string{"10.0.0.0/8"}}}, true, true},
		{written{Key: []string{"path"}, Tiers: tiers("client_ip", "192.0.2.1", "9/1m", "*", "5/1m")}, true, true},
		{written{Key: []string{"path"}, Tiers: tiers("remote_ip", "192.0.2.1", "9/1m", "*", "5/1m")}, false, true},
		{written{Key: []string{"path"}, Tiers: tiers("method", "GET", "9/1m", "*", "5/1m")}, false, false},
	} {
		r := mustCompile(t, c.text)
		if NeedsAddress(r) != c.client || OfAddress(r) != c.fromWherever {
			t.Errorf("%+v: needs the client's address %v, goes by addresses %v; want %v, %v", c.text, NeedsAddress(r), OfAddress(r), c.client, c.fromWherever)
		}
	}
}

func TestUnlimitedIsNoLimit(t *testing.T) {
	for _, text := range []written{{Limit: "unlimited"}, {Limit: " unlimited "}, {Tiers: tiers("path", "*", "unlimited")}} {
		r := mustCompile(t, text)
		if r.Limits.Own() != nil || len(r.Limits.Rules()) != 0 || Plain(r) || LimitOf(r, request(nil), "192.0.2.1", "192.0.2.1") != nil {
			t.Errorf("%+v: %v", text, r.Limits.Own())
		}
	}
	r := mustCompile(t, written{Limit: "unlimited", Cost: "5", Overrides: []override{{[]string{"192.0.2.1"}, "5/1m"}}})
	if got := LimitOf(r, request(nil), "192.0.2.1", "192.0.2.1"); got == nil || got.Limit.Requests != 5 || LimitOf(r, request(nil), "192.0.2.2", "192.0.2.2") != nil {
		t.Errorf("beside an override: %v", got)
	}
}

func TestTimeZonesAreTheCalendarsWhereverOneIs(t *testing.T) {
	r := mustCompile(t, written{TimeZone: "UTC", Tiers: tiers("path", "/a", "5/day", "*", "5/1m"), Overrides: []override{{[]string{"192.0.2.1"}, "5/1h"}}})
	if len(r.Limits.Rules()) != 3 {
		t.Errorf("%v", r.Limits.Rules())
	}
}

func TestCostsAreReadFromRequests(t *testing.T) {
	r := request(http.Header{"X-Cost": {" 7 "}, "X-Bad": {"many"}, "X-Less": {"-3"}, "X-Huge": {strings.Repeat("9", 40)}, "X-Tiny": {"-" + strings.Repeat("9", 40)}})
	for _, c := range []struct {
		cost string
		want int64
	}{
		{"", 1}, {"5", 5}, {"header:X-Cost", 7}, {"header:X-None", 1}, {"header:X-Bad", 1}, {"header:X-Less", -3}, {"header:X-Huge", rate.Unaffordable}, {"header:X-Tiny", 1}, {"query:q", 5}, {"query:n", 1}, {"cookie:c", 1},
	} {
		rule := mustCompile(t, written{Cost: c.cost})
		got := rule.Cost
		if rule.CostFrom != nil {
			got = rate.ReadCost(rule.CostFrom.Value(r, ""))
		}
		must.Equal(t, got, c.want, "%s", c.cost)
		must.Equal(t, Plain(rule), c.cost == "", "%s: plain", c.cost)
	}
}

// An error at a place that does not exist has the nearest place that does.
func TestFindGoesAsFarAsThereIsAWay(t *testing.T) {
	root, _ := ParseJSON("f", []byte(`{"a": {"b": ["x", "y"]}, "c": "z"}`))
	for _, c := range []struct{ path, want string }{
		{"a.b.1", "1:19"}, {"a.b.2", "1:13"}, {"a.b.x", "1:13"}, {"a.b.", "1:13"}, {"a.b.9999999999", "1:13"}, {"a.c", "1:7"}, {"c.0", "1:31"}, {"d", "1:1"},
	} {
		n := root.find(strings.Split(c.path, "."))
		must.Equal(t, fmt.Sprintf("%d:%d", n.Line, n.Column), c.want, "%s", c.path)
	}
}

// An interval that is long for the limit is advised against, and consistency needs a limit unless it is strict.
func TestConsistencyOfARule(t *testing.T) {
	for _, c := range []struct {
		limit, consistency string
		advice             string
	}{
		{"100/1m", "eventual 1s", ""},
		{"100/10s", "eventual", "an interval of at most 500ms is better"},
		{"100/10s", "lease", ""},
		{"unlimited", "strict", ""},
	} {
		rule := mustCompile(t, written{Key: []string{"client_ip"}, Limit: c.limit, Consistency: c.consistency})
		if text := strings.Join(adviceOf(rule), "\n"); !strings.Contains(text, c.advice) || (text == "") != (c.advice == "") {
			t.Errorf("%s, %s: %q", c.limit, c.consistency, text)
		}
	}
	for _, word := range []string{"lease", "eventual 1s"} {
		first, _, _ := strings.Cut(word, " ")
		_, problems := compiledRule(written{Key: []string{"client_ip"}, Limit: "unlimited", Consistency: word})
		must.Contain(t, strings.Join(problems, "\n"), "consistency "+first, "%s of an unlimited rule", word)
	}
}
