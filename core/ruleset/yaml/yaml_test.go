package yaml

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/tools/must"
)

// written returns a node as JSON has it, with the place of each value behind it where places is set.
func written(n *ruleset.Node, places bool) string {
	at := ""
	if places {
		at = fmt.Sprintf("@%d:%d", n.Line, n.Column)
	}
	switch n.Kind {
	case ruleset.Null:
		return "null" + at
	case ruleset.String:
		return strconv.Quote(n.Value) + at
	case ruleset.List:
		items := make([]string, 0, len(n.Items))
		for _, item := range n.Items {
			items = append(items, written(item, places))
		}
		return "[" + strings.Join(items, ",") + "]" + at
	case ruleset.Map:
		members := make([]string, 0, len(n.Members))
		for _, m := range n.Members {
			members = append(members, written(m.Key, places)+":"+written(m.Value, places))
		}
		return "{" + strings.Join(members, ",") + "}" + at
	}
	if _, err := strconv.ParseFloat(n.Value, 64); err != nil && n.Kind == ruleset.Number && strings.Contains(strings.ToLower(n.Value), "e") {
		return strconv.Quote(n.Value) + at // YAML takes a number that is too large for a text
	}
	return n.Value + at
}

func TestValuesAreWhereTheyAreWritten(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "null@1:1"},
		{"# only a comment\n\n", "null@1:1"},
		{"\ufeff", "null@1:1"},
		{"---\n...\n", "null@2:1"},
		{"a: b\n", `{"a"@1:1:"b"@1:4}@1:1`},
		{"---\na: b\n...\n", `{"a"@2:1:"b"@2:4}@2:1`},
		{"\ufeffa: b\n", `{"a"@1:1:"b"@1:4}@1:1`},
		{"\ufeff{\"a\": b}\n", `{"a"@1:2:"b"@1:7}@1:1`},
		{"a: b\r\nc:\r\n  - d\r\n  - e: f\r\n", `{"a"@1:1:"b"@1:4,"c"@2:1:["d"@3:5,{"e"@4:5:"f"@4:8}@4:5]@3:3}@1:1`},
		{"ä: ö # ü\nb: 'x'\n", `{"ä"@1:1:"ö"@1:4,"b"@2:1:"x"@2:4}@1:1`},
		{"a: {b: [1, 2.5, true, ~, \"5\"], c: }\n", `{"a"@1:1:{"b"@1:5:[1@1:9,2.5@1:12,true@1:17,null@1:23,"5"@1:26]@1:8,"c"@1:32:null@1:35}@1:4}@1:1`},
		{"a: |\n  x\n  y\nb: >-\n  x\n  y\n", `{"a"@1:1:"x\ny\n"@1:4,"b"@4:1:"x y"@4:4}@1:1`},
		{"a: 2026-01-01\nb: 1_000\nc: 0x1F\nd: yes\ne: 1.5.2\n", `{"a"@1:1:"2026-01-01"@1:4,"b"@2:1:1_000@2:4,"c"@3:1:0x1F@3:4,"d"@4:1:"yes"@4:4,"e"@5:1:"1.5.2"@5:4}@1:1`},
		{"? a\n: b\n", `{"a"@1:3:"b"@2:3}@1:1`},
		{"\"*\": 5/1m\n'<<': x\n", `{"*"@1:1:"5/1m"@1:6,"<<"@2:1:"x"@2:7}@1:1`},
		{"%YAML 1.1\n---\na: b\n", `{"a"@3:1:"b"@3:4}@3:1`},
	} {
		n, problems := Parse("f", []byte(c.text))
		if problems != nil {
			t.Errorf("%q: %v", c.text, problems)
			continue
		}
		if got := written(n, true); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

func TestWhatAListOfLimitsHasNoUseForIsRefused(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"a: &x 5\nb: *x\n", []string{
			"1:4: &x: anchors are not taken; write the value out where it is needed",
			"2:4: *x: aliases are not taken; write the value out",
		}},
		{"b: 1\na: [1, *nowhere]\n", []string{"2:8: *nowhere: aliases are not taken; write the value out, or in quotes if it is meant as it is"}},
		{"&a b: c\n", []string{"1:1: &a: anchors are not taken; write the value out where it is needed"}},
		{"a: &x [*x]\n", []string{"1:4: &x: anchors are not taken; write the value out where it is needed"}},
		{"a:\n  <<: {b: c}\n", []string{"2:3: <<: merging is not taken; write the fields out"}},
		{"a: !!str 5\n", []string{"1:4: !!str: tags are not taken; take it out"}},
		{"a: !ruby/object {}\n", []string{"1:4: !ruby/object: tags are not taken; take it out"}},
		{"!!str a: b\n", []string{"1:1: !!str: tags are not taken; take it out"}},
		{"a: 1\nb: 2\na: 3\nb: 4\n", []string{`3:1: duplicate key "a", first in line 1; keep one`, `4:1: duplicate key "b", first in line 2; keep one`}},
		{"a: {b: 1, \"b\": 2}\n", []string{`1:11: duplicate key "b", first in line 1; keep one`}},
		{"5: a\ntrue: b\n~: c\n1.5: d\n[a]: e\n{a: b}: c\n", []string{
			"1:1: the key 5 must be a text; put it in quotes if it is meant as one",
			"2:1: the key true must be a text; put it in quotes if it is meant as one",
			"3:1: the key ~ must be a text; put it in quotes if it is meant as one",
			"4:1: the key 1.5 must be a text; put it in quotes if it is meant as one",
			"5:1: a key must be a text",
			"6:1: a key must be a text",
		}},
		{"a: b\n---\nc: d\n", []string{"2:1: a second document begins here; a file has one: take the --- out, or write a file of its own"}},
		{"a: b\n---\n", []string{"2:1: a second document begins here; a file has one: take the --- out, or write a file of its own"}},
		{"a: b\n--- [\n", []string{"3:1: is no YAML: did not find expected node content"}},
		{"a: " + strings.Repeat("[", 65) + strings.Repeat("]", 65), []string{"1:68: is nested more than 64 deep"}},
	} {
		checkProblems(t, c.text, c.want)
	}
}

