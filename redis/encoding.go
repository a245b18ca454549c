package redis

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// appendArgument appends a rule's part of a script's argument, for a request that costs 1: see rule in scripts/decision.lua. windows are the bounds of the
// calendar's windows, of a limit that has a calendar.
func appendArgument(b []byte, r *core.Rule, peek bool, windows []int64) []byte {
	l := r.Limit
	x, y := algorithmOf(l).numbers(l)
	b = append(b, byte(l.Algorithm), countsOf(r), byte(oneIf(r.Shadow)), byte(oneIf(peek)))
	b = appendDouble(b, 1) // the cost
	b = appendDouble(b, l.Requests)
	b = appendDouble(b, l.Period)
	b = appendDouble(b, x)
	b = appendDouble(b, y)
	for _, w := range windows {
		b = appendDouble(b, w)
	}
	return b
}

// countsOf returns counts and owes of a rule's argument.
func countsOf(r *core.Rule) byte {
	if r.Limit.Owes {
		return 2
	}
	return byte(oneIf(r.CountRejected))
}

// costAt and yAt are the offsets of the cost and of Y in the bytes that appendArgument appends.
const (
	costAt = 4
	yAt    = costAt + 4*8
)

// withNumber returns an argument that appendArgument has made, with another number at that offset.
func withNumber(argument string, at int, n int64) string {
	b := []byte(argument)
	putDouble(b[at:], n)
	return string(b)
}

func appendDouble(b []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
}

func putDouble(b []byte, n int64) { binary.LittleEndian.PutUint64(b, math.Float64bits(float64(n))) }

// longest is longer than any time that the scripts reply with, in microseconds: two hundred years.
const longest = 200 * 366 * 24 * 3600 * 1_000_000

// readDecision reads one rule's four numbers of a reply. It returns false if they are out of range.
func readDecision(r *core.Rule, reply []int64, d *rate.Decision) bool {
	remaining, wait, reset, more := reply[0], reply[1], reply[2], reply[3]
	if remaining > r.Limit.Quota || remaining < -1-r.Limit.Quota || wait < rate.Never || wait > longest || reset < 0 || reset > longest || more < 0 || more > longest {
		return false
	}
	*d = rate.Decision{Allowed: remaining >= 0, Limit: r.Limit.Quota, Remaining: remaining, ResetAfter: reset}
	if d.Allowed {
		d.MoreAfter = more
		d.Delay = wait
	} else {
		d.Remaining = -1 - remaining
		d.RetryAfter = wait
	}
	return true
}

// DefaultPrefix begins every key, unless another prefix is configured.
const DefaultPrefix = "weir:"

// format is the version of the values' format. It is part of the keys, so that two versions of Weir on one Redis never read each
// other's values.
const format = "1"

// naming makes the names of keys: <prefix>{<client>}:<rule>. The part in braces is the hash tag, by which a Cluster chooses the slot, so
// all the rules of one client are in one slot.
//
// <client> is the first 128 bits of the SHA-256 of the client's key; with a secret, of its HMAC; with plain, the key itself. <rule> is
// the rule's namespace if it has one, its name, and eight characters of a hash of its identity.
type naming struct {
	prefix string
	plain  bool
	macs   *sync.Pool // of hash.Hash; nil without a secret
	secret string
}

func newNaming(prefix, secret string, plain bool) (*naming, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if strings.Trim(prefix, "{}") != prefix || strings.Contains(prefix, "{") || strings.Contains(prefix, "}") {
		return nil, words.Wrong("prefix", strconv.Quote(prefix), "must not have braces, which a Redis Cluster finds slots by")
	}
	if len(prefix) > 64 {
		return nil, words.Wrong("prefix", strconv.Quote(prefix), "must be at most 64 bytes")
	}
	if plain && secret != "" {
		return nil, words.Wrong("key_secret", "", " and `plain_keys` are mutually exclusive: remove one")
	}
	n := &naming{prefix: prefix + "{", plain: plain, secret: secret}
	if secret != "" {
		key := []byte(secret)
		n.macs = &sync.Pool{New: func() interface{} { return hmac.New(sha256.New, key) }}
	}
	return n, nil
}

// ruleSuffix returns the part of a rule's keys that follows the closing brace, with that brace.
func ruleSuffix(r *core.Rule) string {
	sum := sha256.Sum256([]byte(format + "|" + r.Identity))
	name := r.Name()
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	return "}:" + name + ":" + base64.RawURLEncoding.EncodeToString(sum[:6])
}

// key returns the name of the key of a client under the rule with that suffix.
func (n *naming) key(client, suffix string) string {
	if n.plain {
		return n.prefix + plainKey(client) + suffix
	}
	var digest [22]byte
	if n.macs == nil {
		sum := sha256.Sum256([]byte(client))
		base64.RawURLEncoding.Encode(digest[:], sum[:16])
	} else {
		mac := n.macs.Get().(hash.Hash)
		mac.Reset()
		mac.Write([]byte(client)) // a hash never fails
		base64.RawURLEncoding.Encode(digest[:], mac.Sum(nil)[:16])
		n.macs.Put(mac)
	}
	return n.prefix + string(digest[:]) + suffix
}

// hash returns what a client is called where nodes tell each other of it: the beginning of the hash in the names of its keys, also with plain keys.
func (n *naming) hash(client string) uint64 {
	if n.macs == nil {
		sum := sha256.Sum256([]byte(client))
		return binary.BigEndian.Uint64(sum[:8])
	}
	mac := n.macs.Get().(hash.Hash)
	mac.Reset()
	mac.Write([]byte(client)) // a hash never fails
	sum := mac.Sum(nil)
	n.macs.Put(mac)
	return binary.BigEndian.Uint64(sum)
}

// longestPlain is the longest key that stays readable, in bytes. A longer one is hashed: only attackers have such keys.
const longestPlain = 256

// plainKey returns the readable form of a key. It writes bytes that do not print, braces and percent signs as %xx, and an empty key as one
// percent sign, so that different keys stay different.
func plainKey(client string) string {
	if client == "" {
		return "%"
	}
	if len(client) > longestPlain {
		sum := sha256.Sum256([]byte(client))
		return "%%" + base64.RawURLEncoding.EncodeToString(sum[:16])
	}
	const digits = "0123456789abcdef"
	escaped := make([]byte, 0, len(client)+16)
	for i := 0; i < len(client); i++ {
		c := client[i]
		if c <= ' ' || c > '~' || c == '{' || c == '}' || c == '%' {
			escaped = append(escaped, '%', digits[c>>4], digits[c&15])
		} else {
			escaped = append(escaped, c)
		}
	}
	return string(escaped)
}
