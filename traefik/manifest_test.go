//go:build gc
// +build gc

package traefik

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

const module = "github.com/proxyweir/weir"

// goList returns the lines that `go list` prints.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	command := exec.Command("go", append([]string{"list"}, args...)...)
	command.Dir = ".."
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", strings.Join(args, " "), err)
	}
	return strings.Fields(string(out))
}

// mayImport says which of our packages each of those that Traefik loads may import.
var mayImport = map[string]string{
	"core/words":      "",
	"core/guard":      "",
	"core/pressure":   "core/words",
	"core/advice":     "core/rate core/words",
	"core/match":      "core/words",
	"core/rate":       "core/words",
	"core":            "core/rate core/words",
	"core/transition": "core core/rate",
	"core/memory":     "core core/rate",
	"core/recent":     "",
	"core/exception":  "core/rate core/words",
	"core/usage":      "",
	"core/eventual":   "core core/memory core/rate core/recent core/usage core/words",
	"core/answer":     "core core/memory core/rate core/words",
	"core/ruleset":    "core core/match core/rate core/transition core/words",
	"core/front":      "core core/answer core/guard core/match core/rate core/ruleset core/words",
	"core/adaptive":   "core core/advice core/front core/guard core/rate core/ruleset core/words",
	"core/meter":      "core core/rate",
	"core/excepted":   "core core/exception core/ruleset core/transition",
	"core/metrics":    "core core/advice core/front core/guard core/memory core/pressure core/rate",
	"redis":           "core core/advice core/eventual core/exception core/match core/memory core/rate core/recent core/usage core/words redis/logs",
	"redis/logs":      "core/rate core/usage",
	"redis/regions":   "core core/advice core/eventual core/rate core/usage core/words redis redis/logs",
	"redis/resp":      "redis",
	"traefik/config":  "core/adaptive core/advice core/answer core/front core/guard core/match core/memory core/pressure core/rate core/ruleset core/words redis redis/regions redis/resp",
	"traefik":         "core core/adaptive core/advice core/answer core/excepted core/exception core/front core/guard core/match core/memory core/meter core/metrics core/pressure core/rate core/ruleset core/transition core/words redis redis/regions redis/resp traefik/config",
}

func interpretedFolders() (list []string) {
	for folder := range mayImport {
		list = append(list, "./"+folder)
	}
	return list
}

func TestPackagesImportWhatIsBelowThemAlone(t *testing.T) {
	for folder, below := range mayImport {
		for _, imported := range goList(t, "-f", "{{join .Imports \"\\n\"}}", "./"+folder) {
			name, ours := strings.CutPrefix(imported, module+"/")
			if ours && !slices.Contains(strings.Fields(below), name) {
				t.Errorf("%s imports %s; it may import: %s", folder, name, below)
			}
		}
	}
}

// Traefik loads the plugin as source, with the standard library and nothing else.
func TestThePluginImportsTheStandardLibraryAndItsOwnPackagesAlone(t *testing.T) {
	want := map[string]bool{}
	for folder := range mayImport {
		want[module+"/"+folder] = false
	}
	for _, imported := range goList(t, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./traefik") {
		if _, ours := want[imported]; !ours {
			t.Errorf("the plugin imports %s", imported)
		}
		want[imported] = true
	}
	for imported, found := range want {
		if !found {
			t.Errorf("the plugin does not import %s", imported)
		}
	}
	// What the interpreter has no symbols for, or gives to a plugin only if the user allows it.
	for _, imported := range goList(t, append([]string{"-f", "{{join .Imports \"\\n\"}}"}, interpretedFolders()...)...) {
		switch imported {
		case "C", "unsafe", "syscall", "embed", "iter", "unique", "math/rand/v2", "weak":
			t.Errorf("the plugin imports %s", imported)
		}
	}
}

// The catalogue refuses a plugin whose module requires Traefik or its interpreter, tests included.
// In Yaegi goroutines that are at the same select statement wait for each other's channels.
func TestWhatIsInterpretedHasNoSelect(t *testing.T) {
	files := 0
	for folder := range mayImport {
		names, err := filepath.Glob("../" + folder + "/*.go")
		must.Succeed(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			files++
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, 0)
			must.Succeed(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectStmt); ok {
					t.Errorf("%s: a select", set.Position(s.Select))
				}
				return true
			})
		}
	}
	if files < 40 {
		t.Errorf("only %d files were looked at", files)
	}
}

func TestTheModuleRequiresNeitherTraefikNorYaegi(t *testing.T) {
	contents, err := os.ReadFile("../go.mod")
	must.Succeed(t, err)
	for _, refused := range []string{"github.com/traefik/yaegi", "github.com/traefik/traefik", "github.com/containous/"} {
		if strings.Contains(string(contents), refused) {
			t.Errorf("go.mod has %s", refused)
		}
	}
}

func TestTheManifestIsOneThatTheCatalogueTakes(t *testing.T) {
	contents, err := os.ReadFile("../.traefik.yml")
	must.Succeed(t, err)
	fields := make(map[string]string)
	testData := false
	for _, line := range strings.Split(string(contents), "\n") {
		if name, value, found := strings.Cut(line, ":"); found && line[0] != ' ' {
			fields[name] = strings.TrimSpace(value)
			testData = name == "testData"
		} else if testData && strings.TrimSpace(line) != "" {
			fields["testData"] += line + "\n"
		}
	}
	if fields["type"] != "middleware" || fields["displayName"] == "" || fields["summary"] == "" || fields["testData"] == "" {
		t.Errorf("%v", fields)
	}
	must.Equal(t, fields["import"], module+"/traefik", "import")
	for name := range fields {
		switch name {
		case "displayName", "type", "import", "summary", "testData", "basePkg", "compatibility", "iconPath", "bannerPath", "runtime":
		default:
			t.Errorf("the field %s is not a manifest's", name)
		}
	}
	// The package's name is the import's last element, or basePkg says it.
	if name := goList(t, "-f", "{{.Name}}", "./traefik")[0]; fields["basePkg"] == "" && name != path.Base(fields["import"]) {
		t.Errorf("package %s is imported as %s", name, fields["import"])
	}
	must.Equal(t, goList(t, "-m")[0], module, "module")
	if strings.Contains(fields["testData"], "redis") {
		t.Error("where the catalogue tries it there is no Redis")
	}
}

// What the manifest has as testData, as Traefik decodes it. The file itself is tried in a real Traefik elsewhere.
func TestTheManifestsConfigurationWorks(t *testing.T) {
	c := &Config{
		Rules: []Rule{
			{Name: "per-client", Key: []string{"client_ip"}, Limit: "100/1m"},
			{Name: "logins", Match: object{"methods": []interface{}{"POST"}, "pathPrefixes": []interface{}{"/login"}}, Limit: "5/10m", Algorithm: "sliding_window_log", CountRejected: "true"},
		},
		Headers: []string{"x_ratelimit", "ietf"},
	}
	h, err := New(context.Background(), http.NotFoundHandler(), c, "test")
	must.Succeed(t, err)
	if got := get(h, "192.0.2.1", nil); got.StatusCode != 404 || got.Header.Get("X-Ratelimit-Limit") != "100" {
		t.Errorf("%s %v", got.Status, got.Header)
	}
}
