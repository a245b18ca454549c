package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func TestARuleHasAnAnswerOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	page, rules := filepath.Join(dir, "slow.html"), filepath.Join(dir, "rules.json")
	must.Succeed(t, os.WriteFile(page, []byte("<!doctype html>\n<style>p { color: red }</style><p>{rule}: {limit}, {retry_after} s"), 0o600))
	must.Succeed(t, os.WriteFile(rules, []byte(`{"rules": [{"name": "filed", "match": {"paths": ["/filed"]}, "limit": "1/366d", "answer": {"status": 503, "file": "`+page+`"}}]}`), 0o600))
	s := limited(t, `
		rulesFile: `+rules+`
		rules:
		  - {name: forbidden, match: {paths: [/forbidden, /both]}, limit: 1/366d, answer: {status: 403}}
		  - {name: page, match: {paths: [/page]}, limit: 1/1d, answer: {status: 503, file: `+page+`}}
		  - {name: json, match: {paths: [/json]}, limit: 1/1d, answer: {type: application/json, body: '{"rule":"{rule}","left":{remaining},"again":{retry_after}}'}}
		  - {name: away, match: {paths: [/away, /both]}, limit: 1/1d, answer: {redirect: 'https://example.com/slow?by={rule}&after={retry_after}'}}
		  - {name: shut, match: {paths: [/shut]}, limit: 1/1d, message: Go away., answer: {status: 503, close: true}}
		  - {name: usual, match: {paths: [/usual]}, limit: 1/366d, answer: {body: 'After {retryafter} s'}}`)
	for _, path := range []string{"/forbidden", "/page", "/json", "/away", "/shut", "/usual", "/filed"} {
		s.admit(1, path)
	}
	is := func(request string, status int, fields ...string) response {
		t.Helper()
		r := s.do(request, fields...)
		must.Equal(t, r.status, status, "the status of %s", request)
		if request[0] == '/' {
			r.want(t, "Content-Length", strconv.Itoa(len(r.body)), "Cache-Control", "no-store")
		}
		return r
	}
	r := is("/forbidden", 403)
	r.number(t, "Retry-After", 1, 366*86400)
	must.Contain(t, r.body, "Too many requests")
	r = is("/page", 503)
	must.Equal(t, r.body, "<!doctype html>\n<style>p { color: red }</style><p>page: 1, "+r.header.Get("Retry-After")+" s", "the page")
	r.want(t, "Content-Type", "text/html; charset=utf-8")
	is("HEAD /page", 503).want(t, "Content-Length", strconv.Itoa(len(r.body)))
	r = is("/json", 429, "Accept", "application/json")
	must.Equal(t, r.body, `{"rule":"json","left":0,"again":`+r.header.Get("Retry-After")+"}", "the body")
	r.want(t, "Content-Type", "application/json")
	r = is("/away", 302)
	r.want(t, "Location", "https://example.com/slow?by=away&after="+r.header.Get("Retry-After"))
	must.Equal(t, is("/shut", 503).body, "Go away.\n", "the message")
	is("/both", 403) // the longer wait
	must.Contain(t, is("/filed", 503).body, "<p>filed: 1, ")
	must.Equal(t, is("/usual", 429).body, "After {retryafter} s")
	must.Contain(t, strings.Join(s.errors("limit"), ""), `rule "usual": answer: body {retryafter}: stands for nothing, and clients get it as it is (did you mean {retry_after}?)`)
	for path, status := range map[string]int{"/forbidden": 403, "/page": 503, "/away": 429} {
		var problem struct{ Status int }
		r = is(path, status, "Accept", "application/problem+json")
		must.Succeed(t, json.Unmarshal([]byte(r.body), &problem))
		must.Equal(t, problem.Status, status, "the problem's status")
		r.want(t, "Location", "-", "Content-Type", "application/problem+json")
	}
	for i := range 2 { // a gRPC call has an answer of its own
		r = s.overHTTP2().do("POST /forbidden", "Content-Type", "application/grpc", "Te", "trailers")
		must.Equal(t, strconv.Itoa(r.status)+r.header.Get("Grpc-Status"), "2008", "the answer to call %d", i)
	}
}

// A single rule is on a fast path until it rejects, also over several routers and without a key.
func TestAnswersOfSingleRules(t *testing.T) {
	for _, rule := range []string{
		"limit: 1/366d", "{limit: 1/366d, algorithm: token_bucket, metrics: {}}", "{tiers: {source: 'header:X-Plan', limits: {'*': 1/366d}}}", "{limit: 1/366d, algorithm: fixed_window, penalty: [1d]}", "{limit: 1/366d, consistency: strict, jitter: 0.1, guard: {}}",
	} {
		config := map[bool]string{true: rule[1 : len(rule)-1], false: rule}[rule[0] == '{']
		s := limited(t, "{"+config+", answer: {status: 403, body: 'Not {rule}.'}}")
		s.admit(1, "/")
		for range 2 {
			r := s.do("/")
			must.Equal(t, strconv.Itoa(r.status)+r.body, "403Not "+s.name+"-limit.", "the answer of %s", rule)
		}
	}
	s := limited(t, "{limit: 1/366d, key: ['header:X-Key'], onMissingKey: reject, answer: {status: 403, body: 'No key.'}}")
	r := s.do("/")
	must.Equal(t, strconv.Itoa(r.status)+r.body+r.header.Get("Retry-After"), "403No key.", "the answer without a key")
}
