package ratelimit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// admin is the admin endpoint of a running Caddy.
type admin struct {
	*server
	base string
}

// startAdmin runs Caddy with its admin endpoint.
func startAdmin(t testing.TB, global, sites string) *admin {
	t.Helper()
	s := newServer(t)
	a := &admin{s, freeAddr(t)}
	a.reloadWith(global, sites)
	return a
}

func (a *admin) reloadWith(global, sites string) {
	a.t.Helper()
	config := bytes.Replace(a.caddyfile(global, sites), []byte(`"disabled":true`), []byte(`"listen":"`+a.base+`"`), 1)
	a.load(config)
	a.settle()
}

// settle waits until the previous configuration's endpoint has also shut down: until then it may accept a connection, and close it.
func (a *admin) settle() {
	a.t.Helper()
	http.DefaultClient.CloseIdleConnections()
	a.server.settle()
	eventually(a.t, "the admin endpoint before has shut down", func() bool { return !strings.Contains(stacks(), "caddy/v2.replaceLocalAdminServer.func1") })
}

// call makes a request of the API: a POST if there is a body, else a GET. It returns the status and the answer.
func (a *admin) call(path, body string, fields ...string) (int, map[string]any) {
	a.t.Helper()
	method := http.MethodGet
	var reader io.Reader
	if body != "" {
		method, reader = http.MethodPost, strings.NewReader(body)
	}
	r, err := http.NewRequest(method, "http://"+a.base+"/rate_limit/"+path, reader)
	must.Succeed(a.t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	must.Succeed(a.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must.Succeed(a.t, err)
	var answer map[string]any
	if err := json.Unmarshal(text, &answer); err != nil {
		a.t.Fatalf("%s: status %d, %v: %s", path, response.StatusCode, err, text)
	}
	return response.StatusCode, answer
}

// ask is call for requests that must succeed.
func (a *admin) ask(path, body string) map[string]any {
	a.t.Helper()
	status, answer := a.call(path, body)
	if status != http.StatusOK {
		a.t.Fatalf("%s %s: status %d: %v", path, body, status, answer)
	}
	return answer
}

// at returns the part of an answer at a path of names and indexes.
func at(t testing.TB, answer any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch part := answer.(type) {
		case map[string]any:
			answer = part[step.(string)]
		case []any:
			if step.(int) >= len(part) {
				t.Fatalf("%v: there is no %d in %v", path, step, part)
			}
			answer = part[step.(int)]
		default:
			t.Fatalf("%v: there is no %v in %v", path, step, part)
		}
	}
	return answer
}

// wantAt compares the text of a part of an answer.
func wantAt(t testing.TB, answer any, want string, path ...any) {
	t.Helper()
	must.Equal(t, fmt.Sprint(at(t, answer, path...)), want, "%v", path)
}

func TestAReloadDoesNotChangeWhenTheProcessBegan(t *testing.T) {
	a := startAdmin(t, "", ":PORT {\nrate_limit 5/1h\nrespond ok\n}")
	before := fmt.Sprint(at(t, a.ask("rules", ""), "started"))
	a.reloadWith("", ":PORT {\nrate_limit 6/1h\nrespond ok\n}")
	wantAt(t, a.ask("rules", ""), before, "started")
	if began, err := time.Parse(time.RFC3339Nano, before); err != nil || began.After(time.Now()) {
		t.Errorf("started: %q, %v", before, err)
	}
}

func TestAdminListsTheRulesInForceWithTheirOutcomes(t *testing.T) {
	a := startAdmin(t, behindProxy, `:PORT {
		rate_limit {
			namespace shop
			zone api {
				key "{header.X-Api-Key} {client_ip}"
				algorithm token_bucket
				limit 2/1h
				burst 3
				penalty 1h
				concurrency 4
				candidate {
					limit 1/1h
				}
			}
			zone plans {
				tiers {header.X-Plan} {
					gold 100/1m
					* 10/1m
				}
				override 192.0.2.1 unlimited
			}
			zone shadow {
				key everyone
				limit 1/1h
				enforcement shadow
			}
		}
		respond ok
	}`)
	for range 4 {
		a.do("/", "X-Api-Key", "k")
	}
	rules := a.ask("rules", "")
	first := at(t, rules, "rules", 0)
	for field, want := range map[string]string{
		"id": "shop/api", "namespace": "shop", "name": "api", "limit": "2/1h", "algorithm": "token_bucket", "requests": "2", "period_seconds": "3600",
		"burst": "3", "enforcement": "hard", "store": "memory", "source": "zone", "keys": "1", "waiting": "0", "penalties": "1",
		"key":   "[header:X-Api-Key client_ip]",
		"notes": "[penalty 1h candidate 1/1h token_bucket concurrency 4]",
	} {
		wantAt(t, first, want, field)
	}
	wantAt(t, first, "3", "outcomes", "allowed")
	wantAt(t, first, "1", "outcomes", "rejected")
	wantAt(t, first, "2", "candidate_decisions", "stricter")
	wantAt(t, rules, "10/1m", "rules", 1, "limit")
	wantAt(t, rules, "[map[for:tier * limit:10/1m] map[for:tier gold limit:100/1m] map[for:key 192.0.2.1 limit:unlimited]]", "rules", 1, "limits")
	wantAt(t, rules, "shadow", "rules", 2, "enforcement")
	wantAt(t, rules, "3", "rules", 2, "outcomes", "shadow_rejected")
	wantAt(t, rules, "[]", "rules", 2, "key")
}

// Defects found: a day was reported as 26 hours, the longest that one can be, and a limit of concurrency as one in a millionth of a
// second.
func TestAdminReportsPeriodsAsTheyAre(t *testing.T) {
	a := startAdmin(t, "", `:PORT {
		rate_limit {
			zone a_day {
				key static
				limit 5/day
			}
			zone b_week {
				key static
				limit 5/week
			}
			zone c_hours {
				key static
				limit 5/26h
			}
			zone d_places {
				key static
				concurrency 4
			}
		}
		respond ok
	}`)
	rules := a.ask("rules", "")
	for i, want := range []string{"86400", "604800", "93600", "<nil>"} {
		wantAt(t, at(t, rules, "rules", i), want, "period_seconds")
	}
}

func TestAdminShowsNoCredentialInClear(t *testing.T) {
	a := startAdmin(t, "", `:PORT {
		rate_limit {
			zone by-header {
				key {header.Authorization}
				limit 1/1h
			}
			zone by-cookie {
				key "{cookie.session} {client_ip}"
				limit 1/1h
			}
			zone by-query {
				key {query.token}
				limit 1/1h
			}
			zone by-uri {
				key {uri}
				limit 1/1h
			}
		}
		respond ok
	}`)
	const secret = "sk-0123456789-very-secret"
	for range 3 {
		a.do("/?token="+secret, "Authorization", "Bearer "+secret, "Cookie", "session="+secret)
	}
	var all strings.Builder
	for _, rule := range []string{"by-header", "by-cookie", "by-query", "by-uri"} {
		for _, by := range []string{"requests", "rejections"} {
			top := a.ask("top?rule="+rule+"&by="+by, "")
			fmt.Fprintln(&all, top)
			id := fmt.Sprint(at(t, top, "keys", 0, "id"))
			fmt.Fprintln(&all, a.ask("key?rule="+rule+"&id="+id, ""))
		}
	}
	fmt.Fprintln(&all, a.ask("rules", ""), a.ask("health", ""))
	fmt.Fprintln(&all, a.ask("explain", `{"url": "http://`+a.addr+`/?token=`+secret+`", "client_ip": "192.0.2.7", "headers": {"Authorization": "Bearer `+secret+`"}}`))
	response, err := http.Get("http://" + a.base + "/metrics")
	must.Succeed(t, err)
	defer response.Body.Close()
	metrics, _ := io.ReadAll(response.Body)
	all.Write(metrics)
	if strings.Contains(all.String(), "secret") || strings.Contains(all.String(), "0123456789") {
		t.Errorf("a credential is shown in clear:\n%s", all.String())
	}
	if !strings.Contains(all.String(), "#") {
		t.Errorf("nothing distinguishes credentials:\n%s", all.String())
	}
}

func TestAdminFindsTheKeysThatSendTheMost(t *testing.T) {
	a := startAdmin(t, behindProxy, ":PORT {\nrate_limit {\nzone z {\nlimit 5/366d\n}\n}\nrespond ok\n}")
	for i := range 20 {
		for range i + 1 {
			a.do("/", "X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i))
		}
	}
	top := a.ask("top?rule=z&n=3", "")
	wantAt(t, top, "[192.0.2.19]", "keys", 0, "key")
	wantAt(t, top, "20", "keys", 0, "requests")
	wantAt(t, top, "15", "keys", 0, "rejections")
	wantAt(t, top, "0", "keys", 0, "error")
	if n := len(at(t, top, "keys").([]any)); n != 3 {
		t.Errorf("%d keys, want 3", n)
	}
	wantAt(t, a.ask("top?rule=z&by=rejections&n=64", ""), "15", "keys", 0, "rejections")
	if n := len(at(t, a.ask("top?rule=z&by=rejections&n=64", ""), "keys").([]any)); n != 15 {
		t.Errorf("%d keys were rejected, want 15", n)
	}
}

// An operator acts on a key, by its parts and by its id, in memory and in Redis.
func TestAdminResetsBlocksAndUnblocks(t *testing.T) {
	redis := redistest.Start(t)
	for name, store := range map[string]string{"memory": "", "redis": storeAt(redis.Addr(), patiently)} {
		t.Run(name, func(t *testing.T) {
			a := startAdmin(t, behindProxy, ":PORT {\nrate_limit {\n"+store+"\nzone z {\nlimit 2/366d\nconcurrency 5\n}\n}\nrespond ok\n}")
			from := []string{"X-Forwarded-For", "192.0.2.7"}
			a.admit(2, "/", from...)
			wantAt(t, a.ask("key?rule=z&key=192.0.2.7", ""), "false", "rules", 0, "allowed")
			wantAt(t, a.ask("reset", `{"rule": "z", "key": ["192.0.2.7"]}`), "1", "keys")
			wantAt(t, a.ask("reset", `{"rule": "z", "key": ["192.0.2.77"]}`), "0", "keys")
			wantAt(t, a.ask("key?rule=z&key=192.0.2.7", ""), "2", "rules", 0, "remaining")
			a.admit(2, "/", from...)

			id := fmt.Sprint(at(t, a.ask("top?rule=z", ""), "keys", 0, "id"))
			a.ask("reset", `{"rule": "z", "id": "`+id+`"}`)
			a.ask("block", `{"rule": "z", "id": "`+id+`", "for": "2h"}`)
			a.reject("/", from...).seconds(t, "Retry-After", 7000, 7200)
			a.admit(2, "/", "X-Forwarded-For", "192.0.2.8")
			wantAt(t, a.ask("unblock", `{"rule": "z", "id": "`+id+`"}`), "1", "keys")
			wantAt(t, a.ask("unblock", `{"rule": "z", "id": "`+id+`"}`), "0", "keys")
			a.admit(2, "/", from...)
		})
	}
}

// Defect found: unblock ended a penalty, and answered that it had met no key, since the counter was still full.
func TestUnblockSaysThatItHasEndedAPenalty(t *testing.T) {
	redis := redistest.Start(t)
	for name, store := range map[string]string{"memory": "", "redis": storeAt(redis.Addr(), patiently)} {
		t.Run(name, func(t *testing.T) {
			a := startAdmin(t, "", ":PORT {\nrate_limit {\n"+store+"\nzone z {\nlimit 1/30d\npenalty 300d\n}\n}\nrespond ok\n}")
			const client = `{"rule": "z", "key": ["127.0.0.1"]}`
			a.admit(1, "/")
			wantAt(t, a.ask("unblock", client), "0", "keys")
			a.reject("/")
			wantAt(t, a.ask("unblock", client), "1", "keys")
			wantAt(t, a.ask("key", client), "false", "rules", 0, "allowed")
			wantAt(t, a.ask("unblock", client), "0", "keys")
		})
	}
}

func TestAdminSaysWhatIsWrong(t *testing.T) {
	a := startAdmin(t, "", ":PORT {\nrate_limit {\nzone login {\nlimit 5/1m\n}\nzone ghost {\nlimit 5/1m\nenforcement shadow\n}\nzone free {\nlimit unlimited\n}\nzone pair {\nkey \"{client_ip} {host}\"\nlimit 5/1m\n}\nzone all {\nkey static\nlimit 5/1m\n}\n}\nrespond ok\n}")
	for _, test := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"frobnicate", "", 404, "/rate_limit/frobnicate: there is no such thing; below /rate_limit/ there are blocked, rules, top, key, health, advice, freeze, revert, explain, deferred, exceptions, decide, limit, end, credit, reset, block, unblock"},
		{"rules", "{}", 405, "method POST: rules takes GET"},
		{"reset", "", 405, "method GET: reset takes POST"},
		{"top", "", 400, "rule: is missing"},
		{"top?rule=logn", "", 404, `rule "logn": there is none of that name (did you mean login?)`},
		{"top?rule=login&by=frequency", "", 400, `by "frequency": must be requests or rejections`},
		{"top?rule=login&n=0", "", 400, `n "0": must be from 1 to 64`},
		{"top?rule=login&rule=pair", "", 400, `parameter "rule": duplicate; keep one`},
		{"key?rule=login&key=192.0.2.7&id=a&id=b", "", 400, `parameter "id": duplicate; keep one`},
		{"top?rule=login&bye=requests", "", 400, `parameter "bye": must be rule, by or n`},
		{"key", "", 400, "key: is missing"},
		{"key?id=abc", "", 400, "id: names a key of one rule"},
		{"key?rule=login&id=abc", "", 404, `id "abc": is none of the rule's top keys any more`},
		{"key?rule=pair&key=192.0.2.7", "", 400, "key: has 1 part, and this rule's has 2: client_ip, host"},
		{"key?rule=all&key=static", "", 400, "key: this rule's has no parts, since all requests share one counter; leave key out"},
		{"reset", `{"rule": "login"`, 400, "the request's body: unexpected EOF"},
		{"reset", `{"rule": "login", "key": "192.0.2.7"}`, 400, `the request's body: key: must be a list of texts in quotes, such as ["192.0.2.7"], not a text`},
		{"reset", `{"rule": "login", "keys": ["192.0.2.7"]}`, 400, `the request's body: unknown field "keys" (did you mean key?)`},
		{"reset", `[]`, 400, "the request's body: must be an object, not a list"},
		{"reset", `{"rule": "login", "keys": ["a"]}`, 400, `unknown field "keys"`},
		{"reset", `{"rule": "login", "key": ["a"]} x`, 400, "unexpected text after the object"},
		{"reset", `{"rule": "login", "key": ["192.0.2.7"], "id": "abc"}`, 400, "key and id are mutually exclusive"},
		{"reset", `{"rule": "login", "key": "192.0.2.7"}`, 400, "the request's body: "},
		{"block", `{"rule": "login", "key": ["192.0.2.7"]}`, 400, `for "": must be a duration from 1ms to 366d, such as 1h`},
		{"block", `{"rule": "login", "key": ["192.0.2.7"], "for": "400d"}`, 400, `for "400d": must be`},
		{"block", `{"rule": "login", "key": ["192.0.2.7"], "for": "-1h"}`, 400, `for "-1h": must be`},
		{"block", `{"rule": "ghost", "key": ["192.0.2.7"], "for": "1h"}`, 409, `rule "ghost": is a shadow`},
		{"block", `{"rule": "free", "key": ["192.0.2.7"], "for": "1h"}`, 409, `rule "free": has no limit for some or all requests of this key`},
		{"explain", `{"client_ip": "192.0.2.7"}`, 400, `url: must be whole, such as https://example.com/login`},
		{"explain", `{"url": "http://a.test/", "client_ip": "192.0.2.7", "headers": ["X-Api-Key: a"]}`, 400, `headers: must be an object of texts, such as {"X-Api-Key": "sk-acme"}, not a list`},
		{"explain", `{"url": "http://a.test/", "client_ip": "192.0.2.7", "headers": {"X-Api-Key": ["a"]}}`, 400, `headers: must be an object of texts, such as {"X-Api-Key": "sk-acme"}, not a list`},
		{"explain", `{"url": "/login", "client_ip": "192.0.2.7"}`, 400, `url: must be whole`},
		{"explain", `{"url": "http://a.test/", "client_ip": "anna"}`, 400, `client_ip "anna": must be an address`},
		{"explain", `{"url": "http://a.test/", "client_ip": "192.0.2.7", "method": "NO GOOD"}`, 400, `method "NO GOOD"`},
		{"explain", `{"url": "http://a.test/", "client_ip": "192.0.2.7", "server": "srv9"}`, 404, `server "srv9": there is none of that name; there are srv0`},
		{"explain", `{"url": "http://a.test:1/", "client_ip": "192.0.2.7"}`, 400, `url: no server listens at port 1; write server beside it, one of srv0 (127.0.0.1:`},
	} {
		status, answer := a.call(test.path, test.body)
		if text := fmt.Sprint(answer["error"]); status != test.status || !strings.Contains(text, test.want) {
			t.Errorf("%s %s: status %d, %s; want %d, %s", test.path, test.body, status, text, test.status, test.want)
		}
	}
	if status, answer := a.call("reset", `{"rule": "login", "key": ["192.0.2.7"]}`, "Content-Type", "text/plain"); status != http.StatusUnsupportedMediaType {
		t.Errorf("what a web page may send unasked: status %d, %v; want 415", status, answer)
	}
	if status, answer := a.call("reset", `{"rule": "login", "key": ["`+strings.Repeat("a", 2<<20)+`"]}`); status != http.StatusBadRequest {
		t.Errorf("a body of 2 MB: status %d, %v; want 400", status, answer)
	}
	a.reloadWith("", ":PORT {\nrespond ok\n}")
	if status, answer := a.call("rules", ""); status != http.StatusNotFound || !strings.Contains(fmt.Sprint(answer), "has no rate_limit") {
		t.Errorf("without rate_limit: status %d, %v; want 404", status, answer)
	}
}

