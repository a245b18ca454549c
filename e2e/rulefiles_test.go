package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// ruleFile writes a rule file in one step, as an editor does, and returns its path.
func ruleFile(t testing.TB, path, text string) string {
	t.Helper()
	draft := path + ".draft"
	must.Succeed(t, os.WriteFile(draft, []byte(text), 0o600))
	must.Succeed(t, os.Rename(draft, path))
	return path
}

const messaging = `{
  "rules": [{"name": "all", "limit": "20/366d"}],
  "domain": "messaging",
  "descriptors": [
    {"key": "message_type", "value": "marketing", "rate_limit": {"unit": "year", "requests_per_unit": 5}},
    {"key": "to", "descriptors": [{"key": "path", "rate_limit": {"unit": "year", "requests_per_unit": 2}}]}
  ]
}`

func TestRuleFileLimitsAndIsReadAgain(t *testing.T) {
	path := ruleFile(t, filepath.Join(t.TempDir(), "rules.json"), `{"rules": [{"name": "a", "limit": "3/366d", "key": "header:X-User"}]}`)
	s := limited(t, "{rulesFile: "+path+", rulesInterval: 1s}")
	s.exactly(3, "/", "X-User", "a")
	s.admit(2, "/", "X-User", "b")

	// Counters survive an edit.
	ruleFile(t, path, `{"rules": [{"name": "a", "limit": "5/366d", "key": "header:X-User"}]}`)
	eventually(t, "the edit is in force", func() bool { return s.do("/", "X-User", "x").header.Get("X-RateLimit-Limit") == "5" })
	s.exactly(2, "/", "X-User", "a")
	s.exactly(3, "/", "X-User", "b")

	// A broken edit changes nothing. It is logged once, with line and column and what would be accepted.
	ruleFile(t, path, "{\"rules\": [\n  {\"name\": \"a\", \"limit\": \"9/0s\", \"key\": \"header:X-User\"}\n]}")
	says := path + `:2:26: rule "a": limit "9/0s": the period must be from 1ms to 366d`
	eventually(t, "the log says what is wrong", func() bool { return strings.Contains(strings.Join(s.errors("limit"), "\n"), says) })
	s.reject("/", "X-User", "a")
	s.exactly(5, "/", "X-User", "c")

	// Traefik's own reload while the file is broken changes nothing either, even if the middleware has changed.
	s.limit("limit", "{rulesFile: "+path+", rulesInterval: 1s, message: 'Slow down, please.'}")
	s.apply()
	if r := s.reject("/", "X-User", "c"); r.body != "Slow down, please.\n" {
		t.Errorf("body %q, want the message", r.body)
	}

	must.Succeed(t, os.Remove(path))
	eventually(t, "the log says that the file is gone", func() bool {
		return strings.Contains(strings.Join(s.errors("limit"), "\n"), path+": no such file or directory")
	})
	s.reject("/", "X-User", "c")
	ruleFile(t, path, `{"rules": [{"name": "a", "limit": "6/366d", "key": "header:X-User"}]}`)
	eventually(t, "the file is in force again", func() bool { return s.do("/", "X-User", "c").status == http.StatusOK })
	s.reject("/", "X-User", "c")
	if n := strings.Count(strings.Join(s.errors("limit"), "\n"), says); n > 2 { // of the previous middleware, and of the changed one
		t.Errorf("the log says %d times what is wrong", n)
	}
}

func TestRuleFileThatIsMissingOrYAMLIsRefused(t *testing.T) {
	folder := t.TempDir()
	yaml := ruleFile(t, filepath.Join(folder, "limits.yaml"), "rules: [{name: a, limit: 1/366d}]\n")
	s := newSite(t)
	s.limit("missing", "rulesFile: "+folder+"/none.json")
	s.limit("yaml", "rulesFile: ["+yaml+"]")
	s.limit("lists", "{rulesFile: "+yaml+", descriptors: [{key: a, source: path}]}")
	s.limit("number", "tiers: {source: 'header:X-Plan', limits: {1: 5/1m, '*': 1/1m}}")
	for _, name := range []string{"missing", "yaml", "lists", "number"} {
		s.route("/"+name, name)
	}
	s.apply()
	for name, want := range map[string]string{
		"missing": "rulesFile: " + folder + "/none.json: no such file or directory",
		"yaml":    "rulesFile: " + yaml + ": is YAML",
		"lists":   "descriptors[0]: write its entries as a list",
		"number":  "tiers: limits: a value is a number",
	} {
		if r := s.do("/" + name); r.status != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404", name, r.status)
		}
		if errors := strings.Join(s.errors(name), "\n"); !strings.Contains(errors, want) {
			t.Errorf("%s: the log says %q, want %q", name, errors, want)
		}
	}
}

