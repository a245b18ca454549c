package advice

import "strconv"

// RuleState is what an adaptable rule is at: what is in force, and by which advice. Start makes it. It is a value: a copy of it can be carried over a
// reload, by Resume. It is for one goroutine at a time.
type RuleState struct {
	line       string // the rule's, of the digest
	requests   int64  // in force
	burst      int64  // what it is, or would be of a bucket
	algorithm  string
	stepped    int64 // when that changed
	aimed      int64 // the requests that it steps towards, or did, as is the next one of the burst
	aimedBurst int64

	followed *entry // nil: none
	next     *entry // that is not in force yet
	later    *entry // the newest one behind it
	newest   newest // followed or reverted
	back     string // why it goes back to the configured limit without advice; a word of Outcome.Why

	turned       int64 // the last turn
	frozen       int64 // until then nothing changes
	overloaded   int64 // when it last was
	concentrated int64
	above        int64 // until when the threshold of the advice that is followed holds; 0: it has not begun

	clamped []string // kinds that the advice that is followed has met; is replaced, never written to
	fresh   []string // those of this turn
}

// entry is what a document says of one rule.
type entry struct {
	rule               *Rule  // nil: nothing
	abstains           string // why it is nothing; "": not known
	serial             int64
	effective, expires int64 // microseconds
}

// setBack returns an entry with its times set back. Copies of a State share entries, which therefore do not change.
func setBack(e *entry, by int64) *entry {
	if e == nil {
		return e
	}
	return &entry{rule: e.rule, abstains: e.abstains, serial: e.serial, effective: e.effective - by, expires: e.expires - by}
}

// The words of Outcome.Why.
const (
	Configured        = "configured"    // there is no advice
	Followed          = "advice"        // as far as the bounds let it
	HeldByStep        = "step"          // on the way, and the next step is not due
	HeldByDeadband    = "deadband"      // what is advised hardly differs
	HeldBySwitch      = "switch"        // the algorithm, until the change before is over
	GateUnknown       = "unknown"       // not loosened, since no guard watches the service
	GateWarmUp        = "warm_up"       // since too little is learnt
	GateOverload      = "overload"      // since the service is overloaded, or was within 30 s
	GateConcentration = "concentration" // since few keys make an unusual part of the demand, or did within 30 s
	Frozen            = "frozen"        // by hand
	Expired           = "expired"       // on its way to the configured limit, since the advice is over
	Abstains          = "abstains"      // or since the advisor has none for the rule
	Reverted          = "reverted"      // by hand
	Reloaded          = "reloaded"      // the configuration has changed; only of State.Reloaded
)

// Outcome is what is in force after a Turn, and why.
type Outcome struct {
	Requests  int64
	Burst     int64 // 0: the algorithm has none
	Algorithm string

	Target int64  // the requests that it steps towards
	Why    string // one of the words above
	Reason string // the advisor's, for its advice or for having none; "": not known
	Serial int64  // of the advice that is followed; 0: none
	Until  int64  // of Followed and what holds it: when the advice expires; of Frozen: when that ends; else 0

	// Clamps are the kinds of clamps that the advice has met for the first time. Each is counted once for a document.
	Clamps []string

	Above *Threshold // nil: there is none
}

// Start returns a rule's state when nothing is known: the configured limit is in force.
func Start(s *Settings) RuleState {
	return RuleState{line: s.line(), requests: s.Requests, burst: s.usualBurst(), algorithm: s.Algorithm, back: Configured}
}

// Resume returns the state with which a rule goes on after a reload. What is in force stays within the new bounds if the rule is the same for an
// advisor (see Digest), and else is the configured limit. By hand is by hand: a freeze holds, and advice that was reverted stays so.
func Resume(s *Settings, before RuleState) RuleState {
	if before.line != s.line() {
		st := startAnew(s, before)
		st.newest = before.newest
		return st
	}
	st := before
	st.requests = within(st.requests, s.least(), s.Ceiling)
	st.burst = within(st.burst, s.burstOf(s.least()), s.burstOf(s.Ceiling))
	return st
}

// startAnew returns the state with which a rule begins as configured after a reload. A freeze holds, and no gate opens sooner.
func startAnew(s *Settings, before RuleState) RuleState {
	st := Start(s)
	st.frozen = before.frozen
	st.overloaded = before.overloaded
	st.concentrated = before.concentrated
	st.stepped = before.stepped
	return st
}

func within(n, least, most int64) int64 {
	if n < least {
		return least
	}
	if n > most {
		return most
	}
	return n
}

// Take hands a rule what a document says of it: nil if that is nothing. It is followed from effective to expires, and what was followed before until
// then. Advice whose serial is not above the last one is ignored, until all advice so far is over.
func Take(st *RuleState, r *Rule, serial, effective, expires, now int64) {
	take(st, &entry{rule: r, serial: serial, effective: effective, expires: expires}, now)
}

