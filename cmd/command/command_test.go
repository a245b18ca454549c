package command

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// weir runs the program with arguments, and returns what it wrote and its error.
func weir(args ...string) (stdout, stderr string, err error) {
	root := Root()
	var out, problems strings.Builder
	root.SetOut(&out)
	root.SetErr(&problems)
	root.SetArgs(args)
	err = root.Execute()
	return out.String(), problems.String(), err
}

// file makes a file in a folder of its own, and returns its name.
func file(t *testing.T, name, text string) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestWeirHasNoCaddyInIt(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../weir").Output()
	must.Succeed(t, err)
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, "github.com/caddyserver/") || strings.HasPrefix(name, "github.com/proxyweir/weir/caddy") {
			t.Errorf("weir imports %s", name)
		}
	}
	must.Contain(t, string(out), "github.com/proxyweir/weir/cmd/command")
}

const dynamicYAML = `
http:
  routers:
    r: {rule: PathPrefix("/"), service: s, middlewares: [api]}
  middlewares:
    api:
      plugin:
        weir:
          rules:
            - {name: logins, match: {pathPrefixes: [/login], methods: POST}, limit: 5/10m, algorithm: sliding_window_log}
            - name: plans
              key: header:X-Key
              tiers: {source: header:X-Plan, limits: {gold: 1000/1m, "*": 10/1m}}
    alike:
      plugin:
        weir: {average: 100, burst: 50}
    other:
      plugin: {else: {limit: 5}}
    compress:
      compress: {}
`

const dynamicTOML = `
[http.middlewares.api.plugin.weir]
namespace = "shop"
[[http.middlewares.api.plugin.weir.rules]]
name = "logins"
limit = "5/10m"
key = ["client_ip", "path"]
ipv4Prefix = 24
`

func TestTheRulesOfTraefiksConfigurationAreATable(t *testing.T) {
	name := file(t, "dynamic.yml", dynamicYAML)
	out, problems, err := weir("rules", "--traefik", name)
	must.Succeed(t, err)
	must.Equal(t, strings.Count(problems, "warning: "+name+`: middleware "api": rule "plans": tiers: the header X-Plan is what the client sends`), 1, problems)
	for i, want := range []string{
		"SITE RULE COVERS KEY LIMIT ALGORITHM NOTES FILE",
		"alike@file alike.file/alike all client_ip 100/1s token_bucket burst 50 - " + name,
		"api@file api.file/logins method POST; path prefix /login client_ip 5/10m sliding_window_log - " + name,
		"api@file api.file/plans all header:X-Key 10/1m sliding_window_counter - " + name,
		"api@file api.file/plans all header:X-Key 1000/1m sliding_window_counter tier gold of header:X-Plan " + name,
	} {
		must.Equal(t, strings.Join(strings.Fields(strings.Split(out, "\n")[i]), " "), want, out)
	}
	out, _, err = weir("rules", "--traefik", file(t, "dynamic.toml", dynamicTOML))
	must.Succeed(t, err)
	must.Contain(t, strings.Join(strings.Fields(out), " "), "api@file shop/logins all client_ip path 5/10m")
	out, _, err = weir("rules", "--traefik", file(t, "d.json", `{"http":{"middlewares":{"m":{"plugin":{"limits":{"limit":"5/1m"}}}}}}`), "--plugin", "limits", "--middleware", "m@docker")
	must.Succeed(t, err)
	must.Contain(t, strings.Join(strings.Fields(out), " "), "m@docker m.docker/m all client_ip 5/1m")
}

// composeYAML has limits in labels, as a list and as an object.
const composeYAML = `
services:
  api:
    image: api
    labels:
      - traefik.enable=true
      - traefik.http.routers.api.rule=Host("api.example")
      - traefik.http.routers.api.middlewares=auth, plans
      - traefik.http.middlewares.plans.plugin.weir.rules[0].name=by-plan
      - traefik.http.middlewares.plans.plugin.weir.rules[0].key=header:X-Account
      - traefik.http.middlewares.plans.plugin.weir.rules[0].limit=5/1m
      - traefik.http.middlewares.plans.plugin.weir.rules[1].name=writes
      - traefik.http.middlewares.plans.plugin.weir.rules[1].match.methods=POST,PUT
      - traefik.http.middlewares.plans.plugin.weir.rules[1].limit=10/1m
      - traefik.http.middlewares.auth.forwardauth.address=http://auth/
  web:
    labels:
      traefik.http.routers.web.rule: Host("web.example")
      traefik.http.middlewares.lonely.plugin.weir.limit: 20/1m
      traefik.http.middlewares.lonely.plugin.weir.store.redis.nodes: 2
      traefik.http.middlewares.lonely.plugin.weir.store.redis.address: redis:6379
  redis: {image: redis}
`

