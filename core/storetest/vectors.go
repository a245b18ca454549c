package storetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/tools/must"
)

// VectorDir returns the directory of the vectors: testdata/vectors of the module, or of the nearest directory above the working
// directory that has it. Both `go test` and the interpreter's test command work in the directory of the package.
func VectorDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		vectors := filepath.Join(dir, "testdata", "vectors")
		if info, err := os.Stat(vectors); err == nil && info.IsDir() {
			return vectors, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", fmt.Errorf("testdata/vectors: not found in the working directory or above it")
		}
		dir = above
	}
}

// testVectors plays every file of testdata/vectors. The README.md there describes the format.
func testVectors(t *testing.T, newStore NewStore) {
	dir, err := VectorDir()
	must.Succeed(t, err)
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no vectors (%v)", dir, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		name := filepath.Base(file)
		var v *vector
		for i, line := range strings.Split(string(text), "\n") {
			line, _, _ = strings.Cut(line, "#")
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			place := name + ":" + strconv.Itoa(i+1)
			if words[0] == "vector" {
				v.play(t, newStore)
				v = &vector{title: strings.Join(words[1:], " ")}
				continue
			}
			if v == nil {
				t.Fatalf("%s: %q comes before the first vector", place, line)
			}
			v.lines = append(v.lines, vectorLine{place, words})
		}
		v.play(t, newStore)
	}
}

// vector is a history of one rule.
type vector struct {
	title string
	lines []vectorLine
}

type vectorLine struct {
	place string // file:line
	words []string
}

// play runs a vector as a subtest. A nil vector stands before the first one.
func (v *vector) play(t *testing.T, newStore NewStore) {
	if v == nil {
		return
	}
	t.Run(v.title, func(t *testing.T) {
		p := &player{scene: newScene(t, newStore)}
		asked := 0
		for i := range v.lines {
			line := v.lines[i]
			var err error
			switch line.words[0] {
			case "base":
				err = p.setBase(line.words[1:])
			case "limit":
				err = p.setLimit(line.words[1:])
			default:
				asked++
				err = p.ask(line.words)
			}
			if err != nil {
				t.Fatalf("%s: %s\n\t%v", line.place, strings.Join(line.words, " "), err)
			}
		}
		if asked == 0 {
			t.Fatal("the vector asks nothing")
		}
	})
}

// player is the state of a vector that is being played.
type player struct {
	scene        *scene
	base         int64
	hasBase      bool
	rule         *core.Rule
	reservations map[string][]core.Reservation // by the names of requests
}

func (p *player) setBase(words []string) error {
	base, err := time.Parse(time.RFC3339, strings.Join(words, " "))
	if err != nil {
		return err
	}
	p.base = base.UnixMicro()
	p.hasBase = true
	return nil
}

