package redis

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// fastPath serves requests that cost 1 under one rule or several, as most do, in as few steps as possible: an interpreted program pays for each
// step. tools/flatten writes its handlers. They have the key, the decision and the header fields in one function, and leave rare cases to the
// general path.
type fastPath struct {
	store       *Store
	server      *Server
	pipeline    *Pipeline
	trouble     *atomic.Int64 // failures of the server in a row
	script      *Script
	clock       func() int64 // nil: monotonic
	shards      []*decisionShard
	leaseShards []*leaseShard // of a leased rule
	seed        maphash.Seed
	config      *memory.ServeConfig
	conclude    Concluder

	rules            []*fastRule
	all              *ruleGroup // of all rules
	matched          bool       // any of them does not cover all requests
	apart            bool       // they have different keys
	xRateLimit, ietf bool
	durations        *rate.Durations // nil: nothing is timed
	general          *int64          // how many requests have taken the general path
	overflow         bool            // any rule has an overflow policy: scriptOfOverflow decides
	tallied          bool            // any rule counts, also if nothing is metered
	refuses          bool            // it rejects what is cached as rejected; otherwise it leaves all rejections to the general path
}

// fastRule is one of the rules of a fast path.
type fastRule struct {
	rule       *core.Rule
	open       *openRule
	salt       uint64
	quota      int64
	stateText  string   // the beginning of its member of RateLimit, behind another member
	limitField []string // of its QuotaFields, as policy
	policy     string
	allowed    *int64
	keyOf      func(r *http.Request) string // nil unless they have different keys
	covers     func(r *http.Request) bool   // nil: it covers all requests
	refuser    *memory.Refuser              // nil: its rejections are left to the general path
	shadow     bool                         // it never rejects, and sets no fields
	overflow   bool                         // it has an overflow policy
	usual      string                       // what scripts/overflow.lua replies as its bits if it allows a request at once
	linked     bool                         // it is decided together with the rule before it

	refused, passed []*int64 // as in memory.ServedRule; without the first, what a shadow would reject is left to the general path
}

// ruleGroup is the rules that cover a request.
type ruleGroup struct {
	rules      []*fastRule
	policies   []string // the value of RateLimit-Policy
	head, tail string   // of a command, around the keys
	tickets    []int    // where in tail the tickets are of a request that may reserve something; nil: none does

	// With scripts/overflow.lua.
	reply    string       // the first line of a usual reply
	patient  []*core.Rule // those that make requests wait
	inFlight bool         // any of them limits requests in flight
}

// Concluder goes on with requests that Serve and ServeSeveral do not allow at once.
type Concluder interface {
	// Conclude continues with a request after its decision: the checks have it, or err says why there is none.
	Conclude(w http.ResponseWriter, r *http.Request, checks []core.Check, err error)

	// Finish ends the reservations of a request that was allowed and served.
	Finish(reservations []core.Reservation)
}

// Serve returns a handler with a fast path for a rule that is open in the store, as memory.Serve does for one in a Memory. Requests that are
// neither allowed at once nor known to be rejected go to conclude after their decision; rare ones go to c.Rest before it. A Guarding is not
// supported: c.Next must be guarded. Serve returns nil if there is no fast path: because the rule counts by status; or because it is strict,
// and its limit follows the calendar, or the server depends on the key, or has no Pipeline.
func Serve(s *Store, r *core.Rule, c *memory.ServeConfig, conclude Concluder) http.Handler {
	var none http.Handler
	served := &memory.ServedRule{QuotaFields: c.QuotaFields, Refusal: c.Refusal}
	if c.Metering != nil {
		served.Allowed = c.Metering.Allowed
	}
	if r.Shadow && c.Refusal != nil {
		served.Refused = append(served.Refused, c.Refusal.Shadowed)
		if c.Refusal.Rejected != nil {
			served.Refused = append(served.Refused, c.Refusal.Rejected)
		}
	}
	one := newFastRule(served, r)
	if one == nil {
		return none
	}
	if one.overflow {
		return ServeSeveral(s, []*core.Rule{r}, []*memory.ServedRule{served}, c, conclude)
	}
	e := newFastPath(s, []*fastRule{one}, c, conclude)
	if one.open.lease != nil {
		return leasedHandler(e, c)
	}
	if one.open.sync != nil {
		return eventualHandler(e, c)
	}
	if !connect(e) {
		return none
	}
	e.script = scriptsOfOneLine[r.Limit.Algorithm]
	e.all = groupOf(e, e.rules)
	e.refuses = one.refuser != nil
	return newOne(e, c)
}