func TestLabelsOfAComposeFileAreRead(t *testing.T) {
	name := file(t, "compose.yaml", composeYAML)
	out, problems, err := weir("rules", "--traefik", name)
	must.Succeed(t, err)
	must.Equal(t, problems, "")
	for i, want := range []string{
		"lonely@docker lonely.docker/lonely all client_ip 20/1m sliding_window_counter - " + name,
		"plans@docker plans.docker/by-plan all header:X-Account 5/1m sliding_window_counter - " + name,
		"plans@docker plans.docker/writes method POST,PUT client_ip 10/1m sliding_window_counter - " + name,
	} {
		must.Equal(t, strings.Join(strings.Fields(strings.Split(out, "\n")[i+1]), " "), want, out)
	}
	_, problems, err = weir("check", "--traefik", name)
	must.Succeed(t, err)
	must.Equal(t, problems, "warning: "+name+`: middleware "lonely": no router of this file names it: unless one of another file or provider or an entry point does, as lonely@docker, it limits nothing`+"\n")
	_, problems, err = weir("check", "--strict", "--traefik", file(t, "compose.yaml", strings.Replace(composeYAML, "      traefik.http.routers.web", "      Traefik.http.routers.web", 1)))
	must.Contain(t, problems, `service "web": the label Traefik.http.routers.web.rule must begin with traefik in lower case`, err)
	out, _, err = weir("rules", "--traefik", file(t, "compose.yaml", `services: {off: {labels: [traefik.enable=false, traefik.http.middlewares.no.plugin.weir.limit=1/1m], deploy: {labels: [traefik.docker.network=n, traefik.http.middlewares.yes.plugin.weir.limit=2/1m]}}}`))
	must.Succeed(t, err)
	must.Equal(t, strings.Contains(out, "yes@swarm") && !strings.Contains(out, "no@"), true, out)
	out, _, err = weir("check", "--traefik", "../../examples/traefik/compose.yaml")
	must.Succeed(t, err)
	must.Contain(t, out, "middleware whoami-api-limit@docker: 2 rules")
}

func TestTheRulesOfFilesAreATable(t *testing.T) {
	rules := file(t, "limits.yaml", "rules: [{name: a, limit: 5/1m}]\ndomain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 7}}]\n")
	out, _, err := weir("rules", "--rules", rules, "--rules", file(t, "more.yaml", "domain: e\ndescriptors: [{key: l, value: v, rate_limit: {unlimited: true}}]\n"))
	must.Succeed(t, err)
	for _, want := range []string{"any a all client_ip 5/1m sliding_window_counter - " + rules + ":1", " descriptor k ", " 7/1m ", " descriptor l=v "} {
		must.Contain(t, plain(out), want)
	}
	out, _, err = weir("rules", "--traefik", file(t, "dynamic.yml", "http: {middlewares: {m: {plugin: {weir: {guard: {}}}}}}"))
	must.Succeed(t, err)
	must.Equal(t, out, "the middlewares have no rules\n")
	_, problems, err := weir("rules")
	must.Contain(t, problems, "name rule files by --rules, or Traefik's dynamic configuration by --traefik", err)
}

