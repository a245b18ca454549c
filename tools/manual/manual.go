// Package manual takes pages of the manual apart for the tests that hold them to the code.
package manual

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// Snippet is a fenced block of a page.
type Snippet struct {
	Place    string // page:line
	Language string
	Marker   string // what an HTML comment right before the fence says, such as "in: site", "refused: …", "session" or "file: …"
	Text     string
}

var (
	fenceLine  = regexp.MustCompile("^( *)```([a-z]*)$")
	markerLine = regexp.MustCompile(`^ *<!-- (.*) -->$`)
)

// Page reads a file of the repository from the folder of a package that lies at its top, such as docs/traefik.md.
func Page(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile("../" + name)
	must.Succeed(t, err)
	return strings.ReplaceAll(string(data), "\r\n", "\n")
}

// Snippets returns the fenced blocks of a page.
func Snippets(t testing.TB, name string) []Snippet {
	t.Helper()
	var found []Snippet
	var open *Snippet
	indent, marker := "", ""
	for i, line := range strings.Split(Page(t, name), "\n") {
		switch fence := fenceLine.FindStringSubmatch(line); {
		case open != nil && fence != nil && fence[2] == "":
			found = append(found, *open)
			open = nil
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent) + "\n"
		case fence != nil:
			indent = fence[1]
			open = &Snippet{Place: fmt.Sprintf("%s:%d", name, i+1), Language: fence[2], Marker: marker}
			marker = ""
		default:
			marker = ""
			if m := markerLine.FindStringSubmatch(line); m != nil {
				marker = m[1]
			}
		}
	}
	if open != nil {
		t.Fatalf("%s: the block is never closed", open.Place)
	}
	return found
}

// Converted returns what `weir convert` prints in an example of cmd/convert/testdata.
func Converted(t testing.TB, example string) string {
	t.Helper()
	text, err := os.ReadFile(example)
	must.Succeed(t, err)
	_, printed, _ := strings.Cut(string(text), "\n-- stdout --\n")
	printed, _, _ = strings.Cut(printed, "\n-- stderr --\n")
	return printed
}

// Section returns what stands on a page between a heading and the next that is not below it.
func Section(t testing.TB, page, heading string) string {
	t.Helper()
	_, after, found := strings.Cut(page, "\n"+heading+"\n")
	if !found {
		t.Fatalf("there is no heading %q", heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	if end := regexp.MustCompile(`(?m)^#{1,` + fmt.Sprint(len(level)) + `} `).FindStringIndex(after); end != nil {
		after = after[:end[0]]
	}
	return after
}

// SameWords checks that a page has the words that the code has, in whatever order.
func SameWords(t testing.TB, where string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%s: there are\n%v, in the code\n%v", where, got, want)
	}
}
