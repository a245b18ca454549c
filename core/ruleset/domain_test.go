package ruleset

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/tools/must"
)

// interpreted is whether Yaegi runs the tests: compiled_test.go, which it leaves out, says no.
var interpreted = true

func setOf(t *testing.T, text string) *Set {
	t.Helper()
	f := accepted(t, text)
	s, err := NewSet([]*File{f}, "")
	must.Succeed(t, err)
	return s
}

func domainOf(t *testing.T, text string) *Domain {
	t.Helper()
	d, err := setOf(t, text).Domain("")
	must.Succeed(t, err)
	return d
}

// manyDescriptors has a descriptor for each of many tenants, and below it one for each user.
func manyDescriptors(many int) string {
	items := make([]string, 0, many)
	for i := 0; i < many; i++ {
		items = append(items, `{"key": "tenant", "value": "`+strconv.Itoa(i)+`", "descriptors": [{"key": "user", "rate_limit": {"unit": "minute", "requests_per_unit": 5}}]}`)
	}
	return `{"domain": "d", "descriptors": [` + strings.Join(items, ",\n") + `]}`
}

// at parses a request's descriptors, as a test writes them: "a=b c=d, e=f" are two of them.
func at(text string) [][]Entry {
	var list [][]Entry
	for _, one := range strings.Split(text, ", ") {
		var entries []Entry
		for _, pair := range strings.Fields(one) {
			key, value, _ := strings.Cut(pair, "=")
			entries = append(entries, Entry{key, value})
		}
		list = append(list, entries)
	}
	return list
}

