package report

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/transition"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/redis"
)

// ActiveRule is a rule in force, as the admin API, metrics and rate_limit_status see it.
type ActiveRule struct {
	Label       string // see metrics.LabelOf
	Namespace   string
	Name        string
	Enforcement string // as it is written
	Limiter     *stores.Limiter
	Stats       *Stats
	Own         *core.Rule   // the limit for requests without a tier or override; nil: none
	Rules       []*core.Rule // all limits
	Keys        KeyForm
	Source      string // where the rule is written: "zone", or a file and a line
	Shadow      bool
	Notes       []string // what else it does, in a few words
	Limits      []NamedLimit

	Also []*ActiveRule // the same rule in other handlers, which may count it in another store

	Rule *ruleset.Rule // nil: the rule is of a descriptor
	Desc *core.Rule    // the limit of a descriptor; nil: the rule is of no descriptor

	Active *transition.Active // of the rule or descriptor
}

// NamedLimit is a limit that applies to only some requests under the rule.
type NamedLimit struct {
	Of    string // "tier gold", "key 192.0.2.7"
	Tier  bool
	Limit *core.Rule
	Value string // the tier's
}

// TierOf returns the name of a tier's limit.
func TierOf(value string) string { return "tier " + value }

// mostBrought is how many limits that requests have brought are listed.
const mostBrought = 20

// BroughtLimits returns the limits that requests under a rule have brought of late, by their values; of many, only the first.
func BroughtLimits(limits *core.Limits) []NamedLimit {
	if limits.Requested() == nil {
		return nil
	}
	values, _ := limits.Kinds()
	slices.Sort(values)
	list := make([]NamedLimit, 0, len(values))
	for _, value := range values[:min(len(values), mostBrought)] {
		list = append(list, NamedLimit{"value " + value, false, limits.Look(value, ""), value})
	}
	return list
}

// LabelsOf returns the labels of rules.
func LabelsOf(list []*ActiveRule) []string {
	labels := make([]string, 0, len(list))
	for _, s := range list {
		labels = append(labels, s.Label)
	}
	return labels
}

// ActiveRuleOf returns the description of a rule, from its compiled form and its text.
func ActiveRuleOf(r *ruleset.Rule, text *ruleset.RuleText) *ActiveRule {
	s := &ActiveRule{Name: r.Name, Enforcement: EnforcementOf(text.Texts["enforcement"]), Rule: r, Active: r.Active, Own: r.Active.Limits().Own(), Rules: r.Active.Limits().All(), Keys: KeysOf(r),
		Shadow: r.Shadow, Notes: OverflowNotes(text)}
	if tiers := ruleset.One(text, "tiers"); tiers != nil {
		for _, tier := range tiers.Pairs["limits"] {
			value := ruleset.TierFor(r, tier.Name)
			s.Limits = append(s.Limits, NamedLimit{TierOf(tier.Name), true, r.Active.Of(value, ""), value})
		}
	}
	for _, o := range text.Objects["overrides"] {
		key := ruleset.KeyFor(r, o.Lists["key"])
		s.Limits = append(s.Limits, NamedLimit{"key " + strings.Join(s.Keys.Show(key), " "), false, r.Active.Of("", key), ""})
	}
	return s
}

// EnforcementOf returns a rule's enforcement as it is written; the default is hard.
func EnforcementOf(written string) string {
	if written == "" {
		return "hard"
	}
	return written
}

// KeyForm describes the parts of a rule's keys.
type KeyForm struct {
	Names  []string
	Secret []bool                                       // which parts may be credentials
	Free   bool                                         // a key has as many parts as the descriptor has values that vary
	static string                                       // the key, if it has no parts
	named  func(part int, value string) (string, error) // normalizes a value that an operator has written; the error says why no request has it
}

func KeysOf(r *ruleset.Rule) KeyForm {
	f := KeyForm{Names: []string{}, static: r.Static, named: func(part int, value string) (string, error) { return ruleset.Named(r, part, value) }}
	for i := range r.Parts {
		f.Names = append(f.Names, r.Parts[i].Source.String())
		f.Secret = append(f.Secret, IsSecret(r.Parts[i].Source))
	}
	return f
}

// shownPlaceholders are those of Caddy's own placeholders whose values are shown in clear: addresses, names and places. Clients may
// have sent the values of all others, or their parts, so those may be credentials.
var shownPlaceholders = map[string]bool{
	"{http.request.remote}": true, "{http.request.remote.port}": true, "{http.auth.user.id}": true, "{http.request.hostport}": true, "{http.request.port}": true,
	"{http.request.scheme}": true, "{http.request.proto}": true, "{http.request.orig_uri.path}": true, "{http.request.tls.server_name}": true,
	"{http.request.tls.version}": true, "{http.request.tls.client.subject}": true, "{http.request.tls.client.fingerprint}": true,
}

