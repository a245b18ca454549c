package ruleset

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func byPath(i int) string   { return `"paths": ["/p` + strconv.Itoa(i) + `"]` }
func byPrefix(i int) string { return `"path_prefixes": ["/v1/p` + strconv.Itoa(i) + `"]` }
func byHost(i int) string   { return `"hosts": ["h` + strconv.Itoa(i) + `.example.com"]` }
func byHeader(i int) string { return `"headers": {"X-Tenant": "` + strconv.Itoa(i) + `"}` }

// manyRules has many rules, each of other requests.
func manyRules(many int, by func(i int) string) string {
	items := make([]string, 0, many)
	for i := 0; i < many; i++ {
		items = append(items, `{"name": "r`+strconv.Itoa(i)+`", "limit": "100/1m", "match": {`+by(i)+`}}`)
	}
	return `{"rules": [` + strings.Join(items, ",\n") + `]}`
}

func TestAFewAndManyRulesCoverTheSame(t *testing.T) {
	for _, many := range []int{1, fewRules, fewRules + 1, 50} {
		s := setOf(t, manyRules(many, byPrefix))
		must.Equal(t, (s.index == nil), many <= fewRules, "%d rules: an index %v", many, s.index != nil)
		for i := 0; i < many; i++ {
			r := &http.Request{URL: &url.URL{Path: fmt.Sprintf("/v1/p%d/users", i)}}
			covers := ""
			for _, at := range s.Covering(r, []int{77}[:0]) {
				if s.Rules[at].Matcher.Covers(r, "") {
					covers += s.Rules[at].Name
				}
			}
			must.Equal(t, covers, "r"+strconv.Itoa(i), "of %d, request %d is covered by", many, i)
		}
	}
}

func TestASetHasTheRulesOfAllFiles(t *testing.T) {
	one := accepted(t, `{"rules": [{"name": "a", "limit": "5/1m"}, {"name": "b", "limit": "unlimited"}], "domain": "d", "descriptors": [{"key": "k", "rate_limit": {"unit": "day", "requests_per_unit": 5}}]}`)
	two := accepted(t, `{"rules": [{"name": "c", "tiers": {"source": "header:X-Plan", "limits": {"pro": "9/1m", "*": "5/1m"}}}]}`)
	s, err := NewSet([]*File{one, two}, "space")
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, r := range s.All() {
		if r.Namespace != "space" {
			t.Errorf("%s is in %q", r.Name(), r.Namespace)
		}
		names += r.Name() + " "
	}
	if len(s.Rules) != 3 || names != "a c c d.k " {
		t.Errorf("%d rules, %s", len(s.Rules), names)
	}
	want := `f:1:12: rule "c": tiers: the header X-Plan is what the client sends, so that it can choose its own limit; have the proxy set it to what it knows, or delete it from requests`
	if advice := strings.Join(s.Advice(), "\n"); advice != want {
		t.Errorf("\n got %s\nwant %s", advice, want)
	}
}