func TestCheckSaysWhatIsWrongWithTraefiksConfiguration(t *testing.T) {
	good := file(t, "dynamic.yml", dynamicYAML)
	out, _, err := weir("check", "--traefik", good)
	must.Succeed(t, err)
	must.Equal(t, out, good+": middleware alike@file: 1 rule\n"+good+": middleware api@file: 2 rules\n")
	limits := file(t, "limits.json", `{"rules": [{"name": "logins", "limit": "5/1m"}]}`)
	for text, want := range map[string]string{
		strings.Replace(dynamicYAML, "5/10m", "5/10", 1):                                       `%s: middleware "api": rule "logins": limit "5/10"`,
		strings.Replace(dynamicYAML, "limit:", "limt:", 1):                                     `%s: middleware "api": rule "logins": "limt" is not a field (did you mean limit?)`,
		strings.Replace(dynamicYAML, "rules:", "{{ if }}", 1):                                  `it seems to be a template`,
		strings.Replace(dynamicYAML, "rules:", "consistency: lease, rules:", 1):                `mapping values are not allowed`,
		strings.ReplaceAll(dynamicYAML, "weir:", "limiter:"):                                   `no middleware has the plugin weir: the plugins are else, limiter; --plugin says which of them is Weir`,
		strings.Replace(dynamicYAML, "rules:", "rulesFile: ["+limits+"]\n          rules:", 1): limits + `:1:12: rule "logins": duplicate name`,
		strings.Replace(dynamicYAML, "burst: 50", "consistency: lease", 1):                     `middleware "alike": `,
		"http: {}": `has no http: middlewares:`,
	} {
		name := file(t, "dynamic.yml", text)
		_, problems, err := weir("check", "--traefik", name)
		if err == nil {
			t.Errorf("%s\nis taken", text)
			continue
		}
		must.Contain(t, problems, strings.ReplaceAll(want, "%s", name))
	}
	out, problems, err := weir("check", "--traefik", file(t, "compose.yaml", strings.Replace(composeYAML, "5/1m", "5/1", 1)))
	must.Contain(t, problems, `middleware "plans": rule "by-plan": limit "5/1"`, err, out)
	_, problems, err = weir("check", "--traefik", good, "--middleware", "apis")
	if err == nil {
		t.Error("a middleware that is not there is taken")
	}
	must.Contain(t, problems, `has none of that name; it has alike, api`)
}

func TestCheckWarnsOfWhatIsMostLikelyNotIntended(t *testing.T) {
	const text = `
http:
  routers:
    site: {rule: PathPrefix("/"), service: s, middlewares: [all, missing, gone@file, other@docker]}
    shop: {rule: Host("shop"), service: s, middlewares: [fleet]}
  middlewares:
    all: {chain: {middlewares: [inner, nowhere]}}
    inner: {plugin: {weir: {limit: 5/1m, advisor: {url: "http://localhost:9"}, ipStrategy: {depth: 1, excludedIPs: [10.0.0.0/8]}}}}
    fleet: {plugin: {weir: {rules: [{name: a, limit: 5/1m, match: {exceptIPs: [10.0.0.0/8]}}], store: {redis: {address: "localhost:1"}}}}}
    alone: {plugin: {weir: {period: 1m}}}
    typo: {plugin: {wier: {rules: 7}}}
    alike: {plugin: {limiter: {limit: 7/1m}}}
    another: {plugin: {auth: {limit: 7}}}
`
	name := file(t, "dynamic.yml", text)
	out, problems, err := weir("check", "--traefik", name)
	must.Succeed(t, err)
	must.Contain(t, out, name+": middleware inner@file: 1 rule\n")
	for _, want := range []string{
		`middleware "inner": ipStrategy: excludedIPs has no effect beside depth`,
		`middleware "inner": advisor: has no effect, since no rule has adapt`,
		`middleware "fleet": nodes is not set: if Redis cannot be reached, each node lets the whole limit through; set store.redis.nodes`,
		`middleware "fleet": rule "a": match: exceptIPs has private addresses, and ipStrategy is not set`,
		`middleware "alone": average is not set, so nothing is limited`,
		`middleware "alone": no router of this file names it: unless one of another file or provider or an entry point does, as alone@file, it limits nothing`,
		`router "site": the middleware "missing" is not in this file`,
		`router "site": the middleware "gone@file" is not in this file`,
		`chain "all": the middleware "nowhere" is not in this file`,
		`middleware "typo": the plugin "wier" is not weir, but looks like it: `,
		`middleware "alike": the plugin "limiter" is not weir, but looks like it: `,
	} {
		must.Equal(t, strings.Count(problems, "warning: "+name+": "+want), 1, "%s\n%s", want, problems)
	}
	must.Equal(t, strings.Count(problems, "warning: "), 11, problems)

	_, problems, err = weir("check", "--traefik", file(t, "dynamic.yml", strings.Replace(text, "depth: 1", "depth: one", 1)))
	if err == nil {
		t.Error("a depth that Traefik refuses is taken")
	}
	must.Contain(t, problems, `middleware "inner": ipStrategy: depth "one"`)
	must.Contain(t, problems, `warning: `, "what is most likely not intended is told beside what is wrong")
}

