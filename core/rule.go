package core

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// RuleConfig configures NewRule.
type RuleConfig struct {
	Namespace     string // rules of different namespaces share nothing; "": the common one
	Name          string // unique in the namespace; 1 to 64 of A-Z a-z 0-9 _ . -
	KeySpec       string // what the key consists of ("client_ip"); if it changes, counting starts afresh
	Limit         *rate.Limit
	Shadow        bool // evaluated and charged, but never rejects, and is not in the quota fields
	CountRejected bool // requests that this rule rejects are charged to it, too

	// EnforcedPercent is the share of keys, 1 to 99 per cent, that the rule enforces: see Enforces. For the others it is a shadow. 0: it enforces all.
	EnforcedPercent int64

	OnError     OnError
	Consistency Consistency
	Strictly    bool          // Strict is what somebody has asked for, and not only the default
	SyncEvery   time.Duration // the interval of Eventual

	RegionsEvery time.Duration // the interval at which regions tell each other what they admit; 0: they do not
	RegionsLease bool          // regions lease units from one of them

	Message string  // the text of its rejections; "": none of its own
	Answer  *Answer // nil: rejections have the default answer

	// Jitter is over what part of a period clients are told to come back in whose quotas are renewed at the same time. nil: nobody has said it.
	Jitter *float64

	// OverflowPolicy is what the rule does past its limit besides rejecting.
	OverflowPolicy OverflowPolicy

	// Concurrency is how many requests of a key may be in flight, in addition to Limit; 0: any number. (For a rule with no other
	// limit, set Limit to one of NewConcurrency.)
	Concurrency int64

	// Candidate is a limit to try out: it is decided in place of Limit on the same requests, and rejects none. Its decisions show
	// what it would do. nil: there is none.
	Candidate *rate.Limit

	// Adapt says in some form how far the limit may be moved while the rule is in force. Rules of one name must say the same.
	Adapt string

	// Blocks makes the rule reject every request, whatever Limit says. The quota fields report a limit of 0.
	Blocks bool

	// RespectUpstream is the longest that the rule blocks a key since the service asks for it; 0: it does not look. See Rule.Respects.
	RespectUpstream time.Duration

	room     *waitQuota // counts waiting requests, if any may wait; nil: the rule makes its own
	excepted bool       // see Rule.Excepted
}

// OnError says what happens to a rule's requests while its store fails.
type OnError int

// The values of OnError.
const (
	CountLocally OnError = iota // count in memory, by this node's share of the limit
	LetPass                     // let requests pass, uncounted
	RejectAll                   // reject requests: Verdict.Outcome is Unavailable
)

// OnErrorNames lists the names that ParseOnError accepts, in the order of the constants.
var OnErrorNames = []string{"local", "open", "closed"}

// ParseOnError returns the value for a word of the configuration; "" means the default, CountLocally.
func ParseOnError(word string) (OnError, error) {
	if word == "" {
		return CountLocally, nil
	}
	for i, name := range OnErrorNames {
		if name == word {
			return OnError(i), nil
		}
	}
	return 0, words.OneOf("on_error", strconv.Quote(word), word, OnErrorNames)
}

