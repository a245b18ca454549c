package traefik

import (
	"fmt"
	"time"

	"github.com/proxyweir/weir/core/transition"
)

// handover is how long the handlers of an earlier configuration may still get requests when those of the next have been made, in microseconds.
const handover = int64(10 * time.Second / time.Microsecond)

// continueLimits makes the rules of a set go on where those of the set before with the same names are: if their algorithm or period has changed,
// requests must pass the previous limit, too, for a while. It logs that, and which rules start counting afresh. Unless both sets are in one store,
// nothing is counted in that of the new one yet. Most rules do not change; there may be thousands.
func continueLimits(e *engine, next, before *ruleSet, sameStore bool, late int64) {
	var kept, afresh []string
	old := before.active(0)
	for name, active := range next.active(0) {
		last := old[name]
		if last == nil || last == active {
			continue
		}
		var c transition.Change
		if sameStore {
			change, err := active.Continue(e.limiter, last, late)
			if err != nil {
				e.reportFailure(err)
				change.Lasts = 0
			}
			c = change
		} else {
			c.Afresh = transition.Compare(last.Limits(), active.Limits()).Afresh
		}
		if c.Lasts > 0 {
			kept = append(kept, fmt.Sprintf("rule %q keeps to its former limit, too, for %s, since its algorithm or period has changed", name, time.Duration(c.Lasts)*time.Microsecond))
		} else if c.Afresh {
			afresh = append(afresh, "rule \""+name+"\" starts counting afresh, since its algorithm, period or key has changed; penalties of its keys end with that")
		}
	}
	informOfSome(e.name, kept, "keep to their former limits, too")
	informOfSome(e.name, afresh, "start counting afresh")
}