func TestAdminReportsTheStoresHealth(t *testing.T) {
	redis := redistest.Start(t)
	a := startAdmin(t, "", ":PORT {\nrate_limit {\n"+storeAt(redis.Addr(), patiently)+"\nzone z {\nlimit 5/1h\n}\n}\nrespond ok\n}")
	a.do("/")
	health := a.ask("health", "")
	wantAt(t, health, "memory", "stores", 0, "store")
	wantAt(t, health, "1e+06", "stores", 0, "max_keys")
	wantAt(t, health, redis.Addr(), "stores", 1, "server")
	wantAt(t, health, "closed", "stores", 1, "breaker")
	redis.Kill()
	eventually(t, "the breaker is open", func() bool {
		a.do("/")
		return at(t, a.ask("health", ""), "stores", 1, "breaker") == "open"
	})
	if n := at(t, a.ask("health", ""), "store_errors", "connection").(float64) + at(t, a.ask("health", ""), "store_errors", "timeout").(float64); n < 1 {
		t.Errorf("%v errors are counted", n)
	}
}

func TestAdminExplainsWhatWouldBecomeOfARequest(t *testing.T) {
	a := startAdmin(t, "", `http://a.test:PORT {
		rewrite /old /login
		handle /login {
			rate_limit {
				zone logins {
					match {
						method POST
					}
					limit 2/366d
				}
				zone everything {
					limit 100/366d
				}
			}
			respond ok
		}
		handle {
			basic_auth {
				anna $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG
			}
			route {
				vars tenant {http.auth.user.id}
				rate_limit {
					zone tenants {
						key {http.auth.user.id}
						limit 1/366d
					}
				}
				respond behind
			}
			rate_limit 1/366d
		}
	}
	http://b.test:PORT {
		respond none
	}`)
	explain := func(request string) map[string]any {
		t.Helper()
		return a.ask("explain", strings.NewReplacer("ADDR", strings.TrimPrefix(a.addr, "127.0.0.1")).Replace(request))
	}
	for range 2 { // at no cost
		answer := explain(`{"method": "POST", "url": "http://a.testADDR/old", "client_ip": "127.0.0.1"}`)
		wantAt(t, answer, "allow", "handlers", 0, "verdict")
		wantAt(t, answer, "logins", "handlers", 0, "rules", 1, "rule")
		wantAt(t, answer, "true", "handlers", 0, "rules", 1, "covers")
		wantAt(t, answer, "2", "handlers", 0, "rules", 1, "remaining")
		wantAt(t, answer, "[127.0.0.1]", "handlers", 0, "rules", 1, "key")
		wantAt(t, answer, "[]", "notes")
		if n := len(at(t, answer, "handlers").([]any)); n != 1 {
			t.Errorf("%d handlers, want 1", n)
		}
	}
	a.admit(2, "POST http://a.test/login")
	answer := explain(`{"method": "POST", "url": "http://a.testADDR/login", "client_ip": "127.0.0.1"}`)
	wantAt(t, answer, "reject", "handlers", 0, "verdict")
	wantAt(t, answer, "98", "handlers", 0, "rules", 0, "remaining")
	answer = explain(`{"url": "http://a.testADDR/login", "client_ip": "127.0.0.1"}`)
	wantAt(t, answer, "allow", "handlers", 0, "verdict")
	wantAt(t, answer, "map[allowed:true covers:false remaining:0 retry_after_seconds:0 rule:logins]", "handlers", 0, "rules", 1)
	answer = explain(`{"url": "http://a.testADDR/other", "client_ip": "192.0.2.7", "user": "anna"}`)
	wantAt(t, answer, "[anna]", "handlers", 1, "rules", 0, "key")
	answer = explain(`{"url": "http://a.testADDR/other", "client_ip": "192.0.2.7"}`)
	wantAt(t, answer, "[authentication was not run; write user to say who would be authenticated]", "notes")
	answer = explain(`{"url": "http://b.testADDR/", "client_ip": "192.0.2.7"}`)
	wantAt(t, answer, "[the request reaches no rate_limit]", "notes")
}

