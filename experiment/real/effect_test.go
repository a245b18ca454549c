package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/experiment/origin"
	"github.com/proxyweir/weir/experiment/simulation"
	"github.com/proxyweir/weir/tools/must"
)

func TestChangesCanEachBeInForceBeforeTheNext(t *testing.T) {
	for _, interval := range intervals {
		list := changesOf(1, interval)
		must.Equal(t, len(list), changesOfRun)
		for i, c := range list {
			before := change{to: 4000}
			if i > 0 {
				before = list[i-1]
			}
			if c.at-before.at < settled(interval) || c.from != before.to || c.to == c.from || c.to > 2*c.from || c.to < 2000 || c.to > 8000 {
				t.Errorf("change %d: %+v after %+v", i, c, before)
			}
		}
		if !slices.Equal(list, changesOf(1, interval)) || slices.Equal(list, changesOf(2, interval)) {
			t.Error("not the run alone says what changes there are")
		}
	}
	cut := settings{length: 12}.changesOf(cell{Pair: 1}, time.Second)
	if len(cut) != 2 || !slices.Equal(cut, changesOf(1, time.Second)[:2]) {
		t.Errorf("in 12 seconds: %+v", cut)
	}
}

func TestAnEffectIsTheFirstAnswerByTheNewLimit(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	changes := []change{{0, 100, 120}, {time.Second, 120, 90}, {2 * time.Second, 90, 150}}
	got := effectsOf("caddy1", changes, []time.Time{at(0), at(1000), at(2000)}, []sighting{
		{120, at(290), at(300)}, {90, at(2040), at(2050)}, {150, at(2500), at(2530)}, {120, at(2600), at(2610)},
	})
	want := []effect{
		{1, 0, "caddy1", 100, 120, true, 300 * time.Millisecond, 10 * time.Millisecond},
		{2, time.Second, "caddy1", 120, 90, false, 0, 0}, // it came after the next change
		{3, 2 * time.Second, "caddy1", 90, 150, true, 530 * time.Millisecond, 30 * time.Millisecond},
	}
	must.Equal(t, len(got), len(want))
	for i := range want {
		must.Equal(t, got[i], want[i])
	}
}

// follower is a proxy that asks an advisor at each request, and tells by which limit it decides.
func follower(t *testing.T, advisor string, decided chan<- string) *httptest.Server {
	t.Helper()
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer, err := http.Get("http://" + advisor + "/v1/advice") //nolint:noctx // in a test
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		var document struct {
			Rules []struct {
				Limit struct{ Requests int64 }
			}
		}
		if err := json.NewDecoder(answer.Body).Decode(&document); err != nil || len(document.Rules) != 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		limit := strconv.FormatInt(document.Rules[0].Limit.Requests, 10)
		w.Header().Set("X-RateLimit-Limit", limit)
		select {
		case decided <- limit:
		default:
		}
	}))
}

// TestAProbeSeesAChange of what the played advisor says, and of nothing else.
func TestAProbeSeesAChange(t *testing.T) {
	by, err := startPlayed()
	must.Succeed(t, err)
	defer by.stop()
	by.say(map[string]int64{"shop/client": 4000})
	decided := make(chan string)
	front := follower(t, by.address(), decided)
	defer front.Close()
	ctx, stop := context.WithCancel(t.Context())
	type probed struct {
		seen []sighting
		err  error
	}
	done := make(chan probed)
	go func() {
		seen, err := probe(ctx, front.Listener.Addr().String(), 0)
		done <- probed{seen, err}
	}()
	waitFor := func(limit string) {
		for n := 0; n < 2; { // the second request comes after the first answer
			if <-decided == limit {
				n++
			}
		}
	}
	waitFor("4000")
	changes := []change{{0, 4000, 5000}}
	published := publish(t.Context(), by, changes, time.Now(), 0)
	waitFor("5000")
	stop()
	found := <-done
	must.Succeed(t, found.err)
	if got := effectsOf("proxy", changes, published, found.seen); len(found.seen) != 1 || !got[0].took || got[0].delay <= 0 || got[0].sharper <= 0 {
		t.Errorf("%+v, of %+v", got, found.seen)
	}
	broken := httptest.NewServer(http.NotFoundHandler())
	defer broken.Close()
	if seen, err := probe(t.Context(), broken.Listener.Addr().String(), 0); err == nil {
		t.Errorf("a proxy that answers 404 is taken: %+v", seen)
	}
}

