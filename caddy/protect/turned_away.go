package protect

import (
	"errors"
	"net/http"
	"time"
)

// Dispatch is a deferred request that is being done. It is in the request's context, where no client can put it.
type Dispatch struct {
	Wait time.Duration // not 0: a handler behind has turned it away for so long
}

type DispatchKey struct{}

// DispatchOf returns the dispatch of a request; nil: a client has sent it.
func DispatchOf(r *http.Request) *Dispatch {
	d, _ := r.Context().Value(DispatchKey{}).(*Dispatch)
	return d
}

// TurnAway has a deferred request wait for so many microseconds longer, rather than end with an answer of this program's. It reports whether it
// is one.
func (d *Dispatch) TurnAway(wait int64) bool {
	if d == nil {
		return false
	}
	if wait <= 0 { // rate.Never
		wait = time.Minute.Microseconds()
	}
	d.Wait = time.Duration(wait) * time.Microsecond
	return true
}

// ErrTurnedAway ends a request that was turned away.
var ErrTurnedAway = errors.New("the deferred request has to wait")