// Abstain is Take of a document that has nothing for the rule, and says why.
func Abstain(st *RuleState, reason string, serial, effective, expires, now int64) {
	take(st, &entry{abstains: reason, serial: serial, effective: effective, expires: expires}, now)
}

func take(st *RuleState, e *entry, now int64) {
	if e.serial <= st.newest.at(now) {
		return
	}
	st.newest.take(e.serial, e.expires, now)
	if st.next == nil || st.next.effective >= e.effective {
		st.next = e
		st.later = nil
		return
	}
	st.later = e // else none would ever be followed, if they came faster than they take effect
}

// Freeze keeps a rule as it is until a time. What is in force stays so, also while the service is overloaded; 0 ends that.
func Freeze(st *RuleState, until int64) { st.frozen = until }

// Revert puts the configured limit in force at once, and ends all advice so far.
func Revert(s *Settings, st *RuleState, now int64) {
	st.drop(Reverted)
	st.next = nil
	st.later = nil
	st.goHome(s)
	st.algorithm = s.Algorithm
	st.stepped = now
}

// goHome puts the configured numbers in force at once. (Assignments of several values at a time lose some under Yaegi.)
func (st *RuleState) goHome(s *Settings) {
	st.requests = s.Requests
	st.burst = s.usualBurst()
}

// drop ends the advice that is followed.
func (st *RuleState) drop(why string) {
	st.followed = nil
	st.back = why
	st.above = 0
	st.clamped = nil
}

// clamp counts a kind of clamps, once for each advice.
func (st *RuleState) clamp(kind string) {
	if indexOf(st.clamped, kind) >= 0 {
		return
	}
	all := make([]string, 0, len(st.clamped)+1)
	all = append(all, st.clamped...)
	st.clamped = append(all, kind)
	st.fresh = append(st.fresh, kind)
}

// Turn draws the consequences of advice, conditions and time, and returns what is in force from now on. It is to be called each second.
func Turn(s *Settings, st *RuleState, c Conditions, now int64) Outcome {
	st.fresh = nil
	st.keepTime(c, now)
	st.advance(s, now)
	o := Outcome{Target: st.requests}
	if now < st.frozen {
		o.Why = Frozen
	} else {
		follow(s, st, c, now, &o)
	}
	st.write(s, &o)
	if e := st.followed; e != nil {
		o.Serial = e.serial
		o.Until = e.expires
		o.Reason = e.abstains
		if e.rule != nil {
			o.Reason = e.rule.Reason
			o.Above = threshold(s, st, e, c, now, o.Why == Frozen)
		}
	}
	if o.Why == Frozen {
		o.Until = st.frozen
	}
	o.Clamps = st.fresh
	return o
}

// write writes what is in force into an outcome.
func (st *RuleState) write(s *Settings, o *Outcome) {
	o.Requests = st.requests
	o.Algorithm = st.algorithm
	o.Burst = 0
	if isBucket(st.algorithm) {
		o.Burst = s.drainable(st.burst, st.requests)
	}
}

// keepTime notes the conditions. If the clock has been set back, all times go back with it: nothing comes sooner, and nothing lasts longer.
func (st *RuleState) keepTime(c Conditions, now int64) {
	if back := st.turned - now; st.turned > 0 && back > 0 {
		st.setBack(back)
	}
	st.turned = now
	if c.Overloaded {
		st.overloaded = now
	}
	if c.Concentrated {
		st.concentrated = now
	}
}

// setBack sets all times back.
func (st *RuleState) setBack(by int64) {
	st.stepped = earlier(st.stepped, by)
	st.overloaded = earlier(st.overloaded, by)
	st.concentrated = earlier(st.concentrated, by)
	st.frozen = earlier(st.frozen, by)
	st.above = earlier(st.above, by)
	st.followed = setBack(st.followed, by)
	st.next = setBack(st.next, by)
	st.later = setBack(st.later, by)
}

// earlier returns a time that is set back; 0, which is none, stays.
func earlier(t, by int64) int64 {
	if t == 0 {
		return 0
	}
	return t - by
}

// advance passes to the next advice, and ends what is over.
func (st *RuleState) advance(s *Settings, now int64) {
	for st.next != nil && now >= st.next.effective {
		e := st.next
		above := st.above
		st.drop(Abstains)
		st.followed = e
		st.next = st.later
		st.later = nil
		if s.Gates != Bounds && e.rule != nil && e.rule.Above != nil {
			st.above = above // a threshold that is advised again goes on
		}
	}
	if e := st.followed; e != nil && now >= e.expires {
		st.drop(Expired)
	}
}

// follow moves what is in force.
func follow(s *Settings, st *RuleState, c Conditions, now int64, o *Outcome) {
	g := s.home()
	o.Why = st.back
	if e := st.followed; e != nil {
		o.Why = Abstains
		if e.rule != nil {
			o.Why = Followed
			if l := e.rule.Limit; l != nil {
				g = aim(s, st, l, e.rule.Forecast, c, now)
			}
		}
	}
	o.Target = g.requests
	if s.Gates != Bounds && st.overloaded == now && !st.isHome(s) {
		st.goHome(s)
		if !c.Switching {
			st.algorithm = s.Algorithm
		}
		st.stepped = now
		o.Why = GateOverload
		o.Target = s.Requests
		return
	}
	move(s, st, c, now, g, o)
	if g.why != "" {
		o.Why = g.why
	}
	if st.followed == nil && o.Why != Reverted && st.isHome(s) {
		o.Why = Configured
		st.back = Configured
	}
}

