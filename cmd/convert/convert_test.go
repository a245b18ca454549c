package convert

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core/ruleset"
	rulesyaml "github.com/proxyweir/weir/core/ruleset/yaml"
	"github.com/proxyweir/weir/tools/must"
)

var update = flag.Bool("update", false, "write what is printed into testdata")

// parts returns the parts of an example: its command, and what follows lines with -- NAME --.
func parts(t testing.TB, example string) (command string, names []string, texts map[string]string) {
	t.Helper()
	text, err := os.ReadFile(example)
	must.Succeed(t, err)
	texts = make(map[string]string)
	name := ""
	for _, line := range strings.SplitAfter(string(text), "\n") {
		inner, begins := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		if inner, ends := strings.CutSuffix(inner, " --"); begins && ends {
			name = inner
			names = append(names, name)
			continue
		}
		texts[name] += line
	}
	return strings.TrimSpace(texts[""]), names, texts
}

// converted runs the command, and returns what it prints.
func converted(t testing.TB, in string, args ...string) (out, problems string, err error) {
	t.Helper()
	cmd := Command()
	var stdout, stderr bytes.Buffer
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.Execute()
	return stdout.String(), stderr.String(), err
}

// rulesOf returns the rules of a file that was printed; they must be right.
func rulesOf(t testing.TB, text string) *ruleset.File {
	t.Helper()
	root, wrong := rulesyaml.Parse("limits.yaml", []byte(text))
	must.Equal(t, len(wrong), 0, "%v in\n%s", wrong, text)
	file, wrong := ruleset.Decode("limits.yaml", root)
	must.Equal(t, len(wrong), 0, "%v in\n%s", wrong, text)
	return file
}

// Each example of testdata prints what it says, and rule files load. (Tests of caddy and traefik load what is for these.)
func TestExamplesAreConverted(t *testing.T) {
	examples, err := filepath.Glob("testdata/*.txt")
	must.Succeed(t, err)
	must.Equal(t, len(examples) > 10, true, "%d examples", len(examples))
	for _, example := range examples {
		t.Run(filepath.Base(example), func(t *testing.T) {
			example, err := filepath.Abs(example)
			must.Succeed(t, err)
			command, names, texts := parts(t, example)
			t.Chdir(t.TempDir())
			for _, name := range names {
				must.Succeed(t, os.MkdirAll(filepath.Dir(name), 0o700))
				must.Succeed(t, os.WriteFile(name, []byte(texts[name]), 0o600))
			}
			line, in, _ := strings.Cut(command, " < ")
			args := strings.Fields(line)[2:]
			out, problems, err := converted(t, texts[in], args...)
			got := map[string]string{"stdout": out, "stderr": problems}
			must.Equal(t, err != nil, slices.Contains(args, "--strict") && problems != "" || strings.Contains(problems, "is NOT limited here") || strings.Contains(problems, "Weir would refuse"), "%v", err)
			if !strings.Contains(command, "caddyfile") && !strings.Contains(out, "rate_limit {\n") && !strings.Contains(out, "weir:\n") {
				rulesOf(t, out)
			}
			if *update {
				text := command + "\n"
				for _, name := range append(slices.DeleteFunc(names, func(name string) bool { return got[name] != "" || name == "stdout" || name == "stderr" }), "stdout", "stderr") {
					if got[name] != "" || name == "stdout" || name == "stderr" {
						texts[name] = got[name]
					}
					text += "-- " + name + " --\n" + texts[name]
				}
				must.Succeed(t, os.WriteFile(example, []byte(text), 0o600))
			}
			must.Equal(t, out, texts["stdout"], "it prints")
			must.Equal(t, problems, texts["stderr"], "what is not carried over is")
		})
	}
}

// Where the result of a conversion would be empty, and another would not, the error names that one.
func TestAnEmptyResultNamesTheOther(t *testing.T) {
	for to, text := range map[string]string{
		"rules":     "rate_limits:\n- actions: [{remote_address: {}}]\n",
		"caddyfile": "local_ratelimit:\n  stat_prefix: one\n  token_bucket: {max_tokens: 5, fill_interval: 1s}\n",
	} {
		out, problems, err := converted(t, text, "--from", "envoy", "--to", to, "-")
		other := map[string]string{"rules": "caddyfile", "caddyfile": "rules"}[to]
		must.Equal(t, out, "", "it prints")
		must.Contain(t, err.Error(), "- has limits, but none that --to "+to+" has; write --to "+other)
		must.Contain(t, problems, "weir convert --to "+other)
	}
	_, _, err := converted(t, "rate_limits: []", "-")
	must.Equal(t, err.Error(), "no limits of envoy that can be carried over are in -", "of nothing")
}

// What has itself in it, by aliases, ends.
// A script must see that a limit is gone, also without --strict.
func TestAWholeLimitOfTraefikThatIsLostIsAnError(t *testing.T) {
	out, problems, err := converted(t, "http:\n  middlewares:\n    a:\n      rateLimit: {average: 10, burst: -3}\n    b:\n      rateLimit: {average: 10}\n", "-")
	must.Contain(t, problems, "-:3: a: rateLimit: a is NOT limited here, because ")
	must.Contain(t, out, "limit: 10/1s")
	must.Equal(t, fmt.Sprint(err), "not carried over: 1")
}

func TestAliasesInACircleEnd(t *testing.T) {
	_, problems, err := converted(t, "rate_limits:\n- actions: [{remote_address: {}}, {metadata: &a {x: *a}}]\n  limit: &b {x: *b}\n", "--to", "caddyfile", "-")
	must.Equal(t, err != nil, true, "%s", problems)
	must.Contain(t, problems, "-:2: metadata: nothing")
	must.Contain(t, problems, "-:3: limit: requests bring no limits to descriptors; a rule can have limit_from")
}

// The page's first block of nginx becomes its first block of YAML.
func TestThePageShowsWhatIsPrinted(t *testing.T) {
	page, err := os.ReadFile("../../docs/from-nginx.md")
	must.Succeed(t, err)
	block := func(language string) string {
		_, rest, _ := strings.Cut(string(page), "\n```"+language+"\n")
		text, _, found := strings.Cut(rest, "```\n")
		must.Equal(t, found, true, "the page has a block of "+language)
		return text
	}
	t.Chdir(t.TempDir())
	must.Succeed(t, os.WriteFile("nginx.conf", []byte(block("nginx")), 0o600))
	out, problems, err := converted(t, "", "--strict", "nginx.conf")
	must.Succeed(t, err)
	must.Equal(t, problems, "", "what is not carried over is")
	must.Equal(t, out, block("yaml"), "it prints")
}
