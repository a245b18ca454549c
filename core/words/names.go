package words

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// NameBytes are the bytes that the name of a rule may have.
const NameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

// CheckName says what is wrong with the name of a rule or a namespace.
func CheckName(name string) error {
	// Trim stops at the first byte that is another, and is compiled where this is interpreted.
	if len(name) < 1 || len(name) > 64 || strings.Trim(name, NameBytes) != "" {
		return Wrong("name", strconv.Quote(name), "must be 1 to 64 of A-Z a-z 0-9 _ . -")
	}
	return nil
}

// IsToken reports whether a text is a token as RFC 9110 defines it: the form of field names.
func IsToken(s string) bool {
	return s != "" && strings.Trim(s, NameBytes+"!#$%&'*+^`|~") == ""
}

// NameFor returns a valid name for a text, and keeps of readable, which is the text or a form of it, what a name may have. Equal texts
// have equal names, and different texts have different names, but for one chance in 2³².
func NameFor(readable, text string) string {
	kept := []byte(readable)
	for i := range kept {
		if strings.IndexByte(NameBytes, kept[i]) < 0 {
			kept[i] = '_'
		}
	}
	if len(kept) > 55 {
		kept = kept[:55]
	}
	sum := sha256.Sum256([]byte(text))
	return string(kept) + "-" + hex.EncodeToString(sum[:4])
}
