package ratelimit_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// metrics returns what Caddy's admin endpoint has at /metrics.
func (s *advisedSite) metrics() string {
	s.t.Helper()
	r, err := http.Get("http://" + s.base + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		s.t.Fatalf("status %d, %v", r.StatusCode, err)
	}
	return string(text)
}

// has checks samples of the metrics.
func (s *advisedSite) has(samples ...string) {
	s.t.Helper()
	text := s.metrics()
	for _, sample := range samples {
		if !strings.Contains(text, sample+"\n") {
			s.t.Errorf("the metrics do not have %s", sample)
		}
	}
}

func TestMetricsTellWhatBecameOfAdvice(t *testing.T) {
	s := startAdvised(t)
	s.site("mode apply\ngates bounds", adaptable)
	s.second(1)
	s.has(`weir_advice_refused_total{reason="rule"} 0`, `weir_advice_clamped_total{kind="ceiling",rule="api"} 0`, `weir_advice_applied{rule="api"} 0`, `weir_limit{rule="api"} 100`)
	s.advise(600, `{"rule":"others","limit":{"requests":9},"reason":"growth"}`)
	s.advise(600, `{"rule":"api","limit":{"requests":1800},"reason":"growth"}`)
	s.second(2)
	s.has(`weir_advice_refused_total{reason="rule"} 1`, `weir_advice_clamped_total{kind="ceiling",rule="api"} 1`, `weir_advice_applied{rule="api"} 1`,
		`weir_limit{rule="api"} 125`, `weir_limit_configured{rule="api"} 100`, fmt.Sprintf("weir_advice_serial %d", s.serial), "weir_advice_age_seconds 2",
		fmt.Sprintf("weir_advice_polls_total %g", s.number("poll.polls")))
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is not installed: apt-get install prometheus")
	}
	var ours strings.Builder
	for line := range strings.Lines(s.metrics()) {
		if strings.Contains(line, "weir_advice") {
			ours.WriteString(line)
		}
	}
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(ours.String())
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	s.reloadWith("", ":PORT {\nrate_limit {\n"+adaptable+"\n}\nrespond ok\n}")
	if strings.Contains(s.metrics(), "weir_advice") {
		t.Error("without an advisor there are metrics of advice")
	}
}

// A key that tells a client apart must be in nothing that many can read: metrics, the audit file, what is answered about advice, and what the advisor
// is sent.
func TestNothingOfAdviceIdentifiesAClient(t *testing.T) {
	s := startAdvised(t)
	audit := filepath.Join(s.dir, "advice.jsonl")
	s.site("mode apply\ngates bounds\naudit "+audit, "guard\nzone api {\nkey {header.X-Key}\nlimit 100/1m\nadapt {\nceiling 200/1m\n}\n}")
	const planted = "planted-key-of-a-client"
	sent := func(n int) {
		for range n {
			s.do("/", "X-Key", planted)
		}
	}
	sent(50)
	s.advise(600, `{"rule":"api","limit":{"requests":180},"reason":"abuse","above":{"requests_per_second":1,"limit":"2/1s","for":"5m"}}`)
	asked := ""
	s.fetch(func(w http.ResponseWriter, r *http.Request) {
		asked = fmt.Sprint(r.URL, r.Header)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	s.second(20)
	sent(100)
	s.second(20)
	text, err := os.ReadFile(audit)
	if err != nil || len(text) == 0 {
		t.Errorf("the audit file is empty: %v", err)
	}
	logged := fmt.Sprint(s.logs("the limit has changed"))
	all := map[string]string{"metrics": s.metrics(), "audit": string(text), "GET /rate_limit/advice": fmt.Sprint(s.advice()), "log": logged, "request to the advisor": asked}
	for what, where := range all {
		if where == "" || strings.Contains(where, planted) {
			t.Errorf("%s has the key, or nothing: %.2000s", what, where)
		}
	}
}
