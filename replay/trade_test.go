package replay

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// traceOf reads a trace: a number of requests in each line, the last of those separated by commas that is one, gzipped where the name says so.
func traceOf(t testing.TB, name string) (counts []float64) {
	t.Helper()
	data, err := os.ReadFile(name)
	must.Succeed(t, err)
	if strings.HasSuffix(name, ".gz") {
		from, err := gzip.NewReader(bytes.NewReader(data))
		must.Succeed(t, err)
		data, err = io.ReadAll(from)
		must.Succeed(t, err)
	}
	for line := range strings.Lines(string(data)) {
		n := 0.0
		for i, column := range strings.Split(strings.TrimSpace(line), ",") {
			if v, err := strconv.ParseFloat(column, 64); err == nil && i < 2 {
				n = v
			}
		}
		counts = append(counts, n)
	}
	return counts
}

// trafficOf makes the requests of steps of 5 minutes. People come as the trace says, some far more often than others, and load a page with what belongs
// to it: 1 to 30 requests within 3 s. Beside them bots ask all the time for half an hour each, 15 to 75 times a minute.
func trafficOf(random *rand.Rand, counts []float64, mean float64) []hit {
	sum := 0.0
	for _, n := range counts {
		sum += n
	}
	people := rand.NewZipf(random, 1.2, 4, 2000)
	var hits []hit
	add := func(at float64, client string) { hits = append(hits, hit{end: at, client: client}) }
	for i, n := range counts {
		begin := float64(i * 300)
		for n *= mean * float64(len(counts)) / sum; n > 0; {
			at, client, page := begin+random.Float64()*297, address(int(people.Uint64())), 1+random.IntN(30)
			for range page {
				add(at+random.Float64()*3, client)
			}
			n -= float64(page)
		}
		if i%6 == 3 {
			speed := 15 + random.Float64()*60
			for at := begin + random.Float64()*60; at < begin+1800; at += random.ExpFloat64() * 60 / speed {
				add(at, address(100_000+i))
			}
		}
	}
	return hits
}

// inOrder writes hits in the order of their times.
func inOrder(hits []hit) string {
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.end, b.end) })
	return linesOf(hits...)
}

