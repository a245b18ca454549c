package words

import (
	"strconv"
	"strings"
)

// Nearest returns the known word that a misspelled one most likely meant, or "" if none is near: at most a third of the letters and one more
// may differ (Levenshtein's distance).
func Nearest(word string, known []string) string { return NearestWithin(word, known, len(word)/3+1) }

// NearestWithin is Nearest if that many letters may differ.
func NearestWithin(word string, known []string, most int) string {
	best, least := "", most
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k), least); d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// OneOf says which words are accepted in a setting's value, and which was probably meant by the one in it that is none of them.
func OneOf(name, value, word string, known []string) *Mistake {
	return Wrong(name, value, "must be one of %s", strings.Join(known, ", ")).Guess(Nearest(word, known))
}

// CheckWord says what a field of a configuration accepts if its value is none of the words. An empty value means the default, and is
// right.
func CheckWord(field, value string, words []string) error {
	if value == "" {
		return nil
	}
	for _, w := range words {
		if w == value {
			return nil
		}
	}
	list := strings.Join(words, ", ")
	if comma := strings.LastIndex(list, ", "); comma >= 0 {
		list = list[:comma] + " or " + list[comma+2:]
	}
	return Wrong(field, strconv.Quote(value), "must be %s", list).Guess(Nearest(value, words))
}

// distance is Levenshtein's distance, or any number above most if it is more than most.
func distance(a, b string, most int) int {
	if len(a)-len(b) > most || len(b)-len(a) > most || len(a) > 64 {
		return most + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		corner := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			d := corner
			if a[i-1] != b[j-1] {
				d++
			}
			if row[j]+1 < d {
				d = row[j] + 1
			}
			if row[j-1]+1 < d {
				d = row[j-1] + 1
			}
			corner, row[j] = row[j], d
		}
	}
	return row[len(b)]
}
