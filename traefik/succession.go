package traefik

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
)

// handover is how long the handlers of an earlier configuration may still get requests when those of the next have been made, in microseconds.
const handover = int64(10 * time.Second / time.Microsecond)

// succeed makes the rules of a set the successors of those of the set before with the same names: if their algorithm or period has changed,
// requests must pass the former limit, too, for a while. It logs that, and which rules start counting afresh. Unless both sets are in one store,
// nothing is counted in that of the new one yet. Most rules do not change; there may be thousands.
func succeed(e *engine, next, before *ruleSet, sameStore bool, late int64) {
	var kept, afresh []string
	old := before.limitsByName()
	for name, limits := range next.limitsByName() {
		last := old[name]
		if last == nil || last == limits || sameCounter(limits, last) {
			continue
		}
		begun := false
		if sameStore {
			is, err := e.limiter.Succeed(limits, last, late)
			if err != nil {
				e.reportFailure(err)
			}
			begun = is
		}
		if begun {
			lasts := last.InForce().Overlap(limits.InForce()) + late
			kept = append(kept, fmt.Sprintf("rule %q keeps to its former limit, too, for %s, since its algorithm or period has changed", name, time.Duration(lasts)*time.Microsecond))
		} else if len(limits.Rules()) > 0 && len(last.Rules()) > 0 && !shareCounter(limits.Rules(), last.Rules()) {
			afresh = append(afresh, "rule \""+name+"\" starts counting afresh, since its algorithm, period or key has changed; penalties of its keys end with that")
		}
	}
	informOfSome(e.name, kept, "keep to their former limits, too")
	informOfSome(e.name, afresh, "start counting afresh")
}

// sameCounter reports whether each of two limits is a single one, and they count in the same place. It is so for most rules, and quickly
// found out.
func sameCounter(a, b *core.Limits) bool {
	return atomic.LoadInt32(&a.Moved) == 0 && atomic.LoadInt32(&b.Moved) == 0 && a.Single() && b.Single() && a.Own().Identity == b.Own().Identity
}
