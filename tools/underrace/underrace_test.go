package underrace_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// What is left out under the race detector, the part `plain` must run. It goes by lines, so each must be one that it finds: the first of a
// test, which has no build constraint.
func TestWhatIsLeftOutIsFoundByThePartThatRunsIt(t *testing.T) {
	script, err := os.ReadFile("../../scripts/test")
	must.Succeed(t, err)
	line := regexp.MustCompile(`(?m)^left_out='(.*)' #`).FindSubmatch(script)
	if line == nil {
		t.Fatal("scripts/test does not say which tests are left out")
	}
	leftOut := regexp.MustCompile("(?m)" + string(line[1]))
	calls := 0
	err = filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == ".venv" { // Python's, which may be written at this moment
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		mentions := strings.Count(string(text), "underrace.One"+"Goroutine")
		if mentions == 0 {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		tests := 0
		for _, declared := range file.Decls {
			f, ok := declared.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || f.Body == nil || len(f.Body.List) == 0 {
				continue
			}
			begin := f.Body.List[0]
			if leftOut.MatchString("\t" + string(text[begin.Pos()-1:begin.End()-1])) {
				tests++
			}
		}
		if found := len(leftOut.FindAllIndex(text, -1)); tests != mentions || found != mentions {
			t.Errorf("%s: is said at %d places, of which %d begin a test and %d are found", path, mentions, tests, found)
		}
		if strings.Contains(string(text), "//go:build race") {
			t.Errorf("%s: is built under the race detector alone", path)
		}
		calls += mentions
		return nil
	})
	must.Succeed(t, err)
	if calls == 0 {
		t.Error("no test is left out")
	}
}
