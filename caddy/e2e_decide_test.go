package ratelimit_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// asking is a site that only answers what applications ask.
const asking = `route {
	basic_auth {
		app $2a$04$HnkreXMXtZfTj.VD.MlsT.7ppJqlRGNbNjGxLBkOCxXIBRfMjFwEG
	}
	rate_limit_decide /rate_limit/decide mails plans pair queue block free shadow friends counted
	rate_limit {
		zone mails {
			key {header.X-User}
			limit 5/366d
		}
		zone plans {
			key {header.X-User}
			limit 3/366d
			tiers {header.X-Plan} {
				gold 10/366d
				staff unlimited
			}
			override anna 4/366d
			cost 2
		}
		zone pair {
			key {client_ip}{header.X-User}
			ipv6_prefix 64
			limit 2/366d
		}
		zone queue {
			key {header.X-User}
			limit 1/10s
			algorithm token_bucket
			burst 1
			on_limit delay
			max_delay 60s
		}
		zone block {
			key {header.X-User}
			limit 1/366d
			penalty 1h
			on_missing_key reject
		}
		zone free {
			key all
			limit unlimited
		}
		zone shadow {
			key all
			limit 1/366d
			enforcement shadow
		}
		zone friends {
			except 192.0.2.0/24
			key {client_ip}
			limit 1/366d
		}
		zone counted {
			key all
			limit 5/366d
			concurrency 2
		}
		zone others {
			key all
			limit 5/366d
		}
	}
	respond 404
}`

// What depends on the clock: times until a reset, and other times that are no single second.
var (
	resets = regexp.MustCompile(`,"reset":[0-9.]+`)
	times  = regexp.MustCompile(`"(delay|retry_after)":([0-9]+\.[0-9]+|[0-9]{5,}|[2-9]|10)`)
)

// asks returns what an application is told: the status, and the answer without the time until a reset.
func (s *server) asks(body string, fields ...string) string {
	s.t.Helper()
	answer := s.answered(body, fields...)
	return fmt.Sprint(answer.status, " ", times.ReplaceAllString(resets.ReplaceAllString(strings.TrimSuffix(answer.body, "\n"), ""), `"$1":T`))
}

func (s *server) answered(body string, fields ...string) response {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+s.addr+"/rate_limit/decide", strings.NewReader(body))
	must.Succeed(s.t, err)
	r.SetBasicAuth("app", "secret")
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	answer, err := send(s.client, r)
	must.Succeed(s.t, err)
	return answer
}

func TestAnApplicationAsksAndIsToldAsARequestWouldBe(t *testing.T) {
	s := startSite(t, asking)
	for _, c := range []struct{ body, want string }{
		{`{"rule":"mails","key":"anna","cost":3}`, `200 {"allowed":true,"limit":5,"remaining":2}`},
		{`{"rule":"mails","key":["anna"],"cost":3}`, `200 {"allowed":false,"limit":5,"remaining":2,"retry_after":T}`},
		{`{"rule":"mails","key":"anna","cost":0}`, `200 {"allowed":true,"limit":5,"remaining":2}`},
		{`{"rule":"mails","key":"anna"}`, `200 {"allowed":true,"limit":5,"remaining":1}`},
		{`{"rule":"mails","key":"anna","cost":6}`, `200 {"allowed":false,"limit":5,"remaining":1}`}, // it never will be
		{`[{"rule":"mails","key":"anna","cost":2},{"rule":"mails","key":"anna"},{"rule":"mails","key":"ben"}]`, // each by itself, in their order
			`200 [{"allowed":false,"limit":5,"remaining":1,"retry_after":T},{"allowed":true,"limit":5,"remaining":0},{"allowed":true,"limit":5,"remaining":4}]`},
		{`{"rule":"plans","key":"carl"}`, `200 {"allowed":true,"limit":3,"remaining":1}`}, // the rule's cost
		{`{"rule":"plans","key":"anna"}`, `200 {"allowed":true,"limit":4,"remaining":2}`},
		{`{"rule":"plans","key":"dora","tier":"gold"}`, `200 {"allowed":true,"limit":10,"remaining":8}`},
		{`{"rule":"plans","key":"dora","tier":"staff"}`, `200 {"allowed":true}`},
		{`{"rule":"pair","key":["2001:db8::1","anna"]}`, `200 {"allowed":true,"limit":2,"remaining":1}`},
		{`{"rule":"pair","key":["2001:db8::2","anna"]}`, `200 {"allowed":true,"limit":2,"remaining":0}`}, // the same /64
		{`{"rule":"queue","key":"anna"}`, `200 {"allowed":true,"limit":1,"remaining":0}`},
		{`{"rule":"queue","key":"anna"}`, `200 {"allowed":true,"limit":1,"remaining":0,"delay":T}`},
		{`{"rule":"block","key":"anna"}`, `200 {"allowed":true,"limit":1,"remaining":0}`},
		{`{"rule":"block","key":"anna"}`, `200 {"allowed":false,"limit":1,"remaining":0,"retry_after":T}`},
		{`{"rule":"free"}`, `200 {"allowed":true}`},
		{`[{"rule":"shadow"},{"rule":"shadow"}]`, `200 [{"allowed":true},{"allowed":true}]`},
		{`[{"rule":"friends","key":"192.0.2.7"},{"rule":"friends","key":"192.0.2.7"}]`, `200 [{"allowed":true},{"allowed":true}]`},
	} {
		must.Equal(t, s.asks(c.body), c.want, "%s", c.body)
	}
}

