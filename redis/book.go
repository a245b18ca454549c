package redis

import (
	"sync"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// Book is one key's place in Redis, for those who take leases or keep replicas of it themselves: a simulation of a fleet, whose nodes are not stores.
type Book struct {
	store *Store
	q     *inquiry
	rule  *core.Rule
	key   string
}

// NewBook returns the book of a key of a rule that is open in the store, and leased or with replicas.
func NewBook(s *Store, r *core.Rule, key string) *Book {
	o := opened(r)
	return &Book{s, &inquiry{rules: []*openRule{o}, call: &Call{}}, r, key}
}

// Lend makes a call about a lease, for a request of that cost; 0: for none.
func (b *Book) Lend(cost int64, a *rate.LeaseAsk) (rate.Decision, rate.LeaseGrant, error) {
	checks := []core.Check{{Rule: b.rule, Key: b.key, Cost: cost}}
	name := b.store.naming.key(b.key, b.q.rules[0].suffix)
	g, err := b.store.lend(b.q, checks, name, a)
	return checks[0].Decision, g, err
}

// Decide lets Redis decide on a request, whatever is held.
func (b *Book) Decide(cost int64) (rate.Decision, error) {
	checks := []core.Check{{Rule: b.rule, Key: b.key, Cost: cost}}
	err := b.store.ask(b.q, checks, false)
	return checks[0].Decision, err
}

// Exchange makes a call about a replica. If cost is not 0, Redis decides on a request of that cost in place of charging the call's units.
func (b *Book) Exchange(a *rate.ReplicaCall, cost int64) (rate.Decision, rate.ReplicaState, error) {
	c := core.Check{Rule: b.rule, Key: b.key, Cost: cost}
	one := &replicaVisit{of: &replicaOf{mu: &sync.Mutex{}, rule: b.rule, open: b.q.rules[0], name: b.store.naming.key(b.key, b.q.rules[0].suffix)}, call: *a}
	var state rate.ReplicaState
	call := &Call{}
	var err error
	if cost > 0 {
		err = b.store.replicas.try(call, []*replicaVisit{one}, &c)
	} else {
		err = b.store.replicas.try(call, []*replicaVisit{one}, nil)
	}
	if err != nil {
		return c.Decision, state, err
	}
	if !readDecision(b.rule, call.Reply, &c.Decision) {
		return c.Decision, state, errReply
	}
	return c.Decision, stateOfReply(call.Reply, 0, 1), nil
}
