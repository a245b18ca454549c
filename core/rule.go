package core

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
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

	// Blocks has the rule reject every request, as a limit of no requests would, whatever Limit says. It is told as one.
	Blocks bool
}

// OnError says what becomes of a rule's requests when its store fails.
type OnError int

// What can become of them.
const (
	CountLocally OnError = iota // they are counted in memory, by this node's share of the limit
	LetPass                     // they pass, uncounted
	TurnAway                    // they are turned away: Verdict.Outcome is Unavailable
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
	return 0, fmt.Errorf("on_error %q: %s", word, oneOf(word, OnErrorNames))
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
	local         *Rule // the rule by this node's share, in memory; set by Limiter.Open

	limitText  string // X-RateLimit-Limit
	policyText string // the member of RateLimit-Policy
	stateText  string // how the member of RateLimit begins
	space      *space // where a Memory keeps the rule's keys; set by Memory.Open

	kept interface{} // what another store keeps of the rule; set by Keep
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
		limitText:     strconv.FormatInt(c.Limit.quota, 10),
	}
	if c.Blocks {
		r.limitText = "0"
	}
	r.identity = strings.Join([]string{c.Namespace, c.Name, c.Limit.Identity(), c.KeySpec}, "|")
	r.policyText = `"` + c.Name + `";q=` + r.limitText
	if c.Limit.calendar == nil && c.Limit.period%1_000_000 == 0 {
		r.policyText += ";w=" + strconv.FormatInt(c.Limit.period/1_000_000, 10)
	}
	r.stateText = `"` + c.Name + `";r=`
	return r, nil
}

func checkNames(c RuleConfig) error {
	if err := CheckName(c.Name); err != nil {
		return fmt.Errorf("rule %w", err)
	}
	if c.Namespace != "" {
		if err := CheckName(c.Namespace); err != nil {
			return fmt.Errorf("rule %q: namespace %w", c.Name, err)
		}
	}
	return nil
}

const nameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

// CheckName says what is wrong with the name of a rule or a namespace.
func CheckName(name string) error {
	// Trim stops at the first byte that is another, and is compiled where this is interpreted.
	if len(name) < 1 || len(name) > 64 || strings.Trim(name, nameBytes) != "" {
		return fmt.Errorf("name %q: must be 1 to 64 of A-Z a-z 0-9 _ . -", name)
	}
	return nil
}

// NameFor returns a name that stands for a text, and has what can be kept of it: readable is the text, or tells the same. Equal texts
// have equal names, and others have others, but for one chance in 2³².
func NameFor(readable, text string) string {
	kept := []byte(readable)
	for i := range kept {
		if !isNameByte(kept[i]) {
			kept[i] = '_'
		}
	}
	if len(kept) > 55 {
		kept = kept[:55]
	}
	sum := sha256.Sum256([]byte(text))
	return string(kept) + "-" + hex.EncodeToString(sum[:4])
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-'
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

// Identity names the state that the rule counts in. Rules with equal identities share counters, whatever their limits'
// numbers; it is made of namespace, name, algorithm, period, alignment and what the key is made of.
func (r *Rule) Identity() string { return r.identity }
