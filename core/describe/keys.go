package describe

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// KeyForm describes the parts of a rule's keys.
type KeyForm struct {
	Names  []string
	Secret []bool                                       // which parts may be credentials
	Free   bool                                         // a key has as many parts as the descriptor has values that vary
	static string                                       // the key, if it has no parts
	named  func(part int, value string) (string, error) // normalizes a value that an operator has written; the error says why no request has it
}

// KeysOf returns the form of a rule's keys.
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
			return "", fmt.Errorf("key: has %s, and this rule's has %d: %s", Count(len(values), "part"), len(f.Names), strings.Join(f.Names, ", "))
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
	if len(key) >= LongestKey {
		return f.ShowCut(key[:LongestKey], HashOf(key))
	}
	parts := f.Parts(key)
	for i := range parts {
		if !isAddress(parts[i]) && (f.Free && f.Secret[0] || !f.Free && i < len(f.Secret) && f.Secret[i] || len(parts) != len(f.Names) && !f.Free) {
			parts[i] = Shortened(parts[i])
		}
	}
	return parts
}

// isAddress reports whether a part of a key is an address or a network, also behind the name that the first of several sources gives it: nobody has these as a
// credential.
func isAddress(part string) bool {
	_, err := match.ParseNetwork(strings.TrimPrefix(strings.TrimPrefix(part, "client_ip="), "remote_ip="))
	return err == nil
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

// LongestKey is the length of the longest key that is shown, in bytes; of one of this length or longer only the beginning is.
const LongestKey = 4096

var hashSeed = maphash.MakeSeed()

// HashOf returns the hash of a whole key, in this process.
func HashOf(key string) uint64 { return maphash.String(hashSeed, key) }

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
