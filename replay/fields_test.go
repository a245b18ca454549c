package replay

import (
	"fmt"
	"strings"
	"testing"
)

// A client must not get out of a rule by what it writes elsewhere.
func TestAQueryIsRedactedByItsOwnValueAlone(t *testing.T) {
	f, _ := newField("query:token")
	for uri, want := range map[string]lack{
		"/?token=REDACTED":                redactedL,
		"/?a=b&token=REDACTED#c":          redactedL,
		"/?token=a&x=REDACTED":            known,
		"/REDACTED?token=a":               known,
		"/?token=a#token=REDACTED":        known,
		"/?token=a&token=REDACTED":        known,
		"/?xtoken=REDACTED&token=REDACTE": known,
		"/?x=REDACTED":                    known,
	} {
		if got := f.lackIn(&entry{uri: uri}); got != want {
			t.Errorf("%s: %d, want %d", uri, got, want)
		}
	}
	if why := because(NotReplayed{Field: "query:token", Why: "redacted"}); strings.Contains(why, "headers") || strings.Contains(why, "credentials") {
		t.Errorf("of a query it is said: %s", why)
	}
}

// A rule must not be replayed otherwise for how many others ask for something else.
func TestARuleIsReplayedAlikeBehindAHundredOthers(t *testing.T) {
	var lines strings.Builder
	for n, key := range []string{"", `"request_X-Last":"a",`, "", `"request_X-Last":"a",`} {
		fmt.Fprintf(&lines, `{"ClientHost":"192.0.2.1","DownstreamStatus":200,"RequestMethod":"GET","RequestPath":"/",%s"StartUTC":"2026-11-21T19:48:3%d.5Z"}`+"\n", key, n)
	}
	log := logIn(t, "a.log", lines.String())
	const last = "{name: last, key: 'header:X-Last', limit: 1/1m, algorithm: sliding_window_log}"
	var others []string
	for n := range 150 {
		others = append(others, fmt.Sprintf("{name: r%d, match: {paths: [/other]}, key: 'header:X-%d', limit: 1/1m}", n, n))
	}
	few, want := run(t, Config{Rules: filesOf(t, rulesOf(last)), Logs: []string{log}, Suggest: true})
	many, got := run(t, Config{Rules: filesOf(t, rulesOf(append(others, last)...)), Logs: []string{log}, Suggest: true})
	if want != "AAAR" || got != want || strings.Join(many.Warnings, "\n") != strings.Join(few.Warnings, "\n") || len(few.Warnings) != 1 {
		t.Errorf("%s and %q, alone %s and %q", got, many.Warnings, want, few.Warnings)
	}
	if a, b := few.Suggestions[0], many.Suggestions[150]; a != b {
		t.Errorf("%+v, alone %+v", b, a)
	}
}
