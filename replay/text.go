package replay

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes the report as tables for a terminal.
func (r *Report) WriteText(out io.Writer) error {
	w := &textWriter{out: out}
	w.line("%s from %s to %s", plural(r.Requests, "request", "requests"), clock(r.From), clock(r.To))
	w.files(r)
	w.line("%s would have been rejected (%s)%s; the log itself has %s with status 429%s", grouped(r.Rejected), percent(part(r.Rejected, r.Requests)), besides(r.AllowedSoft, r.Delayed), grouped(r.Logged429), byRule(r.LoggedByRule))
	for _, warning := range r.Warnings {
		w.line("warning: %s", warning)
	}
	w.line("")
	w.rules(r.Rules)
	for i := range r.Rules {
		w.rule(&r.Rules[i])
	}
	if r.Candidate != nil {
		w.candidate(r.Candidate)
	}
	if r.Suggestions != nil {
		w.suggestions(r.Suggestions)
	}
	for _, t := range r.Trades {
		w.trade(t)
	}
	return w.err
}

// textWriter writes until the first error.
type textWriter struct {
	out io.Writer
	err error
}

func (w *textWriter) line(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.out, format+"\n", args...)
	}
}

// some writes a line if its number is not 0.
func (w *textWriter) some(n int64, format string, args ...any) {
	if n > 0 {
		w.line(format, args...)
	}
}

// table writes rows of cells, with numbers aligned to the right.
func (w *textWriter) table(rows [][]string) {
	if w.err != nil {
		return
	}
	t := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for len(row) > 0 && row[len(row)-1] == "" { // which would leave blanks at the line's end
			row = row[:len(row)-1]
		}
		_, _ = fmt.Fprintln(t, strings.Join(row, "\t")) // into memory
	}
	w.err = t.Flush()
}

// files writes what could not be read.
func (w *textWriter) files(r *Report) {
	w.some(r.Unreadable, "%s could not be read:", plural(r.Unreadable, "line", "lines"))
	for _, e := range r.Examples {
		w.line("  %s:%d: %s", e.File, e.Line, e.Why)
	}
	more := r.Unreadable - int64(len(r.Examples))
	w.some(more, "  and %s more", grouped(more))
	w.some(r.Other, "%s came to a limit", plural(r.Other, "line is no request that", "lines are no requests that"))
	late := r.OutOfOrder - r.Crowded
	w.some(late, "%s decided late: begun more than %s before others that were decided already", plural(late, "request was", "requests were"), time.Duration(Window)*time.Microsecond)
	w.some(r.Crowded, "%s decided late: begun before others that were decided already, since more came meanwhile than are kept to be put in order (%s, or %s rules for them)", plural(r.Crowded, "request was", "requests were"), grouped(WindowCount), grouped(windowChecks))
	w.some(r.EndedEarly, "of %s the end was brought forward, since more were under way than are kept", plural(r.EndedEarly, "request", "requests"))
	w.some(r.ClockSteps, "the clock of the log went back %s", plural(r.ClockSteps, "time", "times"))
}

// byRule says how many requests a rule has rejected with another status, according to the log.
func byRule(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", and %s that a rule rejected with another", grouped(n))
}

// besides writes the outcomes other than allowed and rejected.
func besides(soft, delayed int64) string {
	var list string
	if soft > 0 {
		list += fmt.Sprintf(", %s let through by tolerance", grouped(soft))
	}
	if delayed > 0 {
		list += fmt.Sprintf(", %s delayed", grouped(delayed))
	}
	return list
}

// rules writes the table of all rules.
func (w *textWriter) rules(list []RuleReport) {
	rows := [][]string{{"RULE", "LIMIT", "REQUESTS", "CLIENTS", "REJECTED", "", "CLIENTS TOUCHED", "", "NOTES"}}
	for i := range list {
		r := &list[i]
		rows = append(rows, []string{
			r.Name, strings.TrimSpace(r.Limit + " " + strings.TrimSuffix(r.Algorithm, "concurrency")), grouped(r.Requests), grouped(r.Clients),
			grouped(r.Rejected + r.ShadowRejected), percent(r.RejectedShare), grouped(r.Touched), percent(r.TouchedShare), r.notes(),
		})
	}
	w.table(rows)
}

// notes writes in words what the table's columns do not have.
func (r *RuleReport) notes() string {
	var notes []string
	add := func(n int64, format string) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf(format, grouped(n)))
		}
	}
	if r.Enforcement != "hard" {
		notes = append(notes, r.Enforcement)
	}
	add(r.AllowedSoft, "%s by tolerance")
	add(r.Delayed+r.ShadowDelayed, "%s delayed")
	add(r.ForConcurrency, "%s for concurrency")
	add(r.RejectedByOthers, "%s rejected by other rules")
	left := int64(0)
	for _, n := range r.NotReplayed {
		left += n.Requests
	}
	add(left, "%s left out")
	return strings.Join(notes, "; ")
}

