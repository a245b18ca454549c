package redis

import (
	"sort"
	"strconv"

	"github.com/proxyweir/weir/core"
)

// part is what of a request has one hash tag, and so lies in one slot.
type part struct {
	client string // whose key it is
	keys   []string
	rules  []*openRule
	checks []core.Check
	places []int // of the checks in the request

	shadow bool    // all its rules are shadows
	counts bool    // it has a rule with count_rejected
	share  float64 // how much its tightest enforced rule has left, as far as is known

	peeked   bool
	admitted bool
	time     int64 // the server's, at the call
}

// askBySlot decides on a request whose keys lie in several slots of a Cluster, which no script can see together: one call
// a slot, one after the other. Each call is atomic, but all of them together are not. The part that is the most likely to
// deny goes first: the one with the least left, as far as is known. After a denial nothing more is charged, and what was
// charged is given back. Until it is, others find less than there is, and where giving back fails it stays used: never is
// more admitted than a limit allows.
func (s *Store) askBySlot(q *inquiry, checks []core.Check, peek bool) error {
	parts := s.split(q, checks)
	denied := false
	for i, p := range parts {
		p.peeked = peek || denied && !p.counts
		call := &Call{Keys: p.keys}
		time, err := s.run(call, p.rules, p.checks, p.peeked, true)
		if err != nil {
			for _, charged := range parts[:i] {
				s.giveBack(charged)
			}
			return err
		}
		p.time = time
		p.admitted = true
		for j := range p.checks {
			if !p.checks[j].Decision.Allowed && !p.checks[j].Rule.Shadow() {
				p.admitted = false
				denied = true
			}
		}
	}
	for _, p := range parts {
		if denied {
			s.giveBack(p)
		}
		for j, place := range p.places {
			checks[place].Decision = p.checks[j].Decision
		}
	}
	return nil
}

// split returns the parts of a request, in the order that they are to be asked in. Shadows, which deny nothing, come last.
func (s *Store) split(q *inquiry, checks []core.Check) []*part {
	var parts []*part
	now := s.clock()
	for i := range checks {
		c := checks[i]
		var p *part
		for _, other := range parts {
			if other.client == c.Key {
				p = other
			}
		}
		if p == nil {
			p = &part{client: c.Key, shadow: true, share: 1}
			parts = append(parts, p)
		}
		p.keys = append(p.keys, q.call.Keys[i])
		p.rules = append(p.rules, q.rules[i])
		p.checks = append(p.checks, c)
		p.places = append(p.places, i)
		p.counts = p.counts || c.Rule.CountRejected()
		if c.Rule.Shadow() {
			continue
		}
		p.shadow = false
		var k known
		if s.memo.find(q.hashes[i], &k) {
			var d core.Decision
			k.last(now, q.rules[i].atOnce, &d)
			if share := float64(d.Remaining) / float64(d.Limit); share < p.share {
				p.share = share
			}
		}
	}
	sort.SliceStable(parts, func(i, j int) bool {
		if parts[i].shadow != parts[j].shadow {
			return parts[j].shadow
		}
		return parts[i].share < parts[j].share
	})
	return parts
}

// giveBack takes back what a part was charged if it has admitted the request, as well as it can be done, and tells how
// things stand without the charge.
func (s *Store) giveBack(p *part) {
	if !p.admitted {
		return // its script has charged nothing that is to be given back
	}
	for i := range p.checks {
		c := &p.checks[i]
		d := &c.Decision
		if !d.Allowed { // a shadow
			continue
		}
		d.Delay = 0
		d.Remaining += c.Cost
		if d.Remaining > d.Limit {
			d.Remaining = d.Limit
		}
		if p.peeked {
			continue
		}
		server := s.client.Server(p.keys[i])
		if server == nil || server.breaker.Open() {
			continue
		}
		refund := &Call{
			Script: scriptOfRefund,
			Keys:   p.keys[i : i+1],
			Args:   []string{s.argument(p.rules[i], c, false), strconv.FormatInt(p.time, 10)},
		}
		if err := server.conn.Run(refund); err != nil {
			s.failed(server, p.keys[i], err)
		}
	}
}
