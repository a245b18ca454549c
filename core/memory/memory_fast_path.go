package memory

import (
	"hash/maphash"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// FastPath decides on requests under one rule in a Store, in as few steps as possible. It is for interpreted programs, which pay
// for each step. NewFastPath makes it. It is safe for concurrent use.
type FastPath struct {
	shards    []*shard
	mask      uint64
	seed      maphash.Seed
	salt      uint64       // with the bit kindBit of a hash
	clock     func() int64 // nil: the wall clock
	limit     *rate.Limit
	algorithm rate.Algorithm

	rule          *core.Rule
	memory        *Store
	space         *space
	countRejected bool
	accounts      bool   // keys may have an account: such keys are left to the rest
	ahead         *int64 // Config.Ahead; nil: the store has none, and nobody is told what is admitted
}

// NewFastPath returns the fast path of a rule that was opened in m. It returns nil if there is none: if m is not Mapped, if the
// algorithm has none, or if the rule counts by status. Of a rule with an overflow policy it decides for keys that this policy has nothing to do with: those
// within the limit that have no account.
func NewFastPath(m *Store, r *core.Rule) *FastPath {
	if !m.mapped || !r.Limit.FastPath || r.CountsByResponse() || r.Overflow != nil && r.Overflow.Candidate {
		return nil
	}
	return newFastPath(m, r)
}

// Costing returns the fast path for requests whose cost is not 1, of which it leaves those that are not allowed to the rest; nil: there is none.
func Costing(e *FastPath, cost int64) *FastPath {
	var none *FastPath
	limit := e.limit.Costing(cost)
	if limit == nil {
		return none
	}
	other := *e
	other.limit = limit
	return &other
}

// NewLinkedPath returns what ServeSeveral needs of a rule that is decided together with another: a candidate, or a limit of requests in flight. It
// returns nil if m is not Mapped, or windows of the limit do not begin by the clock.
func NewLinkedPath(m *Store, r *core.Rule) *FastPath {
	if !m.mapped || r.Limit.Start != rate.ByClock {
		return nil
	}
	return newFastPath(m, r)
}

func newFastPath(m *Store, r *core.Rule) *FastPath {
	sp := r.InMemory.(*space)
	return &FastPath{rule: r, shards: m.ways, mask: m.mask, seed: m.seed, salt: sp.salt&^kindBit | sp.kind, clock: m.ownClock, limit: r.Limit, algorithm: r.Limit.Algorithm, memory: m, space: sp, countRejected: r.CountRejected, accounts: r.Overflow != nil, ahead: m.ahead}
}

// Take decides on a request of that key at a cost of 1, as Store.Decide does, and charges it. If the request is allowed at once,
// Take returns how much remains, and in how many microseconds the quota is whole again and more is left. Else remaining is -1,
// and nothing has changed: the caller must ask Decide. That is also so in rare cases, such as a new key, or one that is not fast: see Note.
//
// It is written for the interpreter: a variable that is declared before it is set, and set only once, is allocated once; a call
// of a function takes half the time of a call of a method.
func Take(e *FastPath, key string) (remaining, reset, more int64) {
	var (
		s     *shard
		hash  uint64
		i     int
		ok    bool
		now   int64
		state *rate.State
	)
	hash = maphash.String(e.seed, key)&^kindBit ^ e.salt
	s = e.shards[hash&e.mask]
	s.mu.Lock()
	if e.clock == nil { // under the lock, so that the clock does not go back for a key
		now = time.Now().UnixMicro()
	} else {
		now = e.clock()
	}
	i, ok = s.fast[hash]
	if !ok || e.accounts && s.owners[i]&accounted != 0 {
		s.mu.Unlock()
		return -1, 0, 0
	}
	state = &s.slots[i].state
	if e.ahead == nil {
		remaining, reset, more = takeIn(s, e.limit, state, now)
	} else {
		remaining, reset, more = takeIn(s, e.limit, state, now+atomic.LoadInt64(e.ahead))
		if remaining >= 0 {
			s.admitted[i]++
		}
	}
	s.mu.Unlock()
	return remaining, reset, more
}

// KeyIn returns the key of a request, as the fields Direct and Key of a ServeConfig say.
//
//flatten:inline
func KeyIn(direct bool, keyOf func(r *http.Request) string, r *http.Request) (key string) {
	var i int
	if direct {
		key = r.RemoteAddr
		i = strings.IndexAny(key, ":[") // 0 for an IPv6 address
	}
	if i > 0 {
		key = key[:i]
	} else {
		key = keyOf(r)
	}
	return key
}

// ServeConfig says what Serve does with requests.
type ServeConfig struct {
	// Key returns the key of a request; NoKey leaves the request to Keyless. If the key is Direct, it is the client's IPv4 address, as the
	// connection has it, and Key is asked about all other clients.
	Key     func(r *http.Request) string
	NoKey   string // a text that is hardly ever a key, if "" is one
	Direct  bool
	Keyless http.Handler

	// Of several rules, each has a key of its own: Key is not asked.
	Apart bool

	QuotaFields *QuotaFields
	Metering    *Metering // nil: the rule is not metered
	Guarding    *Guarding // nil: there is no guard
	Refusal     *Refusal  // nil: rejections are left to Rest

	// Until Noticed is set, a request that has the header field Watched is left to Rest if its key is new or it is rejected. Watched is ""
	// if nobody wants to know.
	Watched string
	Noticed *atomic.Bool

	// While it is not 0, for functions of sync/atomic, package redis leaves requests to Rest if their key is new, or was forgotten. nil: it never is.
	Excepted *int32

	Next http.Handler // gets the requests that are allowed; those that ask for a ticket go where the Guarding says
	Rest http.Handler // gets those that Serve leaves
}
