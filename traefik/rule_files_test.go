package traefik

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// oneRule is a file with one rule.
func oneRule(name, limit string) string {
	return fmt.Sprintf(`{"rules": [{"name": %q, "limit": %q}]}`, name, limit)
}

// filed is a stage with a file of rules, and a middleware that has them.
type filed struct {
	*stage
	path string
	h    http.Handler
}

func newFiled(t *testing.T, text string, c *Config) *filed {
	t.Helper()
	f := &filed{stage: newStage(t), path: t.TempDir() + "/rules.json"}
	writeFile(t, f.path, text)
	c.RulesFile = []string{f.path}
	f.h = f.handler(context.Background(), c, "m@file")
	return f
}

// edit writes the file, and lets pass until it has been looked at.
func (f *filed) edit(text string) {
	f.t.Helper()
	writeFile(f.t, f.path, text)
	f.step(standardInterval + 1200*time.Millisecond) // a file that has become much shorter is waited for
}

func TestRulesOfAFileLimit(t *testing.T) {
	f := newFiled(t, `{"rules": [
		{"name": "all", "limit": "3/1h"},
		{"name": "posts", "match": {"methods": ["POST"]}, "limit": "1/1h", "key": ["host"]}
	]}`, &Config{})
	must.Equal(t, statuses(f.h, "192.0.2.1", 4), "200 200 200 429", "all")
	post := func(r *http.Request) { r.Method = "POST" }
	must.Equal(t, admitted(f.h, "192.0.2.2", 3, post), 1, "POSTs were admitted")
	must.Equal(t, get(f.h, "192.0.2.3", nil).Header.Get("Ratelimit-Policy"), `"all";q=3;w=3600`, "the policy")
}

func TestRulesOfFilesAreDecidedTogetherWithTheConfigurations(t *testing.T) {
	for _, c := range []*Config{
		{Rules: []Rule{{Name: "own", Limit: "2/1h"}}},
		{Rule: Rule{Name: "own", Limit: "2/1h"}},
		{Average: "2", Period: "1h", Rule: Rule{Name: "own", Burst: "2"}},
	} {
		f := newFiled(t, oneRule("of-file", "3/1h"), c)
		must.Equal(t, statuses(f.h, "192.0.2.1", 3), "200 200 429", "%+v", *c)
		if got := get(f.h, "192.0.2.1", nil).Header.Get("Ratelimit"); !strings.HasPrefix(got, `"own";r=0;`) || !strings.Contains(got, `"of-file";r=1`) {
			t.Errorf("%+v: RateLimit %s", *c, got)
		}
	}
}

