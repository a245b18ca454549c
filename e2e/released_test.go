package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// released is the commit of this repository that its users run. What they see and what is in their Redis must stay as it is there: these tests
// compare with it.
const released = "015dc7520c143b02882376fe8991eddd37bd838e"

// git runs git at the root of this checkout.
func git(args ...string) ([]byte, error) {
	var out, problems bytes.Buffer
	program := exec.Command("git", args...)
	program.Dir, program.Stdout, program.Stderr = "..", &out, &problems
	if err := program.Run(); err != nil {
		return nil, fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, problems.Bytes())
	}
	return out.Bytes(), nil
}

// extractReleased writes files and folders of the released commit into a folder, or all of them.
func extractReleased(dir string, paths ...string) error {
	archive, err := git(append([]string{"archive", released}, paths...)...)
	if err != nil {
		return err
	}
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(archive)
	if text, err := unpack.CombinedOutput(); err != nil {
		return fmt.Errorf("unpacking %s: %w\n%s", released, err, text)
	}
	return nil
}

// releasedProgram returns the path of the released Caddy, which it builds where bin does not have it from an earlier run.
var releasedProgram = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs(filepath.Join("..", "bin", "caddy-"+released[:7]))
	if err != nil {
		return "", err
	}
	if _, err = os.Stat(path); err == nil {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "weir-released")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err = extractReleased(dir); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", path+".new", "./cmd/caddy")
	build.Dir = dir
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the Caddy of %s: %w\n%s", released, err, text)
	}
	return path, os.Rename(path+".new", path) // so it is complete, or not there
})

// releasedAndOurs returns the paths of the released Caddy and of this checkout's. The test is skipped where there is no history to build the
// former from, which is no fault of the code.
func releasedAndOurs(t testing.TB) map[string]string {
	t.Helper()
	if _, err := os.Stat("../.git"); os.IsNotExist(err) {
		t.Skip("this is no git checkout, so it has no commit " + released + " to compare with")
	}
	if _, err := git("cat-file", "-e", released+"^{commit}"); err != nil {
		shallow, wrong := git("rev-parse", "--is-shallow-repository")
		if wrong == nil && strings.TrimSpace(string(shallow)) == "true" {
			t.Skip("this is a shallow clone without the commit " + released + " to compare with: git fetch --unshallow")
		}
		t.Fatalf("there is no commit to compare with: %v", err)
	}
	programs := make(map[string]string)
	for name, program := range map[string]func() (string, error){"released": releasedProgram, "ours": caddyProgram} {
		path, err := program()
		if err != nil {
			t.Fatal(err)
		}
		programs[name] = path
	}
	return programs
}
