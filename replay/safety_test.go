package replay

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

func TestWhatALogLacksIsSaidOnceForEachRuleAndField(t *testing.T) {
	combinedLines := strings.Repeat(`192.0.2.1 - - [21/Nov/2026:19:48:38 +0000] "POST /login HTTP/1.1" 200 1 "-" "curl"`+"\n", 3)
	caddyLines := linesOf(
		hit{end: 1, client: "x", headers: `"Authorization":["REDACTED"],"Cookie":["REDACTED"],"X-Api-Key":["a"]`},
		hit{end: 2, client: "x", headers: `"X-Api-Key":["REDACTED"]`}, hit{end: 3, client: "x", path: "/?token=REDACTED"}, hit{end: 4, client: "x"})
	traefikLines := ""
	for _, headers := range []string{``, ``, `,"request_X-Api-Key":"a"`, ``} {
		traefikLines += `{"ClientHost":"192.0.2.1","RequestHost":"example.com","RequestMethod":"GET","RequestPath":"/","DownstreamStatus":200,"StartUTC":"2026-11-21T19:48:38.5Z"` + headers + "}\n"
	}
	for _, test := range []struct {
		name, rule, log string
		counted         int64
		want            []string
	}{
		{"a host that is asked for", "{name: a, match: {hosts: [example.com]}, limit: 1/1m}", combinedLines, 0, []string{`rule "a": 3 requests are left out: the log does not have host`}},
		{"but not where something else excludes them", "{name: a, match: {hosts: [example.com], paths: [/other]}, limit: 1/1m}", combinedLines, 0, nil},
		{"a host in a key", "{name: a, key: [host, client_ip], limit: 1/1m}", combinedLines, 0, []string{`3 requests are left out: the log does not have host`}},
		{"a header", "{name: a, key: 'header:X-Api-Key', limit: 1/1m, on_missing_key: skip}", combinedLines, 0, []string{`the log does not have header:X-Api-Key`}},
		{"not one that the format has", "{name: a, key: 'header:User-Agent', limit: 1/1m}", combinedLines, 3, nil},
		{"a cookie", "{name: a, key: 'cookie:s', limit: 1/1m}", combinedLines, 0, []string{`the log does not have cookie:s`}},
		{"a redacted one, where there was any", "{name: a, key: 'cookie:s', limit: 9/1m}", caddyLines, 3, []string{`1 request is left out: cookie:s is REDACTED in the log`}},
		{"a redacted header in a match", "{name: a, match: {headers: {Authorization: Bearer x}}, limit: 9/1m}", caddyLines, 0, []string{`1 request is left out: header:Authorization is REDACTED`}},
		{"not where any value will do", "{name: a, match: {headers: {Authorization: '*'}}, limit: 9/1m}", caddyLines, 1, nil},
		{"a header that a filter has replaced", "{name: a, key: 'header:X-Api-Key', limit: 9/1m}", caddyLines, 3, []string{`1 request is left out: header:X-Api-Key is REDACTED`}},
		{"a parameter that a filter has replaced", "{name: a, key: 'query:token', limit: 9/1m}", caddyLines, 3, []string{`1 request is left out: query:token is REDACTED`}},
		{"a claim, of a token that is redacted", "{name: a, key: 'unverified_jwt_claim:sub', limit: 9/1m}", caddyLines, 3, []string{`1 request is left out: unverified_jwt_claim:sub is REDACTED in the log`}},
		{"a claim, of a token in a cookie", "{name: a, key: 'unverified_jwt_claim:sub@cookie:t', limit: 9/1m}", caddyLines, 3, []string{`1 request is left out: unverified_jwt_claim:sub@cookie:t is REDACTED in the log`}},
		{"a certificate", "{name: a, key: 'client_cert:subject', limit: 9/1m}", caddyLines, 0, []string{`4 requests are left out: the log does not have client_cert:subject`}},
		{"parts of a path, which every line has", "{name: a, key: ['path_segment:1', 'path_regexp:^/(.)'], limit: 9/1m}", caddyLines, 4, nil},
		{"one of several that is redacted", "{name: a, key: [first(header:X-Api-Key, client_ip), host], limit: 9/1m}", caddyLines, 3, []string{`1 request is left out: header:X-Api-Key is REDACTED`}},
		{"a parameter and a cookie in a match", "{name: a, match: {query: {token: a}, cookies: {s: '!*'}}, limit: 9/1m}", caddyLines, 0, []string{`1 request is left out: query:token is REDACTED in the log`}},
		{"a header that nobody ever sent", "{name: a, key: 'header:X-Other', limit: 9/1m}", caddyLines, 4, []string{`no request in the logs has header:X-Other`}},
		{"one that Traefik may leave out, until a line has it", "{name: a, key: 'header:X-Api-Key', limit: 9/1m}", traefikLines, 2, []string{`2 requests are left out: no line before them has header:X-Api-Key`}},
		{"and in a match", "{name: a, match: {headers: {X-Api-Key: a}}, limit: 9/1m}", traefikLines, 1, []string{`2 requests are left out: no line before them has header:X-Api-Key`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, _ := run(t, Config{Rules: filesOf(t, rulesOf(test.rule)), Logs: []string{logIn(t, "a.log", test.log)}})
			var got []string
			for _, w := range r.Warnings {
				if !strings.Contains(w, "whole seconds") {
					got = append(got, w)
				}
			}
			if r.Rules[0].Requests != test.counted || len(got) != len(test.want) {
				t.Fatalf("%d requests, want %d; %q, want %q", r.Rules[0].Requests, test.counted, got, test.want)
			}
			for i := range got {
				must.Contain(t, got[i], test.want[i])
			}
		})
	}
}

// hostile is what a client may send to fool who reads the report.
const hostile = "\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>\u202e\"'&\r\n\tx"

