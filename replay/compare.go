package replay

import (
	"hash/maphash"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
)

// pairing compares the rules in force with the candidate's, by their names.
type pairing struct {
	pairs []*pair
	of    [2][]int // which pair each rule of a side is in; -1: none
	newly [2]int64 // requests that only the candidate rejects, and that only it allows
}

// pair is a rule of both sides.
type pair struct {
	rules    [2]int  // places
	rejects  [2]bool // whether requests over a side's limit count as rejected: a shadow rejects nobody
	newly    [2]int64
	affected *keyTable // by the key of the side that rejects; rejected counts new rejections
	spared   map[uint32]int64
	now      [2]front.Outcome // of the request that is compared
	key      [2]string
	met      bool
}

func newPairing(old, candidate *Rules) *pairing {
	p := &pairing{}
	places := make(map[string]int)
	for i, r := range candidate.set.Rules {
		places[r.Name] = i
		p.of[1] = append(p.of[1], -1)
	}
	for i, r := range old.set.Rules {
		p.of[0] = append(p.of[0], -1)
		if at, ok := places[r.Name]; ok {
			p.of[0][i] = len(p.pairs)
			p.of[1][at] = len(p.pairs)
			one := &pair{rules: [2]int{i, at}, affected: newKeyTable(), spared: make(map[uint32]int64)}
			shadow := [2]bool{r.Shadow, candidate.set.Rules[at].Shadow}
			both := shadow[0] && shadow[1] // are compared by what they would reject
			one.rejects = [2]bool{both || !shadow[0], both || !shadow[1]}
			p.pairs = append(p.pairs, one)
		}
	}
	return p
}

// compare compares the decisions of both sides on a request.
func (p *pairing) compare(r *request, sides []*side) {
	before, after := sides[0].verdict.Outcome == core.Reject, sides[1].verdict.Outcome == core.Reject
	if before != after {
		p.newly[index(before)]++
	}
	for i, s := range sides {
		for j := range r.checks[i] {
			c := &r.checks[i][j]
			if at := p.of[i][c.rule]; at >= 0 {
				one := p.pairs[at]
				one.now[i] = s.outcome[j]
				one.key[i] = c.key
				one.met = true
			}
		}
	}
	for i := range r.checks {
		for j := range r.checks[i] {
			if at := p.of[i][r.checks[i][j].rule]; at >= 0 && p.pairs[at].met {
				p.pairs[at].conclude()
			}
		}
	}
}

// conclude counts the outcomes of a request under the two rules.
func (p *pair) conclude() {
	before, after := p.rejects[0] && isRejection(p.now[0]), p.rejects[1] && isRejection(p.now[1])
	if before != after {
		key := p.key[index(after)]
		k, at := p.affected.count(maphash.String(seed, key))
		if _, ok := p.affected.names[at]; !ok {
			p.affected.names[at] = strings.Clone(key)
		}
		p.newly[index(before)]++
		if after {
			k.rejected++
		} else {
			p.spared[at]++
		}
	}
	p.now, p.key, p.met = [2]front.Outcome{}, [2]string{}, false
}

// clients returns how many keys only the candidate touches, and how many only the rule in force.
func (p *pair) clients(sides []*side) (touched, spared int64) {
	old, candidate := sides[0].tallies[p.rules[0]].keys, sides[1].tallies[p.rules[1]].keys
	return p.touchedOnly(1, candidate, old), p.touchedOnly(0, old, candidate)
}

// touchedOnly returns how many keys one side rejects and the other does not.
func (p *pair) touchedOnly(side int, keys, others *keyTable) (n int64) {
	if !p.rejects[side] {
		return 0
	}
	for hash, place := range keys.places {
		if keys.counts[place].rejected > 0 && (!p.rejects[1-side] || others.rejections(hash) == 0) {
			n++
		}
	}
	return n
}
