package manual

import (
	"encoding/csv"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

const logPage = "../../docs/log.csv"

var update = flag.Bool("update", false, "write docs/log.csv")

// docs/log.csv is made from the code: go test ./tools/manual -run LogLines -update writes it.
func TestTheManualHasTheLogLinesThatThereAre(t *testing.T) {
	var text strings.Builder
	w := csv.NewWriter(&text)
	must.Succeed(t, w.WriteAll(append([][]string{{"proxy", "level", "message", "fields", "page"}}, logLines(t, "../..")...)))
	if *update {
		must.Succeed(t, os.WriteFile(logPage, []byte(text.String()), 0o644)) //nolint:gosec // a page for all
	}
	page, err := os.ReadFile(logPage)
	must.Succeed(t, err)
	if strings.ReplaceAll(string(page), "\r\n", "\n") != text.String() {
		t.Errorf("docs/log.csv is not what the code logs; go test ./tools/manual -run LogLines -update writes it:\n%s", text.String())
	}
}

// ofLog says what page tells more of a message, by the beginning of its file and a word in it. The first that fits is taken.
var ofLog = []struct{ file, word, page string }{
	{"", "region", "regions.md"},
	{"", "single keys", "single-keys.md"},
	{"", "somebody has given", "single-keys.md"},
	{"", "deferred", "defer.md"},
	{"", "defer", "defer.md"},
	{"", "rule files", "rules.md"},
	{"", "by hand", "single-keys.md"},
	{"", "exceptions", "single-keys.md"},
	{"", "counts of a Caddy", "fleet.md"},
	{"", "the limit has changed", "advisor.md"},
	{"", "the store of rate limits", "redis.md"},
	{"", "authenticat", "keys.md"},
	{"", "descriptor", "rules.md"},
	{"", "advice", "advisor.md"},
	{"", "advis", "advisor.md"},
	{"", "audit file", "adaptive.md"},
	{"", "pressure", "guard.md"},
	{"", "guard", "guard.md"},
	{"", "Redis", "redis.md"},
	{"", "placeholder", "keys.md"},
	{"", "storage", "fleet.md"},
	{"", "metrics", "metrics.md"},
	{"", "client", "keys.md"},
	{"", "zone", "counters.md"},
	{"caddy/", "", "caddy.md"},
	{"traefik/", "", "traefik.md"},
}

// levels are those of the methods that log.
var levels = map[string]string{"Error": "ERROR", "Warn": "WARN", "Info": "INFO", "Inform": "INFO", "Debug": "DEBUG"}

// logLines returns the lines that code below the folder root writes to a log: proxy, level, message with … for what varies, fields, and the page that tells more.
func logLines(t *testing.T, root string) [][]string {
	var lines [][]string
	for _, folder := range []string{"caddy", "traefik", "core/pressure"} {
		must.Succeed(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, declared := range file.Decls {
				if f, is := declared.(*ast.FuncDecl); is {
					lines = append(lines, loggedBy(f, folder)...)
				}
			}
			return nil
		}))
	}
	for _, line := range lines {
		for _, of := range ofLog {
			if strings.HasPrefix(line[0], strings.TrimSuffix(of.file, "/")) && strings.Contains(line[2], of.word) {
				line[4] = of.page
				break
			}
		}
	}
	slices.SortFunc(lines, func(a, b []string) int {
		return slices.Compare([]string{a[0], a[4], a[2], a[3]}, []string{b[0], b[4], b[2], b[3]})
	})
	return slices.CompactFunc(lines, slices.Equal[[]string])
}

