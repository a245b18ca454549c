package ratelimit_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// weir runs `caddy rate-limit …` in a folder, and returns what it wrote and its exit code.
func weir(t *testing.T, dir string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"rate-limit"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asCaddy+"=1", "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	stdin, err := cmd.StdinPipe() // the command ends when it is closed
	must.Succeed(t, err)
	err = cmd.Run()
	_ = stdin.Close()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), problems.String(), cmd.ProcessState.ExitCode()
}

// folder makes a folder with files: their names and contents.
func folder(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600))
	}
	return dir
}

func TestCheckPrintsEveryProblemAtOnce(t *testing.T) {
	dir := folder(t,
		"book.yaml", strings.NewReplacer("    value:", "    Value:", "requests_per_unit", "requests per_unit").Replace(messaging),
		"rules.yaml", rulesOf("{name: a, limit: 5/1x}", "{name: b, limt: 5/1m}", "{name: a, limit: 5/1m}"),
		"good.yaml", rulesOf("{name: good, limit: 5/1m}"),
		"again.json", `{"rules": [{"name": "good", "limit": "5/1m"}], "domain": "messaging"}`,
		"broken.yaml", "rules: [")
	must.Succeed(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	for _, test := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"of all files, in their order and that of the lines", []string{"rules.yaml", "book.yaml", "good.yaml", "again.json"}, []string{
			`rules.yaml:2:22: rule "a": limit "5/1x"`,
			`rules.yaml:3:15: "limt" is not a field of a rule (did you mean limit?)`,
			`rules.yaml:4:5: rule "a": duplicate name, first in line 2`,
			`book.yaml:4:5: "Value" is not a field of a descriptor (did you mean value?)`,
			`book.yaml:7:7: "requests per_unit" is not a field of rate_limit (did you mean requests_per_unit?)`,
			`again.json:1:12: rule "good": duplicate name, also in good.yaml; rename one`,
			`again.json:1:58: domain "messaging": is in book.yaml, too`,
			`Error: 7 problems`,
		}},
		{"those of files that cannot be read, too", []string{"nosuch.yaml", "rules.yaml", "folder", "broken.yaml", "*.toml", "good.yaml", "again.json"}, []string{
			`nosuch.yaml: no such file or directory`,
			`rules.yaml:2:22: `, `rules.yaml:3:15: `, `rules.yaml:4:5: `,
			`folder: is a directory; name the files in it, as in folder/*.yaml or *.json`,
			`broken.yaml:1:`,
			`*.toml: no file matches`,
			`again.json:1:12: rule "good": duplicate name, also in good.yaml; rename one`,
			`Error: 8 problems`,
		}},
		{"one", []string{"broken.yaml"}, []string{`broken.yaml:1:`, `Error: 1 problem`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, problems, code := weir(t, dir, append([]string{"check"}, test.files...)...)
			if code != 1 || out != "" {
				t.Errorf("exit code %d, output %q, want 1 and none", code, out)
			}
			lines := strings.Split(strings.TrimSpace(problems), "\n")
			if len(lines) != len(test.want) {
				t.Fatalf("%d lines, want %d:\n%s", len(lines), len(test.want), problems)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("line %d: %q, want %q", i+1, lines[i], want)
				}
			}
		})
	}
	t.Run("and wants a file", func(t *testing.T) {
		if _, problems, code := weir(t, dir, "check"); code != 1 || !strings.Contains(problems, "which rules? name rule files by --rules") {
			t.Errorf("exit code %d: %s", code, problems)
		}
	})
}

func TestCheckSaysWhatGoodFilesHave(t *testing.T) {
	dir := folder(t, "messaging.yaml", messaging, "one.yaml", rulesOf("{name: one, limit: 5/1m}"),
		"tiers.yaml", rulesOf("{name: a, limit: 5/1m}", "{name: b, tiers: {source: \"header:X-Plan\", limits: {pro: 9/1m, \"*\": 1/1m}}}"),
		"both.yaml", rulesOf("{name: c, limit: 5/1m}")+"domain: d\ndescriptors:\n  - key: k\n    descriptors:\n      - {key: l, rate_limit: {unlimited: true}}\n")
	out, problems, code := weir(t, dir, "check", "*.yaml")
	const want = `both.yaml: 1 rule; 2 descriptors, 1 of them with a limit, in domain d
messaging.yaml: 1 descriptor, 1 of them with a limit, in domain messaging
one.yaml: 1 rule
tiers.yaml: 2 rules
`
	if code != 0 || out != want {
		t.Errorf("exit code %d:\n%swant\n%s", code, out, want)
	}
	if !strings.HasPrefix(problems, `warning: tiers.yaml:3:5: rule "b": tiers: the header X-Plan is what the client sends`) || strings.Count(problems, "\n") != 1 {
		t.Errorf("problems:\n%s", problems)
	}
}