func TestRuleFilesDescriptorsTiersAndOverridesInAFileOfYAML(t *testing.T) {
	path := ruleFile(t, filepath.Join(t.TempDir(), "rules.json"), messaging)
	s := newSite(t)
	s.limit("one", fmt.Sprintf(`
		rules:
		  - name: planned
		    key: [header:X-User, header:X-Plan]
		    tiers:
		      source: header:X-Plan
		      limits: {free: 2/366d, staff: unlimited, '*': 1/366d}
		    overrides:
		      - {key: [vip, free], limit: 4/366d}
		      - key: staff, free
		        limit: unlimited
		rulesFile: [%s]
		rulesInterval: 1s
		domain: messaging
		descriptors:
		  - entries:
		      - {key: message_type, source: 'header:X-Type'}
		  - entries: [{key: to, source: 'header:X-To'}, {key: path, source: path}]`, path))
	s.route("/", "one")
	s.apply()
	checkDescribed(t, s)
}

// described returns the same in labels.
func described(path string) []string {
	return []string{
		"rules[0].name", "planned",
		"rules[0].key", "header:X-User,header:X-Plan",
		"rules[0].tiers.source", "header:X-Plan",
		"rules[0].tiers.limits.free", "2/366d",
		"rules[0].tiers.limits.staff", "unlimited",
		"rules[0].tiers.limits.*", "1/366d",
		"rules[0].overrides[0].key", "vip,free",
		"rules[0].overrides[0].limit", "4/366d",
		"rules[0].overrides[1].key[0]", "staff",
		"rules[0].overrides[1].key[1]", "free",
		"rules[0].overrides[1].limit", "unlimited",
		"rulesFile", path,
		"rulesInterval", "1s",
		"domain", "messaging",
		"descriptors[0].entries[0].key", "message_type",
		"descriptors[0].entries[0].source", "header:X-Type",
		"descriptors[1].entries[0].key", "to",
		"descriptors[1].entries[0].source", "header:X-To",
		"descriptors[1].entries[1].key", "path",
		"descriptors[1].entries[1].source", "path",
	}
}

// checkDescribed checks these limits for a host.
func checkDescribed(t *testing.T, s *site) {
	t.Helper()
	user := func(name, plan string) []string { return []string{"X-User", name, "X-Plan", plan} }
	s.exactly(2, "/", user("a", "free")...)
	s.exactly(1, "/", user("a", "gold")...)
	s.exactly(4, "/", user("vip", "free")...)
	s.admit(3, "/", user("staff", "free")...)
	s.admit(3, "/", user("any", "staff")...)
	s.exactly(5, "/", "X-Plan", "staff", "X-Type", "marketing")
	s.exactly(2, "/a", "X-Plan", "staff", "X-To", "x")
	s.reject("/", user("b", "staff")...) // the 20 of the file's rule are used up: 2 + 1 + 4 + 3 + 3 + 5 + 2
}

func TestRuleFilesDescriptorsTiersAndOverridesInLabels(t *testing.T) {
	path := ruleFile(t, filepath.Join(t.TempDir(), "rules.json"), messaging)
	docker := startDockerd(t)
	tr := startTraefik(t, settings{providers: "docker: {endpoint: '" + docker.endpoint + "', exposedByDefault: false}"})
	s := tr.newSite(t)
	service, _ := url.Parse(upstream.url)
	_, port, _ := net.SplitHostPort(service.Host)
	l := map[string]string{
		"traefik.enable": "true",
		"traefik.http.services.backend.loadbalancer.server.port": port,
		"traefik.http.routers.one.rule":                          "Host(`" + s.host() + "`)",
		"traefik.http.routers.one.entrypoints":                   "web",
		"traefik.http.routers.one.middlewares":                   "one",
		"traefik.http.routers.one.service":                       "backend",
		"traefik.http.routers.up.rule":                           "Host(`" + s.host() + "`) && Path(`/up`)",
		"traefik.http.routers.up.entrypoints":                    "web",
		"traefik.http.routers.up.service":                        "backend",
	}
	for rule, i := described(path), 0; i < len(rule); i += 2 {
		l["traefik.http.middlewares.one.plugin.weir."+rule[i]] = rule[i+1]
	}
	docker.heard()
	docker.run("web", l)
	awaitUp(t, s)
	checkDescribed(t, s)
}

