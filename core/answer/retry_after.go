package answer

import (
	"net/http"

	"github.com/proxyweir/weir/core/memory"
)

// RetrySeconds returns the Retry-After of a wait in microseconds: whole seconds, rounded up, at least 1.
func RetrySeconds(micros int64) int64 {
	if micros <= 1_000_000 {
		return 1
	}
	return seconds(micros)
}

// SetRetryAfter sets Retry-After for a wait in microseconds. Rejections get theirs by WriteHeaders, and by Refuse in the memory's fast
// paths.
func SetRetryAfter(h http.Header, micros int64) {
	h[memory.HeaderRetryAfter] = []string{decimal(RetrySeconds(micros))}
}
