package replay

import (
	"hash/maphash"
	"strings"

	"github.com/proxyweir/weir/core"
)

// pairing compares the rules in force with the candidate's, by their names.
type pairing struct {
	pairs []*pair
	of    [2][]int // which pair each rule of a side is in; -1: none
	alike [2]int64 // requests that both let through, or both reject
	newly [2]int64 // requests that the candidate alone rejects, and that it alone lets through
}

// pair is a rule of both sides.
type pair struct {
	rules    [2]int // places
	newly    [2]int64
	affected *keyTable // by the key of the side that rejects; rejected counts what is newly rejected
	spared   map[uint32]int64
	now      [2]outcome // of the request that is compared
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
			p.pairs = append(p.pairs, &pair{rules: [2]int{i, at}, affected: newKeyTable(), spared: make(map[uint32]int64)})
		}
	}
	return p
}

// compare compares what both sides have made of a request.
func (p *pairing) compare(r *request, sides []*side) {
	refused := [2]bool{sides[0].verdict.Outcome == core.Reject, sides[1].verdict.Outcome == core.Reject}
	switch {
	case refused[0] == refused[1]:
		p.alike[index(refused[0])]++
	case refused[1]:
		p.newly[0]++
	default:
		p.newly[1]++
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

// conclude counts what the two rules have made of a request.
func (p *pair) conclude() {
	before, after := p.now[0] == turnedAway, p.now[1] == turnedAway
	if before != after {
		key := p.key[index(after)]
		k, at := p.affected.count(maphash.String(seed, key))
		if _, ok := p.affected.names[at]; !ok {
			p.affected.names[at] = strings.Clone(key)
		}
		if after {
			p.newly[0]++
			k.rejected++
		} else {
			p.newly[1]++
			p.spared[at]++
		}
	}
	p.now = [2]outcome{}
	p.key = [2]string{}
	p.met = false
}

// clients says how many keys only the candidate touches, and how many only the rule in force.
func (p *pair) clients(sides []*side) (touched, spared int64) {
	old, candidate := sides[0].tallies[p.rules[0]].keys, sides[1].tallies[p.rules[1]].keys
	for hash, place := range candidate.places {
		if candidate.counts[place].rejected > 0 && old.rejections(hash) == 0 {
			touched++
		}
	}
	for hash, place := range old.places {
		if old.counts[place].rejected > 0 && candidate.rejections(hash) == 0 {
			spared++
		}
	}
	return touched, spared
}
