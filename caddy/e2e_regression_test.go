package ratelimit_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	ratelimit "github.com/proxyweir/weir/caddy"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/tools/must"
)

// Defect found: if the error routes of an enclosing subroute do not answer, Caddy goes on behind the subroute, so the rejected
// request reached what the limit was to protect.
func TestARejectedRequestNeverReachesWhatIsBehindASubroute(t *testing.T) {
	for _, response := range []string{"auto", "error_routes", "direct"} {
		for name, errorRoute := range map[string]string{
			"that does not match":  `{"match": [{"path": ["/nothing"]}], "handle": [{"handler": "static_response", "body": "sub"}]}`,
			"that does not answer": `{"handle": [{"handler": "headers", "response": {"set": {"X-Sub": ["1"]}}}]}`,
			"that is rewritten":    `{"handle": [{"handler": "rewrite", "uri": "/error.html"}]}, {"match": [{"path": ["/"]}], "handle": [{"handler": "static_response", "body": "sub"}]}`,
			"that answers":         `{"handle": [{"handler": "static_response", "body": "sub", "status_code": "429"}]}`,
		} {
			t.Run(response+", an error route "+name, func(t *testing.T) {
				s := startJSON(t, `{"http": {"servers": {"srv0": {"listen": ["127.0.0.1:PORT"], "automatic_https": {"disable": true},
					"errors": {"routes": [{"handle": [{"handler": "static_response", "body": "of the server", "status_code": "429"}]}]},
					"routes": [{"handle": [
						{"handler": "subroute",
							"routes": [{"handle": [{"handler": "rate_limit", "response": "`+response+`", "rate_limits": {"z": {"requests": 1, "period": "366d"}}}]}],
							"errors": {"routes": [`+errorRoute+`]}},
						{"handler": "static_response", "body": "protected"}]}]}}}}`)
				if r := s.do("/"); r.body != "protected" {
					t.Fatalf("%d %q; want the protected page", r.status, r.body)
				}
				if r := s.do("/"); r.status != http.StatusTooManyRequests || strings.Contains(r.body, "protected") {
					t.Errorf("%d %q; want 429 and nothing of the protected page", r.status, r.body)
				}
			})
		}
	}
}

// Defect found: error routes were matched with the URI as handle_path had rewritten it, but Caddy undoes that first.
func TestErrorRoutesAreAskedAboutTheOriginalURI(t *testing.T) {
	const site = "handle_path /api/* {\nrate_limit 1/366d\nrespond ok\n}\nhandle_errors {\n"
	s := startSite(t, site+"@api path /api/*\nrespond @api \"page of the api\"\n}")
	s.admit(1, "/api/x")
	if r := s.reject("/api/x"); r.body != "page of the api" {
		t.Errorf("body %q; want the error route's", r.body)
	}
	s.reload(site + "@x path /x\nrespond @x \"page of x\"\n}")
	if r := s.reject("/api/x"); !strings.HasPrefix(r.body, "Too many requests") {
		t.Errorf("body %q; want Weir's own, since no error route takes /api/x", r.body)
	}
}

func TestAGRPCCallGetsAGRPCStatusOnASiteWithErrorRoutes(t *testing.T) {
	s := start(t, "servers {\nprotocols h1 h2c\n}\n", ":PORT {\nrate_limit 1/366d\nrespond ok\nhandle_errors {\nrespond sorry\n}\n}")
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := s.newClient(protocols)
	defer client.CloseIdleConnections()
	for _, want := range []string{"", "8"} {
		r, err := s.try(client, "POST /package.Service/Method", "Content-Type", "application/grpc")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.header.Get("Grpc-Status"); r.status != http.StatusOK || got != want {
			t.Errorf("status %d, grpc-status %q; want 200 and %q", r.status, got, want)
		}
	}
}

// No other refusal may be left to the error routes of a subroute around the handler either.
func TestEarlyDataNeverReachesWhatIsBehindASubroute(t *testing.T) {
	startJSON(t, httpApp(`[{"handler": "subroute", "errors": {"routes": []},
		"routes": [{"handle": [{"handler": "rate_limit", "rate_limits": {"z": {"requests": 1, "period": "366d"}}}]}]}]`))
	sub := httpServer(t).Routes[0].Handlers[0].(*caddyhttp.Subroute)
	handler := sub.Routes[0].Handlers[0].(*ratelimit.Handler)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.TLS = new(tls.ConnectionState)
	w := httptest.NewRecorder()
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, httpServer(t))
	err := handler.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
		t.Error("it was passed on")
		return nil
	}))
	if err != nil || w.Code != http.StatusTooEarly {
		t.Errorf("status %d, error %v; want 425 and no error", w.Code, err)
	}
}

