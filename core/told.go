package core

import (
	"net/http"
	"strconv"
)

// Told is what clients are told of a rule whose requests go by Express, made ready. Made by NewTold, safe for concurrent use.
type Told struct {
	rule          *Rule
	fields        Fields
	limit, policy []string // the fields' values
	state         string   // how the member of RateLimit begins
}

// NewTold returns what clients are told of a rule, in those fields.
func NewTold(r *Rule, f Fields) *Told {
	return &Told{rule: r, fields: f, limit: []string{r.limitText}, policy: []string{r.policyText}, state: r.stateText}
}

// Tell sets the fields for a request that the rule has allowed at once, as WriteHeaders does: remaining and reset are what
// Take has returned. Values that are the same for many responses are shared between them: nobody may change one in place.
func Tell(told *Told, h http.Header, remaining, reset int64) {
	reset = (reset + 999_999) / 1_000_000
	if len(h) != 0 || remaining >= tabled || reset >= tabled {
		tellAny(told, h, remaining, reset)
		return
	}
	if told.fields.XRateLimit {
		h[headerLimit] = told.limit
		h[headerRemaining] = decimalValues[remaining]
		h[headerReset] = decimalValues[reset]
	}
	if told.fields.IETF {
		h[headerRateLimit] = []string{told.state + decimals[remaining] + resetTexts[reset]}
		h[headerPolicy] = told.policy
	}
}

// tellAny is Tell for large numbers, and for a response that has fields already, which may be an earlier handler's.
func tellAny(told *Told, h http.Header, remaining, reset int64) {
	var left, seconds string
	if len(h) != 0 {
		tellAfter(told, h, remaining, reset)
		return
	}
	left = strconv.FormatInt(remaining, 10)
	seconds = strconv.FormatInt(reset, 10)
	if told.fields.XRateLimit {
		h[headerLimit] = told.limit
		h[headerRemaining] = []string{left}
		h[headerReset] = []string{seconds}
	}
	if told.fields.IETF {
		h[headerRateLimit] = []string{told.state + left + ";t=" + seconds}
		h[headerPolicy] = told.policy
	}
}

func tellAfter(told *Told, h http.Header, remaining, reset int64) {
	checks := []Check{{Rule: told.rule}}
	checks[0].Decision = Decision{Allowed: true, Limit: told.rule.limit.quota, Remaining: remaining, ResetAfter: reset * 1_000_000}
	v := Verdict{}
	WriteHeaders(h, told.fields, checks, &v)
}

// tabled is how many of the numbers that most quotas are made of stand ready as texts.
const tabled = 1024

// Variables are set in their order here, and not in that of their needs: the interpreter knows no other.
var (
	decimals      = makeDecimals()
	decimalValues = makeDecimalValues()
	resetTexts    = makeResetTexts()
)

func makeDecimals() []string {
	list := make([]string, tabled)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return list
}

// makeDecimalValues returns the decimals as values of fields. There is no room behind them, so that an append copies.
func makeDecimalValues() [][]string {
	list := make([][]string, tabled)
	for i := range list {
		list[i] = decimals[i : i+1 : i+1]
	}
	return list
}

func makeResetTexts() []string {
	list := make([]string, tabled)
	for i := range list {
		list[i] = ";t=" + decimals[i]
	}
	return list
}