// What a suggestion promises it does on the next day, which neither its choice nor its figures have seen, at the same protection: the share that it spares
// differs by no more than its margin and 10 points, that of the clients by 10, but for one time in twenty. What the log that has chosen says all in all
// differs by more: a few clients make it. WEIR_TRACE names another trace of 5 minutes a line, WEIR_DAYS is how many days are played, and -v shows the figures.
func TestASuggestionDoesOnTheNextDayWhatItSaid(t *testing.T) {
	underrace.OneGoroutine(t)
	const day = 288 // steps of 5 minutes
	counts := traceOf(t, cmp.Or(os.Getenv("WEIR_TRACE"), "../testdata/worldcup/requests-in-5-minutes.txt.gz"))
	if os.Getenv("WEIR_TRACE") == "" {
		counts = counts[len(counts)/2:] // from a day in June
	}
	days, err := strconv.Atoi(cmp.Or(os.Getenv("WEIR_DAYS"), "2"))
	must.Succeed(t, err)
	rules := []string{"{name: a, algorithm: fixed_window, limit: 20/1m}", "{name: b, algorithm: sliding_window_counter, limit: 20/1m}"}
	var before []*Trade
	var shares, clients, inAll []float64 // how far what is found is from what is said
	wrong, weaker := 0, 0
	for n := range days {
		steps := counts[n%(len(counts)/day)*day:][:day]
		hits := trafficOf(rand.New(rand.NewPCG(uint64(n), 11)), steps, 100)
		log := logIn(t, fmt.Sprintf("%d.log", n), inOrder(hits))
		r, _ := run(t, Config{Rules: filesOf(t, rulesOf(rules...)), Logs: []string{log}, Suggest: true})
		for i, said := range before {
			way, u := said.suggested(), said.Unseen
			if u == nil {
				t.Logf("%s: nothing is suggested, or promised: %s%s", rules[i], said.Note, said.Seen)
				continue
			}
			did, now := r.Trades[i].find(way.Counted()), &r.Trades[i].Ways[0]
			_, counting, _ := strings.Cut(way.Counted(), " ")
			counting = strings.NewReplacer(" burst ", ", burst: ", " segments ", ", segments: ").Replace(counting)
			nowOf, didOf := rejectedOf(t, log, hits, rules[i]), rejectedOf(t, log, hits, "{name: a, limit: "+way.Limit+", algorithm: "+counting+"}")
			found := Saving{Touched: int64(len(nowOf))}
			for client, n := range nowOf {
				found.Now += n
				found.Less += max(n-didOf[client], 0)
				found.Spared += int64(index(didOf[client] == 0))
			}
			t.Logf("%s: %s", rules[i], strings.Join(said.said(), " "))
			t.Logf("found: it spares %d of %d (%.0f %%), and rejects nothing of %d of %d clients; in all %d → %d on the first day, %d → %d on the second",
				found.Less, found.Now, 100*part(found.Less, found.Now), found.Spared, found.Touched, said.Ways[0].Legitimate, way.Legitimate, now.Legitimate, did.Legitimate)
			shares = append(shares, 100*math.Abs(part(found.Less, found.Now)-u.Share))
			clients = append(clients, 100*math.Abs(part(found.Spared, found.Touched)-part(u.Spared, u.Touched)))
			inAll = append(inAll, 100*math.Abs(part(did.Legitimate, now.Legitimate)-part(way.Legitimate, said.Ways[0].Legitimate)))
			wrong += index(shares[len(shares)-1] > 100*u.Margin)
			weaker += index(float64(did.Peak) > 1.05*float64(now.Peak) || float64(did.Long) > 1.05*float64(now.Long) || did.AtMost > now.AtMost || did.Touched > now.Touched)
		}
		before = r.Trades
		must.Succeed(t, os.Remove(log))
	}
	for _, list := range [][]float64{shares, clients, inAll} {
		slices.Sort(list)
		mean := 0.0
		for _, off := range list {
			mean += off / float64(len(list))
		}
		t.Logf("of %d: %.1f points off in the mean, 95 of 100 up to %.1f, all up to %.1f", len(list), mean, usual(list), list[len(list)-1])
	}
	if t.Logf("%d not within the margin, %d with a higher peak", wrong, weaker); len(shares) < days-1 || usual(shares) > 10 || usual(clients) > 10 || wrong > len(shares)/20 || weaker > len(shares)/20 {
		t.Errorf("of %d promises %d are not within their margins, %d protect less, and usually they are kept to %.1f and %.1f points", len(shares), wrong, weaker, usual(shares), usual(clients))
	}
	if usual(inAll) <= 10 {
		t.Errorf("what a day says in all is found on the next to %.1f points, so this test does not tell a good promise", usual(inAll))
	}
}

// usual returns what 95 of 100 numbers in ascending order do not exceed.
func usual(list []float64) float64 { return list[(len(list)*19+19)/20-1] }

// find returns the way of a trade that counts in such a way.
func (t *Trade) find(counted string) *Way {
	return &t.Ways[slices.IndexFunc(t.Ways, func(w Way) bool { return w.Counted() == counted })]
}

// rejectedOf replays a log by one rule of 20 requests a minute or so, and returns how many requests it rejects of each client that asks for no more than
// 200 in any 10 minutes.
func rejectedOf(t *testing.T, log string, hits []hit, rule string) map[string]int64 {
	t.Helper()
	rejected, demand := make(map[string]int64), make(map[string]map[int64]int)
	for _, h := range hits {
		if demand[h.client] == nil {
			demand[h.client] = make(map[int64]int)
		}
		demand[h.client][int64(h.end+logsBegin)/600]++
	}
	run(t, Config{Rules: filesOf(t, rulesOf(rule)), Logs: []string{log}, OnDecided: func(d Decided) {
		if d.Outcome == core.Reject {
			rejected[hits[d.Line-1].client]++
		}
	}})
	for client := range rejected {
		for _, n := range demand[client] {
			if n > 200 {
				delete(rejected, client)
			}
		}
	}
	return rejected
}

