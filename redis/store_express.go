package redis

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
)

// express is the way of a request under one rule that costs 1, as most are, in as few steps as it can have: a handler for
// interpreted programs, which pay for each of them. Key, decision and header fields are in one function, and what is rare is left to
// others.
type express struct {
	store   *Store
	rule    *core.Rule
	open    *openRule
	server  *Server
	conn    Conn
	trouble *atomic.Int64 // failures of the server in a row
	calls   *sync.Pool    // of *Call, ready but for the key
	clock   func() int64  // nil: monotonic
	shards  []*memoShard
	seed    maphash.Seed
	salt    uint64
	terms   uint64
	quota   int64
	tabled  int64 // what is below has a text in told
	keys    Keyer
	direct  bool
	told    *core.Told
	next    http.Handler
	rest    Rest

	indirect *express // the same, of which all keys are made by keys
}

// ServeConfig is what Serve makes a handler of.
type ServeConfig struct {
	Told *core.Told
	Keys Keyer

	// Direct says that a client's IPv4 address as the connection has it, all of it, is the key. Keys is asked for others.
	Direct bool

	Next http.Handler // where requests go that are allowed at once
	Rest Rest         // sees to all others
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
	e := &express{
		store:   s,
		rule:    r,
		open:    o,
		server:  server,
		conn:    server.conn,
		trouble: server.trouble,
		clock:   s.ownClock,
		seed:    s.seed,
		salt:    o.salt,
		terms:   o.terms,
		quota:   r.Limit().Quota(),
		keys:    c.Keys,
		direct:  c.Direct,
		told:    c.Told,
		next:    c.Next,
		rest:    c.Rest,
		tabled:  int64(len(c.Told.Values)),
	}
	for i := range s.memo.shards {
		e.shards = append(e.shards, &s.memo.shards[i])
	}
	if !c.Told.All {
		e.tabled = 0
	}
	script := s.scripts[r.Limit().Algorithm()]
	e.calls = &sync.Pool{New: func() interface{} {
		return &Call{Script: script, Keys: make([]string, 1), Args: []string{o.charge}, Constant: true}
	}}
	if e.direct {
		indirect := *e
		indirect.direct = false
		e.indirect = &indirect
	}
	return e
}

// ServeHTTP implements http.Handler. It is written for the interpreter: a variable that is declared before it is set is made once;
// each call of a function makes all that is in it.
func (e *express) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var (
		key              string
		i                int
		hash             uint64
		now              int64
		shard            *memoShard
		k                *known
		name             string
		call             *Call
		err              error
		remaining, reset int64
		more             int64
		h                http.Header
		t                *core.Told
	)
	key = r.RemoteAddr
	if e.direct {
		i = strings.IndexByte(key, ':')
		if i > 0 {
			key = key[:i] // of an IPv6 address what decideSeldom sees to
		}
	} else {
		key = e.keys.Key(r)
	}
	hash = maphash.String(e.seed, key) ^ e.salt
	shard = e.shards[hash%memoShards]
	shard.mu.Lock()
	k = shard.young[hash]
	if k == nil || k.name == "" || e.trouble.Load() != 0 {
		shard.mu.Unlock()
		decideSeldom(e, w, r, key, hash)
		return
	}
	name = k.name
	shard.mu.Unlock()
	if e.clock == nil {
		now = int64(time.Since(started) / time.Microsecond)
	} else {
		now = e.clock()
	}
	call = e.calls.Get().(*Call)
	call.Keys[0] = name
	err = e.conn.Run(call)
	if err != nil || len(call.Reply) != 4 {
		settle(e, w, r, key, call, hash, now, err)
		return
	}
	remaining = call.Reply[0]
	reset = call.Reply[2]
	more = call.Reply[3]
	if remaining|reset|more < 0 || call.Reply[1] != 0 || remaining > e.quota || reset > longest || more > reset {
		settle(e, w, r, key, call, hash, now, nil)
		return
	}
	e.calls.Put(call)
	shard.mu.Lock()
	k.at = now
	k.resetAt = now + reset
	k.moreAt = 0
	k.limit = e.quota
	k.remaining = remaining
	shard.mu.Unlock()
	reset = (reset + 999_999) / 1_000_000
	more = (more + 999_999) / 1_000_000
	h = w.Header()
	t = e.told
	if len(h) > 1 || remaining|reset >= e.tabled { // one field stands in each of Traefik's responses
		core.Tell(t, h, remaining, reset, more)
	} else {
		h[core.HeaderLimit] = t.Limit
		h[core.HeaderRemaining] = t.Values[remaining]
		h[core.HeaderReset] = t.Values[reset]
		h[core.HeaderRateLimit] = []string{t.State + t.Numbers[remaining] + t.Ends[more]}
		h[core.HeaderPolicy] = t.Policy
	}
	e.next.ServeHTTP(w, r)
}

// decideSeldom goes the way of all, with a key of which little is known or that is rejected, and notes what its next
// request needs. A client's IPv6 address has not been made a key yet. Where a part of the key is missing or the server has
// failed it leaves the request to others.
func decideSeldom(e *express, w http.ResponseWriter, r *http.Request, key string, hash uint64) {
	if key != "" && key[0] == '[' && e.direct {
		e.indirect.ServeHTTP(w, r)
		return
	}
	if key == "" || e.trouble.Load() != 0 {
		e.rest.ServeHTTP(w, r)
		return
	}
	checks := make([]core.Check, 1)
	c := &checks[0]
	c.Rule = e.rule
	c.Key = key
	c.Cost = 1
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
func settle(e *express, w http.ResponseWriter, r *http.Request, key string, call *Call, hash uint64, now int64, err error) {
	checks := make([]core.Check, 1)
	c := &checks[0]
	c.Rule = e.rule
	c.Key = key
	c.Cost = 1
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
