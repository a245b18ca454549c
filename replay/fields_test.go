package replay

import (
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
