package redis

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"strings"
	"sync"

	"github.com/proxyweir/weir/core"
)

// DefaultPrefix begins every key, where no other is configured.
const DefaultPrefix = "weir:"

// format is the version of what is kept under a key. Another format has other keys, so that two versions of Weir on one
// Redis do not read each other's.
const format = "1"

// naming makes the names of keys: <prefix>{<client>}:<rule>. What stands in braces is what a Cluster finds the slot by, so
// that all the rules of one client are in one.
//
// <client> is the first 128 bits of the SHA-256 of the client's key, of its HMAC where there is a secret, or the key itself
// in plain. <rule> is the rule's name, after its namespace if it has one, and eight characters that stand for all of its
// identity.
type naming struct {
	prefix string
	plain  bool
	macs   *sync.Pool // of hash.Hash; nil without a secret
}

func newNaming(prefix, secret string, plain bool) (*naming, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if strings.Trim(prefix, "{}") != prefix || strings.Contains(prefix, "{") || strings.Contains(prefix, "}") {
		return nil, fmt.Errorf("prefix %q: must not have braces, which a Redis Cluster finds slots by", prefix)
	}
	if len(prefix) > 64 {
		return nil, fmt.Errorf("prefix %q: must be at most 64 bytes", prefix)
	}
	if plain && secret != "" {
		return nil, fmt.Errorf("key_secret: has no use beside plain_keys; take one of them out")
	}
	n := &naming{prefix: prefix + "{", plain: plain}
	if secret != "" {
		key := []byte(secret)
		n.macs = &sync.Pool{New: func() interface{} { return hmac.New(sha256.New, key) }}
	}
	return n, nil
}

// ruleSuffix returns what stands behind the braces in the keys of a rule.
func ruleSuffix(r *core.Rule) string {
	sum := sha256.Sum256([]byte(format + "|" + r.Identity()))
	name := r.Name()
	if r.Namespace() != "" {
		name = r.Namespace() + "/" + name
	}
	return "}:" + name + ":" + base64.RawURLEncoding.EncodeToString(sum[:6])
}

// key returns the name of a client's key under the rule of that suffix.
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

// longestPlain is how long a key may be to stand in plain; a longer one, which only somebody who means harm has, is hashed.
const longestPlain = 256

// plainKey returns a key as it stands in plain: bytes that do not print, braces and percent signs are written %xx, and an
// empty key as one percent sign, so that different keys stay different.
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
