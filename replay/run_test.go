package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// hit is a line of Caddy's log: a request that ended so many seconds after the logs' beginning.
type hit struct {
	end, duration float64
	client        string
	path          string // "/" where there is none
	status        int    // 200 where there is none
	headers       string // members of JSON
}

const logsBegin = 1_790_000_000

func (h hit) line() string {
	if h.path == "" {
		h.path = "/"
	}
	if h.status == 0 {
		h.status = 200
	}
	method, path, found := strings.Cut(h.path, " ")
	if !found {
		method, path = "GET", h.path
	}
	uri, _ := json.Marshal(path)
	client, _ := json.Marshal(h.client)
	return fmt.Sprintf(`{"ts":%.6f,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"10.0.0.1","client_ip":%s,"method":"%s","host":"example.com","uri":%s,"headers":{%s}},"duration":%.6f,"status":%d}`+"\n",
		logsBegin+h.end, client, method, uri, h.headers, h.duration, h.status)
}

// linesOf is a log.
func linesOf(hits ...hit) string {
	var lines strings.Builder
	for _, h := range hits {
		lines.WriteString(h.line())
	}
	return lines.String()
}

// logIn writes a log into a file, gzipped where its name says so.
func logIn(t testing.TB, name, text string) string {
	t.Helper()
	data := []byte(text)
	if strings.HasSuffix(name, ".gz") {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(data)
		_ = w.Close()
		data = packed.Bytes()
	}
	path := filepath.Join(t.TempDir(), name)
	must.Succeed(t, os.WriteFile(path, data, 0o600))
	return path
}

// rulesOf is a rule file with rules, one a line.
func rulesOf(rules ...string) string { return "rules:\n  - " + strings.Join(rules, "\n  - ") + "\n" }

// run replays logs, and returns what became of each request in the order of their decisions: A, D for delayed, R.
func run(t testing.TB, c Config) (*Report, string) {
	t.Helper()
	var verdicts strings.Builder
	watch := c.OnDecided
	c.OnDecided = func(d Decided) {
		verdicts.WriteString(map[core.Outcome]string{core.Allow: "A", core.Delay: "D", core.Reject: "R"}[d.Outcome])
		if watch != nil {
			watch(d)
		}
	}
	r, err := Run(context.Background(), c)
	must.Succeed(t, err)
	return r, verdicts.String()
}

// each makes requests that take no time, of one client, at these seconds.
func each(client string, at ...float64) []hit {
	var hits []hit
	for _, end := range at {
		hits = append(hits, hit{end: end, client: client})
	}
	return hits
}

