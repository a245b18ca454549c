package ratelimit_test

import (
	"testing"
)

// TestHandlersWithDifferentGuardsShareRuleFiles checks, for a defect, that a request under a rule of a file comes to the guard of its handler, and
// not to that of another handler that reads the file, or to none, which was a panic.
func TestHandlersWithDifferentGuardsShareRuleFiles(t *testing.T) {
	s := startFiles(t, byFiles("")+"\n"+`
		route /g/* {
			rate_limit /g/a {
				rules_file DIR/rules/*.yaml
				guard a
			}
			rate_limit /g/b {
				rules_file DIR/rules/*.yaml
				guard b
			}
			respond ok
		}`, "limits.yaml", rulesOf("{name: api, match: {paths: [/g/a, /g/b]}, limit: 100/366d}", versionOf(1)))
	for n, want := range []map[string]string{{"a": "1", "b": "2"}, {"a": "2", "b": "4"}} {
		if n > 0 {
			s.put("limits.yaml", rulesOf("{name: api, match: {paths: [/g/a, /g/b]}, limit: 101/366d}", versionOf(2)))
			s.awaitVersion(2)
		}
		for _, path := range []string{"/g/a", "/g/b", "/g/b"} {
			s.admit(1, path)
		}
		for guard, count := range want {
			if got := s.metric(`weir_time_to_first_byte_seconds_count{guard="` + guard + `",rule="api"}`); got != count {
				t.Errorf("edit %d: the guard %s has seen %q answers, want %s", n, guard, got, count)
			}
		}
	}
}

// TestGuardsOfANamespaceAndOfItsNameHaveTheirOwnSeries checks, for a defect, that they do not break the page of all metrics.
func TestGuardsOfANamespaceAndOfItsNameHaveTheirOwnSeries(t *testing.T) {
	s := start(t, "metrics", `:PORT {
		metrics /metrics
		rate_limit /x {
			namespace shop
			guard
		}
		rate_limit /y {
			guard shop
		}
	}`)
	for _, guard := range []string{"shop/", "shop"} {
		if got := s.metric(`weir_guard_limit{guard="` + guard + `"}`); got != "128" {
			t.Errorf("the guard %q: limit %q, want 128", guard, got)
		}
	}
}
