package ratelimit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/tools/must"
)

// warningsOf adapts a Caddyfile, and returns what is warned of its surroundings: place, zone and text.
func warningsOf(t *testing.T, text string) []string {
	t.Helper()
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	must.Succeed(t, err)
	var config struct {
		Apps struct {
			HTTP struct {
				Servers map[string]*caddyhttp.Server `json:"servers"`
			} `json:"http"`
		} `json:"apps"`
	}
	must.Succeed(t, json.Unmarshal(adapted, &config))
	var warnings []string
	core, logs := observer.New(zap.WarnLevel)
	if err := syntax.CheckSurroundings(config.Apps.HTTP.Servers, placeAndZones, zap.New(core)); err != nil {
		warnings = append(warnings, "refused: "+err.Error())
	}
	for _, log := range logs.All() {
		fields := log.ContextMap()
		warnings = append(warnings, fmt.Sprintf("%v %v: %s", fields["at"], fields["zone"], log.Message))
	}
	return warnings
}

// Sites as people write them, with what is to be warned of; "": nothing is, since every limit holds.
func TestWarningsOfLimitsThatCannotHoldWhereTheyStand(t *testing.T) {
	const afterAll = "{\n\torder rate_limit before reverse_proxy\n}\n"
	zone := func(match string) string {
		return "rate_limit {\n\tzone z {\n\t\tmatch {\n\t\t\t" + match + "\n\t\t}\n\t\tlimit 3/1m\n\t}\n}\n"
	}
	for name, c := range map[string]struct{ global, site, want string }{
		"the default order":                      {"", "rate_limit /login* 3/1m\nhandle /api/* {\n\treverse_proxy localhost:1\n}\nhandle {\n\trespond x\n}", ""},
		"behind handle":                          {afterAll, "rate_limit 3/1m\nhandle {\n\trespond x\n}", "Caddyfile:5 client_ip: no request reaches"},
		"behind handle blocks":                   {afterAll, "rate_limit 3/1m\nhandle /a/* {\n\treverse_proxy localhost:1\n}\nhandle {\n\tfile_server\n}", "no request reaches"},
		"behind handles that leave some paths":   {afterAll, "rate_limit 3/1m\nhandle /a/* {\n\treverse_proxy localhost:1\n}\nreverse_proxy localhost:2", ""},
		"behind a handle that passes on":         {afterAll, "rate_limit 3/1m\nhandle {\n\theader X y\n}\nreverse_proxy localhost:2", ""},
		"a handle before it passes some on":      {afterAll, "rate_limit 3/1m\nhandle /a/* {\n\theader X y\n}\nhandle {\n\trespond x\n}", ""},
		"its path behind a handle of that path":  {afterAll, zone("path /api/login") + "handle /api/* {\n\treverse_proxy localhost:1\n}\nreverse_proxy localhost:2", "no request reaches this limit of /api/login"},
		"short form behind a handle of its path": {afterAll, "rate_limit /api/login 3/1m\nhandle /api/* {\n\treverse_proxy localhost:1\n}\nreverse_proxy localhost:2", "no request reaches this limit of /api/login"},
		"behind a respond in route":              {"", "route {\n\trespond x\n\trate_limit 3/1m\n}", "Caddyfile:4 client_ip: no request reaches"},
		"behind a matched respond in route":      {"", "route {\n\trespond /health x\n\trate_limit 3/1m\n\treverse_proxy localhost:1\n}", ""},
		"behind a file server that passes on":    {"", "route {\n\tfile_server {\n\t\tpass_thru\n\t}\n\trate_limit 3/1m\n\treverse_proxy localhost:1\n}", ""},
		"behind a file server":                   {"", "route {\n\tfile_server\n\trate_limit 3/1m\n}", "file_server comes before it"},
		"behind forward_auth":                    {"", "route {\n\tforward_auth localhost:1 {\n\t\turi /auth\n\t}\n\trate_limit 3/1m\n\treverse_proxy localhost:2\n}", ""},
		"behind an authentication":               {"{\n\torder rate_limit after basic_auth\n}\n", "basic_auth {\n\tu $2a$14$0eO1hSLvHnnTJvTM1kOOLeq/Uz1BAZVtpo5BTCnEKzPdGmmWfKmWG\n}\nrate_limit 3/1m\nreverse_proxy localhost:2", ""},
		"in one of two handles":                  {"", "handle /a/* {\n\trate_limit 3/1m\n\treverse_proxy localhost:1\n}\nhandle {\n\trespond x\n}", ""},
		"in a handle behind a handle for all":    {"", "route {\n\thandle {\n\t\trespond x\n\t}\n\thandle {\n\t\trate_limit 3/1m\n\t\trespond y\n\t}\n}", "no request reaches"},
		"a path outside of its handle":           {"", "handle /api/* {\n\trate_limit /login* 3/1m\n\treverse_proxy localhost:1\n}", "no request has the path /login*"},
		"a zone's path outside of its handle":    {"", "handle /api/* {\n\t" + zone("path /login") + "\treverse_proxy localhost:1\n}", "such as /api/login"},
		"a path inside of its handle":            {"", "handle /api/* {\n\trate_limit /api/login* 3/1m\n\treverse_proxy localhost:1\n}", ""},
		"a path of what is left":                 {"", "handle_path /api/* {\n\trate_limit /login* 3/1m\n\treverse_proxy localhost:1\n}", ""},
		"the whole path where some is left":      {"", "handle_path /api/* {\n\trate_limit /api/login* 3/1m\n\treverse_proxy localhost:1\n}", ""},
		"a single-page app":                      {"", "root * /srv\nrate_limit /login* 3/1m\ntry_files {path} /index.html\nfile_server", ""},
		"a named matcher in a single-page app":   {"", "root * /srv\n@login path /login*\nrate_limit @login 3/1m\ntry_files {path} /index.html\nfile_server", "write sent_path /login* in its place"},
		"sent_path in a single-page app":         {"", "root * /srv\n@login sent_path /login*\nrate_limit @login 3/1m\ntry_files {path} /index.html\nfile_server", ""},
		"files without another for the rest":     {"", "@login path /login*\nrate_limit @login 3/1m\ntry_files {path} {path}.html\nfile_server", ""},
		"a named matcher of scripts":             {"", "@php path *.php\nrate_limit @php 3/1m\ntry_files {path} /index.php\nfile_server", ""},
		"a named matcher of what is rewritten":   {"", "@new path /new/*\nrewrite /old/* /new{uri}\nrate_limit @new 3/1m\nreverse_proxy localhost:1", ""},
		"a named matcher that rewrite empties":   {"", "@old path /old/*\nrewrite /old/* /new{uri}\nrate_limit @old 3/1m\nreverse_proxy localhost:1", "rewrite to /new"},
		"a named matcher of a stripped prefix":   {"", "@api path /api/login\nuri strip_prefix /api\nrate_limit @api 3/1m\nreverse_proxy localhost:1", "strip_prefix /api"},
		"a path without a slash":                 {"", zone("path login") + "respond x", "write it with a slash"},
		"a path with a wildcard first":           {"", zone("path *.php") + "respond x", ""},
		"a host of another site":                 {"", zone("host other.example") + "respond x", "no request has the host other.example"},
		"a host of the site":                     {"", zone("host Example.com") + "respond x", ""},
		"the same line twice":                    {"", "rate_limit /login 3/1m\nrate_limit /login 3/1m\nrespond x", `refused: zone "login.client_ip", at Caddyfile:3: is written twice, first at Caddyfile:2`},
		"the same line of all twice":             {"", "rate_limit 3/1m\nroute /a* {\n\trate_limit 3/1m\n\trespond x\n}", `refused: zone "client_ip"`},
		"the same line in two handles":           {"", "handle /a* {\n\trate_limit 3/1m\n}\nhandle {\n\trate_limit 3/1m\n}\nrespond x", ""},
		"the same line for two paths":            {"", "rate_limit /a {\n\tzone z {\n\t\tlimit 3/1m\n\t}\n}\nrate_limit /b {\n\tzone z {\n\t\tlimit 3/1m\n\t}\n}\nrespond x", ""},
		"the same line behind an answer":         {"", "route /a* {\n\trate_limit 3/1m\n\trespond x\n}\nroute {\n\trate_limit 3/1m\n\trespond y\n}", ""},
		"the same line for requests that differ": {"", zone("method GET") + zone("method POST") + "respond x", ""},
		"a snippet twice":                        {"(s) {\n\trate_limit 3/1m\n}\n", "import s\nimport s\nrespond x", "a request passes this zone twice"},
		"a snippet in two handles":               {"(s) {\n\trate_limit 3/1m\n}\n", "handle /a* {\n\timport s\n\trespond x\n}\nhandle {\n\timport s\n\trespond y\n}", ""},
		"two namespaces":                         {"", "rate_limit {\n\tnamespace a\n\tzone z {\n\t\tlimit 3/1m\n\t}\n}\nrate_limit {\n\tnamespace b\n\tzone z {\n\t\tlimit 3/1m\n\t}\n}\nrespond x", ""},
		"negated and in expressions":             {"", zone("not path login\nexpression path('/x')") + "respond x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := warningsOf(t, c.global+"http://example.com {\n"+c.site+"\n}\n")
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
				t.Errorf("warned of %q, want %q", got, c.want)
			}
		})
	}
}
