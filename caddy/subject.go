package ratelimit

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

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/redis"
)

// subject is a rule in force, as the admin API, metrics and rate_limit_status see it.
type subject struct {
	label       string // see labelOf
	namespace   string
	name        string
	enforcement string // as it is written
	limiter     *stores.Limiter
	stats       *ruleStats
	own         *core.Rule   // the limit for requests without a tier or override; nil: none
	rules       []*core.Rule // all limits
	keys        keyForm
	source      string // where the rule is written: "zone", or a file and a line
	shadow      bool
	notes       []string // what else it does, in a few words
	limits      []namedLimit

	also []*subject // the same rule in other handlers, which may count it in another store

	rule *ruleset.Rule // nil: the rule is of a descriptor
	desc *core.Rule    // the limit of a descriptor; nil: the rule is of no descriptor

	all *core.Limits // of the rule or descriptor
}

// namedLimit is a limit that applies to only some requests under the rule.
type namedLimit struct {
	of    string // "tier gold", "key 192.0.2.7"
	tier  bool
	limit *core.Rule
	value string // the tier's
}

// tierOf returns the name of a tier's limit.
func tierOf(value string) string { return "tier " + value }

// labelsOf returns the labels of rules.
func labelsOf(list []*subject) []string {
	labels := make([]string, 0, len(list))
	for _, s := range list {
		labels = append(labels, s.label)
	}
	return labels
}

// subjectOf returns the description of a rule, from its compiled form and its text.
func subjectOf(r *ruleset.Rule, text *ruleset.RuleText) *subject {
	s := &subject{name: r.Name, enforcement: enforcementOf(text.Texts["enforcement"]), rule: r, all: r.Limits, own: r.Limits.InForce().Own(), rules: r.Limits.InForce().Rules(), keys: keysOf(r),
		shadow: r.Shadow, notes: overflowNotes(text)}
	if tiers := ruleset.One(text, "tiers"); tiers != nil {
		for _, tier := range tiers.Pairs["limits"] {
			value := ruleset.TierFor(r, tier.Name)
			s.limits = append(s.limits, namedLimit{tierOf(tier.Name), true, r.Limits.Of(value, ""), value})
		}
	}
	for _, o := range text.Objects["overrides"] {
		key := ruleset.KeyFor(r, o.Lists["key"])
		s.limits = append(s.limits, namedLimit{"key " + strings.Join(s.keys.show(key), " "), false, r.Limits.Of("", key), ""})
	}
	return s
}

// enforcementOf returns a rule's enforcement as it is written; the default is hard.
func enforcementOf(written string) string {
	if written == "" {
		return "hard"
	}
	return written
}

// keyForm describes the parts of a rule's keys.
type keyForm struct {
	names  []string
	secret []bool                                       // which parts may be credentials
	free   bool                                         // a key has as many parts as the descriptor has values that vary
	static string                                       // the key, if it has no parts
	named  func(part int, value string) (string, error) // normalizes a value that an operator has written; the error says why no request has it
}

