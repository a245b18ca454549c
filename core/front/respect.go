package front

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// ServiceAsks is the text of the answer to a request that has waited in a queue, and whose key the service has had paused meanwhile.
const ServiceAsks = "The service has asked to wait."

// Respected returns those of a request's checks whose keys the service can have paused: see respect_upstream. They stay valid when the request's own are used again.
func Respected(checks []core.Check) []core.Check {
	var list []core.Check
	for i := range checks {
		if checks[i].Rule.Respects != 0 {
			list = append(list, core.Check{Rule: checks[i].Rule, Key: strings.Clone(checks[i].Key)})
		}
	}
	return list
}

// PausedFor returns for how much longer the service asks a request to wait that has waited in a queue of one of these rules, in microseconds; 0: it may go on, also if the store fails.
func PausedFor(l *core.Limiter, respected []core.Check) int64 {
	for i := range respected {
		if !respected[i].Rule.Waits() { // the store may not tell a block from a used-up quota
			continue
		}
		if wait, err := l.BlockedFor(respected[i].Rule, respected[i].Key); err == nil && wait > 0 {
			return wait
		}
	}
	return 0
}

// Pauses is told what a response has paused. wait is for how long the check's key is paused; 0: it is not, since the Retry-After says nothing of the kind. said is
// the Retry-After if that is not how long it is. The error is the store's.
type Pauses func(c *core.Check, wait time.Duration, said string, err error)

// Pause blocks keys for as long as the header of a response with a status asks for, but no longer than their rules have it, unless they are blocked for longer.
func Pause(l *core.Limiter, respected []core.Check, status int, h http.Header, now time.Time, told Pauses) {
	said := h.Get("Retry-After")
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable || said == "" {
		return
	}
	asked := retryAfterOf(said, now)
	for i := range respected {
		c := &respected[i]
		wait, other := asked, ""
		if most := time.Duration(c.Rule.Respects) * time.Microsecond; wait > most {
			wait, other = most, said
		}
		if wait == 0 {
			told(c, 0, said, nil)
			continue
		}
		if blocked, err := l.BlockedFor(c.Rule, c.Key); err != nil || blocked < wait.Microseconds() {
			told(c, wait, other, l.Block(c.Rule, c.Key, wait.Microseconds()))
		}
	}
}

// retryAfterOf returns how long a Retry-After says to wait, from a time on: up to 366 days; 0: it says nothing of the kind.
func retryAfterOf(text string, now time.Time) time.Duration {
	var wait time.Duration
	text = strings.TrimSpace(text)
	if date, err := http.ParseTime(text); err == nil {
		wait = date.Sub(now)
	} else if text != "" && strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > int64(rate.MaxPeriod/time.Second) { // it has too many digits
			seconds = int64(rate.MaxPeriod / time.Second)
		}
		wait = time.Duration(seconds) * time.Second
	}
	if wait > rate.MaxPeriod {
		return rate.MaxPeriod
	}
	if wait < 0 {
		return 0
	}
	return wait
}
