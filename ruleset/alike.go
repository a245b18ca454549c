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
	if t.Tiers != nil || len(t.Overrides) > 0 || t.Name == "" {
		return Compile(t, a.in)
	}
	terms := strings.Join([]string{
		strings.Join(t.Key, "\x00"), t.Limit, t.TimeZone, t.Algorithm, t.Burst, t.Refill, t.Cost, t.MaxDelay, t.IPv4Prefix, t.IPv6Prefix,
		t.Enforcement, t.OnLimit, t.OnError, t.OnMissingKey, t.CountRejected,
	}, "\x01")
	like := a.first[terms]
	if like == nil {
		r, errors := Compile(t, a.in)
		if len(errors) == 0 && r.Limits.Single() {
			a.note(terms, t, r)
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

// note keeps what other rules can take over.
func (a *alike) note(terms string, t *RuleText, r *Rule) {
	own := r.Limits.Own()
	onError, err := core.ParseOnError(t.OnError)
	if err != nil { // not reached: it was compiled
		return
	}
	a.first[terms] = &likeness{rule: r, config: core.RuleConfig{
		Namespace:     a.in.Namespace,
		KeySpec:       Spec(r),
		Limit:         own.Limit(),
		Shadow:        own.Shadow(),
		CountRejected: own.CountRejected(),
		OnError:       onError,
	}}
}
