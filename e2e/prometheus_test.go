package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// prometheus is a running Prometheus: a process of its own.
type prometheus struct {
	addr string
}

// target is what Prometheus scrapes every second: /metrics at an address, for a job.
type target struct {
	job, addr string
}

// debianProgram returns the path of a program of Debian's package prometheus.
func debianProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is not installed: apt-get install prometheus; brew install prometheus", name)
	}
	return path
}

// startPrometheus starts a Prometheus that scrapes the targets. If rules names a file, it evaluates the file's rules every second.
func startPrometheus(t testing.TB, rules string, targets ...target) *prometheus {
	t.Helper()
	path, dir := debianProgram(t, "prometheus"), t.TempDir()
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, evaluation_interval: 1s}\n")
	if rules != "" {
		fmt.Fprintf(&config, "rule_files: [%q]\n", rules)
	}
	jobs := make(map[string][]string)
	for _, s := range targets {
		jobs[s.job] = append(jobs[s.job], fmt.Sprintf("%q", s.addr))
	}
	config.WriteString("scrape_configs:\n")
	for job, addrs := range jobs {
		fmt.Fprintf(&config, "  - {job_name: %q, static_configs: [{targets: [%s]}]}\n", job, strings.Join(addrs, ", "))
	}
	file := filepath.Join(dir, "prometheus.yml")
	must.Succeed(t, os.WriteFile(file, []byte(config.String()), 0o600))
	output, err := os.Create(filepath.Join(dir, "prometheus.log"))
	must.Succeed(t, err)
	defer output.Close()
	p := &prometheus{addr: freeAddr()}
	program := exec.Command(path, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+p.addr, "--log.level=warn")
	program.Dir = dir
	program.Stdout, program.Stderr = output, output
	program.SysProcAttr = endWithParent()
	must.Succeed(t, program.Start())
	t.Cleanup(func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	})
	up := await(func() bool {
		answer, err := http.Get("http://" + p.addr + "/-/ready")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	if !up {
		text, _ := os.ReadFile(output.Name())
		t.Fatalf("Prometheus does not come up:\n%s", text)
	}
	return p
}

// sample is one element of an expression's value.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"` // the time, and the number as text
}

// query returns the current value of an expression.
func (p *prometheus) query(t testing.TB, expr string) []sample {
	t.Helper()
	var result struct {
		Result []sample `json:"result"`
	}
	p.ask(t, "query?query="+url.QueryEscape(expr), &result)
	return result.Result
}

// alert is an alert that is firing or pending.
type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	State       string            `json:"state"`
}

// alerts returns the alerts that are firing or pending.
func (p *prometheus) alerts(t testing.TB) []alert {
	t.Helper()
	var result struct {
		Alerts []alert `json:"alerts"`
	}
	p.ask(t, "alerts", &result)
	return result.Alerts
}

// ask sends a request to the API.
func (p *prometheus) ask(t testing.TB, path string, data any) {
	t.Helper()
	answer, err := http.Get("http://" + p.addr + "/api/v1/" + path)
	must.Succeed(t, err)
	defer answer.Body.Close()
	said := struct {
		Data  any    `json:"data"`
		Error string `json:"error"`
	}{Data: data}
	if err = json.NewDecoder(answer.Body).Decode(&said); err != nil || said.Error != "" {
		t.Fatalf("%s: %v %s", path, err, said.Error)
	}
}
