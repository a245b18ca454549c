package ruleset

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"
)

func contentsIn(t testing.TB, name, text string) *Contents {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	contents, problems := Read([]string{name})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return contents
}

// quickly returns what QuickSet and what Parse and NewSet make of a file.
func quickly(t testing.TB, name, text string) (quick, careful *Set, problems Problems) {
	t.Helper()
	contents := contentsIn(t, name, text)
	quick = QuickSet(contents, Context{Namespace: "space"})
	files, problems := Parse(contents, ParseJSON)
	if len(problems) > 0 {
		return quick, nil, problems
	}
	careful, err := NewSet(files, "space")
	if err != nil {
		problems = Problems{{File: name, Text: err.Error()}}
		return quick, nil, problems
	}
	return quick, careful, nil
}

// wordsOf writes a set out, but for lines and columns.
func wordsOf(s *Set) string {
	var b strings.Builder
	for i, r := range s.Rules {
		text := s.Files[0].Rules[i].RuleText
		fmt.Fprintln(&b, r.Name, r.spec, r.Shadow, r.Cost, r.CostFrom, r.SkipMissing, r.RejectMissing, r.Excepts, r.Matcher != nil, adviceOf(r), r.Limits.Single(), text.Texts, text.Lists)
		for _, f := range Schema["rule"] {
			for _, o := range text.Objects[f.Name] {
				pairs := append(append([]Pair(nil), o.Pairs["headers"]...), o.Pairs["limits"]...)
				sort.Slice(pairs, func(i, j int) bool { return pairs[i].Name < pairs[j].Name })
				fmt.Fprintln(&b, f.Name, o.Texts, o.Lists, pairs)
			}
		}
		for _, one := range r.Limits.Rules() {
			fmt.Fprintln(&b, one.Identity, one.Limit.String(), one.CountRejected, one.Limit.Delays, one.Limit.MaxDelay)
			for _, beside := range one.Linked() {
				fmt.Fprintln(&b, beside.Identity, beside.Limit.String(), beside.IsCandidate())
			}
		}
	}
	for _, d := range s.Domains {
		for _, r := range d.Rules() {
			fmt.Fprintln(&b, r.Identity, r.Limit, r.Shadow, r.Blocks())
		}
	}
	return b.String()
}