func (t *Trade) suggested() *Way {
	for i := range t.Ways {
		if t.Ways[i].Suggested {
			return &t.Ways[i]
		}
	}
	return nil
}

// One half of the logs chooses, and the other says what it does. Where there are no two halves the whole chooses, and nothing is promised.
func TestTheHalfThatChoosesIsNotTheOneThatMeasures(t *testing.T) {
	alike := func(loads ...[2]int64) (list [][][2]int64) { // of each of 10 clients, by the way
		for range 10 {
			list = append(list, loads)
		}
		return list
	}
	const way, other = "10/1m token_bucket burst 30", "15/1m token_bucket burst 25"
	for _, test := range []struct {
		name    string
		minutes int64
		loads   [][][2]int64 // of each client by each of three ways, in both halves
		want    string       // the suggestion
		said    []string
	}{
		{"the first half likes another than the second", 40, alike([2]int64{5, 5}, [2]int64{1, 4}, [2]int64{2, 0}), way, []string{
			way + " was chosen on one half of the logs: every other 10m.",
			"On the other half, which the suggestion did not see, it spares 10 of 50 requests that are rejected now: too few clients make that to promise a share.",
			"It rejects nothing of 0 of the 10 clients that something is rejected of now.",
			"It rejects nothing more of any client.",
		}},
		{"some are rejected more", 40, append(alike([2]int64{5, 6}, [2]int64{1, 0}, [2]int64{2, 0}), [][2]int64{{0, 1}, {0, 7}, {0, 1}}, [][2]int64{{0, 1}, {0, 4}, {0, 1}}), way, []string{
			way + " was chosen on one half of the logs: every other 10m.",
			"On the other half, which the suggestion did not see, it spares 60 of 62 requests that are rejected now: 97 %, ± 29 with other clients.",
			"It rejects nothing of 10 of the 12 clients that something is rejected of now.",
			"It rejects 9 requests more of 2 clients. With other clients that may be none, or several times as many.",
		}},
		{"one client makes it", 40, append(alike([2]int64{1, 1}, [2]int64{0, 0}, [2]int64{1, 1}), [][2]int64{{0, 990}, {0, 495}, {0, 990}}), way, []string{
			way + " was chosen on one half of the logs: every other 10m.",
			"On the other half, which the suggestion did not see, it spares 505 of 1,000 requests that are rejected now: too few clients make that to promise a share.",
			"It rejects nothing of 10 of the 11 clients that something is rejected of now.",
			"It rejects nothing more of any client.",
		}},
		{"the second half does not confirm it", 40, alike([2]int64{5, 5}, [2]int64{1, 5}, [2]int64{2, 0}), "", nil},
		{"short", 39, alike([2]int64{5, 5}, [2]int64{1, 4}, [2]int64{2, 0}), other, []string{
			other + " was chosen on all of the logs. Nothing is promised, since no half of them can measure what the other has chosen: the logs cover 39 min, and that takes 40 min.",
		}},
		{"all in one half", 40, alike([2]int64{0, 5}, [2]int64{0, 4}, [2]int64{0, 0}), other, []string{
			other + " was chosen on all of the logs. Nothing is promised, since no half of them can measure what the other has chosen: in one of the halves it rejects 0 requests of 0 legitimate clients.",
		}},
	} {
		trade := &trade{span: test.minutes * 60e6, limit: &rate.Limit{Requests: 20, Quota: 20, Period: 60e6}, near: make(map[uint64]*nearKey)}
		trade.result = Trade{Period: 60, Ways: []Way{{Limit: "20/1m", Algorithm: "fixed_window", Peak: 20}, {Limit: "10/1m", Algorithm: "token_bucket", Burst: 30, Peak: 12}, {Limit: "15/1m", Algorithm: "token_bucket", Burst: 25, Peak: 11}}}
		for client, loads := range test.loads {
			key := &nearKey{legitimate: true}
			for i, rejected := range loads {
				key.loads = append(key.loads, load{rejected: rejected})
				trade.result.Ways[i].Legitimate += rejected[0] + rejected[1]
				trade.result.Ways[i].Touched += int64(index(rejected != [2]int64{}))
			}
			trade.near[uint64(client)] = key
		}
		trade.near[1000], trade.near[1001] = &nearKey{loads: make([]load, 3)}, &nearKey{legitimate: true}
		trade.near[1000].loads[0].rejected = [2]int64{1000, 1000}
		trade.conclude()
		got := ""
		if w := trade.result.suggested(); w != nil {
			got = w.Counted()
		}
		must.Equal(t, got, test.want, test.name)
		must.Equal(t, strings.Join(trade.result.said(), "\n"), strings.Join(test.said, "\n"), test.name)
	}
}

