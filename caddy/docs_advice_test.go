package ratelimit_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/tools/must"
)

// The answer that docs/admin.openapi.yaml shows is that of a Caddy with the configuration that it names.
func TestTheAdviceOfTheManualIsWhatCaddyAnswers(t *testing.T) {
	text, err := os.ReadFile("../docs/admin.openapi.yaml")
	must.Succeed(t, err)
	var api map[string]any
	must.Succeed(t, yaml.Unmarshal(text, &api))
	example, err := json.Marshal(at(t, api, "paths", "/rate_limit/advice", "get", "responses", "200", "content", "application/json", "example"))
	must.Succeed(t, err)
	const documented = "http://localhost:8787/v1/advice"
	s := startAdvised(t)
	s.reloadWith("rate_limit {\nadvisor "+s.advisor.URL+" {\nmode apply\ngates bounds\n}\n}",
		":PORT {\nrate_limit {\nzone api {\nlimit 100/1m\nadapt {\nfloor 50/1m\nceiling 200/1m\n}\n}\n}\nrespond hello\n}")
	eventually(t, "Caddy has asked its advisor", func() bool { return s.number("poll.polls") > 0 })
	s.advise(600, `{"rule":"api","limit":{"requests":250},"reason":"growth","forecast":{"mean":180,"lower":150,"upper":208,"quantile":0.99}}`)
	s.second(1)
	s.ticks <- time.Time{} // it is taken when advice has been carried out twice in this second: the first time tells of the step, as the page does not
	got := s.advice()
	got["advisor"] = documented
	var want map[string]any
	must.Succeed(t, json.Unmarshal(example, &want))
	if !reflect.DeepEqual(got, want) {
		text, _ := json.MarshalIndent(got, "", "  ")
		t.Errorf("the description shows\n%s\nand Caddy answers\n%s", example, text)
	}
}
