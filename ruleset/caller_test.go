package ruleset

import "testing"

func TestOfTheCallerIsWhatDoesNotDependOnPathOrMethod(t *testing.T) {
	tiers := func(source string) *Tiers {
		return &Tiers{Source: source, Limits: []Tier{{Value: "*", Limit: "5/1m"}, {Value: "a", Limit: "9/1m"}}}
	}
	for _, c := range []struct {
		text RuleText
		want bool
	}{
		{RuleText{Name: "r", Limit: "5/1m"}, true},
		{RuleText{Name: "r", Limit: "5/1m", Key: []string{"header:X-Key", "host", "query:path"}}, true},
		{RuleText{Name: "r", Limit: "5/1m", Key: []string{"client_ip", "path"}}, false},
		{RuleText{Name: "r", Limit: "5/1m", Key: []string{"method"}}, false},
		{RuleText{Name: "r", Tiers: tiers("header:X-Plan")}, true},
		{RuleText{Name: "r", Tiers: tiers("method")}, false},
	} {
		r, wrong := Compile(&c.text, Context{Name: "r", Prefixes: Standard})
		if len(wrong) > 0 {
			t.Fatal(wrong[0])
		}
		if got := OfTheCaller(r); got != c.want {
			t.Errorf("%+v: %v", c.text, got)
		}
	}
}
