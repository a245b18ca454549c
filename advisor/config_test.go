package advisor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

const least = `
prometheus: {url: http://127.0.0.1:9090}
rules:
  - {rule: api, limit: 100/1m, ceiling: 200/1m}
`

func TestAShortFileHasTheDefaults(t *testing.T) {
	c, err := Parse("advisor.yaml", []byte(least))
	must.Succeed(t, err)
	if c.Listen != "127.0.0.1:8787" || c.History != 14*day || c.Step != time.Minute || c.Season != day || c.Horizon != 10*time.Minute || c.Interval != time.Minute ||
		c.Expires != 10*time.Minute || c.MinimumSkill != 0.05 || c.Prometheus.Timeout != 10*time.Second || c.Token != "" || c.PrivateKey != nil || c.TLS != nil {
		t.Errorf("the defaults are %+v", c)
	}
	if r := c.Rules[0]; r.Demand != DemandOfKey || r.Quantile != 0.99 || r.Headroom != 1.2 || r.Floor != 100 || r.Ceiling != 200 || r.Abuse || r.Lower || r.Limit.Algorithm != rate.SlidingWindowCounter {
		t.Errorf("the rule is %+v", r)
	}
}

func TestTheExampleIsRead(t *testing.T) {
	t.Setenv("WEIR_ADVISOR_TOKEN", "abc")
	c, err := Read("../examples/advisor/advisor.yaml")
	must.Succeed(t, err)
	if c.Token != "abc" || len(c.Rules) < 2 {
		t.Errorf("the example is %+v", c)
	}
}

func TestTheSettingsOfTheOtherAdvisorAreTaken(t *testing.T) {
	_, err := Parse("advisor.yaml", []byte("model: ets\nprophet: {folds: 2}"+least))
	must.Succeed(t, err)
}

