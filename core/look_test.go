package core

import (
	"errors"
	"testing"
	"time"
)

// broken is a store that has failed.
type broken struct{ *Memory }

var errBroken = errors.New("broken")

func (b *broken) Decide(checks []Check, peek bool) error { return errBroken }

func TestLookSaysThatTheStoreHasFailed(t *testing.T) {
	l := NewLimiter(&broken{NewMemory(MemoryConfig{})})
	l.FallBack(NewMemory(MemoryConfig{}), 1)
	r := mustRule(t, RuleConfig{Name: "r", Limit: mustLimit(t, LimitConfig{Requests: 5, Period: time.Minute})})
	if err := l.Open(r); err != nil {
		t.Fatal(err)
	}
	var v Verdict
	if err := l.Look([]Check{{Rule: r, Key: "k", Cost: 1}}, &v); !errors.Is(err, errBroken) {
		t.Errorf("%v", err)
	}
}
