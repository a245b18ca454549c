// Package describe says what rules and keys are to people who operate a proxy: the rows of a table, short notes, and keys without the secrets in them.
// Compiled programs alone use it.
package describe

import (
	"fmt"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
)

// EnforcementOf returns a rule's enforcement as it is written; the default is hard.
func EnforcementOf(written string) string {
	if written == "" {
		return "hard"
	}
	return written
}

// OverflowNotes describes a rule's overflow policy, other than rejecting, which requests it counts, and how nodes share its limit.
func OverflowNotes(text *ruleset.RuleText) []string {
	var notes []string
	if words := strings.Fields(text.Texts["enforcement"]); len(words) > 0 && words[0] == "soft" {
		notes = append(notes, strings.Join(words, " "))
	}
	if from := ruleset.One(text, "limit_from"); from != nil {
		note := "limit from " + from.Texts["source"]
		if max := from.Texts["max"]; max != "" {
			note += ", max " + max
		}
		notes = append(notes, note)
	}
	for _, field := range []string{"consistency", "respect_upstream"} {
		if word := text.Texts[field]; word != "" {
			notes = append(notes, field+" "+word)
		}
	}
	for _, list := range []struct{ field, says string }{{"count", "counts "}, {"cost_response", "charges "}, {"penalty", "penalty "}} {
		if words := text.Lists[list.field]; len(words) > 0 {
			notes = append(notes, list.says+strings.Join(ruleset.SplitWords(words), " "))
		}
	}
	if ruleset.One(text, "count_match") != nil {
		notes = append(notes, "count_match")
	}
	return notes
}

// LimitNotes describes what a limit has besides its numbers.
func LimitNotes(r *core.Rule) []string {
	var notes []string
	if zone := r.Limit.TimeZone(); zone != "" {
		notes = append(notes, "time_zone "+zone)
	}
	if l := r.Limit; l.Delays {
		notes = append(notes, fmt.Sprintf("delays up to %s", time.Duration(l.MaxDelay)*time.Microsecond))
	}
	for _, beside := range r.Linked() {
		if beside.IsCandidate() {
			notes = append(notes, "candidate "+beside.Limit.String())
		} else {
			notes = append(notes, beside.Limit.String()) // for example concurrency 5
		}
	}
	return notes
}

// WrittenLimit returns a limit as it is written, and its algorithm; nil is unlimited.
func WrittenLimit(r *core.Rule) (limit, algorithm string) {
	if r == nil {
		return ruleset.Unlimited, ""
	}
	limit = r.Limit.Written()
	algorithm = strings.TrimPrefix(r.Limit.String(), limit+" ")
	if r.Blocks() {
		limit = "0" + strings.TrimPrefix(limit, "1")
	}
	if l := r.Limit; l.InFlight {
		return fmt.Sprint(l.Requests), l.Algorithm.String()
	}
	return limit, algorithm
}

// LimitOf returns the limit that a rule's message names: its own, or if it has none, any other.
func LimitOf(l *core.Limits) *rate.Limit {
	if own := l.Own(); own != nil {
		return own.Limit
	}
	return l.Rules()[0].Limit
}

// Count writes a number of things: "1 rule", "2 rules".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
