package e2e

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// The folder that users copy. The tests change only addresses and paths in its files, each of which must be present.
var examples = filepath.Join("..", "examples", "traefik")

func readExample(t *testing.T, name string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, name))
	must.Succeed(t, err)
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(string(text), replace[i]) {
			t.Fatalf("%s has no %q", name, replace[i])
		}
	}
	return strings.NewReplacer(replace...).Replace(string(text))
}

// compose has the parts of a compose file that the tests use.
type compose struct {
	Services map[string]struct {
		Image       string
		Command     string
		Ports       []string
		Volumes     []string
		Environment map[string]string
		Labels      map[string]string
		Deploy      struct{ Replicas int }
		DependsOn   []string `yaml:"depends_on"`
	}
}

func readCompose(t *testing.T, text string) compose {
	t.Helper()
	var c compose
	must.Succeed(t, yaml.Unmarshal([]byte(text), &c))
	return c
}

// defaults matches variables of a compose file that have a default.
var defaults = regexp.MustCompile(`\$\{\w+:-([^}]*)\}`)

// startExample starts a Traefik on the example's own files.
func startExample(t *testing.T, redis, docker string, env []string) *traefik {
	t.Helper()
	tr, err := newTraefik(t.TempDir(), settings{env: env})
	must.Succeed(t, err)
	dynamic := filepath.Join(tr.dir, "dynamic.yml")
	static := readExample(t, "traefik.yml",
		`":80"`, `"`+tr.web+`"`,
		"/etc/traefik/dynamic.yml", dynamic,
		"unix:///var/run/docker.sock", docker)
	// The entry point for ping needs its own port, unless it is given one.
	static = strings.Replace(static, "entryPoints:\n", "entryPoints:\n  traefik:\n    address: \""+tr.admin+"\"\n", 1)
	for name, text := range map[string]string{
		filepath.Join(tr.dir, "traefik.yml"): static,
		dynamic:                              readExample(t, "dynamic.yml", "redis:6379", redis+"\n              timeout: 20s\n              readTimeout: 20s\n              dialTimeout: 20s", "http://whoami:80", upstream.url),
	} {
		must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
	}
	t.Cleanup(func() {
		tr.stop()
		tr.checkCalm(t, 0)
		for _, e := range tr.logSince(0) {
			if e.Level == "error" {
				t.Errorf("Traefik says: %s %s", e.Message, e.Error)
			}
		}
	})
	must.Succeed(t, tr.start())
	return tr
}

func TestTheExampleLimitsAsItSays(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.WithPassword("change-me"))
	docker := startDockerd(t)
	service, _ := url.Parse(upstream.url)
	_, port, _ := net.SplitHostPort(service.Host)
	file := readCompose(t, readExample(t, "compose.yaml", "redis:6379", redis.Addr(), `server.port: "80"`, `server.port: "`+port+`"`))
	labels := file.Services["whoami"].Labels
	for name := range maps.Clone(labels) {
		if settings, found := strings.CutSuffix(name, "store.redis.address"); found {
			for _, timeout := range []string{"timeout", "readTimeout", "dialTimeout"} { // otherwise counts are inexact on a busy machine
				labels[settings+"store.redis."+timeout] = "20s"
			}
		}
	}
	docker.run("whoami", labels)
	var env []string
	for name, value := range file.Services["traefik"].Environment {
		env = append(env, name+"="+defaults.ReplaceAllString(value, "$1"))
	}
	replicas := make([]*traefik, file.Services["traefik"].Deploy.Replicas)
	if len(replicas) != 2 {
		t.Fatalf("%d replicas, want two", len(replicas))
	}
	for i := range replicas {
		replicas[i] = startExample(t, redis.Addr(), docker.endpoint, env)
	}
	for _, tr := range replicas {
		for _, host := range []string{"whoami.localhost", "shop.localhost", "moved.localhost"} {
			eventually(t, host+" is there, and Redis decides", func() bool {
				r, err := send(tr.client, host, "/", "X-Forwarded-For", "192.0.2.9")
				return err == nil && r.status == http.StatusOK && (host == "moved.localhost" || len(redis.MustDo(t, "KEYS", "*").List) > 0)
			})
		}
	}
	admitted := func(request string, n int, fields ...string) (count int) {
		t.Helper()
		for i := range n {
			r, err := send(replicas[i%2].client, "", request, fields...)
			if err != nil || r.status != http.StatusOK && r.status != http.StatusTooManyRequests {
				t.Fatalf("%s: status %d, %v", request, r.status, err)
			}
			if r.status == http.StatusOK {
				count++
			}
		}
		return count
	}
	for _, c := range []struct {
		request     string
		fields      []string
		least, most int     // of 30; some tokens of the buckets were used before
		back        float64 // how many return in a minute, one by one
		allAtOnce   bool    // all return at once when a new minute begins
	}{
		{"http://whoami.localhost/", nil, 15, 20, 20, false},
		{"http://whoami.localhost/api/x", []string{"X-Api-Key", "a"}, 5, 5, 5, true},
		{"http://whoami.localhost/api/x", []string{"X-Api-Key", "b"}, 5, 5, 5, true},
		{"http://whoami.localhost/api/x", []string{"X-Api-Key", "key-of-acme"}, 10, 10, 10, true},
		{"http://whoami.localhost/api/x", nil, 30, 30, 0, false},
		{"POST http://shop.localhost/login", nil, 5, 5, 0, false},
		{"http://shop.localhost/", nil, 1, 10, 100, false},
		{"http://moved.localhost/", []string{"X-Api-Key", "a"}, 30, 30, 0, false}, // in memory: each replica counts alone
	} {
		began := time.Now()
		n := admitted(c.request, 30, c.fields...)
		ended := time.Now()
		most := c.most
		if c.back > 0 && (!c.allAtOnce || !began.Truncate(time.Minute).Equal(ended.Truncate(time.Minute))) {
			most += 1 + int(c.back*ended.Sub(began).Minutes())
		}
		if n < c.least || n > most {
			t.Errorf("%s %q: %d of 30 were admitted, want %d to %d", c.request, c.fields, n, c.least, most)
		}
	}
	eventually(t, "a request is rejected", func() bool {
		r, err := send(replicas[0].client, "shop.localhost", "/")
		if strings.Contains(fmt.Sprint(r.header), "planned") {
			t.Errorf("the shadow shows in %v", r.header)
		}
		return err == nil && r.status == http.StatusTooManyRequests && r.body == "Too many requests. Please slow down.\n"
	})
}

