package replay

import (
	"context"
	"errors"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/underrace"
)

// allOverflowPolicies are rules that do whatever rules can do.
const allOverflowPolicies = `
rules:
  - {name: a, limit: 3/1s, enforcement: soft 50% 2s, concurrency: 4}
  - {name: b, limit: 5/2s, algorithm: token_bucket, penalty: [1s, 1h], key: [client_ip, "header:X-Api-Key", path]}
  - {name: c, limit: 2/1s, algorithm: leaky_bucket, max_delay: 10s}
  - {name: d, limit: 1/1s, algorithm: fixed_window, on_limit: delay, max_delay: 1h, max_waiting: 3}
  - {name: e, limit: 3/1m, algorithm: sliding_window_log, count: [4xx], key: "query:page"}
  - {name: f, limit: 5/day, candidate: {limit: 3/day}, enforcement: shadow, cost: "header:X-Cost"}
  - {name: g, match: {hosts: [www.example.com], headers: {Cookie: "*"}}, key: host, limit: 1/1s, algorithm: sliding_window_log, count_rejected: true}
  - {name: h, key: "cookie:s", concurrency: 1}
`

// Whatever stands in a log, a replay comes to its end, every line is counted as one kind, and every request of a rule as one outcome.
func TestDamagedLogsAreReplayedAsFarAsTheyGo(t *testing.T) {
	underrace.OneGoroutine(t)
	random := rand.New(rand.NewPCG(5, 6))
	number := regexp.MustCompile(`\d+\.\d+`)
	var formats []string
	for format := range writers {
		formats = append(formats, format)
	}
	for range 60 {
		source := newTraffic(20)
		source.rate = 20
		var lines strings.Builder
		for range 300 {
			var line strings.Builder
			writers[formats[random.IntN(len(formats))]](&line, source.next())
			text := []byte(line.String())
			switch random.IntN(8) {
			case 0:
				text[random.IntN(len(text))] = byte(random.IntN(256))
			case 1:
				text = text[:random.IntN(len(text))]
			case 2: // another time or duration, or address
				text = number.ReplaceAllFunc(text, func(b []byte) []byte {
					if random.IntN(2) == 0 {
						return b
					}
					return strconv.AppendFloat(nil, random.NormFloat64()*float64(random.Int64N(1<<random.IntN(40)+1)), 'f', 3, 64)
				})
			case 3:
				source.at += float64(random.IntN(7200) - 3600)
			}
			lines.Write(text)
		}
		text := lines.String()
		c := Config{Rules: filesOf(t, allOverflowPolicies), Candidate: filesOf(t, threeRules), Logs: []string{logIn(t, "a.log", text)}, Suggest: true, Share: 0.1}
		r, err := Run(context.Background(), c)
		if errors.Is(err, errNoLine) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if f := r.Files[0]; f.Lines != f.Requests+f.Unreadable+f.Other || f.Requests != r.Requests || r.Requests != r.Allowed+r.AllowedSoft+r.Delayed+r.Rejected {
			t.Errorf("%+v, %+v", f, r)
		}
		for _, rule := range append(r.Rules, r.Candidate.Report...) {
			asked := rule.Allowed + rule.AllowedSoft + rule.Delayed + rule.Rejected + rule.ShadowRejected + rule.ShadowDelayed + rule.RejectedByOthers
			if asked != rule.Requests || asked > r.Requests {
				t.Errorf("%+v", rule)
			}
			clients := int64(0)
			for _, p := range rule.PeakUse {
				clients += p.Clients
			}
			if clients != rule.Clients || rule.Touched > rule.Clients {
				t.Errorf("%d clients in %+v", clients, rule)
			}
		}
		_ = reportsOf(t, r)
	}
}
