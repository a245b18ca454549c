package ratelimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/proxyweir/weir/answer"
)

// unavailable answers a request that cannot be served now, but after a while.
func unavailable(w http.ResponseWriter, r *http.Request, after time.Duration, message string) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Retry-After", strconv.FormatInt(answer.RetrySeconds(after.Microseconds()), 10))
	if answer.IsGRPC(r) {
		answer.GRPC(w, answer.GRPCUnavailable, message)
		return
	}
	header.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(message + " Try again.\n")) // the client may be gone; there is nobody to tell
}
