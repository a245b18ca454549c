package redis

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/match"
)

// Config is what NewStore takes. Only Client is required.
type Config struct {
	Client Client

	// Prefix begins every key; "" means DefaultPrefix. What shares a prefix on one Redis shares its counters.
	Prefix string

	// KeySecret makes the clients' keys an HMAC, which nobody can guess who has not got the secret. All nodes must have
	// the same. Without it they are a plain hash: a pseudonym, of which an address can be found by trying all.
	KeySecret string

	// PlainKeys keeps the clients' keys readable in Redis.
	PlainKeys bool

	// Lines has the scripts of one rule reply with a line of text, "<remaining> <wait> <reset>", in place of an array. The
	// client must give both as Call.Reply. For an interpreted client a line is cheaper to read.
	Lines bool

	// Lease is how long what a request under way has reserved is kept for it, if its node does not say again that the request is
	// still there, which it does three times as often: by then it has died. 0 means DefaultLease.
	Lease time.Duration

	// Changed is told when a server is not asked any more, after that error, and when it is again, with a nil one. It
	// must not wait. nil means nobody is told.
	Changed func(server string, err error)

	// Differs is told once of a rule of which another node masks the addresses in the key to other networks, so that the two count
	// apart though they are to share: it is called in the background, and prefixes of 32 and 128 leave addresses whole. nil means nobody
	// is told, and nothing is compared.
	Differs func(namespace, rule string, here, there match.Prefixes)

	// Clock returns the node's time in microseconds, from which only differences are taken; nil means a monotonic clock.
	// Limits never go by it, only what the node remembers.
	Clock func() int64

	// WallClock returns the time in microseconds since the Unix epoch; nil means the wall clock. It guesses which windows
	// of the calendar the server will ask for; a wrong guess costs a second call, and nothing else.
	WallClock func() int64
}

// Check says what is wrong with the configuration, as NewStore does.
func (c Config) Check() error {
	_, err := newNaming(c.Prefix, c.KeySecret, c.PlainKeys)
	return err
}

// Store keeps counters in Redis: the core.Store of a fleet, safe for concurrent use. Limits hold over all nodes, whatever their
// clocks say: the time is the server's.
//
// All the rules of a request are decided in one atomic step. In a Cluster that is so for keys of one hash slot, as are those of
// one client; of a request with several see askBySlot.
type Store struct {
	client     Client
	naming     *naming
	scripts    []*Script // of one rule, by core.Algorithm
	changed    func(server string, err error)
	clock      func() int64
	ownClock   func() int64 // Config.Clock
	wallClock  func() int64
	seed       maphash.Seed
	memo       memo
	leases     leases
	comparison comparison
	ahead      atomic.Int64 // how far the server's clock is ahead of the node's, once that has mattered

	mu     sync.Mutex // guards what follows
	closed bool
	timers map[*Server]*time.Timer // of probes to come

	waiting map[string]int // by identity: how many open rules see what requests that wait have reserved
}

// openRule is what the store keeps of a rule.
type openRule struct {
	suffix  string
	salt    uint64 // in what is remembered of its keys: the identity's
	terms   uint64 // stands for the numbers of the limit and its penalties: a rejection is remembered as long as they are the same
	charge  string // the argument of a request that costs 1
	peek    string
	atOnce  bool
	windows atomic.Value // *windows, with a calendar
	further []byte       // what is behind the argument, of a rule with a conduct: see appendOverflow; nil: it has none
}

// windows are the calendar's around the middle one, and the arguments that have them.
type windows struct {
	bounds       []int64
	charge, peek string
}

// NewStore returns a store. The error says which setting is wrong, and what would be right. It does not wait for a server,
// nor fails if there is none yet.
func NewStore(c Config) (*Store, error) {
	naming, err := newNaming(c.Prefix, c.KeySecret, c.PlainKeys)
	if err != nil {
		return nil, err
	}
	s := &Store{
		client:    c.Client,
		naming:    naming,
		scripts:   scriptsOfOne,
		changed:   c.Changed,
		clock:     c.Clock,
		ownClock:  c.Clock,
		wallClock: c.WallClock,
		seed:      maphash.MakeSeed(),
		timers:    make(map[*Server]*time.Timer),
		waiting:   make(map[string]int),
	}
	if c.Lines {
		s.scripts = scriptsOfOneLine
	}
	s.leases.begin(s, c.Lease)
	s.comparison.begin(s, c.Differs)
	if s.clock == nil {
		s.clock = monotonic
	}
	if s.wallClock == nil {
		s.wallClock = wallClock
	}
	return s, nil
}

var started = time.Now()

func monotonic() int64 { return int64(time.Since(started) / time.Microsecond) }

func wallClock() int64 { return time.Now().UnixMicro() }

