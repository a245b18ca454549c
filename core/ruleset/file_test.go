package ruleset

import (
	"reflect"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core/match"
)

// decoded reads a file, and returns what is wrong with it as "line:column: text".
func decoded(text string) (*File, []string) {
	root, problems := ParseJSON("f", []byte(text))
	var f *File
	if problems == nil {
		f, problems = Decode("f", root)
	}
	list := make([]string, 0, len(problems))
	for i := range problems {
		list = append(list, strings.TrimPrefix(problems[i].String(), "f:"))
	}
	return f, list
}

// refused is a file, and all that is wrong with it.
type refused struct {
	text string
	want []string
}

func checkRefused(t *testing.T, cases []refused) {
	for _, c := range cases {
		_, got := decoded(c.text)
		if len(got) == 0 || strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s:\n got %s\nwant %s", c.text, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// accepted reads a file in which nothing is wrong.
func accepted(t *testing.T, text string) *File {
	t.Helper()
	f, problems := decoded(text)
	if len(problems) > 0 {
		t.Fatalf("%s:\n%s", text, strings.Join(problems, "\n"))
	}
	return f
}

func TestDecodeSaysAllThatIsWrongWithRules(t *testing.T) {
	checkRefused(t, []refused{
		{`null`, []string{`1:1: is empty; write rules, or a domain with descriptors`}},
		{`[]`, []string{`1:1: the file must be a map with some of rules, domain, descriptors, not a list`}},
		{`"rules"`, []string{`1:1: the file must be a map with some of rules, domain, descriptors, not a text`}},
		{`{"rules": [{"name": "a", "limt": "5/1x", "burst": 7, "enforcement": "hart"}]}`, []string{
			`1:26: "limt" is not a field of a rule (did you mean limit?)`,
			`1:34: rule "a": limit "5/1x": the period "1x" must be a duration such as 10s, 1m, 24h or 7d, or day, week or month`,
			`1:69: rule "a": enforcement "hart": must be hard, shadow, soft <percent> <duration> or <percent>% (did you mean hard?)`,
		}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "match": null, "burst": null}, {"name": "b", "limit": "5/1m", "match": {}}]}`, []string{
			`1:43: match: has no value; write one, or take the line out`,
			`1:58: burst: has no value; write one, or take the line out`,
			`1:114: rule "b": match: is empty; write some of methods, hosts, paths, path_prefixes, headers, query, cookies, except_ips, or leave it out`,
		}},
		{`{}`, []string{`1:1: has neither rules nor a domain; write rules: and a list of them`}},
		{`{"rules": null}`, []string{`1:1: has neither rules nor a domain; write rules: and a list of them`}},
		{`{"rules": {}}`, []string{`1:11: rules: must be a list, each item with a dash in front: - name: …`}},
		{`{"rules": []}`, []string{`1:11: rules: is empty; write a rule, such as - {name: per-client, limit: 100/1m}, or leave rules out`}},
		{`{"rules": ["a"]}`, []string{
			`1:12: a rule must be a map with some of name, match, key, limit, tiers, limit_from, overrides, time_zone, algorithm, burst, refill, segments, window_start, jitter, cost, ipv4_prefix, ipv6_prefix, enforcement, on_limit, max_delay, max_waiting, max_waiting_per_key, count, count_match, cost_response, cost_max, respect_upstream, penalty, concurrency, candidate, adapt, consistency, regions, on_error, on_missing_key, count_rejected, message, answer, not a text`,
		}},
		{`{"ruls": []}`, []string{
			`1:2: "ruls" is not a field of the file (did you mean rules?)`,
			`1:10: rules: is empty; write a rule, such as - {name: per-client, limit: 100/1m}, or leave rules out`,
		}},
		{`{"zones": []}`, []string{`1:2: "zones" is not a field of the file; there are rules, domain, descriptors`}},
		{`{"rules": [{"limit": "1/1m"}]}`, []string{`1:12: the rule has no name; write one of 1 to 64 of A-Z a-z 0-9 _ . -`}},
		{`{"rules": [{"name": "", "limit": "1/1m"}]}`, []string{`1:21: name: is empty; write a value`}},
		{`{"rules": [{"name": ["a"], "limit": "1/1m"}]}`, []string{`1:21: name: must be a single value, not a list`}},
		{`{"rules": [{"name": "a b", "limit": "1/1m"}]}`, []string{`1:21: rule "a b": name "a b": must be 1 to 64 of A-Z a-z 0-9 _ . -`}},
		{`{"rules": [
	{"name": "a", "limit": "1/1m"},
	{"name": "b", "limit": "1/1m"},
	{"name": "a", "limit": "1/1m"}]}`, []string{`4:2: rule "a": duplicate name, first in line 2; rename one`}},
		{`{"rules": [{"name": "a"}]}`, []string{`1:12: rule "a": limit: is missing; write one such as 100/1m`}},
		{`{"rules": [{"name": "a", "limit": ""}]}`, []string{`1:35: rule "a": limit: is empty; write a value, or leave it out`}},
		{`{"rules": [{"name": "a", "limit": "5/0s"}]}`, []string{`1:35: rule "a": limit "5/0s": the period must be from 1ms to 366d`}},
		{`{"rules": [{"name": "a", "limit": 5}]}`, []string{`1:35: rule "a": limit "5": has no period; write <requests>/<period>, such as 5/1m`}},
		{`{"rules": [{"name": "a", "limit": "unlimitd"}]}`, []string{`1:35: rule "a": limit "unlimitd": has no period; write <requests>/<period>, such as 100/1m (did you mean unlimited?)`}},
		{`{"rules": [{"name": "a", "limit": {"requests": 5}}]}`, []string{`1:35: rule "a": limit: must be a single value, not a map`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "limits": ["x"]}]}`, []string{`1:43: "limits" is not a field of a rule (did you mean limit?)`}},
		{`{"rules": [{"name": "a", "Limit": "5/1m"}]}`, []string{`1:26: "Limit" is not a field of a rule (did you mean limit?)`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "on-limit": "reject"}]}`, []string{`1:43: "on-limit" is not a field of a rule (did you mean on_limit?)`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "onLimit": "reject"}]}`, []string{`1:43: "onLimit" is not a field of a rule (did you mean on_limit?)`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "store": "redis"}]}`, []string{`1:43: store: belongs in the handler, not in a rule file`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "cors": "*", "header_reset": "epoch"}]}`, []string{`1:43: cors: belongs in the handler, not in a rule file`, `1:56: header_reset: belongs in the handler, not in a rule file`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "answer": {"body": "b", "file": "f"}}]}`, []string{`1:62: rule "a": answer: body and file are mutually exclusive: an answer has one text, or redirects; remove one`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "answer": {}}]}`, []string{`1:53: rule "a": answer: is empty; write some of status, type, body, file, redirect, close, or leave it out`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "window": "1m"}]}`, []string{
			`1:43: "window" is not a field of a rule; there are name, match, key, limit, tiers, limit_from, overrides, time_zone, algorithm, burst, refill, segments, window_start, jitter, cost, ipv4_prefix, ipv6_prefix, enforcement, on_limit, max_delay, max_waiting, max_waiting_per_key, count, count_match, cost_response, cost_max, respect_upstream, penalty, concurrency, candidate, adapt, consistency, regions, on_error, on_missing_key, count_rejected, message, answer`,
		}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "match": {"path": ["/a"]}}]}`, []string{`1:53: "path" is not a field of match (did you mean paths?)`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "match": ["/a"]}]}`, []string{`1:52: match must be a map with some of methods, hosts, paths, path_prefixes, headers, query, cookies, except_ips, not a list`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "match": {"paths": ["/a", "b"]}}]}`, []string{`1:62: rule "a": match: paths: "b" must begin with /`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "count_match": {"paths": ["/a", "b"]}}, {"name": "b", "limit": "5/1m", "count_match": {}}]}`, []string{
			`1:68: rule "a": count_match: paths: "b" must begin with /`,
			`1:129: rule "b": count_match: is empty; write some of methods, hosts, paths, path_prefixes, headers, query, cookies, except_ips, or leave it out`,
		}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "match": {"paths": []}}]}`, []string{`1:62: rule "a": match: paths: is empty; write a value, or leave it out`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "match": {"path_prefixes": "b"}}]}`, []string{`1:70: rule "a": match: path_prefixes: "b" must begin with /`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "match": {"headers": ["X-Plan"]}}]}`, []string{`1:64: rule "a": match: headers: must be a map, such as X-Plan: free`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "match": {"headers": {"X-Plan": ["free", "paid"]}}}]}`, []string{`1:75: rule "a": match: headers: "X-Plan": must be a single value, not a list`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "match": {"except_ips": ["10.0.0.0/33"]}}]}`, []string{`1:67: rule "a": match: except_ips: "10.0.0.0/33" must be an address or a network such as 10.0.0.0/8`}},
		{`{"rules": [{"name": "a", "limit": "5/1m",
	"key": ["client_ip", "user"]}]}`, []string{
			`2:23: rule "a": key "user": the source must be one of client_ip, remote_ip, host, method, path, path_segment, path_regexp, header, cookie, query, unverified_jwt_claim, client_cert, static`,
		}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "key": "{http.auth.user.id}"}]}`, []string{`1:50: rule "a": key "{http.auth.user.id}": the source must be one of client_ip, remote_ip, host, method, path, path_segment, path_regexp, header, cookie, query, unverified_jwt_claim, client_cert, static; placeholders are Caddy's alone: have request_header set a field to it, and take header:NAME`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "algorithm": "leeky_bucket"}]}`, []string{`1:56: rule "a": algorithm "leeky_bucket": must be one of token_bucket, leaky_bucket, fixed_window, sliding_window_log, sliding_window_counter (did you mean leaky_bucket?)`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "burst": 7}]}`, []string{`1:52: rule "a": burst 7: only token_bucket and leaky_bucket have a burst, not sliding_window_counter`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "count_rejected": "perhaps"}]}`, []string{`1:61: rule "a": count_rejected "perhaps": must be true or false`}},
		{`{"rules": [{"name": "a", "tiers": []}]}`, []string{`1:35: tiers must be a map with some of source, limits, not a list`}},
		{`{"rules": [{"name": "a", "tiers": {}}]}`, []string{
			`1:35: rule "a": tiers: source: is missing; write what the tier is read from, such as header:X-Plan`,
			`1:35: rule "a": tiers: limits: is missing; write a limit for each value, such as pro: 1000/1m`,
		}},
		{`{"rules": [{"name": "a", "tiers": {"source": "header:X-Plan", "limits": ["1/1m"]}}]}`, []string{`1:73: rule "a": tiers: limits: must be a map, such as pro: 1000/1m`}},
		{`{"rules": [{"name": "a", "tiers": {"source": "header:X-Plan", "limits": {"free": null, "*": "1/1m"}}}]}`, []string{`1:74: rule "a": tiers: limits: "free": has no value; write one, such as pro: 1000/1m`}},
		{`{"rules": [{"name": "a", "tiers": {"source": "header:X-Plan", "limits": {"free": "5 a minute", "*": "1/1m"}}}]}`, []string{`1:82: rule "a": tiers: "free": limit "5 a minute": has no period; write <requests>/<period>, such as 100/1m (did you mean 5/1m?)`}},
		{`{"rules": [{"name": "a", "tiers": {"source": "headr:X-Plan", "limits": {"*": "1/1m"}}}]}`, []string{`1:46: rule "a": tiers: source "headr:X-Plan": the source must be one of client_ip, remote_ip, host, method, path, path_segment, path_regexp, header, cookie, query, unverified_jwt_claim, client_cert, static (did you mean header?)`}},
		{`{"rules": [{"name": "a", "tiers": {"limit": {"*": "1/1m"}, "source": "path"}}]}`, []string{`1:36: "limit" is not a field of tiers (did you mean limits?)`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "candidate": "50/1m"}]}`, []string{`1:56: candidate must be a map with some of limit, algorithm, burst, refill, segments, window_start, time_zone, not a text`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "candidate": {"limit": "5/0s", "bursts": 5}}, {"name": "b", "limit": "5/1m", "candidate": null}]}`, []string{
			`1:66: rule "a": candidate: limit "5/0s": the period must be from 1ms to 366d`,
			`1:74: "bursts" is not a field of candidate (did you mean burst?)`,
			`1:120: candidate: has no value; write one, or take the line out`,
		}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "candidate": {"algorithm": ["token_bucket"]}}, {"name": "b", "limit": "5/1m", "candidate": {}}]}`, []string{
			`1:70: rule "a": candidate: algorithm: must be a single value, not a list`,
			`1:134: rule "b": candidate: limit: is missing; write one such as 100/1m`,
		}},
		// An error about several fields of a rule has the place of the field that it names.
		{`{"rules": [
	{"name": "a", "limit": "5/1m", "enforcement": "soft 10% 30s"},
	{"name": "b", "limit": "5/1m", "enforcement": "shadow", "penalty": "10m"},
	{"name": "c", "limit": "5/1m", "on_limit": "delay"},
	{"name": "d", "limit": "5/1m", "max_waiting": 5},
	{"name": "e", "limit": "5/1m", "count_rejected": true, "count": [401, 999]},
	{"name": "f", "limit": "5/1m", "count_rejected": true, "count": [401]},
	{"name": "g", "limit": "unlimited", "concurrency": 5},
	{"name": "h", "limit": "5/1m", "algorithm": "token_bucket", "candidate": {"limit": "6/1m"}, "on_limit": "delay"},
	{"name": "i", "limit": "5/1m", "penalty": ["1m", "x"]},
	{"name": "j", "concurrency": 5, "burst": 5}]}`, []string{
			`2:48: rule "a": enforcement soft: 10 % of 5/1m sliding_window_counter is less than one request, so that there would be no tolerance`,
			`3:69: rule "b": penalty and enforcement shadow are mutually exclusive: a shadow blocks nobody; remove one`,
			`4:45: rule "c": on_limit delay: sliding_window_counter cannot say when a request may leave; choose the algorithm token_bucket, sliding_window_log or fixed_window`,
			`5:48: rule "d": max_waiting 5: requests wait only with on_limit delay`,
			`6:72: rule "e": count "999": must be the status code of a response, 101 or 200 to 599, a class of them such as 4xx, or a field such as header:X-Login, header:X-Login=failed or trailer:Grpc-Status=16`,
			`7:66: rule "f": count and count_rejected are mutually exclusive: a rejected request has no response to count by; remove one`,
			`8:53: rule "g": concurrency: has no effect beside unlimited, which counts no request; remove unlimited to have concurrency alone`,
			`9:75: rule "h": candidate and on_limit delay are mutually exclusive: a candidate can be compared only with a limit that rejects; remove one`,
			`10:51: rule "i": penalty "x": must be a duration from 1ms to 366d, in whole microseconds, such as 10m or 1d`,
			`11:43: rule "j": burst: needs a limit, and concurrency is none; write one such as 100/1m beside it, or leave it out`,
		}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "overrides": {"192.0.2.1": "1/1m"}}]}`, []string{`1:56: rule "a": overrides: must be a list, such as - {key: 192.0.2.1, limit: 1000/1m}`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "overrides": [{"key": "192.0.2.1"}]}]}`, []string{`1:57: rule "a": overrides: "192.0.2.1": limit: is missing; write one such as 1000/1m`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "overrides": ["192.0.2.1"]}]}`, []string{`1:57: an override must be a map with some of key, limit, not a text`}},
		{`{"rules": [{"name": "a", "limit": "5/1m", "overrides": [
	{"key": "192.0.2.1", "limit": "9/1m"},
	{"key": "192.0.2.1", "limit": "8/0s"},
	{"key": ["192.0.2.2", "bob"], "limit": "8/1m"},
	{"key": "10.0.0.0/8", "limit": "8/1m"}]}]}`, []string{
			`3:10: rule "a": overrides: "192.0.2.1": duplicate key; keep one`,
			`3:32: rule "a": overrides: "192.0.2.1": limit "8/0s": the period must be from 1ms to 366d`,
			`4:10: rule "a": overrides: "192.0.2.2 bob": has 2 values, and the rule's key 1 parts`,
			`5:10: rule "a": overrides: "10.0.0.0/8": is no client: each of its addresses is counted by itself; name one, or count by such networks (ipv4_prefix 8); addresses that are not to be counted are written in match: except_ips`,
		}},
		{`{"rules": [
	{"name": "a b", "limit": "1/1m", "burst": 0},
	{"limits": "1/1m", "name": "b"},
	{"name": "c", "key": "", "match": {"paths": "x", "hsts": "y"}, "limit": "x"},
	{"name": "d", "limit": "x", "algorithm": "y", "on_error": "z"}],
 "descriptors": [{"kee": "a"}],
 "domain": ""}`, []string{
			`2:11: rule "a b": name "a b": must be 1 to 64 of A-Z a-z 0-9 _ . -`,
			`2:44: rule "a b": burst "0": must be a whole number from 1 to 1000000000`,
			`3:3: "limits" is not a field of a rule (did you mean limit?)`,
			`4:23: rule "c": key: is empty; write a value, or leave it out`,
			`4:51: "hsts" is not a field of match (did you mean hosts?)`,
			`5:25: rule "d": limit "x": has no period; write <requests>/<period>, such as 100/1m`,
			`5:43: rule "d": algorithm "y": must be one of token_bucket, leaky_bucket, fixed_window, sliding_window_log, sliding_window_counter`,
			`5:60: rule "d": on_error "z": must be one of local, open, closed`,
			`6:19: "kee" is not a field of a descriptor (did you mean key?)`,
			`7:12: domain: is empty; write a value`,
		}},
	})
}

