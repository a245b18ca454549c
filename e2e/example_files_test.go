package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// yamlDocuments returns the documents of a file of YAML.
func yamlDocuments(t *testing.T, text string) (list []map[string]any) {
	t.Helper()
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var document map[string]any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return list
		}
		must.Succeed(t, err)
		list = append(list, document)
	}
}

// resourceSchemas returns the schemas of Traefik's own resources in Kubernetes, by their kinds, from the source of the Traefik that tests run.
func resourceSchemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	const traefikModule = "github.com/traefik/traefik/v3"
	download := exec.Command("go", "mod", "download", "-json", traefikModule)
	download.Dir = "traefik-host"
	output, err := download.Output()
	must.Succeed(t, err)
	var where struct{ Dir string }
	must.Succeed(t, json.Unmarshal(output, &where))
	text, err := os.ReadFile(filepath.Join(where.Dir, "docs", "content", "reference", "dynamic-configuration", "kubernetes-crd-definition-v1.yml"))
	must.Succeed(t, err)
	schemas := make(map[string]*jsonschema.Schema)
	for _, definition := range yamlDocuments(t, string(text)) {
		spec := definition["spec"].(map[string]any)
		kind := spec["names"].(map[string]any)["kind"].(string)
		version := spec["versions"].([]any)[0].(map[string]any)
		schema := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
		refuseUnknown(schema)
		compiler := jsonschema.NewCompiler()
		must.Succeed(t, compiler.AddResource(kind, jsonValue(t, schema)))
		schemas[kind], err = compiler.Compile(kind)
		must.Succeed(t, err)
	}
	return schemas
}

// refuseUnknown makes a schema of Kubernetes refuse the fields that Kubernetes would drop.
func refuseUnknown(schema map[string]any) {
	if _, described := schema["properties"]; described && schema["type"] == "object" {
		schema["additionalProperties"] = false
	}
	for _, value := range schema {
		if below, ok := value.(map[string]any); ok {
			refuseUnknown(below)
		}
	}
}

// jsonValue returns a value of YAML as the validator takes it.
func jsonValue(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	must.Succeed(t, err)
	value, err = jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must.Succeed(t, err)
	return value
}

