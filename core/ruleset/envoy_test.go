package ruleset

import (
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

func TestDecodeSaysAllThatIsWrongWithDescriptors(t *testing.T) {
	checkRefused(t, []refused{
		{`{"descriptors": []}`, []string{`1:17: descriptors: have no domain; write domain: and a name beside them`}},
		{`{"domain": "", "descriptors": []}`, []string{`1:12: domain: is empty; write a value`}},
		{`{"domain": ["d"]}`, []string{`1:12: domain: must be a single value, not a list`}},
		{`{"domain": "d", "descriptors": {"key": "a"}}`, []string{`1:32: descriptors: must be a list, each item with a dash in front: - key: …, not a map`}},
		{`{"domain": "d", "descriptors": ["a"]}`, []string{`1:33: descriptors: an item must be a map with a key, not a text`}},
		{`{"domain": "d", "descriptors": [["a"]]}`, []string{`1:33: descriptors: an item must be a map with a key, not a list`}},
		{`{"domain": "d", "descriptors": [null]}`, []string{`1:33: descriptors: an item must be a map with a key, not nothing`}},
		{`{"domain": "d", "descriptors": [{}]}`, []string{`1:33: the descriptor has no key; write key: and the name of what it tells apart`}},
		{`{"domain": "d", "descriptors": [{"key": ""}]}`, []string{`1:41: key: is empty; write a value`}},
		{`{"domain": "d", "descriptors": [{"key": null, "value": "a"}]}`, []string{`1:33: the descriptor has no key; write key: and the name of what it tells apart`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "Value": "b"}]}`, []string{`1:46: "Value" is not a field of a descriptor (did you mean value?)`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "vlaue": "b"}]}`, []string{`1:46: "vlaue" is not a field of a descriptor (did you mean value?)`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "day", "requests per_unit": 5}}]}`, []string{`1:76: "requests per_unit" is not a field of rate_limit (did you mean requests_per_unit?)`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "ratelimit": {}}]}`, []string{
			`1:46: "ratelimit" is not a field of a descriptor (did you mean rate_limit?)`,
			`1:59: descriptor "d.a": rate_limit: has no unit; write one of second, minute, hour, day, week, month, year`,
		}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": []}]}`, []string{`1:60: rate_limit must be a map with some of unit, requests_per_unit, unlimited, name, replaces, not a list`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {}}]}`, []string{`1:60: descriptor "d.a": rate_limit: has no unit; write one of second, minute, hour, day, week, month, year`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "day"}}]}`, []string{`1:60: descriptor "d.a": rate_limit: has no requests_per_unit; write how many requests a unit has, 0 to reject all`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"requests_per_unit": 5}}]}`, []string{`1:60: descriptor "d.a": rate_limit: has no unit; write one of second, minute, hour, day, week, month, year`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "days", "requests_per_unit": 5}}]}`, []string{`1:69: descriptor "d.a": unit "days": must be second, minute, hour, day, week, month or year (did you mean day?)`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "unknown", "requests_per_unit": 5}}]}`, []string{`1:69: descriptor "d.a": unit "unknown": must be second, minute, hour, day, week, month or year`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "day", "requests_per_unit": -1}}]}`, []string{`1:97: descriptor "d.a": requests_per_unit "-1": must be a whole number from 0, which rejects all, to 1000000000; for more write unlimited: true`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "day", "requests_per_unit": 1.5}}]}`, []string{`1:97: descriptor "d.a": requests_per_unit "1.5": must be a whole number from 0, which rejects all, to 1000000000; for more write unlimited: true`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "day", "requests_per_unit": "010"}}]}`, []string{`1:97: descriptor "d.a": requests_per_unit "010": must be a whole number from 0, which rejects all, to 1000000000; for more write unlimited: true`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "day", "requests_per_unit": 4294967295}}]}`, []string{`1:97: descriptor "d.a": requests_per_unit "4294967295": must be a whole number from 0, which rejects all, to 1000000000; for more write unlimited: true`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "day", "requests_per_unit": [5]}}]}`, []string{`1:97: descriptor "d.a": requests_per_unit: must be a single value, not a list`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unlimited": true, "unit": "day"}}]}`, []string{`1:88: descriptor "d.a": unit and unlimited: true are mutually exclusive: remove one`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unlimited": "yes"}}]}`, []string{`1:74: descriptor "d.a": unlimited "yes": must be true or false`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unlimited": true, "requests_per_unit": "many"}}]}`, []string{`1:101: descriptor "d.a": requests_per_unit "many": must be a whole number from 0, which rejects all, to 1000000000; for more write unlimited: true`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unlimited": true, "name": "n", "replaces": [{"name": "n"}]}}]}`, []string{`1:115: descriptor "d.a": replaces: "n" is the name of this limit, which cannot replace itself`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unlimited": true, "replaces": [{"name": ""}]}}]}`, []string{`1:102: descriptor "d.a": replaces: name: is empty; write a value`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unlimited": true, "replaces": [{}]}}]}`, []string{`1:93: descriptor "d.a": replaces: has no name; write the name of the limit that gives way`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unlimited": true, "replaces": ["n"]}}]}`, []string{`1:93: replaces must be a map with some of name, not a text`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unlimited": true, "replaces": "n"}}]}`, []string{`1:92: descriptor "d.a": replaces: must be a list, each item with a dash in front: - name: …`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unlimited": true, "replaces": [{"nmae": "n"}]}}]}`, []string{`1:94: "nmae" is not a field of replaces (did you mean name?)`}},
		{`{"domain": "d", "descriptors": [
	{"key": "a", "value": "b"},
	{"key": "a"},
	{"key": "a", "value": "b"}]}`, []string{`4:2: descriptor "d.a_b": duplicate, first in line 2; keep one`}},
		{`{"domain": "d", "descriptors": [{"key": "x", "descriptors": [
	{"key": "a"},
	{"key": "a", "value": ""}]}]}`, []string{`3:2: descriptor "d.x.a": duplicate, first in line 2; keep one`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "shadow_mode": "on"}]}`, []string{`1:61: descriptor "d.a": shadow_mode "on": must be true or false`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "shadow_mode": 1}]}`, []string{`1:61: descriptor "d.a": shadow_mode "1": must be true or false`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "quota_mode": "on"}]}`, []string{`1:60: descriptor "d.a": quota_mode "on": must be true or false`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "value_to_metric": 1}]}`, []string{`1:65: descriptor "d.a": value_to_metric "1": must be true or false`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "metadata": ["b"]}]}`, []string{`1:58: descriptor "d.a": metadata: must be a map, not a list`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "value": "b", "share_threshold": true}]}`, []string{`1:79: descriptor "d.a_b": share_threshold: only descriptors with a wildcard share a limit between values; write a value with a * in it`}},
		{`{"domain": "d", "descriptors": [{"key": "a*"}]}`, []string{`1:41: key "a*": a * is for values, not for keys`}},
		{`{"domain": "d", "descriptors": [{"key": "a", "value": {"b": "c"}}]}`, []string{`1:55: value: must be a single value, not a map`}},
		{`{"domain": "d", "descriptors": [
	{"key": "a", "Value": "b", "rate_limit": {"unit": "dya", "requests_per_unit": "x"}},
	{"key": "c", "descriptors": [
		{"key": "", "rate_limit": {"unit": "day"}},
		{"key": "e", "quota_mode": "on"}]}]}`, []string{
			`2:15: "Value" is not a field of a descriptor (did you mean value?)`,
			`2:52: descriptor "d.a_b": unit "dya": must be second, minute, hour, day, week, month or year (did you mean day?)`,
			`2:80: descriptor "d.a_b": requests_per_unit "x": must be a whole number from 0, which rejects all, to 1000000000; for more write unlimited: true`,
			`4:11: key: is empty; write a value`,
			`4:29: descriptor "d.c.": rate_limit: has no requests_per_unit; write how many requests a unit has, 0 to reject all`,
			`5:30: descriptor "d.c.e": quota_mode "on": must be true or false`,
		}},
	})
}

