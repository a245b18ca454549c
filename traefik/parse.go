package traefik

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// parseBool reads true or false. (The decoder makes 1 and 0 of a boolean.)
func parseBool(field, value string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "true", "1":
		return true, nil
	case "false", "0", "":
		return false, nil
	}
	return false, fmt.Errorf("%s %q: must be true or false", field, value)
}

// parseNumber reads a whole number from least to most, or takes the standard one where there is none.
func parseNumber(field, value string, least, most, standard int64) (int64, error) {
	text := strings.TrimSpace(value)
	if text == "" {
		return standard, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s %q: must be a whole number from %d to %d", field, value, least, most)
	}
	return n, nil
}

// parseDuration reads a duration from least to most, or takes the standard one where there is none.
func parseDuration(field, value string, least, most, standard time.Duration) (time.Duration, error) {
	text := strings.TrimSpace(value)
	if text == "" {
		return standard, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		return 0, fmt.Errorf("%s %q: must be a duration from %s to %s", field, value, shortly(least), shortly(most))
	}
	return d, nil
}

// shortly writes 1m, not 1m0s.
func shortly(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// trimmed returns a list without the spaces around its members: lists are often written "a, b".
func trimmed(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, strings.TrimSpace(s))
	}
	return out
}

// ourWords are the names that core and ruleset have for settings, and what they are called here.
var ourWords = strings.NewReplacer(
	"time_zone", "timeZone",
	"max_delay", "maxDelay",
	"max_waiting_per_key", "maxWaitingPerKey", // before the one that it begins with
	"max_waiting", "maxWaiting",
	"ipv4_prefix", "ipv4Prefix",
	"ipv6_prefix", "ipv6Prefix",
	"path_prefixes", "pathPrefixes",
	"except_ips", "exceptIPs",
	"on_limit", "onLimit",
	"on_error", "onError",
	"on_missing_key", "onMissingKey",
	"count_rejected", "countRejected",
	"have request_header set a field to it, and take header:NAME", "write header:NAME for a field",
	"key_secret", "keySecret",
	"plain_keys", "plainKeys",
)
