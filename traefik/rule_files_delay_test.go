package traefik

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// slowIn is a file whose rule "slow" lets one request in twenty minutes through, has two more wait, and covers /slow; more is what other
// rules it has.
func slowIn(more string) string {
	return `{"rules": [{"name": "slow", "match": {"paths": ["/slow"]}, "limit": "1/20m", "algorithm": "token_bucket", "on_limit": "delay", "max_delay": "1h", "max_waiting": 2, "max_waiting_per_key": 2}` + more + `]}`
}

// waitFor sends a request to /slow that is to wait, as the nth that does.
func (f *filed) waitFor(ctx context.Context, n int, answers chan int) {
	f.t.Helper()
	go ask(ctx, to("/slow", f.h), answers)
	f.untilWaiting(n)
}

// to sends all requests to a path.
func to(path string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = path
		h.ServeHTTP(w, r)
	})
}

// How many may wait is a bound across an edit: who waits for the rule of before still waits.
func TestAnEditLetsNoMoreThanMaxWaitingWait(t *testing.T) {
	f := newFiled(t, slowIn(""), &Config{})
	ctx, leave := context.WithCancel(context.Background())
	answers := make(chan int, 10)
	statuses(to("/slow", f.h), "192.0.2.1", 1)
	f.waitFor(ctx, 1, answers)
	f.waitFor(ctx, 2, answers)
	f.edit(slowIn(`, {"name": "other", "limit": "99/1h"}`))
	f.edit(slowIn(`, {"name": "other", "limit": "98/1h"}`))
	if got := statuses(to("/slow", f.h), "192.0.2.1", 1); got != "429" {
		t.Errorf("%s, though two wait", got)
	}
	leave()
	for i := 0; i < 2; i++ {
		must.Equal(t, <-answers, 499, "who has left is answered")
	}
	f.waitFor(context.Background(), 3, answers) // there is room again
	f.step(20 * time.Minute)
	must.Equal(t, <-answers, 200, "who waits when nobody else does is answered")
}

// A request that waits has its units reserved in each rule of the files, so that those that do not wait let nobody have them.
func TestRulesOfFilesSeeWhatRequestsThatWaitHaveReserved(t *testing.T) {
	f := newFiled(t, slowIn(`, {"name": "all", "limit": "2/1h", "algorithm": "fixed_window"}`), &Config{})
	ctx, leave := context.WithCancel(context.Background())
	answers := make(chan int, 10)
	statuses(to("/slow", f.h), "192.0.2.1", 1)
	f.waitFor(ctx, 1, answers)
	if got := statuses(f.h, "192.0.2.1", 1); got != "429" {
		t.Errorf("%s: one of two is used, and one reserved", got)
	}
	leave()
	<-answers
	if got := statuses(f.h, "192.0.2.1", 2); got != "200 429" {
		t.Errorf("%s: one of two is used", got)
	}
}

// The middleware's own rules are in use while a file changes, and do not see what is reserved unless a rule had requests wait from the
// beginning. So a file by which requests come to wait is refused, and taken when the middleware is made anew.
func TestAFileByWhichRequestsComeToWaitBesideTheConfigurationsRulesIsTakenWithTheConfiguration(t *testing.T) {
	f := &filed{stage: newStage(t), path: t.TempDir() + "/rules.json"}
	configured := func(limit string) *Config {
		return &Config{Rules: []Rule{{Name: "own", Limit: limit}}, RulesFile: []string{f.path}}
	}
	writeFile(t, f.path, oneRule("all", "3/1h"))
	h, before, end := generationOf(f.stage, configured("9/1h"), "m@file", 1)
	f.h = h[0]
	f.edit(slowIn(""))
	const why = "a rule with onLimit delay is new beside rules of the middleware's own; it takes effect when the middleware's configuration changes"
	must.Equal(t, f.log.count(why), 1, "it is not said once: %s", f.log)
	must.Equal(t, get(f.h, "192.0.2.1", nil).Header.Get("Ratelimit-Policy"), `"own";q=9;w=3600, "all";q=3;w=3600`, "in force")
	f.end(before, end)
	f.h = f.handler(context.Background(), configured("8/1h"), "m@file")
	statuses(to("/slow", f.h), "192.0.2.1", 1)
	ctx, leave := context.WithCancel(context.Background())
	answers := make(chan int, 10)
	f.waitFor(ctx, 1, answers)
	f.edit(slowIn(`, {"name": "all", "limit": "4/1h"}`)) // some have waited from the beginning
	must.Equal(t, f.log.count(why), 1, "%s", f.log)
	must.Equal(t, get(f.h, "192.0.2.3", nil).Header.Get("Ratelimit-Policy"), `"own";q=8;w=3600, "all";q=4;w=3600`, "in force")
	leave()
	<-answers

	// Without rules of its own a middleware takes it at once.
	f = newFiled(t, oneRule("all", "3/1h"), &Config{})
	f.edit(slowIn(""))
	statuses(to("/slow", f.h), "192.0.2.1", 1)
	ctx, leave = context.WithCancel(context.Background())
	f.waitFor(ctx, 1, answers)
	leave()
	if got := <-answers; got != 499 || f.log.count("refused") > 0 {
		t.Errorf("%d, %s", got, f.log)
	}
	f.step(time.Second)
}
