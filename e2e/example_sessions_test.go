package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/manual"
	"github.com/proxyweir/weir/tools/must"
)

// exampleTests are the files of the tests of those examples whose READMEs have no session, and what of the folder they name.
var exampleTests = map[string][2]string{
	"advisor":    {"../advisor/config_test.go", "examples/advisor/"},
	"ask":        {"ask_test.go", `"examples", "ask"`},
	"cascade":    {"../examples/cascade/main_test.go", "README.md"},
	"clients":    {"clients_test.go", "examples/clients/"},
	"compose":    {"compose_test.go", `"examples", "compose"`},
	"crowdsec":   {"recipes_test.go", "crowdsec/"},
	"defer":      {"example_defer_test.go", `startDeferring(t, "defer"`},
	"fail2ban":   {"recipes_test.go", "fail2ban/"},
	"kubernetes": {"example_files_test.go", `readRecipe(t, "kubernetes/limits.yaml"`},
	"nethttp":    {"../examples/nethttp/main_test.go", "NewLimiter("},
	"outgoing":   {"../caddy/e2e_respect_test.go", "examples/outgoing/"},
	"systemd":    {"example_files_test.go", `readRecipe(t, "systemd/caddy.service"`},
	"traefik":    {"examples_test.go", `"examples", "traefik"`},
}

// mostWords are how many words a README of an example may have, sessions included. That of cascade is a chapter of the manual.
const mostWords = 160

func TestEveryExampleHasAShortReadmeAndATest(t *testing.T) {
	recipes := manual.Page(t, "docs/recipes.md")
	folders, err := os.ReadDir("../examples")
	must.Succeed(t, err)
	for _, folder := range folders {
		name := folder.Name()
		text, err := os.ReadFile(filepath.Join("..", "examples", name, "README.md"))
		if err != nil {
			t.Errorf("examples/%s has no README.md", name)
			continue
		}
		if words := len(strings.Fields(string(text))); words > mostWords && name != "cascade" {
			t.Errorf("examples/%s/README.md has %d words, and may have %d", name, words, mostWords)
		}
		must.Contain(t, recipes, "](../examples/"+name+"/README.md)", "docs/recipes.md")
		if test, known := exampleTests[name]; known {
			code, err := os.ReadFile(test[0])
			must.Succeed(t, err)
			must.Contain(t, string(code), test[1], "%s, which should test examples/%s", test[0], name)
		} else if len(sessionsOf(t, name)) == 0 {
			t.Errorf("examples/%s has neither a session in its README.md nor a test in exampleTests", name)
		}
		for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(text), -1) {
			checkLink(t, filepath.Join("..", "examples", name), link[1])
		}
	}
}

// checkLink checks that a link on a page in a folder leads to a file, and if it has an anchor, to a heading of it.
func checkLink(t *testing.T, folder, link string) {
	t.Helper()
	if strings.Contains(link, "://") {
		return
	}
	path, anchor, _ := strings.Cut(link, "#")
	text, err := os.ReadFile(filepath.Join(folder, path))
	if err != nil {
		t.Errorf("%s: the link %s leads nowhere", folder, link)
		return
	}
	for line := range strings.Lines(string(text)) {
		slug := strings.Trim(strings.ToLower(strings.TrimLeft(line, "# ")), "\n")
		slug = strings.ReplaceAll(regexp.MustCompile(`[^\w -]`).ReplaceAllString(slug, ""), " ", "-")
		if anchor == "" || strings.HasPrefix(line, "#") && slug == anchor {
			return
		}
	}
	t.Errorf("%s: the link %s leads to no heading", folder, link)
}

// sessionsOf returns the sessions of an example's README, unless exampleTests has it. One whose marker is "Caddy" or "Traefik" is for that alone.
func sessionsOf(t *testing.T, name string) []manual.Snippet {
	t.Helper()
	if _, elsewhere := exampleTests[name]; elsewhere {
		return nil
	}
	return slices.DeleteFunc(manual.Snippets(t, "examples/"+name+"/README.md"), func(s manual.Snippet) bool { return s.Language != "console" })
}

