package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/proxyweir/weir/experiment/origin"
	"github.com/proxyweir/weir/experiment/simulation"
)

// settings are those of all cells.
type settings struct {
	calm, length float64 // seconds
	windows      int     // of a run of windows at most; 0: all
	origin       origin.Origin
}

// checkout is the folder of the project: the experiment's parent. It is found once, when the program starts.
var checkout = sync.OnceValue(func() string {
	path, err := filepath.Abs(".")
	if err != nil {
		panic(err)
	}
	for ; path != "/"; path = filepath.Dir(path) {
		if _, err := os.Stat(filepath.Join(path, "experiment", "go.mod")); err == nil {
			return path
		}
	}
	panic("not in a checkout of Weir")
})

// site is all that a cell starts.
type site struct {
	programs  programs
	service   *service
	proxies   []proxy
	redis     *program
	redisAt   string
	line      *slowLine
	played    *played
	adviserAt string       // of the advisor that is a program
	adviser   *program     // that, too
	polls     *polls       // the way to it, if it is on and off by turns
	metricsOf *http.Server // of the generator
	folder    string
}

// stop stops everything, and returns an error if something had ended before its time.
func (s *site) stop() error {
	err := s.programs.stop()
	if s.redis != nil {
		err = errors.Join(s.redis.stop(), err)
	}
	if s.line != nil {
		s.line.stop()
	}
	if s.played != nil {
		s.played.stop()
	}
	if s.polls != nil {
		s.polls.stop()
	}
	if s.metricsOf != nil {
		_ = s.metricsOf.Close()
	}
	if s.service != nil {
		s.service.stop()
	}
	return err
}

// together makes cells that are played at the same time begin together, and stop together: starting and stopping servers takes so much of the machine
// that it would disturb the others.
type together struct{ starting, playing sync.WaitGroup }

func newTogether(cells int) *together {
	t := new(together)
	t.starting.Add(cells)
	t.playing.Add(cells)
	return t
}

// play plays a cell together with others.
func play(ctx context.Context, c cell, o settings, t *together) (*record, []second, error) {
	started, ended := sync.OnceFunc(t.starting.Done), sync.OnceFunc(t.playing.Done)
	defer started() // if it fails, the others do not wait
	defer ended()
	p, err := scenarioOf(c.Scenario)
	if err != nil {
		return nil, nil, err
	}
	a, err := armOf(c.Arm)
	if err != nil {
		return nil, nil, err
	}
	s, err := p.cut(c.Pair, c.Sigma, o.calm, o.length)
	if err != nil {
		return nil, nil, err
	}
	nodes := proxies
	if a.bare {
		nodes = 1
	}
	trace := requestsOf(s, c.Pair, nodes)
	var w *turns
	if p.windows > 0 {
		if w, err = p.turnsOf(c.Pair, o, nodes); err != nil {
			return nil, nil, err
		}
		s, trace = w.first, w.trace
	}
	r := &record{cell: c, Origin: o.origin, Calm: s.Begin, Event: s.Length - s.Begin, Over: p.over}
	folder, err := os.MkdirTemp("", "experiment")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(folder)
	with := &plan{arm: a, limits: a.limits(s), algorithm: c.Algorithm}
	for _, z := range with.zones() {
		if r.Limits == nil {
			r.Limits = &limits{}
		}
		if z.name == "client" {
			r.Limits.Client, r.Limits.Burst = z.requests, z.burst
		} else {
			r.Limits.All = z.requests
		}
	}
	l := newLoad(nil, s.Clients)
	of := &site{folder: folder}
	prometheus, err := of.start(ctx, with, p, s, l)
	if err != nil {
		return nil, nil, errors.Join(err, of.stop())
	}
	for _, front := range of.proxies {
		l.targets = append(l.targets, front.address)
	}
	if w != nil {
		if err := of.advised(ctx); err != nil {
			return nil, nil, errors.Join(err, of.stop())
		}
	}
	started()
	t.starting.Wait()
	if err := of.warmUp(ctx); err != nil {
		return nil, nil, errors.Join(err, of.stop())
	}
	begin := time.Now().Add(simulation.PeriodOfAll) // what the limit of all has counted is over
	r.Begun = begin.UTC().Truncate(time.Second)
	of.service.beginAt(begin)
	besides, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { of.advise(besides, begin, with, c, s, prometheus) })
	seen := map[int]map[string]any{}
	var fault error
	m := of.meter()
	if w != nil {
		others.Go(func() { fault = of.take(besides, begin, w, m) })
	} else {
		others.Go(func() { of.watch(besides, begin.Add(seconds(s.Begin)), int(s.Begin), seen, m) })
		others.Go(func() { fault = of.faults(besides, begin.Add(seconds(s.Begin)), p) })
	}
	attempts := l.play(ctx, begin, trace)
	r.Advice = of.advice(ctx)
	stop()
	others.Wait()
	r.Used = m.lap()
	ended()
	t.playing.Wait()
	if w != nil {
		fault = errors.Join(fault, of.switchAdvisor(true)) // so that it can end
	}
	if err := errors.Join(fault, of.stop(), ctx.Err()); err != nil {
		return nil, nil, err
	}
	r.ServiceLag = milliseconds(time.Duration(of.service.latest.Load()))
	if len(l.errors) > 0 {
		r.Failed = l.errors
	}
	if w != nil {
		r.summarizeWindows(w, attempts)
		return r, nil, nil
	}
	r.summarize(attempts)
	r.Thrown = r.Thrown || p.quiet(of) && (wait(r.Used) >= mostWait || busy(r.Used, r.Event) >= mostBusy)
	return r, secondsOf(attempts, s.Begin, seen), nil
}

