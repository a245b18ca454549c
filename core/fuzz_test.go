//go:build gc
// +build gc

package core

// Yaegi leaves this file out: it cannot fuzz.

import (
	"strings"
	"testing"
)

func FuzzParseResponseCost(f *testing.F) {
	for _, s := range []string{"bytes", "header X-Cost", "trailer x", "json usage.total_tokens", "json 'a.b'.0.'c d'", "json '", "json a.", "json 'é'.b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cost, err := ParseResponseCost([]string{text})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "cost_response ") {
				t.Errorf("%q: the error does not say its subject: %v", text, err)
			}
			return
		}
		again, err := ParseResponseCost([]string{cost.String()})
		if err != nil || again.String() != cost.String() || strings.Join(again.Path(), "\n") != strings.Join(cost.Path(), "\n") {
			t.Fatalf("%q is written %q, which is read as %v, %v", text, cost, again, err)
		}
	})
}
