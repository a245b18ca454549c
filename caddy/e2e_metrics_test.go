package ratelimit_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	ratelimit "github.com/proxyweir/weir/caddy"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// scrape reads the metrics as Prometheus does.
func (s *server) scrape() map[string]*dto.MetricFamily {
	s.t.Helper()
	r := s.do("/metrics")
	if r.status != http.StatusOK {
		s.t.Fatalf("status %d", r.status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(r.body))
	must.Succeed(s.t, err)
	return families
}

// ours returns the names of Weir's series, with their labels.
func ours(families map[string]*dto.MetricFamily) []string {
	var series []string
	for name, family := range families {
		for _, m := range family.GetMetric() {
			if strings.HasPrefix(name, "weir_") {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
				series = append(series, name+"{"+strings.Join(labels, ",")+"}")
			}
		}
	}
	slices.Sort(series)
	return series
}

const allKindsOfRules = `rate_limit {
	zone plain {
		limit 3/366d
	}
	zone shadow {
		key everyone
		limit 1/366d
		enforcement shadow
	}
	zone tried {
		limit 100/1m
		candidate {
			limit 1/366d
		}
	}
	zone waiting {
		match {
			path /wait
		}
		algorithm token_bucket
		limit 5/1m
		on_limit delay
	}
	zone punishing {
		match {
			path /punish
		}
		limit 1/366d
		penalty 1h
	}
	zone free {
		limit unlimited
	}
}
respond ok`

func TestMetricsAreWhatPrometheusTakes(t *testing.T) {
	redis := redistest.Start(t)
	s := start(t, "", ":PORT {\n"+withMetrics(allKindsOfRules+"\n")+"\n}\nhttp://other.test:PORT {\nrate_limit {\n"+storeAt(redis.Addr(), patiently)+"namespace fleet\nzone shared {\nlimit 5/1h\n}\n}\n}")
	s.admit(2, "/")
	s.admit(1, "/punish")
	s.reject("/punish")
	s.do("http://other.test/")
	families := s.scrape()
	want := map[string]string{ // with the expected value, if it is known
		`weir_requests_total{outcome="allowed",rule="plain"}`:                               "3",
		`weir_requests_total{outcome="rejected",rule="plain"}`:                              "1",
		`weir_requests_total{outcome="allowed",rule="shadow"}`:                              "1",
		`weir_requests_total{outcome="shadow_rejected",rule="shadow"}`:                      "3",
		`weir_requests_total{outcome="rejected",rule="punishing"}`:                          "1",
		`weir_requests_total{outcome="allowed",rule="fleet/shared"}`:                        "1",
		`weir_candidate_decisions_total{candidate="rejected",limit="allowed",rule="tried"}`: "3",
		`weir_candidate_decisions_total{candidate="allowed",limit="allowed",rule="tried"}`:  "1",
		`weir_penalties_total{rule="punishing"}`:                                            "1",
		`weir_waiting{rule="waiting"}`:                                                      "0",
		`weir_limit{rule="plain"}`:                                                          "3",
		`weir_limit_period_seconds{rule="plain"}`:                                           "3.16224e+07",
		`weir_limit{rule="fleet/shared"}`:                                                   "5",
		`weir_keys{rule="plain"}`:                                                           "1",
		`weir_max_keys`:                                                                     "1e+06",
		`weir_evictions_total`:                                                              "0",
		`weir_breaker_open{server="` + redis.Addr() + `"}`:                                  "0",
		`weir_store_errors_total{kind="timeout"}`:                                           "0",
		`weir_decision_duration_seconds_count{store="redis"}`:                               "1",
	}
	for series, value := range want {
		got := s.metric(series)
		if strings.HasPrefix(series, "weir_decision") || strings.HasPrefix(series, "weir_store_errors") || strings.HasPrefix(series, "weir_evictions") {
			if got == "" { // a value of the process, to which other tests add
				t.Errorf("%s is missing", series)
			}
		} else if got != value {
			t.Errorf("%s: %q, want %s", series, got, value)
		}
	}
	for _, series := range ours(families) {
		if strings.Contains(series, `"free"`) && !strings.HasPrefix(series, "weir_requests_total") && !strings.HasPrefix(series, "weir_keys") {
			t.Errorf("%s: of a rule without limit", series)
		}
	}
	// promtool says what violates Prometheus's conventions.
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is not installed: apt-get install prometheus")
	}
	var lint bytes.Buffer
	encoder := expfmt.NewEncoder(&lint, expfmt.NewFormat(expfmt.TypeTextPlain))
	for name, family := range families {
		if strings.HasPrefix(name, "weir_") {
			must.Succeed(t, encoder.Encode(family))
		}
	}
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = &lint
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// The series depend only on the rules. So do the admin API's answers and its memory.
func TestSeriesAndTheAdminAPIDoNotGrowWithMillionsOfKeys(t *testing.T) {
	few, many := 1000, 1_000_000
	if raceDetector {
		many = 20_000
	}
	a := startAdmin(t, "", ":PORT {\n"+withMetrics("rate_limit {\nzone one {\nlimit 2/366d\n}\n}\nrespond ok")+"\n}")
	var handler *ratelimit.Handler
	for _, route := range httpServer(t).Routes {
		handler = findHandler(route, handler)
	}
	size := func(path string) int {
		response, err := http.Get("http://" + a.base + path)
		must.Succeed(t, err)
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return len(body)
	}
	flood(t, handler, few)
	series, scrape := ours(a.scrape()), size("/metrics")
	rules, top := size("/rate_limit/rules"), size("/rate_limit/top?rule=one&n=64")
	flood(t, handler, many)
	if after := ours(a.scrape()); !slices.Equal(series, after) {
		t.Errorf("%d series after %d keys, %d after %d: %q", len(after), many, len(series), few, after)
	}
	t.Logf("after %d and %d keys: %d and %d series; a scrape of %d and %d bytes; /rules %d and %d; /top %d and %d", few, many,
		len(series), len(ours(a.scrape())), scrape, size("/metrics"), rules, size("/rate_limit/rules"), top, size("/rate_limit/top?rule=one&n=64"))
	for path, before := range map[string]int{"/rate_limit/rules": rules, "/rate_limit/top?rule=one&n=64": top} {
		if after := size(path); after > before+before/2 { // numbers may have more digits
			t.Errorf("%s: %d bytes after %d keys, %d after %d", path, after, many, before, few)
		}
	}
	if n := a.metric(`weir_keys{rule="one"}`); n == "" || n == "0" {
		t.Errorf("weir_keys: %q", n)
	}
}

// findHandler returns the rate_limit in a route, or found.
func findHandler(route caddyhttp.Route, found *ratelimit.Handler) *ratelimit.Handler {
	for _, handler := range route.Handlers {
		switch h := handler.(type) {
		case *ratelimit.Handler:
			return h
		case *caddyhttp.Subroute:
			for _, inner := range h.Routes {
				found = findHandler(inner, found)
			}
		}
	}
	return found
}

func TestCountsGoOnOverAReloadAndEndWithTheRule(t *testing.T) {
	zones := func(names ...string) string {
		var text strings.Builder
		for _, name := range names {
			text.WriteString("zone " + name + " {\nlimit 100/366d\n}\n")
		}
		return withMetrics("rate_limit {\n" + text.String() + "}\nrespond ok")
	}
	s := startSite(t, zones("stays", "goes"))
	s.admit(3, "/")
	s.reload(zones("stays", "comes"))
	s.admit(2, "/")
	for series, want := range map[string]string{
		`weir_requests_total{outcome="allowed",rule="stays"}`: "5",
		`weir_requests_total{outcome="allowed",rule="comes"}`: "2",
		`weir_requests_total{outcome="allowed",rule="goes"}`:  "",
		`weir_limit{rule="goes"}`:                             "",
	} {
		must.Equal(t, s.metric(series), want, "%s", series)
	}
	s.reload(zones("comes", "goes")) // a series that comes back begins at 0
	must.Equal(t, s.metric(`weir_requests_total{outcome="allowed",rule="goes"}`), "0", "a rule that has come back")
}

// Metrics and the admin API tell what a node holds, and what leases save.
func TestLeasesAreInTheMetricsAndInTheAdminAPI(t *testing.T) {
	redis := redistest.Start(t)
	a := startAdmin(t, "", ":PORT {\n"+withMetrics("rate_limit {\n"+storeAt(redis.Addr(), patiently)+"zone leased {\nlimit 1000000/1m\nconsistency lease\n}\nzone strict {\nlimit 1000000/1m\n}\n}\nrespond ok")+"\n}")
	for _, series := range []string{`weir_lease_requests_total{outcome="held"}`, `weir_lease_calls_total{outcome="granted"}`} {
		begun, _ := strconv.ParseFloat(a.metric(series), 64) // by other tests
		eventually(t, series+" grows", func() bool {
			for range 50 {
				a.do("/")
			}
			now, err := strconv.ParseFloat(a.metric(series), 64)
			return err == nil && now > begun
		})
	}
	if a.metric(`weir_lease_units{rule="leased"}`) == "" || a.metric(`weir_lease_units{rule="strict"}`) != "" {
		t.Errorf("units: %q, of a strict rule %q", a.metric(`weir_lease_units{rule="leased"}`), a.metric(`weir_lease_units{rule="strict"}`))
	}
	explained := a.ask("explain", `{"url":"http://`+a.addr+`/","client_ip":"127.0.0.1"}`)
	for answer, rules := range map[string]any{
		"rules":   at(t, a.ask("rules", ""), "rules"),
		"key":     at(t, a.ask("key?key=127.0.0.1", ""), "rules"),
		"explain": at(t, explained, "handlers", 0, "rules"),
	} {
		for _, one := range rules.([]any) {
			rule := one.(map[string]any)
			held, told := rule["held"].(float64)
			lasts, _ := rule["held_seconds"].(float64)
			isLeased := rule["rule"] == "leased" || rule["id"] == "leased"
			if told != isLeased || held < 0 || lasts < 0 || lasts > 1 || answer == "key" && isLeased != (rule["held_seconds"] != nil) {
				t.Errorf("%s: %v", answer, rule)
			}
			if answer == "rules" && isLeased {
				wantAt(t, rule, "[consistency lease]", "notes")
			}
		}
	}
}

// Defect found: the alert about requests that are refused while the store fails named rules that would have let them pass.
func TestOnlyTheRuleThatRejectsWithoutItsStoreCountsIt(t *testing.T) {
	redis := redistest.Start(t)
	redis.Kill()
	s := startSite(t, withMetrics("rate_limit {\n"+storeAt(redis.Addr(), "")+"\nzone closes {\nlimit 5/1h\non_error closed\n}\nzone counts {\nlimit 5/1h\n}\nzone opens {\nlimit 5/1h\non_error open\n}\n}\nrespond ok"))
	if r := s.do("/"); r.status != http.StatusServiceUnavailable {
		t.Fatalf("status %d, want 503", r.status)
	}
	for rule, want := range map[string]string{"closes": "1", "counts": "0", "opens": "0"} {
		must.Equal(t, s.metric(`weir_requests_total{outcome="error_closed",rule="`+rule+`"}`), want, "%s", rule)
	}
}
