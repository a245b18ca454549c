package words

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Each configuration writes its own sentence from one Mistake: names of settings change, values and what else the user wrote do not.
func TestAMistakeIsWrittenInTheWordsOfEachConfiguration(t *testing.T) {
	upper := func(name string) string { return strings.ToUpper(name) }
	pro := func(m *Mistake) *Mistake { return m.Within("", `"max_delay"`).Within("tiers", "") }
	for _, c := range []struct {
		m          *Mistake
		want, said string
		where      string
	}{
		{Wrong("burst", "5", "must be at most %d", 4), "burst 5: must be at most 4", "BURST 5: must be at most 4", "burst"},
		{Wrong("on_limit", "delay", " and `count` are mutually exclusive: remove one"), "on_limit delay and count are mutually exclusive: remove one",
			"ON_LIMIT delay and COUNT are mutually exclusive: remove one", "on_limit"},
		{pro(Wrong("limit", strconv.Quote("a`limit`"), "write %s", "`limit`")), "tiers: \"max_delay\": limit \"a`limit`\": write `limit`",
			"TIERS: \"max_delay\": LIMIT \"a`limit`\": write `limit`", "tiers.limit"},
		{pro(Wrong("", "", "duplicate; 100 %%")), `tiers: "max_delay": duplicate; 100 %`, `TIERS: "max_delay": duplicate; 100 %`, "tiers"},
		{OneOf("unit", `"hours"`, "hours", []string{"hour", "day"}), `unit "hours": must be one of hour, day (did you mean hour?)`,
			`UNIT "hours": must be one of hour, day (did you mean hour?)`, "unit"},
		{OneOf("", "", "x", []string{"hour", "day"}).And(", or %q", "%d"), `must be one of hour, day, or "%d"`, `must be one of hour, day, or "%d"`, ""},
		{pro(Wrong("limit", "", "is missing")).Named("plans"), `plans: "max_delay": limit: is missing`, `PLANS: "max_delay": LIMIT: is missing`, "plans.limit"},
		{Of(errors.New("100% `key` wrong")).Within("rule", `"a"`), "rule \"a\": 100% `key` wrong", "RULE \"a\": 100% `key` wrong", "rule"},
	} {
		if c.m.Error() != c.want || c.m.In(upper) != c.said || strings.Join(c.m.Where(), ".") != c.where {
			t.Errorf("%q, %q, %v; want %q, %q, %s", c.m.Error(), c.m.In(upper), c.m.Where(), c.want, c.said, c.where)
		}
	}
	if m := OneOf("unit", "", "hours", []string{"hour"}); m.Meant != "hour" || m.Within("rule", "").Meant != "hour" {
		t.Error(m.Meant)
	}
}

// A Mistake is found in what wraps it, too.
func TestOfFindsTheMistakeInAnError(t *testing.T) {
	wrong := func() error { return Wrong("key", "", "is missing") }
	for _, err := range []error{wrong(), fmt.Errorf("at: %w", wrong())} {
		if m := Of(err); len(m.At) != 1 || m.At[0].Name != "key" || m.Error() != "key: is missing" {
			t.Errorf("%v: %v", err, m.At)
		}
	}
}

// What is made from a mistake leaves that as it was.
func TestAMistakeIsCopied(t *testing.T) {
	m := Wrong("key", `"a"`, "is missing")
	m.Within("rule", "")
	m.Named("source")
	if m.Error() != `key "a": is missing` {
		t.Error(m.Error())
	}
}
