package ratelimit_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	ratelimit "github.com/proxyweir/weir/caddy"
	"github.com/proxyweir/weir/tools/must"
)

// advisorYAML is a configuration for a rule whose demand exceeds its limit in the first half of the day.
func advisorYAML(t *testing.T) string {
	t.Helper()
	return "listen: 127.0.0.1:0\nprometheus: {url: " + ratelimit.SeasonalPrometheus(t) + "}\nhistory: 4d\nstep: 15m\nhorizon: 1h\ninterval: 15m\nexpires: 30m\n" +
		"rules:\n  - {rule: api, limit: 600/1m, ceiling: 2000/1m, demand: total, headroom: 1.1}\n"
}

func TestADryRunWritesASummaryJSONAndAPage(t *testing.T) {
	dir := folder(t, "advisor.yaml", advisorYAML(t))
	dry := []string{"advisor", "--from", "2026-11-01T00:00:00Z", "--to", "2026-11-02T00:00:00Z"}
	out, problems, code := weir(t, dir, dry...)
	if code != 0 || !strings.HasPrefix(out, "RULE  LIMIT   MOMENTS  ") || !strings.Contains(out, "\napi   600/1m  97       ") {
		t.Errorf("exit status %d: %s%s", code, out, problems)
	}
	out, problems, code = weir(t, dir, append(dry, "--json", "-", "--html", "report.html")...)
	if code != 0 {
		t.Fatal(problems)
	}
	var report struct {
		Rules []struct {
			Points []struct {
				Demand, Came float64
				Limit        int64
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Rules) != 1 || len(report.Rules[0].Points) != 97 {
		t.Fatalf("%v: %s", err, out)
	}
	highest := int64(0)
	for _, p := range report.Rules[0].Points {
		highest = max(highest, p.Limit)
		if p.Came > float64(p.Limit) {
			t.Errorf("%+v", p)
		}
	}
	if highest < 1050 || highest > 1100 { // 1.1 · 960
		t.Errorf("the highest limit is %d", highest)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "report.html")); err != nil || !strings.Contains(string(text), "<title>What would have been advised</title>") {
		t.Errorf("%v: %s", err, text)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".report-*")); len(left) > 0 {
		t.Errorf("%q are left behind", left)
	}
}

func TestAnAdvisorSaysWhatIsWrong(t *testing.T) {
	dir := folder(t, "advisor.yaml", advisorYAML(t), "wrong.yaml", "horizn: 5m\n", "down.yaml", strings.Replace(advisorYAML(t), "prometheus: {url: http://127.0.0.1:", "prometheus: {url: http://127.0.0.1:1/", 1))
	for _, c := range []struct{ args, want string }{
		{"--config missing.yaml", "missing.yaml: no such file"},
		{"--config wrong.yaml", `wrong.yaml:1:1: "horizn" is not a field of advisor.yaml (did you mean horizon?)`},
		{"--json x.json", "write --from and --to, too"},
		{"--from 2026-11-01T00:00:00Z", "[from to]"},
		{"--from yesterday --to 2026-11-01T00:00:00Z", `--from "yesterday": must be a time such as 2026-11-01T00:00:00Z`},
		{"--from 2026-11-02T00:00:00Z --to 2026-11-01T00:00:00Z", "--to 2026-11-01T00:00:00Z: must be after --from"},
		{"--from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z --html advisor.yaml", "html: advisor.yaml: is advisor.yaml, which is read"},
		{"--from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z --json missing/x.json", "json: missing/x.json: cannot be written"},
		{"--config down.yaml --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z", `rule "api": prometheus: sum(rate(`},
	} {
		if _, problems, code := weir(t, dir, append([]string{"advisor"}, strings.Fields(c.args)...)...); code == 0 || !strings.Contains(problems, c.want) {
			t.Errorf("%s: exit status %d, %s", c.args, code, problems)
		}
	}
}

func TestAnAdvisorServesAdviceUntilItIsStopped(t *testing.T) {
	dir := folder(t, "advisor.yaml", advisorYAML(t))
	cmd := exec.Command(os.Args[0], "rate-limit", "advisor")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asCaddy+"=1", "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	var problems strings.Builder
	cmd.Stderr = &problems
	stdin, err := cmd.StdinPipe()
	must.Succeed(t, err)
	defer func() { _ = stdin.Close() }()
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	var address string
	if _, err := fmt.Fscanln(out, &address); err != nil || !strings.HasSuffix(address, "/v1/advice") {
		t.Fatalf("it prints %q: %v", address, err)
	}
	body := ""
	eventually(t, "there is advice", func() bool {
		answer, err := http.Get(address)
		must.Succeed(t, err)
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		body = string(text)
		return answer.StatusCode == http.StatusOK
	})
	if !strings.HasPrefix(body, `{"version":1,"serial":`) {
		t.Errorf("it answers %s", body)
	}
	must.Succeed(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, problems.String())
	}
}
