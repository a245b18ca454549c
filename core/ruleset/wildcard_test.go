package ruleset

import (
	"fmt"
	"math/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/tools/must"
)

// matches is the oracle of the tests: whether a value is what a wildcard says, byte by byte, in every way that there is.
func matches(wildcard, value string) bool {
	ends := make([]bool, len(value)+1) // where in the value the wildcard, as far as it was read, can end
	ends[0] = true
	for i := 0; i < len(wildcard); i++ {
		next := make([]bool, len(value)+1)
		for at := range ends {
			switch {
			case wildcard[i] == '*':
				next[at] = ends[at] || at > 0 && next[at-1]
			case at > 0 && value[at-1] == wildcard[i]:
				next[at] = ends[at-1]
			}
		}
		ends = next
	}
	return ends[len(value)]
}

// fitting reports what the look-up makes of a wildcard and a value.
func fitting(wildcard, value string) bool {
	prefix, more := splitWildcard(wildcard)
	return strings.HasPrefix(value, prefix) && (more == nil || fits(more, value[len(prefix):]))
}

func TestAStarStandsForAnyTextWhereverItIs(t *testing.T) {
	for _, c := range []struct {
		wildcard string
		fit, not []string
	}{
		{"*", []string{"", "x", "*"}, nil},
		{"**", []string{"", "x"}, nil},
		{"x*", []string{"x", "xy", "x*"}, []string{"", "y", "yx", "X"}},
		{"*y", []string{"y", "xy", "yy", "*y"}, []string{"", "x", "yx"}},
		{"x*y", []string{"xy", "x1y", "xyy", "xxy"}, []string{"x", "y", "xyx", "yxy", "xY"}},
		{"ab*ba", []string{"abba", "ab-ba", "abaabba"}, []string{"aba", "abb", "ab", ""}}, // what is in front and behind does not overlap
		{"x*y*", []string{"xy", "x1y2", "xyx"}, []string{"x", "x1", "yx"}},
		{"*y*", []string{"y", "xyx"}, []string{"", "x"}},
		{"x**y", []string{"xy", "x1y"}, []string{"x"}},
		{"/api/*/action", []string{"/api/7/action", "/api//action", "/api/a/b/action", "/api/action/action"}, []string{"/api/action", "/api/7/actions", "/api/7", "api/7/action", "/API/7/action"}},
		{"a*bc*bd", []string{"abcbd", "abbcbcbd", "abcbcbd"}, []string{"abcb", "abd", "abdbc"}},
		{"a*aa*a", []string{"aaaa", "aaaaa"}, []string{"aaa"}},
		{"é*ü", []string{"éü", "éxü"}, []string{"é", "eü"}},
	} {
		for _, value := range c.fit {
			if !fitting(c.wildcard, value) {
				t.Errorf("%q does not fit %q", c.wildcard, value)
			}
		}
		for _, value := range c.not {
			if fitting(c.wildcard, value) {
				t.Errorf("%q fits %q", c.wildcard, value)
			}
		}
		for _, value := range append(c.fit, c.not...) {
			must.Equal(t, fitting(c.wildcard, value), matches(c.wildcard, value), "the oracle says otherwise of %q and %q", c.wildcard, value)
		}
	}
}

func TestWildcardsFitWhatTheOracleSays(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	some := func(letters string, most int) string {
		var b strings.Builder
		for n := r.Intn(most + 1); n > 0; n-- {
			b.WriteByte(letters[r.Intn(len(letters))])
		}
		return b.String()
	}
	many := 200_000
	if interpreted {
		many = 2_000
	}
	fit := 0
	for i := 0; i < many; i++ {
		wildcard := some("ab**", 8) + "*" + some("ab*", 3)
		value := some("ab", 12)
		want := matches(wildcard, value)
		if got := fitting(wildcard, value); got != want {
			t.Fatalf("%q and %q: %v", wildcard, value, got)
		}
		if want {
			fit++
		}
	}
	if fit < many/20 || fit > many*19/20 {
		t.Errorf("%d of %d fit: the rest is hardly tried", fit, many)
	}
}

