package ratelimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// TestAGuardAsksForThePressure follows what a health endpoint says into metrics, the admin API and the log, over a reload and to the end.
func TestAGuardAsksForThePressure(t *testing.T) {
	var answer atomic.Value
	answer.Store(`{"cpu":{"busy":0.95}}`)
	var asked atomic.Int64
	health := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(answer.Load().(string)))
	}))
	defer health.Close()
	settings := "pressure " + health.URL + "/health {\nfield cpu.busy\nhigh 0.9\ninterval 100ms\n}"
	g := &guardedSite{begun: make(chan string, 10), released: make(chan struct{})}
	service := httptest.NewServer(http.HandlerFunc(g.serve))
	defer service.Close()
	a := startAdmin(t, "metrics", ":PORT {\n"+g.directives(service.URL, settings)+"\n}")
	g.server = a.server
	state := func() map[string]any {
		list := a.ask("health", "")["guards"].([]any)
		return list[0].(map[string]any)["pressure"].(map[string]any)
	}
	eventually(t, "the pressure is known", func() bool { return g.metric("weir_guard_pressure_high") == 1 })
	must.Equal(t, g.metric("weir_guard_pressure"), 0.95, "weir_guard_pressure")
	must.Equal(t, g.metric("weir_guard_pressure_acts"), 0, "weir_guard_pressure_acts")
	if s := state(); s["value"] != 0.95 || s["high"] != true || s["acts"] != false || s["error"] != nil {
		t.Errorf("health says %v", s)
	}
	must.Equal(t, g.do("/svc/quick").status, 200, "status under a pressure that is high")

	answer.Store(`{"cpu":{"busy":0.2}}`)
	eventually(t, "the pressure is low", func() bool { return g.metric("weir_guard_pressure_high") == 0 })
	answer.Store(`{"cpu":"busy"}`)
	eventually(t, "the value is too old", func() bool { return !strings.Contains(g.do("/metrics").body, "\nweir_guard_pressure{") })
	if s := state(); s["value"] != nil || s["error"] != `"{\"cpu\":\"busy\"}" has no number at field cpu.busy` {
		t.Errorf("health says %v", s)
	}
	if !strings.Contains(g.do("/metrics").body, `weir_guard_pressure_failures_total{guard="",reason="invalid"}`) {
		t.Error("the failures are not in the metrics")
	}
	must.Equal(t, len(g.logs("the pressure on the service cannot be read from "+health.URL+`/health, and what was read has an effect for 300ms at most: "{\"cpu\":\"busy\"}" has no number at field cpu.busy`)), 1, "lines of the log")

	g.load(g.caddyfile("metrics", ":PORT {\n"+g.directives("http://127.0.0.1:1", "max 5")+"\n}"))
	eventually(t, "nobody is asked any more", func() bool {
		before := asked.Load()
		answer.Store("0")
		return !strings.Contains(g.do("/metrics").body, "weir_guard_pressure_high") && asked.Load() == before
	})
}
