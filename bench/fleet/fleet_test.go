package main

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// The tables of README.md are what this program prints. The fleets of a thousand nodes and more take too long for a test.
func TestTheReadmeHasTheTables(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOARCH != "amd64" {
		t.Skipf("the tables were made on amd64: on %s numbers are rounded in other places", runtime.GOARCH)
	}
	var printed strings.Builder
	if err := tables(&printed, "3,30", false); err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(printed.String()) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		n++
		if !strings.Contains(string(page), line) {
			t.Errorf("README.md does not have this line; run go run ./fleet in bench/, and put its tables there:\n%s", line)
		}
	}
	if n < 40 {
		t.Errorf("%d lines", n)
	}
}

// Nothing is admitted beyond the limit, and a part for each node loses much where the demand is unequal.
func TestAFleetKeepsToItsLimit(t *testing.T) {
	f := usual(30)
	f.shape = unequal
	leased, err := f.play(lease)
	if err != nil {
		t.Fatal(err)
	}
	apart, err := f.play(split)
	if err != nil {
		t.Fatal(err)
	}
	if leased.beyond != 0 || leased.lost > leased.could/50 || leased.calls > leased.admitted/10 {
		t.Errorf("leases: %+v", leased)
	}
	if leased.requests != apart.requests || apart.lost < apart.could/10 {
		t.Errorf("parts: %+v, leases: %+v", apart, leased)
	}
}

func TestASizeThatIsNoneIsRefused(t *testing.T) {
	for _, list := range []string{"3,x", "0"} {
		if _, err := sizesOf(list); err == nil || !strings.Contains(err.Error(), "-nodes") {
			t.Errorf("%q: error %v", list, err)
		}
	}
}