// Every session of an example's README is played against a Caddy with the example's Caddyfile, and if there is a dynamic.yml, against a Traefik with that.
func TestSessionsOfExamplesAreWhatCaddyAndTraefikAnswer(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is not installed: apt-get install curl; brew install curl")
	}
	files, err := filepath.Glob("../examples/*/README.md")
	must.Succeed(t, err)
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		sessions := sessionsOf(t, name)
		if len(sessions) > 0 {
			t.Run(name+" in Caddy", func(t *testing.T) {
				t.Parallel()
				sessions := slices.DeleteFunc(slices.Clone(sessions), func(s manual.Snippet) bool { return s.Marker == "Traefik" })
				playExample(t, sessions, func(int) *exampleSite { return exampleInCaddy(t, name) })
			})
		}
		if _, err := os.Stat(filepath.Join("..", "examples", name, "dynamic.yml")); err == nil && name != "traefik" { // which has a Traefik of its own
			t.Run(name+" in Traefik", func(t *testing.T) {
				t.Parallel()
				sessions := slices.DeleteFunc(slices.Clone(sessions), func(s manual.Snippet) bool { return s.Marker == "Caddy" })
				playExample(t, sessions, func(play int) *exampleSite { return exampleInTraefik(t, name, play) })
			})
		}
	}
}

// playExample plays the sessions, one after another. If a new minute begins meanwhile, counters may be renewed: so it has three tries, each on a new site.
func playExample(t *testing.T, sessions []manual.Snippet, start func(play int) *exampleSite) {
	t.Helper()
	for play := range 3 {
		site, problem := start(play), ""
		for _, s := range sessions {
			if problem == "" {
				problem = site.play(t, s)
			}
		}
		if problem == "" {
			return
		}
		t.Log(problem)
	}
	t.Error("no play was as the README shows")
}

// exampleSite has the actual addresses of an example's, such as 127.0.0.1:12345 of localhost:8080.
type exampleSite struct{ addrs map[string]string }

// at returns the actual address of a port.
func (e *exampleSite) at(port string) string {
	if e.addrs["localhost:"+port] == "" {
		e.addrs["localhost:"+port] = freeAddr()
	}
	return e.addrs["localhost:"+port]
}

var (
	documentedAddr = regexp.MustCompile(`localhost:(80\d\d|9180|6379)\b`)
	documentedPort = regexp.MustCompile(`:(80\d\d)\b`)
)

// actual replaces the addresses in a text, and in a Caddyfile the ports at which sites listen.
func (e *exampleSite) actual(text string, caddyfile bool) string {
	text = documentedAddr.ReplaceAllStringFunc(text, func(addr string) string { return e.at(strings.TrimPrefix(addr, "localhost:")) })
	if caddyfile {
		text = documentedPort.ReplaceAllStringFunc(text, func(port string) string { return portOf(e.at(port[1:])) })
	}
	return text
}

// play plays a session, and says how it differs, or "".
func (e *exampleSite) play(t *testing.T, session manual.Snippet) string {
	t.Helper()
	for _, part := range strings.Split("\n"+session.Text, "\n$ ")[1:] {
		command, want, _ := strings.Cut(part, "\n")
		output, err := exec.Command("bash", "-c", e.actual(command, false)).Output()
		if err != nil {
			return fmt.Sprintf("%s: %s: %v", session.Place, command, err)
		}
		if got := string(output); !sameAnswer(want, got) {
			return fmt.Sprintf("%s: %s\nprints\n%s\nand the README shows\n%s", session.Place, command, got, want)
		}
	}
	return ""
}

var waitInSeconds = regexp.MustCompile(`again in (\d+) s`)