// If handlers keep a rule of one name in several stores, an operator's action on a key applies to all of them.
func TestAdminActsOnAKeyInEveryStoreThatTheRuleIsIn(t *testing.T) {
	redis := redistest.Start(t)
	zone := "zone z {\nlimit 1/366d\n}\n"
	a := startAdmin(t, "", "http://a.test:PORT {\nrate_limit {\n"+zone+"}\nrespond ok\n}\nhttp://b.test:PORT {\nrate_limit {\n"+storeAt(redis.Addr(), patiently)+"\n"+zone+"}\nrespond ok\n}")
	for _, host := range []string{"a", "b"} {
		a.admit(1, "http://"+host+".test/")
		a.reject("http://" + host + ".test/")
	}
	a.ask("reset", `{"rule": "z", "key": ["127.0.0.1"]}`)
	a.admit(1, "http://a.test/")
	a.admit(1, "http://b.test/")
	a.ask("reset", `{"rule": "z", "key": ["127.0.0.1"]}`)
	a.ask("block", `{"rule": "z", "key": ["127.0.0.1"], "for": "1h"}`)
	a.reject("http://a.test/")
	a.reject("http://b.test/")
	if n := len(at(t, a.ask("rules", ""), "rules").([]any)); n != 1 {
		t.Errorf("%d rules, want one", n)
	}
}