func TestAllOfEnvoysFieldsThatAreHonouredAreRead(t *testing.T) {
	f := accepted(t, `{"domain": "d", "descriptors": [
	{"key": "a", "value": "", "rate_limit": {"unit": "Second", "requests_per_unit": "5"}, "detailed_metric": true, "quota_mode": false, "value_to_metric": false},
	{"key": "b", "value": 5, "rate_limit": {"unit": "MINUTE", "requests_per_unit": 0}, "shadow_mode": true},
	{"key": "c", "value": true, "rate_limit": {"unlimited": true, "requests_per_unit": 7, "name": "n", "replaces": [{"name": "m"}, {"name": "o"}]}},
	{"key": 7, "value": "d*", "share_threshold": true, "shadow_mode": false, "descriptors": [
		{"key": "e", "value": null, "rate_limit": {"unlimited": false, "unit": "year", "requests_per_unit": 1000000000, "replaces": []}},
		{"key": "e", "value": "*"}]},
	{"key": "f", "rate_limit": null, "descriptors": []}]}`)
	d := f.Domain
	if len(f.Rules) != 0 || d.Name != "d" || d.Line != 1 || d.Column != 12 || len(d.Descriptors) != 5 || d.Count != 7 || d.Limits != 4 {
		t.Fatalf("%+v", d)
	}
	a := d.Descriptors[0]
	if a.Key != "a" || a.Value != "" || a.Limit == nil || a.Limit.Requests != 5 || a.Limit.Period != 1_000_000 || a.Limit.Algorithm != rate.FixedWindow || a.Shadow || a.Blocks || a.Line != 2 {
		t.Errorf("%+v", a)
	}
	b := d.Descriptors[1]
	if b.Value != "5" || !b.Blocks || !b.Shadow || b.Limit == nil {
		t.Errorf("%+v", b)
	}
	c := d.Descriptors[2]
	if c.Value != "true" || !c.Unlimited || c.Limit != nil || c.Name != "n" || len(c.Replaces) != 2 || c.Replaces[0] != "m" || c.Replaces[1] != "o" {
		t.Errorf("%+v", c)
	}
	e := d.Descriptors[3]
	if e.Key != "7" || e.Value != "d*" || !e.ShareThreshold || e.Limit != nil || len(e.Descriptors) != 2 {
		t.Errorf("%+v", e)
	}
	if below := e.Descriptors[0]; below.Value != "" || below.Unlimited || below.Limit.Requests != 1_000_000_000 {
		t.Errorf("%+v", below)
	}
}

