package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// Requests bring their limits in every dialect: in Traefik's own settings, as labels write them, and in a rule file that both proxies read; in Caddy in a
// Caddyfile, and in JSON that it is adapted to.
func TestRequestsBringTheirLimits(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "limits.yaml")
	const text = "rules: [{name: of-file, key: 'header:X-User', limit: 2/366d, limit_from: {source: 'header:X-Limit', max: 6}, overrides: [{key: vip, limit: 7/366d}]}]\n"
	must.Succeed(t, os.WriteFile(rules, []byte(text), 0o600))
	asJSON := strings.TrimSuffix(rules, ".yaml") + ".json" // which is what Traefik reads
	must.Succeed(t, os.WriteFile(asJSON, []byte(`{"rules": [{"name": "of-file", "key": "header:X-User", "limit": "2/366d", "limit_from": {"source": "header:X-Limit", "max": "6"}, "overrides": [{"key": "vip", "limit": "7/366d"}]}]}`), 0o600))
	s := newSite(t)
	s.limit("own", "{key: 'header:X-User', limit: 2/366d, limitFrom: {source: 'header:X-Limit', max: 6/366d}, overrides: [{key: vip, limit: 7/366d}]}")
	s.limit("files", "rulesFile: "+asJSON)
	s.route("/own", "own")
	s.route("/files", "files")
	s.apply()
	c := startCaddy(t, "route /own* {\nrate_limit {\nzone own {\nkey {header.X-User}\nlimit 2/366d\nlimit_from {header.X-Limit} max 6/366d\noverride vip 7/366d\n}\n}\n}\nroute /files* {\nrate_limit {\nrules_file "+rules+"\n}\n}\nrespond ok")
	send := map[string]func(path string, fields ...string) response{
		"Traefik": s.do,
		"Caddy": func(path string, fields ...string) response {
			t.Helper()
			r, err := c.try(path, fields...)
			must.Succeed(t, err)
			return r
		},
	}
	for proxy, ask := range send {
		for _, path := range []string{"/own", "/files"} {
			for i, one := range []struct {
				user, value string
				want        int
				shown       string
			}{
				{"", "", 2, "2"}, {"", "4/366d", 4, "4"}, {"", "5", 5, "5"}, {"", "9", 6, "6"}, {"", "unlimited", 6, "6"}, {"", "0", 0, "0"}, {"", "x", 2, "2"}, {"vip", "3", 7, "7"},
			} {
				user := one.user
				if user == "" {
					user = fmt.Sprint("user", i)
				}
				allowed := 0
				var last response
				for range 8 {
					last = ask(path, "X-User", user, "X-Limit", one.value)
					if last.status == http.StatusOK {
						allowed++
					}
				}
				if got := last.header.Get("X-RateLimit-Limit"); allowed != one.want || got != one.shown {
					t.Errorf("%s %s with %q: %d were allowed, with a limit of %s; want %d and %s", proxy, path, one.value, allowed, got, one.want, one.shown)
				}
			}
			r := ask(path, "X-User", "user2", "X-Limit", "6") // the user with 5 has bought one more
			must.Equal(t, r.status, http.StatusOK, proxy, path)
		}
	}
	log := strings.Join(s.errors("own"), "\n")
	for _, want := range []string{`limitFrom: the header X-Limit is what the client sends`, `a request brings the limit "9", which is not taken as it is: it is above max 6/366d`} {
		must.Contain(t, log, want)
	}
}
