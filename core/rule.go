package core

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/words"
)

// RuleConfig is what NewRule makes a Rule of.
type RuleConfig struct {
	Namespace     string // rules of different namespaces share nothing
	Name          string // unique in the namespace; 1 to 64 of A-Z a-z 0-9 _ . -
	KeySpec       string // what the key is made of ("client_ip"): a rule whose key changes starts afresh
	Limit         *Limit
	Shadow        bool // evaluated and charged, but never rejects and is never shown
	CountRejected bool // the requests that this rule rejects are charged to it too
	OnError       OnError
	Message       string // what its rejections say; "": nothing of their own

	// OverflowPolicy is what else the rule does past its limit.
	OverflowPolicy OverflowPolicy

	// Concurrency limits, besides Limit, how many requests of a key are in flight; 0: it does not. (A rule that limits nothing else
	// has a Limit of NewConcurrency.)
	Concurrency int64

	// Candidate is a limit that is decided in place of Limit, on the same requests, and changes nothing: its decisions, beside
	// Limit's, say what it would do. nil: there is none.
	Candidate *Limit

	// Blocks has the rule reject every request, as a limit of no requests would, whatever Limit says. It is told as one.
	Blocks bool

	room *room // where requests wait, if any may; nil: one of the rule's own
}

// OnError says what becomes of a rule's requests when its store fails.
type OnError int

// What can become of them.
const (
	CountLocally OnError = iota // they are counted in memory, by this node's share of the limit
	LetPass                     // they pass, uncounted
	RejectAll                   // they are turned away: Verdict.Outcome is Unavailable
)

// OnErrorNames lists the names that ParseOnError accepts, in the order of the constants.
var OnErrorNames = []string{"local", "open", "closed"}

// ParseOnError returns what the configuration's word means; "" is the default, CountLocally.
func ParseOnError(word string) (OnError, error) {
	if word == "" {
		return CountLocally, nil
	}
	for i, name := range OnErrorNames {
		if name == word {
			return OnError(i), nil
		}
	}
	return 0, fmt.Errorf("on_error %q: %s", word, words.OneOf(word, OnErrorNames))
}

// Rule is a named limit, as a store and the header fields need it: immutable once a store has opened it, and safe for
// concurrent use then. Which requests a rule covers, and how it makes their keys, is the adapter's.
type Rule struct {
	namespace     string
	name          string
	keySpec       string
	identity      string
	limit         *Limit
	shadow        bool
	countRejected bool
	onError       OnError
	blocks        bool
	overflow      *overflow // nil: it rejects, and counts all
	room          *room     // where its requests wait; nil: none does
	beside        []*Rule   // see Beside
	local         *Rule     // the rule by this node's share, in memory; set by Limiter.Open
	isLocal       bool      // it is one

	policy string // its name in the lists of policies; "": its own

	// What clients are told of the rule, made by NewRule and read only from then on: as fields, since an interpreter pays for methods.
	Shown      bool   // they are told of it: it is no shadow
	LimitText  string // X-RateLimit-Limit
	PolicyText string // the member of RateLimit-Policy
	StateText  string // how the member of RateLimit begins
	Message    string // what its rejections say; "": nothing of their own

	space *space // where a Memory keeps the rule's keys; set by Memory.Open

	kept        interface{} // what another store keeps of the rule; set by Keep
	noted       interface{} // what an adapter does; set by Note
	onAccompany func()      // what it does when the rule is accompanied; set by OnAccompany

	// Allowed is where an adapter counts the requests that are allowed under the rule, with functions of sync/atomic: here, since looking
	// it up by the rule costs an interpreter more than counting does. It is set before a request comes under the rule; nil: nowhere.
	Allowed *int64
}

// NewRule checks c and returns its rule. The error names the rule, the field, the value and what would be accepted.
func NewRule(c RuleConfig) (*Rule, error) {
	if err := checkNames(c); err != nil {
		return nil, err
	}
	if c.Limit == nil {
		return nil, fmt.Errorf("rule %q: has no limit; write <requests>/<period>, such as 100/1m", c.Name)
	}
	r := &Rule{
		namespace:     c.Namespace,
		name:          c.Name,
		keySpec:       c.KeySpec,
		limit:         c.Limit,
		shadow:        c.Shadow,
		countRejected: c.CountRejected,
		onError:       c.OnError,
		blocks:        c.Blocks,
		Message:       c.Message,
	}
	var err error
	if r.overflow, err = newOverflow(&c); err != nil {
		return nil, fmt.Errorf("rule %q: %w", c.Name, err)
	}
	if !r.shadow && r.limit.Waits() {
		if r.room = c.room; r.room == nil {
			r.room = newRoom()
		}
	}
	r.identity = strings.Join([]string{c.Namespace, c.Name, c.Limit.Identity(), c.KeySpec}, "|")
	r.setTexts()
	if r.beside, err = besides(&c); err != nil {
		return nil, fmt.Errorf("rule %q: %w", c.Name, err)
	}
	return r, nil
}

