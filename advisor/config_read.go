package advisor

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// reader reads nodes, and keeps all problems.
type reader struct {
	file     string
	problems ruleset.Problems
}

// field is a field of a map. What it is read into says its kind: a *string, *int64, *float64, *bool, *time.Duration, *[]string, or a function that reads the
// node itself and returns an error about the value.
type field struct {
	name        string
	to          any
	least, most float64  // of a number; of a duration in seconds
	words       []string // nil: any text
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
			if err := r.read(&fields[i], member.Value); err != nil {
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

// read reads a field.
func (r *reader) read(f *field, n *ruleset.Node) error {
	if own, ok := f.to.(func(n *ruleset.Node) error); ok {
		return own(n)
	}
	if list, ok := f.to.(*[]string); ok {
		if n.Kind != ruleset.List {
			return fmt.Errorf("must be a list of some of %s, not %s", strings.Join(f.words, ", "), n.Kind)
		}
		for _, item := range n.Items {
			one := field{to: new(string), words: f.words}
			if err := r.read(&one, item); err != nil {
				r.fail(item, fmt.Sprintf("%q: %v", item.Value, err))
			}
			*list = append(*list, *one.to.(*string))
		}
		return nil
	}
	text, err := value(n)
	if err != nil {
		return err
	}
	within := func(x float64) bool { return err == nil && x >= f.least && x <= f.most }
	switch to := f.to.(type) {
	case *string:
		*to = text
		if f.words != nil && !slices.Contains(f.words, text) {
			return words.OneOf("", "", text, f.words)
		}
	case *time.Duration:
		var d time.Duration
		if d, err = rate.ParsePeriod(text); !within(d.Seconds()) {
			return fmt.Errorf("must be a duration from %s to %s, such as 10s, 5m, 24h or 14d", ruleset.Shortly(seconds(f.least)), ruleset.Shortly(seconds(f.most)))
		}
		*to = d
	case *float64:
		if *to, err = strconv.ParseFloat(text, 64); !within(*to) {
			return fmt.Errorf("must be a number from %v to %v", f.least, f.most)
		}
	case *int64:
		if *to, err = strconv.ParseInt(text, 10, 64); !within(float64(*to)) {
			return fmt.Errorf("must be a whole number from %.0f to %.0f", f.least, f.most)
		}
	case *bool:
		*to = text == "true"
		if !*to && text != "false" {
			return fmt.Errorf("must be true or false")
		}
	}
	return nil
}

// seconds returns a duration of so many seconds.
func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
