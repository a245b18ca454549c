package redis

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// Config configures a Store. Only Client is required.
type Config struct {
	Client Client

	// Prefix begins every key; "" means DefaultPrefix. Stores with the same prefix on one Redis share their counters.
	Prefix string

	// KeySecret turns the clients' keys in Redis into an HMAC, which nobody can reverse without the secret. All nodes must have the
	// same. "" means a plain hash: whoever reads it can find an address by trying all.
	KeySecret string

	// PlainKeys keeps the clients' keys readable in Redis. It excludes KeySecret.
	PlainKeys bool

	// Region is the name of the region that this Redis is for; "": there are no regions. Package regions tells it of the others.
	Region string

	// Lines makes the scripts of one rule reply with a line of text, "<remaining> <wait> <reset> <more>", in place of an array. The client
	// must read both into Call.Reply. For an interpreted client a line is cheaper to read.
	Lines bool

	// Lease is how long the reservation of a request under way lasts in Redis, unless its node renews it. A node renews three times in
	// that time, so only a node that has died lets a lease end. 0 means DefaultLease.
	Lease time.Duration

	// Changed is called with the error when the breaker of a server opens, and with nil when it closes. It must not block. nil means
	// that nothing is called.
	Changed func(server string, err error)

	// Differs is called once for each rule for which another node masks the addresses in the key to other networks: the two nodes
	// count apart although they should share counters. The call comes in the background. Prefixes of 32 and 128 mean whole addresses.
	// nil means that nothing is compared.
	Differs func(namespace, rule string, here, there match.Prefixes)

	// NotCarried is called with the error if the keys of a server could not be searched for those that are blocked, when a limit has taken
	// another's place: see Carry. nil means that nothing is called.
	NotCarried func(server string, err error)

	// Clock returns the node's time in microseconds, of which only differences matter; nil means a monotonic clock. It is for what the
	// node remembers, never for limits.
	Clock func() int64

	// WallClock returns the time in microseconds since the Unix epoch; nil means the wall clock. The store guesses by it which windows of
	// the calendar the server needs. A wrong guess costs a second call, and nothing else.
	WallClock func() int64
}

// Check returns the error that NewStore would return for the configuration.
func (c Config) Check() error {
	_, err := newNaming(c.Prefix, c.KeySecret, c.PlainKeys)
	return err
}

// Store is the core.Store of a fleet: it keeps counters in Redis. It is safe for concurrent use. Limits hold over all nodes, whatever
// their clocks say, since the scripts go by the server's clock.
//
// A Store decides on all the rules of a request in one atomic step. In a Cluster this is true for keys of one hash slot, such as those of
// one client. For a request with several slots see askBySlot.
type Store struct {
	client     Client
	naming     *naming
	scripts    []*Script // of one rule, by rate.Algorithm
	changed    func(server string, err error)
	notCarried func(server string, err error)
	clock      func() int64
	ownClock   func() int64 // Config.Clock
	wallClock  func() int64
	region     string
	seed       maphash.Seed
	decisions  decisionCache
	renewals   renewals
	leaseCache leaseCache
	eventually eventually
	comparison comparison
	ahead      atomic.Int64 // how far the server's clock is ahead of the node's; 0 until a wrong guess has shown it

	mu     sync.Mutex // guards what follows
	closed bool
	timers map[*breaker]*time.Timer // of probes to come

	carriages []*carriage // what Carry has yet to do
	carrying  bool        // a goroutine does it

	waiting map[string]int // by identity: how many open rules see the reservations of requests that wait
}