// A client chooses the value, and an operator how many * there are: a matcher that goes back would try more ways here than there is time
// for.
func TestManyStarsAreNoWorkForTheMatcher(t *testing.T) {
	stars := strings.Repeat("*a", 20_000)
	value := strings.Repeat("a", 1_000_000)
	if fitting(stars+"*b", value) {
		t.Error("without a b it fits")
	}
	if fitting(stars+"*b*a", value) {
		t.Error("without a b in it it fits")
	}
	if !fitting(stars, value) || !fitting(stars+"*", value) {
		t.Error("it does not fit")
	}
	if !fitting(strings.Repeat("*", 1_000_000)+"b", value+"b") {
		t.Error("nothing but * does not fit")
	}
}

const perMinute = `"rate_limit": {"unit": "minute", "requests_per_unit": 5}`

// As in Envoy's service: the value itself goes before all wildcards, the first wildcard that fits before the others, and each before
// the key alone; wherever the * stands, and at every depth.
func TestAStarAnywhereInAValueIsAWildcard(t *testing.T) {
	d := domainOf(t, `{"domain": "d", "descriptors": [
	{"key": "path", `+perMinute+`},
	{"key": "path", "value": "/api/*/action", `+perMinute+`},
	{"key": "path", "value": "/api/*", `+perMinute+`},
	{"key": "path", "value": "*/action", `+perMinute+`},
	{"key": "path", "value": "/api/7/action", `+perMinute+`},
	{"key": "shared", "value": "x*y*", "share_threshold": true, `+perMinute+`, "descriptors": [{"key": "u", "value": "*z", `+perMinute+`}]},
	{"key": "tenant", "value": "t*prod", "share_threshold": true, "descriptors": [
		{"key": "resource", "value": "res*v2", "share_threshold": true, `+perMinute+`},
		{"key": "resource", "value": "*v2", `+perMinute+`}]},
	{"key": "tenant", "value": "*prod", "descriptors": [{"key": "resource", "value": "*v2", "share_threshold": true, `+perMinute+`}]}]}`)
	var l Lookup
	for _, c := range []struct{ request, want string }{
		{"path=/api/7/action", "d.path__api_7_action~"},
		{"path=/api/8/action", "d.path__api___action~ [/api/8/action]"},
		{"path=/api/9/action", "d.path__api___action~ [/api/9/action]"},
		{"path=/api/8/actions", "d.path__api__~ [/api/8/actions]"},
		{"path=/api/action", "d.path__api__~ [/api/action]"}, // the first that fits
		{"path=/other/action", "d.path___action~ [/other/action]"},
		{"path=/other", "d.path [/other]"},
		{"path=/api/*/action", "d.path__api___action~ [/api/*/action]"},
		{"shared=xy", "d.shared_x_y_~"},
		{"shared=x1y2", "d.shared_x_y_~"},
		{"shared=x1y2, shared=x3y", "d.shared_x_y_~ x2"},
		{"shared=x*y*", "d.shared_x_y_~"}, // the value itself
		{"shared=x", ""},
		{"shared=x1y2 u=wz", "d.shared_x_y_.u__z~ [wz]"},
		{"shared=x1y2 u=w", ""},
		{"tenant=t1prod resource=res1v2", "d.tenant_t_prod.resource_res_v2~"},
		{"tenant=t2prod resource=res2v2", "d.tenant_t_prod.resource_res_v2~"},
		{"tenant=t2prod resource=2v2", "d.tenant_t_prod.resource__v2~ [2v2]"},
		{"tenant=t2prod resource=2v3", ""}, // no way back to the other tenant's
		{"tenant=aprod resource=res1v2", "d.tenant__prod.resource__v2~ [aprod]"},
	} {
		must.Equal(t, clean(found(&l, d, c.request)), c.want, "%q", c.request)
	}
}

