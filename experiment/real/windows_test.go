package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// short are settings of runs of windows of a second each.
var short = settings{calm: 0.5, length: 0.5, windows: 6}

func TestBothWindowsOfABlockHaveTheSameRequests(t *testing.T) {
	p, err := scenarioOf("windows")
	must.Succeed(t, err)
	w, err := p.turnsOf(2, short, 3)
	must.Succeed(t, err)
	must.Equal(t, len(w.on), 6)
	of := make([][]request, len(w.on))
	for _, q := range w.trace {
		n := int(q.at / time.Second)
		q.at -= time.Duration(n) * time.Second
		if q.counted != (q.at >= time.Second/2) {
			t.Fatalf("window %d: %+v", n, q)
		}
		of[n] = append(of[n], q)
	}
	orders := map[bool]bool{}
	for n := 0; n < len(of); n += 2 {
		if len(of[n]) < 50 || !slices.Equal(of[n], of[n+1]) || w.on[n] == w.on[n+1] || n > 0 && slices.Equal(of[n], of[n-1]) {
			t.Errorf("block %d: %d and %d requests, on %v and %v", n/2, len(of[n]), len(of[n+1]), w.on[n], w.on[n+1])
		}
	}
	for run := range uint64(20) {
		orders[orderOf(run, 1)[0]] = true
	}
	must.Equal(t, len(orders), 2, "the advisor always comes first, or never")
}

// TestTheAdvisorStandsStillWhileItIsOff, its polls are told that nothing is new, and it goes on after it.
func TestTheAdvisorStandsStillWhileItIsOff(t *testing.T) {
	folder := t.TempDir()
	ticks, err := start(folder, "advisor", exec.Command("sh", "-c", "while sleep 0.01; do echo >> ticks; done"))
	must.Succeed(t, err)
	p, err := newPolls("127.0.0.1:1") // nobody
	must.Succeed(t, err)
	of := &site{programs: programs{ticks}, adviser: ticks, polls: p}
	poll := func(tag string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.address(), nil)
		must.Succeed(t, err)
		r.Header.Set("If-None-Match", tag)
		answer, err := http.DefaultClient.Do(r)
		must.Succeed(t, err)
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	count := func() int64 {
		time.Sleep(100 * time.Millisecond)
		info, err := os.Stat(filepath.Join(folder, "ticks"))
		must.Succeed(t, err)
		return info.Size()
	}
	take := func(on bool) { must.Succeed(t, of.take(t.Context(), time.Now(), &turns{on: []bool{on}}, of.meter())) }
	take(true)
	for range 500 {
		if _, err := os.Stat(filepath.Join(folder, "ticks")); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	must.Equal(t, poll("1"), http.StatusBadGateway)
	take(false)
	must.Equal(t, [2]int{poll("1"), poll("")}, [2]int{http.StatusNotModified, http.StatusServiceUnavailable})
	if a, b := count(), count(); a != b {
		t.Errorf("it goes on while it is off: %d, %d", a, b)
	}
	take(true)
	for before, n := count(), 0; count() == before; n++ {
		if n == 500 {
			t.Fatal("it does not go on")
		}
	}
	must.Succeed(t, of.stop())
}

func TestWindowsCountTheirOwnRequests(t *testing.T) {
	w := &turns{length: 1, on: []bool{true, false, false, true}}
	at := func(window int, counted bool) *request {
		return &request{at: time.Duration(window)*time.Second + 900*time.Millisecond, counted: counted, legitimate: true}
	}
	var attempts []attempt
	for n := range w.on {
		attempts = append(attempts, attempt{of: at(n, true), what: answered, took: time.Duration(n+1) * time.Millisecond}, attempt{of: at(n, false), what: left})
	}
	attempts = append(attempts, attempt{of: at(1, true), again: true, at: 3 * time.Second, what: left}) // it belongs to the window of the first try
	var r record
	r.summarizeWindows(w, attempts)
	must.Equal(t, len(r.windows), 4)
	for n, line := range r.windows {
		tries := 0
		if n == 1 {
			tries = 1
		}
		if line.Window != n || line.Block != n/2 || line.On != w.on[n] || line.Legitimate != 1 || line.Own["left"] != tries || line.Thrown {
			t.Errorf("%d: %+v", n, line)
		}
	}
	attempts[0].late = mostLateness
	r = record{}
	if r.summarizeWindows(w, attempts); !r.windows[0].Thrown || r.windows[1].Thrown || !r.Thrown {
		t.Errorf("one of two blocks was thrown away: %+v", r)
	}
}

// TestWhatIsLeftIsTold, and the combination that needs least comes first.
func TestWhatIsLeftIsTold(t *testing.T) {
	folder := t.TempDir()
	list, err := openOf(checkout())
	must.Succeed(t, err)
	if first := byTime(list, folder, settings{calm: 15}, 2)[0]; first.name != "bursts, fixed_window and sliding_window_counter and token_bucket, static" {
		t.Errorf("%s comes first", first.name)
	}
	var quiet open
	for _, o := range list {
		if strings.HasPrefix(o.name, "quiet bots") {
			quiet = o
		}
	}
	before := (settings{calm: 15}).takeAll(quiet.left(folder), 2)
	must.Equal(t, before, time.Duration(len(quiet.cells))*100*time.Second)
	played := slices.Concat(quiet.cells...)
	for _, c := range played[:len(played)-3] { // one and a half pairs are missing
		must.Succeed(t, write(c.file(folder), &record{cell: c}, nil))
	}
	must.Equal(t, byTime(list, folder, settings{calm: 15}, 2)[0].name, quiet.name)
	var told strings.Builder
	tellLeft(&told, []cell{{Scenario: "steady", Arm: "static"}}, explored()[:2], []open{quiet}, folder, settings{calm: 15}, 2)
	for _, want := range []string{
		"of the pilot: 1 cells, 1 minutes left\n", "62 of 64 pairs are there, 2 minutes left\n", "flood 0 and flood 1000 and flood 2000 and flood 3000, token_bucket, static: 0 of 6 pairs are there, 28 minutes left\n",
		"effect, sliding_window_counter, interval 10s: 0 of 3 runs are there, 9 minutes left\n", "in all 41 minutes left of a quiet machine",
	} {
		must.Contain(t, told.String(), want)
	}
}

func TestWhatIsPlayedAtTheSameTime(t *testing.T) {
	cells := func(scenarios ...string) (list []attempted) {
		for _, s := range scenarios {
			list = append(list, attempted{cell: cell{Scenario: s}})
		}
		return list
	}
	r := runner{settings: settings{calm: 15}}
	for _, c := range []struct {
		queue       []string
		left        time.Duration
		group, rest int
	}{
		{[]string{"windows", "steady", "slow"}, 0, 1, 2},
		{[]string{"steady", "windows", "slow"}, 0, 2, 1},
		{[]string{"windows", "steady", "slow"}, 5 * time.Minute, 2, 1}, // the run would not end in time
		{[]string{"windows", "steady"}, time.Minute, 0, 2},
		{[]string{"flood 1000", "steady", "flood 0"}, 0, 1, 2},
		{[]string{effectScenario, "steady", "slow"}, 0, 1, 2},
		{[]string{effectScenario, "steady", effectScenario}, 0, 2, 1},
	} {
		if r.until = (time.Time{}); c.left > 0 {
			r.until = time.Now().Add(c.left)
		}
		group, rest := r.next(cells(c.queue...), 2)
		if len(group) != c.group || len(rest) != c.rest {
			t.Errorf("%v, %v left: %v, and then %v", c.queue, c.left, group, rest)
		}
	}
}
