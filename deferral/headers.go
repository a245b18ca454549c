package deferral

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/proxyweir/weir/core/words"
)

// DefaultHeaders are the header fields that are stored unless others are configured: what a body is, and which answer the client understands.
var DefaultHeaders = []string{"Accept", "Accept-Language", "Content-Encoding", "Content-Language", "Content-Type"}

// secretParts are what the names of header fields and parameters with credentials have in them.
var secretParts = []string{"authorization", "cookie", "api-key", "api_key", "apikey", "token", "secret", "password", "session"}

// IsSecret reports whether the value of a header field, a parameter or a placeholder is a credential, by its name. Such values are stored
// only if they are encrypted.
func IsSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(name, part) })
}

// otherHeaders cannot be stored: they are about the connection or the message, or are kept in another way.
var otherHeaders = []string{"Connection", "Content-Length", "Expect", "Host", "Idempotency-Key", "Keep-Alive", "Prefer", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// CheckHeaders returns the canonical names of the header fields that are to be stored. The error says which cannot be.
func CheckHeaders(names []string, encrypt bool) ([]string, error) {
	var list []string
	for _, name := range names {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !words.IsToken(name):
			return nil, words.Wrong("headers", strconv.Quote(name), "is no name of a header field; write names such as Content-Type")
		case slices.Contains(otherHeaders, canonical):
			return nil, words.Wrong("headers", name, "cannot be stored; a deferred request has its own")
		case IsSecret(name) && !encrypt:
			return nil, words.Wrong("headers", name, "is a secret, which is stored only with encrypt; write encrypt with a key, or leave it out")
		case slices.Contains(list, canonical):
			return nil, words.Wrong("headers", name, "duplicate; keep one")
		}
		list = append(list, canonical)
	}
	return list, nil
}

// decisiveHeaders are fields without which a request would do something else: its body would be unreadable, its condition would not be checked, or it
// would have another method. A request with one of them is deferred only if the field is stored.
var decisiveHeaders = []string{"Content-Encoding", "If-Match", "If-Modified-Since", "If-None-Match", "If-Unmodified-Since", "X-Http-Method", "X-Http-Method-Override", "X-Method-Override"}

// IsText reports whether all of some strings are UTF-8. What is stored of a request is JSON, which cannot have others.
func IsText(all ...string) bool {
	return !slices.ContainsFunc(all, func(one string) bool { return !utf8.ValidString(one) })
}

// hasPrefix reports whether a text begins with another, in upper or lower case.
func hasPrefix(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}

// listed reports whether one of the members of a field is that word. Parameters of a member are ignored.
func listed(h http.Header, field, word string) bool {
	for _, value := range h.Values(field) {
		for member := range strings.SplitSeq(value, ",") {
			member, _, _ = strings.Cut(member, ";")
			if strings.EqualFold(strings.TrimSpace(member), word) {
				return true
			}
		}
	}
	return false
}

// fields returns names and values of the header fields that are wanted, in the order of the names. A field that comes several times is the same as one with
// all its values (RFC 9110, section 5.3).
func fields(h http.Header, wanted func(name string) bool) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if wanted(name) {
			list = append(list, name, strings.Join(h[name], ", "))
		}
	}
	return list
}
