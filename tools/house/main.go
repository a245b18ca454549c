// Command house measures how the code lives: lines by kind, the size of packages and files, the folders at the top, and the arrows among the files
// of a package that run against their order. With -check it fails where a figure is above its bound in the table bounds.
//
//	go run ./tools/house [-check] [-arrows DIR]
//
// An arrow leads from a file to another of its package that declares something it uses: a function, a type, a method, a field. Files are put into an
// order in which as few arrows as possible lead back up, by the heuristic of Eades, Lin and Smyth ("A fast and effective heuristic for the feedback
// arc set problem", 1993); the rest are against the order.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// kind says what a file is counted as.
type kind int

const (
	other     kind = iota // prose, configuration, pictures
	product               // Go and Lua that ships, written by hand
	generated             // Go that a tool has written
	tests                 // tests, and packages that only tests use
	golden                // what a test compares with
	workshop              // bench, experiment, tools, examples, e2e apart from its tests
)

var (
	isCode     = regexp.MustCompile(`\.(go|lua)$`)
	isWorkshop = regexp.MustCompile(`^(bench|experiment|tools|examples|scripts|e2e)/`)
	isSupport  = regexp.MustCompile(`(^|/)(storetest|leasetest|redistest|fleetclock|must|manual)/|_test\.go$`)
	isGolden   = regexp.MustCompile(`(^|/)testdata/.*\.(caddyfiletest|lua|json|golden)$`)
)

// bounds are the most that figures may be. They are lowered when a figure falls, and raised only with what users gain a capability by.
var bounds = map[string]int{
	"product lines": 85_650, "generated lines": 2700, "golden lines": 9800, "lines of tests, per cent of product": 139,
	"files in a package": 25, "lines in a package": 6000, "files above 600 lines": 0, "folders at the top": 17,
	"arrows against the order, per cent": 15, "words of CONTRIBUTING.md": 1800,
}

func main() {
	check := flag.Bool("check", false, "fail where a figure is above its bound")
	arrows := flag.String("arrows", "", "list the arrows against the order in the package of that `folder`")
	flag.Parse()
	if *arrows != "" {
		report(os.Stdout, *arrows)
		return
	}
	figures, err := measure(os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	if *check && above(os.Stdout, figures) {
		os.Exit(1)
	}
}

// above prints the figures that are above their bounds, and reports whether there are any.
func above(out io.Writer, figures map[string]int) bool {
	found := false
	for name, most := range bounds {
		if figures[name] > most {
			found = true
			fmt.Fprintf(out, "%s: %d, and at most %d are wanted\n", name, figures[name], most)
		}
	}
	return found
}

// measure prints a table of all figures, and returns those that have bounds.
func measure(out io.Writer) (map[string]int, error) {
	list, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		return nil, err
	}
	figures, lines := map[string]int{}, map[kind]int{}
	files, size, top := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, name := range strings.Fields(string(list)) {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it was deleted, and is still in the index
		}
		if folder, _, inside := strings.Cut(name, "/"); inside && !strings.HasPrefix(folder, ".") {
			top[folder] = true
		}
		if name == "CONTRIBUTING.md" {
			figures["words of CONTRIBUTING.md"] = len(bytes.Fields(text))
		}
		k, n := kindOf(name, text), bytes.Count(text, []byte{'\n'})
		lines[k] += n
		if k != product {
			continue
		}
		if n > 600 && strings.HasSuffix(name, ".go") {
			figures["files above 600 lines"]++
			fmt.Fprintf(out, "%6d lines: %s\n", n, name)
		}
		if strings.HasSuffix(name, ".go") {
			files[path.Dir(name)]++
			size[path.Dir(name)] += n
		}
	}
	for folder := range files {
		figures["files in a package"] = max(figures["files in a package"], files[folder])
		figures["lines in a package"] = max(figures["lines in a package"], size[folder])
		if files[folder] > 10 && folder != "redis/redistest" && !isSupport.MatchString(folder+"/") {
			all, back, err := arrowsOf(folder)
			if err != nil {
				return nil, err
			}
			share := 100 * len(back) / max(1, all)
			figures["arrows against the order, per cent"] = max(figures["arrows against the order, per cent"], share)
			fmt.Fprintf(out, "%6d lines, %d files: %s; of %d arrows %d run against the order (%d %%)\n", size[folder], files[folder], folder, all, len(back), share)
		}
	}
	figures["product lines"], figures["generated lines"], figures["golden lines"] = lines[product], lines[generated], lines[golden]
	figures["lines of tests, per cent of product"] = 100 * lines[tests] / lines[product]
	figures["folders at the top"] = len(top)
	names := make([]string, 0, len(figures))
	for name := range bounds {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(out, "%6d %s\n", figures[name], name)
	}
	fmt.Fprintf(out, "%6d lines of tests, %d of benchmarks, experiment, tools and examples\n", lines[tests], lines[workshop])
	return figures, nil
}