// found looks a request up, and returns each limit that it comes under as "name requests [key]×cost".
func found(l *Lookup, d *Domain, request string) string {
	l.Begin()
	for _, entries := range at(request) {
		l.Add(d, entries)
	}
	l.Finish()
	list := make([]string, 0, len(l.Found))
	for i := range l.Found {
		f := &l.Found[i]
		if d.Rules()[f.Place] != f.Rule {
			return "the place of " + f.Rule.Name() + " is another's"
		}
		text := f.Rule.Name()
		if f.Key != "" {
			text += " [" + f.Key + "]"
		}
		if f.Cost != 1 {
			text += fmt.Sprintf(" x%d", f.Cost)
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

func TestARequestComesUnderTheMostSpecificDescriptor(t *testing.T) {
	const limit = `"rate_limit": {"unit": "minute", "requests_per_unit": 5}`
	d := domainOf(t, `{"domain": "d", "descriptors": [
	{"key": "a", `+limit+`},
	{"key": "a", "value": "bob*", `+limit+`},
	{"key": "a", "value": "b*", `+limit+`},
	{"key": "a", "value": "bobby*", `+limit+`},
	{"key": "a", "value": "bob", `+limit+`},
	{"key": "none"},
	{"key": "deep", "value": "x", "descriptors": [
		{"key": "a", "value": "1", `+limit+`},
		{"key": "b", "descriptors": [{"key": "c", `+limit+`}]}]},
	{"key": "deep", "descriptors": [
		{"key": "a", "value": "2", `+limit+`},
		{"key": "a", "value": "3*", "descriptors": [{"key": "b", `+limit+`}]}]},
	{"key": "both", `+limit+`, "descriptors": [{"key": "below", `+limit+`}]},
	{"key": "all", "value": "*", `+limit+`},
	{"key": "shared", "value": "f*", "share_threshold": true, `+limit+`, "descriptors": [{"key": "u", `+limit+`}]},
	{"key": "shared", "value": "g*", `+limit+`},
	{"key": "empty", "value": "", `+limit+`}]}`)
	var l Lookup // one for all: nothing of a request is left for the next
	for _, c := range []struct{ request, want string }{
		{"a=bob", "d.a_bob"},
		{"a=bob*", "d.a_bob_~ [bob*]"}, // the value itself
		{"a=bobx", "d.a_bob_~ [bobx]"}, // the first wildcard, though another is longer
		{"a=bobby", "d.a_bob_~ [bobby]"},
		{"a=bx", "d.a_b_~ [bx]"},
		{"a=x", "d.a [x]"},
		{"a=", "d.a"},
		{"a=B", "d.a [B]"}, // case counts
		{"A=bob", ""},
		{"none=x", ""},
		{"other=x", ""},
		{"", ""},
		{"a=bob a=bob", ""}, // more depths than there are
		{"deep=x", ""},      // and fewer
		{"deep=x a=1", "d.deep_x.a_1"},
		{"deep=x a=2", ""}, // the value's own has no such entry, and there is no way back to the key's
		{"deep=y a=2", "d.deep.a_2 [y]"},
		{"deep=y a=1", ""},
		{"deep=x b=q c=r", "d.deep_x.b.c [1:q1:r]"},
		{"deep=x b=q", ""},
		{"deep=y a=3z b=r", "d.deep.a_3_.b~ [1:y2:3z1:r]"},
		{"deep=y a=3z", ""},
		{"both=1", "d.both [1]"},
		{"both=1 below=2", "d.both.below [1:11:2]"},
		{"both=1 other=2", ""},
		{"all=", "d.all__~"},
		{"all=x", "d.all__~ [x]"},
		{"shared=f1", "d.shared_f_~"},
		{"shared=f2", "d.shared_f_~"},
		{"shared=f1 u=x", "d.shared_f_.u~ [x]"},
		{"shared=g1", "d.shared_g_~ [g1]"},
		{"empty=", "d.empty"},
		{"empty=x", "d.empty [x]"},
		// Several of one request: each is looked up by itself, and what comes to the same is summed.
		{"a=bob, deep=x a=1", "d.a_bob, d.deep_x.a_1"},
		{"a=x, a=x, a=y, a=x", "d.a [x] x3, d.a [y]"},
		{"shared=f1, shared=f2", "d.shared_f_~ x2"},
		{"a=x, other=y, a=bob", "d.a [x], d.a_bob"},
	} {
		must.Equal(t, clean(found(&l, d, c.request)), c.want, "%q", c.request)
	}
}

// clean writes ~ for the eight characters of a hash at the end of a name.
func clean(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		comma := strings.HasSuffix(w, ",")
		w = strings.TrimSuffix(w, ",")
		if n := len(w) - 9; n > 0 && w[n] == '-' {
			w = w[:n] + "~"
		}
		if comma {
			w += ","
		}
		words[i] = w
	}
	return strings.Join(words, " ")
}

func TestALimitGivesWayToThoseThatReplaceIt(t *testing.T) {
	d := domainOf(t, `{"domain": "d", "descriptors": [
	{"key": "all", "rate_limit": {"unit": "minute", "requests_per_unit": 5, "name": "all"}},
	{"key": "some", "rate_limit": {"unit": "minute", "requests_per_unit": 5, "name": "some", "replaces": [{"name": "all"}]}},
	{"key": "few", "rate_limit": {"unit": "minute", "requests_per_unit": 5, "replaces": [{"name": "some"}, {"name": "other"}]}},
	{"key": "free", "rate_limit": {"unlimited": true, "name": "free", "replaces": [{"name": "all"}, {"name": "some"}]}},
	{"key": "rich", "rate_limit": {"unlimited": true, "name": "rich"}},
	{"key": "x", "rate_limit": {"unit": "minute", "requests_per_unit": 5, "name": "x", "replaces": [{"name": "y"}]}},
	{"key": "y", "rate_limit": {"unit": "minute", "requests_per_unit": 5, "name": "y", "replaces": [{"name": "x"}]}},
	{"key": "plain", "rate_limit": {"unit": "minute", "requests_per_unit": 5}}]}`)
	var l Lookup
	for _, c := range []struct{ request, want string }{
		{"all=1", "d.all [1]"},
		{"all=1, some=1", "d.some [1]"},
		{"some=1, all=1", "d.some [1]"}, // whichever is first
		{"all=1, few=1", "d.all [1], d.few [1]"},
		{"all=1, some=1, few=1", "d.few [1]"}, // what gives way makes others give way all the same
		{"all=1, free=1", ""},
		{"all=1, free=1, plain=1", "d.plain [1]"},
		{"free=1", ""},
		{"all=1, rich=1", "d.all [1]"}, // unlimited by itself, others are not
		{"x=1, y=1", ""},
		{"all=1, some=1, all=2", "d.some [1]"},
		{"all=1", "d.all [1]"},
	} {
		must.Equal(t, found(&l, d, c.request), c.want, "%q", c.request)
	}
}

// TestPathsAreNotConfused is for what Envoy's service joins with _ and so cannot tell apart: the key a_b, and the key a with the value b.
func TestPathsAreNotConfused(t *testing.T) {
	const limit = `"rate_limit": {"unit": "minute", "requests_per_unit": 5}`
	text := `{"domain": "d", "descriptors": [
	{"key": "a_b", ` + limit + `},
	{"key": "a", "value": "b", ` + limit + `},
	{"key": "a", "value": "b_c", ` + limit + `},
	{"key": "a_b", "value": "c", ` + limit + `},
	{"key": "a", "descriptors": [{"key": "b", ` + limit + `}]},
	{"key": "a.b", ` + limit + `},
	{"key": "a", "value": "1:b", ` + limit + `},
	{"key": "a|b", ` + limit + `},
	{"key": "a/b", ` + limit + `},
	{"key": "long", "value": "` + strings.Repeat("x", 300) + `1", ` + limit + `},
	{"key": "long", "value": "` + strings.Repeat("x", 300) + `2", ` + limit + `},
	{"key": "long", "value": "` + strings.Repeat("y", 600) + `", "descriptors": [{"key": "1", ` + limit + `}, {"key": "2", ` + limit + `}]},
	{"key": "ä", ` + limit + `}]}`
	d := domainOf(t, text)
	var l Lookup
	for _, c := range []struct {
		request string
		entries []Entry
	}{
		{"a_b=z", nil}, {"a=b", nil}, {"a=b_c", nil}, {"a_b=c", nil}, {"a=z b=z", nil}, {"a.b=z", nil}, {"a=1:b", nil}, {"a|b=z", nil}, {"a/b=z", nil},
		{"long=" + strings.Repeat("x", 300) + "1", nil}, {"long=" + strings.Repeat("x", 300) + "2", nil},
		{"long=" + strings.Repeat("y", 600) + " 1=z", nil}, {"long=" + strings.Repeat("y", 600) + " 2=z", nil}, {"ä=z", nil},
	} {
		if found(&l, d, c.request); len(l.Found) != 1 {
			t.Errorf("%.40s: %d limits", c.request, len(l.Found))
		}
	}
	if got := found(&l, d, "a_b=c"); !strings.HasPrefix(got, "d.a_b_c-") || strings.Contains(got, "[") {
		t.Errorf("a_b=c: %s", got)
	}
	if found(&l, d, "a=b"); l.Found[0].Rule.Identity != "|"+l.Found[0].Rule.Name()+"|fixed_window/60000000us|descriptor 1:d1:a1:b" {
		t.Errorf("a=b counts as %s", l.Found[0].Rule.Identity)
	}
	names := make(map[string]bool)
	identities := make(map[string]bool)
	for _, r := range d.Rules() {
		if err := words.CheckName(r.Name()); err != nil {
			t.Error(err)
		}
		if names[r.Name()] || identities[r.Identity] {
			t.Errorf("%s and %s are another's", r.Name(), r.Identity)
		}
		if len(r.Identity) > 700 {
			t.Errorf("an identity of %d bytes", len(r.Identity))
		}
		names[r.Name()] = true
		identities[r.Identity] = true
	}
	// They are the same at each load, so that counts outlive it, whatever else is in the file.
	for i, r := range domainOf(t, text).Rules() {
		if r.Identity != d.Rules()[i].Identity {
			t.Errorf("%s is %s when it is loaded again", d.Rules()[i].Identity, r.Identity)
		}
	}
}

// What a client can choose in its descriptor's values is not another's key.
func TestKeysOfSeveralValuesCannotBePutTogether(t *testing.T) {
	d := domainOf(t, `{"domain": "d", "descriptors": [{"key": "a", "descriptors": [{"key": "b", "rate_limit": {"unit": "minute", "requests_per_unit": 5}}]}]}`)
	var l Lookup
	keys := make(map[string]string)
	for _, pair := range [][]Entry{{{"a", "x"}, {"b", "yz"}}, {{"a", "xy"}, {"b", "z"}}, {{"a", ""}, {"b", "xyz"}}, {{"a", "xyz"}, {"b", ""}}, {{"a", "x1:y"}, {"b", "z"}}, {{"a", "x"}, {"b", "1:y1:z"}}} {
		l.Begin()
		l.Add(d, pair)
		l.Finish()
		text := pair[0].Value + " " + pair[1].Value
		if len(l.Found) != 1 || keys[l.Found[0].Key] != "" {
			t.Fatalf("%q: %v, the key of %q", text, l.Found, keys[l.Found[0].Key])
		}
		keys[l.Found[0].Key] = text
	}
}

// A limit of no requests rejects all; in shadow mode it does not.
func TestDescriptorsRejectAsTheySay(t *testing.T) {
	d := domainOf(t, `{"domain": "d", "descriptors": [
	{"key": "none", "rate_limit": {"unit": "minute", "requests_per_unit": 0}},
	{"key": "shadow", "shadow_mode": true, "rate_limit": {"unit": "minute", "requests_per_unit": 0}},
	{"key": "two", "rate_limit": {"unit": "minute", "requests_per_unit": 2}}]}`)
	store := memory.New(memory.Config{Clock: func() int64 { return 1_700_000_000_000_000 }})
	limiter := core.NewLimiter(store)
	for _, r := range d.Rules() {
		must.Succeed(t, limiter.Open(r))
	}
	var l Lookup
	for _, c := range []struct {
		request string
		want    core.Outcome
	}{
		{"none=x", core.Reject}, {"shadow=x", core.Allow}, {"two=x", core.Allow}, {"none=x, two=x", core.Reject}, {"two=x", core.Allow}, {"two=x", core.Reject}, {"two=y, two=y", core.Allow},
		{"two=y", core.Reject}, {"two=z, two=z, two=z", core.Reject}, {"two=z", core.Allow},
	} {
		found(&l, d, c.request)
		checks := make([]core.Check, 0, len(l.Found))
		for i := range l.Found {
			checks = append(checks, core.Check{Rule: l.Found[i].Rule, Key: l.Found[i].Key, Cost: l.Found[i].Cost})
		}
		var v core.Verdict
		if err := limiter.Decide(checks, false, &v); err != nil || v.Outcome != c.want {
			t.Errorf("%s: %s, %v", c.request, v.Outcome.String(), err)
		}
	}
}

func TestDomainsAreFoundByName(t *testing.T) {
	one := accepted(t, `{"domain": "messaging"}`)
	two := accepted(t, `{"domain": "auth"}`)
	none, err := NewSet(nil, "")
	must.Succeed(t, err)
	if _, err = none.Domain(""); err == nil || err.Error() != "the rule files have no domain with descriptors" {
		t.Error(err)
	}
	single, err := NewSet([]*File{two}, "")
	must.Succeed(t, err)
	if d, err := single.Domain(""); err != nil || d.name != "auth" {
		t.Error(err)
	}
	s, err := NewSet([]*File{one, two}, "")
	must.Succeed(t, err)
	if d, err := s.Domain("auth"); err != nil || d.name != "auth" {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"":          "the rule files have the domains messaging, auth; say which with domain <name>",
		"mesaging":  `domain "mesaging": is not in the rule files, which have messaging, auth (did you mean messaging?)`,
		"elsewhere": `domain "elsewhere": is not in the rule files, which have messaging, auth`,
	} {
		if _, err := s.Domain(name); err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", name, err, want)
		}
	}
}

func TestADomainKnowsTheKeysThatItsDescriptorsHave(t *testing.T) {
	f := accepted(t, `{"domain": "d", "descriptors": [
		{"key": "a", "value": "x", "descriptors": [{"key": "b", "rate_limit": {"unit": "day", "requests_per_unit": 1}}]},
		{"key": "a", "value": "y*", "descriptors": [{"key": "c", "value": "z", "rate_limit": {"unlimited": true}}]}
	]}`)
	s, err := NewSet([]*File{f}, "")
	must.Succeed(t, err)
	for keys, want := range map[string]bool{"a": true, "a b": true, "a c": true, "b": false, "a a": false, "a b c": false, "A": false} {
		must.Equal(t, s.Domains[0].Knows(strings.Fields(keys)), want, "%s", keys)
	}
}