func TestEveryOverflowPolicyIsReplayed(t *testing.T) {
	for _, test := range []struct {
		name, rule string
		hits       []hit
		want       string
		notes      string
	}{
		{"a log", "{name: a, limit: 2/10s, algorithm: sliding_window_log}", each("x", 0, 1, 2, 10.5, 10.9, 11.1), "AARARA", ""},
		{"a fixed window", "{name: a, limit: 2/10s, algorithm: fixed_window}", each("x", 8, 9, 9.5, 10, 11, 12), "AARAAR", ""},
		{"a token bucket", "{name: a, limit: 1/1s, algorithm: token_bucket, burst: 2}", each("x", 0, 0, 0, 1, 1.5, 2.01), "AARARA", ""},
		{"a leaky bucket, which delays", "{name: a, limit: 1/1s, algorithm: leaky_bucket, burst: 2}", each("x", 0, 0.1, 0.2, 0.3), "ADDR", "2 delayed"},
		{"count_rejected", "{name: a, limit: 1/10s, algorithm: sliding_window_log, count_rejected: true}", each("x", 0, 6, 12, 23), "ARRA", ""},
		{"a shadow rejects nobody", "{name: a, limit: 1/10s, enforcement: shadow}", each("x", 0, 1), "AA", "shadow"},
		{"tolerance, and its end", "{name: a, limit: 2/1m, algorithm: sliding_window_log, enforcement: soft 50% 30s}", each("x", 0, 1, 2, 3, 61.5, 61.9), "AAARAR", "1 by tolerance"},
		{"a penalty", "{name: a, limit: 1/1s, algorithm: sliding_window_log, penalty: [10s, 1m]}", each("x", 0, 0.5, 5, 11, 11.5, 60, 72), "ARRARRA", ""},
		{"requests that wait, and another that finds too many", "{name: a, limit: 1/1s, algorithm: token_bucket, burst: 1, on_limit: delay, max_delay: 5s, max_waiting: 2, max_waiting_per_key: 2}",
			[]hit{{0, 0, "x", "", 0, ""}, {1.01, 1, "x", "", 0, ""}, {1.02, 0.99, "x", "", 0, ""}, {2.03, 2, "x", "", 0, ""}, {3, 0, "x", "", 0, ""}, {3.1, 0, "x", "", 0, ""}}, "ADDRAD", "3 delayed"},
		{"one that left while it waited releases its reservation", "{name: a, limit: 1/10s, algorithm: token_bucket, burst: 1, on_limit: delay, max_delay: 12s}",
			[]hit{{0, 0, "x", "", 0, ""}, {2, 1, "x", "", 499, ""}, {3, 0, "x", "", 0, ""}, {4, 0, "x", "", 0, ""}}, "ADDR", "2 delayed"},
		{"and one that has waited does not", "{name: a, limit: 1/10s, algorithm: token_bucket, burst: 1, on_limit: delay, max_delay: 12s}",
			[]hit{{0, 0, "x", "", 0, ""}, {2, 1, "x", "", 200, ""}, {3, 0, "x", "", 0, ""}, {4, 0, "x", "", 0, ""}}, "ADRR", "1 delayed"},
		{"one whose wait a reload ended releases its reservation, too", "{name: a, limit: 1/10s, algorithm: token_bucket, burst: 1, on_limit: delay, max_delay: 12s}",
			[]hit{{0, 0, "x", "", 0, ""}, {2, 1, "x", "", 503, ""}, {3, 0, "x", "", 0, ""}, {4, 0, "x", "", 0, ""}}, "ADDR", "2 delayed"},
		{"and one that was answered 503 after its departure does not", "{name: a, limit: 1/10s, algorithm: token_bucket, burst: 1, on_limit: delay, max_delay: 12s}",
			[]hit{{0, 0, "x", "", 0, ""}, {3, 0, "x", "", 0, ""}, {4, 0, "x", "", 0, ""}, {11, 10, "x", "", 503, ""}}, "ADRR", "1 delayed"},
		{"only the statuses that count", "{name: a, limit: 2/1m, algorithm: sliding_window_log, count: [401]}",
			[]hit{{0, 0, "x", "", 200, ""}, {1, 0, "x", "", 401, ""}, {2, 0, "x", "", 404, ""}, {3, 0, "x", "", 401, ""}, {4, 0, "x", "", 200, ""}, {65, 0, "x", "", 401, ""}}, "AAAARA", ""},
		{"requests that count, and others that are limited with them", "{name: a, limit: 1/1m, algorithm: sliding_window_log, count_match: {methods: [POST]}}",
			[]hit{{0, 0, "x", "/", 0, ""}, {1, 0, "x", "/", 0, ""}, {2, 0, "x", "POST /", 0, ""}, {3, 0, "x", "/", 0, ""}, {4, 0, "x", "POST /", 0, ""}, {63, 0, "x", "/", 0, ""}, {64, 0, "x", "POST /", 0, ""}}, "AAARRAA", ""},
		{"what is reserved until the status is known", "{name: a, limit: 2/1m, algorithm: sliding_window_log, count: [401]}",
			[]hit{{2, 0, "x", "", 200, ""}, {5, 5, "x", "", 200, ""}, {5.1, 4.1, "x", "", 200, ""}, {6, 0, "x", "", 200, ""}}, "AARA", ""},
		{"requests under way", "{name: a, concurrency: 2}",
			[]hit{{2, 0, "x", "", 0, ""}, {5, 5, "x", "", 0, ""}, {5.1, 4.1, "x", "", 0, ""}, {6, 0, "x", "", 0, ""}}, "AARA", "1 for concurrency"},
		{"and beside a limit", "{name: a, limit: 3/1m, algorithm: sliding_window_log, concurrency: 2}",
			[]hit{{2, 0, "x", "", 0, ""}, {5, 5, "x", "", 0, ""}, {5.1, 4.1, "x", "", 0, ""}, {6, 0, "x", "", 0, ""}, {7, 0, "x", "", 0, ""}}, "AARAR", "1 for concurrency"},
		{"pauses, which no log tells of", "{name: a, limit: 1/1m, respect_upstream: 1m}", each("x", 0, 1), "AR", "for how long services asked to wait (respect_upstream)"},
		{"two clients", "{name: a, limit: 1/1m}", append(each("x", 0, 1), each("y", 2, 3)...), "ARAR", ""},
		{"networks", "{name: a, limit: 1/1m, ipv4_prefix: 24}", append(each("192.0.2.1", 0), each("192.0.2.200", 2)...), "AR", ""},
		{"costs", "{name: a, limit: 3/1m, cost: 'query:c'}", []hit{{0, 0, "x", "/?c=2", 0, ""}, {1, 0, "x", "/?c=2", 0, ""}, {2, 0, "x", "/", 0, ""}}, "ARA", ""},
		{"tiers and overrides", "{name: a, key: 'header:K', tiers: {source: 'query:plan', limits: {pro: 2/1m, '*': 1/1m}}, overrides: [{key: vip, limit: unlimited}]}",
			[]hit{{0, 0, "x", "/", 0, `"K":["vip"]`}, {1, 0, "x", "/", 0, `"K":["vip"]`}, {2, 0, "x", "/?plan=pro", 0, `"K":["a"]`}, {3, 0, "x", "/?plan=pro", 0, `"K":["a"]`}, {4, 0, "x", "/", 0, `"K":["b"]`}, {5, 0, "x", "/", 0, `"K":["b"]`}}, "AAAAAR", ""},
		{"a share of the keys", "{name: a, key: 'header:K', limit: 1/1m, enforcement: 50%}", // a is not among them
			[]hit{{0, 0, "x", "/", 0, `"K":["a"]`}, {1, 0, "x", "/", 0, `"K":["a"]`}, {2, 0, "x", "/", 0, `"K":["d"]`}, {3, 0, "x", "/", 0, `"K":["d"]`}}, "AAAR", ""},
		{"limits that requests bring", "{name: a, key: 'header:K', limit: 1/1m, limit_from: {source: 'query:l', max: 3}}",
			[]hit{{0, 0, "x", "/", 0, `"K":["a"]`}, {1, 0, "x", "/?l=2", 0, `"K":["a"]`}, {2, 0, "x", "/?l=2/1m", 0, `"K":["a"]`}, {3, 0, "x", "/?l=9", 0, `"K":["a"]`}, {4, 0, "x", "/?l=9", 0, `"K":["a"]`}, {5, 0, "x", "/?l=z", 0, `"K":["b"]`}, {6, 0, "x", "/?l=0", 0, `"K":["c"]`}}, "AARARAR", ""},
		{"no key, which is one for all", "{name: a, key: 'header:K', limit: 1/1m}", each("x", 0, 1), "AR", ""},
		{"long ones, which stay distinct", "{name: a, key: [client_ip, 'header:K'], limit: 1/1m}",
			[]hit{{0, 0, "x", "", 0, `"K":["` + strings.Repeat("k", 5000) + `1"]`}, {1, 0, "x", "", 0, `"K":["` + strings.Repeat("k", 5000) + `2"]`}, {2, 0, "x", "", 0, `"K":["` + strings.Repeat("k", 5000) + `1"]`}}, "AAR", ""},
		{"or none", "{name: a, key: 'header:K', limit: 1/1m, on_missing_key: skip}", each("x", 0, 1), "AA", ""},
		{"or a rejection", "{name: a, key: 'header:K', limit: 1/1m, on_missing_key: reject}", each("x", 0), "R", ""},
		{"a method, a path, a host and an exception", "{name: a, match: {methods: [POST], path_prefixes: [/v1], hosts: ['*.com'], except_ips: [192.0.2.0/24]}, limit: 1/1m, key: 'static:all'}",
			[]hit{{0, 0, "x", "POST /v1", 0, ""}, {1, 0, "x", "POST /v1/b", 0, ""}, {2, 0, "192.0.2.7", "POST /v1", 0, ""}, {3, 0, "x", "/v1", 0, ""}, {4, 0, "x", "POST //V1/./%61", 0, ""}}, "ARAAR", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, verdicts := run(t, Config{Rules: filesOf(t, rulesOf(test.rule)), Logs: []string{logIn(t, "a.log", linesOf(test.hits...))}})
			must.Equal(t, verdicts, test.want)
			if said := r.Rules[0].notes() + strings.Join(r.Warnings, "\n"); !strings.Contains(said, test.notes) {
				t.Errorf("notes and warnings %q, want %q", said, test.notes)
			}
			if got := strings.Count(verdicts, "R"); r.Rejected != int64(got) || r.Rules[0].Rejected != int64(got) || r.Requests != int64(len(test.hits)) {
				t.Errorf("%d of %d rejected, by the rule %d; want %d of %d", r.Rejected, r.Requests, r.Rules[0].Rejected, got, len(test.hits))
			}
		})
	}
}

