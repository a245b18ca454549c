package redis

import (
	"hash/maphash"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

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
	noKey      string                       // what keyOf returns if there is none
	covers     func(r *http.Request) bool   // nil: it covers all requests
	refuser    *memory.Refuser              // nil: its rejections are left to the general path
	local      *memory.Refuser              // the same of this node's own count; nil: it has none
	share      string                       // the policy of that
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
	shares     []string // the same of this node's own count
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
// and its limit follows the calendar or is Spread, or the server depends on the key, or has no Pipeline.
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
	one := newFastRule(served, r, c)
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
		one := newFastRule(served[i], r, c)
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
	}
	if e.overflow {
		e.refuses = false
	}
	return newSeveral(e, c)
}

// newFastRule prepares a rule. It returns nil if the rule is not open, or counts by status.
func newFastRule(served *memory.ServedRule, r *core.Rule, c *memory.ServeConfig) *fastRule {
	var none *fastRule
	o := opened(r)
	if t, _ := r.Terms(); o == nil || t.Counts {
		return none
	}
	t := served.QuotaFields
	one := &fastRule{
		overflow: o.further != nil, usual: "0", refused: served.Refused, passed: served.Passed,
		rule: r, open: o, salt: o.salt, quota: r.Limit.Quota, stateText: ", " + t.State, limitField: t.Limit, policy: t.Policy[0],
		allowed: served.Allowed, noKey: served.NoKey, covers: served.Covers, shadow: r.Shadow,
	}
	if c.Apart {
		one.keyOf = served.Key
	}
	if r.Limit.InFlight {
		one.usual = strconv.Itoa(isReserved)
	}
	if served.Refusal != nil && !r.CountRejected && !r.Shadow {
		one.refuser = memory.NewRefuser(t, served.Refusal)
		if r.Local != nil {
			own := memory.MakeQuotaFields(r.Local, t.XRateLimit, t.IETF, nil)
			one.local = memory.NewRefuser(own, served.Refusal)
			one.share = own.Policy[0]
		}
	}
	return one
}

// NewFastPath returns what all fast paths need.
func newFastPath(s *Store, rules []*fastRule, c *memory.ServeConfig, conclude Concluder) *fastPath {
	e := &fastPath{store: s, clock: s.ownClock, seed: s.seed, config: c, apart: c.Apart, conclude: conclude, rules: rules, general: new(int64)}
	if c.Metering != nil {
		e.durations = c.Metering.Durations
	}
	return e
}

// connect prepares a fast path for calls. It returns false if it can have none: see Serve.
func connect(e *fastPath) bool {
	s := e.store
	for _, one := range e.rules {
		if one.open.charge == "" || one.rule.Limit.Spread || one.open.lease != nil || one.open.sync != nil {
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
	policies, shares, charges := "", "", ""
	keys := len(rules)
	g := &ruleGroup{rules: rules}
	var tickets []int
	reserves := false
	for _, one := range rules {
		if !one.shadow {
			policies += ", " + one.policy
			shares += ", " + one.share
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
	g.shares = []string{strings.TrimPrefix(shares, ", ")}
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
	key := memory.KeyIn(h.config.Direct, h.config.Key, r)
	decideUnheld(h.fastPath, w, r, key)
}
