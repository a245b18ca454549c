package redis

import (
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// Book is one key's place in Redis, for those who take leases of it themselves: a simulation of a fleet, whose nodes are not stores.
//
// It has this file for itself, since the interpreter resolves types in the order of the files, and loads the package only if this one comes before Store.
type Book struct {
	store *Store
	q     *callState
	rule  *core.Rule
	key   string
}

// NewBook returns the book of a key of a rule that is open in the store, and leased.
func NewBook(s *Store, r *core.Rule, key string) *Book {
	o := opened(r)
	return &Book{s, &callState{rules: []*openRule{o}, call: &Call{}}, r, key}
}

// Lend makes a call about a lease, for a request of that cost; 0: for none.
func (b *Book) Lend(cost int64, a *rate.LeaseAsk) (rate.Decision, rate.LeaseGrant, error) {
	checks := []core.Check{{Rule: b.rule, Key: b.key, Cost: cost}}
	name := b.store.naming.key(b.key, b.q.rules[0].suffix)
	g, err := b.store.lend(b.q, checks, name, a)
	return checks[0].Decision, g, err
}

// Decide lets Redis decide on a request, whatever is held. What the request has reserved is for Settle of the store.
func (b *Book) Decide(cost int64) (rate.Decision, []core.Reservation, error) {
	checks := []core.Check{{Rule: b.rule, Key: b.key, Cost: cost}}
	err := b.store.ask(b.q, checks, false)
	return checks[0].Decision, core.AppendReservations(nil, checks), err
}

// Charge charges units, whatever the limit says.
func (b *Book) Charge(units int64) error {
	return b.store.Settle([]core.Reservation{{Rule: b.rule, Key: b.key, Units: units}})
}
