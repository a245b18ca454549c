package redis

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/proxyweir/weir/core"
)

// fastPath serves requests that cost 1 under one rule, as most do, in as few steps as possible: an interpreted program pays for each step.
// tools/flatten writes its handlers. They have the key, the decision and the header fields in one function, and leave rare cases to the
// general path.
type fastPath struct {
	store      *Store
	rule       *core.Rule
	open       *openRule
	server     *Server
	pipeline   *Pipeline
	trouble    *atomic.Int64 // failures of the server in a row
	script     *Script
	head, tail string       // of a command, around the key
	clock      func() int64 // nil: monotonic
	shards     []*memoShard
	lent       []*lesseeShard // of a leased rule
	seed       maphash.Seed
	salt       uint64
	quota      int64
	rest       Rest
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
// in one function. It returns nil if there is no fast path: because the rule has an overflow policy or replicas; or because it is not leased, and its limit follows the
// calendar, or the server depends on the key, or has no Pipeline.
func Serve(s *Store, r *core.Rule, c ServeConfig) http.Handler {
	var none http.Handler
	o := opened(r)
	if o == nil || o.further != nil || o.sync != nil {
		return none
	}
	e := newFastPath(s, r, o, c.Rest)
	if o.lease != nil {
		for i := range s.lessee.shards {
			e.lent = append(e.lent, &s.lessee.shards[i])
		}
		return handlerOf(e, &c)
	}
	if o.charge == "" || s.client.Cluster() {
		return none
	}
	server, err := s.client.Server("")
	if err != nil || server.pipeline == nil {
		return none
	}
	e.server = server
	e.pipeline = server.pipeline
	e.trouble = server.trouble
	for i := range s.memo.shards {
		e.shards = append(e.shards, &s.memo.shards[i])
	}
	e.script = scriptsOfOneLine[r.Limit().Algorithm()]
	e.head = "*5\r\n" + argumentText("EVALSHA") + argumentText(e.script.SHA1) + argumentText("1")
	e.tail = argumentText(o.charge)
	return handlerOf(e, &c)
}

// newFastPath returns what all fast paths of a rule need.
func newFastPath(s *Store, r *core.Rule, o *openRule, rest Rest) *fastPath {
	return &fastPath{
		store: s,
		rule:  r,
		open:  o,
		clock: s.ownClock,
		seed:  s.seed,
		salt:  o.salt,
		quota: r.Limit().Quota(),
		rest:  rest,
	}
}

// argumentText returns an argument of a command as Redis's protocol has it.
func argumentText(s string) string { return "$" + strconv.Itoa(len(s)) + "\r\n" + s + "\r\n" }

// handlerOf returns the handler of a fast path.
func handlerOf(e *fastPath, c *ServeConfig) http.Handler {
	if e.lent != nil {
		return leasedHandlerOf(e, c)
	}
	if c.Metering == nil {
		if c.Direct {
			return newByAddress(e, c, newByKey(e, c))
		}
		return newByKey(e, c)
	}
	if c.Direct {
		return newByAddressMetered(e, c, newByKeyMetered(e, c))
	}
	return newByKeyMetered(e, c)
}

// leasedHandlerOf returns the handler of a leased rule's fast path.
func leasedHandlerOf(e *fastPath, c *ServeConfig) http.Handler {
	if c.Metering == nil {
		if c.Direct {
			return newLeasedByAddress(e, c, newLeasedByKey(e, c))
		}
		return newLeasedByKey(e, c)
	}
	if c.Direct {
		return newLeasedByAddressMetered(e, c, newLeasedByKeyMetered(e, c))
	}
	return newLeasedByKeyMetered(e, c)
}

// decideUnheld takes the general path for a key of a leased rule, since its unit is not held, or more units are to be asked for. If a part of the key is
// missing, it leaves the request to the Rest.
func decideUnheld(e *fastPath, w http.ResponseWriter, r *http.Request, key string) {
	if key == "" {
		e.rest.ServeHTTP(w, r)
		return
	}
	checks := []core.Check{{Rule: e.rule, Key: key, Cost: 1}}
	err := e.store.Decide(checks, false)
	e.rest.Conclude(w, r, &checks[0], err)
}

// decideSeldom takes the general path for a key that the memo does not know, or knows to be rejected, and notes the name that the key's
// next request needs. It does so, too, while the Pipeline has no Stream, and has one made. If a part of the key is missing, or the server has failed, it leaves the request to the Rest.
func decideSeldom(e *fastPath, w http.ResponseWriter, r *http.Request, key string, hash uint64) {
	if key == "" || e.trouble.Load() != 0 {
		e.rest.ServeHTTP(w, r)
		return
	}
	e.pipeline.Rouse()
	checks := []core.Check{{Rule: e.rule, Key: key, Cost: 1}}
	c := &checks[0]
	err := e.store.Decide(checks, false)
	if err == nil {
		name := e.store.naming.key(key, e.open.suffix)
		shard := e.shards[hash%memoShards]
		shard.mu.Lock()
		if k := e.store.memo.entry(shard, hash); k.until == 0 {
			k.command = argumentText(name)
		}
		shard.mu.Unlock()
	}
	e.rest.Conclude(w, r, c, err)
}

// settle goes on with a call whose reply does not simply allow the request, and passes the result to the Rest.
func settle(e *fastPath, w http.ResponseWriter, r *http.Request, key string, t *Turn, command string, hash uint64, now int64) {
	checks := []core.Check{{Rule: e.rule, Key: key, Cost: 1}}
	c := &checks[0]
	name := command[strings.IndexByte(command, '\n')+1 : len(command)-2]
	call := &Call{Script: e.script, Keys: []string{name}, Args: []string{e.open.charge}}
	t.Call = call
	err := e.pipeline.Finish(t)
	if err != nil {
		e.store.failed(e.server, name, 0, err) // ServeHTTP has seen no failures before the call
	} else if len(call.Reply) != 4 && len(call.Reply) != lineNumbers || !readDecision(e.rule, call.Reply, &c.Decision) {
		err = errReply
	}
	if err == nil {
		e.store.memo.learn(hash, e.open, now, e.store.clock(), 1, &c.Decision)
	} else {
		err = fmt.Errorf("%s: %w", e.server.name, e.store.refused(err, call.Script, checks))
		e.store.lastKnown(&inquiry{rules: []*openRule{e.open}, hashes: []uint64{hash}}, checks, e.store.clock())
	}
	e.rest.Conclude(w, r, c, err)
}

// setOtherFields sets the quota fields of a request that is allowed, if not all are wanted, or an earlier handler has set fields.
func setOtherFields(t *core.QuotaFields, h http.Header, words []string) {
	remaining, _ := strconv.ParseInt(words[0], 10, 64) // the script has written numbers
	reset, _ := strconv.ParseInt(words[4], 10, 64)
	more, _ := strconv.ParseInt(words[5], 10, 64)
	core.SetQuotaFields(t, h, remaining, reset, more)
}