// leasedHandler returns the handler of a leased rule's fast path.
func leasedHandler(e *fastPath, c *memory.ServeConfig) http.Handler {
	for i := range e.store.leaseCache.shards {
		e.leaseShards = append(e.leaseShards, &e.store.leaseCache.shards[i])
	}
	e.all = &ruleGroup{rules: e.rules}
	return newLeased(e, c)
}

// ServeSeveral is Serve for several rules, each with its memory.ServedRule in the same place, and those that are decided together with it behind it. They are charged together, in one call. Requests that an earlier handler has set quota fields for are left to c.Rest.
func ServeSeveral(s *Store, rules []*core.Rule, served []*memory.ServedRule, c *memory.ServeConfig, conclude Concluder) http.Handler {
	var none http.Handler
	var list []*fastRule
	linked := make(map[*core.Rule]bool)
	for i, r := range rules {
		one := newFastRule(served[i], r)
		if one == nil {
			return none
		}
		one.linked = linked[r]
		for _, other := range r.Linked() {
			linked[other] = true
		}
		list = append(list, one)
	}
	e := newFastPath(s, list, c, conclude)
	if !connect(e) {
		return none
	}
	for _, one := range list {
		e.overflow = e.overflow || one.overflow
		e.tallied = e.tallied || len(one.refused) > 0
	}
	e.script = scriptOfSeveralLine
	if e.overflow {
		e.script = scriptOfOverflow
	}
	e.all = groupOf(e, e.rules)
	e.refuses = true
	for i, one := range list {
		e.xRateLimit = e.xRateLimit || served[i].QuotaFields.XRateLimit
		e.ietf = e.ietf || served[i].QuotaFields.IETF
		e.refuses = e.refuses && one.refuser != nil
		e.matched = e.matched || one.covers != nil
		e.apart = e.apart || one.keyOf != nil
	}
	if e.overflow {
		e.refuses = false
	}
	return newSeveral(e, c)
}

// newFastRule prepares a rule. It returns nil if the rule is not open, or counts by status.
func newFastRule(served *memory.ServedRule, r *core.Rule) *fastRule {
	var none *fastRule
	o := opened(r)
	if t, _ := r.Terms(); o == nil || t.Counts {
		return none
	}
	t := served.QuotaFields
	one := &fastRule{
		overflow: o.further != nil, usual: "0", refused: served.Refused, passed: served.Passed,
		rule: r, open: o, salt: o.salt, quota: r.Limit.Quota, stateText: ", " + t.State, limitField: t.Limit, policy: t.Policy[0],
		allowed: served.Allowed, keyOf: served.Key, covers: served.Covers, shadow: r.Shadow,
	}
	if r.Limit.InFlight {
		one.usual = strconv.Itoa(isReserved)
	}
	if served.Refusal != nil && !r.CountRejected && !r.Shadow {
		one.refuser = memory.NewRefuser(t, served.Refusal)
	}
	return one
}

// NewFastPath returns what all fast paths need.
func newFastPath(s *Store, rules []*fastRule, c *memory.ServeConfig, conclude Concluder) *fastPath {
	e := &fastPath{store: s, clock: s.ownClock, seed: s.seed, config: c, conclude: conclude, rules: rules, general: new(int64)}
	if c.Metering != nil {
		e.durations = c.Metering.Durations
	}
	return e
}

// connect prepares a fast path for calls. It returns false if it can have none: see Serve.
func connect(e *fastPath) bool {
	s := e.store
	for _, one := range e.rules {
		if one.open.charge == "" || one.open.lease != nil || one.open.sync != nil {
			return false
		}
	}
	if s.client.Cluster() {
		return false
	}
	server, err := s.client.Server("")
	if err != nil || server.pipeline == nil {
		return false
	}
	e.server = server
	e.pipeline = server.pipeline
	e.trouble = server.trouble
	for i := range s.decisions.shards {
		e.shards = append(e.shards, &s.decisions.shards[i])
	}
	return true
}

