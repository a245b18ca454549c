package command

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table lists the rules of a configuration: one row for each limit of each rule.
type Table []Row

// Row is one limit. Empty fields are shown as dashes.
type Row struct {
	Site      string // the hosts of the site, or the addresses that its server listens on
	Rule      string // with its namespace
	Covers    string // which requests, in words
	Key       string
	Limit     string // as it is written
	Algorithm string
	Notes     string // what else the rule does, and to whom the limit applies
	File      string // and line, of a rule file
}

// write writes the table.
func (t Table) write(out io.Writer) error {
	if len(t) == 0 {
		_, err := fmt.Fprintln(out, "the configuration has no rate_limit handler")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	head := Row{"SITE", "RULE", "COVERS", "KEY", "LIMIT", "ALGORITHM", "NOTES", "FILE"}
	for _, r := range append(Table{head}, t...) {
		cells := []string{r.Site, r.Rule, r.Covers, r.Key, r.Limit, r.Algorithm, r.Notes, r.File}
		for i := range cells {
			if cells[i] == "" {
				cells[i] = "-"
			}
		}
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}
