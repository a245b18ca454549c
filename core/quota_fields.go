package core

import (
	"net/http"
	"strconv"
	"sync"
)

// QuotaFields is what clients are told of one rule, made ready: what Tell needs, and handlers that do as Tell does without calling it,
// which an interpreter is the slower for. Made by MakeQuotaFields, read only from then on, safe for concurrent use.
type QuotaFields struct {
	XRateLimit, IETF bool // which fields are set

	// Ready is what remaining, reset and more must be below for the lists of numbers to have them; 0 where not all fields are set, as most
	// want it: only Tell knows then which are.
	Ready int64

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

// MakeQuotaFields makes ready what clients are told of a rule, in those fields. Who answers them knows what is done after an earlier handler.
func MakeQuotaFields(r *Rule, xRateLimit, ietf bool, after func(h http.Header, remaining, reset, more int64)) *QuotaFields {
	tables.Do(makeTables)
	t := &QuotaFields{
		XRateLimit: xRateLimit,
		IETF:       ietf,
		Limit:      []string{r.LimitText},
		Policy:     []string{r.PolicyText},
		State:      r.StateText,
		Numbers:    numberTexts,
		Values:     numberValues,
		Ends:       numberEnds,
		After:      after,
	}
	if xRateLimit && ietf {
		t.Ready = tabled
	}
	return t
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
		numberEnds[i] = MoreText + numberTexts[i]
	}
	numberEnds[0] = ""
}