// openRule is what the store keeps for a rule that is open.
type openRule struct {
	suffix         string
	salt           uint64 // the hash of the identity, in the hashes of the rule's keys
	terms          uint64 // a hash of the limit's numbers and the penalties: a remembered rejection, or a lease, counts as long as they are the same
	charge         string // the argument of a request that costs 1
	peek           string
	longestBackoff int64 // in microseconds, how much longer a rejection is remembered at most: see cachedDecision.backOff
	atOnce         bool
	windows        atomic.Value     // *windows, with a calendar
	lease          *rate.LeaseTerms // nil: the rule is not leased
	settles        bool             // what a request has cost is known when its response has ended
	sync           *rate.SyncTerms  // nil: it is not eventual
	further        []byte           // follows the argument, for a rule with an overflow policy: see appendOverflow; nil: it has none
}

// windows are the bounds of the calendar's windows around the middle one, and the arguments with these bounds.
type windows struct {
	bounds       []int64
	charge, peek string
}

// NewStore returns a store. The error says which setting is wrong, and what would be right. NewStore does not wait for a server, and does
// not fail if there is none yet.
func NewStore(c Config) (*Store, error) {
	naming, err := newNaming(c.Prefix, c.KeySecret, c.PlainKeys)
	if err != nil {
		return nil, err
	}
	s := &Store{
		client:     c.Client,
		naming:     naming,
		scripts:    scriptsOfOne,
		changed:    c.Changed,
		notCarried: c.NotCarried,
		clock:      c.Clock,
		ownClock:   c.Clock,
		wallClock:  c.WallClock,
		region:     c.Region,
		seed:       maphash.MakeSeed(),
		timers:     make(map[*breaker]*time.Timer),
		waiting:    make(map[string]int),
	}
	if c.Lines {
		s.scripts = scriptsOfOneLine
	}
	s.renewals.begin(s, c.Lease)
	s.leaseCache.begin(s)
	s.comparison.begin(s, c.Differs)
	if s.clock == nil {
		s.clock = monotonic
	}
	if s.wallClock == nil {
		s.wallClock = wallClock
	}
	index := memory.Probing
	if c.Lines {
		index = memory.Mapped
	}
	s.eventually.begin(s, index, c.WallClock)
	return s, nil
}

func monotonic() int64 { return int64(time.Since(Started) / time.Microsecond) }

func wallClock() int64 { return time.Now().UnixMicro() }

// Open implements core.Store. It does not call Redis.
func (s *Store) Open(r *core.Rule) error {
	s.mu.Lock()
	if s.waiting[r.Identity] > 0 {
		r.TrackReservations()
	}
	if r.TracksReservations() {
		s.waiting[r.Identity]++
	}
	s.mu.Unlock()
	o := s.prepare(r)
	r.Keep(o)
	if o.sync != nil {
		if err := s.eventually.open(r); err != nil {
			return err
		}
	}
	r.OnTrackReservations(func() { o.further = appendOverflow(nil, r, s.renewals.lasts) })
	s.comparison.add(r)
	return nil
}

// opened returns what Open has prepared for a rule; nil: it is not open.
func opened(r *core.Rule) *openRule {
	o, _ := r.Kept().(*openRule)
	return o
}

// hashOf returns the hash by which the node remembers a key of a rule.
func (s *Store) hashOf(o *openRule, key string) uint64 { return maphash.String(s.seed, key) ^ o.salt }

// prepare returns what the store keeps for a rule.
func (s *Store) prepare(r *core.Rule) *openRule {
	l := r.Limit
	t, _ := r.Terms()
	o := &openRule{
		suffix:         ruleSuffix(r),
		salt:           maphash.String(s.seed, r.Identity) * 0x9e3779b97f4a7c15, // otherwise it could cancel out the hash of a key with the same text
		terms:          maphash.String(s.seed, fmt.Sprint(l.Requests, l.Capacity, l.MaxDelay, t.Penalties)),
		atOnce:         rate.AtOnce(l),
		lease:          r.LeaseTerms(),
		settles:        t.Counts,
		longestBackoff: longestBackoffOf(l),
	}
	if l.Windows(0) == nil {
		o.charge = string(appendArgument(nil, r, false, nil))
		o.peek = string(appendArgument(nil, r, true, nil))
	} else {
		o.windows.Store(&windows{bounds: []int64{0, 0, 0, 0, 0}})
	}
	if t := r.SyncTerms(); t != nil {
		terms := *t
		terms.Slack = int64(s.client.Timeout() / time.Microsecond)
		o.sync = &terms
	}
	if r.HasOverflowPolicy() {
		o.further = appendOverflow(nil, r, s.renewals.lasts)
	}
	return o
}

