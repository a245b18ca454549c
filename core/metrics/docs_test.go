//go:build gc
// +build gc

package metrics

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/monitoring.md has a row with the names of families, their type and their labels; those of the guard are in the tables of docs/guard.md.
func TestDocsHaveTheFamiliesThatThereAre(t *testing.T) {
	documented := make(map[string]string)
	for page, row := range map[string]string{
		"monitoring.md": "(?m)^\\| (`weir_[^|]*) \\| ([^|]*) \\|([^|]*)\\|.*\\|$",
		"guard.md":      "(?m)^\\| (`weir_[^|]*) \\|()().*\\|$",
	} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, cells := range regexp.MustCompile(row).FindAllStringSubmatch(string(text), -1) {
			for _, name := range strings.Split(cells[1], ", ") {
				documented[strings.Trim(name, "`")] = strings.TrimSpace(cells[2] + " " + strings.TrimSpace(cells[3]))
			}
		}
	}
	for _, f := range Families {
		var labels []string
		for _, l := range f.Labels {
			labels = append(labels, "`"+l.Name+"`")
		}
		want := strings.TrimSpace(f.Kind + " " + strings.Join(labels, ", "))
		if f.Labels != nil && f.Labels[0].Name == "guard" {
			want = ""
		}
		if got, has := documented[f.Name]; !has || got != want {
			t.Errorf("%s is documented as %q, and is %q", f.Name, got, want)
		}
		delete(documented, f.Name)
	}
	if len(documented) > 0 {
		t.Errorf("there are no such families: %v", documented)
	}
}
