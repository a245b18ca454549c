package core

import (
	"net/http"
	"strconv"
	"sync"
)

// Told is what clients are told of one rule, made ready: what Tell needs, and handlers that do as Tell does without calling it,
// which an interpreter is the slower for. Made by MakeTold, read only from then on, safe for concurrent use.
type Told struct {
	XRateLimit, IETF bool // which fields are set

	All    bool     // all fields are set, as most want it; if not, only Tell knows which
	Limit  []string // the value of X-RateLimit-Limit
	Policy []string // the value of RateLimit-Policy
	State  string   // how RateLimit begins

	// The numbers from 0 that most quotas are made of: as texts, as values of fields, and as the ends of RateLimit, for
	// seconds: none for 0. They are of one length, a power of two: a|b is below it where both are.
	Numbers []string
	Values  [][]string
	Ends    []string

	// After does what Tell does where an earlier handler has set fields. That is rare, and how members are joined is not this package's.
	After func(h http.Header, remaining, reset, more int64)
}

// MakeTold makes ready what clients are told of a rule, in those fields. Who answers them knows what is done after an earlier handler.
func MakeTold(r *Rule, xRateLimit, ietf bool, after func(h http.Header, remaining, reset, more int64)) *Told {
	tables.Do(makeTables)
	return &Told{
		XRateLimit: xRateLimit,
		IETF:       ietf,
		All:        xRateLimit && ietf,
		Limit:      []string{r.LimitText},
		Policy:     []string{r.PolicyText},
		State:      r.StateText,
		Numbers:    numberTexts,
		Values:     numberValues,
		Ends:       numberEnds,
		After:      after,
	}
}

// The names of fields, as http.Header has them.
const (
	HeaderLimit     = "X-Ratelimit-Limit"
	HeaderRemaining = "X-Ratelimit-Remaining"
	HeaderReset     = "X-Ratelimit-Reset"
	HeaderRateLimit = "Ratelimit"
	HeaderPolicy    = "Ratelimit-Policy"
)

// Tell sets the fields for a request that the rule has allowed at once, in the fields that are wanted. reset, until the quota is whole, and
// more, until there is more of it, are in seconds, rounded up; where more is 0 it is not said.
// Values that are the same for many responses are shared between them: nobody may change one in place.
func Tell(t *Told, h http.Header, remaining, reset, more int64) {
	var left string
	if len(h) > 1 && (h[HeaderRemaining] != nil || h[HeaderRateLimit] != nil || h[HeaderPolicy] != nil) {
		t.After(h, remaining, reset, more)
		return
	}
	left = strconv.FormatInt(remaining, 10)
	if t.XRateLimit {
		h[HeaderLimit] = t.Limit
		h[HeaderRemaining] = []string{left}
		h[HeaderReset] = []string{strconv.FormatInt(reset, 10)}
	}
	if t.IETF {
		if more > 0 {
			left += ";t=" + strconv.FormatInt(more, 10)
		}
		h[HeaderRateLimit] = []string{t.State + left}
		h[HeaderPolicy] = t.Policy
	}
}

// tabled is how many numbers stand ready: the seconds of two hours, and as many units.
const tabled = 8192

var (
	tables       sync.Once
	numberTexts  []string
	numberValues [][]string
	numberEnds   []string
)

// makeTables makes the texts of the numbers. There is no room behind a value, so that an append copies.
func makeTables() {
	numberTexts = make([]string, tabled)
	numberValues = make([][]string, tabled)
	numberEnds = make([]string, tabled)
	for i := range numberTexts {
		numberTexts[i] = strconv.Itoa(i)
		numberValues[i] = numberTexts[i : i+1 : i+1]
		numberEnds[i] = ";t=" + numberTexts[i]
	}
	numberEnds[0] = ""
}