// Defect found: the log had keys of 900 KB whole.
func TestALongKeyIsCutInTheLog(t *testing.T) {
	s := startSite(t, "rate_limit {\nlog_key\nzone z {\nkey {header.X-Key}\nlimit 1/366d\n}\n}\nrespond ok")
	for _, key := range []string{strings.Repeat("k", 256), strings.Repeat("k", 255) + strings.Repeat("é", 10000)} {
		s.admit(1, "/", "X-Key", key)
		s.reject("/", "X-Key", key)
	}
	var keys []string
	for _, line := range s.logs("rate limit exceeded") {
		keys = append(keys, fmt.Sprint(line["key"]))
	}
	if want := strings.Repeat("k", 256) + " " + strings.Repeat("k", 255) + "… (of 20255 bytes)"; strings.Join(keys, " ") != want {
		t.Errorf("keys %q", keys)
	}
}

func TestAShadowZoneIsSeenInTheLog(t *testing.T) {
	s := startSite(t, "rate_limit {\nzone ghost {\nkey {header.X-Key}\nlimit 1/366d\nenforcement shadow\n}\n}\nrespond ok")
	s.admit(3, "/", "X-Key", "anna")
	s.admit(3, "/", "X-Key", "berta")
	if lines := s.logs("rate limit exceeded in shadow"); len(lines) != 2 || lines[0]["zone"] != "ghost" {
		t.Errorf("%d lines: %v; want one of ghost for each key", len(lines), lines)
	}
}

func TestAPlaceholderThatNothingProvidesIsWarnedOf(t *testing.T) {
	s := startSite(t, "rate_limit {\nzone z {\nkey {clientip}\nlimit 5/366d\n}\n}\nrespond ok")
	s.admit(2, "/")
	lines := s.logs("the zone's key has a placeholder that nothing provides, so it is empty for every request")
	if len(lines) != 1 || lines[0]["placeholder"] != "clientip" {
		t.Errorf("%v; want one line on clientip", lines)
	}
	// Of a source that a key takes first, if there is one, it is told at once, and of no other that it is empty.
	s = startSite(t, "rate_limit {\nzone z {\nkey {http.rate_limit.first({userid},{vars.user},{header.X-User},{client_ip})}\nlimit 2000/366d\n}\n}\nrespond ok")
	s.admit(1100, "/")
	if told := s.serious(); len(told) != 1 || !strings.Contains(told[0], "nothing provides") || !strings.Contains(told[0], `"userid"`) {
		t.Errorf("%q; want one line on userid", told)
	}
}

// Defect found: a misspelt placeholder was told of at the first request alone, so that caddy validate said nothing.
func TestAMisspeltPlaceholderIsToldWhenTheConfigurationIsLoaded(t *testing.T) {
	s := startSite(t, "rate_limit {\nzone a {\nkey \"{headr.X-Api-Key} {header.X-Other} {extra.value}\"\nlimit 5/366d\n}\nzone b {\ntiers {http.request.headers.X-Plan} {\nfree 5/1h\n}\nlimit 5/366d\n}\n}\nrespond ok")
	for message, want := range map[string]string{
		"a placeholder of key is none of Caddy's; did you mean {header.X-Api-Key}?":             "a headr.X-Api-Key",
		"a placeholder of tiers is none of Caddy's; did you mean {http.request.header.X-Plan}?": "b http.request.headers.X-Plan",
	} {
		if lines := s.logs(message); len(lines) != 1 || fmt.Sprint(lines[0]["zone"], " ", lines[0]["placeholder"]) != want {
			t.Errorf("%s: %v; want one line on %s", message, lines, want)
		}
	}
	must.Equal(t, len(s.serious()), 2, "warnings")
}

