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
// to it: 1 to 30 requests within 3 s. Beside them bots ask all the time for half an hour each, faster than the limit of 20 a minute.
func trafficOf(random *rand.Rand, counts []float64, mean float64) string {
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
	return inOrder(hits)
}

// inOrder writes hits in the order of their times.
func inOrder(hits []hit) string {
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.end, b.end) })
	return linesOf(hits...)
}

// find returns the way of a trade that counts in such a way.
func (t *Trade) find(counted string) *Way {
	for i := range t.Ways {
		if t.Ways[i].Counted() == counted {
			return &t.Ways[i]
		}
	}
	return nil
}

// A suggestion that is made on one half of the World Cup's traffic does on the other half what it said: it rejects far less of legitimate clients, at
// the same protection. WEIR_TRACE names another trace of 5 minutes a line, and -v shows the figures.
func TestASuggestionDoesOnTheOtherHalfWhatItSaid(t *testing.T) {
	underrace.OneGoroutine(t)
	counts := traceOf(t, cmp.Or(os.Getenv("WEIR_TRACE"), "../testdata/worldcup/requests-in-5-minutes.txt.gz"))
	if len(counts) > 576 { // two days in June
		counts = counts[len(counts)/2:][:576]
	}
	var halves [2]string
	for i := range halves {
		halves[i] = logIn(t, fmt.Sprintf("%d.log", i), trafficOf(rand.New(rand.NewPCG(uint64(i), 11)), counts[i*len(counts)/2:(i+1)*len(counts)/2], 100))
	}
	for _, algorithm := range []string{"fixed_window", "sliding_window_counter"} {
		rule := "{name: a, algorithm: " + algorithm + ", limit: 20/1m}"
		var trades [2]*Trade
		for i, log := range halves {
			r, _ := run(t, Config{Rules: filesOf(t, rulesOf(rule)), Logs: []string{log}, Suggest: true})
			trades[i] = r.Trades[0]
		}
		said := trades[0].suggested()
		if said == nil {
			t.Errorf("%s: nothing is suggested: %s", rule, trades[0].Note)
			continue
		}
		now, did := &trades[1].Ways[0], trades[1].find(said.Counted())
		t.Logf("%s: said of %d requests: %+v; before: %+v", rule, trades[0].Requests, *said, trades[0].Ways[0])
		t.Logf("%s: did of %d requests: %+v; before: %+v", rule, trades[1].Requests, *did, *now)
		if spared, promised := 1-part(did.Legitimate, now.Legitimate), 1-part(said.Legitimate, trades[0].Ways[0].Legitimate); spared < promised*2/3 || did.Touched > now.Touched {
			t.Errorf("%s: %s spares %.2f of what is rejected of legitimate clients, and said %.2f", rule, said.Counted(), spared, promised)
		}
		if float64(did.Peak) > 1.05*float64(now.Peak) || float64(did.Long) > 1.05*float64(now.Long) || did.AtMost > now.AtMost {
			t.Errorf("%s: %s lets a client have %+v, and the rule %+v", rule, said.Counted(), *did, *now)
		}
		// as a rule it does the same
		_, counting, _ := strings.Cut(said.Counted(), " ")
		counting = strings.NewReplacer(" burst ", ", burst: ", " segments ", ", segments: ").Replace(counting)
		r, _ := run(t, Config{Rules: filesOf(t, rulesOf("{name: a, limit: "+said.Limit+", algorithm: "+counting+"}")), Logs: []string{halves[1]}})
		if r.Rejected != did.Rejected {
			t.Errorf("%s: as a rule it rejects %d, and %d beside others", said.Counted(), r.Rejected, did.Rejected)
		}
	}
}

func (t *Trade) suggested() *Way {
	for i := range t.Ways {
		if t.Ways[i].Suggested {
			return &t.Ways[i]
		}
	}
	return nil
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
	}}, {Rule: "short", Note: "the logs cover 3 s"}}}
	var page strings.Builder
	must.Succeed(t, r.WriteHTML(&page))
	must.Contain(t, page.String(), `<title>Ways to count for a&lt;b: `)
	must.Contain(t, page.String(), `<desc>Now, 20/1m fixed_window: 400 rejected, at most 40 in 1m. Suggested, 10/1m token_bucket burst 30: 100 rejected, at most 40.`)
	must.Contain(t, page.String(), `<circle class="suggested" cx="360.0" cy="160.0" r="7">`) // half as far to the right and, by the root, half as high
	must.Contain(t, page.String(), `<path class="front" d="M360.0 160.0L710.0 310.0"/>`)
	must.Contain(t, page.String(), `<p>No other way to count is suggested: the logs cover 3 s.</p>`)
	must.Equal(t, strings.Count(page.String(), "<circle"), 4)
	must.Equal(t, strings.Count(page.String(), "<tr><td>75/1m"), 0)
	for _, class := range []string{"way", "now", "suggested", "front"} {
		must.Contain(t, css, "svg ."+class+" {")
	}
}
