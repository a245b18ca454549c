package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/proxyweir/weir/experiment/progress"
	"github.com/proxyweir/weir/experiment/simulation"
	"github.com/proxyweir/weir/tools/must"
)

func TestMain(m *testing.M) {
	beCaddy() // the runs of the tests start this program as the proxy
	m.Run()
}

// TestWithRealParts plays two short cells: every request is accounted for, and the parts are as they should be. It says nothing of speed.
func TestWithRealParts(t *testing.T) {
	for _, arm := range []string{"none", "guard alone"} {
		t.Run(arm, func(t *testing.T) {
			t.Parallel()
			c := cell{Scenario: "abuse", Sigma: 1, Pair: 1, Arm: arm}
			o := settings{calm: 1, length: 1}
			found, seconds, err := play(t.Context(), c, o, newTogether(1))
			must.Succeed(t, err)
			p, _ := scenarioOf(c.Scenario)
			s, err := p.cut(c.Pair, c.Sigma, o.calm, o.length)
			must.Succeed(t, err)
			legitimate := 0
			for _, q := range requestsOf(s, c.Pair, 1) {
				if q.legitimate && q.counted {
					legitimate++
				}
			}
			first, limits := 0, 0
			for _, s := range seconds {
				if s.Second >= 0 {
					first += s.First
				}
				if s.Seen["guard_limit"] == 128.0 {
					limits++
				}
			}
			if found.Legitimate != legitimate || first != legitimate || found.cell != c || found.Failed != nil {
				t.Errorf("%+v, and %d in its seconds; want %d legitimate requests, and no failures", found, first, legitimate)
			}
			must.Equal(t, (limits > 0), arm == "guard alone", "a limit of 128 was seen %d times", limits)
			if u := found.Used["caddy"]; u.CPU <= 0 || u.Waited < 0 || u.Resident < 1 || u.Goroutines < 1 || len(found.Used) != 1 {
				t.Errorf("used: %+v, want something of the Caddy, and of nothing else", found.Used)
			}
		})
	}
}

// allOf returns the cells of a matrix, and what is explored if that is its name.
func allOf(t *testing.T, matrix string, pairs int) []cell {
	t.Helper()
	cells, err := cellsOf(matrix, pairs)
	must.Succeed(t, err)
	if matrix == "explored" {
		for _, o := range explored() {
			cells = append(cells, slices.Concat(o.cells...)...)
		}
	}
	if len(cells) == 0 {
		t.Fatalf("%s has no cells", matrix)
	}
	return cells
}

func TestACellOnAMachineThatIsNotQuietIsThrownAway(t *testing.T) {
	unquiet := map[string]used{"caddy1": {CPU: 1, Waited: 3}, "traefik": {CPU: 1, Waited: 5.5}, "advisor": {CPU: 10}}
	must.Equal(t, wait(unquiet), 4.25)
	must.Equal(t, wait(nil), 0)
	must.Equal(t, busy(unquiet, 10), 0.65)
	must.Equal(t, busy(nil, 1), 0)
	steady, err := scenarioOf("steady")
	must.Succeed(t, err)
	flood, err := scenarioOf("flood 3000")
	must.Succeed(t, err)
	must.Equal(t, [3]bool{steady.quiet(&site{}), flood.quiet(&site{}), steady.quiet(&site{adviserAt: "127.0.0.1:1"})}, [3]bool{true, false, false})
}