func TestAllFieldsOfARuleAreRead(t *testing.T) {
	f := accepted(t, `{"rules": [
	{
		"name": "login",
		"match": {
			"methods": ["POST", "PUT"], "hosts": "example.com", "paths": ["/login"], "path_prefixes": ["/v1", "/v2"],
			"headers": {"X-Plan": "free", "X-Number": 5}, "except_ips": ["10.0.0.0/8"]
		},
		"key": ["client_ip", "header:X-User"],
		"tiers": {"source": "header:X-Plan", "limits": {"pro": "100/1m", "staff": "unlimited", "*": "50/1m"}},
		"overrides": [{"key": ["192.0.2.0/24", "bob"], "limit": "1000/1m"}],
		"algorithm": "token_bucket", "burst": 20, "refill": "interval", "cost": "header:X-Cost",
		"ipv4_prefix": 24, "ipv6_prefix": "56",
		"enforcement": "shadow", "on_limit": "reject", "on_error": "open", "on_missing_key": "skip", "count_rejected": true
	},
	{"name": "daily", "limit": "1000/day", "time_zone": "UTC"},
	{"name": "queue", "limit": "5/1s", "algorithm": "leaky_bucket", "max_delay": "2s"},
	{
		"name": "policies", "limit": "100/1m", "algorithm": "token_bucket", "enforcement": "soft 20% 30s", "penalty": ["1m", "1h"], "concurrency": 5,
		"candidate": {"limit": "50/1m", "algorithm": "token_bucket", "burst": 9, "refill": "interval"}
	},
	{"name": "wait", "limit": "5/1s", "algorithm": "fixed_window", "on_limit": "delay", "max_waiting": 9, "max_waiting_per_key": 3},
	{"name": "failures", "limit": "5/1m", "segments": 12, "count": [401, "4xx"], "penalty": "10m"},
	{"name": "answers", "limit": "5/1m", "answer": {"status": 403, "type": "text/html", "body": "<p>", "close": true}}
]}`)
	if len(f.Rules) != 7 || f.Domain != nil || f.Name != "f" {
		t.Fatalf("%+v", f)
	}
	first := f.Rules[0]
	if first.Line != 2 || first.Column != 2 {
		t.Errorf("the first rule is in %d:%d", first.Line, first.Column)
	}
	m := &match.Match{
		Methods: []string{"POST", "PUT"}, Hosts: []string{"example.com"}, Paths: []string{"/login"}, PathPrefixes: []string{"/v1", "/v2"},
		Headers: map[string]string{"X-Plan": "free"}, ExceptIPs: []string{"10.0.0.0/8"},
	}
	want := written{
		Name: "login", Match: m, Key: []string{"client_ip", "header:X-User"},
		Tiers:     tiers("header:X-Plan", "pro", "100/1m", "staff", "unlimited", "*", "50/1m"),
		Overrides: []override{{Key: []string{"192.0.2.0/24", "bob"}, Limit: "1000/1m"}},
		Algorithm: "token_bucket", Burst: "20", Refill: "interval", Cost: "header:X-Cost", IPv4Prefix: "24", IPv6Prefix: "56",
		Enforcement: "shadow", OnLimit: "reject", OnError: "open", OnMissingKey: "skip", CountRejected: "true",
	}
	text := textOf(want)
	SetPairs(One(text, "match"), "headers", []Pair{{"X-Plan", "free"}, {"X-Number", "5"}}) // in their order
	sameText(t, &first.RuleText, text)
	for i, want := range []written{
		{
			Name: "policies", Limit: "100/1m", Algorithm: "token_bucket", Enforcement: "soft 20% 30s", Penalty: []string{"1m", "1h"}, Concurrency: "5",
			Candidate: &candidate{Limit: "50/1m", Algorithm: "token_bucket", Burst: "9", Refill: "interval"},
		},
		{Name: "wait", Limit: "5/1s", Algorithm: "fixed_window", OnLimit: "delay", MaxWaiting: "9", MaxWaitingPerKey: "3"},
		{Name: "failures", Limit: "5/1m", Segments: "12", Count: []string{"401", "4xx"}, Penalty: []string{"10m"}},
	} {
		sameText(t, &f.Rules[3+i].RuleText, textOf(want))
	}
	daily := f.Rules[1]
	if daily.Name != "daily" || daily.Texts["limit"] != "1000/day" || daily.Texts["time_zone"] != "UTC" || len(daily.Objects) > 0 || daily.Texts["burst"] != "" || f.Rules[2].Texts["max_delay"] != "2s" {
		t.Errorf("%+v %+v", daily, f.Rules[2])
	}
}

