package core

import (
	"net/http"
	"strings"
	"sync/atomic"
)

// The names of the header fields of a rejection besides the quota fields, as http.Header has them.
const (
	HeaderCacheControl = "Cache-Control"
	HeaderRetryAfter   = "Retry-After"
	HeaderXRetryAfter  = "X-Ratelimit-Retry-After"
)

// Refusal says how a fast path rejects a request. It does so if the answer is text, if no earlier handler has set header fields, and
// if all seconds are in the lists of numbers. All other rejections are left to the rest. Responses share values: nobody may change one
// in place.
type Refusal struct {
	ContentType string

	// The body is Before, the seconds after which the request may come again, and After. For one second it is Text, and so it is for any
	// number if Before is "".
	Before, After, Text string

	Rejected *int64           // counts rejections; use functions of sync/atomic; nil: nobody counts
	Told     func(key string) // is called with the key of a rejection; nil: nobody wants to know
}

// settling has what the functions settle… need of a fast path.
type settling struct {
	memory      *Memory
	space       *space
	limit       *Limit
	quotaFields *QuotaFields
	rest        http.Handler
	watched     string // of the ServeConfig, as noticed
	noticed     *atomic.Bool

	leaves bool // it leaves all rejections to the rest

	// Of the Refusal.
	noStore, contentType []string
	stateText            string // the beginning of RateLimit, with what remains: nothing
	before, after, text  string
	counts               bool // rejected is set
	rejected             *int64
	tells                bool // told is set
	told                 func(key string)
}

// newSettling prepares what a fast path does with requests that it does not allow at once.
func newSettling(e *FastPath, c *ServeConfig) *settling {
	f := &settling{memory: e.memory, space: e.space, limit: e.limit, quotaFields: c.QuotaFields, rest: c.Rest, watched: c.Watched, noticed: c.Noticed, leaves: true}
	if c.Refusal == nil || e.countRejected {
		return f
	}
	tables.Do(makeTables)
	f.leaves = false
	f.noStore = []string{"no-store"}
	f.contentType = []string{c.Refusal.ContentType}
	f.stateText = c.QuotaFields.State + "0"
	f.before = c.Refusal.Before
	f.after = c.Refusal.After
	f.text = c.Refusal.Text
	f.counts = c.Refusal.Rejected != nil
	f.rejected = c.Refusal.Rejected
	f.tells = c.Refusal.Told != nil
	f.told = c.Refusal.Told
	return f
}

// insertFresh inserts a new key with an unused state, if that is all that there is to do, and returns its slot. Else it returns -1: if
// there would be more keys than there may be, or if the key may be the beginning of an IPv6 address.
func insertFresh(f *settling, s *shard, now int64, hash uint64, key string) int {
	m := f.memory
	if hash == 0 || key[0] == '[' || m.keys.Load() >= m.maxKeys.Load() || m.logTimes.Load() > logBudgetFloor {
		return -1
	}
	return insertKey(m, s, f.space, hash, now)
}

// takesText reports whether the body of a request's rejection is surely text: see answer.IsGRPC and answer.WantsProblem.
func takesText(r *http.Request) bool {
	if list := r.Header["Accept"]; len(list) > 0 && strings.Contains(strings.ToLower(strings.Join(list, ",")), "json") {
		return false
	}
	if r.ProtoMajor < 2 {
		return true
	}
	list := r.Header["Content-Type"]
	return len(list) == 0 || !strings.Contains(strings.ToLower(list[0]), "grpc")
}