func checkProblems(t *testing.T, text string, want []string) {
	t.Helper()
	n, problems := Parse("f", []byte(text))
	got := make([]string, 0, len(problems))
	for _, p := range problems {
		got = append(got, strings.TrimPrefix(p.String(), "f:"))
	}
	if n != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%.80q:\n got %s\nwant %s", text, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func TestWhatIsNoYAMLIsSaidWithItsLine(t *testing.T) {
	const tab = "; is it indented with a tab? YAML takes spaces only"
	for _, c := range []struct{ text, want string }{
		{"x: 1\na:\n\tb: c\n", "3:1: is no YAML: found character that cannot start any token" + tab},
		{"a: b\n\tc: d\n", "2:1: is no YAML: found a tab character that violates indentation"},
		{"x: 1\na: b: c\n", "2:1: is no YAML: mapping values are not allowed in this context"},
		{"x: 1\na: @b\n", "2:1: is no YAML: found character that cannot start any token" + tab},
		{"x: 1\n*: 5/1m\n", "2:1: is no YAML: did not find expected alphabetic or numeric character; write a value or a key that is * in quotes"},
		{"x: 1\ny: }\n", "2:1: is no YAML: did not find expected node content"},
		{"x: 1\ny: [1, 2\nz: 3\n", "2:1: is no YAML: did not find expected ',' or ']'"},
		{"x: 1\ny:\n  - b\n c: d\n", "4:1: is no YAML: did not find expected key"},
		{"- a\nb: c\n", "2:1: is no YAML: did not find expected '-' indicator"},
		{"x: 1\na: \"x\n", "2:1: is no YAML: found unexpected end of stream"},
		{"%YAML 3.0\n---\na: 1\n", "1:1: is no YAML: found incompatible YAML document"},
		{"a: b\nc: \"x\x00\"\n", "2:6: the control character U+0000; take it out"},
		{"\ufeffc: \x1b[0m\n", "1:4: the control character U+001B; take it out"},
		{"a: ä\x7f\n", "1:5: the control character U+007F; take it out"},
		{"a: b\nä: \xff\n", "2:4: the byte 0xff is no UTF-8; save the file in that encoding"},
		{"\xff\xfea\x00:\x00", "1:1: the byte 0xff is no UTF-8; save the file in that encoding"},
		{strings.Repeat("[", 100_000), "1:1: is no YAML: exceeded max depth of 10000"},
		{strings.Repeat("- ", 100_000), "1:1: is no YAML: exceeded max depth of 10000"},
		{strings.Repeat("{a: ", 100_000), "1:1: is no YAML: exceeded max depth of 10000"},
	} {
		checkProblems(t, c.text, []string{c.want})
	}
}

