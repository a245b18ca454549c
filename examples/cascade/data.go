package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
)

// The files of a run: its rows, as CSV, and the picture that is made of them.
const (
	dataFile    = "cascade.csv"
	pictureFile = "cascade.svg"
)

var columns = []string{"protection", "second", "begun", "tries", "answered", "refused", "failed"}

// format returns the data file: the rows of each protection, in the order of protections.
func format(rows [][]row) []byte {
	var text bytes.Buffer
	fmt.Fprintln(&text, strings.Join(columns, ","))
	for i, list := range rows {
		for second, r := range list {
			fmt.Fprintf(&text, "%s,%d,%d,%d,%d,%d,%d\n", protections[i].snippet, second, r.begun, r.tries, r.answered, r.refused, r.failed)
		}
	}
	return text.Bytes()
}

// parse reads what format has written. The error says which line is wrong.
func parse(text []byte) ([][]row, error) {
	lines, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return nil, err
	}
	if want := len(protections) * whole.ends; len(lines) != 1+want {
		return nil, fmt.Errorf("%d rows, and there must be %d below the names of the columns", len(lines)-1, want)
	}
	rows := make([][]row, len(protections))
	for n, line := range lines {
		if n == 0 {
			continue
		}
		var values [6]int
		for i := range values {
			if values[i], err = strconv.Atoi(line[i+1]); err != nil {
				return nil, fmt.Errorf("line %d, %s: %w", n+1, columns[i+1], err)
			}
		}
		i := n - 1 // which protection's line it must be: there are as many of each
		i = i * len(protections) / (len(lines) - 1)
		if line[0] != protections[i].snippet || values[0] != len(rows[i]) {
			return nil, fmt.Errorf("line %d is of %s, second %d, and should be of %s, second %d", n+1, line[0], values[0], protections[i].snippet, len(rows[i]))
		}
		rows[i] = append(rows[i], row{values[1], values[2], values[3], values[4], values[5]})
	}
	return rows, nil
}

// table returns what a run comes to, in Markdown: how many requests were answered in a second, on average, in each part of the story, and of all.
func table(s story, rows [][]row) string {
	half := (s.fails + s.back) / 2
	var text strings.Builder
	fmt.Fprintf(&text, "| answered a second | A and B, until %d s | A alone, until %d s | A alone, until %d s | A and B, until %d s | of all requests |\n", s.fails, half, s.back, s.ends)
	fmt.Fprintln(&text, "| --- | ---: | ---: | ---: | ---: | ---: |")
	for i, p := range protections {
		all := sum(rows[i], 0, s.ends)
		fmt.Fprintf(&text, "| %s |", p.title)
		for _, part := range [][2]int{{0, s.fails}, {s.fails, half}, {half, s.back}, {s.back, s.ends}} {
			fmt.Fprintf(&text, " %.0f |", mean(rows[i], part[0], part[1]))
		}
		fmt.Fprintf(&text, " %.0f %% |\n", 100*float64(all.answered)/float64(max(1, all.begun)))
	}
	return text.String()
}

// sum adds the rows of the seconds from one to before another.
func sum(rows []row, from, to int) (all row) {
	for _, r := range rows[from:to] {
		all.begun += r.begun
		all.tries += r.tries
		all.answered += r.answered
		all.refused += r.refused
		all.failed += r.failed
	}
	return all
}

// mean is how many requests are answered a second, from one second to before another.
func mean(rows []row, from, to int) float64 {
	return float64(sum(rows, from, to).answered) / float64(to-from)
}

// withTable returns the page with another table in place of its own.
func withTable(page []byte, table string) []byte {
	var text strings.Builder
	written := false
	for line := range strings.Lines(string(page)) {
		switch {
		case !strings.HasPrefix(line, "|"):
			text.WriteString(line)
		case !written:
			text.WriteString(table)
			written = true
		}
	}
	return []byte(text.String())
}