// sameAnswer reports whether a command has printed what a README shows. Spaces at the ends of lines are ignored, and a wait may be up to a minute shorter.
func sameAnswer(want, got string) bool {
	lines := func(text string) string {
		return regexp.MustCompile(`(?m)[ \r]+$`).ReplaceAllString(strings.TrimSpace(waitInSeconds.ReplaceAllString(text, "again in … s")), "")
	}
	wanted, gotten := waitInSeconds.FindStringSubmatch(want), waitInSeconds.FindStringSubmatch(got)
	if wanted != nil && gotten != nil {
		w, _ := strconv.Atoi(wanted[1])
		g, _ := strconv.Atoi(gotten[1])
		if g > w || g < w-60 {
			return false
		}
	}
	return lines(want) == lines(got)
}

func TestADifferentAnswerIsFound(t *testing.T) {
	const shown = "200 429\n429, again in 900 s\n"
	for printed, same := range map[string]bool{
		shown:                             true,
		"200 429 \r\n429, again in 841 s": true,
		"200 200\n429, again in 900 s":    false,
		"200 429\n429, again in 901 s":    false,
		"200 429\n429, again in 800 s":    false,
		"200 429\n":                       false,
		"":                                false,
	} {
		must.Equal(t, sameAnswer(shown, printed), same, "%q", printed)
	}
}

var globalOptions = regexp.MustCompile(`(?s)\A((?:#[^\n]*\n|\n)*)\{\n(.*?)\n\}\n`)

// folderOf returns the whole path of an example's folder.
func folderOf(t *testing.T, name string) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "examples", name))
	must.Succeed(t, err)
	return folder
}

// The rule files that Traefik reads say what those in YAML do.
func TestTheRuleFilesInJSONAreThoseInYAML(t *testing.T) {
	for _, name := range []string{"rules/limits", "rules/messaging"} {
		inYAML, inJSON := yamlDocuments(t, readRecipe(t, name+".yaml")), yamlDocuments(t, readRecipe(t, name+".json"))
		if !reflect.DeepEqual(inYAML, inJSON) {
			t.Errorf("%s: in YAML\n%v\nin JSON\n%v", name, inYAML, inJSON)
		}
	}
}

// exampleInCaddy starts what an example's Caddyfile describes. If its port is a variable, which is 8080 by default, it starts a second one at 8090.
func exampleInCaddy(t *testing.T, name string) *exampleSite {
	t.Helper()
	e := &exampleSite{addrs: make(map[string]string)}
	text := readRecipe(t, name+"/Caddyfile")
	if strings.Contains(text, "localhost:6379") {
		e.addrs["localhost:6379"] = redistest.Start(t).Addr()
		text = strings.Replace(text, "address localhost:6379", "address localhost:6379\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s", 1) // which a busy machine needs
	}
	text = strings.ReplaceAll(text, "examples/"+name+"/", folderOf(t, name)+"/")
	text = strings.Replace(text, "admin localhost:{$ADMIN:2019}", "admin off", 1)
	const port = "{$PORT:8080}"
	ports := []string{"8080"}
	if strings.Contains(text, port) {
		ports = append(ports, "8090")
	}
	binary, err := caddyProgram()
	must.Succeed(t, err)
	for _, p := range ports {
		sites, global := e.actual(strings.ReplaceAll(text, port, p), true), "auto_https off\n"
		if m := globalOptions.FindStringSubmatch(sites); m != nil {
			sites, global = strings.TrimPrefix(sites, m[0]), global+strings.Replace(m[2], "\tauto_https off\n", "", 1)+"\n"
		}
		if !strings.Contains(global, "admin off") {
			global += "admin off\n"
		}
		up := freeAddr()
		c := runProgram(t, binary, t.TempDir(), up, "/up", global, sites+portOf(up)+" {\nrespond /up ok\n}\n")
		log, err := os.ReadFile(c.log)
		must.Succeed(t, err)
		for line := range strings.Lines(string(log)) {
			// The address that rules exempts is an example.
			if strings.Contains(line, `"level":"warn"`) && strings.Contains(line, "rate_limit") && !(name == "rules" && strings.Contains(line, "private addresses are exempt")) {
				t.Errorf("Caddy warns of the example: %s", line)
			}
		}
	}
	return e
}