// Nothing of a list is charged if any of it is wrong, and the error says which.
func TestAnApplicationThatAsksWronglyIsToldWhatIsRight(t *testing.T) {
	s := startSite(t, asking)
	for _, c := range []struct{ body, want string }{
		{`[{"rule":"mails","key":"anna"},{"rule":"mail","key":"anna"}]`, `404 {"error":"ask 2: rule \"mail\": is none of those that rate_limit_decide answers for (did you mean mails?)"}`},
		{`{"rule":"others"}`, `404 {"error":"rule \"others\": is none of those`},
		{`{"key":"anna"}`, `400 {"error":"rule: is missing; write one of block, counted, free, friends, mails, pair, plans, queue, shadow"}`},
		{`[{"rule":"mails","key":"anna"},{"rule":"mails"}]`, `400 {"error":"ask 2: rule \"mails\": key: has 0 parts, and this rule's has 1: header:X-User"}`},
		{`{"rule":"pair","key":"anna"}`, `400 {"error":"rule \"pair\": key: has 1 part, and this rule's has 2: client_ip, header:X-User"}`},
		{`{"rule":"pair","key":["anna","anna"]}`, `400 {"error":"rule \"pair\": key: client_ip: `},
		{`[{"rule":"mails","key":"anna"},{"rule":"mails","key":"anna","cost":-1}]`, `400 {"error":"ask 2: rule \"mails\": cost -1: must be 0 to 1000000000, where 0 charges nothing"}`},
		{`{"rule":"mails","key":"anna","cost":"2"}`, `400 {"error":"the request's body: cost: must be a whole number without quotes, not a text"}`},
		{`[{"rule":"mails","key":"anna"},{"rule":"mails","kye":"anna"}]`, `400 {"error":"ask 2: the request's body: unknown field \"kye\" (did you mean key?)"}`},
		{`{"rule":"mails","key":7}`, `400 {"error":"the request's body: key: must be a list of texts in quotes`},
		{`{"rule":"mails","key":"anna","tier":"gold"}`, `400 {"error":"rule \"mails\": tier \"gold\": the rule has one limit for all of them; leave tier out"}`},
		{`{"rule":"counted"}`, `409 {"error":"rule \"counted\": has concurrency, which needs to know when a request is over and how`},
		{`{"rule":"block","key":""}`, `400 {"error":"rule \"block\": key: a part is empty, and on_missing_key rejects such requests"}`},
		{`[]`, `400 {"error":"the list has 0 asks; must be 1 to 100"}`},
		{`[` + strings.Repeat(`{"rule":"mails","key":"anna"},`, 100) + `{"rule":"mails","key":"anna"}]`, `400 {"error":"the list has 101 asks; must be 1 to 100"}`},
		{`{"rule":"mails","key":"anna"} {}`, `400 {"error":"the request's body: unexpected text after the object"}`},
		{``, `400 {"error":"the request's body: `},
		{"{\"rule\":\"mails\",\"key\":\"\xfc\"}", `400 {"error":"the request's body: must be UTF-8"}`},
		{strings.Repeat(" ", 1<<20) + `{"rule":"mails","key":"anna"}`, `400 {"error":"the request's body: http: request body too large"}`},
	} {
		got := s.asks(c.body)
		if !strings.HasPrefix(got, strings.TrimSuffix(c.want, "}")) {
			t.Errorf("%.80s: %s, want %s", c.body, got, c.want)
		}
	}
	must.Equal(t, s.asks(`{"rule":"mails","key":"anna","cost":0}`), `200 {"allowed":true,"limit":5,"remaining":5}`, "after all that")
	must.Contain(t, s.asks(`{"rule":"mails","key":"anna"}`, "Content-Type", "text/plain"), `415 {"error":"Content-Type \"text/plain\": must be application/json"}`)
	must.Contain(t, s.asks(`{"rule":"mails","key":"anna"}`, "Authorization", "Basic YXBwOndyb25n"), "401 ")
	get := s.do("/rate_limit/decide", "Authorization", "Basic YXBwOnNlY3JldA==")
	get.want(t, "Allow", "POST")
	must.Equal(t, get.status, http.StatusMethodNotAllowed)
	for text, want := range map[string]string{
		"rate_limit_decide /x\nrespond ok":                "rate_limit_decide: names no rule; write those that applications may ask about behind it: rate_limit_decide /rate_limit/decide everyone",
		"rate_limit_decide /x a {\nrule b\n}\nrespond ok": "rate_limit_decide: takes no block",
	} {
		if _, err := s.adapt("", ":PORT {\n"+text+"\n}"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	must.Contain(t, s.refused(s.caddyfile("", ":PORT {\nrate_limit_decide /x a\nrespond ok\n}")), `rate_limit_decide: rule "a": there is none in the configuration`)
}

// In a site with authentication it needs no route to stand behind that.
func TestAuthenticationIsAskedBeforeApplicationsAreAnswered(t *testing.T) {
	s := startSite(t, strings.NewReplacer("route {", "", "rate_limit {", "rate_limit /none {", "respond 404\n}", "reverse_proxy 127.0.0.1:1").Replace(asking))
	must.Contain(t, s.asks(`{"rule":"free"}`, "Authorization", ""), "401 ")
	must.Equal(t, s.asks(`{"rule":"free"}`), `200 {"allowed":true}`)
}

// What is asked and what is requested counts in one place, and rules of files follow their changes.
func TestApplicationsAskUnderRulesOfFilesThatRequestsCountIn(t *testing.T) {
	s := startFiles(t, "rate_limit_decide /rate_limit/decide here there\nrate_limit {\nrules_file DIR/rules/*.yaml\nrules_interval 1s\n}\nreverse_proxy 127.0.0.1:1", "a.yaml",
		rulesOf(versionOf(1), "{name: here, match: {paths: [/x]}, key: [header:X-User], limit: 4/366d}", "{name: there, match: {paths: [/y]}, limit: 6/366d}"))
	s.do("/x", "X-User", "anna")
	must.Equal(t, s.asks(`{"rule":"here","key":"anna"}`), `200 {"allowed":true,"limit":4,"remaining":2}`)
	s.do("/x", "X-User", "anna")
	must.Equal(t, s.asks(`{"rule":"here","key":"anna","cost":0}`), `200 {"allowed":true,"limit":4,"remaining":1}`)
	s.put("a.yaml", rulesOf(versionOf(2), "{name: here, match: {paths: [/x]}, key: [header:X-User], limit: 9/366d}"))
	s.awaitVersion(2) // in which the rule there is gone
	eventually(t, "the new limit to be told", func() bool {
		return s.asks(`{"rule":"here","key":"anna","cost":0}`) == `200 {"allowed":true,"limit":9,"remaining":6}`
	})
	must.Contain(t, s.asks(`{"rule":"there"}`), `404 {"error":"rule \"there\": is none of those`)
}

// While Redis is gone, each rule decides by its on_error, and an answer is one.
func TestAnApplicationIsAnsweredWhileRedisIsGone(t *testing.T) {
	redis := redistest.Start(t)
	zones := ""
	for _, word := range []string{"local", "open", "closed"} {
		zones += "zone " + word + " {\nkey all\nlimit 3/366d\non_error " + word + "\n}\n"
	}
	s := startSite(t, "rate_limit_decide /rate_limit/decide local open closed\nrate_limit /none {\n"+storeAt(redis.Addr(), "")+"\n"+zones+"}\nreverse_proxy 127.0.0.1:1")
	must.Equal(t, s.asks(`{"rule":"closed"}`), `200 {"allowed":true,"limit":3,"remaining":2}`)
	redis.Stop()
	must.Equal(t, s.asks(`[{"rule":"local"},{"rule":"open"},{"rule":"closed"}]`),
		`200 [{"allowed":true,"limit":3,"remaining":2},{"allowed":true},{"allowed":false,"retry_after":1,"error":"The rate limit cannot be checked."}]`)
}

// A place among those that wait is free when its time has come: whoever asks waits elsewhere.
func TestWhatIsAskedTakesAPlaceInTheQueueUntilItLeaves(t *testing.T) {
	s := startSite(t, "rate_limit_decide /rate_limit/decide queue\nrate_limit /none {\nzone queue {\nkey all\nlimit 10/1s\nalgorithm token_bucket\nburst 1\non_limit delay\nmax_delay 60s\nmax_waiting 2\n}\n}\nreverse_proxy 127.0.0.1:1")
	var got []string
	for range 4 {
		got = append(got, s.asks(`{"rule":"queue"}`))
	}
	if !strings.Contains(got[1], "delay") || !strings.Contains(got[2], "delay") || !strings.Contains(got[3], `"allowed":false`) {
		t.Errorf("%q: want two that wait, and no third", got)
	}
	eventually(t, "the places to be free", func() bool {
		return strings.Contains(s.asks(`{"rule":"queue"}`), `"allowed":true`)
	})
}

// The admin API has it, too, for every rule.
func TestTheAdminAPIAnswersApplications(t *testing.T) {
	a := startAdmin(t, "", ":PORT {\nrate_limit {\nzone z {\nkey all\nlimit 3/366d\n}\n}\nrespond ok\n}")
	got := a.ask("decide", `{"rule":"z"}`)
	must.Equal(t, fmt.Sprint(got["allowed"], got["limit"], got["remaining"]), "true 3 2")
	if status, got := a.call("decide", `{"rule":"y"}`); status != http.StatusNotFound {
		t.Errorf("status %d, %v; want 404", status, got)
	}
}