func sameText(t *testing.T, got, want *RuleText) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

// A value that is megabytes long, and wrong in many places, is not written out in each message.
func TestMessagesStayShort(t *testing.T) {
	long := strings.Repeat("k", 100_000)
	for _, text := range []string{
		`{"` + long + `": 1}`,
		`{"` + long + `": 1, "` + long + `": 2}`,
		`{"rules": [{"name": "` + long + `", "limit": "x", "tiers": 5}, {"name": "` + long + `", "limits": "x"}]}`,
		`{"rules": [{"name": "a", "tiers": {"source": "path", "limits": {"` + long + `": null, "` + long + `x": []}}}]}`,
		`{"domain": "` + long + `", "descriptors": [{"key": "a"}, {"key": "a"}]}`,
		`{"domain": "d", "descriptors": [{"key": "` + long + `", "descriptors": [{"key": "` + long + `", "value": "a", "shadow_mode": 5}, {"key": "a"}, {"key": "a"}]}]}`,
	} {
		_, problems := decoded(text)
		if len(problems) == 0 {
			t.Errorf("%.60s is accepted", text)
		}
		for _, p := range problems {
			if len(p) > 1000 {
				t.Errorf("%.60s: a message of %d bytes: %.200s", text, len(p), p)
			}
		}
	}
}

