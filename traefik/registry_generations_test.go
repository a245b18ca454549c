package traefik

import (
	"context"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// Traefik cancels the old context, makes the new handlers one after the other, and until the last is made the old ones serve.
func TestALongReloadLosesNothing(t *testing.T) {
	s := newStage(t)
	config := func(message string) *Config {
		return &Config{Rule: Rule{Limit: "5/24h"}, Message: message}
	}
	ctx, cancel := context.WithCancel(context.Background())
	one, two := s.handler(ctx, config("before"), "one@file"), s.handler(ctx, config("before"), "two@file")
	if got := statuses(one, "192.0.2.1", 4) + " " + statuses(two, "192.0.2.1", 4); got != "200 200 200 200 200 200 200 200" {
		t.Fatal(got)
	}
	s.end(ctx, cancel)
	next, cancel := context.WithCancel(context.Background())
	gen := s.begin(next) // a handler whose files take the interpreter long
	s.step(3 * lingering)
	s.registry.made(gen)
	must.Equal(t, statuses(one, "192.0.2.1", 2)+" "+statuses(two, "192.0.2.1", 1), "200 429 200", "the old handlers, three minutes into the reload")
	if _, is := middlewaresShown(s)["one@file"]; !is {
		t.Error("the metrics have forgotten a middleware whose handlers serve")
	}
	s.step(lingering - time.Millisecond) // another plugin's
	again := s.handler(next, config("after"), "two@file")
	s.step(lingering - time.Millisecond) // and another's
	first := s.handler(next, config("after"), "one@file")
	must.Equal(t, statuses(again, "192.0.2.1", 1)+" "+statuses(first, "192.0.2.1", 1), "429 429", "after five minutes of a reload, more than the limit was let through")
	s.step(lingering - time.Millisecond)
	must.Equal(t, len(s.engines), 4, "%d engines, and want four until a minute has passed since the last handler was made", len(s.engines))
	s.step(time.Millisecond)
	if len(s.engines) != 2 || len(s.leaving) != 0 {
		t.Errorf("a minute after the reload: %d engines, %d generations are leaving", len(s.engines), len(s.leaving))
	}
	s.end(next, cancel)
	s.step(lingering + sweepInterval)
	if len(s.engines)+len(s.generations)+len(s.leaving)+s.pending() != 0 || s.memory != nil {
		t.Errorf("kept: %d engines, %d generations, %d timers", len(s.engines), len(s.generations), s.pending())
	}
	must.Equal(t, len(s.indexes.middlewares)+len(s.indexes.guards)+len(s.indexes.rules)+len(s.indexes.files)+len(s.indexes.maxKeys), 0, "entries of the indexes are left: %+v", s.indexes)
}

// middlewaresShown returns the names of the middlewares whose metrics are shown.
func middlewaresShown(s *stage) map[string]bool {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	names := make(map[string]bool)
	for _, e := range s.shown() {
		names[e.name] = true
	}
	return names
}

// Each reload waits for its own successor only, so that a stream of reloads keeps no more than those of the last minute.
func TestReloadsWithoutPauseKeepOnlyTheLastMinutes(t *testing.T) {
	s := newStage(t)
	for i := 0; i < 100; i++ {
		ctx, cancel := context.WithCancel(context.Background())
		s.handler(ctx, &Config{Rule: Rule{Limit: "5/24h"}, Message: time.Duration(i).String()}, "m@file")
		s.step(10 * time.Second)
		s.end(ctx, cancel)
		if n := len(s.engines); n > 8 {
			t.Fatalf("%d engines after %d reloads", n, i+1)
		}
	}
}

func TestAnEngineOfAContextThatEndsWhileItIsMadeIsReleased(t *testing.T) {
	s := newStage(t)
	ctx, cancel := context.WithCancel(context.Background())
	gen := s.begin(ctx)
	s.end(ctx, cancel)
	if _, err := s.engineOf(gen, &Config{Rule: Rule{Limit: "5/24h"}, Namespace: "n", Guard: object{}}, "m@file"); err != nil {
		t.Fatal(err)
	}
	s.registry.made(gen)
	if len(s.engines) != 1 {
		t.Fatalf("%d engines", len(s.engines))
	}
	s.step(lingering + sweepInterval)
	if len(s.engines)+len(s.generations)+len(s.leaving)+s.pending() != 0 || len(s.guards) != 0 {
		t.Errorf("kept: %d engines, %d guards, %d timers", len(s.engines), len(s.guards), s.pending())
	}
}

// Where a configuration takes long to make, the handlers of the one before serve as long beside a rule whose algorithm has changed.
func TestATransitionLastsAsLongAsAReloadHasTaken(t *testing.T) {
	s := newStage(t)
	ctx, cancel := context.WithCancel(context.Background())
	h := s.handler(ctx, &Config{Rule: Rule{Limit: "3/1m", Algorithm: "fixed_window"}}, "m@file")
	s.step(80 * time.Second) // for the handlers of other middlewares
	s.handler(ctx, &Config{Rule: Rule{Limit: "3/1m"}}, "other@file")
	s.end(ctx, cancel)
	next, cancel := context.WithCancel(context.Background())
	defer cancel()
	young := s.handler(next, &Config{Rule: Rule{Limit: "3/1m", Algorithm: "token_bucket"}}, "m@file")
	s.step(75 * time.Second)
	if got := statuses(h, "192.0.2.1", 3); got != "200 200 200" {
		t.Fatal(got)
	}
	s.step(time.Second)
	must.Equal(t, statuses(young, "192.0.2.1", 1), "429", "a client that has used its limit with the old handler, a second later with the new one")
}

// What middlewares share is compared with what those made before them say, and not with all: there may be thousands.
func TestMiddlewaresOfOneNamespaceAreFoundByTheRule(t *testing.T) {
	s := newStage(t)
	ctx := context.Background()
	for i := 0; i < 40; i++ {
		s.handler(ctx, &Config{Rule: Rule{Name: "own" + time.Duration(i).String(), Limit: "2/1h"}, Namespace: "shop"}, "m"+time.Duration(i).String()+"@file")
	}
	s.handler(ctx, &Config{Rule: Rule{Name: "own0s", Limit: "3/1h"}, Namespace: "shop"}, "late@file")
	must.Equal(t, s.log.count(`middleware late@file: rule "own0s" of namespace "shop" is defined in another way by middleware m0s@file`), 1, "the log: %s", s.log)
	must.Equal(t, s.log.count("defined in another way"), 1, "the log: %s", s.log)
}
