package ratelimit

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/redis"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// reportFailure writes to the log that the store of a request's rules has failed. It is sampled, as rejections are; a Redis
// that is known to be down has said so once, and is not worth a line a request.
func reportFailure(q *inquiry, failure error) {
	logFailure(q.reporters, "the store of rate limits has failed", failure)
}

// reportSettling writes to the log that what a request has reserved could not be ended in the store, where it is given back when its lease
// has run out.
func reportSettling(reporters []*reporter, failure error) {
	if failure != nil {
		logFailure(reporters, "the store of rate limits has failed at the end of a request", failure)
	}
}

func logFailure(reporters []*reporter, message string, failure error) {
	level := zapcore.ErrorLevel
	if errors.Is(failure, redis.ErrUnavailable) {
		level = zapcore.DebugLevel
	}
	for _, rule := range reporters {
		if rule.logger.Core().Enabled(level) && rule.failed.admit(time.Now()) {
			rule.logger.Log(level, message, zap.String("zone", rule.name), zap.Error(failure))
		}
	}
}

// unavailable answers a request that cannot be served now, but after a while.
func unavailable(w http.ResponseWriter, r *http.Request, after time.Duration, message string) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Retry-After", strconv.FormatInt(core.RetrySeconds(after.Microseconds()), 10))
	if core.IsGRPC(r) {
		answerGRPC(w, grpcUnavailable, message)
		return
	}
	header.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(message + " Try again.\n")) // the client may be gone; there is nobody to tell
}
