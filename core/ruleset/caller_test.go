package ruleset

import "testing"

func TestOfTheCallerIsWhatDoesNotDependOnPathOrMethod(t *testing.T) {
	tiers := func(source string) *writtenTiers {
		return &writtenTiers{source: source, limits: []Pair{{"*", "5/1m"}, {"a", "9/1m"}}}
	}
	for _, c := range []struct {
		text written
		want bool
	}{
		{written{Name: "r", Limit: "5/1m"}, true},
		{written{Name: "r", Limit: "5/1m", Key: []string{"header:X-Key", "host", "query:path"}}, true},
		{written{Name: "r", Limit: "5/1m", Key: []string{"client_ip", "path"}}, false},
		{written{Name: "r", Limit: "5/1m", Key: []string{"method"}}, false},
		{written{Name: "r", Limit: "5/1m", Key: []string{"path_segment:2"}}, false},
		{written{Name: "r", Limit: "5/1m", Key: []string{"client_ip", "path_regexp:^/(a)"}}, false},
		{written{Name: "r", Limit: "5/1m", Key: []string{"first(header:X-User, client_ip)", "unverified_jwt_claim:sub", "client_cert:subject"}}, true},
		{written{Name: "r", Limit: "5/1m", Key: []string{"first(header:X-User, path)"}}, false},
		{written{Name: "r", Tiers: tiers("header:X-Plan")}, true},
		{written{Name: "r", Tiers: tiers("method")}, false},
	} {
		r, wrong := Compile(textOf(c.text), Context{Name: "r", Prefixes: Standard})
		if len(wrong) > 0 {
			t.Fatal(wrong[0])
		}
		if got := OfTheCaller(r); got != c.want {
			t.Errorf("%+v: %v", c.text, got)
		}
	}
}
