package ratelimit_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// The answer that docs/monitoring.md shows is that of a Caddy with the page's configuration.
func TestTheAdviceOfTheManualIsWhatCaddyAnswers(t *testing.T) {
	page, err := os.ReadFile("../docs/monitoring.md")
	must.Succeed(t, err)
	_, rest, _ := strings.Cut(strings.ReplaceAll(string(page), "\r\n", "\n"), "\n### Advice, freeze, revert\n")
	_, rest, _ = strings.Cut(rest, "```caddyfile\n{\n")
	global, rest, _ := strings.Cut(rest, "\n}\n\n:8080 {\n")
	site, rest, _ := strings.Cut(rest, "```")
	_, rest, _ = strings.Cut(rest, "<!-- answer: advice -->\n```json\n")
	answer, _, found := strings.Cut(rest, "\n```\n")
	if !found {
		t.Fatal("the page has no configuration and answer where this test looks for them")
	}
	s := startAdvised(t)
	const documented = "http://localhost:8787/v1/advice"
	if strings.Count(global, documented) != 1 {
		t.Fatalf("the configuration does not name the advisor %s:\n%s", documented, global)
	}
	s.reloadWith(strings.Replace(global, documented, s.advisor.URL, 1), ":PORT {\n"+site)
	eventually(t, "Caddy has asked its advisor", func() bool { return s.number("poll.polls") > 0 })
	s.advise(600, `{"rule":"api","limit":{"requests":250},"reason":"growth","forecast":{"mean":180,"lower":150,"upper":208,"quantile":0.99}}`)
	s.second(1)
	s.ticks <- time.Time{} // it is taken when advice has been carried out twice in this second: the first time tells of the step, as the page does not
	got := s.advice()
	got["advisor"] = documented
	var want map[string]any
	must.Succeed(t, json.Unmarshal([]byte(answer), &want))
	if !reflect.DeepEqual(got, want) {
		text, _ := json.MarshalIndent(got, "", "  ")
		t.Errorf("the page shows\n%s\nand Caddy answers\n%s", answer, text)
	}
}