func TestProblemsAreSaidWithTheirPlace(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "advisor.yaml")
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	t.Setenv("WEIR_TEST_EMPTY", "")
	rule := func(fields string) string {
		return "prometheus: {url: http://p:9090}\nrules:\n  - {rule: api, limit: 100/1m, ceiling: 200/1m, " + fields + "}\n"
	}
	for _, c := range []struct{ text, want string }{
		{"horizn: 10m" + least, `:1:1: "horizn" is not a field of advisor.yaml (did you mean horizon?)`},
		{"colour: 10m" + least, `:1:1: "colour" is not a field of advisor.yaml; there are listen, fleet, token,`},
		{"horizon: 10x" + least, `:1:10: horizon "10x": must be a duration from 1s to 168h, such as 10s, 5m, 24h or 14d`},
		{"step: 0s" + least, `:1:7: step "0s": must be a duration from 1s to 24h`},
		{"horizon: [10m]" + least, `:1:10: horizon: must be one value, not a list`},
		{"horizon: 10m\nhorizon: 5m" + least, `:2:1: duplicate key "horizon", first in line 1; keep one`},
		{"horizon: 90s" + least, `:1:10: horizon 1m30s: must be a multiple of step (1m), and not longer than season (24h)`},
		{"season: 61m\nstep: 2m" + least, `:1:9: season 1h1m: must be a multiple of step (2m), and at least four of it`},
		{"step: 1s\nhistory: 90d" + least, `:2:10: history 2160h: has more than 500000 values, one each step (1s); take a longer step`},
		{"expires: 30s" + least, `:1:10: expires 30s: must not be shorter than interval (1m), or nothing is valid in between`},
		{"minimum_skill: 2" + least, `:1:16: minimum_skill "2": must be a number from 0 to 1`},
		{"pressure: {high: 0.9}" + least, `:1:11: query: is missing; write PromQL that returns one series, such as max(instance:cpu_busy:ratio)`},
		{"pressure: {query: \"\"}" + least, `:1:19: query: is empty; write PromQL`},
		{"pressure: {query: up, high: 0}" + least, `high "0": must be a number from 1e-06 to 1e+12`},
		{"pressure: {query: up, height: 1}" + least, `"height" is not a field of pressure`},
		{"pressure: up" + least, `pressure must be a map with some of query, high, not a text`},
		{"model: arima" + least, `:1:8: model "arima": must be one of prophet, ets`},
		{"token: ${WEIR_TEST_MISSING}" + least, `:1:8: token "${WEIR_TEST_MISSING}": the environment has no WEIR_TEST_MISSING, or an empty one`},
		{"token: ${WEIR_TEST_EMPTY}" + least, `or an empty one`},
		{"token: a\ntoken_file: b" + least, `:2:13: token_file and token are mutually exclusive`},
		{"token_file: missing" + least, `:1:13: token_file: open ` + dir},
		{"token_file: empty" + least, `:1:13: token_file "empty": is empty`},
		{"private_key: empty" + least, `:1:14: private_key "empty": must be an Ed25519 key as openssl genpkey -algorithm ed25519 writes it`},
		{"tls: {certificate: empty}" + least, `:1:6: key: is missing; write the file of its private key, in PEM`},
		{"tls: {certificate: empty, key: empty}" + least, `:1:6: tls: tls: failed to find any PEM data`},
		{"rules: []", `prometheus: is missing; write a map with the url of a Prometheus`},
		{"prometheus: {url: 127.0.0.1:9090}\nrules: []", `must be an address such as http://127.0.0.1:9090`},
		{"prometheus: {url: http://p, selector: '{job=\"a\"}'}\nrules: []", `selector "{job=\"a\"}": must be what stands between the braces`},
		{"prometheus: {url: http://p}\nrules: {}", `rules: must be a list of rules, not a map`},
		{"prometheus: {url: http://p}\nrules: [{limit: 100/1m, ceiling: 200/1m}]", `:2:9: rule: is missing; write the rule's label in the metrics, such as api`},
		{"prometheus: {url: http://p}\nrules: [{rule: api}]", `limit: is missing; write the configured limit, such as 100/1m`},
		{"prometheus: {url: http://p}\nrules: [{rule: api, limit: 5/1x, ceiling: 5/1m}]", `:2:28: limit "5/1x": the period "1x" must be a duration`},
		{rule("headroom: 0.5"), `:3:59: headroom "0.5": must be a number from 1 to 10`},
		{strings.Replace(rule("abuse: true"), "rule: api", `rule: "a\tb"`, 1), `rule "a\tb": must be at most 256 bytes without control characters`},
		{strings.Replace(rule("abuse: true"), "rule: api", `rule: ""`, 1), `rule "": must be the rule's label`},
		{rule("algorithm: token_buket"), `algorithm "token_buket": must be one of token_bucket, leaky_bucket, fixed_window, sliding_window_log, sliding_window_counter (did you mean token_bucket?)`},
		{rule("algorithms: [fixed_windw]"), `"fixed_windw": must be one of`},
		{rule("algorithms: token_bucket"), `algorithms "token_bucket": must be a list of some of token_bucket, leaky_bucket, fixed_window, sliding_window_log, sliding_window_counter, not a text`},
		{rule("burst: 5"), `burst 5: only token_bucket and leaky_bucket have a burst`},
		{rule("burst: -5"), `burst "-5": must be a whole number from 0 to 1000000000`},
		{rule("floor: 101/1m"), `floor "101/1m": must not be above limit, 100/1m`},
		{rule("floor: 50/1h"), `floor "50/1h": must have the period of limit, 100/1m`},
		{rule("floor: 50"), `floor: limit "50": has no period`},
		{rule("demand: keys"), `demand "keys": must be one of key, total, query (did you mean key?)`},
		{rule("demand: query"), `demand query needs query, a PromQL text, and no other has it`},
		{rule("demand: total, query: sum(x)"), `demand query needs query`},
		{rule("abuse: 1"), `abuse "1": must be true or false`},
		{rule("time_zone: Mars"), `time_zone "Mars": must be a name of the time zone database`},
		{least + "  - {rule: api, limit: 1/1s, ceiling: 1/1s}", `:5:5: duplicate rule "api", first in line 4; keep one`},
		{"prometheus: {url: http://p}\nrules: [{rule: api, limit: 100/1m, ceiling: 50/1m}]", `ceiling "50/1m": must not be below limit, 100/1m`},
	} {
		if _, err := Parse(file, []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("of %q it says\n%v\nand not\n%s", c.text, err, c.want)
		}
	}
}

func TestEachDigestIsAsTheVectorsSay(t *testing.T) {
	data, err := os.ReadFile("../testdata/advice/digest.json")
	must.Succeed(t, err)
	var v struct {
		Cases []struct {
			Title, Digest string
			Rules         []map[string]any
		}
	}
	if err := json.Unmarshal(data, &v); err != nil || len(v.Cases) < 5 {
		t.Fatalf("%d cases: %v", len(v.Cases), err)
	}
	for _, c := range v.Cases {
		must.Equal(t, configOf(t, nil, c.Rules...).Digest(), c.Digest, "%s: the digest", c.Title)
	}
}