// Rule is a named limit, with what a store and the header fields need. It is immutable once a store has opened it, and then safe
// for concurrent use. The adapter decides which requests a rule covers, and makes their keys.
type Rule struct {
	Namespace     string // "" is the common one
	name          string
	keySpec       string
	Identity      string // of the state that it counts in: namespace, name, algorithm, period, alignment and KeySpec. Rules of one identity share counters
	Limit         *rate.Limit
	Shadow        bool // it never rejects
	CountRejected bool // requests that it rejects are charged, too
	onError       OnError
	blocks        bool
	Excepted      bool             // it is the limit of single keys until a time: see MoreLimits.Exceptions
	lease         *rate.LeaseTerms // nil: nodes lease nothing
	sync          *rate.SyncTerms  // nil: it is not eventual
	regions       *rate.SyncTerms  // nil: regions do not tell each other of it
	regionsLease  bool             // regions lease units from one of them
	lentAs        string           // the identity of what they lease; "": the rule was not divided yet
	central       string           // see NeedsOneStore
	adapt         string
	Overflow      *Overflow  // for stores; nil: it only rejects, and counts all requests
	waitQuota     *waitQuota // counts waiting requests; nil: none wait
	linked        []*Rule    // see Linked
	unenforced    *Rule      // see For; one of the same Limits
	Local         *Rule      // the rule in memory, by this node's share; set by Limiter.Open
	isLocal       bool       // this rule is a local one

	enforcedPercent int64 // RuleConfig.EnforcedPercent

	// A client is told that its quota is renewed later than it is, by a part of Jitter, in microseconds: see setJitter.
	Jitter       int64
	JitterIsOwn  bool // the rule's configuration says it, even if it is 0
	JittersReset bool // not only Retry-After is later, but all times that clients are told
	OneKey       bool // all its requests have the same key

	// Respects is the longest, in microseconds, that an adapter blocks a key since the service has answered 429 or 503 with a Retry-After; 0: it looks at no
	// response for the rule.
	Respects int64

	previous bool // see IsPrevious

	policy string // its name in lists of policies; "": the rule's name

	// What the quota fields say of the rule. NewRule sets them, and they are read only afterwards. They are fields, since methods
	// cost an interpreter more.
	Shown      bool   // the quota fields report it: it is not a shadow
	LimitText  string // X-RateLimit-Limit
	PolicyText string // its member of RateLimit-Policy
	StateText  string // the beginning of its member of RateLimit
	Message    string // the text of its rejections; "": none of its own
	Answer     *Answer

	InMemory            interface{} // what a store in memory keeps of the rule; set by its Open
	kept                interface{} // what another store keeps of the rule; set by Keep
	noted               interface{} // what an adapter keeps of it; set by Note
	requested           interface{} // *Requested: what requests bring in place of the limit; nil: nothing
	onTrackReservations func()      // called by TrackReservations; set by OnTrackReservations

	// Allowed counts the requests that are allowed under the rule, for an adapter that uses functions of sync/atomic. It is here
	// because finding it by the rule would cost an interpreter more than counting does. It is set before the rule's first
	// request; nil: nobody counts.
	Allowed *int64
}

// NewRule checks c and returns its rule. The error names the rule, the field, the value and what would be accepted.
func NewRule(c RuleConfig) (*Rule, error) {
	if err := checkNames(c); err != nil {
		return nil, err
	}
	if c.Limit == nil {
		return nil, words.Wrong("rule", strconv.Quote(c.Name), "has no limit; write <requests>/<period>, such as 100/1m")
	}
	r := &Rule{
		Namespace:     c.Namespace,
		name:          c.Name,
		keySpec:       c.KeySpec,
		Limit:         c.Limit,
		Shadow:        c.Shadow,
		CountRejected: c.CountRejected,
		onError:       c.OnError,
		blocks:        c.Blocks,
		Excepted:      c.excepted,
		adapt:         c.Adapt,
		Message:       c.Message,
		Answer:        c.Answer,
	}
	var err error
	if r.Overflow, err = newOverflow(&c); err != nil {
		return nil, words.Of(err).Within("rule", strconv.Quote(c.Name))
	}
	if err = r.setConsistency(&c); err != nil {
		return nil, words.Of(err).Within("rule", strconv.Quote(c.Name))
	}
	if err = r.setRegions(&c); err != nil {
		return nil, words.Of(err).Within("rule", strconv.Quote(c.Name))
	}
	if !r.Shadow && r.Limit.Waits() {
		if r.waitQuota = c.room; r.waitQuota == nil {
			r.waitQuota = newRoom()
		}
	}
	r.Identity = strings.Join([]string{c.Namespace, c.Name, c.Limit.Identity(), c.KeySpec}, "|")
	r.setTexts()
	r.enforcedPercent = c.EnforcedPercent
	r.setJitter(&c)
	if err = r.setRespects(&c); err != nil {
		return nil, words.Of(err).Within("rule", strconv.Quote(c.Name))
	}
	if r.unenforced, err = newUnenforced(c); err != nil {
		return nil, err
	}
	if r.linked, err = linkedRules(&c); err != nil {
		return nil, words.Of(err).Within("rule", strconv.Quote(c.Name))
	}
	return r, nil
}

