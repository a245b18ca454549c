package ratelimit

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/tools/must"
)

// dialectCaddyfile has every word of caddy-ratelimit except storage, in the form that its users write: a site
// without braces, with the order that they had to set.
const dialectCaddyfile = `{
	order rate_limit before basic_auth
}

:8080

rate_limit {
	zone everyone_reads {
		match {
			method GET HEAD
			path /catalogue/*
		}
		key fixed
		events 300
		window 30s
	}
	zone each_visitor {
		key {remote_host}
		events 4
		window 10s
		ipv4_prefix 24
		ipv6_prefix 56
	}
	zone each_token {
		match {
			header Authorization *
		}
		key {header.Authorization}
		window 1h
		events 5000
	}
	distributed {
		read_interval 2s
		write_interval 3s
		purge_age 1h
	}
	jitter 0.1
	sweep_interval 2m
	log_key
}

respond "catalogue"
`

// dialectJSON is the same in the JSON of caddy-ratelimit's users.
const dialectJSON = `{
	"rate_limits": {
		"everyone_reads": {
			"match": [{"method": ["GET", "HEAD"], "path": ["/catalogue/*"]}],
			"key": "fixed",
			"window": 30000000000,
			"max_events": 300
		},
		"each_visitor": {
			"key": "{http.request.remote.host}",
			"window": 10000000000,
			"max_events": 4,
			"ipv4_prefix": 24,
			"ipv6_prefix": 56
		},
		"each_token": {
			"match": [{"header": {"Authorization": ["*"]}}],
			"key": "{http.request.header.Authorization}",
			"window": 3600000000000,
			"max_events": 5000
		}
	},
	"distributed": {
		"read_interval": 2000000000,
		"write_interval": 3000000000,
		"purge_age": 3600000000000
	},
	"jitter": 0.1,
	"sweep_interval": 120000000000,
	"log_key": true
}`

// TestDialectKeepsTheModulesName: configurations in JSON have it.
func TestDialectKeepsTheModulesName(t *testing.T) {
	if _, err := caddy.GetModule("http.handlers.rate_limit"); err != nil {
		t.Error(err)
	}
}

// TestDialectsCaddyfileComesToTheDialectsJSON compares field by field, and provisions.
func TestDialectsCaddyfileComesToTheDialectsJSON(t *testing.T) {
	adapted, warnings, err := adaptText(dialectCaddyfile)
	must.Succeed(t, err)
	if len(warnings) > 0 {
		t.Error(warnings)
	}
	handlers := handlersIn(t, strings.Replace(string(adapted), `"at":"Caddyfile:7",`, "", 1)) // which says where it is written
	if len(handlers) != 1 || !sameJSON(t, handlers[0], []byte(dialectJSON)) {
		t.Errorf("got\n%s\nwant\n%s", handlers, dialectJSON)
	}
	if _, err := validate(t, string(adapted)); err != nil {
		t.Error(err)
	}
}

// TestDialectsJSONProvisions, with durations as texts and in nanoseconds.
func TestDialectsJSONProvisions(t *testing.T) {
	handler := `{"handler": "rate_limit", ` + strings.TrimPrefix(dialectJSON, "{")
	for _, config := range []string{handler, strings.NewReplacer(" 30000000000", ` "30s"`, " 120000000000", ` "2m"`).Replace(handler)} {
		if _, err := validate(t, configOf(config)); err != nil {
			t.Error(err)
		}
	}
}

// TestDialectWithoutBracesAndWithItsOwnOrder: the order option that caddy-ratelimit's users need does no harm, and is not needed.
func TestDialectWithoutBracesAndWithItsOwnOrder(t *testing.T) {
	var first string
	for _, order := range []string{"order rate_limit before basic_auth", "order rate_limit before basicauth", ""} {
		config := strings.Replace(dialectCaddyfile, "\torder rate_limit before basic_auth", "\t"+order, 1)
		adapted, _, err := adaptText(config)
		if err != nil {
			t.Errorf("%q: %v", order, err)
			continue
		}
		if first == "" {
			first = string(adapted)
		}
		if string(adapted) != first {
			t.Errorf("%q: comes to\n%s\nand not to\n%s", order, adapted, first)
		}
	}
}

// TestRateLimitIsOrderedBeforeBasicAuth: a flood of wrong passwords costs no hashing.
func TestRateLimitIsOrderedBeforeBasicAuth(t *testing.T) {
	adapted, _, err := adaptText(":8080 {\nrespond ok\nbasic_auth {\nbob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\nrate_limit 100/1m\nheader X-Site 1\n}")
	must.Succeed(t, err)
	text := string(adapted)
	var at []int
	for _, handler := range []string{"headers", "rate_limit", "authentication", "static_response"} {
		at = append(at, strings.Index(text, `"handler":"`+handler+`"`))
	}
	for i := range at {
		if at[i] < 0 || i > 0 && at[i] < at[i-1] {
			t.Fatalf("headers, rate_limit, authentication and static_response stand at %v in\n%s", at, text)
		}
	}
}

// TestEventsInAWindowAreASlidingWindowLog: it is exact, as in caddy-ratelimit.
func TestEventsInAWindowAreASlidingWindowLog(t *testing.T) {
	h := new(Handler)
	must.Succeed(t, json.Unmarshal([]byte(dialectJSON), h))
	for name, zone := range h.RateLimits {
		c, err := zone.Compile(name, "")
		must.Succeed(t, err)
		limit := c.Rule.Limits.Own().Limit
		if limit.Algorithm != rate.SlidingWindowLog || limit.Requests != zone.MaxEvents || limit.Period != int64(zone.Window)/1000 {
			t.Errorf("%s: is %s", name, limit)
		}
	}
}

// TestDialectsZoneWithoutKeyHasOneCounterForAll: a limit in Weir's own words counts each client.
func TestDialectsZoneWithoutKeyHasOneCounterForAll(t *testing.T) {
	dialect, err := (&syntax.Zone{MaxEvents: 5, Window: caddy.Duration(1e9)}).Compile("z", "")
	own, other := (&syntax.Zone{Requests: 5, Period: "1s"}).Compile("z", "")
	if err != nil || other != nil {
		t.Fatal(err, other)
	}
	must.Equal(t, len(dialect.Rule.Parts), 0, "the dialect's key has %v", dialect.Rule.Parts)
	if len(own.Rule.Parts) != 1 || own.Rule.Parts[0].Source.String() != "client_ip" {
		t.Errorf("the other key has %v", own.Rule.Parts)
	}
}

// TestDialectsPrefixesAreOffByDefault: every address has its own counter, as in caddy-ratelimit.
func TestDialectsPrefixesAreOffByDefault(t *testing.T) {
	for text, masked := range map[string]bool{"": false, "ipv4_prefix 24\n": true, "ipv6_prefix 64\n": true} {
		h := new(Handler)
		d := caddyfile.NewTestDispenser("rate_limit {\nzone z {\nkey {http.request.remote.host}\nevents 5\nwindow 1m\n" + text + "}\n}")
		must.Succeed(t, h.UnmarshalCaddyfile(d))
		r := &http.Request{RemoteAddr: map[string]string{"ipv6_prefix 64\n": "[2001:db8::1]:80"}[text]}
		if r.RemoteAddr == "" {
			r.RemoteAddr = "192.0.2.1:80"
		}
		key, _ := ruleset.KeyOf(h.written["z"].Rule, r, "", nil)
		must.Equal(t, strings.Contains(key, "/"), masked, "%q: addresses are masked", text)
	}
}