// Release implements core.Store. It deletes nothing in Redis, where keys expire.
func (s *Store) Release(r *core.Rule) {
	s.mu.Lock()
	if s.waiting[r.Identity] > 0 && r.TracksReservations() {
		s.waiting[r.Identity]--
	}
	if s.waiting[r.Identity] == 0 {
		delete(s.waiting, r.Identity)
	}
	s.mu.Unlock()
	if r.SyncTerms() != nil {
		s.eventually.release(r)
	}
	s.comparison.remove(r)
}

// Close closes the store and its client: at once, or, while requests under way have reservations in Redis, when the last of them ends.
func (s *Store) Close() error {
	if !s.renewals.close(s.closeLater) {
		return nil
	}
	return s.end()
}

// CloseNow closes the store and its client at once. Reservations of requests under way end when their leases do.
func (s *Store) CloseNow() error {
	s.renewals.abandon()
	return s.end()
}

// closeLater is end for a caller that has nowhere to return the error.
func (s *Store) closeLater() { _ = s.end() }

// end closes the store and its client.
func (s *Store) end() error {
	s.comparison.close()
	s.leaseCache.close()
	s.eventually.close()
	s.mu.Lock()
	s.closed = true
	for _, timer := range s.timers {
		timer.Stop()
	}
	s.mu.Unlock()
	return s.client.Close()
}

// callState is the memory that one decision needs. Decisions reuse it.
type callState struct {
	rules  []*openRule
	hashes []uint64
	call   *Call
	bits   []int64 // of a reply of scriptOfOverflow, by check; otherwise none
}

// blocked reports whether the reply says that the key of check i is blocked.
func (q *callState) blocked(i int) bool { return i < len(q.bits) && q.bits[i]&isBlocked != 0 }

var callStates = sync.Pool{New: newCallState}

func newCallState() interface{} { return &callState{call: &Call{}} }

// Decide implements core.Store.
func (s *Store) Decide(checks []core.Check, peek bool) error {
	if len(checks) == 0 {
		return nil
	}
	if len(checks) == 1 {
		if o := opened(checks[0].Rule); o.lease != nil {
			return s.decideLeased(o, checks, peek)
		} else if o.sync != nil {
			return s.decideEventually([]*openRule{o}, checks, peek, s.clock())
		}
	}
	q := s.takeCallState(checks)
	now := s.clock()
	var err error
	if anyEventual(q.rules) {
		err = s.decideMixed(q, checks, peek, now)
	} else {
		err = s.decideAsked(q, checks, peek, now)
	}
	callStates.Put(q)
	return err
}

// decideAsked decides on checks of rules that are not eventual: by what the node has leased, or as Redis says.
func (s *Store) decideAsked(q *callState, checks []core.Check, peek bool, now int64) error {
	switch {
	case !anyLeased(q.rules):
		return s.decideStrictly(q, checks, peek, now)
	case len(checks) == 1:
		return s.decideLeased(q.rules[0], checks, peek)
	}
	return s.decideSomeLeased(q, checks, peek, now)
}

// takeCallState returns the memory that a decision on checks needs.
func (s *Store) takeCallState(checks []core.Check) *callState {
	q := callStates.Get().(*callState)
	q.rules = q.rules[:0]
	q.hashes = q.hashes[:0]
	q.bits = q.bits[:0]
	for i := range checks {
		o := opened(checks[i].Rule)
		q.rules = append(q.rules, o)
		q.hashes = append(q.hashes, s.hashOf(o, checks[i].Key))
	}
	return q
}

