package answer

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

var allFields = Fields{XRateLimit: true, IETF: true}

// written returns what WriteHeaders adds to those fields for the checks.
func written(h http.Header, f Fields, checks []core.Check) http.Header {
	var v core.Verdict
	_, _ = core.NewLimiter(nil).Conclude(checks[:0], checks, nil, &v)
	WriteHeaders(h, f, checks, &v)
	return h
}

// wantHeader compares all fields: those named with their values, and no others.
func wantHeader(t *testing.T, h http.Header, want map[string]string) {
	t.Helper()
	for name, value := range want {
		must.Equal(t, strings.Join(h.Values(name), " | "), value, "%s", name)
	}
	must.Equal(t, len(h), len(want), "the fields are %v, want %v", h, want)
}

func TestAllowedRequestsHaveQuotaFields(t *testing.T) {
	h := written(http.Header{}, allFields, []core.Check{decided(t, "a", 10, rate.Decision{Allowed: true, Remaining: 7, ResetAfter: 18_000_001, MoreAfter: 6_000_001})})
	wantHeader(t, h, map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "19",
		"RateLimit": `"a";r=7;t=7`, "RateLimit-Policy": `"a";q=10;w=60`,
	})
}

func TestRejectedRequestsHaveRetryAfter(t *testing.T) {
	h := written(http.Header{"Cache-Control": {"public"}}, allFields, []core.Check{
		decided(t, "a", 10, rate.Decision{RetryAfter: 2_000_001, ResetAfter: 60_000_000}),
		decided(t, "b", 20, rate.Decision{Allowed: true, Remaining: 5, ResetAfter: 45_000_000, MoreAfter: 3_000_000}),
		decided(t, "c", 5, rate.Decision{RetryAfter: 1_000, ResetAfter: 1_000}),
	})
	wantHeader(t, h, map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "60",
		"Retry-After": "3", "X-RateLimit-Retry-After": "3", "Cache-Control": "no-store",
		"RateLimit":        `"a";r=0;t=3, "b";r=5;t=3, "c";r=0;t=1`,
		"RateLimit-Policy": `"a";q=10;w=60, "b";q=20;w=60, "c";q=5;w=60`,
	})
}

func TestARequestThatCanNeverPassHasNoRetryAfter(t *testing.T) {
	h := written(http.Header{}, allFields, []core.Check{
		decided(t, "a", 10, rate.Decision{RetryAfter: rate.Never, Remaining: 10}),
		decided(t, "b", 10, rate.Decision{RetryAfter: 5_000_000, ResetAfter: 5_000_000}),
	})
	wantHeader(t, h, map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "10", "X-RateLimit-Reset": "0", "Cache-Control": "no-store",
		"RateLimit": `"a";r=10, "b";r=0;t=5`, "RateLimit-Policy": `"a";q=10;w=60, "b";q=10;w=60`,
	})
}

func TestOnlyTheFieldsThatAreAskedForAreWritten(t *testing.T) {
	rejected := []core.Check{decided(t, "a", 10, rate.Decision{RetryAfter: 2_000_000, ResetAfter: 2_000_000})}
	wantHeader(t, written(http.Header{}, Fields{}, rejected), map[string]string{"Retry-After": "2", "Cache-Control": "no-store"})
	wantHeader(t, written(http.Header{}, Fields{IETF: true}, rejected), map[string]string{
		"Retry-After": "2", "Cache-Control": "no-store", "RateLimit": `"a";r=0;t=2`, "RateLimit-Policy": `"a";q=10;w=60`,
	})
	wantHeader(t, written(http.Header{}, Fields{XRateLimit: true}, rejected), map[string]string{
		"Retry-After": "2", "Cache-Control": "no-store", "X-RateLimit-Retry-After": "2",
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2",
	})
	wantHeader(t, written(http.Header{}, Fields{}, []core.Check{decided(t, "a", 10, rate.Decision{Allowed: true})}), nil)
}

