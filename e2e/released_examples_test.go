package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// difference is one from the release that is meant: in which observations, in which lines of either side, and why.
type difference struct {
	in    string
	lines *regexp.Regexp
	why   string
}

var deliberate = []difference{
	{"metrics", regexp.MustCompile(`^# HELP weir_decision_duration_seconds `), "one text for both proxies, which says how Traefik measures"},
	{"metrics", regexp.MustCompile(`^# HELP weir_limit `), "one text for both proxies"},
	{"metrics", regexp.MustCompile(`^weir_requests_total\{outcome="(?:[^ar]\w*|[a-z]+_\w+)".* 0$`), "rare outcomes stand from the start"},
	{"_shadow", regexp.MustCompile(`^weir_requests_total\{outcome="rejected".* 0$`), "rare outcomes stand from the start"},
	{"metrics", regexp.MustCompile(`^(# (HELP|TYPE) weir_waiting .*|weir_waiting\{.* 0)$`), "it stands from the start, as in Traefik"},
	{"metrics", regexp.MustCompile(`^# HELP weir_storage_keys `), "memory no longer holds keys that only others were asked for"},
	{"rate-limit rules", regexp.MustCompile(`^:8080 .* not (path /|\[)`), "what is excluded is said in words"},
	{"zone_consistency_eventual in Redis: keys", regexp.MustCompile(`^\w+ "weir:\{`), "what nodes tell each other has another form"},
}

// Everything that can be seen of the release's examples, of its ordinary sites, and of its golden files that load is what the release shows of them. They
// run as they are written, and those that name no store of their own in Redis, too.
func TestThisBuildShowsOfEachExampleWhatTheReleaseShows(t *testing.T) {
	t.Parallel()
	programs := releasedAndOurs(t)
	fastCGI := ordinaryService(t, true)
	c := &comparison{t: t, sides: [2]*side{newSide(t, programs["released"], fastCGI), newSide(t, programs["ours"], fastCGI)}}
	examples := c.sides[0].examples()
	names := slices.Sorted(maps.Keys(examples))

	together := make(map[string]map[string]any) // configurations with the servers of all that differ only in their servers
	for _, name := range names {
		var adapted struct{ Result map[string]any }
		text := c.same(name+": adapted", func(s *side) string { return s.adapt(examples[name]) })
		if err := json.Unmarshal([]byte(text), &adapted); err != nil || adapted.Result == nil {
			t.Fatal(name, text)
		}
		http := within(adapted.Result, "apps", "http")
		servers := within(http, "servers")
		delete(http, "servers")
		rest, _ := json.Marshal(adapted.Result)
		if together[string(rest)] == nil {
			together[string(rest)] = adapted.Result
		}
		for server, config := range servers {
			within(together[string(rest)], "apps", "http", "servers")[name+" "+server] = config
		}
	}
	for _, config := range together {
		text, _ := json.Marshal(config)
		c.same("caddy rate-limit rules", func(s *side) string {
			s.write("config.json", string(text))
			return s.run("rules", "--config", "config.json")
		})
	}
	c.same("caddy rate-limit check", func(s *side) string { return s.run("check", "examples/rules/*.yaml") })
	c.same("caddy rate-limit check, of a duplicate", func(s *side) string { return s.run("check", "examples/rules/*.yaml", "testdata/rules/*.yaml") })

	var admitted, rejected int
	for database, name := range names {
		text := small(examples[name])
		for _, inRedis := range []bool{false, true} {
			what := name
			if inRedis {
				what += " in Redis"
			}
			if isInRedis, isInStorage := strings.Contains(text, " redis"), strings.Contains(text, "storage") || strings.Contains(text, "distributed"); isInRedis && !inRedis || isInStorage && inRedis {
				continue
			}
			if failure := c.same(what+": loaded", func(s *side) string { return s.load(text, name, inRedis, database) }); failure != "" {
				t.Fatal(what, failure)
			}
			c.becomeSame(what+": metrics from the start", (*side).metrics)
			answers := c.same(what+": answers", func(s *side) string { return s.answers(text) })
			c.becomeSame(what+": metrics", (*side).metrics)
			c.becomeSame(what+": /rate_limit/rules", (*side).rules)
			if inRedis {
				c.becomeSame(what+": keys", func(s *side) string { return s.keys(database, strings.Contains(text, "consistency lease")) })
			}
			admitted += strings.Count(answers, ": 200 ")
			rejected += strings.Count(answers, ": 429 ")
		}
	}
	c.becomeSame("log", (*side).messages)
	if len(examples) < 140 || admitted < 1500 || rejected < 1500 {
		t.Errorf("%d examples, %d requests admitted and %d rejected", len(examples), admitted, rejected)
	}
	for _, d := range deliberate {
		if !slices.Contains(c.found, d) {
			t.Errorf("%s does not differ in lines with %s: %s", d.in, d.lines, d.why)
		}
	}
}

