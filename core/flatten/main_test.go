package main

import (
	"bytes"
	"os"
	"testing"
)

func TestTheFileIsUpToDate(t *testing.T) {
	want, err := generate("..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../memory_express_flat.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("memory_express_flat.go is not what the algorithms' files say now: run go generate ./core")
	}
}