// The manifests are valid by the definitions of Traefik's resources, and a Traefik that finds them in Kubernetes limits as they say.
func TestTheManifestsOfKubernetesLimitAsTheySay(t *testing.T) {
	t.Parallel()
	schemas := resourceSchemas(t)
	redis := redistest.Start(t, redistest.WithPassword("change-me"))
	text := readRecipe(t, "kubernetes/limits.yaml", "redis.shop.svc:6379", redis.Addr()+"\n          timeout: 20s\n          readTimeout: 20s\n          dialTimeout: 20s")
	for _, manifest := range yamlDocuments(t, text) {
		kind := manifest["kind"].(string)
		must.Equal(t, manifest["apiVersion"], any("traefik.io/v1alpha1"), "%s", kind)
		if err := schemas[kind].Validate(jsonValue(t, manifest)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		manifest["spec"].(map[string]any)["plugins"] = map[string]any{}
		if err := schemas[kind].Validate(jsonValue(t, manifest)); err == nil {
			t.Errorf("%s: an unknown field is not refused", kind)
		}
	}
	const secret = "kind: Secret\nmetadata: {name: redis, namespace: shop}\ndata: {password: Y2hhbmdlLW1l}\n" // change-me in base64
	k := startKubernetes(t, yamlDocuments(t, text+"---\n"+secret), "shop", "shop")
	tr := startTraefik(t, settings{providers: "kubernetesCRD: {endpoint: '" + k.server.URL + "', token: a token}"})
	ask := func(request string, times int, address string) (last response) {
		t.Helper()
		method, path, _ := strings.Cut(request, " ")
		for range times {
			r, err := send(tr.client, "", method+" http://shop.example.com"+path, "X-Forwarded-For", address)
			must.Succeed(t, err)
			last = r
		}
		return last
	}
	eventually(t, "Traefik has the route", func() bool {
		r, err := send(tr.client, "", "http://shop.example.com/", "X-Forwarded-For", "203.0.113.1")
		return err == nil && r.status == http.StatusOK && len(redis.MustDo(t, "KEYS", "*").List) > 0
	})
	ask("GET /", 1, "203.0.113.7").want(t, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "99")
	must.Equal(t, ask("POST /login", 5, "203.0.113.7").status, http.StatusOK)
	must.Equal(t, ask("POST /login", 1, "203.0.113.7").status, http.StatusTooManyRequests)
	must.Equal(t, ask("POST /login", 1, "203.0.113.8").status, http.StatusOK)

	var values struct {
		AdditionalArguments []string `yaml:"additionalArguments"`
		Deployment          struct {
			Replicas       int
			InitContainers []struct {
				Args         []string
				VolumeMounts []struct {
					MountPath string `yaml:"mountPath"`
				} `yaml:"volumeMounts"`
			} `yaml:"initContainers"`
		}
		AdditionalVolumeMounts []struct {
			MountPath string `yaml:"mountPath"`
		} `yaml:"additionalVolumeMounts"`
	}
	must.Succeed(t, yaml.Unmarshal([]byte(readRecipe(t, "kubernetes/values.yaml")), &values))
	if !slices.Contains(values.AdditionalArguments, "--experimental.localPlugins.weir.moduleName="+module) {
		t.Errorf("values.yaml has arguments %q", values.AdditionalArguments)
	}
	clone := values.Deployment.InitContainers[0]
	must.Equal(t, clone.Args[len(clone.Args)-1], "/plugins-local/src/"+module, "the checkout")
	must.Equal(t, clone.VolumeMounts[0].MountPath, "/plugins-local", "its volume")
	must.Equal(t, values.AdditionalVolumeMounts[0].MountPath, "/plugins-local", "Traefik's volume")
	must.Contain(t, text, "nodes: 2\n", "limits.yaml")
	must.Equal(t, values.Deployment.Replicas, 2, "replicas")
}

// Prometheus takes its configuration, with the alerts, and finds in it the addresses at which the proxies of the example have metrics. Grafana's files fit to it.
func TestTheExampleOfMonitoringFitsTogether(t *testing.T) {
	dir := t.TempDir()
	alerts, err := os.ReadFile("../docs/grafana/alerts.yaml")
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "weir-alerts.yaml"), alerts, 0o600))
	config := readRecipe(t, "monitoring/prometheus.yml")
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	output, err := exec.Command(debianProgram(t, "promtool"), "check", "config", filepath.Join(dir, "prometheus.yml")).CombinedOutput()
	if err != nil {
		t.Errorf("promtool says: %s", output)
	}
	must.Contain(t, string(output), "weir-alerts.yaml", "promtool")
	must.Contain(t, config, "targets: [localhost:8085]", "prometheus.yml")
	readRecipe(t, "monitoring/Caddyfile", ":8085 {\n\tmetrics /metrics\n", "")
	must.Contain(t, config, "targets: [localhost:9180]", "prometheus.yml")
	readRecipe(t, "monitoring/dynamic.yml", "address: localhost:9180", "")

	var prometheus struct {
		Global struct {
			ScrapeInterval string `yaml:"scrape_interval"`
		}
	}
	must.Succeed(t, yaml.Unmarshal([]byte(config), &prometheus))
	var sources struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, Type, URL string
			IsDefault       bool `yaml:"isDefault"`
			JSONData        struct {
				TimeInterval string `yaml:"timeInterval"`
			} `yaml:"jsonData"`
		}
	}
	strictly(t, readRecipe(t, "monitoring/grafana/datasources/prometheus.yml"), &sources)
	must.Equal(t, sources.Datasources[0].Type, "prometheus", "type")
	must.Equal(t, sources.Datasources[0].JSONData.TimeInterval, prometheus.Global.ScrapeInterval, "Grafana's interval and Prometheus's")
	var dashboards struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Type string
			Options    struct{ Path string }
		}
	}
	strictly(t, readRecipe(t, "monitoring/grafana/dashboards/weir.yml"), &dashboards)
	must.Equal(t, dashboards.Providers[0].Type, "file", "type")
}

// strictly reads YAML without fields that a struct does not have.
func strictly(t *testing.T, text string, into any) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	must.Succeed(t, decoder.Decode(into))
}

// systemd takes the unit without a word, and finds little that it may do.
func TestTheUnitOfSystemdIsRightAndConfined(t *testing.T) {
	path, err := exec.LookPath("systemd-analyze")
	if err != nil && runtime.GOOS == "linux" {
		t.Fatal("systemd-analyze is not installed: apt-get install systemd")
	}
	if err != nil {
		t.Skip("systemd is of Linux")
	}
	program, err := caddyProgram()
	must.Succeed(t, err)
	file := filepath.Join(t.TempDir(), "caddy.service")
	for threshold, text := range map[string]string{ // of 100; 92 is a service without any confinement
		"20": readRecipe(t, "systemd/caddy.service", "/usr/local/bin/caddy", program),
		"50": readRecipe(t, "../scripts/package/caddy.service", "/usr/bin/caddy", program), // which takes the place of another, and forbids little that sites may need
	} {
		must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
		output, err := exec.Command(path, "verify", file).CombinedOutput()
		if err != nil || len(output) > 0 {
			t.Errorf("systemd-analyze verify: %v: %s", err, output)
		}
		if output, err = exec.Command(path, "security", "--offline=true", "--threshold="+threshold, file).CombinedOutput(); err != nil {
			t.Errorf("systemd-analyze security: %v: %s", err, output)
		}
	}
}
