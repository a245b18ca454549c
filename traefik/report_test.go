package traefik

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Defects found: what candidates would have decided was said at the level of errors, also where it was nothing; and after reloads once
// for each configuration that there had been.
func TestWhatShadowsAndCandidatesWouldHaveDoneIsSaidOnceForAllConfigurationsOfAMinute(t *testing.T) {
	s := newStage(t)
	config := func(n int) *Config {
		return &Config{Rules: []Rule{
			{Name: "alike", Limit: "100/1h", Candidate: object{"limit": "200/1h"}},
			{Name: "laxer", Limit: "2/1h", Candidate: object{"limit": fmt.Sprint(50+n, "/1h")}},
			{Name: "shadow", Limit: "1/1h", Enforcement: "shadow"},
		}}
	}
	const configurations = 4
	for n := 0; n < configurations; n++ {
		ctx, cancel := context.WithCancel(context.Background())
		h := s.handler(ctx, config(n), "m@file")
		statuses(h, "192.0.2.1", 3)
		if n < configurations-1 {
			s.end(ctx, cancel)
			s.step(2 * time.Second)
		} else {
			defer cancel()
		}
	}
	s.handler(context.Background(), config(0), "other@file")
	got := fmt.Sprint(s.takeReports())
	const want = `[{m@file rule "laxer", of 12 requests in the last minute: the candidate would have rejected 0 that the limit allowed, and allowed 10 that it rejected false} ` +
		`{m@file rule "shadow", a shadow, would have rejected 11 requests in the last minute true}]`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if again := s.takeReports(); len(again) != 0 {
		t.Errorf("said again: %v", again)
	}
}