func TestEffectsAreATableOfTheirOwn(t *testing.T) {
	c := cell{Scenario: effectScenario, Algorithm: algorithmOfEffects, Arm: "interval 10s", Pair: 2}
	folder := filepath.Join(t.TempDir(), "real")
	name := c.file(folder)
	must.Equal(t, name, filepath.Join(filepath.Dir(folder), "effect", "interval_10s.2.csv"))
	r := &record{cell: c, Origin: origin.Origin{Commit: "abc"}, effects: []effect{
		{1, 1500 * time.Millisecond, "caddy1", 100, 120, true, 300 * time.Millisecond, 10 * time.Millisecond}, {1, 1500 * time.Millisecond, "traefik", 100, 120, false, 0, 0},
	}}
	must.Equal(t, r.tookEffect(), 1)
	must.Succeed(t, write(name, r, nil))
	text, err := os.ReadFile(name)
	must.Succeed(t, err)
	must.Equal(t, string(text), `# {"commit":"abc","go":"","system":"","cpu":"","cores":0}
interval_s,run,change,at_s,proxy,from,to,delay_ms,within_ms
10,2,1,1.500,caddy1,100,120,300,10
10,2,1,1.500,traefik,100,120,,
`)
}

// TestAGuardIsToldWhereTheCPUUseIs, in the words of both proxies, if the arm says so.
func TestAGuardIsToldWhereTheCPUUseIs(t *testing.T) {
	for name, want := range map[string]bool{"guard+pressure": true, "guard": false} {
		a, err := armOf(name)
		must.Succeed(t, err)
		p := &plan{arm: a, algorithm: "token_bucket", service: "127.0.0.1:1"}
		must.Equal(t, strings.Contains(p.caddyfile("127.0.0.1:2", "127.0.0.1:3"), "min 2\npressure http://127.0.0.1:1/health {\nfield load\n}\n}\n"), want, name)
		must.Equal(t, strings.Contains(p.traefik("127.0.0.1:3"), `, pressure: {url: "http://127.0.0.1:1/health", field: load}}`), want, name)
	}
	if _, err := armOf("static+pressure"); err == nil {
		t.Error("pressure without a guard is taken")
	}
}

// TestTheServiceTellsItsCPUUse as JSON and as a metric, if it has background work.
func TestTheServiceTellsItsCPUUse(t *testing.T) {
	get := func(address string) (status int, body string) {
		answer, err := http.Get("http://" + address) //nolint:noctx // in a test
		must.Succeed(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		must.Succeed(t, err)
		return answer.StatusCode, string(text)
	}
	s := simulation.New("cpu", 1, simulation.Options{})
	v, err := newService(s)
	must.Succeed(t, err)
	defer v.stop()
	if status, body := get(v.address() + "/health"); status != http.StatusOK || body != "{\"load\":0}\n" {
		t.Errorf("idle: %d, %q", status, body)
	}
	v.beginAt(time.Now().Add(-time.Minute))
	v.mu.Lock()
	for range 100 * 60 { // a minute of work
		v.slots.Take(s, 50, 1e-6)
	}
	v.mu.Unlock()
	if _, body := get(v.address() + "/health"); body != "{\"load\":1}\n" {
		t.Errorf("busy: %q", body)
	}
	_, metrics := get(v.address() + "/metrics")
	must.Contain(t, metrics, "\nexperiment_service_load 1\n")
	usual, err := newService(simulation.New("steady", 1, simulation.Options{}))
	must.Succeed(t, err)
	defer usual.stop()
	_, metrics = get(usual.address() + "/metrics")
	must.Equal(t, strings.Contains(metrics, "experiment_service_load"), false)
}

// TestProxiesAskAsOftenAsTheArmSays, and otherwise each second.
func TestProxiesAskAsOftenAsTheArmSays(t *testing.T) {
	for name, want := range map[string]string{"interval 10s": "10s", "guard+go": "1s"} {
		a, err := armOf(name)
		must.Succeed(t, err)
		p := &plan{arm: a, algorithm: algorithmOfEffects, adviser: "127.0.0.1:1"}
		must.Contain(t, p.caddyfile("127.0.0.1:2", "127.0.0.1:3"), "\ninterval "+want+"\n")
		must.Contain(t, p.traefik("127.0.0.1:3"), ", interval: "+want+", ")
	}
	if _, err := armOf("interval often"); err == nil {
		t.Error("an interval that is none is taken")
	}
}