func TestShadowRulesAreNeverShown(t *testing.T) {
	shadow := core.Check{Rule: mustRule(t, core.RuleConfig{Name: "s", Shadow: true}), Decision: rate.Decision{Limit: 10, RetryAfter: 9_000_000}}
	wantHeader(t, written(http.Header{}, allFields, []core.Check{shadow}), nil)
	wantHeader(t, written(http.Header{}, allFields, nil), nil)
	h := written(http.Header{}, allFields, []core.Check{shadow, decided(t, "a", 10, rate.Decision{Allowed: true, Remaining: 9, ResetAfter: 1, MoreAfter: 1}), shadow})
	wantHeader(t, h, map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "1",
		"RateLimit": `"a";r=9;t=1`, "RateLimit-Policy": `"a";q=10;w=60`,
	})
}

func TestPolicyNamesItsWindowOnlyInWholeSeconds(t *testing.T) {
	for _, c := range []struct {
		config rate.LimitConfig
		want   string
	}{
		{rate.LimitConfig{Requests: 5, Period: time.Second}, `"r";q=5;w=1`},
		{rate.LimitConfig{Requests: 5, Period: 1500 * time.Millisecond}, `"r";q=5`},
		{rate.LimitConfig{Requests: 5, Calendar: rate.Day}, `"r";q=5`},
	} {
		check := core.Check{Rule: mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, c.config)}), Decision: rate.Decision{Allowed: true, Limit: 5}}
		must.Equal(t, written(http.Header{}, allFields, []core.Check{check}).Get("RateLimit-Policy"), c.want, "%+v", c.config)
	}
}

func TestASecondHandlerAddsItsMembersAndKeepsTheStricterFields(t *testing.T) {
	loose := []core.Check{decided(t, "loose", 100, rate.Decision{Allowed: true, Remaining: 90, ResetAfter: 6_000_000, MoreAfter: 600_000})}
	tight := []core.Check{decided(t, "tight", 10, rate.Decision{Allowed: true, Remaining: 1, ResetAfter: 54_000_000, MoreAfter: 6_000_000})}
	rejected := []core.Check{decided(t, "last", 10, rate.Decision{RetryAfter: 3_000_000, ResetAfter: 30_000_000})}
	stricter := map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "54",
		"RateLimit":        `"loose";r=90;t=1, "tight";r=1;t=6`,
		"RateLimit-Policy": `"loose";q=100;w=60, "tight";q=10;w=60`,
	}
	wantHeader(t, written(written(http.Header{}, allFields, loose), allFields, tight), stricter)
	stricter["RateLimit"] = `"tight";r=1;t=6, "loose";r=90;t=1`
	stricter["RateLimit-Policy"] = `"tight";q=10;w=60, "loose";q=100;w=60`
	h := written(written(http.Header{}, allFields, tight), allFields, loose)
	wantHeader(t, h, stricter)

	// The reported rule is one that rejects, and no t is later than Retry-After.
	wantHeader(t, written(h, allFields, rejected), map[string]string{
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "30",
		"Retry-After": "3", "X-RateLimit-Retry-After": "3", "Cache-Control": "no-store",
		"RateLimit":        `"tight";r=1, "loose";r=90;t=1, "last";r=0;t=3`,
		"RateLimit-Policy": `"tight";q=10;w=60, "loose";q=100;w=60, "last";q=10;w=60`,
	})
}

// Of more than 32 rules the lists have the first, and always the reported one.
func TestListsHaveNoMoreThan32RulesAndAlwaysTheReportedOne(t *testing.T) {
	for _, told := range []int{0, 31, 32, 39} {
		var checks []core.Check
		var states, policies []string
		for i := 0; i < 40; i++ {
			name := "r" + strconv.Itoa(i)
			d := rate.Decision{Allowed: true, Remaining: 7, ResetAfter: 1, MoreAfter: 1}
			if i == told {
				d.Remaining = 1
			}
			checks = append(checks, decided(t, name, 10, d))
			if others := len(states); i == told || others < 31 || others == 31 && told < i {
				states = append(states, `"`+name+`";r=`+strconv.FormatInt(d.Remaining, 10)+`;t=1`)
				policies = append(policies, `"`+name+`";q=10;w=60`)
			}
		}
		if len(states) != 32 {
			t.Fatalf("the test wants %d members", len(states))
		}
		for _, h := range []http.Header{{}, {"X-Ratelimit-Limit": {"100"}}} { // by either way of writing them
			written(h, allFields, checks)
			if got, want := h.Get("RateLimit"), strings.Join(states, ", "); got != want {
				t.Errorf("with rule %d reported:\n got %s\nwant %s", told, got, want)
			}
			if got, want := h.Get("RateLimit-Policy"), strings.Join(policies, ", "); got != want {
				t.Errorf("with rule %d reported:\n got %s\nwant %s", told, got, want)
			}
		}
	}
}

