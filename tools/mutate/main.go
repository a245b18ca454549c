// Mutate finds lines that no test checks. It changes the code of packages, one small change at a time, runs tests on each change,
// and lists the changes that no test noticed. It edits no file: it passes the changed file to the go command as an overlay.
//
// Usage, from the module's folder:
//
//	go run ./tools/mutate [flags] package...
//
// Changes in Go: an operator is replaced by its opposite, a comparison gains or loses its boundary, a number changes by one, true
// and false are swapped, a condition is negated, a statement is removed, and a function returns at its beginning. Changes in Lua,
// in the files of package luaparts: operators, numbers, true and false, and whole statements.
//
// A change is caught if a test fails, or if the tests take longer than -timeout. A change that does not compile is not counted.
// The exit code is 1 if a change has survived, and 2 if mutate could not work, for example because the tests fail without any
// change.
//
// If a change survives, then it makes no difference, or a test is missing, or the line can go.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/tools/luaparts"
)

// options are the values of the flags.
type options struct {
	packages []string
	tests    []string // the packages whose tests are run, in this order, until one fails
	run      string   // go test -run
	skip     string   // go test -skip
	files    string   // a pattern for names of files
	at       string   // a file, or a file and a line
	n        int      // the most changes to try; 0: all
	seed     int64
	timeout  time.Duration // of the tests of one package
	results  string        // a file of outcomes: changes that it lists are not tried again
	list     bool
	verbose  bool
}

func main() {
	var o options
	tests := ""
	flag.StringVar(&tests, "tests", "", "run the tests of these `packages`, with commas between them, the quickest first (default: of those that are changed)")
	flag.StringVar(&o.run, "run", "", "run only the tests that match this `pattern`")
	flag.StringVar(&o.skip, "skip", "", "leave out the tests that match this `pattern`, such as those that take long")
	flag.StringVar(&o.files, "files", "*", "change only files whose names match this `pattern`")
	flag.StringVar(&o.at, "at", "", "change only this `file[:line]`")
	flag.IntVar(&o.n, "n", 0, "try so many changes, chosen at random (default: all)")
	flag.Int64Var(&o.seed, "seed", 1, "choose them by this `number`")
	flag.DurationVar(&o.timeout, "timeout", 2*time.Minute, "a change is caught when the tests of a package take longer than this")
	flag.StringVar(&o.results, "results", "", "append each outcome to this `file`, as a line of JSON, and do not try again what stands there")
	flag.BoolVar(&o.list, "list", false, "print the changes, and try none")
	flag.BoolVar(&o.verbose, "v", false, "print what is caught, too")
	flag.Parse()
	o.packages = flag.Args()
	o.tests = o.packages
	if tests != "" {
		o.tests = strings.Split(tests, ",")
	}
	survived, err := mutate(o, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if survived > 0 {
		os.Exit(1)
	}
}

// change is one change of one file: the text between two offsets is replaced.
type change struct {
	file     string // as it is listed
	path     string
	line     int
	column   int
	from, to int
	text     string
	what     string // such as "< becomes <=", with the code around it
}

func (c *change) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", c.file, c.line, c.column, c.what)
}

// applied returns the file's contents with the change made.
func (c *change) applied(contents []byte) []byte {
	changed := append([]byte{}, contents[:c.from]...)
	changed = append(changed, c.text...)
	return append(changed, contents[c.to:]...)
}

// outcome is the result of a change.
type outcome struct {
	Change  string  `json:"change"`
	Outcome string  `json:"outcome"` // caught, survived, or invalid (it does not compile)
	By      string  `json:"by,omitempty"`
	Seconds float64 `json:"seconds"`
}

// mutate tries changes, and returns the number of those that survived.
func mutate(o options, w io.Writer) (survived int, err error) {
	if len(o.packages) == 0 {
		return 0, fmt.Errorf("names no package; write one such as ./core")
	}
	changes, err := changesOf(o)
	if err != nil {
		return 0, err
	}
	rand.New(rand.NewSource(o.seed)).Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	if o.list {
		for i := range changes {
			fmt.Fprintln(w, &changes[i])
		}
		return 0, nil
	}
	known, err := readResults(o.results)
	if err != nil {
		return 0, err
	}
	folder, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	if by, output := o.test(""); by != "" {
		return 0, fmt.Errorf("the tests of %s fail without any change:\n%s", by, output)
	}
	count := map[string]int{}
	for i := range changes {
		c := &changes[i]
		if o.n > 0 && count["caught"]+count["survived"] >= o.n {
			break
		}
		if known[c.String()] {
			continue
		}
		result, err := o.try(c, folder)
		if err != nil {
			return 0, err
		}
		count[result.Outcome]++
		if result.Outcome == "survived" || o.verbose {
			fmt.Fprintf(w, "%-8s %s", result.Outcome, c)
			if result.By != "" {
				fmt.Fprintf(w, " (%s)", result.By)
			}
			fmt.Fprintln(w)
		}
		if err := appendResult(o.results, result); err != nil {
			return 0, err
		}
	}
	fmt.Fprintf(w, "%d tried of %d: %d caught, %d survived; %d more did not compile\n", count["caught"]+count["survived"], len(changes), count["caught"], count["survived"], count["invalid"])
	return count["survived"], nil
}