func TestCheckWarnsOfKeysAndRoutersThatEvadeALimit(t *testing.T) {
	const text = `
http:
  routers:
    open: {rule: Host("a"), middlewares: [keys]}
    behind: {rule: Host("b"), middlewares: [known, behind]}
    late: {rule: Host("c"), middlewares: [late, auth]}
    beside: {rule: Host("d"), middlewares: [beside, both]}
    rest: {rule: "PathPrefix(` + "`/`" + `)"}
    also: {rule: "PathPrefix(` + "`/`" + `)", middlewares: [known, both]}
  middlewares:
    known: {chain: {middlewares: [auth, known]}}
    auth: {basicAuth: {users: [a]}}
    keys: {plugin: {weir: {limit: 5/1m, key: "header:X-Api-Key"}}}
    behind: {plugin: {weir: {limit: 5/1m, key: "header:X-Api-Key"}}}
    late: {plugin: {weir: {rules: [{name: a, limit: 5/1m, key: [client_ip, "cookie:a"]}, {name: b, limit: 5/1m, key: "first(query:b, client_ip)"}]}}}
    beside: {plugin: {weir: {limit: 5/1m, key: "header:X-Api-Key"}}}
    both: {plugin: {weir: {rules: [{name: a, limit: 5/1m, key: "cookie:a"}, {name: b, limit: 5/1m}]}}}
`
	_, problems, err := weir("check", "--traefik", file(t, "dynamic.yml", text))
	must.Succeed(t, err)
	for _, want := range []string{
		`middleware "keys": rule "keys": clients choose the key header:X-Api-Key, and in the router "open" `,
		`middleware "late": rule "a": clients choose the key cookie:a, and in the router "late" `,
		`router "rest": has no middleware of Weir's, and takes the requests of router "also" if Traefik refuses that`,
	} {
		must.Contain(t, problems, want)
	}
	must.Equal(t, strings.Count(problems, "warning: "), 3, problems)
	if _, problems, err = weir("check", "--strict", "--traefik", file(t, "dynamic.yml", text)); err == nil {
		t.Error("warnings are no error with --strict")
	}
	must.Contain(t, problems, "3 warnings")
}

// The router of a site for HTTP that redirects takes nothing from the one for HTTPS.
func TestRoutersOfOtherEntryPointsTakeNothingOver(t *testing.T) {
	for _, other := range []string{"entryPoints: [web]", "tls: {}", "entryPoints: [web, more], tls: {}"} {
		_, problems, err := weir("check", "--strict", "--traefik", file(t, "dynamic.yml", `
http:
  routers:
    redirect: {rule: "Host(`+"`a`"+`)", `+other+`}
    site: {rule: "Host(`+"`a`"+`)", entryPoints: [websecure], middlewares: [m]}
  middlewares: {m: {plugin: {weir: {limit: 5/1m}}}}
`))
		must.Succeed(t, err)
		must.Equal(t, problems, "", other)
	}
}

// router returns a router with a rule, and with middlewares.
func router(rule string, middlewares ...string) map[string]any {
	r := map[string]any{"middlewares": middlewares}
	if rule != "" {
		r["rule"] = rule
	}
	return r
}