func TestARejectedRequestCostsOtherRulesNothing(t *testing.T) {
	r, verdicts := run(t, Config{
		Rules: filesOf(t, rulesOf("{name: a, limit: 1/1m}", "{name: b, key: 'static:all', limit: 2/1m}")),
		Logs:  []string{logIn(t, "a.log", linesOf(append(each("x", 0, 1, 2), each("y", 3)...)...))},
	})
	if verdicts != "ARRA" || r.Rules[1].RejectedByOthers != 2 || r.Rules[1].Rejected != 0 || r.Rules[1].Allowed != 2 {
		t.Errorf("%s: %+v", verdicts, r.Rules[1])
	}
}

func TestWhatWaitsIsReservedOfTheRulesBeside(t *testing.T) {
	rules := rulesOf("{name: queue, match: {paths: [/q]}, key: 'static:all', limit: 1/10s, algorithm: token_bucket, burst: 1, on_limit: delay, max_delay: 30s}",
		"{name: all, key: 'static:all', limit: 2/1h, algorithm: sliding_window_log}")
	hits := []hit{{0, 0, "x", "/q", 0, ""}, {1, 0, "x", "/q", 0, ""}, {2, 0, "x", "/", 0, ""}}
	if _, verdicts := run(t, Config{Rules: filesOf(t, rules), Logs: []string{logIn(t, "a.log", linesOf(hits...))}}); verdicts != "ADR" {
		t.Errorf("%s, want ADR", verdicts)
	}
}