// loggedBy returns the lines of a function. Those whose whole text comes from elsewhere are none: they are errors and advice, which say themselves where and what.
func loggedBy(f *ast.FuncDecl, folder string) (lines [][]string) {
	values, fields := assigned(f)
	ast.Inspect(f, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		level, at := "", 0
		switch name := nameOf(call.Fun); {
		case folder == "traefik" && (name == "warn" || name == "log" || name == "inform") && len(call.Args) == 2:
			level, at = map[string]string{"warn": "ERROR", "log": "ERROR", "inform": "DEBUG"}[name], 1
		case folder == "traefik" && name == "say" && len(call.Args) == 1:
			level = "ERROR"
		case folder == "caddy" && name == "warn" && len(call.Args) > 1: // which logs it once
			level = "WARN"
		case folder != "traefik" && levels[name] != "" && len(call.Args) > 0:
			level = levels[name]
		default:
			return true
		}
		var with []string
		if of, is := call.Fun.(*ast.SelectorExpr); is { // what the logger got by With
			with = append(with, fields[nameOf(of.X)]...)
		}
		for _, arg := range call.Args[at+1:] {
			with = append(with, fieldsOf(arg, fields)...)
		}
		for _, text := range texts(call.Args[at], values) {
			if !strings.ContainsAny(strings.ReplaceAll(text, "…", ""), "abcdefghijklmnopqrstuvwxyz") {
				continue
			}
			if strings.HasPrefix(folder, "core/") { // both proxies log it; Traefik has no WARN
				lines = append(lines, []string{"caddy", level, text, "", ""}, []string{"traefik", map[string]string{"WARN": "ERROR", "INFO": "DEBUG"}[level], text, "", ""})
				continue
			}
			lines = append(lines, []string{folder, level, text, strings.Join(with, " "), ""})
		}
		return true
	})
	return lines
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// assigned returns the texts that a function assigns to its variables and constants, and the fields that are gathered in them.
func assigned(f *ast.FuncDecl) (values map[string][]ast.Expr, fields map[string][]string) {
	values, fields = make(map[string][]ast.Expr), make(map[string][]string)
	note := func(name string, value ast.Expr) {
		values[name] = append(values[name], value)
		fields[name] = append(fields[name], fieldsOf(value, nil)...)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if len(n.Lhs) == len(n.Rhs) {
					note(nameOf(to), n.Rhs[i])
				}
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if len(n.Names) == len(n.Values) {
					note(name.Name, n.Values[i])
				}
			}
		}
		return true
	})
	return values, fields
}

// fieldsOf returns the names of the fields in an argument of a logger.
func fieldsOf(e ast.Expr, known map[string][]string) (names []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			names = append(names, known[n.Name]...)
		case *ast.CallExpr:
			of, is := n.Fun.(*ast.SelectorExpr)
			if !is || nameOf(of.X) != "zap" {
				return true
			}
			if of.Sel.Name == "Error" {
				names = append(names, "error")
			} else if name, is := n.Args[0].(*ast.BasicLit); is {
				names = append(names, strings.Trim(name.Value, `"`))
			}
			return false
		}
		return true
	})
	return slices.Compact(names)
}

// verb is what fmt fills in.
var verb = regexp.MustCompile(`%[-+.0-9]*[a-z]`)

// texts returns what an expression can be, with … for what is known only when it runs.
func texts(e ast.Expr, values map[string][]ast.Expr) (list []string) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return []string{text}
		}
	case *ast.ParenExpr:
		return texts(e.X, values)
	case *ast.BinaryExpr:
		for _, first := range texts(e.X, values) {
			for _, second := range texts(e.Y, values) {
				list = append(list, strings.ReplaceAll(first+second, "……", "…"))
			}
		}
		return list
	case *ast.CallExpr:
		if nameOf(e.Fun) == "Sprintf" {
			for _, format := range texts(e.Args[0], values) {
				list = append(list, verb.ReplaceAllString(format, "…"))
			}
			return list
		}
	case *ast.Ident:
		for _, value := range values[e.Name] {
			if text, is := value.(*ast.BasicLit); is && text.Value == `""` {
				continue
			}
			list = append(list, texts(value, nil)...)
		}
		if len(list) > 0 {
			return list
		}
	}
	return []string{"…"}
}
