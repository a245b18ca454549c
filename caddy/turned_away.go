package ratelimit

import (
	"errors"
	"net/http"
	"time"
)

// dispatch is a deferred request that is being done. It is in the request's context, where no client can put it.
type dispatch struct {
	wait time.Duration // not 0: a handler behind has turned it away for so long
}

type dispatchKey struct{}

// dispatchOf returns the dispatch of a request; nil: a client has sent it.
func dispatchOf(r *http.Request) *dispatch {
	d, _ := r.Context().Value(dispatchKey{}).(*dispatch)
	return d
}

// turnAway has a deferred request wait for so many microseconds longer, rather than end with an answer of this program's. It reports whether it
// is one.
func (d *dispatch) turnAway(wait int64) bool {
	if d == nil {
		return false
	}
	if wait <= 0 { // rate.Never
		wait = time.Minute.Microseconds()
	}
	d.wait = time.Duration(wait) * time.Microsecond
	return true
}

// errTurnedAway ends a request that was turned away.
var errTurnedAway = errors.New("the deferred request has to wait")
