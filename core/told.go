package core

import (
	"net/http"
	"strconv"
	"sync"
)

// Told is what clients are told of one rule, made ready: what Tell needs, and handlers that do as Tell does without calling it,
// which an interpreter is the slower for. Made by NewTold, read only from then on, safe for concurrent use.
type Told struct {
	All    bool     // all fields are set, as most want it; if not, only Tell knows which
	Limit  []string // the value of X-RateLimit-Limit
	Policy []string // the value of RateLimit-Policy
	State  string   // how RateLimit begins

	// The numbers from 0 that most quotas are made of: as texts, as values of fields, and as the ends of RateLimit, for
	// seconds: none for 0. They are of one length, a power of two: a|b is below it where both are.
	Numbers []string
	Values  [][]string
	Ends    []string

	rule   *Rule
	fields Fields
}

// NewTold returns what clients are told of a rule, in those fields.
func NewTold(r *Rule, f Fields) *Told {
	tables.Do(makeTables)
	return &Told{
		All:     f.XRateLimit && f.IETF,
		Limit:   []string{r.limitText},
		Policy:  []string{r.policyText},
		State:   r.stateText,
		Numbers: numberTexts,
		Values:  numberValues,
		Ends:    numberEnds,
		rule:    r,
		fields:  f,
	}
}

// Tell sets the fields for a request that the rule has allowed at once, as WriteHeaders does. reset, until the quota is whole, and
// more, until there is more of it, are in seconds, rounded up; where more is 0 it is not said.
// Values that are the same for many responses are shared between them: nobody may change one in place.
func Tell(t *Told, h http.Header, remaining, reset, more int64) {
	var left string
	if len(h) > 1 && (h[HeaderRemaining] != nil || h[HeaderRateLimit] != nil || h[HeaderPolicy] != nil) {
		tellAfter(t, h, remaining, reset, more)
		return
	}
	left = strconv.FormatInt(remaining, 10)
	if t.fields.XRateLimit {
		h[HeaderLimit] = t.Limit
		h[HeaderRemaining] = []string{left}
		h[HeaderReset] = []string{strconv.FormatInt(reset, 10)}
	}
	if t.fields.IETF {
		if more > 0 {
			left += ";t=" + strconv.FormatInt(more, 10)
		}
		h[HeaderRateLimit] = []string{t.State + left}
		h[HeaderPolicy] = t.Policy
	}
}

// tellAfter is Tell where an earlier handler has set fields.
func tellAfter(t *Told, h http.Header, remaining, reset, more int64) {
	checks := []Check{{Rule: t.rule}}
	checks[0].Decision = Decision{Allowed: true, Limit: t.rule.limit.quota, Remaining: remaining, ResetAfter: reset * 1_000_000, MoreAfter: more * 1_000_000}
	v := Verdict{}
	WriteHeaders(h, t.fields, checks, &v)
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
