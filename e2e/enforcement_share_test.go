package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// The same keys are enforced in both proxies, in settings of their own and in rule files, and by one that starts anew. A larger share has them, too.
func TestTheSameKeysAreEnforcedEverywhere(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "limits.json")
	const text = `{"rules": [{"name": "of-file", "key": "header:X-User", "limit": "1/366d", "enforcement": "40%", "match": {"path_prefixes": ["/files"]}}]}`
	must.Succeed(t, os.WriteFile(rules, []byte(text), 0o600))
	s := newSite(t)
	metrics := freeAddr()
	s.limit("own", "{key: 'header:X-User', limit: 1/366d, enforcement: 40%, metrics: {address: '"+metrics+"'}}")
	s.limit("more", "{key: 'header:X-User', limit: 1/366d, enforcement: 70%}")
	s.limit("files", "rulesFile: "+rules)
	s.route("/own", "own")
	s.route("/more", "more")
	s.route("/files", "files")
	s.apply()
	const site = "route /own* {\nrate_limit {\nzone own {\nkey {header.X-User}\nlimit 1/366d\nenforcement 40%\n}\n}\n}\nroute /more* {\nrate_limit {\nzone more {\nkey {header.X-User}\nlimit 1/366d\nenforcement 70%\n}\n}\n}\n"
	first := startCaddy(t, site+"route /files* {\nrate_limit {\nrules_file "+rules+"\n}\n}\nrespond ok")
	again := startCaddy(t, site+"respond ok")
	for name, ask := range map[string]func(path string, fields ...string) (response, error){"Traefik": s.try, "Caddy": first.try, "another Caddy": again.try} {
		for path, percent := range map[string]int64{"/own": 40, "/more": 70, "/files": 40} {
			if path == "/files" && name == "another Caddy" {
				continue
			}
			enforced := 0
			for i := range 60 {
				user := fmt.Sprint("user", i)
				var last response
				for range 2 {
					var err error
					last, err = ask(path, "X-User", user)
					must.Succeed(t, err)
				}
				shown := last.header.Get("X-RateLimit-Limit") != ""
				if is := core.Enforces(user, percent); is != (last.status == http.StatusTooManyRequests) || is != shown {
					t.Errorf("%s: %s: %s: enforced: %t, status %d, quota fields: %t", name, path, user, is, last.status, shown)
				} else if is {
					enforced++
				}
			}
			if enforced == 0 || enforced == 60 {
				t.Errorf("%s: %s: %d keys are enforced", name, path, enforced)
			}
		}
	}
	enforced := 0
	for i := range 60 {
		if core.Enforces(fmt.Sprint("user", i), 40) {
			enforced++
		}
	}
	page, err := send(http.DefaultClient, metrics, "/metrics")
	must.Succeed(t, err)
	for outcome, n := range map[string]int{"allowed": 60, "rejected": enforced, "shadow_rejected": 60 - enforced} {
		must.Contain(t, page.body, fmt.Sprintf(`outcome="%s"} %d`, outcome, n)+"\n")
	}
	if !strings.Contains(page.body, "shadow_rejected") {
		t.Error(page.body)
	}
}

// Two Traefiks and a Caddy on one Redis enforce the limit for the same keys, whichever node a request comes to: the others pass on each, and are counted.
func TestAFleetEnforcesTheSameKeys(t *testing.T) {
	_, second := startPair(t)
	redis := redistest.Start(t).Addr()
	s := newSite(t)
	var handlers strings.Builder
	for name, more := range map[string][2]string{"strict": {}, "lease": {", algorithm: token_bucket, consistency: lease", "\nalgorithm token_bucket\nconsistency lease"}} {
		s.limit(name, "{namespace: fleet, rules: [{name: "+name+", key: 'header:X-User', limit: 1/366d, enforcement: 40%"+more[0]+"}], store: "+inRedis(redis)+"}")
		s.route("/"+name, name)
		fmt.Fprintf(&handlers, "route /%s {\nrate_limit {\nnamespace fleet\nzone %s {\nkey {header.X-User}\nlimit 1/366d\nenforcement 40%%%s\n}\n}\n}\n", name, name, more[1])
	}
	s.apply()
	twin := s.at(second)
	c := startCaddyWithGlobal(t, "off", "rate_limit {\nstore redis "+redis+" {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\nnodes 1\n}\n}", handlers.String()+"respond ok")
	nodes := []func(path string, fields ...string) (response, error){s.try, twin.try, c.try}
	for _, path := range []string{"/strict", "/lease"} {
		enforced := 0
		for i := range 30 {
			user := fmt.Sprint("user", i)
			admitted := 0
			for turn := range 2 * len(nodes) {
				r, err := nodes[(i+turn)%len(nodes)](path, "X-User", user)
				must.Succeed(t, err)
				if r.status == http.StatusOK {
					admitted++
				}
			}
			if is := core.Enforces(user, 40); is {
				enforced++
				must.Equal(t, admitted, 1, "%s: %s is enforced, and was admitted", path, user)
			} else {
				must.Equal(t, admitted, 2*len(nodes), "%s: %s is not enforced, and was admitted", path, user)
			}
		}
		if enforced < 5 || enforced > 20 {
			t.Errorf("%s: %d of 30 keys are enforced", path, enforced)
		}
	}
}