// If a rule counts a request under several keys, the lists have the rule once: with the reported key, else with the tightest, of equals
// the first.
func TestARuleOfSeveralKeysIsListedOnceByItsTightest(t *testing.T) {
	loose := decided(t, "many", 10, rate.Decision{Allowed: true, Remaining: 8, ResetAfter: 9_000_000, MoreAfter: 8_000_000})
	tight, equal, tightest := loose, loose, loose
	tight.Decision.Remaining, tight.Decision.MoreAfter = 5, 5_000_000
	equal.Decision.Remaining, equal.Decision.MoreAfter = 5, 4_000_000
	tightest.Decision.Remaining, tightest.Decision.MoreAfter = 3, 3_000_000
	uncounted := tightest
	uncounted.Uncounted = true
	other := decided(t, "other", 10, rate.Decision{Allowed: true, Remaining: 1, ResetAfter: 9_000_000, MoreAfter: 1_000_000})
	rejects := decided(t, "rejects", 10, rate.Decision{RetryAfter: 2_000_000, ResetAfter: 9_000_000})
	later := decided(t, "later", 10, rate.Decision{RetryAfter: 1_000_000, ResetAfter: 9_000_000})
	never := decided(t, "never", 10, rate.Decision{RetryAfter: rate.Never, Remaining: 10})
	for i, c := range []struct {
		checks []core.Check
		want   string
	}{
		{[]core.Check{loose, tight, other}, `"many";r=5;t=5, "other";r=1;t=1`},
		{[]core.Check{tight, loose, other}, `"many";r=5;t=5, "other";r=1;t=1`},
		{[]core.Check{loose, tightest, tight, other}, `"many";r=3;t=3, "other";r=1;t=1`},
		{[]core.Check{other, tight, equal}, `"other";r=1;t=1, "many";r=5;t=5`},
		{[]core.Check{uncounted, loose, other}, `"many";r=8;t=8, "other";r=1;t=1`},
		{[]core.Check{loose, tight}, `"many";r=5;t=5`},
		{[]core.Check{rejects, tight, later, loose}, `"rejects";r=0;t=2, "many";r=5, "later";r=0;t=1`},
		{[]core.Check{never, rejects}, `"never";r=10, "rejects";r=0;t=2`},
	} {
		for _, h := range []http.Header{{}, {"X-Ratelimit-Limit": {"100"}}} { // by either way of writing them
			must.Equal(t, written(h, allFields, c.checks).Get("RateLimit"), c.want, "%d", i)
		}
	}
}

func TestEarlierListsOfSeveralFieldsAreJoined(t *testing.T) {
	h := http.Header{"Ratelimit": {`"x";r=1`, `"y";r=2;t=99`}, "Ratelimit-Policy": {`"x";q=1`, `"y";q=2`}}
	written(h, Fields{IETF: true}, []core.Check{decided(t, "a", 10, rate.Decision{Allowed: true, Remaining: 7, ResetAfter: 1})})
	wantHeader(t, h, map[string]string{"RateLimit": `"x";r=1, "y";r=2;t=99, "a";r=7`, "RateLimit-Policy": `"x";q=1, "y";q=2, "a";q=10;w=60`})
}