// Open implements core.Store. It asks nothing of Redis.
func (s *Store) Open(r *core.Rule) error {
	s.mu.Lock()
	if s.waiting[r.Identity()] > 0 {
		r.Accompany()
	}
	if r.SeesWaiting() {
		s.waiting[r.Identity()]++
	}
	s.mu.Unlock()
	o := s.prepare(r)
	r.Keep(o)
	r.OnAccompany(func() { o.further = appendOverflow(nil, r, s.leases.lasts) })
	s.comparison.add(r)
	return nil
}

// opened returns what Open has prepared.
func opened(r *core.Rule) *openRule {
	o, _ := r.Kept().(*openRule)
	return o
}

// prepare returns what the store keeps of a rule.
func (s *Store) prepare(r *core.Rule) *openRule {
	l := r.Limit()
	t, _ := r.Terms()
	o := &openRule{
		suffix: ruleSuffix(r),
		salt:   maphash.String(s.seed, r.Identity()) * 0x9e3779b97f4a7c15, // else it could meet a key of the same text
		terms:  maphash.String(s.seed, fmt.Sprint(l.Requests(), l.Capacity(), l.MaxDelay(), t.Penalties)),
		atOnce: algorithmOf(l).atOnce || l.Interval(),
	}
	if l.Windows(0) == nil {
		o.charge = string(appendArgument(nil, r, false, nil))
		o.peek = string(appendArgument(nil, r, true, nil))
	} else {
		o.windows.Store(&windows{bounds: []int64{0, 0, 0, 0, 0}})
	}
	if r.HasOverflowPolicy() {
		o.further = appendOverflow(nil, r, s.leases.lasts)
	}
	return o
}

// Release implements core.Store. What is in Redis expires by itself.
func (s *Store) Release(r *core.Rule) {
	s.mu.Lock()
	if s.waiting[r.Identity()] > 0 && r.SeesWaiting() {
		s.waiting[r.Identity()]--
	}
	if s.waiting[r.Identity()] == 0 {
		delete(s.waiting, r.Identity())
	}
	s.mu.Unlock()
	s.comparison.remove(r)
}

// Close ends the store and its client: at once, or where requests under way hold something in Redis, when the last of them is over.
func (s *Store) Close() error {
	if !s.leases.close(s.closeLater) {
		return nil
	}
	return s.end()
}

// CloseNow ends the store and its client, whatever requests under way hold: that is free when their leases have run out.
func (s *Store) CloseNow() error {
	s.leases.abandon()
	return s.end()
}

// closeLater is end for who cannot tell anybody what has gone wrong.
func (s *Store) closeLater() { _ = s.end() }

// end ends the store and its client.
func (s *Store) end() error {
	s.comparison.close()
	s.mu.Lock()
	s.closed = true
	for _, timer := range s.timers {
		timer.Stop()
	}
	s.mu.Unlock()
	return s.client.Close()
}

// inquiry is what one decision needs, kept for the next.
type inquiry struct {
	rules  []*openRule
	hashes []uint64
	call   *Call
	bits   []int64 // of a reply to scriptOfOverflow, by check; else none
}

// shut reports whether a reply says that the key of a check is shut out.
func (q *inquiry) blocked(i int) bool { return i < len(q.bits) && q.bits[i]&isBlocked != 0 }

var inquiries = sync.Pool{New: newInquiry}

func newInquiry() interface{} { return &inquiry{call: &Call{}} }

// Decide implements core.Store.
func (s *Store) Decide(checks []core.Check, peek bool) error {
	if len(checks) == 0 {
		return nil
	}
	q := inquiries.Get().(*inquiry)
	now := s.clock()
	q.rules = q.rules[:0]
	q.hashes = q.hashes[:0]
	q.bits = q.bits[:0]
	for i := range checks {
		o := opened(checks[i].Rule)
		q.rules = append(q.rules, o)
		q.hashes = append(q.hashes, maphash.String(s.seed, checks[i].Key)^o.salt)
	}
	if s.recall(q, checks, now) {
		inquiries.Put(q)
		return nil
	}
	err := s.ask(q, checks, peek)
	if err == nil {
		for i := range checks {
			if q.rules[i].further != nil && !q.blocked(i) { // others change what is told of it
				continue
			}
			if !peek || !checks[i].Decision.Allowed { // a peek tells of a charge that was not made
				s.memo.learn(q.hashes[i], q.rules[i].terms, now, checks[i].Cost, &checks[i].Decision)
			}
		}
	} else {
		s.lastKnown(q, checks, s.clock()) // not now: others may have learned since
	}
	if errors.Is(err, ErrTimeout) {
		q.call = &Call{} // the other is still being read
	}
	inquiries.Put(q)
	return err
}

