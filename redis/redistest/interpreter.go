package redistest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// RunInterpreted runs the tests of a package of this module in the interpreter that WEIR_YAEGI names, except for those that need the compiler. The
// package is that in whose folder it is called. WEIR_TEST_REDIS has the addresses of the servers there, and WEIR_TEST_CLOCK their clocks' files,
// with commas between them. If WEIR_YAEGI names nothing, it skips the test.
func RunInterpreted(t *testing.T, folder string, servers ...*Server) {
	t.Helper()
	yaegi := os.Getenv("WEIR_YAEGI")
	if yaegi == "" {
		t.Skip("WEIR_YAEGI names no interpreter")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/proxyweir/weir"
	gopath := t.TempDir()
	link := filepath.Join(gopath, "src", filepath.FromSlash(module))
	if err = os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		t.Fatal(err)
	}
	if err = os.Symlink(strings.TrimSuffix(here, filepath.FromSlash("/"+folder)), link); err != nil {
		t.Fatal(err)
	}
	var addresses, clocks []string
	for _, s := range servers {
		addresses = append(addresses, s.Addr())
		clocks = append(clocks, s.ClockFile())
	}
	ctx := t.Context()
	if deadline, limited := t.Deadline(); limited { // a test that hangs there must not hang here, and what it has printed is shown
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-time.Minute))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, yaegi, "test", "-v", module+"/"+folder)
	cmd.Env = append(os.Environ(), "GO111MODULE=off", "GOFLAGS=", "GOPATH="+gopath, "WEIR_TEST_REDIS="+strings.Join(addresses, ","), "WEIR_TEST_CLOCK="+strings.Join(clocks, ","))
	out, err := cmd.CombinedOutput()
	if err != nil || regexp.MustCompile(`(?m)^\s*(--- FAIL|FAIL|panic|--- SKIP)`).Match(out) || !regexp.MustCompile(`(?m)^--- PASS`).Match(out) {
		t.Fatalf("%v:\n%s", errors.Join(err, ctx.Err()), out)
	}
	t.Logf("%d tests passed in the interpreter", len(regexp.MustCompile(`(?m)^--- PASS`).FindAll(out, -1)))
}