func TestWhatTheLogsLimitsRejectedIsCountedWhateverItsStatus(t *testing.T) {
	named := strings.ReplaceAll(linesOf(hit{end: 1, client: "x", status: 503}, hit{end: 2, client: "x", status: 429}), `"status":`, `"rate_limit_rule":"a","status":`)
	r, _ := run(t, Config{Rules: filesOf(t, rulesOf("{name: a, limit: 9/1m}")), Logs: []string{logIn(t, "a.log", linesOf(each("x", 0)...)+named)}})
	if r.Logged429 != 1 || r.LoggedByRule != 1 {
		t.Errorf("%d with 429, %d by rules; want 1 and 1", r.Logged429, r.LoggedByRule)
	}
	for form, text := range reportsOf(t, r) {
		if form != "JSON" && !strings.Contains(text, "og itself has 1 with status 429, and 1 that a rule rejected with another") {
			t.Errorf("%s does not say so:\n%s", form, text)
		}
	}
}

// What a client may write for the root in a request's first line is counted as it.
func TestARequestWithoutAPathIsReplayedAsOneForTheRoot(t *testing.T) {
	hits := each("192.0.2.1", 1, 2, 3, 4)
	hits[1].path = "GET http://example.com"
	hits[2].path = "GET foo:"
	hits[3].path = "OPTIONS *" // which is no path
	rules := rulesOf("{name: root, match: {paths: [/]}, limit: 1/1h}", "{name: each, limit: 3/1h, key: [path]}")
	r, verdicts := run(t, Config{Rules: filesOf(t, rules), Logs: []string{logIn(t, "log", linesOf(hits...))}})
	must.Equal(t, verdicts, "ARRA", "%s, want ARRA: %+v", verdicts, r)
}

