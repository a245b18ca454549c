package ruleset

import (
	"strings"

	"github.com/proxyweir/weir/core"
)

// alike compiles many rules for one context. Those that differ from an earlier one in name and match alone, as most of a large file
// do, take over what was made of that one: it is a third of the work, which counts where this is interpreted.
type alike struct {
	in    Context
	first map[string]*likeness // by all but name and match
}

// likeness is what rules have in common.
type likeness struct {
	rule   *Rule
	config core.RuleConfig
}

func newAlike(in Context) *alike {
	return &alike{in: in, first: make(map[string]*likeness)}
}

// compile is Compile.
func (a *alike) compile(t *RuleText) (*Rule, []*FieldError) {
	if t.Tiers != nil || len(t.Overrides) > 0 || t.Candidate != nil || t.Name == "" {
		return Compile(t, a.in)
	}
	terms := strings.Join([]string{
		strings.Join(t.Key, "\x00"), t.Limit, t.TimeZone, t.Algorithm, t.Burst, t.Refill, t.Cost, t.MaxDelay, t.IPv4Prefix, t.IPv6Prefix,
		t.Enforcement, t.OnLimit, t.OnError, t.OnMissingKey, t.CountRejected,
		t.MaxWaiting, t.MaxWaitingPerKey, t.Concurrency, strings.Join(t.Count, ","), strings.Join(t.Penalty, ","),
	}, "\x01")
	like := a.first[terms]
	if like == nil {
		made := &likeness{}
		r, errors := compile(t, a.in, &made.config)
		if len(errors) == 0 && r.Limits.Single() {
			made.rule = r
			a.first[terms] = made
		}
		return r, errors
	}
	made := *like.rule
	r := &made
	r.Name = t.Name
	r.Matcher = nil
	r.Excepts = false
	if t.Match != nil {
		c := &compiler{text: t, rule: r}
		c.setMatcher()
		if len(c.errors) > 0 {
			return Compile(t, a.in) // which says all that is wrong
		}
	}
	config := like.config
	config.Name = t.Name
	limits, err := core.NewLimits(config, core.MoreLimits{})
	if err != nil {
		return Compile(t, a.in)
	}
	r.Limits = limits
	return r, nil
}
