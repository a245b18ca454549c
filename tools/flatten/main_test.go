package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheFilesAreUpToDate(t *testing.T) {
	for _, file := range files {
		want, err := generate(root, file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(root + file.Name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the fragments and the algorithms' files say now: run go generate ./...", file.Name)
		}
	}
}

// A file must not stay behind when it is no longer generated.
func TestAllFilesThatAreGeneratedAreWritten(t *testing.T) {
	written := make(map[string]bool)
	for _, file := range files {
		written[file.Name] = true
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
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryFragmentIsUsed(t *testing.T) {
	used := make(map[string]bool)
	for _, p := range paths {
		for _, part := range p.Parts {
			used[part] = true
		}
	}
	for _, one := range fragments.Templates() {
		if name, is := strings.CutSuffix(one.Name(), ".variables"); is && !used[name] {
			t.Errorf("no path has %s", name)
		}
	}
}