// reportsOf returns the report as text, JSON and HTML.
func reportsOf(t *testing.T, r *Report) map[string]string {
	t.Helper()
	var text, page bytes.Buffer
	must.Succeed(t, r.WriteText(&text))
	must.Succeed(t, r.WriteHTML(&page))
	data, err := json.Marshal(r)
	must.Succeed(t, err)
	return map[string]string{"text": text.String(), "HTML": page.String(), "JSON": string(data)}
}

func TestKeysThatAreSecretsAreNotShown(t *testing.T) {
	const secret = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
	for _, rule := range []string{
		"{name: a, key: [client_ip, 'header:X-Api-Key'], limit: 1/1m}", "{name: a, key: 'cookie:s', limit: 1/1m}", "{name: a, key: ['query:token', path], limit: 1/1m}",
	} {
		hits := []hit{}
		for i := range 3 {
			hits = append(hits, hit{end: float64(i), client: "192.0.2.1", path: "/p?token=" + secret, headers: `"X-Api-Key":["` + secret + `"],"Cookie":["s=` + secret + `"]`})
		}
		candidate := strings.Replace(rule, "1/1m", "2/1m", 1)
		c := Config{Rules: filesOf(t, rulesOf(rule)), Candidate: filesOf(t, rulesOf(candidate)), Logs: []string{logIn(t, "a.log", linesOf(hits...))}}
		r, _ := run(t, c)
		for kind, report := range reportsOf(t, r) {
			if strings.Contains(report, secret) || strings.Contains(report, secret[:12]) || !strings.Contains(report, pseudonym(secret)) {
				t.Errorf("%s: %s has the secret, or not what stands for it:\n%s", rule, kind, report)
			}
		}
		c.PlainKeys = true
		r, _ = run(t, c)
		must.Contain(t, r.Rules[0].TopKeys[0].Key, secret, "%s: plain keys: %+v", rule, r.Rules[0].TopKeys)
	}
	if short := pseudonym("secret"); strings.Contains(short, "s") && strings.HasPrefix(short, "s") || len(short) != 9 {
		t.Errorf("a short value is shown as %q", short)
	}
}

func TestHostileKeysAreShownHarmlessly(t *testing.T) {
	var hits []hit
	for i := range 3 {
		value, _ := json.Marshal(hostile)
		hits = append(hits, hit{end: float64(i), client: hostile, headers: `"X-Api-Key":[` + string(value) + `]`})
	}
	r, _ := run(t, Config{Rules: filesOf(t, rulesOf("{name: a, key: [client_ip, 'header:X-Api-Key'], limit: 1/1m}")), PlainKeys: true, Logs: []string{logIn(t, "a.log", linesOf(hits...))}})
	if r.Rules[0].Rejected != 2 {
		t.Fatalf("%+v", r.Rules[0])
	}
	for kind, report := range reportsOf(t, r) {
		if strings.ContainsAny(report, "\x1b\x07\u202e\r") || kind != "JSON" && !strings.Contains(report, "owned") {
			t.Errorf("%s: %q", kind, report)
		}
		if kind == "HTML" && (strings.Contains(report, "<script") || strings.Contains(report, "\"'&")) {
			t.Errorf("%s: %s", kind, report)
		}
	}
}

func TestThePageNeedsNothingElseAndMayLoadNothing(t *testing.T) {
	underrace.OneGoroutine(t)
	r, _ := run(t, Config{Rules: filesOf(t, threeRules), Candidate: filesOf(t, rulesOf("{name: per-client, limit: 20/1m}", "{name: other, limit: 1/1m}")),
		Logs: []string{writeTraffic(t, "a.log", "caddy", 20000, 100)}, Suggest: true, Share: 0.01})
	page := reportsOf(t, r)["HTML"]
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(page)
	if style == nil {
		t.Fatal("there is no style")
	}
	sum := sha256.Sum256([]byte(style[1]))
	policy := `content="default-src 'none'; style-src 'sha256-` + base64.StdEncoding.EncodeToString(sum[:]) + `'; base-uri 'none'; form-action 'none'"`
	decoded := strings.NewReplacer("&#39;", "'", "&#43;", "+", "&#34;", `"`).Replace(page)
	if !strings.Contains(decoded, policy) {
		t.Errorf("there is no %s in\n%s", policy, decoded[:600])
	}
	if found := regexp.MustCompile(`(?i)<script|\sstyle=|\son\w+=|\s(src|href)=|url\(|@import|https?:|ZgotmplZ|NaN|Inf\b`).FindAllString(page, -1); found != nil {
		t.Errorf("the page has %q", found)
	}
	for _, want := range []string{"<svg", "prefers-color-scheme: dark", `name="viewport"`, "Suggested limits", "The candidate", "Only in the candidate: other", "per-client", "20,000"} {
		must.Contain(t, page, want, "the page has no")
	}
	if bars := strings.Count(page, `class="all" d="M`); bars != 3 {
		t.Errorf("%d plots of requests, want one for each rule", bars)
	}
}

func TestSeriesKeepTheirSizeAndTheirSums(t *testing.T) {
	var s series
	at := int64(1_790_000_000_123_456)
	for i := range 100_000 {
		s.count(at, i%10 == 0)
		at += int64(i) * 37
	}
	requests, rejected := uint32(0), uint32(0)
	for i := range s.requests {
		requests += s.requests[i]
		rejected += s.rejected[i]
	}
	if requests != 100_000 || rejected != 10_000 || len(s.requests) > mostSteps || len(s.requests) < mostSteps/2 || s.start%s.step != 0 || s.start > 1_790_000_000_123_456 {
		t.Errorf("%d requests, %d rejected in %d steps of %d from %d", requests, rejected, len(s.requests), s.step, s.start)
	}
}