// The files that QuickSet takes, and those that it leaves to Parse.
var quickFiles = []struct {
	text  string
	taken bool
}{
	{`{"rules": [{"name": "a", "limit": "1/1m"}, {"name": "b", "limit": "1/1m"}, {"name": "c", "limit": "2/1m", "key": "path"}]}`, true},
	{`{"rules": [{"name": "a", "limit": "9/1m", "algorithm": "token_bucket", "burst": 20, "count_rejected": true, "cost": 2, "ipv4_prefix": 24, "key": ["client_ip", "header:X-A"], "match": {"methods": "GET", "hosts": ["h.example"], "path_prefixes": ["/a"], "headers": {"X-B": "b"}, "except_ips": ["10.0.0.0/8"]}}]}`, true},
	{`{"rules": [{"name": "a", "limit": "9/1m", "enforcement": "shadow", "on_error": "open", "on_missing_key": "skip"}, {"name": "b", "limit": "9/1m", "enforcement": "shadow", "on_error": "open", "on_missing_key": "skip"}, {"name": "c", "limit": "9/1m"}]}`, true},
	{`{"rules": [{"name": "a", "tiers": {"source": "header:X-Plan", "limits": {"free": "1/1m", "*": "unlimited"}}, "overrides": [{"key": "192.0.2.1", "limit": "9/1m"}]}]}`, true},
	{`{"rules": [{"name": "a", "limit": "9/1m", "enforcement": "soft 20% 30s", "penalty": ["1m", "1d"], "concurrency": 5}, {"name": "b", "limit": "9/1m", "enforcement": "soft 20% 30s", "penalty": ["1m", "1d"], "concurrency": 5}, {"name": "c", "limit": "9/1m", "penalty": "1m 2m"}]}`, true},
	{`{"rules": [{"name": "a", "limit": "9/1m", "count": [401, "4xx"]}, {"name": "b", "limit": "9/1m", "count": 401}, {"name": "c", "limit": "9/1m", "count": ["401"]}]}`, true},
	{`{"rules": [{"name": "a", "limit": "9/1m", "algorithm": "token_bucket", "on_limit": "delay", "max_delay": "3s", "max_waiting": 7, "max_waiting_per_key": 3}, {"name": "b", "limit": "9/1m", "algorithm": "token_bucket", "on_limit": "delay", "max_delay": "4s", "max_waiting": 7}]}`, true},
	{`{"rules": [{"name": "a", "concurrency": 5}, {"name": "b", "concurrency": 6}, {"name": "c", "concurrency": 5}]}`, true},
	{`{"rules": [{"name": "a", "limit": "9/1m", "candidate": {"limit": "8/day", "algorithm": "fixed_window", "time_zone": "UTC"}}, {"name": "b", "limit": "9/1m", "candidate": {"limit": "8/1m", "algorithm": "token_bucket", "burst": 3, "refill": "interval"}}]}`, true},
	{`{"rules": [{"name": "a", "limit": "9/1m", "candidate": {"limit": "9/1m"}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "candidate": {"limits": "8/1m"}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "candidate": "8/1m"}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "candidate": {"limit": ["8/1m"]}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "algorithm": "token_bucket", "refill": "interval", "ipv6_prefix": 48}, {"name": "b", "limit": "9/day", "time_zone": "Europe/Berlin"}]}`, true},
	{`{"rules": [{"name": "a", "limit": "9/1m", "match": {"headers": "X-A"}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "match": {"path": "/a"}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "match": {"paths": {}}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "match": {"paths": ["/a", {}]}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "match": {"paths": []}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "match": ["/a"]}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "match": {}}]}`, false},
	{`{"rules": [{"name": "a", "tiers": "9/1m"}]}`, false},
	{`{"rules": [{"name": "a", "tiers": {"source": [], "limits": {"*": "9/1m"}}}]}`, false},
	{`{"rules": [{"name": "a", "tiers": {"source": "path", "limits": "9/1m"}}]}`, false},
	{`{"rules": [{"name": "a", "tiers": {"source": "path", "limit": {"*": "9/1m"}}}]}`, false},
	{`{"rules": [{"name": "a", "tiers": {"source": "path", "limits": {"*": {}}}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "overrides": {"key": "192.0.2.1", "limit": "5/1m"}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "overrides": ["192.0.2.1"]}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "overrides": [{"key": "192.0.2.1"}]}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "overrides": [{"key": "192.0.2.1", "limit": "5/1m", "x": "y"}]}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "overrides": [{"key": "192.0.2.1", "limits": "5/1m"}]}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "overrides": [{"keys": "192.0.2.1", "limit": "5/1m"}]}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "overrides": [{"key": {}, "limit": "5/1m"}]}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "overrides": [{"key": "192.0.2.1", "limit": {}}]}]}`, false},
	{`{"domain": "d", "descriptors": ` + strings.Repeat(`[`, 2*MaxNesting) + strings.Repeat(`]`, 2*MaxNesting) + `}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m"}], "domains": "d"}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "match": {"headers": ["X-A"]}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "match": {"headers": {"X-A": ["b"]}}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "count": []}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "penalty": {}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "max_waiting": 7}]}`, false},
	{`{"rules": [{"name": "a", "limit": "9/1m", "concurrency": 0}]}`, false},
	{`{"rules": [{"name": "a", "limit": "unlimited"}, {"name": "b", "limit": "unlimited", "match": null}]}`, false},
	{`{"domain": "d", "descriptors": [{"key": "a", "value": "b", "rate_limit": {"unit": "day", "requests_per_unit": 5}, "descriptors": [{"key": "c", "shadow_mode": true, "rate_limit": {"unit": "year", "requests_per_unit": 0}}]}]}`, true},
	{`{"domain": "d"}`, true},
	{`{"rules": [{"name": "\u0061", "limit": "1/1m"}]}`, false}, // right, but not plain
	{`{"rules": [{"name": "a", "name": "b", "limit": "1/1m"}]}`, false},
	{`{"rules": [{"name": "a", "limit": "1/1m"}], "rules": [{"name": "a", "limit": "1/1m"}]}`, false},
	{`{"rules": [{"name": "a", "limit": "1/1m"}, {"name": "a", "limit": "1/1m"}]}`, false},
	{`{"rules": [{"Name": "a", "limit": "1/1m"}]}`, false},
	{`{"rules": [{"name": "a", "limit": "1/1m", "burst": 2}]}`, false},
	{`{"rules": [{"name": "a", "limit": "1/1m", "x": null}]}`, false},
	{`{"rules": [{"name": "a", "limit": ""}]}`, false},
	{`{"rules": [{"name": "a", "limit": "1/1m", "key": []}]}`, false},
	{`{"rules": [{"name": "a b", "limit": "1/1m"}]}`, false},
	{`{"rules": []}`, false},
	{`{"rules": [{"name": "a", "limit": "1/1m"}, {"name": "b", "limit": "1/1m", "match": {"paths": ["x"]}}]}`, false},
	{`{"rules": [{"name": "a", "limit": "1/1m"}]} x`, false},
	{`{"domain": "d", "descriptors": [{"key": "a"}, {"key": "a"}]}`, false},
	{`{}`, false},
	{`[]`, false},
	{`null`, false},
	{``, false},
}

func TestQuickSetTakesWhatIsPlainlyRight(t *testing.T) {
	name := t.TempDir() + "/rules.json"
	for _, file := range quickFiles {
		quick, careful, problems := quickly(t, name, file.text)
		if (quick != nil) != file.taken {
			t.Errorf("%s: taken %v, want %v (%v)", file.text, quick != nil, file.taken, problems)
			continue
		}
		if quick == nil {
			continue
		}
		if careful == nil {
			t.Errorf("%s: taken, though %v", file.text, problems)
			continue
		}
		if got, want := wordsOf(quick), wordsOf(careful); got != want {
			t.Errorf("%s: is\n%s, want\n%s", file.text, got, want)
		}
		checkRules(t, quick)
	}
}

// checkRules makes sure that the rules of a set are what each of them comes to by itself.
func checkRules(t *testing.T, s *Set) {
	t.Helper()
	for i, r := range s.Rules {
		alone, errors := Compile(&s.Files[0].Rules[i].RuleText, Context{Namespace: "space", Prefixes: Standard})
		if len(errors) > 0 || !alone.Limits.Same(r.Limits) {
			t.Errorf("rule %q is not what it is by itself: %v", r.Name, errors)
		}
	}
}

func FuzzQuickSetTakesNothingElseThanParse(f *testing.F) {
	for _, file := range quickFiles {
		f.Add(file.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quick, careful, problems := quickly(t, t.TempDir()+"/rules.json", text)
		if quick == nil {
			return
		}
		if careful == nil {
			t.Fatalf("%q: taken, though %v", text, problems)
		}
		if got, want := wordsOf(quick), wordsOf(careful); got != want {
			t.Errorf("%q: is\n%s, want\n%s", text, got, want)
		}
		checkRules(t, quick)
	})
}
