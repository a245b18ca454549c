package ruleset

import (
	"fmt"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/transition"
	"github.com/proxyweir/weir/core/words"
)

// alike compiles many rules for one context. A rule that differs from an earlier one only in name and match, as most of a large file
// do, reuses the parts of that one: this is a third of the work, which matters under an interpreter.
type alike struct {
	in    Context
	first map[string]*likeness // by all but name and match
}

// likeness has the compiled parts that rules have in common.
type likeness struct {
	rule   *Rule
	config core.RuleConfig
}

func newAlike(in Context) *alike {
	return &alike{in: in, first: make(map[string]*likeness)}
}

// compile is Compile.
func (a *alike) compile(t *RuleText) (*Rule, []*words.Mistake) {
	if t.Name == "" || len(t.Objects) > 1 || len(t.Objects) == 1 && One(t, "match") == nil {
		return Compile(t, a.in)
	}
	terms := fmt.Sprintf("%q %q", t.Texts, t.Lists) // which has what is the same in the same order
	like := a.first[terms]
	if like == nil {
		made := &likeness{}
		var from origin
		r, errors := compile(t, a.in, &from)
		made.config = from.config
		if len(errors) == 0 && r.Limits.Single() {
			r.like = made
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
	c := &compiler{text: t, rule: r}
	c.setMatcher()
	if len(c.errors) > 0 || !setLimits(r, a.in.Namespace) {
		return Compile(t, a.in) // which says all that is wrong
	}
	return r, nil
}

// setLimits gives a rule that has the parts of another one limits of its own, and reports whether it could.
func setLimits(r *Rule, namespace string) bool {
	config := r.like.config
	config.Name = r.Name
	config.Namespace = namespace
	limits, err := core.NewLimits(config, core.MoreLimits{})
	r.Limits = limits
	r.Active = transition.NewActive(limits)
	return err == nil
}