func TestAStarInAKeyIsRefused(t *testing.T) {
	for _, pair := range []string{`"key": "a*"`, `"key": "a*", "value": "x"`, `"key": "*a", "value": "x*"`, `"key": "a*b"`, `"key": "*"`} {
		_, problems := decoded(`{"domain": "d", "descriptors": [{` + pair + `, ` + perMinute + `}]}`)
		if len(problems) != 1 || !strings.Contains(problems[0], "a * is for values, not for keys") {
			t.Errorf("%s: %v", pair, problems)
		}
	}
}

// What is accepted without the effect that it has in Envoy's service is said, each field once a file.
func TestFieldsWithoutEffectAreAdvisedOf(t *testing.T) {
	const metrics = "has no effect: no value of a request is ever the label of a metric"
	for text, want := range map[string]string{
		`{"key": "a", "value_to_metric": true}, {"key": "b", "value_to_metric": true}`: "f:1:65: value_to_metric: " + metrics,
		`{"key": "a", "quota_mode": true, ` + perMinute + `}`:                          "f:1:60: quota_mode: has no effect: the limit rejects like any other; Envoy's service rejects a request when all its limits with quota_mode are exceeded",
		`{"key": "a", "metadata": {"x": {"y": [1, null, "z"]}, "value": true}}`:        "f:1:58: metadata: has no effect: it is for Envoy, which routes requests by it",
		`{"key": "a", "metadata": {}, "quota_mode": false, "value_to_metric": false}`:  "",
		`{"key": "a", "metadata": null}`:                                               "",
		`{"key": "a", "quota_mode": true, "descriptors": [{"key": "b", "detailed_metric": true}]}, {"key": "c", "metadata": {"d": "e"}}`: "f:1:60: quota_mode: has no effect: the limit rejects like any other; Envoy's service rejects a request when all its limits with quota_mode are exceeded\n" +
			"f:1:114: detailed_metric: " + metrics + "\nf:1:148: metadata: has no effect: it is for Envoy, which routes requests by it",
	} {
		s := setOf(t, `{"domain": "d", "descriptors": [`+text+`]}`)
		must.Equal(t, strings.Join(s.Advice(), "\n"), want, "%s", text)
	}
	for _, value := range []string{`[]`, `"text"`, `5`, `true`} {
		_, problems := decoded(`{"domain": "d", "descriptors": [{"key": "a", "metadata": ` + value + `}]}`)
		if len(problems) != 1 || !strings.Contains(problems[0], `descriptor "d.a": metadata: must be a map, not `) {
			t.Errorf("%s: %v", value, problems)
		}
	}
}

// The limit of a descriptor with quota_mode rejects: quota_mode has no effect.
func TestQuotaModeLeavesALimitInForce(t *testing.T) {
	d := domainOf(t, `{"domain": "d", "descriptors": [{"key": "a", "quota_mode": true, `+perMinute+`}]}`)
	rules := d.Rules()
	if len(rules) != 1 || rules[0].Shadow || rules[0].Limit.Requests != 5 {
		t.Errorf("%v", rules)
	}
}

// What the interpreter reads the quick way has the same wildcards, and the same advice but for the lines.
func TestTheQuickWayKnowsWildcardsAndFieldsWithoutEffect(t *testing.T) {
	const text = `{"domain": "d", "descriptors": [
	{"key": "a", "value": "x*y", "share_threshold": true, "metadata": {"any": [{"thing": 1.5}]}, "value_to_metric": true, ` + perMinute + `},
	{"key": "a", "value": "*y", "quota_mode": true, ` + perMinute + `}]}`
	name := t.TempDir() + "/rules.json"
	quick, careful, problems := quickly(t, name, text)
	if quick == nil || careful == nil {
		t.Fatalf("%v, %v: %v", quick, careful, problems)
	}
	if got, want := wordsOf(quick), wordsOf(careful); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var l Lookup
	for _, s := range []*Set{quick, careful} {
		for request, want := range map[string]string{"a=x1y": "d.a_x_y~", "a=x2y": "d.a_x_y~", "a=1y": "d.a__y~ [1y]", "a=1": ""} {
			must.Equal(t, clean(found(&l, s.Domains[0], request)), want, "%s", request)
		}
		advice := strings.Join(s.Advice(), "\n")
		for _, field := range []string{"metadata", "value_to_metric", "quota_mode"} {
			must.Equal(t, strings.Count(advice, field+": has no effect"), 1, "%s: %s", field, advice)
		}
	}
	if got := fmt.Sprint(quick.Advice()); strings.Contains(got, name+":") && !strings.Contains(got, name+": ") {
		t.Errorf("a line that is not known: %s", got)
	}
}