func TestARulesOwnCandidateIsCompared(t *testing.T) {
	r, verdicts := run(t, Config{
		Rules: filesOf(t, rulesOf("{name: a, limit: 2/1m, algorithm: sliding_window_log, candidate: {limit: 1/1m}}")),
		Logs:  []string{logIn(t, "a.log", linesOf(each("x", 0, 1, 2)...))},
	})
	if c := r.Rules[0].Candidate; verdicts != "AAR" || c == nil || *c != (OwnComparison{"1/1m sliding_window_log", 1, 0, 1, 1}) {
		t.Errorf("%s: %+v", verdicts, c)
	}
}

func TestFilesAreMergedByTimeInWhateverOrderTheyAreNamed(t *testing.T) {
	var parts [4]string
	source := newTraffic(30)
	source.rate = 3 // so that files are longer than the window
	for i := range parts {
		var lines strings.Builder
		for range 500 {
			writers["caddy"](&lines, source.next())
		}
		parts[i] = lines.String()
	}
	rules := rulesOf("{name: a, limit: 7/1m}", "{name: b, key: host, concurrency: 1}")
	whole := logIn(t, "whole.log", strings.Join(parts[:], ""))
	_, want := run(t, Config{Rules: filesOf(t, rules), Logs: []string{whole}})
	if !strings.Contains(want, "R") || !strings.Contains(want, "A") {
		t.Fatal("nothing is shown by", want)
	}
	rotated := []string{logIn(t, "access.log", parts[3]), logIn(t, "access.log.1", parts[2]), logIn(t, "access.log.2.gz", parts[1]), logIn(t, "access.log.3.gz", parts[0])}
	// and a line each to two nodes, whose logs are of one time
	var nodes [2]strings.Builder
	for i, line := range strings.SplitAfter(strings.Join(parts[:], ""), "\n") {
		nodes[i%2].WriteString(line)
	}
	for name, logs := range map[string][]string{
		"newest first": rotated,
		"as they come": {rotated[2], rotated[0], rotated[3], rotated[1]},
		"of two nodes": {logIn(t, "b.log", nodes[1].String()), logIn(t, "a.log.gz", nodes[0].String())},
	} {
		r, got := run(t, Config{Rules: filesOf(t, rules), Logs: logs})
		if got != want || r.OutOfOrder != 0 || r.ClockSteps != 0 {
			t.Errorf("%s: other verdicts, or out of order: %d, %d steps", name, r.OutOfOrder, r.ClockSteps)
		}
	}
}

func TestALogOfAllFormatsIsReplayed(t *testing.T) {
	var mixed strings.Builder
	mixed.WriteString("\xef\xbb\xbf")
	source := newTraffic(5)
	for range 50 {
		for _, format := range []string{"caddy", "traefik-json", "traefik-common", "combined"} {
			writers[format](&mixed, source.next())
		}
		mixed.WriteString("rubbish\r\n\r\n")
	}
	r, _ := run(t, Config{Rules: filesOf(t, rulesOf("{name: a, limit: 5/1s}")), Logs: []string{logIn(t, "a.log", mixed.String())}})
	if r.Requests != 200 || r.Unreadable != 50 || r.Other != 50 || len(r.Examples) != mostExamples || r.Examples[0].Line != 5 || len(r.Files[0].Formats) != 4 || r.Rules[0].Requests != 200 {
		t.Errorf("%+v", r)
	}
}

