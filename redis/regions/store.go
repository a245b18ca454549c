package regions

import (
	"sync/atomic"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/redis"
)

// Store is a core.Store for rules with `regions lease`, and for all others of a region's store. Such a limit is divided: each region keeps to its share by itself, in its own
// Redis, and what is left is lent by that of one region, home, to the nodes of all, for up to 10 s at a time. A request that has no units of a lease is decided by the
// share. So nobody waits for another region, and the limit is never exceeded, since its parts are not: see rate.Limit.Divided. It is safe for concurrent use.
type Store struct {
	own, home *redis.Store
	share     float64
	regions   int

	open  atomic.Int64 // rules with regions lease
	apart atomic.Bool  // regions have settings that contradict each other: each keeps to its share, so that they do not lend more than there is
}

// NewStore returns the store of a region. home is that of the region that lends, perhaps own.
func NewStore(own, home *redis.Store, s *Settings) *Store {
	return &Store{own: own, home: home, share: s.Share, regions: len(s.Peers) + 1}
}

// soon is after how long a request may be tried again for which units were asked for, in microseconds.
const soon = 1_000_000

// parts are the rules that a rule with regions lease is divided into.
type parts struct{ share, rest *core.Rule }

// Fits implements core.Selective.
func (s *Store) Fits(r *core.Rule) error {
	if !r.LeasesFromHome() {
		return s.own.Fits(r)
	}
	if s.share == 0 {
		return words.Wrong("regions", "lease", "the store has no share: write the part of limits that each region keeps to by itself, such as share 0.1, the same in all regions")
	}
	_, _, err := r.Divided(s.share, s.regions)
	return err
}

// Open implements core.Store.
func (s *Store) Open(r *core.Rule) error {
	if !r.LeasesFromHome() {
		return s.own.Open(r)
	}
	share, rest, err := r.Divided(s.share, s.regions)
	if err == nil {
		err = s.own.Open(share)
	}
	if err != nil {
		return err
	}
	if err = s.home.Open(rest); err != nil {
		s.own.Release(share)
		return err
	}
	s.open.Add(1)
	r.Keep(&parts{share, rest})
	return nil
}

func partsOf(r *core.Rule) *parts {
	p, _ := r.Kept().(*parts)
	return p
}

// Release implements core.Store.
func (s *Store) Release(r *core.Rule) {
	if p := partsOf(r); p != nil {
		s.open.Add(-1)
		s.own.Release(p.share)
		s.home.Release(p.rest)
		return
	}
	s.own.Release(r)
}

// Decide implements core.Store.
func (s *Store) Decide(checks []core.Check, peek bool) error {
	divided := false
	for i := range checks {
		divided = divided || checks[i].Rule.LeasesFromHome()
	}
	if !divided {
		return s.own.Decide(checks, peek)
	}
	rest := make([]core.Check, 0, len(checks))
	lent := make([]*redis.Lent, len(checks)) // of those whose units are held
	coming := make([]bool, len(checks))      // of those for which units were asked for
	for i := range checks {
		one := checks[i]
		if p := partsOf(one.Rule); p != nil {
			one.Rule = p.rest
			taken := &redis.Lent{}
			if !s.apart.Load() && s.home.TakeLease(&one, peek, taken) {
				lent[i] = taken
				show(&checks[i], &one, 0)
				continue
			}
			coming[i] = taken.Coming
			one.Rule = p.share
		}
		rest = append(rest, one)
	}
	var err error
	if len(rest) > 0 {
		err = s.own.Decide(rest, peek)
	}
	rejected := err != nil
	n := 0
	for i := range checks {
		if lent[i] != nil {
			continue
		}
		one := rest[n]
		n++
		if p := partsOf(checks[i].Rule); p != nil {
			show(&checks[i], &one, p.rest.Limit.Capacity)
			d := &checks[i].Decision
			if err != nil && one.Decision.Limit > 0 { // what was known of the share last, as of the limit: see core.Limiter.FallBack
				d.Remaining = one.Decision.Remaining * d.Limit / one.Decision.Limit
			}
			if coming[i] && !d.Allowed && d.RetryAfter > soon {
				d.RetryAfter = soon
			}
		} else {
			checks[i] = one
		}
		rejected = rejected || !checks[i].Decision.Allowed && !checks[i].Rule.Shadow
	}
	if rejected && !peek {
		for i := range checks {
			if lent[i] != nil {
				one := checks[i]
				one.Rule = partsOf(one.Rule).rest
				s.home.GiveBack(&one, lent[i])
				show(&checks[i], &one, 0)
			}
		}
	}
	return err
}

// show sets a check's decision to that of a part. A cost of which the share never admits so much may be lent, up to most.
func show(c, part *core.Check, most int64) {
	c.Decision = part.Decision
	if c.Decision.Limit > 0 {
		c.Decision.Limit = c.Rule.Limit.Quota
	}
	if !c.Decision.Allowed && c.Decision.RetryAfter == rate.Never && c.Cost <= most {
		c.Decision.RetryAfter = soon
	}
}

// Settle implements core.Store. No rule with regions lease reserves anything.
func (s *Store) Settle(reservations []core.Reservation) error { return s.own.Settle(reservations) }

// Block implements core.Store. In other regions the key's share goes on.
func (s *Store) Block(r *core.Rule, key string, duration int64) error {
	p := partsOf(r)
	if p == nil {
		return s.own.Block(r, key, duration)
	}
	err := s.home.Block(p.rest, key, duration)
	if own := s.own.Block(p.share, key, duration); err == nil {
		err = own
	}
	return err
}

// Reset implements core.Store.
func (s *Store) Reset(r *core.Rule, key string) error {
	p := partsOf(r)
	if p == nil {
		return s.own.Reset(r, key)
	}
	err := s.home.Reset(p.rest, key)
	if own := s.own.Reset(p.share, key); err == nil {
		err = own
	}
	return err
}

// Credit implements core.Store: the units come from what is lent.
func (s *Store) Credit(r *core.Rule, key string, units int64) error {
	if p := partsOf(r); p != nil {
		return s.home.Credit(p.rest, key, units)
	}
	return s.own.Credit(r, key, units)
}

// Carry implements core.Store. Of rules with regions lease the blocks in this region's Redis are carried.
func (s *Store) Carry(from, to *core.Rule, done func()) {
	if p := partsOf(from); p != nil {
		from = p.share
	}
	if p := partsOf(to); p != nil {
		to = p.share
	}
	s.own.Carry(from, to, done)
}

// Now implements core.Store.
func (s *Store) Now() int64 { return s.own.Now() }

var _ core.Store = (*Store)(nil)