// Defect found: after a refused reload, scrapes reported on the configuration that was refused.
func TestMetricsAreOfTheServingConfigurationAfterARefusedReload(t *testing.T) {
	a := startAdmin(t, "", ":PORT {\nrate_limit {\nzone one {\nlimit 2/1h\n}\n}\nrespond ok\n}")
	scrape := func() string {
		t.Helper()
		response, err := http.Get("http://" + a.base + "/metrics")
		must.Succeed(t, err)
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return string(body)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer taken.Close()
	config := a.caddyfile("", ":PORT {\nrate_limit {\nzone one {\nlimit 77/1h\n}\nzone two {\nlimit 9/1h\n}\n}\nrespond ok\n}\nhttp://"+taken.Addr().String()+" {\nrespond ok\n}")
	a.refused(bytes.Replace(config, []byte(`"disabled":true`), []byte(`"listen":"`+a.base+`"`), 1))
	a.settle() // Caddy replaces the admin endpoint before it refuses the configuration
	if text := scrape(); !strings.Contains(text, `weir_limit{rule="one"} 2`) || strings.Contains(text, `"two"`) {
		t.Errorf("after a refused reload:\n%s", text)
	}
	a.admit(2, "/")
	a.reject("/")
}

// Defect found: keys without a limit were reported as blocked, but passed.
func TestAdminDoesNotBlockAKeyWithoutALimit(t *testing.T) {
	a := startAdmin(t, "", ":PORT {\nrate_limit {\nzone vip {\nkey {header.X-Key}\nlimit 5/1h\noverride anna unlimited\n}\nzone plans {\nkey {header.X-Key}\nlimit unlimited\ntiers {header.X-Plan} {\nfree 5/1h\n}\noverride berta 1/1h\n}\n}\nrespond ok\n}")
	for body, want := range map[string]int{
		`{"rule": "vip", "key": ["anna"], "for": "1h"}`:    http.StatusConflict,
		`{"rule": "vip", "key": ["berta"], "for": "1h"}`:   http.StatusOK,
		`{"rule": "plans", "key": ["anna"], "for": "1h"}`:  http.StatusConflict,
		`{"rule": "plans", "key": ["berta"], "for": "1h"}`: http.StatusOK,
	} {
		if status, answer := a.call("block", body); status != want {
			t.Errorf("%s: status %d, %v; want %d", body, status, answer, want)
		}
	}
	a.reject("/", "X-Key", "berta")
	a.admit(1, "/", "X-Key", "anna")
}

// Defects found: values made from a credential were shown in clear, and Caddy's log had the keys that operators looked up.
func TestAdminShowsOnlyWhatIsNoCredentialAndTakesKeysInBodies(t *testing.T) {
	a := startAdmin(t, "", `:PORT {
		@bearer header_regexp b X-Tok "Bearer (.*)"
		vars apikey {header.X-Tok}
		route @bearer {
			rate_limit {
				zone derived {
					key "{re.b.1} {vars.apikey} {host}"
					limit 5/1h
				}
			}
		}
		respond ok
	}`)
	a.do("http://a.test/", "X-Tok", "Bearer topsecret")
	if text := fmt.Sprint(a.ask("top?rule=derived", "")); strings.Contains(text, "topsecret") || !strings.Contains(text, "a.test") {
		t.Errorf("%s", text)
	}
	if n := len(at(t, a.ask("key", `{"rule": "derived", "key": ["topsecret", "Bearer topsecret", "a.test"]}`), "rules").([]any)); n != 1 {
		t.Errorf("%d rules, want 1", n)
	}
	a.call("explain", `{"url": "ftp://user:topsecret@a.test/", "client_ip": "192.0.2.7"}`)
	if log, _ := os.ReadFile(a.logFile); bytes.Contains(log, []byte("topsecret")) {
		t.Errorf("the log has a credential:\n%s", log)
	}
}

// Defects found: other spellings of an address were other keys, and https requests were not https.
func TestAdminTakesRequestsAndKeysAsCaddyWouldGetThem(t *testing.T) {
	a := startAdmin(t, behindProxy, ":PORT {\nrate_limit {\nzone one {\nlimit 1/366d\n}\nzone secure {\nmatch {\nprotocol https\n}\nkey {path}\nlimit 5/1h\n}\n}\nrespond ok\n}")
	a.admit(1, "/", "X-Forwarded-For", "2001:db8::1")
	for _, spelling := range []string{"2001:db8::1", "2001:DB8::1", "2001:db8:0:0::1"} {
		wantAt(t, a.ask("key?rule=one&key="+spelling, ""), "0", "rules", 0, "remaining")
		answer := a.ask("explain", `{"url": "https://a.test", "client_ip": "`+spelling+`"}`)
		wantAt(t, answer, "reject", "handlers", 0, "verdict")
		wantAt(t, answer, "true", "handlers", 0, "rules", 1, "covers")
		wantAt(t, answer, "[/]", "handlers", 0, "rules", 1, "key")
	}
	a.ask("reset", `{"rule": "one", "key": ["2001:DB8:0::1"]}`)
	a.admit(1, "/", "X-Forwarded-For", "2001:db8::1")
}

// Defect found: top and key showed different names for a key of 4096 bytes or more, and the same name for different keys with the
// same beginning.
func TestAdminNamesVeryLongKeysConsistentlyAndDistinctly(t *testing.T) {
	a := startAdmin(t, "", `:PORT {
		rate_limit {
			zone secret {
				key {header.X-Key}
				limit 9/366d
			}
			zone pair {
				key "{header.X-Key} {client_ip}"
				limit 9/366d
			}
			zone open {
				key {path}
				limit 9/366d
			}
		}
		respond ok
	}`)
	for _, length := range []int{4095, 4096, 5000} {
		begin := "/" + strings.Repeat("k", length-2)
		seen := make(map[string]bool)
		for _, end := range []string{"1", "2"} {
			value := begin + end
			a.do(value, "X-Key", value)
			for rule, key := range map[string][]string{"secret": {value}, "pair": {value, "127.0.0.1"}, "open": {value}} {
				parts, _ := json.Marshal(key)
				called := fmt.Sprint(at(t, a.ask("key", `{"rule": "`+rule+`", "key": `+string(parts)+`}`), "key"))
				if seen[rule+called] {
					t.Errorf("%d bytes: two keys of %s are called %.50s", length, rule, called)
				}
				seen[rule+called] = true
				if rule != "open" && len(called) > 40 {
					t.Errorf("%d bytes: the key of %s is shown: %.50s", length, rule, called)
				}
				listed := false
				for _, one := range at(t, a.ask("top?rule="+rule+"&n=64", ""), "keys").([]any) {
					listed = listed || fmt.Sprint(at(t, one, "key")) == called
				}
				if !listed {
					t.Errorf("%d bytes: the top keys of %s have none called %.50s", length, rule, called)
				}
			}
		}
	}
}

func TestAZoneAndADescriptorOfOneNameAreRefused(t *testing.T) {
	s := newServer(t)
	file := s.dir + "/limits.yaml"
	must.Succeed(t, os.WriteFile(file, []byte("domain: shop\ndescriptors:\n  - key: client\n    rate_limit: {unit: hour, requests_per_unit: 5}\n"), 0o600))
	why := s.refused(s.caddyfile("", ":PORT {\nrate_limit {\nzone shop.client {\nlimit 5/1h\n}\nrules_file "+file+"\ndescriptor client {header.X-Client}\n}\nrespond ok\n}"))
	must.Contain(t, why, `descriptor "shop.client" of the rule files: a zone or a rule has its name`)
}

// Defect found: the error for an endpoint with GET and POST said that it takes only GET.
func TestAdminSaysWhichMethodsItTakes(t *testing.T) {
	a := startAdmin(t, "", ":PORT {\nrate_limit 5/1h\nrespond ok\n}")
	for path, want := range map[string][2]string{
		"rules": {"GET, HEAD", "method PUT: rules takes GET"}, "key": {"GET, HEAD, POST", "method PUT: key takes GET and POST"}, "reset": {"POST", "method PUT: reset takes POST"},
	} {
		r, err := http.NewRequest(http.MethodPut, "http://"+a.base+"/rate_limit/"+path, nil)
		must.Succeed(t, err)
		response, err := http.DefaultClient.Do(r)
		must.Succeed(t, err)
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if got := response.Header.Get("Allow"); response.StatusCode != http.StatusMethodNotAllowed || got != want[0] || strings.TrimSpace(string(body)) != `{"error":"`+want[1]+`"}` {
			t.Errorf("%s: status %d, Allow: %s, %s; want 405, %q", path, response.StatusCode, got, body, want)
		}
	}
}

// Defects found: a key without a limit was missing, and the tier * appeared twice.
func TestAdminListsEachLimitOfAKeyOnceAlsoUnlimited(t *testing.T) {
	a := startAdmin(t, "", `:PORT {
		rate_limit {
			zone plans {
				key {header.X-Key}
				tiers {header.X-Plan} {
					gold 100/1h
					staff unlimited
					* 10/1h
				}
				override anna unlimited
				override berta 1/1h
			}
			zone free {
				key {header.X-Key}
				limit unlimited
			}
		}
		respond ok
	}`)
	const none = " of <nil>, true"
	for key, want := range map[string]string{
		"rule=plans&key=carla": "plans : 10/1h sliding_window_counter of 10, true; plans tier gold: 100/1h sliding_window_counter of 100, true; plans tier staff: unlimited" + none,
		"rule=plans&key=anna":  "plans : unlimited" + none,
		"rule=plans&key=berta": "plans : 1/1h sliding_window_counter of 1, true",
		"rule=free&key=carla":  "free : unlimited" + none,
		"key=anna":             "free : unlimited" + none + "; plans : unlimited" + none,
	} {
		var reported []string
		for _, one := range at(t, a.ask("key?"+key, ""), "rules").([]any) {
			tier := ""
			if one := one.(map[string]any)["for"]; one != nil {
				tier = one.(string)
			}
			reported = append(reported, fmt.Sprintf("%v %s: %v of %v, %v", at(t, one, "rule"), tier, at(t, one, "limit_text"), at(t, one, "limit"), at(t, one, "allowed")))
		}
		if got := strings.Join(reported, "; "); got != want {
			t.Errorf("%s: %s\nwant %s", key, got, want)
		}
	}
}

// Defect found: next to the error of a failing store there were numbers, although none was known.
func TestAdminHasNoNumbersOfAKeyWhereTheStoreFails(t *testing.T) {
	redis := redistest.Start(t)
	a := startAdmin(t, "", ":PORT {\nrate_limit {\n"+storeAt(redis.Addr(), "")+"\nzone z {\nlimit 5/1h\n}\n}\nrespond ok\n}")
	redis.Kill()
	standing := at(t, a.ask("key?rule=z&key=192.0.2.7", ""), "rules", 0).(map[string]any)
	if standing["error"] == nil || standing["limit_text"] != "5/1h sliding_window_counter" || len(standing) != 3 {
		t.Errorf("%v, want rule, limit_text and error alone", standing)
	}
}

// What requests bring is listed with the key, reset with it, and explained.
func TestAdminSeesTheLimitsThatRequestsBring(t *testing.T) {
	a := startAdmin(t, behindProxy, `:PORT {
		rate_limit {
			zone contracts {
				key {header.X-User}
				limit 2/1h
				algorithm fixed_window
				limit_from {header.X-Limit} max 50/1h
			}
		}
		respond ok
	}`)
	for range 4 {
		a.do("/", "X-User", "acme", "X-Limit", "3")
		a.do("/", "X-User", "acme", "X-Limit", "3/1d")
	}
	wantAt(t, at(t, a.ask("rules", ""), "rules", 0), "[limit from {http.request.header.X-Limit}, max 50/1h]", "notes")
	key := a.ask("key?rule=contracts&key=acme", "")
	wantAt(t, key, "<nil>", "rules", 0, "for")
	wantAt(t, key, "0", "rules", 0, "remaining")
	wantAt(t, key, "value 3", "rules", 1, "for")
	wantAt(t, key, "3", "rules", 1, "limit")
	wantAt(t, key, "value 3/1d", "rules", 2, "for")
	wantAt(t, key, "0", "rules", 2, "remaining")
	explained := a.ask("explain", `{"url": "http://`+a.addr+`/", "client_ip": "192.0.2.7", "headers": {"X-User": "acme", "X-Limit": "70"}}`)
	text := fmt.Sprint(explained)
	if !strings.Contains(text, "50/1h") {
		t.Errorf("explain says %s", text)
	}
	a.ask("reset", `{"rule": "contracts", "key": ["acme"]}`)
	for _, value := range []string{"3", "3/1d"} {
		for i := range 3 {
			if r := a.do("/", "X-User", "acme", "X-Limit", value); r.status != 200 {
				t.Errorf("request %d with %s after the reset: %d", i, value, r.status)
			}
		}
	}
	a.ask("block", `{"rule": "contracts", "key": ["acme"], "for": "1h"}`)
	for _, value := range []string{"", "50", "50/1d", "4/1d"} {
		if r := a.do("/", "X-User", "acme", "X-Limit", value); r.status != 429 {
			t.Errorf("with %q while blocked: %d", value, r.status)
		}
	}
}
