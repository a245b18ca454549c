package adaptive

import (
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/tools/must"
)

// instanceOf returns an instance of a rule with that limit, open in a memory of its own.
func instanceOf(t *testing.T, limit, ceiling string) *Instance {
	t.Helper()
	text := &ruleset.RuleText{Name: "api"}
	ruleset.SetText(&text.Object, "limit", limit)
	adaptable := &ruleset.Object{}
	ruleset.SetText(adaptable, "ceiling", ceiling)
	text.Objects = map[string][]*ruleset.Object{"adapt": {adaptable}}
	r, problems := ruleset.Compile(text, ruleset.Context{})
	if len(problems) > 0 {
		t.Fatal(problems[0])
	}
	p := &Instance{Rule: r, Limiter: core.NewLimiter(memory.New(memory.Config{})), Applies: true}
	for _, one := range r.Limits.Rules() {
		must.Succeed(t, p.Limiter.Open(one))
	}
	return p
}

func inForce(p *Instance) int64 { return p.Rule.Active.Limits().Own().Limit.Requests }

func TestAPlaceGoesOnWithWhatWasInForceBeforeAReload(t *testing.T) {
	advised := func(requests int64) *advice.Outcome {
		return &advice.Outcome{Requests: requests, Algorithm: "sliding_window_counter"}
	}
	before := instanceOf(t, "100/1m", "200/1m")
	must.Succeed(t, before.Put(advised(150)))
	untouched := instanceOf(t, "100/1m", "200/1m")
	observing := instanceOf(t, "100/1m", "200/1m")
	observing.Applies = false
	decided := instanceOf(t, "100/1m", "200/1m")
	must.Succeed(t, decided.Put(advised(100)))
	for _, test := range []struct {
		name            string
		instance, after *Instance
		want            int64
	}{
		{"the same rule", instanceOf(t, "100/1m", "200/1m"), before, 150},
		{"another limit", instanceOf(t, "120/1m", "200/1m"), before, 120},
		{"another ceiling", instanceOf(t, "100/1m", "140/1m"), before, 100},
		{"advice is only shown", observing, before, 100},
		{"advice was carried out already", decided, before, 100},
		{"nothing was advised before", instanceOf(t, "100/1m", "200/1m"), untouched, 100},
		{"a new rule", instanceOf(t, "100/1m", "200/1m"), nil, 100},
	} {
		must.Succeed(t, test.instance.Resume(test.after))
		must.Equal(t, inForce(test.instance), test.want, "%s: the limit", test.name)
	}
}