// try runs the tests on a change.
func (o *options) try(c *change, folder string) (*outcome, error) {
	contents, err := os.ReadFile(c.path)
	if err != nil {
		return nil, err
	}
	path, applied := c.path, c.applied(contents)
	if filepath.Ext(path) == ".lua" {
		dir := filepath.Dir(filepath.Dir(path))
		path = filepath.Join(dir, luaparts.Written)
		if applied, err = luaparts.Generate(dir, map[string]string{filepath.Base(c.path): string(applied)}); err != nil {
			return nil, err
		}
	}
	changed := filepath.Join(folder, filepath.Base(path))
	if err := os.WriteFile(changed, applied, 0o600); err != nil {
		return nil, err
	}
	overlay := filepath.Join(folder, "overlay.json")
	text, err := json.Marshal(map[string]interface{}{"Replace": map[string]string{path: changed}})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return nil, err
	}
	start := time.Now()
	by, output := o.test(overlay)
	result := &outcome{Change: c.String(), Outcome: "survived", By: by, Seconds: time.Since(start).Seconds()}
	if by != "" {
		result.Outcome = "caught"
		if strings.Contains(output, "[build failed]") {
			result.Outcome, result.By = "invalid", ""
		} else if test := failed(output); test != "" {
			result.By = test
		}
	}
	return result, nil
}

// test runs the tests, one package after the other, with an overlay file if there is one. It returns the package that has failed,
// or "", and what was printed.
func (o *options) test(overlay string) (failed, output string) {
	for _, name := range o.tests {
		args := []string{"test", "-count=1", "-vet=off", "-failfast", "-timeout", o.timeout.String()}
		if overlay != "" {
			args = append(args, "-overlay", overlay)
		}
		if o.run != "" {
			args = append(args, "-run", o.run)
		}
		if o.skip != "" {
			args = append(args, "-skip", o.skip)
		}
		out, err := exec.Command("go", append(args, name)...).CombinedOutput()
		if err != nil {
			return name, string(out)
		}
	}
	return "", ""
}

// failed returns the first test that has failed, or "" if none is named.
func failed(output string) string {
	_, rest, found := strings.Cut(output, "--- FAIL: ")
	if !found {
		return ""
	}
	name, _, _ := strings.Cut(rest, " ")
	return name
}

// readResults returns the changes that a file of outcomes lists.
func readResults(name string) (map[string]bool, error) {
	known := make(map[string]bool)
	if name == "" {
		return known, nil
	}
	f, err := os.Open(name)
	if os.IsNotExist(err) {
		return known, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var r outcome
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		known[r.Change] = true
	}
	return known, lines.Err()
}

func appendResult(name string, r *outcome) error {
	if name == "" {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(text, '\n')); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// changesOf returns all changes of the packages' files.
func changesOf(o options) ([]change, error) {
	out, err := exec.Command("go", append([]string{"list", "-f", "{{$d := .Dir}}{{range .GoFiles}}{{$d}}\t{{.}}\n{{end}}{{$d}}\t\n"}, o.packages...)...).Output()
	if err != nil {
		if exit, ok := err.(*exec.ExitError); ok {
			err = fmt.Errorf("go list: %s", strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, err
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	file, line := o.at, 0
	if name, number, found := strings.Cut(o.at, ":"); found {
		if line, err = strconv.Atoi(number); err != nil {
			return nil, fmt.Errorf("-at %q: must be a file, or a file, a colon and a line", o.at)
		}
		file = name
	}
	var paths []string
	for _, row := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		folder, name, _ := strings.Cut(row, "\t")
		scripts := []string{filepath.Join(folder, name)}
		if name == "" {
			if scripts, err = filepath.Glob(filepath.Join(folder, luaparts.Folder, "*.lua")); err != nil {
				return nil, err
			}
		}
		paths = append(paths, scripts...)
	}
	var changes []change
	for _, path := range paths {
		shown, err := filepath.Rel(here, path)
		if err != nil {
			return nil, err
		}
		if matches, err := filepath.Match(o.files, filepath.Base(path)); err != nil {
			return nil, fmt.Errorf("-files %q: %w", o.files, err)
		} else if !matches || file != "" && filepath.Clean(file) != shown {
			continue
		}
		contents, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		in := changesIn
		if filepath.Ext(path) == ".lua" {
			in = changesInLua
		}
		found, err := in(shown, contents)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			if line == 0 || c.line == line {
				c.path = path
				changes = append(changes, c)
			}
		}
	}
	if len(changes) == 0 {
		return nil, fmt.Errorf("there is nothing to change in %s", strings.Join(o.packages, " "))
	}
	return changes, nil
}