// recall decides on a request of which it is known that a rule rejects it, and of whose other rules something is known too.
// With count_rejected a rejection must be charged, and so be asked for.
func (s *Store) recall(q *inquiry, checks []core.Check, now int64) bool {
	rejected := false
	var k known
	for i := range checks {
		r := checks[i].Rule
		if r.CountRejected() || r.Limit().InFlight() || !s.memo.find(q.hashes[i], &k) {
			return false
		}
		if k.terms != q.rules[i].terms {
			return false
		}
		if r.HasOverflowPolicy() && !k.rejects(now, checks[i].Cost) {
			return false
		}
		k.decision(now, checks[i].Cost, &checks[i].Decision)
		if !checks[i].Decision.Allowed && !r.Shadow() {
			rejected = true
		}
	}
	return rejected
}

// lastKnown writes into the checks what was last known of their keys.
func (s *Store) lastKnown(q *inquiry, checks []core.Check, now int64) {
	var k known
	for i := range checks {
		checks[i].Decision = core.Decision{}
		if s.memo.find(q.hashes[i], &k) {
			k.last(now, checks[i].Rule.Limit().Quota(), q.rules[i].atOnce, &checks[i].Decision)
		}
	}
}

// ask has Redis decide: in one call, or where the keys are of several slots in one for each.
func (s *Store) ask(q *inquiry, checks []core.Check, peek bool) error {
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

// askOnce makes one call for all the checks, as run does.
func askOnce(s *Store, c *Call, q *inquiry, checks []core.Check, peek bool, second string) (int64, error) {
	for _, o := range q.rules {
		if o.further != nil {
			return runOverflow(s, c, q, checks, peek, second)
		}
	}
	c.Script = scriptOfSeveral
	if len(checks) == 1 {
		c.Script = s.scripts[checks[0].Rule.Limit().Algorithm()]
	}
	return run(s, c, q.rules, checks, peek, second, 4)
}

// timed is a script's second argument, for the server's time.
const timed = "t"

// run makes one call of the script for all the checks, whose keys are in c, and reads its reply, of so many numbers a check, into them. It
// returns the server's time, where second is timed.
func run(s *Store, c *Call, rules []*openRule, checks []core.Check, peek bool, second string, numbers int) (int64, error) {
	server, err := execute(s, c, rules, checks, peek, second)
	if err != nil {
		return 0, err
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

// execute makes the call of a script of checks, with a second argument unless it is "": twice, where the server's time lies in none of the calendar's windows that were sent.
func execute(s *Store, c *Call, rules []*openRule, checks []core.Check, peek bool, second string) (*Server, error) {
	server, err := s.client.Server(c.Keys[0])
	if err != nil {
		return nil, err
	}
	if server.breaker.Open() {
		return nil, ErrOpen
	}
	for try := 0; ; try++ {
		argument := argumentOf(s, c, rules[0], &checks[0], peek)
		for i := 1; i < len(checks); i++ {
			argument += argumentOf(s, c, rules[i], &checks[i], peek)
		}
		c.Args = append(c.Args[:0], argument)
		if second != "" {
			c.Args = append(c.Args, second)
		}
		short := !c.Deadline.IsZero() && time.Until(c.Deadline) < s.client.Timeout()/2 // others have used up the time
		seen := server.trouble.Load()
		err := server.conn.Run(c)
		if err != nil {
			err = s.runAgain(server, c, err)
		}
		if err != nil {
			if !short || !errors.Is(err, ErrTimeout) {
				s.failed(server, c.Keys[0], seen, err)
			}
			return nil, fmt.Errorf("%s: %w", server.name, s.refused(err, c.Script, checks))
		}
		server.breaker.Succeed()
		if len(c.Reply) != 1 || try > 0 {
			return server, nil
		}
		s.ahead.Store(c.Reply[0] - s.wallClock()) // it lies in none of the windows that were sent
	}
}

// argumentOf returns a check's part of a script's argument.
func argumentOf(s *Store, c *Call, o *openRule, check *core.Check, peek bool) string {
	if isOverflowScript(c.Script) {
		return argument(s, o, check, peek) + furtherOf(s, o, check)
	}
	return argument(s, o, check, peek)
}

// argument returns a check's part of the script's argument.
func argument(s *Store, o *openRule, c *core.Check, peek bool) string {
	argument := o.charge
	if peek {
		argument = o.peek
	}
	if w := o.windows.Load(); w != nil {
		around := w.(*windows)
		now := s.wallClock() + s.ahead.Load()
		if now < around.bounds[1] || now >= around.bounds[2] {
			bounds := c.Rule.Limit().Windows(now)
			around = &windows{bounds, string(appendArgument(nil, c.Rule, false, bounds)), string(appendArgument(nil, c.Rule, true, bounds))}
			o.windows.Store(around)
		}
		argument = around.charge
		if peek {
			argument = around.peek
		}
	}
	if c.Cost != 1 {
		argument = withCost(argument, c.Cost)
	}
	return argument
}