// Each setting with placeholders is warned of once if no request has a value: at the first request if nothing provides it, else when many had none.
func TestAValueThatNobodyProvidesIsToldForEverySetting(t *testing.T) {
	zone := func(name, lines string) string { return "zone " + name + " {\n" + lines + "\nlimit 50000/366d\n}\n" }
	s := startAdmin(t, "", "http://127.0.0.1:PORT {\nrate_limit {\n"+zone("a", "cost {http.nobody.cost}")+zone("b", "tiers {http.nobody.plan} {\nfree 5/1h\n}")+zone("c", "cost {header.X-Cots}")+
		zone("d", "key {header.X-Key}")+zone("e", "key {header.X-None}\non_missing_key skip")+zone("f", "key {header.X-Kye}")+
		zone("g", "key {header.X-Other}\nmatch {\npath /other\n}")+"}\nrespond ok\n}")
	for i := range 1100 {
		fields := []string{}
		if i%500 == 499 {
			fields = []string{"X-Key", "a"}
		}
		s.admit(1, "/", fields...)
	}
	told := func(message string) string {
		var list []string
		for _, line := range s.logs(message) {
			list = append(list, fmt.Sprint(line["zone"], " ", line["placeholder"]))
		}
		return strings.Join(list, ", ")
	}
	for message, want := range map[string]string{
		"the zone's cost has a placeholder that nothing provides, so it is empty for every request":                        "a http.nobody.cost",
		"the zone's tiers has a placeholder that nothing provides, so it is empty for every request":                       "b http.nobody.plan",
		"the zone's cost has a placeholder that was empty for the first 1000 requests; is its name spelt as they have it?": "c header:X-Cots",
		"the zone's key has a placeholder that was empty for the first 1000 requests; is its name spelt as they have it?":  "f header:X-Kye",
		"the zone's key has a placeholder that nothing provides, so it is empty for every request":                         "",
	} {
		must.Equal(t, told(message), want, "%s: told of", message)
	}
	notes := func(answer any) string {
		list, _ := at(t, answer, "notes").([]any)
		return strings.TrimSuffix(fmt.Sprintln(list...), "\n")
	}
	got := make(map[string]string)
	for _, r := range s.ask("rules", "")["rules"].([]any) {
		got[fmt.Sprint(at(t, r, "name"))] = notes(r)
	}
	if want := map[string]string{"a": "cost: no request has had http.nobody.cost", "b": "tiers: no request has had http.nobody.plan",
		"c": "cost: no request has had header:X-Cots", "d": "", "e": "", "f": "key: no request has had header:X-Kye", "g": ""}; !maps.Equal(got, want) {
		t.Errorf("the notes of the rules are %q, want %q", got, want)
	}
	s.admit(1, "/", "X-Kye", "a")
	for _, r := range s.ask("rules", "")["rules"].([]any) {
		if text := notes(r); at(t, r, "name") == "f" && text != "" {
			t.Errorf("after a request that has it: %s", text)
		}
	}
	explained := notes(s.ask("explain", `{"url": "http://`+s.addr+`/", "client_ip": "192.0.2.7", "headers": {"X-None": "a", "X-Key": "a"}}`))
	if want := "the request has no http.nobody.cost, which the cost of zone a is taken from the request has no http.nobody.plan, which the tiers of zone b is taken from " +
		"the request has no header:X-Cots, which the cost of zone c is taken from the request has no header:X-Kye, which the key of zone f is taken from"; explained != want {
		t.Errorf("the notes of explain are %q, want %q", explained, want)
	}
}

func TestAPlaceholderThatComesTooLateIsRefused(t *testing.T) {
	for lines, want := range map[string]string{
		"cost {http.reverse_proxy.header.X-Cost}":             "cost \"{http.reverse_proxy.header.X-Cost}\": {http.reverse_proxy.header.X-Cost} has a value only after the limit has decided",
		"key {http.reverse_proxy.upstream.host}":              "has a value only after the limit has decided",
		"key {rp.status_code}":                                "has a value only after the limit has decided",
		"tiers {http.response.header.X-Plan} {\nfree 5/1h\n}": "has a value only after the limit has decided",
		"key {http.request.body}":                             "would read the whole body",
		"key {http.request.body_base64}":                      "would read the whole body",
		"cost {http.request.body}":                            "would read the whole body",
	} {
		s := newServer(t)
		_, err := s.adapt("", ":PORT {\nrate_limit {\nzone z {\n"+lines+"\nlimit 5/1m\n}\n}\nrespond ok\n}")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "at Caddyfile:") {
			t.Errorf("%s: %v; want %s, with its line", lines, err, want)
		}
	}
}