// The other way to install the plugin, which is commented out, works when it is not.
func TestTheExampleOfTheCatalogueIsRight(t *testing.T) {
	text := readExample(t, "traefik.yml")
	_, text, _ = strings.Cut(text, "\n  #plugins:\n")
	text, _, _ = strings.Cut(text, "\n\n")
	var plugins map[string]struct {
		ModuleName string `yaml:"moduleName"`
		Version    string
	}
	must.Succeed(t, yaml.Unmarshal([]byte(strings.ReplaceAll(text, "  #", "  ")), &plugins))
	if p := plugins["weir"]; p.ModuleName != module || !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(p.Version) {
		t.Errorf("the catalogue's plugin is %+v", p)
	}
}

func TestTheExampleFitsTogether(t *testing.T) {
	c := readCompose(t, readExample(t, "compose.yaml"))
	traefik, redis, whoami := c.Services["traefik"], c.Services["redis"], c.Services["whoami"]
	for _, volume := range []string{"./:/etc/traefik:ro", "../../:/plugins-local/src/" + module + ":ro", "/var/run/docker.sock:/var/run/docker.sock:ro"} {
		if !slices.Contains(traefik.Volumes, volume) {
			t.Errorf("Traefik has volumes %q, want %q", traefik.Volumes, volume)
		}
	}
	if !strings.HasPrefix(traefik.Image, "traefik:v3.") || redis.Image == "" || whoami.Image == "" {
		t.Errorf("images %q, %q and %q", traefik.Image, redis.Image, whoami.Image)
	}
	if !strings.Contains(redis.Command, "--requirepass "+traefik.Environment["REDIS_PASSWORD"]) {
		t.Errorf("Redis has %q, and Traefik %q", redis.Command, traefik.Environment)
	}
	if want := []string{fmt.Sprintf("8080-%d:80", 8080+traefik.Deploy.Replicas-1)}; !slices.Equal(traefik.Ports, want) {
		t.Errorf("ports %q, want %q for %d replicas", traefik.Ports, want, traefik.Deploy.Replicas)
	}
	nodes := fmt.Sprint(traefik.Deploy.Replicas)
	for name, value := range whoami.Labels {
		if strings.HasSuffix(name, ".nodes") && value != nodes {
			t.Errorf("%s is %s, and there are %s replicas", name, value, nodes)
		}
	}
	must.Contain(t, readExample(t, "dynamic.yml"), "nodes: "+nodes+"\n", "dynamic.yml does not know of %s replicas", nodes)
}
