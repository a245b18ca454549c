package traefik

import (
	"net/http"
	"sync/atomic"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/redis"
)

// pathOfSeveral returns the path of several rules: the general one as long as requests must pass previous limits of any of them, too.
func pathOfSeveral(h *handler, s *ruleSet) http.Handler {
	var noRule *front.Rule
	if withoutOverlap(s) {
		return severalPath(h, s)
	}
	u := &overlapping{handler: h, set: s}
	u.path.Store(&madePath{path: generalPath(h, meteringOf(h.engine, s, noRule))})
	return u
}

// withoutOverlap reports whether requests need pass nothing but the configured limits of the rules.
func withoutOverlap(s *ruleSet) bool {
	for _, r := range s.rules {
		if atomic.LoadInt32(&r.Ruled.Active.Generation) != 0 {
			return false
		}
	}
	return true
}

// overlapping is the handler of a router for several rules, some of which are in a transition at first.
type overlapping struct {
	handler *handler
	set     *ruleSet
	path    atomic.Value // *madePath, with the set if no rule is in a transition any more
}

// ServeHTTP implements http.Handler.
func (u *overlapping) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := u.path.Load().(*madePath)
	if path.set == nil && withoutOverlap(u.set) {
		path = &madePath{set: u.set, path: severalPath(u.handler, u.set)}
		u.path.Store(path)
	}
	path.path.ServeHTTP(w, r)
}

// severalPath returns the path of several rules, of one with others that are decided together with it, or of none.
func severalPath(h *handler, s *ruleSet) http.Handler {
	var noRule *front.Rule
	e := h.engine
	metering := meteringOf(e, s, noRule)
	if len(s.rules) == 0 || s.domain != nil {
		return generalPath(h, metering)
	}
	if hasChoices(s) && e.shared == nil {
		return choicesPath(h, s, metering)
	}
	first := s.rules[0].Ruled
	same := true
	var rules []*memory.ServedRule
	var only []*core.Rule
	var keyed *memory.ServedRule // that whose key all have, if they have the same: one for which no part may be missing, or any
	skip := true                 // they do not count requests without a key
	for _, r := range s.rules {
		served := keptRule(h, s, r)
		if served == nil || len(rules)+len(served) > mostServed {
			return generalPath(h, metering)
		}
		same = same && ruleset.SameKey(first, r.Ruled)
		if keyed == nil || r.Ruled.SkipMissing || r.Ruled.RejectMissing { // what the others count without some parts is then left to the general path
			keyed = served[0]
		}
		skip = skip && r.Ruled.SkipMissing && !ruleset.NeedsAddress(r.Ruled)
		rules = append(rules, served...)
		only = append(append(only, r.Only), r.Only.Linked()...)
	}
	c := &memory.ServeConfig{Key: keyed.Key, NoKey: keyed.NoKey, Keyless: h, Apart: !same, Metering: metering, Next: h.next, Rest: h}
	if skip {
		c.Keyless = h.next
	}
	watch(e, s, c)
	if same {
		c.Direct = byAddress(h, first)
	}
	if e.shared == nil {
		return memory.ServeSeveral(rules, c)
	}
	quick := redis.ServeSeveral(e.shared.store, only, rules, c, h)
	if quick == nil { // there is none for these rules
		return generalPath(h, metering)
	}
	return quick
}

// keptRule is servedRule, whose result all routers share: there may be thousands of them. Only those of a guard have each their own.
func keptRule(h *handler, s *ruleSet, r *front.Rule) []*memory.ServedRule {
	if h.guarded != nil || r.Only == nil {
		return servedRule(h, s, r)
	}
	kept := s.shared.(*sharedParts)
	kept.mu.Lock()
	defer kept.mu.Unlock()
	list, ok := kept.served[r.Only]
	if !ok {
		list = servedRule(h, s, r)
		kept.served[r.Only] = list
	}
	return list
}

// servedRule returns a rule as the path of several rules has it, with those that are decided together with it behind it; nil: it has no such path.
func servedRule(h *handler, s *ruleSet, r *front.Rule) []*memory.ServedRule {
	var none, list []*memory.ServedRule
	e := h.engine
	if !plain(e, r) || r.Only == nil || r.Ruled.Shadow && hasCandidate(r.Only) || e.adaptation != nil && r.Ruled.Adapt != nil {
		return none
	}
	for i, limit := range append([]*core.Rule{r.Only}, r.Only.Linked()...) {
		served := &memory.ServedRule{QuotaFields: answer.NewQuotaFields(limit, e.fields), Linked: i > 0, Key: keyFunc(h, r), NoKey: ruleset.NoKey(r.Ruled), Covers: coversFunc(e, r)}
		switch {
		case e.shared != nil:
		case i == 0 && !limit.Limit.InFlight:
			served.FastPath = fastPathOf(e, r, limit)
		default:
			served.FastPath = memory.NewLinkedPath(e.memory, limit)
		}
		if served.FastPath == nil && e.shared == nil {
			return none
		}
		if i == 0 {
			if e.rejections == nil { // else the general path rejects, which knows the key of the rule that it logs
				served.Refusal = refusalOf(h, s, r, limit, "")
			}
			served.Allowed = limit.Allowed
			if served.Allowed == nil { // there are no metrics
				served.Allowed = new(int64)
			}
		}
		served.Passed, served.Refused = shadowCounts(e, s, r, limit)
		list = append(list, served)
	}
	return list
}

// shadowCounts returns what counts the requests that a candidate allows, or a shadow would reject, beside the limits of others that allow them.
func shadowCounts(e *engine, s *ruleSet, r *front.Rule, limit *core.Rule) ([]*int64, []*int64) {
	var passed, refused []*int64 // which the interpreter would not empty if they were named results
	if !limit.Shadow || limit.Limit.InFlight {
		return passed, refused
	}
	meters := []*metrics.Meter{s.tallies[r.Ruled.Name]}
	if e.counts {
		meters = append(meters, s.meters[r.Ruled.Name])
	}
	for _, m := range meters {
		if !limit.IsCandidate() {
			refused = append(refused, &m.Requests[front.ShadowRejected])
			continue
		}
		passed = append(passed, &m.Compared[front.BothAllowed])
		refused = append(refused, &m.Compared[front.Stricter])
	}
	return passed, refused
}

// mostServed is the most rules that have a fast path: as many as answer.WriteHeaders lists.
const mostServed = 32
