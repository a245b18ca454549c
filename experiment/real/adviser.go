package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/proxyweir/weir/experiment/simulation"
)

// startAdvisor starts the advisor in Go, or the one on Prophet, which reads from a Prometheus. Weir's proxies are told a threshold, too, if few keys
// ask for too much. season is the length of a day.
func startAdvisor(folder, which, address, prometheus string, p *plan, season time.Duration) (*program, error) {
	// A step must divide the season, and a value of it needs a few scrapes.
	step := season / 30
	config := fmt.Sprintf(`listen: %s
fleet: shop
prometheus: {url: "http://%s", selector: 'job="proxy"'}
history: %s
step: %s
season: %s
horizon: %s
interval: 5s
expires: 1m
rules:
`, address, prometheus, season*daysOfHistory, step.Truncate(time.Second), step.Truncate(time.Second)*30, 2*step.Truncate(time.Second))
	for _, z := range p.zones() {
		config += fmt.Sprintf("  - {rule: shop/%s, limit: %d/%s, algorithm: %s, floor: %d/%s, ceiling: %d/%s, demand: key, quantile: 0.999, headroom: 1.25, abuse: true",
			z.name, z.requests, z.period, p.algorithm, z.floor(), z.period, z.ceiling(), z.period)
		if z.burst > 0 {
			config += fmt.Sprintf(", burst: %d", z.burst)
		}
		config += "}\n"
	}
	file := filepath.Join(folder, "advisor.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(self, caddyWord, "rate-limit", "advisor", "--config", file)
	if which == "prophet" {
		python := filepath.Join(checkout(), "advisor", "prophet")
		command = exec.Command(prophetPython(), "-m", "weir_advisor", "--config", file)
		command.Env = append(os.Environ(), "PYTHONPATH="+python, "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1")
	}
	return start(folder, "advisor", command)
}

// prophetPython is the Python of the environment that scripts/advisor makes.
func prophetPython() string {
	if path := os.Getenv("PROPHET_PYTHON"); path != "" {
		return path
	}
	return filepath.Join(checkout(), "advisor", "prophet", ".venv", "bin", "python")
}

// played is an advisor that the experiment plays itself: what it says is made anew each second, or when the policy wants.
type played struct {
	listener net.Listener
	server   *http.Server

	mu     sync.Mutex
	serial int64
	limits map[string]int64 // requests in the rule's period, by the rule's label
	since  time.Time
}

func startPlayed() (*played, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &played{listener: listener}
	a.server = &http.Server{Handler: a}
	go func() { _ = a.server.Serve(listener) }()
	return a, nil
}

func (a *played) address() string { return a.listener.Addr().String() }

func (a *played) stop() { _ = a.server.Close() }

func (a *played) say(limits map[string]int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serial++
	a.limits, a.since = limits, time.Now().UTC()
}

// ServeHTTP implements http.Handler, as docs/advice.openapi.yaml says.
func (a *played) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limits == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	at := a.since.Format(time.RFC3339Nano)
	rules := []map[string]any{}
	for rule, n := range a.limits {
		rules = append(rules, map[string]any{"rule": rule, "reason": "growth", "limit": map[string]any{"requests": n},
			"forecast": map[string]any{"mean": n, "lower": n, "upper": n, "quantile": 0.99}})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"version": 1, "serial": a.serial, "config": r.Header.Get("Weir-Config"), "issued_at": at, "effective_at": at,
		"expires_at": a.since.Add(time.Minute).Format(time.RFC3339Nano), "model": map[string]any{"name": "experiment", "horizon_seconds": 60, "skill_vs_last": nil}, "rules": rules})
}

// foreseen is how far an oracle looks, in seconds.
const foreseen = 30.0

// oracle says each second what the largest client will ask for in ten seconds of the next thirty, and a quarter more.
func (a *played) oracle(ctx context.Context, begin time.Time, s *simulation.Situation, least int64) {
	counts := make([]map[int32]int, int(s.Length/10)+1)
	most := make([]int, len(counts))
	for i := range counts {
		counts[i] = map[int32]int{}
	}
	for _, q := range s.Arrivals {
		if i := int(q.At / 10); int(q.Client) < s.Legitimate && i < len(counts) {
			counts[i][q.Client]++
			most[i] = max(most[i], counts[i][q.Client])
		}
	}
	for second := 0; sleepUntil(ctx, begin.Add(time.Duration(second)*time.Second)); second++ {
		n := least
		for i := second / 10; i <= int(float64(second)+foreseen)/10 && i < len(most); i++ {
			n = max(n, int64(math.Ceil(1.25*float64(most[i]))))
		}
		a.say(map[string]int64{"shop/client": n})
	}
}

// random says each five seconds a limit between a quarter of what is configured and four times as much.
func (a *played) random(ctx context.Context, begin time.Time, seed uint64, configured int64) {
	r := rand.New(rand.NewPCG(seed, 0xd1ce))
	for i := 0; sleepUntil(ctx, begin.Add(time.Duration(5*i)*time.Second)); i++ {
		a.say(map[string]int64{"shop/client": max(1, int64(float64(configured)*math.Pow(4, 2*r.Float64()-1)))})
	}
}

// study says what the study's policy wants, by what a Prometheus knows of the demand.
func (a *played) study(ctx context.Context, begin time.Time, prometheus string, policy *simulation.Study) {
	interval := policy.Interval()
	for i := 1; sleepUntil(ctx, begin.Add(seconds(interval*float64(i)))); i++ {
		// A request that one of the limits rejects counts for that one alone.
		total, err := ask(ctx, prometheus, fmt.Sprintf(`(sum(rate(weir_requests_total{rule="shop/client"}[%[1]s]))+sum(rate(weir_requests_total{rule="shop/all",outcome="rejected"}[%[1]s])))*%[2]v`,
			seconds(interval), interval))
		if err != nil {
			continue // it says nothing new, as any advisor without telemetry
		}
		l := policy.Advise(interval*float64(i), int(total))
		a.say(map[string]int64{"shop/client": simulation.Requests(l.Client, simulation.PeriodOfClient), "shop/all": simulation.Requests(l.All, simulation.PeriodOfAll)})
	}
}

// ask asks a Prometheus for the present value of an expression that has one.
func ask(ctx context.Context, prometheus, expression string) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+prometheus+"/api/v1/query?query="+url.QueryEscape(expression), nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var found struct {
		Data struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&found); err != nil {
		return 0, err
	}
	if len(found.Data.Result) != 1 {
		return 0, fmt.Errorf("%s: %d values", expression, len(found.Data.Result))
	}
	var value float64
	_, err = fmt.Sscan(fmt.Sprint(found.Data.Result[0].Value[1]), &value)
	return value, err
}