// Files of Envoy's service pass the check, with a warning of each field that has no effect here.
func TestCheckWarnsOfFieldsOfEnvoysServiceWithoutEffect(t *testing.T) {
	dir := folder(t, "d.yaml", `domain: d
descriptors:
  - key: path
    value: /api/*/action
    share_threshold: true
    quota_mode: true
    rate_limit: {unit: day, requests_per_unit: 5}
  - key: host
    value: "*.example.com"
    value_to_metric: true
    detailed_metric: true
    metadata:
      route: {name: a, weight: 5}
    rate_limit: {unit: day, requests_per_unit: 5}
`)
	out, problems, code := weir(t, dir, "check", "d.yaml")
	if want := "d.yaml: 2 descriptors, 2 of them with a limit, in domain d\n"; code != 0 || out != want {
		t.Errorf("exit code %d: %s", code, out)
	}
	const want = `warning: d.yaml:6:17: quota_mode: has no effect: the limit rejects like any other; Envoy's service rejects a request when all its limits with quota_mode are exceeded
warning: d.yaml:11:22: detailed_metric: has no effect: no value of a request is ever the label of a metric
warning: d.yaml:10:22: value_to_metric: has no effect: no value of a request is ever the label of a metric
warning: d.yaml:13:7: metadata: has no effect: it is for Envoy, which routes requests by it
`
	if problems != want {
		t.Errorf("problems:\n%swant\n%s", problems, want)
	}
}

