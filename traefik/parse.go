package traefik

import (
	"errors"
	"strings"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// trimmed returns a list without the spaces around its members: lists are often written "a, b".
func trimmed(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, strings.TrimSpace(s))
	}
	return out
}

// ourWords returns an error with the names that settings have in Traefik.
func ourWords(m *words.Mistake) error { return errors.New(m.In(ourName)) }

// ourName is what Traefik calls a setting, or else says in its own way, for words.Mistake.
func ourName(name string) string {
	if name == "have request_header set a field to it, and take header:NAME" {
		return "write header:NAME for a field"
	}
	return ruleset.CamelCase(name)
}
