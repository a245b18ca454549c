package redis

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/proxyweir/weir/core"
)

// fastPath serves requests that cost 1 under one rule, as most do, in as few steps as possible: an interpreted program pays for each step.
// tools/flatten writes its handlers. They have the key, the decision and the header fields in one function, and leave rare cases to the
// general path.
type fastPath struct {
	store       *Store
	rule        *core.Rule
	open        *openRule
	server      *Server
	conn        Conn
	trouble     *atomic.Int64 // failures of the server in a row
	calls       *sync.Pool    // of *Call, complete except for the key
	clock       func() int64  // nil: monotonic
	shards      []*memoShard
	seed        maphash.Seed
	salt        uint64
	terms       uint64
	quota       int64
	keys        Keyer
	quotaFields *core.QuotaFields
	next        http.Handler
	rest        Rest
}

// ServeConfig configures a handler of Serve.
type ServeConfig struct {
	QuotaFields *core.QuotaFields
	Keys        Keyer

	// Direct says that the key is the client's whole IPv4 address, as the connection has it. Keys makes the keys of other clients.
	Direct bool

	Next http.Handler // gets the requests that are allowed at once
	Rest Rest         // gets all others

	// Metering counts requests and times decisions; nil: nothing does. It does not count the requests that the Rest gets. It times those
	// that come to Conclude.
	Metering *core.Metering
}

// Keyer makes the keys of requests.
type Keyer interface {
	// Key returns a request's key; "" leaves the request to the Rest.
	Key(r *http.Request) string
}

// Rest handles the requests that are not allowed at once.
type Rest interface {
	// ServeHTTP decides on a request that has not been charged.
	http.Handler

	// Conclude continues with a request after its decision: c has the decision, or err says why there is none.
	Conclude(w http.ResponseWriter, r *http.Request, c *core.Check, err error)
}

// Serve returns a handler with a fast path for a rule that is open in the store. It does the same as Store.Decide and core.SetQuotaFields,
// in one function. It returns nil if there is no fast path: because the rule's limit follows the calendar, the rule has an overflow policy,
// or the server depends on the key.
func Serve(s *Store, r *core.Rule, c ServeConfig) http.Handler {
	o := opened(r)
	if o == nil || o.charge == "" || o.further != nil || s.client.Cluster() {
		return nil
	}
	server, err := s.client.Server("")
	if err != nil {
		return nil
	}
	e := &fastPath{
		store:       s,
		rule:        r,
		open:        o,
		server:      server,
		conn:        server.conn,
		trouble:     server.trouble,
		clock:       s.ownClock,
		seed:        s.seed,
		salt:        o.salt,
		terms:       o.terms,
		quota:       r.Limit().Quota(),
		keys:        c.Keys,
		quotaFields: c.QuotaFields,
		next:        c.Next,
		rest:        c.Rest,
	}
	for i := range s.memo.shards {
		e.shards = append(e.shards, &s.memo.shards[i])
	}
	script := s.scripts[r.Limit().Algorithm()]
	e.calls = &sync.Pool{New: func() interface{} {
		return &Call{Script: script, Keys: make([]string, 1), Args: []string{o.charge}, Constant: true}
	}}
	return handlerOf(e, c.Direct, c.Metering)
}

// handlerOf returns the handler of a fast path. metering is nil if nothing is metered.
func handlerOf(e *fastPath, direct bool, metering *core.Metering) http.Handler {
	if metering == nil {
		if direct {
			return &byAddress{fastPath: e, byKey: &byKey{fastPath: e}}
		}
		return &byKey{fastPath: e}
	}
	if direct {
		return newByAddressMetered(e, metering, newByKeyMetered(e, metering))
	}
	return newByKeyMetered(e, metering)
}

// decideSeldom takes the general path for a key that the memo does not know, or knows to be rejected, and notes the name that the key's
// next request needs. If a part of the key is missing, or the server has failed, it leaves the request to the Rest.
func decideSeldom(e *fastPath, w http.ResponseWriter, r *http.Request, key string, hash uint64) {
	if key == "" || e.trouble.Load() != 0 {
		e.rest.ServeHTTP(w, r)
		return
	}
	checks := []core.Check{{Rule: e.rule, Key: key, Cost: 1}}
	c := &checks[0]
	err := e.store.Decide(checks, false)
	if err == nil {
		name := e.store.naming.key(key, e.open.suffix)
		shard := e.shards[hash%memoShards]
		shard.mu.Lock()
		if k := e.store.memo.entry(shard, hash); k.until == 0 {
			k.name = name
		}
		shard.mu.Unlock()
	}
	e.rest.Conclude(w, r, c, err)
}

// settle reads the result of a call, unless that allows the request at once, and passes it to the Rest.
func settle(e *fastPath, w http.ResponseWriter, r *http.Request, key string, call *Call, hash uint64, now int64, err error) {
	checks := []core.Check{{Rule: e.rule, Key: key, Cost: 1}}
	c := &checks[0]
	if err != nil {
		e.store.failed(e.server, call.Keys[0], 0, err) // ServeHTTP has seen no failures before the call
	} else if len(call.Reply) != 4 || !readDecision(e.rule, call.Reply, &c.Decision) {
		err = errReply
	}
	if err == nil {
		e.store.memo.learn(hash, e.terms, now, 1, &c.Decision)
	} else {
		err = fmt.Errorf("%s: %w", e.server.name, e.store.refused(err, call.Script, checks))
		e.store.lastKnown(&inquiry{rules: []*openRule{e.open}, hashes: []uint64{hash}}, checks, e.store.clock())
	}
	if !errors.Is(err, ErrTimeout) { // after which the Conn may still read the call
		e.calls.Put(call)
	}
	e.rest.Conclude(w, r, c, err)
}