func TestARuleOfAFileMustHaveAnotherNameThanTheConfigurations(t *testing.T) {
	s := newStage(t)
	path := writeFile(t, t.TempDir()+"/rules.json", "{\"rules\": [\n  {\"name\": \"twice\", \"limit\": \"1/1h\"}]}")
	got := s.refused(&Config{Rules: []Rule{{Name: "twice", Limit: "1/1h"}}, RulesFile: []string{path}}, "m@file")
	if want := `middleware "m@file": rulesFile: ` + path + `:2:3: rule "twice": duplicate name, also among the middleware's own rules; rename one`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A rule that nodes keep together is refused with its place, if there is no Redis.
func TestARuleOfAFileThatNeedsRedisIsRefusedWithItsPlace(t *testing.T) {
	s := newStage(t)
	path := writeFile(t, t.TempDir()+"/rules.json", "{\"rules\": [\n  {\"name\": \"a\", \"limit\": \"1/1h\"},\n  {\"name\": \"b\", \"limit\": \"1/1h\", \"consistency\": \"lease\"}]}")
	got := s.refused(&Config{RulesFile: []string{path}}, "m@file")
	if want := "rulesFile: " + path + `:3:3: rule "b": consistency lease: `; !strings.Contains(got, want) {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestSeveralFilesAndGlobs(t *testing.T) {
	folder := t.TempDir()
	writeFile(t, folder+"/a.json", oneRule("a", "1/1h"))
	writeFile(t, folder+"/b.json", oneRule("b", "2/1h"))
	other := writeFile(t, t.TempDir()+"/c.json", oneRule("c", "3/1h"))
	s := newStage(t)
	h := s.handler(context.Background(), &Config{RulesFile: []string{folder + "/*.json", " " + other}}, "m@file")
	must.Equal(t, get(h, "192.0.2.1", nil).Header.Get("Ratelimit-Policy"), `"a";q=1;w=3600, "b";q=2;w=3600, "c";q=3;w=3600`, "the policy")
	writeFile(t, folder+"/d.json", oneRule("d", "9/1h"))
	must.Succeed(t, os.Remove(folder+"/b.json"))
	s.step(2 * standardInterval)
	must.Equal(t, get(h, "192.0.2.1", nil).Header.Get("Ratelimit-Policy"), `"a";q=1;w=3600, "d";q=9;w=3600, "c";q=3;w=3600`, "after one file came and one went")
	got := s.refused(&Config{RulesFile: []string{folder + "/a.json", writeFile(t, folder+"/e.json", oneRule("a", "1/1h"))}}, "n@file")
	must.Contain(t, got, `rule "a": duplicate name, also in `+folder+`/a.json`)
}

func TestYAMLIsRefusedWithAWayOut(t *testing.T) {
	s := newStage(t)
	path := writeFile(t, t.TempDir()+"/limits.yaml", "rules:\n  - {name: a, limit: 1/1h}\n")
	got := s.refused(&Config{RulesFile: []string{path}}, "m@file")
	json := strings.TrimSuffix(path, "yaml") + "json"
	want := `middleware "m@file": rulesFile: ` + path + `: is YAML, and the interpreter that Traefik runs plugins with can read JSON only; convert it: yq -o=json . ` + path + ` > ` + json + ` (JSON is YAML, so Caddy reads that file too)`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAllThatIsWrongInFilesIsSaid(t *testing.T) {
	s := newStage(t)
	var list []string
	for i := 0; i < 12; i++ {
		list = append(list, fmt.Sprintf(`{"name": "r%d", "limit": "x"}`, i))
	}
	path := writeFile(t, t.TempDir()+"/rules.json", "{\"rules\": [\n"+strings.Join(list, ",\n")+"\n]}")
	got := s.refused(&Config{RulesFile: []string{path}}, "m@file")
	if n := strings.Count(got, path); n != 10 || !strings.HasSuffix(got, "; and 2 more") {
		t.Errorf("%d problems in %s", n, got)
	}
}

func TestAnEditIsInForceAndKeepsWhatWasCounted(t *testing.T) {
	f := newFiled(t, oneRule("a", "3/1h"), &Config{})
	if got := statuses(f.h, "192.0.2.1", 2); got != "200 200" {
		t.Fatal(got)
	}
	f.step(5 * standardInterval) // nothing changes
	f.edit(oneRule("a", "5/1h"))
	must.Equal(t, statuses(f.h, "192.0.2.1", 4), "200 200 200 429", "5 after 2 of 3")
	f.edit(oneRule("a", "6/1h"))
	must.Equal(t, statuses(f.h, "192.0.2.1", 2), "200 429", "6 after 5")
	f.step(2 * lingering) // the rules of before are released
	must.Equal(t, statuses(f.h, "192.0.2.1", 1), "429", "long after")
	f.edit(oneRule("a", "9/2h")) // another period gives nobody more
	must.Equal(t, statuses(f.h, "192.0.2.1", 2), "429 429", "of another period")
	if f.log.count("m@file") > 0 {
		t.Errorf("the log: %s", f.log)
	}
}

func TestABrokenEditChangesNothingAndIsSaidOnce(t *testing.T) {
	f := newFiled(t, oneRule("a", "3/1h"), &Config{})
	statuses(f.h, "192.0.2.1", 2)
	for i, broken := range []struct{ text, says string }{
		{"{\"rules\": [\n  {\"name\": \"a\", \"limit\": \"3/0s\"}\n]}", `:2:26: rule "a": limit "3/0s": the period must be from 1ms to 366d`},
		{"{\"rules\": [\n  {\"name\": \"a\", \"limit\": \"3/1h\"},\n]}", `:3:1: is no JSON: invalid character ']' looking for beginning of value`},
		{"{\"rules\": [\n  {\"name\": \"a\", \"limits\": \"3/1h\"}\n]}", `:2:17: "limits" is not a field of a rule (did you mean limit?)`},
		{"", `:1:1: is no JSON: unexpected end of JSON input`},
		{"{}", `:1:1: has neither rules nor a domain; write rules: and a list of them`},
	} {
		f.edit(broken.text)
		f.step(10 * standardInterval)
		if got := f.log.count("middleware m@file: the rule files have changed and are refused; the previous rules stay in force:"); got != i+1 {
			t.Fatalf("said %d times, want %d: %s", got, i+1, f.log)
		}
		must.Equal(t, f.log.count("weir: middleware m@file: "+f.path+broken.says+"\n"), 1, "%s: said times: %s", broken.says, f.log)
	}
	must.Equal(t, statuses(f.h, "192.0.2.1", 2), "200 429", "the last good rules")
	f.edit(oneRule("a", "4/1h"))
	must.Equal(t, f.log.count("the rule files have changed, and the new rules are in force"), 1, "that it is right again is said times: %s", f.log)
	must.Equal(t, statuses(f.h, "192.0.2.1", 2), "200 429", "when it is right again")
	f.edit("x")
	f.edit(oneRule("a", "4/1h"))
	must.Equal(t, f.log.count("the rule files are again those that are in force"), 1, "that it is as before is said times: %s", f.log)
}

func TestAFileThatVanishesKeepsTheLastGoodRules(t *testing.T) {
	f := newFiled(t, oneRule("a", "3/1h"), &Config{})
	statuses(f.h, "192.0.2.1", 2)
	must.Succeed(t, os.Remove(f.path))
	f.step(5 * standardInterval)
	must.Equal(t, f.log.count("weir: middleware m@file: "+f.path+": no such file or directory\n"), 1, "said times: %s", f.log)
	must.Equal(t, statuses(f.h, "192.0.2.1", 2), "200 429", "the last good rules")
	f.edit(oneRule("a", "4/1h"))
	must.Equal(t, statuses(f.h, "192.0.2.1", 2), "200 429", "when it is back, with another limit")
}

func TestFilesAreLookedAtAsOftenAsIsSaid(t *testing.T) {
	f := newFiled(t, oneRule("a", "1/1h"), &Config{RulesInterval: "5m"})
	writeFile(t, f.path, oneRule("a", "2/1h"))
	f.step(5*time.Minute - time.Second)
	must.Equal(t, statuses(f.h, "192.0.2.1", 2), "200 429", "before the time")
	f.step(2 * time.Second)
	must.Equal(t, statuses(f.h, "192.0.2.1", 2), "200 429", "then")
	if n := f.pending(); n > 3 {
		t.Errorf("%d timers", n)
	}
}

func TestAnEngineThatEndsNoLongerLooksAtItsFiles(t *testing.T) {
	s := newStage(t)
	path := writeFile(t, t.TempDir()+"/rules.json", oneRule("a", "3/1h"))
	c := &Config{RulesFile: []string{path}}
	h, ctx, cancel := generationOf(s, c, "m@file", 2)
	statuses(h[0], "192.0.2.1", 2)
	writeFile(t, path, oneRule("a", "4/1h"))
	s.step(standardInterval + time.Second)
	s.end(ctx, cancel)
	// The same configuration again: the engine goes on, with what it has read.
	h, ctx, cancel = generationOf(s, c, "m@file", 2)
	must.Equal(t, len(s.engines), 1, "%d engines", len(s.engines))
	must.Equal(t, statuses(h[1], "192.0.2.1", 3), "200 200 429", "after a reload")
	writeFile(t, path, oneRule("a", "5/1h"))
	s.step(2 * lingering)
	must.Equal(t, statuses(h[1], "192.0.2.1", 2), "200 429", "after a reload and an edit")
	writeFile(t, path, oneRule("a", "6/1h"))
	s.step(standardInterval + 50*time.Millisecond) // it has been seen, and is not yet in force
	s.end(ctx, cancel)
	s.step(lingering + sweepInterval)
	if len(s.engines)+len(s.leaving)+s.pending() != 0 || s.memory != nil {
		t.Errorf("kept: %d engines, %d sets of rules, %d timers", len(s.engines), len(s.leaving), s.pending())
	}
}

// A configuration that comes back within the minute finds its engine, which has not looked at its files since.
func TestAConfigurationThatComesBackDoesNotBringOldRules(t *testing.T) {
	s := newStage(t)
	path := writeFile(t, t.TempDir()+"/rules.json", oneRule("a", "100/1h"))
	a := &Config{RulesFile: []string{path}, RulesInterval: "1h"}
	_, ctx, cancel := generationOf(s, a, "m@file", 1)
	s.step(5 * time.Second)
	s.end(ctx, cancel)
	writeFile(t, path, oneRule("a", "2/1h"))
	_, ctx, cancel = generationOf(s, &Config{RulesFile: []string{path}, RulesInterval: "1h", Message: "Slowly."}, "m@file", 1)
	s.step(5 * time.Second)
	s.end(ctx, cancel)
	h, _, cancel := generationOf(s, a, "m@file", 1)
	defer cancel()
	s.step(4 * time.Second)
	must.Equal(t, statuses(h[0], "192.0.2.1", 3), "200 200 429", "two an hour")
}

func TestAMiddlewareThatChangesWhileItsFileIsBrokenKeepsTheLastGoodRules(t *testing.T) {
	s := newStage(t)
	path := writeFile(t, t.TempDir()+"/rules.json", oneRule("a", "3/1h"))
	h, ctx, cancel := generationOf(s, &Config{RulesFile: []string{path}}, "m@file", 1)
	statuses(h[0], "192.0.2.1", 2)
	for i := 0; i < 9; i++ { // newer ones, of other middlewares
		_, _, end := generationOf(s, &Config{Rules: []Rule{{Name: "b", Limit: "1/1h"}}}, "n"+strconv.Itoa(i)+"@file", 1)
		defer end()
	}
	writeFile(t, path, "{")
	s.end(ctx, cancel)
	h, _, cancel = generationOf(s, &Config{RulesFile: []string{path}, Message: "Slowly."}, "m@file", 1)
	defer cancel()
	must.Equal(t, statuses(h[0], "192.0.2.1", 2), "200 429", "with a broken file")
	s.step(standardInterval + time.Second)
	must.Equal(t, s.log.count(path+":1:1: is no JSON"), 1, "said times: %s", s.log)
	writeFile(t, path, oneRule("a", "4/1h"))
	s.step(2 * standardInterval)
	must.Equal(t, statuses(h[0], "192.0.2.1", 2), "200 429", "when it is right again")
	must.Contain(t, s.refused(&Config{RulesFile: []string{writeFile(t, t.TempDir()+"/other.json", "{")}}, "m@file"), "is no JSON", "other files")
}

func TestAThousandEditsLeaveNothingBehind(t *testing.T) {
	edits := 1000
	if interpreted {
		edits = 60
	}
	f := newFiled(t, oneRule("a", "1000000/1h"), &Config{RulesInterval: "1s"})
	statuses(f.h, "192.0.2.1", 5)
	var goroutines, good int
	var heap int64
	for i := -3; i < edits; i++ {
		if i == 0 { // the first edits make what stays for all
			goroutines = runtime.NumGoroutine()
			heap = heapInUse()
		}
		text := oneRule("a", strconv.Itoa(1_000_000+i)+"/1h")
		if i%3 == 2 || i == -1 {
			text = oneRule("a", strconv.Itoa(i)+"/never")
		} else {
			good = i
		}
		writeFile(t, f.path, text)
		f.step(1200 * time.Millisecond)
		if n := len(f.timers); n > 3 {
			t.Fatalf("%d timers after %d edits", n, i+1)
		}
		if n := len(f.leaving); n > 70 {
			t.Fatalf("%d sets of rules are kept after %d edits", n, i+1)
		}
	}
	must.Equal(t, get(f.h, "192.0.2.1", nil).Header.Get("X-Ratelimit-Remaining"), strconv.Itoa(1_000_000+good-6), "are left after 6 of %d", 1_000_000+good)
	f.step(2 * lingering)
	until(t, func() bool { return runtime.NumGoroutine() <= goroutines+2 }) // the last are about to end
	if grown := heapInUse() - heap; grown > 2<<20 {
		t.Errorf("%d KiB more of heap after %d edits", grown>>10, edits)
	}
	must.Equal(t, len(f.leaving), 0, "%d sets of rules are kept", len(f.leaving))
}

func TestEditsUnderLoadLoseNoCount(t *testing.T) {
	const limit = 600
	file := func(other int) string {
		return fmt.Sprintf(`{"rules": [{"name": "a", "limit": "%d/1h", "algorithm": "fixed_window"}, {"name": "other", "limit": "%d/1h"}]}`, limit, 10_000+other)
	}
	f := newFiled(t, file(0), &Config{RulesInterval: "1s"})
	passed := make(chan int, 4)
	for i := 0; i < 4; i++ {
		go countAdmitted(f.h, limit, passed)
	}
	for i := 1; i <= 20; i++ {
		writeFile(t, f.path, file(i))
		f.step(1200 * time.Millisecond)
	}
	total := 0
	for i := 0; i < 4; i++ {
		n := <-passed
		total += n
	}
	if total != limit {
		t.Errorf("%d were admitted of a limit of %d", total, limit)
	}
}

func countAdmitted(h http.Handler, n int, passed chan int) {
	passed <- admitted(h, "192.0.2.1", n, nil)
}

func TestAShadowInAFileIsReported(t *testing.T) {
	file := func(limit string) string {
		return fmt.Sprintf(`{"rules": [{"name": "a", "limit": %q, "enforcement": "shadow"}], "domain": "d", "descriptors": [
			{"key": "path", "shadow_mode": true, "rate_limit": {"unit": "hour", "requests_per_unit": 1}}]}`, limit)
	}
	c := &Config{Descriptors: []interface{}{object{"entries": []interface{}{object{"key": "path", "source": "path"}}}}}
	f := newFiled(t, file("1/1h"), c)
	must.Equal(t, statuses(f.h, "192.0.2.1", 3), "200 200 200")
	f.edit(file("2/1h")) // counts are not lost
	must.Equal(t, statuses(f.h, "192.0.2.1", 2), "200 200")
	f.step(time.Minute)
	for _, want := range []string{`rule "a", a shadow, would have rejected 3 requests`, `rule "d.path", a shadow, would have rejected 4 requests`} {
		must.Equal(t, f.log.count(want), 1, "the log lacks %s: %s", want, f.log)
	}
}

func TestAPanicWhileFilesAreReadIsSaidOnceAndTheyAreLookedAtAgain(t *testing.T) {
	f := newFiled(t, oneRule("a", "3/1h"), &Config{})
	e := f.newest("m@file")
	names := e.limiter
	e.limiter = nil // so that opening a rule panics
	f.edit(oneRule("a", "4/1h"))
	f.step(5 * standardInterval)
	must.Equal(t, f.log.count("a panic, which is a defect"), 1, "said times: %s", f.log)
	e.limiter = names
	f.edit(oneRule("a", "5/1h"))
	must.Equal(t, admitted(f.h, "192.0.2.1", 9, nil), 5, "were admitted after the next edit")
}

func TestWhatIsNotMeantInFilesIsWarnedOfOnce(t *testing.T) {
	file := func(limit string) string {
		return fmt.Sprintf(`{"rules": [{"name": "a", "limit": %q, "tiers": {"source": "header:X-Plan", "limits": {"pro": "9/1h"}}}], "domain": "d", "descriptors": []}`, limit)
	}
	f := newFiled(t, file("1/1h"), &Config{})
	f.edit(file("2/1h"))
	f.edit("\n" + file("2/1h"))
	must.Equal(t, f.log.count(`rule "a": tiers: the header X-Plan is what the client sends`), 1, "the tiers: times: %s", f.log)
	must.Equal(t, f.log.count("the rule files have a domain with descriptors, and nothing says how a request becomes a descriptor"), 1, "the domain: times: %s", f.log)
}