func TestLinesAreNumberedWhateverTheirLength(t *testing.T) {
	good := hit{client: "x"}.line()
	text := ""
	var want []int
	for i, filling := range []int{0, 10, blockSize - 300, blockSize, 3 * blockSize, longestRow - 10, longestRow + 10, 2 * longestRow, 1} {
		text += strings.Repeat("z", filling) + "\n" + good
		want = append(want, 2*i+2)
	}
	text = strings.TrimSuffix(text, "\n") // the last line has no break
	var got []int
	r, _ := run(t, Config{Rules: filesOf(t, rulesOf("{name: a, limit: 1/1s}")), Logs: []string{logIn(t, "a.log", text)}, OnDecided: func(d Decided) { got = append(got, d.Line) }})
	if !slices.Equal(got, want) || r.Unreadable != 8 || r.Other != 1 || r.Files[0].Lines != 18 {
		t.Errorf("lines %v, want %v; %d unreadable, %d others, %d lines", got, want, r.Unreadable, r.Other, r.Files[0].Lines)
	}
}

func TestWhatCannotBeReplayedIsSaid(t *testing.T) {
	good := logIn(t, "good.log", linesOf(each("x", 0, 1)...))
	packed := packedLog(t, 100)
	linked := filepath.Join(t.TempDir(), "linked.log")
	must.Succeed(t, os.Symlink(good, linked))
	rules := rulesOf("{name: a, limit: 1/1s}")
	for _, test := range []struct {
		name string
		c    Config
		want string
	}{
		{"no file of that name", Config{Logs: []string{"nosuch.log"}}, "nosuch.log: no such file or directory"},
		{"a folder", Config{Logs: []string{t.TempDir()}}, "is a directory; name the files in it"},
		{"a file twice", Config{Logs: []string{good, good}}, "is named twice"},
		{"by another path", Config{Logs: []string{good, filepath.Dir(good) + "/./good.log"}}, "/./good.log: is " + good + ", which is named, too"},
		{"by a link", Config{Logs: []string{linked, good}}, "good.log: is " + linked + ", which is named, too"},
		{"gzip that is cut off in its header", Config{Logs: []string{logIn(t, "a.log", string(packed[:7]))}}, "a.log: is cut off before its first line"},
		{"behind it", Config{Logs: []string{logIn(t, "a.log", string(packed[:12]))}}, "a.log: is cut off before its first line"},
		{"and in the first line", Config{Logs: []string{logIn(t, "a.log", string(packed[:100]))}}, "a.log: is cut off before its first line"},
		{"and on standard input", Config{Logs: []string{"-"}, Input: bytes.NewReader(packed[:100])}, "-: is cut off before its first line"},
		{"rubbish", Config{Logs: []string{good, logIn(t, "rubbish", strings.Repeat("\x00\xff\n", 1000))}}, "rubbish: has not a single line of an access log that could be read (line 1 is none of the formats"},
		{"nothing but other messages", Config{Logs: []string{logIn(t, "other.log", "\n"+`{"msg":"hello"}`)}}, "other.log: has not a single line of an access log that could be read (line 2 is JSON without a request, as a proxy's own messages are: a line of Caddy's access log, which needs log in the site, has an object request"},
		{"another server's JSON", Config{Logs: []string{logIn(t, "nginx.log", `{"request":"GET / HTTP/1.1","status":200}`)}}, "(line 1 is JSON without a request"},
		{"nothing but handlers' errors", Config{Logs: []string{logIn(t, "error.log", `{"logger":"http.log.error","request":{}}`)}}, "(line 1 is a message of Caddy about a request, and not of its access log"},
		{"other messages before what cannot be read", Config{Logs: []string{logIn(t, "mixed.log", `{"msg":"hello"}`+"\nrubbish\n")}}, "(line 2 is none of the formats"},
		{"other messages on standard input", Config{Logs: []string{"-"}, Input: strings.NewReader("\n" + `{"msg":"hello"}` + "\n")}, "-: has not a single line of an access log that could be read (line 2 is JSON without a request"},
		{"nothing at all", Config{Logs: []string{logIn(t, "empty.log", "")}}, "empty.log: has not a single line"},
		{"no standard input", Config{Logs: []string{"-"}}, "there is no standard input"},
		{"rubbish on standard input", Config{Logs: []string{"-"}, Input: strings.NewReader("hello\n")}, "-: has not a single line of an access log that could be read (line 1 is none of the formats"},
		{"what begins as gzip and is none", Config{Logs: []string{logIn(t, "a.log", "\x1f\x8bnot")}}, "is no gzip, though it begins as one"},
		{"zstd", Config{Logs: []string{logIn(t, "a.zst", "\x28\xb5\x2f\xfd....")}}, "is compressed by zstd"},
		{"buckets, and what cannot be read again", Config{Logs: []string{"-"}, Input: strings.NewReader(""), Suggest: true, Rules: filesOf(t, rulesOf("{name: a, limit: 1/1s, algorithm: token_bucket}"))}, "standard input can be read once"},
		{"a share that is none", Config{Logs: []string{good}, Suggest: true, Share: 1}, "must be a share"},
		{"descriptors alone", Config{Logs: []string{good}, Rules: filesOf(t, "domain: a\ndescriptors:\n  - {key: k, rate_limit: {unit: day, requests_per_unit: 1}}\n")}, "descriptors are left out"},
		{"no log", Config{}, "no access log is named"},
	} {
		if test.c.Rules == nil {
			test.c.Rules = filesOf(t, rules)
		}
		if _, err := Run(context.Background(), test.c); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
	r, verdicts := run(t, Config{Rules: filesOf(t, rules+"domain: a\ndescriptors:\n  - {key: k, rate_limit: {unit: day, requests_per_unit: 1}}\n"), Logs: []string{"-"}, Input: strings.NewReader(linesOf(each("x", 0, 0.5)...))})
	if verdicts != "AR" || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], `domain "a": descriptors are left out`) {
		t.Errorf("%s, %q", verdicts, r.Warnings)
	}
}

