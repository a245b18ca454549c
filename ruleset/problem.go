package ruleset

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong in a file.
type Problem struct {
	File         string
	Line, Column int // from 1; 0: it is about the whole file
	Text         string
}

// String writes the problem as compilers do: "limits.yaml:12:9: …".
func (p Problem) String() string {
	where := p.File
	if p.Line > 0 {
		where += ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column)
	}
	return where + ": " + p.Text
}

// Problems are all that is wrong, in the order of the files and lines. Never empty where they are an error.
type Problems []Problem

// mostShown is how many problems Error writes out.
const mostShown = 10

// Error writes the first problems, a line each.
func (p Problems) Error() string {
	lines := make([]string, 0, len(p))
	for i := range p {
		if i == mostShown {
			lines = append(lines, fmt.Sprintf("and %d more", len(p)-i))
			break
		}
		lines = append(lines, p[i].String())
	}
	return strings.Join(lines, "\n")
}

// inOrder sorts the problems by lines. They are of one file.
func (p Problems) inOrder() Problems {
	sort.SliceStable(p, func(i, j int) bool {
		return p[i].Line < p[j].Line || p[i].Line == p[j].Line && p[i].Column < p[j].Column
	})
	return p
}

// shorten returns a value without most of it where it is long, for a message.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
