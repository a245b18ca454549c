package ratelimit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// A limit's path is the one that the client has sent, whatever the site makes of it before the limit; and where a prefix is taken off, also what
// is left. Every site has a limit of two for some path: the third request of each line of limited is rejected, and none of free ever.
func TestALimitOfAPathHoldsWhateverRewritesThePathBefore(t *testing.T) {
	const zone = "rate_limit {\nzone z {\nkey {scheme}\nlimit 2/366d\nmatch {\nMATCH\n}\n}\n}\n"
	const files = "rate_limit {\nrules_file DIR/rules.yaml\n}\n"
	const app = "root * DIR/srv\ntry_files {path} /index.html\nfile_server"
	match := func(matchers string) string { return strings.Replace(zone, "MATCH", matchers, 1) }
	for name, c := range map[string]struct {
		site, rules   string
		limited, free string // paths
	}{
		"try_files":                         {"rate_limit /login* 2/366d {scheme}\n" + app, "", "/login", "/other"},
		"try_files, expression":             {match("expression path('/login')") + app, "", "/login", "/other"},
		"try_files, not":                    {match("not path /assets/* /index.html") + app, "", "/login", "/assets/x"},
		"try_files, rule file":              {files + app, "match: {paths: [/login]}", "/login", "/other"},
		"try_files, rule file, path as key": {files + app, "key: path", "/a", "/b"},
		"handle_path, what is left":         {"handle_path /api/* {\nrate_limit /login* 2/366d {scheme}\nrespond ok\n}", "", "/api/login", "/api/other"},
		"handle_path, whole":                {"handle_path /api/* {\nrate_limit /api/login* 2/366d {scheme}\nrespond ok\n}", "", "/api/login", "/api/other"},
		"handle_path, rule file of both":    {"handle_path /api/* {\n" + files + "respond ok\n}", "match: {paths: [\"*login\"]}", "/api/login", "/api/other"},
		"sent_path":                         {"@login sent_path /login\nrate_limit @login 2/366d {scheme}\n" + app, "", "/login", "/other"},
		"in handle_errors":                  {"error 500\nhandle_errors {\nrewrite * /500.html\nrate_limit /login 2/366d {scheme}\nrespond ok 200\n}", "", "/login", "/other"},
	} {
		t.Run(strings.Map(letters, name), func(t *testing.T) {
			s := newServer(t)
			must.Succeed(t, os.Mkdir(filepath.Join(s.dir, "srv"), 0o755))
			for _, file := range []string{"index.html", "there.html"} {
				must.Succeed(t, os.WriteFile(filepath.Join(s.dir, "srv", file), []byte("ok"), 0o644))
			}
			rules := "rules:\n  - {name: z, limit: 2/366d, key: \"static:all\", " + c.rules + "}\n"
			if strings.HasPrefix(c.rules, "key") {
				rules = "rules:\n  - {name: z, limit: 2/366d, " + c.rules + "}\n"
			}
			must.Succeed(t, os.WriteFile(filepath.Join(s.dir, "rules.yaml"), []byte(rules), 0o644))
			s.load(s.caddyfile("", ":PORT {\n"+c.site+"\n}"))
			address := "http://a.test"
			s.admit(2, address+c.limited)
			s.reject(address + c.limited)
			if strings.Contains(c.rules, "key") { // a counter for each path
				s.admit(2, address+c.free)
				return
			}
			s.admit(3, address+c.free)
		})
	}
}

// A limit that no request reaches, or whose path none has there, is told when the configuration is loaded, and by caddy validate alike.
func TestALimitThatNoRequestReachesIsToldAtLoad(t *testing.T) {
	s := start(t, "order rate_limit before reverse_proxy", ":PORT {\nrate_limit 3/1m\nhandle {\nrespond ok\n}\n}")
	told := s.logs("no request reaches this rate_limit, so it limits nobody: a block that ends with respond, redir or abort comes before it in the same route, and passes no request on; " +
		"Caddy runs directives in the order of the global option order, or inside a route block in the order in which they are written: " +
		"take the option out, since without it rate_limit runs early, or write order rate_limit before basic_auth; in a route block, write rate_limit above it")
	if len(told) != 1 || !strings.HasPrefix(told[0]["at"].(string), "Caddyfile:") {
		t.Errorf("told %v, want once with its line; the log:\n%s", told, s.fill(readAll(t, s.logFile)))
	}
}

func readAll(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	must.Succeed(t, err)
	return string(text)
}
