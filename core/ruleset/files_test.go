package ruleset

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// folder is a folder with files, for a test.
type folder struct {
	t    *testing.T
	path string
}

func newFolder(t *testing.T, files ...string) *folder {
	t.Helper()
	path, err := os.MkdirTemp("", "weir")
	must.Succeed(t, err)
	f := &folder{t: t, path: path}
	t.Cleanup(f.remove)
	for _, name := range files {
		f.write(name, "in "+name)
	}
	return f
}

func (f *folder) remove() { _ = os.RemoveAll(f.path) }

// in returns the path of a file in the folder.
func (f *folder) in(name string) string { return filepath.Join(f.path, name) }

func (f *folder) write(name, text string) {
	f.t.Helper()
	must.Succeed(f.t, os.MkdirAll(filepath.Dir(f.in(name)), 0o700))
	f.must(os.WriteFile(f.in(name), []byte(text), 0o600))
}

func (f *folder) must(err error) {
	f.t.Helper()
	must.Succeed(f.t, err)
}

// patterns returns patterns as ones of files in the folder.
func (f *folder) patterns(list ...string) []string {
	patterns := make([]string, 0, len(list))
	for _, p := range list {
		if p != "" {
			p = f.path + string(filepath.Separator) + p
		}
		patterns = append(patterns, p)
	}
	return patterns
}

// said returns a text with the folder's own name left out.
func (f *folder) said(text string) string {
	return strings.Replace(text, f.path+string(filepath.Separator), "", -1)
}

func TestReadReadsWhatPatternsName(t *testing.T) {
	f := newFolder(t, "b.yaml", "a.yaml", ".c.yaml", "d.yaml~", "a.json", "sub/a.yaml", "..data/a.yaml", ".git/a.yaml", "we[ir].yaml", "other/b.yaml")
	for _, c := range []struct {
		patterns []string
		want     string
	}{
		{[]string{"a.yaml"}, "a.yaml"},
		{[]string{"*.yaml"}, "a.yaml b.yaml we[ir].yaml"},
		{[]string{"b.yaml", "*.yaml"}, "b.yaml a.yaml we[ir].yaml"}, // each once, where it is named first
		{[]string{"./a.yaml", "sub/../a.yaml", "a.yaml"}, "a.yaml"},
		{[]string{"?.yaml", "*.json"}, "a.yaml b.yaml a.json"},
		{[]string{"[ab].yaml"}, "a.yaml b.yaml"},
		{[]string{"we[ir].yaml"}, "we[ir].yaml"}, // a file that is really called so
		{[]string{".*.yaml"}, ".c.yaml"},
		{[]string{".c.yaml"}, ".c.yaml"},
		{[]string{"*/*.yaml"}, "other/b.yaml sub/a.yaml"}, // not Kubernetes' ..data, nor .git
		{[]string{"*/a.yaml"}, "sub/a.yaml"},
		{[]string{"..data/*.yaml"}, "..data/a.yaml"},
		{[]string{".*/a.yaml"}, "..data/a.yaml .git/a.yaml"},
	} {
		contents, problems := Read(f.patterns(c.patterns...))
		if problems != nil {
			t.Errorf("%v: %v", c.patterns, problems)
			continue
		}
		must.Equal(t, f.said(strings.Join(contents.Names, " ")), c.want, "%v", c.patterns)
		for i, name := range contents.Names {
			must.Equal(t, string(contents.data[i]), "in "+filepath.ToSlash(f.said(name)), "%s has %q", name, contents.data[i])
		}
	}
}

func TestReadSaysAllThatCannotBeRead(t *testing.T) {
	f := newFolder(t, "a.yaml", "folder/a.yaml")
	f.must(os.WriteFile(f.in("large.yaml"), make([]byte, MaxFile+1), 0o600))
	f.must(os.Symlink(f.in("nowhere"), f.in("link.yaml")))
	f.must(os.Symlink(f.in("circle.yaml"), f.in("circle.yaml")))
	for _, c := range []struct {
		patterns []string
		want     string
	}{
		{[]string{""}, ": the name of a file is empty"},
		{[]string{"missing.yaml"}, "missing.yaml: no such file or directory"},
		{[]string{"a.yaml/b.yaml"}, "a.yaml/b.yaml: not a directory"},
		{[]string{"*.json"}, "*.json: no file matches"},
		{[]string{"[.yaml"}, "[.yaml: is no pattern that can match: syntax error in pattern"},
		{[]string{"folder"}, "folder: is a directory; name the files in it, as in folder/*.yaml or *.json"},
		{[]string{"large.yaml"}, "large.yaml: has more than 8 MB, the most that a rule file can have; write several files"},
		{[]string{"link.yaml"}, "link.yaml: no such file or directory"},
		{[]string{"circle.yaml"}, "circle.yaml: too many levels of symbolic links"},
		{[]string{"a.yaml", "missing.yaml", "*.json", "folder", "missing.yaml"}, "*.json: no file matches\nmissing.yaml: no such file or directory\nfolder: is a directory; name the files in it, as in folder/*.yaml or *.json"},
	} {
		contents, problems := Read(f.patterns(c.patterns...))
		if contents != nil || problems == nil {
			t.Errorf("%v: read", c.patterns)
			continue
		}
		if got := f.said(problems.Error()); got != c.want {
			t.Errorf("%v:\n got %s\nwant %s", c.patterns, got, c.want)
		}
	}
}

