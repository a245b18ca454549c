package main

import (
	"bytes"
	"os"
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
			t.Errorf("%s is not what the algorithms' files say now: run go generate ./...", file.Name)
		}
	}
}
