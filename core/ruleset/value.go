package ruleset

import (
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/words"
)

// Settings reads settings of one value each, and keeps the first error. For a setting that is wrong or not written it returns the standard
// value. The zero value is ready to use.
type Settings struct {
	Err error // a words.Mistake; nil: nothing is wrong
}

// Number reads a whole number from least to most.
func (s *Settings) Number(field, value string, least, most, standard int64) int64 {
	text := strings.TrimSpace(value)
	if text == "" {
		return standard
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		s.fail(field, value, "must be a whole number from %d to %d", least, most)
		return standard
	}
	return n
}

// Duration reads a duration from least to most.
func (s *Settings) Duration(field, value string, least, most, standard time.Duration) time.Duration {
	text := strings.TrimSpace(value)
	if text == "" {
		return standard
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		s.fail(field, value, "must be a duration from %s to %s", Shortly(least), Shortly(most))
		return standard
	}
	return d
}

// Truth reads a boolean; false is the standard value. (Traefik's decoder makes 1 and 0 of booleans.)
func (s *Settings) Truth(field, value string) bool {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "true", "1":
		return true
	case "false", "0", "":
		return false
	}
	s.fail(field, value, "must be true or false")
	return false
}

func (s *Settings) fail(field, value, must string, args ...interface{}) {
	if s.Err == nil {
		s.Err = words.Wrong(field, strconv.Quote(value), must, args...)
	}
}

// Shortly writes 1h, not 1h0m0s.
func Shortly(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
