package replay

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/ruleset"
)

// keyTable counts by key. It keeps keys as 64-bit hashes: with n keys the odds that any two share a count are below n²/2⁶⁴. It keeps the text only
// of keys that the report names.
type keyTable struct {
	places map[uint64]uint32
	counts []keyCount
	names  map[uint32]string
}

// keyCount counts one key's requests.
type keyCount struct {
	requests uint32
	rejected uint32 // including those that a shadow would have rejected
	peak     uint16 // the most of its limit that was in use, in thousandths
}

// seed is the same for all tables, so that those of two rules can be compared.
var seed = maphash.MakeSeed()

func newKeyTable() *keyTable {
	return &keyTable{places: make(map[uint64]uint32), names: make(map[uint32]string)}
}

// count returns the count of a key, and its place.
func (t *keyTable) count(hash uint64) (*keyCount, uint32) {
	place, ok := t.places[hash]
	if !ok {
		place = uint32(len(t.counts))
		t.counts = append(t.counts, keyCount{})
		t.places[hash] = place
	}
	return &t.counts[place], place
}

// rejections returns how often a key was rejected.
func (t *keyTable) rejections(hash uint64) uint32 {
	if place, ok := t.places[hash]; ok {
		return t.counts[place].rejected
	}
	return 0
}

// named returns the keys with the most of something, at most so many, and only keys that have any of it.
func (t *keyTable) named(most int, by func(uint32) int64) []uint32 {
	list := make([]uint32, 0, len(t.names))
	for place := range t.names {
		if by(place) > 0 {
			list = append(list, place)
		}
	}
	slices.SortFunc(list, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(by(b), by(a)), strings.Compare(t.names[a], t.names[b]))
	})
	return list[:min(most, len(list))]
}

// showKey returns a key for people to read: its parts with spaces between. It shortens parts that are or may be a client's secret, unless
// plain is set: parts from header fields, cookies and the query.
func showKey(rule *ruleset.Rule, key string, plain bool) string {
	values := []string{key}
	if len(rule.Parts) != 1 {
		values = splitKey(key)
	}
	parts := make([]string, 0, len(values))
	for i, value := range values {
		switch {
		case value == "":
			value = "(none)"
		case !plain && i < len(rule.Parts) && rule.Parts[i].Source.ClientChooses():
			value = pseudonym(value)
		default:
			value = shown(value, 80)
		}
		parts = append(parts, value)
	}
	return strings.Join(parts, " ")
}

// splitKey splits a key into the parts that match.AppendKeyPart has joined.
func splitKey(key string) []string {
	var parts []string
	for key != "" {
		length, rest, _ := strings.Cut(key, ":")
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 || n > len(rest) { // not reached
			return append(parts, key)
		}
		parts = append(parts, rest[:n])
		key = rest[n:]
	}
	return parts
}

// pseudonym returns a substitute for a value: the beginning of a long one, and the first 32 bits of its SHA-256.
func pseudonym(value string) string {
	sum := sha256.Sum256([]byte(value))
	beginning := ""
	if len(value) >= 16 {
		beginning = shown(value[:4], 16)
	}
	return beginning + "~" + hex.EncodeToString(sum[:4])
}

// shown returns a text that is safe to print: it escapes bytes and characters that could move a cursor or hide something, and cuts off
// text that is longer than most.
func shown(text string, most int) string {
	cut := false
	if len(text) > most {
		text, cut = strings.ToValidUTF8(text[:most], ""), true
	}
	quoted := strconv.QuoteToGraphic(text)
	text = quoted[1 : len(quoted)-1]
	text = strings.ReplaceAll(text, `\"`, `"`)
	if cut {
		text += "…"
	}
	return text
}