func TestGoroutinesOfEachKindOfProxyAreSeen(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	tells := func(text string, then func()) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, text)
			then()
		}))
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	nothing := func() {}
	caddy1, caddy2 := tells("go_goroutines 5\n", nothing), tells("go_goroutines 6\n", nothing)
	rules, traefik := tells("", nothing), tells("go_goroutines 7\n", nothing)
	service, err := newService(simulation.New("steady", 1, simulation.Options{Real: true}))
	must.Succeed(t, err)
	of := &site{
		programs:  programs{{name: "caddy1"}, {name: "caddy2"}, {name: "traefik"}},
		proxies:   []proxy{{metrics: caddy1, process: caddy1}, {metrics: caddy2, process: caddy2}, {metrics: rules, process: traefik}},
		service:   service,
		adviserAt: tells("go_goroutines 8\n", end), // who is asked last
	}
	defer service.stop()
	m := &meter{most: map[string]used{}}
	of.watch(ctx, time.Now(), 0, map[int]map[string]any{}, m)
	must.Equal(t, fmt.Sprint(m.most["caddy1"].Goroutines, m.most["traefik"].Goroutines, len(m.most)), "5 7 2")
}

// TestEveryArmIsAConfiguration that Caddy takes, with each algorithm.
func TestEveryArmIsAConfiguration(t *testing.T) {
	s := simulation.New("steady", 1, simulation.Options{Real: true})
	names := []string{"failsafe 128", "failsafe queue", "failsafe fair"}
	for _, matrix := range []string{"full", "small", "guard", "explored"} {
		for _, c := range allOf(t, matrix, 1) {
			if !slices.Contains(names, c.Arm) {
				names = append(names, c.Arm)
			}
		}
	}
	for _, name := range names {
		a, err := armOf(name)
		must.Succeed(t, err)
		for _, algorithm := range algorithms {
			p := &plan{arm: a, limits: a.limits(s), algorithm: algorithm, service: "127.0.0.1:1", redis: "127.0.0.1:2"}
			if a.adviser != "" {
				p.adviser = "127.0.0.1:3"
			}
			text := p.caddyfile("127.0.0.1:4", "127.0.0.1:5")
			adapted, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
			if err != nil {
				t.Fatalf("%s: %v, %v:\n%s", name, err, warnings, text)
			}
			var config caddy.Config
			must.Succeed(t, json.Unmarshal(adapted, &config))
			if err := caddy.Validate(&config); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, wrong := range []string{"luck", "go", "guard+study", "guard+go+prophet"} {
		if _, err := armOf(wrong); err == nil {
			t.Errorf("an arm %q is taken", wrong)
		}
	}
}

func TestEachClientHasAnAddressOfItsOwn(t *testing.T) {
	seen := make(chan string, 600)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen <- r.RemoteAddr }))
	defer server.Close()
	l := newLoad([]string{server.Listener.Addr().String()}, 300)
	var trace []request
	for i := range 600 {
		trace = append(trace, request{client: i % 300, legitimate: true})
	}
	l.patience = time.Minute
	if got := l.play(t.Context(), time.Now(), trace); len(got) != 600 || len(l.errors) != 0 {
		t.Fatalf("%d attempts, and %v", len(got), l.errors)
	}
	addresses := map[string]int{}
	for range 600 {
		host, _, err := net.SplitHostPort(<-seen)
		must.Succeed(t, err)
		addresses[host]++
	}
	if len(addresses) != 300 || addresses["127.1.0.1"] != 2 || addresses["127.1.1.50"] != 2 {
		t.Errorf("%d addresses: %v", len(addresses), addresses)
	}
}