func TestUnitsAreAsLongAsEnvoysServiceHasThem(t *testing.T) {
	day := 24 * time.Hour
	for unit, want := range map[string]time.Duration{
		"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day, "week": 7 * day, "month": 30 * day, "year": 365 * day,
	} {
		f := accepted(t, `{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "`+unit+`", "requests_per_unit": 1}}]}`)
		must.Equal(t, f.Domain.Descriptors[0].Limit.Period, want.Microseconds(), "%s", unit)
	}
}

func TestADomainMayHaveNothingYet(t *testing.T) {
	for _, text := range []string{`{"domain": "d"}`, `{"domain": "d", "descriptors": []}`, `{"domain": "d", "descriptors": null}`} {
		if f := accepted(t, text); f.Domain == nil || f.Domain.Name != "d" || f.Domain.Count != 0 {
			t.Errorf("%s: %+v", text, f.Domain)
		}
	}
}

// What is taken without effect is said, once a file.
func TestADetailedMetricIsAdvisedOf(t *testing.T) {
	for text, want := range map[string]string{
		`{"domain": "d", "descriptors": [
			{"key": "a", "detailed_metric": true}, {"key": "b",
			"detailed_metric": true}]}`: "f:2:36: detailed_metric: has no effect: no value of a request is ever the label of a metric",
		`{"domain": "d", "descriptors": [{"key": "a", "detailed_metric": false}]}`: "",
	} {
		s, err := NewSet([]*File{accepted(t, text)}, "")
		if err != nil {
			t.Fatal(err)
		}
		must.Equal(t, strings.Join(s.Advice(), "\n"), want, "%s", text)
	}
}
