package ratelimit_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// The reported rule provides the message. If several rules reject, it is the one with the longest wait.
func TestTheReportedRuleHasTheMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	rules := `rules:
  - {name: filed, match: {paths: [/filed]}, limit: 1/2d, message: "Filed in {http.rate_limit.exceeded.name}. {unknown}"}
  - {name: wordless, match: {paths: [/wordless]}, limit: 1/2d}`
	must.Succeed(t, os.WriteFile(path, []byte(rules), 0o600))
	zones := func(text string) string {
		return `rate_limit {
			message "The handler's."
			rules_file ` + path + `
			zone short {
				match path /login /both
				limit 1/1h
				message "` + text + `"
			}
			zone long {
				match path /both
				limit 1/1d
				message "Too long, {http.request.method}."
			}
			zone tiered {
				match path /tiered
				tiers {header.X-Plan} {
					gold 1/2d
				}
				limit 1/1d
				override 192.0.2.1 1/3d
				key {header.X-Key}
				message Tiered.
			}
			zone keyed {
				match path /keyed
				key {header.X-Key}
				on_missing_key reject
				limit 1/1d
				message Keyless.
			}
		}
		respond ok`
	}
	s := startSite(t, zones("Too many logins."))
	rejected := func(path, want string, fields ...string) {
		t.Helper()
		if r := s.reject(path, fields...); r.body != want+"\n" {
			t.Errorf("%s %v: body %q, want %q", path, fields, r.body, want)
		}
	}
	s.admit(1, "/both")
	rejected("/login", "Too many logins.")
	rejected("/both", "Too long, GET.")
	s.admit(1, "/filed")
	rejected("/filed", "Filed in filed. {unknown}")
	s.admit(1, "/wordless")
	rejected("/wordless", "The handler's.")
	for _, fields := range [][]string{{"X-Key", "a"}, {"X-Key", "a", "X-Plan", "gold"}, {"X-Key", "192.0.2.1"}} {
		s.admit(1, "/tiered", fields...)
		rejected("/tiered", "Tiered.", fields...)
	}
	rejected("/keyed", "Keyless.")

	var problem struct{ Detail string }
	if err := json.Unmarshal([]byte(s.reject("/login", "Accept", "application/problem+json").body), &problem); err != nil || problem.Detail != "Too many logins." {
		t.Errorf("detail %q (%v)", problem.Detail, err)
	}

	s.reload(zones("Come back in {http.rate_limit.exceeded.name}."))
	rejected("/login", "Come back in short.") // and counters survive
	rules = `rules:
  - {name: filed, match: {paths: [/filed]}, limit: 1/2d, message: Anew.}
  - {name: wordless, match: {paths: [/wordless]}, limit: 1/2d}`
	must.Succeed(t, os.WriteFile(path, []byte(rules), 0o600))
	eventually(t, "the file's new message", func() bool { return s.do("/filed").body == "Anew.\n" })
}