// IsSecret reports whether a source's value may be a credential.
func IsSecret(source match.Source) bool {
	return source.ClientChooses() || source.Custom() != nil && !shownPlaceholders[source.String()] || slices.ContainsFunc(source.Alternatives(), IsSecret)
}

// Of returns the key whose parts have these values. The error says why no request has such a key, and what would be right.
func (f KeyForm) Of(values []string) (string, error) {
	named := slices.Clone(values)
	if !f.Free {
		if len(f.Names) == 0 && len(values) > 0 {
			return "", fmt.Errorf("key: this rule's has no parts, since all requests share one counter; leave key out")
		}
		if len(values) != len(f.Names) {
			return "", fmt.Errorf("key: has %s, and this rule's has %d: %s", numberOfParts(len(values)), len(f.Names), strings.Join(f.Names, ", "))
		}
		for i, value := range values {
			var err error
			if named[i], err = f.named(i, value); err != nil {
				return "", fmt.Errorf("key: %s: %w", f.Names[i], withoutSecret(err, value))
			}
		}
	}
	switch len(named) {
	case 0:
		return f.static, nil
	case 1:
		return named[0], nil
	}
	var key []byte
	for _, value := range named {
		key = match.AppendKeyPart(key, value)
	}
	return string(key), nil
}

// withoutSecret returns what is wrong with a value, without the value; it keeps a value that is an address or network. Caddy logs the
// admin API's errors, and the value may be a credential that an operator has written for the wrong rule.
func withoutSecret(err error, value string) error {
	m := *words.Of(err)
	if _, other := match.ParseNetwork(value); other != nil {
		m.At = nil
	}
	return &m
}

// Parts returns the values of a key's parts.
func (f KeyForm) Parts(key string) []string {
	if len(f.Names) == 0 {
		return []string{}
	}
	if len(f.Names) == 1 && !f.Free {
		return []string{key}
	}
	var parts []string
	rest := key
	for rest != "" {
		digits, behind, found := strings.Cut(rest, ":")
		n, err := strconv.Atoi(digits)
		if !found || err != nil || n < 0 || n > len(behind) {
			return []string{key} // of a descriptor with one value that varies; or cut
		}
		parts = append(parts, behind[:n])
		rest = behind[n:]
	}
	if f.Free && len(parts) < 2 {
		return []string{key}
	}
	return parts
}

// Show returns the values of a key's parts for operators. A value that may be a credential is shown by its beginning, and a hash
// that distinguishes it from others. A key that is too long to be kept is one text: its beginning and a hash.
func (f KeyForm) Show(key string) []string {
	if len(key) >= longestTopKey {
		return f.ShowCut(key[:longestTopKey], topHash(key))
	}
	parts := f.Parts(key)
	for i := range parts {
		if f.Free && f.Secret[0] || !f.Free && i < len(f.Secret) && f.Secret[i] || len(parts) != len(f.Names) && !f.Free {
			parts[i] = Shortened(parts[i])
		}
	}
	return parts
}

// ShowCut is show for a key of which only the beginning and the hash of the whole are kept.
func (f KeyForm) ShowCut(beginning string, hash uint64) []string {
	if len(f.Names) == 0 {
		return []string{}
	}
	most := len(beginning)
	if len(f.Names) > 1 || f.Secret[0] {
		most = shownOfSecret
	}
	sum := keyedHash(strconv.FormatUint(hash, 16)) // hashed again, since the raw hash could reveal the seed
	return []string{strings.ToValidUTF8(beginning[:most], "") + "…#" + hex.EncodeToString(sum[:4])}
}

// keySalt makes hashes and ids of keys valid only in this process, so that nobody can find a key by trying.
var keySalt = rand.Text()

