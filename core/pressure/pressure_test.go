package pressure

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// interpreted is false where the tests were compiled: see compiled_test.go.
var interpreted = true

func TestMistakesInASourceAreSaid(t *testing.T) {
	const address = `must be an address such as http://10.0.0.5:9100/health, with query that of a Prometheus, and have no password`
	for _, c := range []struct {
		url, field, query, high string
		interval                time.Duration
		want                    string
	}{
		{"", "", "", "", 0, `guard: pressure: url "": ` + address},
		{"10.0.0.5:9100", "", "", "", 0, `guard: pressure: url "10.0.0.5:9100": ` + address},
		{"ftp://a/", "", "", "", 0, `guard: pressure: url "ftp://a/": ` + address},
		{"http:///a", "", "", "", 0, `guard: pressure: url "http:///a": ` + address},
		{"http://a/#b", "", "", "", 0, `guard: pressure: url "http://a/#b": ` + address},
		{"http://me:secret@a/", "", "", "", 0, `guard: pressure: url "http://me:xxxxx@a/": ` + address},
		{"http://me:sec%zzret@a/", "", "", "", 0, `guard: pressure: url "xxxxx@a/": ` + address},
		{"http://a/?b", "", "up", "", 0, `guard: pressure: url "http://a/?b": ` + address},
		{"http://a/", "b", "up", "", 0, `guard: pressure: field "b": has no effect with query; write one of them`},
		{"http://a/", "", "", "-1", 0, `guard: pressure: high "-1": must be a number above 0, such as 0.9`},
		{"http://a/", "", "", "0", 0, `guard: pressure: high "0": must be a number above 0, such as 0.9`},
		{"http://a/", "", "", "NaN", 0, `guard: pressure: high "NaN": must be a number above 0, such as 0.9`},
		{"http://a/", "", "", "Inf", 0, `guard: pressure: high "Inf": must be a number above 0, such as 0.9`},
		{"http://a/", "", "", "much", 0, `guard: pressure: high "much": must be a number above 0, such as 0.9`},
		{"http://a/", "", "", "", time.Millisecond, `guard: pressure: interval 1ms: must be a duration from 100ms to 1m`},
		{"http://a/", "", "", "", time.Hour, `guard: pressure: interval 1h0m0s: must be a duration from 100ms to 1m`},
	} {
		_, err := NewSource(c.url, c.field, c.query, c.high, c.interval)
		if err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
	s := sourceOf(t, "https://a:1/b?c=d", "", "")
	if s.High != 0.9 || s.Interval != time.Second {
		t.Errorf("the defaults are %v and %v", s.High, s.Interval)
	}
}

// sourceOf returns a source with the defaults.
func sourceOf(t *testing.T, url, field, query string) Source {
	s, err := NewSource(url, field, query, "", 0)
	must.Succeed(t, err)
	return s
}

// clientOf returns the client of a Watch that is stopped.
func clientOf() *http.Client {
	w := Renew(nil, Config{
		Source: Source{URL: "http://127.0.0.1:1/", Interval: time.Minute}, Press: func(until int64) {}, Warn: func(string) {}, Inform: func(string) {},
		Now: func() int64 { return 0 }, Wait: func(ctx context.Context, d time.Duration) { <-ctx.Done() },
	})
	Renew(w, Config{})
	return w.client
}

// vector is what Prometheus answers, with such series.
func vector(series string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + series + `]}}`
}

func TestAnswersAreRead(t *testing.T) {
	const one = `{"metric":{"a":"b"},"value":[1700000000.1,"0.93"]}`
	for _, c := range []struct {
		source       Source
		status       int
		answer, want string
	}{
		{Source{}, 200, " 0.93\n", "0.93"},
		{Source{}, 200, "1e2", "100"},
		{Source{}, 200, "NaN", `invalid: "NaN" is no finite number`},
		{Source{}, 200, "-Inf", `invalid: "-Inf" is no finite number`},
		{Source{}, 200, "1e999", `invalid: "1e999" is no finite number`},
		{Source{}, 200, "", `invalid: "" is no finite number`},
		{Source{}, 200, strings.Repeat("x", 120), `invalid: "` + strings.Repeat("x", 100) + `" is no finite number`},
		{Source{}, 200, "1" + strings.Repeat(" ", 64<<10), `invalid: the answer has more than 65536 bytes`},
		{Source{}, 503, "0.5", `status: the answer has status 503, not 200: "0.5"`},
		{Source{}, 302, "0.5", `status: the answer has status 302, not 200: "0.5"`},
		{Source{Field: "load"}, 200, `{"load":0.93}`, "0.93"},
		{Source{Field: "measurements.1.value"}, 200, `{"measurements":[{"value":1},{"value":0.25}]}`, "0.25"},
		{Source{Field: "a.b"}, 200, `{"a":{"c":1}}`, `invalid: "{`},
		{Source{Field: "a.2"}, 200, `{"a":[1,2]}`, `invalid: "{`},
		{Source{Field: "a.-1"}, 200, `{"a":[1,2]}`, `invalid: "{`},
		{Source{Field: "a.b"}, 200, `{"a":5}`, `invalid: "{`},
		{Source{Field: "a"}, 200, `{"a":"0.5"}`, `invalid: "{\"a\":\"0.5\"}" has no number at field a`},
		{Source{Field: "a"}, 200, `{"a":null}`, `invalid: "{\"a\":null}" has no number at field a`},
		{Source{Field: "a"}, 200, `{"a":1e999}`, `invalid: "{\"a\":1e999}" is not JSON: `},
		{Source{Field: "a"}, 200, `busy`, `invalid: "busy" is not JSON: `},
		{Source{Query: "max(up)"}, 200, vector(one), "0.93"},
		{Source{Query: "max(up)"}, 200, `{"status":"success","data":{"resultType":"scalar","result":[1700000000,"1"]}}`, "1"},
		{Source{Query: "max(up)"}, 200, vector(""), "series: the query returns 0 series; one is wanted, such as that of max(…)"},
		{Source{Query: "max(up)"}, 200, vector(one + "," + one), "series: the query returns 2 series; one is wanted, such as that of max(…)"},
		{Source{Query: "max(up)"}, 200, vector(`{"metric":{},"value":[1700000000,"NaN"]}`), `invalid: "NaN" is no finite number`},
		{Source{Query: "max(up)"}, 200, vector(`{"metric":{},"value":[1700000000,"+Inf"]}`), `invalid: "+Inf" is no finite number`},
		{Source{Query: "max(up)"}, 200, vector(`{"metric":{}}`), `invalid: "false" is no finite number`},
		{Source{Query: "max(up)"}, 200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`, `invalid: the answer is not what Prometheus answers to a query of one value`},
		{Source{Query: "max(up)"}, 200, `{"status":"error","error":"too busy"}`, `invalid: the answer is not what`},
		{Source{Query: "max("}, 400, `{"status":"error","error":"unclosed"}`, `status: the answer has status 400, not 200: "{`},
		{Source{Query: "max(up)"}, 200, `null`, `invalid: the answer is not what`},
		{Source{Field: "a"}, 200, `null`, `invalid: "null" has no number at field a`},
		{Source{Query: "max(up)"}, 200, `0.93`, `invalid: the answer is not what`},
	} {
		asked := ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.Method + " " + r.URL.Path + " " + r.URL.Query().Get("query")
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.answer))
		}))
		path := "/"
		if c.source.Query != "" {
			path = "/api/v1/query"
		}
		source := sourceOf(t, server.URL+"/", c.source.Field, c.source.Query)
		source.Interval = MostInterval
		value, wrong := ask(context.Background(), clientOf(), source)
		got := fmt.Sprint(value)
		if wrong != nil {
			got = wrong.reason + ": " + wrong.text
		}
		if !strings.HasPrefix(got, c.want) || wrong == nil && got != c.want {
			t.Errorf("%+v: %d %q: %s, want %s", c.source, c.status, c.answer, got, c.want)
		}
		must.Equal(t, asked, "GET "+path+" "+source.Query, "what was asked")
		server.Close()
	}
}