func (st *RuleState) isHome(s *Settings) bool {
	return st.requests == s.Requests && st.burst == s.usualBurst() && st.algorithm == s.Algorithm
}

// move takes a step towards a goal if one is due.
func move(s *Settings, st *RuleState, c Conditions, now int64, g goal, o *Outcome) {
	requests := g.requests
	burst := g.burst
	// The deadband holds no way back to the configured limit, and nothing that is on its way.
	if near(st.requests, requests) && requests != s.Requests && requests != st.aimed {
		requests = st.requests
		st.clamp(ClampDeadband)
		o.Why = HeldByDeadband
	}
	if near(st.burst, burst) && burst != s.usualBurst() && burst != st.aimedBurst {
		burst = st.burst
	}
	st.aimed = requests
	st.aimedBurst = burst
	if requests == st.requests && burst == st.burst && g.algorithm == st.algorithm {
		return
	}
	if st.stepped > 0 && second(now)-second(st.stepped) < s.Every {
		if o.Why == Followed {
			o.Why = HeldByStep
		}
		return
	}
	if g.algorithm != st.algorithm {
		if c.Switching {
			st.clamp(ClampAlgorithm)
			o.Why = HeldBySwitch
		} else {
			st.algorithm = g.algorithm
			st.stepped = now
		}
	}
	if requests != st.requests || burst != st.burst {
		st.requests = s.step(st.requests, requests)
		st.burst = s.step(st.burst, burst)
		st.stepped = now
	}
}

// second returns the whole second that is next to a time. Turns come some milliseconds after it, now more and now less: what has to wait for so many
// seconds would else sometimes wait for one more, on one node of a fleet and not on another.
func second(t int64) int64 { return (t + seconds/2) / seconds * seconds }

// near reports whether a target is within the deadband of what is in force, and is another.
func near(from, to int64) bool {
	difference := to - from
	if difference < 0 {
		difference = -difference
	}
	return difference > 0 && difference*deadband < from
}

// WalkBack returns how long a rule takes to be at the configured limit when its advice is over, in microseconds, but for changes of the algorithm that
// wait for one another.
func WalkBack(s *Settings, st *RuleState) int64 {
	steps := int64(0)
	requests := st.requests
	burst := st.burst
	for requests != s.Requests || burst != s.usualBurst() {
		requests = s.step(requests, s.Requests)
		burst = s.step(burst, s.usualBurst())
		steps++
	}
	if steps == 0 && st.algorithm != s.Algorithm {
		steps = 1
	}
	return steps * s.Every
}

// meaningOf returns what a reason to abstain means, with a colon before it; "" if it is none of those that our advisors have.
func meaningOf(reason string) string {
	switch reason {
	case "source":
		return ": Prometheus did not answer"
	case "history":
		return ": too little of it is known"
	case "gaps":
		return ": too much of the history is missing"
	case "outdated":
		return ": nothing is known of the last horizon"
	case "skill":
		return ": forecasts were not better than simpler ones"
	case "unneeded":
		return ": the configured limit is right within a tenth"
	case "pressure":
		return ": the pressure on the service is high"
	}
	return ""
}

// Explain returns an Outcome's reason in words, as the page and audit lines have it.
func Explain(o *Outcome) string {
	advised := "advice " + strconv.FormatInt(o.Serial, 10)
	if o.Reason != "" {
		advised += ", " + o.Reason
	}
	switch o.Why {
	case Followed:
		return advised
	case HeldByStep:
		return advised + ": the next step is not due"
	case HeldByDeadband:
		return advised + ": differs by less than a tenth"
	case HeldBySwitch:
		return "the algorithm changes when the change before is over"
	case GateUnknown:
		return advised + ": not loosened, since no guard watches the service"
	case GateWarmUp:
		return advised + ": not loosened before usual demand is learnt"
	case GateOverload:
		return "not loosened while the service is overloaded, and 30s after that"
	case GateConcentration:
		return advised + ": not loosened while few keys make an unusual part of the demand, and 30s after that"
	case Frozen:
		return "frozen by hand"
	case Expired:
		return "the advice is over; on its way to the configured limit"
	case Abstains:
		nothing := "advice " + strconv.FormatInt(o.Serial, 10) + " has nothing for this rule"
		if o.Reason != "" {
			nothing += " (" + o.Reason + meaningOf(o.Reason) + ")"
		}
		return nothing + "; the configured limit holds"
	case Reverted:
		return "reverted by hand"
	case Reloaded:
		return "the configuration was loaded again"
	}
	return "configured"
}