// argumentText returns an argument of a command as Redis's protocol has it.
func argumentText(s string) string { return "$" + strconv.Itoa(len(s)) + "\r\n" + s + "\r\n" }

// groupOf prepares the command of requests that these rules cover.
func groupOf(e *fastPath, rules []*fastRule) *ruleGroup {
	policies, charges := "", ""
	keys := len(rules)
	g := &ruleGroup{rules: rules}
	var tickets []int
	reserves := false
	for _, one := range rules {
		if !one.shadow {
			policies += ", " + one.policy
		}
		charges += one.open.charge
		if !e.overflow {
			continue
		}
		further := appendOverflow(nil, one.rule, e.store.renewals.lasts)
		if l := one.rule.Limit; l.Delays {
			putDouble(further[patienceAt:], l.MaxDelay)
			if !one.shadow {
				g.patient = append(g.patient, one.rule)
			}
			reserves = true
		}
		tickets = append(tickets, len(charges)+ticketAt)
		charges += string(further)
		g.inFlight = g.inFlight || one.rule.Limit.InFlight
	}
	g.policies = []string{strings.TrimPrefix(policies, ", ")}
	g.tail = argumentText(charges)
	if e.overflow {
		g.reply = "*" + strconv.Itoa(overflowNumbers*keys) + "\r\n"
		keys *= keysOfCheck
	}
	g.head = "*" + strconv.Itoa(keys+4) + "\r\n" + argumentText("EVALSHA") + argumentText(e.script.SHA1) + argumentText(strconv.Itoa(keys))
	if g.inFlight || reserves {
		g.tickets = tickets
		for i := range g.tickets {
			g.tickets[i] += strings.IndexByte(g.tail, '\n') + 1
		}
	}
	return g
}

// covering returns the rules that cover a request; nil: none does.
func covering(e *fastPath, r *http.Request) *ruleGroup {
	var none *ruleGroup
	var rules []*fastRule
	for _, one := range e.rules {
		if one.covers == nil || one.covers(r) {
			rules = append(rules, one)
		}
	}
	if len(rules) == 0 {
		return none
	}
	if len(rules) == len(e.rules) {
		return e.all
	}
	return groupOf(e, rules)
}

// settleKnown rejects a request whose key is cached as rejected, or takes the general path.
func settleKnown(e *fastPath, w http.ResponseWriter, r *http.Request, key string, hash uint64) {
	var (
		shard        *decisionShard
		k            *cachedDecision
		now          int64
		retry, reset int64
	)
	if e.refuses && !watched(e, r) {
		now = e.store.clock()
		shard = e.shards[hash%cacheShards]
		shard.mu.Lock()
		k = shard.keys.Young[hash]
		if k != nil && k.plain && now < k.until && k.at <= now && k.terms == e.rules[0].open.terms {
			retry = k.retryAt - now
			reset = k.resetAt - now
		}
		shard.mu.Unlock()
		if retry > 0 && reset > 0 && memory.Refuse(e.rules[0].refuser, retry, reset, key, w, r) {
			return
		}
	}
	decideSeldom(e, w, r, e.all, key)
}

// settleKnownSeveral is settleKnown for several rules.
func settleKnownSeveral(e *fastPath, w http.ResponseWriter, r *http.Request, group *ruleGroup, key string) {
	if e.refuses && !watched(e, r) && memory.TakesText(r) && refuseKnown(e, w, r, group, key) {
		return
	}
	decideSeldom(e, w, r, group, key)
}

