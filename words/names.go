package words

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// NameBytes are those that may stand in the name of a rule.
const NameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

// CheckName says what is wrong with the name of a rule or a namespace.
func CheckName(name string) error {
	// Trim stops at the first byte that is another, and is compiled where this is interpreted.
	if len(name) < 1 || len(name) > 64 || strings.Trim(name, NameBytes) != "" {
		return fmt.Errorf("name %q: must be 1 to 64 of A-Z a-z 0-9 _ . -", name)
	}
	return nil
}

// NameFor returns a name that stands for a text, and has what can be kept of it: readable is the text, or tells the same. Equal texts
// have equal names, and others have others, but for one chance in 2³².
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