// setLimit opens the vector's rule. A second limit in a vector is a reload: the earlier rule is released.
func (p *player) setLimit(said []string) error {
	if len(said) < 2 {
		return fmt.Errorf("want limit <requests>/<period> <algorithm>")
	}
	if len(said) > 3 && said[1] == "on" { // 5/month on 17
		said = append([]string{strings.Join(said[:3], " ")}, said[3:]...)
	}
	var c rate.LimitConfig
	rule := core.RuleConfig{Name: "vector"}
	err := readLimit(said, &c, &rule)
	if err != nil {
		return err
	}
	for i := 2; i < len(said); i++ {
		word, value, second := said[i], "", ""
		if i+1 < len(said) {
			value = said[i+1]
		}
		if i+2 < len(said) {
			second = said[i+2]
		}
		switch {
		case word == "count_rejected":
			rule.CountRejected = true
			continue
		case word == "soft":
			rule.OverflowPolicy.SoftPercent, err = strconv.ParseInt(value, 10, 64)
			if err == nil {
				rule.OverflowPolicy.SoftFor, err = rate.ParsePeriod(second)
			}
			i++
		case word == "penalty":
			err = readPenalties(value, &rule.OverflowPolicy)
		case word == "count":
			rule.OverflowPolicy.Count, err = core.ParseCounted([]string{value})
		case word == "on_limit" && value == "delay":
			c.Delays = true
		case word == "candidate":
			var candidate rate.LimitConfig
			if err = readLimit([]string{value, second}, &candidate, nil); err == nil {
				rule.Candidate, err = rate.NewLimit(candidate)
			}
			i++
		case word == "refill" && value == "interval":
			c.Interval = true
		case word == "burst":
			c.Burst, err = words.ParseCount(value, rate.MaxRequests)
		case word == "segments":
			c.Segments, err = words.ParseCount(value, rate.MostSegments)
		case word == "window_start":
			c.Start = rate.FirstRequest
			if value == rate.Spread.String() {
				c.Start = rate.Spread
			}
		case word == "max_delay":
			c.MaxDelay, err = rate.ParsePeriod(value)
		case word == "time_zone":
			c.Location, err = time.LoadLocation(value)
		default:
			err = fmt.Errorf("want burst, segments, window_start, refill interval, max_delay, time_zone, count_rejected, soft, penalty, count, on_limit delay or candidate, not %q", word)
		}
		if err != nil {
			return err
		}
		i++
	}
	if rule.Limit == nil {
		if rule.Limit, err = rate.NewLimit(c); err != nil {
			return err
		}
	}
	before := p.rule
	p.rule = p.scene.open(rule)
	if before != nil {
		core.NewLimiter(p.scene.store).Release(before)
	}
	return nil
}

// readLimit reads <requests>/<period> <algorithm> into c, or the whole limit of <requests> concurrency into rule.
func readLimit(said []string, c *rate.LimitConfig, rule *core.RuleConfig) error {
	if said[1] == "concurrency" && rule != nil {
		n, err := words.ParseCount(said[0], rate.MaxRequests)
		if err == nil {
			rule.Limit, err = rate.NewConcurrency(n)
		}
		return err
	}
	err := rate.ParseLimit(said[0], c)
	if err == nil {
		c.Algorithm, err = rate.ParseAlgorithm(said[1])
	}
	return err
}

// readPenalties reads durations, separated by commas.
func readPenalties(text string, c *core.OverflowPolicy) error {
	for _, span := range strings.Split(text, ",") {
		d, err := rate.ParsePeriod(span)
		if err != nil {
			return err
		}
		c.Penalties = append(c.Penalties, d)
	}
	return nil
}

// request takes or peeks, and returns the decisions of the rule and of its candidate, if it has one. It keeps the request's
// reservations under a name.
func (p *player) request(key string, cost int64, peek bool, name string) (d, candidate rate.Decision) {
	p.scene.t.Helper()
	checks := []core.Check{{Rule: p.rule, Key: key, Cost: cost}}
	for _, beside := range p.rule.Linked() {
		checks = append(checks, core.Check{Rule: beside, Key: key, Cost: cost})
	}
	p.scene.decide(checks, peek)
	if name != "" {
		if p.reservations == nil {
			p.reservations = make(map[string][]core.Reservation)
		}
		p.reservations[name] = core.AppendReservations(p.reservations[name], checks)
	}
	last := len(checks) - 1
	return checks[0].Decision, checks[last].Decision
}

// end plays <time> <name> kept|given back, and <time> <key> blocked <duration>|credited <units>|unblocked|reset. It returns false for a request.
func (p *player) end(words []string) (bool, error) {
	if len(words) < 3 {
		return false, nil
	}
	said := strings.Join(words[2:], " ")
	name := words[1]
	if said == "kept" || said == "given back" {
		reservations := p.reservations[name]
		if len(reservations) == 0 {
			return true, fmt.Errorf("no request named %q has a reservation; write as %s behind one", name, name)
		}
		p.scene.settle(reservations, said == "kept")
		delete(p.reservations, name)
		return true, nil
	}
	if said == "reset" {
		p.scene.reset(p.rule, name)
		return true, nil
	}
	if said == "unblocked" {
		p.scene.block(p.rule, name, 0)
		return true, nil
	}
	if strings.HasPrefix(said, "credited ") {
		units, err := strconv.ParseInt(words[len(words)-1], 10, 64)
		if err == nil {
			err = core.NewLimiter(p.scene.store).Credit(p.rule, name, units)
		}
		return true, err
	}
	if strings.HasPrefix(said, "blocked ") {
		span, err := parseOffset(words[len(words)-1])
		if err == nil {
			p.scene.block(p.rule, name, span)
		}
		return true, err
	}
	return false, nil
}