// start starts what the plan needs, and returns the address of Prometheus.
func (of *site) start(ctx context.Context, with *plan, p scenario, s *simulation.Situation, l *load) (prometheus string, err error) {
	if of.service, err = newService(s); err != nil {
		return "", err
	}
	with.service = of.service.address()
	if with.arm.bare {
		started, front, err := startCaddy(of.folder, "caddy", with)
		if err != nil {
			return "", err
		}
		of.programs, of.proxies = append(of.programs, started), append(of.proxies, front)
		return "", started.ready(ctx, "http://"+front.metrics+"/")
	}
	if of.redisAt, err = freeAddress(); err != nil {
		return "", err
	}
	if of.redis, err = startRedis(of.folder, of.redisAt); err != nil {
		return "", err
	}
	if err = redisAnswers(of.redis, of.redisAt); err != nil {
		return "", err
	}
	with.redis = of.redisAt
	if p.redis == "slow" {
		if of.line, err = newSlowLine(of.redisAt); err != nil {
			return "", err
		}
		with.redis = of.line.address()
	}
	// The proxies must know the advisor's address, and Prometheus the proxies', so the advisor comes last.
	var season time.Duration
	history := ""
	switch with.arm.adviser {
	case "":
	case "go", "prophet":
		if of.adviserAt, err = freeAddress(); err != nil {
			return "", err
		}
		with.adviser = of.adviserAt
		if p.windows > 0 {
			if of.polls, err = newPolls(of.adviserAt); err != nil {
				return "", err
			}
			with.adviser = of.polls.address()
		}
		days, err := historyOf(p)
		if err != nil {
			return "", err
		}
		season = time.Duration(len(days[0])*everyHistory) * time.Second
		now := time.Now().Add(-5 * time.Second)
		history = openMetrics(days, "shop/client", math.Mod(s.TimeOfDay(s.Begin)-s.Begin, season.Seconds()), now)
	default:
		if of.played, err = startPlayed(); err != nil {
			return "", err
		}
		with.adviser = of.played.address()
		if with.arm.adviser == "changes" { // or the first poll would fail, and the next ones come later
			of.played.say(map[string]int64{"shop/client": with.zones()[0].requests})
		}
	}
	targets := map[string][]string{"service": {with.service}}
	for _, name := range []string{"caddy1", "caddy2", "traefik"} {
		begin := startCaddy
		if name == "traefik" {
			begin = func(folder, _ string, p *plan) (*program, proxy, error) { return startTraefik(folder, p) }
		}
		started, front, err := begin(of.folder, name, with)
		if err != nil {
			return "", err
		}
		of.programs, of.proxies = append(of.programs, started), append(of.proxies, front)
		targets["proxy"] = append(targets["proxy"], front.metrics)
	}
	listener, err := listen()
	if err != nil {
		return "", err
	}
	of.metricsOf = &http.Server{Handler: l}
	go func() { _ = of.metricsOf.Serve(listener) }()
	targets["load"] = []string{listener.Addr().String()}
	started, prometheus, err := startPrometheus(of.folder, history, targets)
	if err != nil {
		return "", err
	}
	of.programs = append(of.programs, started)
	if err := started.ready(ctx, "http://"+prometheus+"/-/ready"); err != nil {
		return "", err
	}
	for i, front := range of.proxies {
		if err := of.programs[i].ready(ctx, "http://"+front.metrics+"/metrics"); err != nil {
			return "", err
		}
		if err := of.programs[i].ready(ctx, "http://"+front.address+"/metrics"); err != nil { // it passes requests on
			return "", err
		}
	}
	if season > 0 {
		if of.adviser, err = startAdvisor(of.folder, with.arm.adviser, of.adviserAt, prometheus, with, season); err != nil {
			return "", err
		}
		of.programs = append(of.programs, of.adviser)
		return prometheus, of.adviser.ready(ctx, "http://"+of.adviserAt+"/healthz")
	}
	return prometheus, nil
}