func TestAsManyFilesAsAllowedAreRead(t *testing.T) {
	f := newFolder(t)
	for i := 0; i < MaxFiles; i++ {
		f.write(fmt.Sprintf("%04d.yaml", i), "")
	}
	contents, problems := Read(f.patterns("*.yaml"))
	if problems != nil || len(contents.Names) != MaxFiles {
		t.Fatal(problems)
	}
	f.write("one.yaml", "")
	if _, problems = Read(f.patterns("*.yaml")); len(problems) != 1 || problems[0].Text != fmt.Sprintf("%d files are named; at most %d are read", MaxFiles+1, MaxFiles) {
		t.Error(problems)
	}
}

func TestAllFilesTogetherAreBounded(t *testing.T) {
	f := newFolder(t)
	for i := 0; i < MaxTotal/MaxFile; i++ {
		name := f.in(fmt.Sprintf("%d.yaml", i))
		f.must(os.WriteFile(name, nil, 0o600))
		f.must(os.Truncate(name, MaxFile))
	}
	if _, problems := Read(f.patterns("*.yaml")); problems != nil {
		t.Fatal(problems)
	}
	f.write("last.yaml", "x")
	if _, problems := Read(f.patterns("*.yaml")); len(problems) != 1 || f.said(problems.Error()) != "last.yaml: the files together have more than 64 MB" {
		t.Error(problems)
	}
}

func TestTheDigestTellsNamesAndContentsApart(t *testing.T) {
	f := newFolder(t)
	seen := make(map[string]string)
	for _, step := range []struct{ name, text string }{{"a.yaml", "1"}, {"a.yaml", "2"}, {"b.yaml", "1"}, {"b.yaml", "2"}, {"a.yaml", "1"}, {"a.yaml", ""}} {
		f.write(step.name, step.text)
		contents, problems := Read(f.patterns("*.yaml"))
		if problems != nil {
			t.Fatal(problems)
		}
		text := ""
		for i, name := range contents.Names {
			text += name + "=" + string(contents.data[i]) + " "
		}
		must.Equal(t, seen[contents.Digest], "", "%s has the digest of", text)
		seen[contents.Digest] = text
	}
}

func TestConflictsBetweenFilesAreSaidOnce(t *testing.T) {
	files := []*File{
		{Name: "a", Rules: []FileRule{{RuleText: RuleText{Name: "r"}, Line: 1, Column: 3}, {RuleText: RuleText{Name: "r"}, Line: 2, Column: 3}}, Domain: &FileDomain{Name: "d", Line: 9, Column: 9}},
		{Name: "b", Rules: []FileRule{{RuleText: RuleText{Name: "r"}, Line: 4, Column: 3}, {RuleText: RuleText{Name: "r"}, Line: 5, Column: 3}, {Line: 6}}, Domain: &FileDomain{}},
		{Name: "c", Rules: []FileRule{{Line: 6}}, Domain: &FileDomain{Name: "d", Line: 7, Column: 8}},
	}
	want := "b:4:3: rule \"r\": duplicate name, also in a; rename one\nc:7:8: domain \"d\": is in a, too; write all its descriptors in one file"
	if got := Conflicts(files).Error(); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if problems := Conflicts(files[:1]); problems != nil {
		t.Error(problems)
	}
}

// Rules must not go because a folder cannot be read.
func TestAFolderThatCannotBeReadIsAProblem(t *testing.T) {
	f := newFolder(t)
	f.must(os.Mkdir(f.in("one"), 0o700))
	f.write("one/rules.yaml", "a")
	f.must(os.Symlink("loop", f.in("loop")))
	for _, pattern := range []string{"*/rules.yaml", "*/*.yaml", "*o*/*.yaml"} {
		_, problems := Read(f.patterns(pattern))
		if len(problems) != 1 || !strings.Contains(problems[0].Text, "loop: too many") {
			t.Errorf("%s: %v", pattern, problems)
		}
	}
	f.must(os.Remove(f.in("loop")))
	f.must(os.Symlink("nowhere", f.in("dangling"))) // that which is not there cannot be read, and has nothing
	f.write("file", "")
	for _, pattern := range []string{"*/rules.yaml", "*/*.yaml", "o*/r*"} {
		contents, problems := Read(f.patterns(pattern))
		if problems != nil || len(contents.Names) != 1 {
			t.Errorf("%s: %v", pattern, problems)
		}
	}
}