// The figures of a trade are those that their definitions give for what a plain replay lets through.
func TestTheFiguresOfATradeAreAsDefined(t *testing.T) {
	hits := each("early", 0, 1, 2, 29, 31, 32, 33, 34, 35, 601, 602, 603, 604, 605)
	for i := range 20 * 60 {
		hits = append(hits, hit{end: float64(i), client: "steady"})
		if i%100 < 6 {
			hits = append(hits, hit{end: float64(i) + 0.5, client: "slow"})
		}
	}
	log := logIn(t, "a.log", inOrder(append(hits, each("last", 1200)...)))
	allowed := make(map[string][]float64)
	rejected := make(map[string]int64)
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.end, b.end) })
	r, _ := run(t, Config{Rules: filesOf(t, rulesOf("{name: a, algorithm: fixed_window, limit: 4/30s}")), Logs: []string{log}, Suggest: true, OnDecided: func(d Decided) {
		if d.Line > len(hits) {
			return
		}
		if h := hits[d.Line-1]; d.Outcome == core.Reject {
			rejected[h.client]++
		} else {
			allowed[h.client] = append(allowed[h.client], h.end)
		}
	}})
	most := func(length, step float64) (most int64) {
		for _, list := range allowed {
			for begin := -length; begin < 1300; begin += step {
				n := int64(0)
				for _, at := range list {
					if at += math.Mod(logsBegin, length); at >= begin && at < begin+length {
						n++
					}
				}
				most = max(most, n)
			}
		}
		return most
	}
	trade := r.Trades[0]
	want := Way{Limit: "4/30s", Algorithm: "fixed_window", Now: true, Legitimate: rejected["early"] + rejected["slow"], Touched: 2, Rejected: rejected["early"] + rejected["slow"] + rejected["steady"],
		AtMost: 8, Second: most(1, 1), Peak: most(30, 1.5), Long: most(300, 300)}
	got := trade.Ways[0]
	got.Front = false
	must.Equal(t, got, want)
	if trade.Clients != 4 || trade.Legitimate != 3 {
		t.Errorf("%d of %d clients are legitimate", trade.Legitimate, trade.Clients)
	}
}