// warmUp sends each proxy some requests of the usual kind, so that the cell does not begin with connections, caches and heaps that are cold.
func (of *site) warmUp(ctx context.Context) error {
	const atATime, times = simulation.Workers / proxies, 6 // no request waits for a slot
	l := newLoad(nil, 1)
	l.patience = 10 * time.Second
	var trace []request
	for n := range times {
		for i, front := range of.proxies {
			if n == 0 {
				l.targets = append(l.targets, front.address)
			}
			for range atATime {
				trace = append(trace, request{at: seconds(2 * simulation.Service * float64(n)), work: seconds(simulation.Service), node: i, legitimate: true})
			}
		}
	}
	l.play(ctx, time.Now(), trace)
	if len(l.errors) > 0 {
		return fmt.Errorf("before the cell: %v", l.errors)
	}
	return ctx.Err()
}

// advise plays the advisor, if the arm has one that is not a program.
func (of *site) advise(ctx context.Context, begin time.Time, with *plan, c cell, s *simulation.Situation, prometheus string) {
	switch with.arm.adviser {
	case "oracle":
		of.played.oracle(ctx, begin, s, 1)
	case "random":
		of.played.random(ctx, begin, c.Pair, with.zones()[0].requests)
	case "study":
		of.played.study(ctx, begin, prometheus, simulation.NewStudy(s, with.limits))
	}
}

// faults does to Redis what the scenario says.
func (of *site) faults(ctx context.Context, event time.Time, p scenario) error {
	if p.redis == "" || of.redis == nil || !sleepUntil(ctx, event.Add(seconds(p.faultAt))) {
		return nil
	}
	if of.line != nil {
		of.line.slow.Store(true)
	} else {
		of.redis.kill()
	}
	sleepUntil(ctx, event.Add(seconds(p.backAt)))
	if of.line != nil {
		of.line.slow.Store(false)
		return nil
	}
	again, err := startRedis(of.folder, of.redisAt)
	if err != nil {
		of.redis = nil
		return err
	}
	of.redis = again
	return nil
}

