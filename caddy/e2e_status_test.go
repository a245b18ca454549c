package ratelimit_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

const quotaSite = `rate_limit_status /quota %s
rate_limit {
	zone everyone {
		limit 5/366d
	}
	zone logins {
		match {
			path /login
		}
		algorithm fixed_window
		limit 3/366d
		penalty 1h
	}
	zone by-key {
		key {header.X-Api-Key}
		limit 2/366d
		on_missing_key skip
	}
	zone shadow {
		limit 1/366d
		enforcement shadow
	}
	zone friends {
		except 192.0.2.0/24
		limit 9/366d
	}
	zone free {
		limit unlimited
	}
	%s
}
respond ok`

func TestStatusReportsTheCallersQuotasAtNoCost(t *testing.T) {
	s := start(t, behindProxy, ":PORT {\n"+fmt.Sprintf(quotaSite, "everyone logins by-key shadow friends free", "")+"\n}")
	quotas := func(want string, fields ...string) {
		t.Helper()
		r := s.do("/quota", fields...)
		r.want(t, "Content-Type", "application/json", "Cache-Control", "no-store", "X-RateLimit-Limit", "-")
		var told []string
		for _, part := range strings.Split(strings.TrimSuffix(strings.TrimPrefix(r.body, `{"quotas":[{`), "}]}\n"), "},{") {
			before, _, _ := strings.Cut(part, `,"reset"`)
			if strings.Contains(part, "retry_after") {
				before += " retry"
			}
			told = append(told, strings.NewReplacer(`"name":`, "", `"limit":`, "", `"remaining":`, "", `"`, "").Replace(before))
		}
		if got := strings.Join(told, "; "); r.status != http.StatusOK || got != want {
			t.Errorf("%q: status %d, %s; want %s\n%s", fields, r.status, got, want, r.body)
		}
	}
	for range 10 {
		quotas("everyone,5,5; friends,9,9; logins,3,3")
	}
	quotas("everyone,5,5; logins,3,3", "X-Forwarded-For", "192.0.2.7")
	s.admit(3, "/login", "X-Forwarded-For", "192.0.2.7")
	s.reject("/login", "X-Forwarded-For", "192.0.2.7")
	quotas("everyone,5,2; logins,3,0 retry", "X-Forwarded-For", "192.0.2.7")
	s.admit(2, "/", "X-Api-Key", "anna")
	quotas("by-key,2,0 retry; everyone,5,3; friends,9,7; logins,3,3", "X-Api-Key", "anna")
	if head := s.do("HEAD /quota"); head.status != http.StatusOK || head.body != "" {
		t.Errorf("HEAD: status %d, %q", head.status, head.body)
	}
	r := s.do("POST /quota")
	if r.want(t, "Allow", "GET, HEAD"); r.status != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d, want 405", r.status)
	}
}

