package main

import (
	"os"
	"strings"
	"testing"
)

func TestTheManualHasTheTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	if err := table(&printed); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), printed.String()) {
		t.Errorf("docs/clients.md does not have this table; run go run ./herd in bench/, and put its table there:\n%s", printed.String())
	}
}
