package replay

import (
	"hash/maphash"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/rate"
)

// side is one set of rules with the outcomes of requests under them.
type side struct {
	rules   *Rules
	player  *player
	tallies []*tally // of the rules
	checks  []core.Check
	owners  []int32 // of checks: the index of the request check that each belongs to
	verdict core.Verdict
	allowed int64 // requests by verdict
	soft    int64
	delayed int64
	refused int64
	outcome []front.Outcome // of the request's checks
}

// tally counts the outcomes of one rule's requests.
type tally struct {
	requests int64
	by       [front.NotCounted + 1]int64
	places   int64 // of the rejected ones: only for lack of a place
	lacking  map[missed]int64
	compared [front.Comparisons]int64 // by the rule's own candidate
	keys     *keyTable
	series   series
	minutes  minutes
}

// missed is a field that the log lacks, and why.
type missed struct {
	field int32
	how   lack
}

func newSide(rules *Rules) (*side, error) {
	if rules.delays() {
		for _, r := range rules.set.All() {
			r.TrackReservations()
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
		s.tallies = append(s.tallies, &tally{lacking: make(map[missed]int64), keys: newKeyTable(), series: newSeries()})
	}
	return s, nil
}

// decide decides a request and counts its outcome. seen are the fields that the log is known to have.
func (s *side) decide(at int64, r *request, list []check, seen []bool) {
	s.checks, s.owners, s.outcome = s.checks[:0], s.owners[:0], s.outcome[:0]
	for i := range list {
		c := &list[i]
		s.outcome = append(s.outcome, front.NotCounted)
		if !c.asks(seen) {
			s.tallies[c.rule].lacking[missed{c.field, c.lack}]++
			continue
		}
		if c.limit == nil {
			continue
		}
		s.checks = append(s.checks, core.Check{Rule: c.limit, Key: c.key, Cost: c.cost})
		s.owners = append(s.owners, int32(i))
	}
	s.verdict = core.Verdict{Reported: -1}
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

// count counts the outcomes of a request under the rules.
func (s *side) count(at int64, list []check) {
	var part front.Part
	var lastKey string
	var hash uint64
	for i := range s.checks {
		c := &s.checks[i]
		place := s.owners[i]
		t := s.tallies[list[place].rule]
		front.PartOf(c, &s.verdict, false, &part)
		if part.Compared != front.NotCompared {
			t.compared[part.Compared]++
		}
		o := part.Outcome
		if o == front.Allowed && s.verdict.Outcome == core.Reject { // of a shadow
			o = front.NotCounted
		}
		rejects := isRejection(o)
		s.outcome[place] = o
		t.requests++
		t.by[o]++
		if rejects && (part.Check != c || c.Rule.Limit.InFlight) {
			t.places++
		}
		t.series.count(at, rejects)
		t.minutes.count(at, rejects)
		if i == 0 || c.Key != lastKey {
			lastKey = c.Key
			hash = maphash.String(seed, lastKey)
		}
		k, at := t.keys.count(hash)
		k.requests++
		k.peak = max(k.peak, share(&c.Decision))
		if rejects {
			if k.rejected == 0 {
				t.keys.names[at] = strings.Clone(c.Key)
			}
			k.rejected++
		}
	}
}

// isRejection reports whether a rule has rejected a request, or would have as a shadow.
func isRejection(o front.Outcome) bool { return o == front.Rejected || o == front.ShadowRejected }

// share returns how much of its limit is in use, in thousandths.
func share(d *rate.Decision) uint16 {
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
