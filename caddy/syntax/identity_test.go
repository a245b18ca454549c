package syntax

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/tools/must"
)

// The name under which a zone counts must not change with an update of Weir: else every counter would start afresh.
func TestAZoneCountsInThePlaceThatItAlwaysHas(t *testing.T) {
	const limit = "n|z|sliding_window_counter/60000000us|"
	for _, c := range []struct {
		key        string
		ipv4, ipv6 int
		want       string
	}{
		{"", 0, 0, "client_ip"},
		{"{http.vars.client_ip}", 0, 0, "client_ip"},
		{"", 24, 0, "client_ip /24 /0"},
		{"", 0, 64, "client_ip /0 /64"},
		{"", 32, 128, "client_ip"},
		{"all", 0, 0, "all"},
		{"all", 0, 64, "all /0 /64"},
		{`\{a}`, 0, 0, `\{a}`},
		{"{http.auth.user.id}", 0, 0, "{http.auth.user.id}"},
		{"{http.auth.user.id}", 24, 64, "{http.auth.user.id} /24 /64"},
		{"{http.vars.client_ip} {http.auth.user.id}", 0, 0, "{http.vars.client_ip} {http.auth.user.id}"},
		{"user-{http.request.header.X-User}", 0, 0, "user-{http.request.header.X-User}"},
		{"2{http.request.host}", 0, 0, "2{http.request.host}"},
		{"{http.request.hostport}", 0, 0, "{http.request.hostport}"},
		{"{http.request.uri.path.dir}", 0, 0, "{http.request.uri.path.dir}"},
		{"{http.request.orig_uri.path}", 0, 0, "{http.request.orig_uri.path}"},
		{"{http.request.header.}", 0, 0, "{http.request.header.}"},
	} {
		zone := &Zone{Key: c.key, IPv4Prefix: c.ipv4, IPv6Prefix: c.ipv6, Requests: 5, Period: "1m"}
		if got := compiled(t, zone).Rule.Limits.Own().Identity; got != limit+c.want {
			t.Errorf("key %q /%d /%d: counts in %s, want %s", zone.Key, zone.IPv4Prefix, zone.IPv6Prefix, got, limit+c.want)
		}
	}
	dialect := &Zone{MaxEvents: 5, Window: caddy.Duration(60e9)}
	if got, want := compiled(t, dialect).Rule.Limits.Own().Identity, "n|z|sliding_window_log/60000000us|"; got != want {
		t.Errorf("events in a window: count in %s, want %s", got, want)
	}
}

