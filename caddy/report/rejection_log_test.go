package report

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// newRejectionLog returns a log whose intervals end only by rotate, and its output.
func newRejectionLog() (*rejectionLog, *observer.ObservedLogs) {
	core, lines := observer.New(zapcore.InfoLevel)
	l := new(rejectionLog)
	l.begin(Config{Logger: zap.New(core)}, "z")
	l.after = func(time.Duration, func()) *time.Timer { return time.NewTimer(time.Hour) }
	return l, lines
}

// others returns how many rejections the sums report.
func others(lines *observer.ObservedLogs) (n int64) {
	for _, line := range lines.All() {
		n += line.ContextMap()["rejections_not_logged"].(int64)
	}
	return n
}

// Defect found: a request under way when its configuration ended was counted, and never reported.
func TestRejectionsAfterTheEndOfALogAreWritten(t *testing.T) {
	l, lines := newRejectionLog()
	for i := range 5 {
		if got, want := l.admit("a"), i == 0; got != want {
			t.Errorf("rejection %d: %t, want %t", i, got, want)
		}
	}
	l.end()
	for range 3 {
		if !l.admit("a") {
			t.Error("a rejection after the end is not to be logged")
		}
	}
	if n := others(lines); n != 4 {
		t.Errorf("%d others are reported, want 4", n)
	}
}

// Defect found: if rule files changed in the middle of an interval, the sum claimed to cover all of it.
func TestTheLastSumOfALogHasTheTimeThatItIsOf(t *testing.T) {
	l, lines := newRejectionLog()
	now := time.Now()
	l.now = func() time.Time { return now }
	l.admit("a")
	l.admit("a")
	now = now.Add(7 * time.Second)
	l.end()
	if got := lines.All()[0].ContextMap()["interval"]; got != 7*time.Second {
		t.Errorf("interval %v, want 7s", got)
	}
}

// Whether requests come before or after the end of the log, each rejection is logged or in a sum.
func TestNoRejectionIsLostWhereALogEndsInAFlood(t *testing.T) {
	const clients, each = 8, 500
	l, lines := newRejectionLog()
	written := make([]int64, clients)
	var flood sync.WaitGroup
	for c := range clients {
		flood.Go(func() {
			for i := range each {
				if l.admit(fmt.Sprint(i % 60)) {
					written[c]++
				}
				if c == 0 && i%100 == 99 {
					l.rotate(time.Minute)
				}
				if c == 1 && i == each/2 {
					l.end()
				}
			}
		})
	}
	flood.Wait()
	sum := others(lines)
	for _, n := range written {
		sum += n
	}
	if sum != clients*each {
		t.Errorf("%d rejections are reported, want %d", sum, clients*each)
	}
}