// mostJitter is the most that clients are told to come back later if nobody has said it, in microseconds; leastJittered, the shortest period of such a limit.
const mostJitter, leastJittered = 60_000_000, 60_000_000

// setJitter says by how much later clients of the rule are told to come back, at most: that which is configured, or a tenth of the period, up to a minute, for
// periods of a minute and more. It is 0 for limits that renew each key's quota at a time of its own, and so it is under a penalty, which ends so.
func (r *Rule) setJitter(c *RuleConfig) {
	l := c.Limit
	r.OneKey = c.OverflowPolicy.OneKey
	r.JitterIsOwn = c.Jitter != nil
	if !l.RenewsAtOnce() {
		return
	}
	if c.Jitter != nil {
		r.Jitter = int64(*c.Jitter * float64(l.Period))
		r.JittersReset = r.Jitter > 0 && r.Shown
	} else if l.Period >= leastJittered && len(c.OverflowPolicy.Penalties) == 0 {
		r.Jitter = l.Period / 10
		if r.Jitter > mostJitter {
			r.Jitter = mostJitter
		}
	}
}

// longestRespecting is the longest period of a limit that may respect the upstream, in microseconds. A key starts afresh after a block, and a budget would be whole
// again.
const longestRespecting = int64(time.Hour / time.Microsecond)

// setRespects sets how long the service may have keys blocked.
func (r *Rule) setRespects(c *RuleConfig) error {
	switch {
	case c.RespectUpstream == 0:
		return nil
	case c.Shadow:
		return words.Wrong("respect_upstream", "", " and enforcement shadow are mutually exclusive: a shadow keeps nobody waiting; remove one")
	case c.Limit.InFlight || c.Blocks:
		return nil
	case len(c.OverflowPolicy.Penalties) > 0:
		return words.Wrong("respect_upstream", "", " and penalty are mutually exclusive: a pause would end a penalty; write one of them into a rule beside this one")
	case c.Limit.Calendar != nil || c.Limit.Period > longestRespecting:
		return words.Wrong("respect_upstream", "", "a key starts afresh after a pause, and would have all of %s again; write it into a rule with a period of at most 1h, such as a queue, beside this one", c.Limit.Written())
	}
	r.Respects = int64(c.RespectUpstream / time.Microsecond)
	return nil
}

// setTexts sets what the quota fields say of the rule.
func (r *Rule) setTexts() {
	name := r.policy
	if name == "" {
		name = r.name
	}
	l := r.Limit
	r.Shown = !r.Shadow
	r.LimitText = strconv.FormatInt(l.Quota, 10)
	if r.blocks {
		r.LimitText = "0"
	}
	r.PolicyText = `"` + name + `";q=` + r.LimitText
	if l.InFlight {
		r.PolicyText += `;qu="concurrent-requests"`
	} else if w := l.Refilled(); w%1_000_000 == 0 && w > 0 {
		r.PolicyText += ";w=" + strconv.FormatInt(w/1_000_000, 10)
	}
	r.StateText = `"` + name + `";r=`
}

// sharedBy returns the rule for one of so many nodes, with its share of the limit. It counts while the store has failed.
func (r *Rule) sharedBy(nodes float64) *Rule {
	limit := r.Limit.Share(nodes)
	local := &Rule{
		Namespace:     r.Namespace,
		name:          r.name,
		keySpec:       r.keySpec,
		Identity:      r.Identity,
		Limit:         limit,
		Shadow:        r.Shadow,
		CountRejected: r.CountRejected,
		blocks:        r.blocks,
		policy:        r.policy,
		Overflow:      r.Overflow.sharedBy(nodes),
		waitQuota:     r.waitQuota,
		isLocal:       true,
		previous:      r.previous,
		noted:         r.noted,
		Message:       r.Message,
		Answer:        r.Answer,
		Jitter:        r.Jitter,
		JitterIsOwn:   r.JitterIsOwn,
		JittersReset:  r.JittersReset,
		OneKey:        r.OneKey,
	}
	local.setTexts()
	return local
}