// awaitUp waits until a host is served, with an unlimited path.
func awaitUp(t *testing.T, s *site) {
	t.Helper()
	eventually(t, "Traefik has the site", func() bool {
		r, err := s.try("/up")
		return err == nil && r.status == http.StatusOK
	})
}

func TestRuleFilesDescriptorsTiersAndOverridesInAKeyValueStore(t *testing.T) {
	path := ruleFile(t, filepath.Join(t.TempDir(), "rules.json"), messaging)
	store := redistest.Start(t, redistest.WithConfig("notify-keyspace-events KEA"))
	tr := startTraefik(t, settings{providers: "redis: {endpoints: ['" + store.Addr() + "']}"})
	s := tr.newSite(t)
	pairs := []string{"MSET", "traefik/http/services/backend/loadBalancer/servers/0/url", upstream.url,
		"traefik/http/routers/one/rule", "Host(`" + s.host() + "`)",
		"traefik/http/routers/one/middlewares/0", "one",
		"traefik/http/routers/one/service", "backend",
		"traefik/http/routers/up/rule", "Host(`" + s.host() + "`) && Path(`/up`)",
		"traefik/http/routers/up/service", "backend"}
	for rule, i := described(path), 0; i < len(rule); i += 2 {
		setting := strings.NewReplacer(".", "/", "[", "/", "]", "").Replace(rule[i])
		pairs = append(pairs, "traefik/http/middlewares/one/plugin/weir/"+setting, rule[i+1])
	}
	store.MustDo(t, pairs...)
	awaitUp(t, s)
	checkDescribed(t, s)
}

func TestRuleFilesDescriptorsTiersAndOverridesInAFileOfTOML(t *testing.T) {
	path := ruleFile(t, filepath.Join(t.TempDir(), "rules.json"), messaging)
	s := newSite(t)
	file := filepath.Join(s.dynamic, s.name+".toml")
	s.publish(file, strings.NewReplacer("HOST", s.host(), "NAME", s.name, "URL", upstream.url, "PATH", path).Replace(`
[http.services.NAME.loadBalancer]
  [[http.services.NAME.loadBalancer.servers]]
    url = "URL"

[http.routers.NAME-one]
  rule = "Host(`+"`HOST`"+`)"
  service = "NAME"
  middlewares = ["NAME-one"]

[http.routers.NAME-up]
  rule = "Host(`+"`HOST`) && Path(`/up`)"+`"
  service = "NAME"

[http.middlewares.NAME-one.plugin.weir]
  rulesFile = "PATH"
  domain = "messaging"

  [[http.middlewares.NAME-one.plugin.weir.descriptors]]
    entries = [{key = "message_type", source = "header:X-Type"}]

  [[http.middlewares.NAME-one.plugin.weir.descriptors]]
    entries = [{key = "to", source = "header:X-To"}, {key = "path", source = "path"}]

  [[http.middlewares.NAME-one.plugin.weir.rules]]
    name = "planned"
    key = ["header:X-User", "header:X-Plan"]
    tiers = {source = "header:X-Plan", limits = {free = "2/366d", staff = "unlimited", "*" = "1/366d"}}
    overrides = [{key = ["vip", "free"], limit = "4/366d"}, {key = "staff,free", limit = "unlimited"}]
`))
	t.Cleanup(func() { s.publish(file, "") })
	awaitUp(t, s)
	checkDescribed(t, s)
}

// Traefik's file provider cannot carry a list in a list. If a later version can, the manual can say so.
func TestRuleFilesDescriptorsAsListsInAListAreRefusedByTraefik(t *testing.T) {
	s := newSite(t)
	s.limit("lists", "{rulesFile: x.json, descriptors: [[{key: a, source: path}]]}")
	s.route("/", "lists")
	s.write(s.version.Add(1))
	eventually(t, "Traefik says that it cannot read the file", func() bool {
		for _, e := range s.log() {
			if strings.Contains(e.raw, "unsupported simple value type: slice") {
				return true
			}
		}
		return false
	})
	s.middlewares = nil // so that other tests' sites can be read
	s.routers = nil
	s.apply()
}