func TestCheckWarnsOfRoutersThatTakeOver(t *testing.T) {
	const host, api = "Host(`a`)", "Host(`a`) && PathPrefix(`/api`)"
	for _, c := range []struct {
		free, limited string
		warned        bool
	}{
		{"PathPrefix(`/`)\n", host, true},
		{"", "", false},
		{host, api, true},
		{host + " && PathPrefix(`/`)", api, true},
		{"HostRegexp(`.*`)", api, true},
		{"HostRegexp(`^.+$`)", host, true},
		{"PathRegexp(`^/.*`)", host, true},
		{"PathPrefix(`/`)", "Host(`b`) || Host(`c`)", true},
		{"PathPrefix(`/api`) && " + host, api, true},
		{"Host(`b`)", api, false},
		{api, host, false},
		{"Host(`a`) || Host(`b`)", api, false},
		{"HostRegexp(`^a.*$`)", api, false},
	} {
		text, err := json.Marshal(map[string]any{"http": map[string]any{
			"routers":     map[string]any{"free": router(c.free), "limited": router(c.limited, "m")},
			"middlewares": map[string]any{"m": map[string]any{"plugin": map[string]any{"weir": map[string]any{"limit": "5/1m"}}}},
		}})
		must.Succeed(t, err)
		_, problems, err := weir("check", "--traefik", file(t, "dynamic.json", string(text)))
		must.Succeed(t, err)
		must.Equal(t, strings.Contains(problems, `router "free": has no middleware of Weir's, and takes the requests of router "limited"`), c.warned, "%s beside %s: %s", c.free, c.limited, problems)
	}
}

func TestCheckTakesWhatTheEnvironmentHasElsewhereForRight(t *testing.T) {
	name := file(t, "dynamic.yml", `# env:WEIR_TEST_OF_A_COMMENT
http: {middlewares: {api: {plugin: {weir: {limit: 5/1m, store: {redis: {address: "env:WEIR_TEST_NONE", password: "env:WEIR_TEST_NONE", nodes: 2}}}}}, other: {plugin: {else: {a: "env:WEIR_TEST_ELSE"}}}}}`)
	_, problems, err := weir("check", "--traefik", name)
	must.Succeed(t, err)
	must.Equal(t, strings.Count(problems, "warning: "+name+`: "env:WEIR_TEST_NONE" is not set here, and so is not checked`), 1, problems)
	must.Equal(t, strings.Count(problems, "is not set here"), 1, "what is no setting of Weir's is left alone: %s", problems)
	must.Succeed(t, os.Unsetenv("WEIR_TEST_NONE"))
	if _, problems, err = weir("list", "--traefik", name); err == nil {
		t.Error("a command that needs the password goes on without it")
	}
	must.Contain(t, problems, `"env:WEIR_TEST_NONE": there is no environment variable of that name`)
}

func TestCheckTakesRuleFilesByFlagToo(t *testing.T) {
	limits, more := file(t, "limits.yaml", "rules: [{name: a, limit: 5/1m}]\n"), file(t, "more.yaml", "rules: [{name: b, limit: 5/1m}]\n")
	out, _, err := weir("check", "--rules", limits, more)
	must.Succeed(t, err)
	must.Equal(t, out, limits+": 1 rule\n"+more+": 1 rule\n")
	name := file(t, "dynamic.yml", dynamicYAML)
	_, problems, err := weir("check", name)
	if err == nil {
		t.Error("a dynamic configuration is taken for a rule file")
	}
	must.Contain(t, problems, "for a dynamic configuration of Traefik's write --traefik in front of it")
}

func TestReplayTakesAMiddlewareOfTraefiks(t *testing.T) {
	log := file(t, "access.log", strings.Repeat(`192.0.2.1 - - [22/Nov/2026:00:06:23 +0000] "POST /login HTTP/1.1" 200 5`+"\n", 7))
	name := file(t, "dynamic.yml", dynamicYAML)
	_, problems, err := weir("replay", "--traefik", name, log)
	if err == nil {
		t.Error("two middlewares are replayed at once")
	}
	must.Contain(t, problems, "has several middlewares; --middleware says which")
	out, _, err := weir("replay", "--traefik", name, "--middleware", "api", "--json", log)
	must.Succeed(t, err)
	must.Contain(t, strings.Join(strings.Fields(out), ""), `"rejected":2`)
}

func TestWeirSaysItsVersion(t *testing.T) {
	out, _, err := weir("version")
	must.Succeed(t, err)
	must.Equal(t, out, fmt.Sprintln(Version()))
}

// A setting without a value is as if it were not written. It made the command panic.
func TestASettingOfTraefikMayHaveNoValue(t *testing.T) {
	name := file(t, "dynamic.yml", "http:\n  middlewares:\n    api:\n      plugin:\n        weir: {limit: 5/1m, cors: , message: }\n")
	_, problems, err := weir("check", "--traefik", name)
	must.Succeed(t, err)
	must.Equal(t, problems, "", "it says")
}