// laughs is the classic: each line has ten times what the one before it has.
func laughs() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for i := 1; i < 10; i++ {
		alias := fmt.Sprintf("*a%d", i-1)
		fmt.Fprintf(&b, "a%d: &a%d [%s%s]\n", i, i, alias, strings.Repeat(", "+alias, 9))
	}
	return b.String()
}

// What a file makes Go allocate, all in all, does not depend on the machine, as time would.
func TestWorstFilesCostLittle(t *testing.T) {
	fill := func(s string) string { return strings.Repeat(s, ruleset.MaxFile/len(s)) }
	const values = ruleset.MaxValues / 20
	for _, c := range []struct {
		name, text string
		megabytes  uint64
		want       string // in the problem; "": none
	}{
		{"laughs", laughs(), 10, "anchors are not taken"},
		{"brackets", fill("["), 1, "has more than 1000000 values"},
		{"braces", fill("{"), 1, "has more than 1000000 values"},
		{"dashes", fill("- "), 1, "has more than 1000000 values"},
		{"members", fill("a: b\n"), 1, "has more than 1000000 values"},
		{"commas", fill("[,"), 1, "has more than 1000000 values"},
		{"keys", fill("? "), 1, "has more than 1000000 values"},
		{"deep", strings.Repeat("[", 100_000), 50, "exceeded max depth"},
		// Of these a file may have twenty times as many.
		{"values", "[" + strings.Repeat("a,", values) + "]", 50, ""},
		{"maps", strings.Repeat("- {a: b}\n", values/4), 50, ""},
		{"comments", strings.Repeat("- a #c\n", values/2), 50, ""},
		{"lines of comment", strings.Repeat("#aaaaaa\n", values), 50, ""},
		{"a long text", "a: " + strings.Repeat("a ", ruleset.MaxFile/40) + "\n", 10, ""},
		{"a long quoted text", "a: \"" + strings.Repeat("\\x41", ruleset.MaxFile/80) + "\"\n", 10, ""},
		{"a long comment", "#" + strings.Repeat("a", ruleset.MaxFile/20) + "\na: b\n", 10, ""},
	} {
		data := []byte(c.text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, problems := Parse("f", data)
		runtime.ReadMemStats(&after)
		if (c.want == "") != (problems == nil) || c.want != "" && !strings.Contains(problems.Error(), c.want) {
			t.Errorf("%s: %.200v, want %q", c.name, problems, c.want)
		}
		if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > c.megabytes {
			t.Errorf("%s: %d MB were allocated for %d kB, want at most %d", c.name, allocated, len(data)>>10, c.megabytes)
		}
	}
}

// both has files in JSON that both parsers must read alike.
var both = []string{
	"null", "true", "5", `"a"`, "[]", "{}", "[[], {}]", "{\"a\": [1, -2.5e3, false, null, \"x\\ny\\u00e4\\/\"]}",
	"{\n\t\"rules\": [\n\t\t{\"name\": \"a\", \"limit\": \"5/1m\"}\n\t]\n}\n",
	"\ufeff{\"a\": 1}", "{\"a\":1,\"b\":{\"c\":\"d\"}}", "{\"a\": 1, \"a\": 2}", "{\"\": 1}", "{\"<<\": {\"a\": 1}, \"*\": \"&x\", \"5\": \"!!x\"}",
	"[\"yes\", \"no\", \"~\", \"null\", \"5\", \"1e3\", 1e3, 1E+2, -0, 0.5]", "{\"ä\": \"ö\",\r\n \"b\": \"c\"}",
	strings.Repeat("[", 60) + strings.Repeat("]", 60), strings.Repeat("[", 70) + strings.Repeat("]", 70),
	"{\"a\": \"\\/ \\ud83d\\ude00 \\ud800 \u2028 \x7f\"}", "{\"" + strings.Repeat("long", 300) + "\": 1}", "{\"a\"\n:1}",
}

func TestYAMLAndJSONAreReadAlike(t *testing.T) {
	for _, text := range both {
		checkAlike(t, text)
	}
}

// checkAlike checks a text in JSON: that Parse reads it as JSON does, and so does the parser of YAML, unless it refuses it.
func checkAlike(t *testing.T, text string) {
	t.Helper()
	fromJSON, problems := ruleset.ParseJSON("f", []byte(text))
	fromYAML, others := Parse("f", []byte(text))
	if (problems == nil) != (others == nil) {
		t.Fatalf("%q: in JSON %v, in YAML %v", text, problems, others)
	}
	if problems != nil {
		return
	}
	if a, b := written(fromJSON, false), written(fromYAML, false); a != b {
		t.Fatalf("%q:\nin JSON %s\nin YAML %s", text, a, b)
	}
	plain, others := parse("f", []byte(text))
	if others != nil {
		return
	}
	if a, b := written(fromJSON, false), written(plain, false); a != b {
		t.Fatalf("%q:\nin JSON %s\nin YAML %s", text, a, b)
	}
}

const book = `domain: messaging
descriptors:
  # Only 5 marketing messages are allowed per day.
  - key: message_type
    value: marketing
    rate_limit:
      unit: day
      requests_per_unit: 5
`

func TestTheExampleThatEverybodyKnowsIsRead(t *testing.T) {
	root, problems := Parse("f", []byte(book))
	if problems != nil {
		t.Fatal(problems)
	}
	f, problems := ruleset.Decode("f", root)
	if problems != nil {
		t.Fatal(problems)
	}
	s, err := ruleset.NewSet([]*ruleset.File{f}, "")
	must.Succeed(t, err)
	if rules := s.All(); len(rules) != 1 || rules[0].Name() != "messaging.message_type_marketing" || rules[0].Limit.Requests != 5 {
		t.Errorf("%v", rules)
	}
}

// Books print the example with misspelled words. It is refused with the words that were meant, and with nothing else.
func TestTheExampleAsBooksPrintIt(t *testing.T) {
	text := strings.Replace(strings.Replace(book, "value:", "Value:", 1), "requests_per_unit", "requests per_unit", 1)
	root, problems := Parse("f", []byte(text))
	if problems != nil {
		t.Fatal(problems)
	}
	_, problems = ruleset.Decode("f", root)
	want := "f:5:5: \"Value\" is not a field of a descriptor (did you mean value?)\n" +
		"f:8:7: \"requests per_unit\" is not a field of rate_limit (did you mean requests_per_unit?)"
	if problems.Error() != want {
		t.Errorf("\n got %s\nwant %s", problems, want)
	}
}

// Through the files, as a program reads them: all that is wrong in all of them, and in them together.
func TestProblemsOfSeveralFilesAreSaidTogether(t *testing.T) {
	d := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "rules:\n- {name: one, limit: 5/1m}\n- {name: two, limit: 5/1m}\n",
		"b.yaml": "rules:\n- {name: two, limit: 5/1m}\n- {name: three, limit: x}\ndomain: d\n",
		"c.yaml": "x: [\n",
		"d.yaml": "domain: d\n",
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(d, name), []byte(text), 0o600))
	}
	contents, problems := ruleset.Read([]string{filepath.Join(d, "*.yaml")})
	if problems != nil {
		t.Fatal(problems)
	}
	_, problems = ruleset.Parse(contents, Parse)
	want := []string{
		`b.yaml:3:24: rule "three": limit "x": has no period; write <requests>/<period>, such as 100/1m`,
		`c.yaml:2:1: is no YAML: did not find expected node content`,
		`b.yaml:2:3: rule "two": duplicate name, also in a.yaml; rename one`,
		`d.yaml:1:9: domain "d": is in b.yaml, too; write all its descriptors in one file`,
	}
	if got := strings.Replace(problems.Error(), d+string(filepath.Separator), "", -1); got != strings.Join(want, "\n") {
		t.Errorf("\n got %s\nwant %s", got, strings.Join(want, "\n"))
	}
}

func TestAFileNamedJSONIsReadAsInTraefik(t *testing.T) {
	const text = "{\"rules\": [\n  {\"name\": \"a\", \"limit\": \"3/1m\"}, // of the shop\n]}"
	for name, want := range map[string]string{
		"a.json": "a.json:2:35: is no JSON: invalid character '/' looking for beginning of value; comments and commas at the end are YAML: name the file .yaml",
		"A.JSON": "A.JSON:2:35: is no JSON: invalid character '/' looking for beginning of value; comments and commas at the end are YAML: name the file .yaml",
	} {
		if _, problems := Parse(name, []byte(text)); len(problems) != 1 || problems[0].String() != want {
			t.Errorf("got %v\nwant %s", problems, want)
		}
	}
	const commas = "{\"rules\": [{\"name\": \"a\", \"limit\": \"3/1m\",},]} # of the shop"
	if _, problems := Parse("a.yaml", []byte(commas)); problems != nil {
		t.Errorf("YAML with commas at the end is refused: %v", problems)
	}
	if _, problems := Parse("a.json", []byte(commas)); len(problems) != 1 {
		t.Errorf("JSON with commas at the end: %v", problems)
	}
}
