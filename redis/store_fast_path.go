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

// express is the way of a request under one rule that costs 1, as most are, in as few steps as it can have: for interpreted
// programs, which pay for each of them. Its handlers have key, decision and header fields in one function, and leave what is rare to
// others: tools/flatten writes them.
type fastPath struct {
	store       *Store
	rule        *core.Rule
	open        *openRule
	server      *Server
	conn        Conn
	trouble     *atomic.Int64 // failures of the server in a row
	calls       *sync.Pool    // of *Call, ready but for the key
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

// ServeConfig is what Serve makes a handler of.
type ServeConfig struct {
	QuotaFields *core.QuotaFields
	Keys        Keyer

	// Direct says that a client's IPv4 address as the connection has it, all of it, is the key. Keys is asked for others.
	Direct bool

	Next http.Handler // where requests go that are allowed at once
	Rest Rest         // sees to all others

	// Watch, unless it is nil, counts and times. What is left to the Rest has not been counted; it has been timed, if it comes to Conclude.
	Metering *core.Metering
}

// Keyer makes the keys of requests.
type Keyer interface {
	// Key returns a request's key; "" is for a request that is to be left to the Rest.
	Key(r *http.Request) string
}

// Rest sees to the requests that are not allowed at once.
type Rest interface {
	// ServeHTTP decides on a request of which nothing has been charged.
	http.Handler

	// Conclude goes on with a request that has been decided on: c has the decision, or err says why there is none.
	Conclude(w http.ResponseWriter, r *http.Request, c *core.Check, err error)
}

// Serve returns a handler that does for a rule that has been opened in the store what Store.Decide and core.Tell do, in one
// function. Where the rule's limit follows the calendar, the rule has a conduct, or the server depends on the key, there is none: it returns nil then.
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
	return wayOf(e, c.Direct, c.Metering)
}

// wayOf returns the handler of an express way. watch is nil where nobody watches.
func wayOf(e *fastPath, direct bool, metering *core.Metering) http.Handler {
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

// decideSeldom goes the way of all, with a key of which little is known or that is rejected, and notes what its next
// request needs. Where a part of the key is missing or the server has failed it leaves the request to others.
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

// settle reads what a call has come to, where that is not that the request is allowed at once.
func settle(e *fastPath, w http.ResponseWriter, r *http.Request, key string, call *Call, hash uint64, now int64, err error) {
	checks := []core.Check{{Rule: e.rule, Key: key, Cost: 1}}
	c := &checks[0]
	if err != nil {
		e.store.failed(e.server, call.Keys[0], 0, err) // as ServeHTTP has seen it
	} else if len(call.Reply) != 4 || !readDecision(e.rule, call.Reply, &c.Decision) {
		err = errReply
	}
	if err == nil {
		e.store.memo.learn(hash, e.terms, now, 1, &c.Decision)
	} else {
		err = fmt.Errorf("%s: %w", e.server.name, e.store.refused(err, call.Script, checks))
		e.store.lastKnown(&inquiry{rules: []*openRule{e.open}, hashes: []uint64{hash}}, checks, e.store.clock())
	}
	if !errors.Is(err, ErrTimeout) { // the other is still being read
		e.calls.Put(call)
	}
	e.rest.Conclude(w, r, c, err)
}
