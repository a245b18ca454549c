package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// runTest runs a test of this package in another process, with additional variables in its environment, and returns the output. The test must
// fail.
func runTest(t *testing.T, name string, env ...string) []byte {
	t.Helper()
	self, err := os.Executable()
	must.Succeed(t, err)
	cmd := exec.Command(self, "-test.run", "^"+name+"$")
	cmd.Env = append(append(os.Environ(), "TMPDIR="+t.TempDir()), env...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("%s has not failed:\n%s", name, out)
	}
	return out
}

func TestWhatIsNotInstalledIsNamed(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	const server, compiler = "redis-server is not installed: apt-get install redis-server", "needs a C compiler, cc: apt-get install gcc"
	if out := runTest(t, "TestServerAnswers", "PATH="+path, "WEIR_REDIS_SERVER="); !bytes.Contains(out, []byte(server)) {
		t.Errorf("without redis-server:\n%s", out)
	}
	if out := runTest(t, "TestServerAnswers", "WEIR_REDIS_SERVER=/no/such-server"); !bytes.Contains(out, []byte("/no/such-server is not installed")) {
		t.Errorf("with a server that is not there:\n%s", out)
	}
	real, err := exec.LookPath("redis-server")
	must.Succeed(t, err)
	must.Succeed(t, os.Symlink(real, filepath.Join(path, "redis-server")))
	if out := runTest(t, "TestClockIsExact", "PATH="+path, "WEIR_REDIS_SERVER="); !bytes.Contains(out, []byte(compiler)) {
		t.Errorf("without a C compiler:\n%s", out)
	}
}

func TestServerEndsWithATestThatDies(t *testing.T) {
	t.Parallel()
	if os.Getenv("REDISTEST_DIE") != "" {
		fmt.Printf("<%s>\n", Start(t).Addr())
		os.Exit(1)
	}
	out := runTest(t, t.Name(), "REDISTEST_DIE=1")
	addr := regexp.MustCompile("<(.*)>").FindSubmatch(out)
	if addr == nil {
		t.Fatalf("no server was started:\n%s", out)
	}
	await(t, "the server ends", func() error {
		c, err := net.Dial("tcp", string(addr[1]))
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		if err == nil {
			c.Close()
		}
		return fmt.Errorf("it accepts connections: %v", err)
	})
}

func TestServerThatDoesNotStartIsReportedWithItsLog(t *testing.T) {
	t.Parallel()
	if os.Getenv("REDISTEST_FAIL") != "" {
		Start(t, WithConfig("no-such-directive 1"))
	}
	out := runTest(t, t.Name(), "REDISTEST_FAIL=1")
	if !bytes.Contains(out, []byte("ended before it was ready")) || !bytes.Contains(out, []byte("'no-such-directive 1'")) {
		t.Errorf("output\n%s", out)
	}
}
