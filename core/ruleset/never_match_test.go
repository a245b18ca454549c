package ruleset

import (
	"fmt"
	"sort"
	"strings"
	"testing"
)

// neverMatch has by kind the values that no request has, as people write them.
var neverMatch = map[string][]string{
	"method":       {"", "*", "ANY", "all", "GET|POST", "GET,POST", "!", "!!GET", "~GET", "POST /login", "POTS", "GE*"},
	"host":         {"", "*", "shop.example:443", "https://shop.example", "shop.example/login", "me@shop.example", ".shop.example", "~^shop", "shop.*", "a b", "b\u00fccher.example", "{host}", "POST", "!https://shop.example"},
	"path":         {"", "login", "https://shop.example/login", "/login?next=1", "/login#top", "/a%2Fb", "/a%20b", "~^/login", "^/login", "/login.*", "/users/{id}", "/users/:id", "/a/*/b", "*", "!", "*//x", "POST /login", "!login"},
	"path prefix":  {"", "api", "https://shop.example/api", "/api?x", "/api/*", "/api*", "/a%2Fb", "~^/api", "/users/{id}", "/users/:id"},
	"header":       {"", "X A", "X-A:", "Host", "HTTP_X_A", "Transfer-Encoding", "Trailer", ":path", "b\u00fc"},
	"header value": {"~bot", "=~bot", "^bot", "bot$", ".*bot.*", "(?i)bot", " bot", "bot\n", "!", "!!bot", "a*b", "**", "*/*", "10.0.0.0/8"},
	"parameter":    {"", "?a", "a=b", "a&b", "#a"},
	"cookie":       {"", "a b", "a=b", "a;b", "b\u00fc"},
	"value":        {"~bot", "=~bot", "^bot", "bot$", ".*bot.*", "(?i)bot", "!", "!!bot", "a*b", "**"},
	"address":      {"", "010.0.0.1", "10.0.0.256", "10.0", "10.*", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "10.0.0.1-10.0.0.9", "shop.example", "unknown", "private_ranges", "*", "!10.0.0.1", "[2001:db8::]/32"},
	"client":       {"010.0.0.1", "10.0.0.0/8", "10.*", "shop.example", "unknown", "*.example"},
	"source":       {"header:X A", "header:HTTP_X_A", "header:Trailer", "cookie:a=b", "query:?a", "clientip", "X-Api-Key", "headers:X", "host:shop.example", "path_segment:0", "path_regexp:^/a", "path_regexp:(", "jwt:sub", "client_cert:cn", "first(host)"},
}

// matching says for each field of the Schema what kind its values have, and rules with such a value, written as %s. A field without values that requests
// are compared with has none.
var matching = map[string]map[string]string{ // object.field: by kind a rule
	"match.methods":       {"method": `"limit": "5/1m", "match": {"methods": [%s]}`},
	"match.hosts":         {"host": `"limit": "5/1m", "match": {"hosts": [%s]}`},
	"match.paths":         {"path": `"limit": "5/1m", "match": {"paths": [%s]}`},
	"match.path_prefixes": {"path prefix": `"limit": "5/1m", "match": {"path_prefixes": [%s]}`},
	"match.headers":       {"header": `"limit": "5/1m", "match": {"headers": {%s: "a"}}`, "header value": `"limit": "5/1m", "match": {"headers": {"X-A": %s}}`},
	"match.query":         {"parameter": `"limit": "5/1m", "match": {"query": {%s: "a"}}`, "value": `"limit": "5/1m", "match": {"query": {"a": %s}}`},
	"match.cookies":       {"cookie": `"limit": "5/1m", "match": {"cookies": {%s: "a"}}`, "value": `"limit": "5/1m", "match": {"cookies": {"a": %s}}`},
	"rule.count_match":    {"path": `"limit": "5/1m", "count_match": {"paths": [%s]}`, "method": `"limit": "5/1m", "count_match": {"methods": [%s]}`},
	"match.except_ips":    {"address": `"limit": "5/1m", "match": {"except_ips": [%s]}`},
	"rule.key":            {"source": `"limit": "5/1m", "key": [%s]`},
	"rule.cost":           {"source": `"limit": "5/1m", "cost": %s`},
	"tiers.source":        {"source": `"tiers": {"source": %s, "limits": {"a": "5/1m", "*": "1/1m"}}`},
	"tiers.limits":        {"client": `"tiers": {"source": "client_ip", "limits": {%s: "5/1m", "*": "1/1m"}}`},
	"limit_from.source":   {"source": `"limit": "5/1m", "limit_from": {"source": %s}`},
	"override.key":        {"client": `"limit": "5/1m", "overrides": [{"key": %s, "limit": "9/1m"}]`},

	"rule.name": nil, "rule.match": nil, "rule.limit": nil, "rule.tiers": nil, "rule.limit_from": nil, "limit_from.max": nil, "rule.overrides": nil, "rule.algorithm": nil, "rule.burst": nil, "rule.refill": nil, "rule.segments": nil, "rule.window_start": nil, "rule.jitter": nil,
	"rule.ipv4_prefix": nil, "rule.ipv6_prefix": nil, "rule.enforcement": nil, "rule.on_limit": nil, "rule.max_delay": nil, "rule.max_waiting": nil, "rule.max_waiting_per_key": nil, "rule.count": nil,
	"rule.cost_response": nil, "rule.cost_max": nil, "rule.respect_upstream": nil,
	"rule.penalty": nil, "rule.concurrency": nil, "rule.candidate": nil, "rule.adapt": nil, "rule.consistency": nil, "rule.regions": nil, "rule.on_error": nil, "rule.on_missing_key": nil, "rule.count_rejected": nil, "rule.message": nil,
	"rule.answer": nil, "answer.status": nil, "answer.type": nil, "answer.body": nil, "answer.file": nil, "answer.redirect": nil, "answer.close": nil,
	"override.limit": nil, "adapt.floor": nil, "adapt.ceiling": nil, "adapt.step": nil, "adapt.algorithms": nil,
	"candidate.limit": nil, "candidate.algorithm": nil, "candidate.burst": nil, "candidate.refill": nil, "candidate.segments": nil, "candidate.window_start": nil,
	"rule.time_zone": nil, "candidate.time_zone": nil, // a name that does not exist is refused: see TestTimeZonesAreTheCalendarsWhereverOneIs
}