// decideStrictly decides by the decision cache, or lets Redis decide.
func (s *Store) decideStrictly(q *callState, checks []core.Check, peek bool, now int64) error {
	if s.recall(q, checks, now) {
		return nil
	}
	return s.conclude(q, checks, peek, now, s.ask(q, checks, peek))
}

// conclude remembers what a call to Redis has decided, or, after an error, sets the decisions to what is remembered. It returns the error.
func (s *Store) conclude(q *callState, checks []core.Check, peek bool, now int64, err error) error {
	if err == nil {
		answered := s.clock()
		for i := range checks {
			if q.rules[i].further != nil && !q.blocked(i) { // other requests' reservations change its decisions
				continue
			}
			if !peek || !checks[i].Decision.Allowed { // the decision of a peek includes a charge that was not made
				s.decisions.put(q.hashes[i], q.rules[i], now, answered, checks[i].Cost, &checks[i].Decision)
			}
		}
	} else {
		s.lastKnown(q, checks, s.clock()) // not now: other requests may have been learned from since
	}
	if errors.Is(err, ErrTimeout) {
		q.call = &Call{} // the Conn may still read the other
	}
	return err
}

// recall decides from the cache on a request that an enforced rule is known to reject, if the cache has something about each of its rules.
// Otherwise it returns false. It leaves rules with count_rejected to Redis, where their rejections must be charged, those of concurrency, and those
// that are leased, of which other nodes may give units back.
func (s *Store) recall(q *callState, checks []core.Check, now int64) bool {
	rejected := false
	var k cachedDecision
	for i := range checks {
		r := checks[i].Rule
		if r.CountRejected || r.Limit.InFlight || q.rules[i].lease != nil || !s.decisions.find(q.hashes[i], &k) {
			return false
		}
		if k.terms != q.rules[i].terms {
			return false
		}
		if r.HasOverflowPolicy() && !k.rejects(now, checks[i].Cost) {
			return false
		}
		k.decision(now, checks[i].Cost, &checks[i].Decision)
		if !checks[i].Decision.Allowed && !r.Shadow {
			rejected = true
		}
	}
	return rejected
}

// lastKnown sets the decisions of the checks to what is cached about their keys, for counting on without Redis.
func (s *Store) lastKnown(q *callState, checks []core.Check, now int64) {
	var k cachedDecision
	for i := range checks {
		checks[i].Decision = rate.Decision{}
		if s.decisions.find(q.hashes[i], &k) {
			k.estimate(now, checks[i].Rule.Limit.Quota, q.rules[i].atOnce, &checks[i].Decision)
		}
	}
}

// ask lets Redis decide: in one call, or, if the keys lie in several slots, in one for each slot.
func (s *Store) ask(q *callState, checks []core.Check, peek bool) error {
	c := q.call
	c.Keys = c.Keys[:0]
	for i := range checks {
		c.Keys = append(c.Keys, s.naming.key(checks[i].Key, q.rules[i].suffix))
	}
	if len(checks) > 1 && s.client.Cluster() {
		for i := 1; i < len(checks); i++ {
			if checks[i].Key != checks[0].Key {
				return s.askBySlot(q, checks, peek)
			}
		}
	}
	_, err := askOnce(s, c, q, checks, peek, "")
	if len(checks) > 1 && errors.Is(err, ErrMoving) {
		return s.askApart(q, checks, peek)
	}
	return err
}

// askOnce chooses the script for the checks, and makes one call for all of them, as run does.
func askOnce(s *Store, c *Call, q *callState, checks []core.Check, peek bool, second string) (int64, error) {
	for _, o := range q.rules {
		if o.further != nil {
			return runOverflow(s, c, q, checks, peek, second)
		}
	}
	c.Script = scriptOfSeveral
	if len(checks) == 1 {
		c.Script = s.scripts[checks[0].Rule.Limit.Algorithm]
	}
	return run(s, c, q.rules, checks, peek, second, 4)
}

