package advice

import (
	"math"
	"strings"
	"testing"
	"time"
)

// plain returns a document that proxies take.
func plain() *Document {
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	return &Document{
		Serial: 1, Config: Digest(nil), IssuedAt: at, EffectiveAt: at, ExpiresAt: at.Add(10 * time.Minute), Model: Model{Name: "m", HorizonSeconds: 60},
		Rules: []Rule{{Rule: "api", Limit: &Limit{Requests: 120}, Reason: "growth", Forecast: &Forecast{Mean: 91, Lower: 70, Upper: 118, Quantile: 0.99}}},
	}
}

func TestARefusalSaysWhereAndWhat(t *testing.T) {
	body, err := Marshal(plain())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{`"requests":120`, `"requests":0`, "value: rules[0].limit.requests 0: must be from 1 to 1000000000"},
		{`"requests":120`, `"requests":1.5`, "malformed: rules[0].limit.requests: is 1.5, and must be written without fraction and exponent"},
		{`"requests":120`, `"requests":"x"`, "malformed: rules[0].limit.requests: is a text, and must be a number"},
		{`"requests":120`, `"requests":120,"requests":120`, "malformed: rules[0].limit.requests: duplicate"},
		{`"requests":120`, `"requests":120,"period":1`, "unknown_field: rules[0].limit.period: known are requests, burst, algorithm"},
		{`"requests":120`, `"requests":120,"` + strings.Repeat("x", 1000) + "\":1", "unknown_field: rules[0].limit." + strings.Repeat("x", 64) + "...: known are requests, burst, algorithm"},
		{`"requests":120`, `"requests":120,"a\u0000b":1`, `unknown_field: rules[0].limit."a\x00b": known are requests, burst, algorithm`},
		{`"name":"m"`, `"name":"\u001b[2J"`, `value: model.name "\x1b[2J": must be 1 to 64 printable letters of ASCII`},
		{`"version":1`, `"version":1,"[\u001b":{"a":1,"a":1}`, `malformed: "[\x1b".a: duplicate`},
		{`"version":1`, `"version":2`, "version: version 2: must be 1"},
		{`"serial":1`, `"serial":NaN`, "malformed: is not JSON: byte 23: invalid character 'N' looking for beginning of value"},
	} {
		_, refusal := Read([]byte(strings.Replace(string(body), c.from, c.to, 1)))
		if refusal == nil || refusal.Error() != c.want {
			t.Errorf("%s: %v, not %s", c.to, refusal, c.want)
		}
	}
}

// An interpreter takes some 10 µs for each value, so a hostile advisor must not make it read as many as fit into a mebibyte.
func TestADocumentHasNoMoreValuesThanAdviceForAllRules(t *testing.T) {
	body := `{"x":[` + strings.Repeat("1,", 30_000) + "1]}"
	_, refusal := Parse([]byte(body), Expect{})
	if refusal == nil || refusal.Error() != "malformed: x[24022]: has more values than advice for all rules" {
		t.Errorf("%v", refusal)
	}
	if _, refusal = Read([]byte(body)); refusal == nil || refusal.Text != "version: is missing" {
		t.Errorf("%v", refusal)
	}
	var keys []string
	for i := 0; i < 100; i++ {
		keys = append(keys, `"`+strings.Repeat("k", i+1)+`":1`)
	}
	if _, refusal = Read([]byte("{" + strings.Join(keys, ",") + "}")); refusal == nil || refusal.Text != "version: is missing" {
		t.Errorf("%v", refusal)
	}
	if _, refusal = Read([]byte("{" + strings.Join(keys, ",") + `,"kk":1}`)); refusal == nil || refusal.Text != "kk: duplicate" {
		t.Errorf("%v", refusal)
	}
}

func TestDocumentsAreNestedSixteenDeepAtMost(t *testing.T) {
	for _, c := range []struct{ begins, ends string }{{"[", "]"}, {`{"x":`, "}"}, {`[{"x":`, "}]"}} {
		deep := 15 / len(c.ends)
		for more := 0; more < 3; more++ {
			body := `{"x":` + strings.Repeat(c.begins, deep+more) + "1" + strings.Repeat(c.ends, deep+more) + "}"
			_, refusal := Read([]byte(body))
			tooDeep := 1+(deep+more)*len(c.ends) > maxDepth
			if refusal == nil || strings.Contains(refusal.Text, "nested") != tooDeep {
				t.Errorf("%s: %v", body, refusal)
			}
		}
	}
}

func TestTimesInRefusalsAreReadable(t *testing.T) {
	d := plain()
	refusal := Check(d, Expect{Now: d.ExpiresAt.UnixMicro()})
	if refusal == nil || refusal.Text != "expires_at 2026-11-22T10:10:00Z: is over; it is 2026-11-22T10:10:00Z" {
		t.Errorf("%v", refusal)
	}
}

func TestWhatProxiesRefuseIsNotWritten(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(d *Document)
	}{
		{"no serial", func(d *Document) { d.Serial = 0 }},
		{"not a number", func(d *Document) { d.Rules[0].Forecast.Mean = math.NaN() }},
		{"expired at once", func(d *Document) { d.ExpiresAt = d.IssuedAt }},
		{"no digest", func(d *Document) { d.Config = "" }},
		{"an empty rule", func(d *Document) { d.Rules[0].Limit = nil }},
	} {
		d := plain()
		c.change(d)
		if body, err := Marshal(d); err == nil {
			t.Errorf("%s: %s", c.name, body)
		}
	}
	d := plain()
	d.Rules = nil
	if body, err := Marshal(d); err != nil || !strings.Contains(string(body), `"rules":[]`) || !strings.Contains(string(body), `"version":1`) {
		t.Errorf("%s %v", body, err)
	}
}

func FuzzRead(f *testing.F) {
	var file documentVectors
	readVectors(f, "documents.json", &file)
	for i := range file.Cases {
		if c := &file.Cases[i]; c.Rules == 0 && c.Pad == 0 {
			f.Add(c.body(f, file.Document))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d, refusal := Read(body)
		if (d == nil) == (refusal == nil) {
			t.Fatalf("%v %v", d, refusal)
		}
		if refusal != nil {
			if indexOf(Reasons, refusal.Reason) < 0 || refusal.Text == "" {
				t.Errorf("%+v", refusal)
			}
			return
		}
		for i := range d.Rules {
			if a := d.Rules[i].Above; a != nil {
				if requests, period, ok := readRate(a.Limit); !ok || requests < 1 || period < leastAbove {
					t.Errorf("%+v", a)
				}
			}
		}
		if Check(d, Expect{Now: d.IssuedAt.UnixMicro(), Config: d.Config, Rules: labelsOf(d)}) == nil {
			sameAgain(t, "", d)
		}
	})
}
