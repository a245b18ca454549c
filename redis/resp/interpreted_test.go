//go:build gc
// +build gc

package resp

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
)

// TestUnderTheInterpreter runs the tests of this package in the interpreter that WEIR_YAEGI names, except for those that need the compiler.
// They get a server whose clock they can set.
func TestUnderTheInterpreter(t *testing.T) {
	yaegi := os.Getenv("WEIR_YAEGI")
	if yaegi == "" {
		t.Skip("WEIR_YAEGI names no interpreter")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/proxyweir/weir"
	gopath := t.TempDir()
	link := filepath.Join(gopath, "src", filepath.FromSlash(module))
	if err = os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		t.Fatal(err)
	}
	if err = os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t, redistest.WithClock())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a test that hangs there must not hang here
	defer cancel()
	cmd := exec.CommandContext(ctx, yaegi, "test", "-v", module+"/redis/resp")
	cmd.Env = append(os.Environ(), "GO111MODULE=off", "GOFLAGS=", "GOPATH="+gopath, "WEIR_TEST_REDIS="+server.Addr(), "WEIR_TEST_CLOCK="+server.ClockFile())
	out, err := cmd.CombinedOutput()
	if err != nil || regexp.MustCompile(`(?m)^\s*(--- FAIL|FAIL|panic|--- SKIP)`).Match(out) || !regexp.MustCompile(`(?m)^--- PASS`).Match(out) {
		t.Fatalf("%v:\n%s", err, out)
	}
	t.Logf("%d tests passed in the interpreter", len(regexp.MustCompile(`(?m)^--- PASS`).FindAll(out, -1)))
}