func TestAnAnswerThatDoesNotComeIsNotWaitedFor(t *testing.T) {
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("0."))
		w.(http.Flusher).Flush() // the beginning of an answer is none
		<-over
	}))
	source := sourceOf(t, server.URL, "", "")
	source.Interval = LeastInterval
	_, wrong := ask(context.Background(), clientOf(), source)
	close(over)
	server.Close()
	if wrong == nil || wrong.reason != "unreachable" || wrong.text != "no answer within 100ms" {
		t.Errorf("%+v of a server that does not answer", wrong)
	}
	source.URL += "/?token=s3cret"
	_, wrong = ask(context.Background(), clientOf(), source)
	if wrong == nil || wrong.reason != "unreachable" || strings.Contains(wrong.text, "s3cret") {
		t.Errorf("%+v of a server that is gone", wrong)
	}
}

// clock is a Watch's, and stands still but for step. What the Watch says is kept.
type clock struct {
	t       *testing.T
	watch   *Watch
	waiting chan time.Duration // what it waits for
	steps   chan bool

	mu      sync.Mutex
	now     int64
	answer  string
	asked   int
	pressed []int64
	told    []string
}

// watching starts a Watch of a server that answers what the clock says.
func watching(t *testing.T) *clock {
	c := &clock{t: t, waiting: make(chan time.Duration), steps: make(chan bool), now: 5_000_000, answer: "0.5"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked++
		_, _ = w.Write([]byte(c.answer))
	}))
	source := sourceOf(t, server.URL, "", "")
	source.Interval = MostInterval
	c.watch = Renew(nil, Config{
		Source: source,
		Press: func(until int64) {
			c.mu.Lock()
			c.pressed = append(c.pressed, until)
			c.mu.Unlock()
		},
		Warn:   func(message string) { c.tell("warn " + strings.ReplaceAll(message, server.URL, "URL")) },
		Inform: func(message string) { c.tell("inform " + message) },
		Now: func() int64 {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.now
		},
		Wait: func(ctx context.Context, d time.Duration) {
			c.waiting <- d
			<-c.steps
		},
	})
	t.Cleanup(func() {
		Renew(c.watch, Config{})
		close(c.steps)
		server.Close()
	})
	<-c.waiting
	return c
}

