package ruleset

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Problem is one error in a file.
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

// Problems are all errors, in the order of the files and lines. As an error the list is never empty.
type Problems []Problem

// mostShown is the most problems that Error writes.
const mostShown = 10

// Error writes the first problems, one a line.
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

// inOrder sorts the problems of one file by lines.
func (p Problems) inOrder() Problems {
	sort.SliceStable(p, func(i, j int) bool {
		return p[i].Line < p[j].Line || p[i].Line == p[j].Line && p[i].Column < p[j].Column
	})
	return p
}

// shorten returns a value for a message, and only its beginning if it is long.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
