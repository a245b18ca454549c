package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
)

// OverflowNotes describes a rule's overflow policy, other than rejecting, which requests it counts, and how nodes share its limit.
func OverflowNotes(text *ruleset.RuleText) []string {
	var notes []string
	if words := strings.Fields(text.Texts["enforcement"]); len(words) > 0 && words[0] == "soft" {
		notes = append(notes, strings.Join(words, " "))
	}
	if word := text.Texts["consistency"]; word != "" {
		notes = append(notes, "consistency "+word)
	}
	for _, list := range []struct{ field, says string }{{"count", "counts "}, {"penalty", "penalty "}} {
		if words := text.Lists[list.field]; len(words) > 0 {
			notes = append(notes, list.says+strings.Join(ruleset.SplitWords(words), " "))
		}
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
	for _, beside := range r.Beside() {
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
	limit, algorithm, _ = strings.Cut(r.Limit.String(), " ")
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
