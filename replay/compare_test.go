package replay

import (
	"reflect"
	"strings"
	"testing"
)

func TestACandidateIsComparedRuleByRuleAndKeyByKey(t *testing.T) {
	var hits []hit
	for i := range 6 {
		hits = append(hits, hit{end: float64(i), client: "192.0.2.1"})
	}
	hits = append(hits, each("192.0.2.2", 10, 11, 12)...)
	hits = append(hits, hit{end: 20, client: "192.0.2.3", path: "/a"}, hit{end: 21, client: "192.0.2.3", path: "/a"})
	r, _ := run(t, Config{
		Rules: filesOf(t, rulesOf("{name: lower, limit: 5/1m}", "{name: raised, match: {paths: [/a]}, limit: 1/1m}",
			"{name: keyed, key: path, limit: 100/1m}", "{name: old, limit: 100/1m}")),
		Candidate: filesOf(t, rulesOf("{name: keyed, key: method, limit: 100/1m}", "{name: new, limit: 100/1m}", "{name: raised, match: {paths: [/a]}, limit: 2/1m}",
			"{name: lower, limit: 2/1m}")),
		Logs: []string{logIn(t, "a.log", linesOf(hits...))},
	})
	c := r.Candidate
	if r.Rejected != 2 || c.Rejected != 5 || c.NewlyRejected != 4 || c.NewlyAllowed != 1 {
		t.Errorf("now %d; candidate %d, %d more and %d fewer", r.Rejected, c.Rejected, c.NewlyRejected, c.NewlyAllowed)
	}
	want := []RuleComparison{
		{"lower", "5/1m", "2/1m", 4, 0, [2]bool{}, true, 1, 0, []KeyChange{{"192.0.2.1", 3, 0}, {"192.0.2.2", 1, 0}}},
		{"raised", "1/1m", "2/1m", 0, 1, [2]bool{}, true, 0, 1, []KeyChange{{"192.0.2.3", 0, 1}}},
		{"keyed", "100/1m", "100/1m", 0, 0, [2]bool{}, false, 0, 0, []KeyChange{}},
	}
	if !reflect.DeepEqual(c.Rules, want) {
		t.Errorf("%+v, want\n%+v", c.Rules, want)
	}
	if !reflect.DeepEqual(c.OnlyNow, []string{"old"}) || !reflect.DeepEqual(c.OnlyCandidate, []string{"new"}) || len(c.Report) != 4 {
		t.Errorf("only now %q, only in the candidate %q, %d rules", c.OnlyNow, c.OnlyCandidate, len(c.Report))
	}
}

// A shadow rejects nobody: what is compared is what clients meet, and of two shadows what they would reject.
func TestAShadowIsComparedByWhatClientsMeet(t *testing.T) {
	const hard, shadow, looser = "{name: p, limit: 1/1m}", "{name: p, limit: 1/1m, enforcement: shadow}", "{name: p, limit: 2/1m, enforcement: shadow}"
	log := logIn(t, "a.log", linesOf(append(each("192.0.2.1", 0, 1, 2), each("192.0.2.2", 3)...)...))
	for _, test := range []struct {
		name, now, candidate string
		more, fewer          int64
		want                 RuleComparison
		text                 string
	}{
		{"out of the shadow", shadow, hard, 2, 0, RuleComparison{"p", "1/1m", "1/1m", 2, 0, [2]bool{true, false}, true, 1, 0, []KeyChange{{"192.0.2.1", 2, 0}}},
			"p     1/1m shadow  1/1m       2 "},
		{"into the shadow", hard, shadow, 0, 2, RuleComparison{"p", "1/1m", "1/1m", 0, 2, [2]bool{false, true}, true, 0, 1, []KeyChange{{"192.0.2.1", 0, 2}}},
			"p     1/1m   1/1m shadow  0 "},
		{"today's in shadow, the other looser and in shadow", shadow, looser, 0, 0, RuleComparison{"p", "1/1m", "2/1m", 0, 1, [2]bool{true, true}, true, 0, 0, []KeyChange{{"192.0.2.1", 0, 1}}},
			"p     1/1m shadow  2/1m shadow  0 "},
		{"a looser shadow taken out", looser, hard, 2, 0, RuleComparison{"p", "2/1m", "1/1m", 2, 0, [2]bool{true, false}, true, 1, 0, []KeyChange{{"192.0.2.1", 2, 0}}},
			"p     2/1m shadow  1/1m       2 "},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, _ := run(t, Config{Rules: filesOf(t, rulesOf(test.now)), Candidate: filesOf(t, rulesOf(test.candidate)), Logs: []string{log}})
			c := r.Candidate
			if c.NewlyRejected != test.more || c.NewlyAllowed != test.fewer || !reflect.DeepEqual(c.Rules, []RuleComparison{test.want}) {
				t.Errorf("%d more, %d fewer, %+v; want %d, %d, %+v", c.NewlyRejected, c.NewlyAllowed, c.Rules, test.more, test.fewer, test.want)
			}
			if text := reportsOf(t, r)["text"]; !strings.Contains(text, test.text) {
				t.Errorf("there is no %q in\n%s", test.text, text)
			}
		})
	}
}

func TestACandidateThatIsTheSameChangesNothing(t *testing.T) {
	r, _ := run(t, Config{Rules: filesOf(t, threeRules), Candidate: filesOf(t, threeRules), Logs: []string{writeTraffic(t, "a.log", "caddy", 20000, 100)}})
	c := r.Candidate
	if c.NewlyRejected+c.NewlyAllowed != 0 || c.Rejected != r.Rejected || r.Rejected == 0 || !reflect.DeepEqual(c.Report[0].TopKeys, r.Rules[0].TopKeys) {
		t.Errorf("%+v", c)
	}
}
