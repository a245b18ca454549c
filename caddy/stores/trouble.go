package stores

import (
	"errors"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/redis"
)

// troubleLog logs when a store begins to fail, and when it has not failed for a while: two lines, however many calls fail. Refusals
// by the server, such as for a missing permission, get one line for each rule and reason, since the server may accept calls for
// other rules.
type troubleLog struct {
	server string
	logger func() *zap.Logger
	after  func(time.Duration, func()) *time.Timer

	mu       sync.Mutex
	failing  bool // a failure was logged, and look waits for its end
	reported bool // a failure that is no refusal was logged
	again    bool // a call has failed since the last look
	failures int64
	refusals map[string]bool // the refusals that were logged since the trouble began
}

// mostRefusals is how many refusals are logged during one trouble.
const mostRefusals = 100

// quietFor is how long no call may fail before the trouble is over.
const quietFor = 10 * time.Second

func newTroubleLog(server string) *troubleLog {
	return &troubleLog{server: server, logger: redisLog, after: time.AfterFunc}
}

// failed logs a failure. It ignores a server that is known to be down: the breaker has logged that.
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

// look checks whether the trouble is over.
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

// redisLog returns the logger in force for stores in Redis.
func redisLog() *zap.Logger { return caddy.Log().Named("http.rate_limit.stores.redis") }
