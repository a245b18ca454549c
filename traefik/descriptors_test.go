package traefik

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// known has the examples that everybody knows.
const known = `{"domain": "messaging", "descriptors": [
	{"key": "message_type", "value": "marketing", "rate_limit": {"unit": "day", "requests_per_unit": 5}},
	{"key": "message_type", "descriptors": [{"key": "to", "rate_limit": {"unit": "day", "requests_per_unit": 2}}]},
	{"key": "address", "rate_limit": {"unit": "hour", "requests_per_unit": 3}},
	{"key": "blocked", "value": "yes", "rate_limit": {"unit": "day", "requests_per_unit": 0}}
]}`

func header(pairs ...string) func(*http.Request) {
	return func(r *http.Request) {
		for i := 0; i < len(pairs); i += 2 {
			r.Header.Set(pairs[i], pairs[i+1])
		}
	}
}

func TestDescriptorsLimitRequests(t *testing.T) {
	list := func(members ...interface{}) []interface{} { return members }
	entry := func(key, source string) interface{} { return object{"key": key, "source": source} }
	forms := []interface{}{
		list(list(entry("message_type", "header:X-Type")), list(entry("message_type", "header:X-Type"), entry("to", "header:X-To")), list(entry("address", "client_ip")), list(entry("blocked", "query:blocked"))),
		list(object{"entries": list(entry("message_type", "header:X-Type"))}, object{"entries": list(entry("message_type", "header:X-Type"), entry("to", "header:X-To"))},
			object{"Entries": []object{{"Key": "address", "Source": " client_ip "}}}, object{"entries": list(entry("blocked", "query:blocked"))}),
	}
	for i, form := range forms {
		f := newFiled(t, known, &Config{Descriptors: form, Domain: map[int]string{0: "", 1: "messaging"}[i]})
		for _, test := range []struct {
			what   string
			from   string // for each request another address, where it ends with a dot
			change func(*http.Request)
			want   int // of seven
		}{
			{"a value", "198.51.100.", header("X-Type", "marketing"), 5},
			{"its neighbour", "198.51.101.", header("X-Type", "alert"), 7},
			{"two entries", "198.51.102.", header("X-Type", "alert", "X-To", "a"), 2},
			{"two entries, another value", "198.51.103.", header("X-Type", "alert", "X-To", "b"), 2},
			{"an address", "192.0.2.1", nil, 3},
			{"another address", "192.0.2.2", nil, 3},
			{"nothing at all", "192.0.2.3", func(r *http.Request) { r.URL.RawQuery = "blocked=yes" }, 0},
			{"nothing of the kind", "192.0.2.4", func(r *http.Request) { r.URL.RawQuery = "blocked=no" }, 3},
		} {
			passed := 0
			for n := 1; n <= 7; n++ {
				from := test.from
				if strings.HasSuffix(from, ".") {
					from += strconv.Itoa(n)
				}
				passed += admitted(f.h, from, 1, test.change)
			}
			if passed != test.want {
				t.Errorf("form %d, %s: %d were admitted, want %d", i, test.what, passed, test.want)
			}
		}
	}
}

func TestTheExampleThatEverybodyKnows(t *testing.T) {
	f := newFiled(t, known, &Config{Descriptors: []interface{}{object{"entries": []interface{}{object{"key": "message_type", "source": "header:X-Type"}}}}})
	must.Equal(t, admitted(f.h, "192.0.2.1", 9, header("X-Type", "marketing")), 5, "marketing: were admitted")
	if got := admitted(f.h, "192.0.2.2", 9, header("X-Type", "marketing")); got != 0 { // of a value all have one counter
		t.Errorf("marketing, from elsewhere: %d were admitted", got)
	}
	response := get(f.h, "192.0.2.1", header("X-Type", "alert"))
	if response.StatusCode != 200 || len(response.Header) != 0 {
		t.Errorf("what has no limit: %s %v", response.Status, response.Header)
	}
	response = get(f.h, "192.0.2.1", header("X-Type", "marketing"))
	must.Equal(t, response.Header.Get("Ratelimit-Policy"), `"messaging.message_type_marketing";q=5;w=86400`, "the policy")
	f.edit(strings.Replace(known, `"requests_per_unit": 5`, `"requests_per_unit": 7`, 1))
	must.Equal(t, admitted(f.h, "192.0.2.1", 9, header("X-Type", "marketing")), 2, "7 after 5: were admitted")
}

func TestADomainThatIsNotInTheFilesIsRefused(t *testing.T) {
	descriptors := []interface{}{object{"entries": []interface{}{object{"key": "a", "source": "path"}}}}
	s := newStage(t)
	path := writeFile(t, t.TempDir()+"/rules.json", known)
	got := s.refused(&Config{RulesFile: []string{path}, Domain: "message", Descriptors: descriptors}, "m@file")
	must.Contain(t, got, `domain "message": is not in the rule files, which have messaging (did you mean messaging?)`)
	path = writeFile(t, t.TempDir()+"/rules.json", oneRule("a", "1/1h"))
	got = s.refused(&Config{RulesFile: []string{path}, Descriptors: descriptors}, "m@file")
	must.Contain(t, got, "the rule files have no domain with descriptors")
	// An edit that takes the domain away is refused too.
	f := newFiled(t, known, &Config{Descriptors: descriptors})
	f.edit(oneRule("a", "1/1h"))
	must.Equal(t, f.log.count("the rule files have no domain with descriptors"), 1, "the log: %s", f.log)
}