// rule writes the worst minutes and keys of a rule.
func (w *textWriter) rule(r *RuleReport) {
	if c := r.Candidate; c != nil {
		w.line("\n%s: its candidate %s would reject %s more, and let %s more through", r.Name, c.Limit, grouped(c.NewlyRejected), grouped(c.NewlyAllowed))
	}
	if len(r.WorstMinutes) == 0 {
		return
	}
	w.line("\n%s: the worst minutes, and the keys most rejected", r.Name)
	rows := [][]string{{"  MINUTE", "REJECTED", "OF", "KEY", "REJECTED", "OF"}}
	for i := range max(len(r.WorstMinutes), len(r.TopKeys)) {
		row := []string{"  ", "", "", "", "", ""}
		if i < len(r.WorstMinutes) {
			m := r.WorstMinutes[i]
			row[0], row[1], row[2] = "  "+clock(m.Start), grouped(m.Rejected), grouped(m.Requests)
		}
		if i < len(r.TopKeys) {
			k := r.TopKeys[i]
			row[3], row[4], row[5] = k.Key, grouped(k.Rejected), grouped(k.Requests)
		}
		rows = append(rows, row)
	}
	w.table(rows)
}

// candidate writes what the candidate would change.
func (w *textWriter) candidate(c *Comparison) {
	w.line("\ncandidate: would reject %s: %s more, and %s fewer", grouped(c.Rejected), grouped(c.NewlyRejected), grouped(c.NewlyAllowed))
	rows := [][]string{{"RULE", "LIMIT", "CANDIDATE", "NEWLY REJECTED", "NEWLY ALLOWED", "CLIENTS NEWLY TOUCHED", "SPARED"}}
	for _, r := range c.Rules {
		touched, spared := grouped(r.NewlyTouched), grouped(r.Spared)
		if !r.SameKeys {
			touched, spared = "other keys", "other keys"
		}
		rows = append(rows, []string{r.Name, shadowed(r.Limit, r.Shadow[0]), shadowed(r.Candidate, r.Shadow[1]), grouped(r.NewlyRejected), grouped(r.NewlyAllowed), touched, spared})
	}
	if len(c.Rules) > 0 {
		w.table(rows)
	}
	w.some(int64(len(c.OnlyNow)), "only now: %s", strings.Join(c.OnlyNow, ", "))
	w.some(int64(len(c.OnlyCandidate)), "only in the candidate: %s", strings.Join(c.OnlyCandidate, ", "))
	for _, r := range c.Rules {
		if len(r.Keys) == 0 {
			continue
		}
		w.line("\n%s: the keys most affected", r.Name)
		rows := [][]string{{"  KEY", "NEWLY REJECTED", "NEWLY ALLOWED"}}
		for _, k := range r.Keys {
			rows = append(rows, []string{"  " + k.Key, grouped(k.NewlyRejected), grouped(k.NewlyAllowed)})
		}
		w.table(rows)
	}
}

// shadowed writes a limit, and whether it is a shadow's.
func shadowed(limit string, shadow bool) string {
	if shadow {
		return limit + " shadow"
	}
	return limit
}

// suggestions writes the limits that were found.
func (w *textWriter) suggestions(list []Suggestion) {
	w.line("\nsuggested: the least limits that would have touched so few clients, each rule by itself")
	rows := [][]string{{"RULE", "NOW", "SUGGESTED", "CLIENTS TOUCHED", "", "OF", "NOTES"}}
	for i := range list {
		s := &list[i]
		touched, share := grouped(s.Touched), percent(s.Share)
		if s.Limit == "" {
			touched, share = "", ""
		}
		rows = append(rows, []string{s.Rule, s.now(), s.suggested(), touched, share, grouped(s.Clients), s.Note})
	}
	w.table(rows)
}

// trade writes the ways to count of which none is better in both respects, beside the rule's own.
func (w *textWriter) trade(t *Trade) {
	if t.Note != "" {
		w.line("\n%s: no other way to count is suggested: %s", t.Rule, t.Note)
	}
	rows := t.choices()
	if len(rows) == 0 {
		return
	}
	one, long := t.periods()
	w.line("\n%s: ways to count, and what they reject of the %s of %s within the limit in the long run", t.Rule, plural(t.Requests, "request", "requests"), plural(t.Legitimate, "client", "clients"))
	w.some(t.OneIn, "of the clients near a limit one in %d was replayed", t.OneIn)
	table := [][]string{{"  COUNTED BY", "REJECTED", "CLIENTS", "PEAK IN 1s", "IN " + one, "IN " + long, "AT MOST IN " + one, ""}}
	for _, way := range rows {
		table = append(table, []string{"  " + way.Counted(), grouped(way.Legitimate), grouped(way.Touched), grouped(way.Second), grouped(way.Peak), grouped(way.Long), grouped(way.AtMost), way.Mark()})
	}
	w.table(table)
	for _, sentence := range t.said() {
		w.line("  %s", sentence)
	}
}

func (s *Suggestion) now() string {
	if s.Of == "concurrency" {
		return "concurrency " + s.Now
	}
	return s.Now
}

// suggested writes the limit, and the burst that belongs to it.
func (s *Suggestion) suggested() string {
	switch {
	case s.Limit == "":
		return "none"
	case s.Of == "concurrency":
		return "concurrency " + s.Limit
	case s.Burst > 0:
		return s.Limit + " burst " + strconv.FormatInt(s.Burst, 10)
	}
	return s.Limit
}

// clock writes a time to the second, in UTC.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

// percent writes a share.
func percent(share float64) string {
	p := share * 100
	switch {
	case p == 0:
		return "0 %"
	case p < 0.01:
		return "<0.01 %"
	case p < 1:
		return strconv.FormatFloat(p, 'f', 2, 64) + " %"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + " %"
}

// plural returns a number with its noun.
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}

// grouped writes a number with a comma between thousands.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
