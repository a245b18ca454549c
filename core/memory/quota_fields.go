package memory

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/proxyweir/weir/core"
)

// The names of the quota fields, as http.Header has them.
const (
	HeaderLimit     = "X-Ratelimit-Limit"
	HeaderRemaining = "X-Ratelimit-Remaining"
	HeaderReset     = "X-Ratelimit-Reset"
	HeaderRateLimit = "Ratelimit"
	HeaderPolicy    = "Ratelimit-Policy"
)

// MoreText comes before the seconds until more is left, in a member of RateLimit.
const MoreText = ";t="

// QuotaFields holds the prepared values of one rule's quota fields: for SetQuotaFields, and for handlers that set the fields
// themselves, since a call costs an interpreter more. MakeQuotaFields makes it. It is read only afterwards, and safe for
// concurrent use.
type QuotaFields struct {
	XRateLimit, IETF bool // which fields are set

	// Ready is the bound below which remaining, reset and more are found in the lists of numbers. It is 0 if not all fields are
	// wanted, which is rare: SetQuotaFields then knows which.
	Ready int64

	Limit  []string // the value of X-RateLimit-Limit
	Policy []string // the value of RateLimit-Policy
	State  string   // the beginning of the member of RateLimit

	// The numbers from 0 that most quotas consist of: as texts, as values of fields, and as ends of RateLimit with seconds (empty
	// for 0). All three have the same length, a power of two, so that a|b is below it if both are.
	Numbers []string
	Values  [][]string
	Ends    []string

	// After does the work of SetQuotaFields if an earlier handler has set fields. That is rare, and joining lists is not the task
	// of core.
	After func(h http.Header, remaining, reset, more int64)
}

// MakeQuotaFields prepares the quota fields of a rule. xRateLimit and ietf say which fields are wanted. after is
// QuotaFields.After.
func MakeQuotaFields(r *core.Rule, xRateLimit, ietf bool, after func(h http.Header, remaining, reset, more int64)) *QuotaFields {
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

// SetQuotaFields sets the quota fields that are wanted, for a request that the rule has allowed at once. reset and more are the seconds until
// the quota is whole and until more is left, rounded up; a more of 0 is left out. Responses share values: nobody may change one in place.
func SetQuotaFields(t *QuotaFields, h http.Header, remaining, reset, more int64) {
	var left, end string
	if len(h) > 1 && EarlierFields(h) {
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
			end = MoreText + strconv.FormatInt(more, 10)
		}
		h[HeaderRateLimit] = []string{t.State + left + end}
		h[HeaderPolicy] = t.Policy
	}
}

// setLarge is SetQuotaFields, and does less if all fields are wanted, and only remaining is not in the lists of numbers.
func setLarge(t *QuotaFields, h http.Header, remaining, reset, more int64) {
	var left []string
	if len(h) > 1 || reset >= t.Ready {
		SetQuotaFields(t, h, remaining, reset, more)
		return
	}
	left = []string{strconv.FormatInt(remaining, 10)}
	h[HeaderLimit] = t.Limit
	h[HeaderRemaining] = left
	h[HeaderReset] = numberValues[reset]
	h[HeaderRateLimit] = []string{t.State + left[0] + numberEnds[more]}
	h[HeaderPolicy] = t.Policy
}

// EarlierFields reports whether an earlier handler has set quota fields that are taken into account.
func EarlierFields(h http.Header) bool {
	return h[HeaderRemaining] != nil || h[HeaderRateLimit] != nil || h[HeaderPolicy] != nil
}

// tabled is how many numbers are in the lists: enough for the seconds of two hours, and for as many units.
const tabled = 8192

var (
	tables       sync.Once
	numberTexts  []string
	numberValues [][]string
	numberEnds   []string
)

// makeTables makes the lists of numbers. Each value has a capacity of one, so that an append copies it.
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
