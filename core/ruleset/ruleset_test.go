package ruleset

import "testing"

// known is the example that everybody knows.
const known = `{"domain": "messaging", "descriptors": [
	{"key": "message_type", "value": "marketing", "rate_limit": {"unit": "day", "requests_per_unit": 5}}
]}`

func TestADescriptorIsFound(t *testing.T) {
	root, problems := ParseJSON("known.json", []byte(known))
	if problems != nil {
		t.Fatal(problems)
	}
	f, problems := Decode("known.json", root)
	if problems != nil {
		t.Fatal(problems)
	}
	s, err := NewSet([]*File{f}, "")
	if err != nil {
		t.Fatal(err)
	}
	var l Lookup
	l.Begin()
	l.Add(s.Domains[0], []Entry{{Key: "message_type", Value: "marketing"}})
	l.Finish()
	if len(l.Found) != 1 || l.Found[0].Rule.Name() != "messaging.message_type_marketing" || l.Found[0].Rule.Limit.Requests != 5 {
		t.Fatalf("found %v", l.Found)
	}
}