// exampleInTraefik adds what an example's dynamic.yml describes to the Traefik that tests share, by names of its own. What the Caddyfile has in place of services is behind it, and
// a second proxy at 8090.
func exampleInTraefik(t *testing.T, name string, play int) *exampleSite {
	t.Helper()
	e := &exampleSite{addrs: make(map[string]string)}
	if len(sessionsOf(t, name)) > 0 {
		e = exampleInCaddy(t, name)
	}
	tr := sharedTraefik(t)
	prefix := fmt.Sprintf("example-%s-%d-", name, play)
	host := prefix + "x.localhost" // which curl finds at 127.0.0.1
	_, web, _ := net.SplitHostPort(tr.web)
	text, routers := ownNames(t, readRecipe(t, name+"/dynamic.yml"), prefix, host)
	text = e.actual(strings.ReplaceAll(text, "examples/"+name+"/", folderOf(t, name)+"/"), false)
	e.addrs["localhost:8080"] = net.JoinHostPort(host, web)
	file := filepath.Join(tr.dynamic, prefix+"x.yml")
	draft := filepath.Join(tr.dir, prefix+"draft")
	must.Succeed(t, os.WriteFile(draft, []byte(text), 0o600))
	must.Succeed(t, os.Rename(draft, file))
	t.Cleanup(func() { _ = os.Remove(file) })
	eventually(t, "Traefik has "+name, func() bool {
		r, err := send(tr.client, prefix+"up.test", "/")
		return err == nil && r.status == http.StatusOK
	})
	for _, r := range routers {
		must.Contain(t, string(tr.get(t, "/api/http/routers/"+r+"@file")), `"status":"enabled"`, "%s: the router %s", name, r)
	}
	return e
}

// ownNames gives the routers, middlewares and services of a dynamic configuration a prefix, and its routers another host than localhost. It adds a router that shows when Traefik
// has the configuration, and returns the names of the others.
func ownNames(t *testing.T, text, prefix, host string) (renamed string, routers []string) {
	t.Helper()
	var config map[string]map[string]map[string]map[string]any
	must.Succeed(t, yaml.Unmarshal([]byte(text), &config))
	own := make(map[string]map[string]map[string]any)
	for kind, entries := range config["http"] {
		own[kind] = make(map[string]map[string]any)
		for name, entry := range entries {
			own[kind][prefix+name] = entry
			if kind != "routers" {
				patient(entry)
				continue
			}
			routers = append(routers, prefix+name)
			if service := entry["service"].(string); !strings.Contains(service, "@") {
				entry["service"] = prefix + service
			}
			entry["rule"] = strings.Replace(entry["rule"].(string), "Host(`localhost`)", "Host(`"+host+"`)", 1)
			chain, _ := entry["middlewares"].([]any)
			for i := range chain {
				chain[i] = prefix + chain[i].(string)
			}
		}
	}
	own["routers"][prefix+"up"] = map[string]any{"rule": "Host(`" + prefix + "up.test`)", "service": "ping@internal"}
	b, err := yaml.Marshal(map[string]any{"http": own})
	must.Succeed(t, err)
	return string(b), routers
}

// patient gives a Redis the timeouts that a busy machine needs.
func patient(settings map[string]any) {
	for key, value := range settings {
		if below, ok := value.(map[string]any); ok {
			patient(below)
			if key == "redis" {
				below["timeout"], below["readTimeout"], below["dialTimeout"] = "20s", "20s", "20s"
			}
		}
	}
}