// Values that no handler of ours has written are left as they are, and nothing fails over them.
func TestMalformedEarlierValuesStay(t *testing.T) {
	allowed := []core.Check{decided(t, "a", 10, rate.Decision{Allowed: true, Remaining: 7, ResetAfter: 1})}
	for _, c := range []struct{ limit, remaining string }{
		{"ten", "5"}, {"10", ""}, {"", ""}, {"10, 20", "5"}, {"99999999999999999999", "1"}, {"0", "0"}, {"10;w=60", "1"},
	} {
		h := http.Header{"X-Ratelimit-Limit": {c.limit}, "X-Ratelimit-Remaining": {c.remaining}}
		written(h, Fields{XRateLimit: true}, allowed)
		wantHeader(t, h, map[string]string{"X-RateLimit-Limit": c.limit, "X-RateLimit-Remaining": c.remaining})
	}
	// Half a pair, or a list, says nothing that could be the stricter.
	for _, h := range []http.Header{
		{"X-Ratelimit-Remaining": {"1"}},
		{"X-Ratelimit-Limit": {"2"}},
		{"X-Ratelimit-Limit": {"2"}, "X-Ratelimit-Remaining": {"0", "1"}},
		{"X-Ratelimit-Limit": {}, "X-Ratelimit-Remaining": {}},
	} {
		written(h, Fields{XRateLimit: true}, allowed)
		wantHeader(t, h, map[string]string{"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "1"})
	}
}

// The values share arrays, and some are prebuilt: what is done to one field must not show in another, nor in another
// response.
func TestFieldsOfAResponseCanBeEditedAlone(t *testing.T) {
	checks := []core.Check{decided(t, "a", 10, rate.Decision{RetryAfter: 3_000_000, ResetAfter: 30_000_000})}
	names := []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Retry-After",
		"Ratelimit", "Ratelimit-Policy", "Retry-After", "Cache-Control"}
	clean := written(http.Header{}, allFields, checks)
	for _, name := range names {
		edited := written(http.Header{}, allFields, checks)
		edited.Add(name, "added")
		edited[name][0] = "edited"
		again := written(http.Header{}, allFields, checks)
		for _, other := range names {
			want := clean.Get(other)
			if got := again[other]; len(got) != 1 || got[0] != want {
				t.Errorf("after an edit of %s another response has %s: %q", name, other, got)
			}
			if got := edited[other]; other != name && (len(got) != 1 || got[0] != want) {
				t.Errorf("an edit of %s shows in %s: %q", name, other, got)
			}
		}
	}
}

func TestTimesAreWholeSecondsRoundedUp(t *testing.T) {
	for _, c := range []struct{ micros, retry, seconds int64 }{
		{0, 1, 0}, {1, 1, 1}, {999_999, 1, 1}, {1_000_000, 1, 1}, {1_000_001, 2, 2}, {60_000_000, 60, 60}, {forever, forever / 1_000_000, forever / 1_000_000},
	} {
		must.Equal(t, RetrySeconds(c.micros), c.retry, "Retry-After of %d µs", c.micros)
		if got := seconds(c.micros); got != c.seconds {
			t.Errorf("%d µs: %d s, want %d", c.micros, got, c.seconds)
		}
	}
	for _, n := range []int64{0, 9, 1023, 1024, 1_000_000_000, -1} {
		if got, want := decimal(n), strconv.FormatInt(n, 10); got != want {
			t.Errorf("%d is written %q", n, got)
		}
	}
}

func TestParseFieldsTakesItsWordsAndNoOthers(t *testing.T) {
	for _, c := range []struct {
		words string
		want  Fields
		err   string
	}{
		{"", allFields, ""},
		{"x_ratelimit", Fields{XRateLimit: true}, ""},
		{"ietf", Fields{IETF: true}, ""},
		{"ietf x_ratelimit", allFields, ""},
		{"none", Fields{}, ""},
		{"none ietf", Fields{}, `headers "none ietf": none excludes all other words; write it alone, or remove it`},
		{"ietf none", Fields{}, `headers "ietf none": none excludes all other words; write it alone, or remove it`},
		{"x-ratelimit", Fields{}, `headers "x-ratelimit": must be one of x_ratelimit, ietf, none (did you mean x_ratelimit?)`},
	} {
		got, err := ParseFields(strings.Fields(c.words))
		if got != c.want || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%q: %+v, %v", c.words, got, err)
		}
	}
}