func TestNamedMatchersOfTwoSitesAreNotOneZone(t *testing.T) {
	s := start(t, "", "http://a.test:PORT {\n@api path /a*\nrate_limit @api 1/366d\nrespond ok\n}\nhttp://b.test:PORT {\n@api path /b*\nrate_limit @api 1/366d\nrespond ok\n}")
	s.admit(1, "http://a.test/a")
	s.admit(1, "http://b.test/b")
	s.reject("http://a.test/a")
}

func TestARejectionForAMissingKeyHasNoRetryAfter(t *testing.T) {
	s := startSite(t, "rate_limit {\nzone z {\nkey {header.X-Key}\nlimit 5/366d\non_missing_key reject\n}\n}\nrespond ok")
	if r := s.reject("/"); !strings.Contains(r.body, "lacks") || r.header.Get("Retry-After") != "" {
		t.Errorf("body %q, Retry-After %q", r.body, r.header.Get("Retry-After"))
	}
	s = startSite(t, "rate_limit {\nmessage \"wait {http.rate_limit.exceeded.retry_after}.\"\nzone z {\nkey {header.X-Key}\nlimit 5/366d\non_missing_key reject\n}\n}\nrespond ok")
	if r := s.reject("/"); strings.TrimSpace(r.body) != "wait ." {
		t.Errorf("body %q of a message with a time that there is not", r.body)
	}
}

// The answer about a missing key depends only on the zones that reject the request, and not on earlier requests.
func TestOnlyARequestWithoutItsKeyIsAnsweredSo(t *testing.T) {
	s := startSite(t, `rate_limit {
		zone a {
			key {header.X-Key}
			limit 5/366d
			cost {header.X-Cost}
			on_missing_key reject
		}
		zone b {
			key {header.X-Other}
			limit 5/366d
			enforcement shadow
			on_missing_key reject
		}
	}
	respond ok`)
	for range 5 { // they may reuse memory of earlier ones
		must.Contain(t, s.reject("/").body, "lacks", "of a request without a key")
		if r := s.reject("/", "X-Key", "a", "X-Cost", "9"); strings.Contains(r.body, "lacks") {
			t.Errorf("of a request that costs more than the limit has: %q", r.body)
		}
	}
}

// failingStore is a store that fails, which memory cannot.
type failingStore struct{}

func (failingStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.stores.weir_test_failing", New: func() caddy.Module { return new(failingStore) }}
}
func (*failingStore) Store() core.Store              { return failingStore{} }
func (failingStore) Open(*core.Rule) error           { return nil }
func (failingStore) Release(*core.Rule)              {}
func (failingStore) Decide([]core.Check, bool) error { return errors.New("the store is down") }
func (failingStore) Settle([]core.Reservation) error { return errors.New("the store is down") }
func (failingStore) Block(*core.Rule, string, int64) error {
	return errors.New("the store is down")
}
func (failingStore) Carry(from, to *core.Rule, done func()) { done() }
func (failingStore) Now() int64                             { return 0 }
func (failingStore) Reset(*core.Rule, string) error         { return errors.New("the store is down") }
func (failingStore) Credit(*core.Rule, string, int64) error { return errors.New("the store is down") }

// noStore is a module of the namespace that is no store.
type noStore struct{}

func (noStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.stores.weir_test_none", New: func() caddy.Module { return new(noStore) }}
}

func init() {
	caddy.RegisterModule(failingStore{})
	caddy.RegisterModule(noStore{})
}

func handlerWithStore(store, onError string) string {
	return httpApp(`[{"handler": "rate_limit", "store": {"store": "` + store + `"}, "rate_limits": {"z": {"requests": 2, "period": "366d", "on_error": "` + onError + `"}}},
		{"handler": "static_response", "body": "ok"}]`)
}

func TestOnErrorSaysWhatHappensWhenAStoreFails(t *testing.T) {
	for onError, want := range map[string][]int{"open": {200, 200, 200}, "closed": {503, 503, 503}, "local": {200, 200, 429}} {
		t.Run(onError, func(t *testing.T) {
			s := startJSON(t, handlerWithStore("weir_test_failing", onError))
			for i, status := range want {
				r := s.do("/")
				must.Equal(t, r.status, status, "request %d: status", i)
				if status == 503 && r.header.Get("Retry-After") != "1" {
					t.Errorf("Retry-After %q; want 1", r.header.Get("Retry-After"))
				}
			}
		})
	}
}

func TestAModuleThatIsNoStoreIsRefused(t *testing.T) {
	s := newServer(t)
	must.Contain(t, s.refused(s.json(handlerWithStore("weir_test_none", "open"))), "has no store for rate limits")
}