// refuseKnown rejects a request that rules reject as the decision cache says, if that has something about the keys of all others: what
// Store.recall decides. Otherwise it returns false.
func refuseKnown(e *fastPath, w http.ResponseWriter, r *http.Request, group *ruleGroup, key string) bool {
	var (
		now, retry, longest, whole int64
		hash                       uint64
		reported                   int
		shard                      *decisionShard
		k                          *cachedDecision
		about                      cachedDecision
		left, waits                []int64 // of memory.RefuseSeveral
		refusers                   []*memory.Refuser
	)
	left = make([]int64, len(group.rules))
	waits = make([]int64, len(group.rules))
	refusers = make([]*memory.Refuser, len(group.rules))
	now = e.store.clock()
	for n, one := range group.rules {
		if one.keyOf != nil {
			key = one.keyOf(r)
		}
		hash = maphash.String(e.seed, key) ^ one.salt
		shard = e.shards[hash%cacheShards]
		shard.mu.Lock()
		k = shard.keys.Young[hash]
		if k == nil || k.terms != one.open.terms {
			shard.mu.Unlock()
			return false
		}
		about = *k
		shard.mu.Unlock()
		refusers[n] = one.refuser
		if about.line != "" {
			about.unfold()
		}
		if about.at <= now && now < about.until {
			if !about.plain {
				return false
			}
			left[n] = -1
			retry = about.retryAt - now
			waits[n] = (retry + 999_999) / 1_000_000
			if retry > longest {
				reported = n
				longest = retry
				whole = about.resetAt - now
			}
			continue
		}
		left[n] = about.remaining
		if about.moreAt > now {
			waits[n] = (about.moreAt - now + 999_999) / 1_000_000
		}
	}
	if longest == 0 {
		return false
	}
	if whole < 0 {
		whole = 0
	}
	if e.apart {
		key = group.rules[0].keyOf(r)
	}
	memory.RefuseSeveral(refusers, group.policies, reported, left, waits, (whole+999_999)/1_000_000, key, w)
	return true
}

// watched reports whether a request has the header field that is watched, and nobody has noticed that yet.
func watched(e *fastPath, r *http.Request) bool {
	return r.Header[e.config.Watched] != nil && !e.config.Noticed.Load()
}

// decideUnheld takes the general path for a key of a leased rule, since its unit is not held, or more units are to be asked for; or for one of a rule
// that is eventual, since the memory does not simply allow the request. Without a key it leaves the request to the rest.
func decideUnheld(e *fastPath, w http.ResponseWriter, r *http.Request, key string) {
	checks := checksOf(e, e.all, key, r)
	if checks == nil || watched(e, r) {
		e.config.Rest.ServeHTTP(w, r)
		return
	}
	err := decideGenerally(e, checks)
	e.conclude.Conclude(w, r, checks, err)
}

// decideGenerally lets the store decide, and times one decision in memory.TimedShare.
func decideGenerally(e *fastPath, checks []core.Check) error {
	if e.durations == nil || atomic.AddInt64(e.general, 1)%memory.TimedShare != 1 {
		return e.store.Decide(checks, false)
	}
	begun := time.Now()
	err := e.store.Decide(checks, false)
	rate.Observe(e.durations, time.Since(begun))
	return err
}

// decideSeldom takes the general path for a request with a key that is not cached, or cached as rejected, and notes the names that
// the next request needs. It does so, too, while the Pipeline has no Stream, and has one made. If a part of the key is missing, if the server
// has failed, or if the request must be noticed, it leaves the request to the rest. key is what it is if the rules have one.
func decideSeldom(e *fastPath, w http.ResponseWriter, r *http.Request, group *ruleGroup, key string) {
	checks := checksOf(e, group, key, r)
	if checks == nil || e.trouble.Load() != 0 || watched(e, r) {
		e.config.Rest.ServeHTTP(w, r)
		return
	}
	e.pipeline.Wake()
	err := decideGenerally(e, checks)
	if err == nil {
		for i, one := range group.rules {
			name := e.store.naming.key(checks[i].Key, one.open.suffix)
			hash := e.store.hashOf(one.open, checks[i].Key)
			shard := e.shards[hash%cacheShards]
			shard.mu.Lock()
			k := shard.keys.Use(hash, shardKeys)
			if one.overflow && k.until <= e.store.clock() { // its block is over, of which nothing else is noted
				k.until = 0
			}
			if k.until == 0 {
				k.command = argumentText(name)
				if e.overflow {
					k.six = sixOf(name)
				}
			}
			shard.mu.Unlock()
		}
	}
	e.conclude.Conclude(w, r, checks, err)
}

