package words

import (
	"strconv"
	"strings"
)

// ParseCount reads a whole number from 1 to most, in digits alone.
func ParseCount(s string, most int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || n > most || strings.Trim(s, "0123456789") != "" {
		return 0, Wrong("", strconv.Quote(s), "must be a whole number from 1 to %d", most)
	}
	return n, nil
}
