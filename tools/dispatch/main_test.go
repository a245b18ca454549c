package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheFileIsUpToDate(t *testing.T) {
	want, err := generate(core)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(core + written)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the table in algorithm.go says now: run go generate ./...", written)
	}
}

func TestARowHasACaseForEachOfItsFunctionsAndNoOther(t *testing.T) {
	dir := t.TempDir()
	table := `package core
var algorithms = mustTabulate([]algorithmRow{
	{algorithm: One, name: "one", isLog: true},
	{algorithm: Two, decide: decideTwo, take: takeFromTwo, reject: rejectFromTwo, fastPath: true},
})`
	if err := os.WriteFile(filepath.Join(dir, "algorithm.go"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := generate(dir)
	if err != nil {
		t.Fatal(err)
	}
	for text, n := range map[string]int{
		"case One:": 0, "case Two:\n\t\tdecideTwo(l, s, now, cost, next, d)\n": 1, "case Two:\n\t\treturn takeFromTwo(l, s, now)\n": 1, "case ": 4, "return rejectFromTwo(l, s, now)\n": 1, "return newFlatTwo(e, c)": 1, "panic(": 6,
	} {
		if got := strings.Count(string(source), text); got != n {
			t.Errorf("%q occurs %d times, want %d:\n%s", text, got, n, source)
		}
	}
}

func TestATableThatCannotBeReadIsAnError(t *testing.T) {
	for of, table := range map[string]string{
		"no table":           "package core",
		"a row of no number": "package core\nvar algorithms = mustTabulate([]algorithmRow{{name: \"one\"}})",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "algorithm.go"), []byte(table), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := generate(dir); err == nil {
			t.Errorf("%s: no error", of)
		}
	}
}
