package replay

import (
	"hash/maphash"
	"strings"

	"github.com/proxyweir/weir/core"
)

// side is one set of rules with what has become of requests under them.
type side struct {
	rules   *Rules
	player  *player
	tallies []*tally // of the rules
	checks  []core.Check
	owners  []int32 // of checks: which of the request's checks each is for
	verdict core.Verdict
	allowed int64 // requests by verdict
	soft    int64
	delayed int64
	refused int64
	outcome []outcome // of the request's checks
}

// outcome is what one rule has made of a request.
type outcome int

const (
	notAsked      outcome = iota // the log lacks what it would go by
	passed                       // within the limit
	passedSoft                   // over it, by tolerance
	passedDelayed                // after a wait
	turnedAway                   // over the limit, shut out, or for want of a place
	notCounted                   // within the limit, and rejected by another rule
)

// tally is what has become of one rule's requests.
type tally struct {
	requests int64
	by       [notCounted + 1]int64
	places   int64 // of those turned away: for want of a place alone
	lacking  map[missed]int64
	compared [2][2]int64 // by the rule's own candidate: allowed by the limit, by the candidate
	keys     *keyTable
	series   series
	minutes  minutes
}

// missed is a field that a log lacks.
type missed struct {
	field int32
	how   lack
}

func newSide(rules *Rules) (*side, error) {
	if rules.delays() {
		for _, r := range rules.set.All() {
			r.Accompany()
		}
	}
	var open []*core.Rule
	for _, r := range rules.set.Rules {
		open = append(open, r.Limits.Rules()...)
	}
	player, err := newPlayer(open)
	if err != nil {
		return nil, err
	}
	s := &side{rules: rules, player: player}
	for range rules.set.Rules {
		s.tallies = append(s.tallies, &tally{lacking: make(map[missed]int64), keys: newKeyTable()})
	}
	return s, nil
}

// decide decides a request and counts what has become of it. seen are the fields that the log is known to have.
func (s *side) decide(at int64, r *request, list []check, seen *fieldSet) {
	s.checks, s.owners, s.outcome = s.checks[:0], s.owners[:0], s.outcome[:0]
	for i := range list {
		c := &list[i]
		s.outcome = append(s.outcome, notAsked)
		if c.lack != known && (c.lack != doubtful || !seen.has(int(c.field))) {
			s.tallies[c.rule].lacking[missed{c.field, c.lack}]++
			continue
		}
		if c.limit == nil {
			continue
		}
		s.checks = append(s.checks, core.Check{Rule: c.limit, Key: c.key, Cost: c.cost})
		s.owners = append(s.owners, int32(i))
		for _, other := range c.limit.Beside() {
			s.checks = append(s.checks, core.Check{Rule: other, Key: c.key, Cost: c.cost})
			s.owners = append(s.owners, int32(i))
		}
	}
	s.verdict = core.Verdict{Told: -1}
	if len(s.checks) > 0 {
		s.player.decide(at, r, s.checks, &s.verdict)
	} else {
		s.player.advance(at)
	}
	switch {
	case s.verdict.Outcome == core.Reject:
		s.refused++
	case s.verdict.Outcome == core.Delay:
		s.delayed++
	case s.verdict.Soft:
		s.soft++
	default:
		s.allowed++
	}
	s.count(at, list)
}

// count counts what the rules have made of a request.
func (s *side) count(at int64, list []check) {
	var lastKey string
	var hash uint64
	for i := 0; i < len(s.checks); {
		first := i
		c := &s.checks[i]
		place := s.owners[i]
		t := s.tallies[list[place].rule]
		full := false
		for i++; i < len(s.checks) && s.owners[i] == place; i++ {
			beside := &s.checks[i]
			if beside.Rule.IsCandidate() {
				t.compared[index(c.Decision.Allowed)][index(beside.Decision.Allowed)]++
			} else {
				full = full || !beside.Decision.Allowed
			}
		}
		o := s.outcomeOf(c, full)
		s.outcome[place] = o
		t.requests++
		t.by[o]++
		if o == turnedAway && (c.Decision.Allowed || c.Rule.Limit().InFlight()) {
			t.places++
		}
		t.series.count(at, o == turnedAway)
		t.minutes.count(at, o == turnedAway)
		if first == 0 || c.Key != lastKey {
			lastKey = c.Key
			hash = maphash.String(seed, lastKey)
		}
		k, at := t.keys.count(hash)
		k.requests++
		k.peak = max(k.peak, share(&c.Decision))
		if o == turnedAway {
			if k.rejected == 0 {
				t.keys.names[at] = strings.Clone(c.Key)
			}
			k.rejected++
		}
	}
}

// outcomeOf says what a rule has made of a request, of which c is the check of its limit; full is whether it had no place for it.
func (s *side) outcomeOf(c *core.Check, full bool) outcome {
	switch {
	case full || !c.Decision.Allowed:
		return turnedAway
	case s.verdict.Outcome == core.Reject:
		return notCounted
	case c.Rule.Shadow():
		return passed
	case c.Decision.Soft:
		return passedSoft
	case c.Decision.Delay > 0:
		return passedDelayed
	}
	return passed
}

// share returns how much of its limit is in use, in thousandths.
func share(d *core.Decision) uint16 {
	if d.Limit <= 0 || !d.Allowed {
		return 1000
	}
	return uint16(min(max((d.Limit-d.Remaining)*1000/d.Limit, 0), 1000))
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}
