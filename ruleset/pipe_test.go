//go:build gc && unix
// +build gc,unix

package ruleset

import (
	"os"
	"syscall"
	"testing"
)

// Opening a pipe that nobody writes to would wait for ever.
func TestPipesAndDevicesAreNotRead(t *testing.T) {
	f := newFolder(t)
	f.must(syscall.Mkfifo(f.in("pipe.yaml"), 0o600))
	f.must(os.Symlink("/dev/zero", f.in("zero.yaml")))
	for _, pattern := range []string{"pipe.yaml", "pipe.*", "zero.yaml"} {
		if _, problems := Read(f.patterns(pattern)); len(problems) != 1 || problems[0].Text != "is not a regular file" {
			t.Errorf("%s: %v", pattern, problems)
		}
	}
}

func TestFilesThatMayNotBeReadAreSaid(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may read all files")
	}
	f := newFolder(t, "a.yaml")
	f.must(os.Chmod(f.in("a.yaml"), 0))
	if _, problems := Read(f.patterns("a.yaml")); len(problems) != 1 || problems[0].Text != "permission denied" {
		t.Error(problems)
	}
}