func TestValuesThatNoRequestHas(t *testing.T) {
	of := func(kind string) func(string) (string, error) {
		source, err := match.ParseSource(kind)
		must.Succeed(t, err)
		return func(value string) (string, error) { return source.Canonicalize(value) }
	}
	form := func(kind string) string {
		source, _ := match.ParseSource(kind)
		return FormOf(source)
	}
	for _, c := range []struct{ source, value, want string }{
		{"path", "/login", ""}, {"path", "/Login", `"/Login": requests have "/login"`}, {"path", "//login", `"//login": requests have "/login"`},
		{"path", "login", `"login": must be a path, which begins with /`}, {"path", "*", ""}, {"path", "*.pdf", ""}, {"path", "/api/*/action", ""},
		{"path", "*.PDF", `"*.PDF": requests have "*.pdf"`}, {"path", "/A*?Q=A", `"/A*?Q=A": requests have "/a*?q=a"`},
		{"host", "shop.example", ""}, {"host", "Shop.example:80", `"Shop.example:80": requests have "shop.example"`}, {"host", "*.shop.example", ""}, {"host", "*.Shop.example", `"*.Shop.example": requests have "*.shop.example"`},
		{"method", "POST", ""}, {"method", "post", `"post": requests have "POST"`}, {"method", "P*", ""}, {"method", "p*", `"p*": requests have "P*"`}, {"method", "/", `"/": must be a method such as POST`},
		{"host", "*.example.com:*", `"*.example.com:*": requests have hosts without a port`},
		{"host", "*.example.com.", `"*.example.com.": requests have "*.example.com"`},
		{"host", "a b*", `"a b*": must be one host, such as shop.example`}, {"host", "*", ""}, {"host", "**", ""}, {"host", "a*", ""}, {"host", "2001:db8:*", ""}, {"host", "*:1", ""}, {"host", "a*b*c*d", ""},
		{"path", "login*", `"login*": must be a path, which begins with /`}, {"path", "//a/*", `"//a/*": requests have no path with //`},
		{"path", "*//a", `"*//a": requests have no path with //`}, {"path", "/a%20*", `"/a%20*": must be written decoded, without %20`},
		{"path", "*/a/*/b", ""}, {"path", "*/*/*/b", ""}, {"path", "/*", ""}, {"path", "*/", ""}, {"path", "*a*", ""}, {"path", "/a/.*", ""}, {"path", "/a/../*", `"/a/../*": requests have no path with /../`},
		{"host", "2001:*:*:*:*:*:*:1", ""}, {"host", "2001:DB8:*", `"2001:DB8:*": requests have "2001:db8:*"`}, {"host", "https://a.*", `"https://a.*": must be a host such as shop.example, without a scheme or a path`},
		{"path", "/a/*/..", `"/a/*/..": requests have no path that ends with a dot as its segment`}, {"path", "/a/..*", ""}, {"path", "/É*", `"/É*": requests have "/é*"`}, {"path", "/%*20", ""},
		{"method", "P*T", ""}, {"method", "*T", ""}, {"method", "P T*", `"P T*": must be a method such as POST`},
		{"header:X-A", "Any", ""}, {"header:X-A", "Any*Thing", ""}, {"query:q", "a*A", ""},
	} {
		must.Equal(t, Unreachable(c.value, form(c.source), of(c.source)), c.want, "%s %q", c.source, c.value)
	}
}