// packedLog returns a gzip file of that many times four requests.
func packedLog(t *testing.T, times int) []byte {
	t.Helper()
	packed, err := os.ReadFile(logIn(t, "a.gz", strings.Repeat(linesOf(each("x", 0, 1, 2, 3)...), times)))
	must.Succeed(t, err)
	return packed
}

func TestALogThatIsCutOffIsReplayedAsFarAsItGoes(t *testing.T) {
	underrace.OneGoroutine(t)
	packed := packedLog(t, 20000)
	cut := filepath.Join(t.TempDir(), "cut.log.gz")
	must.Succeed(t, os.WriteFile(cut, packed[:len(packed)-20], 0o600))
	r, _ := run(t, Config{Rules: filesOf(t, rulesOf("{name: a, limit: 1/1s}")), Logs: []string{cut, logIn(t, "empty.log", "")}})
	if r.Requests < 10000 || !strings.Contains(strings.Join(r.Warnings, "\n"), "cut.log.gz: could be read only in part: unexpected EOF") || !strings.Contains(strings.Join(r.Warnings, "\n"), "empty.log: is empty") {
		t.Errorf("%d requests, %q", r.Requests, r.Warnings)
	}
}

func TestALogOfDockerComposeIsReplayed(t *testing.T) {
	text := "Attaching to caddy-1, redis-1\n"
	for _, h := range each("x", 0, 0.5, 2) {
		text += "\x1b[36mcaddy-1  | \x1b[0m" + h.line() + "\x1b[33mredis-1  | \x1b[0m1:M 21 Nov 2026 19:48:38.001 * Ready to accept connections\n"
	}
	text += "caddy-1  | \n"
	r, verdicts := run(t, Config{Rules: filesOf(t, rulesOf("{name: a, limit: 1/1s, algorithm: sliding_window_log}")), Logs: []string{logIn(t, "a.log", text)}})
	if verdicts != "ARA" || r.Unreadable != 4 || r.Other != 1 {
		t.Errorf("%s, %d lines unreadable, %d others", verdicts, r.Unreadable, r.Other)
	}
}

func TestAReplayCanBeStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	name := writeTraffic(t, "a.log", "caddy", 5000, 10)
	_, err := Run(ctx, Config{Rules: filesOf(t, threeRules), Logs: []string{name}, OnDecided: func(Decided) { cancel() }})
	if err != context.Canceled {
		t.Errorf("%v, want that it was canceled", err)
	}
}
