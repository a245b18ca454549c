package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/proxyweir/weir/advisor"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// containerFile returns a file of examples/compose, with other addresses, each of which must be there.
func containerFile(t *testing.T, name string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "examples", "compose", name))
	must.Succeed(t, err)
	for i := 0; i < len(replace); i += 2 {
		must.Contain(t, string(text), replace[i], "%s", name)
	}
	return strings.NewReplacer(replace...).Replace(string(text))
}

// What the services are given is there, and where they send something is another service.
func TestTheContainersFitTogether(t *testing.T) {
	services := readCompose(t, containerFile(t, "compose.yaml")).Services
	for name, service := range services {
		if !regexp.MustCompile(`:v?\d|^weir-example-`).MatchString(service.Image) {
			t.Errorf("the image of %s is %q, which is not of one version", name, service.Image)
		}
		for _, volume := range service.Volumes {
			if from, _, _ := strings.Cut(volume, ":"); strings.HasPrefix(from, ".") {
				if _, err := os.Stat(filepath.Join("..", "examples", "compose", from)); err != nil {
					t.Errorf("%s has the volume %s, which is not there", name, volume)
				}
			}
		}
		for _, other := range service.DependsOn {
			if _, found := services[other]; !found {
				t.Errorf("%s waits for %s, which is none of the services", name, other)
			}
		}
	}
	for _, name := range []string{"Caddyfile", "traefik/dynamic.yml", "prometheus.yml", "advisor.yaml", "grafana/datasources.yaml"} {
		for _, m := range regexp.MustCompile(`\b([a-z]+):\d+\b`).FindAllStringSubmatch(containerFile(t, name), -1) {
			if _, found := services[m[1]]; !found {
				t.Errorf("%s asks %s, which is none of the services", name, m[0])
			}
		}
	}
	dir := t.TempDir()
	alerts, err := filepath.Abs(filepath.Join(grafanaDir, "alerts.yaml"))
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(containerFile(t, "prometheus.yml", "alerts.yaml", alerts)), 0o600))
	said, err := exec.Command(debianProgram(t, "promtool"), "check", "config", filepath.Join(dir, "prometheus.yml")).CombinedOutput()
	if err != nil {
		t.Errorf("promtool: %v\n%s", err, said)
	}
	must.Contain(t, containerFile(t, "prometheus.yml"), "job_name: proxies\n", "what the advisor and the dashboard ask for")
}

// Either proxy limits as the README says, has the advisor's rule by the name that advisor.yaml has, and asks the advisor.
func TestTheContainersLimitAsTheirReadmeSays(t *testing.T) {
	readme := regexp.MustCompile("prints `((?:\\d+ ?)+)`").FindStringSubmatch(containerFile(t, "README.md"))
	must.Equal(t, len(readme), 2, "what the README says is printed")
	t.Setenv("REDIS_PASSWORD", "change-me")
	t.Setenv("ADVISOR_TOKEN", "change-me-too")
	config, err := advisor.Read(filepath.Join("..", "examples", "compose", "advisor.yaml"))
	must.Succeed(t, err)
	for _, profile := range []string{"caddy", "traefik"} {
		t.Run(profile, func(t *testing.T) {
			asked := make(chan string, 64)
			counselor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked <- r.Header.Get("Authorization") + " " + r.URL.Path + " " + r.URL.Query().Get("fleet")
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			t.Cleanup(counselor.Close)
			redis, metrics := redistest.Start(t, redistest.WithPassword("change-me")), freeAddr()
			addresses := []string{"http://advisor:8787", counselor.URL, "app:80", strings.TrimPrefix(upstream.url, "http://")}
			var client *http.Client
			var host string
			if profile == "caddy" {
				host = freeAddr()
				text := containerFile(t, "Caddyfile", append(addresses, "redis:6379 {\n", redis.Addr()+" {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\n", ":8080 {", "http://"+host+" {", ":2020 {", "http://"+metrics+" {")...)
				global, sites, _ := strings.Cut(strings.TrimPrefix(text, "{\n"), "\n}\n")
				client = runCaddy(t, host, "/", "admin off\n"+global, sites).client
			} else {
				tr, err := newTraefik(t.TempDir(), settings{})
				must.Succeed(t, err)
				dynamic := filepath.Join(tr.dir, "dynamic.yml")
				must.Succeed(t, os.WriteFile(dynamic, []byte(containerFile(t, "traefik/dynamic.yml", append(addresses, "redis:6379\n", redis.Addr()+"\n              timeout: 20s\n              readTimeout: 20s\n              dialTimeout: 20s\n", ":2020", metrics)...)), 0o600))
				must.Succeed(t, os.WriteFile(filepath.Join(tr.dir, "traefik.yml"), []byte(containerFile(t, "traefik/traefik.yml",
					`":8080"`, `"`+tr.web+`"`, "/etc/traefik/dynamic.yml", dynamic, "entryPoints:\n", "ping: {}\nentryPoints:\n  traefik: {address: \""+tr.admin+"\"}\n")), 0o600))
				t.Cleanup(func() {
					tr.stop()
					tr.checkCalm(t, 0)
				})
				must.Succeed(t, tr.start())
				host, client = tr.web, tr.client
			}
			eventually(t, "the site is there", func() bool {
				r, err := send(client, host, "/")
				return err == nil && r.status == http.StatusOK
			})
			printed := ""
			for range 6 {
				r, err := send(client, host, "/login")
				must.Succeed(t, err)
				printed += fmt.Sprint(r.status, " ")
			}
			must.Equal(t, printed, readme[1]+" ", "statuses")
			page, err := send(http.DefaultClient, metrics, "/metrics")
			must.Succeed(t, err)
			rule := config.Rules[0]
			must.Contain(t, page.body, fmt.Sprintf("weir_limit_configured{rule=%q} 300\n", rule.Label), "the rule of advisor.yaml")
			must.Equal(t, <-asked, "Bearer change-me-too /v1/advice shop", "what is asked of the advisor")
		})
	}
}