func keysOf(r *ruleset.Rule) keyForm {
	f := keyForm{names: []string{}, static: r.Static, named: func(part int, value string) (string, error) { return ruleset.Named(r, part, value) }}
	for i := range r.Parts {
		f.names = append(f.names, r.Parts[i].Source.String())
		f.secret = append(f.secret, isSecret(r.Parts[i].Source))
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

// isSecret reports whether a source's value may be a credential.
func isSecret(source match.Source) bool {
	return source.ClientChooses() || source.Custom() != nil && !shownPlaceholders[source.String()]
}

// of returns the key whose parts have these values. The error says why no request has such a key, and what would be right.
func (f keyForm) of(values []string) (string, error) {
	named := slices.Clone(values)
	if !f.free {
		if len(f.names) == 0 && len(values) > 0 {
			return "", fmt.Errorf("key: this rule's has no parts, since all requests share one counter; leave key out")
		}
		if len(values) != len(f.names) {
			return "", fmt.Errorf("key: has %s, and this rule's has %d: %s", numberOfParts(len(values)), len(f.names), strings.Join(f.names, ", "))
		}
		for i, value := range values {
			var err error
			if named[i], err = f.named(i, value); err != nil {
				return "", fmt.Errorf("key: %s: %w", f.names[i], withoutSecret(err, value))
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

// parts returns the values of a key's parts.
func (f keyForm) parts(key string) []string {
	if len(f.names) == 0 {
		return []string{}
	}
	if len(f.names) == 1 && !f.free {
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
	if f.free && len(parts) < 2 {
		return []string{key}
	}
	return parts
}

// show returns the values of a key's parts for operators. A value that may be a credential is shown by its beginning, and a hash
// that distinguishes it from others. A key that is too long to be kept is one text: its beginning and a hash.
func (f keyForm) show(key string) []string {
	if len(key) >= longestTopKey {
		return f.showCut(key[:longestTopKey], topHash(key))
	}
	parts := f.parts(key)
	for i := range parts {
		if f.free && f.secret[0] || !f.free && i < len(f.secret) && f.secret[i] || len(parts) != len(f.names) && !f.free {
			parts[i] = shortened(parts[i])
		}
	}
	return parts
}

// showCut is show for a key of which only the beginning and the hash of the whole are kept.
func (f keyForm) showCut(beginning string, hash uint64) []string {
	if len(f.names) == 0 {
		return []string{}
	}
	most := len(beginning)
	if len(f.names) > 1 || f.secret[0] {
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

// shortened returns what is shown of a possible credential: a quarter of it, at most four characters, and a hash.
func shortened(value string) string {
	if value == "" {
		return ""
	}
	runes := []rune(value)
	return string(runes[:min(shownOfSecret, len(runes)/4)]) + "…#" + hex.EncodeToString(keyedHash(value)[:4])
}

// idOf returns an id for a key of a rule that does not reveal the key.
func idOf(label, key string) string {
	return base64.RawURLEncoding.EncodeToString(keyedHash(label + "\n" + key)[:12])
}

func numberOfParts(n int) string {
	if n == 1 {
		return "1 part"
	}
	return fmt.Sprintf("%d parts", n)
}

// leased returns how many units of a rule's limits this process holds; nil: the rule is not leased.
func (s *subject) leased(stats *redis.LeaseStats) *int64 {
	if units, leased := stats.HeldOf(s.rules); leased {
		return &units
	}
	return nil
}

// inMemory returns the limits of a rule that are counted in memory.
func (s *subject) inMemory() []*core.Rule {
	var rules []*core.Rule
	for _, one := range append([]*subject{s}, s.also...) {
		if one.limiter.Store == stores.MemoryName {
			rules = append(rules, one.rules...)
		}
	}
	return rules
}

func (s *subject) hasCandidate() bool {
	return slices.ContainsFunc(s.rules, func(r *core.Rule) bool { return slices.ContainsFunc(r.Beside(), (*core.Rule).IsCandidate) })
}

func (s *subject) hasPenalty() bool {
	return slices.ContainsFunc(s.rules, func(r *core.Rule) bool {
		t, ok := r.Terms()
		return ok && len(t.Penalties) > 0
	})
}

// waiting returns how many requests wait for the rule. In one handler, all limits of a rule share that count.
func (s *subject) waiting() int64 {
	if len(s.rules) == 0 {
		return 0
	}
	n := s.rules[0].Waiting()
	for _, other := range s.also {
		if len(other.rules) > 0 && other.rules[0] != s.rules[0] {
			n += other.rules[0].Waiting()
		}
	}
	return n
}

// keysIn returns how many keys of rules are in memory. Rules with the same name, algorithm and period have the same keys.
func keysIn(m *memory.Store, rules []*core.Rule) int64 {
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
