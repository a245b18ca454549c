package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/manual"
)

// Found by a newcomer: who sent a key twice had no limit under the recipe of docs/keys.md for a service that checks keys itself.
func TestNobodyEscapesTheRecipeForKeysThatTheServiceChecks(t *testing.T) {
	zones := ""
	for _, s := range manual.Snippets(t, "docs/keys.md") {
		if s.Marker == "in: rate_limit" && strings.Contains(s.Text, "zone guesses") {
			zones = strings.ReplaceAll(s.Text, "/1m", "/366d")
		}
	}
	s := start(t, behindProxy, ":PORT {\nrate_limit {\n"+zones+"}\nrespond ok\n}")
	for i, c := range []struct {
		keys    []string // of the request, each in a field of its own
		allowed int
	}{{nil, 20}, {[]string{""}, 20}, {[]string{"", ""}, 20}, {[]string{"sk-acme", "x"}, 20}, {[]string{"sk-acme"}, 100}} {
		fields := []string{"X-Forwarded-For", fmt.Sprint("192.0.2.", i)}
		for _, key := range c.keys {
			fields = append(fields, "X-Api-Key", key)
		}
		s.admit(c.allowed, "/", fields...)
		s.reject("/", fields...)
	}
}