func TestProblemsAreWrittenAsCompilersDoAndNoMoreThanAPageful(t *testing.T) {
	p := Problems{{File: "a.yaml", Line: 3, Column: 7, Text: "is wrong"}, {File: "b.yaml", Text: "is not there"}}
	if got := p.Error(); got != "a.yaml:3:7: is wrong\nb.yaml: is not there" {
		t.Error(got)
	}
	for len(p) < 15 {
		p = append(p, p[0])
	}
	if got := strings.Split(p.Error(), "\n"); len(got) != 11 || got[10] != "and 5 more" {
		t.Errorf("%q", got)
	}
}

func TestOfAThousandProblemsNoMoreAreKept(t *testing.T) {
	text := `{"rules": ["a"` + strings.Repeat(`,"a"`, 1500) + `]}`
	if _, problems := decoded(text); len(problems) != mostKept {
		t.Errorf("%d problems", len(problems))
	}
}

func TestParseJSONSaysWhereItIsNone(t *testing.T) {
	checkRefused(t, []refused{
		{``, []string{`1:1: is no JSON: unexpected end of JSON input`}},
		{"{\n\t\"a\": 1,\n}", []string{`3:1: is no JSON: invalid character '}' looking for beginning of object key string`}},
		{"{\"ä\": 1,, \"b\": 2}", []string{`1:9: is no JSON: invalid character ',' looking for beginning of object key string`}},
		{"{\"rules\": []}\n{}", []string{`2:1: is no JSON: invalid character '{' after top-level value`}},
		{"{\"rules\": [],\n \"rules\": []}", []string{`2:2: duplicate key "rules", first in line 1; keep one`}},
		{"{\"rules\": [{\"name\": \"ä\",\r\n\"name\": 1}]}", []string{`2:1: duplicate key "name", first in line 1; keep one`}},
		{"{\"rules\": \"a\xff\"}", []string{`1:13: the byte 0xff is no UTF-8; save the file in that encoding`}},
		{"\n{\"r\xe9gles\": 1}", []string{`2:4: the byte 0xe9 is no UTF-8; save the file in that encoding`}},
		{strings.Repeat("[", 66) + strings.Repeat("]", 66), []string{`1:66: is nested more than 64 deep`}},
		{"{\"ä\": \"ö\", \"\\u00fc\": 1, \"x\": {\"a\": 1, \"a\": 2}}", []string{`1:39: duplicate key "a", first in line 1; keep one`}},
		{"// a comment\n{}", []string{`1:1: is no JSON: invalid character '/' looking for beginning of value`}},
	})
	for _, text := range []string{strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 100_000)} {
		if _, problems := decoded(text); len(problems) != 1 || !strings.Contains(problems[0], "is no JSON") {
			t.Errorf("%.20s…: %q", text, problems)
		}
	}
	accepted(t, "\ufeff"+known)
}

// The way to a place is counted once, not from the beginning of its line for each value: a file of one line took minutes.
func TestALongLineIsReadInOneGo(t *testing.T) {
	items := 20_000
	if interpreted {
		items = 500
	}
	text := "[" + strings.Repeat(`{"ä":"b"},`, items) + "{\"a\":1,\n\"a\":2}]"
	_, problems := ParseJSON("f", []byte(text))
	if len(problems) != 1 || problems[0].Line != 2 || problems[0].Column != 1 {
		t.Fatalf("%v", problems)
	}
	text = "[" + strings.Repeat(`{"ä":"b"},`, items) + "{\"a\":1,\"a\":2}]"
	_, problems = ParseJSON("f", []byte(text))
	if want := 10*items + 9; len(problems) != 1 || problems[0].Column != want {
		t.Fatalf("%v, want column %d", problems, want)
	}
}