// ask plays <time> <key> [<n>x] take|peek <cost> yes|no [<field> <value>]…
func (p *player) ask(words []string) error {
	if p.rule == nil || !p.hasBase {
		return fmt.Errorf("want a base and a limit before it")
	}
	at, err := parseOffset(words[0])
	if err != nil {
		return err
	}
	p.scene.clock.Set(p.base + at)
	ended, err := p.end(words)
	if ended || err != nil {
		return err
	}
	times := 1
	if len(words) > 2 && strings.HasSuffix(words[2], "x") {
		if times, err = strconv.Atoi(strings.TrimSuffix(words[2], "x")); err != nil {
			return err
		}
		words = append([]string{words[0], words[1]}, words[3:]...)
	}
	if len(words) < 5 || len(words)%2 != 1 || words[2] != "take" && words[2] != "peek" || words[4] != "yes" && words[4] != "no" {
		return fmt.Errorf("want <time> <key> [<n>x] take|peek <cost> yes|no [<field> <value>]…")
	}
	cost, err := strconv.ParseInt(words[3], 10, 64)
	if err != nil {
		return err
	}
	want := words[4] == "yes"
	fields := make(map[string]string)
	for i := 5; i < len(words); i += 2 {
		fields[words[i]] = words[i+1]
	}
	var d, candidate rate.Decision
	for i := 0; i < times; i++ {
		d, candidate = p.request(words[1], cost, words[2] == "peek", fields["as"])
		if d.Allowed != want {
			return fmt.Errorf("time %d of %d: got %+v", i+1, times, d)
		}
	}
	if want && d.RetryAfter != 0 || !want && d.Delay != 0 {
		return fmt.Errorf("got %+v; retry is for a no, and delay for a yes", d)
	}
	if fields["candidate"] != "" && (len(p.rule.Linked()) == 0 || candidate.Allowed != (fields["candidate"] == "yes")) {
		return fmt.Errorf("got %+v of the candidate", candidate)
	}
	if soft := fields["soft"] == "yes"; d.Soft != soft {
		return fmt.Errorf("soft is %t; want %t", d.Soft, soft)
	}
	if fields["delay"] == "" && d.Delay != 0 {
		return fmt.Errorf("delay is %d; want none", d.Delay)
	}
	return hasNumbers(&d, fields)
}

// hasNumbers returns an error if a number of a decision differs from that in the vector.
func hasNumbers(d *rate.Decision, fields map[string]string) error {
	numbers := map[string]int64{
		"limit": d.Limit, "remaining": d.Remaining, "retry": d.RetryAfter, "reset": d.ResetAfter, "more": d.MoreAfter, "delay": d.Delay,
	}
	for field, value := range fields {
		if field == "as" || field == "soft" || field == "candidate" {
			continue
		}
		got, known := numbers[field]
		if !known {
			return fmt.Errorf("want limit, remaining, retry, reset, more, delay, soft, candidate or as, not %q", field)
		}
		expected := rate.Never
		var err error
		if field == "remaining" || field == "limit" {
			expected, err = strconv.ParseInt(value, 10, 64)
		} else if value != "never" {
			expected, err = parseOffset(value)
		}
		if err != nil {
			return err
		}
		if got != expected {
			return fmt.Errorf("%s is %d; want %d (all: %+v)", field, got, expected, *d)
		}
	}
	return nil
}

// parseOffset reads a time of day ("1:00:05", "2:00:59.999999", also above 24 hours) or a duration ("90s", "-5m"). It returns
// microseconds.
func parseOffset(s string) (int64, error) {
	parts := strings.Split(s, ":")
	if len(parts) == 3 {
		s = parts[0] + "h" + parts[1] + "m" + parts[2] + "s"
	}
	d, err := time.ParseDuration(s)
	return int64(d / time.Microsecond), err
}
