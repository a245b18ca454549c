package yaml

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core/ruleset"
)

// FuzzDecode checks that no file makes a reader panic, that every problem has its place, and that of what is found right a set can be
// made.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(book))
	f.Add([]byte(strings.Replace(book, "value:", "Value:", 1)))
	f.Add([]byte(laughs()))
	for _, text := range both {
		f.Add([]byte(text))
	}
	for _, text := range []string{
		"rules:\n- name: a\n  limit: 5/1m\n  key: [client_ip, header:X-User]\n  match: {paths: [/a], except_ips: 10.0.0.0/8}\n  overrides: [{key: [192.0.2.1, bob], limit: unlimited}]\n",
		"rules:\n- name: a\n  tiers: {source: header:X-Plan, limits: {free: 5/day, \"*\": 1/week}}\n  time_zone: UTC\n",
		"rules:\n- {name: a, limit: 5/1m, algorithm: token_bucket, burst: 7, refill: interval, cost: 3, ipv4_prefix: 24, enforcement: shadow}\n",
		"rules:\n- {name: a, limit: 9/1m, enforcement: soft 20% 30s, penalty: [1m, 1d], concurrency: 5, candidate: {limit: 8/day, algorithm: fixed_window, time_zone: UTC}}\n- {name: b, concurrency: 5}\n",
		"rules:\n- {name: a, limit: 9/1m, algorithm: token_bucket, on_limit: delay, max_delay: 3s, max_waiting: 50}\n- {name: b, limit: 9/1m, count: [401, 4xx], penalty: 1m 2m}\n",
		"domain: d\ndescriptors:\n- {key: a_b, rate_limit: {unit: day, requests_per_unit: 0}}\n- {key: a, value: b, rate_limit: {unit: day, requests_per_unit: 5, name: n, replaces: [{name: m}]}}\n- {key: a, value: 'b*', share_threshold: true, descriptors: [{key: c, rate_limit: {unlimited: true}}]}\n",
		"a: b\n---\nc: d\n", "a:\n\tb", "? a\n: b", "<<: *x", "&a [*a]", "--- !x\n...\n", "%YAML 1.1\n---\n", "a: |\n x\n#", "? \n", "...", "\ufeff",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		root, problems := Parse("f", data)
		if problems == nil {
			checkNode(t, root)
			if text := string(data); json.Valid(data) {
				checkAlike(t, text)
			}
			var file *ruleset.File
			if file, problems = ruleset.Decode("f", root); problems == nil {
				checkSet(t, data, file)
			}
		}
		for i, p := range problems {
			if p.File != "f" || p.Text == "" || p.Line < 1 && !strings.Contains(p.Text, "values") || p.Line > 2+breaks(data) { // behind the end, where a value is missing
				t.Errorf("problem %d of %q: %s", i, data, p)
			}
		}
	})
}

func checkNode(t *testing.T, n *ruleset.Node) {
	if n.Line < 1 || n.Column < 1 {
		t.Errorf("%+v has no place", n)
	}
	for _, item := range n.Items {
		checkNode(t, item)
	}
	for _, m := range n.Members {
		checkNode(t, m.Key)
		checkNode(t, m.Value)
	}
}

func checkSet(t *testing.T, data []byte, file *ruleset.File) {
	s, err := ruleset.NewSet([]*ruleset.File{file}, "")
	if err != nil {
		t.Fatalf("%q is found right, and refused: %v", data, err)
	}
	identities := make(map[string]bool)
	for _, d := range s.Domains {
		for _, r := range d.Rules() {
			if identities[r.Identity] {
				t.Errorf("%q: two descriptors count as %s", data, r.Identity)
			}
			identities[r.Identity] = true
		}
	}
}