// linkedRules returns the rules that are decided together with the one of a configuration: its candidate and its concurrency.
func linkedRules(c *RuleConfig) (rules []*Rule, err error) {
	if c.Candidate != nil {
		candidate, err := newCandidate(c)
		if err != nil {
			return rules, err
		}
		rules = append(rules, candidate)
	}
	if c.Concurrency != 0 {
		limit, err := rate.NewConcurrency(c.Concurrency)
		if err != nil {
			return rules, err
		}
		if c.Limit.InFlight {
			return rules, words.Wrong("concurrency", fmt.Sprint(c.Concurrency), "the rule has one already")
		}
		inFlight, err := NewRule(RuleConfig{Namespace: c.Namespace, Name: c.Name, KeySpec: c.KeySpec, Limit: limit, Shadow: c.Shadow, OnError: c.OnError, Message: c.Message, Answer: c.Answer})
		if err != nil {
			return rules, err
		}
		inFlight.policy = c.Name + ".concurrency" // clients tell policies apart by name, and the limit has the rule's name
		inFlight.setTexts()
		rules = append(rules, inFlight)
	}
	return rules, nil
}

// newCandidate returns the rule for the candidate of a configuration.
func newCandidate(c *RuleConfig) (*Rule, error) {
	switch {
	case c.Limit.InFlight:
		return nil, words.Wrong("candidate", "", "there is no limit for it to be compared with")
	case c.Limit.Delays || c.Candidate.Delays:
		return nil, words.Wrong("candidate", "", " and `on_limit` delay are mutually exclusive: a candidate can be compared only with a limit that rejects; remove one")
	case c.OverflowPolicy.atEnd() != "":
		return nil, words.Wrong("candidate", "", " and "+c.OverflowPolicy.atEnd()+" are mutually exclusive: what the candidate allows and the limit rejects never has a response; remove one")
	case c.Blocks:
		return nil, words.Wrong("candidate", "", "the rule rejects every request, and has no limit for it to be compared with")
	}
	r, err := NewRule(RuleConfig{Namespace: c.Namespace, Name: c.Name, KeySpec: c.KeySpec, Limit: c.Candidate, Shadow: true, CountRejected: c.CountRejected, OnError: c.OnError})
	if err != nil {
		return nil, err
	}
	r.Identity = strings.Join([]string{c.Namespace, c.Name, "candidate " + c.Candidate.Identity(), c.KeySpec}, "|")
	r.Overflow = &Overflow{Candidate: true, text: "candidate"}
	return r, nil
}

func checkNames(c RuleConfig) error {
	if err := words.CheckName(c.Name); err != nil {
		return words.Of(err).Named("rule name")
	}
	if c.Namespace != "" {
		if err := words.CheckName(c.Namespace); err != nil {
			return words.Of(err).Named("namespace name").Within("rule", strconv.Quote(c.Name))
		}
	}
	return nil
}

// Enforces reports whether a key is among so many per cent of all keys. It is the same on every node, in both proxies and at any time, whatever the rule,
// and whatever shard of memory the key is in. A key that is among some per cent is among any more.
func Enforces(key string, percent int64) bool {
	sum := sha256.Sum256([]byte(key))
	part, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:8]), 100) // 0 to 99
	return int64(part) < percent
}

// newUnenforced returns the rule for the keys that a configuration does not enforce: a shadow, which counts in the same place. nil: it enforces all.
func newUnenforced(c RuleConfig) (*Rule, error) {
	var none *Rule
	if c.EnforcedPercent == 0 {
		return none, nil
	}
	share := strconv.FormatInt(c.EnforcedPercent, 10) + "%"
	c.EnforcedPercent = 0
	c.RespectUpstream = 0
	c.Shadow = true
	r, err := NewRule(c)
	if err != nil {
		m := *words.Of(err)
		m.At = m.At[1:] // the rule's name
		return none, m.Within("enforcement", share).Within("rule", strconv.Quote(c.Name))
	}
	return r, nil
}

// For returns the rule that decides on requests of a key: r, or the shadow in its place if the key is not among those that are enforced.
func (r *Rule) For(key string) *Rule {
	if r == nil || r.unenforced == nil || Enforces(key, r.enforcedPercent) {
		return r
	}
	return r.unenforced
}

// Name returns the rule's name.
func (r *Rule) Name() string { return r.name }

// Blocks reports whether the rule rejects every request.
func (r *Rule) Blocks() bool { return r.blocks }

