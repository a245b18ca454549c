package core

import (
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

func mustRule(t testing.TB, c RuleConfig) *Rule {
	if c.Limit == nil {
		c.Limit = mustLimit(t, rate.LimitConfig{Requests: 10, Period: time.Minute})
	}
	r, err := NewRule(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestNewRuleSaysWhatIsWrong(t *testing.T) {
	limit := mustLimit(t, rate.LimitConfig{Requests: 10, Period: time.Minute})
	long := strings.Repeat("a", 65)
	for _, c := range []struct {
		config RuleConfig
		want   string
	}{
		{RuleConfig{Limit: limit}, `rule name "": must be 1 to 64 of A-Z a-z 0-9 _ . -`},
		{RuleConfig{Name: "a b", Limit: limit}, `rule name "a b": must be 1 to 64 of A-Z a-z 0-9 _ . -`},
		{RuleConfig{Name: "a\"", Limit: limit}, `rule name "a\"": must be 1 to 64 of A-Z a-z 0-9 _ . -`},
		{RuleConfig{Name: "a|b", Limit: limit}, `rule name "a|b": must be 1 to 64 of A-Z a-z 0-9 _ . -`},
		{RuleConfig{Name: "é", Limit: limit}, `rule name "é": must be 1 to 64 of A-Z a-z 0-9 _ . -`},
		{RuleConfig{Name: long, Limit: limit}, `rule name "` + long + `": must be 1 to 64 of A-Z a-z 0-9 _ . -`},
		{RuleConfig{Name: "a", Namespace: "b/c", Limit: limit}, `rule "a": namespace name "b/c": must be 1 to 64 of A-Z a-z 0-9 _ . -`},
		{RuleConfig{Name: "a"}, `rule "a": has no limit; write <requests>/<period>, such as 100/1m`},
	} {
		if r, err := NewRule(c.config); err == nil || err.Error() != c.want || r != nil {
			t.Errorf("%+v:\n got %v\nwant %s", c.config, err, c.want)
		}
	}
}

func TestRuleReturnsItsConfiguration(t *testing.T) {
	limit := mustLimit(t, rate.LimitConfig{Requests: 10, Period: time.Minute})
	r := mustRule(t, RuleConfig{Namespace: "n", Name: "r", Limit: limit, Shadow: true, CountRejected: true})
	if r.Namespace != "n" || r.Name() != "r" || r.Limit != limit || !r.Shadow || !r.CountRejected {
		t.Errorf("%q %q %v %v %v", r.Namespace, r.Name(), r.Limit, r.Shadow, r.CountRejected)
	}
}

func TestRulesShareCountersOnlyWhereTheyCountTheSame(t *testing.T) {
	second := mustLimit(t, rate.LimitConfig{Requests: 10, Period: time.Second})
	base := mustRule(t, RuleConfig{Namespace: "n", Name: "r", KeySpec: "client_ip"})
	more := mustLimit(t, rate.LimitConfig{Requests: 99, Period: time.Minute})
	for _, c := range []RuleConfig{
		{Namespace: "n", Name: "r", KeySpec: "client_ip", Limit: more},
		{Namespace: "n", Name: "r", KeySpec: "client_ip", Shadow: true, CountRejected: true},
	} {
		must.Equal(t, mustRule(t, c).Identity, base.Identity, "is not %q, though only what a reload may change is changed", base.Identity)
	}
	for _, c := range []RuleConfig{
		{Name: "r", KeySpec: "client_ip"},
		{Namespace: "m", Name: "r", KeySpec: "client_ip"},
		{Namespace: "n", Name: "s", KeySpec: "client_ip"},
		{Namespace: "n", Name: "r", KeySpec: "host"},
		{Namespace: "n", Name: "r", KeySpec: "client_ip", Limit: second},
	} {
		if r := mustRule(t, c); r.Identity == base.Identity {
			t.Errorf("%+v has the identity %q of another", c, r.Identity)
		}
	}
	// The same letters, divided differently between two fields, are a different identity.
	if mustRule(t, RuleConfig{Namespace: "a", Name: "b.c"}).Identity == mustRule(t, RuleConfig{Namespace: "a.b", Name: "c"}).Identity {
		t.Error("namespace and name run together")
	}
}

// Whatever rejects for a rule has the rule's message: its local rule when the store has failed, and its concurrency.
func TestAllThatRejectsForARuleHasItsMessage(t *testing.T) {
	r := mustRule(t, RuleConfig{Name: "a", Message: "Slowly.", Concurrency: 2})
	if r.Message != "Slowly." || r.sharedBy(2).Message != "Slowly." || r.Linked()[0].Message != "Slowly." {
		t.Errorf("%q, by its share %q, concurrency %q", r.Message, r.sharedBy(2).Message, r.Linked()[0].Message)
	}
	must.Equal(t, mustRule(t, RuleConfig{Name: "a"}).Identity, mustRule(t, RuleConfig{Name: "a", Message: "Slowly."}).Identity, "a rule whose message changes starts counting afresh")
}