// TestWhatBecomesOfARequest: who gives up, or is refused, may try again, and who is turned away does not.
func TestWhatBecomesOfARequest(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch work, _ := strconv.Atoi(r.Header.Get(workHeader)); work {
		case 1:
			_, _ = io.WriteString(w, "ok")
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			w.WriteHeader(http.StatusInternalServerError)
		case 4:
			<-release
		case 5:
			w.WriteHeader(http.StatusBadGateway)
		case 6:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	defer close(release)
	for _, c := range []struct {
		name              string
		first, second     int
		again, legitimate bool
		insists           bool
		want              []int
	}{
		{"answered", 1, 1, true, true, false, []int{answered}},
		{"turned away", 2, 1, true, true, false, []int{turnedAway}},
		{"refused, and again", 3, 1, true, true, false, []int{refused, answered}},
		{"refused twice", 3, 3, true, true, false, []int{refused, refused}},
		{"refused, and not again", 3, 1, false, true, false, []int{refused}},
		{"left, and again", 4, 2, true, true, false, []int{left, turnedAway}},
		{"an abuser that is refused", 3, 1, true, false, false, []int{refused}},
		{"limited", 6, 1, true, true, false, []int{limited}},
		{"limited, and insists", 6, 1, false, true, true, []int{limited, answered}},
		{"an abuser that is limited", 6, 1, true, false, true, []int{limited}},
		{"something else", 5, 1, true, true, false, []int{failed}},
	} {
		l := newLoad([]string{server.Listener.Addr().String()}, 1)
		l.patience, l.abusers = time.Minute, time.Minute
		if c.first == 4 {
			l.patience = time.Second
		}
		q := request{work: time.Duration(c.first) * time.Microsecond, workAgain: time.Duration(c.second) * time.Microsecond, again: c.again, insists: c.insists, legitimate: c.legitimate}
		var got []int
		for i, a := range l.play(t.Context(), time.Now(), []request{q}) {
			got = append(got, a.what)
			if a.again != (i > 0) || a.at < 0 || a.took <= 0 {
				t.Errorf("%s: attempt %d: %+v", c.name, i, a)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAClientKnowsItsRetryAfter(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	l := newLoad([]string{server.Listener.Addr().String()}, 1)
	l.patience, l.begin = time.Minute, time.Now()
	a := attempt{of: &request{legitimate: true}}
	if got := l.try(t.Context(), &a, 0, 0); got != 7*time.Second || a.what != limited || a.late < 0 {
		t.Errorf("%v, %+v", got, a)
	}
}

func TestATraceIsTheSameForAllArms(t *testing.T) {
	for _, p := range scenarios {
		trace := func(pair uint64) (*simulation.Situation, []request) {
			s, err := p.cut(pair, 1, 15, 0)
			must.Succeed(t, err)
			return s, requestsOf(s, pair, 3)
		}
		s, a := trace(3)
		if p.name == "abuse" {
			if _, b := trace(3); !slices.Equal(a, b) {
				t.Error("two traces of one pair differ")
			}
			if _, b := trace(4); slices.Equal(a, b) {
				t.Error("two pairs have the same trace")
			}
		}
		calm, event := 0, 0
		for _, q := range a {
			switch {
			case q.counted != (q.at >= 15*time.Second):
				t.Fatalf("%s: %+v", p.name, q)
			case q.counted:
				event++
			case !q.legitimate:
				t.Errorf("%s: an abuser in the calm", p.name)
			default:
				calm++
			}
		}
		least := 60
		if strings.HasPrefix(p.name, "flood") {
			least = 30
		}
		if calm < 15*least || calm > 15*simulation.Capacity || event < 40*least {
			t.Errorf("%s: %d requests in the calm, and %d in the event", p.name, calm, event)
		}
		slow := p.name == "slow"
		if before, within := s.Slowness(14.9), s.Slowness(15+30); before != 1 || (math.Abs(within-1/0.45) < 1e-9) != slow {
			t.Errorf("%s: the service takes %v and then %v times its usual time", p.name, before, within)
		}
	}
}

// TestAFloodChangesNothingOfTheOthers: legitimate requests are the same whatever its rate, and what it sends costs the service next to nothing.
func TestAFloodChangesNothingOfTheOthers(t *testing.T) {
	var calm []request
	for rate := range 4 {
		p, err := scenarioOf(fmt.Sprintf("flood %d", 1000*rate))
		must.Succeed(t, err)
		s, err := p.cut(2, 0, 15, 0)
		must.Succeed(t, err)
		flood, busiest := map[int]int{}, 0
		legitimate := slices.DeleteFunc(requestsOf(s, 2, 3), func(q request) bool {
			if !q.legitimate {
				flood[q.client]++
				if q.work > time.Microsecond || !q.counted {
					t.Fatalf("%+v", q)
				}
			}
			return !q.legitimate
		})
		if rate == 0 {
			calm = legitimate
		}
		if len(calm) < 45*35 || !slices.Equal(legitimate, calm) {
			t.Errorf("%s: %d legitimate requests, and they must be the %d without a flood", p.name, len(legitimate), len(calm))
		}
		for _, n := range flood {
			busiest = max(busiest, n)
			if want := 30 * 1000 * rate / len(flood); n < want*9/10 || n > want*11/10 {
				t.Errorf("%s: a client of the flood sends %d requests, want some %d", p.name, n, want)
			}
		}
		// What their own limits let through leaves the limit of all to the others.
		through := float64(len(flood))*s.Tuned().Client + float64(len(legitimate))/45
		if (busiest == 0) != (rate == 0) || through > 0.9*s.Tuned().All {
			t.Errorf("%s: %d requests at most of one client; %.0f a second reach the limit of all, which is %.0f", p.name, busiest, through, s.Tuned().All)
		}
	}
}

// TestThePlaceOfACellIsItsOwn, and cells of a matrix differ.
func TestThePlaceOfACellIsItsOwn(t *testing.T) {
	for _, matrix := range []string{"full", "small", "guard", "explored"} {
		seen := map[string]cell{}
		for _, c := range allOf(t, matrix, 2) {
			if other, has := seen[c.file("data")]; has {
				t.Errorf("%v and %v have one file", c, other)
			}
			seen[c.file("data")] = c
			if _, err := scenarioOf(c.Scenario); err != nil && c.Scenario != effectScenario {
				t.Error(err)
			}
		}
	}
	must.Equal(t, (cell{"redis off", "token_bucket", "guard+go", 2, 0}).file("data"), filepath.Join("data", "redis_off", "token_bucket.guard+go.2.jsonl.gz"))
	must.Equal(t, (cell{"flood 0", "token_bucket", "static", 2, 0}).file("data/real"), filepath.Join("data", "explored", "real", "flood_0", "token_bucket.static.2.jsonl.gz"))
	if _, err := cellsOf("luck", 1); err == nil {
		t.Error("a matrix that there is not is taken")
	}
}

func TestASummaryCountsTheEvent(t *testing.T) {
	calm, asked, abuse := &request{legitimate: true}, &request{legitimate: true, counted: true}, &request{counted: true}
	attempts := []attempt{
		{of: calm, what: failed}, {of: asked, what: answered, took: time.Millisecond}, {of: asked, what: left}, {of: asked, again: true, what: answered, took: 3 * time.Millisecond},
		{of: asked, what: turnedAway}, {of: asked, what: refused}, {of: asked, again: true, what: left}, {of: abuse, what: answered}, {of: abuse, what: limited},
	}
	var found record
	found.summarize(attempts)
	if found.Legitimate != 4 || found.Good != 2 || found.Own["left"] != 2 || found.Own["refused"] != 1 || found.Others["limited"] != 1 || found.Thrown {
		t.Errorf("%+v", found)
	}
	h := found.TimesOfOwn["answered"]
	if h == nil || math.Abs(h.Sum-0.004) > 1e-9 || h.Counts[bucketOf(time.Millisecond)] != 1 || bucketOf(time.Millisecond) != 116 || bucketOf(0) != 0 {
		t.Errorf("%+v, and a millisecond is in bucket %d", h, bucketOf(time.Millisecond))
	}
	attempts[1].late = mostLateness
	for range 900 {
		attempts = append(attempts, attempt{of: calm})
	}
	if found.summarize(attempts); !found.Thrown || found.Latest != 5 {
		t.Errorf("one of 909 requests was 5 ms late: %+v", found)
	}
	for range 1000 {
		attempts = append(attempts, attempt{of: calm})
	}
	if found.summarize(attempts); found.Thrown {
		t.Errorf("one of 1909 requests was 5 ms late: %+v", found)
	}
}

func TestSecondsCountWhatWasToBeSentInThem(t *testing.T) {
	own, other := &request{legitimate: true}, &request{}
	got := secondsOf([]attempt{
		{of: own, at: 900 * time.Millisecond}, {of: own, at: 1500 * time.Millisecond, what: limited}, {of: own, at: 1600 * time.Millisecond, again: true}, {of: other, at: 1700 * time.Millisecond, what: left},
	}, 1, map[int]map[string]any{0: {"limit_of_client": 7.0}})
	if len(got) != 2 || got[0].Second != -1 || got[1].Own != [outcomes]int{1, 1} || got[1].First != 1 || got[1].Others != [outcomes]int{left: 1} || got[1].Seen["limit_of_client"] != 7.0 {
		t.Errorf("%+v", got)
	}
}

// TestAHistoryHasDaysUpToNow: what the advisors learn from.
func TestAHistoryHasDaysUpToNow(t *testing.T) {
	days := [][]counted{countedOf([]simulation.Arrival{{At: 1, Client: 1}, {At: 2, Client: 1}, {At: 3, Client: 2}, {At: 15, Client: 1}}, 20)}
	text := openMetrics(days, "shop/client", 10, time.Unix(1000, 0))
	for _, want := range []string{
		`weir_requests_total{outcome="allowed",job="proxy",instance="history",rule="shop/client"} 3 970`,
		`weir_requests_total{outcome="allowed",job="proxy",instance="history",rule="shop/client"} 7 990`,
		`weir_key_demand_bucket{le="1.0",job="proxy",instance="history",rule="shop/client"} 1 970`,
		`weir_key_demand_bucket{le="+Inf",job="proxy",instance="history",rule="shop/client"} 5 990`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func TestASlowLineAnswersLater(t *testing.T) {
	listener, err := listen()
	must.Succeed(t, err)
	defer listener.Close()
	go func() {
		c, err := listener.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
		}
	}()
	line, err := newSlowLine(listener.Addr().String())
	must.Succeed(t, err)
	defer line.stop()
	line.slow.Store(true)
	c, err := net.Dial("tcp", line.address())
	must.Succeed(t, err)
	defer c.Close()
	begun, answer := time.Now(), make([]byte, 4)
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "ping" || time.Since(begun) < slowdown {
		t.Errorf("%q after %v, %v", answer, time.Since(begun), err)
	}
}

func TestAnInterruptEndsACell(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := newLoad([]string{"127.0.0.1:1"}, 1)
	cancel()
	if got := l.play(ctx, time.Now(), []request{{at: time.Hour, legitimate: true}}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestACellThatFailsIsRepeatedAndStopsNoOther.
func TestACellThatFailsIsRepeatedAndStopsNoOther(t *testing.T) {
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must.Succeed(t, err)
	defer log.Close()
	good, bad := cell{Scenario: "steady", Arm: "none", Pair: 1}, cell{Scenario: "luck", Arm: "none", Pair: 1}
	r := runner{settings: settings{calm: 0.5, length: 0.5}, out: t.TempDir(), tries: 2, bar: progress.New(log, 2)}
	if err := r.playAll(t.Context(), []cell{good, bad}, 2); err == nil || !strings.Contains(err.Error(), "1 cells have no result") && !strings.Contains(err.Error(), "2 cells") {
		t.Error(err)
	}
	said, err := os.ReadFile(log.Name())
	if err != nil || strings.Count(string(said), "luck, , none, sigma 0, pair 1: failed") != 2 || !strings.Contains(string(said), "2 of 2") {
		t.Errorf("%s, %v", said, err)
	}
	// It counts, or was thrown away on a machine that is not quiet.
	if found, err := filepath.Glob(good.file(r.out) + "*"); err != nil || len(found) == 0 {
		t.Errorf("the good cell has no file, %v", err)
	}
}