func TestRulesAndDescriptorsOfOneFileAreDecidedTogether(t *testing.T) {
	s := newStage(t)
	text := strings.Replace(known, `{"domain"`, `{"rules": [{"name": "a", "limit": "4/1h"}], "domain"`, 1)
	path := writeFile(t, t.TempDir()+"/rules.json", text)
	c := &Config{RulesFile: []string{path}, Descriptors: []interface{}{object{"entries": []interface{}{object{"key": "address", "source": "client_ip"}}}}}
	h := s.handler(context.Background(), c, "m@file")
	must.Equal(t, statuses(h, "192.0.2.1", 4), "200 200 200 429")
	if got := get(h, "192.0.2.1", nil).Header.Get("Ratelimit"); !strings.HasPrefix(got, `"a";r=1`) || !strings.Contains(got, `"messaging.address";r=0;`) {
		t.Errorf("RateLimit %s", got)
	}
}

// A * stands for any text wherever it is in a value, as in Envoy's service; fields of the service that say nothing to a limit are accepted,
// and the log says that they have no effect.
func TestDescriptorsWithAStarAnywhereLimitRequests(t *testing.T) {
	const text = `{"domain": "d", "descriptors": [
	{"key": "path", "value": "/api/*/action", "metadata": {"name": "api"}, "rate_limit": {"unit": "day", "requests_per_unit": 2}},
	{"key": "path", "value": "*/shared/*.pdf", "share_threshold": true, "quota_mode": true, "rate_limit": {"unit": "day", "requests_per_unit": 3}},
	{"key": "path", "value": "/api/7/action", "value_to_metric": true, "rate_limit": {"unit": "day", "requests_per_unit": 4}}
]}`
	f := newFiled(t, text, &Config{Descriptors: []interface{}{object{"entries": []interface{}{object{"key": "path", "source": "path"}}}}})
	to := func(path string) func(*http.Request) { return func(r *http.Request) { r.URL.Path = path } }
	for _, c := range []struct {
		path string
		want int // of six
	}{
		{"/api/1/action", 2}, {"/api/2/action", 2}, {"/api/7/action", 4}, {"/api/1/actions", 6}, {"/api/action", 6},
		{"/a/shared/b.pdf", 3}, {"/c/d/shared/.pdf", 0}, {"/a/shared/b.txt", 6},
	} {
		if got := admitted(f.h, "192.0.2.1", 6, to(c.path)); got != c.want {
			t.Errorf("%s: %d were admitted, want %d", c.path, got, c.want)
		}
	}
	for _, field := range []string{"metadata", "quota_mode", "value_to_metric"} {
		must.Equal(t, f.log.count(field+": has no effect: "), 1, "the log speaks of %s times: %s", field, f.log)
	}
}

// Hosts, methods and paths are looked up in one spelling, so that a value in another is met by nobody: the log warns of it, or its limit
// would be gone without a word.
func TestAValueThatNoRequestHasIsWarnedOf(t *testing.T) {
	const text = `{"domain": "d", "descriptors": [
	{"key": "path", "value": "/Login", "rate_limit": {"unit": "day", "requests_per_unit": 1}},
	{"key": "path", "value": "/API/*/action", "rate_limit": {"unit": "day", "requests_per_unit": 1}},
	{"key": "path", "value": "/login", "rate_limit": {"unit": "day", "requests_per_unit": 1}},
	{"key": "tenant", "value": "Acme", "descriptors": [
		{"key": "method", "value": "post", "rate_limit": {"unit": "day", "requests_per_unit": 1}},
		{"key": "method", "value": "P*", "rate_limit": {"unit": "day", "requests_per_unit": 1}}]}
]}`
	f := newFiled(t, text, &Config{Descriptors: []interface{}{
		object{"entries": []interface{}{object{"key": "path", "source": "path"}}},
		object{"entries": []interface{}{object{"key": "tenant", "source": "header:X-Tenant"}, object{"key": "method", "source": "method"}}},
	}})
	for _, want := range []string{
		`domain "d": descriptor "path": a value is met by no request: "/Login": requests have "/login"`,
		`domain "d": descriptor "path": a value is met by no request: "/API/*/action": requests have "/api/*/action"`,
		`domain "d": descriptor "method": a value is met by no request: "post": requests have "POST"`,
	} {
		must.Equal(t, f.log.count(want), 1, "the log lacks %s: %s", want, f.log)
	}
	must.Equal(t, f.log.count("met by no request"), 3, "the log speaks of values: %s", f.log)
}

// Defect found: the log warned of a value, though requests have it by another line for the same key; and not of wildcards that none has.
func TestAValueIsWarnedOfWhereNoLineForItsKeysMeetsIt(t *testing.T) {
	const text = `{"domain": "d", "descriptors": [
	{"key": "path", "value": "/Login", "rate_limit": {"unit": "day", "requests_per_unit": 1}},
	{"key": "host", "value": "*.example.com:*", "rate_limit": {"unit": "day", "requests_per_unit": 1}},
	{"key": "host", "value": "*.example.com", "rate_limit": {"unit": "day", "requests_per_unit": 1}}
]}`
	entry := func(key, source string) interface{} {
		return object{"entries": []interface{}{object{"key": key, "source": source}}}
	}
	f := newFiled(t, text, &Config{Descriptors: []interface{}{entry("path", "path"), entry("path", "header:Path"), entry("host", "host"), entry("host", "header:Host")}})
	if n := f.log.count(`domain "d": descriptor "host": a value is met by no request: "*.example.com:*": requests have hosts without a port`); n != 1 {
		t.Errorf("the log warns of the host %d times: %s", n, f.log)
	}
	must.Equal(t, f.log.count("met by no request"), 1, "the log speaks of values: %s", f.log)
}