// checksOf returns the checks of a request; nil if it has no key that a store knows.
func checksOf(e *fastPath, group *ruleGroup, key string, r *http.Request) []core.Check {
	var checks, none []core.Check
	for _, one := range group.rules {
		if one.keyOf != nil {
			key = one.keyOf(r)
		} else if e.config.Key == nil && strings.HasPrefix(key, "[") { // the beginning of an IPv6 address is not a key
			return none
		}
		if key == "" {
			return none
		}
		if one.linked {
			checks = append(checks, core.PartOf(one.rule, key))
		} else {
			checks = append(checks, core.Check{Rule: one.rule, Key: key, Cost: 1})
		}
	}
	return checks
}

// settle goes on with a call whose reply does not simply allow the request, and passes the result on. hashes are those of the keys. tail is what the
// command ended with, and ticket the first of its tickets, if there are any.
func settle(e *fastPath, w http.ResponseWriter, r *http.Request, group *ruleGroup, key string, hashes []uint64, t *Turn, now int64, tail string, ticket uint64) {
	checks := checksOf(e, group, key, r)
	call := &Call{Script: e.script, Args: []string{tail[strings.IndexByte(tail, '\n')+1 : len(tail)-2]}}
	var names []string
	var rules []*openRule
	var bits []int64
	for i, one := range group.rules {
		names = append(names, e.store.naming.key(checks[i].Key, one.open.suffix))
		rules = append(rules, one.open)
		if e.overflow {
			call.Keys = furtherKeys(call.Keys, names[i])
		}
	}
	if !e.overflow {
		call.Keys = names
	}
	t.Call = call
	err := e.pipeline.Finish(t)
	if e.durations != nil && t.Number%memory.TimedShare == 0 {
		rate.Observe(e.durations, time.Since(Started)-t.Began)
	}
	if err != nil {
		e.store.failed(e.server, &e.server.breaker, call.Keys, 0, e.store.tooFar(e.server, err)) // ServeHTTP has seen no failures before the call
	} else if !readDecisions(e, checks, call.Reply) {
		err = errReply
	}
	if err == nil {
		if e.overflow {
			for i := range checks {
				checks[i].Ticket = ticket + uint64(i)
			}
			bits = readBits(e.store, bits, names, checks, call.Reply)
		}
		answered := e.store.clock()
		for i := range checks {
			if rules[i].further == nil || !e.overflow || bits[i]&isBlocked != 0 { // as Store.conclude has it
				e.store.decisions.put(hashes[i], rules[i], now, answered, 1, &checks[i].Decision)
			}
		}
	} else {
		err = fmt.Errorf("%s: %w", e.server.name, e.store.refused(err, call.Script, checks))
		e.store.lastKnown(&callState{rules: rules, hashes: hashes}, checks, e.store.clock())
	}
	e.conclude.Conclude(w, r, checks, err)
}

// readDecisions reads the numbers of a line into the decisions. It returns false if it is no reply to such a call.
func readDecisions(e *fastPath, checks []core.Check, reply []int64) bool {
	numbers := 4
	if e.overflow {
		numbers = overflowNumbers
	} else if len(reply) == lineNumbers*len(checks) {
		numbers = lineNumbers
	}
	if len(reply) != numbers*len(checks) {
		return false
	}
	for i := range checks {
		if !readDecision(checks[i].Rule, reply[numbers*i:], &checks[i].Decision) {
			return false
		}
	}
	return true
}

// sixOf returns the keys of a check as arguments of a command: see scripts/accounts.lua. name is the first.
func sixOf(name string) string {
	text := ""
	for _, key := range furtherKeys(nil, name) {
		text += argumentText(key)
	}
	return text
}

// ticketed returns the end of a command with new tickets, of which the rules have one each, and the first of them. It returns "" if requests wait for a
// rule: then the general path knows how long one more may wait.
func ticketed(e *fastPath, group *ruleGroup) (tail string, first uint64) {
	for _, r := range group.patient {
		if r.Waiting() > 0 {
			return "", 0
		}
	}
	n := uint64(len(group.tickets))
	first = e.store.renewals.tickets.Add(n) - n + 1
	if first+n <= n { // one of them is 0
		first = e.store.renewals.tickets.Add(n) - n + 1
	}
	b := []byte(group.tail)
	for i, at := range group.tickets {
		binary.LittleEndian.PutUint64(b[at:], first+uint64(i))
	}
	tail = string(b)
	return tail, first
}