// Where a log is too small, or nothing is to be gained, or ways cannot be compared, the trade says so.
func TestATradeSaysWhyNothingIsSuggested(t *testing.T) {
	short := each("x", 0, 0.1, 0.2, 0.3)
	long := slices.Concat(short, each("y", 1300))
	busy := slices.Clone(long)
	for i := range 1300 {
		busy = append(busy, hit{end: float64(i), client: "busy"})
	}
	for _, test := range []struct {
		rule string
		hits []hit
		want string
	}{
		{"limit: 2/1m", short, "the logs cover 0 s: too little to tell who keeps to the limit in the long run, which takes 20 periods, 20 min"},
		{"limit: 9/1m", long, "it rejects nothing of clients that keep to the limit in the long run"},
		{"limit: 2/1m", long, "it rejects 2 requests of 1 legitimate client: too few to choose by"},
		{"limit: 2/1m", busy[len(long):], "no client keeps to the limit in the long run"},
		{"limit: 2/day", long, "the limit follows the calendar, which only a fixed_window can"},
		{"limit: 2/1m, count: [401], algorithm: fixed_window", long, "what is counted is known only after the response (count)"},
		{"limit: 2/1m, match: {paths: [/none]}", long, "no request of the logs has come under it"},
	} {
		r, _ := run(t, Config{Rules: filesOf(t, rulesOf("{name: a, "+test.rule+"}")), Logs: []string{logIn(t, "a.log", inOrder(test.hits))}, Suggest: true})
		must.Equal(t, r.Trades[0].Note, test.want, test.rule)
		if r.Trades[0].suggested() != nil {
			t.Errorf("%s: there is a suggestion all the same", test.rule)
		}
	}
	r, _ := run(t, Config{Rules: filesOf(t, rulesOf("{name: a, limit: 2/1m}")), Logs: []string{"-"}, Input: strings.NewReader(inOrder(long)), Suggest: true})
	must.Equal(t, r.Trades[0].Note, "standard input can be read once, and this takes two passes; name files")
	r, _ = run(t, Config{Rules: filesOf(t, rulesOf("{name: a, concurrency: 2}", "{name: b, limit: unlimited}")), Logs: []string{logIn(t, "a.log", inOrder(long))}, Suggest: true})
	must.Equal(t, len(r.Trades), 0)
}

// The picture has a title and a description, and shows what the table has; its colours are those of both colour schemes.
func TestThePageShowsTheTrade(t *testing.T) {
	r := &Report{Trades: []*Trade{{Rule: "a<b", Period: 60, Legitimate: 9, Ways: []Way{
		{Limit: "20/1m", Algorithm: "fixed_window", Legitimate: 400, Touched: 9, Peak: 40, Now: true},
		{Limit: "10/1m", Algorithm: "token_bucket", Burst: 30, Legitimate: 100, Touched: 5, Peak: 40, Suggested: true, Front: true},
		{Limit: "30/1m", Algorithm: "fixed_window", Peak: 80, Front: true},
		{Limit: "75/1m", Algorithm: "sliding_window_counter", Segments: 10, Legitimate: 400, Peak: 60},
	}, Unseen: &Saving{Now: 200, Less: 150, Share: 0.75, Margin: 0.081, Touched: 4, Spared: 2}}, {Rule: "short", Note: "the logs cover 3 s"}}}
	var page strings.Builder
	must.Succeed(t, r.WriteHTML(&page))
	must.Contain(t, page.String(), `<title>Ways to count for a&lt;b: `)
	must.Contain(t, page.String(), `<desc>Now, 20/1m fixed_window: 400 rejected, at most 40 in 1m. Suggested, 10/1m token_bucket burst 30: 100 rejected, at most 40.`)
	must.Contain(t, page.String(), `<circle class="suggested" cx="360.0" cy="160.0" r="7">`) // half as far to the right and, by the root, half as high
	must.Contain(t, page.String(), `<path class="front" d="M360.0 160.0L710.0 310.0"/>`)
	must.Contain(t, page.String(), `<p>10/1m token_bucket burst 30 was chosen on one half of the logs: every other 10m. On the other half, which the suggestion did not see, it spares 150 of 200 requests that are rejected now: 75 %, ± 9 with other clients. `)
	must.Contain(t, page.String(), `<p>No other way to count is suggested: the logs cover 3 s.</p>`)
	must.Equal(t, strings.Count(page.String(), "<circle"), 4)
	must.Equal(t, strings.Count(page.String(), "<tr><td>75/1m"), 0)
	for _, class := range []string{"way", "now", "suggested", "front"} {
		must.Contain(t, css, "svg ."+class+" {")
	}
}