// watched are the metrics of the first proxy that a cell's data have for each second, and their names there.
var watched = map[string]string{
	`weir_limit{rule="shop/client"}`:                          "limit_of_client",
	`weir_limit{rule="shop/all"}`:                             "limit_of_all",
	`weir_guard_limit{guard="shop/"}`:                         "guard_limit",
	`weir_guard_limit{guard=""}`:                              "guard_limit",
	`weir_breaker_open{server="",store="redis"}`:              "breaker_open",
	`experiment_service_under_way`:                            "under_way",
	`experiment_service_load`:                                 "load",
	`weir_guard_pressure_acts{guard="shop/"}`:                 "pressure_acts",
	`weir_advisor_forecast{bound="lower",rule="shop/client"}`: "forecast_lower",
	`weir_advisor_forecast{bound="mean",rule="shop/client"}`:  "forecast_mean",
	`weir_advisor_forecast{bound="upper",rule="shop/client"}`: "forecast_upper",
	`weir_advisor_demand{rule="shop/client"}`:                 "demand",
	`weir_advisor_computation_duration_seconds_sum`:           "computing",
}

// watch reads metrics each second, and has m measure the event.
func (of *site) watch(ctx context.Context, event time.Time, calm int, seen map[int]map[string]any, m *meter) {
	var from []string
	goroutines := map[string]string{} // the programs whose goroutines an address tells
	if len(of.proxies) > 0 {
		from = append(from, of.proxies[0].metrics+"/metrics")
	}
	for i, front := range of.proxies { // of each kind of proxy one
		if address := front.process + "/metrics"; i == 0 {
			goroutines[address] = of.programs[i].name
		} else if front.process != front.metrics {
			goroutines[address], from = of.programs[i].name, append(from, address)
		}
	}
	from = append(from, of.service.address()+"/metrics")
	if of.adviserAt != "" {
		from = append(from, of.adviserAt+"/metrics")
	}
	for n := -calm; sleepUntil(ctx, event.Add(time.Duration(n)*time.Second)); n++ {
		values := map[string]any{}
		if n == 0 {
			m.lap()
		} else {
			m.look()
		}
		for _, address := range from {
			found, err := scrape(ctx, address)
			if err != nil {
				continue
			}
			if n, ok := found["go_goroutines"]; ok && goroutines[address] != "" {
				m.saw(goroutines[address], n)
			}
			for name, value := range found {
				if word, ok := watched[name]; ok {
					values[word] = value
				}
			}
		}
		seen[n] = values
	}
}

// advice returns how many documents the proxies took, and how many they refused, by reason.
func (of *site) advice(ctx context.Context) map[string]int {
	found := map[string]int{}
	for _, front := range of.proxies {
		values, err := scrape(ctx, front.metrics+"/metrics")
		if err != nil {
			continue
		}
		for name, value := range values {
			for _, of := range []string{"weir_advice_polls_total", "weir_advice_refused_total", "weir_advice_clamped_total"} {
				if strings.HasPrefix(name, of) && value > 0 {
					found[strings.TrimPrefix(name, "weir_advice_")] += int(value)
				}
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

// scrape returns metrics by their names with labels.
func scrape(ctx context.Context, address string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", address, response.Status)
	}
	values := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil && !math.IsNaN(n) && !math.IsInf(n, 0) {
			values[name] = n
		}
	}
	return values, nil
}

// versions adds those of the servers to the origin.
func versions() origin.Origin {
	o := origin.Of()
	o.Redis = origin.First("redis-server", "--version")
	o.Metrics = origin.First("prometheus", "--version")
	if text, err := exec.Command(traefikProgram(), "version").Output(); err == nil {
		o.Traefik = strings.Join(strings.Fields(strings.SplitN(string(text), "\n", 2)[0]), " ")
	}
	return o
}