func TestRulesPrintsWhatHoldsAsATable(t *testing.T) {
	dir := folder(t,
		"d.yaml", `domain: messaging
descriptors:
  - key: message_type
    value: marketing
    rate_limit: {unit: day, requests_per_unit: 5}
  - key: to
    descriptors:
      - {key: staff, rate_limit: {unlimited: true}}
      - {key: none, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
`,
		"r.yaml", rulesOf(
			`{name: api, match: {methods: [GET, PUT], path_prefixes: [/api], headers: {X-A: b}, except_ips: [10.0.0.0/8]}, key: ["header:X-Key", client_ip], limit: 100/1m, algorithm: token_bucket}`,
			`{name: plans, tiers: {source: "cookie:plan", limits: {pro: 10/1m, "*": 2/1m}}, overrides: [{key: 192.0.2.1, limit: unlimited}], enforcement: shadow}`,
			`{name: open, limit: unlimited}`,
			`{name: past, limit: 100/1m, enforcement: soft 20% 30s, penalty: [1m, 1h], concurrency: 5, candidate: {limit: 50/1m, algorithm: token_bucket, burst: 9}}`,
			`{name: queue, limit: 10/1s, algorithm: token_bucket, on_limit: delay, overrides: [{key: 192.0.2.1, limit: unlimited}]}`,
			`{name: failures, limit: 5/10m, count: "401, 4xx", respect_upstream: 1m}`,
			`{name: few, concurrency: 5, enforcement: shadow}`),
		"Caddyfile", `{
	rate_limit {
		rules_file d.yaml
	}
}
a.test, b.test {
	rate_limit {
		descriptor message_type {header.X-Type}
	}
	handle /deep {
		rate_limit 100/1m {header.X-Key}
	}
}
c.test {
	rate_limit {
		rules_file r.yaml
		zone login {
			match {
				path /login
			}
			limit 5/day
			tiers {http.auth.user.plan} {
				pro 10/day
			}
			override 192.0.2.1 unlimited
			except private_ranges
		}
		zone upload {
			limit 10/1m
			algorithm fixed_window
			count 201 5xx
			penalty 10m
			concurrency 2
		}
		zone waits {
			match {
				not {
					method GET HEAD
					path /up
				}
				not path /static/*
			}
			limit 10/1m
			algorithm sliding_window_log
			on_limit delay
			max_delay 90s
		}
	}
}
`)
	out, problems, code := weir(t, dir, "rules", "--config", "Caddyfile")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, problems)
	}
	spaces := regexp.MustCompile(` {2,}`)
	got := strings.Split(spaces.ReplaceAllString(strings.TrimSpace(out), " | "), "\n")
	want := []string{
		`SITE | RULE | COVERS | KEY | LIMIT | ALGORITHM | NOTES | FILE`,
		`a.test b.test | messaging.message_type_marketing | descriptor message_type=marketing | - | 5/1d | fixed_window | - | d.yaml:3`,
		`a.test b.test | - | descriptor to, staff | - | unlimited | - | - | d.yaml:8`,
		`a.test b.test | messaging.to.none | descriptor to, none | - | 0/1h | fixed_window | shadow | d.yaml:9`,
		`a.test b.test | header.X-Key | path /deep | {http.request.header.X-Key} | 100/1m | sliding_window_counter | - | -`,
		`c.test | login | path /login; except private_ranges | {http.vars.client_ip} | 5/day | fixed_window | time_zone UTC | -`,
		`c.test | login | path /login; except private_ranges | {http.vars.client_ip} | 10/day | fixed_window | tier pro of {http.auth.user.plan}, time_zone UTC | -`,
		`c.test | login | path /login; except private_ranges | {http.vars.client_ip} | unlimited | - | key 192.0.2.1 | -`,
		`c.test | upload | all | {http.vars.client_ip} | 10/1m | fixed_window | counts 201 5xx, penalty 10m, concurrency 2 | -`,
		`c.test | waits | not (method GET,HEAD; path /up or path /static/*) | {http.vars.client_ip} | 10/1m | sliding_window_log | delays up to 1m30s | -`,
		`c.test | api | method GET,PUT; path prefix /api; header X-A=b; except 10.0.0.0/8 | header:X-Key client_ip | 100/1m | token_bucket | - | r.yaml:2`,
		`c.test | plans | all | client_ip | 2/1m | sliding_window_counter | shadow | r.yaml:3`,
		`c.test | plans | all | client_ip | 10/1m | sliding_window_counter | tier pro of cookie:plan, shadow | r.yaml:3`,
		`c.test | plans | all | client_ip | unlimited | - | key 192.0.2.1, shadow | r.yaml:3`,
		`c.test | open | all | client_ip | unlimited | - | - | r.yaml:4`,
		`c.test | past | all | client_ip | 100/1m | sliding_window_counter | soft 20% 30s, penalty 1m 1h, candidate 50/1m token_bucket burst 9, concurrency 5 | r.yaml:5`,
		`c.test | queue | all | client_ip | 10/1s | token_bucket | delays up to 10s | r.yaml:6`,
		`c.test | queue | all | client_ip | unlimited | - | key 192.0.2.1 | r.yaml:6`,
		`c.test | failures | all | client_ip | 5/10m | sliding_window_counter | respect_upstream 1m, counts 401 4xx | r.yaml:7`,
		`c.test | few | all | client_ip | 5 | concurrency | shadow | r.yaml:8`,
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("line %d differs of\n%s\nwant\n%s", i+1, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if again, _, code := weir(t, dir, "rules"); code != 0 || again != out {
		t.Errorf("the Caddyfile of the folder: exit code %d:\n%s", code, again)
	}
}

func TestRulesOfWhatHasNoneOrIsWrong(t *testing.T) {
	dir := folder(t,
		"none.json", `{"apps": {"http": {"servers": {"a": {}}}}}`,
		"missing.json", `{"apps": {"http": {"servers": {"a": {"routes": [{"handle": [{"handler": "rate_limit", "rules_files": ["nosuch.yaml"]}]}]}}}}}`,
		"unknown.json", `{"apps": {"http": {"servers": {"a": {"routes": [{"handle": [{"handler": "rate_limit", "zone": {}}]}]}}}}}`)
	if out, problems, code := weir(t, dir, "rules", "-c", "none.json"); code != 0 || out != "the configuration has no rate_limit handler\n" {
		t.Errorf("exit code %d: %s%s", code, out, problems)
	}
	for config, want := range map[string]string{"missing.json": "nosuch.yaml: no such file or directory", "unknown.json": "zone", "nosuch.json": "nosuch.json", "": "there is no Caddyfile here"} {
		args := []string{"rules"}
		if config != "" {
			args = append(args, "--config", config)
		}
		out, problems, code := weir(t, dir, args...)
		if code != 1 || out != "" || !strings.Contains(problems, want) {
			t.Errorf("%s: exit code %d, output %q, %s; want 1, and that it says %q", config, code, out, problems, want)
		}
	}
}