// setTexts makes what clients are told of the rule.
func (r *Rule) setTexts() {
	name := r.policy
	if name == "" {
		name = r.name
	}
	l := r.limit
	r.Shown = !r.shadow
	r.LimitText = strconv.FormatInt(l.quota, 10)
	if r.blocks {
		r.LimitText = "0"
	}
	r.PolicyText = `"` + name + `";q=` + r.LimitText
	if l.inFlight {
		r.PolicyText += `;qu="concurrent-requests"`
	} else if w := l.refilled(); w%1_000_000 == 0 && w > 0 {
		r.PolicyText += ";w=" + strconv.FormatInt(w/1_000_000, 10)
	}
	r.StateText = `"` + name + `";r=`
}

// sharedBy returns the rule by the share that each of so many nodes has of its limit: what counts where the store has failed.
func (r *Rule) sharedBy(nodes int) *Rule {
	limit := r.limit.Share(nodes)
	local := &Rule{
		namespace:     r.namespace,
		name:          r.name,
		keySpec:       r.keySpec,
		identity:      r.identity,
		limit:         limit,
		shadow:        r.shadow,
		countRejected: r.countRejected,
		blocks:        r.blocks,
		policy:        r.policy,
		overflow:      r.overflow.sharedBy(nodes),
		room:          r.room,
		isLocal:       true,
		noted:         r.noted,
		Message:       r.Message,
	}
	local.setTexts()
	return local
}

// besides returns the rules that are decided beside the one of a configuration.
func besides(c *RuleConfig) (rules []*Rule, err error) {
	if c.Candidate != nil {
		candidate, err := newCandidate(c)
		if err != nil {
			return rules, err
		}
		rules = append(rules, candidate)
	}
	if c.Concurrency != 0 {
		limit, err := NewConcurrency(c.Concurrency)
		if err != nil {
			return rules, err
		}
		if c.Limit.inFlight {
			return rules, fmt.Errorf("concurrency %d: the rule has one already", c.Concurrency)
		}
		inFlight, err := NewRule(RuleConfig{Namespace: c.Namespace, Name: c.Name, KeySpec: c.KeySpec, Limit: limit, Shadow: c.Shadow, OnError: c.OnError, Message: c.Message})
		if err != nil {
			return rules, err
		}
		inFlight.policy = c.Name + ".concurrency" // clients tell policies apart by their names, and the limit has the rule's
		inFlight.setTexts()
		rules = append(rules, inFlight)
	}
	return rules, nil
}

// newCandidate returns the rule of a configuration's candidate.
func newCandidate(c *RuleConfig) (*Rule, error) {
	switch {
	case c.Limit.inFlight:
		return nil, fmt.Errorf("candidate: there is no limit for it to be compared with")
	case c.Limit.delays || c.Candidate.delays:
		return nil, fmt.Errorf("candidate: stands beside on_limit delay; it can be compared only with a limit that rejects")
	case c.OverflowPolicy.Count != nil:
		return nil, fmt.Errorf("candidate: stands beside count; what it lets through and the limit rejects never has a status, keep one")
	case c.Blocks:
		return nil, fmt.Errorf("candidate: the rule rejects every request, and has no limit for it to be compared with")
	}
	r, err := NewRule(RuleConfig{Namespace: c.Namespace, Name: c.Name, KeySpec: c.KeySpec, Limit: c.Candidate, Shadow: true, CountRejected: c.CountRejected, OnError: c.OnError})
	if err != nil {
		return nil, err
	}
	r.identity = strings.Join([]string{c.Namespace, c.Name, "candidate " + c.Candidate.Identity(), c.KeySpec}, "|")
	r.overflow = &overflow{candidate: true, text: "candidate"}
	return r, nil
}