// timed is a script's second argument, which asks for the server's time.
const timed = "t"

// run makes one call of the script in c for all the checks, whose keys are in c. It reads the reply, which has so many numbers for each
// check, into their decisions. If second is timed it returns the server's time.
func run(s *Store, c *Call, rules []*openRule, checks []core.Check, peek bool, second string, numbers int) (int64, error) {
	server, err := execute(s, c, rules, checks, peek, second, nil)
	if err != nil {
		return 0, err
	}
	if len(c.Reply) == lineNumbers && len(checks) == 1 && numbers == 4 {
		c.Reply = c.Reply[:numbers]
	}
	want := numbers * len(checks)
	if second != "" {
		want++
	}
	if len(c.Reply) != want {
		return 0, fmt.Errorf("%s: %w", server.name, errReply)
	}
	for i := range checks {
		if !readDecision(checks[i].Rule, c.Reply[numbers*i:], &checks[i].Decision) {
			return 0, fmt.Errorf("%s: %w", server.name, errReply)
		}
	}
	return c.Reply[want-1], nil
}

// execute runs a script of checks, with a second argument unless it is "". If the server's time lies in none of the calendar's windows that
// it has sent, it runs the script again with other windows. With a lease it is the script of one check and its lease. It returns the server
// that has answered.
func execute(s *Store, c *Call, rules []*openRule, checks []core.Check, peek bool, second string, lease *rate.LeaseAsk) (*Server, error) {
	server, err := s.client.Server(c.Keys[0])
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		argument := argumentOf(s, c, rules[0], &checks[0], peek)
		for i := 1; i < len(checks); i++ {
			argument += argumentOf(s, c, rules[i], &checks[i], peek)
		}
		if lease != nil {
			argument = leaseArgument(lease, rules[0]) + argument
		}
		c.Args = append(c.Args[:0], argument)
		if second != "" {
			c.Args = append(c.Args, second)
		}
		if err := s.call(server, c); err != nil {
			if errors.Is(err, ErrOpen) {
				return nil, err
			}
			return nil, fmt.Errorf("%s: %w", server.name, s.refused(err, c.Script, checks))
		}
		if len(c.Reply) != 1 || try > 0 {
			return server, nil
		}
		s.ahead.Store(c.Reply[0] - s.wallClock()) // the server's time lies in none of the windows that were sent
	}
}

// argumentOf returns a check's part of the argument of the script in c.
func argumentOf(s *Store, c *Call, o *openRule, check *core.Check, peek bool) string {
	if isOverflowScript(c.Script) {
		return argument(s, o, check, peek) + furtherOf(s, o, check)
	}
	return argument(s, o, check, peek)
}

// argument returns a check's part of a script's argument, without what follows for an overflow policy.
func argument(s *Store, o *openRule, c *core.Check, peek bool) string {
	argument := o.charge
	if peek {
		argument = o.peek
	}
	if w := o.windows.Load(); w != nil {
		around := w.(*windows)
		now := s.wallClock() + s.ahead.Load()
		if now < around.bounds[1] || now >= around.bounds[2] {
			bounds := c.Rule.Limit.Windows(now)
			around = &windows{bounds, string(appendArgument(nil, c.Rule, false, bounds)), string(appendArgument(nil, c.Rule, true, bounds))}
			o.windows.Store(around)
		}
		argument = around.charge
		if peek {
			argument = around.peek
		}
	}
	if c.Cost != 1 {
		argument = withNumber(argument, costAt, c.Cost)
	}
	if c.Rule.Limit.Spread {
		argument = withNumber(argument, yAt, spreadNumber(c.Rule.Limit, c.Key))
	}
	return argument
}

// Servers returns the states of the servers that are known so far, sorted by name.
func (s *Store) Servers() []ServerState {
	var list []ServerState
	for _, server := range s.client.Servers() {
		list = append(list, ServerState{Name: server.name, Open: !server.Available()})
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}