// Keep stores a value for Kept. It is for a store's Open only.
func (r *Rule) Keep(v interface{}) { r.kept = v }

// Kept returns the value of Keep, nil before.
func (r *Rule) Kept() interface{} { return r.kept }

// Note stores a value for Noted, in the rule and in those beside it or in its place. It is for an adapter, before the rule's
// first request.
func (r *Rule) Note(v interface{}) {
	r.noted = v
	if r.Local != nil {
		r.Local.noted = v
	}
	for _, other := range r.linked {
		other.Note(v)
	}
}

// Noted returns the value of Note, nil before.
func (r *Rule) Noted() interface{} { return r.noted }

// Linked returns the rules that are decided together with this one: its candidate and its concurrency. Limiter.Open opens them together, and
// Limiter.Decide asks about them, too.
func (r *Rule) Linked() []*Rule { return r.linked }

// Terms are the parts of a rule's overflow policy that a store needs. Times are in microseconds.
type Terms struct {
	Wide      *rate.Limit // the limit during tolerance; nil: the rule has no tolerance
	SoftFor   int64
	Counts    bool // it counts by responses: requests reserve their cost
	Penalties []int64
}

// Terms returns the terms of the rule's overflow policy; ok is false for a rule without one, which only rejects.
func (r *Rule) Terms() (t Terms, ok bool) {
	policy := r.Overflow
	if policy == nil {
		return t, false
	}
	t.Wide = policy.Wide
	t.SoftFor = policy.SoftFor
	t.Counts = policy.atEnd()
	t.Penalties = policy.Penalties
	return t, true
}

// HasOverflowPolicy reports whether Terms returns any.
func (r *Rule) HasOverflowPolicy() bool { return r.Overflow != nil }

// TrackReservations makes what waiting requests have reserved visible to all requests under the rule. It must be called before the rule's
// first request if requests may come under it together with a rule that delays them.
func (r *Rule) TrackReservations() {
	if r.Overflow == nil {
		r.Overflow = &Overflow{}
	}
	r.Overflow.tracked = true
	if r.Local != nil {
		r.Local.TrackReservations()
	}
	if r.onTrackReservations != nil {
		r.onTrackReservations()
	}
}

// OnTrackReservations makes TrackReservations call f. It is for a store's Open only: a rule may begin to track them after it was opened.
func (r *Rule) OnTrackReservations(f func()) { r.onTrackReservations = f }

// TracksReservations reports whether requests wait for the rule, or for others in the same checks. A store lets rules that share
// counters see what those requests have reserved.
func (r *Rule) TracksReservations() bool {
	return r.Limit.Delays && !r.Shadow || r.Overflow != nil && r.Overflow.tracked
}

// IsCandidate reports whether the rule is a candidate, whose decision is to be compared with that of the check before it.
func (r *Rule) IsCandidate() bool { return r.Overflow != nil && r.Overflow.Candidate }

// IsPrevious reports whether the rule was active before a transition, and the check of the rule in its place has its decision, too:
// see Check.Previous.
func (r *Rule) IsPrevious() bool { return r.previous }

// Promise returns the longest time for which the rule's limit makes a promise, in microseconds: its period, or the time in which a full bucket drains, if
// that is longer. The latter is how long a bucket's burst may stay used.
func (r *Rule) Promise() int64 {
	longest := r.Limit.Memory()
	if r.Overflow != nil && r.Overflow.Wide != nil {
		longest = rate.Latest(longest, r.Overflow.Wide.Memory())
	}
	return longest
}

// Policy returns the rule's name in the lists of policies of the quota fields: its own name, unless it is the concurrency of
// another rule.
func (r *Rule) Policy() string {
	if r.policy != "" {
		return r.policy
	}
	return r.name
}

// KeySpec returns what the key consists of: RuleConfig.KeySpec.
func (r *Rule) KeySpec() string { return r.keySpec }

// waitQuota counts the requests that wait for a rule in this process: for all limits of the rule together, and for each key. It is
// safe for concurrent use.
type waitQuota struct {
	total atomic.Int64
	mu    sync.Mutex
	keys  map[string]int64 // by key, without keys for which none wait
}

func newRoom() *waitQuota { return &waitQuota{keys: make(map[string]int64)} }
