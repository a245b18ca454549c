package main

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/proxyweir/weir/experiment/simulation"
)

func TestMain(m *testing.M) {
	beCaddy() // the runs of the tests start this program as the proxy
	m.Run()
}

// TestWithRealParts plays two short runs: every request is accounted for, and the parts are as they should be. It says nothing of speed.
func TestWithRealParts(t *testing.T) {
	for _, arm := range []string{"none", "guard"} {
		t.Run(arm, func(t *testing.T) {
			t.Parallel()
			r := run{Situation: "abuse", Sigma: 1, Seed: 1, Arm: arm}
			o := settings{calm: 1, length: 1, watch: true}
			with, err := prepare(r, o)
			if err != nil {
				t.Fatal(err)
			}
			found, err := play(t.Context(), r, with, o)
			if err != nil {
				t.Fatal(err)
			}
			legitimate := 0
			for _, q := range with.requests {
				if q.legitimate && q.counted {
					legitimate++
				}
			}
			if found.Legitimate != legitimate || found.run != r || found.Failed != nil || len(found.Profile) == 0 {
				t.Errorf("%+v; want %d legitimate requests, and no failures", found, legitimate)
			}
			limits := 0
			for _, m := range found.Profile {
				if m.Guard["limit{guard=\"\"}"] == 128 {
					limits++
				}
			}
			if (limits > 0) != (arm == "guard") {
				t.Errorf("a limit of 128 was seen %d times", limits)
			}
		})
	}
}

