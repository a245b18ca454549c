package advisor

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/ruleset"
	"github.com/proxyweir/weir/words"
)

// reader reads nodes, and keeps all problems.
type reader struct {
	file     string
	problems ruleset.Problems
}

// field is a field of a map, with what reads its value. An error is about the value; it begins with neither name nor value.
type field struct {
	name string
	read func(n *ruleset.Node) error
}

func (r *reader) fail(n *ruleset.Node, text string) {
	r.problems = append(r.problems, ruleset.Problem{File: r.file, Line: n.Line, Column: n.Column, Text: text})
}

// fields reads a map, and refuses unknown fields. It returns the fields that are written, by their names.
func (r *reader) fields(n *ruleset.Node, what string, fields ...field) map[string]*ruleset.Node {
	set := make(map[string]*ruleset.Node)
	known := make([]string, 0, len(fields))
	for _, f := range fields {
		known = append(known, f.name)
	}
	if n.Kind != ruleset.Map {
		r.fail(n, fmt.Sprintf("%s must be a map with some of %s, not %s", what, strings.Join(known, ", "), n.Kind))
		return set
	}
	for _, member := range n.Members {
		name := member.Key.Value
		i := slices.Index(known, name)
		switch near := words.Nearest(name, known); {
		case i >= 0:
			set[name] = member.Value
			if err := fields[i].read(member.Value); err != nil {
				if member.Value.Value != "" {
					name += " " + strconv.Quote(member.Value.Value)
				}
				r.fail(member.Value, name+": "+err.Error())
			}
		case near != "":
			set[near] = member.Value // so that it is not missing, too
			r.fail(member.Key, fmt.Sprintf("%q is not a field of %s (did you mean %s?)", name, what, near))
		default:
			r.fail(member.Key, fmt.Sprintf("%q is not a field of %s; there are %s", name, what, strings.Join(known, ", ")))
		}
	}
	return set
}

// needs reports a field that is missing.
func (r *reader) needs(n *ruleset.Node, set map[string]*ruleset.Node, name, what string) {
	if set[name] == nil && n.Kind == ruleset.Map {
		r.fail(n, name+": is missing; write "+what)
	}
}

// check reports what is wrong with a field, at its place if it is written, unless ok.
func (r *reader) check(set map[string]*ruleset.Node, name string, ok bool, format string, values ...any) {
	if ok {
		return
	}
	n := set[name]
	if n == nil {
		n = &ruleset.Node{}
	}
	r.fail(n, fmt.Sprintf(format, values...))
}

// value returns a single value. A text that is ${NAME} stands for the variable of the environment.
func value(n *ruleset.Node) (string, error) {
	if n.Kind == ruleset.Null || n.Kind == ruleset.List || n.Kind == ruleset.Map {
		return "", fmt.Errorf("must be one value, not %s", n.Kind)
	}
	name, begins := strings.CutPrefix(n.Value, "${")
	name, ends := strings.CutSuffix(name, "}")
	if !begins || !ends {
		return n.Value, nil
	}
	text, found := os.LookupEnv(name)
	if !found || text == "" {
		return "", fmt.Errorf("the environment has no %s, or an empty one", name)
	}
	return text, nil
}

// read returns a function that reads a single value and gives it to accept.
func read(accept func(text string) error) func(n *ruleset.Node) error {
	return func(n *ruleset.Node) error {
		text, err := value(n)
		if err != nil {
			return err
		}
		return accept(text)
	}
}

// text reads a text.
func (r *reader) text(to *string) func(n *ruleset.Node) error {
	return read(func(text string) error {
		*to = text
		return nil
	})
}

// word reads one of some words.
func (r *reader) word(to *string, known []string) func(n *ruleset.Node) error {
	return read(func(text string) error {
		*to = text
		if !slices.Contains(known, text) {
			return fmt.Errorf("%s", words.OneOf(text, known))
		}
		return nil
	})
}

// wordList reads a list of some words.
func (r *reader) wordList(to *[]string, known []string) func(n *ruleset.Node) error {
	return func(n *ruleset.Node) error {
		if n.Kind != ruleset.List {
			return fmt.Errorf("must be a list of some of %s, not %s", strings.Join(known, ", "), n.Kind)
		}
		for _, item := range n.Items {
			var word string
			if err := r.word(&word, known)(item); err != nil {
				r.fail(item, fmt.Sprintf("%q: %v", item.Value, err))
			}
			*to = append(*to, word)
		}
		return nil
	}
}

// duration reads a duration from least to most, which may have days.
func (r *reader) duration(to *time.Duration, least, most time.Duration) func(n *ruleset.Node) error {
	return read(func(text string) error {
		d, err := core.ParsePeriod(text)
		if err != nil || d < least || d > most {
			return fmt.Errorf("must be a duration from %s to %s, such as 10s, 5m, 24h or 14d", ruleset.Shortly(least), ruleset.Shortly(most))
		}
		*to = d
		return nil
	})
}

// number reads a number from least to most.
func (r *reader) number(to *float64, least, most float64) func(n *ruleset.Node) error {
	return read(func(text string) error {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x >= least && x <= most) {
			return fmt.Errorf("must be a number from %v to %v", least, most)
		}
		*to = x
		return nil
	})
}

// count reads a whole number from 0 to most.
func (r *reader) count(to *int64, most int64) func(n *ruleset.Node) error {
	return read(func(text string) error {
		x, err := strconv.ParseInt(text, 10, 64)
		if err != nil || x < 0 || x > most {
			return fmt.Errorf("must be a whole number from 0 to %d", most)
		}
		*to = x
		return nil
	})
}

// truth reads true or false.
func (r *reader) truth(to *bool) func(n *ruleset.Node) error {
	return read(func(text string) error {
		if text != "true" && text != "false" {
			return fmt.Errorf("must be true or false")
		}
		*to = text == "true"
		return nil
	})
}
