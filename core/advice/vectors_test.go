package advice

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// interpreted is set to false by compiled_test.go, which the interpreter leaves out.
var interpreted = true

// readVectors reads a file of testdata/advice, which is in the working directory or above it.
func readVectors(t testing.TB, name string, to interface{}) {
	t.Helper()
	dir, err := os.Getwd()
	must.Succeed(t, err)
	for {
		body, err := os.ReadFile(filepath.Join(dir, "testdata", "advice", name))
		if err == nil {
			if err := json.Unmarshal(body, to); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatalf("testdata/advice/%s: not found in the working directory or above it", name)
		}
		dir = parent
	}
}

// writtenRule is an adaptable rule as the vectors write it.
type writtenRule struct {
	Rule       string   `json:"rule"`
	Limit      string   `json:"limit"`
	TimeZone   string   `json:"time_zone"`
	Burst      int64    `json:"burst"`
	Algorithm  string   `json:"algorithm"`
	Floor      string   `json:"floor"`
	Ceiling    string   `json:"ceiling"`
	Algorithms []string `json:"algorithms"`
}

func (w *writtenRule) adaptable(t testing.TB) Adaptable {
	t.Helper()
	a := Adaptable{Label: w.Rule, Burst: w.Burst, Algorithm: w.Algorithm, Algorithms: w.Algorithms}
	var period string
	a.Requests, period = splitLimit(t, w.Limit)
	a.Floor, _ = splitLimit(t, w.Floor)
	a.Ceiling, _ = splitLimit(t, w.Ceiling)
	switch period {
	case "day", "week", "month":
		zone := w.TimeZone
		if zone == "" {
			zone = "UTC"
		}
		a.Calendar = period + "@" + zone
	case "366d":
		a.Period = 366 * 24 * int64(time.Hour/time.Microsecond)
	default:
		d, err := time.ParseDuration(period)
		must.Succeed(t, err)
		a.Period = int64(d / time.Microsecond)
	}
	if a.Burst == 0 && isBucket(a.Algorithm) {
		a.Burst = a.Requests
	}
	return a
}

func splitLimit(t testing.TB, s string) (int64, string) {
	t.Helper()
	var n int64
	number, period, _ := strings.Cut(s, "/")
	if _, err := fmt.Sscan(number, &n); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return n, period
}

func TestTheDigestIsThatOfTheVectors(t *testing.T) {
	var file struct {
		Cases []struct {
			Title  string        `json:"title"`
			Rules  []writtenRule `json:"rules"`
			Text   string        `json:"text"`
			Digest string        `json:"digest"`
		} `json:"cases"`
	}
	readVectors(t, "digest.json", &file)
	if len(file.Cases) < 9 {
		t.Errorf("%d cases", len(file.Cases))
	}
	for _, c := range file.Cases {
		var rules []Adaptable
		for i := range c.Rules {
			rules = append(rules, c.Rules[i].adaptable(t))
		}
		must.Equal(t, DigestText(rules), c.Text, "%s", c.Title)
		must.Equal(t, Digest(rules), c.Digest, "%s", c.Title)
	}
}

// documentVectors is documents.json.
type documentVectors struct {
	Now        string         `json:"now"`
	Config     string         `json:"config"`
	LastSerial int64          `json:"last_serial"`
	Adaptable  []string       `json:"adaptable"`
	Document   string         `json:"document"`
	Cases      []documentCase `json:"cases"`
}

type documentCase struct {
	Title      string     `json:"title"`
	Edits      [][]string `json:"edits"`
	Rules      int        `json:"rules"`
	InsertHex  string     `json:"insert_hex"`
	Pad        int        `json:"pad"`
	Now        string     `json:"now"`
	LastSerial *int64     `json:"last_serial"`
	Reason     string     `json:"reason"`
}

// body returns the bytes that a proxy receives.
func (c *documentCase) body(t testing.TB, document string) []byte {
	t.Helper()
	for _, edit := range c.Edits {
		if !strings.Contains(document, edit[0]) {
			t.Fatalf("%s: no %s", c.Title, edit[0])
		}
		document = strings.Replace(document, edit[0], edit[1], 1)
	}
	if c.Rules > 0 {
		var list []string
		for i := 1; i <= c.Rules; i++ {
			list = append(list, fmt.Sprintf(`{"rule":"r%d","limit":{"requests":6},"reason":"growth"}`, i))
		}
		document = strings.Replace(document, "RULES", strings.Join(list, ","), 1)
	}
	if c.InsertHex != "" {
		inserted, err := hex.DecodeString(c.InsertHex)
		must.Succeed(t, err)
		document = strings.Replace(document, "prophet", string(inserted)+"prophet", 1)
	}
	body := []byte(document)
	if c.Pad > 0 {
		body = append(body, bytes.Repeat([]byte(" "), c.Pad-len(body))...)
	}
	return body
}

func (c *documentCase) expect(t testing.TB, v *documentVectors) Expect {
	t.Helper()
	e := Expect{Config: v.Config, Rules: make(map[string]bool), Serial: v.LastSerial}
	for _, label := range v.Adaptable {
		e.Rules[label] = true
	}
	for i := 1; i <= c.Rules; i++ {
		e.Rules[fmt.Sprintf("r%d", i)] = true
	}
	now := v.Now
	if c.Now != "" {
		now = c.Now
	}
	at, err := time.Parse(time.RFC3339, now)
	must.Succeed(t, err)
	e.Now = at.UnixMicro()
	if c.LastSerial != nil {
		e.Serial = *c.LastSerial
	}
	return e
}

func TestDocumentsAreTakenAndRefusedAsTheVectorsSay(t *testing.T) {
	underrace.OneGoroutine(t)
	var file documentVectors
	readVectors(t, "documents.json", &file)
	seen := make(map[string]int)
	for i := range file.Cases {
		c := &file.Cases[i]
		if interpreted && (c.Rules > 0 || c.Pad > 0) {
			continue // takes seconds there, and says nothing else
		}
		d, refusal := Parse(c.body(t, file.Document), c.expect(t, &file))
		reason := ""
		if refusal != nil {
			reason = refusal.Reason
			if refusal.Text == "" || len(refusal.Text) > 400 {
				t.Errorf("%s: the text is %q", c.Title, refusal.Text)
			}
		} else if d == nil {
			t.Errorf("%s: no document", c.Title)
		}
		must.Equal(t, reason, c.Reason, "%s: %q (%v), not %q", c.Title, reason, refusal, c.Reason)
		seen[c.Reason]++
		if refusal == nil {
			sameAgain(t, c.Title, d)
		}
	}
	for _, reason := range Reasons[3:] {
		if seen[reason] == 0 {
			t.Errorf("no case is refused for %s", reason)
		}
	}
	if seen[""] < 20 {
		t.Errorf("%d cases are taken", seen[""])
	}
}

// sameAgain checks that a document is the same when it has been written and read.
func sameAgain(t testing.TB, title string, d *Document) {
	t.Helper()
	body, err := Marshal(d)
	if err != nil {
		t.Errorf("%s: %v", title, err)
		return
	}
	again, refusal := Read(body)
	if refusal != nil {
		t.Errorf("%s: written: %v", title, refusal)
		return
	}
	one, _ := json.Marshal(d)
	other, _ := json.Marshal(again)
	must.Equal(t, string(one), string(other), "%s: %s became %s", title, one, other)
}
