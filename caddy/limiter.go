package ratelimit

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/redis"
	"go.uber.org/zap"
)

// limiter is a core.Limiter, with what operators see of its store.
type limiter struct {
	*core.Limiter
	store   string       // "memory", "redis", or the name of another module
	redis   *redis.Store // nil: another store
	seconds prometheus.Observer
	trouble *troubleLog // nil: the store does not fail
}

// newLimiter returns a limiter over a store of that name.
func newLimiter(store core.Store, name string) *limiter {
	return &limiter{Limiter: core.NewLimiter(store), store: name, seconds: decisionSeconds.WithLabelValues(name)}
}

// failed notes that the store has failed.
func (l *limiter) failed(err error) {
	if err != nil && l.trouble != nil {
		l.trouble.failed(err)
	}
}

// troubleLog writes to the log when the calls of a store begin to fail, and when they have not for a while: two lines, however many
// there are. Of what the server refuses, such as for want of a right, each rule and reason has a line of its own, since others may decide.
type troubleLog struct {
	server string
	logger func() *zap.Logger
	after  func(time.Duration, func()) *time.Timer

	mu       sync.Mutex
	failing  bool // and that is looked at
	reported bool // of a failure that is no refusal
	again    bool // since that was last looked at
	failures int64
	refusals map[string]bool // the texts that have been written since it began
}

// mostRefusals is how many texts of refusals are written while there is trouble.
const mostRefusals = 100

// quietFor is how long no call must have failed for the trouble to be over.
const quietFor = 10 * time.Second

func newTroubleLog(server string) *troubleLog {
	return &troubleLog{server: server, logger: redisLog, after: time.AfterFunc}
}

// failed notes a failure. Of a server that is known to be down, and not asked, its breaker has told.
func (t *troubleLog) failed(err error) {
	if errors.Is(err, redis.ErrUnavailable) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures++
	t.again = true
	if errors.Is(err, redis.ErrRefused) {
		text := err.Error()
		if t.refusals[text] || len(t.refusals) == mostRefusals {
			return
		}
		if t.refusals == nil {
			t.refusals = make(map[string]bool)
		}
		t.refusals[text] = true
	} else if t.reported {
		return
	} else {
		t.reported = true
	}
	if !t.failing {
		t.failing = true
		t.after(quietFor, t.look)
	}
	t.logger().Error("Redis fails to decide; such requests go by their zones' on_error", zap.String("server", t.server), zap.Error(err))
}

// look finds out whether the trouble is over.
func (t *troubleLog) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.again {
		t.again = false
		t.after(quietFor, t.look)
		return
	}
	t.logger().Info("Redis has not failed to decide for a while", zap.String("server", t.server), zap.Int64("failures", t.failures))
	t.failing = false
	t.reported = false
	t.failures = 0
	t.refusals = nil
}