func TestStatusOfRulesThatAreNotThereIsRefused(t *testing.T) {
	s := startSite(t, fmt.Sprintf(quotaSite, "logins", ""))
	if r := s.do("/quota"); !strings.HasPrefix(r.body, `{"quotas":[{"name":"logins","limit":3,"remaining":3,"reset":`) || strings.Count(r.body, "name") != 1 {
		t.Errorf("%s, want logins alone", r.body)
	}
	for names, want := range map[string]string{
		"login":         `rate_limit_status: rule "login": must be by-key, everyone, free, friends, logins or shadow (did you mean logins?)`,
		"shop/everyone": `rate_limit_status: rule "shop/everyone": must be`,
	} {
		why := s.refused(s.caddyfile("", ":PORT {\n"+fmt.Sprintf(quotaSite, names, "")+"\n}"))
		must.Contain(t, why, want, "%s", names)
	}
	s.admit(1, "/") // the running configuration goes on
	for text, want := range map[string]string{
		"rate_limit_status /quota no~good\nrespond ok":        `name "no~good": must be 1 to 64`,
		"rate_limit_status /quota\nrespond ok":                "rate_limit_status: names no rule",
		"rate_limit_status /quota a {\nrule b\n}\nrespond ok": "takes no block",
	} {
		if _, err := s.adapt("", ":PORT {\n"+text+"\n}"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	must.Contain(t, s.refused(s.caddyfile("", ":PORT {\nrate_limit_status /quota a\nrespond ok\n}")), `rule "a": there is none in the configuration`)
}

func TestStatusOfRuleFilesGoesByHostsAndHeadersAndFollowsTheirChanges(t *testing.T) {
	s := startFiles(t, "rate_limit_status /quota here there\nrate_limit {\nrules_file DIR/rules/*.yaml\nrules_interval 1s\n}\nrespond ok", "a.yaml",
		rulesOf(versionOf(1), "{name: here, match: {hosts: [a.test], paths: [/x]}, limit: 4/366d}", "{name: there, match: {hosts: [b.test]}, limit: 6/366d}"))
	if r := s.do("http://a.test/quota"); !strings.Contains(r.body, `{"name":"here","limit":4,"remaining":4,"reset":0}`) || strings.Contains(r.body, "there") {
		t.Errorf("at a.test: %s", r.body)
	}
	s.put("a.yaml", rulesOf(versionOf(2), "{name: here, match: {hosts: [a.test]}, limit: 7/366d}"))
	s.awaitVersion(2) // in which the rule "there" is gone
	must.Contain(t, s.do("http://a.test/quota").body, `{"name":"here","limit":7,"remaining":7,"reset":0}`, "after the change")
}

// Defect found: an edit that removed a rule was accepted, and the configuration could not be loaded again.
func TestAnEditThatTakesAwayARuleWhichStatusNamesIsWarnedOfAndTheConfigurationLoadsAgain(t *testing.T) {
	const says = "rate_limit_status names a rule that neither the configuration nor its rule files have; clients cannot read its quota"
	a, b := "{name: alpha, match: {paths: [/x]}, limit: 4/366d}", "{name: beta, match: {paths: [/x]}, limit: 6/366d}"
	site := "rate_limit_status /quota alpha beta\nrate_limit {\nrules_file DIR/rules/*.yaml\nrules_interval 1s\n}\nrespond ok"
	s := startFiles(t, site, "a.yaml", rulesOf(versionOf(1), a, b))
	s.said(0, says)
	for n := 2; n < 4; n++ { // logged once
		s.put("a.yaml", rulesOf(versionOf(n), a))
		s.awaitVersion(n)
	}
	if line := s.awaitLog(1, says)[0]; line["rule"] != "beta" || line["level"] != "warn" {
		t.Errorf("log: %v, want a warning of beta", line)
	}
	s.reload(strings.ReplaceAll(site, "DIR", s.dir))
	s.awaitLog(2, says)
	if r := s.do("/quota"); !strings.Contains(r.body, `"name":"alpha"`) || strings.Contains(r.body, "beta") {
		t.Errorf("%s, want alpha alone", r.body)
	}
	s.put("a.yaml", rulesOf(versionOf(4), a, b))
	s.awaitVersion(4)
	if r := s.do("/quota"); strings.Count(r.body, "name") != 2 {
		t.Errorf("%s, want both", r.body)
	}
	s.put("a.yaml", rulesOf(versionOf(5), a))
	s.awaitVersion(5)
	s.awaitLog(3, says) // the rule had come back
}

func TestStatusOfARedisThatIsGoneIsUnavailable(t *testing.T) {
	redis := redistest.Start(t)
	s := startSite(t, "rate_limit_status /quota z\n"+zoneIn(storeAt(redis.Addr(), ""), "limit 3/366d"))
	s.admit(1, "/")
	redis.Kill()
	r := s.do("/quota")
	if r.want(t, "Retry-After", "1", "Content-Type", "application/json"); r.status != http.StatusServiceUnavailable || !strings.HasPrefix(r.body, `{"error":`) {
		t.Errorf("status %d, %s; want 503", r.status, r.body)
	}
}

// Two handlers may share a zone, and exempt different addresses: a client that one of them exempts is counted by the other.
func TestStatusReportsAZoneThatOnlyOneHandlerExemptsTheCallerFrom(t *testing.T) {
	zone := func(path, except string) string {
		return "route " + path + " {\nrate_limit {\nzone z {\nexcept " + except + "\nlimit 5/366d\n}\n}\n}\n"
	}
	s := start(t, behindProxy, ":PORT {\nrate_limit_status /quota z\n"+zone("/a", "192.0.2.1")+zone("/b", "192.0.2.2")+"respond ok\n}")
	for _, client := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		if r := s.do("/quota", "X-Forwarded-For", client); strings.Count(r.body, `"name":"z"`) != 1 {
			t.Errorf("%s: %s, want z once", client, r.body)
		}
	}
}
