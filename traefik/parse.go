package traefik

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/ruleset"
)

// parseBool reads true or false. (The decoder makes 1 and 0 of a boolean.)
func parseBool(field, value string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "true", "1":
		return true, nil
	case "false", "0", "":
		return false, nil
	}
	return false, fmt.Errorf("%s %q: must be true or false", field, value)
}

// parseNumber reads a whole number from least to most, or takes the standard one where there is none.
func parseNumber(field, value string, least, most, standard int64) (int64, error) {
	text := strings.TrimSpace(value)
	if text == "" {
		return standard, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s %q: must be a whole number from %d to %d", field, value, least, most)
	}
	return n, nil
}

// parseDuration reads a duration from least to most, or takes the standard one where there is none.
func parseDuration(field, value string, least, most, standard time.Duration) (time.Duration, error) {
	text := strings.TrimSpace(value)
	if text == "" {
		return standard, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		return 0, fmt.Errorf("%s %q: must be a duration from %s to %s", field, value, ruleset.Shortly(least), ruleset.Shortly(most))
	}
	return d, nil
}

// trimmed returns a list without the spaces around its members: lists are often written "a, b".
func trimmed(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, strings.TrimSpace(s))
	}
	return out
}

// ourWords puts a message of core or ruleset into the names that settings have here.
var ourWords = newWords()

func newWords() *strings.Replacer {
	var names []string
	for object := range ruleset.Schema {
		names = append(names, ruleset.Names(object)...)
	}
	sort.Sort(sort.Reverse(sort.StringSlice(names))) // of two of which one begins with the other, the longer first
	pairs := []string{"have request_header set a field to it, and take header:NAME", "write header:NAME for a field", "key_secret", "keySecret", "plain_keys", "plainKeys"}
	for _, name := range names {
		if strings.IndexByte(name, '_') > 0 {
			pairs = append(pairs, name, ruleset.CamelCase(name))
		}
	}
	return strings.NewReplacer(pairs...)
}