// kindOf says what a file is counted as.
func kindOf(name string, text []byte) kind {
	switch {
	case isGolden.MatchString(name):
		return golden
	case strings.Contains(name, "testdata/") || !isCode.MatchString(name):
		return other
	case isSupport.MatchString(name):
		return tests
	case isWorkshop.MatchString(name):
		return workshop
	case bytes.HasPrefix(text, []byte("// Code generated ")):
		return generated
	}
	return product
}

// report lists the arrows of a package that run against the order.
func report(out io.Writer, folder string) {
	all, back, err := arrowsOf(folder)
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	for _, line := range back {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "%d of %d arrows\n", len(back), all)
}

// arrowsOf returns how many arrows there are in the package of a folder, and those against the order, with the names that they stand for.
func arrowsOf(folder string) (all int, back []string, err error) {
	uses, err := usesIn(folder)
	if err != nil {
		return 0, nil, err
	}
	at := make(map[string]int)
	for i, file := range order(uses) {
		at[file] = i
	}
	for from, tos := range uses {
		for to, names := range tos {
			all++
			if at[to] < at[from] {
				continue
			}
			list := make([]string, 0, len(names))
			for name := range names {
				list = append(list, name)
			}
			sort.Strings(list)
			back = append(back, fmt.Sprintf("%s -> %s: %s", from, to, strings.Join(list, " ")))
		}
	}
	sort.Strings(back)
	return all, back, nil
}

// usesIn returns which files of a package use which names of which of its other files.
func usesIn(folder string) (map[string]map[string]map[string]bool, error) {
	listed, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", "./"+folder).Output()
	if err != nil {
		return nil, fmt.Errorf("go list ./%s: %w", folder, err)
	}
	exports := make(map[string]string)
	for lines := bufio.NewScanner(bytes.NewReader(listed)); lines.Scan(); {
		name, file, _ := strings.Cut(lines.Text(), "\t")
		exports[name] = file
	}
	set := token.NewFileSet()
	names, _ := filepath.Glob(folder + "/*.go")
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: importer.ForCompiler(set, "gc", func(name string) (io.ReadCloser, error) { return os.Open(exports[name]) })}
	if _, err := config.Check(folder, set, files, info); err != nil {
		return nil, err
	}
	uses := make(map[string]map[string]map[string]bool)
	fileOf := func(at token.Pos) string { return filepath.Base(set.Position(at).Filename) }
	for _, file := range files {
		uses[fileOf(file.Pos())] = make(map[string]map[string]bool)
	}
	for at, object := range info.Uses {
		if object.Pkg() == nil || object.Pkg().Path() != folder || !object.Pos().IsValid() {
			continue
		}
		from, to := fileOf(at.Pos()), fileOf(object.Pos())
		if from == to {
			continue
		}
		if uses[from][to] == nil {
			uses[from][to] = make(map[string]bool)
		}
		uses[from][to][object.Name()] = true
	}
	return uses, nil
}

// order puts files into an order, what is used first, so that few uses lead to a later file.
func order(uses map[string]map[string]map[string]bool) []string {
	var first, last []string
	left := make(map[string]bool)
	for file := range uses {
		left[file] = true
	}
	degrees := func(file string) (out, in int) {
		for to := range uses[file] {
			if left[to] {
				out++
			}
		}
		for from := range left {
			if uses[from][file] != nil {
				in++
			}
		}
		return out, in
	}
	for len(left) > 0 {
		best, most := "", 0
		names := make([]string, 0, len(left))
		for file := range left {
			names = append(names, file)
		}
		sort.Strings(names)
		for _, file := range names {
			out, in := degrees(file)
			if out == 0 || in == 0 { // it uses no other, or no other uses it
				best = file
				break
			}
			if best == "" || in-out > most {
				best, most = file, in-out
			}
		}
		if out, in := degrees(best); out == 0 || in > 0 {
			first = append(first, best)
		} else {
			last = append(last, best)
		}
		delete(left, best)
	}
	for i := len(last) - 1; i >= 0; i-- {
		first = append(first, last[i])
	}
	return first
}