// restOf reads the rest of an array, of which the first line was read, and returns its numbers, and all that was read.
func restOf(in *bufio.Reader, first string, numbers int) (words []string, read string, err error) {
	var (
		there      []byte
		last, rest string
		ends       bool
	)
	there, _ = in.Peek(in.Buffered())
	read = first + string(there)
	words = strings.SplitN(read, "\r\n:", numbers+1)
	if len(words) > numbers {
		last, rest, ends = strings.Cut(words[numbers], "\r\n")
	}
	if !ends {
		return restByLines(in, first, numbers)
	}
	words[numbers] = last
	read = read[:len(read)-len(rest)]
	_, err = in.Discard(len(read) - len(first))
	return words[1:], read, err
}

// restByLines is restOf for an array that is not there at once.
func restByLines(in *bufio.Reader, first string, numbers int) (words []string, read string, err error) {
	var line []byte
	read = first
	for i := 0; i < numbers && err == nil; i++ {
		line, err = in.ReadSlice('\n')
		read += string(line)
	}
	words = strings.Split(strings.TrimSuffix(read, "\r\n"), "\r\n:")
	if len(words) != numbers+1 {
		words = words[:1]
	}
	return words[1:], read, err
}

// inSeconds returns microseconds, which a script has written, in seconds.
func inSeconds(text string) string {
	n, _ := strconv.ParseInt(text, 10, 64)
	return strconv.FormatInt((n+999_999)/1_000_000, 10)
}

// countServed counts a request that all rules have allowed, but for the shadows that refused says.
func countServed(list []*fastRule, refused int64) {
	var counts []*int64
	for n, one := range list {
		counts = one.passed
		if refused>>uint(n)&1 != 0 {
			counts = one.refused
		} else if one.allowed != nil {
			atomic.AddInt64(one.allowed, 1)
		}
		for _, count := range counts {
			atomic.AddInt64(count, 1)
		}
	}
}

// reserved returns the reservations of a request that was allowed, and has them renewed. ticket is the first one.
func reserved(e *fastPath, group *ruleGroup, key string, r *http.Request, ticket uint64) []core.Reservation {
	var list []core.Reservation
	for n, one := range group.rules {
		if !one.rule.Limit.InFlight {
			continue
		}
		of := key
		if one.keyOf != nil {
			of = one.keyOf(r)
		}
		name := e.store.naming.key(of, one.open.suffix)
		e.store.renewals.add(heldUnder(name, one.rule, 1), member(one.rule, 1, ticket+uint64(n)))
		list = append(list, core.Reservation{Rule: one.rule, Key: of, Cost: 1, Ticket: ticket + uint64(n)})
	}
	return list
}

// setOtherFields sets the quota fields of a request that is allowed, if not all are wanted, or an earlier handler has set fields.
func setOtherFields(t *memory.QuotaFields, h http.Header, words []string) {
	remaining, _ := strconv.ParseInt(words[0], 10, 64) // the script has written numbers
	reset, _ := strconv.ParseInt(words[4], 10, 64)
	more, _ := strconv.ParseInt(words[5], 10, 64)
	memory.SetQuotaFields(t, h, remaining, reset, more)
}

// eventualHandler returns the handler of the fast path of a rule that is eventual; nil: it has none.
func eventualHandler(e *fastPath, c *memory.ServeConfig) http.Handler {
	var none http.Handler
	way := memory.NewFastPath(e.store.eventually.of.Memory(), e.rules[0].rule)
	if way == nil {
		return none
	}
	e.all = &ruleGroup{rules: e.rules}
	in := *c
	in.Rest = &eventualRest{fastPath: e, config: c}
	return memory.Serve(way, &in)
}

// eventualRest handles requests that the fast path leaves, such as the first of a key after each round.
type eventualRest struct {
	fastPath *fastPath
	config   *memory.ServeConfig
}

// ServeHTTP implements http.Handler.
func (h *eventualRest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := ""
	if h.config.Key != nil {
		key = h.config.Key(r)
	} else {
		key = memory.AddressIn(r.RemoteAddr)
	}
	if key == "" {
		h.config.Rest.ServeHTTP(w, r)
		return
	}
	decideUnheld(h.fastPath, w, r, key)
}