func compiled(t *testing.T, zone *Zone) *CompiledZone {
	t.Helper()
	c, err := zone.Compile("z", "n")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A key that means the same in Caddy and in Traefik has the same value and is counted in the same place, so both can share a Redis.
func TestAKeyOfTheSameMeaningIsTheSameInBothProxies(t *testing.T) {
	r := newKeyRequest()
	r.Method, r.Host, r.RemoteAddr = "pOST", "Shop.Example:8080", "192.0.2.9:4000"
	r.URL = &url.URL{Path: "//A/./b", RawQuery: "a=1&a=2&b=%20x"}
	const token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5hIn0.c2lnbmF0dXJl" // {"sub":"anna"}
	r.Header = http.Header{"X-User": {"ann", "bob"}, "X-Addr": {"2001:DB8::0:1"}, "Cookie": {"id=7; id=8; ID=9; session=" + token}}
	for _, c := range []struct {
		template   string
		ipv6       int // prefix of the zone; the rule has the default
		sources    []string
		want, spec string
	}{
		{"{http.request.header.X-User}", 0, []string{"header:X-User"}, "ann,bob", "header:X-User"},
		{"{http.request.header.x-user}", 64, []string{"header:X-User"}, "ann,bob", "header:X-User"},
		{"{http.request.header.X-Addr}", 64, []string{"header:x-addr"}, "2001:db8::/64", "header:X-Addr"},
		{"{http.request.cookie.id}", 0, []string{"cookie:id"}, "7", "cookie:id"},
		{"{http.request.uri.query.a}", 0, []string{"query:a"}, "1", "query:a"},
		{"{http.request.host}", 0, []string{"host"}, "shop.example", "host"},
		{"{http.request.method}", 0, []string{"method"}, "POST", "method"},
		{"{http.request.uri.path}", 0, []string{"path"}, "/a/b", "path"},
		{"{http.request.remote.host}", 64, []string{"remote_ip"}, "192.0.2.9", "remote_ip /0 /64"},
		{"{http.vars.client_ip}", 64, []string{"client_ip"}, "192.0.2.1", "client_ip /0 /64"},
		{"{http.vars.client_ip} {http.request.uri.path}", 64, []string{"client_ip", "path"}, "9:192.0.2.14:/a/b", "client_ip path /0 /64"},
		{"{http.rate_limit.path_segment:2}", 0, []string{"path_segment:2"}, "b", "path_segment:2"},
		{"{http.rate_limit.path_regexp:^/([a-z]{1,2})/}", 0, []string{"path_regexp:^/([a-z]{1,2})/"}, "a", "path_regexp:^/([a-z]{1,2})/"},
		{`{http.rate_limit.path_regexp:^/([^\}]+)/}`, 0, []string{`path_regexp:^/([^\}]+)/`}, "a", `path_regexp:^/([^\}]+)/`},
		{"{http.rate_limit.unverified_jwt_claim:sub@cookie:session}", 0, []string{"unverified_jwt_claim:sub@cookie:session"}, "anna", "unverified_jwt_claim:sub@cookie:session"},
		{"{http.rate_limit.client_cert:subject} {http.request.host}", 0, []string{"client_cert:subject", "host"}, "0:12:shop.example", "client_cert:subject host"},
		{"{http.rate_limit.first(header:X-None,client_ip)}", 64, []string{"first(header:X-None", " client_ip)"}, "client_ip=192.0.2.1", "first(header:X-None, client_ip) /0 /64"},
		{"{http.rate_limit.first({http.request.header.X-Addr}, {http.vars.client_ip})}", 64, []string{"first(header:X-Addr, client_ip)"}, "header:X-Addr=2001:db8::/64", "first(header:X-Addr, client_ip) /0 /64"},
		{"{http.request.host}|{http.request.method}, {http.request.header.X-User}", 0, []string{"host", "method", "header:X-User"}, "12:shop.example4:POST7:ann,bob", "host method header:X-User"},
	} {
		zone := compiled(t, &Zone{Key: c.template, IPv6Prefix: c.ipv6, Requests: 5, Period: "1m"})
		identity := zone.Rule.Limits.Own().Identity
		text := &ruleset.RuleText{Name: "z"}
		ruleset.SetText(&text.Object, "limit", "5/1m")
		ruleset.SetList(&text.Object, "key", c.sources)
		rule, wrong := ruleset.Compile(text, ruleset.Context{Namespace: "n", Prefixes: ruleset.Standard})
		if len(wrong) > 0 {
			t.Fatal(wrong[0])
		}
		if other := rule.Limits.Own().Identity; identity != other || rule.Limits.Own().KeySpec() != c.spec {
			t.Errorf("%s counts in %s, and %v in %s; want %s", c.template, identity, c.sources, other, c.spec)
		}
		inCaddy, _ := ruleset.KeyOf(zone.Rule, r, "192.0.2.1", nil)
		inTraefik, _ := ruleset.KeyOf(rule, r, "192.0.2.1", nil)
		if inCaddy != c.want || inTraefik != c.want {
			t.Errorf("%s: key %q, in Traefik %q; want %q", c.template, inCaddy, inTraefik, c.want)
		}
	}
}

// Otherwise a setting would be accepted and ignored.
func TestAZoneHasTheFieldsOfTheSchema(t *testing.T) {
	for object, of := range map[string]any{"rule": &Zone{}, "tiers": &Tiers{}, "override": &Override{}, "candidate": &Candidate{}} {
		names := FieldNames(reflect.TypeOf(of).Elem())
		for _, f := range ruleset.Schema[object] {
			if f.Name != "name" && (object != "rule" || f.Name != "limit") && !slices.Contains(names, f.Name) {
				t.Errorf("%T has no %s", of, f.Name)
			}
		}
	}
}

// Alternatives in Caddy's own language count as those of all proxies do: a user named as an address is not that address.
func TestTheFirstOfSeveralPlaceholdersHasItsName(t *testing.T) {
	zone := compiled(t, &Zone{Key: "{http.rate_limit.first({http.auth.user.id}, {plan}, {http.vars.client_ip})}", Requests: 5, Period: "1m", Overrides: []Override{{Key: []string{"http.auth.user.id=anna"}, Limit: "9/1m"}}})
	for _, c := range []struct {
		user, plan, want string
		limit            int64
	}{
		{"anna", "", "http.auth.user.id=anna", 9},
		{"192.0.2.1", "pro", "http.auth.user.id=192.0.2.1", 5},
		{"", "pro", "plan=pro", 5},
		{"", "", "client_ip=192.0.2.1", 5},
	} {
		r := newKeyRequest()
		ReplacerOf(r).Set("http.auth.user.id", c.user)
		ReplacerOf(r).Set("plan", c.plan)
		key, _ := ruleset.KeyOf(zone.Rule, r, "192.0.2.1", nil)
		must.Equal(t, key, c.want, "%+v", c)
		must.Equal(t, ruleset.LimitOf(zone.Rule, r, "192.0.2.1", key).Limit.Requests, c.limit, "%+v", c)
	}
	if source := zone.Rule.Parts[0].Source; !IsCaddys(source) || !source.OfAddress() {
		t.Errorf("%v", source)
	}
}