func TestTheValuesOfADomainAreThoseAtTheDepthOfTheirKeys(t *testing.T) {
	d := domainOf(t, `{"domain": "d", "descriptors": [
	{"key": "a", "value": "1", "descriptors": [{"key": "b", "value": "x*y"}, {"key": "c", "value": "z"}]},
	{"key": "a", "value": "2*", "descriptors": [{"key": "b", "value": "x"}, {"key": "b", "value": "x*y"}]},
	{"key": "a", "descriptors": [{"key": "b", "value": "v"}, {"key": "b"}]},
	{"key": "b", "value": "top"}]}`)
	for _, c := range []struct {
		keys []string
		at   int
		want string
	}{
		{[]string{"a"}, 0, "[1 2*]"}, {[]string{"a", "b"}, 0, "[1 2*]"}, {[]string{"a", "b"}, 1, "[v x x*y]"}, {[]string{"a", "c"}, 1, "[z]"},
		{[]string{"b"}, 0, "[top]"}, {[]string{"c", "b"}, 1, "[]"}, {[]string{"a", "b", "c"}, 2, "[]"},
	} {
		must.Equal(t, fmt.Sprint(d.Values(c.keys, c.at)), c.want, "%v %d", c.keys, c.at)
	}
}

// Defects found: a wildcard was said to be met by no request, though some were.
func TestAWildcardThatARequestMeetsIsNeverWarnedOf(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	pick := func(from []string, n int) string {
		text := ""
		for ; n > 0; n-- {
			text += from[random.Intn(len(from))]
		}
		return text
	}
	var sources []match.Source
	for _, text := range []string{"host", "header:Host", "method", "path", "header:X-A", "query:q"} {
		source, err := match.ParseSource(text)
		must.Succeed(t, err)
		sources = append(sources, source)
	}
	hosts := []string{"2001:db8:1:2:3:4:5:1", "::1", "::ffff:192.0.2.1", "192.0.2.1", "fe80::A:b"}
	for i := 0; i < 20000; i++ {
		host := pick([]string{"a", "B", "x", ".", "-", "1", "_"}, 1+random.Intn(8)) + "z"
		if random.Intn(3) == 0 {
			host = "[" + hosts[random.Intn(len(hosts))] + "]"
		}
		host += pick([]string{"", ":80", ".:80"}, 1)
		if strings.HasPrefix(host, "[") {
			host = strings.Replace(host, "].", "]", 1)
		}
		r := &http.Request{Method: pick([]string{"A", "b", "-", "T", "!"}, 1+random.Intn(5)), Host: host, Header: http.Header{"X-A": {pick([]string{"a", "B", "/", "?"}, 4)}}}
		r.URL = &url.URL{Path: "/" + pick([]string{"/", "a", "B", ".", "é", "É", " ", "?", "*", "%"}, random.Intn(10)), RawQuery: "q=Aa%2F"}
		if match.EscapeIn(r.URL.Path) != "" {
			continue
		}
		source := sources[i%len(sources)]
		spell := func(value string) (string, error) { return source.Canonicalize(value) }
		value := wildcardOf(random, source.Value(r, ""))
		if value == "" {
			continue
		}
		if why := Unreachable(value, FormOf(source), spell); why != "" {
			t.Fatalf("%s %q, which %q meets: %s", source, value, source.Value(r, ""), why)
		}
	}
}

// wildcardOf returns a wildcard that stands for a value, among others; "": there is none.
func wildcardOf(random *rand.Rand, value string) string {
	runes := []rune(strings.ReplaceAll(value, "*", "x"))
	if string(runes) != value {
		return ""
	}
	for n := 1 + random.Intn(4); n > 0; n-- {
		from := random.Intn(len(runes) + 1)
		to := from + random.Intn(len(runes)-from+1)/2
		runes = append(append(append([]rune{}, runes[:from]...), '*'), runes[to:]...)
	}
	return string(runes)
}