// A new field of the Schema needs a row above.
func TestAValueThatNeverMatchesIsRefusedOrWarnedOf(t *testing.T) {
	for object, fields := range Schema {
		for i := range fields {
			name := object + "." + fields[i].Name
			if _, found := matching[name]; !found {
				t.Errorf("%s: is not among those of which is said what they are compared with", name)
			}
		}
	}
	names := make([]string, 0, len(matching))
	for name := range matching {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if object, field, _ := strings.Cut(name, "."); FieldOf(object, field) == nil {
			t.Errorf("%s: is no field", name)
		}
		for kind, rule := range matching[name] {
			if len(neverMatch[kind]) == 0 {
				t.Errorf("%s: the kind %s has no values", name, kind)
			}
			for _, value := range neverMatch[kind] {
				text := `{"rules": [{"name": "a", ` + fmt.Sprintf(rule, fmt.Sprintf("%q", value)) + `}]}`
				if advice, problems := loadText(t, text); len(advice) == 0 && problems == nil {
					t.Errorf("%s: is neither refused nor warned of: %s", name, text)
				}
			}
		}
	}
}

// loadText returns what is said of a rule file.
func loadText(t *testing.T, text string) (advice []string, problems error) {
	t.Helper()
	root, wrong := ParseJSON("a.json", []byte(text))
	if wrong != nil {
		return advice, wrong
	}
	f, wrong := Decode("a.json", root)
	if wrong != nil {
		return advice, wrong
	}
	s, err := NewSet([]*File{f}, "")
	if err != nil {
		return advice, err
	}
	for _, r := range s.Rules {
		advice = append(advice, adviceOf(r)...)
	}
	return advice, problems
}

// What people rightly write is neither refused nor warned of.
func TestOrdinaryValuesAreNotWarnedOf(t *testing.T) {
	for _, match := range []string{
		`"methods": ["post", "GET", "!OPTIONS", "PURGE", "M-SEARCH"]`,
		`"hosts": ["Shop.Example", "*.shop.example", "localhost", "192.0.2.7", "[::1]", "!admin.shop.example", "my_host", "xn--bcher-kva.example"]`,
		`"paths": ["/", "/login", "/Login/", "/a b", "*.php", "/api/*", "*wp-*", "!/health", "/_next/(group)/[id].js", "/@user", "/a:b", "/.well-known/acme", "/robots.txt*"]`,
		`"path_prefixes": ["/", "/v1", "/v1/", "!/v1/health"]`,
		`"headers": {"X-Plan": "free", "Authorization": "Bearer *", "User-Agent": "*bot*", "X-User": "", "Content-Type": "application/json", "X-Env": "!prod", "Accept": "*text/html*", "Upgrade": "websocket", "Origin": "https://shop.example", "X_Id": "*"}`,
		`"query": {"format": "csv", "page": "!*", "q": "*sql*", "a-b[]": ""}, "cookies": {"plan": "fr*", "session": "!*", "__Host-x": "*"}`,
		`"except_ips": ["10.0.0.0/8", "10.1.2.3/8", "2001:DB8::1", "[2001:db8::1]", "::ffff:10.0.0.1", "203.0.113.9:80", "fe80::1%eth0"]`,
	} {
		if advice, problems := loadText(t, `{"rules": [{"name": "a", "limit": "5/1m", "match": {`+match+`}}]}`); len(advice) > 0 || problems != nil {
			t.Errorf("%s: %v, %v", match, advice, problems)
		}
	}
}