// TestEveryArmIsAConfiguration that Caddy takes.
func TestEveryArmIsAConfiguration(t *testing.T) {
	for arm := range arms {
		text, err := configOf(arm, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
		if err != nil {
			t.Fatal(err)
		}
		adapted, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt(text, nil)
		if err != nil {
			t.Fatalf("%s: %v, %v", arm, err, warnings)
		}
		var config caddy.Config
		if err := json.Unmarshal(adapted, &config); err != nil {
			t.Fatal(err)
		}
		if err := caddy.Validate(&config); err != nil {
			t.Errorf("%s: %v", arm, err)
		}
	}
	if _, err := configOf("luck", "", "", ""); err == nil {
		t.Error("an arm that there is not is taken")
	}
}

func TestEachClientHasAnAddressOfItsOwn(t *testing.T) {
	seen := make(chan string, 600)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen <- r.RemoteAddr }))
	defer server.Close()
	l := newLoad(server.Listener.Addr().String(), 300)
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
		if err != nil {
			t.Fatal(err)
		}
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
		}
	}))
	defer server.Close()
	defer close(release)
	for _, c := range []struct {
		name              string
		first, second     int
		again, legitimate bool
		want              []int
	}{
		{"answered", 1, 1, true, true, []int{answered}},
		{"turned away", 2, 1, true, true, []int{turnedAway}},
		{"refused, and again", 3, 1, true, true, []int{refused, answered}},
		{"refused twice", 3, 3, true, true, []int{refused, refused}},
		{"refused, and not again", 3, 1, false, true, []int{refused}},
		{"left, and again", 4, 2, true, true, []int{left, turnedAway}},
		{"an abuser that is refused", 3, 1, true, false, []int{refused}},
		{"something else", 5, 1, true, true, []int{failed}},
	} {
		l := newLoad(server.Listener.Addr().String(), 1)
		l.patience, l.abusers = time.Minute, time.Minute
		if c.first == 4 {
			l.patience = 200 * time.Millisecond
		}
		q := request{work: time.Duration(c.first) * time.Microsecond, workAgain: time.Duration(c.second) * time.Microsecond, again: c.again, legitimate: c.legitimate}
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

func TestATraceIsTheSameForAllArms(t *testing.T) {
	for _, p := range pieces {
		s := p.cut(3, 1, 15, 0)
		a := requestsOf(s, 3)
		if p.name == "abuse" {
			if !slices.Equal(a, requestsOf(p.cut(3, 1, 15, 0), 3)) {
				t.Error("two traces of one seed differ")
			}
			if slices.Equal(a, requestsOf(p.cut(4, 1, 15, 0), 4)) {
				t.Error("two seeds have the same trace")
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
		if calm < 15*60 || calm > 15*simulation.Capacity || event < 30*80 {
			t.Errorf("%s: %d requests in the calm, and %d in the event", p.name, calm, event)
		}
		slow := strings.HasPrefix(p.name, "slow")
		if before, after := s.Slowness(14.9), s.Slowness(s.End-0.1); before != 1 || (math.Abs(after-1/0.45) < 1e-9) != slow {
			t.Errorf("%s: the service takes %v and in the end %v times its usual time", p.name, before, after)
		}
	}
}

func TestASummaryCountsTheEvent(t *testing.T) {
	calm, asked, abuse := &request{legitimate: true}, &request{legitimate: true, counted: true}, &request{counted: true}
	found := summarize(run{Arm: "guard"}, []attempt{
		{of: calm, what: failed}, {of: asked, what: answered, took: time.Millisecond}, {of: asked, what: left}, {of: asked, again: true, what: answered, took: 3 * time.Millisecond},
		{of: asked, what: turnedAway}, {of: asked, what: refused}, {of: asked, again: true, what: left}, {of: abuse, what: answered}, {of: abuse, what: turnedAway},
	})
	want := result{run: run{Arm: "guard"}, Legitimate: 4, Good: 50, GoodAgain: 25, TurnedAway: 1, Refused: 1, Left: 2, P50: 3, P95: 3, Abuse: 50}
	if found.run != want.run || found.Legitimate != 4 || found.Good != 50 || found.GoodAgain != 25 || found.TurnedAway != 1 || found.Refused != 1 || found.Left != 2 || found.P50 != 3 || found.Abuse != 50 {
		t.Errorf("%+v, want %+v", found, want)
	}
}

func TestTheTableHasMeansAndPairedDifferences(t *testing.T) {
	var results []result
	for seed, good := range [][2]float64{{80, 99}, {70, 95}, {60, 97}} {
		for i, arm := range []string{"cap", "guard"} {
			results = append(results, result{run: run{"abuse", 0, uint64(seed + 1), arm}, Good: good[i], Simulated: 90})
		}
	}
	results = append(results, result{run: run{"abuse", 0, 1, "cap"}, Good: 0, Disturbed: true}, result{run: run{"steady", 0, 1, "guard"}, Good: 100}, result{run: run{"steady", 0, 2, "cap"}, Good: 10})
	want := `| situation | sigma | cap | guard | guard − cap |
| --- | ---: | ---: | ---: | ---: |
| steady | 0 | 10.0 | 100.0 | +NaN ± NaN |
| abuse | 0 | 70.0 (90.0) | 97.0 (90.0) | +27.00 ± 22.77 |
`
	if got := tableOf(results); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestPlayedRunsAreNotPlayedAgain, unless they were disturbed.
func TestPlayedRunsAreNotPlayedAgain(t *testing.T) {
	a, b, c := run{"slow", 1, 1, "cap"}, run{"slow", 1, 1, "guard"}, run{"slow", 1, 2, "guard"}
	got := missing([]run{a, b, c}, []result{{run: a}, {run: b, Disturbed: true}})
	if !slices.Equal(got, []run{b, c}) {
		t.Errorf("%v, want the second and the third", got)
	}
	if list, err := read(filepath.Join(t.TempDir(), "none")); err != nil || len(list) != 0 {
		t.Errorf("a file that is not there: %v, %v", list, err)
	}
}

func TestAnInterruptEndsARun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := newLoad("127.0.0.1:1", 1)
	cancel()
	if got := l.play(ctx, time.Now(), []request{{at: time.Hour, legitimate: true}}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
