package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
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

// Nodes of a fleet keep together to the limit that requests bring: exactly by strict and lease, and by eventual once they have told each other. An answer has
// that limit, too.
func TestAFleetKeepsToLimitsThatRequestsBring(t *testing.T) {
	_, second := startPair(t)
	redis := redistest.Start(t).Addr()
	s := newSite(t)
	var handlers strings.Builder
	for _, c := range []string{"strict", "lease", "eventual 10ms"} {
		name, _, _ := strings.Cut(c, " ")
		s.limit(name, "{namespace: fleet, rules: [{name: "+name+", key: 'header:X-User', limit: 2/366d, algorithm: token_bucket, limitFrom: {source: 'header:X-Limit', max: 6/366d}, consistency: "+c+
			", answer: {status: 403, body: 'of {limit}'}}], store: "+inRedis(redis)+"}")
		s.route("/"+name, name)
		fmt.Fprintf(&handlers, "route /%s {\nrate_limit {\nnamespace fleet\nzone %s {\nkey {header.X-User}\nlimit 2/366d\nalgorithm token_bucket\nlimit_from {header.X-Limit} max 6/366d\nconsistency %s\nanswer {\nstatus 403\nbody \"of {limit}\"\n}\n}\n}\n}\n", name, name, c)
	}
	s.apply()
	twin := s.at(second)
	c := startCaddyWithGlobal(t, "off", "rate_limit {\nstore redis "+redis+" {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\nnodes 1\n}\n}", handlers.String()+"respond ok")
	nodes := []func(path string, fields ...string) (response, error){s.try, twin.try, c.try}
	for _, path := range []string{"/strict", "/lease", "/eventual"} {
		for value, want := range map[string]int{"": 2, "4/366d": 4, "9": 6} {
			user := "user" + value
			admitted := 0
			for turn := range 9 {
				r, err := nodes[turn%len(nodes)](path, "X-User", user, "X-Limit", value)
				must.Succeed(t, err)
				if r.status == http.StatusOK {
					admitted++
				}
			}
			if path == "/eventual" && admitted >= want || admitted == want {
				for i, ask := range nodes {
					eventually(t, fmt.Sprintf("%s with %q: node %d rejects", path, value, i), func() bool {
						r, err := ask(path, "X-User", user, "X-Limit", value)
						return err == nil && r.status == http.StatusForbidden && r.body == "of "+strconv.Itoa(want)
					})
				}
				continue
			}
			t.Errorf("%s with %q: %d were admitted, want %d", path, value, admitted, want)
		}
	}
}