// comparison compares what can be observed on two sides: the release and this build.
type comparison struct {
	t         testing.TB
	sides     [2]*side
	different []string
	failed    []string     // kinds of observations, which are not waited for again
	found     []difference // those of deliberate
}

// same makes an observation on both sides, which must be the same, and returns it.
func (c *comparison) same(what string, observe func(*side) string) string {
	c.t.Helper()
	return c.compare(what, 0, observe)
}

// becomeSame is same for what changes in the background, such as the metrics of deferred requests.
func (c *comparison) becomeSame(what string, observe func(*side) string) {
	c.t.Helper()
	c.compare(what, 10*time.Second, observe)
}

func (c *comparison) compare(what string, patience time.Duration, observe func(*side) string) string {
	c.t.Helper()
	kind := what[strings.LastIndex(what, ":")+1:]
	if slices.Contains(c.failed, kind) {
		patience = 0
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		var seen [2]string
		var both sync.WaitGroup
		for i, s := range c.sides {
			both.Go(func() { seen[i] = observe(s) })
		}
		both.Wait()
		released, ours := c.lines(what, seen[0]), c.lines(what, seen[1])
		if slices.Equal(released, ours) {
			return seen[0]
		}
		if time.Since(began) < patience {
			continue
		}
		if difference := unequal(released, ours); !slices.Contains(c.different, difference) {
			c.t.Errorf("%s: the release shows -, this build +:\n%s", what, difference)
			c.different = append(c.different, difference)
		}
		c.failed = append(c.failed, kind)
		if len(c.different) == 20 {
			c.t.Fatal("and so on")
		}
		return seen[0]
	}
}

// lines returns the lines of an observation without those that deliberately differ.
func (c *comparison) lines(what, text string) (list []string) {
	for line := range strings.Lines(text) {
		i := slices.IndexFunc(deliberate, func(d difference) bool {
			return strings.Contains(what, d.in) && d.lines.MatchString(strings.TrimSpace(line))
		})
		if i < 0 {
			list = append(list, line)
		} else {
			c.found = append(c.found, deliberate[i])
		}
	}
	return list
}

// unequal returns the first lines that are different, from a little before they are.
func unequal(released, ours []string) string {
	released, ours = append(released, "(the end)"), append(ours, "(the end)")
	i := 0
	for released[i] == ours[i] {
		i++
	}
	j := 0
	for j < min(len(released[i]), len(ours[i])) && released[i][j] == ours[i][j] {
		j++
	}
	j = max(0, j-100)
	return fmt.Sprintf("-%.300s\n+%.300s", strings.TrimSpace(released[i][j:]), strings.TrimSpace(ours[i][j:]))
}

// within returns an object within a configuration, which it makes if it is not there.
func within(c map[string]any, path ...string) map[string]any {
	for _, name := range path {
		inner, _ := c[name].(map[string]any)
		if inner == nil {
			inner = make(map[string]any)
			c[name] = inner
		}
		c = inner
	}
	return c
}