func keyedHash(text string) []byte {
	mac := hmac.New(sha256.New, []byte(keySalt))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// shownOfSecret is how many characters of a possible credential are shown at most.
const shownOfSecret = 4

// Shortened returns what is shown of a possible credential: a quarter of it, at most four characters, and a hash.
func Shortened(value string) string {
	if value == "" {
		return ""
	}
	runes := []rune(value)
	return string(runes[:min(shownOfSecret, len(runes)/4)]) + "…#" + hex.EncodeToString(keyedHash(value)[:4])
}

// IdOf returns an id for a key of a rule that does not reveal the key.
func IdOf(label, key string) string {
	return base64.RawURLEncoding.EncodeToString(keyedHash(label + "\n" + key)[:12])
}

func numberOfParts(n int) string {
	if n == 1 {
		return "1 part"
	}
	return fmt.Sprintf("%d parts", n)
}

// Leased returns how many units of a rule's limits this process holds; nil: the rule is not leased.
func (s *ActiveRule) Leased(stats *redis.LeaseStats) *int64 {
	if units, leased := stats.HeldOf(s.Rules); leased {
		return &units
	}
	return nil
}

// InMemory returns the limits of a rule that are counted in memory.
func (s *ActiveRule) InMemory() []*core.Rule {
	var rules []*core.Rule
	for _, one := range append([]*ActiveRule{s}, s.Also...) {
		if one.Limiter.Store == stores.MemoryName {
			rules = append(rules, one.Rules...)
		}
	}
	return rules
}

func (s *ActiveRule) HasCandidate() bool {
	return slices.ContainsFunc(s.Rules, func(r *core.Rule) bool { return slices.ContainsFunc(r.Linked(), (*core.Rule).IsCandidate) })
}

func (s *ActiveRule) HasPenalty() bool {
	return slices.ContainsFunc(s.Rules, func(r *core.Rule) bool {
		t, ok := r.Terms()
		return ok && len(t.Penalties) > 0
	})
}

func (s *ActiveRule) Measures() bool { return slices.ContainsFunc(s.Rules, (*core.Rule).Measures) }

// Waiting returns how many requests wait for the rule. In one handler, all limits of a rule share that count.
func (s *ActiveRule) Waiting() int64 {
	if len(s.Rules) == 0 {
		return 0
	}
	n := s.Rules[0].Waiting()
	for _, other := range s.Also {
		if len(other.Rules) > 0 && other.Rules[0] != s.Rules[0] {
			n += other.Rules[0].Waiting()
		}
	}
	return n
}

// KeysIn returns how many keys of rules are in memory. Rules with the same name, algorithm and period have the same keys.
func KeysIn(m *memory.Store, rules []*core.Rule) int64 {
	keys := int64(0)
	counted := make(map[string]bool)
	for _, r := range rules {
		if !counted[r.Identity] {
			counted[r.Identity] = true
			keys += m.Keys(r)
		}
	}
	return keys
}

// OverflowNotes describes a rule's overflow policy, other than rejecting, which requests it counts, and how nodes share its limit.
func OverflowNotes(text *ruleset.RuleText) []string {
	var notes []string
	if words := strings.Fields(text.Texts["enforcement"]); len(words) > 0 && words[0] == "soft" {
		notes = append(notes, strings.Join(words, " "))
	}
	if from := ruleset.One(text, "limit_from"); from != nil {
		note := "limit from " + from.Texts["source"]
		if max := from.Texts["max"]; max != "" {
			note += ", max " + max
		}
		notes = append(notes, note)
	}
	for _, field := range []string{"consistency", "respect_upstream"} {
		if word := text.Texts[field]; word != "" {
			notes = append(notes, field+" "+word)
		}
	}
	for _, list := range []struct{ field, says string }{{"count", "counts "}, {"cost_response", "charges "}, {"penalty", "penalty "}} {
		if words := text.Lists[list.field]; len(words) > 0 {
			notes = append(notes, list.says+strings.Join(ruleset.SplitWords(words), " "))
		}
	}
	if ruleset.One(text, "count_match") != nil {
		notes = append(notes, "count_match")
	}
	return notes
}

// LimitNotes describes what a limit has besides its numbers.
func LimitNotes(r *core.Rule) []string {
	var notes []string
	if zone := r.Limit.TimeZone(); zone != "" {
		notes = append(notes, "time_zone "+zone)
	}
	if l := r.Limit; l.Delays {
		notes = append(notes, fmt.Sprintf("delays up to %s", time.Duration(l.MaxDelay)*time.Microsecond))
	}
	for _, beside := range r.Linked() {
		if beside.IsCandidate() {
			notes = append(notes, "candidate "+beside.Limit.String())
		} else {
			notes = append(notes, beside.Limit.String()) // for example concurrency 5
		}
	}
	return notes
}

// WrittenLimit returns a limit as it is written, and its algorithm; nil is unlimited.
func WrittenLimit(r *core.Rule) (limit, algorithm string) {
	if r == nil {
		return ruleset.Unlimited, ""
	}
	limit = r.Limit.Written()
	algorithm = strings.TrimPrefix(r.Limit.String(), limit+" ")
	if r.Blocks() {
		limit = "0" + strings.TrimPrefix(limit, "1")
	}
	if l := r.Limit; l.InFlight {
		return fmt.Sprint(l.Requests), l.Algorithm.String()
	}
	return limit, algorithm
}

// LimitOf returns the limit that a rule's message names: its own, or if it has none, any other.
func LimitOf(l *core.Limits) *rate.Limit {
	if own := l.Own(); own != nil {
		return own.Limit
	}
	return l.Rules()[0].Limit
}
