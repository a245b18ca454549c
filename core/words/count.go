package words

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseCount reads a whole number from 1 to most, in digits alone.
func ParseCount(s string, most int64) (int64, error) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%q: must be a whole number from 1 to %d", s, most)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%q: must be a whole number from 1 to %d", s, most)
	}
	return n, nil
}