func (c *clock) tell(message string) {
	c.mu.Lock()
	c.told = append(c.told, message)
	c.mu.Unlock()
}

// next has the server answer otherwise, and a minute pass until it has.
func (c *clock) next(answer string) Reading {
	c.mu.Lock()
	c.answer = answer
	c.now += 60_000_000
	now := c.now
	c.mu.Unlock()
	c.steps <- true
	<-c.waiting
	return Read(c.watch, now)
}

// last returns until when the guard was told last that the pressure is high, in minutes from now; 0: it is not.
func (c *clock) last() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if until := c.pressed[len(c.pressed)-1]; until > 0 {
		return (until - c.now) / 60_000_000
	}
	return 0
}

func TestAWatchTellsOfHighPressureAndForgetsIt(t *testing.T) {
	c := watching(t)
	if r := Read(c.watch, c.now); !r.Known || r.High || c.last() != 0 || fmt.Sprint(r.Value) != "0.5" {
		t.Errorf("%+v, told %d", r, c.last())
	}
	if r := c.next("0.9"); !r.Known || !r.High || c.last() != 3 {
		t.Errorf("%+v at the bound, told %d", r, c.last())
	}
	for i := int64(1); i < 3; i++ {
		if r := c.next("NaN"); !r.Known || !r.High || fmt.Sprint(r.Value) != "0.9" || c.last() != 3-i || fmt.Sprint(r.Failures) != fmt.Sprintf("[0 0 %d 0]", i) {
			t.Errorf("%+v, %d minutes old, told %d", r, i, c.last())
		}
	}
	if r := c.next("NaN"); r.Known || r.High || r.Value != 0 || c.last() != 0 {
		t.Errorf("%+v of a value that is too old, told %d", r, c.last())
	}
	if r := c.next("0.95"); !r.High || c.last() != 3 || r.Why != "" {
		t.Errorf("%+v, told %d", r, c.last())
	}
	if r := c.next("0.89"); !r.Known || r.High || c.last() != 0 {
		t.Errorf("%+v, told %d", r, c.last())
	}
	must.Equal(t, c.asked, 7, "questions")
}

func TestFailuresAreToldOnceForEachReasonAndAtMostOnceAMinute(t *testing.T) {
	c := watching(t)
	for _, answer := range []string{"0.1", "busy", "very busy", "NaN", "0.2", "0.95", "busy"} {
		c.next(answer)
	}
	const warned, still = "warn the pressure on the service cannot be read from URL, and ", `what was read has an effect for 3m0s at most: "busy" is no finite number`
	must.Equal(t, strings.Join(c.told, "\n"), warned+still+"\ninform the pressure on the service can be read again: 0.2\n"+warned+still)
	c.told = nil
	fail := func(after time.Duration, reason string) {
		c.mu.Lock()
		c.now += after.Microseconds()
		now := c.now
		c.mu.Unlock()
		var wrong *failure
		if reason != "" {
			wrong = failed(reason, "%s", reason)
		}
		note(c.watch, context.Background(), now, 0.3, wrong)
	}
	for i := 0; i < 20; i++ { // a source that answers every other question
		fail(time.Second, "")
		fail(time.Second, "status")
		fail(time.Second, "invalid")
	}
	must.Equal(t, strings.Join(c.told, "\n"), "inform the pressure on the service can be read again: 0.3\n"+
		warned+"what was read has an effect for 3m0s at most: invalid")
	fail(4*time.Minute, "status")
	must.Equal(t, c.told[2], warned+"has no effect: status", "told when a value is too old")
}

func TestAWatchThatIsStoppedSaysNothingMore(t *testing.T) {
	c := watching(t)
	c.next("1")
	Renew(c.watch, Config{})
	must.Equal(t, c.last(), 0, "told when it stops")
	pressed, told := len(c.pressed), len(c.told)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	note(c.watch, ctx, c.now, 1, nil)
	note(c.watch, ctx, c.now, 0, failed("status", "x"))
	must.Equal(t, len(c.pressed), pressed, "told of pressure after it")
	must.Equal(t, len(c.told), told, "logged after it")
}

func TestAWatchIsRenewedOnlyForAnotherSource(t *testing.T) {
	c := watching(t)
	config := c.watch.config
	must.Equal(t, Renew(c.watch, config) == c.watch, true, "the same source has the same watch")
	c.next("1")
	config.Source = Source{}
	must.Equal(t, Renew(c.watch, config) == nil, true, "no source has no watch")
	must.Equal(t, c.last(), 0, "told when it stops")
	must.Equal(t, Renew(nil, config) == nil, true, "no source after none")
}