func checkNames(c RuleConfig) error {
	if err := words.CheckName(c.Name); err != nil {
		return fmt.Errorf("rule %w", err)
	}
	if c.Namespace != "" {
		if err := words.CheckName(c.Namespace); err != nil {
			return fmt.Errorf("rule %q: namespace %w", c.Name, err)
		}
	}
	return nil
}

// Name returns the rule's name.
func (r *Rule) Name() string { return r.name }

// Namespace returns the rule's namespace, "" for the one that all share.
func (r *Rule) Namespace() string { return r.namespace }

// Limit returns the rule's limit.
func (r *Rule) Limit() *Limit { return r.limit }

// Shadow reports whether the rule only watches.
func (r *Rule) Shadow() bool { return r.shadow }

// CountRejected reports whether rejected requests are charged too.
func (r *Rule) CountRejected() bool { return r.countRejected }

// Blocks reports whether every request is rejected.
func (r *Rule) Blocks() bool { return r.blocks }

// Keep notes what the store that has opened the rule keeps of it, for Kept. It is for the store alone, and for Open alone.
func (r *Rule) Keep(v interface{}) { r.kept = v }

// Kept returns what Keep noted; nil before that.
func (r *Rule) Kept() interface{} { return r.kept }

// Note has the rule, and those that are decided beside it or in its place, have what an adapter keeps of it, for Noted. It is called
// before a request comes under the rule.
func (r *Rule) Note(v interface{}) {
	r.noted = v
	if r.local != nil {
		r.local.noted = v
	}
	for _, other := range r.beside {
		other.Note(v)
	}
}

// Noted returns what Note has; nil: nothing.
func (r *Rule) Noted() interface{} { return r.noted }

// Beside returns the rules that are decided together with this one: whoever has a Check of it appends one of each behind it, with
// the same key and cost. Limiter.Open opens them with it.
func (r *Rule) Beside() []*Rule { return r.beside }

// Terms are what a store needs to know of a rule's conduct. Times are microseconds.
type Terms struct {
	Wide      *Limit // the limit while there is tolerance; nil: there never is
	SoftFor   int64
	Counts    bool // by the status of responses
	Penalties []int64
}

// Terms returns the terms of a rule's conduct; ok is false for a rule that has none, which rejects and does nothing else.
func (r *Rule) Terms() (t Terms, ok bool) {
	co := r.overflow
	if co == nil {
		return t, false
	}
	t.Wide = co.wide
	t.SoftFor = co.softFor
	t.Counts = co.count != nil
	t.Penalties = co.penalties
	return t, true
}

// HasOverflowPolicy reports whether there are Terms.
func (r *Rule) HasOverflowPolicy() bool { return r.overflow != nil }

// Accompany is called, before the rule is asked for the first time, where requests may come under it together with a rule that has them wait: what
// they reserve of it is then seen by all.
func (r *Rule) Accompany() {
	if r.overflow == nil {
		r.overflow = &overflow{}
	}
	r.overflow.accompanied = true
	if r.local != nil {
		r.local.Accompany()
	}
	if r.onAccompany != nil {
		r.onAccompany()
	}
}

// OnAccompany has f called by Accompany. It is for the store alone, and for Open alone: a rule may be accompanied after it was opened.
func (r *Rule) OnAccompany(f func()) { r.onAccompany = f }

// SeesWaiting reports whether requests wait for the rule, or for others beside it: a store opens rules that count in the same place
// so that they see what those have reserved.
func (r *Rule) SeesWaiting() bool {
	return r.limit.delays || r.overflow != nil && r.overflow.accompanied
}

// IsCandidate reports whether the rule is a candidate: its decision is to be compared with that of the check before it.
func (r *Rule) IsCandidate() bool { return r.overflow != nil && r.overflow.candidate }

// IsConcurrency reports whether the rule is the concurrency that another has beside its limit: its check stands behind that one's.
func (r *Rule) IsConcurrency() bool { return r.policy != "" }

// Policy returns what the lists of policies, of which clients are told, call the rule: its name, unless it stands beside another one.
func (r *Rule) Policy() string {
	if r.policy != "" {
		return r.policy
	}
	return r.name
}

// KeySpec returns what the key is made of: RuleConfig.KeySpec.
func (r *Rule) KeySpec() string { return r.keySpec }

// Identity names the state that the rule counts in. Rules with equal identities share counters, whatever their limits'
// numbers; it is made of namespace, name, algorithm, period, alignment and what the key is made of.
func (r *Rule) Identity() string { return r.identity }
