package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func TestTheFilesAreUpToDate(t *testing.T) {
	for _, file := range files {
		want, err := generate(root, file)
		must.Succeed(t, err)
		got, err := os.ReadFile(root + file.name)
		must.Succeed(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the templates and the algorithms' files say now: run go generate ./...", file.name)
		}
	}
}

// A file must not stay behind when it is no longer generated.
func TestAllFilesThatAreGeneratedAreWritten(t *testing.T) {
	written := make(map[string]bool)
	for _, file := range files {
		written[file.name] = true
	}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == ".venv" { // Python's, which may be written at this moment
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		name, err = filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if bytes.HasPrefix(text, []byte(generated)) && !written[filepath.ToSlash(name)] {
			t.Errorf("%s is not among the files that are written: delete it", name)
		}
		return nil
	})
	must.Succeed(t, err)
}

const table = `
type algorithmRow struct {
	algorithm Algorithm
	fastPath, isLog bool
	take func(l *Limit, s *State) (remaining, reset int64)
	roll func(l *Limit) bool
	charge func(l *Limit, s *State)
}
var algorithms = tabulate([]algorithmRow{
	{algorithm: One, isLog: true, fastPath: true},
	{algorithm: Two, take: takeFromTwo, roll: rollTwo, charge: chargeTwo, fastPath: true},
	{algorithm: Three, take: takeFromThree},
})
`

// written returns what is written of a package with these declarations and the table; its error, in place of that.
func written(t *testing.T, declarations string, f file) string {
	t.Helper()
	folder := t.TempDir() + "/"
	must.Succeed(t, os.MkdirAll(folder+algorithms, 0o700))
	must.Succeed(t, os.WriteFile(folder+algorithms+"/a_template_test.go", []byte("package core\n"+declarations), 0o600))
	f.name = algorithms + "/flat.go"
	text, err := generate(folder, f)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func TestARowHasACaseForEachOfItsFunctionsAndNoOther(t *testing.T) {
	text := written(t, table, file{})
	for part, n := range map[string]int{
		"case One:": 0, "case Two:\n\t\treturn takeFromTwo(l, s)\n": 1, "case Three:\n\t\treturn takeFromThree(l, s)\n": 1,
		"return rollTwo(l)\n\t}\n\treturn false\n": 1, "case Two:\n\t\tchargeTwo(l, s)\n\tdefault:\n": 1, "case ": 4, "panic(": 2,
	} {
		if got := strings.Count(text, part); got != n {
			t.Errorf("%q occurs %d times, want %d:\n%s", part, got, n, text)
		}
	}
}

func TestATableThatCannotBeReadIsAnError(t *testing.T) {
	for of, table := range map[string]string{
		"no []algorithmRow":        "",
		"does not say its":         strings.Replace(table, "algorithm: Two, ", "", 1),
		"expected declaration":     "nothing",
		"there is no function abc": table,
	} {
		f := file{}
		if strings.Contains(of, "function") {
			f = file{from: "a_template_test.go", written: []writes{{"abc", "def", once}}}
		}
		must.Contain(t, written(t, table, f), of, "want an error about")
	}
}

const inlined = table + `
// template decides.
func template(e *path, limit *Limit) http.Handler {
	limit := e.limit
	return func(key string) {
		var (
			remaining, reset int64
		)
		remaining, reset = takeIn(e.states[key], limit)
		if remaining < 0 {
			goto rare
		}
		return
	rare:
		settle(e)
	}
}

//flatten:inline
func takeIn(s *State, l *Limit) (remaining, reset int64) {
	if l.isLog {
		return -1, 0
	}
	return take(l, s)
}

//flatten:inline
func takeFromTwo(l *Limit, s *State) (remaining, reset int64) {
	level := int64(1) // that much
	if s.A > l.full {
		return -1, 0
	}
	s.A += level
	return l.full - level, level
}
`

func TestACallIsInlined(t *testing.T) {
	got := written(t, inlined, file{from: "a_template_test.go", written: []writes{{"template", "newFlat", each}}})
	_, got, _ = strings.Cut(got, "// newFlatTwo decides.\n")
	const want = `func newFlatTwo(e *path, limit *Limit) http.Handler {
	limit := e.limit
	limitFull := limit.full
	return func(key string) {
		var (
			remaining, reset int64
			s                *State
			level            int64
		)
		s = e.states[key]
		level = 1 // that much
		if s.A > limitFull {
			goto rare
		}
		s.A += level
		reset = level
		remaining = limitFull - level
		return
	rare:
		settle(e)
	}
}
`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := written(t, inlined, file{from: "a_template_test.go", written: []writes{{"template", "newFlat", once}}}); !strings.Contains(got,
		"switch limit.Algorithm {\n\t\tcase One:\n\t\t\tremaining, reset = -1, 0\n\t\tcase Two:\n\t\t\tremaining, reset = takeFromTwo(limit, e.states[key])\n\t\t}\n\t\tif remaining < 0 {") {
		t.Errorf("no switch:\n%s", got)
	}
}

func TestWhatCannotBeInlinedIsAnError(t *testing.T) {
	for text, change := range map[string][2]string{
		"no if with a goto follows":             {"if remaining < 0 {", "if remaining < 0 {\n_ = 1\n"},
		"a value is made of a result behind it": {"return l.full - level, level", "return reset, level"},
		"want a value for each result":          {"return l.full - level, level", "return level"},
		"want one variable":                     {"level := int64(1)", "level, s := int64(1), 2"},
		"level is a string here":                {"remaining, reset int64\n\t\t)", "remaining, reset int64\n\t\t\tlevel string\n\t\t)"},
	} {
		changed := strings.Replace(inlined, change[0], change[1], 1)
		if changed == inlined {
			t.Fatalf("%s: nothing to change", text)
		}
		must.Contain(t, written(t, changed, file{from: "a_template_test.go", written: []writes{{"template", "newFlat", each}}}), text, "want an error about")
	}
}

// A function of a package below is inlined with the names of that package.
func TestAFunctionOfAPackageBelowIsInlined(t *testing.T) {
	below["above"] = []string{algorithms}
	defer delete(below, "above")
	folder := t.TempDir() + "/"
	template, functions, _ := strings.Cut(strings.TrimPrefix(inlined, table), "//flatten:inline\nfunc takeIn")
	lower := strings.Replace(table+"//flatten:inline\nfunc takeIn"+functions, "s.A > l.full", "s.A > most", 1) + "const most = 5\ntype State struct{}\n"
	upper := strings.NewReplacer("*Limit", "*rate.Limit", "takeIn(", "rate.takeIn(").Replace(template)
	for name, text := range map[string]string{algorithms + "/a.go": "package rate\n" + lower, "above/a_template_test.go": "package above\nimport \"x/rate\"\n" + upper} {
		must.Succeed(t, os.MkdirAll(filepath.Dir(folder+name), 0o700))
		must.Succeed(t, os.WriteFile(folder+name, []byte(text), 0o600))
	}
	text, err := generate(folder, file{name: "above/flat.go", from: "a_template_test.go", written: []writes{{"template", "newFlat", each}}})
	must.Succeed(t, err)
	for _, part := range []string{"func newFlatTwo(e *path, limit *rate.Limit)", "*rate.State\n", "if s.A > rate.most {\n\t\t\tgoto rare"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
}
