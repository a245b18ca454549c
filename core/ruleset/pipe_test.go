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

// What cannot be read by whoever runs the test, be it root: the way leads over a file, or in a circle.
func TestFilesThatCannotBeReadAreSaid(t *testing.T) {
	f := newFolder(t, "a.yaml")
	f.must(os.Symlink("loop.yaml", f.in("loop.yaml")))
	for pattern, want := range map[string]string{
		"a.yaml/b.yaml": "not a directory",
		"loop.yaml":     "too many levels of symbolic links",
		"loop.*":        "too many levels of symbolic links",
	} {
		if _, problems := Read(f.patterns(pattern)); len(problems) != 1 || problems[0].Text != want {
			t.Errorf("%s: %v", pattern, problems)
		}
	}
}
